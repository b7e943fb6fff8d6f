"""Small images: what one takes to encode, convert and decode, and its bytes."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.cpu.case import Result, in_turns
from benchmarks.cpu.convert import SHARDS, convert_anew, start_cost, write_shards
from benchmarks.peers import PNG, Image, images
from benchmarks.report import CODE, markdown_table
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

import l3dali
from l3dali.dali import fn as l3_fn

BATCH = 512
OPTIONS: dict[str, dict[str, Any]] = {
    "rans": {},
    "rans, effort 6": {"effort": 6},
    "packed": {"coding": "packed"},
}


def small(data: Path, rounds: int = 15, count: int = 20_000) -> Result:
    """Small images: bytes, time to encode and to decode, conversion, DALI.

    The sets are like MNIST (drawn digits of 28x28, gray), CIFAR (photographs of Kodak and gb82 at a
    quarter of their size, in pieces of 32x32) and EuroSAT (pieces of 64x64 of Landsat 8, its 16
    bits cut to 8). Bytes are the mean of an image; effort 6 searches for a model. Microseconds are
    CPU time of an image on one thread, the least of the rounds, Python's call included. `l3
    convert` reads --count images as PNG from shards of WebDataset, verifies, and runs with one
    worker; without its start.
    """
    sets = {"MNIST-like": digits(), "CIFAR-like": photographs(data), "EuroSAT-like": fields(data)}
    sets = {name: pictures for name, pictures in sets.items() if pictures}
    rows, found = [], {}
    for name, pictures in sets.items():
        one = measure(pictures, rounds, name)
        found[name] = {"images": len(pictures), **one}
        rows += [[name, what, *cells(of)] for what, of in one.items()]
    head = ["set", "coding", "bytes", "encode us", "decode us"]
    text = markdown_table(head, rows)
    name = "CIFAR-like" if "CIFAR-like" in sets else "MNIST-like"
    rate = conversion_rate(sets[name], count)
    wall, cpu = tfrecord_rates(sets[name], count)
    text += (
        f"\n\n{name}, {count} images: `l3 convert` {rate:.0f} a second of CPU time; DALI on two"
        f" threads, from TFRecord, {wall:.0f} a second by the clock, {cpu:.0f} by CPU time."
    )
    data_found = {**found, "convert_a_second": rate, "dali_a_second": [wall, cpu]}
    return Result(text, data_found, code=(*CODE, "python/l3dali"))


def digits() -> list[Image]:
    """400 digits, turned and moved a little."""
    font = ImageFont.load_default(22)
    random = np.random.default_rng(0)
    found: list[Image] = []
    for i in range(400):
        image = Pillow.new("L", (28, 28))
        place = (7 + int(random.integers(-2, 3)), 1 + int(random.integers(-2, 3)))
        ImageDraw.Draw(image).text(place, str(i % 10), fill=255, font=font)
        turned = image.rotate(float(random.normal(0, 10)), Pillow.Resampling.BICUBIC)
        found.append(np.asarray(turned))
    return found


def photographs(data: Path) -> list[Image]:
    """Pieces of photographs, which are shrunk first."""
    found: list[Image] = []
    for name in ("photo/kodak", "photo/gb82"):
        for _, image in images(data, name):
            found += pieces(np.asarray(Pillow.fromarray(image).reduce(4)), 32, 48)
    return found


def fields(data: Path) -> list[Image]:
    """Pieces of satellite images, with the darkest and brightest hundredth cut off."""
    found: list[Image] = []
    for _, image in images(data, "gray16/landsat8"):
        low, high = np.percentile(image[image > 0], [1, 99])
        gray = np.clip((image - low) / (high - low) * 255, 0, 255).astype(np.uint8)
        found += pieces(gray, 64, 160)
    return found


def pieces(image: Image, side: int, step: int) -> Iterator[Image]:
    """Squares on a grid."""
    for y in range(0, image.shape[0] - side + 1, step):
        for x in range(0, image.shape[1] - side + 1, step):
            yield np.ascontiguousarray(image[y : y + side, x : x + side])


def measure(pictures: list[Image], rounds: int, name: str) -> dict[str, dict[str, float]]:
    """Bytes and microseconds of an image, by coding."""
    encoders: dict[str, Callable[[Image], bytes]] = {
        what: partial(l3dali.encode, **options) for what, options in OPTIONS.items()
    }
    encoders[PNG.name] = PNG.encode
    decoders: dict[str, Callable[[bytes], Image]] = dict.fromkeys(OPTIONS, l3dali.decode)
    decoders[PNG.name] = PNG.decode
    files = {what: [bytes(encode(one)) for one in pictures] for what, encode in encoders.items()}
    calls: dict[str, Callable[[], object]] = {}
    for what, encode in encoders.items():
        calls[f"encode {what}"] = partial(each, encode, pictures)
        calls[f"decode {what}"] = partial(each, decoders[what], files[what])
        for one, file in zip(pictures, files[what], strict=True):
            if not np.array_equal(decoders[what](file), one):
                raise SystemExit(f"{what} does not bring {name} back")
    spent = in_turns(calls, rounds, what=name)
    scale = 1e6 / len(pictures)
    return {
        what: {
            "bytes": statistics.fmean(map(len, files[what])),
            "encode_us": float(spent[f"encode {what}"].min()) * scale,
            "decode_us": float(spent[f"decode {what}"].min()) * scale,
        }
        for what in encoders
    }


def each(work: Callable[[Any], object], items: list[Any]) -> None:
    """Calls `work` for each item."""
    for item in items:
        work(item)


def cells(of: dict[str, float]) -> list[str]:
    """A row of the table."""
    return [f"{of['bytes']:.0f}", f"{of['encode_us']:.0f}", f"{of['decode_us']:.0f}"]


def conversion_rate(pictures: list[Image], count: int) -> float:
    """Images a second of CPU time that `l3 convert` brings to L3 from PNG in tar shards."""
    pngs = [bytes(PNG.encode(one)) for one in pictures]
    with tempfile.TemporaryDirectory() as folder:
        files = [pngs[i % len(pngs)] for i in range(count)]
        source = write_shards(files, Path(folder, "source"), SHARDS)
        start = start_cost(Path(folder, "start"), 1, 1)
        return count / (convert_anew(source, "--jobs", "1").cpu - start.cpu)


def tfrecord_rates(pictures: list[Image], count: int) -> tuple[float, float]:
    """Images a second that DALI decodes on two threads.

    By the clock, and by CPU time, as if nothing else had run.
    """
    from nvidia.dali import fn, pipeline_def, tfrecord
    from tfrecord import TFRecordWriter
    from tfrecord.tools.tfrecord2idx import create_index

    encoded = [l3dali.encode(one) for one in pictures]
    with tempfile.TemporaryDirectory() as folder:
        records, index = str(Path(folder, "small.tfrecord")), str(Path(folder, "small.idx"))
        writer = TFRecordWriter(records)
        for i in range(count):
            writer.write({"encoded": (encoded[i % len(encoded)], "byte")})
        writer.close()
        create_index(records, index)

        @pipeline_def(batch_size=BATCH, num_threads=2, device_id=None)
        def pipeline() -> Any:
            outputs = fn.readers.tfrecord(
                path=[records],
                index_path=[index],
                features={"encoded": tfrecord.FixedLenFeature((), tfrecord.string, "")},
            )
            return l3_fn.decode(outputs["encoded"])

        built = pipeline()
        for _ in range(5):
            built.run()
        turns = 2 * count // BATCH
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(turns):
            built.run()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return turns * BATCH / wall, 2 * turns * BATCH / cpu
