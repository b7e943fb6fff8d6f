"""Chunks of arrays as images: what the codecs of numcodecs and Zarr share."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from l3dali import codec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["as_image", "image_shape"]


def image_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of the image that holds a chunk: (H, W) or (H, W, C) with 1 to 4 channels.

    The last axis of three or more is that of channels if it has up to 4 places. All axes before
    that of columns are stacked to rows.

    Raises:
        ValueError: the chunk has one axis, or more than 2^28 pixels.
    """
    if len(shape) < 2:
        raise ValueError(f"a chunk of shape {tuple(shape)} is no image; L3 needs two axes")
    has_channels = len(shape) > 2 and shape[-1] <= 4
    kept = tuple(shape[-2 if has_channels else -1 :])
    rows = prod(shape[: len(shape) - len(kept)])
    if rows * kept[0] > codec.DEFAULT_MAX_PIXELS:
        raise ValueError(f"a chunk of shape {tuple(shape)} has more than 2^28 pixels")
    return (rows, *kept)


def as_image(chunk: codec.Image) -> codec.Image:
    """A chunk as the image that holds it; no copy if the chunk is contiguous."""
    return chunk.reshape(image_shape(chunk.shape))
