"""DALI pipelines from files in the page cache to decoded batches: L3 beside its peers.

    python -m benchmarks.pipeline --data ../shared/data --device mixed

Every lossless format holds the same pixels; batches end in GPU memory for `mixed`, in host memory
for `cpu`. Two tasks: whole images, and random crops of 512x512, mirrored, as normalized halves
in CHW, what a training takes. Formats take turns, round after round, each time in a pipeline of
its own that is alone: it warms up, has delivered all that it prefetched before the clock starts
and again before it stops, and is torn down before the next is built. Medians over the rounds
count, ratios to PNG are of the same round. CPU seconds are those of the whole process. GPU time
is the share of the time in which the first GPU ran a kernel, of any process, as NVML samples it
(package nvidia-ml-py). Results are written after every round.
"""

from __future__ import annotations

import argparse
import functools
import gc
import io
import itertools
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import nvidia.dali as dali
from benchmarks.gpu.host import GpuUse, describe_gpu
from benchmarks.gpu.images import noisy_gradient
from benchmarks.peers import (
    HTJ2K,
    L3_CODINGS,
    PNG,
    TIFF_DEFLATE,
    TIFF_LZW,
    TIFF_ZSTD,
    Image,
    images,
    l3_encoder,
    l3_of_jpeg,
    machine,
)
from benchmarks.report import RESULTS, cells, markdown_table, save_results
from nvidia.dali import fn, types
from rich.progress import track

import l3dali.plugin  # noqa: F401  # fn.l3
from l3dali.driver import gpu_name

USUAL_SET = "photo/large"
JPEG = "JPEG 95"  # or the file that an image comes from
# Shares of JPEG files that nvJPEG gives to the decoder in hardware.
NVJPEG_BACKENDS = {"nvJPEG hybrid": 0.0, "nvJPEG hardware": 1.0}
WARM_UP = 3  # batches: one more than DALI prefetches
CACHE_MB = 16384  # of GPU memory at most; it is taken as files come
GPU_SAMPLES = 5  # of NVML in a turn: it goes on until it has them,
LONGEST_TURN = 3  # and for so many times its length at most
WHOLE, CROPS = TASKS = ("whole images", "crops of 512x512")
CROP = (512, 512)
MEAN, STD = ([123.7, 116.3, 103.5], [58.4, 57.1, 57.4])
DALI_FAILURES = (RuntimeError, MemoryError)
JPEG_FILES: dict[int, Path] = {}  # of images that were read from such files, by id()


@dataclass(frozen=True)
class Format:
    """How an image is stored, and the DALI graph from such files to a batch on a device."""

    name: str
    encode: Callable[[Image], bytes]
    load: Callable[[list[str], str], Any]
    load_crops: Callable[[list[str], str], Any] | None = None
    lossless: bool = True
    cached: bool = False  # measured once every file has been seen


@dataclass(frozen=True)
class Turn:
    """What one turn of a format measured."""

    images_per_s: float
    cpu_s_per_1000: float
    gpu_ms_per_image: float | None  # None where it cannot be had
    gpu_samples: int = 0  # that the above is a mean of


@dataclass(frozen=True)
class Configuration:
    """What a turn measures."""

    format: Format
    threads: int
    batch: int
    task: str = WHOLE


@dataclass(frozen=True)
class Progress:
    """What is known of a set after some rounds."""

    rounds: int
    rows: list[dict[str, Any]]
    left_out: list[str]  # what was not measured, and why


def _to_npy(image: Image) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, image)
    return buffer.getvalue()


def _window() -> dict[str, Any]:
    """Where to cut: the same for every format, by the seeds."""
    return {
        "crop": CROP,
        "crop_pos_x": fn.random.uniform(range=(0.0, 1.0), seed=1),
        "crop_pos_y": fn.random.uniform(range=(0.0, 1.0), seed=2),
    }


def _to_halves() -> dict[str, Any]:
    mirror = fn.random.coin_flip(seed=3)
    return {"mirror": mirror, "mean": MEAN, "std": STD, "dtype": types.FLOAT16}


