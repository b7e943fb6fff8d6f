"""Writes what benchmarks measure: JSON for machines, Markdown for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The same on the terminal; in a log, wide enough not to break lines."""
    table = Table(title=title, title_justify="left")
    for i, name in enumerate(head):
        table.add_column(name, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def write_results(name: str, title: str, text: str, data: Any, out: Path = RESULTS) -> None:
    """Writes `name`.md and `name`.json, and prints the former."""
    out.mkdir(parents=True, exist_ok=True)
    page = f"# {title}\n\n{text}"
    (out / f"{name}.md").write_text(page)
    (out / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")
    print(page)
