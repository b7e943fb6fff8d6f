"""What `l3 encode` and `verify` make of images: palettes, labels, sizes, limits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_tools import images_in
from convert_tools import write_files

import l3dali
from l3dali.cli import main
from l3dali.images.formats import write_picture
from l3dali.images.picture import Picture
from l3dali.images.reading import read_picture

pytestmark = pytest.mark.usefixtures("in_process")  # as in test_cli.py

NOISE = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)


@pytest.fixture
def masks(tmp_path: Path) -> Path:
    """A folder of three palette images, a gray mask and a photograph."""
    pictures = {"gray.png": Picture(NOISE[:, :, 0] // 100), "photo.png": Picture(NOISE)}
    palette = b"".join(bytes([i, i + 1, i + 2, 255]) for i in range(9))
    for seed in range(3):
        numbers = np.random.default_rng(seed).integers(0, 9, (40, 5), np.uint8).repeat(10, 1)
        pictures[f"palette{seed}.png"] = Picture(numbers, palette=palette)
    files = {name: write_picture(picture, ".png") for name, picture in pictures.items()}
    return write_files(tmp_path / "masks", files)


# Palettes and labels.


def test_palette_images_that_become_colours_are_counted(
    masks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = masks.parent / "l3"
    assert main(["encode", *images_in(masks), "-o", str(out)]) == 0
    error = capsys.readouterr().err
    assert "l3: palette images that became colours: 3;" in error
    assert "--palette index keeps the numbers" in error
    assert main(["verify", str(out), "--source", str(masks)]) == 0


# Sizes.


def test_max_side_and_its_verification(masks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = masks.parent / "l3"
    options = ["-o", str(out), "--labels", "--max-side", "25", "--verify"]
    assert main(["encode", *images_in(masks), *options]) == 0
    assert l3dali.imread(out / "photo.l3").shape == (20, 25, 3)
    numbers = read_picture((masks / "palette1.png").read_bytes(), palette="index").pixels
    assert np.array_equal(l3dali.imread(out / "palette1.l3"), numbers[1::2, 1::2])
    against = ["verify", str(out), "--source", str(masks)]
    assert main([*against, "--max-side", "25"]) == 0
    capsys.readouterr()
    assert main(against) == 2
    kinds = "50 x 40, channels: 3, 8 bits; the result 25 x 20, channels: 3, 8 bits\n"
    assert f"photo.l3: the source is {kinds}" in capsys.readouterr().err


def test_max_pixels(masks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photo = str(masks / "photo.png")
    assert main(["encode", photo, "--max-pixels", "2000"]) == 0
    commands = [
        ["encode", photo, "--overwrite"],
        ["verify", str(masks / "photo.l3"), "--source", photo],
    ]
    for command in commands:
        capsys.readouterr()
        assert main([*command, "--max-pixels", "1999"]) == 2
        assert "50 x 40 pixels are more than the limit of 1999" in capsys.readouterr().err
        assert main([*command, "--max-pixels", f"{2**31 + 1}"]) == 2
        assert "is not a number from 1 to 2147483648" in capsys.readouterr().err
