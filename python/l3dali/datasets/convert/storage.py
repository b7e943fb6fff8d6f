"""Folders of data sets: local ones, and those that fsspec opens by URL."""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
import re
import stat
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from l3dali.atomic import published
from l3dali.console import without_password
from l3dali.datasets.convert.workers import report_progress
from l3dali.errors import UsageError, needs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CHUNK_BYTES = 2**20
_BLOCK_BYTES, _WHOLE_BLOCK_BYTES = 2**23, 2**25  # fetched at once; of files read to their end
_PART_BYTES = 3 * 2**24  # of an upload: S3 takes 10,000 parts, and 3,500 writes a second
MANIFEST_NAME = "l3-manifest.jsonl"
LOCK_NAME = ".l3-lock"
OWN_NAMES = (MANIFEST_NAME, LOCK_NAME)
# Protocols without a write that replaces a file as a whole.
_READ_ONLY = {"ftp", "sftp", "ssh", "smb", "hdfs", "webhdfs", "http", "https"}
_MODE = 0o666
# Fields of a listing in file systems, the most exact first.
_STAMPS = ("ETag", "etag", "md5Hash", "Content-MD5", "Last-Modified", "mtime", "created")
_TEMPORARY = re.compile(r"\.l3-[0-9a-f]{16}\.tmp")


@dataclass(frozen=True, slots=True)
class Stored:
    """A file in a listing."""

    name: str  # below its folder, parts separated by "/"
    size: int  # in bytes
    stamp: str  # changes when the file does: its modification time or an object's tag; may be ""


@dataclass
class Listing:
    """The files of a folder and of the folders in it, without temporary files of this package."""

    files: dict[str, Stored] = field(default_factory=dict)  # by name, in the order of names
    failures: list[tuple[str, str]] = field(default_factory=list)  # place and reason
    links: list[str] = field(default_factory=list)  # to folders; not followed
    linked: list[str] = field(default_factory=list)  # targets of followed links


def open_folder(url: str) -> Folder:
    """The folder at a local path or any URL of fsspec.

    Raises:
        UsageError: fsspec is missing or has no such protocol, or the URL is a local path.
    """
    if re.match("(?!file:///)(?i:local://|file:)", url):  # a host may follow two slashes
        raise UsageError(f"{url}: name the path without the scheme")
    url = url.removeprefix("file://")
    return RemoteFolder(url) if is_remote(url) else LocalFolder(Path(url))


def is_remote(url: str) -> bool:
    """Whether fsspec is needed: the URL has a scheme other than `file`."""
    return re.match(r"(?!file://)[A-Za-z][A-Za-z0-9+.-]*(://|::)", url) is not None


def split_url(url: str) -> tuple[str, str]:
    """The folder and the name of the file at `url`."""
    folder, slash, name = url.rpartition("/")
    return (folder or slash or "."), name


def leads_out(name: str) -> bool:
    """Whether a name leaves its folder, or is not the normal name of a file."""
    return "\0" in name or not {"", ".", ".."}.isdisjoint(name.split("/"))


