"""Writes what benchmarks measure: JSON for machines, Markdown for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The same on the terminal, in columns; without rich, which a GPU host may lack."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    print(f"\n{title}")
    for line in (head, *rows) if rows else ():
        cells = [line[0].ljust(widths[0])]
        cells += [text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)]
        print("  ".join(cells).rstrip())


def save_results(name: str, title: str, text: str, data: Any, out: Path = RESULTS) -> str:
    """Writes `name`.md and `name`.json; returns the former."""
    out.mkdir(parents=True, exist_ok=True)
    page = f"# {title}\n\n{text}"
    (out / f"{name}.md").write_text(page)
    part = out / f"{name}.json.part"
    part.write_text(json.dumps(data, indent=1) + "\n")
    part.replace(out / f"{name}.json")  # so that it is whole, whatever happens
    return page


def write_results(name: str, title: str, text: str, data: Any, out: Path = RESULTS) -> None:
    """The same, and prints the page."""
    print(save_results(name, title, text, data, out))
