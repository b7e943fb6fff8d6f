"""How the command `l3` talks: progress, tables, failures, numbers and names."""

from __future__ import annotations

import logging
import re
import sys
import time
import warnings
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import TextIO

LINE_SECONDS = 30.0

# Of more failures of one kind a few are named, and of more kinds the commonest.
_MAX_NAMED = 10
_FEW = 3
_MAX_KINDS = 20

MOST_NAMED = 100  # failures of one container: small ones may hold millions of images
_MOST_TEXT = 300  # of what they say

Item = TypeVar("Item")


def progress(
    items: Iterable[Item | None],
    total: int,
    *,
    quiet: bool = False,
    files_of: Callable[[Item], int] = lambda _: 1,
) -> Iterator[Item]:
    """Passes items on and tells on standard error how far that is.

    A terminal gets a progress bar, anything else a line each half minute.

    Args:
        items: what is passed on; None says that time has passed.
        total: how many files they stand for.
        quiet: tell nothing.
        files_of: how many files an item stands for.
    """
    if quiet:
        yield from (item for item in items if item is not None)
    elif sys.stderr.isatty():
        yield from _with_bar(items, total, files_of)
    else:
        yield from _with_lines(items, total, files_of)


def _with_bar(
    items: Iterable[Item | None], total: int, files_of: Callable[[Item], int]
) -> Iterator[Item]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=total)
    try:
        bar.start()
        for item in items:
            if item is not None:
                yield item
                bar.advance(task, files_of(item))
    finally:
        with suppress(OSError):  # The terminal may have gone.
            bar.stop()


def _with_lines(
    items: Iterable[Item | None], total: int, files_of: Callable[[Item], int]
) -> Iterator[Item]:
    start = told = time.monotonic()
    count = 0
    for item in items:
        if item is not None:
            yield item
            count += files_of(item)
        now = time.monotonic()
        if now - told >= LINE_SECONDS:
            told = now
            left = (
                f", about {duration((now - start) / count * (total - count))} left" if count else ""
            )
            complain(f"l3: {count} of {total} files after {duration(now - start)}{left}")


def print_table(headers: Sequence[str], *rows: Sequence[str], file: TextIO | None = None) -> None:
    """Prints a table whose first column is left-aligned and the others right-aligned."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for i, header in enumerate(headers):
        table.add_column(header, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(printable, row))
    file = file or sys.stdout
    # Names are no markup.
    # What is no terminal takes lines of any width, and cuts nothing.
    width = None if file.isatty() else 1000
    console = Console(file=file, width=width, markup=False, emoji=False)
    with console.capture() as text:  # Rich would end the process at a closed pipe.
        console.print(table)
    print(text.get(), end="", file=file)


def hush_libraries() -> None:
    """Keeps libraries from announcing what they also raise, and oddities of metadata."""
    logging.getLogger("tifffile").setLevel(logging.CRITICAL)
    logging.getLogger("imagecodecs").addHandler(logging.NullHandler())
    logging.getLogger("imagecodecs").propagate = False
    warnings.filterwarnings("ignore", module="PIL")


def complain(text: str) -> None:
    """Prints a line on standard error, if that takes it: exit codes tell as much."""
    with suppress(OSError):
        print(printable(without_passwords(text)), file=sys.stderr)


def say(lines: Iterable[str]) -> None:
    """Prints remarks of the command on standard error."""
    for line in lines:
        complain(f"l3: {line}")


@dataclass(frozen=True)
class Failure:
    """What did not work out, and why.

    Attributes:
        path: a file, or a place in one.
        reason: why, for people.
        kind: what equal failures of other files have in common; "": the reason but for numbers.
        count: how many failures it stands for.
    """

    path: Path | str
    reason: str
    kind: str = ""
    count: int = 1

    @property
    def place(self) -> str:
        """The path as messages have it."""
        return shortened(without_password(str(self.path)))


def count_failures(failures: Iterable[Failure]) -> int:
    """How many there are, with those that are not named."""
    return sum(failure.count for failure in failures)


def unnamed(container: str, count: int) -> Failure:
    """The failures of a container beyond `MOST_NAMED`."""
    return Failure(container, f"{count} more, which are not named", count=count)


def add_failure(failures: list[Failure], failure: Failure, container: str) -> None:
    """Adds a failure to those of a container."""
    failures.append(failure)
    if len(failures) > MOST_NAMED:
        failures[MOST_NAMED:] = [unnamed(container, count_failures(failures[MOST_NAMED:]))]


def shortened(text: str) -> str:
    """The text, or its ends if it is long."""
    half = _MOST_TEXT // 2
    return text if len(text) <= _MOST_TEXT else f"{text[:half]} ... {text[-half:]}"


def reason_of(error: BaseException) -> str:
    """What an error says, on one line, for people; the ends of it if it is long."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.strerror}: {shortened(without_password(str(error.filename)))}"
    text = " ".join(without_passwords(str(error)).split())
    return shortened(text) or type(error).__name__


