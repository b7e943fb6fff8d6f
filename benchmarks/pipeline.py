"""DALI pipelines from files in the page cache to decoded batches: L3 beside PNG.

    python benchmarks/pipeline.py --data ../shared/data

Runs `mixed` where there is a GPU, else `cpu`; PNG goes through fn.decoders.image on
the same device. Each pipeline warms up, then runs for a fixed time. CPU seconds are
those of the whole process.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import nvidia.dali as dali
from nvidia.dali import fn, types
from peers import PNG, images, machine
from report import RESULTS, markdown_table, write_results
from rich.progress import track

import l3dali
import l3dali.plugin
from l3dali._gpu import has_gpu

BATCH = 32
WARM_UP = 3  # batches
SECONDS = 3.0


def write_files(data: Path, name: str, out: Path) -> tuple[dict[str, list[str]], float]:
    """The images of a set in every format; their paths, and mean MB of pixels an image."""
    files: dict[str, list[str]] = {}
    raw = 0
    for path, image in images(data, name):
        raw += image.nbytes
        encoded = {f"L3 {mode}": l3dali.encode(image, mode=mode) for mode in l3dali.MODES}
        encoded[PNG.name] = bytes(PNG.encode(image))
        for codec, content in encoded.items():
            target = out / f"{codec}-{path.stem}".replace(" ", "_")
            target.write_bytes(content)
            files.setdefault(codec, []).append(str(target))
    count = len(files[PNG.name])
    return files, raw / count / 1e6


def decode_png(encoded: Any, device: str) -> Any:
    return fn.decoders.image(encoded, device=device, output_type=types.RGB)


def decode_l3(encoded: Any, device: str) -> Any:
    return fn.l3.decode(encoded, device=device)


def measure(
    files: list[str], decode: Callable[[Any, str], Any], device: str, threads: int
) -> dict[str, float]:
    """Images a second, and CPU seconds for 1,000 images."""
    pipe = dali.Pipeline(BATCH, threads, 0 if device == "mixed" else None)
    with pipe:
        encoded, _ = fn.readers.file(files=files * (-(-BATCH // len(files))))
        pipe.set_outputs(decode(encoded, device))
    for _ in range(WARM_UP):
        pipe.run()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    batches = 0
    while time.perf_counter() - begin < SECONDS:
        pipe.run()
        batches += 1
    count = batches * BATCH
    return {
        "images_per_s": count / (time.perf_counter() - begin),
        "cpu_s_per_1000": 1000 * (time.process_time() - begin_cpu) / count,
    }


def draw(results: dict[str, dict[int, dict[str, float]]], title: str, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(7, 4.5))
    for codec, by_threads in results.items():
        axes.plot(
            list(by_threads),
            [m["images_per_s"] for m in by_threads.values()],
            marker="o",
            label=codec,
        )
    axes.set_xlabel("threads")
    axes.set_ylabel("images/s")
    axes.set_yscale("log")
    axes.set_title(title)
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets")
    parser.add_argument("--set", default="photo/large")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--device", choices=["cpu", "mixed"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    device = args.device or ("mixed" if has_gpu() else "cpu")

    results: dict[str, dict[int, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        files, megabytes = write_files(args.data, args.set, Path(folder))
        for codec, paths in files.items():
            decode = decode_png if codec == PNG.name else decode_l3
            for threads in track(args.threads, description=codec):
                measured = measure(paths, decode, device, threads)
                results.setdefault(codec, {})[threads] = measured

    rows = []
    for codec, by_threads in results.items():
        for threads, m in by_threads.items():
            png = results[PNG.name][threads]["images_per_s"]
            rows.append(
                [
                    codec,
                    f"{threads}",
                    f"{m['images_per_s']:.0f}",
                    f"{m['images_per_s'] * megabytes:.0f}",
                    f"{m['images_per_s'] / png:.1f}",
                    f"{m['cpu_s_per_1000']:.2f}",
                ]
            )
    head = ["codec", "threads", "images/s", "MB/s of pixels", "x PNG", "CPU s per 1,000 images"]
    text = (
        f"{machine()}. fn.readers.file to decoded batches of {BATCH}, device={device!r}, "
        f"{args.set} ({megabytes:.1f} MB of pixels an image), files in the page cache, "
        f"{SECONDS:.0f} s each.\n\n" + markdown_table(head, rows)
    )
    write_results(f"pipeline_{device}", "DALI pipelines", text, results, args.out)
    draw(results, f"{args.set}, device={device!r}", args.out / f"pipeline_{device}.png")


if __name__ == "__main__":
    main()
