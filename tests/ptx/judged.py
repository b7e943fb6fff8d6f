"""judged.md: source lines whose loss no run notices, or that never run, each with the reason.

A line is known by its file and text, so that the list outlives other changes of the file; one of
several that read the same by the line before it too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ptx_text import Executed, own_place, short_name

_LIST = Path("tests/ptx/judged.md")
_ROW = re.compile(r"^\| ([\w ]+) \| ([\w.]+) \| `(.*)` \| (.+) \|$")


class Place(NamedTuple):
    """A source line."""

    file: str
    text: str


@cache
def _lines(file: str) -> list[str]:
    # What kernels call is in core/, where two files have a name.
    found = sorted(Path("src").rglob(file), key=lambda path: "core" not in path.parts)
    return found[0].read_text().split("\n") if found else []


def _texts(file: str) -> set[str]:
    lines = [line.strip() for line in _lines(file)]
    return {*lines, *map(" ".join, pairwise(lines))}


def place_of(source: str) -> Place:
    """Of file:line. The text is empty where there is no such line."""
    file, _, number = source.partition(":")
    lines = _lines(file) if file not in ("", "?") else []
    line = int(number) if number.isdigit() else 0
    return Place(file, lines[line - 1].strip() if 0 < line <= len(lines) else "")


def named_place(lines: Sequence[str], one: Executed) -> str:
    """What CUDA's headers wrap is known by the line that calls it, and what has no line by one
    before it."""
    file, _, number = one.source.partition(":")
    is_own = not file.endswith(".hpp") and number != "0"
    return one.source if is_own else own_place(lines, one.line)


def _with_line_before(source: str) -> Place:
    file, _, number = source.partition(":")
    before = place_of(f"{file}:{int(number) - 1}") if number.isdigit() else Place(file, "")
    return Place(file, f"{before.text} {place_of(source).text}")


class Judged:
    """The list."""

    def __init__(self) -> None:
        rows = (_ROW.match(row) for row in _LIST.read_text().splitlines())
        found = [row.groups() for row in rows if row is not None]
        self._reasons = {
            (kind, Place(file, text.replace("\\|", "|"))): why for kind, file, text, why in found
        }

    def why(self, kind: str, source: str) -> str | None:
        """The reason for a line, given as file:line."""
        places = (place_of(source), _with_line_before(source))
        return next((self._reasons[kind, p] for p in places if (kind, p) in self._reasons), None)

    def why_mutant(self, one: Executed, kernel: str) -> str | None:
        """The reason for a mutant of an instruction: `mutant`, `mutant setp` for those alone, or
        `mutant mov u32` of one type, `mutant setp packed 8` in kernels of that name, with plans or
        without; `mutant bra one way` of a branch that every lane took."""
        opcode = one.opcode.partition(".")[0]
        of_kernel = f"mutant {opcode} {short_name(kernel).partition(',')[0]}"
        of_type = f"mutant {one.opcode.replace('.', ' ')}"
        kinds = ["mutant", f"mutant {opcode}", of_type, of_kernel]
        if opcode == "bra" and one.skipped == 0:
            kinds.append("mutant bra one way")
        return next((why for kind in kinds if (why := self.why(kind, one.source))), None)

    def stale(self) -> list[Place]:
        """Lines that the sources do not have."""
        return [place for _, place in self._reasons if place.text not in _texts(place.file)]
