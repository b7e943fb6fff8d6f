"""The encoded cache and the memory arguments of `fn.l3` operators."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dali_tools import Array, assert_same, pipeline, unpack
from nvidia.dali import fn

import l3dali
from l3dali.plugin import cache_statistics

pytestmark = pytest.mark.dali

BATCH = 4
EPOCHS = 3


def _write_images(folder: Path) -> list[Array]:
    rng = np.random.default_rng(3)
    images: list[Array] = []
    for i in range(2 * BATCH):
        image = rng.integers(0, 16 * (i + 1), (60 + i, 90, 3), np.uint8)
        l3dali.imwrite(folder / f"{i}.l3", image)
        images.append(image)
    return images


def _pipeline(folder: Path, device: str, skip: bool = False, **options: Any) -> Any:
    paths = sorted(map(str, folder.iterdir()))

    def define() -> Any:
        encoded, _ = fn.readers.file(files=paths, skip_cached_images=skip)
        return fn.l3.decode(encoded, device=device, skip_cached_images=skip, **options)

    return pipeline(define, device, BATCH)


def _epoch(pipe: Any) -> list[Array]:
    return [image for _ in range(2) for image in unpack(pipe.run()[0])]


def _decode(folder: Path, device: str, **options: Any) -> list[Array]:
    """The images of some epochs."""
    pipe = _pipeline(folder, device, **options)
    return [image for _ in range(EPOCHS) for image in _epoch(pipe)]


@pytest.mark.parametrize(
    "options",
    [
        {"cache_size": 64},
        {"cache_size": 1, "cache_type": "largest"},
        {"cache_size": 1, "cache_type": "threshold", "cache_threshold": 6000},
        {"device_memory_padding": 1, "host_memory_padding": 0},
    ],
)
def test_arguments_change_no_pixel(tmp_path: Path, device: str, options: dict[str, Any]) -> None:
    images = _write_images(tmp_path)
    assert_same(_decode(tmp_path, device, **options), EPOCHS * images)


@pytest.mark.cuda
def test_second_epoch_comes_from_the_cache(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    images = _write_images(tmp_path)
    _decode(tmp_path, "mixed", cache_size=64, cache_debug=True)
    report = capfd.readouterr().err
    assert f" {len(images)} misses, {len(images)} images" in report


def test_two_pipelines_share_a_cache(tmp_path: Path, device: str) -> None:
    images = _write_images(tmp_path)
    pipes = [_pipeline(tmp_path, device, cache_size=64) for _ in range(2)]
    for _ in range(EPOCHS):
        for pipe in pipes:  # all of them work ahead
            assert_same(_epoch(pipe), images)
    if device == "mixed":
        statistics = cache_statistics(0)
        assert statistics is not None
        assert statistics.images == len(images)


def test_files_that_the_reader_skips(tmp_path: Path, device: str) -> None:
    """Cached files are not read: they may be garbage by then. Without a GPU nothing is cached."""
    images = _write_images(tmp_path)
    pipe = _pipeline(tmp_path, device, skip=True, cache_size=64)
    for epoch in range(2 * EPOCHS):
        if epoch == EPOCHS and device == "mixed":
            for path in tmp_path.iterdir():
                path.unlink()  # what was mapped already stays as it is
                path.write_bytes(b"garbage")
        assert_same(_epoch(pipe), images)


@pytest.mark.cuda
@pytest.mark.parametrize("argument", ["device_memory_padding", "host_memory_padding"])
def test_out_of_memory(tmp_path: Path, argument: str) -> None:
    images = _write_images(tmp_path)
    with pytest.raises((RuntimeError, MemoryError), match=f"smaller `{argument}`"):
        _decode(tmp_path, "mixed", **{argument: 1 << 60})
    assert_same(_decode(tmp_path, "mixed"), EPOCHS * images)


@pytest.mark.cuda
def test_statistics_can_be_asked_for(tmp_path: Path) -> None:
    images = _write_images(tmp_path)
    pipe = _pipeline(tmp_path, "mixed", cache_size=64)
    for _ in range(EPOCHS):
        _epoch(pipe)
    statistics = cache_statistics(0)
    assert statistics is not None
    assert statistics.images == statistics.misses == len(images)
    assert statistics.hits >= (EPOCHS - 1) * len(images)
    assert 0 < statistics.payload_bytes <= statistics.memory_bytes <= 64 << 20
    del pipe
    gc.collect()
    assert cache_statistics(0) is None


def test_there_are_no_statistics_without_a_cache(tmp_path: Path) -> None:
    _write_images(tmp_path)
    _decode(tmp_path, "cpu", cache_size=64)
    assert cache_statistics(0) is None
    assert cache_statistics(-1) is None


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache_size": -1}, "`cache_size` must be 0 or more"),
        ({"cache_size": 1, "cache_type": "newest"}, "`cache_type` must be"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    _write_images(tmp_path)
    with pytest.raises(RuntimeError, match=message):
        _decode(tmp_path, "mixed", **options)
