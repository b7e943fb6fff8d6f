"""The encoded cache and the memory arguments of `fn.l3` operators."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import l3dali

pytestmark = pytest.mark.dali
dali = pytest.importorskip("nvidia.dali", reason="DALI is not installed")
fn = dali.fn

BATCH = 4
EPOCHS = 3


@pytest.fixture(autouse=True, scope="module")
def _plugin() -> None:
    import l3dali.plugin  # noqa: F401


def cache_statistics(device_id: int) -> Any:
    from l3dali import plugin

    return plugin.cache_statistics(device_id)


def _write_images(folder: Path) -> list[npt.NDArray[np.uint8]]:
    rng = np.random.default_rng(3)
    images = []
    for i in range(2 * BATCH):
        image = rng.integers(0, 16 * (i + 1), (60 + i, 90, 3), np.uint8)
        (folder / f"{i}.l3").write_bytes(l3dali.encode(image))
        images.append(image)
    return images


def _decode(folder: Path, device: str, **options: Any) -> list[npt.NDArray[Any]]:
    """The images of some epochs."""
    pipe = dali.Pipeline(BATCH, 2, None if device == "cpu" else 0)
    with pipe:
        encoded, _ = fn.readers.file(files=sorted(map(str, folder.iterdir())))
        pipe.set_outputs(fn.l3.decode(encoded, device=device, **options))
    decoded = []
    for _ in range(2 * EPOCHS):
        (batch,) = pipe.run()
        decoded += [np.array(image) for image in batch.as_cpu()]
    return decoded


@pytest.mark.parametrize("device", ["cpu", pytest.param("mixed", marks=pytest.mark.cuda)])
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
    for decoded, image in zip(_decode(tmp_path, device, **options), EPOCHS * images, strict=True):
        np.testing.assert_array_equal(decoded, image)


@pytest.mark.cuda
def test_second_epoch_comes_from_the_cache(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    images = _write_images(tmp_path)
    _decode(tmp_path, "mixed", cache_size=64, cache_debug=True)
    report = capfd.readouterr().err
    assert f" {len(images)} misses, {len(images)} images" in report


@pytest.mark.cuda
def test_statistics_can_be_asked_for(tmp_path: Path) -> None:
    images = _write_images(tmp_path)
    pipe = dali.Pipeline(BATCH, 2, 0)
    with pipe:
        encoded, _ = fn.readers.file(files=sorted(map(str, tmp_path.iterdir())))
        pipe.set_outputs(fn.l3.decode(encoded, device="mixed", cache_size=64))
    for _ in range(2 * EPOCHS):
        pipe.run()
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
        ({"cache_size": -1}, "`cache_size` is negative"),
        ({"cache_size": 1, "cache_type": "newest"}, "`cache_type` is"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    _write_images(tmp_path)
    with pytest.raises(RuntimeError, match=message):
        _decode(tmp_path, "mixed", **options)
