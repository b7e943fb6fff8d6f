"""`make demo`: photographs become L3 files, and a DALI pipeline gives back every pixel."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import imagecodecs
import matplotlib as mpl
import numpy as np
import nvidia.dali as dali
import skimage
from matplotlib import pyplot as plt
from nvidia.dali import fn, types

import l3dali
import l3dali.fn
from l3dali import _build_info
from l3dali.codec import Image
from l3dali.console import megabytes, print_table, ratio, speed
from l3dali.driver import gpu_name
from l3dali.images.reading import read_picture

PHOTOGRAPHS = (
    *("astronaut", "brick", "camera", "cell", "chelsea", "coffee", "coins", "grass", "gravel"),
    *("hubble_deep_field", "ihc", "moon", "motorcycle_left", "motorcycle_right", "retina"),
    "rocket",
)
PNG_LEVEL = 6
BATCHES = 20
COPIES = 4  # of each photograph in a batch


@dataclass(frozen=True)
class Format:
    """One of the formats compared, and the functions that decode it."""

    name: str
    suffix: str
    encode: Callable[[Image], bytes]
    decode: Callable[[bytes], Image]
    decode_in_pipeline: Callable[..., dali.data_node.DataNode]


@dataclass(frozen=True)
class Measured:
    """What the demo found out about a format."""

    format: Format
    file_bytes: int
    library_seconds: float  # of one decode of all photographs on one thread
    pipeline_seconds: float  # of the same in the pipeline


def l3_format(coding: l3dali.Coding) -> Format:
    """L3 in one of its codings."""
    return Format(
        f"L3 {coding}",
        ".l3",
        partial(l3dali.encode, coding=coding),
        l3dali.decode,
        lambda data, device: l3dali.fn.decode(data, device=device),
    )


FORMATS = (
    l3_format("packed"),
    l3_format("rans"),
    Format(
        "PNG",
        ".png",
        lambda pixels: bytes(imagecodecs.png_encode(pixels, level=PNG_LEVEL)),
        imagecodecs.png_decode,
        lambda data, device: fn.decoders.image(data, device=device, output_type=types.ANY_DATA),
    ),
)


def main() -> int:
    """Runs the demo; returns 1 if a pixel differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo"), help="folder to write to")
    output: Path = parser.parse_args().output
    photographs = load_photographs()
    raw_bytes = sum(pixels.nbytes for pixels in photographs.values())
    device = "mixed" if _build_info.CUDA_VERSION and gpu_name() else "cpu"
    threads = len(os.sched_getaffinity(0))

    measured = []
    for image_format in FORMATS:
        print(f"{image_format.name}: encoding, decoding, comparing, measuring", flush=True)
        files = write_files(photographs, image_format, output)
        decoded = run_pipeline(files, image_format, device, threads)
        wrong = [
            name
            for (name, pixels), copy in zip(photographs.items(), decoded, strict=True)
            if not np.array_equal(copy.squeeze(), pixels)
        ]
        if wrong:
            print(f"pixels differ in {image_format.name} files: {', '.join(wrong)}")
            return 1
        measured.append(
            Measured(
                image_format,
                sum(file.stat().st_size for file in files),
                time_library(files, image_format),
                time_pipeline(files, image_format, device, threads),
            )
        )
        if image_format is FORMATS[0]:
            draw_contact_sheet(dict(zip(photographs, decoded, strict=True)), output, device)

    print(f"{len(photographs)} photographs, {megabytes(raw_bytes)}: every pixel came back.")
    print_table(
        ["", "size", "ratio to raw", "one thread, MB/s", f"DALI {device}, {threads} threads, MB/s"],
        *(
            [
                m.format.name,
                megabytes(m.file_bytes),
                ratio(m.file_bytes, raw_bytes),
                speed(raw_bytes, m.library_seconds),
                speed(raw_bytes, m.pipeline_seconds),
            ]
            for m in measured
        ),
    )
    draw_bars(measured, raw_bytes, output, f"DALI pipeline, {device}, {threads} threads")
    print(f"Pictures: {output / 'contact_sheet.png'}, {output / 'bars.png'}")
    return 0


