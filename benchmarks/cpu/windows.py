"""Many windows of an image through DALI on the CPU, beside the whole image and single crops.

    python -m benchmarks.cpu.windows --data ../shared/data

Pipelines take turns, a batch each, and their CPU times are summed, less those of the same pipelines
without the decoder: what else the machine does disturbs all alike. Images are those of
benchmarks/cpu/roi.py.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import nvidia.dali as dali
from benchmarks.cpu.roi import BATCH, cpu_seconds, pipeline, write_files
from benchmarks.peers import PNG, machine
from benchmarks.report import RESULTS, markdown_table, write_results
from benchmarks.scenes import CROP, HEIGHT, WIDTH, make_images
from nvidia.dali import fn

COUNT = 16


def anchors_of(kind: str) -> Callable[[Any], Any]:
    """Anchors for a sample: of windows at one place, or spread so that they overlap by half."""
    rng = np.random.default_rng(1)

    def draw(_: Any) -> Any:
        top, left = rng.integers(0, (HEIGHT - CROP, WIDTH - CROP))
        if kind == "same":
            return np.full((COUNT, 2), (top, left), np.int32)
        if kind == "anywhere":
            return rng.integers(0, (HEIGHT - CROP, WIDTH - CROP), (COUNT, 2)).astype(np.int32)
        steps = np.argwhere(np.ones((4, 4))) * (CROP // 2)
        room = np.array((HEIGHT, WIDTH)) - CROP - 3 * (CROP // 2)
        corner = np.array((top, left)) * room // (HEIGHT - CROP, WIDTH - CROP)
        return (corner + steps).astype(np.int32, order="C")

    return draw


def windows(kind: str, operator: bool) -> Callable[[Any], Any]:
    def define(encoded: Any) -> Any:
        anchors = fn.external_source(anchors_of(kind), batch=False)
        if not operator:
            return [encoded, anchors]
        return fn.l3.decode_windows(encoded, anchors, window=(CROP, CROP))

    return define


def crops(operator: bool) -> Callable[[Any], Any]:
    """One place, as many times."""

    def define(encoded: Any) -> Any:
        anchors = fn.external_source(anchors_of("same"), batch=False)
        if not operator:
            return [encoded, anchors]
        y, x = anchors[0, 0], anchors[0, 1]
        where = {
            "crop_pos_y": fn.cast(y, dtype=dali.types.FLOAT) / (HEIGHT - CROP),
            "crop_pos_x": fn.cast(x, dtype=dali.types.FLOAT) / (WIDTH - CROP),
        }
        # Arguments differ, or DALI would run one operator for all.
        return [
            fn.l3.decode_crop(encoded, crop=(CROP, CROP), max_pixels=2**28 - i, **where)
            for i in range(COUNT)
        ]

    return define


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with the sets; without, made images")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    definitions: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
        "whole": (fn.l3.decode, lambda encoded: encoded),
        "crops": (crops(True), crops(False)),
        "windows, one place": (windows("same", True), windows("same", False)),
        "windows, half over each other": (windows("half", True), windows("half", False)),
        "windows, anywhere": (windows("anywhere", True), windows("anywhere", False)),
    }
    results: dict[str, Any] = {}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(make_images(args.data), Path(folder))
        for codec in (name for name in files if name != PNG.name):
            pipes = {
                f"{name}{' alone' * alone}": pipeline(files[codec], BATCH, 1, pair[alone])
                for name, pair in definitions.items()
                for alone in (False, True)
            }
            spent = cpu_seconds(pipes, args.rounds, codec)
            milliseconds = {
                name: (spent[name] - spent[f"{name} alone"]) / BATCH * 1e3 for name in definitions
            }
            results[codec] = {
                name: {
                    "ms": ms,
                    "of_whole": ms / milliseconds["whole"],
                    "of_crops": ms / milliseconds["crops"],
                }
                for name, ms in milliseconds.items()
            }
            rows += [
                [
                    f"{codec}: {name}",
                    f"{r['ms']:.2f}",
                    f"{r['of_whole']:.2f}",
                    f"{r['of_crops']:.2f}",
                ]
                for name, r in results[codec].items()
            ]
    head = ["what", "CPU ms an image", "/ whole", "/ crops"]
    text = (
        f"{machine()}, DALI {dali.__version__}. Images: "
        f"{'photo/large' if args.data else 'noisy waves'} of {WIDTH} x {HEIGHT}; CPU time, in "
        f"turns; one thread, batches of {BATCH}, {args.rounds} rounds; load before the run "
        f"{load:.1f}.\n\n{COUNT} windows of {CROP} x {CROP} by `fn.l3.decode_windows`, beside the "
        f"whole image and {COUNT} times `fn.l3.decode_crop` at one place.\n\n"
        + markdown_table(head, rows)
    )
    results["load"] = load
    write_results("windows", "Many windows of an image", text, results, args.out)


if __name__ == "__main__":
    main()
