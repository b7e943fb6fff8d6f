"""benchmarks/cpu/liquid.py: its parts, and a run in small."""

from __future__ import annotations

import gc
import importlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.dali


@pytest.fixture
def liquid() -> ModuleType:
    return importlib.import_module("benchmarks.cpu.liquid")


def pictures(liquid: ModuleType, count: int) -> list[Any]:
    sizes = {"source": 80, "rans": 50, "packed": 70, "stored": 300}
    paths = {name: Path(name) for name in sizes}
    return [liquid.Picture(f"{i}.png", "png 3 uint8", 100, paths, sizes) for i in range(count)]


def test_moved_takes_a_fifth_to_the_next_format(liquid: ModuleType) -> None:
    images = pictures(liquid, 50)
    plan = ("rans",) * 20 + ("packed",) * 30
    larger, smaller = (liquid.moved(plan, images, step) for step in (1, -1))
    # In the order of bytes: rans, packed, source, stored.
    pairs = {pair for pair in zip(plan, larger, strict=True) if pair[0] != pair[1]}
    assert pairs <= {("rans", "packed"), ("packed", "source")}
    assert sum(a != b for a, b in zip(plan, larger, strict=True)) == 10
    changed = [pair for pair in zip(plan, smaller, strict=True) if pair[0] != pair[1]]
    assert changed == [("packed", "rans")] * 10
    assert liquid.moved(("rans",) * 50, images, -1) == ("rans",) * 50  # nothing is smaller


def test_by_lot_keeps_shares(liquid: ModuleType) -> None:
    plan = ("rans",) * 20 + ("packed",) * 30
    lot = liquid.by_lot(plan)
    assert lot != plan
    assert sorted(lot) == sorted(plan)


def test_token_bucket_waits_for_what_was_read(
    liquid: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    waits: list[float] = []
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", waits.append)
    bucket = liquid.TokenBucket()
    bucket.hold(100.0)
    bucket.wait(50)
    bucket.wait(50)  # another thread: behind the first
    now = 10.0  # Of what was not used a little is kept.
    bucket.wait(50)
    bucket.hold(0)
    bucket.wait(10**9)
    assert waits == pytest.approx([0.5, 1.0, 0.5 - liquid.SAVED])


def test_reader_repeats_files_in_order(liquid: ModuleType, tmp_path: Path) -> None:
    files = []
    for i in range(40):
        path = tmp_path / str(i)
        path.write_bytes(bytes([i]) * (i + 1))
        files.append((path, i + 1))
    reader = liquid.Reader(files, liquid.TokenBucket())
    try:
        batches = [[data.tolist() for data in reader()] for _ in range(3)]
    finally:
        reader.close()
    expected = [[i % 40] * (i % 40 + 1) for i in range(3 * liquid.BATCH)]
    assert [data for batch in batches for data in batch] == expected


@pytest.fixture
def run(
    liquid: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Runs the benchmark on small images, without a control group; returns its results."""

    def no_group(folder: Path) -> None:
        raise OSError("none for tests")

    def small_images(name: str, data: Path | None, count: int) -> Iterator[Any]:
        for i in range(count):
            ramp = np.add.outer(np.arange(48) + i, np.arange(64))[..., None] + np.array([0, 9, 4])
            yield ramp.astype(np.uint8)

    monkeypatch.setattr(liquid, "Blkio", no_group)
    monkeypatch.setattr(liquid, "source_images", small_images)
    monkeypatch.setattr(liquid, "CALIBRATING_TURNS", 1)
    monkeypatch.setattr(liquid, "GRID", (0.5,))

    def run_liquid(arguments: str) -> dict[str, Any]:
        small = ["--images", "32", "--seconds", "0.001", "--profile-seconds", "0.1"]
        runner = importlib.import_module("benchmarks.cpu.__main__")
        runner.main(["liquid", *small, "--out", str(tmp_path), *arguments.split()])
        results: dict[str, Any] = json.loads((tmp_path / "liquid.json").read_text())
        return results

    gc.freeze()  # each turn collects
    yield run_liquid
    gc.unfreeze()


def test_small_run(
    liquid: ModuleType,
    run: Callable[[str], dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as undrawn:
        undrawn.setattr(liquid, "draw", lambda known, path: None)
        results = run("--regimes png/400/1 --rounds 2 --grid-rounds 1")
    (regime,) = results["regimes"].values()
    assert regime["held_by"].startswith("token bucket")
    assert sum(regime["shares"].values()) == pytest.approx(1)
    rows = {row["name"]: row for row in regime["rows"]}
    assert {"source", "rans", "packed", "stored", "plan", "plan by lot"} <= rows.keys()
    assert len(rows) == 4 + 4 + 2
    for row in rows.values():
        assert row["predicted"] > 0
        assert min(row["measured"]) > 0
        assert len(row["measured"]) >= (1 if row["is_grid"] else 2)
    best = rows[regime["best_single"]]["measured"]
    assert regime["mix"] == pytest.approx(np.median(rows["plan"]["measured"]) / np.median(best))
    assert results["made"].keys() == {"commit", "machine", "date"}

    results = run("--regimes jpeg/1000/1 --rounds 1 --grid-rounds 0 --add")
    assert results["regimes"].keys() == {"png/400/1", "jpeg/1000/1"}
    page = (tmp_path / "liquid.md").read_text()
    assert "## png, 400 MB/s" in page
    assert "## jpeg, 1000 MB/s" in page
    assert (tmp_path / "liquid.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [("--regimes png/300/2", "no such regime"), ("--images 33", "multiple of 32")],
)
def test_bad_arguments(run: Callable[[str], dict[str, Any]], arguments: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        run(arguments)
