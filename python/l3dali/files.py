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
    import numpy.typing as npt
    from typing_extensions import Buffer, Unpack

__all__ = ["imread", "imwrite"]


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
    threads: int = codec.DEFAULT_THREADS,
    orient: bool = False,
    max_pixels: int | None = codec.DEFAULT_MAX_PIXELS,
) -> codec.Image:
    """Decodes an L3 file: (H, W) for one channel, else (H, W, C), of the stored type.

    Args:
        file: a path; a file opened for reading bytes, from its position on; a path with methods of
            its own, as `upath.UPath`; or what `fsspec.open` gives.
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
    try:
        pixels = codec.decode(data, threads=threads, max_pixels=max_pixels)
    except L3Error as error:
        name = _name(file)
        raise L3Error(f"{name}: {error}" if name else str(error), error.status) from None
    if orient:
        from l3dali.images.geometry import upright

        with contextlib.suppress(Exception):  # Pillow raises anything on damaged blocks.
            pixels = np.ascontiguousarray(upright(pixels, codec.info(data).exif)[0])
    return pixels


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
        raise _type_error("imread", file, "decode takes the bytes of one")
    if isinstance(data, str):
        raise TypeError("imread takes files of bytes; open them with 'rb'")
    return data  # type: ignore[no-any-return]


def _write(file: Any, data: bytes) -> None:
    if _is_local_path(file):
        path = Path(file)
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as stream:  # A device or a pipe is written to, not replaced.
                stream.write(data)
        else:
            codec.write_atomically(path, data)
    elif hasattr(file, "write"):
        _write_all(file, data)
    elif hasattr(file, "write_bytes"):
        file.write_bytes(data)
    elif hasattr(file, "open"):
        with _opened(file, "wb") as opened:
            _write_all(opened, data)
    else:
        raise _type_error("imwrite", file, "encode gives the bytes")


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


def _type_error(function: str, file: object, instead: str) -> TypeError:
    return TypeError(
        f"{function} takes a path or a file, not {type(file).__name__}; l3dali.{instead}"
    )
