"""The end of a command: its table, remarks, failures, JSON summary and exit code."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

from l3dali import __version__
from l3dali.cli.outputs import STDOUT, is_stream, write_file
from l3dali.console import counted, print_table, say, tell_failures, without_password
from l3dali.datasets.convert.work import HEADERS
from l3dali.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from typing import Any, TextIO

    from l3dali.console import Failure
    from l3dali.datasets.convert.work import Summary

EXIT_FAILED = 2
SIGNALLED = 128  # plus the number of the signal


def print_summary(
    arguments: argparse.Namespace, summary: Summary, *, has_work: bool = True
) -> None:
    """Prints the table of a run and its line; on standard error where data goes to the output."""
    takes_data = STDOUT in (getattr(arguments, "output", None), arguments.json_summary)
    output = sys.stderr if takes_data else sys.stdout
    if has_work:
        print_table(HEADERS, *summary.table(), file=output)
    print(summary if has_work else f"nothing to do: {summary}", file=output)


def write_document(
    target: Path, document: str, headers: Sequence[str], rows: list[list[str]], lines: Iterable[str]
) -> TextIO:
    """Writes a JSON document, and prints its table and lines to the file that is returned."""
    write_file(target, f"{document}\n".encode())
    output = sys.stderr if target == STDOUT else sys.stdout
    print_table(headers, *rows, file=output)
    print(*lines, sep="\n", file=output)
    return output


def remarks_of(summary: Summary) -> list[str]:
    """What images of a run have lost."""
    lines = [f"{text}: {counted(n, 'image')}" for text, n in sorted(summary.remarks.items())]
    if count := summary.total.expanded:
        advice = "--palette index keeps the numbers of their entries"
        lines.append(f"palette images that became colours: {count}; {advice}")
    return lines


def conclude(
    options: argparse.Namespace,
    failures: Sequence[Failure],
    lines: Iterable[str],
    fields: dict[str, Any],
) -> int:
    """Prints remarks and failures, and writes the JSON summary; returns the exit code."""
    code, path = EXIT_FAILED if failures else 0, getattr(options, "json_summary", None)
    say([] if getattr(options, "quiet", False) else lines)
    tell_failures(failures, has_summary=hasattr(options, "json_summary"))
    if path is not None:
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
    return code


_SUMMARY = re.compile(rb'\s*\{\s*"version":\s*"[^"]+",\s*"exit_code":\s*\d')  # as it begins


def check_summary(path: Path | None) -> None:
    """Raises UsageError if `--json-summary` would replace a file that is not a summary."""
    if path is None or is_stream(path) or not path.exists():
        return
    if path.is_dir() or not _SUMMARY.match(path.read_bytes()):
        raise UsageError(f"--json-summary {path}: the file is not a summary; name another file")
