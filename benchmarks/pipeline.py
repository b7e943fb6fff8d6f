"""DALI pipelines from files in the page cache to decoded batches: L3 beside its peers.

    python benchmarks/pipeline.py --data ../shared/data --device mixed

Every format holds the same pixels; batches end in GPU memory for `mixed`, in host memory
for `cpu`. Formats take turns, round after round, each time in a pipeline of its own that
warms up first; medians over the rounds count, ratios to PNG are of the same round. CPU
seconds are those of the whole process. GPU time is the share of the time in which the
first GPU ran a kernel, as NVML samples it (package nvidia-ml-py).
"""

from __future__ import annotations

import argparse
import io
import itertools
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import imagecodecs
import matplotlib as mpl
import numpy as np
import nvidia.dali as dali
from gpu_host import GpuUse, describe_gpu
from nvidia.dali import fn, types
from peers import PNG, Image, images, machine
from report import RESULTS, markdown_table, write_results
from rich.progress import track

import l3dali
import l3dali.plugin
from l3dali._gpu import has_gpu

mpl.use("Agg")
import matplotlib.pyplot as plt

WARM_UP = 3  # batches: one more than DALI prefetches
CACHE_MB = 16384  # of GPU memory at most; it is taken as files come


@dataclass(frozen=True)
class Format:
    """How an image is stored, and the DALI graph from such files to a batch on a device."""

    name: str
    encode: Callable[[Image], bytes]
    load: Callable[[list[str], str], Any]
    lossless: bool = True
    cached: bool = False  # measured once every file has been seen


@dataclass(frozen=True)
class Turn:
    """What one turn of a format measured."""

    images_per_s: float
    cpu_s_per_1000: float
    gpu_ms_per_image: float | None  # None where it cannot be had


@dataclass(frozen=True)
class Row:
    """A format at a number of threads: medians over the rounds, and their extremes."""

    set: str
    format: str
    lossless: bool
    threads: int
    images_per_s: float
    slowest_images_per_s: float
    fastest_images_per_s: float
    times_png: float
    cpu_s_per_1000: float
    png_cpu_ratio: float
    gpu_ms_per_image: float | None
    encoded_bytes: float  # an image, on average
    pixel_bytes: float


def _to_npy(image: Image) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, image)
    return buffer.getvalue()


def _load_l3(files: list[str], device: str) -> Any:
    return fn.l3.decode(fn.readers.file(files=files)[0], device=device)


def _load_l3_cached(files: list[str], device: str) -> Any:
    encoded, _ = fn.readers.file(files=files)
    return fn.l3.decode(encoded, device=device, cache_size=CACHE_MB)


def _load_image(files: list[str], device: str) -> Any:
    encoded, _ = fn.readers.file(files=files)
    return fn.decoders.image(encoded, device=device, output_type=types.RGB)


def _load_npy(files: list[str], device: str) -> Any:
    array = fn.readers.numpy(files=files)
    return array.gpu() if device == "mixed" else array


def _load_npy_on_gpu(files: list[str], device: str) -> Any:
    del device
    return fn.readers.numpy(files=files, device="gpu")


def formats(device: str) -> list[Format]:
    """L3 and its peers on a device, PNG first: the others are compared with it."""

    def encode_l3(mode: str) -> Callable[[Image], bytes]:
        return lambda image: l3dali.encode(image, mode=mode)

    chosen = [
        Format(PNG.name, PNG.encode, _load_image),
        *(Format(f"L3 {mode}", encode_l3(mode), _load_l3) for mode in l3dali.MODES),
        Format(
            "HTJ2K", lambda image: imagecodecs.htj2k_encode(image, reversible=True), _load_image
        ),
        Format(
            "JPEG 2000",
            lambda image: imagecodecs.jpeg2k_encode(
                image, level=0, reversible=True, codecformat="jp2"
            ),
            _load_image,
        ),
        Format(
            "JPEG 95",
            lambda image: imagecodecs.jpeg8_encode(image, level=95),
            _load_image,
            lossless=False,
        ),
        Format("raw (numpy)", _to_npy, _load_npy),
    ]
    if device == "mixed":
        chosen += [
            *(
                Format(f"L3 {mode}, cached", encode_l3(mode), _load_l3_cached, cached=True)
                for mode in l3dali.MODES
            ),
            Format("raw (numpy, gpu)", _to_npy, _load_npy_on_gpu),
        ]
    return chosen


def write_files(encoded: list[bytes], count: int, folder: Path) -> list[str]:
    """Writes `count` files, repeating the images; returns their paths."""
    folder.mkdir()
    paths = [folder / f"{i:05d}.npy" for i in range(count)]  # the numpy reader wants this name
    for path, content in zip(paths, itertools.cycle(encoded), strict=False):
        path.write_bytes(content)
    return [str(path) for path in paths]


