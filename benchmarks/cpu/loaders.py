"""Loaders of PyTorch, from files in the page cache to batches in the main process, without DALI."""

from __future__ import annotations

import ctypes
import gc
import io
import itertools
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import PIL
import torch
import torchvision
from benchmarks.cpu.case import Result, Returned, median_ratio
from benchmarks.cpu.codecs import JPEG_SETS, jpeg_files
from benchmarks.peers import L3_CODINGS, PNG, Image, images, l3_encoder, l3_of_jpeg
from benchmarks.report import table
from PIL import Image as PillowImage
from rich.progress import track
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import pil_to_tensor

import l3dali
import l3dali.pillow
import l3dali.torch

SETS = ("photo/kodak", "photo/large")
SIDE = 512  # of crops
WHOLE, CROPS = "whole images", f"crops of {SIDE}x{SIDE}"
FIRST = "PNG, torchvision"  # the others are compared with it

Window = tuple[int, int, int, int]  # top, left, height, width
Decode = Callable[[bytes, Window | None], torch.Tensor]  # to (C, H, W)


@dataclass(frozen=True)
class Source:
    """Images encoded for one way of loading."""

    suffix: str
    files: list[bytes]
    windows: list[Window | None]
    folder: Path  # for what the loader wants to have written
    batch: int
    workers: int

    @property
    def stacks(self) -> bool:
        """Whether all tensors have one size: whole images may differ."""
        return (
            None not in self.windows and len({window[2:] for window in self.windows if window}) == 1
        )

    def write(self) -> list[Path]:
        """Writes the files; returns their paths."""
        paths = [self.folder / f"{i}.{self.suffix}" for i in range(len(self.files))]
        for path, file in zip(paths, self.files, strict=True):
            path.write_bytes(file)
        return paths

    def loader(self, dataset: Any) -> Any:
        """Crops are stacked in the worker."""
        return DataLoader(
            dataset,
            batch_size=self.batch,
            num_workers=self.workers,
            collate_fn=None if self.stacks else list,
            persistent_workers=True,
        )


@dataclass(frozen=True)
class Way:
    """How images are stored, and how a loader makes tensors of them."""

    name: str
    suffix: str
    encode: Callable[[Any], bytes]  # of an original: an image, or a JPEG file
    load: Callable[[Source], Any]


@dataclass(frozen=True)
class Turn:
    """An epoch of a loader."""

    images_per_s: float
    cpu_ms: float  # an image, of all processes


def by_torchvision(data: bytes, window: Window | None) -> torch.Tensor:
    """PNG and JPEG."""
    decoded = torchvision.io.decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    if window is None:
        return decoded
    top, left, height, width = window
    return decoded[:, top : top + height, left : left + width]


def by_pillow(data: bytes, window: Window | None) -> torch.Tensor:
    """All that Pillow reads."""
    image: Any = PillowImage.open(io.BytesIO(data))
    if window is not None:
        top, left, height, width = window
        image = image.crop((left, top, left + width, top + height))
    return pil_to_tensor(image)


def by_l3(data: bytes, window: Window | None) -> torch.Tensor:
    """Windows decode their tiles alone."""
    return l3dali.torch.decode(data, window=window)


class Files(Dataset[torch.Tensor]):  # type: ignore[misc]  # PyTorch is not where mypy runs
    """Files in a folder."""

    def __init__(self, paths: list[Path], windows: list[Window | None], decode: Decode) -> None:
        self.paths, self.windows, self.decode = paths, windows, decode

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> torch.Tensor:
        return self.decode(self.paths[i].read_bytes(), self.windows[i])


def of_files(decode: Decode) -> Callable[[Source], Any]:
    """PyTorch's `DataLoader`."""
    return lambda source: source.loader(Files(source.write(), source.windows, decode))


class Threads:
    """Batches of L3 files, decoded here by as many threads as others have workers."""

    def __init__(self, source: Source, *, reads_files: bool = False) -> None:
        self.source, self.paths, self.reads_files = source, source.write(), reads_files

    def __iter__(self) -> Iterator[list[torch.Tensor] | torch.Tensor]:
        source = self.source
        options: Any = {"batched": source.stacks, "threads": source.workers}
        for begin in range(0, len(self.paths), source.batch):
            part = slice(begin, begin + source.batch)
            paths, windows = self.paths[part], source.windows[part]
            if self.reads_files:
                yield l3dali.torch.decode_files(paths, windows=windows, **options)
            else:
                files = [path.read_bytes() for path in paths]
                yield l3dali.torch.decode_batch(files, windows=windows, **options)


class Places(Dataset[Any]):  # type: ignore[misc]
    """Paths and windows, which a worker decodes as a batch."""

    def __init__(self, paths: list[Path], windows: list[Window | None]) -> None:
        self.places = list(zip(paths, windows, strict=True))

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, i: int) -> tuple[Path, Window | None]:
        return self.places[i]


