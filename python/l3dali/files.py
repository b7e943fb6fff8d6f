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

import numpy as np

from l3dali import codec
from l3dali.arguments import DEFAULT_THREADS, checked_window, row_major
from l3dali.atomic import write_atomically
from l3dali.console import printable, reason_of
from l3dali.errors import L3Error, Status, UsageError, needs
from l3dali.images.geometry import upright
from l3dali.images.reading import IMAGE_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    from _typeshed import SupportsRead, SupportsWrite
    from typing_extensions import Buffer, Unpack

__all__ = ["imread", "imwrite", "info"]


_HEAD_BYTES = 4096  # where header, chunks and index of most files end
_HEADER_BYTES, _CHUNKS_BYTES_AT, _UNIT = 32, 24, 16  # format.md 3, 5
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
        file: a path; a URL of fsspec (`s3://...`); or a file opened for reading bytes, which is
            read from its position on.
        window: as in `decode`. With `orient` it is a part of the upright image, and an image that
            must be turned is decoded whole. From a URL, only header, index and the tiles that are
            decoded are fetched.
        channels: as in `decode`.
        threads: how many to use, up to 1024; 0 for all of the machine.
        orient: turn the image as its EXIF orientation says. A damaged EXIF block is ignored, as
            in the DALI operators.
        max_pixels: as in `decode`.

    Raises:
        L3Error: the data is damaged, not an L3 file, or too large; `.status` says how, and the
            message names the file.
        OSError: the file cannot be read.
        TypeError: `file` is none of these.
        UsageError: a URL needs fsspec, or a package of fsspec, that is not installed.
    """
    window = checked_window("window", window)
    url = file if window is not None and _is_url(file) else None
    with _naming(file):
        data = _read(file) if url is None else _read_remote_head(url)
        exif = codec.info(data).exif if orient else None
        is_turned = upright(np.empty((1, 1)), exif)[1] is not exif
        stored = None if is_turned else window
        if url is not None:
            data = (
                _read(url) if stored is None else _read_window(url, bytes(data), stored, channels)
            )
        pixels = codec.decode(
            data, window=stored, channels=channels, threads=threads, max_pixels=max_pixels
        )
        pixels = row_major(upright(pixels, exif)[0])
        if window is None or not is_turned:
            return pixels
        top, left, height, width = window
        part = pixels[top : top + height, left : left + width]
        if part.shape[:2] != (height, width):
            raise L3Error(f"the window {window} is not inside the image", Status.INVALID_ARGUMENT)
        return row_major(part)


def imwrite(file: Target, image: npt.ArrayLike, **options: Unpack[codec.EncodeOptions]) -> None:
    """Encodes `image` into an L3 file; the options are those of `encode`.

    A local file appears whole or not at all. A device or a named pipe is written to and stays.

    Args:
        file: a path, a URL of fsspec, or a file opened for writing bytes.
        image: as for `encode`.
        **options: those of `encode`.

    Raises:
        OSError: the file cannot be written.
        TypeError: `file` is none of these, or `encode` refuses the image.
        UsageError: as `imread`.
        ValueError: the name of `file` ends as that of another image format (`a.png`), or
            `encode` refuses the image or an option.
    """
    if isinstance(image, (str, os.PathLike)):
        raise TypeError("imwrite takes the path first, then the array: imwrite('a.l3', image)")
    suffix = PurePath(_name(file)).suffix
    if suffix.lower() in IMAGE_SUFFIXES and not hasattr(file, "write"):
        raise ValueError(
            f"imwrite writes .l3 files, and {_name(file)} ends in {suffix}; "
            "l3 decode makes other images of L3 files"
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

    For a partial file `codings` is None, but header, chunks and index are still validated. From a
    path, a URL or an open file little more than these is read.

    Args:
        file: the bytes of an L3 file, which must not change during the call, or what `imread`
            takes.

    Raises:
        L3Error: header, chunks or index are damaged or incomplete, the data is not an L3 file,
            or data follows the image.
        OSError: the file cannot be read.
        TypeError: `file` is none of these.
        UsageError: as `imread`.
    """
    with _naming(file):
        if _is_url(file):
            return codec.info(_read_remote_head(file))
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
        ValueError: fsspec does not know the protocol.
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


def _read_remote_head(url: str) -> bytes:
    """Header, chunks and index, maybe with more data behind them."""
    with _remote(url) as (fs, path):
        size, end = _size_of(fs, path, url), _HEAD_BYTES
        while True:
            data = bytes(fs.cat_file(path, start=0, end=min(end, size))) if size else b""
            try:
                codec.info(data)
                return data
            except L3Error as error:
                if error.status is not Status.TRUNCATED or end >= size:
                    raise
            end *= 4


def _size_of(fs: Any, path: str, url: str) -> int:
    size = fs.info(path)["size"]
    if size is None:
        raise OSError(errno.EIO, "the server does not say the size of the file", url)
    return int(size)


def _read_window(
    url: str, head: bytes, window: codec.Window, channels: Sequence[int] | None
) -> Buffer:
    """The parts of the file that a window needs; elsewhere zeros, which take no memory."""
    info = codec.info(head)
    with _remote(url) as (fs, path):
        size = _size_of(fs, path, url)
        data = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
        data[: len(head)] = head
        top, left, height, width = window
        is_inside = 0 <= top <= info.height - height and 0 <= left <= info.width - width
        if not is_inside or info.encoded_bytes != size:
            return memoryview(data)  # Decoding finds the error.
        ranges = [
            (max(start, len(head)), end)
            for start, end in _window_ranges(head, info, window, channels)
            if end > len(head)
        ]
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        paths = [path] * len(ranges)
        parts = fs.cat_ranges(paths, starts, ends, on_error="raise") if ranges else []
        for (start, end), part in zip(ranges, parts, strict=True):
            if len(part) != end - start:
                reason = f"the server sent {len(part)} of {end - start} bytes"
                raise OSError(errno.EIO, reason, url)
            data[start:end] = part
        return memoryview(data)


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


def _window_ranges(
    head: bytes, info: codec.Info, window: codec.Window, channels: Sequence[int] | None
) -> list[tuple[int, int]]:
    """Where the payloads of a window lie: start and end in the file, in order.

    Args:
        head: the beginning of a file, with its whole index, which is valid.
        info: what it says.
        window: top, left, height and width, inside of the image.
        channels: those that are needed; None means all.
    """
    groups = len(info.groups)
    begin = _HEADER_BYTES + int.from_bytes(head[_CHUNKS_BYTES_AT : _CHUNKS_BYTES_AT + 4], "little")
    ends = np.frombuffer(head, "<u4", info.tile_count * groups, begin).astype(np.int64) * _UNIT
    base = info.encoded_bytes - int(ends[-1])
    top, left, height, width = window
    columns = -(-info.width // info.tile_width)
    rows = range(top // info.tile_height, -(-(top + height) // info.tile_height))
    wanted = [
        number
        for number, group in enumerate(info.groups)
        if channels is None or not set(group).isdisjoint(channels)
    ]
    ranges: list[tuple[int, int]] = []
    for row in rows:
        for column in range(left // info.tile_width, -(-(left + width) // info.tile_width)):
            for group in wanted:
                payload = (row * columns + column) * groups + group
                start = base + (int(ends[payload - 1]) if payload else 0)
                end = base + int(ends[payload])
                if ranges and start - ranges[-1][1] <= _GAP_BYTES:
                    start = ranges.pop()[0]
                ranges.append((start, end))
    return ranges


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
