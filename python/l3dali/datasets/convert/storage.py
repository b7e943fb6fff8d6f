"""Folders that hold data sets: local ones, and those that fsspec reaches by URL.

Knows files and their names, nothing of what they hold.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import math
import os
import posixpath
import re
import secrets
import stat
import tempfile
import threading
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast
from unicodedata import normalize

from l3dali.console import without_password
from l3dali.datasets.convert.limits import report_progress
from l3dali.errors import UsageError, needs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

CHUNK_BYTES = 2**20
_MOST_AT_ONCE = 2**26  # bytes that are read or written, and hashed, between looks at signals
_BLOCK_BYTES, _WHOLE_BLOCK_BYTES = 2**23, 2**25  # that are fetched; of files read to their end
_PART_BYTES = 3 * 2**24  # of an upload: S3 takes 10,000, and 3,500 writes a second
_MOST_LEVELS, _MOST_FOLDERS = 64, 10**6  # that a server may lead to
LONGEST_NAME = 4096  # PATH_MAX of Linux: to follow links, and NFC, take time by the square of it
MANIFEST_NAME = "l3-manifest.jsonl"
REPORT_NAME = "l3-report.html"
LOCK_NAME = ".l3-lock"
# Protocols: of servers whose folders may be links, that replace no file (WebHDFS), or take none.
_NO_TARGETS = {"ftp", "sftp", "ssh", "smb", "webhdfs", "http", "https"}
_MODE = 0o666
_FOLDER = os.O_DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)  # which may not be readable

# In the order of how well they tell versions apart; file systems differ in what they know.
_STAMPS = (
    "ETag",
    "etag",
    "Content-MD5",
    "md5Hash",
    "LastModified",
    "Last-Modified",
    "updated",
    "last_modified",
    "mtime",
    "modify",
    "modificationTime",
    "created",
)
_TEMPORARY = re.compile(r"\.l3-[0-9a-f]{16}\.tmp")


@dataclass(frozen=True, slots=True)
class Stored:
    """A file as a listing tells of it.

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
    """The files of a folder, those of folders in it too.

    Attributes:
        files: by name, in the order of names.
        failures: what could not be listed, and why.
        links: names of symbolic links to folders, which are not followed.
        linked: where the symbolic links to files lead, which are followed.
        temporaries: names that are those of temporary files.
        others: names of what is no file: links to nothing, pipes.
    """

    files: dict[str, Stored] = field(default_factory=dict)
    failures: list[tuple[str, str]] = field(default_factory=list)
    temporaries: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


class Folder(Protocol):
    """A folder of files, local or not."""

    def place(self, name: str = "") -> str:
        """Where a file of the folder is, for people."""

    def real_place(self) -> str:
        """Where the folder is, the same under all its names."""

    def list_files(self) -> Listing:
        """All files but temporary ones. A folder that does not exist is empty."""

    def stat(self, name: str) -> Stored | None:
        """One file; None if there is none."""

    def open(self, name: str, *, whole: bool = False) -> BinaryIO:
        """Opens a file to be read from start to end, or with seeks; `whole`: all of it."""

    def publish(self, name: str, mode: int = ...) -> contextlib.AbstractContextManager[BinaryIO]:
        """A file to write, which appears whole when the block ends and not at all if it raises.

        Args:
            name: of the file.
            mode: of it on a disk, where the umask leaves it.
        """

    def mode(self, name: str) -> int:
        """The mode for what is made of a file: readers of that alone, and its owner, have it."""

    def remove(self, name: str) -> None:
        """Removes a file, if there is one."""

    def leads_out(self, name: str) -> bool:
        """Whether a folder of this name below it is elsewhere, once links are followed."""

    def folds_case(self) -> bool:
        """Whether names that differ in cases alone are one file's."""

    def check_writable(self) -> None:
        """Tries whether files can be written, and leaves none.

        Raises:
            OSError: they cannot.
        """


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