def decode_places(places: list[tuple[Path, Window | None]]) -> list[torch.Tensor]:
    """A batch."""
    paths, windows = zip(*places, strict=True)
    return l3dali.torch.decode_files(paths, windows=windows)


def in_workers(source: Source) -> Any:
    """`decode_files` in the workers of a `DataLoader`."""
    return DataLoader(
        Places(source.write(), source.windows),
        batch_size=source.batch,
        num_workers=source.workers,
        collate_fn=decode_places,
        persistent_workers=True,
    )


def jpeg_95(image: Image) -> bytes:
    """Lossy."""
    return bytes(imagecodecs.jpeg8_encode(image, level=95))


JPEG_WAYS = (
    Way("JPEG, Pillow", "jpg", bytes, of_files(by_pillow)),
    Way("JPEG, torchvision", "jpg", bytes, of_files(by_torchvision)),
    Way("L3 jpeg, l3dali.torch", "l3", l3_of_jpeg, of_files(by_l3)),
    Way("L3 jpeg, decode_files in workers", "l3", l3_of_jpeg, in_workers),
    Way("L3 jpeg, decode_files", "l3", l3_of_jpeg, partial(Threads, reads_files=True)),
)
WAYS = (
    Way(FIRST, "png", PNG.encode, of_files(by_torchvision)),
    Way("PNG, Pillow", "png", PNG.encode, of_files(by_pillow)),
    Way("JPEG 95 (lossy), torchvision", "jpg", jpeg_95, of_files(by_torchvision)),
    *(
        Way(f"L3 {mode}, {name}", "l3", l3_encoder(mode), load)
        for name, load in (
            ("l3dali.torch", of_files(by_l3)),
            ("decode_batch, no workers", Threads),
            ("Pillow", of_files(by_pillow)),
        )
        for mode in L3_CODINGS
    ),
)


def cpu_seconds() -> float:
    """Of this process and of those that it started and that still are."""
    c_library, seconds = ctypes.CDLL(None), time.process_time()
    for child in multiprocessing.active_children():
        clock = ctypes.c_int()
        if c_library.clock_getcpuclockid(child.pid, ctypes.byref(clock)) == 0:
            seconds += time.clock_gettime(clock.value)
    return seconds


def take_turn(loader: Any) -> Turn:
    """An epoch of warm workers; none of its batches is begun before, none is left."""
    for _ in loader:
        pass
    begin, begin_cpu, count = time.perf_counter(), cpu_seconds(), 0
    for batch in loader:
        count += len(batch)
    took, cpu = time.perf_counter() - begin, cpu_seconds() - begin_cpu
    return Turn(count / took, 1000 * cpu / count)


def draw_windows(pictures: Sequence[Image], side: int) -> list[Window | None]:
    """One of each image, the same for all ways; none for a side of 0."""
    if not side:
        return [None] * len(pictures)
    random = np.random.default_rng(1)
    sides = [(min(side, len(image)), min(side, image.shape[1])) for image in pictures]
    return [
        (
            int(random.integers(0, len(image) - height + 1)),
            int(random.integers(0, image.shape[1] - width + 1)),
            height,
            width,
        )
        for image, (height, width) in zip(pictures, sides, strict=True)
    ]


def contents(loader: Any) -> list[bytes]:
    """The pixels of each image, in an order of their own: loaders have theirs."""
    return sorted(
        np.ascontiguousarray(image.permute(1, 2, 0).numpy()).tobytes()
        for batch in loader
        for image in batch
    )


def wanted(pictures: Sequence[Image], windows: list[Window | None]) -> list[bytes]:
    """What a lossless way gives."""
    parts = []
    for image, window in zip(pictures, windows, strict=True):
        top, left, height, width = window or (0, 0, *image.shape[:2])
        parts.append(image[top : top + height, left : left + width].tobytes())
    return sorted(parts)


def measure(
    ways: Sequence[Way],
    originals: Sequence[Any],
    pictures: Sequence[Image],
    windows: list[Window | None],
    count: int,
    rounds: int,
    batch: int,
    workers: int,
) -> dict[str, dict[str, Any]]:
    """All ways of a task in turns: medians, and ratios of the same round to the first way's."""
    turns: dict[str, list[Turn]] = {way.name: [] for way in ways}
    encoded = {way.name: [way.encode(original) for original in originals] for way in ways}

    def use(way: Way, count: int, run: Callable[[Any], Returned]) -> Returned:
        files = list(itertools.islice(itertools.cycle(encoded[way.name]), count))
        places = list(itertools.islice(itertools.cycle(windows), count))
        with tempfile.TemporaryDirectory() as folder:
            source = Source(way.suffix, files, places, Path(folder), batch, workers)
            result = run(way.load(source))
            gc.collect()  # ends the workers
        return result

    for way in ways:
        if "lossy" not in way.name and use(way, len(pictures), contents) != wanted(
            pictures, windows
        ):
            raise SystemExit(f"{way.name} does not give back the pixels")
    for _, way in track(list(itertools.product(range(rounds), ways)), "turns"):
        turns[way.name].append(use(way, count, take_turn))
    spent = {name: [turn.cpu_ms for turn in of_way] for name, of_way in turns.items()}
    rates = {name: [turn.images_per_s for turn in of_way] for name, of_way in turns.items()}
    first = ways[0].name
    return {
        name: {
            "bytes": statistics.mean(map(len, encoded[name])),
            "images_per_s": statistics.median(rates[name]),
            "times_png": median_ratio(rates[name], rates[first]),
            "cpu_ms": statistics.median(spent[name]),
            "png_cpu_ratio": median_ratio(spent[first], spent[name]),
        }
        for name in turns
    }


