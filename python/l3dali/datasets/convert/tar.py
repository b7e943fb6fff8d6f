"""WebDataset shards: tar files whose members make samples.

`tarfile` parses and writes headers. The package webdataset loses mode, owner and time.
"""

from __future__ import annotations

import copy
import posixpath
import re
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from l3dali.datasets.convert.images import (
    SOURCE,
    Blob,
    Entry,
    has_image_suffix,
    l3_names,
    may_be_image,
    renamed,
)
from l3dali.signatures import HEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from l3dali.datasets.convert.images import Converter, Options, Outcome
    from l3dali.datasets.convert.storage import HashedReader, HashedWriter

KIND = "webdataset"
SUFFIXES = (".tar",)
IS_STREAMED, HAS_INDEX = True, True

_BLOCK = tarfile.BLOCKSIZE
_MOST_PADDING = 2**20  # after the last member, as on tapes
_MOST_HELD = 64  # members of a sample, unless damage may drop it
_SMALL_BYTES = 2**16  # of members that are written at once
_NAMES = "utf-8", "surrogateescape"  # any bytes, kept as they are
_USTAR_NAME_BYTES = tarfile.LENGTH_PREFIX + 1 + tarfile.LENGTH_NAME
_HEADER_EXTENSIONS = b"xXLK"
_GLOBAL_HEADER = b"g"
_OF_ONE_MEMBER = re.compile(r"path|linkpath|size|GNU\.sparse\..*|SCHILY\.realsize")  # pax keys


@dataclass
class Member(Entry):
    """A member with all bytes it has in the file."""

    info: tarfile.TarInfo
    header: bytes  # the blocks before its data
    data: bytes
    padding: bytes  # of the last block

    @property
    def bytes(self) -> int:
        """What it holds in memory."""
        return len(self.header) + len(self.data) + len(self.padding)


def read_entries(source: HashedReader, options: Options) -> Iterator[Member]:
    """Reads the members of a tar file from start to end.

    Raises:
        ValueError: it is truncated or damaged, or something follows its end.
    """
    file = _Recorder(source)
    try:
        tar = tarfile.TarFile(
            fileobj=file,  # type: ignore[arg-type]
            encoding=_NAMES[0],
            errors=_NAMES[1],
        )
        # Without a first member, Python 3.10 looks for one before the file's beginning.
        while tar.offset and (info := tar.next()) is not None:
            tar.members = []  # type: ignore[attr-defined]  # tarfile would keep them all.
            shared = tar.pax_headers  # of all members; its own are those that a new header gets
            own = {k: v for k, v in info.pax_headers.items() if shared.get(k) != v}
            info.pax_headers = own
            yield _read_member(file, tar, info, options)
    except tarfile.TarError as error:
        raise ValueError(f"not a whole tar file: {error}") from error
    end = file.take()
    if not end:
        raise ValueError("a truncated tar file: it has no end mark")
    if len(end) % _BLOCK:
        raise ValueError("a truncated tar file: it ends within a header")
    if any(end):
        raise ValueError(f"a damaged tar file: no header at byte {source.bytes - len(end)}")
    zeros = len(end)
    while padding := source.read(_BLOCK * 128):
        if any(padding):
            raise ValueError("data after the end mark: archives in one file are not supported")
        zeros += len(padding)
    if zeros > _MOST_PADDING:
        raise ValueError(f"{zeros} zero bytes at the end: was the tar file written completely?")


def _read_member(
    file: _Recorder, tar: tarfile.TarFile, info: tarfile.TarInfo, options: Options
) -> Member:
    header = file.take()
    size = tar.offset - file.tell()
    name = info.name
    is_plain = info.isreg() and not info.issparse()
    length = info.size if is_plain else size  # Sizes of other kinds have meanings of their own.
    if size < 0 or (is_plain and size != length + -length % _BLOCK):
        raise ValueError(f"{name}: a damaged header")
    data = _read_whole(file, length, name)
    is_image = is_plain and may_be_image(name, data[:HEAD_BYTES], options)
    blobs = [Blob(name, data, name)] if is_image else []
    padding = _read_whole(file, size - length, name)
    return Member(blobs, info, header, data, padding)


