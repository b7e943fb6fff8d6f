"""The local engine: jobs on the cores of this machine.

An engine maps `convert_job` over jobs, and yields rows as they come.
"""

from __future__ import annotations

import errno
import queue
import signal
import threading
import time
from dataclasses import replace
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
    """The engine cannot continue."""


def convert_job(job: Job) -> list[Row]:
    """Converts the files of a job in a process with limits; rows of failures have the reason.

    Results appear whole or not at all, and the same job may run again at any time.
    """
    if is_in_process(job.target, job.source):
        return list(convert_each(job))
    rows: list[Row] = []
    convert_in_worker(job, _idle, rows.extend)
    return rows


def convert_in_worker(
    job: Job,
    idle: list[Child],
    add: Callable[[list[Row]], object],
    check: Callable[[], object] = lambda: None,
    killed: list[Job] | None = None,
) -> None:
    """Converts a job in a child. If that dies, each remaining item is tried once more, alone.

    Args:
        job: the job.
        idle: the children to use.
        add: gets rows of the job, soon after their results have appeared.
        check: called often; its exceptions end the child, and are raised here.
        killed: gets jobs whose child was killed, and may have left a temporary file.
    """
    killed = [] if killed is None else killed
    for file in _attempt(job, idle, add, check, killed):
        options = replace(job.options, careful=True)
        _attempt(replace(job, files=(file,), options=options), idle, add, check, killed)


def _attempt(
    job: Job,
    idle: list[Child],
    add: Callable[[list[Row]], object],
    check: Callable[[], object],
    killed: list[Job],
) -> list[Stored]:
    """Converts a job in a child; returns the files to try again."""
    left = {file.name: file for file in job.files}
    short: list[Stored] = []  # files that need more memory
    child = take(idle)
    try:
        for rows in child.each(_work, job, check=check):
            files = [left.pop(row.source) for row in rows]
            if not job.options.careful:
                pairs = zip(rows, files, strict=True)
                short += [file for row, file in pairs if row.error_number == errno.ENOMEM]
            add([row for row, file in zip(rows, files, strict=True) if file not in short])
        idle.append(child)
    except ChildDiedError as error:
        killed.append(job)
        rest = tuple(left.values())
        is_own = job.kind == FILES and len(rest) == 1 and error.code == -signal.SIGKILL
        if not job.options.careful and not is_own:
            return [*short, *rest]
        add(failed_rows(replace(job, files=rest), why_ended(error)))
    except BaseException:
        killed += [job] * child.end()
        raise
    return short


def run_local(jobs: Sequence[Job], workers: int) -> Iterator[list[Row]]:
    """Yields rows soon after their results have appeared.

    Many jobs run in a process for each worker, since Python's lock slows threads with small
    images. With fewer jobs than workers, each has several threads for its images.

    Closing the generator stops the workers at once, and removes unfinished results.
    """
    if not jobs:
        return
    threads = max(1, workers // len(jobs))
    jobs = [replace(job, threads=threads) for job in jobs]
    if is_in_process(jobs[0].target, *(job.source for job in jobs)):
        for job in jobs:
            for row in convert_each(job):
                yield [row]
        return
    yield from _run_in_processes(jobs, min(workers, len(jobs)))


def _run_in_processes(jobs: Sequence[Job], workers: int) -> Iterator[list[Row]]:
    # Ctrl-C may interrupt any call here, so nothing uses a lock of Python's own.
    found: queue.SimpleQueue[list[Row] | BaseException | None] = queue.SimpleQueue()
    todo, idle, killed, stop = iter(jobs), list[Child](), list[Job](), list[bool]()

    def check() -> None:
        if stop:
            raise Stopped

    def work() -> None:  # A thread waits for each process.
        try:
            while (job := next(todo, None)) is not None:
                convert_in_worker(job, idle, found.put, check, killed)
        except BaseException as error:
            found.put(error)
        found.put(None)

    pool = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    try:
        for thread in pool:
            thread.start()
        working = workers
        while working:
            rows = found.get()
            if isinstance(rows, BaseException):
                raise rows
            if rows is None:
                working -= 1
            elif rows:
                yield rows
    finally:
        stop.append(True)
        for thread in pool:
            if thread.is_alive():
                thread.join()
        for child in idle:
            child.end()
        if killed and isinstance(target := open_folder(jobs[0].target), LocalFolder):
            target.remove_temporaries()


def _work(job: Job) -> Iterator[list[Row]]:
    """In a child: some rows at a time."""
    with limited(job.options.worker_memory, job.threads):
        yield from _rows_of(job)


def _rows_of(job: Job) -> Iterator[list[Row]]:
    rows: list[Row] = []
    begin = time.monotonic()
    for row in convert_each(job):
        rows.append(row)
        if time.monotonic() - begin > _ROWS_SECONDS:
            yield rows
            rows, begin = [], time.monotonic()
    yield rows


def is_disk_full(rows: Sequence[Row]) -> bool:
    """Whether a row failed because the disk is full."""
    return any(row.error_number in (errno.ENOSPC, errno.EDQUOT) for row in rows)
