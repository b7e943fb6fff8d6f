"""The engine on a Ray cluster: each job is a task of Ray.

Retries, lost workers and where a task runs are Ray's. What is about to be published is told to a
ledger first, so that a task that Ray runs again finds what has appeared, and goes on behind it.
Ledgers also tell tasks to stop: `ray.cancel` can end the process that calls it (Ray 2.60).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import secrets
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import l3dali
from l3dali.console import counted, say
from l3dali.datasets.convert.engine import EngineError
from l3dali.datasets.convert.job import Job, convert_each, failed_rows, is_in_process
from l3dali.datasets.convert.pipeline import Stopped
from l3dali.datasets.convert.storage import LOCK_NAME, LocalFolder, open_folder
from l3dali.errors import UsageError, needs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from l3dali.datasets.convert.manifest import Row

_CONNECT_SECONDS = 10.0
_STOP_SECONDS = 4.0
_ASK_SECONDS = 0.5  # between two questions of a task whether to stop
_QUIET_SECONDS = 10.0  # without a result, after which one looks for machines
_MOST_DEATHS = 10  # of a ledger, while a task asks it

# A result takes a ledger up to 0.43 ms of CPU; 32 cores make 1,500 photographs a second.
_CORES_OF_A_LEDGER, _MOST_LEDGERS = 32, 8

_ledgers: list[Any] = []  # of the connection


def connect(address: str | None, cores: int) -> int:
    """Connects to a cluster; gives its number of cores.

    Args:
        address: `host:port` or `ray://host:port`; None for that in RAY_ADDRESS, or the cluster
            that this machine has, or else one that is started here and ends with the process.
        cores: how many such a new one uses.

    Raises:
        UsageError: there is no Ray, or no cluster at the address.
    """
    try:
        import ray
    except ImportError:
        raise needs("ray", "--engine ray") from None
    where = f" at {address}" if address else ""
    if address is None and (address := os.environ.get("RAY_ADDRESS") or None):
        where = f" at RAY_ADDRESS={address}"
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
    cores = _cores()
    # Their processes take a second to start: not while tasks wait for them.
    _ledgers[:] = [_start_ledger() for _ in range(_count_of_ledgers(cores))]
    return cores


def _nothing_from_here() -> Any:
    """Keeps Ray from having workers look for modules in the current folder, before all others."""
    from ray.job_config import JobConfig

    config = JobConfig()
    config._runtime_env_has_working_dir = lambda: True
    return config


def disconnect() -> None:
    """Leaves the cluster."""
    import ray

    with contextlib.suppress(Exception):  # A message that is left makes Ray complain.
        ray.get([ledger.rows.remote("") for ledger in _ledgers], timeout=_STOP_SECONDS)
    _ledgers.clear()
    ray.shutdown()


def run_on_ray(jobs: Sequence[Job], workers: int, left: list[Row]) -> Iterator[list[Row]]:
    """Yields the rows of each job, in the order in which they end; `connect` comes first.

    Two tasks a core are handed to Ray at a time, or one if the cluster has more cores than may be
    used. A task whose worker dies is run again by Ray, three times; if all die, its rows say so and
    the others go on.

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
    run = secrets.token_hex(8)
    work = ray.remote(_convert_remote).options(num_cpus=threads, max_retries=3)
    queue = iter(enumerate(jobs))
    pending: dict[Any, tuple[Any, str, Job]] = {}
    was_told = False
    try:
        while True:
            while len(pending) < _room(workers, threads):
                new = next(queue, None)
                if new is None:
                    break
                (number, job), ledger = new, _ledgers[new[0] % len(_ledgers)]
                key = f"{run}-{number}"
                task = replace(
                    job, source=_absolute(job.source), target=_absolute(job.target), threads=threads
                )
                reference = work.remote(task, key, ledger, l3dali.__version__)
                pending[reference] = ledger, key, job
            if not pending:
                return
            done, _ = ray.wait(list(pending), num_returns=1, timeout=_QUIET_SECONDS)
            is_stuck = not done and _most_cores_of_a_machine() < threads
            if is_stuck and not was_told:  # Ray waits for ever, as machines may be on their way.
                cores = counted(threads, "core")
                say([f"no machine of the cluster has {cores} now: waiting for one"])
            was_told = is_stuck
            for reference in done:
                ledger, key, job = pending.pop(reference)
                rows = _rows_of(reference, job)
                ledger.forget.remote(key)
                left += rows
                yield rows
                left.clear()
    finally:
        left += _stop(pending)


