"""The pixels of `fn.l3.decode`: batches of many shapes and types, large images, every coding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import imagecodecs
import numpy as np
import pytest
from dali_tools import (
    Array,
    as_sample,
    assert_same,
    decode,
    pipeline,
    run,
    unpack,
    with_png_chunk,
)
from engines import ROOT
from nvidia.dali import fn, types

import l3dali
from l3dali import codec
from l3dali.arguments import SAMPLE_TYPES

pytestmark = pytest.mark.dali


def images_of(dtype: type) -> list[Array]:
    """Images of many shapes, of one type."""
    rng = np.random.default_rng(7)
    top = int(np.iinfo(dtype).max)
    shapes = [(1, 1, 1), (3, 500, 3), (64, 256, 4), (65, 257, 2), (200, 131, 3), (300, 40, 1)]
    images: list[Array] = []
    for height, width, channels in shapes:
        ramp = np.add.outer(np.arange(height) * 3, np.arange(width) * 2)[..., None]
        noise = rng.integers(0, 9, (height, width, channels))
        images.append(((ramp + noise) % (top + 1)).astype(dtype))
    images.append(np.full((130, 300, 3), 7, dtype))
    images.append(rng.integers(0, top + 1, (50, 60, 3)).astype(dtype))
    return images


def encode_all(images: Sequence[Array], **options: Any) -> list[Array]:
    return [as_sample(l3dali.encode(image, **options)) for image in images]


@pytest.mark.parametrize("coding", l3dali.CODINGS)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_batch_of_mixed_shapes(device: str, dtype: type, coding: str) -> None:
    images = images_of(dtype)
    assert_same(decode(encode_all(images, coding=coding), device), images)


def test_large_image_is_cut_into_tasks(device: str) -> None:
    rng = np.random.default_rng(3)
    ramp = np.add.outer(np.arange(2100), np.arange(1500))
    image = ((ramp + rng.integers(0, 4, ramp.shape)) % 256).astype(np.uint8)[..., None]
    assert_same(decode(encode_all([image]), device), [image])


@pytest.mark.slow
def test_hundred_megapixels(device: str) -> None:
    """Payloads of as many bytes: they go up in chunks."""
    noise = np.random.default_rng(3).integers(0, 250, (1000, 1000, 1), np.uint8)
    image = np.tile(noise, (10, 10, 1))
    (encoded,) = encode_all([image], coding="packed")
    assert len(encoded) > 90_000_000
    (decoded,) = decode([encoded], device)
    assert np.array_equal(decoded, image)


def test_type_may_change_from_batch_to_batch(device: str) -> None:
    batches = [images_of(np.uint8)[:2], images_of(np.uint16)[:3], images_of(np.uint8)[3:4]]
    encoded = iter([encode_all(batch) for batch in batches])

    def define() -> Any:
        samples = fn.external_source(lambda: next(encoded), batch=True)
        return fn.l3.decode(samples, device=device)

    pipe = pipeline(define, device, 4, prefetch_queue_depth=1)
    for batch in batches:
        assert_same(unpack(pipe.run()[0]), batch)


def test_golden_files(device: str) -> None:
    """Features beyond what the encoder writes, those of a type in one batch."""
    paths = sorted((ROOT / "tests" / "golden").rglob("*.l3"))
    assert paths
    files = [path.read_bytes() for path in paths]
    for dtype in SAMPLE_TYPES:
        chosen = [data for data in files if l3dali.info(data).dtype == dtype]
        images = [l3dali.decode(data) for data in chosen]
        want = [image.reshape(*image.shape[:2], -1) for image in images]
        assert_same(decode([as_sample(data) for data in chosen], device), want)


def test_gray_of_a_png_with_gamma_is_dalis_own(device: str) -> None:
    """DALI mixes colours in linear light where a PNG has gAMA (docs/other-decoders.md)."""
    image = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    png = imagecodecs.png_encode(image)
    files = [as_sample(png), as_sample(with_png_chunk(png, b"gAMA", (45455).to_bytes(4, "big")))]
    plain, with_gamma = run(
        lambda png: fn.decoders.image(png, output_type=types.GRAY), "cpu", {"png": files}
    )[0]
    ours = decode([as_sample(codec.encode(image))], device, output_type=types.GRAY)
    assert_same(ours, [plain])
    assert (with_gamma != plain).any()
