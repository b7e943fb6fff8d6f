"""Parts and thumbnails of images at any size, in little memory."""

from __future__ import annotations

import contextlib
import io
import math
from typing import TYPE_CHECKING

import numpy as np
import PIL.Image

from l3dali import codec
from l3dali.images.geometry import shrink
from l3dali.metadata import extra_samples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from l3dali.codec import Image, Window

TILE_SIDE = 256
MAX_LEVEL = 10
_BLOCK_SIDE = 2**MAX_LEVEL
_BLOCK_BYTES = 64 * 2**20  # of the samples and 64-bit sums that are in memory at once


def shown_part(info: codec.Info, slice_number: int | None = None) -> Window:
    """The part of an image to show: all of it, or a slice of a volume, by default in the middle."""
    if volume := info.volume:
        z = volume.depth // 2 if slice_number is None else slice_number
        return (z * volume.rows, 0, volume.height, info.width)
    return (0, 0, info.height, info.width)


def top_level(info: codec.Info) -> int:
    """The level that fits into one tile; level k has 1 / 2^k of the sides that are shown."""
    longer = max(shown_part(info)[2:])
    return min(MAX_LEVEL, max(0, math.ceil(math.log2(longer / TILE_SIDE))))


def default_channels(count: int) -> tuple[int, ...]:
    """The channels to show of so many: one, or three for red, green, blue."""
    return (0,) if count < 3 else (0, 1, 2)


