"""fn.l3.readers.file beside fn.readers.file, whole and lazy, in DALI pipelines on the CPU.

Pipelines take turns, some batches each; what counts is the median of the ratios within a round.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.cpu.case import Result, in_turns, interval, keep_memory, median_ratio
from benchmarks.cpu.dali_windows import Graph, pipeline, source
from benchmarks.peers import large_images
from benchmarks.report import table
from nvidia.dali import fn, types
from rich.progress import track

import l3dali
from l3dali._native import DecodeBatch

BATCH = 32
WINDOW = 512
COPIES = 16  # of each file, so that a processor's cache does not hold all
READ_AHEAD_S = 0.05  # for what a pipeline has begun when its turn ends

LAZY = {"lazy": True}

Options = dict[str, bool]


def write_files(
    images: Iterable[Any], coding: l3dali.Coding, folder: Path, copies: int
) -> list[str]:
    folder.mkdir()
    paths = []
    for i, image in enumerate(track(images, f"encode {coding}")):
        data = l3dali.encode(image, coding=coding)
        for copy in range(copies):
            path = folder / f"{copy}-{i}.l3"
            path.write_bytes(data)
            paths.append(str(path))
    return paths


def small_images(height: int, width: int) -> Iterator[Any]:
    """Images of a size, cut from noisy waves."""
    rng = np.random.default_rng(1)
    for _ in range(64):
        y, x = np.indices((height, width))[:, :, :, None]
        wave = 120 + 60 * np.sin(y / 7 + rng.uniform(0, 6, 3)) + 50 * np.sin(x / 9)
        yield (wave + rng.integers(0, 8, wave.shape)).astype(np.uint8)


def shuffled(paths: list[str], options: Options | None, graph: Graph, threads: int) -> Any:
    """Behind DALI's reader if `options` is None, else behind ours with these options."""
    read = fn.readers.file if options is None else fn.l3.readers.file
    order = {"random_shuffle": True, "initial_fill": 64, "seed": 2}
    return pipeline(paths, graph, threads, read, BATCH, depth=2, **order, **(options or {}))


def read_tiles(paths: list[str], threads: int) -> Callable[[], object]:
    """Reads the tiles of a window anywhere in each file of a batch, and decodes none."""
    rng = np.random.default_rng(3)

    def run() -> object:
        corners = rng.integers((0, 0), (1024 - WINDOW + 1, 2048 - WINDOW + 1), (BATCH, 2))
        return DecodeBatch(
            [(str(path), 0, None) for path in rng.choice(paths, BATCH)],
            windows=[(int(top), int(left), WINDOW, WINDOW) for top, left in corners],
            colors="UNCHANGED", dtype=None, channels_first=False,
            max_pixels=2**28, names_items=False, threads=threads,
        )  # fmt: skip

    return run


