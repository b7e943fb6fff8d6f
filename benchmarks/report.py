"""Writes what benchmarks measure: JSON for machines, Markdown for people."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
CODE = ("encoder", "src")  # what decides bytes and speed


def processor() -> str:
    """The processor's name."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = (line.split(":", 1) for line in cpuinfo.read_text().splitlines() if ":" in line)
        first = {key.strip(): value.strip() for key, value in reversed(list(lines))}
        model = first.get("model name", model)
        if "cpu family" in first:  # virtual machines may hide the rest of the name
            model += f" (family {first['cpu family']}, model {first['model']})"
    return model


def code_commit(code: Sequence[str] = CODE) -> str:
    """The last commit that changed what is measured.

    L3_COMMIT names it where the source is no git clone.
    """

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments, "--", *code],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    try:
        commit = git("log", "-1", "--format=%h")
        changed = git("status", "--porcelain")
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("L3_COMMIT", "unknown: not a git clone")
    return f"{commit}, with changes that are not committed" if changed else commit


def made(code: Sequence[str] = CODE) -> dict[str, str]:
    """What every results file says of its origin."""
    return {
        "commit": code_commit(code),
        "machine": processor(),
        "date": date.today().isoformat(),
    }


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def cells(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> list[list[str]]:
    """Lines of a table.

    Args:
        rows: values by key.
        columns: by head, the format of a cell with those keys, as in "{ratio:.2f}". A number that
            is None gives a dash.
    """

    def cell(form: str, row: Mapping[str, Any]) -> str:
        try:
            return form.format_map(row)
        except TypeError:  # None has no digits
            return "-"

    return [[cell(form, row) for form in columns.values()] for row in rows]


def table(first: str, rows: Mapping[str, Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    """A Markdown table of results by name, whose column has the head `first`."""
    lines = zip(rows, cells(rows.values(), columns), strict=True)
    return markdown_table([first, *columns], [[name, *line] for name, line in lines])


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The same on the terminal, in columns; without rich, which a GPU host may lack."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    print(f"\n{title}")
    for line in (head, *rows) if rows else ():
        cells = [line[0].ljust(widths[0])]
        cells += [text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)]
        print("  ".join(cells).rstrip())


def save_results(
    name: str,
    title: str,
    text: str,
    data: Mapping[str, Any],
    out: Path = RESULTS,
    code: Sequence[str] = CODE,
) -> str:
    """Writes `name`.md and `name`.json, with the code's commit; returns the former."""
    out.mkdir(parents=True, exist_ok=True)
    origin = made(code)
    page = f"# {title}\n\nCode of commit {origin['commit']}.\n{text}"
    (out / f"{name}.md").write_text(page)
    part = out / f"{name}.json.part"
    part.write_text(json.dumps({"made": origin, **data}, indent=1) + "\n")
    part.replace(out / f"{name}.json")  # so that it is whole, whatever happens
    return page
