"""Folders that hold data sets: local ones, and those that fsspec reaches by URL.

Knows files and their names, and nothing of what they contain.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import math
import os
import re
import secrets
import stat
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from l3dali.console import without_password
from l3dali.datasets.convert.limits import report_progress
from l3dali.errors import UsageError, needs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CHUNK_BYTES = 2**20
_BLOCK_BYTES, _WHOLE_BLOCK_BYTES = 2**23, 2**25  # fetched at once; of files read to their end
_PART_BYTES = 3 * 2**24  # of an upload: S3 takes 10,000 parts, and 3,500 writes a second
MANIFEST_NAME = "l3-manifest.jsonl"
REPORT_NAME = "l3-report.html"
LOCK_NAME = ".l3-lock"
OWN_NAMES = (MANIFEST_NAME, REPORT_NAME, LOCK_NAME)
# Protocols without a write that replaces a file as a whole.
_READ_ONLY = {"ftp", "sftp", "ssh", "smb", "webhdfs", "http", "https"}
_MODE = 0o666
_FOLDER = os.O_DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)  # which may not be readable
# Fields of a listing, the most exact first; file systems have different ones.
_STAMPS = (
    *("ETag", "etag", "Content-MD5", "md5Hash", "LastModified", "Last-Modified", "updated"),
    *("last_modified", "mtime", "modify", "modificationTime", "created"),
)
_TEMPORARY = re.compile(r"\.l3-[0-9a-f]{16}\.tmp")


@dataclass(frozen=True, slots=True)
class Stored:
    """A file in a listing.

    Attributes:
        name: below its folder, parts separated by "/".
        size: in bytes.
        stamp: changes when the file does: its modification time or an object's tag; may be "".
    """

    name: str
    size: int
    stamp: str


@dataclass
class Listing:
    """The files of a folder and of the folders in it, without temporary files of this package.

    Attributes:
        files: by name, in the order of names.
        failures: what could not be listed, and why.
        links: names of symbolic links to folders, which are not followed.
        linked: the targets of symbolic links to files, which are followed.
        others: names of entries that are not files: links to nothing, pipes.
    """

    files: dict[str, Stored] = field(default_factory=dict)
    failures: list[tuple[str, str]] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


def open_folder(url: str) -> Folder:
    """The folder at a local path or any URL of fsspec.

    Raises:
        UsageError: fsspec is missing, or does not know the URL; or it is another name of this disk.
    """
    if re.match("(?!file:///)(?i:local://|file:)", url):  # a host may follow two slashes
        raise UsageError(f"{url}: name the path alone")
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
    """Whether a name is not that of a file below a folder, or not the only one of that file."""
    return "\0" in name or not {"", ".", ".."}.isdisjoint(name.split("/"))


class LocalFolder:
    """A folder of this machine's file system. `RemoteFolder` has the same methods."""

    def __init__(self, root: Path) -> None:
        self.root = root

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
                        raise OSError("a link to nothing")
                except OSError as error:
                    reason = error.strerror or str(error)
                    listing.failures.append((self.place(prefix + name), reason))
                    listing.others.append(prefix + name)
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
        """Opens a file to be read from start to end, or with seeks; `whole`: all of it."""
        return open_regular(self.root / name, "rb")

    def open_to_append(self, name: str) -> BinaryIO:
        """Opens a file, new or not, to be written at its end.

        Raises:
            OSError: it is a link, or no regular file.
        """
        return open_regular(self._changed(name), "ab", os.O_NOFOLLOW)

    def _changed(self, name: str) -> Path:
        """The path of a file that is to be written or removed: never one outside of the folder."""
        path = self.root / name
        folder = Path(os.path.realpath(path.parent))
        if leads_out(name) or not folder.is_relative_to(os.path.realpath(self.root)):
            raise OSError(errno.ELOOP, f"a link leads out of {self.root}", str(path))
        return path

    @contextlib.contextmanager
    def _folder_of(self, name: str, *, make: bool = False) -> Iterator[int]:
        """A descriptor of the folder of a file. No link on the way is followed."""
        self._changed(name)
        if make:
            self.root.mkdir(parents=True, exist_ok=True)
        folder = os.open(self.root, _FOLDER)
        try:
            for part in name.split("/")[:-1]:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=folder)
                below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def publish(self, name: str, mode: int = _MODE) -> Iterator[BinaryIO]:
        """A file to write, which appears whole when the block ends and not at all if it raises.

        Args:
            name: of the file.
            mode: of it on a disk, before the umask.
        """
        path, base = str(self.root / name), name.rpartition("/")[2]
        temporary = f".l3-{secrets.token_hex(8)}.tmp"
        with contextlib.ExitStack() as stack:
            with naming(path):
                folder = stack.enter_context(self._folder_of(name, make=True))
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            file: BinaryIO | None = None
            try:
                with naming(path):
                    file = os.fdopen(os.open(temporary, flags, mode, dir_fd=folder), "wb")
                yield file
                with naming(path):
                    file.close()
                    os.replace(temporary, base, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:  # maybe of Ctrl-C, just as it had been made
                with contextlib.suppress(OSError):
                    if file is not None:
                        file.close()
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise

    def mode(self, name: str) -> int:
        """The mode for what is made of a file: the same readers, and its owner."""
        return (self.root / name).stat().st_mode & _MODE | 0o600

    def remove(self, name: str) -> None:
        """Removes a file, if it exists."""
        is_gone = contextlib.suppress(FileNotFoundError)
        with is_gone, naming(self.place(name)), self._folder_of(name) as folder:
            os.unlink(name.rpartition("/")[2], dir_fd=folder)

    def remove_empty(self, names: Iterable[str]) -> None:
        """Removes folders below this one, up to the first that is not empty."""
        with contextlib.suppress(OSError):
            for name in names:
                with self._folder_of(name) as folder:
                    os.rmdir(name.rpartition("/")[2], dir_fd=folder)

    def remove_temporaries(self) -> None:
        """Removes what killed runs have left, but nothing of a run on a DEST below this one."""
        for path, folders, names in os.walk(self.root):
            if LOCK_NAME in names and path != str(self.root):
                folders.clear()
                continue
            for name in filter(_TEMPORARY.fullmatch, names):
                with contextlib.suppress(OSError):
                    Path(path, name).unlink()


def open_regular(path: Path, mode: str, flags: int = 0) -> BinaryIO:
    """Opens a file; raises OSError for a pipe or a device, which would block."""

    def opener(place: str, own: int) -> int:
        descriptor = os.open(place, own | flags | os.O_NONBLOCK, _MODE)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a file", place)
        return descriptor

    return cast("BinaryIO", open(path, mode, opener=opener))


class RemoteFolder:
    """A folder that fsspec reaches: a bucket, memory, a server. See `LocalFolder`."""

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

    def openable(self, name: str) -> Any:
        """A file for `l3dali.info`, which reads little more than its head."""
        from fsspec.core import OpenFile

        return OpenFile(self.fs, self._path(name))

    @contextlib.contextmanager
    def publish(self, name: str, mode: int = _MODE) -> Iterator[BinaryIO]:
        from fsspec.spec import AbstractBufferedFile

        folder = name.rpartition("/")[0]
        path = self._path(name)
        temporary = self._path(f"{folder}/.l3-{secrets.token_hex(8)}.tmp".lstrip("/"))
        with naming(self.place(name)):
            self._check_is_target()
            self.fs.makedirs(self._path(folder), exist_ok=True)
            file = self._open_new(temporary)
            # Object stores take parts as they are written, and show the object with the commit.
            has_commit = isinstance(file, AbstractBufferedFile)
            if has_commit:
                _forget(file)
                file = self._open_new(path)
        try:
            yield cast("BinaryIO", file)
            with naming(self.place(name)):
                file.close()
                if has_commit:
                    file.commit()
                else:
                    self._rename(temporary, path)
        except BaseException:
            with contextlib.suppress(Exception):
                if has_commit:
                    _forget(file)
                else:
                    self.fs.rm_file(temporary)
            raise

    def mode(self, name: str) -> int:
        return _MODE

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), naming(self.place(name)):
            self._check_is_target()
            self.fs.rm_file(self._path(name))  # To rm, names are patterns.

    def _check_is_target(self) -> None:
        if self._place.partition("://")[0] in _READ_ONLY:
            reason = "nothing is written to FTP, SFTP, SMB, WebHDFS or web servers"
            raise OSError(errno.EROFS, f"{reason}: mount the folder, or copy results to it")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")

    def _rename(self, path: str, new: str) -> None:
        self.fs.cp_file(path, new)  # To mv, names are patterns.
        self.fs.rm_file(path)

    def _open_new(self, path: str) -> Any:
        return self.fs.open(path, "wb", autocommit=False, block_size=_PART_BYTES)


