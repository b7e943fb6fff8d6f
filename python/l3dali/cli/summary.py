"""The report of a command: its table, remarks, failures, JSON summary and exit code."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali import __version__
from l3dali.cli.outputs import STDOUT, is_stream, write_file
from l3dali.console import (
    counted,
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
    from collections.abc import Iterable, Sequence
    from typing import Any

    from l3dali.cli.inputs import Found
    from l3dali.console import Failure
    from l3dali.datasets.convert.sources import Places

EXIT_FAILED = 2
SIGNALLED = 128  # plus the number of the signal


@dataclass(frozen=True)
class Done:
    """The result of the work on one file."""

    raw_bytes: int  # size of its pixels
    read_bytes: int  # size of the source
    written_bytes: int = 0  # size of the result
    is_lossy: bool = False  # whether the source has a lossy format
    expanded: bool = False  # its palette was replaced by colours
    remarks: tuple[str, ...] = ()  # what is left out beside the pixels


@dataclass
class Report:
    """What a command did."""

    total: int = 0  # files to work on
    done: list[Done] = field(default_factory=list)  # those that went well
    kept: int = 0  # files whose results existed
    failures: list[Failure] = field(default_factory=list)  # files that failed
    seconds: float = 0.0  # how long it took
    ended_by: str | None = None  # why no further result could be written, if so
    signal_number: int = 0  # the signal that interrupted it, or 0

    def sum(self, name: str) -> int:
        """The sum of an attribute over `done`."""
        return sum(getattr(done, name) for done in self.done)


def finish(
    report: Report,
    found: Found | Places,
    options: argparse.Namespace,
    file_bytes: dict[str, int] | None = None,
    remarks: Sequence[str] = (),
    fields: dict[str, Any] | None = None,
) -> int:
    """Prints totals, remarks and failures; returns the exit code.

    Args:
        report: of the command.
        found: its input.
        options: of the command.
        file_bytes: columns of bytes for a row of totals, with one of L3; None for no row.
        remarks: further lines.
        fields: further fields of the JSON summary.
    """
    if not options.quiet and file_bytes is not None and report.done:
        takes_data = STDOUT in (getattr(options, "output", None), options.json_summary)
        _print_totals(report, file_bytes, to_stderr=takes_data)
    left_out = Counter(text for done in report.done for text in done.remarks)
    lines = [f"existing results kept: {report.kept}"] if report.kept else []
    lines += [f"{text}: {counted(n, 'image')}" for text, n in sorted(left_out.items())]
    lines += remarks
    last = ""
    if report.ended_by or report.signal_number:
        finished = len(report.done) + report.kept
        goes_on = "skip_existing" in options and report.total > 1
        advice = "; --skip-existing continues from there" if goes_on else ""
        reason = f"stopped: {report.ended_by}" if report.ended_by else "interrupted"
        last = f"{reason}; {finished} of {report.total} files are done{advice}"
    code = SIGNALLED + report.signal_number if report.signal_number else 0
    failures = sorted(found.failures + report.failures, key=lambda failure: Path(failure.path))
    return conclude(options, failures, lines, _fields(report) | (fields or {}), last, code)


def conclude(
    options: argparse.Namespace,
    failures: Sequence[Failure],
    lines: Iterable[str],
    fields: dict[str, Any],
    last: str = "",
    code: int = 0,
) -> int:
    """Prints remarks, failures and the `last` line, and writes the JSON summary.

    Returns:
        `code` if it is not 0, else the exit code for the failures.
    """
    code = code or (EXIT_FAILED if failures else 0)
    say([] if options.quiet else filter(None, lines))
    tell_failures(failures, has_summary=options.has_summary)
    say([last] if last else [])
    write_summary(options.json_summary, code, failures, fields)
    return code


def _print_totals(report: Report, file_bytes: dict[str, int], *, to_stderr: bool) -> None:
    raw_bytes = report.sum("raw_bytes")
    before = file_bytes.get("source", raw_bytes)
    cells = {
        "files": str(len(report.done)),
        "raw": megabytes(raw_bytes),
        **{name: megabytes(size) for name, size in file_bytes.items()},
        "ratio" if "source" in file_bytes else "ratio to raw": ratio(file_bytes["L3"], before),
        "time": f"{report.seconds:.1f} s",
        "MB/s": speed(raw_bytes, report.seconds),
    }
    print_table([*cells], [*cells.values()], file=sys.stderr if to_stderr else sys.stdout)


_SUMMARY = re.compile(rb'\s*\{\s*"version":\s*"[^"]+",\s*"exit_code":\s*\d')  # as it begins


def check_summary(path: Path | None) -> None:
    """Raises UsageError if `--json-summary` would replace a file that is not a summary."""
    if path is None or is_stream(path) or not path.exists():
        return
    if path.is_dir() or not _SUMMARY.match(path.read_bytes()):
        raise UsageError(f"--json-summary {path}: the file is not a summary; name another file")


def write_summary(
    path: Path | None, code: int, failures: Sequence[Failure], fields: dict[str, Any]
) -> None:
    """Writes the file of `--json-summary`: fields of the command and common fields."""
    if path is None:
        return
    check_summary(path)
    summary = {
        "version": __version__,
        "exit_code": code,
        **fields,
        "failed": len(failures),
        "failures": [
            {"path": without_password(str(failure.path)), "reason": failure.reason}
            for failure in failures
        ],
    }
    write_file(path, f"{json.dumps(summary, indent=2)}\n".encode())


def _fields(report: Report) -> dict[str, Any]:
    return {
        "files": report.total,
        "done": len(report.done),
        "kept": report.kept,
        "not_begun": report.total - len(report.done) - report.kept - len(report.failures),
        "raw_bytes": report.sum("raw_bytes"),
        "read_bytes": report.sum("read_bytes"),
        "written_bytes": report.sum("written_bytes"),
        "seconds": round(report.seconds, 3),
        "palettes_expanded": report.sum("expanded"),
        "stopped": report.ended_by,
        "interrupted": report.signal_number != 0,
    }
