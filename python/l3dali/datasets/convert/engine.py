"""The local engine: jobs on the cores of this machine.

An engine maps `convert_job` over jobs and yields rows as they come; it knows nothing else.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import islice
from multiprocessing import connection
from typing import TYPE_CHECKING

from l3dali.datasets.convert.job import Job, convert_job

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.synchronize import Event

    from l3dali.datasets.convert.manifest import Row

_IN_PROCESS = ("memory:",)  # storage that other processes do not see


class EngineError(OSError):
    """The engine cannot go on."""


def run_local(jobs: Sequence[Job], workers: int) -> Iterator[list[Row]]:
    """Yields the rows of each job, in the order in which they end.

    Many jobs run in as many processes as there are workers: Python's lock would hold back threads
    that work on small images. With fewer jobs than workers, each has several threads for the
    images within.

    Closing the generator stops the workers within a moment; their unfinished results vanish.

    Raises:
        EngineError: a worker died.
    """
    if not jobs:
        return
    threads = max(1, workers // len(jobs))
    jobs = [replace(job, threads=threads) for job in jobs]
    in_process = any(job.source.startswith(_IN_PROCESS) for job in jobs)
    if min(workers, len(jobs)) == 1 or in_process or jobs[0].target.startswith(_IN_PROCESS):
        for job in jobs:
            yield convert_job(job)
        return
    yield from _run_in_processes(jobs, min(workers, len(jobs)))


def _run_in_processes(jobs: Sequence[Job], workers: int) -> Iterator[list[Row]]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    stop = context.Event()
    pool = ProcessPoolExecutor(workers, context, _start_worker, (stop,))
    queue = iter(jobs)
    pending: set[Future[list[Row]]] = set()
    try:
        while True:
            new = list(islice(queue, 2 * workers - len(pending)))
            pending |= {pool.submit(_work, job) for job in new}
            if not pending:
                return
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    except BrokenProcessPool:
        raise EngineError("a worker process died (out of memory?); run again to go on") from None
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


_stop: Event | None = None


def _start_worker(stop: Event) -> None:
    global _stop
    _stop = stop
    # Ctrl-C reaches all processes of a terminal; the one that has the workers stops them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _work(job: Job) -> list[Row]:
    assert _stop is not None
    if _stop.is_set():
        return []
    return convert_job(job, _stop.is_set)


def is_disk_full(rows: Sequence[Row]) -> bool:
    """Whether a row failed for want of space: then all others would."""
    texts = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT))
    return any(row.reason.startswith(texts) for row in rows)
