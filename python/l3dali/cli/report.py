"""What a command did, and how it is told: tables, failures, a JSON summary."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali import __version__
from l3dali.cli.batch import STDOUT, is_stream
from l3dali.cli.files import end_writes, write_file
from l3dali.console import (
    complain,
    count_failures,
    megabytes,
    print_table,
    ratio,
    say,
    speed,
    tell_failures,
    without_password,
)
from l3dali.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from typing import Any

    from l3dali.cli.batch import Found
    from l3dali.console import Failure

EXIT_FAILED = 2
EXIT_SIGNAL = 128  # and the signal's number


@dataclass(frozen=True)
class Done:
    """What the work on one file came to.

    Attributes:
        raw_bytes: the size of its pixels.
        read_bytes: the size of the source.
        written_bytes: the size of the result.
        lossy: the name of the lossy format that the source has, if it has one.
    """

    raw_bytes: int
    read_bytes: int
    written_bytes: int
    lossy: str | None = None


@dataclass
class Report:
    """What a command did.

    Attributes:
        total: files to work on.
        done: what came of those that went well.
        kept: files whose results existed.
        failures: files that did not work out.
        seconds: how long it took.
        palettes_expanded: palette images read as colours, not as the numbers of their entries.
        ended_by: why no further result could be written, if so.
        signal_number: the signal that asked to stop, or 0.
        abandoned: work goes on in other threads that nobody waits for.
    """

    total: int = 0
    done: list[Done] = field(default_factory=list)
    kept: int = 0
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0
    palettes_expanded: int = 0
    ended_by: str | None = None
    signal_number: int = 0
    abandoned: bool = False

    @property
    def raw_bytes(self) -> int:
        return sum(done.raw_bytes for done in self.done)

    @property
    def read_bytes(self) -> int:
        return sum(done.read_bytes for done in self.done)

    @property
    def written_bytes(self) -> int:
        return sum(done.written_bytes for done in self.done)

    def of_lossy_sources(self) -> dict[str, Report]:
        """What was done with the sources of each lossy format."""
        reports: dict[str, Report] = defaultdict(Report)
        for done in self.done:
            if done.lossy is not None:
                reports[done.lossy].done.append(done)
        return dict(reports)


def finish(
    report: Report,
    found: Found,
    options: argparse.Namespace,
    file_bytes: dict[str, int] | None = None,
    remark: Callable[[Report], list[str]] | None = None,
    fields: dict[str, Any] | None = None,
) -> int:
    """Tells what was done, what was passed over and what failed; returns the exit code.

    Args:
        report: what the command did.
        found: what it was to do.
        options: those of the command.
        file_bytes: columns of bytes for a row of totals, that of L3 among them; None for no row,
            and there is none where nothing was done.
        remark: gives lines to be said at the end.
        fields: more of the JSON summary.
    """
    failures = sorted(found.failures + report.failures, key=lambda failure: Path(failure.path))
    code = EXIT_FAILED if failures else 0
    if report.signal_number:
        code = EXIT_SIGNAL + report.signal_number
    if not options.quiet:
        if file_bytes is not None and report.done:
            _print_totals(report, file_bytes, to_stderr=_stdout_is_taken(options))
        _print_notes(report, found)
        if remark:
            say(remark(report))
    tell_failures(failures, has_summary=options.has_summary)
    if report.ended_by or report.signal_number:
        finished = len(report.done) + report.kept
        goes_on = "skip_existing" in options and report.total > 1
        advice = "; --skip-existing goes on from there" if goes_on else ""
        reason = f"stopped: {report.ended_by}" if report.ended_by else "interrupted"
        complain(f"l3: {reason}; {finished} of {report.total} files are done{advice}")
    summary = _fields(report, found) | (fields or {})
    write_summary(options.json_summary, code, failures, summary)
    if report.abandoned:
        _end_process(code)
    return code


def _end_process(code: int) -> None:
    """Ends the process without waiting for the work that has been dropped."""
    end_writes()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _stdout_is_taken(options: argparse.Namespace) -> bool:
    return STDOUT in (getattr(options, "output", None), options.json_summary)


def _print_totals(report: Report, file_bytes: dict[str, int], *, to_stderr: bool) -> None:
    has_source = "source" in file_bytes
    print_table(
        ["files", "raw", *file_bytes, "ratio" if has_source else "ratio to raw", "time", "MB/s"],
        [
            str(len(report.done)),
            megabytes(report.raw_bytes),
            *map(megabytes, file_bytes.values()),
            ratio(file_bytes["L3"], report.read_bytes if has_source else report.raw_bytes),
            f"{report.seconds:.1f} s",
            speed(report.raw_bytes, report.seconds),
        ],
        file=sys.stderr if to_stderr else sys.stdout,
    )


def _print_notes(report: Report, found: Found) -> None:
    notes = {
        "existing results kept": report.kept,
        "other files passed over": found.others.total(),
        "links to folders not followed": found.links,
    }
    if any(notes.values()):
        complain("l3: " + ", ".join(f"{note}: {count}" for note, count in notes.items() if count))


_HEAD_BYTES = 256
_SUMMARY = re.compile(rb'\s*\{\s*"version":\s*"[^"]+",\s*"exit_code":\s*\d')  # as it begins


def refuse_others(path: Path) -> None:
    """Raises UsageError if there is something else than a JSON summary at `path`."""
    if path.is_dir():
        raise UsageError(f"--json-summary {path}: this is a folder")
    if path != STDOUT and path.is_file():
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if head and not _SUMMARY.match(head):
            raise UsageError(f"--json-summary {path}: this file holds something else")


def write_summary(
    path: Path | None, code: int, failures: Sequence[Failure], fields: dict[str, Any]
) -> None:
    """Writes what `--json-summary` asks for: the fields of a command, and what all have.

    Raises:
        UsageError: the file has become something else meanwhile.
    """
    if path is None:
        return
    if not is_stream(path):
        refuse_others(path)
    summary = {
        "version": __version__,
        "exit_code": code,
        **fields,
        "failed": count_failures(failures),
        "failures": [
            {"path": without_password(str(failure.path)), "reason": failure.reason}
            for failure in failures
        ],
    }
    write_file(path, f"{json.dumps(summary, indent=2)}\n".encode())


def json_list(entries: list[str]) -> str:
    """Entries of JSON, one a line; indented, deep lists of files would take a lot."""
    return "[\n" + ",\n".join(entries) + "\n]"


def _fields(report: Report, found: Found) -> dict[str, Any]:
    return {
        "files": report.total,
        "done": len(report.done),
        "kept": report.kept,
        "not_begun": report.total - len(report.done) - report.kept - len(report.failures),
        "passed_over": found.others.total(),
        "links_not_followed": found.links,
        "raw_bytes": report.raw_bytes,
        "read_bytes": report.read_bytes,
        "written_bytes": report.written_bytes,
        "seconds": round(report.seconds, 3),
        "palettes_expanded": report.palettes_expanded,
        "stopped": report.ended_by,
        "interrupted": report.signal_number != 0,
        "lossy_sources": {
            name: {
                "files": len(part.done),
                "read_bytes": part.read_bytes,
                "written_bytes": part.written_bytes,
            }
            for name, part in report.of_lossy_sources().items()
        },
    }
