"""Benchmarks run, and write their pages: README and docs show what they find."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("imagecodecs")


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """A small image in each set that cases read."""
    import imagecodecs

    ramp = np.add.outer(np.arange(512), np.arange(600))[..., None] // 3 + np.array([0, 9, 4])
    for name, shape in (("kodak", np.s_[:60, :80]), ("large", np.s_[:, :])):
        (tmp_path / "data/photo" / name).mkdir(parents=True)
        png = imagecodecs.png_encode(ramp[shape].astype(np.uint8))
        (tmp_path / "data/photo" / name / "a.png").write_bytes(png)
    return tmp_path / "data"


def run_case(command: str, data: Path, out: Path) -> Any:
    """Runs a case of `benchmarks.cpu` with options; returns what its JSON has."""
    case, *options = command.split()
    runner = importlib.import_module("benchmarks.cpu.__main__")
    runner.main([case, "--data", str(data), "--out", str(out), *options])
    assert " cores, load " in (out / f"{case}.md").read_text()
    return json.loads((out / f"{case}.json").read_text())


@pytest.mark.parametrize(
    ("command", "module", "smaller", "keys"),
    [
        ("size --sets photo/kodak", "codecs", {}, {"photo/kodak"}),
        ("speed --sets photo/kodak --rounds 1", "codecs", {}, {"photo/kodak", "two cores"}),
        ("effort --sets photo/kodak --rounds 1", "codecs", {"EFFORTS": (1, 5)}, {"photo/kodak"}),
        (
            "memory",
            "memory",
            {"SQUARE": "900x900x3", "NARROW": (), "THREADS": (2,)},
            {"decode", "shapes"},
        ),
        pytest.param(
            "roi --rounds 1",
            "dali_windows",
            dict.fromkeys(("BATCH", "WARM_UP"), 1),
            {"crop", "random_crop"},
            marks=pytest.mark.dali,
        ),
        pytest.param(
            "liquid --images 32 --regimes jpeg/400/1 --rounds 1 --seconds 0.001 "
            "--profile-seconds 0.1",
            "liquid",
            {"CALIBRATING_TURNS": 1, "SIZE": "64x48"},
            {"regimes"},
            marks=pytest.mark.dali,
        ),
    ],
)
def test_case(
    photographs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    module: str,
    smaller: dict[str, Any],
    keys: set[str],
) -> None:
    for name, value in smaller.items():
        monkeypatch.setattr(importlib.import_module(f"benchmarks.cpu.{module}"), name, value)
    found = run_case(command, photographs, tmp_path)
    assert found.keys() == {"made", "load", *keys}
    for results in (found[key] for key in keys):
        assert results
        assert "nan" not in json.dumps(results).lower()


@pytest.mark.dali
def test_pipeline(photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCV_LOG_LEVEL", "ERROR")
    once = "--device cpu --threads 1 --batch 2 --rounds 1 --seconds 0 --files 2"
    arguments = ["--data", str(photographs), "--out", str(tmp_path), *once.split()]
    importlib.import_module("benchmarks.pipeline").main(arguments)
    rows = json.loads((tmp_path / "pipeline_cpu.json").read_text())["rows"]
    assert [row["format"] for row in rows] == [
        *("PNG -6", "L3 packed", "L3 rans", "HTJ2K", "JPEG 2000", "JPEG 95", "raw (numpy)")
    ] * 2
    assert [row["task"] for row in rows] == ["whole images"] * 7 + ["crops of 512x512"] * 7
    assert rows[0]["times_png"] == 1
    page = (tmp_path / "pipeline_cpu.md").read_text()
    assert "JPEG 95 (lossy)" in page
    assert "Not measured" not in page
