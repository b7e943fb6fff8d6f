"""Windows of images through DALI's operators on the CPU.

Pipelines that are compared take turns, a batch each, and the median of their CPU times counts. A
pipeline that has delivered reads ahead: its turn ends when that is done. Memory that is freed stays
the process's: it is luck what glibc gives back, to be faulted in again. From a pipeline's time that
of the same pipeline without the decoder is taken off. Files lie in the page cache.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import nvidia.dali as dali
from benchmarks.cpu.case import Result, in_turns, keep_memory
from benchmarks.peers import CROP, HEIGHT, L3, PNG, WIDTH, large_images
from benchmarks.report import table
from nvidia.dali import fn
from rich.progress import track

import l3dali.plugin  # noqa: F401  # fn.l3

BATCH = 16
WARM_UP = 2  # batches
READ_AHEAD_S = 0.01  # more than a batch takes

Graph = Callable[[Any], Any]  # from encoded files to outputs
Part = tuple[str, dict[str, Any]]


def write_files(data: Path | None, out: Path) -> dict[str, list[str]]:
    """The images in every format; their paths by the format's name."""
    files: dict[str, list[str]] = {codec.name: [] for codec in (*L3, PNG)}
    for i, image in enumerate(track(large_images(data), "encode")):
        for codec in (*L3, PNG):
            path = out / f"{codec.name}-{i}".replace(" ", "_")
            path.write_bytes(codec.encode(image))
            files[codec.name].append(str(path))
    return files


def pipeline(
    files: list[str],
    graph: Graph,
    threads: int = 1,
    read: Callable[..., Any] | None = None,
    batch: int = BATCH,
    depth: int = 1,
    **options: Any,
) -> Any:
    """What the graph makes of the encoded files, warmed up; `options` are those of the reader."""
    pipe = dali.Pipeline(batch, threads, None, prefetch_queue_depth=depth, seed=1)
    with pipe:
        outputs = graph((read or fn.readers.file)(files=files, **options)[0])
        pipe.set_outputs(*(outputs if isinstance(outputs, list) else [outputs]))
    for _ in range(WARM_UP):
        pipe.run()
    return pipe


def cpu_seconds(
    files: list[str],
    graphs: Mapping[str, tuple[Graph, Graph]],
    rounds: int,
    what: str,
) -> dict[str, float]:
    """CPU seconds a sample of each graph, less those of its second, which lacks the decoder."""
    keep_memory()

    def turn_of(graph: Graph) -> Callable[[], None]:
        pipe = pipeline(files, graph)

        def turn() -> None:
            pipe.run()
            time.sleep(READ_AHEAD_S)

        return turn

    calls = {
        name + " alone" * alone: turn_of(pair[alone])
        for name, pair in graphs.items()
        for alone in (False, True)
    }
    spent = {k: float(np.median(v)) / BATCH for k, v in in_turns(calls, rounds, what=what).items()}
    return {name: spent[name] - spent[f"{name} alone"] for name in graphs}


def source(encoded: Any) -> Any:
    """The files as they are."""
    return encoded


def roi(data: Path | None = None, rounds: int = 20, threads: int = 2) -> Result:
    """Windows of images through DALI's operators on the CPU, beside whole images and beside PNG.

    Images are RGB8 of 2048 x 1024 pixels: those of photo/large, cut and mirrored to that size;
    without --data a noisy gradient. CPU time, median, of batches of 16 in turns on one thread, less
    that of the same pipelines without the decoder. --threads are those of the random crops (area
    0.08 to 1.0), which are whole pipelines beside `fn.decoders.image_random_crop` on PNG, whose
    decoder reads the whole image.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(data, Path(folder))
        parts = {
            "crop": measure_crops(files, rounds),
            "random_crop": measure_random_crops(files, rounds, threads),
        }
    text = "\n".join(text for text, _ in parts.values())
    return Result(text, {name: found for name, (_, found) in parts.items()})


def measure_crops(files: dict[str, list[str]], rounds: int) -> Part:
    """Crops and whole images."""

    def places() -> list[Any]:
        return [fn.random.uniform(range=(0.0, 1.0)) for _ in range(2)]

    def crop(encoded: Any) -> Any:
        x, y = places()
        return fn.l3.decode_crop(encoded, crop=(CROP, CROP), crop_pos_x=x, crop_pos_y=y)

    graphs: dict[str, tuple[Graph, Graph]] = {
        "whole": (fn.l3.decode, source),
        "crop": (crop, lambda encoded: [encoded, *places()]),
    }
    results = {}
    for codec in (codec.name for codec in L3):
        spent = cpu_seconds(files[codec], graphs, rounds, f"crops, {codec}")
        results[codec] = {f"{name}_ms": seconds * 1e3 for name, seconds in spent.items()}
        results[codec]["ratio"] = spent["crop"] / spent["whole"]
    share = CROP * CROP / (WIDTH * HEIGHT)
    text = f"## A crop of {CROP} x {CROP} anywhere, {share:.1%} of the pixels\n\n"
    columns = {"whole, CPU ms": "{whole_ms:.2f}", "crop, CPU ms": "{crop_ms:.3f}"}
    return text + table("mode", results, {**columns, "crop / whole": "{ratio:.1%}"}), results


def measure_random_crops(files: dict[str, list[str]], rounds: int, threads: int) -> Part:
    """The operator of each format, with what else a pipeline takes."""
    calls = {}
    for codec, paths in files.items():
        is_png = codec == PNG.name
        graph = fn.decoders.image_random_crop if is_png else fn.l3.decode_random_crop
        calls[codec] = pipeline(paths, graph, threads=threads).run
    spent = {k: float(v.mean()) for k, v in in_turns(calls, rounds, what="random crops").items()}
    results = {
        codec: {"cpu_s_per_1000": seconds / BATCH * 1000, "speed": spent[PNG.name] / seconds}
        for codec, seconds in spent.items()
    }
    text = "## Random crops\n\n"
    columns = {"CPU s per 1,000 images": "{cpu_s_per_1000:.2f}", "x PNG": "{speed:.1f}"}
    return text + table("files", results, columns), results