def without_password(url: str) -> str:
    """A URL that names its user without a password."""
    return re.sub(r"((?://|(?<=:)/)[^/:]*):[^/]*@", r"\1@", url)  # a Path has one slash


def without_passwords(text: str) -> str:
    """The same of each word of a text."""
    return "".join(map(without_password, re.split(r"(\s+)", text)))


def tell_failures(failures: Sequence[Failure], *, has_summary: bool = False) -> None:
    """Prints a line for each failure, but few for many of one kind.

    Args:
        failures: what to tell.
        has_summary: whether the run can write `--json-summary`, which lists more.
    """
    if not failures:
        return
    kinds: dict[str, list[Failure]] = defaultdict(list)
    for failure in failures:
        kinds[failure.kind or re.sub(r"\d+", "N", failure.reason)].append(failure)
    complain(f"l3: {count_failures(failures)} failed")
    commonest = sorted(kinds, key=lambda kind: -len(kinds[kind]))[:_MAX_KINDS]
    for kind in [kind for kind in kinds if kind in commonest]:
        alike = kinds[kind]
        if len(alike) <= _MAX_NAMED:
            for failure in alike:
                complain(f"{failure.place}: {failure.reason}")
        else:
            complain(f"{len(alike)} files: {kind}")
            for failure in alike[:_FEW]:
                complain(f"  {failure.place}")
            complain(f"  and {len(alike) - _FEW} more")
    if len(kinds) > _MAX_KINDS:
        complain(f"and {len(kinds) - _MAX_KINDS} more kinds of failures")
    is_cut = len(kinds) > _MAX_KINDS or any(len(alike) > _MAX_NAMED for alike in kinds.values())
    if has_summary and is_cut:
        what = "them all" if count_failures(failures) == len(failures) else "all that are named"
        complain(f"l3: --json-summary FILE lists {what}")


def printable(text: str | Path) -> str:
    """The text on one line, with what cannot be shown as escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))


def counted(count: int, name: str) -> str:
    """So many of what the name says: `1 file`, `2 files`."""
    return f"{count} {name}{'s' * (count != 1)}"


def megabytes(size: float) -> str:
    """Bytes, in a unit that suits them."""
    if size >= 1e9:
        return f"{size / 1e9:.2f} GB"
    return f"{size / 1e6:.2f} MB" if size >= 10_000 else f"{size:.0f} B"


def ratio(result: float, source: float) -> str:
    """The bytes of a result over those of what it was made of: below 1 where it is smaller."""
    return f"{result / source:.2f}" if source else "-"


def speed(size: int, seconds: float) -> str:
    """Megabytes a second, without the unit."""
    return f"{size / 1e6 / seconds:.0f}" if seconds else "-"


def duration(seconds: float) -> str:
    """A time, in the two units that suit it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
