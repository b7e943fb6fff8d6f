"""L3 in Zarr's format 3: `zarr.create_array(..., serializer=L3(), compressors=None)`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from zarr.abc.codec import ArrayBytesCodec, ArrayBytesCodecPartialDecodeMixin
from zarr.core.common import parse_named_configuration

from l3dali import codec
from l3dali.arguments import SAMPLE_TYPES
from l3dali.numcodecs import as_image, image_shape

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["L3"]

_NAME = "l3dali.l3"  # in the metadata of arrays; Zarr's format has registered names without dots


class _Part(NamedTuple):
    """A window of the image that holds a chunk."""

    window: codec.Window
    shape: tuple[int, ...]  # of the window, with the axes of the chunk
    selection: tuple[Any, ...]  # in the window


def _part(selection: tuple[Any, ...], shape: tuple[int, ...]) -> _Part | None:
    """The part of a chunk with the `selection`; None if all of it must be decoded."""
    if len(selection) != len(shape):
        return None
    ranges: list[range] = []
    rest: list[Any] = []
    for item, size in zip(selection, shape, strict=True):
        if isinstance(item, (int, np.integer)):
            taken = range(int(item), int(item) + 1)
            rest.append(0)
        elif isinstance(item, slice) and (item.step is None or item.step > 0):
            taken = range(*item.indices(size))
            rest.append(slice(0, None, item.step))
        else:
            return None
        if len(taken) == 0 or taken[0] < 0:
            return None
        ranges.append(taken)
    has_channels = len(image_shape(shape)) == 3
    columns = len(shape) - (2 if has_channels else 1)
    rows = columns - 1
    if any(len(taken) > 1 for taken in ranges[:rows]):
        return None  # from several planes
    plane = 0
    for taken, size in zip(ranges[:rows], shape, strict=False):
        plane = plane * size + taken[0]
    spans = [taken[-1] + 1 - taken[0] for taken in ranges]
    top = plane * shape[rows] + ranges[rows][0]
    return _Part(
        window=(top, ranges[columns][0], spans[rows], spans[columns]),
        shape=(*spans[: columns + 1], *shape[columns + 1 :]),
        selection=(*rest[: columns + 1], *selection[columns + 1 :]),
    )


@dataclass(frozen=True)
class L3(ArrayBytesCodec, ArrayBytesCodecPartialDecodeMixin):  # type: ignore[misc]
    """Chunks as L3 files.

    A chunk of samples that L3 holds is (H, W) or (H, W, C) with 1 to 4 channels. With more
    axes or channels, the leading axes are stacked to one image. Only the tiles of the part that is
    read are decoded. Options are those of `l3dali.encode`.
    """

    coding: codec.Coding = codec.DEFAULT_CODING
    effort: int = codec.DEFAULT_EFFORT

    is_fixed_size = False

    def __post_init__(self) -> None:
        """Checks the options, which are those of `l3dali.encode`.

        Raises:
            TypeError: an option is of a wrong type.
            ValueError: an option is not supported.
        """
        codec.encode(np.zeros((1, 1), np.uint8), coding=self.coding, effort=self.effort)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> L3:
        """The codec that an array's metadata names; Zarr's interface."""
        _, options = parse_named_configuration(data, _NAME, require_configuration=False)
        return cls(**(options or {}))

    def to_dict(self) -> dict[str, Any]:
        """The codec for the metadata of arrays; Zarr's interface."""
        return {"name": _NAME, "configuration": {"coding": self.coding, "effort": int(self.effort)}}

    def validate(self, *, shape: tuple[int, ...], dtype: Any, chunk_grid: Any) -> None:
        """Refuses arrays whose chunks L3 cannot hold; Zarr's interface.

        Raises:
            TypeError: the samples are of another type.
            ValueError: chunks have one axis, or more than 2^28 pixels.
        """
        samples = dtype.to_native_dtype()
        if samples.name not in SAMPLE_TYPES:
            raise TypeError(f"L3 holds {', '.join(SAMPLE_TYPES)}, not {samples}")
        if hasattr(chunk_grid, "chunk_shape"):  # Other grids have chunks of several shapes.
            image_shape(chunk_grid.chunk_shape)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        """Zarr's interface; it is not known before encoding."""
        raise NotImplementedError

    def _encode_sync(self, chunk: Any, chunk_spec: Any) -> Any:
        image = as_image(chunk.as_numpy_array())
        data = codec.encode(image, coding=self.coding, effort=self.effort)
        return chunk_spec.prototype.buffer.from_bytes(data)

    def _decode_sync(self, data: Any, chunk_spec: Any) -> Any:
        return self._decode_part(data, (), chunk_spec)

    def _decode_part(self, data: Any, selection: tuple[Any, ...], chunk_spec: Any) -> Any:
        """The `selection` of a chunk; all of it if that is empty."""
        shape = chunk_spec.shape
        content = data.as_buffer_like()
        whole = image_shape(shape)
        info = codec.info(content)
        if prod(info.shape) != prod(whole) or info.shape[:2] != whole[:2]:
            raise ValueError(f"the chunk has shape {shape}, but its L3 file has {info.shape}")
        expected = chunk_spec.dtype.to_native_dtype()
        if info.dtype != expected.newbyteorder("="):
            raise ValueError(f"the chunk has dtype {expected}, but its L3 file has {info.dtype}")
        part = _part(selection, shape)
        if part is None:
            pixels = codec.decode(content).reshape(shape)[selection]
        else:
            pixels = codec.decode(content, window=part.window).reshape(part.shape)[part.selection]
        return chunk_spec.prototype.nd_buffer.from_numpy_array(pixels.astype(expected, copy=False))

    async def _encode_single(self, chunk: Any, chunk_spec: Any) -> Any:
        return await asyncio.to_thread(self._encode_sync, chunk, chunk_spec)

    async def _decode_single(self, data: Any, chunk_spec: Any) -> Any:
        return await asyncio.to_thread(self._decode_sync, data, chunk_spec)

    async def _decode_partial_single(
        self, byte_getter: Any, selection: tuple[Any, ...], chunk_spec: Any
    ) -> Any:
        data = await byte_getter.get(prototype=chunk_spec.prototype)
        if data is None:
            return None
        return await asyncio.to_thread(self._decode_part, data, selection, chunk_spec)
