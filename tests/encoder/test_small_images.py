"""Small images: at usual efforts they do with the built-in model, and take hardly more bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import skimage.data

import l3dali

Image = npt.NDArray[Any]
RANDOM = np.random.default_rng(5)
MOST_SAMPLES = 4096  # of an image that is small here


def _pieces(channels: int, height: int, width: int) -> list[Image]:
    """Of a photograph of a third of its size, which is as rough as small photographs are."""
    photograph = skimage.data.astronaut()[::3, ::3]
    planes = np.dstack([photograph, photograph[..., ::-1]])[..., :channels]
    rows, columns = range(0, 170 - height + 1, 41), range(0, 170 - width + 1, 37)
    found = [planes[y : y + height, x : x + width] for y in rows for x in columns]
    return [np.ascontiguousarray(one[..., 0] if channels == 1 else one) for one in found]


def _model_bytes(encoded: bytes) -> int:
    """Of the chunk RANS, 0 where the built-in model serves."""
    at = encoded.find(b"RANS", 32, 200)
    return 0 if at < 0 else int.from_bytes(encoded[at + 4 : at + 8], "little")


@pytest.mark.parametrize(("channels", "side"), [(1, 28), (1, 64), (3, 32), (4, 32)])
@pytest.mark.parametrize("effort", [2, 5])
def test_hardly_more_bytes_than_with_a_search(channels: int, side: int, effort: int) -> None:
    pieces = _pieces(channels, side, side)
    quick = [l3dali.encode(one, effort=effort) for one in pieces]
    searched = [l3dali.encode(one, effort=6) for one in pieces]
    assert sum(map(len, quick)) <= 1.02 * sum(map(len, searched))
    assert not any(map(_model_bytes, quick))
    for one, encoded in zip(pieces, quick, strict=True):
        np.testing.assert_array_equal(l3dali.decode(encoded), one)


def test_larger_ones_may_have_a_model() -> None:
    """So that the test above looks for the chunk in the right place."""
    rough = (RANDOM.integers(0, 3, (200, 200)) * 100).astype(np.uint8)
    assert _model_bytes(l3dali.encode(np.ascontiguousarray(rough), effort=5)) > 0


def _kinds() -> dict[str, Image]:
    """Small images of all kinds."""
    kinds: dict[str, Image] = {}
    for height, width in ((1, 1), (1, 4096), (4096, 1), (3, 5), (17, 31), (33, 31), (64, 64)):
        for channels in (1, 2, 3, 4, 7):
            if height * width * channels > MOST_SAMPLES:
                continue
            for bits in (1, 5, 8, 11, 16):
                dtype = np.uint8 if bits <= 8 else np.uint16
                noise = RANDOM.integers(0, 1 << bits, (height, width, channels))
                ramp = np.add.outer(np.arange(height), np.arange(width))[..., None]
                smooth = (ramp * (1 << bits) // (height + width) + noise // 8) % (1 << bits)
                few = RANDOM.integers(0, 3, (height // 4 + 1, width // 4 + 1, 1)).repeat(4, 0)
                blocks = few.repeat(4, 1)[:height, :width] * np.ones(channels, int)
                for name, image in (("noise", noise), ("smooth", smooth), ("blocks", blocks)):
                    key = f"{name} {height}x{width}x{channels} of {bits}"
                    kinds[key] = (
                        np.squeeze(image.astype(dtype), 2) if channels == 1 else image.astype(dtype)
                    )
    signed = RANDOM.integers(-9, 9, (32, 32)).astype(np.int16)
    return kinds | {"signed": signed, "flat": np.full((32, 32, 3), 7, np.uint8)}


@pytest.mark.parametrize("effort", [2, 3, 4, 5])
def test_all_kinds_come_back(effort: int) -> None:
    for name, image in _kinds().items():
        encoded = l3dali.encode(np.ascontiguousarray(image), effort=effort)
        decoded = l3dali.decode(encoded)
        assert decoded.dtype == image.dtype, name
        np.testing.assert_array_equal(decoded, image, err_msg=name)


def test_one_image_leaves_nothing_to_the_next() -> None:
    """A thread keeps its working memory."""
    images = [*_pieces(4, 32, 32)[:4], *_pieces(1, 28, 28)[:4], *_pieces(3, 17, 31)[:4]]
    there = [l3dali.encode(image) for image in images]
    back = [l3dali.encode(image) for image in reversed(images)]
    assert there == back[::-1]
