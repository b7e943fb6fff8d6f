"""Volumes beside blosc2 as nnU-Net sets it, .nii.gz and Zarr: bytes, and speed of patches.

    python benchmarks/volumes.py DIR --nnunet27 SOURCES --nnunet28 SOURCES --out FILE.md

DIR has folders of `.nii.gz` and `.tif`, one for each kind of volume (`ct`, `mr`, `labels`, ...).
SOURCES are unpacked packages of nnunetv2, whose shapes of chunks and blocks are used. Needs blosc2,
nibabel, tifffile and zarr.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gzip
import itertools
import math
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
import typing
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blosc2
import nibabel
import numpy as np
import numpy.typing as npt
import tifffile
import zarr

import l3dali
from l3dali import codec

Array = npt.NDArray[Any]
SIDE = 96
PATCHES = 12
ROUNDS = 5
NAMES = ("L3 rans", "L3 packed", "blosc2 2.7", "blosc2 2.8", ".nii.gz", "Zarr zstd")


def read(path: Path) -> Array:
    """The volume in integers, (D, H, W)."""
    if path.suffix == ".tif":
        return np.asarray(tifffile.imread(path))
    image = nibabel.load(path)
    array = np.asanyarray(image.dataobj.get_unscaled())
    if array.dtype.itemsize > 2:
        kinds = ("uint8", "int16", "uint16")
        array = next(a for a in (array.astype(k) for k in kinds) if np.array_equal(a, array))
    return np.ascontiguousarray(array.transpose(2, 1, 0))


def shapes_by(sources: Path) -> Callable[..., tuple[tuple[int, ...], tuple[int, ...]]]:
    """The function of nnU-Net that gives shapes of blocks and chunks."""
    text = next(sources.rglob("training/dataloading/nnunet_dataset.py")).read_text()
    nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]
    (found,) = (n for n in nodes if n.name == "comp_blosc2_params")
    found.decorator_list = []
    known: dict[str, Any] = {**vars(typing), "np": np, "math": math, "deepcopy": copy.deepcopy}
    exec(compile(ast.Module([found], []), "nnunet", "exec"), known)
    return known["comp_blosc2_params"]  # type: ignore[no-any-return]


def write_blosc2(
    array: Array, path: Path, shapes: Callable[..., Any], cparams: dict[str, Any]
) -> None:
    blocks, chunks = shapes((1, *array.shape), (SIDE,) * 3, array.dtype.itemsize)
    blosc2.asarray(
        array[None],
        urlpath=str(path),
        chunks=tuple(map(int, chunks)),
        blocks=tuple(map(int, blocks)),
        cparams=cparams,
    )


def bytes_of(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(each.stat().st_size for each in files if each.is_file())


class Formats:
    """A volume as files of all formats."""

    def __init__(self, array: Array, labels: bool, folder: Path, shapes: list[Any]) -> None:
        self.array, self.folder = array, folder
        self.paths = {name: folder / name.replace(" ", "_") for name in NAMES}
        for coding in ("rans", "packed"):
            data = l3dali.encode_volume(array, coding=coding, labels=labels, threads=2)
            self.paths[f"L3 {coding}"].write_bytes(data)
        write_blosc2(
            array,
            self.paths["blosc2 2.7"],
            shapes[0],
            {"codec": blosc2.Codec.ZSTD, "clevel": 8},
        )
        sizes = []
        for kind in (blosc2.Filter.NOFILTER, blosc2.Filter.SHUFFLE):  # 2.8 takes the smaller
            path = folder / f"28{kind.name}"
            write_blosc2(
                array,
                path,
                shapes[1],
                {"codec": blosc2.Codec.LZ4HC, "clevel": 5, "filters": [kind]},
            )
            sizes.append((bytes_of(path), path))
        self.paths["blosc2 2.8"] = min(sizes)[1]
        image = nibabel.Nifti1Image(array.transpose(2, 1, 0), np.eye(4), dtype=array.dtype)
        self.paths[".nii.gz"] = folder / "a.nii.gz"
        self.paths[".nii.gz"].write_bytes(gzip.compress(image.to_bytes(), 6))
        zarr.create_array(str(self.paths["Zarr zstd"]), data=array, chunks=(64, 64, 64))
        for name in NAMES:
            window = (0, 0, 0, *array.shape)
            assert np.array_equal(self.patch(name, window), array), name

    def patch(self, name: str, window: tuple[int, ...]) -> Array:
        path = str(self.paths[name])
        z, y, x, d, h, w = window
        cut = slice(z, z + d), slice(y, y + h), slice(x, x + w)
        if name.startswith("L3"):
            return l3dali.decode_volume(path, window=window, max_pixels=None)  # type: ignore[arg-type]
        if name.startswith("blosc2"):
            opened = blosc2.open(path, mode="r", mmap_mode="r", dparams={"nthreads": 1})
            place = (slice(1), *cut)
            return np.asarray(opened[place]).reshape(d, h, w)
        if name == ".nii.gz":
            image = nibabel.load(path)
            whole = np.asanyarray(image.dataobj.get_unscaled()).transpose(2, 1, 0)
            return np.asarray(whole[cut])
        return np.asarray(zarr.open_array(path, mode="r")[cut])

    def bytes_read(self, name: str, window: tuple[int, ...]) -> float:
        """Of the file, for a patch; None where all of it is read."""
        z, y, x, d, h, w = window
        path = self.paths[name]
        if name.startswith("L3"):
            data = path.read_bytes()
            info = l3dali.info(data)
            assert info.volume is not None
            rows = info.volume.rows
            windows: list[codec.Window | None] = [(i * rows + y, x, h, w) for i in range(z, z + d)]
            batch = codec.open_batch([data] * d, windows, None)
            return sum(end - begin for begin, end in batch.ranges(4096)[0])
        if name.startswith("blosc2"):
            opened = blosc2.open(str(path), mode="r")
            spans = zip((0, z, y, x), (1, d, h, w), opened.chunks, opened.shape, strict=True)
            counts = [-(-s // c) for s, c in zip(opened.shape, opened.chunks, strict=True)]
            touched = [range(a // c, (a + n - 1) // c + 1) for a, n, c, _ in spans]
            total = 0.0
            for place in itertools.product(*touched):
                number = int(np.ravel_multi_index(place, counts))
                share = 1.0
                for at, c, b, a, n in zip(
                    place, opened.chunks, opened.blocks, (0, z, y, x), (1, d, h, w), strict=True
                ):
                    low, high = max(a - at * c, 0), min(a + n - at * c, c)
                    share *= (-(-high // b) - low // b) / -(-c // b)
                _, cbytes, _ = blosc2.get_cbuffer_sizes(opened.schunk.get_chunk(number))
                total += share * cbytes
            return total
        return math.nan


def measure(formats: Formats, rng: np.random.Generator) -> dict[str, dict[str, float]]:
    size = [min(SIDE, side) for side in formats.array.shape]
    rooms = [s - n + 1 for s, n in zip(formats.array.shape, size, strict=True)]
    windows = [(*(int(rng.integers(r)) for r in rooms), *size) for _ in range(PATCHES)]
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        for name in NAMES:
            begin = time.process_time()
            for window in windows if name != ".nii.gz" else windows[:1]:
                formats.patch(name, window)
            count = 1 if name == ".nii.gz" else len(windows)
            times[name].append((time.process_time() - begin) / count)
    return {
        name: {
            "bytes": bytes_of(formats.paths[name]),
            "time": min(times[name]),
            "read": statistics.mean(formats.bytes_read(name, w) for w in windows),
        }
        for name in NAMES
    }


def mean(values: list[float]) -> float:
    return math.exp(statistics.mean(map(math.log, values)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nnunet27", type=Path, required=True)
    parser.add_argument("--nnunet28", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    blosc2.set_nthreads(1)
    zarr.config.set({"threading.max_workers": 1, "async.concurrency": 1})
    shapes = [shapes_by(options.nnunet27), shapes_by(options.nnunet28)]
    rng = np.random.default_rng(0)
    found: dict[str, list[dict[str, dict[str, float]]]] = defaultdict(list)
    rows = []
    for path in sorted(options.folder.glob("*/*")):
        kind, array = path.parent.name, read(path)
        folder = Path(tempfile.mkdtemp())
        result = measure(Formats(array, kind == "labels", folder, shapes), rng)
        shutil.rmtree(folder)
        found[kind].append(result)
        sizes = " | ".join(f"{result[name]['bytes']:.0f}" for name in NAMES)
        shape = " x ".join(map(str, array.shape))
        rows.append(f"| {kind} | {path.name} | {shape} {array.dtype} | {array.nbytes} | {sizes} |")
        print(rows[-1], flush=True)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    machine = platform.processor() or platform.machine()
    columns = "bytes / 2.7 | bytes / 2.8 | speed / 2.7 | speed / 2.8 | read / 2.8"
    text = [
        "# Volumes",
        "",
        f"Commit {commit}, {time.strftime('%Y-%m-%d')}, {machine}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}; blosc2 {blosc2.__version__}, zarr {zarr.__version__}. "
        "`benchmarks/volumes.py` says how.",
        "",
        f"Geometric means. Patches have {SIDE} x {SIDE} x {SIDE} voxels, or less where a volume "
        "has, and are read on one thread; speeds are by CPU time. Ratios are to blosc2 as "
        "nnU-Net 2.7 and 2.8 set it.",
        "",
        f"| kind | volumes | format | {columns} |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind, results in [*found.items(), ("all", [r for each in found.values() for r in each])]:
        for name in NAMES:
            cells = []
            for peer in ("blosc2 2.7", "blosc2 2.8"):
                cells.append(mean([r[name]["bytes"] / r[peer]["bytes"] for r in results]))
            for peer in ("blosc2 2.7", "blosc2 2.8"):
                cells.append(mean([r[peer]["time"] / r[name]["time"] for r in results]))
            cells.append(mean([r[name]["read"] / r["blosc2 2.8"]["read"] for r in results]))
            shown = " | ".join("" if math.isnan(c) else f"{c:.2f}" for c in cells)
            text.append(f"| {kind} | {len(results)} | {name} | {shown} |")
    text += ["", "Bytes:", "", f"| kind | volume | shape | raw | {' | '.join(NAMES)} |"]
    text += ["|---" * (4 + len(NAMES)) + "|", *rows]
    options.out.write_text("\n".join(text) + "\n")
    print("\n".join(text))


if __name__ == "__main__":
    main()
