"""L3 files under a path, behind a URL of fsspec, or open already.

This module finds and moves bytes; `codec` interprets them.
"""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from l3dali import codec
from l3dali.arguments import DEFAULT_THREADS, checked_window, contiguous
from l3dali.atomic import write_atomically
from l3dali.console import printable, reason_of
from l3dali.errors import L3Error, Status, UsageError, needs
from l3dali.images.reading import IMAGE_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt
    from _typeshed import SupportsRead, SupportsWrite
    from typing_extensions import Buffer, TypeVar, Unpack

    _Parsed = TypeVar("_Parsed")

__all__ = ["imread", "imwrite", "info"]


_HEAD_BYTES = 4096  # where header, chunks and index of most files end
_GAP_BYTES = 8192  # a shorter gap between two ranges is fetched with them
_MAP_NORESERVE = 0x4000  # Linux has this flag, `mmap` has no name for it


Source: TypeAlias = "str | os.PathLike[str] | SupportsRead[Any]"
Target: TypeAlias = "str | os.PathLike[str] | SupportsWrite[bytes]"


def imread(
    file: Source,
    *,
    window: codec.Window | None = None,
    channels: Sequence[int] | None = None,
    threads: int = DEFAULT_THREADS,
    orient: bool = False,
    max_pixels: int | None = codec.DEFAULT_MAX_PIXELS,
) -> codec.Image:
    """Decodes an L3 file: (H, W) for one channel, else (H, W, C), of the stored type.

    Args:
        file: a path, a URL of fsspec (`s3://...`), or a file opened for reading bytes.
        window: as in `decode`; with `orient`, of the upright image. From a URL only header, index
            and the tiles of the window are fetched.
        channels: as in `decode`.
        threads: as in `decode`.
        orient: turn the image as its EXIF orientation says.
        max_pixels: as in `decode`.

    Raises:
        L3Error: as in `decode`; the message names the file.
        OSError: the file cannot be read.
        TypeError, ValueError: an argument is not valid.
        UsageError: the URL needs fsspec, or another package, that is not installed.
    """
    windows = [checked_window("window", window)]

    def plan(data: Buffer) -> codec.DecodeBatch:
        return codec.plan_decode(
            [contiguous(data)], windows, max_pixels, channels, orient=orient, is_partial=is_partial
        )

    url = file if window is not None and _is_url(file) else None
    is_partial = url is not None
    with _naming(file):
        batch = plan(_read(file)) if url is None else _plan_remote(url, plan)
        return codec.run_decode(batch, None, threads)[0]


def imwrite(file: Target, image: npt.ArrayLike, **options: Unpack[codec.EncodeOptions]) -> None:
    """Encodes an image into an L3 file.

    A local file appears whole or not at all.

    Args:
        file: a path, a URL of fsspec, or a file opened for writing bytes.
        image: as in `encode`.
        **options: those of `encode`.

    Raises:
        OSError: the file cannot be written.
        L3Error, TypeError, ValueError: as in `encode`; ValueError also if the name of `file` has
            the suffix of another image format.
        UsageError: as in `imread`.
    """
    if isinstance(image, (str, os.PathLike)):
        raise TypeError("imwrite takes the path first, then the array: imwrite('a.l3', image)")
    suffix = PurePath(_name(file)).suffix
    if suffix.lower() in IMAGE_SUFFIXES and not hasattr(file, "write"):
        raise ValueError(
            f"imwrite only writes .l3 files, but {_name(file)} ends in {suffix}; "
            "use l3 decode to convert L3 files"
        )
    data = codec.encode(image, **options)
    if _is_url(file):
        with _remote(file) as (fs, path):
            fs.pipe_file(path, data)
    elif isinstance(file, (str, os.PathLike)):
        write_atomically(Path(file), data)
    elif isinstance(file, io.RawIOBase):  # One write may take a part of the data.
        buffered = io.BufferedWriter(file)
        buffered.write(data)
        buffered.detach()
    elif hasattr(file, "write"):
        file.write(data)
    else:
        raise _type_error("imwrite", file, "; l3dali.encode returns the bytes")


def info(file: Source | Buffer) -> codec.Info:
    """Reads the metadata of an L3 file, without decoding tiles.

    Only header, chunks and index are read and validated; a partial file is enough.

    Args:
        file: the bytes of an L3 file, or a `file` of `imread`.

    Raises:
        L3Error: header, chunks or index are damaged or incomplete, the data is not an L3 file,
            or data follows the image.
        OSError, TypeError, UsageError: as in `imread`.
    """
    with _naming(file):
        if _is_url(file):
            with _remote(file) as (fs, path):
                return _parse_remote_head(fs, path, _size_of(fs, path, file), codec.info)[1]
        if isinstance(file, (str, os.PathLike)):
            with Path(file).open("rb") as opened:
                return read_info(opened)
        try:
            data = memoryview(file)  # type: ignore[arg-type]
        except TypeError:
            if hasattr(file, "read"):
                return read_info(file)  # type: ignore[arg-type]
            raise TypeError(
                f"info takes bytes, a path, URL or file, not {type(file).__name__}"
            ) from None
        return codec.info(data)


