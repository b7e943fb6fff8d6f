"""The loop over files that commands share: threads, failures and interrupts."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from l3dali.cli.inputs import L3_SUFFIX, find_inputs, read_file
from l3dali.cli.outputs import OutputError, find_targets, keeps, write_result
from l3dali.cli.summary import Done, Report, check_summary
from l3dali.console import Failure, progress, reason_of
from l3dali.datasets.convert.conversion import convert_image
from l3dali.datasets.convert.images import Blob
from l3dali.datasets.convert.pool import convert_alone
from l3dali.datasets.convert.reader import is_shard_name
from l3dali.images.formats import lossy_format
from l3dali.threads import Workers

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from types import FrameType

    from l3dali.cli.inputs import Found
    from l3dali.datasets.convert.images import Options

_END_SECONDS = 1.9  # before a second signal ends the process

Named = TypeVar("Named", Path, str)


def make_files(
    options: argparse.Namespace, how: Options, suffix_of: Callable[[Path], str] | None = None
) -> tuple[Report, Found]:
    """Converts each input as `how` says. Files of other formats are read in children.

    `suffix_of` gives the suffix of the result of each file; None: that of `how`.
    """
    check_summary(options.json_summary)
    suffix = f".{how.to}"
    goal = "" if how.to == "l3" else f" --to {how.to}"
    found = find_inputs(options, f"l3 convert {{}} {options.output or 'OUT'}{goal}")
    targets = find_targets(found, options, suffix, suffix_of)
    threads = threads_per_file(options.jobs, len(targets))

    def work(path: Path) -> Done | None:
        if keeps(targets[path], options):
            return None
        data = read_file(path, found.pipes)
        blob = Blob(path.name, data, str(path))
        if suffix == L3_SUFFIX:
            outcome = convert_alone(blob, how, threads, lambda: None, is_sure=True)
        else:
            outcome = convert_image(blob, how, threads, is_sure=True)
        assert outcome is not None
        if outcome.data is None:
            raise ValueError(outcome.failure)
        like = path if options.preserve and path not in found.pipes else None
        if not write_result(targets[path], outcome.data, options, like):
            return None
        is_lossy = lossy_format(data) is not None
        return Done(
            outcome.raw_bytes,
            len(data),
            len(outcome.data),
            is_lossy,
            outcome.expanded,
            outcome.remarks,
        )

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
    report = Report(total=len(paths))
    start = time.perf_counter()

    def attempt(path: Named, add: Callable[[tuple[Named, Done | Exception | None]], None]) -> None:
        try:
            add((path, work(path)))
        except Exception as error:  # It must not end the other files.
            error.__traceback__ = error.__cause__ = error.__context__ = None  # to free pixels
            add((path, error))

    workers = Workers(attempt, paths, options.jobs)

    def count(path: Named, result: Done | Exception | None) -> None:
        if (
            "skip_existing" in options
            and isinstance(result, ValueError)
            and is_shard_name(str(path))
        ):
            result = ValueError("a shard: use l3 convert (to decode: --to png) or l3 verify")
        if isinstance(result, BrokenPipeError):
            raise result
        if isinstance(result, Exception):
            report.failures.append(failure_of(path, result))
            if isinstance(result, OutputError):
                report.ended_by = report.failures[-1].reason
                workers.stop()
        elif result is None:
            report.kept += 1
        else:
            report.done.append(result)

    try:
        for path, result in progress(workers, len(paths), quiet=options.quiet):
            count(path, result)
    except KeyboardInterrupt as error:
        report.signal_number = signal_of(error)
        for path, result in workers.finished():
            count(path, result)
    finally:
        workers.stop()
    report.seconds = time.perf_counter() - start
    return report


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