def _read_whole(file: _Recorder, size: int, name: str) -> bytes:
    data = file.read_data(size)
    if len(data) < size:
        raise ValueError(f"a truncated tar file: it ends within {name}")
    return data


class _Recorder:
    """The methods of a file that tarfile needs; records the headers that it reads."""

    def __init__(self, source: HashedReader) -> None:
        self._source = source
        self._record: list[bytes] = []

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        self._record.append(data)
        return data

    def read_data(self, size: int) -> bytes:
        return self._source.read(size)

    def tell(self) -> int:
        return self._source.bytes

    def seek(self, offset: int) -> None:
        raise ValueError(f"a damaged tar file: a header points to byte {offset}")

    def take(self) -> bytes:
        """The bytes read since the last call."""
        data = b"".join(self._record)
        self._record.clear()
        return data


def write_entries(source: HashedReader, target: HashedWriter, pool: Converter) -> str | None:
    """Converts a tar file; returns the text of its DALI index, None if names do not fit into it."""
    writer = _Writer(target, pool.options)
    for member, outcomes in pool.convert(read_entries(source, pool.options)):
        writer.add(member, outcomes[0] if outcomes else None)
        del member, outcomes
    return writer.finish()


class _Writer:
    """Writes members; it holds those of a sample until all are known, but not too many."""

    def __init__(self, target: HashedWriter, options: Options) -> None:
        self._target = target
        self._options = options
        self._drops = options.on_error == "drop"
        self._key: str | None = None  # of the sample
        self._held: list[tuple[Member, Outcome | None, str]] = []
        self._places: dict[str, str] = {}  # sources by the places of written members
        self._moved: set[str] = set()  # sources that were dropped or renamed
        self._links: dict[str, str] = {}  # by target
        self._lines: list[list[str]] | None = []  # the words of each line of the index
        self._line_key: str | None = None  # of the last line

    def add(self, member: Member, outcome: Outcome | None) -> None:
        new_name = member.info.name
        if outcome is not None and (outcome.data is not None or self._fails(outcome)):
            new_name = renamed(new_name, outcome.suffix)
        # An image without a suffix now has one, and belongs to a sample.
        key, suffix = split_name(new_name)
        if not _is_between(member.info) and (key != self._key or not suffix):
            self._write_held()
            self._key = key if suffix else None
            self._line_key = self._line_key if suffix else None
        self._held.append((member, outcome, new_name))
        if not self._drops and len(self._held) == _MOST_HELD:
            self._write_held()

    def finish(self) -> str | None:
        """Writes the end mark; returns the index."""
        self._write_held()
        for name in sorted(self._moved & self._links.keys()):
            link = self._links[name]
            raise ValueError(f"{link}: a link to {name}, which is converted or dropped")
        end = 2 * _BLOCK
        self._target.write(bytes(end + -(self._target.bytes + end) % tarfile.RECORDSIZE))
        if self._lines is None:
            return None
        lines = (" ".join(words) for words in self._lines)
        return "".join(f"{line}\n" for line in [f"v1.2 {len(self._lines)}", *lines])

    def _write_held(self) -> None:
        held, self._held = self._held, []
        is_dropped = any(
            self._fails(each) and not _is_between(member.info) for member, each, _ in held
        )
        names = l3_names({m.info.name for m, each, _ in held if self._is_image(m, each)})
        for member, outcome, new_name in held:
            if self._fails(outcome) or (is_dropped and not _is_between(member.info)):
                self._moved.add(posixpath.normpath(member.info.name))
                self._target.write(_global_headers(member.header)[0])  # They are of all members.
            else:
                if outcome is not None and outcome.data is not None:
                    new_name = names.get(member.info.name, new_name)
                self._write(member, outcome, new_name)

    def _is_image(self, member: Member, outcome: Outcome | None) -> bool:
        """Whether a member becomes L3 by its name, unless it fails."""
        is_array = outcome is None or (outcome.format == "npy" and outcome.stored_as == SOURCE)
        is_named = has_image_suffix(member.info.name, self._options)
        return self._options.to == "l3" and is_named and not is_array

    def _fails(self, outcome: Outcome | None) -> bool:
        """Whether a sample is dropped, because an image of it has failed."""
        return self._drops and outcome is not None and outcome.failed

    def _write(self, member: Member, outcome: Outcome | None, new_name: str) -> None:
        info, name = member.info, member.info.name
        place, source = posixpath.normpath(new_name), posixpath.normpath(name)
        key, suffix = split_name(new_name)
        is_plain = info.isfile() and not info.issparse()  # DALI reads no holes.
        is_indexed = suffix != "" and is_plain and not _is_between(info)
        if place in self._places and not info.isdir():
            other = self._places[place]
            raise ValueError(f"{other} and {source} would both be {place}: rename one")
        self._places[place] = source
        if place != source:
            self._moved.add(source)
        if info.islnk() or info.issym():
            folder = posixpath.dirname(name) if info.issym() else ""
            self._links[posixpath.normpath(posixpath.join(folder, info.linkname))] = name
        header, data, padding = member.header, member.data, member.padding
        if outcome is not None and outcome.data is not None:
            data = outcome.data
            header = _new_header(member, new_name, len(data))
            padding = bytes(-len(data) % _BLOCK)
        at = self._target.bytes + len(header)
        if len(data) < _SMALL_BYTES:  # A call costs more than the copy.
            self._target.write(header + data + padding)
        else:
            self._target.write(header)
            self._target.write(data)
            self._target.write(padding)
        if is_indexed:
            size = info.size if data is member.data else len(data)
            self._add_to_index(key, [suffix, str(at), str(size), new_name])

    def _add_to_index(self, key: str, words: list[str]) -> None:
        # The index separates by blanks, so names cannot have blanks.
        if self._lines is None or any(word.split() != [word] for word in words):
            self._lines = None
        elif key == self._line_key:  # maybe behind a link
            self._lines[-1] += words
        else:
            self._lines.append(words)
            self._line_key = key


