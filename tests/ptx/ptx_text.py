"""PTX as text: kernels of a module, changes of lines, counts that the machine wrote."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_ENTRY = re.compile(r"^(?:\.visible )?(?:\.weak )?\.entry (\w+)")
_STORE = {"0": "", "1": ", plans", "2": ", several plans"}


@dataclass(frozen=True)
class Executed:
    """An instruction of a kernel, and how often warps ran it."""

    line: int  # of the PTX, from 1
    opcode: str
    warps: int
    source: str  # file:line


def program_ptx(program: Path) -> str:
    """The PTX that a program holds as text."""
    content = program.read_bytes()
    begin = content.index(b"\n.version ") + 1
    return content[begin : content.index(b"\0", begin)].decode()


def short_name(kernel: str) -> str:
    """compact, plans: as the GPU test prints it."""
    tables = "wide" if "Wide" in kernel else "compact" if "Compact" in kernel else "packed"
    kind = re.search(r"StoreKindE(\d)", kernel)
    return tables + (_STORE.get(kind[1], "") if kind else "")


def kernel_lines(text: str) -> dict[str, tuple[int, int]]:
    """By kernel: lines from its { to its }, counted from 0."""
    lines = text.split("\n")
    found: dict[str, tuple[int, int]] = {}
    name, begin = "", 0
    for number, line in enumerate(lines):
        if entry := _ENTRY.match(line):
            name, begin = entry[1], 0
        elif line == "{" and name and not begin:
            begin = number
        elif line == "}" and name:
            found[name] = (begin, number)
            name = ""
    return found


def with_kernels(text: str, keep: set[str]) -> str:
    """The module with other kernels that do nothing. Lines stay where they are.

    It takes a tenth of the time to read.
    """
    lines = text.split("\n")
    for name, (begin, end) in kernel_lines(text).items():
        if name not in keep:
            lines[begin + 1 : end] = ["ret;", *[""] * (end - begin - 2)]
    return "\n".join(lines)


def read_counts(path: Path) -> dict[str, list[Executed]]:
    """By kernel."""
    kernels: dict[str, list[Executed]] = {}
    for row in path.read_text().splitlines():
        if row.startswith("kernel "):
            instructions = kernels.setdefault(row.split()[1], [])
            continue
        line, opcode, warps, _, source_line, *file = row.split(" ", 5)
        source = f"{Path(file[0]).name if file else ''}:{source_line}"
        instructions.append(Executed(int(line), opcode, int(warps), source))
    return kernels
