"""Terminal output of the command `l3`: progress, tables, failures, numbers and names."""

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

_MAX_NAMED, _FEW = 10, 3  # all of up to 10 failures of one kind are named, else 3

_MOST_TEXT = 300  # characters of a name or a reason

Item = TypeVar("Item")


def progress(
    items: Iterable[Item | None],
    total: int,
    *,
    quiet: bool = False,
    files_of: Callable[[Item], int] = lambda _: 1,
) -> Iterator[Item]:
    """Yields the items that are not None, and reports progress on standard error.

    A terminal shows one line that changes, other outputs get a line each half minute.

    Args:
        items: to be yielded.
        total: number of files.
        quiet: report nothing.
        files_of: number of files of an item.
    """
    is_terminal = sys.stderr.isatty()
    start = told = time.monotonic()
    done = 0
    try:
        for item in items:
            if item is not None:
                yield item
                done += files_of(item)
            now = time.monotonic()
            is_last = item is not None and done >= total
            if quiet or (now - told < (0.1 if is_terminal else LINE_SECONDS) and not is_last):
                continue
            told, took = now, now - start
            left = f", about {duration(took / done * (total - done))} left" if done else ""
            text = f"l3: {done} of {total} files after {duration(took)}{left}"
            if is_terminal:
                print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)
            elif took >= LINE_SECONDS:
                complain(text)
    finally:
        if is_terminal and not quiet:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def print_table(headers: Sequence[str], *rows: Sequence[str], file: TextIO | None = None) -> None:
    """Prints a table whose first column is left-aligned and the others right-aligned."""
    table = [list(headers), *(list(map(printable, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for first, *others in table:
        cells = [each.rjust(width) for each, width in zip(others, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells]), file=file)


def hush_libraries() -> None:
    """Silences libraries that log what they also raise, and Pillow's warnings about metadata."""
    logging.getLogger("tifffile").setLevel(logging.CRITICAL)
    logging.getLogger("imagecodecs").addHandler(logging.NullHandler())
    logging.getLogger("imagecodecs").propagate = False
    warnings.filterwarnings("ignore", module="PIL")


def complain(text: str) -> None:
    """Prints a line on standard error, if it is open."""
    with suppress(OSError):
        print(printable(without_password(text)), file=sys.stderr)


def say(lines: Iterable[str]) -> None:
    """Prints remarks of the command on standard error."""
    for line in lines:
        complain(f"l3: {line}")


@dataclass(frozen=True)
class Failure:
    """A file that failed, and why."""

    path: Path | str  # a file, or a place in a container
    reason: str  # why, for people
    kind: str = ""  # the reason without names, to group failures by; "": the reason itself

    @property
    def place(self) -> str:
        """The path for messages."""
        return shortened(without_password(str(self.path)))


def shortened(text: str) -> str:
    """The text, or its ends if it is long."""
    half = _MOST_TEXT // 2
    return text if len(text) <= _MOST_TEXT else f"{text[:half]} ... {text[-half:]}"


def reason_of(error: BaseException) -> str:
    """The message of an error on one line, shortened if it is long."""
    if isinstance(error, OSError) and error.strerror:
        place = "" if error.filename is None else f": {error.filename}"
        return f"{error.strerror}{shortened(without_password(place))}"
    text = " ".join(without_password(str(error)).split())
    return shortened(text) or type(error).__name__


def without_password(text: str) -> str:
    """The text without the passwords of users in URLs."""
    return re.sub(r"((?://|(?<=:)/)[^/:\s]*):[^/\s]*@", r"\1@", text)  # a Path has one slash


def tell_failures(failures: Sequence[Failure], *, has_summary: bool = False) -> None:
    """Prints a line for each failure; many of one kind are summarized.

    Args:
        failures: to be printed.
        has_summary: whether the command has `--json-summary`.
    """
    if not failures:
        return
    kinds: dict[str, list[Failure]] = defaultdict(list)
    for failure in failures:
        kinds[failure.kind or re.sub(r"\d+", "N", failure.reason)].append(failure)
    complain(f"l3: {len(failures)} failed")
    for alike in kinds.values():
        shown = alike if len(alike) <= _MAX_NAMED else alike[:_FEW]
        for failure in shown:
            complain(f"{failure.place}: {failure.reason}")
        if len(alike) > len(shown):
            complain(f"and {len(alike) - len(shown)} more like these")
    if has_summary and max(map(len, kinds.values())) > _MAX_NAMED:
        complain("l3: --json-summary FILE lists more")


def printable(text: str | Path) -> str:
    """The text on one line, unprintable characters as escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))


def counted(count: int, name: str) -> str:
    """A number and a noun: `1 file`, `2 files`."""
    return f"{count} {name}{'s' * (count != 1)}"


def megabytes(size: float) -> str:
    """Bytes in B, MB or GB."""
    if size >= 1e9:
        return f"{size / 1e9:.2f} GB"
    return f"{size / 1e6:.2f} MB" if size >= 10_000 else f"{size:.0f} B"


def ratio(result: float, source: float) -> str:
    """The bytes of a result over those of its source: below 1 if it is smaller."""
    return f"{result / source:.2f}" if source else "-"


def speed(size: int, seconds: float) -> str:
    """Megabytes a second, without the unit."""
    return f"{size / 1e6 / seconds:.0f}" if seconds else "-"


def duration(seconds: float) -> str:
    """A time in one or two units: `59 s`, `2 min 5 s`, `1 h 3 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
