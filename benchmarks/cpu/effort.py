"""Bytes and encoding time of each effort of the rans mode, as ratios to the default effort.

    python -m benchmarks.cpu.effort --data ../shared/data

One thread. Efforts take turns on each image, round after round; the CPU time of the thread counts,
and each effort's least on each image.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.peers import Image, images, machine
from benchmarks.report import RESULTS, markdown_table, write_results
from rich.progress import track

import l3dali
from l3dali import codec

EFFORT_SETS = ("photo/kodak", "photo/large", "photo/gb82", "gray16/landsat8", "rgb16", "screen")
# Those between give the bytes of a neighbour.
EFFORTS = (1, 3, 5, 6, 7, 8, 9)
# Of larger images a piece is measured, so that a run ends.
MAX_PIXELS_A_SIDE = 2048


def encode_seconds(image: Image, effort: int) -> tuple[int, float]:
    """Bytes, and CPU seconds of this thread."""
    begin = time.thread_time()
    encoded = l3dali.encode(image, effort=effort, threads=1)
    return len(encoded), time.thread_time() - begin


def measure(data: Path, name: str, rounds: int) -> dict[str, dict[str, float]]:
    """By effort: bytes and seconds of a set. `lossless` is asserted of each file once."""
    totals = {str(effort): {"bytes": 0.0, "seconds": 0.0} for effort in EFFORTS}
    for path, whole in track(list(images(data, name)), description=name):
        image = whole[:MAX_PIXELS_A_SIDE, :MAX_PIXELS_A_SIDE]
        least = dict.fromkeys(EFFORTS, float("inf"))
        for turn in range(rounds):
            for effort in EFFORTS:
                size, seconds = encode_seconds(image, effort)
                least[effort] = min(least[effort], seconds)
                if turn == 0:
                    totals[str(effort)]["bytes"] += size
                    decoded = l3dali.decode(l3dali.encode(image, effort=effort))
                    if decoded.tobytes() != image.tobytes():
                        raise SystemExit(f"effort {effort} is not lossless on {path}")
        for effort in EFFORTS:
            totals[str(effort)]["seconds"] += least[effort]
    return totals


def page(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """A table for each set."""
    text = f"{machine()}. One thread; effort {codec.DEFAULT_EFFORT} is the default.\n"
    for name, totals in results.items():
        usual = totals[str(codec.DEFAULT_EFFORT)]
        rows = [
            [
                effort,
                f"{total['bytes']:.0f}",
                f"{total['bytes'] / usual['bytes']:.4f}",
                f"{total['seconds'] / usual['seconds']:.2f}",
            ]
            for effort, total in totals.items()
        ]
        head = ["effort", "bytes", "/ the default's", "CPU time / the default's"]
        text += f"\n## {name}\n\n" + markdown_table(head, rows)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=EFFORT_SETS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    results = {name: measure(args.data, name, args.rounds) for name in args.sets}
    write_results("effort", "Efforts of the rans mode", page(results), results, args.out)


if __name__ == "__main__":
    main()
