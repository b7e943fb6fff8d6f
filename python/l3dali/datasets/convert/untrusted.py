"""Data that nobody vouches for: an image is converted in a child, where reading it has limits.

Containers are read in workers, which have a limit of memory. What takes more, or crashes a library,
costs itself: its process is replaced. This is no sandbox. A library that runs a stranger's code may
do whatever the user may.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.datasets.convert.children import ChildDiedError, borrowed, new_pool
from l3dali.datasets.convert.images import convert_image, failed_outcome
from l3dali.images.headers import read_header
from l3dali.images.reading import read_picture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from l3dali.datasets.convert.images import Blob, Options, Outcome
    from l3dali.images.headers import Header
    from l3dali.images.picture import Picture

BASE_BYTES = 2**28  # for any image, beside what it takes by its header
BASE_SECONDS = 10
BYTES_A_SECOND = 2**20  # of samples
WAIT_SECONDS = 60  # beside ten times the CPU time that it may take
WORKER_BYTES = 2**32
_STACK_BYTES = 2**24  # of a thread, with room
_TIMES_ESTIMATE = 2  # of what reading takes at its peak
_TIMES_FILE = 4

_KINDS = (resource.RLIMIT_DATA, resource.RLIMIT_CPU)

_idle = new_pool()


def convert_untrusted(
    blob: Blob, options: Options, threads: int, check: Callable[[], object]
) -> Outcome | None:
    """As `convert_image`, in a child. If that dies, the outcome says how.

    `check` is called now and then; what it raises ends the child, and is raised here.
    """
    transient = "untrusted"
    for _ in range(2):
        try:
            with borrowed(_idle) as child:
                outcome: Outcome | None = child.call(_convert, blob, options, threads, check=check)
        except ChildDiedError as error:
            if error.code == -signal.SIGKILL:  # By the system, which was short of memory: no limit.
                transient = "memory"
            reason = f"the process that read it {error}"
            outcome = failed_outcome(blob, options, reason, transient=transient)
            if error.code == -signal.SIGALRM:  # All may have been stopped meanwhile, as by Ctrl-Z.
                continue
        break
    # Libraries do not always say that a limit stopped them.
    if outcome is not None and outcome.failed and outcome.transient != "package":
        outcome = replace(outcome, transient=transient)
    return outcome


def limit_worker(threads: int) -> None:
    """Bounds the memory of this process beside what it has, to read containers on `threads`."""
    _limit_memory(WORKER_BYTES, threads)


def _convert(blob: Blob, options: Options, threads: int) -> Outcome | None:
    os.environ["TIFFFILE_NUM_THREADS"] = "1"  # Images are read side by side.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGALRM, signal.SIGXCPU):  # The caller of `l3` may ignore them.
        signal.signal(number, signal.SIG_DFL)
    return convert_image(blob, options, threads, _read_within_limits, _header_within_limits)


def _header_within_limits(data: bytes) -> Header:
    with _base_limits(len(data)):
        return read_header(data)


def _read_within_limits(data: bytes, *, labels: bool, max_pixels: int) -> Picture:
    """As `read_picture`, for all of which the limits of this process hold."""
    with _base_limits(len(data)):
        header = read_header(data)
        header.check_pixels(max_pixels)
        _limit(
            BASE_BYTES + _TIMES_FILE * len(data) + _TIMES_ESTIMATE * header.read_bytes,
            BASE_SECONDS + header.raw_bytes // BYTES_A_SECOND,
        )
        return read_picture(data, labels=labels, max_pixels=max_pixels, header=header)


@contextlib.contextmanager
def _base_limits(file_bytes: int) -> Iterator[None]:
    """What a file of that size may take before its header has been judged; then what it was."""
    before = {kind: resource.getrlimit(kind) for kind in _KINDS}
    try:
        _limit(BASE_BYTES + _TIMES_FILE * file_bytes, BASE_SECONDS)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for kind, limits in before.items():
            resource.setrlimit(kind, limits)


def _limit(size: int, seconds: int) -> None:
    """Lets this process take so much more than it has taken up to now."""
    _limit_memory(size, os.cpu_count() or 1)  # Some libraries start a thread a core.
    used = resource.getrusage(resource.RUSAGE_SELF)
    _set_soft(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + 1 + seconds)
    # SIGALRM ends the process.
    signal.setitimer(signal.ITIMER_REAL, WAIT_SECONDS + 10 * seconds)


def _limit_memory(size: int, threads: int) -> None:
    # The sixth field: pages that are this process's own to write, stacks too.
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    taken = pages * resource.getpagesize()
    _set_soft(resource.RLIMIT_DATA, taken + size + threads * _STACK_BYTES)


def _set_soft(kind: int, limit: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
