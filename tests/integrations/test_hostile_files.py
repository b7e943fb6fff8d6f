"""The faces of other libraries on untrusted files: an error, or the right pixels."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
import pytest
import torch
import zarr
from numpy.typing import NDArray

import l3dali
import l3dali.imageio
import l3dali.numcodecs
import l3dali.torch
import l3dali.zarr

Image = NDArray[Any]
TESTS = Path(__file__).parents[1]
MUTANTS = 400


def files() -> Iterator[bytes]:
    """Sound ones, those that must be refused, and mutants."""
    sound = [path.read_bytes() for path in sorted((TESTS / "golden" / "v1").glob("*.l3"))]
    yield from sound
    yield from (path.read_bytes() for path in sorted((TESTS / "invalid").glob("*.l3")))
    rng = random.Random(0)
    small = [data for data in sound if len(data) < 20_000]
    for _ in range(MUTANTS):
        data = bytearray(rng.choice(small))
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        yield bytes(data[: rng.randint(0, 2 * len(data))])
    yield b""


def by_numcodecs(data: bytes, shape: tuple[int, ...], dtype: Any, _: Path) -> Image:
    out = np.empty(shape, dtype)
    l3dali.numcodecs.L3().decode(data, out=out)
    return out


def by_zarr(data: bytes, shape: tuple[int, ...], dtype: Any, folder: Path) -> Image:
    array = zarr.create_array(
        folder / "a.zarr",
        shape=shape,
        chunks=shape,
        dtype=dtype,
        serializer=l3dali.zarr.L3(),
        compressors=None,
        overwrite=True,
    )
    chunk = folder / "a.zarr" / "/".join(["c", *"0" * len(shape)])
    chunk.parent.mkdir(parents=True)
    chunk.write_bytes(data)
    whole: Image = array[:]
    assert np.array_equal(array[1:, :1], whole[1:, :1])
    return whole


def by_imageio(data: bytes, *_: Any) -> Image:
    pixels: Image = iio.imread(data, plugin="L3")
    return pixels


def by_torch(data: bytes, *_: Any) -> Image:
    tensor = l3dali.torch.decode(data, layout="HWC")
    both = l3dali.torch.decode_batch([data, data], layout="HWC", threads=2)
    assert torch.equal(both[0], tensor)
    pixels: Image = tensor.numpy()
    return pixels


l3dali.imageio.register()


@pytest.mark.parametrize("decode", [by_imageio, by_numcodecs, by_torch, by_zarr])
def test_pixels_or_an_error(decode: Callable[..., Image], tmp_path: Path) -> None:
    decoded = 0
    for data in files():
        expected = None
        shape, dtype = (8, 9), np.dtype(np.uint8)  # what the array would be that the file is of
        try:
            expected = l3dali.decode(data)
            shape, dtype = expected.shape, expected.dtype
        except l3dali.L3Error:
            pass
        try:
            found = decode(data, shape, dtype, tmp_path)
        except (ValueError, OSError):  # of which L3Error is one
            continue
        assert expected is not None
        assert np.array_equal(found.reshape(shape), expected)
        decoded += 1
    assert decoded > 100
