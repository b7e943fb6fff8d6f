"""Turns images by their EXIF orientation, and shrinks them."""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from l3dali.codec import Image

_ORIENTATION = 0x0112
_SHORT = 3  # a type of TIFF
# Searched in linear time: no blanks match in two ways.
_XMP_ORIENTATION = re.compile(
    rb"""\btiff:Orientation\s*=\s*(?:"\d*"|'\d*')"""
    rb"""|<tiff:Orientation\s*>\s*(?:\d+\s*)?</tiff:Orientation\s*>"""
)
_TURNS: dict[int, Callable[[Any], Any]] = {
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: pixels.swapaxes(0, 1)[::-1, ::-1],
    8: lambda pixels: np.rot90(pixels),
}


def upright(pixels: Image, exif: bytes | None) -> tuple[Image, bytes | None]:
    """The image turned by its EXIF block, and the block with orientation 1.

    Without a turn the results are the arguments. The rule is that of `ReadOrientation`.

    Args:
        pixels: (H, W) or (H, W, C).
        exif: an EXIF block from its TIFF header on.
    """
    order = {b"II": "<", b"MM": ">"}.get((exif or b"")[:2])
    if exif is None or order is None:
        return pixels, exif
    with suppress(struct.error):  # A truncated block is ignored.
        magic, directory = struct.unpack_from(f"{order}HI", exif, 2)
        (entries,) = struct.unpack_from(f"{order}H", exif, directory)
        for entry in range(directory + 2, directory + 2 + 12 * entries, 12):
            tag, *kind, value = struct.unpack_from(f"{order}HHIH2x", exif, entry)
            if tag == _ORIENTATION:
                if magic != 42 or kind != [_SHORT, 1] or value not in _TURNS:
                    break
                one = struct.pack(f"{order}H", 1)
                return _TURNS[value](pixels), exif[: entry + 8] + one + exif[entry + 10 :]
    return pixels, exif


_MOST_CLASSES = 64
_FLAT = 0.9  # of neighbours in a row that are equal: masks have 0.95 and more, photographs 0.3


def looks_like_labels(pixels: Image) -> bool:
    """Whether an image, (H, W) or (H, W, C), is flat and of few values, as label maps are."""
    flat = pixels.reshape(*pixels.shape[:2], -1)
    changes = (flat[:, 1:] != flat[:, :-1]).any(axis=2)
    if not changes.size or changes.mean() > 1 - _FLAT:
        return False
    values = np.unique(np.concatenate([flat[:, 0], flat[:, 1:][changes]]), axis=0)
    return 1 < len(values) <= _MOST_CLASSES


def upright_xmp(xmp: bytes | None) -> bytes | None:
    """The XMP packet of a turned image: without the orientation and blanks before it."""
    if xmp is None:
        return None
    *before, last = _XMP_ORIENTATION.split(xmp)
    return b"".join([*map(bytes.rstrip, before), last])


def shrink(pixels: Image, max_side: int, *, labels: bool = False, has_alpha: bool = True) -> Image:
    """The image with its longer side at most `max_side` pixels; smaller images are unchanged.

    Pillow's Lanczos filter resamples colours, weighted by alpha; labels use the nearest pixel.

    Args:
        pixels: samples of L3; (H, W) or (H, W, C).
        max_side: of the result, in pixels.
        labels: the samples are numbers of classes, not to be blended.
        has_alpha: the last of 2 or 4 channels is alpha, of which negative samples count as 0.
    """
    height, width = pixels.shape[:2]
    longer = max(height, width)
    if longer <= max_side:
        return pixels
    # Rounded to nearest, in integers: the same on every machine.
    height, width = (
        max(1, (2 * side * max_side + longer) // (2 * longer)) for side in (height, width)
    )
    if labels:
        rows, columns = (
            (2 * np.arange(after) + 1) * before // (2 * after)
            for before, after in zip(pixels.shape, (height, width), strict=False)
        )
        nearest: Image = pixels[rows[:, np.newaxis], columns]
        return nearest
    has_alpha = has_alpha and pixels.shape[2:] in ((2,), (4,))
    is_known = has_alpha or pixels.shape[2:] in ((), (3,))
    if pixels.dtype == np.uint8 and is_known:  # Pillow weights colours by alpha.
        from PIL import Image

        image = Image.fromarray(np.ascontiguousarray(pixels))
        return np.asarray(image.resize((width, height), Image.Resampling.LANCZOS))
    return _shrink_wide(pixels, (width, height), has_alpha)


def _shrink_wide(pixels: Image, size: tuple[int, int], has_alpha: bool) -> Image:
    """A channel at a time in floating point: Pillow has no other filter for such samples."""
    channels = np.atleast_3d(pixels)
    is_float = pixels.dtype.kind == "f"
    limits = np.finfo(pixels.dtype) if is_float else np.iinfo(pixels.dtype)
    maximum = 1 if is_float else limits.max
    result = np.empty((size[1], size[0], channels.shape[2]), pixels.dtype)
    weights = channels[:, :, -1].clip(0).astype(np.float32) / maximum if has_alpha else None
    shrunk_weights = None if weights is None else _resized(weights, size)
    for channel in range(channels.shape[2]):
        plane: Image = channels[:, :, channel].astype(np.float32)
        if weights is None or channel == channels.shape[2] - 1:
            plane = _resized(plane, size)
        else:
            assert shrunk_weights is not None
            plane = _resized(plane * weights, size) / np.maximum(shrunk_weights, 0.5 / maximum)
        if not is_float:
            plane = np.clip(np.rint(plane), limits.min, maximum)
        result[:, :, channel] = plane
    return result.reshape(result.shape[: pixels.ndim])


def _resized(plane: Image, size: tuple[int, int]) -> Image:
    from PIL import Image

    return np.asarray(Image.fromarray(plane).resize(size, Image.Resampling.LANCZOS))
