"""The encoder writes the same bytes whatever instructions the machine has.

`make test-aarch64` makes the machine another one than this.
"""

from __future__ import annotations

import engines
import numpy as np
import pytest
import skimage.data
import strategies
from engines import KERNELS, Samples
from hypothesis import given, settings
from hypothesis import strategies as st

import l3dali
from l3dali import Coding


def _check(
    image: Samples, coding: Coding, tile_log2: tuple[int, int] = (0, 0), effort: int = 5
) -> None:
    def encode(kernels: str) -> bytes:
        return engines.encode(
            image, coding=coding, effort=effort, tile_log2=tile_log2, kernels=kernels
        )

    fastest = encode("fastest")
    for kernels in KERNELS[1:]:
        assert encode(kernels) == fastest, kernels
    if tile_log2 == (0, 0):
        assert l3dali.encode(image, coding=coding, effort=effort) == fastest
    assert engines.decode("scalar", fastest) == engines.Outcome("kOk", None, image)


def test_effort_9_writes_the_golden_file() -> None:
    """So floats, too, come out alike on every machine."""
    golden = engines.ROOT / "tests/golden/v1/encoder_effort_9.l3"
    image = engines.decode("reference", golden.read_bytes()).samples
    assert image is not None
    for kernels in KERNELS:
        encoded = engines.encode(image, coding="rans", effort=9, tile_log2=(7, 7), kernels=kernels)
        assert encoded == golden.read_bytes(), kernels


@pytest.mark.parametrize("effort", [6, 7, 8, 9])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_efforts_that_search(dtype: type, effort: int) -> None:
    """Wide tiles among them, three sets, and samples of 16 bits whose differences need 17."""
    rng = np.random.default_rng(effort)
    image = skimage.data.astronaut()[:140, :300].astype(dtype)
    if dtype == np.uint16:
        image = image * 257 ^ rng.integers(0, 1 << 9, image.shape, dtype)
        image[20:40] = rng.integers(0, 2, (20, 300, 3)) * 65535
    _check(image, "rans", effort=effort)


@settings(max_examples=80)
@given(
    image=strategies.images(),
    coding=st.sampled_from(["packed", "rans"]),
    tile_log2=st.sampled_from([(0, 0), (5, 3), (6, 4), (8, 8)]),
    effort=st.sampled_from([1, 5, 7, 9]),
)
def test_images(image: Samples, coding: Coding, tile_log2: tuple[int, int], effort: int) -> None:
    _check(image, coding, tile_log2, effort)


# Rows of one group, of as many as lanes are arranged for, of one more, and those that end inside
# a group; used bits whose values are bytes, words, and those whose sums need more.
@pytest.mark.parametrize("width", [1, 8, 9, 65, 128, 200, 255, 256, 300])
@pytest.mark.parametrize("used_bits", [1, 7, 8, 9, 14, 16])
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


# Heights of few lanes, of some and of all, of waves that end inside a vector, and of several bands;
# values in bytes, and more. Drawings have channels that the gradient predicts, beside others.
# Effort 9 asks more of the kernels.
@pytest.mark.parametrize(
    ("height", "width", "effort"),
    [
        *((3, 40, 1), (3, 40, 5), (9, 8, 5), (31, 33, 1), (31, 33, 5), (31, 33, 9)),
        *((100, 129, 5), (130, 64, 1), (150, 260, 1)),
    ],
)
@pytest.mark.parametrize("used_bits", [3, 8, 9, 16])
def test_rans_tiles(height: int, width: int, used_bits: int, effort: int) -> None:
    rng = np.random.default_rng(width * 17 + used_bits)
    top = (1 << used_bits) - 1
    for channels in (1, 3, 4):
        noise = rng.integers(0, top + 1, (height, width, channels))
        ramp = np.add.outer(np.arange(height) * 3, np.arange(width) * 2)[..., None]
        smooth = ramp * (top // 99 + 1) + noise // 16 + np.arange(channels) * 5
        blocks = noise[::8, ::8].repeat(8, 0).repeat(8, 1)[:height, :width]
        drawing = np.where(np.arange(channels) % 2 == effort % 2, blocks, smooth)
        for image in (noise, smooth & top, blocks, drawing & top):
            image[0, 0, 0] = top  # so that all of the bits are used, and the lowest too
            _check(image.astype(np.uint8 if used_bits <= 8 else np.uint16), "rans", effort=effort)
