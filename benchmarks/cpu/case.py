"""What cases of `python -m benchmarks.cpu` share: their results, and turns that are fair."""

from __future__ import annotations

import ctypes
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from benchmarks.report import CODE
from rich.progress import track

Seconds = npt.NDArray[np.float64]
Returned = TypeVar("Returned")
RESAMPLES = 2000


@dataclass(frozen=True)
class Result:
    """What a case found.

    Attributes:
        text: of its page, in Markdown, below the case's docstring, the machine and the options.
        data: the same for programs.
        draw: draws a plot into the file of that path.
        code: folders whose last commit is named.
    """

    text: str
    data: Mapping[str, Any]
    draw: Callable[[Path], None] | None = None
    code: Sequence[str] = CODE


def in_turns(
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.process_time,
    once_above: float = float("inf"),
    what: str = "",
) -> dict[str, Seconds]:
    """Seconds of each call in each round: what else the machine does disturbs all alike.

    Args:
        calls: by name.
        rounds: of all calls.
        clock: CPU time of the process, or another.
        once_above: a call that takes more seconds is not repeated.
        what: named beside a progress bar; none without.
    """
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for _ in track(range(rounds), what) if what else range(rounds):
        for name, call in calls.items():
            if not spent[name] or spent[name][-1] <= once_above:
                begin = clock()
                call()
                spent[name].append(clock() - begin)
    return {name: np.array(seconds) for name, seconds in spent.items()}


def median_ratio(values: Any, others: Any) -> float:
    """The median of the ratios within a round."""
    return float(np.median(np.asarray(values) / np.asarray(others)))


def interval(values: Any, others: Any = 1.0) -> tuple[float, float]:
    """Of the median, or of the median ratio within a round: 95 %, by bootstrap."""
    ratios = np.asarray(values) / np.asarray(others)
    drawn = np.random.default_rng(0).choice(ratios, (RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return float(low), float(high)


def apart(function: Callable[..., Returned], *arguments: object) -> Returned:
    """What the function gives in a new process that does nothing else."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def keep_memory() -> None:
    """Tells glibc to keep what is freed, large blocks too, and to take more than it needs."""
    mallopt = ctypes.CDLL(None).mallopt
    trim_threshold, top_pad, mmap_max = -1, -2, -4
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(top_pad, 64 << 20)
    mallopt(mmap_max, 0)
