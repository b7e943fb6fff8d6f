"""Files of which parts are read: behind URLs of fsspec, or open already. Moves bytes alone."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import mmap
import os
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from l3dali import codec
from l3dali.console import printable, reason_of
from l3dali.errors import L3Error, Status, UsageError, needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from typing_extensions import Buffer, TypeVar

    _Parsed = TypeVar("_Parsed")

HEAD_BYTES = 4096  # where header, chunks and index of most files end
FIRST_BYTES = 2**15  # the first request for a part of a remote file: a round trip costs more
_GAP_BYTES = 2**17  # a shorter gap between two ranges of a remote file is fetched with them
_PATIENCE_S = 24.0  # until the last request for a range that fails ends, if all take as long
_FIRST_PAUSE_S = 0.25  # before a range is asked for again; then twice as long each time
_LONGEST_PAUSE_S = 5.0
_S3_CONNECTIONS = 64
_MAP_NORESERVE = 0x4000  # Linux has this flag, `mmap` has no name for it
_MAP_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
_FINAL_ERRORS = (FileNotFoundError, PermissionError, ValueError, TypeError, NotImplementedError)
_FINAL_NUMBERS = (errno.EINVAL, errno.ENOENT, errno.EPERM, errno.EACCES, errno.ENOSYS)


class Member(NamedTuple):
    """An L3 file in a tar file, or another file that begins at `offset` in a file."""

    path: str  #: a path, or a URL of fsspec
    offset: int = 0  #: its first byte
    size: int | None = None  #: in bytes; None: to the end


_Range = tuple[int, int, Any]  # number of a file, first byte and end


class PartialFiles:
    """Files of which parts are read. Files are known by their number."""

    heads: list[bytes]  # their beginnings, as far as they are read
    sizes: list[int | None]  # where they are known

    def name(self, number: int) -> str:
        """The name of a file for people."""
        raise NotImplementedError

    def read(self, ranges: Sequence[_Range]) -> list[bytes]:
        """The bytes of ranges: less where a file ends, and more where a server has no ranges."""
        raise NotImplementedError

    def parse(self, parse: Callable[[list[bytes]], _Parsed]) -> _Parsed:
        """What `parse` returns for the heads, which are read as far as it needs them.

        Raises:
            L3Error: that of `parse`.
            OSError: a file cannot be read.
        """
        while True:
            try:
                return parse(self.heads)
            except L3Error as error:
                if error.status is not Status.TRUNCATED or not self._read_more():
                    raise

    def info(self) -> codec.Info:
        """The metadata of the first file; raises as `parse`."""
        return self.parse(lambda heads: codec.info(heads[0]))

    def _read_more(self) -> bool:
        """Reads more of the heads that are not complete; False if the files end there."""
        is_one = len(self.heads) == 1
        short = [i for i, head in enumerate(self.heads) if is_one or _is_truncated(head)]
        more = self.read([(i, len(self.heads[i]), 4 * len(self.heads[i])) for i in short])
        for i, part in zip(short, more, strict=True):
            self.heads[i] += part
        return any(more)

    def open_batch(self, make: Callable[[list[bytes]], codec.DecodeBatch]) -> codec.DecodeBatch:
        """A batch that decodes parts of the files, which are read; `make` gets the heads.

        `heads` end with the index then.

        Raises:
            L3Error: as `make`.
            OSError: a file cannot be read, or ends before its parts.
        """
        batch = self.parse(make)
        heads = [head[:size] for head, size in zip(self.heads, batch.head_bytes, strict=True)]
        sizes = zip(self.heads, self.sizes, batch.file_bytes, strict=True)
        files: list[Any] = [
            _with_room(head, encoded if known is None else known) for head, known, encoded in sizes
        ]
        with codec.explain_errors(self.heads):
            batch.complete(files)
        ranges = [
            (i, max(begin, len(self.heads[i])), end)
            for i, found in enumerate(batch.ranges(_GAP_BYTES))
            for begin, end in found
            if end > len(self.heads[i])
        ]
        for (i, begin, end), part in zip(ranges, self.read(ranges), strict=True):
            if len(part) != end - begin:
                reason = f"the server sent {len(part)} of {end - begin} bytes: the file ends there"
                raise OSError(errno.EIO, reason, self.name(i))
            files[i][begin:end] = part
        self.heads = heads
        return batch


class RemoteFiles(PartialFiles):
    """Files behind URLs; each call reads all its ranges at once."""

    def __init__(
        self,
        members: Sequence[Member],
        first_bytes: int | None = FIRST_BYTES,
        known: Mapping[Member, bytes] = MappingProxyType({}),
    ) -> None:
        """Reads the heads.

        Args:
            members: the files. One that is repeated in a row is read once, and its head is
                repeated for `parse` and `open_batch`.
            first_bytes: of each file to read; None: all.
            known: heads.
        """
        self.members: list[Member] = []
        self._file_of: list[int] = []  # of each item
        for member in members:
            if not self.members or member != self.members[-1]:
                self.members.append(member)
            self._file_of.append(len(self.members) - 1)
        self.sizes = [member.size for member in self.members]
        self.heads = [known.get(member, b"") for member in self.members]
        unknown = [i for i, head in enumerate(self.heads) if not head]
        for i, head in zip(unknown, self.read([(i, 0, first_bytes) for i in unknown]), strict=True):
            self.heads[i] = head

    def name(self, number: int) -> str:
        return self.members[number].path

    def parse(self, parse: Callable[[list[bytes]], _Parsed]) -> _Parsed:
        return super().parse(lambda heads: parse([heads[i] for i in self._file_of]))

    def read(self, ranges: Sequence[_Range]) -> list[bytes]:
        sizes = [self.sizes[i] for i, _, _ in ranges]
        parts = [b""] * len(ranges)
        asked: dict[int, tuple[str, int, int | None]] = {}
        for number, ((i, begin, end), size) in enumerate(zip(ranges, sizes, strict=True)):
            path, offset, _ = self.members[i]
            last = size if end is None or (size is not None and size < end) else end
            if last is None or begin < last:
                asked[number] = path, offset + begin, None if last is None else offset + last
        for number, part in zip(asked, _fetch(list(asked.values())), strict=True):
            i, begin, end = ranges[number]
            if end is None or len(part) < end - begin:
                self.sizes[i] = begin + len(part)
            parts[number] = part
        return parts


def open_remote(
    members: Sequence[Member],
    first_bytes: int | None = FIRST_BYTES,
    known: Mapping[Member, bytes] = MappingProxyType({}),
) -> RemoteFiles | None:
    """`RemoteFiles` if any of the members is behind a URL, else None."""
    is_remote = any(is_url(member.path) for member in members)
    return RemoteFiles(members, first_bytes, known) if is_remote else None


class OpenFile(PartialFiles):
    """A file that is open, from its position on."""

    def __init__(self, file: Any, *, seeks: bool, size: int | None = None) -> None:
        self._file = file
        self._begin = file.tell() if seeks else None
        self.sizes = [size]
        self.heads = [bytes(read_open(file, min(HEAD_BYTES, size or HEAD_BYTES)))]

    def name(self, number: int) -> str:
        return name_of(self._file)

    def read(self, ranges: Sequence[_Range]) -> list[bytes]:
        parts = []
        for _, begin, end in ranges:
            if self._begin is not None:
                self._file.seek(self._begin + begin)
            parts.append(self._file.read(min(end, self.sizes[0] or end) - begin))
        return parts


def _with_room(head: bytes, size: int) -> bytes | mmap.mmap:
    """The beginning of a file in memory for all of it; what is not written takes none."""
    if len(head) >= size:
        return head
    file = mmap.mmap(-1, size, _MAP_FLAGS)
    file[: len(head)] = head
    return file


def _is_truncated(head: bytes) -> bool:
    try:
        codec.info(head)
    except L3Error as error:
        return error.status is Status.TRUNCATED
    return False


def _fetch(ranges: list[tuple[str, int, int | None]]) -> list[bytes]:
    """Reads ranges of files behind URLs, all at once, and asks again for those that fail.

    Args:
        ranges: URL, first byte and end; None: to the end of the file.

    Raises:
        OSError: the first range that cannot be read; FileNotFoundError for a missing file.
        UsageError, ValueError: as `file_system`.
    """
    answers: list[Any] = [None] * len(ranges)
    left = list(range(len(ranges)))
    begin = time.monotonic()
    for attempt in itertools.count(1):
        attempt_begin = time.monotonic()
        found = _ask([ranges[i] for i in left])
        for i, answer in zip(left, found, strict=True):
            answers[i] = answer
        left = [i for i in left if isinstance(answers[i], BaseException)]
        if not left:
            break
        final = next((i for i in left if _is_final(answers[i])), None)
        pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (attempt - 1))
        end = time.monotonic()
        if final is not None or end - begin + pause + (end - attempt_begin) > _PATIENCE_S:
            i = left[0] if final is None else final
            tries = f" ({attempt} attempts in {end - begin:.0f} s)" if final is None else ""
            raise os_error(answers[i], ranges[i][0], tries) from answers[i]
        time.sleep(pause)
    return [bytes(answer) for answer in answers]


def _ask(ranges: list[tuple[str, int, int | None]]) -> list[Any]:
    """The bytes of each range, or an exception."""
    answers: list[Any] = [None] * len(ranges)
    systems: dict[int, tuple[Any, list[int], list[str]]] = {}
    for i, (url, _, _) in enumerate(ranges):
        fs, path = file_system(url)
        _, numbers, paths = systems.setdefault(id(fs), (fs, [], []))
        numbers.append(i)
        paths.append(path)
    for fs, numbers, paths in systems.values():
        begins, ends = ([ranges[i][side] for i in numbers] for side in (1, 2))
        try:
            found = fs.cat_ranges(paths, begins, ends, on_error="return")
        except Exception as error:
            found = [error] * len(paths)
        for i, answer in zip(numbers, found, strict=True):
            answers[i] = answer
    return answers


def _is_final(error: BaseException) -> bool:
    """Whether the same request fails again."""
    if isinstance(error, _FINAL_ERRORS) or getattr(error, "errno", None) in _FINAL_NUMBERS:
        return True
    status = getattr(error, "status", None) or getattr(error, "code", None)  # aiohttp, gcsfs
    refuses = isinstance(status, int) and 400 <= status < 500 and status not in (408, 429)
    return refuses or "Credential" in type(error).__name__  # botocore, google.auth, azure


def file_system(url: str) -> tuple[Any, str]:
    """The file system of fsspec and the path in it.

    Raises:
        UsageError: fsspec, or a package that it needs for this URL, is not installed.
        ValueError: fsspec lacks the protocol.
    """
    try:
        import fsspec
    except ImportError:
        raise needs("fsspec", url) from None
    options = {}
    configured = fsspec.config.conf.get("s3", {})
    if url.startswith("s3://") and "config_kwargs" not in configured:
        # By default s3fs has 10 connections, and makes up to 50 attempts within each of ours.
        once = {"total_max_attempts": 1}
        options["config_kwargs"] = {"max_pool_connections": _S3_CONNECTIONS, "retries": once}
    try:
        fs, path = fsspec.core.url_to_fs(url, **options)
        if options:
            fs.retries = 1
    except ImportError as error:
        raise UsageError(f"{url} needs a package that is not installed: {error}") from None
    return fs, path


def os_error(error: BaseException, url: str, tries: str = "") -> OSError:
    """The error for an exception of a library behind fsspec; names the URL."""
    kinds = {FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES}
    kind = next((number for kind, number in kinds.items() if isinstance(error, kind)), errno.EIO)
    number = getattr(error, "errno", None) or kind  # fsspec raises some without a number
    is_named = number == errno.EIO or tries
    return OSError(number, (reason_of(error) if is_named else os.strerror(number)) + tries, url)


def is_url(file: Any) -> TypeGuard[str]:
    return isinstance(file, str) and "://" in file


@contextlib.contextmanager
def naming(file: Any) -> Iterator[None]:
    """Adds the name of the file to the message of an L3Error."""
    try:
        yield
    except L3Error as error:
        name = name_of(file)
        raise L3Error(f"{name}: {error}" if name else str(error), error.status) from None


def name_of(file: Any) -> str:
    """The name of a file for people, empty if it has none."""
    if not isinstance(file, (str, os.PathLike)):
        file = getattr(file, "name", None)
    return printable(os.fspath(file)) if isinstance(file, (str, os.PathLike)) else ""


def read_open(file: Any, *size: int) -> Buffer:
    """The data of an open file.

    Raises:
        TypeError: read() returns text, or None.
    """
    data = "" if isinstance(file, io.TextIOBase) else file.read(*size)
    if isinstance(data, str):
        raise TypeError("the file is open for text; open it with 'rb'")
    if data is None:
        raise TypeError("read() returned None: the file is non-blocking; open it in blocking mode")
    return data  # type: ignore[no-any-return]
