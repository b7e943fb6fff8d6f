"""Readers of BMP that misbehave, as the last byte of the file says; in children of --untrusted."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from l3dali.datasets.convert import engine, images, preview, untrusted
from l3dali.datasets.convert.children import Child
from l3dali.images import reading
from l3dali.images.headers import read_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from l3dali.datasets.convert.images import Blob, Options, Outcome
    from l3dali.datasets.convert.job import Job
    from l3dali.datasets.convert.manifest import Row
    from l3dali.images.headers import Header
    from l3dali.images.picture import Palette, Picture

KINDS = ("sound", "allocates", "spins", "crashes", "exits", "raises", "waits", "signals")
_read = reading._read_with_pillow
_convert, _work, _growth = untrusted._convert, engine._work, preview._growth_apart


def work(job: Job) -> Iterator[list[Row]]:
    untrusted._convert = convert
    return _work(job)


def work_or_end(job: Job) -> Iterator[list[Row]]:
    end_for(job)
    return _work(job)


def growth_or_end(jobs: Sequence[Job], threads: int, set_bytes: int) -> str:
    end_for(*jobs)
    return _growth(jobs, threads, set_bytes)


def end_for(*jobs: Job) -> None:
    """Ends the process where a file is named so, as a library's crash does."""
    if any(file.name.startswith("deadly") for job in jobs for file in job.files):
        end()


def scores() -> tuple[int, int]:
    """By which Linux ends this process sooner where memory ends, and a child of it."""
    child = Child()
    try:
        return own_score(), child.call(own_score)
    finally:
        child.end()


def own_score() -> int:
    return int(Path("/proc/self/oom_score_adj").read_text())


def work_in_little(job: Job) -> Iterator[list[Row]]:
    untrusted.WORKER_BYTES = 2**28
    return _work(job)


def convert(blob: Blob, options: Options, threads: int) -> Outcome | None:
    reading._READERS["bmp"] = read
    untrusted.BASE_SECONDS = 0
    untrusted.WAIT_SECONDS = 4
    return _convert(blob, options, threads)


def work_without_a_package(job: Job) -> Iterator[list[Row]]:
    untrusted._convert = convert_without_a_package
    return _work(job)


def convert_without_a_package(blob: Blob, options: Options, threads: int) -> Outcome | None:
    reading._READERS["bmp"] = read_without_a_package
    return _convert(blob, options, threads)


def read_without_a_package(_data: bytes, _palette: Palette) -> Picture:
    raise ModuleNotFoundError("no reader")


def end(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def end_the_first_time(blob: Blob, options: Options, threads: int) -> Outcome | None:
    """By the end of its time, in the folder that the image's place names."""
    try:
        Path(blob.place, "begun").touch(exist_ok=False)
    except FileExistsError:
        return _convert(blob, options, threads)
    signal.raise_signal(signal.SIGALRM)
    raise AssertionError


def raise_memory_error(*_: object) -> NoReturn:
    raise MemoryError


def convert_by_header(blob: Blob, options: Options, threads: int) -> Outcome | None:
    """With a reader of headers that takes 10 GiB the first time."""
    _read_headers_by(header)
    return _convert(blob, options, threads)


def _read_headers_by(reader: Callable[[bytes], Header]) -> None:
    vars(untrusted)["read_header"] = vars(images)["read_header"] = reader


def header(data: bytes) -> Header:
    _read_headers_by(read_header)
    np.empty(10 * 2**30, np.uint8)
    return read_header(data)


def read(data: bytes, palette: Palette) -> Picture:
    kind = KINDS[data[-1]]
    if kind == "allocates":
        np.empty(10 * 2**30, np.uint8)
    if kind == "spins":
        while True:
            pass
    if kind == "crashes":
        ctypes.string_at(0)
    if kind == "exits":
        os._exit(0)
    if kind == "waits":
        threading.Event().wait()
    if kind == "signals":
        signal.raise_signal(signal.SIGRTMIN + 5)
    if kind == "raises":
        raise SystemExit(3)
    return _read(data, palette)
