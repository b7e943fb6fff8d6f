"""The README's "Ten lines" run as printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import imagecodecs
import numpy as np
import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
SECTION = README[README.index("## Ten lines") : README.index("## Measured")]


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with photos/, and what the README's first command makes of it."""
    photos = tmp_path / "photos"
    photos.mkdir()
    ramp = np.add.outer(np.arange(90), np.arange(120))[..., None] + np.array([0, 40, 90])
    for name in ("a", "b"):
        (photos / f"{name}.png").write_bytes(imagecodecs.png_encode(ramp.astype(np.uint8)))
    for line in "".join(_blocks("bash")).splitlines():
        program, *arguments = shlex.split(line)
        assert program == "l3"
        subprocess.run([sys.executable, "-m", "l3dali", *arguments], cwd=tmp_path, check=True)
    return tmp_path


def test_section_has_its_examples() -> None:
    assert len(_blocks("bash")) == 1
    assert len(_blocks("python")) == 2


@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.dali), 1])
def test_example_runs(folder: Path, number: int) -> None:
    subprocess.run([sys.executable, "-c", _blocks("python")[number]], cwd=folder, check=True)


@pytest.mark.dali
@pytest.mark.cuda
def test_pipeline_runs_mixed(folder: Path) -> None:
    code = _blocks("python")[0].replace("device_id=None", "device_id=0")
    code = code.replace('device="cpu"', 'device="mixed"')
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
