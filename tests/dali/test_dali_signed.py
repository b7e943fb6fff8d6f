"""Signed samples in the operators: their type by default, and how they convert to others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dali_tools import Array, as_sample, assert_same, decode, run
from nvidia.dali import fn, types

import l3dali
from l3dali import codec

pytestmark = pytest.mark.dali

SIGNED = ("int8", "int16")
DTYPES = {
    "uint8": types.UINT8,
    "int8": types.INT8,
    "uint16": types.UINT16,
    "int16": types.INT16,
    "float16": types.FLOAT16,
    "float32": types.FLOAT,
}


def images(dtype: str, channels: int) -> list[Array]:
    """Hills and noise over the whole range, and every sample of the type."""
    rng = np.random.default_rng([channels, np.dtype(dtype).itemsize])
    limits = np.iinfo(dtype)
    y, x, c = np.ogrid[:70, :90, :channels]
    hills = np.sin(x / 9 + c) * np.cos(y / 7) * limits.max
    noisy = hills + rng.normal(0, 3, (70, 90, channels))
    every = np.arange(limits.min, limits.max + 1).reshape(16, -1, 1) + 0 * c
    extremes = rng.choice([limits.min, -1, 0, 1, limits.max], (33, 41, channels))
    return [np.clip(a, limits.min, limits.max).astype(dtype) for a in (noisy, every, extremes)]


def samples(arrays: list[Array]) -> list[Array]:
    codings = (codec.CODINGS * len(arrays))[: len(arrays)]
    return [
        as_sample(l3dali.encode(array, coding=coding, tile=(8, 32)))
        for array, coding in zip(arrays, codings, strict=True)
    ]


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", SIGNED)
def test_stored_type_is_the_default(device: str, dtype: str, channels: int) -> None:
    arrays = images(dtype, channels)
    assert_same(decode(samples(arrays), device), arrays)


def test_what_the_reference_says(device: str) -> None:
    """The examples of docs/operators.md."""
    image = np.array([[[32767], [-32767], [-32768]]], np.int16)
    for target, expected in {
        "uint8": [255, 0, 0],
        "int8": [127, -127, -127],
        "uint16": [65535, 0, 0],
        "float32": [1.0, -1.0, np.float32(-32768) * (np.float32(1) / np.float32(32767))],
    }.items():
        (converted,) = decode(samples([image]), device, dtype=DTYPES[target], fill_range=True)
        assert converted.ravel().tolist() == expected


@pytest.mark.parametrize("dtype", SIGNED)
def test_gray_of_signed_colours(device: str, dtype: str) -> None:
    """In integers, rounded as for unsigned samples: those of 8 bits down."""
    arrays = images(dtype, 3)
    rounding = 0 if dtype == "int8" else 16384
    weights = np.array([9797, 19234, 3737])
    gray = decode(samples(arrays), device, output_type=types.GRAY)
    expected = [
        ((a.astype(np.int64) @ weights + rounding) // 32768).astype(dtype)[..., np.newaxis]
        for a in arrays
    ]
    assert_same(gray, expected)


@pytest.mark.parametrize("dtype", SIGNED)
def test_windows_keep_the_type(device: str, dtype: str) -> None:
    arrays = images(dtype, 3)
    crop = {"crop": (13, 15), "crop_pos_x": 0.3}
    slices = {"start": (3, 2), "shape": (12, 11), "axes": (1, 0)}

    def define(l3: Any) -> Any:
        whole = fn.l3.decode(l3, device=device)
        return (
            fn.l3.decode_crop(l3, device=device, **crop),
            fn.crop(whole, **crop),
            fn.l3.decode_slice(l3, device=device, **slices),
            fn.slice(whole, **slices),
            fn.l3.decode_random_crop(l3, device=device, seed=4),
        )

    crops, cropped, ours, sliced, random = run(define, device, {"l3": samples(arrays)})
    assert_same(crops, cropped)
    assert_same(ours, sliced)
    assert {window.dtype for window in random} == {np.dtype(dtype)}


def test_signed_and_unsigned_files_need_a_dtype(device: str) -> None:
    arrays = [np.full((4, 5, 1), 7, dtype) for dtype in ("int16", "uint16")]
    with pytest.raises(RuntimeError, match=r"sample 0.* int16 and sample 1.* uint16"):
        decode(samples(arrays), device)
    together = decode(samples(arrays), device, dtype=types.INT32)
    assert [image.dtype.name for image in together] == ["int32", "int32"]
