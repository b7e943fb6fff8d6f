"""Images and folders for the tests of the command `l3`."""

from __future__ import annotations

import sys
from pathlib import Path

import convert_tools
import imagecodecs
from convert_tools import Image

L3 = [sys.executable, "-m", "l3dali"]


def image(seed: int = 0, channels: int = 3) -> Image:
    """A small smooth image, unlike those of other seeds: 40 x 50 pixels."""
    return convert_tools.image(seed, channels, 40, 50)


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