def _room(workers: int, threads: int) -> int:
    """How many tasks Ray may have at a time. It runs as many as the cluster has cores for."""
    cores = _cores()
    tasks = max(1, min(workers, cores) // threads)
    return 2 * tasks if workers >= cores else tasks


class _Ledger:
    """An actor that knows of jobs, by their keys, what they were about to publish and who stops."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Row]] = {}
        self._stopped: set[str] = set()

    def rows(self, key: str) -> list[Row]:
        return self._rows.get(key, [])

    def stop(self, key: str) -> None:
        self._stopped.add(key)

    def stopped(self, key: str) -> bool:
        return key in self._stopped

    def add(self, key: str, row: Row) -> None:
        self._rows.setdefault(key, []).append(row)

    def forget(self, key: str) -> None:
        self._rows.pop(key, None)


def _count_of_ledgers(cores: int) -> int:
    return min(max(1, -(-cores // _CORES_OF_A_LEDGER)), _MOST_LEDGERS)


def _start_ledger() -> Any:
    """Starts it beside this process: a machine that goes away takes no ledger with it."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    # Without a byte of memory, Ray 2.60 starts it anywhere, whatever the strategy says.
    options = {"num_cpus": 0, "memory": 1, "max_restarts": -1, "max_task_retries": -1}
    return ray.remote(_Ledger).options(scheduling_strategy=here, **options).remote()


def _convert_remote(job: Job, key: str, ledger: Any, version: str) -> list[Row]:
    """What a task does, in a worker."""
    import ray

    if l3dali.__version__ != version:
        raise EngineError(f"a worker has l3dali {l3dali.__version__}, and not {version} as here")
    target = open_folder(job.target)
    if isinstance(target, LocalFolder) and not (target.root / LOCK_NAME).exists():
        raise EngineError(
            f"{job.target} is not on all machines of the cluster; name a shared folder or a bucket"
        )
    asked, stopped = -math.inf, False
    rows: list[Row] = []
    # In another thread: to wait in the task's own gives its core away, and Ray starts more workers.
    with ThreadPoolExecutor(1) as other, contextlib.suppress(Stopped):

        def ask(method: Any, *arguments: Any) -> Any:
            for deaths in count():
                try:
                    return other.submit(ray.get, method.remote(*arguments)).result()
                except ray.exceptions.RayActorError:  # It starts anew.
                    if deaths == _MOST_DEATHS:
                        raise
                time.sleep(_ASK_SECONDS)

        def is_stopped() -> bool:
            nonlocal asked, stopped
            if not stopped and time.monotonic() - asked >= _ASK_SECONDS:
                asked, stopped = time.monotonic(), ask(ledger.stopped, key)
            return stopped

        announced = {row.source: row for row in ask(ledger.rows, key)}
        job = replace(job, previous={**job.previous, **announced})
        for row in convert_each(job, is_stopped, lambda row: ask(ledger.add, key, row)):
            rows.append(row)
    return rows


def _rows_of(reference: Any, job: Job) -> list[Row]:
    import ray

    try:
        rows: list[Row] = ray.get(reference)
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError) as error:
        return failed_rows(job, f"Ray: {_first_line(error)}")
    except ray.exceptions.OutOfMemoryError:
        return failed_rows(job, "Ray: its worker ran out of memory")
    except ray.exceptions.RayTaskError as error:
        cause = error.cause if isinstance(error.cause, Exception) else error
        if isinstance(cause, EngineError):
            raise EngineError(str(cause)) from None
        if "No module named 'l3dali" in str(error):
            raise EngineError(
                "a worker of the cluster has no l3dali; install it on all machines"
            ) from None
        return failed_rows(job, f"{type(cause).__name__}: {_first_line(cause)}")
    except ray.exceptions.RayError as error:
        raise EngineError(f"Ray: {_first_line(error)}; run again to go on") from None
    return rows


def _stop(pending: Mapping[Any, tuple[Any, str, Job]]) -> list[Row]:
    """Interrupts tasks, and waits a moment for them to take their unfinished results away.

    Returns:
        The rows of their results that have appeared.
    """
    import ray

    rows: list[Row] = []
    done: list[Any] = []
    with contextlib.suppress(Exception):
        for ledger, key, _ in pending.values():
            ledger.stop.remote(key)
        waiting = list(pending)
        done, _ = ray.wait(waiting, num_returns=len(waiting), timeout=_STOP_SECONDS)
    for reference in done:
        with contextlib.suppress(Exception):
            rows += ray.get(reference)
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
    """Ray would ask for minutes, and then end the process."""
    import ray

    match = re.fullmatch(r"(?:ray://)?\[?([^/]+?)\]?:(\d+)", address)
    if match is None:
        return
    host, port = match[1], int(match[2])
    if host in ("localhost", "127.0.0.1", "::1") and not address.startswith("ray://"):
        host = ray.util.get_node_ip_address()  # as Ray does: other machines have to find it
    try:
        socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"no Ray cluster answers{where}: {reason}") from None


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
