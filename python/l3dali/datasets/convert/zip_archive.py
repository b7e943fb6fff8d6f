"""Zip archives of files: members that are images become L3, all else stays.

Read and written by `zipfile`. Nothing is extracted.
"""

from __future__ import annotations

import copy
import io
import posixpath
import shutil
import stat
import struct
import zipfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from l3dali.datasets.convert.images import (
    Blob,
    Entry,
    has_image_suffix,
    l3_names,
    may_be_image,
    renamed,
)
from l3dali.datasets.convert.storage import CHUNK_BYTES
from l3dali.signatures import HEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from l3dali.datasets.convert.images import Converter, Options, Outcome
    from l3dali.datasets.convert.storage import HashedWriter

KIND = "zip"
SUFFIXES = (".zip",)
IS_STREAMED, HAS_INDEX = False, False

_STARTS = (b"PK\3\4", b"PK\5\6")  # of a member, and of an archive without any
_ENCRYPTED, _NAME_IS_UTF8 = 1, 0x800  # flags
_ZIP64_FIELD = 1
_MOST_END_BYTES = 22 + 2**16  # with a comment
_COUNT_IS_ELSEWHERE = 0xFFFF  # in the ZIP64 record
_UNIX, _MACOS = 3, 19


@dataclass
class Member(Entry):
    """A member of an archive; data that is not an image is copied when its turn comes."""

    info: zipfile.ZipInfo


def read_entries(source: BinaryIO, options: Options) -> Iterator[Member]:
    """Reads the members of an archive, in the order of its directory.

    Raises:
        ValueError: it is damaged or encrypted.
    """
    with _opened(source) as archive:
        yield from _read_members(archive, options)


def write_entries(source: BinaryIO, target: HashedWriter, pool: Converter) -> str | None:
    """Converts an archive; there is no index to return."""
    with (
        _opened(source) as archive,
        _Writer(target, pool.options, archive.namelist()) as result,
    ):
        result.comment = archive.comment
        for member, outcomes in pool.convert(_read_members(archive, pool.options)):
            data = [blob.data for blob in member.blobs] or _chunks_of(archive, member.info)
            result.add(member.info, data, outcomes[0] if outcomes else None)
            del member, outcomes, data
        result.check_links()
    return None


class _Writer(zipfile.ZipFile):
    """Writes an archive to a file that is written from start to end."""

    def __init__(self, target: HashedWriter, options: Options, names: Iterable[str]) -> None:
        super().__init__(target, "w")
        self._options = options
        self._names = l3_names(name for name in names if has_image_suffix(name, options))
        self._links: dict[str, str] = {}  # by where they lead
        self._moved: set[str] = set()  # images whose results have other names

    def add(self, old: zipfile.ZipInfo, data: Iterable[bytes], outcome: Outcome | None) -> None:
        """Writes a member: the result of an image, or its data, in parts.

        Raises:
            ValueError: another member has its name.
        """
        name = old.filename
        if outcome is not None and outcome.failed and self._options.on_error == "drop":
            return
        # zipfile finds sizes and checksum, and writes the field of large members.
        info = copy.copy(old)
        info.flag_bits = 0
        info.extra = _without_zip64(old.extra)
        if outcome is not None and outcome.data is not None:
            info.filename = renamed(name, outcome.suffix)
            if self._options.to == "l3":
                info.filename = self._names.get(name, info.filename)
            info.compress_type, info.file_size = zipfile.ZIP_STORED, len(outcome.data)
            data = (outcome.data,)
            self._moved.add(posixpath.normpath(name))
        if info.filename in self.NameToInfo:
            raise ValueError(f"{name}: another member would be {info.filename} too; rename one")
        if _is_link(info):
            data = [b"".join(data)]
            link = data[0].decode(errors="backslashreplace")
            self._links[posixpath.normpath(posixpath.join(posixpath.dirname(name), link))] = name
        attributes = info.external_attr
        with self.open(info, "w") as file:
            for chunk in () if info.is_dir() else data:
                file.write(chunk)
        info.external_attr = attributes  # zipfile has added a mode.

    def check_links(self) -> None:
        """Raises ValueError if a link leads to an image that has another name now."""
        for end in self._moved & self._links.keys():
            raise ValueError(f"{self._links[end]}: a link to an image, {end}; make it a file")


@contextmanager
def _opened(source: BinaryIO) -> Iterator[zipfile.ZipFile]:
    source.seek(0)
    if source.read(4) not in _STARTS:
        raise ValueError("not a zip archive, or one with data before it")
    try:
        archive = zipfile.ZipFile(source)
    except Exception as error:  # zipfile raises anything on damaged data.
        raise ValueError(f"not a whole zip archive: {error}") from error
    with archive:
        members = archive.infolist()
        if min((info.header_offset for info in members), default=archive.start_dir):
            raise ValueError("data before the first member: archives in one file are not supported")
        source.seek(-min(_MOST_END_BYTES, source.seek(0, io.SEEK_END)), io.SEEK_END)
        count = int.from_bytes(source.read().rpartition(_STARTS[1])[2][6:8], "little")
        if count not in (len(members), _COUNT_IS_ELSEWHERE):  # zipfile does not compare them.
            raise ValueError(f"a damaged directory: {len(members)} members of {count}")
        for info in members:
            info.filename = _name_of(info)
        yield archive


def _read_members(archive: zipfile.ZipFile, options: Options) -> Iterator[Member]:
    for info in archive.infolist():
        name = info.filename
        if info.flag_bits & _ENCRYPTED:
            raise ValueError(f"{name}: an encrypted member")
        blobs: list[Blob] = []
        if not info.is_dir():
            with _damage_of(name), archive.open(info) as file:
                head = file.read(HEAD_BYTES)
                if not _is_link(info) and may_be_image(name, head, options):
                    whole = io.BytesIO(head)
                    whole.seek(len(head))
                    shutil.copyfileobj(file, whole, CHUNK_BYTES)  # Signals are handled.
                    blobs.append(Blob(name, whole.getvalue(), name))
                    del whole
        yield Member(blobs, info)
        del blobs


@contextmanager
def _damage_of(name: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, MemoryError):
        raise
    except Exception as error:  # Each compression has errors of its own.
        raise ValueError(f"{name}: a damaged member: {error}") from error


def _name_of(info: zipfile.ZipInfo) -> str:
    """A member's name. Archives of Linux and macOS may have UTF-8 without its mark."""
    if not info.flag_bits & _NAME_IS_UTF8 and info.create_system in (_UNIX, _MACOS):
        with suppress(UnicodeError):
            return info.filename.encode("cp437").decode()
    return info.filename


def _without_zip64(extra: bytes) -> bytes:
    kept, at = b"", 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<2H", extra, at)
        if kind != _ZIP64_FIELD:
            kept += extra[at : at + 4 + size]
        at += 4 + size
    return kept


def _chunks_of(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    """The data of a member; raises as `read_entries`."""
    with _damage_of(info.filename), archive.open(info) as source:
        while chunk := source.read(CHUNK_BYTES):
            yield chunk


def _is_link(info: zipfile.ZipInfo) -> bool:
    """Whether a member is a symbolic link; its data is the target."""
    return stat.S_ISLNK(info.external_attr >> 16)
