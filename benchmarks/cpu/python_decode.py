"""Python's decoders without DALI: threads, windows, tensors, and the time of the import.

    python -m benchmarks.cpu.python_decode --data ../shared/data

Calls that are compared take turns: what else the machine does disturbs all alike. Threads: the best
time of each, by the clock. Windows: CPU time, on the images of benchmarks/cpu/roi.py. Imports: the
median of the differences.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.peers import PNG, images, machine
from benchmarks.report import RESULTS, markdown_table, write_results
from benchmarks.scenes import CROP, HEIGHT, WIDTH, make_images
from rich.progress import track

import l3dali

BATCH = 24
IMPORTS = {"numpy": "import numpy", "l3dali": "import numpy, l3dali"}


def in_turns(
    calls: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float], what: str
) -> dict[str, list[float]]:
    """Seconds of each call in each round."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for _ in track(range(rounds), description=what):
        for name, call in calls.items():
            begin = clock()
            call()
            spent[name].append(clock() - begin)
    return spent


def measure_threads(data: Path, rounds: int) -> tuple[str, dict[str, Any]]:
    """`decode_batch` on one thread and on two, beside PNG's decoder on one."""
    pictures = [image for _, image in images(data, "photo/kodak")][:BATCH]
    pngs = [bytes(PNG.encode(image)) for image in pictures]
    calls: dict[str, Callable[[], object]] = {
        PNG.name: lambda: [PNG.decode(one) for one in pngs],
    }
    for mode in l3dali.CODINGS:
        files = [l3dali.encode(image, coding=mode) for image in pictures]
        outs = [np.empty_like(image) for image in pictures]
        for threads in (1, 2):
            calls[f"{mode} {threads}"] = functools.partial(
                l3dali.decode_batch, files, threads=threads, out=outs
            )
    spent = in_turns(calls, rounds, time.perf_counter, "threads")
    best = {name: min(seconds) for name, seconds in spent.items()}
    results: dict[str, Any] = {
        mode: {
            "one_ms": best[f"{mode} 1"] * 1e3,
            "two_over_one": best[f"{mode} 1"] / best[f"{mode} 2"],
            "x_png": best[PNG.name] / best[f"{mode} 1"],
        }
        for mode in l3dali.CODINGS
    }
    rows = [
        [mode, f"{r['one_ms']:.1f}", f"{r['two_over_one']:.2f}", f"{r['x_png']:.1f}"]
        for mode, r in results.items()
    ]
    head = ["mode", "one thread, ms", "two threads, x one", "one thread, x PNG on one"]
    text = (
        f"## `l3dali.decode_batch`\n\n{len(pictures)} images of Kodak, to arrays that are there; "
        f"best of {rounds} rounds.\n\n" + markdown_table(head, rows)
    )
    return text, results


def measure_windows(data: Path | None, rounds: int) -> tuple[str, dict[str, Any]]:
    """`decode(window=)` beside the whole image; places are random."""
    random = np.random.default_rng(1)
    pictures = make_images(data)
    results: dict[str, Any] = {}
    for mode in l3dali.CODINGS:
        files = [l3dali.encode(image, coding=mode) for image in pictures]

        def windows(files: list[bytes] = files) -> None:
            for file in files:
                top, left = random.integers(0, (HEIGHT - CROP + 1, WIDTH - CROP + 1))
                l3dali.decode(file, window=(top, left, CROP, CROP))

        def wholes(files: list[bytes] = files) -> None:
            for file in files:
                l3dali.decode(file)

        calls = {"window": windows, "whole": wholes}
        spent = in_turns(calls, rounds, time.process_time, f"windows, {mode}")
        total = {name: sum(seconds) for name, seconds in spent.items()}
        count = rounds * len(files)
        results[mode] = {
            "whole_ms": total["whole"] / count * 1e3,
            "window_ms": total["window"] / count * 1e3,
            "ratio": total["window"] / total["whole"],
        }
    rows = [
        [mode, f"{r['whole_ms']:.2f}", f"{r['window_ms']:.3f}", f"{100 * r['ratio']:.1f} %"]
        for mode, r in results.items()
    ]
    text = (
        f"## `l3dali.decode(window=...)`\n\n{CROP} x {CROP} anywhere in {WIDTH} x {HEIGHT}, one "
        f"thread, {rounds} rounds of {len(pictures)} images.\n\n"
        + markdown_table(["mode", "whole, CPU ms", "window, CPU ms", "window / whole"], rows)
    )
    return text, results


def measure_import(rounds: int) -> tuple[str, dict[str, Any]]:
    """What `import l3dali` takes beyond NumPy, in new interpreters."""

    def run(code: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    spent = in_turns(
        {name: run(code) for name, code in IMPORTS.items()}, rounds, time.perf_counter, "import"
    )
    beyond = statistics.median(a - b for a, b in zip(spent["l3dali"], spent["numpy"], strict=True))
    milliseconds = {"numpy_ms": statistics.median(spent["numpy"]) * 1e3, "beyond_ms": beyond * 1e3}
    text = (
        f"## `import l3dali`\n\n{milliseconds['beyond_ms']:.0f} ms beyond an interpreter that "
        f"imports NumPy, which takes {milliseconds['numpy_ms']:.0f} ms; {rounds} rounds.\n"
    )
    return text, milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    parts = {
        "threads": measure_threads(args.data, args.rounds),
        "windows": measure_windows(args.data, args.rounds),
        "import": measure_import(args.rounds),
    }
    text = f"{machine()}, {os.cpu_count()} cores, load before the run {load:.1f}.\n\n"
    text += "\n".join(part for part, _ in parts.values())
    results = {"load": load, **{name: result for name, (_, result) in parts.items()}}
    write_results("python_decode", "Decoding without DALI", text, results, args.out)


if __name__ == "__main__":
    main()
