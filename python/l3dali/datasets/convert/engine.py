"""The local engine: jobs on the cores of this machine.

An engine maps `convert_each` over jobs and yields rows as they come; it knows nothing else.
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

from l3dali.datasets.convert.children import Child, ChildDiedError
from l3dali.datasets.convert.job import Job, convert_each, failed_rows, has_no_children, rest_of
from l3dali.datasets.convert.pipeline import Stopped
from l3dali.datasets.convert.storage import LocalFolder, open_folder
from l3dali.datasets.convert.untrusted import limit_worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from l3dali.datasets.convert.manifest import Row


_ROWS_SECONDS = 0.1  # that rows wait for others, to be written together


class EngineError(OSError):
    """The engine cannot go on."""


def run_local(jobs: Sequence[Job], workers: int, left: list[Row]) -> Iterator[list[Row]]:
    """Yields rows soon after their results have appeared.

    Many jobs run in as many processes as there are workers: Python's lock would hold back threads
    that work on small images. With fewer jobs than workers, each has several threads for the
    images within. One has a process of its own too: a process that dies costs what it had in hand.
    Rows say so, and the others go on.

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
    if has_no_children(jobs):
        for job in jobs:
            converted = convert_each(job)
            try:
                for row in converted:
                    left.append(row)
                    yield [row]
                    left.clear()
            except BaseException:
                left += rest_of(converted)
                raise
        return
    yield from _run_in_processes(jobs, min(workers, len(jobs)), left)


def _run_in_processes(jobs: Sequence[Job], workers: int, left: list[Row]) -> Iterator[list[Row]]:
    pool = ThreadPoolExecutor(workers)  # a thread waits for each process
    idle: list[Child] = []
    killed: list[bool] = []
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise Stopped

    def convert(job: Job) -> None:
        child = idle.pop() if idle else Child(may_have_children=True)
        told: set[str] = set()
        unread: list[list[Row]] = []
        try:
            for rows in child.each(_work, job, check=check):
                # A child that is told to end gives some twice.
                untold = {row.source: row for row in rows if row.source not in told}
                told.update(untold)
                left.extend(untold.values())
        except ChildDiedError as error:
            rows = failed_rows(job, f"the process that converted it {error}")
            left.extend(row for row in rows if row.source not in told)
        except BaseException:
            killed.append(child.end(left=unread))
            left.extend(row for rows in unread for row in rows)
            raise
        else:
            idle.append(child)

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
        if any(killed) and isinstance(target := open_folder(jobs[0].target), LocalFolder):
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
    if job.options.untrusted:
        limit_worker(job.threads)
    rows: list[Row] = []
    begin = time.monotonic()
    converted = convert_each(job)
    try:
        for row in converted:
            rows.append(row)
            if time.monotonic() - begin > _ROWS_SECONDS:
                yield rows
                rows, begin = [], time.monotonic()
    except KeyboardInterrupt:
        yield [*rows, *rest_of(converted)]
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
