"""Readers of BMP that misbehave, as the last byte of the file says, and workers that have them."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from l3dali.datasets.convert import engine, pool, workers
from l3dali.images.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from l3dali.datasets.convert.images import Blob, Options, Outcome
    from l3dali.datasets.convert.job import Job
    from l3dali.datasets.convert.manifest import Row
    from l3dali.images.picture import Picture, ReadOptions

KINDS = ("sound", "slow", "allocates", "spins", "crashes", "exits", "raises", "signals", "waits")
CPU_SECONDS = 0.5
_bmp = FORMATS["bmp"]
_read_apart = pool._read
_convert, _work = pool._convert, engine._work
_set_clocks = workers.set_clocks


def _misbehave() -> None:
    FORMATS["bmp"] = replace(_bmp, read=read)
    for module in (workers, pool):
        vars(module).update(CPU_SECONDS=CPU_SECONDS)
    pool.BYTES_A_SECOND = 2000
    if "SHORT_WAITS" in os.environ:  # 3 s in a batch, 2 s pool, and no seconds by the header
        workers.WAIT_SECONDS, pool.BYTES_A_SECOND = 3, 10000
        vars(pool).update(set_clocks=wait_two_seconds)
    pool._convert = convert


def wait_two_seconds(cpu_seconds: int, seconds: int) -> None:
    _set_clocks(cpu_seconds, min(seconds, 2))


def work(job: Job) -> Iterator[list[Row]]:
    _misbehave()
    return _work(job)


def convert(blob: Blob, options: Options, threads: int) -> Outcome | None:
    _misbehave()
    return _convert(blob, options, threads)


def read_or_end(data: bytes, options: Options, labels: bool) -> Picture:
    _misbehave()
    return _read_apart(data, options, labels)


def work_or_end(job: Job) -> Iterator[list[Row]]:
    end_for(*(file.name for file in job.files))
    return _work(job)


def convert_or_end(blob: Blob, options: Options, threads: int) -> Outcome | None:
    end_for(blob.name)
    return _convert(blob, options, threads)


def end_for(*names: str) -> None:
    """Ends the process where a file has such a name, as a library's crash does."""
    if any(name.startswith("deadly") for name in names):
        end()


def end(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def raise_memory_error(*_: object) -> NoReturn:
    raise MemoryError


def work_without_a_package(job: Job) -> Iterator[list[Row]]:
    FORMATS["bmp"] = replace(_bmp, read=read_without_a_package)
    return _work(job)


def read_without_a_package(_data: bytes, _options: ReadOptions) -> Picture:
    raise ModuleNotFoundError("no reader")


def read(data: bytes, options: ReadOptions) -> Picture:
    kind = KINDS[data[-1]]
    if kind == "slow":  # It has a second more by its header, for 2,000 bytes of samples.
        end = time.process_time() + 0.6
        while time.process_time() < end:
            pass
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
    return _bmp.read(data, options)
