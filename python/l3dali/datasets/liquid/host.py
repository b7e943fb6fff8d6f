"""Measures a machine: its cores, and the rate of the storage of a data set."""

from __future__ import annotations

import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from l3dali.datasets.convert.storage import LocalFolder
from l3dali.datasets.liquid.fit import fit_linear
from l3dali.datasets.liquid.profile import Linear

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from l3dali.datasets.convert.storage import Folder, Stored

_FILES_AT_ONCE = 4
_CHUNK_BYTES = 2**20
_READ_BYTES = 2**29
_FEWEST_BYTES = 2**24  # for a reliable rate
_ASKED_FILES = 32
_MOST_FILES = 5000
_SPREAD = 4  # of file sizes, from which the cost of a byte can be fitted
_BYTE_SECONDS = 4e-10  # else; of ext4 on a virtual disk, AMD EPYC, 2026


def usable_cores() -> float:
    """Cores that this process may use, by its affinity and the quota of its control group."""
    cores = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(cores, int(quota) / int(period))
    except (OSError, ValueError):  # no quota: "max"
        return cores


def busy_seconds() -> float:
    """Busy seconds of the cores of this process so far, for all processes."""
    names = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *counts = line.split()
        if name in names:
            user, nice, system, _, _, irq, softirq, steal = map(int, counts[:8])
            ticks += user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Reading:
    """The cost of reading files."""

    rate: float  # bytes a second, several files at a time
    cpu_seconds: Linear  # of a file, from its size
    notes: list[str]  # why the rate may be wrong, for people


def measure_reading(
    files: Sequence[tuple[Folder, Stored]],
    seconds: float,
    rng: np.random.Generator,
    *,
    cold: bool = True,
) -> Reading:
    """Reads some files for about `seconds`; `cold`: the page cache is asked to drop them first.

    Raises:
        OSError: no file can be read.
    """
    chosen: list[tuple[Folder, Stored]] = []
    size = 0
    for i in rng.permutation(len(files))[:_MOST_FILES]:
        if size >= _READ_BYTES:
            break
        if files[i][1].size:
            chosen.append(files[i])
            size += min(files[i][1].size, _READ_BYTES // _FILES_AT_ONCE)
    warm: float | None = 0.0
    if cold:
        chosen, warm = _drop_from_cache(chosen, time.monotonic() + seconds / 2)
    end = time.monotonic() + seconds / 2
    read: list[tuple[float, float]] = []
    errors: list[OSError] = []

    def take_turn(each: tuple[Folder, Stored]) -> None:
        if time.monotonic() > end and read:
            return
        try:
            read.append(_read(*each, end))
        except OSError as error:
            errors.append(error)

    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        begin = time.perf_counter()
        list(pool.map(take_turn, chosen))
        wall = time.perf_counter() - begin
    if not read:
        raise errors[0] if errors else OSError("no file of the data set can be read")
    sizes, costs = zip(*read, strict=True)
    notes = []
    if warm is None:
        notes.append("unknown whether files were in memory when they were read")
    elif warm:
        notes.append(
            f"{warm:.0%} of the files stayed in memory though the system was asked to drop them: "
            "the storage is slower than measured; --disk gives its rate"
        )
    if sum(sizes) < _FEWEST_BYTES:
        notes.append(
            f"the rate of the storage was measured on {sum(sizes) / 1e6:.1f} MB only, and is not "
            "reliable: set it by --disk"
        )
    cost = fit_linear(sizes, [0.0] * len(sizes), costs)
    if max(sizes) <= _SPREAD * min(sizes):  # other formats have other sizes
        base = max(0.0, sum(costs) - _BYTE_SECONDS * sum(sizes)) / len(sizes)
        cost = Linear(base=base, per_byte=_BYTE_SECONDS)
    return Reading(sum(sizes) / wall, cost, notes)


def _read(folder: Folder, file: Stored, end: float) -> tuple[float, float]:
    """Reads a file until `end`; returns bytes, and CPU seconds of the thread."""
    buffer = bytearray(min(_CHUNK_BYTES, max(file.size, 1)))
    size = 0
    begin = time.thread_time()
    with folder.open(file.name) as opened:
        raw: Any = getattr(opened, "raw", opened)  # without a copy in between
        while count := raw.readinto(buffer):
            size += count
            if size >= _READ_BYTES // _FILES_AT_ONCE or time.monotonic() > end:
                break
    return size, time.thread_time() - begin


def _drop_from_cache(
    files: Sequence[tuple[Folder, Stored]], end: float
) -> tuple[list[tuple[Folder, Stored]], float | None]:
    """Drops local files from the page cache until `end`, at least one.

    Returns:
        The dropped and the remote files; the share that stayed in the cache, None if unknown.
    """
    done: list[tuple[Folder, Stored]] = []
    known: list[bool] = []
    for folder, stored in files:
        if done and time.monotonic() > end:
            break
        done.append((folder, stored))
        if isinstance(folder, LocalFolder):
            with contextlib.suppress(OSError), (folder.root / stored.name).open("rb") as file:
                os.fsync(file.fileno())  # Only data on the disk can be dropped.
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                if len(known) < _ASKED_FILES:
                    known.append(_is_cached(file.fileno(), stored.size // 2))
    return done, sum(known) / len(known) if known else None


def _is_cached(descriptor: int, offset: int) -> bool:
    """Whether a byte of a file is in the page cache; OSError if the file system cannot tell."""
    try:
        os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    return True
