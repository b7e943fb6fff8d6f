"""Limits of processes that read files of other formats: memory, CPU time and waiting.

A file that exceeds them, or crashes its reader, fails alone. This is no sandbox: code that a file
injects into a library has all rights of the user.
"""

from __future__ import annotations

import contextlib
import functools
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali import console

if TYPE_CHECKING:
    from collections.abc import Iterator

    from l3dali.datasets.convert.children import ChildDiedError

CPU_SECONDS = 10  # without progress, for each thread
WAIT_SECONDS = 600  # without progress
_STACK_BYTES = 2**24  # of a thread, with room
_CGROUPS = Path("/sys/fs/cgroup")

_cpu_seconds = 0  # of this process, while it has limits
_memory = 0
_first_bytes: int | None = None  # that it had before its first limit


@contextlib.contextmanager
def limited(memory: int, threads: int = 1) -> Iterator[None]:
    """Limits this process to `memory` more bytes; `report_progress` follows each item."""
    global _cpu_seconds, _memory
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)  # ends the process
    _memory = min(memory, cgroup_bytes())
    limit_memory(_memory, threads)
    _cpu_seconds = CPU_SECONDS * threads
    report_progress()
    try:
        yield
    finally:
        _cpu_seconds = 0
        set_clocks(0, 0)


def is_limited() -> bool:
    """Whether this process has limits."""
    return _cpu_seconds > 0


def report_progress() -> None:
    """Resets the clocks of a process with limits: an image, or a part of a file, is done."""
    if _cpu_seconds:
        set_clocks(_cpu_seconds, WAIT_SECONDS)


def why_ended(error: ChildDiedError) -> str:
    """Why a process with limits has ended, for people."""
    code = error.code
    if code == -signal.SIGPROF:
        return f"no progress for {CPU_SECONDS} s of CPU"
    if code == -signal.SIGALRM:
        return f"no progress for {WAIT_SECONDS // 60} minutes"
    if code in _CRASHES:
        return f"the reader crashed ({signal.Signals(-code).name})"
    if code is not None and code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"its process ended by {names.get(-code, f'signal {-code}')}"
    return f"its process ended with {code}"


_CRASHES = {
    -number
    for number in (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)
}


def reason_of(error: BaseException) -> str:
    """As `console.reason_of`, with the limit of memory."""
    if isinstance(error, MemoryError) and _memory:
        return f"needs more than {_memory / 2**30:.3g} GiB (--worker-memory)"
    return console.reason_of(error)


def set_clocks(cpu_seconds: int, seconds: int) -> None:
    """Makes signals end this process after so much CPU time, or so many seconds."""
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def limit_memory(size: int | None, threads: int = 1) -> None:
    """Limits this process to `size` more bytes than at first, and stacks; None: no limit."""
    global _first_bytes
    if sys.platform != "linux":
        return
    if _first_bytes is None:
        # The sixth field: private writable pages, stacks included.
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
        _first_bytes = pages * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = hard
    if size is not None:
        soft = _first_bytes + size + threads * _STACK_BYTES
        soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@functools.cache
def cgroup_bytes() -> int:
    """The memory limit of the control group of this process, or of those around it."""
    limits = [2**62]
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, kinds, path = line.split(":", 2)
            name = {"": "memory.max", "memory": "memory.limit_in_bytes"}.get(kinds)
            group = _CGROUPS / kinds / path.lstrip("/")
            while name and group.is_relative_to(_CGROUPS):
                with contextlib.suppress(OSError, ValueError):  # "max"
                    limits.append(int((group / name).read_text(encoding="ascii")))
                group = group.parent
    return min(limits)
