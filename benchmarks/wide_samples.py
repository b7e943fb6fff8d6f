"""Sizes and decode times of floats and 32-bit integers, beside TIFF, EXR, LERC and others.

    python benchmarks/wide_samples.py FOLDER [--sizes | --times] [--json FILE]

FOLDER has `KIND__NAME.npy` files, each an array (H, W) or (H, W, C); docs/dev/notes/samples.md
lists those that were measured, with their sources. Times are of one core,
minima of rounds in turns.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import tifffile
from numpy.typing import NDArray

import l3dali
from l3dali import _native

Array = NDArray[Any]
FIRST_PEERS = ("tiff deflate", "tiff zstd", "exr", "lerc", "blosc2", "npz")


def tiff(image: Array, compression: str) -> int:
    """A TIFF with predictor 3 for floats, 2 for integers; tiles of 256 pixels or one strip."""
    best = 0
    for rows in (64, image.shape[0]):
        file = io.BytesIO()
        predictor = 3 if image.dtype.kind == "f" else 2
        tifffile.imwrite(
            file, image, compression=compression, predictor=predictor, rowsperstrip=rows
        )  # fmt: skip
        best = min(best or len(file.getvalue()), len(file.getvalue()))
    return best


def exr(image: Array) -> int | None:
    """The smaller of ZIP and PIZ; uint32, half and float only."""
    import OpenEXR

    if image.dtype.name not in ("uint32", "float16", "float32"):
        return None
    planes = np.atleast_3d(image)
    channels = {f"c{i}": np.ascontiguousarray(planes[:, :, i]) for i in range(planes.shape[2])}
    sizes = []
    for compression in (OpenEXR.ZIP_COMPRESSION, OpenEXR.PIZ_COMPRESSION):
        file = io.BytesIO()
        header = {"compression": compression, "type": OpenEXR.scanlineimage}
        OpenEXR.File(header, dict(channels)).write(file)
        sizes.append(len(file.getvalue()))
    return min(sizes)


def npz(image: Array) -> int:
    file = io.BytesIO()
    np.savez_compressed(file, image)
    return len(file.getvalue())


def lerc(image: Array) -> int | None:
    wide = image.astype(np.float32) if image.dtype == np.float16 else image
    try:
        return len(imagecodecs.lerc_encode(wide, level=0.0, compression="zstd"))
    except (ValueError, RuntimeError, imagecodecs.LercError):  # NaNs
        return None


def jpegxl(image: Array) -> int | None:
    if image.dtype.kind != "f" or not np.isfinite(image).all():
        return None
    try:
        return len(imagecodecs.jpegxl_encode(image, lossless=True, effort=7))
    except (ValueError, RuntimeError, imagecodecs.JpegxlError):
        return None


def blosc2(image: Array) -> bytes:
    options = {"compressor": "zstd", "shuffle": "bitshuffle", "typesize": image.itemsize}
    return bytes(imagecodecs.blosc2_encode(image.tobytes(), level=5, numthreads=1, **options))


def sizes_of(image: Array) -> dict[str, int | None]:
    """Bytes by format; None where it cannot hold the image."""
    return {
        "l3 rans": len(l3dali.encode(image)),
        "l3 packed": len(l3dali.encode(image, coding="packed")),
        "tiff deflate": tiff(image, "zlib"),
        "tiff zstd": tiff(image, "zstd"),
        "exr": exr(image),
        "lerc": lerc(image),
        "blosc2": len(blosc2(image)),
        "npz": npz(image),
        "pcodec": len(imagecodecs.pcodec_encode(image.ravel(), level=8)),
        "jpegxl": jpegxl(image),
    }


def times_of(image: Array, rounds: int) -> dict[str, float]:
    """Seconds to decode, by format: the least of rounds in turns."""
    rans, packed, peer = l3dali.encode(image), l3dali.encode(image, coding="packed"), blosc2(image)
    out = np.empty_like(image)
    flat = out.reshape(-1).view(np.uint8)
    runs: dict[str, Callable[[], Any]] = {
        "l3 rans": lambda: l3dali.decode(rans, out=out),
        "l3 packed": lambda: l3dali.decode(packed, out=out),
        "blosc2": lambda: imagecodecs.blosc2_decode(peer, numthreads=1, out=flat),
    }
    best = dict.fromkeys(runs, math.inf)
    for _ in range(rounds):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def holding_of(image: Array) -> str:
    """table, halves or bits, as the encoder holds the samples."""
    return str(_native.info(l3dali.encode(image))["holding"])


def mean(numbers: list[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, numbers)) / len(numbers))


def main() -> None:
    """Prints a row for each image, then the means of each class."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--times", action="store_true", help="decode times in place of sizes")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows, classes = [], defaultdict(list)
    for path in sorted(options.folder.glob("*__*.npy")):
        image = np.load(path)
        kind, name = path.stem.split("__", 1)
        row: dict[str, Any] = {"kind": kind, "name": name, "dtype": image.dtype.name}
        row |= {"shape": image.shape, "holding": holding_of(image)}
        measured: dict[str, Any] = (
            times_of(image, options.rounds) if options.times else sizes_of(image)
        )
        row |= {"measured": measured}
        rows.append(row)
        group = "ids" if kind == "ids" else row["holding"]
        if options.times:
            classes[group].append(row)
            text = {n: f"{image.nbytes / t / 1e6:.0f} MB/s" for n, t in measured.items()}
        else:
            classes[group].append(row)
            text = {n: f"{8 * b / image.size:.2f}" for n, b in measured.items() if b}
        print(kind, name, row["dtype"], row["holding"], text, flush=True)
    for group, members in sorted(classes.items()):
        table = [member["measured"] for member in members]
        if options.times:
            ratios = {
                n: mean([m["blosc2"] / m[n] for m in table]) for n in ("l3 packed", "l3 rans")
            }
            print(group, len(table), "speed over blosc2:", ratios)
            continue
        first = mean([m["l3 rans"] / min(m[p] for p in FIRST_PEERS if m[p]) for m in table])
        peers = (*FIRST_PEERS, "pcodec", "jpegxl")
        best = mean([m["l3 rans"] / min(m[p] for p in peers if m[p]) for m in table])
        print(f"{group} {len(table)}: {first:.3f} of the best of the first, {best:.3f} of all")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