def take_turn(
    fmt: Format, files: list[str], device: str, threads: int, batch: int, seconds: float
) -> Turn:
    """Runs a pipeline of its own for a while."""
    pipe = dali.Pipeline(batch, threads, 0 if device == "mixed" else None)
    with pipe:
        pipe.set_outputs(fmt.load(files, device))
    epoch = math.ceil(len(files) / batch)
    for _ in range(WARM_UP + (epoch if fmt.cached else 0)):
        pipe.run()
    gpu = GpuUse()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    batches = 0
    while batches == 0 or time.perf_counter() - begin < seconds:
        pipe.run()
        batches += 1
    took, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    busy = gpu.share()
    count = batches * batch
    gpu_ms = None if busy is None or device != "mixed" else 1000 * busy * took / count
    return Turn(count / took, 1000 * cpu / count, gpu_ms)


def why_not(fmt: Format, files: list[str], original: Image, device: str) -> str:
    """What keeps a format from being measured on a device; empty if nothing does."""
    pipe = dali.Pipeline(1, 1, 0 if device == "mixed" else None)
    try:
        with pipe:
            pipe.set_outputs(fmt.load(files[:1], device))
        (output,) = pipe.run()
    except RuntimeError as error:
        return str(error).strip().splitlines()[0]
    same = np.array_equal(np.asarray(output.as_cpu()[0]), original)
    return "does not give back the pixels" if fmt.lossless and not same else ""


def summarise(
    name: str,
    fmt: Format,
    threads: int,
    turns: list[Turn],
    png: list[Turn],
    encoded_bytes: float,
    pixel_bytes: float,
) -> Row:
    """The row of a format from its turns and PNG's of the same rounds."""
    rates = [turn.images_per_s for turn in turns]
    gpu = [turn.gpu_ms_per_image for turn in turns if turn.gpu_ms_per_image is not None]
    pairs = list(zip(turns, png, strict=True))
    return Row(
        set=name,
        format=fmt.name,
        lossless=fmt.lossless,
        threads=threads,
        images_per_s=statistics.median(rates),
        slowest_images_per_s=min(rates),
        fastest_images_per_s=max(rates),
        times_png=statistics.median(t.images_per_s / p.images_per_s for t, p in pairs),
        cpu_s_per_1000=statistics.median(turn.cpu_s_per_1000 for turn in turns),
        png_cpu_ratio=statistics.median(p.cpu_s_per_1000 / t.cpu_s_per_1000 for t, p in pairs),
        gpu_ms_per_image=statistics.median(gpu) if gpu else None,
        encoded_bytes=encoded_bytes,
        pixel_bytes=pixel_bytes,
    )


def measure_set(
    name: str, originals: list[Image], args: argparse.Namespace
) -> tuple[list[Row], list[str]]:
    """All formats at all numbers of threads on the images of one set; and those left out."""
    chosen = formats(args.device)
    encoded = {
        fmt.name: [bytes(fmt.encode(image)) for image in track(originals, fmt.name)]
        for fmt in chosen
    }
    if args.device == "mixed" and not has_gpu():
        raise SystemExit("no GPU, so nothing was timed; --device cpu needs none")
    turns: dict[tuple[str, int], list[Turn]] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = {
            fmt: write_files(contents, args.files, Path(folder, str(i)))
            for i, (fmt, contents) in enumerate(encoded.items())
        }
        reasons = {
            fmt.name: why_not(fmt, files[fmt.name], originals[0], args.device) for fmt in chosen
        }
        chosen = [fmt for fmt in chosen if not reasons[fmt.name]]
        if reasons[PNG.name]:
            raise SystemExit(f"{PNG.name}, which all are compared with: {reasons[PNG.name]}")
        rounds = itertools.product(range(args.rounds), args.threads, chosen)
        steps = args.rounds * len(args.threads) * len(chosen)
        for _, threads, fmt in track(rounds, name, total=steps):
            turn = take_turn(fmt, files[fmt.name], args.device, threads, args.batch, args.seconds)
            turns.setdefault((fmt.name, threads), []).append(turn)
    rows = [
        summarise(
            name,
            fmt,
            threads,
            turns[fmt.name, threads],
            turns[PNG.name, threads],
            statistics.mean(map(len, encoded[fmt.name])),
            statistics.mean(image.nbytes for image in originals),
        )
        for fmt in chosen
        for threads in args.threads
    ]
    return rows, [f"{fmt}: {reason}" for fmt, reason in reasons.items() if reason]


def rounded(number: float) -> str:
    """Three digits or more."""
    return (
        f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"
    )


