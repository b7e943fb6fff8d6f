"""Windows of images through DALI's operators on the CPU.

Pipelines that are compared take turns, a batch each, and the median of their CPU times counts. A
pipeline that has delivered reads ahead: its turn ends when that is done. Memory that is freed stays
the process's: it is luck what glibc gives back, to be faulted in again. From a pipeline's time that
of the same pipeline without the decoder is taken off. Files lie in the page cache.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import nvidia.dali as dali
from benchmarks.cpu.case import Result, in_turns, interval, keep_memory, median_ratio
from benchmarks.cpu.codecs import JPEG_SETS, jpeg_files
from benchmarks.peers import CROP, HEIGHT, L3, PNG, WIDTH, l3_of_jpeg, large_images
from benchmarks.pipeline import run_batches
from benchmarks.pipeline import write_files as write_many
from benchmarks.report import table
from nvidia.dali import fn, types
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
    warm_up: int = WARM_UP,
    **options: Any,
) -> Any:
    """What the graph makes of the encoded files, warmed up; `options` are those of the reader."""
    pipe = dali.Pipeline(batch, threads, None, prefetch_queue_depth=depth, seed=1)
    with pipe:
        outputs = graph((read or fn.readers.file)(files=files, **options)[0])
        pipe.set_outputs(*(outputs if isinstance(outputs, list) else [outputs]))
    for _ in range(warm_up):
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


JPEG_BATCH = 32
RGB = {"output_type": types.RGB}
# DALI's operator, and ours with the same windows.
JPEG_TASKS: dict[str, tuple[Graph, Graph]] = {
    "whole images": (partial(fn.decoders.image, **RGB), partial(fn.l3.decode, **RGB)),
    "random crops": (
        partial(fn.decoders.image_random_crop, seed=1, **RGB),
        partial(fn.l3.decode_random_crop, seed=1, **RGB),
    ),
}


def jpeg_dali(
    data: Path, sets: Sequence[str] = JPEG_SETS, rounds: int = 15, threads: int = 2
) -> Result:
    """JPEG files through DALI's operators on the CPU, and the L3 files that were made of them.

    `fn.l3.decode` beside `fn.decoders.image`, `fn.l3.decode_random_crop` (area 0.08 to 1.0) beside
    `fn.decoders.image_random_crop`: whole pipelines, from files in the page cache to batches of 32.
    Those of L3 gave the same pixels before they were timed. They take turns of an epoch; medians
    of the ratios within a round, the rate's with its interval of 95 %. JPEG files of photo/large
    have qualities 75 and 95, 4:2:0.
    """
    results: dict[str, Any] = {}
    text = ""
    for name in sets:
        originals = list(jpeg_files(data, name))
        made = [l3_of_jpeg(original) for original in track(originals, name)]
        kept = [(jpeg, l3) for jpeg, l3 in zip(originals, made, strict=True) if l3]
        with tempfile.TemporaryDirectory() as folder:
            files = [
                write_many(list(contents), len(kept), Path(folder, kind))
                for kind, contents in zip(("jpeg", "l3"), zip(*kept, strict=True), strict=True)
            ]
            found = {
                task: compare_jpeg(files, graphs, rounds, threads)
                for task, graphs in JPEG_TASKS.items()
            }
        results[name] = {"files": len(kept), **found}
        columns = {
            "JPEG, images/s": "{jpeg_images_per_s:.4g}",
            "L3, images/s": "{l3_images_per_s:.4g}",
            "L3 / JPEG": "{ratio:.2f}",
            "from": "{low:.2f}",
            "to": "{high:.2f}",
            "CPU time of JPEG / L3's": "{cpu_ratio:.2f}",
        }
        text += f"\n## {name}, {len(kept)} files\n\n" + table("task", found, columns)
    return Result(text, results)


def compare_jpeg(
    files: Sequence[list[str]], graphs: tuple[Graph, Graph], rounds: int, threads: int
) -> dict[str, float]:
    """Both pipelines over their files: the same pixels, and their rates."""
    epoch = math.ceil(len(files[0]) / JPEG_BATCH)
    make = partial(pipeline, threads=threads, batch=JPEG_BATCH, depth=2, warm_up=0)
    compared = [make(paths, graph) for paths, graph in zip(files, graphs, strict=True)]
    for _ in range(epoch):
        (theirs,), (ours,) = (pipe.run() for pipe in compared)
        if not all(map(np.array_equal, theirs, ours)):
            raise SystemExit("L3 does not give the pixels of DALI")
    del compared
    turns: dict[str, list[tuple[float, float]]] = {"jpeg": [], "l3": []}
    pipes = {
        name: make(paths, graph) for name, paths, graph in zip(turns, files, graphs, strict=True)
    }
    for pipe in pipes.values():
        run_batches(pipe, least=WARM_UP)
    for _ in track(range(rounds), "turns"):
        for name, pipe in pipes.items():
            begin = time.perf_counter(), time.process_time()
            images = run_batches(pipe, least=epoch) * JPEG_BATCH
            spent = time.perf_counter() - begin[0], time.process_time() - begin[1]
            turns[name].append((spent[0] / images, spent[1] / images))
    wall, cpu = ({name: [turn[i] for turn in each] for name, each in turns.items()} for i in (0, 1))
    low, high = interval(wall["jpeg"], wall["l3"])
    return {
        **{f"{name}_images_per_s": 1 / float(np.median(each)) for name, each in wall.items()},
        "ratio": median_ratio(wall["jpeg"], wall["l3"]),
        "low": low,
        "high": high,
        "cpu_ratio": median_ratio(cpu["jpeg"], cpu["l3"]),
    }
