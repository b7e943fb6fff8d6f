"""What `l3 encode` and `verify` make of images: palettes, labels, sizes, limits."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import l3dali
from l3dali.cli import main, reading
from l3dali.cli.reading import MemoryBudget, available_memory
from l3dali.images.formats import write_picture
from l3dali.images.picture import Picture
from l3dali.images.reading import read_picture

PIL_Image = pytest.importorskip("PIL.Image")
imagecodecs = pytest.importorskip("imagecodecs")

Image = NDArray[Any]


def image(height: int = 40, width: int = 50) -> Image:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


@pytest.fixture
def masks(tmp_path: Path) -> Path:
    """A folder of three palette images, a gray mask and a photograph."""
    folder = tmp_path / "masks"
    folder.mkdir()
    for seed in range(3):
        numbers = np.random.default_rng(seed).integers(0, 9, (40, 5), np.uint8).repeat(10, 1)
        palette = bytes(range(36))
        entries = np.frombuffer(palette, np.uint8).reshape(-1, 4).copy()
        entries[:, 3] = 255
        data = write_picture(Picture(numbers, palette=entries.tobytes()), ".png")
        (folder / f"palette{seed}.png").write_bytes(data)
    (folder / "gray.png").write_bytes(write_picture(Picture(image()[:, :, 0] // 100), ".png"))
    (folder / "photo.png").write_bytes(write_picture(Picture(image()), ".png"))
    return folder


# Palettes and labels.


def test_palette_images_that_become_colours_are_counted(
    masks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = masks.parent / "l3"
    assert main(["encode", str(masks), "-o", str(out)]) == 0
    error = capsys.readouterr().err
    assert "l3: palette images that became RGB: 3;" in error
    assert "--palette index keeps the class numbers" in error
    assert main(["verify", str(out), "--source", str(masks)]) == 0


# Sizes.


def test_max_side_and_its_verification(masks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = masks.parent / "l3"
    arguments = ["encode", str(masks), "-o", str(out), "--labels", "--max-side", "25", "--verify"]
    assert main(arguments) == 0
    assert l3dali.imread(out / "photo.l3").shape == (20, 25, 3)
    numbers = read_picture((masks / "palette1.png").read_bytes(), palette="index").pixels
    assert np.array_equal(l3dali.imread(out / "palette1.l3"), numbers[1::2, 1::2])
    against = ["verify", str(out), "--source", str(masks)]
    assert main([*against, "--max-side", "25"]) == 0
    capsys.readouterr()
    assert main(against) == 2
    kinds = "50 x 40, channels: 3, 8 bits; the L3 image 25 x 20, channels: 3, 8 bits\n"
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


# Memory.


def test_budget_is_never_exceeded() -> None:
    budget, lock, used = MemoryBudget(10), threading.Lock(), 0

    def work(size: int) -> None:
        nonlocal used
        with budget.reserve(size):
            with lock:
                used += min(size, 10)
                assert used <= 10
            with lock:
                used -= min(size, 10)

    with ThreadPoolExecutor(8) as pool:
        sizes = np.random.default_rng(0).integers(0, 25, 200)
        for future in [pool.submit(work, int(size)) for size in sizes]:
            future.result()
    assert used == 0


def test_memory_is_released_when_the_work_fails() -> None:
    budget = MemoryBudget(10)
    for _ in range(3):
        with pytest.raises(KeyError), budget.reserve(9):
            raise KeyError
    with budget.reserve(10):
        pass


@pytest.mark.parametrize("command", ["encode", "verify"])
def test_images_wait_for_memory(masks: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for one at a time, each image reserves at least twelve copies of its pixels."""
    assert main(["encode", str(masks), "-o", str(masks.parent / "l3")]) == 0
    reserved: list[int] = []
    reserve = MemoryBudget.reserve

    def note(self: MemoryBudget, size: int) -> Any:
        assert self._free in (0, 1)
        reserved.append(size)
        return reserve(self, size)

    monkeypatch.setattr(reading, "available_memory", lambda: 2)
    monkeypatch.setattr(MemoryBudget, "reserve", note)
    arguments = ["-o", str(masks.parent / "new")] if command == "encode" else ["--source", masks]
    inputs = masks if command == "encode" else masks.parent / "l3"
    assert main([command, str(inputs), *map(str, arguments), "-j", "4"]) == 0
    assert sum(size >= 12 * 40 * 50 for size in reserved) == 5


def test_available_memory_is_within_the_control_group(monkeypatch: pytest.MonkeyPatch) -> None:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < available_memory() <= physical
    monkeypatch.setattr(reading, "cgroup_bytes", lambda: 4096)
    assert available_memory() == 4096
