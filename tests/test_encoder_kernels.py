"""The encoder writes the same bytes whatever instructions the machine has.

`make test-aarch64` makes the machine another one than this.
"""

from __future__ import annotations

import engines
import numpy as np
import pytest
import strategies
from engines import KERNELS, Samples
from hypothesis import given, settings
from hypothesis import strategies as st

import l3dali
from l3dali import Mode


def _check(image: Samples, mode: Mode, tile_log2: tuple[int, int] = (0, 0)) -> None:
    fastest = engines.encode(image, mode=mode, tile_log2=tile_log2)
    for kernels in KERNELS[1:]:
        same = engines.encode(image, mode=mode, tile_log2=tile_log2, kernels=kernels) == fastest
        assert same, kernels
    if tile_log2 == (0, 0):
        assert l3dali.encode(image, mode=mode) == fastest
    assert engines.decode("scalar", fastest) == engines.Outcome("kOk", None, image)


@settings(max_examples=200)
@given(
    image=strategies.images(),
    mode=st.sampled_from(["packed", "rans"]),
    tile_log2=st.sampled_from([(0, 0), (5, 3), (6, 4), (8, 8)]),
)
def test_images(image: Samples, mode: Mode, tile_log2: tuple[int, int]) -> None:
    _check(image, mode, tile_log2)


# Rows of one group, of as many as lanes are arranged for, of one more, and those that end inside
# a group; used bits whose values are bytes, words, and those whose sums need more.
@pytest.mark.parametrize("width", [1, 5, 8, 9, 64, 65, 127, 128, 129, 200, 255, 256, 300])
@pytest.mark.parametrize("used_bits", [1, 2, 7, 8, 9, 13, 14, 15, 16])
@pytest.mark.parametrize("kind", ["smooth", "noise", "sparse"])
def test_packed_tiles(width: int, used_bits: int, kind: str) -> None:
    rng = np.random.default_rng(width * 17 + used_bits)
    top = (1 << used_bits) - 1
    for height, channels in ((1, 3), (9, 4), (70, 1)):
        shape = (height, width, channels)
        noise = rng.integers(0, top + 1, shape)
        if kind == "smooth":
            ramp = np.add.outer(np.arange(height) * 3, np.arange(width) * 2)[..., None]
            image = (ramp * (top // 99 + 1) + noise // 16 + np.arange(channels) * 5) & top
        elif kind == "sparse":
            image = np.where(rng.random(shape) < 0.04, noise, top // 2)
        else:
            image = noise
        image[0, 0, 0] = top  # so that all of the bits are used, and the lowest too
        _check(image.astype(np.uint8 if used_bits <= 8 else np.uint16), "packed")
