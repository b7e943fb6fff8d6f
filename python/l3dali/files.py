"""L3 files wherever they are: under a path, open already, or behind fsspec.

Knows where bytes come from and go to; `codec` knows what they hold.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from l3dali import codec
from l3dali.console import printable
from l3dali.errors import L3Error, Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    from typing_extensions import Buffer, Unpack

__all__ = ["imread", "imwrite", "info"]


_HEAD_BYTES = 4096  # where header, chunks and index of most files end


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
        file: a path; a file opened for reading bytes, from its position on; a path with methods of
            its own, as `upath.UPath`; or what `fsspec.open` gives.
        window: top, left, height and width of the part to decode, as in `decode`. With `orient`
            it is one of the image that was turned.
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
    """
    data = _read(file)
    with _naming(file):
        exif = codec.info(data).exif if orient else None
        window = codec.checked_window("window", window)
        if exif is not None and window is not None:
            window = _stored_window(data, window, exif)
        pixels = codec.decode(
            data, window=window, channels=channels, threads=threads, max_pixels=max_pixels
        )
    return pixels if exif is None else _upright(pixels, exif)


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
        ValueError: `encode` refuses the image or an option.
    """
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
    data = file.read(_HEAD_BYTES)
    while True:
        try:
            return codec.info(data)
        except L3Error as error:
            more = file.read(len(data)) if error.status is Status.TRUNCATED and data else b""
            if not more:
                raise
            data += more


@contextlib.contextmanager
def _naming(file: Any) -> Iterator[None]:
    """Errors name the file."""
    try:
        yield
    except L3Error as error:
        name = _name(file)
        raise L3Error(f"{name}: {error}" if name else str(error), error.status) from None


# Damaged EXIF blocks ask for nothing; Pillow raises anything on them.


def _stored_window(data: Buffer, window: codec.Window, exif: bytes) -> codec.Window:
    from l3dali.images.geometry import stored_window

    try:
        return stored_window(window, codec.info(data).shape, exif)
    except L3Error:
        raise
    except Exception:
        return window


def _upright(pixels: codec.Image, exif: bytes) -> codec.Image:
    from l3dali.images.geometry import upright

    with contextlib.suppress(Exception):
        pixels = np.ascontiguousarray(upright(pixels, exif)[0])
    return pixels


def _name(file: Any) -> str:
    """The name of a file for people, empty if it has none."""
    if not isinstance(file, (str, os.PathLike)):
        file = getattr(file, "name", None) or getattr(file, "path", None) or ""
    return printable(os.fspath(file)) if isinstance(file, (str, os.PathLike)) else ""


# What has methods of its own is asked by them: the path of a remote file leads nowhere here.


def _read(file: Any) -> Buffer:
    if isinstance(file, str):
        return Path(file).read_bytes()
    if hasattr(file, "read"):
        data = file.read()
    elif hasattr(file, "read_bytes"):
        data = file.read_bytes()
    elif isinstance(file, os.PathLike):
        data = Path(file).read_bytes()
    elif hasattr(file, "open"):
        with _opened(file, "rb") as opened:
            data = opened.read()
    else:
        raise _type_error("imread", file, "; l3dali.decode takes the bytes of one")
    if isinstance(data, str):
        raise TypeError("imread takes files of bytes; open them with 'rb'")
    return data  # type: ignore[no-any-return]


def _reading(file: Any) -> contextlib.AbstractContextManager[Any]:
    """A context of what is opened for reading."""
    if hasattr(file, "read"):
        return contextlib.nullcontext(file)
    if hasattr(file, "read_bytes") and not hasattr(file, "open"):
        return io.BytesIO(file.read_bytes())
    if isinstance(file, str) or (isinstance(file, os.PathLike) and not hasattr(file, "open")):
        return Path(file).open("rb")
    if hasattr(file, "read_bytes"):  # Paths of pathlib are contexts, too, which open nothing.
        return file.open("rb")  # type: ignore[no-any-return]
    if hasattr(file, "open"):
        return _opened(file, "rb")  # type: ignore[no-any-return]
    raise _type_error("info", file, ", nor bytes")


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
    while data:
        written = file.write(data)
        if written is None and isinstance(file, io.RawIOBase):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if not isinstance(written, int):  # Some writers do not count.
            return
        if written <= 0:
            raise OSError(errno.EIO, "the file takes no more bytes")
        data = data[written:]


def _is_local_path(file: Any) -> bool:
    if isinstance(file, os.PathLike):  # UPath may be one, with a protocol.
        return getattr(file, "protocol", "") in ("", "file", "local")
    return isinstance(file, str)


def _opened(file: Any, mode: str) -> Any:
    """A context of the open file; `fsspec.core.OpenFile` is one, and knows its mode."""
    return file if hasattr(file, "__enter__") else file.open(mode)


def _type_error(function: str, file: object, instead: str = "") -> TypeError:
    return TypeError(f"{function} takes a path or a file, not {type(file).__name__}{instead}")
