"""The command `l3 bench`."""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from l3dali import codec
from l3dali.cli.arguments import add_jobs_option, new_file_command, positive_number
from l3dali.cli.batch import failure_of
from l3dali.cli.files import read_file
from l3dali.cli.reading import add_max_pixels_option
from l3dali.cli.report import Done, Report, finish
from l3dali.cli.work import compare, find_inputs
from l3dali.console import megabytes, print_table, progress, ratio, speed
from l3dali.images.reading import READ_SUFFIXES, read_picture

if TYPE_CHECKING:
    from collections.abc import Callable

    from l3dali.cli.arguments import Commands

_PNG = "PNG level 6"

# What all threads decode at a time is so long that starting them matters little, and so little that
# it fits into memory.
_LEAST_SECONDS = 0.02
_MOST_CALLS = 100
_MOST_BYTES = 1 << 30


class _Codec(NamedTuple):
    encode: Callable[[codec.Image], bytes]
    decode: Callable[[bytes], codec.Image]
    is_l3: bool = False
    is_lossy: bool = False


@dataclass
class _Measurement:
    """Of an image in a codec; seconds are the least of all rounds, of one image."""

    raw_bytes: int
    encoded: bytes | None
    encoded_bytes: int
    encode_seconds: float = float("inf")
    decode_seconds: float = float("inf")
    shared_seconds: float = float("inf")  # of all threads


def add_command(commands: Commands) -> None:
    """Adds `l3 bench`."""
    command = new_file_command(
        commands,
        "bench",
        _bench,
        "Measure L3 beside PNG on your images, on one thread and on several.",
        """
        l3 bench photos/
        l3 bench photos/*.png --repeat 5 --peers
        """,
    )
    command.add_argument(
        "--repeat", type=positive_number, default=3, help="take the best of so many rounds"
    )
    command.add_argument(
        "--peers", action="store_true", help="WebP, QOI and JPEG 95 too, where they hold the image"
    )
    add_jobs_option(command)
    add_max_pixels_option(command)


def _codecs(with_peers: bool) -> dict[str, _Codec]:
    import imagecodecs

    def encode_jpeg(pixels: codec.Image) -> bytes:
        if pixels.dtype != np.uint8 or (*pixels.shape, 1)[2] not in (1, 3):
            raise ValueError("not an image for JPEG")
        return bytes(imagecodecs.jpeg8_encode(pixels, level=95))

    decode_l3 = partial(codec.decode, max_pixels=None)
    found = {
        f"L3 {coding}": _Codec(
            partial(codec.encode, coding=coding, layout="HWC"), decode_l3, is_l3=True
        )
        for coding in codec.CODINGS
    }
    encode_png = partial(imagecodecs.png_encode, level=6)
    found[_PNG] = _Codec(encode_png, imagecodecs.png_decode)
    if with_peers:
        encode_webp = partial(imagecodecs.webp_encode, lossless=True)
        found["WebP"] = _Codec(encode_webp, imagecodecs.webp_decode)
        found["QOI"] = _Codec(imagecodecs.qoi_encode, imagecodecs.qoi_decode)
        found["JPEG 95, lossy"] = _Codec(encode_jpeg, imagecodecs.jpeg8_decode, is_lossy=True)
    return found


def _bench(options: argparse.Namespace) -> int:
    found = find_inputs(options, READ_SUFFIXES)
    report = Report()
    codecs = _codecs(options.peers)
    measured: list[dict[str, _Measurement]] = []  # of each image
    with ThreadPoolExecutor(options.jobs) as pool:
        for file in progress(found.files, len(found.files)):
            try:
                data = read_file(file.path, found.pipes)
                pixels = read_picture(data, max_pixels=options.max_pixels).pixels
                of_file = _measure(pixels, codecs, options, pool)
            except (OSError, ValueError, MemoryError) as error:
                report.failures.append(failure_of(file.path, error))
                continue
            report.done.append(Done(pixels.nbytes, len(data), 0))
            measured.append(of_file)
    if measured:
        files = f"Files: {len(measured)}, {megabytes(report.read_bytes)}; "
        print(f"{files}pixels: {megabytes(report.raw_bytes)}; threads: 1 and {options.jobs}")
        _print_results(codecs, measured, options.jobs)
    return finish(report, found, options)


