"""The loop over files that commands share: threads, failures and interrupts."""

from __future__ import annotations

import os
import signal
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from l3dali.cli.inputs import find_inputs, read_file
from l3dali.cli.outputs import OutputError, keeps, plan_outputs, write_result
from l3dali.cli.report import Done, Report, check_summary
from l3dali.console import Failure, progress, reason_of
from l3dali.images.formats import lossy_format

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection, Iterator, Sequence
    from types import FrameType

    from l3dali.cli.inputs import Found

_TICK_SECONDS = 0.2
_END_SECONDS = 1.9  # before a second signal ends the process

Named = TypeVar("Named", Path, str)


def make_files(
    options: argparse.Namespace,
    suffixes: Collection[str],
    suffix: str,
    make: Callable[[Path, bytes, int], tuple[int, bytes]],
) -> tuple[Report, Found]:
    """Makes a file with `suffix` of each input; `suffixes` are those of inputs in folders.

    `make` gets the path of an input, its bytes and a number of threads; it returns the size of the
    pixels and the result.
    """
    check_summary(options.json_summary)
    found = find_inputs(options, suffixes)
    targets = plan_outputs(found, options, suffix)
    threads = threads_per_file(options.jobs, len(targets))

    def work(path: Path) -> Done | None:
        if keeps(targets[path], options):
            return None
        data = read_file(path, found.pipes)
        raw_bytes, made = make(path, data, threads)
        like = path if options.preserve and path not in found.pipes else None
        if not write_result(targets[path], made, options, like):
            return None
        return Done(raw_bytes, len(data), len(made), lossy_format(data) is not None)

    return run(list(targets), work, options), found


def run(
    paths: Sequence[Named],
    work: Callable[[Named], Done | None],
    options: argparse.Namespace,
) -> Report:
    """Calls `work` with each file in `options.jobs` threads; it returns None if a result existed.

    Stops if nothing can be written, or at a signal; running threads continue until the process
    ends.
    """
    from l3dali.datasets.convert.reader import is_shard_name  # imports libraries of data sets

    report = Report(total=len(paths))
    start = time.perf_counter()

    def count(path: Named, result: Done | Exception | None) -> None:
        if "source" not in options and isinstance(result, ValueError) and is_shard_name(str(path)):
            result = ValueError("a shard: use l3 convert (to decode: --to png) or l3 verify")
        if isinstance(result, BrokenPipeError):
            raise result
        if isinstance(result, Exception):
            report.failures.append(failure_of(path, result))
            if isinstance(result, OutputError):
                report.ended_by = report.failures[-1].reason
        elif result is None:
            report.kept += 1
        else:
            report.done.append(result)

    pool = ThreadPoolExecutor(options.jobs)
    pending: set[Future[tuple[Named, Done | Exception | None]]] = set()
    try:
        results = _results(paths, work, pool, pending, options.jobs, report)
        for path, result in progress(results, len(paths), quiet=options.quiet):
            count(path, result)
    except KeyboardInterrupt as error:
        report.signal_number = signal_of(error)
        pool.shutdown(wait=False, cancel_futures=True)
        for future in pending:
            if future.done() and not future.cancelled():
                count(*future.result())
    finally:
        pool.shutdown(wait=not report.signal_number, cancel_futures=True)
    report.seconds = time.perf_counter() - start
    return report


def _results(
    paths: Sequence[Named],
    work: Callable[[Named], Done | None],
    pool: ThreadPoolExecutor,
    pending: set[Future[tuple[Named, Done | Exception | None]]],
    threads: int,
    report: Report,
) -> Iterator[tuple[Named, Done | Exception | None] | None]:
    """Yields each path with the result of `work` or its error; None after a pause.

    Once `report.ended_by` is set, only running work is finished. `pending` has work that was not
    yielded yet.
    """

    def attempt(path: Named) -> tuple[Named, Done | Exception | None]:
        try:
            return path, work(path)
        except Exception as error:  # It must not end the other files.
            error.__traceback__ = error.__cause__ = error.__context__ = None  # to free pixels
            return path, error

    queue = iter(paths)
    while True:
        if report.ended_by:
            pending -= {future for future in pending if future.cancel()}
        else:
            free = 2 * threads - len(pending)
            pending |= {pool.submit(attempt, path) for path in islice(queue, free)}
        if not pending:
            return
        done, _ = wait(pending, timeout=_TICK_SECONDS, return_when=FIRST_COMPLETED)
        for future in done:
            pending.remove(future)
            yield future.result()
        if not done:
            yield None


def threads_per_file(jobs: int, files: int) -> int:
    """The threads for each of so many files."""
    return max(1, jobs // max(1, files))


def failure_of(path: Path | str, error: Exception) -> Failure:
    """The failure of a file, with the reason for people."""
    reason = "not enough memory" if isinstance(error, MemoryError) else reason_of(error)
    kind = getattr(error, "strerror", None) or ""
    return Failure(path, reason.removesuffix(f": {path}"), kind)


_interrupted_at: float | None = None


def interrupt_once() -> None:
    """Makes Ctrl-C and SIGTERM raise KeyboardInterrupt with the signal's number, once.

    Further signals are ignored for some seconds, so that the command can clean up; later ones end
    the process. A handler of Ctrl-C that the caller set stays.
    """
    global _interrupted_at
    _interrupted_at = None
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    global _interrupted_at
    if _interrupted_at is None:
        _interrupted_at = time.monotonic()
        raise KeyboardInterrupt(number)
    if time.monotonic() - _interrupted_at > _END_SECONDS:
        with suppress(OSError):
            os.write(sys.stderr.fileno(), b"l3: interrupted again during cleanup\n")
        os._exit(128 + number)


def signal_of(error: KeyboardInterrupt) -> int:
    """The number of the signal that raised it."""
    # Python's codecs, as for names in zip archives, raise another error from the first.
    for each in (error, error.__cause__):
        if each is not None and each.args and isinstance(each.args[0], int):
            return each.args[0]
    return signal.SIGINT
