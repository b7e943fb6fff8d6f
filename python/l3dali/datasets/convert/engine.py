"""Schedulers map `convert_job` over jobs, and yield rows as they come: here, or by Ray."""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import l3dali
from l3dali.console import megabytes
from l3dali.datasets.convert.containers import FILES, is_in_process, read_blobs
from l3dali.datasets.convert.images import Totals
from l3dali.datasets.convert.job import Job, convert_each, failed_rows
from l3dali.datasets.convert.pool import convert_alone
from l3dali.datasets.convert.storage import LOCK_NAME, LocalFolder, open_folder
from l3dali.datasets.convert.workers import (
    ChildDiedError,
    borrowed,
    end_idle,
    limited,
    why_ended,
)
from l3dali.errors import UsageError, needs
from l3dali.images.formats import lossy_format
from l3dali.threads import Stopped, Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from l3dali.datasets.convert.images import Blob
    from l3dali.datasets.convert.manifest import Row
    from l3dali.datasets.convert.storage import Stored

_ROWS_SECONDS = 0.1  # that rows wait for others, to be written together


class EngineError(OSError):
    """The scheduler cannot continue."""


def convert_job(job: Job) -> list[Row]:
    """Converts the files of a job in a process with limits; rows of failures have the reason.

    Results appear whole or not at all, and the same job may run again at any time.
    """
    if is_in_process(job.target, job.source):
        return list(convert_each(job))
    rows: list[Row] = []
    convert_in_worker(job, rows.extend)
    return rows


def convert_in_worker(
    job: Job,
    add: Callable[[list[Row]], object],
    check: Callable[[], object] = lambda: None,
    died: Callable[[Job], object] = lambda _: None,
) -> None:
    """Converts a job in a child. If that dies, each remaining item is tried once more, alone.

    Args:
        job: the job.
        add: gets rows of the job, soon after their results have appeared.
        check: called often; its exceptions end the child, and are raised here.
        died: gets jobs whose child has ended, and may have left a temporary file.
    """
    left = {file.name: file for file in job.files}
    again: list[Stored] = []
    is_last = job.options.careful
    try:
        with borrowed(kill=False) as child:
            for rows in child.each(_work, job, check=check):
                files = [left.pop(row.source) for row in rows]
                if not is_last:  # Some may need more memory.
                    pairs = zip(rows, files, strict=True)
                    again += [file for row, file in pairs if row.error_number == errno.ENOMEM]
                add([row for row, file in zip(rows, files, strict=True) if file not in again])
    except ChildDiedError as error:
        died(job)
        rest = tuple(left.values())
        is_own = job.kind == FILES and len(rest) == 1 and error.code == -signal.SIGKILL
        if is_last or is_own:
            add(failed_rows(replace(job, files=rest), why_ended(error)))
        else:
            again += rest
    except BaseException:
        died(job)
        raise
    for file in again:
        options = replace(job.options, careful=True)
        convert_in_worker(replace(job, files=(file,), options=options), add, check, died)


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
    first = jobs[0]
    # A process takes longer to start than one L3 file to decode.
    is_quick = (
        len(jobs) == len(first.files) == 1 and first.kind == FILES and first.options.to != "l3"
    )
    if is_quick or is_in_process(first.target, *(job.source for job in jobs)):
        for job in jobs:
            for row in convert_each(job):
                yield [row]
        return
    yield from _run_in_processes(jobs, min(workers, len(jobs)))


def _run_in_processes(jobs: Sequence[Job], count: int) -> Iterator[list[Row]]:
    ended: list[Job] = []

    def check() -> None:
        if workers.is_stopped:
            raise Stopped

    def work(job: Job, add: Callable[[list[Row]], None]) -> None:  # A thread waits for a process.
        convert_in_worker(job, add, check, ended.append)

    workers: Workers[Job, list[Row]] = Workers(work, jobs, count)
    try:
        for rows in workers:
            if rows:
                yield rows
    finally:
        workers.stop()
        workers.join()
        end_idle()
        for url in {job.target for job in ended}:
            target = open_folder(url)
            if isinstance(target, LocalFolder) and (target.root / LOCK_NAME).exists():
                target.remove_temporaries()


def _work(job: Job) -> Iterator[list[Row]]:
    """In a child: some rows at a time."""
    rows: list[Row] = []
    begin = time.monotonic()
    with limited(job.options.worker_memory, job.threads):
        for row in convert_each(job):
            rows.append(row)
            if time.monotonic() - begin > _ROWS_SECONDS:
                yield rows
                rows, begin = [], time.monotonic()
        yield rows


def is_disk_full(rows: Sequence[Row]) -> bool:
    """Whether a row failed because the disk is full, or cannot be written."""
    return any(row.error_number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS) for row in rows)


SAMPLED_IMAGES = 32


def tell_growth(jobs: Sequence[Job], threads: int) -> str:
    """Text that the sources are lossy and would grow, by the first images; "" if they would not."""
    names = [lossy_format(blob.data) for blob in _first_images(jobs)]
    lossy = [name for name in names if name is not None]
    if 2 * len(lossy) <= len(names):
        return ""
    total = _convert_first(jobs, threads).total
    if total.result_bytes <= total.source_bytes:
        return ""
    factor = total.result_bytes / total.source_bytes
    set_bytes = sum(job.bytes for job in jobs)
    keeps_jpeg = "JPEG" not in lossy or jobs[0].options.coding in (None, "jpeg")
    advice = "" if keeps_jpeg else "--coding jpeg makes JPEG files smaller, and "
    return (
        f"the sources are {max(lossy, key=lossy.count)} files, which are lossy; lossless copies "
        f"are larger. The first {total.images} images: from "
        f"{megabytes(total.source_bytes)} to {megabytes(total.result_bytes)}, ratio {factor:.2f}; "
        f"the whole set: from {megabytes(set_bytes)} to about "
        f"{megabytes(round(set_bytes * factor))}. {advice}--grow converts them anyway"
    )


