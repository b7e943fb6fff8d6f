"""The local engine: jobs on the cores of this machine.

An engine maps `convert_job` over jobs, and yields rows as they come.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from l3dali.datasets.convert.children import Child, ChildDiedError, new_pool, take
from l3dali.datasets.convert.job import Job, convert_each, failed_rows
from l3dali.datasets.convert.limits import limited, why_ended
from l3dali.datasets.convert.pipeline import Stopped
from l3dali.datasets.convert.reader import FILES, is_in_process
from l3dali.datasets.convert.storage import LocalFolder, open_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from l3dali.datasets.convert.manifest import Row
    from l3dali.datasets.convert.storage import Stored


_ROWS_SECONDS = 0.1  # that rows wait for others, to be written together


_idle = new_pool()  # of convert_job


class EngineError(OSError):
    """The engine cannot go on."""


def convert_job(job: Job, is_stopped: Callable[[], bool] | None = None) -> list[Row]:
    """Converts the files of a job in a process with limits; what fails has the reason in its row.

    Results appear whole or not at all, and the same job may run again at any time.

    Args:
        job: what to do.
        is_stopped: asked now and then; the work ends with `Stopped` when it returns True.
    """
    if is_in_process(job.target, job.source):
        return list(convert_each(job, is_stopped))
    rows: list[Row] = []

    def check() -> None:
        if is_stopped is not None and is_stopped():
            raise Stopped

    convert_in_worker(job, _idle, rows, check)
    return rows


def convert_in_worker(
    job: Job,
    idle: list[Child],
    rows: list[Row],
    check: Callable[[], object],
    killed: list[Job] | None = None,
) -> None:
    """Converts a job in a child. If that dies, each item that is left is tried once more, alone.

    Args:
        job: what to do.
        idle: the children to use.
        rows: gets those of the job.
        check: called now and then; what it raises ends the child, and is raised here.
        killed: gets jobs whose child did not end by itself, and may have left a temporary file.
    """
    killed = [] if killed is None else killed
    again = _attempt(job, idle, rows, check, killed)
    for file in again:
        options = replace(job.options, careful=True)
        _attempt(replace(job, files=(file,), options=options), idle, rows, check, killed)


def _attempt(
    job: Job, idle: list[Child], rows: list[Row], check: Callable[[], object], killed: list[Job]
) -> list[Stored]:
    """Converts a job in a child; gives the files that are to be tried again."""
    told: set[str] = set()
    short: set[str] = set()  # of memory

    def add(found: Sequence[Row]) -> None:
        for row in found:
            if row.source in told:  # A child that gets SIGTERM sends some twice.
                continue
            told.add(row.source)
            if row.error_number == errno.ENOMEM and not job.options.careful:
                short.add(row.source)
            else:
                rows.append(row)

    child = take(idle)
    unread: list[list[Row]] = []
    try:
        for found in child.each(_work, job, check=check):
            add(found)
        idle.append(child)
    except ChildDiedError as error:
        killed.append(job)
        left = [file for file in job.files if file.name not in told]
        is_own = job.kind == FILES and len(left) == 1 and error.code == -signal.SIGKILL
        if job.options.careful or is_own:
            add(failed_rows(replace(job, files=tuple(left)), why_ended(error)))
        else:
            short.update(file.name for file in left)
    except BaseException:
        killed += [job] if child.end(left=unread) else []
        for found in unread:
            add(found)
        raise
    return [file for file in job.files if file.name in short]


def run_local(jobs: Sequence[Job], workers: int, left: list[Row]) -> Iterator[list[Row]]:
    """Yields rows soon after their results have appeared.

    Many jobs run in as many processes as there are workers: Python's lock would hold back threads
    that work on small images. With fewer jobs than workers, each has several threads for the
    images within.

    Closing the generator stops the workers within a moment; their unfinished results vanish.

    Args:
        jobs: what to do.
        workers: how many cores to use.
        left: in the end, has the rows of results that have appeared but for those of earlier lists.
    """
    if not jobs:
        return
    threads = max(1, workers // len(jobs))
    jobs = [replace(job, threads=threads) for job in jobs]
    if is_in_process(jobs[0].target, *(job.source for job in jobs)):
        for job in jobs:
            for row in convert_each(job):
                left.append(row)
                yield [row]
                left.clear()
        return
    yield from _run_in_processes(jobs, min(workers, len(jobs)), left)


def _run_in_processes(jobs: Sequence[Job], workers: int, left: list[Row]) -> Iterator[list[Row]]:
    pool = ThreadPoolExecutor(workers)  # a thread waits for each process
    idle: list[Child] = []
    killed: list[Job] = []
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise Stopped

    def convert(job: Job) -> None:
        convert_in_worker(job, idle, left, check, killed)

    queue = iter(jobs)
    pending: set[Future[None]] = set()
    try:
        while True:
            with _interrupts_wait():
                new = list(islice(queue, 2 * workers - len(pending)))
                pending |= {pool.submit(convert, job) for job in new}
                if not pending:
                    return
                done, pending = wait(pending, _ROWS_SECONDS, FIRST_COMPLETED)
                for future in done:
                    future.result()
            if rows := left[:]:
                yield rows
                del left[: len(rows)]
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
        for child in idle:
            child.end()
        if killed and isinstance(target := open_folder(jobs[0].target), LocalFolder):
            target.remove_temporaries()


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Lets signals raise after the block: `concurrent.futures` would keep locks for ever."""
    told: list[int] = []
    with contextlib.ExitStack() as in_the_end:
        in_the_end.callback(lambda: list(map(signal.raise_signal, told)))
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if callable(handler := signal.getsignal(number)):
                    in_the_end.callback(signal.signal, number, handler)
                    signal.signal(number, lambda got, _frame: told.append(got))
        yield


def _work(job: Job) -> Iterator[list[Row]]:
    """In a child: some rows at a time, and those that there are when it is told to end."""
    with limited(job.options.worker_memory, job.threads):
        yield from _rows_of(job)


def _rows_of(job: Job) -> Iterator[list[Row]]:
    rows: list[Row] = []
    begin = time.monotonic()
    try:
        for row in convert_each(job):
            rows.append(row)
            if time.monotonic() - begin > _ROWS_SECONDS:
                yield rows
                rows, begin = [], time.monotonic()
    except KeyboardInterrupt:
        yield rows
        raise
    yield rows


def is_disk_full(rows: Sequence[Row], url: str) -> bool:
    """Whether a row failed for want of space in a folder that has none for its source either.

    Then others would fail as well. Not so if its result was large, or TMPDIR is full.
    """
    folder = open_folder(url)
    failed = [row for row in rows if row.error_number in (errno.ENOSPC, errno.EDQUOT)]
    if not failed or not isinstance(folder, LocalFolder):
        return False
    disk = os.statvfs(folder.root)
    free = 0 if disk.f_files and not disk.f_favail else disk.f_bavail * disk.f_frsize
    return any(row.error_number == errno.EDQUOT or row.source_bytes > free for row in failed)
