"""Windows of images through DALI's operators on the CPU, beside whole images and beside PNG.

    python -m benchmarks.cpu.roi --data ../shared/data

Pipelines that are compared take turns, a batch each, and their CPU times are summed: what
else the machine does disturbs all alike. Images are RGB8 of 2048 x 1024 pixels: those of
photo/large, cut and mirrored to that size; without --data noisy waves. Files lie in the
page cache.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nvidia.dali as dali
from benchmarks.peers import L3_MODES, PNG, Image, machine
from benchmarks.report import RESULTS, markdown_table, write_results
from benchmarks.scenes import CROP, HEIGHT, WIDTH, make_images
from nvidia.dali import fn, types
from rich.progress import track

import l3dali
import l3dali.plugin

BATCH = 16
WARM_UP = 2  # batches
PEEK_BATCH = 256
SHAPE_TYPES = (types.INT32, types.UINT32, types.INT64, types.UINT64, types.FLOAT)
IMAGE_TYPES = (types.RGB, types.BGR, types.GRAY, types.YCbCr, types.ANY_DATA)


def write_files(pictures: list[Image], out: Path) -> dict[str, list[str]]:
    """The images in every format; their paths by the format's name."""
    files: dict[str, list[str]] = {}
    for i, image in enumerate(track(pictures, description="encode")):
        encoded = {f"L3 {mode}": l3dali.encode(image, coding=mode) for mode in L3_MODES}
        encoded[PNG.name] = bytes(PNG.encode(image))
        for codec, content in encoded.items():
            path = out / f"{codec}-{i}".replace(" ", "_")
            path.write_bytes(content)
            files.setdefault(codec, []).append(str(path))
    return files


def pipeline(
    files: list[str], batch: int, threads: int, define: Callable[[Any], Any], depth: int = 1
) -> Any:
    """What `define` makes of the encoded files."""
    pipe = dali.Pipeline(batch, threads, None, prefetch_queue_depth=depth, seed=1)
    with pipe:
        encoded, _ = fn.readers.file(files=files)
        outputs = define(encoded)
        pipe.set_outputs(*(outputs if isinstance(outputs, list) else [outputs]))
    for _ in range(WARM_UP):
        pipe.run()
    return pipe


def cpu_seconds(pipes: Mapping[str, Any], rounds: int, what: str) -> dict[str, float]:
    """CPU seconds a batch, of the whole process; the pipelines take turns."""
    spent = dict.fromkeys(pipes, 0.0)
    for _ in track(range(rounds), description=what):
        for name, pipe in pipes.items():
            begin = time.process_time()
            pipe.run()
            spent[name] += time.process_time() - begin
    return {name: seconds / rounds for name, seconds in spent.items()}


def measure_crops(files: dict[str, list[str]], rounds: int) -> tuple[str, dict[str, Any]]:
    """Crops and whole images, each less its pipeline without the decoder."""

    def places() -> list[Any]:
        return [fn.random.uniform(range=(0.0, 1.0)) for _ in range(2)]

    def crop(encoded: Any) -> Any:
        x, y = places()
        return fn.l3.decode_crop(encoded, crop=(CROP, CROP), crop_pos_x=x, crop_pos_y=y)

    definitions: dict[str, Callable[[Any], Any]] = {
        "whole": fn.l3.decode,
        "whole alone": lambda encoded: encoded,
        "crop": crop,
        "crop alone": lambda encoded: [encoded, *places()],
    }
    modes = [codec for codec in files if codec != PNG.name]
    pipes = {
        f"{codec} {kind}": pipeline(files[codec], BATCH, 1, define)
        for codec in modes
        for kind, define in definitions.items()
    }
    spent = cpu_seconds(pipes, rounds, "crops")
    rows = []
    results: dict[str, Any] = {}
    for codec in modes:
        whole, part = (
            (spent[f"{codec} {kind}"] - spent[f"{codec} {kind} alone"]) / BATCH * 1e3
            for kind in ("whole", "crop")
        )
        results[codec] = {"whole_ms": whole, "crop_ms": part, "ratio": part / whole}
        rows.append([codec, f"{whole:.2f}", f"{part:.3f}", f"{100 * part / whole:.1f} %"])
    head = ["mode", "whole, CPU ms", "crop, CPU ms", "crop / whole"]
    share = CROP * CROP / (WIDTH * HEIGHT)
    text = (
        f"## A crop of {CROP} x {CROP} anywhere in {WIDTH} x {HEIGHT}\n\n"
        f"One thread, batches of {BATCH}, {rounds} rounds; less the same pipelines without the "
        f"decoder. The crop is {100 * share:.1f} % of the pixels; tiles reach beyond it.\n\n"
        + markdown_table(head, rows)
    )
    return text, results


