"""The loops over jobs and files that commands share, and interrupts."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from l3dali.console import complain, progress
from l3dali.datasets.convert.engine import is_disk_full
from l3dali.datasets.convert.sources import Contents
from l3dali.threads import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType
    from typing import TypeAlias

    from l3dali.console import Failure
    from l3dali.datasets.convert.job import Job
    from l3dali.datasets.convert.manifest import Row

    Scheduler: TypeAlias = Callable[[Sequence[Job], int], Iterator[list[Row]]]
    Found: TypeAlias = tuple[Contents, list[Failure]]

_END_SECONDS = 1.9  # before a second signal ends the process


def run_jobs(
    jobs: Sequence[Job],
    scheduler: Scheduler,
    workers: int,
    add: Callable[[list[Row]], object],
    state: Callable[[], str],
    *,
    quiet: bool,
) -> None:
    """Gives `add` the rows of jobs as they come, until the disk is full.

    Raises:
        KeyboardInterrupt: with the number of the signal, and what `state` says.
    """
    files = sum(len(job.files) for job in jobs)
    full = 0
    try:
        with closing(scheduler(jobs, workers)) as results:  # type: ignore[type-var]
            for rows in progress(results, files, quiet=quiet, files_of=len):
                add(rows)
                full = full + 1 if is_disk_full(rows) else 0
                if full > workers:  # A large result may only have used the space for a moment.
                    complain(f"l3: no space left; {state()}")
                    break
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(signal_of(error), state()) from None


def sum_contents(
    look: Callable[[str], Found], names: Sequence[str], threads: int, *, quiet: bool
) -> Found:
    """The sums and failures that `look` finds in files, in some threads."""
    total, done = Contents(), 0
    failures: list[Failure] = []
    workers: Workers[str, Found] = Workers(lambda name, add: add(look(name)), names, threads)
    try:
        for contents, failed in progress(workers, len(names), quiet=quiet):
            total.add(contents)
            failures += failed
            done += 1
    except KeyboardInterrupt as error:
        state = f"{done} of {len(names)} files are done"
        raise KeyboardInterrupt(signal_of(error), state) from None
    finally:
        workers.stop()
    return total, failures


_interrupted_at: float | None = None


def interrupt_once() -> None:
    """Makes Ctrl-C and SIGTERM raise KeyboardInterrupt with the signal's number, once.

    Further signals are ignored for some seconds, so that the command can clean up; later ones end
    the process. A handler of Ctrl-C that the caller set stays.
    """
    global _interrupted_at
    _interrupted_at = None
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    global _interrupted_at
    if _interrupted_at is None:
        _interrupted_at = time.monotonic()
        raise KeyboardInterrupt(number)
    if time.monotonic() - _interrupted_at > _END_SECONDS:
        with suppress(OSError):
            os.write(sys.stderr.fileno(), b"l3: interrupted again during cleanup\n")
        os._exit(128 + number)


def signal_of(error: KeyboardInterrupt) -> int:
    """The number of the signal that raised it."""
    # Python's codecs, as for names in zip archives, raise another error from the first.
    for each in (error, error.__cause__):
        if each is not None and each.args and isinstance(each.args[0], int):
            return each.args[0]
    return signal.SIGINT
