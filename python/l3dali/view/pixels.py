"""What images look like at any size, in little memory: parts, thumbnails.

Knows L3 data and arrays, no files and no HTTP.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from l3dali import codec
from l3dali.errors import L3Error, Status
from l3dali.images.geometry import shrink, upright
from l3dali.metadata import extra_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from l3dali.codec import Image, Window

TILE_SIDE = 256  # of what a page asks for
MAX_FACTOR = 1024
# What one call takes: a block of three channels, its sums in 64 bits, engines.
CALL_BYTES = 64 * 2**20
MAX_KEPT_BYTES = 16 * 2**20  # of profile, EXIF and the like, which are copied
_MOST_PAIRS = 2**18  # bytes; they take up to 54 times that to read
_HEAD_BYTES = 4096
_CHUNKS_FIELD = slice(24, 28)  # of the header: docs/format.md 3
_COLORS = 3


def info_of(data: memoryview) -> codec.Info:
    """What a file says about itself; reads little more than header, chunks and index.

    Raises:
        L3Error: it is damaged, or keeps more than `MAX_KEPT_BYTES` beside the pixels.
    """
    kept = int.from_bytes(data[_CHUNKS_FIELD], "little")
    size = _HEAD_BYTES
    while True:
        head = data[:size]
        if kept > MAX_KEPT_BYTES:
            head = data[:_HEAD_BYTES]
        try:
            return codec.info(head)
        except L3Error as error:
            if error.status is not Status.TRUNCATED or len(head) == len(data):
                raise
            if kept > MAX_KEPT_BYTES:
                raise L3Error(
                    f"{kept} bytes are kept beside the pixels; up to {MAX_KEPT_BYTES} are shown",
                    Status.UNSUPPORTED_FEATURE,
                ) from None
        size *= 2


def default_channels(count: int) -> tuple[int, ...]:
    """The channels that a picture of so many is shown by: one, or three for red, green, blue."""
    return (0,) if count < _COLORS else (0, 1, 2)


def shrunk(
    data: memoryview,
    window: Window,
    factor: int,
    *,
    channels: Sequence[int] | None = None,
    labels: bool = False,
    on_part: Callable[[float], None] = lambda _: None,
) -> Image:
    """A part of an image, each pixel the mean of `factor` x `factor` of its.

    Decodes a block at a time, so that it takes `CALL_BYTES` and the result at most, with up to
    three channels.

    Args:
        data: an L3 file.
        window: top, left, height and width; the first two are multiples of `factor`.
        factor: a power of two up to `MAX_FACTOR`. Pixels at the edges stand for fewer.
        channels: which, in this order.
        labels: samples are not blended: each pixel is one of its.
        on_part: is told how much of it is done, 0 to 1.

    Returns:
        (H, W, C), of the stored type.

    Raises:
        L3Error: the data is damaged, or the window is not inside.
    """
    top, left, height, width = window
    info = info_of(data)
    count = info.channels if channels is None else len(channels)
    rows, columns = _block(height, width, factor, count * info.dtype.itemsize, count)
    result: Image | None = None
    for y in range(0, height, rows):
        for x in range(0, width, columns):
            part = (top + y, left + x, min(rows, height - y), min(columns, width - x))
            block = np.atleast_3d(codec.decode(data, window=part, channels=channels))
            block = _reduced(block, factor, labels)
            if result is None:
                shape = (-(-height // factor), -(-width // factor), block.shape[2])
                result = np.empty(shape, block.dtype)
            down, right = y // factor, x // factor
            result[down : down + block.shape[0], right : right + block.shape[1]] = block
        on_part(min(1.0, (y + rows) / height))
    assert result is not None
    return result


def _block(
    height: int, width: int, factor: int, pixel_bytes: int, channels: int
) -> tuple[int, int]:
    """Rows and columns to decode at once, powers of two.

    As many as memory allows: each block looks at the whole of a large tile.
    """
    sums = 0 if factor == 1 else 16 * channels / factor
    pixels = _power_of_two(int(CALL_BYTES / 2 / (pixel_bytes + sums)))
    pixels = max(MAX_FACTOR**2, pixels)
    rows = min(MAX_FACTOR, 2 * _power_of_two(height))
    columns = min(pixels // rows, 2 * _power_of_two(width))
    return pixels // columns, columns


def _power_of_two(value: int) -> int:
    """The largest that is not greater."""
    return 1 << (value.bit_length() - 1)


def _reduced(block: Image, factor: int, labels: bool) -> Image:
    if factor == 1:
        return block
    if labels:
        middles = (
            np.minimum(np.arange(factor // 2, side + factor // 2, factor), side - 1)
            for side in block.shape[:2]
        )
        chosen: Image = block[np.ix_(*middles)]
        return chosen
    # Rows first, which are contiguous; but of a line the columns.
    first, second = (1, 0) if block.shape[0] < factor else (0, 1)
    sums = _sums(_sums(block, factor, first), factor, second)
    means: Image = ((sums + factor * factor // 2) // (factor * factor)).astype(block.dtype)
    return means


def _sums(values: NDArray[Any], factor: int, axis: int) -> NDArray[np.int64]:
    """Sums of `factor` neighbours along one of the first two axes; the last value goes on."""
    before, size, after = values.shape[:axis], values.shape[axis], values.shape[axis + 1 :]
    count, rest = divmod(size, factor)
    whole, edge = np.split(values, [size - rest], axis)
    parts = whole.reshape(*before, count, factor, *after)
    sums: NDArray[np.int64] = parts.sum(axis=axis + 1, dtype=np.int64)
    if not rest:
        return sums
    last = np.take(values, [-1], axis).astype(np.int64) * (factor - rest)
    last += edge.sum(axis=axis, dtype=np.int64, keepdims=True)
    return np.concatenate([sums, last], axis)


def thumbnail(data: memoryview, max_side: int, *, orient: bool = False) -> bytes:
    """A PNG of an L3 file with at most `max_side` pixels on its longer side.

    All tiles are decoded, within `CALL_BYTES` and the result.

    Args:
        data: an L3 file.
        max_side: of the PNG in pixels.
        orient: turn it as its EXIF asks, if that is sound.

    Raises:
        L3Error: the file is damaged.
    """
    info = info_of(data)
    factor = 1
    while max(info.width, info.height) >= 2 * factor * max_side and factor < MAX_FACTOR:
        factor *= 2
    channels = default_channels(info.channels)
    if info.channels in (2, 4) and not _has_bands(info):
        channels = (*channels, info.channels - 1)  # alpha
    window = (0, 0, info.height, info.width)
    pixels = shrunk(data, window, factor, channels=channels, labels=info.labels)
    return picture(pixels, info, max_side, orient=orient)


def _has_bands(info: codec.Info) -> bool:
    """Whether channels beside gray or RGB are not just alpha; long pairs are not asked."""
    if len(info.metadata_json or b"") > _MOST_PAIRS:
        return False
    try:
        return extra_samples(info.metadata) is not None
    except ValueError:  # damaged
        return False


def picture(pixels: Image, info: codec.Info, max_side: int, *, orient: bool = False) -> bytes:
    """A PNG of pixels that were made smaller already.

    Args:
        pixels: (H, W, C) with one to four channels.
        info: of the file.
        max_side: as in `thumbnail`.
        orient: as in `thumbnail`.
    """
    from PIL import Image

    pixels = shrink(
        pixels[:, :, 0] if pixels.shape[2] == 1 else pixels, max_side, labels=info.labels
    )
    if orient:
        pixels = upright(pixels, info.exif)[0]
    pixels = np.atleast_3d(pixels)
    if info.labels and info.channels == 1:
        shown = label_colors(info.palette, info.dtype)[
            pixels[:, :, 0].view(f"u{info.dtype.itemsize}")
        ]
    elif pixels.dtype == np.uint8:
        shown = pixels
    else:
        shown = _stretched(pixels)
    if shown.shape[2] == 1:
        shown = shown[:, :, 0]
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(shown)).save(file, "PNG", compress_level=1)
    return file.getvalue()


def _stretched(pixels: Image) -> Image:
    """8 bits of samples of any range, the greatest and the least 1 % cut off; alpha as it is."""
    alpha = pixels[:, :, -1:] if pixels.shape[2] in (2, 4) else None
    colors = pixels if alpha is None else pixels[:, :, :-1]
    low, high = np.percentile(colors, (1, 99))
    scaled = (colors.astype(np.float32) - low) * (255 / max(1.0, float(high - low)))
    shown: Image = np.clip(np.rint(scaled), 0, 255).astype(np.uint8)
    if alpha is None:
        return shown
    greatest = np.iinfo(pixels.dtype).max
    opaque = (alpha.astype(np.int64).clip(0) * 255 // greatest).astype(np.uint8)
    return np.concatenate([shown, opaque], axis=2)


def label_colors(palette: bytes | None, dtype: np.dtype[np.generic]) -> Image:
    """Red, green, blue, alpha of each number: the palette's, else colours far from each other.

    page.js has the same colours.
    """
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
