"""`l3dali.torch`: the loader of threads beside worker processes, and batches from a bucket."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks.cpu.case import Result, in_turns, median_ratio
from benchmarks.cpu.loaders import take_turn
from benchmarks.object_server import object_server
from benchmarks.peers import images, l3_encoder
from benchmarks.report import table
from torch.utils.data import DataLoader

import l3dali
import l3dali.torch

HEIGHT, WIDTH = 375, 500
WINDOW = (64, 128, 256, 256)
WORKERS = (0, 1, 2, 3, 4)
THREADS = "Loader"
LOOP, BATCH, LOADED = "imread(url, window) in a loop", "decode_files(urls, windows)", THREADS


@contextmanager
def bucket(files: list[bytes], latency_ms: int) -> Iterator[list[str]]:
    """The URLs of files that a server of another process has."""
    with tempfile.TemporaryDirectory() as folder, object_server(Path(folder)) as server:
        for i, file in enumerate(files):
            Path(folder, f"{i}.l3").write_bytes(file)
        os.environ |= server.environment
        server.count(latency_ms)
        yield [f"s3://data/{i}.l3" for i in range(len(files))]


def with_workers(paths: list[str], batch: int, workers: int) -> Any:
    """PyTorch's `DataLoader`, whose workers decode whole batches."""
    return DataLoader(
        paths,
        batch_size=batch,
        num_workers=workers,
        collate_fn=partial(l3dali.torch.decode_files, batched=True),
        persistent_workers=workers > 0,
    )


def local(files: list[bytes], rounds: int, batch: int) -> dict[str, dict[str, float]]:
    """Whole images of files in the page cache."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{i}.l3" for i in range(len(files))]
        for path, file in zip(paths, files, strict=True):
            Path(path).write_bytes(file)
        loaders: dict[str, Any] = {THREADS: l3dali.torch.Loader(paths, batch, threads=2)}
        for workers in WORKERS:
            name = f"DataLoader, {workers} workers"
            loaders[name] = with_workers(paths, batch, workers)
        turns = [
            {name: take_turn(loader) for name, loader in loaders.items()} for _ in range(rounds)
        ]
        del loaders
    found: dict[str, dict[str, float]] = {}
    ours = [turn[THREADS].images_per_s for turn in turns]
    for name in turns[0]:
        rates = [turn[name].images_per_s for turn in turns]
        found[name] = {
            "images_per_s": statistics.median(rates),
            "ratio": median_ratio(ours, rates),
            "cpu_ms": statistics.median(turn[name].cpu_ms for turn in turns),
        }
    return found


def remote(
    files: list[bytes], rounds: int, batch: int, latency_ms: int
) -> dict[str, dict[str, float]]:
    """Windows of files in a bucket."""
    with bucket(files, latency_ms) as urls:

        def window(*_: object) -> Any:
            return WINDOW

        def decode() -> None:
            for begin in range(0, len(urls), batch):
                part = urls[begin : begin + batch]
                l3dali.torch.decode_files(part, windows=[WINDOW] * len(part), batched=True)

        few = urls[: len(urls) // 8]
        expected = torch.from_numpy(l3dali.imread(urls[0], window=WINDOW)).permute(2, 0, 1)
        (found,) = l3dali.torch.decode_files(urls[:1], windows=[WINDOW])
        if not torch.equal(found, expected):
            raise SystemExit("decode_files does not give the pixels of imread")
        calls: dict[str, Callable[[], object]] = {
            LOOP: lambda: [l3dali.imread(url, window=WINDOW) for url in few],
            BATCH: decode,
            LOADED: lambda: list(l3dali.torch.Loader(urls, batch, window=window)),
        }
        seconds = in_turns(calls, rounds, time.perf_counter)
    counts = {LOOP: len(few), BATCH: len(urls), LOADED: len(urls)}
    rates = {name: counts[name] / taken for name, taken in seconds.items()}
    return {
        name: {
            "images_per_s": float(statistics.median(each)),
            "ratio": median_ratio(each, rates[LOOP]),
        }
        for name, each in rates.items()
    }


def torch_loader(
    data: Path, rounds: int = 5, files: int = 512, batch: int = 32, latency_ms: int = 30
) -> Result:
    """L3 in PyTorch: threads beside worker processes, and a bucket.

    Packed photographs of 500x375. Local: whole images in the page cache to one tensor a batch in
    the main process, by `l3dali.torch.Loader` with two threads, and by `DataLoader` with
    `decode_files` in `collate_fn` and several numbers of workers. The ratio is Loader's rate to
    that of the row. Bucket: windows of 256x256 through s3fs, from a server that waits before each
    answer and shares the cores; the ratio is the rate to that of `imread` in a loop. In turns;
    medians, ratios within a round; CPU time of the main process and the workers.
    """
    encode = l3_encoder("packed")
    cut = [
        image[:HEIGHT, :WIDTH]
        for _, image in images(data, "photo/kodak")
        if len(image) >= HEIGHT and image.shape[1] >= WIDTH
    ]
    encoded = [encode(image) for image in cut]
    many = [encoded[i % len(encoded)] for i in range(files)]
    of_files = local(many, rounds, batch)
    of_bucket = remote(many[: files // 4], rounds, batch, latency_ms)
    text = f"PyTorch {torch.__version__}.\n\n## Local files\n\n"
    columns = {"images/s": "{images_per_s:.3g}", "Loader's rate / its": "{ratio:.2f}"}
    text += table("loader", of_files, columns | {"CPU ms an image": "{cpu_ms:.3g}"})
    text += f"\n## A bucket, {latency_ms} ms a request\n\n"
    columns = {"images/s": "{images_per_s:.3g}", "x that of the loop": "{ratio:.2f}"}
    text += table("call", of_bucket, columns)
    return Result(text, {"local": of_files, "bucket": of_bucket}, code=("src", "python"))
