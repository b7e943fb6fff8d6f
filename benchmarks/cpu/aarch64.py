"""Instructions that 64-bit ARM executes, with NEON and without."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import numpy as np
from benchmarks.cpu.case import Result
from benchmarks.peers import L3_CODINGS, Image, l3_encoder, read_image
from benchmarks.report import table

import l3dali

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "aarch64"
WITHOUT_NEON = ROOT / "build" / "aarch64-scalar"
SIDE_PX = 512


def aarch64(data: Path) -> Result:
    """Instructions that 64-bit ARM executes for a photograph, with NEON and without.

    A count is no time: a vector instruction may take longer than a scalar one. It does not depend
    on the machine or its load. Decoding without NEON is the scalar core's; the encoder is built a
    second time without it. Needs g++-aarch64-linux-gnu and qemu-user, whose plugin counts. Checks
    are included. The 16-bit image has eight bits of noise. Storing is what decoding to planes takes
    beyond decoding to the image as stored.
    """
    build(BUILD)
    build(WITHOUT_NEON, "CMAKE_CXX_FLAGS=-U__aarch64__ -march=armv8-a+nosimd -Wno-psabi")
    photo = sorted((data / "photo").rglob("*.png"))[0]
    pixels = np.ascontiguousarray(read_image(photo)[:SIDE_PX, :SIDE_PX, :3])
    noise = np.random.default_rng(1).integers(0, 256, pixels.shape, np.uint16)
    images = {"RGB, 8 bits": pixels, "RGB, 16 bits": pixels.astype(np.uint16) * 257 + noise}
    with tempfile.TemporaryDirectory() as folder:
        plugin = Path(folder) / "count.so"
        source = ROOT / "benchmarks" / "cpu" / "instruction_count.c"
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", plugin, source], check=True)
        per_sample = {
            f"{name}, {mode}": count_image(image, mode, plugin, Path(folder))
            for name, image in images.items()
            for mode in L3_CODINGS
        }
    rows = {
        f"{name}: {what}": {**counts, "ratio": counts["without"] / counts["NEON"]}
        for name, of_image in per_sample.items()
        for what, counts in of_image.items()
    }
    columns = {"without NEON": "{without:.1f}", "NEON": "{NEON:.1f}", "ratio": "{ratio:.2f}"}
    text = (
        f"Instructions a sample of {photo.name}, {pixels.shape[1]} x {pixels.shape[0]} pixels:\n\n"
    )
    found = {"photo": photo.name, "instructions_per_sample": per_sample}
    return Result(text + table("image", rows, columns), found)


def build(folder: Path, *flags: str) -> None:
    """Builds what is counted."""
    options = ["L3_DALI=OFF", "L3_BUILD_PYTHON=OFF", "L3_BUILD_TESTS=ON", *flags]
    options += ["CMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake"]
    defines = [f"-D{option}" for option in options]
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, *defines], check=True)
    target = ["--parallel", "--target", "l3_codec_times"]
    subprocess.run(["cmake", "--build", folder, *target], check=True)


def count(plugin: Path, folder: Path, *arguments: object) -> int:
    """What one more repetition executes; "TIMES" among the arguments stands for their number."""
    counts = []
    for times in ("1", "2"):
        command = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-plugin", str(plugin)]
        command += [str(folder / "l3_codec_times"), *map(str, arguments)]
        command = [times if word == "TIMES" else word for word in command]
        counts.append(int(subprocess.run(command, check=True, capture_output=True).stderr))
    return counts[1] - counts[0]


def count_image(
    image: Image, mode: l3dali.Coding, plugin: Path, folder: Path
) -> dict[str, dict[str, float]]:
    """Instructions a sample, by what is done: with NEON and without."""
    file, pixels = folder / "image.l3", folder / "image.raw"
    file.write_bytes(l3_encoder(mode)(image))
    pixels.write_bytes(image.tobytes())
    shape = (image.shape[1], image.shape[0], image.shape[2], 8 * image.itemsize)
    counts: dict[str, dict[str, float]] = {}
    for label, engine, encoder in (("without", "scalar", WITHOUT_NEON), ("NEON", "auto", BUILD)):
        to_image, to_planes = (
            count(plugin, BUILD, "decode", engine, output, "TIMES", file)
            for output in ("image", "planes")
        )
        for what, instructions in (
            ("decode", to_image),
            ("store as normalized planes of halves", to_planes - to_image),
            ("encode", count(plugin, encoder, "encode", mode, "TIMES", *shape, pixels)),
        ):
            counts.setdefault(what, {})[label] = instructions / image.size
    return counts