def _is_between(info: tarfile.TarInfo) -> bool:
    """Whether DALI skips a member, also within a sample; links with its key belong to one."""
    is_hidden = posixpath.basename(info.name).startswith(".")
    return is_hidden or info.isdir() or not (info.isfile() or split_name(info.name)[1])


def split_name(name: str) -> tuple[str, str]:
    """The key of a member's sample, and its suffix from the first dot of the file's name on."""
    folder, slash, file = name.rpartition("/")
    stem, _, suffix = file.partition(".")
    return (folder + slash + stem, suffix) if stem else (name, "")


def _new_header(member: Member, name: str, size: int) -> bytes:
    """The header of a member with another name and size, in the source's tar format."""
    encoded = name.encode(*_NAMES)
    kept, last = _global_headers(member.header)
    info = copy.copy(member.info)
    info.name, info.size = name, size
    info.pax_headers = {
        key: value
        for key, value in member.info.pax_headers.items()
        if not _OF_ONE_MEMBER.fullmatch(key)
    }
    has_pax = any(header in b"xX" for header in last)
    is_gnu = member.header[-_BLOCK:][257:265] == b"ustar  \0"
    format: Literal[0, 1, 2] = tarfile.USTAR_FORMAT
    if has_pax or (not is_gnu and len(encoded) > _USTAR_NAME_BYTES):
        format = tarfile.PAX_FORMAT  # In ustar, tobuf would try all folders of the name.
    elif is_gnu:
        format = tarfile.GNU_FORMAT
    try:
        new = info.tobuf(format, *_NAMES)
    except ValueError:  # too long for the format
        new = info.tobuf(tarfile.PAX_FORMAT, *_NAMES)
    return kept + new


def _global_headers(header: bytes) -> tuple[bytes, bytes]:
    """The blocks of global pax headers, and the types of the others but the last."""
    at, kept, types = 0, b"", b""
    while at < len(header) - _BLOCK:
        kind = header[at + 156 : at + 157]
        size = tarfile.nti(header[at + 124 : at + 136])  # type: ignore[attr-defined]
        end = at + _BLOCK + -(-size // _BLOCK) * _BLOCK
        if kind == _GLOBAL_HEADER:
            kept += header[at:end]
        elif kind in _HEADER_EXTENSIONS:
            types += kind
        at = end
    return kept, types
