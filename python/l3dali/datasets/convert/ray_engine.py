"""The engine on a Ray cluster: each job is a task of Ray.

Retries and lost workers are Ray's. A task that runs again writes the same bytes again.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import l3dali
from l3dali.datasets.convert.children import new_pool
from l3dali.datasets.convert.engine import EngineError, convert_in_worker
from l3dali.datasets.convert.job import Job, failed_rows
from l3dali.datasets.convert.reader import is_in_process
from l3dali.datasets.convert.storage import LOCK_NAME, LocalFolder, open_folder
from l3dali.errors import UsageError, needs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from l3dali.datasets.convert.manifest import Row

_CONNECT_SECONDS = 10.0

_idle = new_pool()  # of a worker of Ray


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
    return _cores()


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
        yield _rows_of(reference, pending.pop(reference))


def _convert_remote(job: Job, version: str) -> list[Row]:
    """The task of a worker."""
    if l3dali.__version__ != version:
        raise EngineError(f"a worker has l3dali {l3dali.__version__}, this machine has {version}")
    target = open_folder(job.target)
    if isinstance(target, LocalFolder) and not (target.root / LOCK_NAME).exists():
        raise EngineError(
            f"{job.target} is not on all machines of the cluster; name a shared folder or a bucket"
        )
    rows: list[Row] = []
    convert_in_worker(job, _idle, rows.extend)
    return rows


def _rows_of(reference: Any, job: Job) -> list[Row]:
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


def _cores() -> int:
    import ray

    return int(ray.cluster_resources().get("CPU", 0))


def _absolute(url: str) -> str:
    """A local path as other processes see it."""
    folder = open_folder(url)
    return str(Path(folder.root).absolute()) if isinstance(folder, LocalFolder) else url


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