def measure_random_crops(
    files: dict[str, list[str]], rounds: int, threads: int
) -> tuple[str, dict[str, Any]]:
    pipes = {
        codec: pipeline(
            files[codec],
            BATCH,
            threads,
            fn.decoders.image_random_crop if codec == PNG.name else fn.l3.decode_random_crop,
        )
        for codec in files
    }
    spent = cpu_seconds(pipes, rounds, "random crops")
    results: dict[str, Any] = {}
    rows = []
    for codec, seconds in spent.items():
        ratio = spent[PNG.name] / seconds
        results[codec] = {"cpu_s_per_1000": seconds / BATCH * 1000, "speed": ratio}
        rows.append([codec, f"{seconds / BATCH * 1000:.2f}", f"{ratio:.1f}"])
    head = ["files", "CPU s per 1,000 images", "x PNG"]
    text = (
        f"## Random crops (area 0.08 to 1.0)\n\n`fn.l3.decode_random_crop` beside "
        f"`fn.decoders.image_random_crop` on PNG, {threads} threads each, batches of {BATCH}, "
        f"{rounds} rounds. PNG's decoder reads the whole image.\n\n" + markdown_table(head, rows)
    )
    return text, results


def measure_peeks(files: dict[str, list[str]], rounds: int) -> tuple[str, dict[str, Any]]:
    """Many different peeks in a pipeline, less the pipeline without: one would drown in it."""
    kinds = [{"dtype": dtype, "image_type": kind} for dtype in SHAPE_TYPES for kind in IMAGE_TYPES]
    mode = f"L3 {L3_MODES[-1]}"

    def peeks(operator: Any) -> Callable[[Any], Any]:
        return lambda encoded: [operator(encoded, **kind) for kind in kinds]

    pipes = {}
    for codec, operator in [(mode, fn.l3.peek_shape), (PNG.name, fn.peek_image_shape)]:
        pipes[codec] = pipeline(files[codec], PEEK_BATCH, 1, peeks(operator))
        pipes[f"{codec} alone"] = pipeline(files[codec], PEEK_BATCH, 1, lambda encoded: encoded)
    spent = cpu_seconds(pipes, rounds, "peeks")
    results = {
        codec: (spent[codec] - spent[f"{codec} alone"]) / len(kinds) / PEEK_BATCH * 1e6
        for codec in (mode, PNG.name)
    }
    rows = [
        [operator, f"{results[codec]:.2f}"]
        for operator, codec in [("fn.l3.peek_shape", mode), ("fn.peek_image_shape", PNG.name)]
    ]
    text = (
        f"## Peeking at shapes\n\nOne thread, batches of {PEEK_BATCH}, {rounds} rounds; "
        f"{len(kinds)} operators in a pipeline, less the same pipeline without them.\n\n"
        + markdown_table(["operator", "CPU microseconds a sample"], rows)
    )
    return text, results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with the sets; without, made images")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2, help="of the random crops")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(make_images(args.data), Path(folder))
        parts = {
            "crop": measure_crops(files, args.rounds),
            "random_crop": measure_random_crops(files, args.rounds, args.threads),
            "peek_us": measure_peeks(files, args.rounds),
        }
    origin = "photo/large" if args.data else "noisy waves"
    text = f"{machine()}, DALI {dali.__version__}. Images: {origin}; CPU time, in turns.\n\n"
    text += "\n".join(part for part, _ in parts.values())
    results = {name: result for name, (_, result) in parts.items()}
    write_results("roi", "Windows of images", text, results, args.out)


if __name__ == "__main__":
    main()