def _read(files: list[str], lazy: bool = False) -> Any:
    reader = fn.l3.readers.file(files=files, lazy=True) if lazy else fn.readers.file(files=files)
    return reader[0]


def _load_l3(files: list[str], device: str, lazy: bool = False) -> Any:
    return fn.l3.decode(_read(files, lazy), device=device)


def _load_l3_cached(files: list[str], device: str) -> Any:
    encoded, _ = fn.readers.file(files=files, skip_cached_images=True)
    return fn.l3.decode(encoded, device=device, cache_size=CACHE_MB, skip_cached_images=True)


def _crops_of_l3(files: list[str], device: str, lazy: bool = False) -> Any:
    options = {"device": device, "output_type": types.RGB, **_window(), **_to_halves()}
    return fn.l3.decode_crop_mirror_normalize(_read(files, lazy), **options)


def _load_image(files: list[str], device: str, **options: Any) -> Any:
    return fn.decoders.image(_read(files), device=device, output_type=types.RGB, **options)


def _load_image_by_cpu(files: list[str], device: str) -> Any:
    assert device == "mixed"
    return _load_image(files, "cpu").gpu()


def _crops_of_image(files: list[str], device: str, **options: Any) -> Any:
    options |= {"device": device, "output_type": types.RGB, **_window()}
    return fn.crop_mirror_normalize(fn.decoders.image_crop(_read(files), **options), **_to_halves())


def _crops_of_image_by_cpu(files: list[str], device: str) -> Any:
    assert device == "mixed"
    options = {"device": "cpu", "output_type": types.RGB, **_window()}
    cuts = fn.decoders.image_crop(_read(files), **options).gpu()
    return fn.crop_mirror_normalize(cuts, **_to_halves())


def _crops_of_npy(files: list[str], device: str) -> Any:
    arrays = fn.reinterpret(_load_npy(files, device), layout="HWC")
    return fn.crop_mirror_normalize(arrays, **_window(), **_to_halves())


def _load_npy(files: list[str], device: str) -> Any:
    array = fn.readers.numpy(files=files)
    return array.gpu() if device == "mixed" else array


def formats(device: str) -> list[Format]:
    """L3 and its peers on a device, PNG first: the others are compared with it."""

    def image(name: str, encode: Callable[[Image], bytes], lossless: bool = True) -> Format:
        return Format(name, encode, _load_image, _crops_of_image, lossless)

    l3 = {mode: l3_encoder(mode, threads=0) for mode in L3_CODINGS}
    jpeg_2000 = {"level": 0, "reversible": True, "codecformat": "jp2"}
    chosen = [
        image(PNG.name, PNG.encode),
        *(Format(f"L3 {mode}", encode, _load_l3, _crops_of_l3) for mode, encode in l3.items()),
        image(HTJ2K.name, HTJ2K.encode),
        image("JPEG 2000", functools.partial(imagecodecs.jpeg2k_encode, **jpeg_2000)),
        *(image(tiff.name, tiff.encode) for tiff in (TIFF_ZSTD, TIFF_DEFLATE, TIFF_LZW)),
        image(JPEG, jpeg_of, lossless=False),
        Format("raw (numpy)", _to_npy, _load_npy, _crops_of_npy),
    ]
    if l3_of_jpeg(jpeg_of(noisy_gradient(64, 64))):
        own = Format("L3 jpeg", lambda i: l3_of_jpeg(jpeg_of(i)), _load_l3, _crops_of_l3, False)
        chosen.append(own)
    if device == "mixed":
        for name, share in NVJPEG_BACKENDS.items():
            load, crop = (
                functools.partial(f, hw_decoder_load=share) for f in (_load_image, _crops_of_image)
            )
            chosen.append(Format(f"{JPEG}, {name}", jpeg_of, load, crop, lossless=False))
        name = f"{JPEG}, DALI on the CPU"
        by_cpu = _load_image_by_cpu, _crops_of_image_by_cpu
        chosen.append(Format(name, jpeg_of, *by_cpu, lossless=False))
        for mode, encode in l3.items():
            chosen.append(Format(f"L3 {mode}, cached", encode, _load_l3_cached, cached=True))
        for mode, encode in l3.items():
            load, crop = (functools.partial(f, lazy=True) for f in (_load_l3, _crops_of_l3))
            chosen.append(Format(f"L3 {mode}, lazy", encode, load, crop))
    return chosen