def compare(
    paths: list[str],
    options: Options,
    graph: Graph | None,
    rounds: int,
    threads: int,
    *,
    is_cold: bool = False,
) -> dict[str, float]:
    """Images a second and CPU time of our reader over those of DALI's, and their 95 % intervals.

    Without a graph ours reads the tiles of windows alone.
    """
    batches = max(4, len(paths) // BATCH)

    def turn_of(name: str) -> Callable[[], None]:
        if name == "l3" and graph is None:
            run = read_tiles(paths, threads)
        else:
            is_ours = name == "l3"
            run = shuffled(paths, options if is_ours else None, graph or source, threads).run

        def turn() -> None:
            if is_cold:
                drop_pages(paths)
            begin = time.perf_counter()
            for _ in range(batches):
                run()
            walls[name].append(time.perf_counter() - begin)
            time.sleep(READ_AHEAD_S)

        return turn

    walls: dict[str, list[float]] = {"dali": [], "l3": []}
    spent = in_turns({name: turn_of(name) for name in walls}, rounds)
    rates = walls["dali"], walls["l3"]
    return {
        "images_per_s": BATCH * batches / float(np.median(walls["l3"])),
        "rate": median_ratio(*rates),
        "rate_low": interval(*rates)[0],
        "rate_high": interval(*rates)[1],
        "cpu": median_ratio(spent["l3"], spent["dali"]),
        "cpu_low": interval(spent["l3"], spent["dali"])[0],
        "cpu_high": interval(spent["l3"], spent["dali"])[1],
    }


def drop_pages(paths: Sequence[str]) -> None:
    """Takes files out of the page cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def bytes_share(paths: list[str]) -> float:
    """The share of the files' bytes that lazy random crops of an eighth of the pixels read."""

    def crop(handle: Any) -> Any:
        return fn.l3.decode_random_crop(handle, random_area=(0.125, 0.125))

    pipe = shuffled(paths, LAZY, crop, 2)

    def asked() -> int:
        lines = Path("/proc/self/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["rchar"])

    time.sleep(READ_AHEAD_S)
    before, batches = asked(), 20
    for _ in range(batches):
        pipe.run()
    time.sleep(READ_AHEAD_S)
    mean = sum(Path(path).stat().st_size for path in paths) / len(paths)
    return (asked() - before) / (batches * BATCH * mean)


def crop(encoded: Any) -> Any:
    """What a training takes: a window anywhere, normalized, in halves."""
    x, y = (fn.random.uniform(range=(0.0, 1.0)) for _ in range(2))
    return fn.l3.decode_crop_mirror_normalize(
        encoded, crop=(WINDOW, WINDOW), crop_pos_x=x, crop_pos_y=y,
        mean=[120.0] * 3, std=[60.0] * 3, dtype=types.FLOAT16, output_layout="CHW",
    )  # fmt: skip


def reader(
    data: Path | None = None, rounds: int = 15, threads: int = 2, disk: Path | None = None
) -> Result:
    """`fn.l3.readers.file` beside `fn.readers.file`, in DALI pipelines on the CPU.

    Images are RGB8 of 2048 x 1024 pixels: those of photo/large, cut and mirrored to that size;
    without --data a noisy gradient. Each file is there 16 times. Batches of 32, shuffled. Crops are
    512 x 512 pixels to normalized halves, CHW. Pipelines take turns; numbers are those of L3's
    reader over those of DALI's, the median of the ratios within a round, with the 95 % interval.
    Tiles alone are read as `l3dali.torch.decode_files` does, beside whole files of DALI's reader.
    The page cache holds the files, except where "dropped pages" is said; those lie in --disk.
    """
    keep_memory()
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory(dir=disk) as cold:
        folder = Path(name)
        large = {
            coding: write_files(large_images(data), coding, folder / coding, COPIES)
            for coding in ("packed", "rans")
        }
        on_disk = write_files(large_images(data), "packed", Path(cold) / "packed", COPIES)
        small = {
            size: write_files(small_images(*size), "packed", folder / f"{size[0]}", 4)
            for size in ((32, 32), (375, 500))
        }

        def add(
            row: str, paths: list[str], options: Options, graph: Graph | None, cold: bool = False
        ) -> None:
            results[row] = compare(paths, options, graph, rounds, threads, is_cold=cold)

        for coding, paths in large.items():
            add(f"{coding}: whole files, reading alone", paths, {}, source)
            add(f"{coding}: tiles of crops, reading alone", paths, {}, None)
            add(f"{coding}: lazy, crops", paths, LAZY, crop)
            add(f"{coding}: lazy, whole images", paths, LAZY, fn.l3.decode)
        row = "packed: lazy, crops, dropped pages"
        add(row, on_disk, LAZY, crop, cold=True)
        add(f"{row}, use_o_direct", on_disk, LAZY | {"use_o_direct": True}, crop, cold=True)
        for (height, width), paths in small.items():
            add(f"{width} x {height}: whole files, reading alone", paths, {}, source)
            add(f"{width} x {height}: lazy, whole images", paths, LAZY, fn.l3.decode)
        shares = {coding: bytes_share(paths) for coding, paths in large.items()}
    columns = {
        "images/s of L3's": "{images_per_s:.0f}",
        "images/s, ratio": "{rate:.2f} ({rate_low:.2f} to {rate_high:.2f})",
        "CPU time, ratio": "{cpu:.2f} ({cpu_low:.2f} to {cpu_high:.2f})",
    }
    read = ", ".join(f"{coding} {share:.2f}" for coding, share in shares.items())
    text = table("pipeline", results, columns) + (
        "\nLazy `decode_random_crop` of an eighth of the pixels reads this share of the files' "
        f"bytes: {read}.\n"
    )
    return Result(text, {"ratios": results, "bytes": shares})
