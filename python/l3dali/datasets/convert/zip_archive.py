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
import zlib
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from l3dali.datasets.convert.images import HEAD_BYTES, Blob, has_image_suffix, may_be_image, renamed
from l3dali.datasets.convert.storage import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from l3dali.datasets.convert.images import Options, Outcome
    from l3dali.datasets.convert.pipeline import ImagePool
    from l3dali.datasets.convert.storage import HashedWriter

SUFFIXES = (".zip",)

MAX_IMAGE_BYTES = 2**31  # of a member, inflated
_FREE_L3_BYTES = 2**26  # of an L3 file that takes little in the archive
MAX_L3_TIMES = 100  # that a larger one may be larger than what it takes there
MAX_TIMES = 1100  # that the members may be larger than the archive; deflate reaches 1,032
_STARTS = (b"PK\3\4", b"PK\5\6")  # of a member, and of an archive without any
_END_BYTES, _MOST_END_BYTES = 18, 98 + 2**16  # behind its start before the comment; in all
_LOCAL_BYTES = 30  # of a member's header before its name
_ENCRYPTED = 1
# Of others zipfile unpacks all that some bytes hold at once: of bzip2, a million times as many.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MAX_NAME_BYTES = 2**16 - 1
_MAX_LINK_BYTES = 4096
_ZIP64_FIELD, _NAME_FIELD = 1, 0x7075  # the second: Info-ZIP's, a name in UTF-8
_NAMES_ARE_UTF8 = 0x800
_UNIX, _MACOS = 3, 19


class ZipError(ValueError):
    """An archive that is damaged or cannot be converted."""


@dataclass
class Member:
    """A member of an archive.

    Attributes:
        info: what the archive's directory says of it.
        blobs: its data, if that may be an image; other data is copied when its turn comes.
    """

    info: zipfile.ZipInfo
    blobs: Sequence[Blob]

    @property
    def bytes(self) -> int:
        """What it holds in memory."""
        return sum(len(blob.data) for blob in self.blobs)


def read_entries(source: BinaryIO, options: Options) -> Iterator[Member]:
    """Reads the members of an archive, in the order of its directory.

    Raises:
        ZipError: it is damaged or encrypted, or its members overlap or are larger than they can be.
    """
    with opened(source) as archive:
        yield from read_members(archive, options)


def write_entries(source: BinaryIO, target: HashedWriter, pool: ImagePool) -> str | None:
    """Converts an archive; there is no index to return."""
    with opened(source) as archive, Writer(target, pool.options) as result:
        result.comment = archive.comment
        unread = archive.start_dir
        for member, outcomes in pool.convert(read_members(archive, pool.options)):
            outcome = outcomes[0] if outcomes else None
            data = [blob.data for blob in member.blobs] or chunks_of(archive, member.info)
            local_extra = _local_extra(source, member.info)
            unread -= len(local_extra)
            if unread < 0:
                raise ZipError("extra fields that overlap")
            result.add(_new_info(member.info), data, outcome, _kept_fields(local_extra))
            del member, outcomes, outcome, data
    return None


class Writer(zipfile.ZipFile):
    """Writes an archive to a file that is written from start to end."""

    def __init__(self, target: HashedWriter, options: Options) -> None:
        super().__init__(_Sink(target), "w")
        self._options = options
        self._links: dict[str, str] = {}  # by where they lead
        self._moved: set[str] = set()  # images whose results have other names
        self._folded: dict[str, str] = {}  # names as a disk has them that does not tell cases apart

    def add(
        self,
        info: zipfile.ZipInfo,
        data: Iterable[bytes],
        outcome: Outcome | None,
        local_extra: bytes | None = None,
    ) -> None:
        """Writes a member: what became of it, or its data.

        Args:
            info: for the directory.
            data: in parts.
            outcome: of an image.
            local_extra: extra fields before the data, where they are others than the directory's.

        Raises:
            ZipError: its name is too long, or another member's, on disks that know no cases too.
        """
        name = info.filename
        if outcome is not None and outcome.failed and self._options.on_error == "drop":
            return
        if outcome is not None and outcome.data is not None:
            info.filename = renamed(name, outcome.suffix)
            info.compress_type, info.file_size = zipfile.ZIP_STORED, len(outcome.data)
            data = (outcome.data,)
        if len(info.filename.encode()) > _MAX_NAME_BYTES:
            raise ZipError(f"{name}: a name that is too long for zip archives")
        source, place = posixpath.normpath(name), posixpath.normpath(info.filename)
        other = self._folded.setdefault(place.casefold(), source)
        is_taken = info.filename in self.NameToInfo
        if is_taken and other == source:
            raise ZipError(f"two members of the name {name}")
        if is_taken or other.casefold() != source.casefold():  # Else the source has them so, too.
            raise ZipError(
                f"{other} and {name} would both be {info.filename}, on disks that know no cases "
                "too: rename one of them"
            )
        end = source
        if is_link(info):
            data = [b"".join(data)]
            link = data[0].decode(errors="backslashreplace")
            end = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
            self._links[end] = name
        elif source != place:
            self._moved.add(source)
        if end in self._moved and end in self._links:
            raise ZipError(f"{self._links[end]}: a link to an image, {end}; make it a file")
        extra, attributes = info.extra, info.external_attr
        info.extra = extra if local_extra is None else local_extra
        with self.open(info, "w") as file:
            for chunk in () if info.is_dir() else data:
                file.write(chunk)
        # The directory follows at the end. Without attributes zipfile has given the member a mode.
        info.extra, info.external_attr = extra, attributes


