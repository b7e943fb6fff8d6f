"""L3 files wherever they are: under a path, open already, or behind fsspec.

Knows where bytes come from and go to; `codec` knows what they hold.
"""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
import re
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from l3dali import codec
from l3dali.console import printable, reason_of
from l3dali.errors import L3Error, Status, UsageError, needs
from l3dali.images.geometry import stored_window, upright
from l3dali.images.reading import IMAGE_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    from typing_extensions import Buffer, Unpack

__all__ = ["imread", "imwrite", "info"]


_HEAD_BYTES = 4096  # where header, chunks and index of most files end
_HEADER_BYTES, _CHUNKS_BYTES_AT, _UNIT = 32, 24, 16  # format.md 3, 5
_GAP_BYTES = 8192  # what is rather read than asked for anew
_MAP_NORESERVE = 0x4000  # of Linux; `mmap` does not name it
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(://|::)")


class Readable(Protocol):
    """A file opened for reading bytes."""

    def read(self, size: int = ..., /) -> Any:
        """The bytes from the current position on: all, or up to `size`."""


class Writable(Protocol):
    """A file opened for writing bytes."""

    def write(self, data: bytes, /) -> Any:
        """Writes all of them."""


class Openable(Protocol):
    """A path in the manner of `pathlib`, as `upath.UPath`; or an `fsspec.core.OpenFile`."""

    def open(self, *arguments: Any) -> Any:
        """Opens the file."""


Source: TypeAlias = "str | os.PathLike[str] | Readable | Openable"
Target: TypeAlias = "str | os.PathLike[str] | Writable | Openable"


def imread(
    file: Source,
    *,
    window: codec.Window | None = None,
    channels: Sequence[int] | None = None,
    threads: int = codec.DEFAULT_THREADS,
    orient: bool = False,
    max_pixels: int | None = codec.DEFAULT_MAX_PIXELS,
) -> codec.Image:
    """Decodes an L3 file: (H, W) for one channel, else (H, W, C), of the stored type.

    Args:
        file: a path; a URL of fsspec (`s3://...`); a file opened for reading bytes, from its
            position on; a path with methods of its own, as `upath.UPath`; or what `fsspec.open`
            gives.
        window: top, left, height and width of the part to decode, as in `decode`. With `orient`
            it is one of the image that was turned. Of a URL, a UPath or what `fsspec.open` gives,
            header, index and the tiles of the window alone are fetched, by ranges of bytes.
        channels: as in `decode`.
        threads: how many to use, up to 1024; 0 for all of the machine.
        orient: turn the image as its EXIF orientation asks. A damaged EXIF block asks for nothing,
            as in the DALI operators.
        max_pixels: as in `decode`.

    Raises:
        L3Error: the data is damaged, not an L3 file, or too large; `.status` says how, and the
            message names the file.
        OSError: the file cannot be read.
        TypeError: `file` is none of these.
        UsageError: a URL needs fsspec, or what fsspec needs for it, which is not installed.
    """
    window = codec.checked_window("window", window)
    afar = None if window is None else _find_afar(file)
    with _naming(file):
        data = _read(file) if afar is None else afar.read_head()[0]
        exif = codec.info(data).exif if orient else None
        if exif is not None and window is not None:
            window = stored_window(window, codec.info(data).shape, exif)
        if afar is not None and window is not None:
            data = afar.read_window(window, channels, max_pixels)
        pixels = codec.decode(
            data, window=window, channels=channels, threads=threads, max_pixels=max_pixels
        )
    return codec.row_major(upright(pixels, exif)[0])


def imwrite(file: Target, image: npt.ArrayLike, **options: Unpack[codec.EncodeOptions]) -> None:
    """Encodes `image` into an L3 file; the options are those of `encode`.

    Under a path of this machine the file appears whole or not at all; devices and named pipes
    are written to and stay what they are.

    Args:
        file: a path; a file opened for writing bytes; a path with methods of its own, as
            `upath.UPath`; or what `fsspec.open(..., "wb")` gives.
        image: as for `encode`.
        **options: those of `encode`.

    Raises:
        OSError: the file cannot be written.
        TypeError: `file` is none of these, or `encode` refuses the image.
        ValueError: `file` is a URL, or its name ends as that of another image format (`a.png`), or
            `encode` refuses the image or an option.
    """
    if isinstance(image, (str, os.PathLike)):
        raise TypeError("imwrite takes the path first, then the array: imwrite('a.l3', image)")
    _check_name(file)
    _write(file, codec.encode(image, **options))


def info(file: Source | Buffer) -> codec.Info:
    """Reads what an L3 file says about itself, without decoding tiles.

    Header, chunks and index are enough of a file: they come first, and an error says how many bytes
    they have. Of such a beginning `codings`, which payloads tell, is None; whether it is damaged is
    judged all the same. Of what is no bytes, little more is read.

    Args:
        file: the bytes of an L3 file, which must not change during the call, or what `imread`
            takes.

    Raises:
        L3Error: header, chunks or index are damaged or not all there, the data is not an L3 file,
            or it is longer than one.
        OSError: the file cannot be read.
        TypeError: `file` is none of these.
    """
    if not isinstance(file, str):  # numpy's have a buffer, too
        try:
            memoryview(file)  # type: ignore[arg-type]
        except TypeError:
            pass
        else:
            return codec.info(file)  # type: ignore[arg-type]
    with _reading(file) as stream, _naming(file):
        return read_info(stream)


def read_info(file: Readable) -> codec.Info:
    """What `info` says of an open file; reads little more than header, chunks and index.

    Raises:
        L3Error: as `info`.
    """
    return _read_head(file)[1]


def _read_head(file: Readable) -> tuple[bytes, codec.Info]:
    """Header, chunks and index, maybe with more behind them."""
    data = bytearray(_read_open(file, _HEAD_BYTES))
    while True:
        try:
            info = codec.info(data)
            return bytes(data), info
        except L3Error as error:
            more = file.read(len(data)) if error.status is Status.TRUNCATED and data else b""
            if not more:
                raise
        data += more  # in place: sockets give a little at a time, and no more than there is


@contextlib.contextmanager
def _naming(file: Any) -> Iterator[None]:
    """Errors name the file."""
    try:
        yield
    except L3Error as error:
        name = _name(file)
        raise L3Error(f"{name}: {error}" if name else str(error), error.status) from None


def _name(file: Any) -> str:
    """The name of a file for people, empty if it has none."""
    if not isinstance(file, (str, os.PathLike)):
        file = getattr(file, "name", None) or getattr(file, "path", None) or ""
    return printable(os.fspath(file)) if isinstance(file, (str, os.PathLike)) else ""


class _Afar:
    """A file behind fsspec that is read by ranges of bytes.

    Args:
        fs: the file system.
        path: in it.
        url: for people.

    Raises:
        OSError: there is no such file, or nothing says its size.
    """

    def __init__(self, fs: Any, path: str, url: str) -> None:
        self._fs = fs
        self._path = path
        self._url = url
        with _reaching(url):
            size = fs.info(path)["size"]
            if size is None:
                raise OSError("the server does not say how many bytes it has")
        self._size = int(size)
        self._at = 0
        self._head: tuple[bytes, codec.Info] | None = None

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        end = self._size if size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        with _reaching(self._url):
            data = bytes(self._fs.cat_file(self._path, start=self._at, end=end))
        self._at += len(data)
        return data

    def read_head(self) -> tuple[bytes, codec.Info]:
        """Header, chunks and index, and what they say."""
        if self._head is None:
            self._head = _read_head(self)
        return self._head

    def read_window(
        self, window: codec.Window, channels: Sequence[int] | None, max_pixels: int | None
    ) -> Buffer:
        """The file as far as a window needs it; elsewhere zeros, which take no memory."""
        head, info = self.read_head()
        if info.encoded_bytes != self._size:  # Decoding says what is wrong.
            return head + self.read()
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        data = mmap.mmap(-1, self._size, flags)
        data[: len(head)] = head
        top, left, height, width = window
        inside = 0 <= top <= info.height - height and 0 <= left <= info.width - width
        fours = -(-(len(codec.checked_channels(channels)) or info.channels) // 4)
        if not inside or height * width * fours > codec.checked_max_pixels(max_pixels):
            return memoryview(data)  # Here too.
        ranges = [
            (max(start, len(head)), end)
            for start, end in _window_ranges(head, info, window, channels)
            if end > len(head)
        ]
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        paths = [self._path] * len(ranges)
        with _reaching(self._url):
            parts = self._fs.cat_ranges(paths, starts, ends, on_error="raise") if ranges else []
        for (start, end), part in zip(ranges, parts, strict=True):
            if len(part) != end - start:
                raise OSError(errno.EIO, f"{len(part)} of {end - start} bytes came", self._path)
            data[start:end] = part
        return memoryview(data)


@contextlib.contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Errors of the libraries that fetch become OSErrors, and say why and where."""
    try:
        yield
    except (ImportError, ValueError):  # They are of the call.
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise OSError(error.errno, error.strerror, url) from error
        codes: dict[type, int] = {FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES}
        code, cause = codes.get(type(error), errno.EIO), error.__cause__
        is_plain = cause is None and code != errno.EIO
        reason = os.strerror(code) if is_plain else reason_of(cause or error)
        raise OSError(code, reason, url) from error


def _window_ranges(
    head: bytes, info: codec.Info, window: codec.Window, channels: Sequence[int] | None
) -> list[tuple[int, int]]:
    """Where the payloads lie that a window needs: start and end in the file, in order.

    Args:
        head: the beginning of a file, whose index has been judged.
        info: what it says.
        window: top, left, height and width, inside of the image.
        channels: those that are needed; None are all.
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


def _find_afar(file: Any) -> _Afar | None:
    """What reads a file by ranges; None where it lies here, or has been opened already."""
    if isinstance(file, str):
        if not _URL.match(file) or ("://" not in file and os.path.lexists(file)):
            return None
        try:
            import fsspec
        except ImportError:
            raise needs("fsspec", file) from None
        try:
            with _reaching(file):
                fs, path = fsspec.core.url_to_fs(file)
        except ImportError as error:
            raise UsageError(f"{file} needs what is not installed: {error}") from None
        except ValueError as error:  # It is no URL, or of a protocol that nobody knows.
            raise OSError(errno.EPROTONOSUPPORT, str(error), file) from None
        return _Afar(fs, path, file)
    is_plain = not hasattr(file, "read") and getattr(file, "compression", None) is None
    if is_plain and hasattr(file, "fs") and hasattr(file, "path") and not _is_local_path(file):
        return _Afar(file.fs, str(file.path), _name(file))
    return None


# What has methods of its own is asked by them: the path of a remote file leads nowhere here.


def _read(file: Any) -> Buffer:
    if hasattr(file, "fs") and hasattr(file, "path"):
        with _reaching(str(getattr(file, "full_name", file.path))):
            return _read_whole(file)
    return _read_whole(file)


def _read_whole(file: Any) -> Buffer:
    if isinstance(file, str):
        afar = _find_afar(file)
        return Path(file).read_bytes() if afar is None else afar.read()
    if hasattr(file, "read"):
        return _read_open(file)
    if hasattr(file, "read_bytes"):
        return file.read_bytes()  # type: ignore[no-any-return]
    if isinstance(file, os.PathLike):
        return Path(file).read_bytes()
    if hasattr(file, "open"):
        with _opened(file, "rb") as opened:
            return _read_open(opened)
    raise _type_error("imread", file, "; l3dali.decode takes the bytes of one")


def _read_open(file: Any, *size: int) -> Buffer:
    """What an open file gives.

    Raises:
        TypeError: it gives text, or nothing yet, as one that does not wait.
    """
    data = "" if isinstance(file, io.TextIOBase) else file.read(*size)
    if isinstance(data, str):
        raise TypeError("a file of text is given; open it with 'rb'")
    if data is None:
        raise TypeError("the file gives None in place of bytes: it does not wait for them")
    return data  # type: ignore[no-any-return]


def _reading(file: Any) -> contextlib.AbstractContextManager[Any]:
    """A context of what is opened for reading."""
    if hasattr(file, "read"):
        return contextlib.nullcontext(file)
    if (afar := _find_afar(file)) is not None:
        return contextlib.nullcontext(afar)
    if hasattr(file, "read_bytes") and not hasattr(file, "open"):
        return io.BytesIO(file.read_bytes())
    if isinstance(file, str) or (isinstance(file, os.PathLike) and not hasattr(file, "open")):
        return Path(file).open("rb")
    if hasattr(file, "read_bytes"):  # Paths of pathlib are contexts, too, which open nothing.
        return file.open("rb")  # type: ignore[no-any-return]
    if hasattr(file, "open"):
        return _opened(file, "rb")  # type: ignore[no-any-return]
    raise _type_error("info", file, ", nor bytes")


def _check_name(file: Any) -> None:
    """Raises ValueError if a path is a URL, or named as an image of another format."""
    if isinstance(file, str) and "://" in file and _URL.match(file):
        raise ValueError(f"imwrite writes to paths, and to what fsspec.open({file!r}, 'wb') gives")
    if not hasattr(file, "write"):
        suffix = PurePath(_name(file)).suffix
        if suffix.lower() in IMAGE_SUFFIXES:
            raise ValueError(
                f"imwrite writes .l3 files, and {_name(file)} ends in {suffix}; "
                "l3 decode makes other images of L3 files"
            )


def _write(file: Any, data: bytes) -> None:
    if _is_local_path(file):
        codec.write_atomically(Path(file), data)
    elif hasattr(file, "write"):
        _write_all(file, data)
    elif hasattr(file, "write_bytes"):
        file.write_bytes(data)
    elif hasattr(file, "open"):
        with _opened(file, "wb") as opened:
            _write_all(opened, data)
    else:
        raise _type_error("imwrite", file, "; l3dali.encode gives the bytes")


def _write_all(file: Any, data: bytes) -> None:
    """Writes until all is written: files without a buffer may take a part at a time."""
    part: bytes | memoryview = data
    while part:
        written = file.write(part)
        if written is None and isinstance(file, io.RawIOBase):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if not isinstance(written, int):  # Some writers do not count.
            return
        if written <= 0:
            raise OSError(errno.EIO, "the file takes no more bytes")
        part = memoryview(part)[written:]


def _is_local_path(file: Any) -> bool:
    if isinstance(file, os.PathLike):  # UPath may be one, with a protocol.
        return getattr(file, "protocol", "") in ("", "file", "local")
    return isinstance(file, str)


def _opened(file: Any, mode: str) -> Any:
    """A context of the open file; `fsspec.core.OpenFile` is one, and knows its mode."""
    return file if hasattr(file, "__enter__") else file.open(mode)


def _type_error(function: str, file: object, instead: str = "") -> TypeError:
    return TypeError(f"{function} takes a path or a file, not {type(file).__name__}{instead}")