def _convert_first(jobs: Sequence[Job], threads: int) -> Totals:
    options, totals, ended = replace(jobs[0].options, verify=False), Totals(), list[bool]()
    blobs = _first_images(jobs)

    def check() -> None:
        if ended:
            raise Stopped

    with ThreadPoolExecutor(threads) as pool:
        try:
            while some := list(islice(blobs, threads)):
                found = pool.map(lambda blob: convert_alone(blob, options, 1, check), some)
                for blob, outcome in zip(some, found, strict=True):
                    if outcome is not None:
                        totals.add(blob, outcome, options)
        finally:
            ended.append(True)
    return totals


def _first_images(jobs: Sequence[Job]) -> Iterator[Blob]:
    def readable() -> Iterator[Blob]:
        for job in jobs:
            for file in job.files:
                try:
                    yield from read_blobs(job.source, file.name, job.kind, job.options)
                except UsageError:
                    raise
                except Exception:
                    continue  # The run reports damaged files.

    return islice(readable(), SAMPLED_IMAGES)


_CONNECT_SECONDS = 10.0


def connect(cores: int) -> int:
    """Connects to the cluster of RAY_ADDRESS, else of this machine, else to a new one of `cores`.

    Returns:
        The cluster's number of cores.

    Raises:
        UsageError: there is no Ray, or no cluster at the address.
    """
    try:
        import ray
    except ImportError:
        raise needs("ray", "--engine ray") from None
    address = os.environ.get("RAY_ADDRESS") or None
    where = f" at RAY_ADDRESS={address}" if address else ""
    # Ray would try for minutes to reach an address that does not answer, and end the process.
    if place := re.fullmatch(r"(?:ray://)?\[?([^/]+?)\]?:(\d+)", address or ""):
        try:
            socket.create_connection((place[1], int(place[2])), _CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"no Ray cluster answers{where}: {reason}") from None
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    new = {"num_cpus": cores, "include_dashboard": False}
    try:
        try:
            ray.init(address or "auto", **options, **(new if address == "local" else {}))
        except ConnectionError:
            if address is not None:
                raise
            ray.init("local", **options, **new)
    except Exception as error:
        raise UsageError(f"Ray{where}: {_first_line(error)}") from None
    return int(ray.cluster_resources().get("CPU", 0))


def disconnect() -> None:
    """Leaves the cluster, which ends the tasks."""
    import ray

    ray.shutdown()


def run_on_ray(jobs: Sequence[Job], workers: int) -> Iterator[list[Row]]:
    """Yields the rows of each job, in the order in which they end; `connect` comes first.

    Ray runs a task again if its worker dies, up to three times. Then the rows of its job have the
    reason. Local folders must exist on all machines. `workers` is the number of cores to use.

    Raises:
        EngineError: a worker cannot convert: it lacks l3dali or a folder.
        UsageError: a folder is in the memory of this process.
    """
    import ray

    if not jobs:
        return
    for url in (jobs[0].target, *(job.source for job in jobs)):
        if is_in_process(url):
            raise UsageError(f"{url}: other processes do not see this memory; use --engine local")
    machines = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    threads = max(1, int(min(workers // len(jobs), max(machines, default=0))))
    work = ray.remote(_convert_remote).options(num_cpus=threads, max_retries=3)
    most = max(1, workers // threads)
    queue = iter(jobs)
    pending: dict[Any, Job] = {}
    while True:
        while len(pending) < most and (job := next(queue, None)) is not None:
            source, target = _absolute(job.source), _absolute(job.target)
            task = replace(job, source=source, target=target, threads=threads)
            pending[work.remote(task, l3dali.__version__)] = job
        if not pending:
            return
        (reference,), _ = ray.wait(list(pending), num_returns=1)
        yield _rows_of_task(reference, pending.pop(reference))


def _convert_remote(job: Job, version: str) -> list[Row]:
    """The task of a worker."""
    if l3dali.__version__ != version:
        raise EngineError(f"a worker has l3dali {l3dali.__version__}, this machine has {version}")
    target = open_folder(job.target)
    if isinstance(target, LocalFolder) and not (target.root / LOCK_NAME).exists():
        raise EngineError(
            f"{job.target} is not on all machines of the cluster; name a shared folder or a bucket"
        )
    return convert_job(job)


def _rows_of_task(reference: Any, job: Job) -> list[Row]:
    import ray

    try:
        rows: list[Row] = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, EngineError):
            raise EngineError(str(error.cause)) from None
        return failed_rows(job, _first_line(error.cause or error))
    except ray.exceptions.RayError as error:  # Its worker, or the machine, was lost.
        return failed_rows(job, f"Ray: {_first_line(error)}")
    return rows


def _absolute(url: str) -> str:
    """A local path as other processes see it."""
    folder = open_folder(url)
    return str(Path(folder.root).absolute()) if isinstance(folder, LocalFolder) else url


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