def read_info(file: SupportsRead[Any]) -> codec.Info:
    """`info` of an open file; reads little more than header, chunks and index.

    Raises:
        L3Error: as `info`.
    """
    data = bytearray(_read_open(file, _HEAD_BYTES))
    while True:
        try:
            return codec.info(data)
        except L3Error as error:
            more = file.read(len(data)) if error.status is Status.TRUNCATED and data else b""
            if not more:
                raise
        data += more  # Sockets give a little at a time.


@contextlib.contextmanager
def _naming(file: Any) -> Iterator[None]:
    """Adds the name of the file to the message of an L3Error."""
    try:
        yield
    except L3Error as error:
        name = _name(file)
        raise L3Error(f"{name}: {error}" if name else str(error), error.status) from None


def _name(file: Any) -> str:
    """The name of a file for people, empty if it has none."""
    if not isinstance(file, (str, os.PathLike)):
        file = getattr(file, "name", None)
    return printable(os.fspath(file)) if isinstance(file, (str, os.PathLike)) else ""


@contextlib.contextmanager
def _remote(url: str) -> Iterator[tuple[Any, str]]:
    """The file system of fsspec and the path in it; errors of libraries are as `_as_os_errors`.

    Raises:
        UsageError: fsspec, or a package that it needs for this URL, is not installed.
        ValueError: fsspec lacks the protocol.
    """
    try:
        import fsspec
    except ImportError:
        raise needs("fsspec", url) from None
    try:
        with _as_os_errors(url):
            yield fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise UsageError(f"{url} needs a package that is not installed: {error}") from None


def _parse_remote_head(
    fs: Any, path: str, size: int, parse: Callable[[bytes], _Parsed]
) -> tuple[bytes, _Parsed]:
    """The beginning of a file, as much as `parse` takes without an L3Error, and what it returns."""
    end = _HEAD_BYTES
    while True:
        data = bytes(fs.cat_file(path, start=0, end=min(end, size))) if size else b""
        try:
            return data, parse(data)
        except L3Error as error:
            if error.status is not Status.TRUNCATED or end >= size:
                raise
        end *= 4


def _size_of(fs: Any, path: str, url: str) -> int:
    size = fs.info(path)["size"]
    if size is None:
        raise OSError(errno.EIO, "the server does not report the file's size", url)
    return int(size)


def _plan_remote(url: str, plan: Callable[[Buffer], codec.DecodeBatch]) -> codec.DecodeBatch:
    """Fetches the parts of a file that `plan` decodes; the others are zeros, without memory."""
    with _remote(url) as (fs, path):
        size = _size_of(fs, path, url)
        head, batch = _parse_remote_head(fs, path, size, plan)
        data = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
        data[: len(head)] = head
        with codec.explain_errors([data]):
            batch.complete([data])
        (found,) = batch.ranges(_GAP_BYTES)
        ranges = [(max(start, len(head)), end) for start, end in found if end > len(head)]
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        parts = fs.cat_ranges([path] * len(ranges), starts, ends, on_error="raise")
        for (start, end), part in zip(ranges, parts, strict=True):
            if len(part) != end - start:
                reason = f"the server sent {len(part)} of {end - start} bytes"
                raise OSError(errno.EIO, reason, url)
            data[start:end] = part
        return batch


@contextlib.contextmanager
def _as_os_errors(url: str) -> Iterator[None]:
    """Turns exceptions of the libraries behind fsspec into OSErrors that name the URL."""
    try:
        yield
    except (ImportError, ValueError):  # The call itself is wrong.
        raise
    except Exception as error:
        missing = errno.ENOENT if isinstance(error, FileNotFoundError) else errno.EIO
        number = getattr(error, "errno", None) or missing  # fsspec raises some without a number
        reason = reason_of(error) if number == errno.EIO else os.strerror(number)
        raise OSError(number, reason, url) from error


def _is_url(file: Any) -> TypeGuard[str]:
    return isinstance(file, str) and "://" in file


def _read(file: Any) -> Buffer:
    if _is_url(file):
        with _remote(file) as (fs, path):
            return bytes(fs.cat_file(path))
    if isinstance(file, (str, os.PathLike)):
        return Path(file).read_bytes()
    if hasattr(file, "read"):
        return _read_open(file)
    raise _type_error("imread", file, "; l3dali.decode takes the bytes of a file")


def _read_open(file: Any, *size: int) -> Buffer:
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


def _type_error(function: str, file: object, instead: str) -> TypeError:
    return TypeError(f"{function} takes a path, URL or file, not {type(file).__name__}{instead}")
