"""The README's "Ten lines" run as printed, and the tables are what was measured."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
from PIL import Image

import l3dali

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SECTION = README[README.index("## Ten lines") : README.index("## Data sets")]
RESULTS = sorted((ROOT / "benchmarks" / "results").rglob("*.json"))


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Photographs and palette masks, and what the README's commands make of them."""
    for name in ("images", "masks"):
        (tmp_path / "png" / name).mkdir(parents=True)
    ramp = np.add.outer(np.arange(300), np.arange(400))[..., None] // 4 + np.array([0, 40, 60])
    for i, name in enumerate("abcdef"):
        image = (ramp + i).astype(np.uint8)
        (tmp_path / "png" / "images" / f"{name}.png").write_bytes(imagecodecs.png_encode(image))
        mask = Image.fromarray(np.full((300, 400), i, np.uint8), mode="P")
        mask.putpalette([200, 10, 10, 10, 200, 10] * 3)
        mask.save(tmp_path / "png" / "masks" / f"{name}.png")
    for line in "".join(_blocks("bash")).splitlines():
        program, *arguments = shlex.split(line)
        if program == "pip":
            continue  # what tests/tools/test_build.py and every run of these tests are about
        assert program == "l3"
        subprocess.run([sys.executable, "-m", "l3dali", *arguments], cwd=tmp_path, check=True)
    return tmp_path


def test_walk_is_ten_commands_and_lines() -> None:
    assert len(_blocks("bash")) == 1
    walk, without_dali = _blocks("python")
    assert "import l3dali.plugin" not in without_dali
    lines = [line for line in (_blocks("bash")[0] + walk).splitlines() if line.strip()]
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 100


def test_is_read_in_three_minutes() -> None:
    assert len(README.splitlines()) <= 120
    assert len(README.split()) <= 900
    prose = re.sub(r"```.*?```|<!--.*?-->|^[|!].*?$|\]\(.*?\)", "", README, flags=re.S | re.M)
    assert len(prose.split()) <= 500  # as people read aloud: 165 words a minute


def test_pages_install_from_a_clone() -> None:
    """No package index has l3dali yet."""
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        assert "pip install 'l3dali" not in page.read_text(), page.name


CHECK = """
import numpy as np

images, masks = images.as_cpu(), masks.as_cpu()
assert len(images) == len(masks) == 4
for image, mask in zip(images, masks):
    assert image.shape() == [3, 256, 256] and mask.shape() == [256, 256, 1]
    number = np.array(mask)[0, 0, 0]  # of the class, and of the image that it belongs to
    assert np.array(image)[0, 0, 0] - number == (22 + 72) // 4, "images and masks are paired"
assert len({np.array(mask)[0, 0, 0] for mask in masks}) == 4
"""


@pytest.mark.dali
def test_walk_ends_in_a_batch(folder: Path) -> None:
    command = [sys.executable, "-c", _blocks("python")[0] + CHECK]
    subprocess.run(command, cwd=folder, check=True)
    assert np.unique(l3dali.imread(folder / "l3" / "masks" / "f.l3")).tolist() == [5]


@pytest.mark.dali
@pytest.mark.cuda
def test_walk_ends_in_a_batch_on_the_gpu(folder: Path) -> None:
    code = _blocks("python")[0].replace("device_id=None", "device_id=0")
    code, count = re.subn(r"(fn\.l3\.\w+\()", r'\1device="mixed", encoded=', code)
    assert count == 2
    code = re.sub(r'device="mixed", encoded=(\w+), ', r'\1, device="mixed", ', code)
    subprocess.run([sys.executable, "-c", code + CHECK], cwd=folder, check=True)


def test_example_without_dali() -> None:
    subprocess.run([sys.executable, "-c", _blocks("python")[1]], check=True)


def test_tables_are_what_was_measured() -> None:
    tool = ROOT / "tools" / "fill_readme.py"
    done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or f"run python {tool.relative_to(ROOT)}"


def test_sizes_agree_among_the_results() -> None:
    """Those of size.py and of cpu.py are of one encoder."""
    sizes, speeds = (
        json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
        for name in ("size", "speed")
    )
    both = (sizes.keys() & speeds.keys()) - {"made", "load"}
    assert "photo/kodak" in both
    for name in both:
        for codec, total in speeds[name].items():
            if codec != "JXL e1":  # whose bytes depend on the processor: 0.05 % here
                assert total["bytes"] == sizes[name][codec], (name, codec)


def test_results_are_found() -> None:
    assert len(RESULTS) >= 6


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_results_name_their_origin(path: Path) -> None:
    if (path.parent / "host.json").exists():  # written by programs of C++; the host stands there
        path = path.parent / "host.json"
    result = json.loads(path.read_text())
    made = result["made"]
    assert re.fullmatch(r"[0-9a-f]{7,}", made["commit"])
    assert made["machine"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", made["date"])
    page = path.with_suffix(".md")
    if page.exists():
        assert f"Code of commit {made['commit']}." in page.read_text()
