"""PTX as text: kernels of a module, changes of lines, counts that the machine wrote."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_ENTRY = re.compile(r"^(?:\.visible )?(?:\.weak )?\.entry (\w+)")


class Executed(NamedTuple):
    """An instruction of a kernel, and how many lanes ran it."""

    line: int  # of the PTX, from 1
    opcode: str
    lanes: int
    skipped: int  # lanes for which its guard was false
    source: str  # file:line


def program_ptx(program: Path) -> list[str]:
    """The PTX of each unit that a program holds as text."""
    content = program.read_bytes()
    begins = [match.start() + 1 for match in re.finditer(rb"\n\.version \d+\.\d+\n", content)]
    return [content[begin : content.index(b"\0", begin)].decode() for begin in begins]


def short_name(kernel: str) -> str:
    """packed 8, plans: as the GPU test prints it."""
    number = re.search(r"TileKindE(\d)E.*StoreKindE(\d)ELj(\d)E", kernel)
    if number is None:
        return kernel
    kind, store, sample_bytes = map(int, number.groups())
    return f"{('rans', 'packed')[kind]} {8 * sample_bytes}{', plans' if store else ''}"


def kernel_lines(text: str) -> dict[str, tuple[int, int]]:
    """By kernel: lines from its name to its }, counted from 0."""
    lines = text.split("\n")
    found: dict[str, tuple[int, int]] = {}
    name, begin = "", 0
    for number, line in enumerate(lines):
        if entry := _ENTRY.match(line):
            name, begin = entry[1], number
        elif line == "}" and name:
            found[name] = (begin, number)
            name = ""
    return found


_BODY = re.compile(r"^\s*(?:\.visible |\.weak )?\.(?:entry|func)\b")


def body_of(lines: Sequence[str], number: int) -> tuple[int, int]:
    """From the head of the kernel or function around a line, counted from 1, to behind its end."""
    begin = next(i for i in range(number - 1, -1, -1) if _BODY.match(lines[i]))
    return begin, next(i for i in range(number - 1, len(lines)) if lines[i] == "}") + 1


_FILE = re.compile(r'^\s*\.file\s+(\d+) "(.*)"')
_LOC = re.compile(r"^\s*\.loc\s+(\d+ \d+ \d+)(?:.*inlined_at (\d+ \d+ \d+))?")
_OWN = re.compile(r"/src/(?!base/)")


def own_place(lines: Sequence[str], number: int) -> str:
    """Where a line of PTX comes from: file:line of the kernels, out of what they call."""
    named = (_FILE.match(line) for line in lines if ".file" in line[:8])
    files = {match[1]: match[2] for match in named if match}
    wanted: str | None = None
    for line in reversed(lines[:number]):
        location = _LOC.match(line)
        if location is None or wanted not in (None, location[1]):
            continue
        file, row, _ = location[1].split()
        if row == "0":  # nvcc's own
            continue
        if _OWN.search(files.get(file, "")) and not files[file].endswith("/warp.h"):
            return f"{Path(files[file]).name}:{row}"
        if location[2] is None:
            break
        wanted = location[2]
    return "?"


def read_counts(path: Path) -> dict[str, list[Executed]]:
    """By kernel."""
    kernels: dict[str, list[Executed]] = {}
    for row in path.read_text().splitlines():
        if row.startswith("kernel "):
            instructions = kernels.setdefault(row.split()[1], [])
            continue
        line, opcode, _, lanes, skipped, source_line, *file = row.split(" ", 6)
        source = f"{Path(file[0]).name if file else ''}:{source_line}"
        instructions.append(Executed(int(line), opcode, int(lanes), int(skipped), source))
    return kernels
