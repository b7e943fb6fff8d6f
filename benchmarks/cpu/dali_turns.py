"""Formats and operators through DALI on the CPU, each pipeline alone in its turn.

Turns are those of benchmarks/pipeline.py; ratios are of the same round.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import nvidia.dali as dali
from benchmarks.cpu.case import Result, keep_memory, median_ratio
from benchmarks.peers import L3_CODINGS, Image, images, l3_encoder
from benchmarks.pipeline import Configuration, Format, Turn, rounded, take_turn, write_files
from benchmarks.report import table
from nvidia.dali import fn
from rich.progress import track

import l3dali
import l3dali.plugin
from l3dali.images.geometry import shrink

BATCH = 16


def _read(files: list[str], device: str) -> Any:
    del device
    return fn.readers.file(files=files)[0]


def _decode_image(files: list[str], device: str) -> Any:
    return fn.decoders.image(_read(files, device), device=device)


def _decode_l3(files: list[str], device: str) -> Any:
    return fn.l3.decode(_read(files, device), device=device)


def read_images(data: Path, folder: str) -> list[Image]:
    """Those of a set; at least one."""
    found = [image for _, image in images(data, folder)]
    if not found:
        raise SystemExit(f"no images in {data / folder}")
    return found


def measure(
    formats: Sequence[Format],
    files: dict[str, list[str]],
    rounds: int,
    seconds: float,
    threads: int,
) -> dict[str, list[Turn]]:
    """The turns of each format on its files."""
    turns: dict[str, list[Turn]] = {fmt.name: [] for fmt in formats}
    for _, fmt in track(list(itertools.product(range(rounds), formats)), "turns"):
        what = Configuration(fmt, threads, BATCH)
        turns[fmt.name].append(take_turn(what, files[fmt.name], "cpu", seconds))
    return turns


def check(load: Callable[[list[str], str], Any], files: list[str]) -> Image:
    """The operator gives what the file holds; returns that."""
    with dali.Pipeline(1, 1, None) as pipe:
        pipe.set_outputs(load(files[:1], "cpu"))
    decoded = np.asarray(pipe.run()[0][0])
    if not np.array_equal(decoded, l3dali.imread(files[0]).reshape(decoded.shape)):
        raise SystemExit(f"{files[0]} does not come back")
    return decoded


# Small copies.

MAX_SIDE = 256
QUALITIES = (95, 90)
SUBSAMPLING = "420"  # as cameras and ImageNet mostly have it
JPEG, RESIZED, READER = "JPEG", f"JPEG, resized to {MAX_SIDE}", "reader alone"
# Originals: what they are called, the set, and the longer side that they are made smaller to.
ORIGINALS: tuple[tuple[str, str, int | None], ...] = (
    ("2 megapixels", "photo/large", None),
    ("768x512", "photo/kodak", None),
    ("made smaller to 500", "photo/large", 500),
    ("cut to 500x375", "photo/large@500x375", None),
)
COLUMNS = {
    "bytes an image": "{bytes:.0f}",
    "bytes / JPEG's": "{bytes_ratio:.2f}",
    "CPU ms an image": "{cpu_ms:.3f}",
    "images / CPU second": "{rate}",
    "JPEG's CPU time / its": "{jpeg}",
    "that of JPEG resized / its": "{resized}",
}


def shrunk(
    data: Path, rounds: int = 5, seconds: float = 0.5, threads: int = 1, files: int = 64
) -> Result:
    """JPEG files beside what `l3 encode --max-side 256` makes of them, through DALI on the CPU.

    Who trains on small images can decode and resize the original JPEGs each epoch, or keep small
    copies. Originals are made here: the photographs whole, cut, or made smaller themselves, as JPEG
    of two qualities with 4:2:0. The reader alone is a row too: all others hold it. Files in the
    page cache to decoded batches of 16; CPU time of the process, medians, ratios within a round.
    """
    text = ""
    results = []
    for name, folder, side in ORIGINALS:
        originals = read_images(data, folder)
        originals = [shrink(image, max_side=side) if side else image for image in originals]
        for quality in QUALITIES:
            found = measure_shrunk(originals, quality, files, rounds, seconds, threads)
            rows = {
                fmt: {
                    **numbers,
                    "rate": rounded(1000 / numbers["cpu_ms"]),
                    "jpeg": rounded(numbers["speed"]),
                    "resized": rounded(numbers["speed_beside_resized"]),
                }
                for fmt, numbers in found.items()
            }
            origin = f"{len(originals)} images of {folder.partition('@')[0]}"
            text += f"\n## JPEG {quality}, {name} ({origin})\n\n{table('files', rows, COLUMNS)}"
            row = {"originals": name, "set": folder, "images": len(originals)}
            results.append({**row, "quality": quality, "formats": found})
    return Result(text, {"rows": results})


def formats_of(quality: int) -> list[Format]:
    """The original JPEGs first: the others are compared with them."""

    def to_jpeg(image: Image) -> bytes:
        return bytes(imagecodecs.jpeg8_encode(image, level=quality, subsampling=SUBSAMPLING))

    def to_l3(mode: l3dali.Coding) -> Callable[[Image], bytes]:
        return lambda image: l3dali.transcode(to_jpeg(image), max_side=MAX_SIDE, coding=mode)

    def resize(files: list[str], device: str) -> Any:
        return fn.resize(_decode_image(files, device), resize_longer=MAX_SIDE)

    return [
        Format(JPEG, to_jpeg, _decode_image, lossless=False),
        Format(RESIZED, to_jpeg, resize, lossless=False),
        *(Format(f"L3 {mode}", to_l3(mode), _decode_l3) for mode in L3_CODINGS),
        Format(READER, to_l3("packed"), _read),
    ]


def measure_shrunk(
    originals: list[Image], quality: int, count: int, rounds: int, seconds: float, threads: int
) -> dict[str, dict[str, float]]:
    """Bytes and CPU time of each format: medians, and ratios of the same round to the JPEGs'."""
    chosen = formats_of(quality)
    with tempfile.TemporaryDirectory() as folder:
        sizes, files = {}, {}
        for i, fmt in enumerate(chosen):
            encoded = [fmt.encode(image) for image in originals]
            sizes[fmt.name] = statistics.mean(map(len, encoded))
            files[fmt.name] = write_files(encoded, count, Path(folder, str(i)))
            if fmt.load is _decode_l3:
                side = max(check(_decode_l3, files[fmt.name]).shape[:2])
                if side != MAX_SIDE:
                    raise SystemExit(f"{fmt.name} has a side of {side}, not {MAX_SIDE}")
        turns = measure(chosen, files, rounds, seconds, threads)
    spent = {name: [turn.cpu_s_per_1000 for turn in of_format] for name, of_format in turns.items()}
    return {
        name: {
            "bytes": sizes[name],
            "bytes_ratio": sizes[name] / sizes[JPEG],
            "cpu_ms": statistics.median(times),
            "speed": median_ratio(spent[JPEG], times),
            "speed_beside_resized": median_ratio(spent[RESIZED], times),
        }
        for name, times in spent.items()
    }