COLUMNS = {
    "kB an image": "{kilobytes:.0f}",
    "images/s": "{images_per_s:.3g}",
    "x that PNG": "{times_png:.2f}",
    "CPU ms an image": "{cpu_ms:.3g}",
    "that PNG's CPU time / its": "{png_cpu_ratio:.2f}",
}


def loaders(
    data: Path,
    sets: Sequence[str] = SETS,
    rounds: int = 3,
    files: int = 48,
    batch: int = 8,
    workers: int = 2,
) -> Result:
    """PyTorch's loaders without DALI.

    Files in the page cache to batches of uint8 tensors in the main process, by worker processes of
    PyTorch's `DataLoader`. Whole images come as lists of tensors, crops stacked, through shared
    memory, which takes its part. `decode_batch` has threads of the main process instead of
    workers. All lossless ways gave the same pixels before they were timed. An epoch of warm
    workers each, in turns; medians, ratios within a round; CPU time of the main process and the
    workers.
    """
    l3dali.pillow.register()
    text = f"PyTorch {torch.__version__}, torchvision {torchvision.__version__}, "
    text += f"Pillow {PIL.__version__}.\n"
    results: dict[str, Any] = {}
    for name in sets:
        pictures = [image for _, image in images(data, name)]
        if not pictures:
            raise SystemExit(f"no images in {data / name}")
        for task in (WHOLE, CROPS):
            windows = draw_windows(pictures, SIDE if task == CROPS else 0)
            found = measure(WAYS, pictures, pictures, windows, files, rounds, batch, workers)
            results[f"{name}, {task}"] = found
            rows = {n: {**row, "kilobytes": row["bytes"] / 1000} for n, row in found.items()}
            text += f"\n## {name}, {task}\n\n{table('loader', rows, COLUMNS)}"
    return Result(text, results)


def random_windows(pictures: Sequence[Image]) -> list[Window | None]:
    """Of each image one with 8 % to all of its pixels, and sides of 3:4 to 4:3."""
    random = np.random.default_rng(1)
    windows: list[Window | None] = []
    for image in pictures:
        sides = np.array(image.shape[:2])
        shape = sides + 1
        while (shape > sides).any() or (shape < 1).any():
            area, aspect = (
                random.uniform(0.08, 1) * sides.prod(),
                np.exp(random.uniform(-0.288, 0.288)),
            )
            shape = np.round(np.sqrt([area / aspect, area * aspect])).astype(int)
        windows.append((*map(int, random.integers(0, sides - shape + 1)), *map(int, shape)))  # type: ignore[arg-type]
    return windows


def jpeg_loaders(
    data: Path,
    sets: Sequence[str] = JPEG_SETS,
    rounds: int = 5,
    files: int = 192,
    batch: int = 16,
    workers: int = 2,
) -> Result:
    """JPEG files in PyTorch's loaders, and the L3 files that were made of them.

    As the case loaders. Crops are random, of 8 % to all of the pixels; Pillow and torchvision
    decode whole images for them. `decode_files` has threads of the main process, or one thread in
    each worker. JPEG files of photo/large have qualities 75 and 95, 4:2:0. All ways gave the
    pixels of libjpeg-turbo before they were timed.
    """
    text = f"PyTorch {torch.__version__}, torchvision {torchvision.__version__}, "
    text += f"Pillow {PIL.__version__}.\n"
    columns = {name.replace("that PNG", "Pillow"): shown for name, shown in COLUMNS.items()}
    results: dict[str, Any] = {}
    for name in sets:
        originals = [original for original in jpeg_files(data, name) if l3_of_jpeg(original)]
        pictures = [np.atleast_3d(imagecodecs.jpeg8_decode(original)) for original in originals]
        for task in (WHOLE, "random crops"):
            windows = draw_windows(pictures, 0) if task == WHOLE else random_windows(pictures)
            found = measure(JPEG_WAYS, originals, pictures, windows, files, rounds, batch, workers)
            results[f"{name}, {task}"] = found
            rows = {n: {**row, "kilobytes": row["bytes"] / 1000} for n, row in found.items()}
            text += f"\n## {name}, {task}\n\n{table('loader', rows, columns)}"
    return Result(text, results)
