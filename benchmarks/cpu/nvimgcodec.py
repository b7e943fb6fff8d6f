"""DALI's `fn.decoders.image` on L3 files, by the extension, beside `fn.l3.decode` on the CPU.

    python -m benchmarks.cpu.nvimgcodec --data ../shared/data

A pipeline is alone in its turn (`take_turn` of pipeline.py); the operators take turns, and ratios
are of the same round. Memory that is freed stays the process's: whether glibc gives it back, for
each batch to be faulted in again, is luck, and takes either operator up to two thirds of its time.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import itertools
import statistics
import tempfile
from pathlib import Path
from typing import Any

import nvidia.dali as dali
from benchmarks.peers import Image, images, machine
from benchmarks.pipeline import (
    Configuration,
    Format,
    Turn,
    rounded,
    take_turn,
    why_not,
    write_files,
)
from benchmarks.report import RESULTS, markdown_table, write_results
from nvidia.dali import fn
from rich.progress import track

import l3dali
import l3dali.plugin

SETS = ("photo/kodak", "photo/large")
OPERATORS = ("fn.l3.decode", "fn.decoders.image")
BATCH = 16
TARGET = 0.85


def keep_memory() -> None:
    """Tells glibc to keep what is freed, and to take more than it needs."""
    mallopt = ctypes.CDLL(None).mallopt
    trim_threshold, top_pad = -1, -2
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(top_pad, 64 << 20)


def _decode_by_l3(files: list[str], device: str) -> Any:
    return fn.l3.decode(fn.readers.file(files=files)[0], device=device)


def _decode_by_nvimgcodec(files: list[str], device: str) -> Any:
    return fn.decoders.image(fn.readers.file(files=files)[0], device=device)


def measure(
    originals: list[Image], mode: l3dali.Coding, args: argparse.Namespace
) -> dict[str, Any]:
    """Images a second and CPU time of both operators, and the second's share of the first."""
    encode = functools.partial(l3dali.encode, coding=mode)
    loads = (_decode_by_l3, _decode_by_nvimgcodec)
    formats = [Format(n, encode, load) for n, load in zip(OPERATORS, loads, strict=True)]
    turns: dict[str, list[Turn]] = {name: [] for name in OPERATORS}
    with tempfile.TemporaryDirectory() as folder:
        files = write_files([encode(image) for image in originals], args.files, Path(folder, mode))
        for fmt in formats:
            if reason := why_not(fmt, files, originals[0], "cpu"):
                raise SystemExit(f"{fmt.name}: {reason}")
        for _, fmt in track(list(itertools.product(range(args.rounds), formats)), mode):
            what = Configuration(fmt, args.threads, BATCH)
            turns[fmt.name].append(take_turn(what, files, "cpu", args.seconds))
    ours, theirs = (turns[name] for name in OPERATORS)
    shares = [t.images_per_s / o.images_per_s for o, t in zip(ours, theirs, strict=True)]
    cpu = [o.cpu_s_per_1000 / t.cpu_s_per_1000 for o, t in zip(ours, theirs, strict=True)]
    return {
        "images_per_s": {
            name: statistics.median(turn.images_per_s for turn in turns[name]) for name in OPERATORS
        },
        "share": statistics.median(shares),
        "shares": [min(shares), max(shares)],
        "cpu_share": statistics.median(cpu),
    }


def main(arguments: list[str] | None = None) -> None:
    """Measures, and writes nvimgcodec.md and .json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--files", type=int, default=64)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    keep_memory()
    rows = []
    for folder, mode in itertools.product(SETS, l3dali.CODINGS):
        originals = [image for _, image in images(args.data, folder)]
        if not originals:
            raise SystemExit(f"no images in {args.data / folder}")
        rows.append({"set": folder, "mode": mode, **measure(originals, mode, args)})
    text = (
        f"{machine()}, DALI {dali.__version__}. Files in the page cache to decoded batches of "
        f"{BATCH}, {args.threads} threads, {args.rounds} rounds of {args.seconds:g} s for each "
        f"operator; medians, ratios within a round. Target: {TARGET:.0%} of fn.l3.decode's images "
        f"a second.\n\n"
    )
    head = ["set", "mode", *(f"{name}: images/s" for name in OPERATORS)]
    head += ["images/s, second / first", "lowest", "highest", "CPU time, first / second"]
    text += markdown_table(
        head,
        [
            [
                row["set"],
                row["mode"],
                *(rounded(speed) for speed in row["images_per_s"].values()),
                f"{row['share']:.2f}",
                *(f"{share:.2f}" for share in row["shares"]),
                f"{row['cpu_share']:.2f}",
            ]
            for row in rows
        ],
    )
    data = {"rows": rows, "target": TARGET, "threads": args.threads}
    write_results("nvimgcodec", "fn.decoders.image on L3 files", text, data, args.out)


if __name__ == "__main__":
    main()