# DALI's own decoder.

SETS = ("photo/kodak", "photo/large")
OPERATORS = {"fn.l3.decode": _decode_l3, "fn.decoders.image": _decode_image}
TARGET = 0.85


def nvimgcodec(
    data: Path,
    sets: Sequence[str] = SETS,
    rounds: int = 9,
    seconds: float = 1.0,
    threads: int = 2,
    files: int = 64,
) -> Result:
    """DALI's `fn.decoders.image` on L3 files, by the extension, beside `fn.l3.decode` on the CPU.

    Memory that is freed stays the process's: whether glibc gives it back, for each batch to be
    faulted in again, is luck, and takes either operator up to two thirds of its time. Files in the
    page cache to decoded batches of 16; medians, ratios within a round. The target is 85 % of
    fn.l3.decode's images a second.
    """
    keep_memory()
    rows = {}
    for folder, mode in itertools.product(sets, l3dali.CODINGS):
        encode = l3_encoder(mode)
        formats = [Format(name, encode, load) for name, load in OPERATORS.items()]
        with tempfile.TemporaryDirectory() as name:
            encoded = [encode(image) for image in read_images(data, folder)]
            paths = write_files(encoded, files, Path(name, mode))
            for fmt in formats:
                check(fmt.load, paths)
            of_each = dict.fromkeys(OPERATORS, paths)
            ours, theirs = measure(formats, of_each, rounds, seconds, threads).values()
        speed = [[turn.images_per_s for turn in turns] for turns in (ours, theirs)]
        shares = np.array(speed[1]) / np.array(speed[0])
        rows[f"{folder}, {mode}"] = {
            "set": folder,
            "mode": mode,
            "images_per_s": dict(zip(OPERATORS, map(statistics.median, speed), strict=True)),
            "share": float(np.median(shares)),
            "shares": [float(shares.min()), float(shares.max())],
            "cpu_share": median_ratio(*([t.cpu_s_per_1000 for t in x] for x in (ours, theirs))),
        }
    columns = {f"{name}: images/s": f"{{images_per_s[{name}]:.0f}}" for name in OPERATORS}
    columns |= {"images/s, second / first": "{share:.2f}", "lowest": "{shares[0]:.2f}"}
    columns |= {"highest": "{shares[1]:.2f}", "CPU time, first / second": "{cpu_share:.2f}"}
    found = {"rows": list(rows.values()), "target": TARGET, "threads": threads}
    return Result(table("set, mode", rows, columns), found)
