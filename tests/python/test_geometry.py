"""Smaller images keep their look, their numbers, and nothing that is transparent."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from l3dali.images.formats import write_picture
from l3dali.images.geometry import shrink
from l3dali.images.picture import Picture
from l3dali.images.reading import read_picture

PIL = pytest.importorskip("PIL")
pytest.importorskip("PIL.Image")
pytest.importorskip("imagecodecs")

Image = NDArray[Any]


def waves(channels: int, dtype: type = np.uint8, height: int = 90, width: int = 130) -> Image:
    """A smooth image that uses most of the range; its alpha is opaque."""
    rows, columns = np.mgrid[:height, :width]
    planes = [
        0.5 + 0.4 * np.sin(rows / (7 + channel)) * np.cos(columns / 11)
        for channel in range(channels)
    ]
    if channels in (2, 4):
        planes[-1] = np.ones((height, width))
    image: Image = (np.stack(planes, axis=-1) * np.iinfo(dtype).max).astype(dtype)
    return image[:, :, 0] if channels == 1 else image


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((9, 13), (9, 13)),
        ((60, 64), (60, 64)),
        ((64, 65), (63, 64)),
        ((128, 2), (64, 1)),
        ((1000, 1), (64, 1)),
        ((3, 129), (1, 64)),
        ((100, 200), (32, 64)),
    ],
)
@pytest.mark.parametrize("labels", [False, True])
def test_size(before: tuple[int, int], after: tuple[int, int], labels: bool) -> None:
    for dtype in (np.uint8, np.uint16):
        assert shrink(np.zeros(before, dtype), 64, labels=labels).shape == after
        assert shrink(np.zeros((*before[::-1], 3), dtype), 64, labels=labels).shape == (
            *after[::-1],
            3,
        )


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_8_bits_are_resampled_by_pillow(channels: int) -> None:
    image = waves(channels)
    expected = PIL.Image.fromarray(image).resize((64, 44), PIL.Image.Resampling.LANCZOS)
    assert np.array_equal(shrink(image, 64), np.asarray(expected))


def test_more_channels_than_pillow_has() -> None:
    image = np.repeat(waves(1)[:, :, None], 5, axis=2)
    expected = shrink(image[:, :, 0], 64)
    assert np.abs(shrink(image, 64).astype(int) - expected[:, :, None]).max() <= 1


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_16_bits_are_resampled_as_8_bits_are(channels: int) -> None:
    wide = shrink(waves(channels, np.uint16), 64)
    assert wide.dtype == np.uint16
    narrow = shrink((waves(channels, np.uint16) >> 8).astype(np.uint8), 64)
    assert np.abs(wide / 256 - narrow).max() < 2
    assert np.unique(wide & 255).size > 100  # No 8-bit filter stood between.


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("value", [0, 1, 255, 256, 40_001, 65_535])
def test_flat_16_bit_images_stay_as_they_are(channels: int, value: int) -> None:
    image = np.full((90, 130, channels), value, np.uint16)
    assert (shrink(image, 64) == value).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [2, 4])
def test_transparent_colours_do_not_bleed(channels: int, dtype: type) -> None:
    maximum = np.iinfo(dtype).max
    image: Image = np.full((100, 100, channels), maximum, dtype)
    image[:, :50, -1] = 0  # transparent white beside opaque gray
    image[:, 50:, :-1] = maximum // 4
    small = shrink(image, 10)
    seen = small[small[:, :, -1] > maximum // 8]
    assert seen.size
    assert np.abs(seen[:, :-1].astype(int) - maximum // 4).max() <= maximum // 64


def test_16_bits_do_not_leave_their_range() -> None:
    image = np.zeros((100, 100), np.uint16)
    image[:, 50:] = 65_535  # Lanczos overshoots at an edge.
    small = shrink(image, 30)
    assert small[:, :13].max() < 3000
    assert small[:, 17:].min() > 62_000


@pytest.mark.parametrize("shape", [(90, 130), (90, 130, 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_labels_are_taken_from_the_nearest_pixel(shape: tuple[int, ...], dtype: type) -> None:
    numbers = np.random.default_rng(0).integers(0, 3, shape).astype(dtype) * dtype(77)
    small = shrink(numbers, 65, labels=True)
    assert small.shape[:2] == (45, 65)
    assert np.array_equal(small, numbers[1::2, 1::2])


def test_palette_numbers_are_not_blended() -> None:
    file = io.BytesIO()
    PIL.Image.fromarray(waves(3)).quantize(7).save(file, "PNG")
    data = file.getvalue()
    numbers = read_picture(data, palette="index", max_side=64)
    assert numbers.pixels.shape == (44, 64)
    assert set(np.unique(numbers.pixels)) <= set(range(7))
    assert np.array_equal(read_picture(data, labels=True, max_side=64).pixels, numbers.pixels)
    colors = read_picture(data, max_side=64)
    assert colors.pixels.shape == (44, 64, 3)
    assert len(np.unique(colors.pixels.reshape(-1, 3), axis=0)) > 7


def test_gray_labels_are_not_blended() -> None:
    mask = np.random.default_rng(0).integers(0, 2, (90, 130), np.uint8) * 200
    data = write_picture(Picture(mask), ".png")
    assert set(np.unique(read_picture(data, labels=True, max_side=64).pixels)) == {0, 200}
    assert len(np.unique(read_picture(data, max_side=64).pixels)) > 9


@pytest.mark.parametrize("prefix", [b"", b"Exif\0\0"])  # the second is not for PNG; Pillow reads it
def test_turned_images_are_shrunk_upright(prefix: bytes) -> None:
    block = PIL.Image.Exif()
    block[0x0112] = 6
    exif = prefix + block.tobytes().removeprefix(b"Exif\0\0")
    data = write_picture(Picture(waves(3), exif=exif), ".png")
    assert read_picture(data, max_side=64).pixels.shape == (44, 64, 3)
    assert read_picture(data, max_side=64, orient=True).pixels.shape == (64, 44, 3)
