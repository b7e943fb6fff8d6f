"""Python's decoders without DALI."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.cpu.case import Result, in_turns
from benchmarks.peers import CROP, HEIGHT, PNG, WIDTH, Image, images, l3_encoder, large_images
from benchmarks.report import table

import l3dali

BATCH = 24
IN_A_ROW = 3
Part = tuple[str, dict[str, Any]]
Calls = dict[str, Callable[[], object]]


def python_decode(data: Path, rounds: int = 20) -> Result:
    """Decoders of Python without DALI: threads, windows, and the time of the import.

    `decode_batch`: to arrays that are there; 24 images of Kodak, or one of photo/large, and nine
    times that side by side; the best time of each by the clock. Two processes that share nothing
    do the same work at the same time; of the slower one the best time counts, and the speed is that
    of both. On a shared machine use a priority above other threads', as that of `chrt -f 10`.
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
    """`decode_batch` on one thread, on two, and in two processes; PNG's decoder and a copy too."""
    pictures = [image for _, image in images(data, "photo/kodak")][:BATCH]
    large = max((image for _, image in images(data, "photo/large")), key=lambda image: image.size)
    wholes = [large, np.tile(large, (3, 3, 1))]
    batches = {f"{len(pictures)} images": pictures}
    batches |= {f"one of {one.size / 3e6:.1f} megapixels": [one] for one in wholes}
    encoders = {mode: l3_encoder(mode) for mode in l3dali.CODINGS} | {PNG.name: PNG.encode}
    files = {
        (name, what): [bytes(encode(image)) for image in batch]
        for what, batch in batches.items()
        for name, encode in encoders.items()
    }
    ones, twos = make_calls(batches, files)
    calls = ones | {f"{name} 2": call for name, call in twos.items()}
    spent = in_turns(calls, rounds, time.perf_counter, what="threads")
    best = {name: float(seconds.min()) for name, seconds in spent.items()}
    both = in_two_processes(ones, lambda: make_calls(batches, files)[0], rounds)
    results: dict[str, Any] = {
        name: {
            "one_ms": best[name] / IN_A_ROW * 1e3,
            "two_over_one": best[name] / best[f"{name} 2"] if name in twos else None,
            "processes_over_one": 2 * best[name] / both[name],
            "x_png": best[f"{PNG.name}, {name.partition(', ')[2]}"] / best[name],
        }
        for name in ones
    }
    rows = {
        name: {**row, "two": f"{row['two_over_one']:.2f}" if name in twos else "-"}
        for name, row in results.items()
    }
    columns = {"one thread, ms": "{one_ms:.1f}", "two threads, x one": "{two}"}
    columns |= {"two processes, x one": "{processes_over_one:.2f}"}
    columns |= {"one thread, x PNG on one": "{x_png:.1f}"}
    return "## `l3dali.decode_batch`\n\n" + table("what, of what", rows, columns), results


def make_calls(
    batches: Mapping[str, list[Image]], files: Mapping[tuple[str, str], list[bytes]]
) -> tuple[Calls, Calls]:
    """All on one thread, and L3's on two, in memory of their own."""
    ones: Calls = {}
    twos: Calls = {}
    for what, batch in batches.items():
        outs = [np.empty_like(image) for image in batch]
        pngs = [bytes(bytearray(file)) for file in files[PNG.name, what]]
        ones[f"{PNG.name}, {what}"] = functools.partial(each, PNG.decode, pngs)
        ones[f"copy, {what}"] = functools.partial(
            each, np.copyto, outs, [image.copy() for image in batch]
        )
        for mode in l3dali.CODINGS:
            own = [bytes(bytearray(file)) for file in files[mode, what]]
            decode = functools.partial(l3dali.decode_batch, own, out=outs)
            ones[f"{mode}, {what}"] = functools.partial(decode, threads=1)
            twos[f"{mode}, {what}"] = functools.partial(decode, threads=2)
    return in_a_row(ones), in_a_row(twos)


def in_a_row(calls: Calls) -> Calls:
    """Each call some times: the first one finds the caches full of what others did."""
    return {
        name: functools.partial(each, lambda _, call=call: call(), range(IN_A_ROW))
        for name, call in calls.items()
    }


def each(function: Callable[..., object], *lists: Sequence[object]) -> None:
    """Calls the function with the items of the lists, one after another."""
    for items in zip(*lists, strict=True):
        function(*items)


def in_two_processes(
    calls: Calls, make_others: Callable[[], Calls], rounds: int
) -> dict[str, float]:
    """Least seconds of each call while another process does its own, of the slower one."""
    fork = multiprocessing.get_context("fork")
    begun = fork.RawArray("L", 2)
    seconds = {name: fork.RawArray("d", 2 * rounds) for name in calls}

    def work(me: int, calls: Calls) -> None:
        for turn, (k, name) in enumerate(itertools.product(range(rounds), seconds), 1):
            begun[me] = turn
            while begun[1 - me] < turn:  # awake, so that both begin together
                pass
            begin = time.perf_counter()
            calls[name]()
            seconds[name][2 * k + me] = time.perf_counter() - begin

    other = fork.Process(target=lambda: work(1, make_others()))
    other.start()
    work(0, calls)
    other.join()
    return {name: float(np.reshape(s, (rounds, 2)).max(1).min()) for name, s in seconds.items()}


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
