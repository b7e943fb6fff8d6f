"""Floats and 32-bit integers in the operators: their type, crops, normalization, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dali_tools import Array, as_sample, assert_same, call, decode
from nvidia.dali import types

import l3dali

pytestmark = pytest.mark.dali

KINDS = ("float16", "float32", "int32", "uint32")


def image(kind: str, channels: int, height: int = 70) -> Array:
    """Few values in some files, so that they have tables, and many in others."""
    rng = np.random.default_rng(channels)
    values = rng.normal(0, 100, (height, 90, channels))
    if channels % 2:
        values = np.rint(values / 50)
    return (np.abs(values) * 9e6 if kind == "uint32" else values * 5).astype(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_stored_type_is_the_default(device: str, kind: str) -> None:
    arrays = [image(kind, channels) for channels in (1, 2, 3, 4, 6)]
    for array in arrays:
        assert_same(decode([as_sample(l3dali.encode(array, effort=1))] * 2, device), [array] * 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_normalized_crop(device: str, kind: str) -> None:
    array = image(kind, 3)
    files = [as_sample(l3dali.encode(array, effort=1))]
    options: dict[str, Any] = {"crop": (20, 30), "mean": [3.0], "std": [4.0], "mirror": 1}
    (found,) = call("decode_crop_mirror_normalize", files, device, **options)
    crop = array[25:45, 30:60, :].astype(np.float32)[:, ::-1]
    assert_same(found, [((crop - np.float32(3)) * np.float32(0.25)).transpose(2, 0, 1)])


def test_ids_keep_every_number_in_int64(device: str) -> None:
    ids = (np.arange(63, dtype=np.uint32).reshape(7, 9, 1) * 68_174_084 + 1).astype(np.uint32)
    files = [as_sample(l3dali.encode(ids, labels=True))]
    assert_same(decode(files, device, dtype=types.INT64), [ids.astype(np.int64)])
    with pytest.raises(RuntimeError, match="holds uint32 labels, and int32 cannot hold"):
        decode(files, device, dtype=types.INT32)


def test_floats_are_not_rescaled(device: str) -> None:
    array = image("float32", 1)
    files = [as_sample(l3dali.encode(array))]
    with pytest.raises(RuntimeError, match="float32 samples, which have no range"):
        decode(files, device, dtype=types.UINT8, fill_range=True)
    whole = np.clip(np.copysign(np.floor(np.abs(array) + 0.5), array), 0, 255).astype(np.uint8)
    assert_same(decode(files, device, dtype=types.UINT8), [whole])
