"""Instructions that 64-bit ARM executes for a photograph, with NEON and without.

    python -m benchmarks.cpu.aarch64 --data ../shared/data

A count is no time: a vector instruction may take longer than a scalar one. It does not depend on
the machine or its load. Decoding without NEON is the scalar core's; the encoder is built a second
time without it. Needs g++-aarch64-linux-gnu and qemu-user, whose plugin counts.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
from benchmarks.report import RESULTS, markdown_table, write_results
from numpy.typing import NDArray
from PIL import Image

import l3dali

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "aarch64"
WITHOUT_NEON = ROOT / "build" / "aarch64-scalar"
SIDE_PX = 512
MODES: tuple[Literal["packed", "rans"], ...] = ("packed", "rans")
EFFORT = 5


def build(folder: Path, targets: list[str], *flags: str) -> None:
    """Builds what is counted."""
    options = ["L3_DALI=OFF", "L3_BUILD_PYTHON=OFF", "L3_BUILD_TESTS=ON", *flags]
    options += ["CMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake"]
    defines = [f"-D{option}" for option in options]
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, *defines], check=True)
    subprocess.run(["cmake", "--build", folder, "--parallel", "--target", *targets], check=True)


def count(plugin: Path, program: Path, before: list[str], after: list[str]) -> int:
    """What one more repetition executes. Their number goes between the arguments."""
    counts = []
    for times in (1, 2):
        command = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-plugin", str(plugin)]
        command += [str(program), *before, str(times), *after]
        run = subprocess.run(command, check=True, capture_output=True, text=True)
        counts.append(int(run.stderr))
    return counts[1] - counts[0]


def count_image(
    image: NDArray[Any], mode: Literal["packed", "rans"], plugin: Path, folder: Path
) -> dict[str, dict[str, float]]:
    """Instructions a sample, by what is done: with NEON and without."""
    file, pixels = folder / "image.l3", folder / "image.raw"
    file.write_bytes(l3dali.encode(image, coding=mode, effort=EFFORT))
    pixels.write_bytes(image.tobytes())
    shape = [str(n) for n in (image.shape[1], image.shape[0], image.shape[2], 8 * image.itemsize)]
    counts: dict[str, dict[str, float]] = {}
    for label, engine, encoder in (("without", "scalar", WITHOUT_NEON), ("NEON", "auto", BUILD)):
        decode = BUILD / "l3_decode_times"
        to_image = count(plugin, decode, [engine, "image"], [str(file)])
        to_planes = count(plugin, decode, [engine, "planes"], [str(file)])
        encoded = count(
            plugin, encoder / "l3_encode_times", [mode, str(EFFORT)], [*shape, str(pixels)]
        )
        for what, instructions in (
            ("decode", to_image),
            ("store as normalized planes of halves", to_planes - to_image),
            ("encode", encoded),
        ):
            counts.setdefault(what, {})[label] = instructions / image.size
    return counts


def main() -> None:
    """Counts, and writes benchmarks/results/aarch64.{json,md}."""
    parser = argparse.ArgumentParser(description="Instructions of aarch64 for a photograph")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    build(BUILD, ["l3_decode_times", "l3_encode_times"])
    without = "CMAKE_CXX_FLAGS=-march=armv8-a+nosimd -Wno-psabi"
    build(WITHOUT_NEON, ["l3_encode_times"], without)
    photo = sorted((options.data / "photo").rglob("*.png"))[0]
    pixels = np.asarray(Image.open(photo).convert("RGB"))[:SIDE_PX, :SIDE_PX].copy()
    images = {"RGB, 8 bits": pixels, "RGB, 16 bits": pixels.astype(np.uint16) * 257}
    images["RGB, 16 bits"] += np.random.default_rng(1).integers(0, 256, pixels.shape, np.uint16)
    per_sample: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        plugin = Path(folder) / "count.so"
        source = ROOT / "benchmarks" / "cpu" / "instruction_count.c"
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", plugin, source], check=True)
        for name, image in images.items():
            for mode in MODES:
                per_sample[f"{name}, {mode}"] = count_image(image, mode, plugin, Path(folder))
    rows = [
        [name, what, f"{n['without']:.1f}", f"{n['NEON']:.1f}", f"{n['without'] / n['NEON']:.2f}"]
        for name, counts in per_sample.items()
        for what, n in counts.items()
    ]
    table = markdown_table(["image", "", "without NEON", "NEON", "ratio"], rows)
    text = (
        f"\nInstructions a sample, counted by a plugin of qemu: {photo.name}, {pixels.shape[1]} x "
        f"{pixels.shape[0]} of its pixels, checks included, effort {EFFORT}.\n"
        "The 16-bit image has eight bits of noise. Storing is what decoding to planes takes\n"
        "beyond decoding to the image as stored.\n\n"
    )
    data = {"photo": photo.name, "instructions_per_sample": per_sample}
    write_results("aarch64", "64-bit ARM", text + table, data, options.out)


if __name__ == "__main__":
    main()