def walk(
    root: Path, on_error: Callable[[OSError], object] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """`os.walk`, which before Python 3.12 calls itself for each level, and ends at the 1,000th."""
    waiting = [str(root)]
    while waiting:
        path = waiting.pop()
        for _, folders, names in islice(os.walk(path, onerror=on_error), 1):
            yield path, folders, names
            below = [os.path.join(path, folder) for folder in reversed(folders)]  # noqa: PTH118
            waiting += [each for each in below if not os.path.islink(each)]  # noqa: PTH114


def folded(name: str) -> str:
    """The same for names that some disks take for one: of other cases, or spellings of é."""
    return (normalize("NFC", name) if len(name) <= LONGEST_NAME else name).casefold()


def named_as(
    names: Collection[str | None], files: dict[str, Stored], folder: Folder
) -> dict[str, Stored]:
    """The files of a folder, by these names where its disk has them under names of other cases."""
    missing = {folded(name): name for name in names if name is not None and name not in files}
    others = {name: missing.get(folded(name)) for name in files if missing and name not in names}
    first = next(filter(None, others.values()), None)
    with contextlib.suppress(Exception):  # Storage raises anything, and one look tells of all.
        if first is not None and folder.stat(first) is not None:
            return {others.get(name) or name: file for name, file in files.items()}
    return files


class LocalFolder:
    """A folder of this machine's file system."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def place(self, name: str = "") -> str:
        return str(self.root / name)

    def real_place(self) -> str:
        return str(self.root.resolve())

    def list_files(self) -> Listing:
        listing = Listing()

        def on_error(error: OSError) -> None:
            if Path(error.filename) != self.root or not isinstance(error, FileNotFoundError):
                listing.failures.append((str(error.filename), error.strerror or str(error)))

        for path, folders, names in walk(self.root, on_error):
            folders.sort()
            prefix = "" if path == str(self.root) else os.path.relpath(path, self.root) + "/"
            links = (child for child in folders if os.path.islink(f"{path}/{child}"))  # noqa: PTH114
            listing.links += [prefix + child for child in links]
            for name in sorted(names):
                if _TEMPORARY.fullmatch(name):
                    listing.temporaries.append(prefix + name)
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
        try:
            status = (self.root / name).stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(status.st_mode):  # A pipe would never end.
            raise OSError(errno.EINVAL, "not a file", self.place(name))
        return Stored(name, status.st_size, str(status.st_mtime_ns))

    def open(self, name: str, *, whole: bool = False) -> BinaryIO:
        return open_regular(self.root / name, "rb")

    def leads_out(self, name: str) -> bool:
        folder = Path(os.path.realpath(self.root / name))
        return not folder.is_relative_to(os.path.realpath(self.root))

    def open_to_append(self, name: str) -> BinaryIO:
        """Opens a file, new or not, to be written at its end.

        Raises:
            OSError: it is a link, or no regular file.
        """
        return open_regular(self._changed(name), "ab", os.O_NOFOLLOW)

    def _changed(self, name: str) -> Path:
        """The path of a file that is to be written or removed: never one outside of the folder."""
        path = self.root / name
        if leads_out(name) or self.leads_out(name.rpartition("/")[0]):
            raise OSError(errno.ELOOP, f"a link leads out of {self.root}", str(path))
        return path

    @contextlib.contextmanager
    def _folder_of(self, name: str, *, make: bool = False) -> Iterator[int]:
        """A descriptor of the folder of a file: what others put in its place leads nowhere."""
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
        return (self.root / name).stat().st_mode & _MODE | 0o600

    def remove(self, name: str) -> None:
        is_gone = contextlib.suppress(FileNotFoundError)
        with is_gone, naming(self.place(name)), self._folder_of(name) as folder:
            os.unlink(name.rpartition("/")[2], dir_fd=folder)

    def remove_empty(self, names: Iterable[str]) -> None:
        """Removes folders below this one, by no link, up to the first that holds something."""
        with contextlib.suppress(OSError):
            for name in names:
                with self._folder_of(name) as folder:
                    os.rmdir(name.rpartition("/")[2], dir_fd=folder)

    def folds_case(self) -> bool:
        name = f".l3-{secrets.token_hex(8)}.tmp"
        with contextlib.suppress(OSError):
            place = self._nearest()
            (place / name).touch()
            try:
                return (place / name.upper()).exists()
            finally:
                (place / name).unlink()
        return False

    def check_writable(self) -> None:
        """See `Folder`: of the folder itself, or of the nearest above it that exists."""
        place = self._nearest()
        if not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
        with tempfile.TemporaryFile(dir=place):  # without a name, where the system can
            pass

    def _nearest(self) -> Path:
        """The folder, or the nearest above it that exists."""
        place = self.root
        while not place.exists() and place != place.parent:
            place = place.parent
        return place

    def remove_temporaries(self) -> None:
        """Removes what killed runs have left, but nothing of a run on a DEST in or around this."""
        root = self.root.resolve()
        for path, _, names in walk(root):
            for name in filter(_TEMPORARY.fullmatch, names):
                file = Path(path, name)
                others = {*file.parents} - {root}
                with contextlib.suppress(OSError):
                    if not any((each / LOCK_NAME).exists() for each in others):
                        file.unlink()


def open_regular(path: Path, mode: str, flags: int = 0) -> BinaryIO:
    """Opens a file; raises OSError if it is no regular one, as a pipe, which would hold us up."""

    def opener(place: str, own: int) -> int:
        descriptor = os.open(place, own | flags | os.O_NONBLOCK, _MODE)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a file", place)
        return descriptor

    return cast("BinaryIO", open(path, mode, opener=opener))


class _NotWantedError(Exception):
    """Ends a block that publishes nothing."""


_connecting = threading.Lock()  # Of many that come at once, servers turn some away.


def _forget_lock() -> None:
    """In a process that was forked: a thread of the other one may have held it."""
    global _connecting
    _connecting = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


def _connect(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    with _connecting:
        return cast("tuple[Any, str]", url_to_fs(url))


class RemoteFolder:
    """A folder that fsspec reaches: a bucket, memory, a server."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.implementations.local import LocalFileSystem
        except ImportError:
            raise needs("fsspec", url) from None
        try:
            fs, root = _connect(url)
        except Exception as error:  # Chained ones open what lies below.
            raise UsageError(f"{url}: {_text_of(error)}") from None
        if isinstance(_innermost(fs), LocalFileSystem):
            raise UsageError(f"{url}: name the path alone")
        self._of_thread = threading.local()
        self._of_thread.fs = fs
        self._root = str(root).rstrip("/")
        self._place = without_password(url.rstrip("/"))
        self._url = url

    @property
    def _fs(self) -> Any:
        """The file system: a thread has its own, where a connection is for one, as of SFTP."""
        if not hasattr(self._of_thread, "fs"):
            self._of_thread.fs, _ = _connect(self._url)
        return self._of_thread.fs

    @property
    def shares_connections(self) -> bool:
        """Whether threads share connections; else each has its own, and servers limit these."""
        from fsspec.asyn import AsyncFileSystem

        return isinstance(_innermost(self._fs), AsyncFileSystem)

    def place(self, name: str = "") -> str:
        return f"{self._place}/{name}" if name else self._place

    def real_place(self) -> str:
        """See `Folder`: a scheme may have several names, as `s3` and `s3a`."""
        root = posixpath.normpath(self._root) if self._root else ""
        place = str(self._fs.unstrip_protocol(root))
        # Of protocols whose paths do not begin with it, as FTP. Users have roots of their own.
        inner = _innermost(self._fs)
        server = type(inner)._get_kwargs_from_urls(self._url.rpartition("::")[2])
        if "host" in server:
            port = getattr(inner, "port", server.get("port"))
            server |= {"host": str(server["host"]).lower(), "port": port}
        names = ",".join(str(server[key]) for key in sorted({*server} - {"password"}))
        return place.replace("://", f"://{names}", 1).rstrip("/")

    def list_files(self) -> Listing:
        self._fs.invalidate_cache()
        listing = Listing()
        if "https" in _innermost(self._fs).protocol:
            return listing  # A web server's pages are no listings.
        with naming(self._place):
            try:
                found = self._find(listing.failures)
            except FileNotFoundError:
                return listing
        for path in sorted(found):
            info = found[path]
            name = path[len(self._root) :].removeprefix("/")
            if _TEMPORARY.fullmatch(name.rpartition("/")[2]):
                listing.temporaries.append(name)
                continue
            if not name or (name.endswith("/") and info["size"] == 0):  # A folder, to consoles.
                continue
            try:
                is_link = info.get("unix.mode", "").startswith("l")  # to FTP without MLSD, a file
                if is_link or info["type"] not in ("file", "directory"):
                    raise OSError("neither file nor folder: links of servers are not followed")
                stored = _stored(name, info)
            except OSError as error:
                listing.failures.append((self.place(name), error.strerror or str(error)))
            else:
                listing.files[name] = stored
        return listing

    def _find(self, failures: list[tuple[str, str]]) -> dict[str, dict[str, Any]]:
        """What is known of each file below the folder, by path."""
        from fsspec.asyn import AsyncFileSystem
        from fsspec.spec import AbstractFileSystem

        kind = type(_innermost(self._fs))
        own = (kind.find, getattr(kind, "_find", AsyncFileSystem._find))
        if own != (AbstractFileSystem.find, AsyncFileSystem._find):  # as of object stores
            return cast("dict[str, dict[str, Any]]", self._fs.find(self._root, detail=True))
        found: dict[str, dict[str, Any]] = {}
        waiting, seen = [self._root], {self._root}
        while waiting:
            folder = waiting.pop()
            name = folder[len(self._root) + 1 :]
            if name.count("/") >= _MOST_LEVELS or len(seen) > _MOST_FOLDERS:
                raise OSError("it lists folders in folders without end")
            try:
                entries = self._fs.ls(folder, detail=True)
            except Exception as error:
                if not name:
                    raise
                is_gone = isinstance(error, FileNotFoundError)
                reason = "no such folder" if is_gone else _text_of(error)
                failures.append((self.place(name), reason))
                continue
            for info in entries:
                path = info["name"].rstrip("/")
                if info["type"] != "directory":
                    found[path] = info
                elif path not in seen and not leads_out(path[len(self._root) + 1 :]):
                    seen.add(path)
                    waiting.append(path)
        return found

    def forget(self, name: str) -> None:
        """Lets the next look at a file be at what is there now, not at an earlier listing."""
        self._fs.invalidate_cache(self._path(name))

    def stat(self, name: str) -> Stored | None:
        with naming(self.place(name)):
            try:
                info = self._fs.info(self._path(name))
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
            file = self._fs.open(self._path(name), "rb", block_size=block)
        return cast("BinaryIO", file)

    def openable(self, name: str) -> Any:
        """A file for `l3dali.info`, which reads little more than its head."""
        from fsspec.core import OpenFile

        return OpenFile(self._fs, self._path(name))

    @contextlib.contextmanager
    def publish(self, name: str, mode: int = _MODE) -> Iterator[BinaryIO]:
        from fsspec.spec import AbstractBufferedFile

        folder = name.rpartition("/")[0]
        path, temporary = (
            self._path(name),
            self._path(f"{folder}/.l3-{secrets.token_hex(8)}.tmp"),
        )
        with naming(self.place(name)):
            self._check_is_target()
            self._fs.makedirs(self._path(folder), exist_ok=True)
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
                if hasattr(file, "commit"):
                    file.commit()
                if not has_commit:
                    self._rename(temporary, path)
        except BaseException:
            with contextlib.suppress(Exception):
                if has_commit:
                    _forget(file)
                else:
                    self._fs.rm_file(temporary)
            raise

    def mode(self, name: str) -> int:
        return _MODE

    def leads_out(self, name: str) -> bool:
        return False  # Where there are links, nothing is written.

    def folds_case(self) -> bool:
        name = f".l3-{secrets.token_hex(8)}.tmp"
        with contextlib.suppress(Exception):  # Storage raises anything.
            with self.publish(name):
                pass
            try:
                return self.stat(name.upper()) is not None
            finally:
                self.remove(name)
        return False

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), naming(self.place(name)):
            self._check_is_target()
            self._fs.rm_file(self._path(name))  # To rm, names are patterns.

    def check_writable(self) -> None:
        """See `Folder`: begins an upload and drops it."""
        with contextlib.suppress(_NotWantedError), self.publish(f".l3-{secrets.token_hex(8)}.tmp"):
            raise _NotWantedError

    def _check_is_target(self) -> None:
        protocol = getattr(_innermost(self._fs), "protocol", ())
        names = {self._url.rpartition("::")[2].partition("://")[0]}
        if _NO_TARGETS & names.union((protocol,) if isinstance(protocol, str) else protocol):
            reason = "nothing is written to FTP, SFTP, SMB, WebHDFS or web servers"
            raise OSError(errno.EROFS, f"{reason}: mount the folder, or copy results to it")

    def _path(self, name: str) -> str:
        if "?versionId=" in name:
            raise OSError(errno.EINVAL, "S3 takes it for another object's version", name)
        return f"{self._root}/{name}".rstrip("/")

    def _rename(self, path: str, new: str) -> None:
        from fsspec.spec import AbstractFileSystem

        if type(_innermost(self._fs)).mv is not AbstractFileSystem.mv:
            self._fs.mv(path, new)
        else:  # to which names are patterns
            self._fs.cp_file(path, new)
            self._fs.rm_file(path)

    def _open_new(self, path: str) -> Any:
        return self._fs.open(path, "wb", autocommit=False, block_size=_PART_BYTES)


