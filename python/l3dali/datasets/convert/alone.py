"""Reads an image in a process of its own, with limits by its header."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from l3dali.datasets.convert.children import ChildDiedError, borrowed, new_pool
from l3dali.datasets.convert.images import convert_image, failed_outcome
from l3dali.datasets.convert.limits import (
    CPU_SECONDS,
    WAIT_SECONDS,
    limit_memory,
    limited,
    reason_of,
    set_clocks,
    why_ended,
)
from l3dali.images.formats import read_header
from l3dali.images.reading import read_picture

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from l3dali.datasets.convert.images import Blob, Options, Outcome
    from l3dali.images.picture import Picture

BYTES_A_SECOND = 2**20  # of samples, of the slowest decoders
_BASE_BYTES = 2**28
_TIMES_ESTIMATE = 2  # of the estimated peak
_TIMES_FILE = 4

_idle = new_pool()


def convert_alone(
    blob: Blob, options: Options, threads: int, check: Callable[[], object]
) -> Outcome | None:
    """Calls `convert_image` in a child; if that dies, the outcome has the reason.

    `check` is called often; its exceptions end the child, and are raised here.
    """
    try:
        with borrowed(_idle) as child:
            outcome: Outcome | None = child.call(_convert, blob, options, threads, check=check)
    except ChildDiedError as error:
        transient = "memory" if error.code == -signal.SIGKILL else ""  # killed by the system
        return failed_outcome(blob, options, why_ended(error), transient=transient, is_sure=True)
    return outcome


def read_alone(data: bytes, options: Options, *, labels: bool) -> Picture:
    """Calls `read_picture` in a child.

    Raises:
        ValueError: the child has died.
    """
    try:
        with borrowed(_idle) as child:
            picture: Picture = child.call(_read, data, options, labels)
    except ChildDiedError as error:
        raise ValueError(why_ended(error)) from None
    return picture


def _convert(blob: Blob, options: Options, threads: int) -> Outcome | None:
    with limited(options.worker_memory, _cores()):
        outcome = convert_image(blob, options, threads, partial(_read_limited, options))
        if outcome is not None and outcome.transient == "memory":
            outcome = replace(outcome, failure=reason_of(MemoryError()))
    return outcome


def _read(data: bytes, options: Options, labels: bool) -> Picture:
    with limited(options.worker_memory, _cores()):
        return _read_limited(options, data, **options.reading(labels=labels))


def _read_limited(options: Options, data: bytes, **how: Any) -> Picture:
    set_clocks(CPU_SECONDS, WAIT_SECONDS)
    os.environ["TIFFFILE_NUM_THREADS"] = "1"  # Images are read side by side.
    header = read_header(data)
    header.check_pixels(options.max_pixels)
    size = _BASE_BYTES + _TIMES_FILE * len(data) + _TIMES_ESTIMATE * header.read_bytes
    limit_memory(max(size, options.worker_memory), _cores())
    seconds = CPU_SECONDS + header.raw_bytes // BYTES_A_SECOND
    set_clocks(seconds, max(WAIT_SECONDS, 10 * seconds))
    picture = read_picture(data, header=header, **how)
    set_clocks(0, 0)  # Encoding has no limits.
    limit_memory(None)
    return picture


def _cores() -> int:
    """Some libraries start a thread for each."""
    return os.cpu_count() or 1