def shrunk(
    data: memoryview,
    window: Window,
    factor: int,
    *,
    channels: Sequence[int] | None = None,
    labels: bool = False,
) -> Image:
    """A part of an image, each pixel the mean of `factor` x `factor` pixels.

    Decodes a block at a time, so that memory does not grow with the window.

    Args:
        data: an L3 file.
        window: top, left, height and width; the first two are multiples of `factor`.
        factor: a power of two up to 2^`MAX_LEVEL`. Pixels at the edges are means of fewer pixels.
        channels: numbers of channels, in this order.
        labels: take pixels in place of means.

    Returns:
        (H, W, C), of the stored type.

    Raises:
        L3Error: the data is damaged, or the window is not inside.
    """
    top, left, height, width = window
    count = codec.head_info(data).channels if channels is None else len(channels)
    rows = min(height, _BLOCK_SIDE)
    square = 16 * count * max(rows, factor) * _BLOCK_SIDE  # bytes of so many columns
    columns = max(1, _BLOCK_BYTES // square) * _BLOCK_SIDE
    strips = []
    for y in range(0, height, rows):
        blocks = []
        for x in range(0, width, columns):
            part = (top + y, left + x, min(rows, height - y), min(columns, width - x))
            block = np.atleast_3d(codec.decode(data, window=part, channels=channels))
            blocks.append(_reduced(block, factor, labels))
        strips.append(np.concatenate(blocks, axis=1))
    return np.concatenate(strips)


def _reduced(block: Image, factor: int, labels: bool) -> Image:
    if factor == 1:
        return block
    height, width = block.shape[:2]
    tops, lefts = np.arange(0, height, factor), np.arange(0, width, factor)
    if labels:
        rows = block.take(tops + factor // 2, 0, mode="clip")
        return rows.take(lefts + factor // 2, 1, mode="clip")

    def sums(values: Image, dtype: type[np.generic]) -> Image:
        padded = np.pad(values, [(0, -height % factor), (0, -width % factor), (0, 0)])
        of_rows = padded.reshape(len(tops), factor, -1).sum(1, dtype=dtype)
        total: Image = of_rows.reshape(len(tops), len(lefts), factor, -1).sum(2)
        return total

    means: Image
    if block.dtype.kind == "f":  # of what is finite; NaN where nothing is
        known = np.isfinite(block)
        counts, total = sums(known, np.int64), sums(np.where(known, block, 0), np.float64)
        means = np.where(counts > 0, total / np.maximum(counts, 1), np.nan)
    else:
        counts = sums(np.ones((height, width, 1), np.uint8), np.int64)
        means = (sums(block, np.int64) + counts // 2) // counts
    return means.astype(block.dtype)


def range_of(data: memoryview, info: codec.Info) -> tuple[float, float] | None:
    """The least and the greatest finite sample of floats and 32 bits, of the image made small."""
    if info.dtype.itemsize < 4 and info.dtype.kind != "f":
        return None
    window, channels = (0, 0, info.height, info.width), default_channels(info.channels)
    samples = shrunk(data, window, 1 << top_level(info), channels=channels, labels=info.labels)
    known = samples[np.isfinite(samples)]
    return (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)


def thumbnail(data: memoryview, max_side: int) -> bytes:
    """A PNG of an L3 file with at most `max_side` pixels on its longer side; raises L3Error."""
    info = codec.head_info(data)
    window = shown_part(info)
    factor = 1
    while max(window[2:]) >= 2 * factor * max_side and factor < 2**MAX_LEVEL:
        factor *= 2
    channels = default_channels(info.channels)
    with contextlib.suppress(ValueError):  # metadata that is not JSON
        if info.channels in (2, 4) and extra_samples(info.metadata) is None:
            channels = (*channels, info.channels - 1)  # alpha
    pixels = shrunk(data, window, factor, channels=channels, labels=info.labels)
    pixels = shrink(
        pixels[:, :, 0] if pixels.shape[2] == 1 else pixels, max_side, labels=info.labels
    )
    pixels = np.atleast_3d(pixels)
    if info.labels and info.channels == 1:
        numbers = pixels[:, :, 0].view(f"u{info.dtype.itemsize}")
        is_wide = info.dtype.itemsize == 4  # too many for a table: by their low bits, as page.js
        dtype = np.dtype(np.uint16) if is_wide else info.dtype
        shown = label_colors(info.palette, dtype)[numbers.astype(np.uint32) & 0xFFFF]
    else:
        shown = pixels if pixels.dtype == np.uint8 else _stretched(pixels)
    if shown.shape[2] == 1:
        shown = shown[:, :, 0]
    file = io.BytesIO()
    PIL.Image.fromarray(np.ascontiguousarray(shown)).save(file, "PNG", compress_level=1)
    return file.getvalue()


def _stretched(pixels: Image) -> Image:
    """Samples of any range scaled to 8 bits, from the 1st to the 99th percentile; alpha is kept."""
    has_alpha = pixels.shape[2] in (2, 4)
    colors = pixels[:, :, :-1] if has_alpha else pixels
    is_float = pixels.dtype.kind == "f"
    known = colors[np.isfinite(colors)] if is_float else colors
    low, high = np.percentile(known, (1, 99)) if known.size else (0.0, 1.0)
    least = 1e-30 if is_float else 1.0
    scaled = (colors.astype(np.float64) - low) * (255 / max(least, float(high - low)))
    shown: Image = np.clip(np.nan_to_num(np.rint(scaled)), 0, 255).astype(np.uint8)
    if has_alpha:
        alpha = pixels[:, :, -1:]
        if is_float:
            alpha = np.nan_to_num(255 * alpha.clip(0, 1))
        else:
            alpha = alpha.astype(np.int64).clip(0) * 255 // np.iinfo(pixels.dtype).max
        shown = np.concatenate([shown, alpha.astype(np.uint8)], axis=2)
    return shown


def label_colors(palette: bytes | None, dtype: np.dtype[np.generic]) -> Image:
    """Red, green, blue, alpha of each number: of the palette, else distinct, as in page.js."""
    numbers = np.arange(2 ** (8 * dtype.itemsize))
    hue = numbers * 0.618034 * 6 % 6
    colors = np.empty((len(numbers), 4), np.uint8)
    for channel, shift in enumerate((0, 4, 2)):
        ramp = np.abs((hue + shift) % 6 - 3) - 1
        colors[:, channel] = 64 + 191 * ramp.clip(0, 1)
    colors[:, 3] = 255
    colors[0, :3] = 0
    if palette is not None:
        entries = np.frombuffer(palette, np.uint8).reshape(-1, 4)
        colors[: len(entries)] = entries
    return colors
