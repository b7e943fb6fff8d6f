"""The command `l3 bench`."""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from l3dali import codec
from l3dali.cli.arguments import add_jobs_option, new_file_command, positive_number
from l3dali.cli.inputs import find_inputs, read_file
from l3dali.cli.loop import failure_of
from l3dali.cli.reading import add_max_pixels_option, compare
from l3dali.cli.report import Done, Report, finish
from l3dali.console import megabytes, print_table, progress, ratio, speed
from l3dali.images.reading import READ_SUFFIXES, read_picture

if TYPE_CHECKING:
    from collections.abc import Callable

    from l3dali.cli.arguments import Commands

_SOURCE = "source"

# All threads decode for so long that starting them matters little, and hold no more than this.
_LEAST_SECONDS = 0.02
_MOST_CALLS = 100
_MOST_BYTES = 1 << 30


class _Measured(NamedTuple):
    """An image in a format; seconds are the least of all rounds, of one image."""

    raw_bytes: int
    encoded_bytes: int
    encode_seconds: float  # 0: it is not encoded
    decode_seconds: float  # on one thread
    shared_seconds: float  # on all threads


def add_command(commands: Commands) -> None:
    """Adds `l3 bench`."""
    command = new_file_command(
        commands,
        "bench",
        _bench,
        "Measure packed and rans on your images, on one thread and on several.",
        """
        l3 bench photos/
        l3 bench photos/*.png --repeat 5
        """,
    )
    command.add_argument(
        "--repeat", type=positive_number, default=3, help="rounds, of which the best counts"
    )
    add_jobs_option(command)
    add_max_pixels_option(command)


def _bench(options: argparse.Namespace) -> int:
    found = find_inputs(options, READ_SUFFIXES)
    report = Report()
    measured: dict[str, list[_Measured]] = {name: [] for name in (_SOURCE, *codec.CODINGS)}
    with ThreadPoolExecutor(options.jobs) as pool:
        for file in progress(found.files, len(found.files)):
            try:
                data = read_file(file.path, found.pipes)
                decode = partial(read_picture, max_pixels=options.max_pixels)
                pixels = decode(data).pixels
                of_file = {_SOURCE: _measure(pixels, data, None, decode, options, pool)}
                for coding in codec.CODINGS:
                    encode = partial(codec.encode, pixels, coding=coding, layout="HWC")
                    encoded = encode()
                    decode_l3 = partial(codec.decode, max_pixels=None)
                    compare(decode_l3(encoded), pixels)
                    of_file[coding] = _measure(pixels, encoded, encode, decode_l3, options, pool)
            except (OSError, ValueError, MemoryError) as error:
                report.failures.append(failure_of(file.path, error))
                continue
            report.done.append(Done(pixels.nbytes, len(data), 0))
            for name, each in of_file.items():
                measured[name].append(each)
    if report.done:
        files = f"Files: {len(report.done)}, {megabytes(report.read_bytes)}; "
        print(f"{files}pixels: {megabytes(report.raw_bytes)}; threads: 1 and {options.jobs}")
        _print_results(measured, options.jobs)
    return finish(report, found, options)


def _measure(
    pixels: codec.Image,
    encoded: bytes,
    encode: Callable[[], object] | None,
    decode: Callable[[bytes], object],
    options: argparse.Namespace,
    pool: ThreadPoolExecutor,
) -> _Measured:
    def least(call: Callable[..., Any], *arguments: object) -> float:
        best = float("inf")
        for _ in range(options.repeat):
            start = time.perf_counter()
            call(*arguments)
            best = min(best, time.perf_counter() - start)
        return best

    encode_seconds = least(encode) if encode is not None else 0.0
    decode_seconds = least(decode, encoded)
    calls = min(_MOST_CALLS, 1 + int(_LEAST_SECONDS / decode_seconds))
    workers = max(1, min(options.jobs, _MOST_BYTES // pixels.nbytes))

    def decode_again(encoded: bytes) -> None:
        for _ in range(calls):
            decode(encoded)

    shared = least(lambda: list(pool.map(decode_again, [encoded] * workers)))
    shared_seconds = shared / (calls * workers)
    return _Measured(pixels.nbytes, len(encoded), encode_seconds, decode_seconds, shared_seconds)


def _print_results(measured: dict[str, list[_Measured]], jobs: int) -> None:
    rows = []
    totals = {
        name: _Measured(*map(sum, zip(*each, strict=True))) for name, each in measured.items()
    }
    source = totals[_SOURCE]
    for name, total in totals.items():
        encoding = speed(total.raw_bytes, total.encode_seconds) if total.encode_seconds else "-"
        rows.append(
            [
                name if name == _SOURCE else f"L3 {name}",
                megabytes(total.encoded_bytes),
                ratio(total.encoded_bytes, source.encoded_bytes),
                encoding,
                speed(total.raw_bytes, total.decode_seconds),
                f"{source.decode_seconds / total.decode_seconds:.2f}",
                speed(total.raw_bytes, total.shared_seconds),
                f"{len(measured[name]) / total.shared_seconds:,.0f}",
            ]
        )
    head = ["format", "bytes", "/ source", "encode MB/s", "decode MB/s", "x source"]
    print_table([*head, f"by {jobs}: MB/s", "images/s"], *rows)
    print(
        f"by {jobs}: each thread decodes an image again and again, out of the caches. A pipeline\n"
        "gives at most these images/s, since it also reads and augments."
    )
