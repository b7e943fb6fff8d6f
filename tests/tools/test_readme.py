"""The README's programs run as printed, and the tables are what was measured."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import imagecodecs
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SECTION = README[README.index("## Cityscapes") : README.index("## Data sets")]


def _blocks(language: str, text: str = SECTION) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


NUMBERS = {"gtFine_labelIds": 7, "gtFine_instanceIds": 26001, "disparity": 2930}
SCENES = 7
# Folders of the results whose names would mislead a program that looks for a part of a path.
PLACES = ("l3", "a/leftImg8bit/train/gtFine/aachen/aachen_000001_000019_disparity")


def _run(line: str, folder: Path) -> str:
    program, *arguments = shlex.split(line, comments=True)
    assert program == "l3"
    command = [sys.executable, "-m", "l3dali", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cityscapes, small, with the names of its files; and what the README's command makes of it."""
    root = tmp_path_factory.mktemp("walk")
    ramp = np.add.outer(np.arange(300), np.arange(600))[..., None] // 6 + np.array([0, 40, 60])
    for i in range(SCENES + 1):
        images = {"leftImg8bit": (ramp + i).astype(np.uint8)}
        images["gtFine_color"] = np.full((300, 600, 4), i, np.uint8)
        for kind, number in NUMBERS.items():
            images[kind] = np.full((300, 600), number + i, np.uint8 if number < 256 else np.uint16)
        city = ("aachen", "bochum")[i % 2]
        for kind, image in images.items():
            stem = f"train/{city}/{city}_{i // 2:06}_000019"
            path = root / "cityscapes" / kind.split("_")[0] / f"{stem}_{kind}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(imagecodecs.png_encode(image))
        (path.parents[3] / "gtFine" / f"{stem}_gtFine_polygons.json").write_text("{}")
    path.unlink()  # the disparity of the last scene, which the program leaves out
    (line,) = "".join(_blocks("bash")).splitlines()
    done = _run(line, root)
    assert f"--labels marked {SCENES + 1} gray, {SCENES + 1} gray of 16 bits" in done
    for place in PLACES[1:]:
        shutil.copytree(root / "l3", root / place)
    return root


def test_is_read_in_three_minutes() -> None:
    assert len(README.split()) <= 850
    prose = re.sub(r"```.*?```|<!--.*?-->|^[|!].*?$|\]\(.*?\)", "", README, flags=re.S | re.M)
    assert len(prose.split()) <= 500  # as people read aloud: 165 words a minute
    assert (
        max(len(line) for block in _blocks("python", README) for line in block.split("\n")) <= 100
    )


def test_a_fresh_machine_needs_two_commands() -> None:
    """Both are targets of the Makefile, and CI runs the second."""
    install = README[README.index("## Install") : README.index("## First image")]
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert re.search(rf"^make {target} ", install, re.MULTILINE)
        assert re.search(rf"^{target}: ", makefile, re.MULTILINE)
    assert re.search(r"^make .*\btest\b", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)


@pytest.mark.dali
def test_first_image(tmp_path: Path) -> None:
    first = README[README.index("## First image") : README.index("## Cityscapes")]
    photo = np.random.default_rng(1).integers(0, 256, (30, 40, 3), np.uint8)
    (tmp_path / "photo.png").write_bytes(imagecodecs.png_encode(photo))
    (line,) = "".join(_blocks("bash", first)).splitlines()
    _run(line, tmp_path)
    (program,) = _blocks("python", first)
    check = """
import imagecodecs
import numpy as np

photo = imagecodecs.imread("photo.png")
assert np.array_equal(image, photo) and np.array_equal(images[0], photo)
"""
    subprocess.run([sys.executable, "-c", program + check], cwd=tmp_path, check=True)


def test_pages_install_from_a_clone() -> None:
    """No package index has l3dali yet."""
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        assert "pip install 'l3dali" not in page.read_text(), page.name


def _program(folder: Path, place: str, absolute: bool, block: int, check: str) -> str:
    """Runs the list of the scenes and one block behind it; returns what they print."""
    lists, *rest = _blocks("python")
    root = repr(str(folder / place if absolute else Path(place)))
    lists, count = re.subn(r'Path\("l3"\)', f"Path({root})", lists)
    assert count == 1
    command = [sys.executable, "-c", lists + rest[block] + check]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


CHECK = """
import numpy as np

expected = {"classes": 7, "ids": 26001, "disparity": 2930}
seen = set()
for _ in range(2):
    photos = [np.array(image) for image in rgb.as_cpu()]
    assert {image.shape for image in photos} == {(3, 256, 512)}
    for name, first in expected.items():
        maps = [np.array(each) for each in globals()[name].as_cpu()]
        assert {(each.shape, each.dtype.name) for each in maps} == {((256, 512, 1), "int64")}
        numbers = [each.min() for each in maps]
        assert numbers == [each.max() for each in maps], name
        # The number of the scene, which its photograph has too.
        scene = [n - first for n in numbers]
        assert [image[0, 0, 0] - (22 + 44) // 6 for image in photos] == scene
        seen |= set(scene)
    rgb, classes, ids, disparity = pipe.run()
assert seen == set(range(7))
"""


@pytest.mark.dali
@pytest.mark.parametrize(("place", "absolute"), list(zip(PLACES, [False, True], strict=True)))
def test_scenes_are_paired(folder: Path, place: str, absolute: bool) -> None:
    keep_pipeline = "\npipe = training()\nrgb, classes, ids, disparity = pipe.run()\n"
    printed = _program(folder, place, absolute, 0, keep_pipeline + CHECK)
    image = f"{place}/leftImg8bit/train/bochum/bochum_000003_000019_leftImg8bit.l3"
    assert f"{image} is left out: no " in printed
    assert printed.endswith(f"{place}/disparity/train/bochum/bochum_000003_000019_disparity.l3\n")
    assert printed.count("left out") == 1


@pytest.mark.dali
@pytest.mark.cuda
def test_walk_ends_in_a_batch_on_the_gpu(folder: Path) -> None:
    lists, code, _ = _blocks("python")
    code = code.replace("device_id=None", "device_id=0")
    code, count = re.subn(r"(l3dali\.fn\.\w+\(\w+, )", r'\1device="mixed", ', code)
    assert count == 2
    code += "\npipe = training()\nrgb, classes, ids, disparity = pipe.run()\n"
    subprocess.run([sys.executable, "-c", lists + code + CHECK], cwd=folder, check=True)


CHECK_WITHOUT_DALI = """
import sys

assert "nvidia.dali" not in sys.modules
for numbers, first in ((classes, 7), (ids, 26001), (disparity, 2930)):
    assert numbers.dtype == torch.int64 and numbers.shape == (1, 300, 600)
    assert numbers.min() == numbers.max() == first
assert l3dali.info(data).labels and window.shape == (24, 32)
"""


@pytest.mark.torch
def test_walk_without_dali(folder: Path) -> None:
    _program(folder, "l3", absolute=False, block=1, check=CHECK_WITHOUT_DALI)


def test_tables_are_what_was_measured() -> None:
    tool = ROOT / "tools" / "fill_readme.py"
    done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or f"run python {tool.relative_to(ROOT)}"
