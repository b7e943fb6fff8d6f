"""L3 in LitData: arrays stored as L3 in chunks.

    Cache(folder, chunk_bytes="64MB", serializers={"l3": L3Serializer()})
    StreamingDataset(folder, serializers={"l3": L3Serializer()})

`optimize()` takes no serializers: return `l3dali.encode(image)` from its function, and decode in
the `transform` of `StreamingDataset`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from litdata.streaming.serializers import Serializer

from l3dali import codec
from l3dali.arguments import DEFAULT_THREADS, SAMPLE_TYPES

if TYPE_CHECKING:
    from typing_extensions import Buffer, Unpack

__all__ = ["L3Serializer"]


class L3Serializer(Serializer):  # type: ignore[misc]
    """Writes arrays as L3, and reads them back. Options are those of `l3dali.encode`."""

    def __init__(
        self,
        *,
        max_pixels: int | None = codec.DEFAULT_MAX_PIXELS,
        **options: Unpack[codec.EncodeOptions],
    ) -> None:
        """Makes the serializer.

        Args:
            max_pixels: as in `l3dali.decode`.
            **options: those of `l3dali.encode`; `threads` serves decoding too.

        Raises:
            ValueError: `layout` is "CHW": arrays are returned as "HWC".
        """
        if options.get("layout") == "CHW":
            raise ValueError("layout must be HWC: arrays are returned with channels last")
        self._max_pixels = max_pixels
        self._options = options

    def serialize(self, data: Any) -> tuple[bytes, str | None]:
        """The L3 file of an array; LitData's interface.

        Raises:
            TypeError: the array cannot be restored unchanged. LitData calls `can_serialize` only
                for the first value of a column.
        """
        if not self.can_serialize(data):
            what = f"{type(data).__name__} {getattr(data, 'shape', '')}"
            raise TypeError(f"{what}, {getattr(data, 'dtype', '')} cannot be restored unchanged")
        return codec.encode(data, **self._options), None

    def deserialize(self, data: Buffer) -> codec.Image:
        """The array of a file; raises as `l3dali.decode`."""
        threads = self._options.get("threads", DEFAULT_THREADS)
        return codec.decode(data, threads=threads, max_pixels=self._max_pixels)

    def can_serialize(self, data: Any) -> bool:
        """Whether data is an array that is restored with its shape and type."""
        return (
            type(data) is np.ndarray  # Subclasses would be restored as this one.
            and data.dtype in SAMPLE_TYPES
            and data.size > 0
            and (data.ndim == 2 or (data.ndim == 3 and data.shape[2] in (2, 3, 4)))
        )