class LocalFolder:
    """A folder of this machine's file system. `RemoteFolder` has the same methods."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._made: set[str] = set()  # folders that exist and are not links

    def place(self, name: str = "") -> str:
        """The path of a file, for people."""
        return str(self.root / name)

    def real_place(self) -> str:
        """The folder's path, the same under all its names."""
        return str(self.root.resolve())

    def list_files(self) -> Listing:
        """All files. A folder that does not exist is empty."""
        listing = Listing()

        def on_error(error: OSError) -> None:
            if Path(error.filename) != self.root or not isinstance(error, FileNotFoundError):
                listing.failures.append((str(error.filename), error.strerror or str(error)))

        for path, folders, names in os.walk(self.root, onerror=on_error):
            folders.sort()
            prefix = "" if path == str(self.root) else os.path.relpath(path, self.root) + "/"
            links = (child for child in folders if os.path.islink(f"{path}/{child}"))  # noqa: PTH114
            listing.links += [prefix + child for child in links]
            for name in sorted(names):
                if _TEMPORARY.fullmatch(name):
                    continue
                try:
                    stored = self.stat(prefix + name)
                    if stored is None:
                        raise OSError("a broken link")
                except OSError as error:
                    reason = error.strerror or str(error)
                    listing.failures.append((self.place(prefix + name), reason))
                else:
                    listing.files[stored.name] = stored
                    if os.path.islink(link := self.root / stored.name):  # noqa: PTH114
                        listing.linked.append(os.path.realpath(link))
        return listing

    def stat(self, name: str) -> Stored | None:
        """One file; None if it does not exist."""
        try:
            status = (self.root / name).stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(status.st_mode):  # A pipe would never end.
            raise OSError(errno.EINVAL, "not a file", self.place(name))
        return Stored(name, status.st_size, str(status.st_mtime_ns))

    def open(self, name: str, *, whole: bool = False) -> BinaryIO:
        """Opens a file to read; `whole`: from start to end."""
        return (self.root / name).open("rb")

    def open_to_append(self, name: str) -> BinaryIO:
        """Opens or creates a file to append to; raises OSError for a link."""

        def opener(path: str, flags: int) -> int:
            return os.open(path, flags | os.O_NOFOLLOW, _MODE)

        return cast("BinaryIO", open(self._changed(name), "ab", opener=opener))

    def _changed(self, name: str) -> Path:
        """The path of a file to write or remove. No link below the folder is followed."""
        path = self.root / name
        wanted = os.path.join(os.path.realpath(self.root), *name.split("/")[:-1])  # noqa: PTH118
        if leads_out(name) or os.path.realpath(path.parent) != wanted:
            raise OSError(errno.ELOOP, "its folder is behind a link", str(path))
        return path

    @contextlib.contextmanager
    def publish(self, name: str, mode: int = _MODE) -> Iterator[BinaryIO]:
        """A file to write, which appears when the block ends, and never if it raises.

        `mode` is that of a local file, before the umask.
        """
        path = self.root / name
        folder = str(path.parent)
        if folder not in self._made:
            with naming(str(path)):
                self._changed(name).parent.mkdir(parents=True, exist_ok=True)
            self._made.add(folder)
        with published(path, mode) as file:
            yield file

    def mode(self, name: str) -> int:
        """The mode of a file's result: the same readers, and its owner."""
        return (self.root / name).stat().st_mode & _MODE | 0o600

    def remove(self, name: str) -> None:
        """Removes a file, if it exists."""
        with contextlib.suppress(FileNotFoundError), naming(self.place(name)):
            self._changed(name).unlink()

    def remove_empty(self, names: Iterable[str]) -> None:
        """Removes folders below this one, up to the first that is not empty."""
        with contextlib.suppress(OSError):
            for name in names:
                self._changed(name).rmdir()

    def remove_temporaries(self) -> None:
        """Removes files of killed runs, except in another DEST below this one."""
        for path, folders, names in os.walk(self.root):
            if LOCK_NAME in names and path != str(self.root):
                folders.clear()
                continue
            for name in filter(_TEMPORARY.fullmatch, names):
                with contextlib.suppress(OSError):
                    Path(path, name).unlink()