def page(rows: list[Row]) -> str:
    """The tables, one a set."""
    head = ["format", "threads", "ratio", "images/s", "slowest to fastest", "MB/s of pixels"]
    head += ["x PNG", "CPU s per 1,000 images", "PNG's CPU time / its", "GPU ms an image"]
    text = ""
    for name, of_set in itertools.groupby(rows, lambda row: row.set):
        table = [
            [
                row.format if row.lossless else f"{row.format} (lossy)",
                f"{row.threads}",
                f"{row.pixel_bytes / row.encoded_bytes:.2f}",
                rounded(row.images_per_s),
                f"{rounded(row.slowest_images_per_s)} to {rounded(row.fastest_images_per_s)}",
                f"{row.images_per_s * row.pixel_bytes / 1e6:.0f}",
                rounded(row.times_png),
                rounded(row.cpu_s_per_1000),
                rounded(row.png_cpu_ratio),
                "-" if row.gpu_ms_per_image is None else f"{row.gpu_ms_per_image:.3f}",
            ]
            for row in of_set
        ]
        text += f"\n## {name}\n\n" + markdown_table(head, table)
    return text


def draw(rows: list[Row], title: str, path: Path) -> None:
    """For each set: throughput and CPU time by format at the most threads; then by threads."""
    sets = list(dict.fromkeys(row.set for row in rows))
    size = (15, 4.2 * len(sets))
    figure, axes = plt.subplots(len(sets), 3, figsize=size, squeeze=False, layout="constrained")
    for (rates, cpu, lines), name in zip(axes, sets, strict=True):
        of_set = [row for row in rows if row.set == name]
        threads = sorted({row.threads for row in of_set})
        for fmt in dict.fromkeys(row.format for row in of_set):
            of_format = {row.threads: row for row in of_set if row.format == fmt}
            lines.plot(threads, [of_format[n].images_per_s for n in threads], marker="o", label=fmt)
            color = lines.lines[-1].get_color()
            rates.barh(fmt, of_format[threads[-1]].images_per_s, color=color)
            cpu.barh(fmt, of_format[threads[-1]].cpu_s_per_1000, color=color)
        rates.set(xscale="log", xlabel=f"images/s, {threads[-1]} threads", title=f"{name}, {title}")
        cpu.set(xscale="log", xlabel=f"CPU s per 1,000 images, {threads[-1]} threads")
        lines.set(yscale="log", ylabel="images/s", xlabel="threads", xticks=threads)
        lines.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
        for panel in (rates, cpu):
            panel.invert_yaxis()
        for panel in (rates, cpu, lines):
            panel.grid(alpha=0.3, which="both")
    figure.savefig(path, dpi=100)
    plt.close(figure)


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
    parser.add_argument("--sets", nargs="+", default=["photo/large"])
    parser.add_argument("--device", choices=["cpu", "mixed"], help="default: mixed with a GPU")
    parser.add_argument("--threads", type=positive, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--batch", type=positive, default=32)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    parser.add_argument("--files", type=positive, default=256, help="of each format")
    parser.add_argument("--images", type=positive, help="of each set; default: all")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    args.files = max(args.files, args.batch)
    args.device = args.device or ("mixed" if has_gpu() else "cpu")
    return args


def main(arguments: list[str] | None = None) -> None:
    """Measures, and writes pipeline_<device>.md, .json and .png."""
    args = parse(arguments)
    # OpenCV would warn of every JPEG 2000 image that its colours are not named.
    os.environ.setdefault("OPENCV_LOG_LEVEL", "ERROR")
    rows: list[Row] = []
    left_out: list[str] = []
    counts: list[str] = []
    for name in args.sets:
        originals = [image for _, image in itertools.islice(images(args.data, name), args.images)]
        if not originals:
            raise SystemExit(f"no images in {args.data / name}")
        measured, unmeasured = measure_set(name, originals, args)
        rows += measured
        counts.append(f"{len(originals)} images of {name}")
        left_out += [f"\nNot measured on {name}: {what}.\n" for what in unmeasured]
    gpu = describe_gpu() if args.device == "mixed" else None
    host = f"{machine()}, DALI {dali.__version__}" + (f", {gpu[0]}, driver {gpu[1]}" if gpu else "")
    text = (
        f"{host}. Files in the page cache to decoded batches of "
        f"{args.batch} through DALI, device={args.device!r}; {args.files} files of each format "
        f"({', '.join(counts)}). "
        f"Formats in turn, {args.rounds} rounds of {args.seconds:g} s, medians. "
        f"Load {os.getloadavg()[1]:.0f} on {os.cpu_count()} cores, this run included.\n"
        + "".join(left_out)
        + page(rows)
    )
    name = f"pipeline_{args.device}"
    write_results(name, "DALI pipelines", text, {"rows": [asdict(row) for row in rows]}, args.out)
    draw(rows, f"device={args.device!r}", args.out / f"{name}.png")


if __name__ == "__main__":
    main()