def jpeg_of(image: Image) -> bytes:
    """The JPEG file that an image of a set comes from; of others one of quality 95."""
    path = JPEG_FILES.get(id(image))
    return path.read_bytes() if path else bytes(imagecodecs.jpeg8_encode(image, level=95))


def write_files(encoded: list[bytes], count: int, folder: Path) -> list[str]:
    """Writes `count` files, repeating the images; returns their paths."""
    folder.mkdir()
    paths = [folder / f"{i:05d}.npy" for i in range(count)]  # the numpy reader wants this name
    for path, content in zip(paths, itertools.cycle(encoded), strict=False):
        path.write_bytes(content)
    return [str(path) for path in paths]


def build(fmt: Format, task: str, files: list[str], device: str, batch: int, threads: int) -> Any:
    """A pipeline of its own."""
    pipe = dali.Pipeline(batch, threads, 0 if device == "mixed" else None)
    graph = fmt.load if task == WHOLE else fmt.load_crops
    assert graph is not None
    with pipe:
        pipe.set_outputs(graph(files, device))
    return pipe


def run_batches(pipe: Any, least: int = 0, until: float = 0.0) -> int:
    """Runs a pipeline that has nothing in flight, until all that it began is delivered.

    Args:
        pipe: the pipeline. Like `Pipeline.run`, this keeps as many batches in flight as DALI
            prefetches; unlike it, it leaves none behind for the next measurement.
        least: batches, and maybe more by those in flight.
        until: no batch is begun after this time of `time.perf_counter`.

    Returns:
        How many batches were computed.
    """
    batches = 0

    def take() -> None:
        nonlocal batches
        pipe.share_outputs()
        pipe.release_outputs()
        batches += 1

    pipe.schedule_run()  # the first time as many as DALI prefetches
    while batches < least or time.perf_counter() < until:
        pipe.schedule_run()
        take()
    while not pipe.empty():
        take()
    return batches


def take_turn(
    what: Configuration, files: list[str], device: str, seconds: float, pins: bool = False
) -> Turn:
    """Runs a pipeline of its own for a while, and nothing else beside or after it."""
    cores = os.sched_getaffinity(0)
    if pins:  # threads that DALI begins stay there, too
        os.sched_setaffinity(0, sorted(cores)[: what.threads])
    try:
        pipe = build(what.format, what.task, files, device, what.batch, what.threads)
        try:
            return time_pipeline(pipe, what, len(files), device, seconds)
        finally:
            del pipe  # ends its threads
            gc.collect()
    finally:
        os.sched_setaffinity(0, cores)


def time_pipeline(
    pipe: Any, what: Configuration, file_count: int, device: str, seconds: float
) -> Turn:
    """Warms a pipeline up, and times it."""
    warm = WARM_UP + (math.ceil(file_count / what.batch) if what.format.cached else 0)
    run_batches(pipe, least=warm)
    gpu = GpuUse()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    batches = 0
    for length in range(1, LONGEST_TURN + 1):
        batches += run_batches(pipe, until=begin + length * seconds)
        took, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
        busy = gpu.samples() if device == "mixed" else []
        if device != "mixed" or gpu.why_not or len(busy) >= GPU_SAMPLES:
            break
    count = batches * what.batch
    gpu_ms = 1000 * statistics.mean(busy) * took / count if busy else None
    return Turn(count / took, 1000 * cpu / count, gpu_ms, len(busy))


def first_line(error: Exception) -> str:
    """What an error says first."""
    return str(error).strip().split("\n")[0]


def why_not(fmt: Format, files: list[str], original: Image, device: str, task: str = WHOLE) -> str:
    """What keeps a format from being measured on a device; empty if nothing does."""
    try:
        (output,) = build(fmt, task, files[:1], device, batch=1, threads=1).run()
    except DALI_FAILURES as error:
        return first_line(error)
    if task == CROPS:
        right = output.dtype == types.FLOAT16 and output.shape()[0] == (3, *CROP)
        return "" if right else "does not give normalized halves"
    same = np.array_equal(np.asarray(output.as_cpu()[0]), original)
    return "does not give back the pixels" if fmt.lossless and not same else ""