class RemoteFolder:
    """A folder of fsspec: a bucket, memory, a server. See `LocalFolder`."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise needs("fsspec", url) from None
        try:
            fs, root = url_to_fs(url)
        except Exception as error:  # Libraries of buckets have errors of their own.
            raise UsageError(f"{url}: {_text_of(error)}") from None
        self.fs: Any = fs
        self._root = str(root).rstrip("/")
        self._place = without_password(url.rstrip("/"))

    def place(self, name: str = "") -> str:
        return f"{self._place}/{name}" if name else self._place

    def real_place(self) -> str:
        return str(self.fs.unstrip_protocol(self._root)).rstrip("/")

    def list_files(self) -> Listing:
        self.fs.invalidate_cache()
        listing = Listing()
        if "https" in self.fs.protocol:
            return listing  # A web server's pages are no listings.
        with naming(self._place):
            try:
                found = self.fs.find(self._root, detail=True)
            except FileNotFoundError:
                return listing
        for path in sorted(found):
            info = found[path]
            name = path[len(self._root) :].removeprefix("/")
            is_folder = name.endswith("/") and info["size"] == 0  # as consoles make them
            if not name or is_folder or _TEMPORARY.fullmatch(name.rpartition("/")[2]):
                continue
            try:
                listing.files[name] = _stored(name, info)
            except OSError as error:
                listing.failures.append((self.place(name), str(error)))
        return listing

    def stat(self, name: str) -> Stored | None:
        path = self._path(name)
        self.fs.invalidate_cache(path)
        with naming(self.place(name)):
            try:
                info = self.fs.info(path)
            except FileNotFoundError as error:  # to fsspec, any failure of an HTTP server
                cause = error.__cause__
                is_of_http = type(cause).__module__.startswith("aiohttp")
                if not is_of_http or getattr(cause, "status", None) in (404, 410):
                    return None
                raise OSError(str(cause)) from None
        is_page = str(info.get("url", "")).endswith("/")  # the listing of a folder
        return _stored(name, info) if info["type"] == "file" and not is_page else None

    def open(self, name: str, *, whole: bool = False) -> BinaryIO:
        block = _WHOLE_BLOCK_BYTES if whole else _BLOCK_BYTES
        with naming(self.place(name)):
            return cast("BinaryIO", self.fs.open(self._path(name), "rb", block_size=block))

    @contextlib.contextmanager
    def publish(self, name: str, mode: int = _MODE) -> Iterator[BinaryIO]:
        path, place = self._path(name), self.place(name)
        self._check_is_target()
        if "memory" in self.fs.protocol:  # Its files appear when they are opened.
            buffer = io.BytesIO()
            yield buffer
            with naming(place):
                self.fs.pipe_file(path, buffer.getvalue())
            return
        with naming(place):
            # Object stores get parts as they are written, and show the object at the commit.
            file = self.fs.open(path, "wb", autocommit=False, block_size=_PART_BYTES)
        try:
            yield cast("BinaryIO", file)
            with naming(place):
                file.close()
                file.commit()
        except BaseException:
            with contextlib.suppress(Exception):
                file.discard()
            file.closed = True  # To close it would complete the upload.
            raise

    def mode(self, name: str) -> int:
        return _MODE

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), naming(self.place(name)):
            self._check_is_target()
            self.fs.rm_file(self._path(name))  # To rm, names are patterns.

    def _check_is_target(self) -> None:
        if self._place.partition("://")[0] in _READ_ONLY:
            raise UsageError(f"{self._place}: L3 only writes to local folders and buckets")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")


Folder = LocalFolder | RemoteFolder


def _stored(name: str, info: dict[str, Any]) -> Stored:
    stamp = next((info[key] for key in _STAMPS if info.get(key) is not None), "")
    # Some listings have a number for the date of a file's details.
    stamp = stamp.timestamp() if isinstance(stamp, datetime) else stamp
    if info["size"] is None:
        raise OSError("the server does not report the file's size")
    return Stored(name, int(info["size"]), str(stamp))


class naming:  # noqa: N801 (a context manager; a generator would be as slow as a read)
    """Adds the place to errors of storage."""

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, FileNotFoundError):
            return
        if isinstance(error, OSError) and error.errno not in (None, errno.EPIPE):  # as of stdout
            raise OSError(error.errno, error.strerror, self._place) from error
        # Libraries of buckets have errors of their own.
        raise OSError(f"{self._place}: {_text_of(error)}") from error


def _text_of(error: Exception) -> str:
    return str(error) or type(error).__name__


class _Hashed:
    """A file, open at its start, whose bytes are counted and hashed; errors name `place`."""

    def __init__(self, file: BinaryIO, place: str) -> None:
        self.file = file
        self._place = place
        self._hash = sha256()
        self.bytes = 0

    def _count(self, data: Any) -> None:
        self._hash.update(data)
        self.bytes += len(data)
        report_progress()

    def hexdigest(self) -> str:
        """The hash of all bytes so far."""
        return str(self._hash.hexdigest())


class HashedReader(_Hashed):
    """Reads a file from start to end."""

    def read(self, size: int = -1, head: bytes = b"") -> bytes:
        """`head` and up to `size` more bytes; fewer only at the end of the file."""
        if 0 <= size <= CHUNK_BYTES:
            return head + self._read(size) if head else self._read(size)
        whole = io.BytesIO(head)  # Memory grows with the data; signals are handled between reads.
        whole.seek(len(head))
        while size and (chunk := self._read(CHUNK_BYTES if size < 0 else min(size, CHUNK_BYTES))):
            whole.write(chunk)
            size -= len(chunk) if size > 0 else 0
        return whole.getvalue()

    def _read(self, size: int) -> bytes:
        with naming(self._place):
            data = self.file.read(size)
            # Raw streams may return fewer bytes before their end.
            while data and len(data) < size and (more := self.file.read(size - len(data))):
                data += more
        self._count(data)
        return data


class HashedWriter(_Hashed, io.RawIOBase):
    """Writes a file from start to end; raises OSError beyond `most` bytes."""

    def __init__(self, file: BinaryIO, place: str, most: float = math.inf) -> None:
        super().__init__(file, place)
        self._most = most

    def writable(self) -> bool:
        """As a file."""
        return True

    def tell(self) -> int:
        """The number of bytes written."""
        return self.bytes

    def write(self, data: Any) -> int:
        """Writes all of `data`, in parts, so that signals are handled between them."""
        for at in range(0, len(data), 64 * CHUNK_BYTES):
            part = data[at : at + 64 * CHUNK_BYTES]
            if self.bytes + len(part) > self._most:
                raise OSError(f"the result takes more than {self._most} bytes")
            with naming(self._place):
                self.file.write(part)
            self._count(part)
        return len(data)

    def flush(self) -> None:
        """Hands the data to the system, so that a full disk is an error now."""
        with naming(self._place):
            self.file.flush()


def hash_file(folder: Folder, name: str) -> str:
    """The hash of a file's bytes."""
    with folder.open(name, whole=True) as file:
        reader = HashedReader(file, folder.place(name))
        while reader.read(CHUNK_BYTES):
            pass
    return reader.hexdigest()