@contextmanager
def opened(source: BinaryIO) -> Iterator[zipfile.ZipFile]:
    source.seek(0)
    if source.read(4) not in _STARTS:
        raise ZipError("not a zip archive, or one with something before it")
    try:
        archive = zipfile.ZipFile(source)
    except Exception as error:  # zipfile raises anything on damaged data.
        raise ZipError(f"not a whole zip archive: {error}") from error
    with archive:
        for info in archive.infolist():
            info.filename = _name_of(info)
        size = source.seek(0, io.SEEK_END)
        source.seek(max(0, size - _MOST_END_BYTES))
        before, _, end = source.read().rpartition(_STARTS[1])
        total = end[6:8]
        if total == b"\xff\xff" and before[-20:-16] == b"PK\6\7":
            total = before[-44:-36]  # of ZIP64
        # zipfile does not look at it. Archives of more members without ZIP64 have the rest alone.
        if (len(archive.infolist()) - int.from_bytes(total, "little")) % 2**16:
            raise ZipError("a damaged directory: it has not the members that its end counts")
        if end[_END_BYTES + len(archive.comment) :].strip(b"\0"):
            raise ZipError("data behind the end of the archive")
        if min((info.header_offset for info in archive.infolist()), default=archive.start_dir):
            raise ZipError("data before the first member: archives in one file are not supported")
        names = Counter(info.filename for info in archive.infolist())
        if "" in names:
            raise ZipError("a member without a name")
        for info in archive.infolist():
            if info.compress_type not in _METHODS:
                raise ZipError(f"{info.filename}: packed by another method than deflate")
            if info.is_dir() and info.file_size:
                raise ZipError(f"{info.filename}: a file with the name of a folder")
            if "\0" in info.filename:
                raise ZipError(f"{info.filename!r}: a name with a NUL in it")
        for name, count in names.most_common(1):
            if count > 1:
                raise ZipError(f"two members of the name {name}")
        inflated = sum(info.file_size for info in archive.infolist())
        if inflated > MAX_TIMES * size:
            raise ZipError(
                f"{inflated} bytes of members in an archive of {size}, more than any can hold"
            )
        members = sorted(archive.infolist(), key=lambda info: info.header_offset)
        ends = [*(info.header_offset for info in members[1:]), archive.start_dir]
        for info, stop in zip(members, ends, strict=False):  # An archive may be empty.
            if info.header_offset + _LOCAL_BYTES + info.compress_size > stop:
                raise ZipError(f"{info.filename}: a member that reaches into what lies behind it")
        yield archive


def read_members(archive: zipfile.ZipFile, options: Options) -> Iterator[Member]:
    """The members of an archive, in the order of its directory; raises as `read_entries`."""
    for info in archive.infolist():
        name = info.filename
        if info.flag_bits & _ENCRYPTED:
            raise ZipError(f"{name}: an encrypted member")
        blobs: list[Blob] = []
        if is_link(info) and info.file_size > _MAX_LINK_BYTES:
            raise ZipError(f"{name}: a link of {info.file_size} bytes")
        if not info.is_dir():
            with _damage_of(name), archive.open(info) as file:
                head = file.read(HEAD_BYTES)
                if is_link(info):
                    _refuse_link(name, head + file.read(), options)
                elif may_be_image(name, head, options):
                    most = _most_bytes(info, options)
                    if info.file_size > most:
                        raise ZipError(
                            f"{name}: an image of {info.file_size} bytes; up to {most} are read "
                            "from an archive, and of L3 files that it packs no more than "
                            f"{MAX_L3_TIMES} times what they take"
                        )
                    whole = io.BytesIO()
                    whole.write(head)
                    shutil.copyfileobj(file, whole, CHUNK_BYTES)  # Signals are heard.
                    data = whole.getvalue()
                    del whole
                    _check_size(len(data), info)
                    blobs.append(Blob(name, data, name))
                    del data
        yield Member(info, blobs)
        del blobs


