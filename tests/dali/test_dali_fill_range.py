"""`fill_range`: whether another `dtype` is filled, in all operators alike, and the default."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dali_tools import FAMILY, Array, apply, as_sample, assert_same, decode, run
from nvidia.dali import fn, types
from output_plans import convert

import l3dali

pytestmark = pytest.mark.dali

OPERATORS = [name for name in FAMILY if name != "peek_shape"]
NORMALIZING = ("decode_crop_mirror_normalize", "decode_windows")
TARGETS = {"uint8": types.UINT8, "int32": types.INT32, "float32": types.FLOAT}


def image(channels: int = 3) -> Array:
    every: Array = np.arange(40 * 60 * channels).reshape(40, 60, channels) * 8 % 65536
    return every.astype(np.uint16)


def factor(target: str) -> Any:
    most = 1 if target == "float32" else np.iinfo(target).max
    return np.float32(most) / np.float32(65535)


@pytest.mark.parametrize("channels", [3, 6])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", OPERATORS)
def test_all_operators(device: str, name: str, target: str, channels: int) -> None:
    def define(l3: Any) -> Any:
        stored = apply(name, l3, device, dtype=types.UINT16)
        kinds: list[dict[str, Any]] = [{}, {"fill_range": False}, {"fill_range": True}]
        return stored, *(apply(name, l3, device, dtype=TARGETS[target], **kind) for kind in kinds)

    samples = [as_sample(l3dali.encode(image(channels)))]
    (stored,), (default,), (plain,), (filled,) = run(define, device, {"l3": samples})
    kind = np.dtype(target).str[1:]
    values = stored.astype(np.float32)
    assert_same([plain], [convert(values, kind)])
    assert_same([filled], [convert(values * factor(target), kind)])
    assert_same([default], [plain if name in NORMALIZING else filled])


@pytest.mark.parametrize("channels", [1, 6])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", OPERATORS)
def test_label_numbers_stay(device: str, name: str, target: str, channels: int) -> None:
    def define(l3: Any) -> Any:
        kinds: list[dict[str, Any]] = [{}, {"fill_range": False}, {"fill_range": True}]
        return tuple(apply(name, l3, device, dtype=TARGETS[target], **kind) for kind in kinds)

    samples = [as_sample(l3dali.encode(image(channels), labels=True))]
    (default,), (plain,), (filled,) = run(define, device, {"l3": samples})
    assert_same([default], [plain])
    assert not np.array_equal(default, filled)


@pytest.mark.parametrize("name", NORMALIZING)
def test_mean_and_std_are_in_the_range_that_is_filled(device: str, name: str) -> None:
    mean, std = [0.25, 0.5, 0.125], [0.5, 0.25, 2.0]

    def define(l3: Any) -> Any:
        arguments = {"dtype": types.FLOAT, "mean": mean, "std": std}
        return (
            apply(name, l3, device, dtype=types.UINT16),
            apply(name, l3, device, **arguments, fill_range=True),
        )

    samples = [as_sample(l3dali.encode(image()))]
    (stored,), (normalized,) = run(define, device, {"l3": samples})
    expected = (stored / 65535 - mean) / std
    np.testing.assert_allclose(normalized, expected, rtol=1e-5, atol=1e-5)


def test_luminance_as_it_is(device: str) -> None:
    """YCbCr has its head and foot room in the range of the values."""
    deep = image()
    shallow = (deep >> 8).astype(np.uint8)
    samples = [as_sample(l3dali.encode(shallow))]
    arguments: dict[str, Any] = {"output_type": types.YCbCr, "fill_range": False}
    (plain,) = decode(samples, device, dtype=types.FLOAT, **arguments)
    (filled,) = decode(samples, device, dtype=types.FLOAT, output_type=types.YCbCr)
    np.testing.assert_allclose(plain[..., 0] - 16, (filled[..., 0] - 0.0625) * 255, atol=1e-3)


def test_stored_type_has_nothing_to_fill(device: str) -> None:
    samples = [as_sample(l3dali.encode(image()))]
    for fill_range in (False, True):
        assert_same(decode(samples, device, fill_range=fill_range), [image()])
        windows = run(
            lambda l3, fill=fill_range: fn.l3.decode_windows(
                l3, device=device, window=(40, 60), stride=40, fill_range=fill
            ),
            device,
            {"l3": samples},
        )[0]
        assert_same(windows, [image()[np.newaxis]])
