"""Decoding of screens, drawings and label maps with match tiles beside decoding without them.

    python -m benchmarks.cpu.match --data ../shared/data

The program l3_match_times encodes each image both ways, with the same encoder, and decodes both
files in turn, on one thread, on each engine that the processor has; every pixel is compared. The
CPU time of the thread counts, the least of each file. The photographs are there to see that
nothing becomes slower: few of them have match tiles.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from benchmarks.peers import images, machine
from benchmarks.report import RESULTS, markdown_table, write_results
from rich.progress import track

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "release" / "l3_match_times"
MATCH_SETS = ("screen", "rgba8/openclipart", "mask", "photo/kodak")

Totals = dict[str, dict[str, float]]


def measure(data: Path, name: str, program: Path, rounds: int) -> Totals:
    """By engine: pixels, and bytes and seconds without match tiles and with them, of a set."""
    totals: Totals = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "image.raw"
        for path, image in track(list(images(data, name)), description=name):
            height, width = image.shape[:2]
            file.write_bytes(image.tobytes())
            shape = (width, height, image.size // (height * width), 8 * image.itemsize)
            command = [str(program), str(rounds), *map(str, shape), str(file)]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode != 0:
                raise SystemExit(f"{path}: {program.name} returned {run.returncode}")
            for line in run.stdout.splitlines():
                engine, *numbers = line.split()
                sums = totals.setdefault(engine, {})
                keys = ("bytes_without", "bytes", "seconds_without", "seconds")
                for key, number in zip(keys, numbers, strict=True):
                    sums[key] = sums.get(key, 0.0) + float(number)
                sums["pixels"] = sums.get("pixels", 0.0) + height * width
    return totals


def page(results: dict[str, Totals]) -> str:
    """A row for each set and engine."""
    rows = [
        [
            f"{name}, {engine}",
            f"{8 * sums['bytes_without'] / sums['pixels']:.3f}",
            f"{8 * sums['bytes'] / sums['pixels']:.3f}",
            f"{1e9 * sums['seconds_without'] / sums['pixels']:.2f}",
            f"{1e9 * sums['seconds'] / sums['pixels']:.2f}",
            f"{sums['seconds_without'] / sums['seconds']:.2f}",
        ]
        for name, totals in results.items()
        for engine, sums in totals.items()
    ]
    head = ["set, engine", "bits/pixel without match tiles", "with", "ns/pixel without", "with"]
    text = f"{machine()}. One thread; the last column is the speed with match tiles beside that\n"
    text += "without them.\n\n"
    return text + markdown_table([*head, "speed"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=MATCH_SETS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", type=Path, default=PROGRAM, help="l3_match_times of a build")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    sets = {name: measure(args.data, name, args.program, args.rounds) for name in args.sets}
    write_results("match", "Decoding with match tiles", page(sets), sets, args.out)


if __name__ == "__main__":
    main()
