"""The encoder writes the same bytes whatever compiled it: no library and no compiler rounds one."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import engines
import numpy as np
import pytest

pytest.importorskip("skimage")

import size_ledger

import l3dali

ROOT = Path(__file__).parents[2]
# Neither vectors nor fused multiply-adds; and both.
COMPILERS = {"g++": "-O0", "clang++": "-O1"}
CODINGS: list[tuple[l3dali.Coding, int]] = [("packed", 5), ("rans", 1), ("rans", 5), ("rans", 9)]


def find_compiler(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed: nothing says that it writes the same bytes")
    return path


def build(compiler: str, flags: str) -> Path:
    """A program that encodes, of the encoder as this compiler makes it."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("cmake is not installed")
    folder = ROOT / "build" / "compilers" / Path(compiler).name
    options = {
        "CMAKE_CXX_COMPILER": compiler,
        "CMAKE_BUILD_TYPE": "Debug",
        "CMAKE_CXX_FLAGS_DEBUG": flags,
        "L3_DALI": "OFF",
        "L3_CUDA": "OFF",
        "L3_BUILD_PYTHON": "OFF",
        "L3_BUILD_TESTS": "ON",
    }
    defines = [f"-D{name}={value}" for name, value in options.items()]
    target = "l3_encode_file"
    for command in (
        [cmake, "-S", str(ROOT), "-B", str(folder), *defines],
        [cmake, "--build", str(folder), "--target", target, "--parallel", "2"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return folder / target


def images() -> Iterator[tuple[str, engines.Samples]]:
    """A corner of every third image of the ledger, and of all that have more than four channels."""
    for i, (name, image, _) in enumerate(size_ledger.images()):
        pixels = image if image.ndim == 3 else image[..., None]
        if i % 3 == 0 or pixels.shape[2] > 4:
            yield name, np.ascontiguousarray(pixels[:90, :140])


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILERS)
def test_other_compilers_write_the_same_bytes(name: str, tmp_path: Path) -> None:
    flags = COMPILERS[name]
    if name == "clang++" and engines.is_available("avx2"):
        flags += " -march=x86-64-v3"  # has fused multiply-add, which clang uses where it may
    program = build(find_compiler(name), flags)
    pixels, output = tmp_path / "pixels", tmp_path / "encoded"
    wide = 0
    for image_name, image in images():
        pixels.write_bytes(image.tobytes())
        height, width, channels = image.shape
        wide += channels > 4
        for coding, effort in CODINGS:
            numbers = (effort, width, height, channels, 8 * image.itemsize)
            command = [str(program), coding, *map(str, numbers), str(pixels), str(output)]
            subprocess.run(command, check=True)
            ours = l3dali.encode(image, coding=coding, effort=effort)
            digests = [hashlib.sha256(data).hexdigest() for data in (ours, output.read_bytes())]
            assert digests[0] == digests[1], (image_name, coding, effort)
    assert wide >= 2


@pytest.mark.parametrize("source", sorted((ROOT / "encoder").glob("*.cc")), ids=lambda p: p.name)
def test_fast_math_is_an_error(source: Path) -> None:
    includes = [f"-I{ROOT / 'src'}", f"-I{ROOT}"]
    command = [find_compiler("g++"), "-std=c++17", "-O3", "-ffast-math", "-E", "-o", "/dev/null"]
    done = subprocess.run([*command, *includes, str(source)], capture_output=True, text=True)
    assert done.returncode != 0
    assert "without -ffast-math" in done.stderr
