"""The report of a command: its table, remarks, failures, JSON summary and exit code."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali import __version__
from l3dali.cli.inputs import is_image_name
from l3dali.cli.outputs import STDOUT, is_stream, write_file
from l3dali.console import (
    count_failures,
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
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from l3dali.cli.inputs import Found
    from l3dali.console import Failure

EXIT_FAILED = 2
SIGNALLED = 128  # plus the number of the signal


@dataclass(frozen=True)
class Done:
    """The result of the work on one file.

    Attributes:
        raw_bytes: size of its pixels.
        read_bytes: size of the source.
        written_bytes: size of the result.
        lossy: the name of the source's format if it is lossy.
    """

    raw_bytes: int
    read_bytes: int
    written_bytes: int = 0
    lossy: str | None = None


@dataclass
class Report:
    """What a command did.

    Attributes:
        total: files to work on.
        done: those that went well.
        kept: files whose results existed.
        failures: files that failed.
        seconds: how long it took.
        palettes_expanded: palette images read as colours, not as the numbers of their entries.
        ended_by: why no further result could be written, if so.
        signal_number: the signal that interrupted it, or 0.
    """

    total: int = 0
    done: list[Done] = field(default_factory=list)
    kept: int = 0
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0
    palettes_expanded: int = 0
    ended_by: str | None = None
    signal_number: int = 0

    @property
    def raw_bytes(self) -> int:
        return sum(done.raw_bytes for done in self.done)

    @property
    def read_bytes(self) -> int:
        return sum(done.read_bytes for done in self.done)

    @property
    def written_bytes(self) -> int:
        return sum(done.written_bytes for done in self.done)

    def lossy_sources(self) -> dict[str, dict[str, int]]:
        """Files, bytes read and bytes written, by lossy source format."""
        sums: dict[str, Counter[str]] = defaultdict(Counter)
        for done in self.done:
            if done.lossy is not None:
                sizes = {"read_bytes": done.read_bytes, "written_bytes": done.written_bytes}
                sums[done.lossy].update(files=1, **sizes)
        return {name: dict(part) for name, part in sums.items()}


def growth_lines(formats: Iterable[tuple[str, int, int, int]]) -> list[str]:
    """A line for each format that grew: name, number of images, bytes before and after."""
    return [
        f"{counted(count, f'{name} image')} grew from {megabytes(before)} to {megabytes(after)}, "
        f"ratio {ratio(after, before)}"
        for name, count, before, after in sorted(formats)
        if after > before
    ]


def finish(
    report: Report,
    found: Found,
    options: argparse.Namespace,
    file_bytes: dict[str, int] | None = None,
    remark: Callable[[Report], list[str]] | None = None,
    fields: dict[str, Any] | None = None,
) -> int:
    """Prints what was done, skipped and failed; returns the exit code.

    Args:
        report: what the command did.
        found: its input.
        options: those of the command.
        file_bytes: columns of bytes for a row of totals, that of L3 among them; None for no row.
        remark: returns lines for the end.
        fields: more fields of the JSON summary.
    """
    if not options.quiet and file_bytes is not None and report.done:
        takes_data = STDOUT in (getattr(options, "output", None), options.json_summary)
        _print_totals(report, file_bytes, to_stderr=takes_data)
    notes = {
        "existing results kept": report.kept,
        "other files skipped": found.others.total(),
        "links to folders not followed": found.links,
    }
    lines = [", ".join(f"{note}: {count}" for note, count in notes.items() if count)]
    last = ""
    if report.ended_by or report.signal_number:
        finished = len(report.done) + report.kept
        goes_on = "skip_existing" in options and report.total > 1
        advice = "; --skip-existing continues from there" if goes_on else ""
        reason = f"stopped: {report.ended_by}" if report.ended_by else "interrupted"
        last = f"{reason}; {finished} of {report.total} files are done{advice}"
    code = SIGNALLED + report.signal_number if report.signal_number else 0
    failures = sorted(found.failures + report.failures, key=lambda failure: Path(failure.path))
    lines = [*filter(None, lines), *(remark(report) if remark else [])]
    return conclude(options, failures, lines, _fields(report, found) | (fields or {}), last, code)


def conclude(
    options: argparse.Namespace,
    failures: Sequence[Failure],
    lines: Sequence[str],
    fields: dict[str, Any],
    last: str = "",
    code: int = 0,
) -> int:
    """Prints remarks and failures, writes the JSON summary; returns the exit code.

    Args:
        options: those of the command.
        failures: in their order.
        lines: remarks.
        fields: of the JSON summary.
        last: a line for the end.
        code: the exit code if it does not depend on failures.
    """
    code = code or (EXIT_FAILED if failures else 0)
    if not options.quiet:
        say(lines)
    tell_failures(failures, has_summary=options.has_summary)
    say([last] if last else [])
    write_summary(options.json_summary, code, failures, fields)
    return code


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


_HEAD_BYTES = 256
_SUMMARY = re.compile(rb'\s*\{\s*"version":\s*"[^"]+",\s*"exit_code":\s*\d')  # as it begins


def check_summary(path: Path | None) -> None:
    """Raises UsageError if `--json-summary` would replace anything but an earlier summary."""
    if path is None or is_stream(path):
        return
    if path.is_dir() or is_image_name(path.name):
        what = "a folder" if path.is_dir() else "the name of an image"
        raise UsageError(f"--json-summary {path}: this is {what}")
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if head and not _SUMMARY.match(head):
            raise UsageError(f"--json-summary {path}: this file is not a summary; name another")


def write_summary(
    path: Path | None, code: int, failures: Sequence[Failure], fields: dict[str, Any]
) -> None:
    """Writes the file of `--json-summary`: fields of the command, and those of all commands.

    Raises:
        UsageError: the file has become something else meanwhile.
    """
    if path is None:
        return
    check_summary(path)
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
    """Entries of JSON, one a line: indented, lists of many files would be long."""
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
        "lossy_sources": report.lossy_sources(),
    }
