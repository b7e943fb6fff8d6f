"""The README's programs run as printed, and the tables are what was measured."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import imagecodecs
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SECTION = README[README.index("## First batch") : README.index("## Data sets")]


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)


NUMBERS = {"gtFine_labelIds": 7, "gtFine_instanceIds": 26001, "disparity": 2930}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cityscapes, small, with the names of its files; and what the README's command makes of it."""
    root = tmp_path_factory.mktemp("walk")
    ramp = np.add.outer(np.arange(300), np.arange(600))[..., None] // 6 + np.array([0, 40, 60])
    for i in range(6):
        images = {"leftImg8bit": (ramp + i).astype(np.uint8)}
        images["gtFine_color"] = np.full((300, 600, 4), i, np.uint8)
        for kind, number in NUMBERS.items():
            images[kind] = np.full((300, 600), number + i, np.uint8 if number < 256 else np.uint16)
        for kind, image in images.items():
            stem = f"train/aachen/aachen_{i:06}_000019"
            path = root / "cityscapes" / kind.split("_")[0] / f"{stem}_{kind}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(imagecodecs.png_encode(image))
        (path.parents[3] / "gtFine" / f"{stem}_gtFine_polygons.json").write_text("{}")
    path.unlink()  # the disparity of the last scene, which the pipeline leaves out
    (line,) = "".join(_blocks("bash")).splitlines()
    program, *arguments = shlex.split(line)
    assert program == "l3"
    command = [sys.executable, "-m", "l3dali", *arguments]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    assert "--labels marked 6 gray, 6 gray of 16 bits" in done.stdout
    return root


def test_walk_is_short() -> None:
    assert len(_blocks("bash")) == 1
    walk, without_dali = _blocks("python")
    assert "nvidia" not in without_dali
    lines = [line for line in (_blocks("bash")[0] + walk).splitlines() if line.strip()]
    assert len(lines) <= 13
    assert max(map(len, lines)) <= 100


def test_is_read_in_three_minutes() -> None:
    assert len(README.splitlines()) <= 120
    assert len(README.split()) <= 800
    prose = re.sub(r"```.*?```|<!--.*?-->|^[|!].*?$|\]\(.*?\)", "", README, flags=re.S | re.M)
    assert len(prose.split()) <= 500  # as people read aloud: 165 words a minute


def test_pages_install_from_a_clone() -> None:
    """No package index has l3dali yet."""
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        assert "pip install 'l3dali" not in page.read_text(), page.name


CHECK = """
import numpy as np

expected = {"classes": 7, "ids": 26001, "disparity": 2930}
rgb = [np.array(image) for image in rgb.as_cpu()]
assert {image.shape for image in rgb} == {(3, 256, 512)}
for name, first in expected.items():
    maps = [np.array(each) for each in globals()[name].as_cpu()]
    assert {(each.shape, each.dtype.name) for each in maps} == {((256, 512, 1), "int64")}
    numbers = [each.min() for each in maps]
    assert numbers == [each.max() for each in maps], name
    # The number of the scene, which its photograph has too.
    assert [image[0, 0, 0] - (22 + 44) // 6 for image in rgb] == [n - first for n in numbers]
    assert len(set(numbers)) == 4
"""


@pytest.mark.dali
def test_walk_ends_in_a_batch(folder: Path) -> None:
    command = [sys.executable, "-c", _blocks("python")[0] + CHECK]
    subprocess.run(command, cwd=folder, check=True)


@pytest.mark.dali
@pytest.mark.cuda
def test_walk_ends_in_a_batch_on_the_gpu(folder: Path) -> None:
    code = _blocks("python")[0].replace("device_id=None", "device_id=0")
    code, count = re.subn(r"(l3dali\.fn\.\w+\(\w+, )", r'\1device="mixed", ', code)
    assert count == 2
    subprocess.run([sys.executable, "-c", code + CHECK], cwd=folder, check=True)


CHECK_WITHOUT_DALI = """
for numbers, first in ((classes, 7), (ids, 26001), (disparity, 2930)):
    assert numbers.dtype == torch.int64 and numbers.shape == (1, 300, 600)
    assert first <= numbers.min() == numbers.max() < first + 6
assert l3dali.info(data).labels and window.shape == (24, 32)
"""


@pytest.mark.torch
def test_walk_without_dali(folder: Path) -> None:
    code = _blocks("python")[1] + CHECK_WITHOUT_DALI
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)


def test_tables_are_what_was_measured() -> None:
    tool = ROOT / "tools" / "fill_readme.py"
    done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or f"run python {tool.relative_to(ROOT)}"
