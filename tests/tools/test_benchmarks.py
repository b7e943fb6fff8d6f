"""Benchmarks of the CPU run, and write their pages: README and docs show what they find."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

imagecodecs = pytest.importorskip("imagecodecs")


@pytest.mark.parametrize("case", ["size", "speed", "jpeg"])
def test_case(tmp_path: Path, case: str) -> None:
    ramp = np.add.outer(np.arange(60), np.arange(80))[..., None] + np.array([0, 9, 4])
    (tmp_path / "photo" / "kodak").mkdir(parents=True)
    png = imagecodecs.png_encode(ramp.astype(np.uint8))
    (tmp_path / "photo" / "kodak" / "a.png").write_bytes(png)
    options = ["--sets", "photo/kodak", *(["--rounds", "1"] if case != "size" else [])]
    runner = importlib.import_module("benchmarks.cpu.__main__")
    runner.main([case, "--data", str(tmp_path), "--out", str(tmp_path), *options])
    assert " cores, load " in (tmp_path / f"{case}.md").read_text()
    found = json.loads((tmp_path / f"{case}.json").read_text())
    assert found.keys() - {"images"} == {"made", "load", "photo/kodak"}
    assert all(found.values())
    assert "nan" not in json.dumps(found).lower()
