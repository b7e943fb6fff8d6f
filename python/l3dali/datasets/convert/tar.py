"""WebDataset shards: tar files whose members make samples.

`tarfile` parses and writes headers. The package webdataset is not used: its writer makes
headers of its own (mode, owner and time are lost), and its reader drops them.
"""

from __future__ import annotations

import copy
import math
import posixpath
import re
import struct
import tarfile
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Protocol

from l3dali.datasets.convert.images import HEAD_BYTES, Blob, has_image_suffix, may_be_image, renamed
from l3dali.datasets.convert.storage import CHUNK_BYTES, naming
from l3dali.datasets.convert.tar_headers import MAX_PAX_KEYS, HeaderLimits, TarError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from l3dali.datasets.convert.images import Options, Outcome
    from l3dali.datasets.convert.pipeline import ImagePool
    from l3dali.datasets.convert.storage import HashedReader, HashedWriter

SUFFIXES = (".tar",)

_BLOCK = tarfile.BLOCKSIZE
_MOST_PADDING = 2**20  # behind the last member; tapes have such records
SPOOLED_BYTES = 8 * 2**20  # a member that is no image and larger than this waits on disk
_SMALL_BYTES = 2**16  # of a member that is written at once
_MAX_HEADER_BYTES = 2**24
_NAMES = "utf-8", "surrogateescape"  # any bytes, kept as they are
_USTAR_NAME_BYTES = tarfile.LENGTH_PREFIX + 1 + tarfile.LENGTH_NAME
_HEADER_EXTENSIONS = b"xXLK"
_GLOBAL_HEADER = b"g"
_OF_ONE_MEMBER = re.compile(r"path|linkpath|size|GNU\.sparse\..*|SCHILY\.realsize")  # pax keys


@dataclass
class Member:
    """A member with all bytes it has in the file.

    Attributes:
        info: what tarfile read of it.
        header: the blocks before its data.
        data: its data, or the first block of it.
        rest: the other data of large members that are no images.
        padding: what fills the last block.
        global_pax: the pax headers of all members from here on.
        blobs: its data, if that may be an image.
    """

    info: tarfile.TarInfo
    header: bytes
    data: bytes
    rest: BinaryIO | None
    padding: bytes
    global_pax: dict[str, str]
    blobs: Sequence[Blob]

    @property
    def bytes(self) -> int:
        """What it holds in memory, and in TMPDIR."""
        in_rest = self.info.size if self.rest is not None else 0
        return len(self.header) + len(self.data) + len(self.padding) + in_rest


def read_entries(source: HashedReader, options: Options) -> Iterator[Member]:
    """Reads the members of a tar file from start to end.

    Raises:
        TarError: it is truncated or damaged, or something follows its end.
    """
    file = _Recorder(source)
    shared: dict[str, str] = {}
    try:
        tar = tarfile.TarFile(
            fileobj=file,  # type: ignore[arg-type]
            encoding=_NAMES[0],
            errors=_NAMES[1],
            tarinfo=_Info,
        )
        # Without a first member, Python 3.10 looks for one before the file's beginning.
        while tar.offset and (info := tar.next()) is not None:
            tar.members = []  # type: ignore[attr-defined]  # tarfile would keep them all.
            member = _read_member(file, tar, info, options)
            # Members share the keys of all, which tarfile changes in place.
            if not shared or _global_headers(member.header)[0]:
                shared = dict(tar.pax_headers)
                if len(shared) > MAX_PAX_KEYS:
                    raise TarError(f"more than {MAX_PAX_KEYS} keys of all members")
                if key := next(filter(_OF_ONE_MEMBER.fullmatch, shared), None):
                    raise TarError(f"a pax header that gives all members one {key}")
            member.global_pax = shared
            yield member
            del member
    except tarfile.TarError as error:
        raise TarError(f"not a whole tar file: {error}") from error
    except RecursionError:  # tarfile calls itself for each header that describes the next.
        raise TarError("a damaged tar file: too many headers for one member") from None
    end = file.take()
    if not end:
        raise TarError("a truncated tar file: it has no end mark")
    if len(end) % _BLOCK:
        raise TarError("a truncated tar file: it ends within a header")
    if any(end):
        raise TarError(f"a damaged tar file: no header at byte {source.bytes - len(end)}")
    zeros = len(end)
    while padding := source.read(_BLOCK * 128):
        if any(padding):
            raise TarError("data behind the end mark: archives in one file are not supported")
        zeros += len(padding)
    if zeros > _MOST_PADDING:
        raise TarError(f"{zeros} bytes of zeros at the end: a tar file that was not written whole?")


