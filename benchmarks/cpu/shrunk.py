"""JPEG files beside what `l3 encode --max-side 256` makes of them, through DALI on the CPU.

    python -m benchmarks.cpu.shrunk --data ../shared/data

Who trains on small images can decode and resize the original JPEGs each epoch, or keep small
copies. Originals are made here: the photographs whole, cut, or made smaller themselves, as JPEG of
two qualities. A pipeline is alone in its turn (`take_turn` of pipeline.py); formats take turns,
and ratios of CPU time are of the same round. The reader alone is a row too: all others hold it.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import nvidia.dali as dali
from benchmarks.peers import L3_MODES, Image, images, machine
from benchmarks.pipeline import Configuration, Format, rounded, take_turn, write_files
from benchmarks.report import RESULTS, markdown_table, write_results
from nvidia.dali import fn
from rich.progress import track

import l3dali
import l3dali.plugin
from l3dali.images.geometry import shrink

MAX_SIDE = 256
QUALITIES = (95, 90)
SUBSAMPLING = "420"  # as cameras and ImageNet mostly have it
JPEG, RESIZED, READER = "JPEG", f"JPEG, resized to {MAX_SIDE}", "reader alone"
BATCH = 16

# Originals: what they are called, the set, and the longer side that they are made smaller to.
ORIGINALS: tuple[tuple[str, str, int | None], ...] = (
    ("2 megapixels", "photo/large", None),
    ("768x512", "photo/kodak", None),
    ("made smaller to 500", "photo/large", 500),
    ("cut to 500x375", "photo/large@500x375", None),
)


def _read(files: list[str], device: str) -> Any:
    del device
    return fn.readers.file(files=files)[0]


def _decode_jpeg(files: list[str], device: str) -> Any:
    return fn.decoders.image(_read(files, device), device=device)


def _decode_and_resize(files: list[str], device: str) -> Any:
    return fn.resize(_decode_jpeg(files, device), resize_longer=MAX_SIDE)


def _decode_l3(files: list[str], device: str) -> Any:
    return fn.l3.decode(_read(files, device), device=device)


def formats(quality: int) -> list[Format]:
    """The original JPEGs first: the others are compared with them."""

    def to_jpeg(image: Image) -> bytes:
        return bytes(imagecodecs.jpeg8_encode(image, level=quality, subsampling=SUBSAMPLING))

    def to_l3(mode: l3dali.Coding) -> Callable[[Image], bytes]:
        return lambda image: l3dali.transcode(to_jpeg(image), max_side=MAX_SIDE, coding=mode)

    return [
        Format(JPEG, to_jpeg, _decode_jpeg, lossless=False),
        Format(RESIZED, to_jpeg, _decode_and_resize, lossless=False),
        *(Format(f"L3 {mode}", to_l3(mode), _decode_l3) for mode in L3_MODES),
        Format(READER, to_l3("packed"), _read),
    ]


def check(files: list[str]) -> None:
    """The operator gives what the file holds, of the size that was asked for."""
    with dali.Pipeline(1, 1, None) as pipe:
        pipe.set_outputs(_decode_l3(files[:1], "cpu"))
    decoded = np.asarray(pipe.run()[0][0])
    if max(decoded.shape[:2]) != MAX_SIDE or not np.array_equal(decoded, l3dali.imread(files[0])):
        raise SystemExit(f"{files[0]} does not come back")


def measure(originals: list[Image], quality: int, args: argparse.Namespace) -> dict[str, Any]:
    """Bytes and CPU time of each format: medians, and ratios of the same round to the JPEGs'."""
    chosen = formats(quality)
    spent: dict[str, list[float]] = {fmt.name: [] for fmt in chosen}
    sizes = {}
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for i, fmt in enumerate(chosen):
            encoded = [fmt.encode(image) for image in originals]
            sizes[fmt.name] = statistics.mean(map(len, encoded))
            files[fmt.name] = write_files(encoded, args.files, Path(folder, str(i)))
            if fmt.load is _decode_l3:
                check(files[fmt.name])
        for _, fmt in track(list(itertools.product(range(args.rounds), chosen)), f"JPEG {quality}"):
            what = Configuration(fmt, args.threads, BATCH)
            turn = take_turn(what, files[fmt.name], "cpu", args.seconds)
            spent[fmt.name].append(turn.cpu_s_per_1000)
    return {
        name: {
            "bytes": sizes[name],
            "bytes_ratio": sizes[name] / sizes[JPEG],
            "cpu_ms": statistics.median(times),
            "speed": statistics.median(j / t for j, t in zip(spent[JPEG], times, strict=True)),
            "speed_beside_resized": statistics.median(
                j / t for j, t in zip(spent[RESIZED], times, strict=True)
            ),
        }
        for name, times in spent.items()
    }


def table(rows: dict[str, Any]) -> str:
    """One kind of originals in one quality."""
    head = ["files", "bytes an image", "bytes / JPEG's", "CPU ms an image", "images / CPU second"]
    head += ["JPEG's CPU time / its", "that of JPEG resized / its"]
    return markdown_table(
        head,
        [
            [
                name,
                f"{row['bytes']:.0f}" if name != READER else "-",
                f"{row['bytes_ratio']:.2f}" if name != READER else "-",
                f"{row['cpu_ms']:.3f}",
                rounded(1000 / row["cpu_ms"]),
                rounded(row["speed"]),
                rounded(row["speed_beside_resized"]),
            ]
            for name, row in rows.items()
        ],
    )


def main(arguments: list[str] | None = None) -> None:
    """Measures, and writes shrunk.md and .json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--files", type=int, default=64, help="of each format")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    text = (
        f"{machine()}, DALI {dali.__version__}. Files in the page cache to decoded batches of "
        f"{BATCH}, {args.threads} thread; CPU time of the process, {args.rounds} rounds of "
        f"{args.seconds:g} s, medians; ratios within a round. JPEG with 4:2:0, made of PNG. L3 is "
        f"what `l3 encode --max-side {MAX_SIDE}` makes of the JPEG files.\n"
    )
    results = []
    for name, folder, side in ORIGINALS:
        smaller = functools.partial(shrink, max_side=side) if side else (lambda image: image)
        originals = [smaller(image) for _, image in images(args.data, folder)]
        if not originals:
            raise SystemExit(f"no images in {args.data / folder}")
        for quality in QUALITIES:
            rows = measure(originals, quality, args)
            origin = f"{len(originals)} images of {folder.partition('@')[0]}"
            text += f"\n## JPEG {quality}, {name} ({origin})\n\n{table(rows)}"
            results.append(
                {
                    "originals": name,
                    "set": folder,
                    "images": len(originals),
                    "quality": quality,
                    "formats": rows,
                }
            )
    write_results("shrunk", "JPEG files and small copies", text, {"rows": results}, args.out)


if __name__ == "__main__":
    main()
