"""Python's decoders without DALI."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.cpu.case import Result, in_turns
from benchmarks.peers import CROP, HEIGHT, PNG, WIDTH, images, l3_encoder, large_images
from benchmarks.report import table

import l3dali

BATCH = 24
Part = tuple[str, dict[str, Any]]


def python_decode(data: Path, rounds: int = 20) -> Result:
    """Decoders of Python without DALI: threads, windows, and the time of the import.

    `decode_batch`: images of Kodak, to arrays that are there; the best time of each by the clock.
    Windows: anywhere, one thread, CPU time, on the images of the case `roi`. Imports: medians, in
    new interpreters.
    """
    parts = {
        "threads": measure_threads(data, rounds),
        "windows": measure_windows(data, rounds),
        "import": measure_import(rounds),
    }
    text = "\n".join(text for text, _ in parts.values())
    return Result(text, {name: found for name, (_, found) in parts.items()})


def measure_threads(data: Path, rounds: int) -> Part:
    """`decode_batch` on one thread and on two, beside PNG's decoder on one."""
    pictures = [image for _, image in images(data, "photo/kodak")][:BATCH]
    pngs = [bytes(PNG.encode(image)) for image in pictures]
    calls: dict[str, Callable[[], object]] = {
        PNG.name: lambda: [PNG.decode(one) for one in pngs],
    }
    for mode in l3dali.CODINGS:
        files = [l3_encoder(mode)(image) for image in pictures]
        outs = [np.empty_like(image) for image in pictures]
        for threads in (1, 2):
            calls[f"{mode} {threads}"] = functools.partial(
                l3dali.decode_batch, files, threads=threads, out=outs
            )
    spent = in_turns(calls, rounds, time.perf_counter, what="threads")
    best = {name: float(seconds.min()) for name, seconds in spent.items()}
    results: dict[str, Any] = {
        mode: {
            "one_ms": best[f"{mode} 1"] * 1e3,
            "two_over_one": best[f"{mode} 1"] / best[f"{mode} 2"],
            "x_png": best[PNG.name] / best[f"{mode} 1"],
        }
        for mode in l3dali.CODINGS
    }
    columns = {"one thread, ms": "{one_ms:.1f}", "two threads, x one": "{two_over_one:.2f}"}
    columns |= {"one thread, x PNG on one": "{x_png:.1f}"}
    text = f"## `l3dali.decode_batch` of {len(pictures)} images\n\n"
    return text + table("mode", results, columns), results


def measure_windows(data: Path, rounds: int) -> Part:
    """`decode(window=)` beside the whole image; places are random."""
    random = np.random.default_rng(1)
    pictures = large_images(data)
    results: dict[str, Any] = {}
    for mode in l3dali.CODINGS:
        files = [l3_encoder(mode)(image) for image in pictures]

        def windows(files: list[bytes] = files) -> None:
            for file in files:
                top, left = random.integers(0, (HEIGHT - CROP + 1, WIDTH - CROP + 1))
                l3dali.decode(file, window=(top, left, CROP, CROP), threads=1)

        def wholes(files: list[bytes] = files) -> None:
            for file in files:
                l3dali.decode(file, threads=1)

        spent = in_turns({"window": windows, "whole": wholes}, rounds, what=f"windows, {mode}")
        ms = {name: float(seconds.mean()) / len(files) * 1e3 for name, seconds in spent.items()}
        results[mode] = {"whole_ms": ms["whole"], "window_ms": ms["window"]}
        results[mode]["ratio"] = ms["window"] / ms["whole"]
    columns = {"whole, CPU ms": "{whole_ms:.2f}", "window, CPU ms": "{window_ms:.3f}"}
    columns["window / whole"] = "{ratio:.1%}"
    text = f"## `l3dali.decode(window=...)`: {CROP} x {CROP} in {WIDTH} x {HEIGHT}\n\n"
    return text + table("mode", results, columns), results


def measure_import(rounds: int) -> Part:
    """What `import l3dali` takes beyond NumPy, in new interpreters."""
    calls = {
        name: functools.partial(subprocess.run, [sys.executable, "-c", code], check=True)
        for name, code in {"numpy": "import numpy", "l3dali": "import numpy, l3dali"}.items()
    }
    spent = in_turns(calls, rounds, time.perf_counter, what="import")
    beyond_ms = float(np.median(spent["l3dali"] - spent["numpy"])) * 1e3
    numpy_ms = float(np.median(spent["numpy"])) * 1e3
    text = f"## `import l3dali`\n\n{beyond_ms:.0f} ms beyond an interpreter that imports NumPy, "
    text += f"which takes {numpy_ms:.0f} ms.\n"
    return text, {"numpy_ms": numpy_ms, "beyond_ms": beyond_ms}