def _measure(
    pixels: codec.Image,
    codecs: dict[str, _Codec],
    options: argparse.Namespace,
    pool: ThreadPoolExecutor,
) -> dict[str, _Measurement]:
    """Each codec in turn, round after round; those that cannot hold the image are left out."""
    results = {}
    for name, each in codecs.items():
        try:
            encoded = bytes(each.encode(pixels))
            if not each.is_lossy:
                compare(each.decode(encoded), pixels)
        except (ValueError, RuntimeError):  # imagecodecs raises RuntimeErrors
            if each.is_l3:
                raise
            continue
        results[name] = _Measurement(pixels.nbytes, encoded, len(encoded))
    for _ in range(options.repeat):
        for name, result in results.items():
            _take_turn(codecs[name], pixels, result, options.jobs, pool)
    for result in results.values():
        result.encoded = None
    return results


def _take_turn(
    of: _Codec, pixels: codec.Image, result: _Measurement, jobs: int, pool: ThreadPoolExecutor
) -> None:
    assert result.encoded is not None
    start = time.perf_counter()
    of.encode(pixels)
    result.encode_seconds = min(result.encode_seconds, time.perf_counter() - start)
    start = time.perf_counter()
    of.decode(result.encoded)
    result.decode_seconds = min(result.decode_seconds, time.perf_counter() - start)
    calls = min(_MOST_CALLS, 1 + int(_LEAST_SECONDS / result.decode_seconds))
    workers = max(1, min(jobs, _MOST_BYTES // pixels.nbytes))

    def decode_all(encoded: bytes) -> None:
        for _ in range(calls):
            of.decode(encoded)

    start = time.perf_counter()
    list(pool.map(decode_all, [result.encoded] * workers))
    seconds = (time.perf_counter() - start) / (calls * workers)
    result.shared_seconds = min(result.shared_seconds, seconds)


def _print_results(
    codecs: dict[str, _Codec], measured: list[dict[str, _Measurement]], jobs: int
) -> None:
    head = ["codec", "files", "encoded", "/ PNG", "encode MB/s", "decode MB/s", "x PNG"]
    rows = []
    for name in codecs:
        images = [of_image for of_image in measured if name in of_image]
        if not images:
            continue
        mine = [of_image[name] for of_image in images]
        # The same images as PNG, if it holds them.
        pairs = [(of_image[name], of_image[_PNG]) for of_image in images if _PNG in of_image]
        raw = sum(m.raw_bytes for m in mine)
        shared = sum(m.shared_seconds for m in mine)
        rows.append(
            [
                name,
                str(len(mine)),
                megabytes(sum(m.encoded_bytes for m in mine)),
                ratio(
                    sum(m.encoded_bytes for m, _ in pairs), sum(p.encoded_bytes for _, p in pairs)
                ),
                speed(raw, sum(m.encode_seconds for m in mine)),
                speed(raw, sum(m.decode_seconds for m in mine)),
                _times(pairs, "decode_seconds"),
                speed(raw, shared),
                _times(pairs, "shared_seconds"),
                f"{len(mine) / shared:,.0f}",
            ]
        )
    print_table([*head, f"by {jobs}: MB/s", "x PNG", "images/s"], *rows)
    print(
        f"by {jobs}: each thread decodes an image again and again. It is in the caches then, and "
        "faster than\nin one call. A pipeline on these images gives that images/s at most: reading "
        "and augmenting come on\ntop. A training that takes fewer is not bound by decoding."
    )


def _times(pairs: list[tuple[_Measurement, _Measurement]], what: str) -> str:
    """How many times as fast as PNG."""
    mine, png = (sum(getattr(pair[i], what) for pair in pairs) for i in (0, 1))
    return f"{png / mine:.2f}" if pairs else "-"