def summarise(what: Configuration, turns: list[Turn], png: list[Turn]) -> dict[str, Any]:
    """The row of a configuration from its turns and PNG's of the same rounds: medians."""
    rates = [turn.images_per_s for turn in turns]
    gpu = [turn.gpu_ms_per_image for turn in turns if turn.gpu_ms_per_image is not None]
    pairs = list(zip(turns, png, strict=False))  # one that failed has fewer, of the first rounds
    return {
        "task": what.task,
        "format": what.format.name,
        "lossless": what.format.lossless,
        "threads": what.threads,
        "batch": what.batch,
        "rounds": len(turns),
        "images_per_s": statistics.median(rates),
        "slowest_images_per_s": min(rates),
        "fastest_images_per_s": max(rates),
        "times_png": statistics.median(t.images_per_s / p.images_per_s for t, p in pairs),
        "cpu_s_per_1000": statistics.median(turn.cpu_s_per_1000 for turn in turns),
        "png_cpu_ratio": statistics.median(p.cpu_s_per_1000 / t.cpu_s_per_1000 for t, p in pairs),
        "gpu_ms_per_image": statistics.median(gpu) if gpu else None,
        "gpu_samples": sum(turn.gpu_samples for turn in turns),
    }


def plan_round(
    chosen: dict[str, list[Format]], threads: list[int], batches: list[int]
) -> list[Configuration]:
    """For each task: all its formats at all threads with the first batch.

    L3 and PNG at most threads with the other batches.
    """
    plan = []
    for task, able in chosen.items():
        few = [fmt for fmt in able if fmt.name == PNG.name or fmt.name.startswith("L3")]
        plan += [Configuration(fmt, n, batches[0], task) for n in threads for fmt in able]
        plan += [Configuration(fmt, max(threads), n, task) for n in batches[1:] for fmt in few]
    return plan


def measure_set(name: str, originals: list[Image], args: argparse.Namespace) -> Iterator[Progress]:
    """All configurations on the images of one set; yields after each round."""
    began = time.monotonic()
    chosen = formats(args.device)
    if args.formats:
        known = [fmt.name for fmt in chosen]
        if unknown := set(args.formats) - set(known):
            raise SystemExit(f"no format {', '.join(unknown)}; there are {', '.join(known)}")
        chosen = [fmt for fmt in chosen if fmt.name in {PNG.name, *args.formats}]
    encoded = {
        fmt.name: [bytes(fmt.encode(image)) for image in track(originals, fmt.name)]
        for fmt in chosen
    }
    if args.device == "mixed" and not gpu_name():
        raise SystemExit("no GPU, so nothing was timed; --device cpu needs none")
    turns: dict[Configuration, list[Turn]] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = {
            fmt: write_files(contents, args.files, Path(folder, str(i)))
            for i, (fmt, contents) in enumerate(encoded.items())
        }
        able: dict[str, list[Format]] = {}
        left_out = []
        for task in args.tasks:
            asked = [fmt for fmt in chosen if task == WHOLE or fmt.load_crops is not None]
            reasons = {
                fmt: why_not(fmt, files[fmt.name], originals[0], args.device, task) for fmt in asked
            }
            for fmt, reason in reasons.items():
                if fmt.name == PNG.name and reason and task == WHOLE:
                    raise SystemExit(f"{PNG.name}, which all are compared with: {reason}")
            left_out += [f"{f.name}, {task} ({reason})" for f, reason in reasons.items() if reason]
            able[task] = [fmt for fmt, reason in reasons.items() if not reason]
        plan = plan_round(able, args.threads, args.batch)
        for done in range(1, args.rounds + 1):
            for what in track(list(plan), f"{name}, round {done}"):
                try:
                    of_format = files[what.format.name]
                    turn = take_turn(what, of_format, args.device, args.seconds, args.pin)
                except DALI_FAILURES as error:  # the rest goes on
                    plan.remove(what)
                    at = f"{what.task}, {what.threads} threads, batch {what.batch}"
                    left_out.append(f"{what.format.name}, {at} ({first_line(error)})")
                else:
                    turns.setdefault(what, []).append(turn)
            yield Progress(done, rows_of(name, chosen, turns, encoded, originals), list(left_out))
            minutes = (time.monotonic() - began) / 60
            if minutes / done * (done + 1) > args.minutes:
                break


