"""Images and folders for the tests of the command `l3`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

imagecodecs = pytest.importorskip("imagecodecs")
PIL_Image = pytest.importorskip("PIL.Image")

Image = NDArray[Any]
L3 = [sys.executable, "-m", "l3dali"]
# The same where Ctrl-C counts, though who runs the tests may ignore it.
WITH_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
L3_WITH_CTRL_C = [sys.executable, "-c", f"{WITH_CTRL_C}; import l3dali.__main__"]


def image(seed: int = 0, channels: int = 3) -> Image:
    """A small smooth image, unlike those of other seeds."""
    shape = (40, 50) if channels == 1 else (40, 50, channels)
    steps = np.random.default_rng(seed).integers(0, 4, shape)
    return np.cumsum(steps, axis=1, dtype=np.uint8)


def write_png(path: Path, pixels: Image | None = None) -> Path:
    """Writes a PNG, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(imagecodecs.png_encode(image() if pixels is None else pixels))
    return path


def write_tree(root: Path) -> Path:
    """Three images in a tree, and two files that are none."""
    write_png(root / "one.png", image(1))
    write_png(root / "a" / "two.PNG", image(2))
    write_png(root / "a" / "b" / "three.png", image(3, channels=1))
    (root / "notes.txt").write_text("no image")
    (root / "a" / "README").write_text("no image")
    (root / "empty").mkdir()
    return root


def images_in(folder: Path) -> list[str]:
    """The names of the images in a folder tree."""
    return sorted(str(path) for path in folder.rglob("*") if path.suffix.lower() == ".png")


def write_copies(folder: Path, count: int, source: Path) -> Path:
    """A folder of so many links to one file."""
    folder.mkdir()
    for i in range(count):
        (folder / f"{i:03}{source.suffix}").hardlink_to(source)
    return folder


def files_below(folder: Path) -> set[str]:
    """All files of a folder tree, temporary ones too."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}