class _Info(tarfile.TarInfo):
    """What tarfile makes of a header; of usual ones in less time."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Info:
        """As tarfile has it."""
        if len(buf) == _BLOCK and _is_usual(buf):
            fields = [field.partition(b"\0")[0] for field in _FIELDS.unpack(buf)]
            with suppress(ValueError):  # It is for tarfile to say.
                digits = [field.decode("ascii") for field in (*fields[1:7], *fields[10:])]
                numbers = [int(each.strip() or "0", 8) for each in digits]
                if numbers[5] == sum(buf[:148]) + sum(buf[156:]) + 8 * ord(" "):
                    info = cls(fields[0].decode(encoding, errors))
                    info.mode, info.uid, info.gid, info.size, info.mtime = numbers[:5]
                    info.chksum, info.devmajor, info.devminor = numbers[5:]
                    texts = [field.decode(encoding, errors) for field in fields[7:10]]
                    info.linkname, info.uname, info.gname = texts
                    return info
        info = super().frombuf(buf, encoding, errors)
        if buf[345:346] != b"\0" and _is_gnu(buf) and info.type not in tarfile.GNU_TYPES:
            times = bytes(buf[345:500]).partition(b"\0")[0]  # A folder stands there in ustar.
            info.name = info.name.removeprefix(times.decode(encoding, errors) + "/")
        return info


def _is_gnu(header: bytes | bytearray) -> bool:
    return header[257:265] == b"ustar  \0"


def _is_usual(header: bytes | bytearray) -> bool:
    """Of a file, without a folder that stands apart from its name."""
    return header[156:157] == tarfile.REGTYPE and (not header[345] or _is_gnu(header))


# Name; mode, owner, group, size, time, checksum; link, names of owner and group; device.
_FIELDS = struct.Struct("100s8s8s8s12s12s8s1x100s8x32s32s8s8s167x")


def _read_member(
    file: _Recorder, tar: tarfile.TarFile, info: tarfile.TarInfo, options: Options
) -> Member:
    header = file.take()
    size = tar.offset - file.tell()
    name = info.name
    is_plain = info.isreg() and not info.issparse()
    # Of other kinds, sparse files say, what their size means is their own matter.
    length = info.size if is_plain else size
    if size < 0 or (is_plain and size != length + -length % _BLOCK):
        raise TarError(f"{name}: a damaged header")
    if is_plain and length and name.endswith("/"):
        raise TarError(f"{name}: a file with the name of a folder")
    head = _read_whole(file, min(length, _BLOCK), name)
    if (info.islnk() or info.issym()) and has_image_suffix(info.linkname, options):
        raise TarError(f"{name}: a link to an image, {info.linkname}; make it a file")
    if info.issparse() and _is_sparse_image(info, head[:HEAD_BYTES], options):
        raise TarError(f"{name}: an image that is a sparse member; pack it without --sparse")
    blobs: list[Blob] = []
    rest: BinaryIO | None = None
    if is_plain and may_be_image(name, head[:HEAD_BYTES], options):
        data = _read_whole(file, length, name, head)
        blobs.append(Blob(name, data, name))
    elif length <= SPOOLED_BYTES:
        data = _read_whole(file, length, name, head)
    else:
        data, rest = head, tempfile.TemporaryFile()  # noqa: SIM115 (closed when written)
        remaining = length - len(head)
        while remaining:
            chunk = _read_whole(file, min(remaining, CHUNK_BYTES), name)
            with naming(tempfile.gettempdir()):
                rest.write(chunk)
            remaining -= len(chunk)
        rest.seek(0)
    padding = _read_whole(file, size - length, name)
    return Member(info, header, data, rest, padding, {}, blobs)


def _is_sparse_image(info: tarfile.TarInfo, head: bytes, options: Options) -> bool:
    parts: Any = info.sparse or [(0, 0)]
    is_start = parts[0][0] == 0
    is_l3 = info.name.lower().endswith(".l3")
    return is_l3 or may_be_image(info.name, head if is_start else b"", options)


def _read_whole(file: _Recorder, size: int, name: str, head: bytes = b"") -> bytes:
    """The next bytes, up to `size` of them together with the `head` that was read before."""
    data = file.read_data(size - len(head), head)
    if len(data) < size:
        raise TarError(f"a truncated tar file: it ends within {name}")
    return data


class _Recorder:
    """What tarfile needs of a file that is read once; keeps what was read last."""

    def __init__(self, source: HashedReader) -> None:
        self._source = source
        self._record: list[bytes] = []
        self._limits = HeaderLimits(_MAX_HEADER_BYTES)

    def read(self, size: int) -> bytes:
        self._limits.expect(size)
        data = self._source.read(size)
        self._record.append(data)
        self._limits.judge(data)
        return data

    def read_data(self, size: int, head: bytes) -> bytes:
        return self._source.read(size, head)

    def tell(self) -> int:
        return self._source.bytes

    def seek(self, offset: int) -> None:
        raise TarError(f"a damaged tar file: a header asks for byte {offset}")

    def take(self) -> bytes:
        """What was read since the last call."""
        data = b"".join(self._record)
        self._record.clear()
        self._limits.begin_member()
        return data


def write_entries(source: HashedReader, target: HashedWriter, pool: ImagePool) -> str | None:
    """Converts a tar file; returns the text of its DALI index, None if that cannot name all."""
    writer = Writer(target, pool.options)
    for member, outcomes in pool.convert(read_entries(source, pool.options)):
        writer.add(member, outcomes[0] if outcomes else None)
        del member, outcomes
    return writer.finish()


class Writer:
    """Writes members; with `drop` it holds back those of a sample until all are known."""

    def __init__(self, target: HashedWriter, options: Options) -> None:
        self._target = target
        self._options = options
        self._key: str | None = None
        self._indexed_key: str | None = None  # of the index's last line
        self._names: set[str] = set()  # of the sample
        self._sources: dict[str, str] = {}  # by the places of all that has been written
        self._links: dict[str, str] = {}  # by where they lead
        self._dropped: set[str] = set()  # places
        # Of the sample:
        self._sample_places: list[tuple[str, str]] = []  # new ones, and those of the sources
        self._sample_links: dict[str, str] = {}
        self._held: tempfile.SpooledTemporaryFile[bytes] | None = None
        self._parts: list[tuple[str, int, int, str]] = []  # suffix, offset, size, name
        # Of what lies between its members: where it is held, and the headers before and with it.
        self._between: list[tuple[int, int, dict[str, str], dict[str, str]]] = []
        self._is_dropped = False
        self._clash = ""  # of names
        # Pax headers of all members: where the sample ends, the last one that was kept, and the
        # last that was dropped, if it came later.
        self._shared: dict[str, str] = {}
        self._kept: dict[str, str] = {}
        self._lost: dict[str, str] = {}
        self._lines: list[list[str]] | None = []  # the parts of each
        self._data_at = 0  # of the last member, in what it was written to

    def add(self, member: Member, outcome: Outcome | None) -> None:
        name = new_name = member.info.name
        is_dropped = outcome is not None and outcome.failed and self._options.on_error == "drop"
        if outcome is not None and (is_dropped or outcome.data is not None):
            new_name = renamed(name, outcome.suffix)
        # An image without a suffix has got one, and with it a place in a sample.
        key, suffix = split_name(new_name)
        is_between = _is_between(member.info)
        if not self._names if is_between else key != self._key or not suffix:
            self._end_sample()
            self._key = key
        if not is_between and not suffix:
            self._indexed_key = None
        before, self._shared = self._shared, member.global_pax
        if is_dropped:
            if is_between:
                self._dropped.add(posixpath.normpath(name))
                self._output().write(_global_headers(member.header)[0])
                return
            self._is_dropped = True
        links = self._links if is_between else self._sample_links
        place, source = posixpath.normpath(new_name), posixpath.normpath(name)
        if is_between:
            self._take_place(place, source)
        else:
            self._sample_places.append((place, source))
        if member.info.isfile() and suffix:
            if new_name in self._names and not self._clash:
                self._clash = f"two members of one sample would both be {new_name}: rename one"
            self._names.add(new_name)
        if member.info.islnk() or member.info.issym():
            folder = posixpath.dirname(name) if member.info.issym() else ""
            leads_to = posixpath.normpath(posixpath.join(folder, member.info.linkname))
            links[leads_to] = name
        begin = self._held.tell() if self._held is not None else 0
        if outcome is None or outcome.data is None:
            self._write(member.header, member.data, member.rest, member.padding)
            size = member.info.size
        else:
            size = len(outcome.data)
            header = _new_header(member, new_name, size)
            self._write(header, outcome.data, None, bytes(-size % _BLOCK))
        if is_between and self._held is not None:
            self._between.append((begin, self._held.tell(), before, self._shared))
        elif member.info.isfile() and suffix:
            self._parts.append((split_name(new_name)[1], self._data_at, size, new_name))

    def finish(self) -> str | None:
        """Writes the end mark; returns the index."""
        self._end_sample()
        for new_name, name in self._sources.items() if self._links else ():
            if new_name != name and (link := self._links.get(name)):
                raise TarError(f"{link}: a link to an image, {name}; make it a file")
        for name in sorted(self._dropped & self._links.keys()):
            raise TarError(f"{self._links[name]}: a link to {name}, whose sample is dropped")
        end = 2 * _BLOCK
        self._target.write(bytes(end + -(self._target.bytes + end) % tarfile.RECORDSIZE))
        if self._lines is None:
            return None
        lines = (" ".join(parts) for parts in self._lines)
        return "".join(f"{line}\n" for line in [f"v1.2 {len(self._lines)}", *lines])

    def _write(self, header: bytes, data: bytes, rest: BinaryIO | None, padding: bytes) -> None:
        output = self._output()
        at = self._target.bytes if self._held is None else self._held.tell()
        self._data_at = at + len(header)
        if rest is None and len(data) < _SMALL_BYTES:  # A call costs more than the copy.
            output.write(header + data + padding)
            return
        output.write(header)
        output.write(data)
        if rest is not None:
            with rest:
                _copy(rest, output)
        output.write(padding)

    def _output(self) -> _Writable:
        if self._options.on_error != "drop":
            return self._target
        if self._held is None:
            self._held = tempfile.SpooledTemporaryFile(SPOOLED_BYTES)  # noqa: SIM115
        return self._held

    def _end_sample(self) -> None:
        if not self._is_dropped:
            for place, source in self._sample_places:
                self._take_place(place, source)
            if self._clash:
                raise TarError(self._clash)
        base = 0
        if self._held is not None:
            if self._is_dropped:
                for begin, end, before, after in self._between:
                    self._write_lost(before)
                    self._held.seek(begin)
                    _copy(self._held, self._target, end - begin)
                    self._kept = after
                self._lost = self._shared
            else:
                self._write_lost(self._lost)
                self._kept, self._lost = self._shared, {}
                base = self._target.bytes
                self._held.seek(0)
                _copy(self._held, self._target)
            self._held.close()
            self._held = None
        if self._parts and not self._is_dropped and self._lines is not None:
            words = [
                word
                for suffix, offset, size, name in self._parts
                for word in (suffix, str(base + offset), str(size), name)
            ]
            # The index separates by blanks, so it has no words for names with blanks.
            if any(word.split() != [word] for word in words):
                self._lines = None
            elif self._key == self._indexed_key:  # A link was between.
                self._lines[-1].append(" ".join(words))
            else:
                self._lines.append([" ".join(words)])
                self._indexed_key = self._key
        if self._is_dropped:
            self._dropped.update(source for _, source in self._sample_places)
        else:
            self._links |= self._sample_links
        self._sample_places, self._sample_links = [], {}
        self._parts, self._names, self._between, self._is_dropped = [], set(), [], False
        self._clash = ""

    def _take_place(self, place: str, source: str) -> None:
        if (other := self._sources.setdefault(place, source)) != source:
            raise TarError(f"{other} and {source} would both be {place}: rename one")

    def _write_lost(self, lost: Mapping[str, str]) -> None:
        """Writes headers of all members that went with a dropped sample."""
        if new := {key: text for key, text in lost.items() if self._kept.get(key) != text}:
            self._target.write(tarfile.TarInfo.create_pax_global_header(new))


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Writable(Protocol):
    def write(self, data: bytes, /) -> object: ...


def _copy(source: _Readable, target: _Writable, size: float = math.inf) -> None:
    while chunk := source.read(int(min(size, CHUNK_BYTES))):
        target.write(chunk)
        size -= len(chunk)


def _is_between(info: tarfile.TarInfo) -> bool:
    """Whether DALI passes over a member, amid a sample too; links with its key belong to one."""
    is_hidden = posixpath.basename(info.name).startswith(".")
    return is_hidden or info.isdir() or not (info.isfile() or split_name(info.name)[1])


def split_name(name: str) -> tuple[str, str]:
    """The key of the sample that a member belongs to, and its suffix; none without a dot.

    As WebDataset has it: the suffix begins at the first dot of the file's name.
    """
    folder, slash, file = name.rpartition("/")
    stem, _, suffix = file.partition(".")
    return (folder + slash + stem, suffix) if stem else (name, "")


def _new_header(member: Member, name: str, size: int) -> bytes:
    """The header of a member with another name and size, in the source's tar format."""
    old, encoded = member.header, name.encode(*_NAMES)
    if len(old) == _BLOCK and _is_usual(old) and len(encoded) <= 100 and size < 8**11:
        before = encoded.ljust(100, b"\0") + old[100:124] + b"%011o\0" % size + old[136:148]
        check = sum(before) + sum(old[156:]) + 8 * ord(" ")
        return before + b"%06o\0 " % check + old[156:]
    kept, last = _global_headers(member.header)
    info = copy.copy(member.info)
    info.name, info.size = name, size
    info.pax_headers = {
        key: value
        for key, value in member.info.pax_headers.items()
        if not _OF_ONE_MEMBER.fullmatch(key) and member.global_pax.get(key) != value
    }
    has_pax = any(header in b"xX" for header in last)
    is_gnu = _is_gnu(member.header[-_BLOCK:])
    format: Literal[0, 1, 2] = tarfile.USTAR_FORMAT
    # For longer names tobuf would try each folder.
    if has_pax or (
        not is_gnu and len(encoded) > _USTAR_NAME_BYTES
    ):  # tobuf would try all its folders
        format = tarfile.PAX_FORMAT
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
