"""Instructions that 64-bit ARM executes to decode a photograph, by NEON and by the scalar core.

    python -m benchmarks.cpu.aarch64 --data ../shared/data

A count is no time: a vector instruction may take longer than a scalar one. It does not depend on
the machine or its load. Needs g++-aarch64-linux-gnu and qemu-user, whose plugin counts, and what
`make test-aarch64` configures.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np
from benchmarks.report import RESULTS, markdown_table, write_results
from PIL import Image

import l3dali

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "aarch64"
SIDE_PX = 512
ENGINES = {"scalar": "scalar", "NEON": "auto"}
MODES: tuple[Literal["packed", "rans"], ...] = ("packed", "rans")
EFFORT = 5


def count_instructions(engine: str, times: int, file: Path, plugin: Path) -> int:
    """What a process executes that decodes `file` so many times."""
    command = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-plugin", str(plugin)]
    command += [str(BUILD / "l3_decode_times"), engine, str(times), str(file)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stderr)


def main() -> None:
    """Counts, and writes benchmarks/results/aarch64.{json,md}."""
    parser = argparse.ArgumentParser(description="Instructions of aarch64 that decode a photograph")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    subprocess.run(["cmake", "--build", BUILD, "--target", "l3_decode_times"], check=True)
    photo = sorted((options.data / "photo").rglob("*.png"))[0]
    pixels = np.asarray(Image.open(photo).convert("RGB"))[:SIDE_PX, :SIDE_PX].copy()
    images = {"RGB, 8 bits": pixels, "RGB, 16 bits": pixels.astype(np.uint16) * 257}
    images["RGB, 16 bits"] += np.random.default_rng(1).integers(0, 256, pixels.shape, np.uint16)
    per_sample: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        plugin, file = Path(folder) / "count.so", Path(folder) / "image.l3"
        source = ROOT / "benchmarks" / "cpu" / "instruction_count.c"
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", plugin, source], check=True)
        for name, image in images.items():
            for mode in MODES:
                file.write_bytes(l3dali.encode(image, mode=mode, effort=EFFORT))
                counts = {}
                for label, engine in ENGINES.items():
                    once, twice = (count_instructions(engine, n, file, plugin) for n in (1, 2))
                    counts[label] = (twice - once) / image.size
                per_sample[f"{name}, {mode}"] = counts
    rows = []
    for name, counts in per_sample.items():
        scalar, neon = counts["scalar"], counts["NEON"]
        rows.append([name, f"{scalar:.1f}", f"{neon:.1f}", f"{scalar / neon:.2f}"])
    table = markdown_table(["image", "scalar core", "NEON", "ratio"], rows)
    text = (
        f"\nInstructions a sample, counted by a plugin of qemu: {photo.name}, {pixels.shape[1]} x "
        f"{pixels.shape[0]} of its pixels, checks included.\n"
        "The 16-bit image has eight bits of noise.\n\n"
    )
    data = {"photo": photo.name, "instructions_per_sample": per_sample}
    write_results("aarch64", "64-bit ARM", text + table, data, options.out)


if __name__ == "__main__":
    main()