def _innermost(fs: Any) -> Any:
    """What a file system that keeps copies of another's files has them from."""
    while hasattr(fs, "fs"):
        fs = fs.fs
    return fs


def _forget(file: Any) -> None:
    """Drops an upload; what fsspec does when such a file is closed would end it instead."""
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
    """Makes errors of storage say where they happened."""

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


class _GatheredHash:
    """The hash of many pieces. Small ones are hashed together: a call costs more than they do."""

    _MOST_BYTES = 2**16  # that wait

    def __init__(self) -> None:
        self._hash = new_hash()
        self._waiting: list[bytes] = []
        self._bytes = 0

    def update(self, data: bytes) -> None:
        if len(data) >= self._MOST_BYTES:
            self._flush()
            self._hash.update(data)
            report_progress()
            return
        self._waiting.append(bytes(data))
        self._bytes += len(data)
        if self._bytes >= self._MOST_BYTES:
            self._flush()

    def hexdigest(self) -> str:
        self._flush()
        return str(self._hash.hexdigest())

    def _flush(self) -> None:
        self._hash.update(b"".join(self._waiting))
        report_progress()
        self._waiting.clear()
        self._bytes = 0


class HashedReader:
    """Reads a file from start to end; knows the hash of what it has read.

    Args:
        file: open at its start.
        place: where it is, for people.
        size: of the file, if it is known: reading goes little beyond it, and raises OSError.
    """

    def __init__(self, file: BinaryIO, place: str, size: int | None = None) -> None:
        self._file = file
        self._place = place
        self._size = size
        self._hash = _GatheredHash()
        self.bytes = 0

    def read(self, size: int = -1, head: bytes = b"") -> bytes:
        """`head`, and up to `size` bytes behind it; fewer at the end of the file alone."""
        # No memory at once for a size that a damaged file claims, and signals are heard.
        known = max(CHUNK_BYTES, (self._size or 0) - self.bytes)
        if 0 <= size <= min(known, _MOST_AT_ONCE):
            return head + self._read(size) if head else self._read(size)
        whole = io.BytesIO()  # which holds one copy, where join() takes two
        whole.write(head)
        for chunk in self._chunks(size):
            whole.write(chunk)
        return whole.getvalue()

    def _read(self, size: int) -> bytes:
        with naming(self._place):
            data = self._file.read(size)
        # Raw streams may give less than was asked for before their end.
        while data and len(data) < size:
            with naming(self._place):
                more = self._file.read(size - len(data))
            if not more:
                break
            data += more
        self._hash.update(data)
        self.bytes += len(data)
        if self._size is not None and self.bytes > self._size:
            raise OSError(f"more than {self._size} bytes could be read; it has changed?")
        return data

    def hexdigest(self) -> str:
        """The hash of all bytes read so far."""
        return self._hash.hexdigest()

    def _chunks(self, size: int) -> Iterator[bytes]:
        while size:
            chunk = self._read(CHUNK_BYTES if size < 0 else min(size, CHUNK_BYTES))
            if not chunk:
                return
            yield chunk
            size -= len(chunk) if size > 0 else 0


class HashedWriter:
    """Writes a file from start to end; knows the hash of what it has written.

    Args:
        file: open at its start.
        place: where it is, for people.
        most: writing more bytes raises OSError.
    """

    def __init__(self, file: BinaryIO, place: str, most: float = math.inf) -> None:
        self._most = most
        self._file = file
        self._place = place
        self._hash = _GatheredHash()
        self.bytes = 0

    def write(self, data: bytes) -> None:
        """Writes all of `data`."""
        if len(data) > _MOST_AT_ONCE:
            for at in range(0, len(data), _MOST_AT_ONCE):
                self.write(data[at : at + _MOST_AT_ONCE])
            return
        self.bytes += len(data)
        if self.bytes > self._most:
            raise OSError(f"the result takes more than {self._most} bytes")
        with naming(self._place):
            self._file.write(data)
        self._hash.update(data)

    def flush(self) -> None:
        """Hands what is written so far to the system."""
        with naming(self._place):
            self._file.flush()

    def hexdigest(self) -> str:
        """The hash of all bytes written so far."""
        return self._hash.hexdigest()


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