def load_photographs() -> dict[str, Image]:
    """The photographs that come inside scikit-image, by name."""
    folder = Path(skimage.__file__).parent / "data"
    return {
        name: read_picture(next(folder.glob(f"{name}.*")).read_bytes()).pixels
        for name in PHOTOGRAPHS
    }


def write_files(photographs: dict[str, Image], image_format: Format, output: Path) -> list[Path]:
    """Encodes the photographs into a folder of their own."""
    folder = output / image_format.name.lower().replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, pixels in photographs.items():
        files.append(folder / f"{name}{image_format.suffix}")
        files[-1].write_bytes(image_format.encode(pixels))
    return files


def build_pipeline(
    files: list[Path], image_format: Format, device: str, threads: int
) -> dali.Pipeline:
    """A pipeline that reads the files and decodes them, all in one batch."""

    @dali.pipeline_def(
        batch_size=len(files),
        num_threads=threads,
        device_id=None if device == "cpu" else 0,
    )
    def pipeline() -> dali.data_node.DataNode:
        encoded, _ = fn.readers.file(files=[str(file) for file in files])
        return image_format.decode_in_pipeline(encoded, device)

    return pipeline()


def run_pipeline(files: list[Path], image_format: Format, device: str, threads: int) -> list[Image]:
    """The images of one batch, in the order of the files."""
    (images,) = build_pipeline(files, image_format, device, threads).run()
    return [np.array(image) for image in images.as_cpu()]


def time_pipeline(files: list[Path], image_format: Format, device: str, threads: int) -> float:
    """Seconds for one pass over the files in a pipeline that is running."""
    pipeline = build_pipeline(files * COPIES, image_format, device, threads)
    for _ in range(3):
        pipeline.run()
    start = time.perf_counter()
    for _ in range(BATCHES):
        (images,) = pipeline.run()
    images.as_cpu()  # Waits for the GPU.
    return (time.perf_counter() - start) / BATCHES / COPIES


def time_library(files: list[Path], image_format: Format) -> float:
    """Seconds for one pass over the files without DALI, the best of three."""
    encoded = [file.read_bytes() for file in files]
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        for data in encoded:
            image_format.decode(data)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def draw_contact_sheet(images: dict[str, Image], output: Path, device: str) -> None:
    """Draws the images that came out of the pipeline."""
    figure, grid = plt.subplots(4, 4, figsize=(10, 10.6), layout="constrained")
    figure.suptitle(f'What l3dali.fn.decode(device="{device}") gave back')
    for axes, (name, image) in zip(grid.flat, images.items(), strict=True):
        axes.imshow(image.squeeze(), cmap="gray", vmin=0, vmax=255)
        height, width = image.shape[:2]
        axes.set_title(f"{name.replace('_', ' ')}\n{width} x {height}", fontsize=9)
        axes.axis("off")
        axes.set_anchor("N")
    figure.savefig(output / "contact_sheet.png", dpi=100)
    plt.close(figure)


def draw_bars(measured: list[Measured], raw_bytes: int, output: Path, pipeline: str) -> None:
    """Draws sizes and speeds side by side."""
    names = [m.format.name for m in measured]
    panels = {
        "File size, % of raw": [100 * m.file_bytes / raw_bytes for m in measured],
        "Decode, one thread, MB/s": [raw_bytes / 1e6 / m.library_seconds for m in measured],
        f"{pipeline}, MB/s": [raw_bytes / 1e6 / m.pipeline_seconds for m in measured],
    }
    figure, row = plt.subplots(1, len(panels), figsize=(11, 3.6), layout="constrained")
    for axes, (title, values) in zip(row, panels.items(), strict=True):
        bars = axes.bar(names, values, width=0.6, color=["#2a6fbb", "#7fb0e6", "#b9bec6"])
        axes.bar_label(bars, fmt="%.0f", padding=2)
        axes.set_title(title, fontsize=10)
        axes.margins(y=0.15)
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.set_visible(False)
        axes.spines["left"].set_visible(False)
    figure.savefig(output / "bars.png", dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    mpl.use("Agg")
    sys.exit(main())