def rows_of(
    name: str,
    chosen: list[Format],
    turns: dict[Configuration, list[Turn]],
    encoded: dict[str, list[bytes]],
    originals: list[Image],
) -> list[dict[str, Any]]:
    """The rows so far, by task and format; those without PNG's to compare with are left out."""
    png = {(w.task, w.threads, w.batch): t for w, t in turns.items() if w.format.name == PNG.name}
    return [
        {
            "set": name,
            **summarise(what, of_what, png[what.task, what.threads, what.batch]),
            "encoded_bytes": statistics.mean(map(len, encoded[fmt.name])),  # an image
            "pixel_bytes": statistics.mean(image.nbytes for image in originals),
        }
        for task in TASKS
        for fmt in chosen
        for what, of_what in turns.items()
        if (what.task, what.format) == (task, fmt) and (task, what.threads, what.batch) in png
    ]


def rounded(number: float) -> str:
    """Three digits or more."""
    return (
        f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"
    )


COLUMNS = {
    "format": "{name}",
    "threads": "{threads}",
    "batch": "{batch}",
    "ratio": "{ratio:.2f}",
    "images/s": "{images_per_s}",
    "slowest to fastest": "{slowest_images_per_s} to {fastest_images_per_s}",
    "MB/s of pixels": "{pixel_mb_s:.0f}",
    "x PNG": "{times_png}",
    "CPU s per 1,000 images": "{cpu_s_per_1000}",
    "PNG's CPU time / its": "{png_cpu_ratio}",
    "GPU ms an image": "{gpu_ms_per_image:.3f}",
}
ROUNDED = ["images_per_s", "slowest_images_per_s", "fastest_images_per_s"]
ROUNDED += ["times_png", "cpu_s_per_1000", "png_cpu_ratio"]


def page(rows: list[dict[str, Any]]) -> str:
    """The tables, one a set and task."""
    text = ""
    for name, of_set in itertools.groupby(rows, lambda row: f"{row['set']}, {row['task']}"):
        shown = [
            {
                **row,
                "name": row["format"] + " (lossy)" * (not row["lossless"]),
                "ratio": row["pixel_bytes"] / row["encoded_bytes"],
                "pixel_mb_s": row["images_per_s"] * row["pixel_bytes"] / 1e6
                if row["task"] == WHOLE
                else None,
                **{key: rounded(row[key]) for key in ROUNDED},
            }
            for row in of_set
        ]
        text += f"\n## {name}\n\n" + markdown_table(list(COLUMNS), cells(shown, COLUMNS))
    return text