Folder = LocalFolder | RemoteFolder


def _forget(file: Any) -> None:
    """Drops an upload; closing such a file would complete it."""
    try:
        file.discard()
    finally:
        file.closed = True


def _stored(name: str, info: dict[str, Any]) -> Stored:
    stamp = next((info[key] for key in _STAMPS if info.get(key) is not None), "")
    # A listing may have a number where the details of a file have a date.
    stamp = stamp.timestamp() if isinstance(stamp, datetime) else stamp
    if info["size"] is None:
        raise OSError("the server does not say how many bytes it has")
    return Stored(name, int(info["size"]), str(stamp))


class naming:  # noqa: N801 (a context manager; a generator would take as long as a read)
    """Adds the place to errors of storage."""

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, FileNotFoundError):
            return
        if (
            isinstance(error, OSError)
            and error.errno not in (None, errno.EPIPE)  # as of what reads standard output
            and (error.filename is not None or error.strerror)
        ):
            raise OSError(error.errno, error.strerror, self._place) from error
        # Libraries of buckets have errors of their own.
        raise OSError(f"{self._place}: {_text_of(error)}") from error


def _text_of(error: Exception) -> str:
    return str(error) or type(error).__name__


class HashedReader:
    """Reads a file from start to end and hashes it.

    Args:
        file: open at its start.
        place: where it is, for people.
        size: of the file, if it is known: reading little more than that raises OSError.
    """

    def __init__(self, file: BinaryIO, place: str, size: int | None = None) -> None:
        self._file = file
        self._place = place
        self._size = size
        self._hash = new_hash()
        self.bytes = 0

    def read(self, size: int = -1, head: bytes = b"") -> bytes:
        """`head`, and up to `size` bytes behind it; fewer only at the end of the file."""
        if 0 <= size <= CHUNK_BYTES:
            return head + self._read(size) if head else self._read(size)
        whole = io.BytesIO(head)  # Memory grows with what is there, and signals are heard.
        whole.seek(len(head))
        while size and (chunk := self._read(CHUNK_BYTES if size < 0 else min(size, CHUNK_BYTES))):
            whole.write(chunk)
            size -= len(chunk) if size > 0 else 0
        return whole.getvalue()

    def _read(self, size: int) -> bytes:
        with naming(self._place):
            data = self._file.read(size)
            # Raw streams may return less than was asked for before their end.
            while data and len(data) < size and (more := self._file.read(size - len(data))):
                data += more
        self._hash.update(data)
        report_progress()
        self.bytes += len(data)
        if self._size is not None and self.bytes > self._size:
            raise OSError(f"more than {self._size} bytes could be read; it has changed?")
        return data

    def hexdigest(self) -> str:
        """The hash of all bytes read so far."""
        return str(self._hash.hexdigest())


