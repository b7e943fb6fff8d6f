"""How the command `l3` talks: progress, tables, numbers and names."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

Item = TypeVar("Item")


def progress(items: Iterable[Item], total: int) -> Iterator[Item]:
    """Passes items on, with a progress bar on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield from bar.track(items, total=total)


def print_table(headers: Sequence[str], *rows: Sequence[str]) -> None:
    """Prints a table whose first column is left-aligned and the others right-aligned."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for i, header in enumerate(headers):
        table.add_column(header, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 120)
    with console.capture() as text:  # Rich would end the process at a closed pipe.
        console.print(table)
    print(text.get(), end="")


def complain(text: str) -> None:
    """Prints a line on standard error."""
    print(printable(text), file=sys.stderr)


def printable(text: str | Path) -> str:
    """The text on one line, with what cannot be shown as escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))


def megabytes(size: int) -> str:
    """Bytes, in a unit that suits them."""
    return f"{size / 1e6:.2f} MB" if size >= 10_000 else f"{size} B"


def ratio(raw: int, encoded: int) -> str:
    """How many times smaller than raw."""
    return f"{raw / encoded:.2f}" if encoded else "-"


def speed(size: int, seconds: float) -> str:
    """Megabytes a second, without the unit."""
    return f"{size / 1e6 / seconds:.0f}" if seconds else "-"
