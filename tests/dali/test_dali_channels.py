"""Images of more than four channels through the operators, and channels that are chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dali_tools import Array, as_sample, assert_same, call, decode, run
from nvidia.dali import fn, types

import l3dali

pytestmark = pytest.mark.dali


def make_bands(shapes: list[tuple[int, int, int]], bits: int = 16, **options: Any) -> Any:
    """Images of these shapes, and their files as samples."""
    rng = np.random.default_rng(9)
    images = [rng.integers(0, 1 << bits, shape).astype(f"u{bits // 8}") for shape in shapes]
    for image in images:
        image[: len(image) // 2] //= 9
    return images, [as_sample(l3dali.encode(i, tile=(32, 32), **options)) for i in images]


SHAPES = [(40, 70, 13), (33, 31, 5), (90, 20, 200), (50, 60, 3)]


@pytest.mark.parametrize("coding", l3dali.CODINGS)
@pytest.mark.parametrize("bits", [8, 16])
def test_all_channels(device: str, coding: str, bits: int) -> None:
    images, encoded = make_bands(SHAPES, bits, coding=coding)
    assert_same(decode(encoded, device), images)


def test_4096_channels(device: str) -> None:
    images, encoded = make_bands([(3, 5, 4096)])
    assert_same(decode(encoded, device), images)


@pytest.mark.parametrize("channels", [[3, 2, 1], [4], [4, 0, 3, 1, 2]])
def test_chosen_channels(device: str, channels: list[int]) -> None:
    images, encoded = make_bands(SHAPES[:3])
    want = [image[..., channels] for image in images]
    assert_same(decode(encoded, device, channels=channels), want)


def test_chosen_channels_of_few(device: str) -> None:
    images, encoded = make_bands([(20, 33, 3), (20, 40, 4), (9, 9, 2)])
    assert_same(decode(encoded, device, channels=[1, 0]), [i[..., [1, 0]] for i in images])


def test_types_and_windows(device: str) -> None:
    images, encoded = make_bands(SHAPES[:3])
    crop = {"crop": (20, 20), "crop_pos_x": 1.0, "crop_pos_y": 0}
    (got,) = call("decode_crop", encoded, device, dtype=types.UINT8, **crop)
    for image, ours in zip(images, got, strict=True):
        left = image.shape[1] - 20
        part = image[:20, left : left + 20].astype(np.float32) * np.float32(np.float32(255) / 65535)
        assert ours.dtype == np.uint8
        assert np.abs(ours.astype(float) - part).max() <= 0.5001


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("channels", [None, [12, 0, 5]])
def test_normalized(device: str, layout: str, channels: list[int] | None) -> None:
    """A mean and a deviation for each channel, mirrored, with a border."""
    images, encoded = make_bands([(40, 70, 13), (34, 50, 13)])
    count = 13 if channels is None else len(channels)
    mean = [1000.0 * c for c in range(count)]
    std = [10.0 + c for c in range(count)]
    fill = [float(c) for c in range(count)]
    options = {} if channels is None else {"channels": channels}
    (got,) = call(
        "decode_crop_mirror_normalize",
        encoded,
        device,
        crop=(36, 60),
        mirror=1,
        mean=mean,
        std=std,
        output_layout=layout,
        out_of_bounds_policy="pad",
        fill_values=fill,
        **options,
    )
    for image, ours in zip(images, got, strict=True):
        chosen = image if channels is None else image[..., channels]
        top, left = (image.shape[0] - 36) // 2, (image.shape[1] - 60) // 2
        rows, columns = np.arange(top, top + 36), np.arange(left, left + 60)
        inside = np.ix_(
            (rows >= 0) & (rows < image.shape[0]), (columns >= 0) & (columns < image.shape[1])
        )
        want = np.tile(np.array(fill, np.float32), (36, 60, 1))
        part = chosen[max(top, 0) : top + 36, max(left, 0) : left + 60].astype(np.float32)
        want[inside] = (part - np.array(mean, np.float32)) / np.array(std, np.float32)
        want = want[:, ::-1]
        if layout == "CHW":
            want = want.transpose(2, 0, 1)
        np.testing.assert_allclose(ours, want, rtol=2e-6, atol=2e-4)


def test_many_windows(device: str) -> None:
    images, encoded = make_bands([(40, 70, 13)])
    (got,) = call("decode_windows", encoded, device, window=(9, 8), stride=(9, 8), channels=[7, 1])
    windows = [
        images[0][y : y + 9, x : x + 8, [7, 1]] for y in range(0, 32, 9) for x in range(0, 63, 8)
    ]
    assert np.array_equal(got[0].reshape(-1, 9, 8, 2)[: len(windows)].astype(np.uint16), windows)


def test_peek_shape() -> None:
    _, encoded = make_bands(SHAPES)
    (got,) = call("peek_shape", encoded, "cpu")
    assert [tuple(shape.tolist()) for shape in got] == SHAPES


def fails(device: str, encoded: list[Array], message: str, **arguments: Any) -> None:
    with pytest.raises(RuntimeError, match=message):
        decode(encoded, device, **arguments)


def test_what_is_refused(device: str) -> None:
    _, encoded = make_bands(SHAPES)
    few = encoded[3:]
    fails(device, encoded, "has 13 channels, and only up to 4", output_type=types.RGB)
    fails(device, few, "`channels` selects channels as stored", output_type=types.RGB, channels=[0])
    fails(device, few, "channel 1 is asked for twice", channels=[1, 1])
    fails(device, few, "channel 4096 is out of range", channels=[4096])
    fails(device, few, "channel -1 is out of range", channels=[-1])
    fails(device, few, r"`channels` asks for 3, but .* has 3 channels", channels=[0, 3])
    fails(device, encoded, "of 13 channels, more than `max_pixels`", max_pixels=40 * 70 * 4 - 1)
    assert len(decode(encoded[:1], device, max_pixels=40 * 70 * 4)) == 1


def test_one_image_that_lacks_a_channel(device: str) -> None:
    images, encoded = make_bands(SHAPES)
    got = decode(encoded, device, channels=[4, 0], on_error="zero")
    want = [image[..., [4, 0]] if image.shape[2] > 4 else image[..., :2] * 0 for image in images]
    assert_same(got, want)


def test_damage(device: str) -> None:
    """Damage in a group that is not decoded is not detected."""
    images, encoded = make_bands([(40, 70, 6)], groups=[[0, 1, 2], [3, 4, 5]])
    damaged = encoded[0].copy()
    damaged[-1] ^= 1
    assert_same(decode([damaged], device, channels=[2]), [images[0][..., [2]]])
    fails(device, [damaged], "tile 5 of 6", channels=[3])
    fails(device, [damaged], "tile 5 of 6")


def test_other_decoders_refuse_them() -> None:
    _, encoded = make_bands(SHAPES[:1])
    with pytest.raises(RuntimeError, match="nvImageCodec failure"):
        run(lambda l3: fn.decoders.image(l3), "cpu", {"l3": encoded})
