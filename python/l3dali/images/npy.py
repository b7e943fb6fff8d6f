"""Images in `.npy` files, read by NumPy without pickles."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from l3dali.arguments import (
    MAX_CHANNELS,
    SAMPLE_SCALARS,
    SAMPLE_TYPES,
    as_hwc,
    ask_for_layout,
    has_channels_first,
    unsupported_samples,
)
from l3dali.errors import ImageError
from l3dali.images.picture import Header, ImageFormat, Picture, ReadOptions, Writer

if TYPE_CHECKING:
    from typing import Any


def _read_header(data: bytes) -> Header:
    """Size of the array; with three axes, the shape decides which is that of the channels.

    Raises:
        ImageError: the array is no image: another dtype, or not two or three axes.
        ValueError: the file is damaged.
    """
    shape, dtype = _shape_and_type(data)
    if dtype.type not in SAMPLE_SCALARS:
        raise ImageError(unsupported_samples(dtype))
    if len(shape) not in (2, 3):
        raise ImageError(f"an array of shape {shape}; images have two or three axes")
    if len(shape) == 3 and has_channels_first(shape):
        shape = (*shape[1:], shape[0])
    height, width, channels = (*shape, 1)[:3]
    size = width, height, channels, dtype.itemsize
    return Header.of("npy", *size, peak=3, most=MAX_CHANNELS)


def _shape_and_type(data: bytes) -> tuple[tuple[int, ...], np.dtype[Any]]:
    file = io.BytesIO(data)
    is_first = np.lib.format.read_magic(file) == (1, 0)
    read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def is_image_array(head: bytes) -> bool:
    """Whether numbers have the axes of an image; True if the header is not complete in `head`."""
    try:
        shape, dtype = _shape_and_type(head)
    except ValueError:
        return True
    return len(shape) in (2, 3) and dtype.kind in "biuf"


def unsupported_array(data: bytes) -> str:
    """Why L3 cannot hold the samples of a .npy file that is whole; "" if it can."""
    try:
        _, dtype = _shape_and_type(data)
    except ValueError:
        return ""
    return "" if dtype.type in SAMPLE_SCALARS else unsupported_samples(dtype)


def _read(data: bytes, options: ReadOptions) -> Picture:
    """The array as an image.

    Raises:
        ImageError: the array is no image, or looks like another layout.
        ValueError: the file is damaged.
    """
    array = np.load(io.BytesIO(data), allow_pickle=False)
    if options.layout is None and array.ndim == 3 and has_channels_first(array.shape):
        raise ImageError(f"{ask_for_layout(array.shape)}; in the command: --layout")
    try:
        return Picture(as_hwc(array, options.layout))
    except (TypeError, ValueError) as error:
        raise ImageError(str(error)) from None


def _write(picture: Picture) -> bytes:
    file = io.BytesIO()
    np.save(file, picture.pixels)
    return file.getvalue()


_WRITER = Writer(_write, range(1, MAX_CHANNELS + 1), SAMPLE_TYPES)
FORMAT = ImageFormat(_read_header, _read, {".npy": _WRITER})