def positive(text: str) -> int:
    """An argument that counts something."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets")
    parser.add_argument("--sets", nargs="+", help="default: photo/large, or else a gradient")
    parser.add_argument("--device", choices=["cpu", "mixed"], help="default: mixed with a GPU")
    parser.add_argument(
        "--threads", type=positive, nargs="+", help="default: 1 2 4 8 16; mixed: 1 4 16"
    )
    parser.add_argument(
        "--batch",
        type=positive,
        nargs="+",
        help="default: 32; mixed: 32 128. Others than the first for L3 and PNG at most threads",
    )
    parser.add_argument(
        "--tasks", choices=["whole", "crops"], nargs="+", help="default: both; mixed: whole"
    )
    parser.add_argument("--formats", nargs="+", help="default: all; PNG is always measured")
    parser.add_argument(
        "--pin", action="store_true", help="keep each turn on as many cores as it has threads"
    )
    parser.add_argument("--name", help="of the results; default: pipeline_<device>")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument(
        "--minutes",
        type=float,
        default=math.inf,
        help="no more rounds of a set than these will probably hold, but one",
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    parser.add_argument("--files", type=positive, default=256, help="of each format")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    args.device = args.device or ("mixed" if gpu_name() else "cpu")
    args.threads = args.threads or ([1, 4, 16] if args.device == "mixed" else [1, 2, 4, 8, 16])
    args.batch = args.batch or ([32, 128] if args.device == "mixed" else [32])
    args.threads, args.batch = (list(dict.fromkeys(n)) for n in (args.threads, args.batch))
    asked = args.tasks or (["whole"] if args.device == "mixed" else ["whole", "crops"])
    args.tasks = [task for task in TASKS if task.split()[0] in asked]
    args.files = max(args.files, *args.batch)
    return args


def read_sets(args: argparse.Namespace) -> dict[str, list[Image]]:
    """The images by set; without photographs, and none asked for, one noisy gradient."""
    sets = {
        name: [image for _, image in images(args.data, name)]
        or [*_images_of_jpegs(args.data / name)]
        for name in args.sets or [USUAL_SET]
    }
    for name, originals in sets.items():
        if not originals and args.sets:
            raise SystemExit(f"no images in {args.data / name}")
    return sets if any(sets.values()) else {"gradient": [noisy_gradient(1024, 2048)]}


def _images_of_jpegs(folder: Path) -> Iterator[Image]:
    """RGB images of JPEG files, which jpeg_of() finds again."""
    for path in sorted(folder.glob("*.JPEG")):
        image: Image = imagecodecs.jpeg8_decode(path.read_bytes())
        if image.ndim == 3:
            JPEG_FILES[id(image)] = path
            yield image


def idle_gpu_share() -> str:
    """What NVML says of a second in which this process leaves the GPU alone."""
    gpu = GpuUse()
    time.sleep(1)
    busy = gpu.samples()
    if gpu.why_not or not busy:
        return f"GPU time was not measured: {gpu.why_not or 'no samples'}."
    return f"Before it began the GPU was busy for {100 * statistics.mean(busy):.0f} % of a second."


def write(
    args: argparse.Namespace, host: str, sets: dict[str, list[Image]], parts: list[Progress]
) -> str:
    """Writes pipeline_<device>.md and .json; returns the page."""
    rows = [row for part in parts for row in part.rows]
    counts = (f"{len(originals)} images of {name}" for name, originals in sets.items())
    left_out = [
        f"{what}, on {name}"
        for name, part in zip(sets, parts, strict=False)
        for what in part.left_out
    ]
    batches = " and ".join(map(str, args.batch))
    text = (
        f"{host} Files in the page cache to decoded batches of {batches} "
        f"through DALI, device={args.device!r}; {args.files} files of each format "
        f"({', '.join(counts)}). "
        f"Formats in turn, {' and '.join(str(part.rounds) for part in parts)} rounds of "
        f"{args.seconds:g} s, medians. "
        f"Load {os.getloadavg()[1]:.0f} on {os.cpu_count()} cores, this run included.\n"
        + "".join(f"\nNot measured: {what}.\n" for what in left_out)
        + page(rows)
    )
    data = {
        "host": host,
        "load": os.getloadavg()[1],
        "cores": os.cpu_count(),
        "left_out": left_out,
        "rows": rows,
    }
    name = args.name or f"pipeline_{args.device}"
    return save_results(name, "DALI pipelines", text, data, args.out)


def main(arguments: list[str] | None = None) -> None:
    """Measures, and writes pipeline_<device>.md and .json."""
    args = parse(arguments)
    # OpenCV would warn of every JPEG 2000 image that its colours are not named.
    os.environ.setdefault("OPENCV_LOG_LEVEL", "ERROR")
    sets = read_sets(args)
    host = f"{machine()}, DALI {dali.__version__}"
    if args.device == "mixed" and (gpu := describe_gpu()) is not None:
        host += f", {gpu[0]}, driver {gpu[1]}. {idle_gpu_share()}"
    else:
        host += "."
    parts: list[Progress] = []
    for name, originals in sets.items():
        for progress in measure_set(name, originals, args):
            text = write(args, host, sets, [*parts, progress])
        parts.append(progress)
    print(text)
    if not any(part.rows for part in parts):
        raise SystemExit("nothing could be timed")


if __name__ == "__main__":
    main()
