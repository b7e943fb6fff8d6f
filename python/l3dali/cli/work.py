"""What commands share: finding files, working on them, and telling what became of them."""

from __future__ import annotations

import argparse
import stat
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from l3dali import codec
from l3dali.batch import Failure, Found, UsageError, failure_of, find_files, plan_targets, run_all
from l3dali.console import complain, megabytes, print_table, progress, ratio, speed
from l3dali.image_io import READ_SUFFIXES, WRITERS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

L3_SUFFIX = ".l3"
EXIT_FAILED = 2

_KNOWN_SUFFIXES = READ_SUFFIXES | WRITERS.keys() | {L3_SUFFIX}


@dataclass(frozen=True)
class Done:
    """What the work on one file came to."""

    raw_bytes: int
    read_bytes: int
    written_bytes: int


@dataclass
class Report:
    """What a command did."""

    done: list[Done] = field(default_factory=list)
    kept: int = 0  # existing results
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def raw_bytes(self) -> int:
        return sum(done.raw_bytes for done in self.done)

    @property
    def read_bytes(self) -> int:
        return sum(done.read_bytes for done in self.done)

    @property
    def written_bytes(self) -> int:
        return sum(done.written_bytes for done in self.done)


def find_inputs(paths: Iterable[Path], suffixes: Collection[str]) -> Found:
    """The files that PATHs name; a UsageError if there are none."""
    found = find_files(paths, suffixes)
    if not found.files and not found.failures:
        raise UsageError(f"no {' '.join(sorted(suffixes))} files in the folders named")
    return found


def plan_outputs(found: Found, output: Path | None, suffix: str) -> dict[Path, Path]:
    """The target of each file; a UsageError if `output` looks like another kind of file."""
    named = "" if output is None else output.suffix.lower()
    if output is not None and named in _KNOWN_SUFFIXES - {suffix} and not output.exists():
        raise UsageError(f"{output} is to hold {suffix} files; make it first if it is a folder")
    return plan_targets(found, output, suffix)


def threads_per_file(jobs: int, files: int) -> int:
    """The threads that the work on each of so many files may use."""
    return max(1, jobs // max(1, files))


def run(paths: Sequence[Path], work: Callable[[Path], Done | None], jobs: int) -> Report:
    """Works on all files; `work` returns None to say that the result existed."""
    report = Report()
    start = time.perf_counter()
    with closing(run_all(paths, work, jobs)) as results:
        for path, result in progress(results, len(paths)):
            if isinstance(result, Exception):
                report.failures.append(failure_of(path, result))
            elif result is None:
                report.kept += 1
            else:
                report.done.append(result)
    report.seconds = time.perf_counter() - start
    return report


def print_summary(report: Report, file_bytes: dict[str, int]) -> None:
    """Prints the row of totals; `file_bytes` holds columns of bytes, that of L3 among them."""
    print_table(
        ["files", "raw", *file_bytes, "ratio", "time", "MB/s"],
        [
            str(len(report.done)),
            megabytes(report.raw_bytes),
            *map(megabytes, file_bytes.values()),
            ratio(report.raw_bytes, file_bytes["L3"]),
            f"{report.seconds:.1f} s",
            speed(report.raw_bytes, report.seconds),
        ],
    )


def finish(report: Report, found: Found) -> int:
    """Tells what was passed over and what failed; returns the exit code."""
    notes = {
        "existing results kept": report.kept,
        "other files passed over": found.others,
        "links to folders not followed": found.links,
    }
    if any(notes.values()):
        complain("l3: " + ", ".join(f"{note}: {count}" for note, count in notes.items() if count))
    failures = found.failures + report.failures
    if not failures:
        return 0
    complain(f"l3: {len(failures)} failed")
    for failure in sorted(failures, key=lambda failure: failure.path):
        complain(f"{failure.path}: {failure.reason}")
    return EXIT_FAILED


def keeps(target: Path, options: argparse.Namespace) -> bool:
    """Whether an existing target is to stay; raises if nothing was said about it."""
    if options.overwrite or not target.exists():
        return False
    if not options.skip_existing:
        raise FileExistsError(f"{target} exists; see --overwrite and --skip-existing")
    return True


def read_file(path: Path) -> bytes:
    """The bytes of a regular file."""
    if not stat.S_ISREG(path.stat().st_mode):  # A pipe would never end.
        raise OSError("not a file")
    return path.read_bytes()


def write_file(path: Path, data: bytes) -> None:
    """Writes a file, which appears whole or not at all, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    codec.write_atomically(path, data)


def compare(decoded: codec.Image, source: codec.Image) -> None:
    """Raises ValueError unless the two images are the same."""
    if decoded.dtype != source.dtype or not np.array_equal(decoded, source):
        raise ValueError("the pixels differ from the source's")
