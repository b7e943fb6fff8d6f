"""L3 in numcodecs, and so chunks of Zarr arrays: `compressor=L3()`, found by its id "l3"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numcodecs.abc import Codec
from numcodecs.compat import ndarray_copy

from l3dali import codec
from l3dali.adapters.chunks import as_image

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["L3"]


class L3(Codec):  # type: ignore[misc]
    """Chunks as L3 files.

    A chunk is (H, W) or (H, W, C) with 1 to 4 channels; of one with more axes, or more channels,
    the leading axes are stacked to one image. It is uint8, uint16, int8 or int16 of
    this machine's byte order.
    """

    codec_id = "l3"

    def __init__(
        self, coding: codec.Coding = codec.DEFAULT_CODING, effort: int = codec.DEFAULT_EFFORT
    ) -> None:
        """Makes the codec; the options are those of `l3dali.encode`.

        Raises:
            ValueError: an option is not supported.
        """
        codec.encode(np.zeros((1, 1), np.uint8), coding=coding, effort=effort)  # judges the options
        self.coding = coding
        self.effort = effort

    def encode(self, buf: Any) -> bytes:
        """The L3 file of a chunk.

        Raises:
            TypeError: the samples are of another type or byte order.
            ValueError: the chunk has one axis, or more than 2^28 pixels.
        """
        chunk = np.asarray(buf)
        if not chunk.dtype.isnative:  # Whoever decodes views the bytes by the type of the array.
            raise TypeError(f"chunks of type {chunk.dtype} are not supported; swap the byte order")
        if chunk.flags.f_contiguous and not chunk.flags.c_contiguous:
            chunk = chunk.T  # bytes in the order of memory, as other codecs have them
        return codec.encode(as_image(chunk), coding=self.coding, effort=self.effort)

    def decode(self, buf: Buffer, out: Any = None) -> Any:
        """The samples of a chunk, in one axis; copied to `out` if that is given.

        Raises:
            L3Error: the chunk is damaged, not L3, or has more than 2^28 pixels.
        """
        return ndarray_copy(codec.decode(buf).reshape(-1), out)
