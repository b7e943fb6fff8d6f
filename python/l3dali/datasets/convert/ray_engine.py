"""The engine on a Ray cluster: each job is a task of Ray.

Retries and lost workers are Ray's. A task that runs again writes the same bytes again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import l3dali
from l3dali.console import counted, say
from l3dali.datasets.convert.children import new_pool
from l3dali.datasets.convert.engine import EngineError, convert_in_worker
from l3dali.datasets.convert.job import Job, failed_rows
from l3dali.datasets.convert.pipeline import Stopped
from l3dali.datasets.convert.reader import is_in_process
from l3dali.datasets.convert.storage import LOCK_NAME, LocalFolder, open_folder
from l3dali.errors import UsageError, needs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from l3dali.datasets.convert.manifest import Row

_CONNECT_SECONDS = 10.0
_STOP_SECONDS = 4.0
_ASK_SECONDS = 0.5  # between two questions of a task whether to stop
_QUIET_SECONDS = 10.0  # without a result, before the number of machines is checked

_idle = new_pool()  # of a worker of Ray


def connect(cores: int) -> int:
    """Connects to the cluster of RAY_ADDRESS, or else to that of this machine, or to a new one.

    Args:
        cores: how many a new one uses.

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
    if address is not None:
        _refuse_silence(address, where)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    if not (address or "").startswith("ray://"):
        options["job_config"] = _nothing_from_here()
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


def _nothing_from_here() -> Any:
    """Keeps workers of Ray from importing modules of the current folder, before all others."""
    from ray.job_config import JobConfig

    config = JobConfig()
    config._runtime_env_has_working_dir = lambda: True
    return config


def disconnect() -> None:
    """Leaves the cluster."""
    import ray

    ray.shutdown()


def run_on_ray(jobs: Sequence[Job], workers: int, left: list[Row]) -> Iterator[list[Row]]:
    """Yields the rows of each job, in the order in which they end; `connect` comes first.

    Ray runs a task again if its worker dies, up to three times. If all die, the rows of its job
    say so.

    Closing the generator stops the tasks; their unfinished results vanish.

    Args:
        jobs: what to do; folders that are local have to be on all machines.
        workers: the cores that may be used at a time.
        left: in the end, has the rows of results that have appeared but for those of earlier lists.

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
    threads = max(1, min(workers // len(jobs), _most_cores_of_a_machine()))
    flag = ray.remote(_Flag).options(num_cpus=0, max_restarts=-1, max_task_retries=-1).remote()
    work = ray.remote(_convert_remote).options(num_cpus=threads, max_retries=3)
    queue = iter(jobs)
    pending: dict[Any, Job] = {}
    was_told = False
    try:
        while True:
            while len(pending) < _room(workers, threads) and (job := next(queue, None)) is not None:
                task = replace(
                    job, source=_absolute(job.source), target=_absolute(job.target), threads=threads
                )
                pending[work.remote(task, flag, l3dali.__version__)] = job
            if not pending:
                return
            done, _ = ray.wait(list(pending), num_returns=1, timeout=_QUIET_SECONDS)
            is_stuck = not done and _most_cores_of_a_machine() < threads
            if is_stuck and not was_told:  # Ray waits for ever: clusters may grow.
                cores = counted(threads, "core")
                say([f"no machine of the cluster has {cores} now: waiting for one"])
            was_told = is_stuck
            for reference in done:
                left += _rows_of(reference, pending.pop(reference))
                yield left[:]
                left.clear()
    finally:
        with contextlib.suppress(Exception):
            flag.stop.remote()
            waiting = list(pending)
            done, _ = ray.wait(waiting, num_returns=len(waiting), timeout=_STOP_SECONDS)
            for reference in done:
                with contextlib.suppress(Exception):
                    left += ray.get(reference)


def _room(workers: int, threads: int) -> int:
    """How many tasks Ray may have at a time. It runs as many as the cluster has cores for."""
    cores = _cores()
    tasks = max(1, min(workers, cores) // threads)
    return 2 * tasks if workers >= cores else tasks


class _Flag:
    """An actor that tasks ask whether to stop: `ray.cancel` can end the driver (Ray 2.60)."""

    def __init__(self) -> None:
        self._is_set = False

    def stop(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set


def _convert_remote(job: Job, flag: Any, version: str) -> list[Row]:
    """What a task does, in a worker."""
    import ray

    if l3dali.__version__ != version:
        raise EngineError(f"a worker has l3dali {l3dali.__version__}, and not {version} as here")
    target = open_folder(job.target)
    if isinstance(target, LocalFolder) and not (target.root / LOCK_NAME).exists():
        raise EngineError(
            f"{job.target} is not on all machines of the cluster; name a shared folder or a bucket"
        )
    asked = time.monotonic()
    question = flag.is_set.remote()

    def check() -> None:
        nonlocal asked, question
        if time.monotonic() - asked < _ASK_SECONDS:
            return
        asked = time.monotonic()
        if ray.wait([question], timeout=0)[0]:
            is_set, question = ray.get(question), flag.is_set.remote()
            if is_set:
                raise Stopped

    rows: list[Row] = []
    with contextlib.suppress(Stopped):
        convert_in_worker(job, _idle, rows, check)
    return rows


def _rows_of(reference: Any, job: Job) -> list[Row]:
    import ray

    try:
        rows: list[Row] = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause if isinstance(error.cause, Exception) else error
        if isinstance(cause, EngineError):
            raise EngineError(str(cause)) from None
        if "No module named 'l3dali" in str(error):
            raise EngineError(
                "a worker of the cluster has no l3dali; install it on all machines"
            ) from None
        return failed_rows(job, f"{type(cause).__name__}: {_first_line(cause)}")
    except ray.exceptions.RayError as error:  # Its worker, or the machine, was lost.
        return failed_rows(job, f"Ray: {_first_line(error)}")
    return rows


def _cores() -> int:
    import ray

    return int(ray.cluster_resources().get("CPU", 0))


def _most_cores_of_a_machine() -> int:
    import ray

    machines = (node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"])
    return int(max(machines, default=0))


def _absolute(url: str) -> str:
    """A local path as other processes see it."""
    folder = open_folder(url)
    return str(Path(folder.root).absolute()) if isinstance(folder, LocalFolder) else url


def _refuse_silence(address: str, where: str) -> None:
    """Refuses an address that does not answer: Ray would try for minutes, and end the process."""
    match = re.fullmatch(r"(?:ray://)?\[?([^/]+?)\]?:(\d+)", address)
    if match is None:
        return
    try:
        socket.create_connection((match[1], int(match[2])), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"no Ray cluster answers{where}: {reason}") from None


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
