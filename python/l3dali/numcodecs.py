"""L3 in numcodecs, and so in Zarr's format 2: `compressor=L3()`, with the id "l3"."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray, ndarray_copy

from l3dali import codec
from l3dali.arguments import SAMPLE_TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

__all__ = ["L3"]


def image_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of the image that holds a chunk: (H, W) or (H, W, C) with 1 to 4 channels.

    The last axis of three or more is that of channels if it has up to 4 places. All axes before
    that of columns are stacked to rows.

    Raises:
        ValueError: the chunk has one axis, or more than 2^28 pixels.
    """
    if len(shape) < 2:
        raise ValueError(f"a chunk of shape {tuple(shape)} is not an image; L3 needs two axes")
    has_channels = len(shape) > 2 and shape[-1] <= 4
    kept = tuple(shape[-2 if has_channels else -1 :])
    rows = prod(shape[: len(shape) - len(kept)])
    if rows * kept[0] > codec.DEFAULT_MAX_PIXELS:
        raise ValueError(f"a chunk of shape {tuple(shape)} has more than 2^28 pixels")
    return (rows, *kept)


def as_image(chunk: codec.Image) -> codec.Image:
    """A chunk as the image that holds it; no copy if the chunk is contiguous."""
    return chunk.reshape(image_shape(chunk.shape))


class L3(Codec):  # type: ignore[misc]
    """Chunks as L3 files.

    Chunks are those of `l3dali.zarr.L3`, in this machine's byte order.
    """

    codec_id = "l3"

    def __init__(
        self, coding: codec.Coding = codec.DEFAULT_CODING, effort: int = codec.DEFAULT_EFFORT
    ) -> None:
        """Makes the codec; the options are those of `l3dali.encode`.

        Raises:
            ValueError: an option is not supported.
        """
        codec.encode(np.zeros((1, 1), np.uint8), coding=coding, effort=effort)  # checks the options
        self.coding = coding
        self.effort = int(effort)  # JSON has none of numpy's

    def encode(self, buf: Any) -> bytes:
        """The L3 file of a chunk.

        Raises:
            TypeError: the samples are of another type or byte order, or the chunk has one axis.
            ValueError: the chunk has more than 2^28 pixels.
        """
        chunk = np.asarray(buf)
        if chunk.dtype.name not in SAMPLE_TYPES:
            raise TypeError(f"L3 holds {', '.join(SAMPLE_TYPES)}, not {chunk.dtype}")
        if chunk.ndim < 2:
            raise TypeError(f"a chunk of shape {chunk.shape} is not an image; L3 needs two axes")
        if not chunk.dtype.isnative:  # Readers interpret the bytes by the type of the array.
            raise TypeError(f"chunks of type {chunk.dtype} are not supported; swap the byte order")
        if chunk.flags.f_contiguous and not chunk.flags.c_contiguous:
            chunk = chunk.T  # bytes in the order of memory, as other codecs have them
        return codec.encode(as_image(chunk), coding=self.coding, effort=self.effort)

    def decode(self, buf: Buffer, out: Any = None) -> Any:
        """The samples of a chunk, in one axis; or `out`, which they are copied to.

        Raises:
            L3Error: the chunk is damaged, not L3, or has more than 2^28 pixels.
            TypeError: `out` holds objects.
            ValueError: `out` is not contiguous, or of another size.
        """
        flat_out = None if out is None else ensure_contiguous_ndarray(out)
        samples = ndarray_copy(codec.decode(buf).reshape(-1), flat_out)
        return samples if out is None else out