def _most_bytes(info: zipfile.ZipInfo, options: Options) -> int:
    """How large an image may be."""
    if options.to == "l3":  # Label maps without compression shrink to anything.
        return MAX_IMAGE_BYTES
    return min(max(_FREE_L3_BYTES, MAX_L3_TIMES * info.compress_size), MAX_IMAGE_BYTES)


def _refuse_link(name: str, data: bytes, options: Options) -> None:
    link = data.decode(errors="backslashreplace")
    if has_image_suffix(link, options):
        raise ZipError(f"{name}: a link to an image, {link}; make it a file")


@contextmanager
def _damage_of(name: str) -> Iterator[None]:
    try:
        yield
    except ZipError:
        raise
    except Exception as error:  # Each way of packing has errors of its own.
        raise ZipError(f"{name}: a damaged member: {error}") from error


def _name_of(info: zipfile.ZipInfo) -> str:
    """A member's name as Info-ZIP reads it; zipfile takes what is not marked for code page 437.

    Archives of Linux and macOS have names in UTF-8 without the mark. (PKWARE's APPNOTE 4.6.9.)
    """
    if info.flag_bits & _NAMES_ARE_UTF8:
        return info.orig_filename
    name = info.orig_filename.encode("cp437")
    head = b"\1" + zlib.crc32(name).to_bytes(4, "little")  # the field's version, and the check
    fields = [body for kind, body in fields_of(info.extra) if kind == _NAME_FIELD]
    found = [body[len(head) :] for body in fields if body.startswith(head)]
    if not found and info.create_system in (_UNIX, _MACOS):
        found = [name]
    with suppress(UnicodeDecodeError, IndexError):
        return found[-1].decode()
    return info.orig_filename


def _new_info(info: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """What the result's directory is to say: sizes and checksum are zipfile's to find.

    So is a field of large members where one is needed. The name is written as UTF-8.
    """
    new = copy.copy(info)
    new.flag_bits = 0
    new.extra = _kept_fields(info.extra)
    return new


def _local_extra(source: BinaryIO, info: zipfile.ZipInfo) -> bytes:
    """The extra fields before a member's data; the directory's may be shorter."""
    source.seek(info.header_offset)
    head = source.read(_LOCAL_BYTES)
    if len(head) < _LOCAL_BYTES or not head.startswith(_STARTS[0]):
        return info.extra  # of a folder; who reads data there finds that it is damaged
    name_bytes, extra_bytes = struct.unpack_from("<2H", head, 26)
    return source.read(name_bytes + extra_bytes)[name_bytes:]


def _kept_fields(extra: bytes) -> bytes:
    return b"".join(
        struct.pack("<2H", kind, len(body)) + body
        for kind, body in fields_of(extra)
        if kind not in (_ZIP64_FIELD, _NAME_FIELD)
    )


def fields_of(extra: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<2H", extra, at)
        yield kind, extra[at + 4 : at + 4 + size]
        at += 4 + size


def chunks_of(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    """The data of a member; raises as `read_entries`."""
    size = 0
    with _damage_of(info.filename), archive.open(info) as source:
        while chunk := source.read(CHUNK_BYTES):
            size += len(chunk)
            yield chunk
        _check_size(size, info)


def _check_size(size: int, info: zipfile.ZipInfo) -> None:
    if size != info.file_size:
        raise ZipError(f"{info.filename}: a damaged member: {size} bytes of {info.file_size}")


def is_link(info: zipfile.ZipInfo) -> bool:
    """Whether a member is a symbolic link, whose data say where it leads."""
    return stat.S_ISLNK(info.external_attr >> 16)


class _Sink(io.RawIOBase):
    """What zipfile needs of a file to write to; it cannot go back."""

    def __init__(self, target: HashedWriter) -> None:
        self._target = target

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._target.write(bytes(data))
        return len(data)
