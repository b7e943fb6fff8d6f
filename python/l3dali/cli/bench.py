"""The command `l3 bench`."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from l3dali import codec
from l3dali.cli.arguments import new_file_command, positive_number
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

Result = TypeVar("Result")


def add_command(commands: Commands) -> None:
    """Adds `l3 bench`."""
    command = new_file_command(
        commands,
        "bench",
        _bench,
        "Measure L3 beside PNG on one core.",
        """
        l3 bench photos/
        l3 bench photos/*.png --repeat 5
        """,
    )
    command.add_argument(
        "--repeat", type=positive_number, default=3, help="take the best of so many runs"
    )
    add_max_pixels_option(command)


def _bench(options: argparse.Namespace) -> int:
    import imagecodecs

    found = find_inputs(options, READ_SUFFIXES)
    report = Report()
    codecs: dict[str, tuple[Callable[[codec.Image], bytes], Callable[[bytes], codec.Image]]] = {
        f"L3 {coding}": (
            partial(codec.encode, coding=coding),
            partial(codec.decode, max_pixels=None),
        )
        for coding in codec.CODINGS
    }
    codecs["PNG level 6"] = (
        lambda pixels: bytes(imagecodecs.png_encode(pixels, level=6)),
        imagecodecs.png_decode,
    )
    measured: dict[str, list[_Measurement]] = {name: [] for name in codecs}
    for file in progress(found.files, len(found.files)):
        try:
            data = read_file(file.path, found.pipes)
            pixels = read_picture(data, max_pixels=options.max_pixels).pixels
            new = {name: _measure(pixels, *pair, options.repeat) for name, pair in codecs.items()}
        except (OSError, ValueError, MemoryError) as error:
            report.failures.append(failure_of(file.path, error))
            continue
        report.done.append(Done(pixels.nbytes, len(data), 0))
        for name, measurement in new.items():
            measured[name].append(measurement)
    if report.done:
        print_table(
            ["codec", "files", "raw", "source", "encoded", "ratio", "encode MB/s", "decode MB/s"],
            *(
                [
                    name,
                    str(len(report.done)),
                    megabytes(report.raw_bytes),
                    megabytes(report.read_bytes),
                    megabytes(sum(m.encoded_bytes for m in measured[name])),
                    ratio(sum(m.encoded_bytes for m in measured[name]), report.read_bytes),
                    speed(report.raw_bytes, sum(m.encode_seconds for m in measured[name])),
                    speed(report.raw_bytes, sum(m.decode_seconds for m in measured[name])),
                ]
                for name in codecs
            ),
        )
    return finish(report, found, options)


@dataclass(frozen=True)
class _Measurement:
    encoded_bytes: int
    encode_seconds: float
    decode_seconds: float


def _measure(
    pixels: codec.Image,
    encode: Callable[[codec.Image], bytes],
    decode: Callable[[bytes], codec.Image],
    repeat: int,
) -> _Measurement:
    encoded, encode_seconds = _best_time(partial(encode, pixels), repeat)
    decoded, decode_seconds = _best_time(partial(decode, encoded), repeat)
    compare(decoded, pixels)
    return _Measurement(len(encoded), encode_seconds, decode_seconds)


def _best_time(call: Callable[[], Result], repeat: int) -> tuple[Result, float]:
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return result, min(seconds)
