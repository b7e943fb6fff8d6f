"""What `l3 encode`, `verify` and `bench` make of images: palettes, labels, sizes, limits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import child_environment
from numpy.typing import NDArray

import l3dali
from l3dali.cli import main, reading
from l3dali.cli.reading import MemoryBudget, available_memory
from l3dali.images.picture import Picture
from l3dali.images.reading import read_picture
from l3dali.images.writing import write_picture

PIL_Image = pytest.importorskip("PIL.Image")
imagecodecs = pytest.importorskip("imagecodecs")
pytest.importorskip("rich")

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
    assert "--palette index keeps their class numbers" in error
    assert main(["verify", str(out), "--source", str(masks)]) == 0
    assert "palette images compared by their colours: 3;" in capsys.readouterr().err


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
        ["bench", photo, "--repeat", "1"],
    ]
    for command in commands:
        capsys.readouterr()
        assert main([*command, "--max-pixels", "1999"]) == 2
        assert "50 x 40 pixels are more than the limit of 1999" in capsys.readouterr().err
        assert main([*command, "--max-pixels", f"{2**31 + 1}"]) == 2
        assert "is over the limit 2147483648 of L3" in capsys.readouterr().err


# Memory.


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for what will be; a minute, if it never is."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


MEASURED = """
import sys

import peaks
from l3dali.cli import main, reading

class Budget(reading.MemoryBudget):
    def reserve(self, size):
        taken.append(size)
        return super().reserve(size)

def encode(path, *options):
    assert main(["encode", path, "-o", path + ".l3", *sys.argv[3:], *options]) == 0
    return peaks.peak()

reading.MemoryBudget, taken = Budget, []
before = encode(sys.argv[1], "--max-side", "10")
print(encode(sys.argv[2]) - before, taken[1])
"""


def measured(folder: Path, suffix: str, *options: str) -> tuple[int, int]:
    """What encoding a large image took more than a small one did, and what was set aside."""
    paths = [str(folder / f"{name}{suffix}") for name in ("small", "large")]
    command = [sys.executable, "-c", MEASURED, *paths, *options]
    environment = child_environment()
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    took, set_aside = map(int, done.stdout.split()[-2:])
    return took, set_aside


@pytest.mark.parametrize(
    "options",
    [[], ["-j", "16", "--effort", "9"]],
    ids=" ".join,
)
@pytest.mark.parametrize("channels", [1, 3])
def test_encoding_takes_what_is_set_aside(
    tmp_path: Path, channels: int, options: list[str]
) -> None:
    """By the samples alone, gray in small tiles took three times as much, as did many threads."""
    for name, side in (("small.png", 20), ("large.png", 2000)):
        noise = np.random.default_rng(0).integers(0, 3, (side, side, channels))
        pixels = (noise + np.arange(side)[:, np.newaxis] // 7 % 200).astype(np.uint8)
        (tmp_path / name).write_bytes(write_picture(Picture(pixels.squeeze()), ".png"))
    took, set_aside = measured(tmp_path, ".png", "-j", "1", *options)
    assert took <= set_aside, (took / 4e6, set_aside / 4e6)


RUN = """
import sys
from l3dali.cli import main
from peaks import peak
assert main(sys.argv[1:]) == 0
print(peak())
"""


def test_what_many_jobs_verify_is_counted(tmp_path: Path) -> None:
    """Each held the pixels of its L3 file while one was compared."""
    (tmp_path / "s").mkdir()
    data = write_picture(Picture(np.zeros((5000, 5000), np.uint8)), ".png")
    for number in range(8):
        (tmp_path / "s" / f"{number}.png").write_bytes(data)
    source, made = str(tmp_path / "s"), str(tmp_path / "made")
    assert main(["encode", source, "-o", made]) == 0
    for more in ([], ["--source", source]):
        peaks = []
        for jobs in ("1", "8"):
            limits = ["-j", jobs, "--memory", "100", "--quiet"]
            run = [sys.executable, "-c", RUN, "verify", made, *more, *limits]
            environment = child_environment()
            done = subprocess.run(run, capture_output=True, text=True, check=True, env=environment)
            peaks.append(int(done.stdout.split()[-1]))
        assert peaks[1] < peaks[0] + 110e6, peaks


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


def test_large_requests_are_not_overtaken() -> None:
    budget, order = MemoryBudget(10), []

    def work(size: int) -> None:
        with budget.reserve(size):
            order.append(size)

    threads = [threading.Thread(target=work, args=(size,)) for size in (8, 1)]
    with budget.reserve(5):
        for number, thread in enumerate(threads, 1):
            thread.start()
            wait_until(lambda number=number: len(budget._waiting) == number)  # type: ignore[misc]
        assert order == []
    for thread in threads:
        thread.join()
    assert order == [8, 1]


def test_memory_is_given_back_when_the_work_fails() -> None:
    budget = MemoryBudget(10)
    for _ in range(3):
        with pytest.raises(KeyError), budget.reserve(9):
            raise KeyError
    with budget.reserve(10):
        pass


def test_available_memory_is_within_the_control_group(monkeypatch: pytest.MonkeyPatch) -> None:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < available_memory() <= physical
    monkeypatch.setattr(reading, "cgroup_bytes", lambda: 4096)
    assert available_memory() == 4096