class HashedWriter:
    """Writes a file from start to end and hashes it.

    Args:
        file: open at its start.
        place: where it is, for people.
        most: writing more bytes raises OSError.
    """

    def __init__(self, file: BinaryIO, place: str, most: float = math.inf) -> None:
        self._most = most
        self._file = file
        self._place = place
        self._hash = new_hash()
        self.bytes = 0

    def write(self, data: bytes) -> None:
        """Writes all of `data`, in parts, so that signals are heard."""
        for at in range(0, len(data), 64 * CHUNK_BYTES):
            part = data[at : at + 64 * CHUNK_BYTES]
            self.bytes += len(part)
            if self.bytes > self._most:
                raise OSError(f"the result takes more than {self._most} bytes")
            with naming(self._place):
                self._file.write(part)
            self._hash.update(part)
            report_progress()

    def flush(self) -> None:
        """Hands what is written so far to the system: a full disk says so now."""
        with naming(self._place):
            self._file.flush()

    def hexdigest(self) -> str:
        """The hash of all bytes written so far."""
        return str(self._hash.hexdigest())


def new_hash() -> Any:
    """The hash of files and of pixels: SHA-256, for which processors have instructions."""
    return hashlib.sha256()


def hash_file(folder: Folder, name: str) -> str:
    """The hash of a file's bytes."""
    with folder.open(name, whole=True) as file:
        reader = HashedReader(file, folder.place(name))
        while reader.read(CHUNK_BYTES):
            pass
    return reader.hexdigest()
