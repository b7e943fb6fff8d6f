"""The two programs of docs/training.md run as printed, and give what NumPy computes."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from engines import ROOT

import l3dali

PROGRAMS = dict(
    zip(
        ("dali", "torch"),
        re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "training.md").read_text(), re.DOTALL),
        strict=True,
    )
)
SIZE = 64
MEAN, STD = (np.array(v).reshape(3, 1, 1) for v in ([123.7, 116.3, 103.5], [58.4, 57.1, 57.4]))
Array = npt.NDArray[Any]
Batch = dict[str, Array]


@pytest.fixture
def pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Array, Array]]:
    """Ten images of several sizes and their masks, as the programs name them."""
    rng = np.random.default_rng(1)
    made = []
    for i in range(10):
        image = rng.integers(0, 256, (90 + 7 * i, 150 - 5 * i, 3), np.uint8)
        mask = rng.integers(0, 19, image.shape[:2], np.uint8)
        made.append((image, mask))
        for kind, pixels in (("images", image), ("masks", mask)):
            (tmp_path / kind).mkdir(exist_ok=True)
            l3dali.imwrite(tmp_path / kind / f"{i:03}.l3", pixels, labels=kind == "masks")
    monkeypatch.chdir(tmp_path)
    return made


def _resized(image: Array) -> Array:
    """Bilinear, between the centres of pixels, without a filter against aliasing."""
    for axis in (0, 1):
        side = image.shape[axis]
        at = np.clip((np.arange(SIZE) + 0.5) * side / SIZE - 0.5, 0, side - 1)
        low = np.floor(at).astype(int)
        weight = np.expand_dims(at - low, tuple({0, 1, 2} - {axis}))
        high = image.take(np.minimum(low + 1, side - 1), axis)
        image = image.take(low, axis) * (1 - weight) + high * weight
    return image


def _nearest(mask: Array) -> Array:
    rows, columns = (
        np.floor((np.arange(SIZE) + 0.5) * side / SIZE).astype(int) for side in mask.shape
    )
    return mask[np.ix_(rows, columns)]


def _check(batch: Batch, made: list[tuple[Array, Array]], tolerance: float) -> list[int]:
    """Compares each sample with NumPy's; returns which they are."""
    indices = [int(i) for i in batch["index"].flatten()]
    for i, index in enumerate(indices):
        y, x, height, width = (int(v) for v in batch["window"][i])
        image, mask = (whole[y : y + height, x : x + width] for whole in made[index])
        assert image.shape[:2] == (height, width)
        step = -1 if batch["flip"].flatten()[i] else 1
        expected = (_resized(image.astype(float)).transpose(2, 0, 1) - MEAN) / STD
        np.testing.assert_allclose(batch["image"][i], expected[..., ::step], atol=tolerance)
        assert batch["mask"].dtype == np.int64
        np.testing.assert_array_equal(np.squeeze(batch["mask"][i]), _nearest(mask)[:, ::step])
    return indices


def _load(name: str) -> Any:
    path = Path("program.py")
    path.write_text(PROGRAMS[name])
    spec = spec_from_file_location(f"training_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[module.__name__] = module  # for the workers
    spec.loader.exec_module(module)
    return module


def _arrays(batch: dict[str, Any]) -> Batch:
    return {name: np.asarray(value) for name, value in batch.items()}


def _epoch(program: Any, rank: int) -> list[Batch]:
    if "dali" in program.__name__:
        return [_arrays(batch) for (batch,) in program.batches_of(rank)]
    return [_arrays(batch) for batch in program.batches_of(rank, 0)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_runs_as_printed(pairs: object, name: str) -> None:
    """With its checkpoint: the program compares what follows it."""
    Path("program.py").write_text(PROGRAMS[name])
    subprocess.run([sys.executable, "program.py"], check=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_samples_are_those_of_numpy(pairs: list[tuple[Array, Array]], name: str) -> None:
    """Two ranks see each image once, and crops, flips and numbers are NumPy's."""
    program = _load(name)
    # DALI resizes 8 bits to 8 bits, so it rounds levels.
    tolerance = 0.51 / STD.min() if name == "dali" else 1e-4
    seen = [
        i for r in (0, 1) for batch in _epoch(program, r) for i in _check(batch, pairs, tolerance)
    ]
    assert sorted(seen) == list(range(10))
    flips = {bool(f) for b in _epoch(program, 0) + _epoch(program, 1) for f in b["flip"].flatten()}
    assert flips == {False, True}


@pytest.mark.parametrize("name", PROGRAMS)
def test_goes_on_from_the_checkpoint(pairs: list[tuple[Array, Array]], name: str) -> None:
    program = _load(name)
    rest: list[Batch]
    resumed: list[Batch]
    if name == "dali":
        batches = program.batches_of(1)
        next(batches)
        (state,) = batches.checkpoints()
        rest = [_arrays(batch) for (batch,) in batches]
        resumed = [_arrays(batch) for (batch,) in program.batches_of(1, checkpoint=state)]
    else:
        rest = [_arrays(batch) for batch in program.batches_of(1, 3)][1:]
        resumed = [_arrays(batch) for batch in program.batches_of(1, 3, done=1)]
    assert len(rest) == len(resumed) == 2
    for expected, batch in zip(rest, resumed, strict=True):
        assert expected.keys() == batch.keys()
        for key in expected:
            np.testing.assert_array_equal(expected[key], batch[key])
