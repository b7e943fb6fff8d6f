"""Which instructions of each kernel `make simulate` executed, and which branches hid the rest.

    python tests/ptx/kernel_coverage.py [COUNTS...] --out build/simulate/coverage.md

Several files of counts add up, if they are of the same PTX.
"""

from __future__ import annotations

import argparse
import re
import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from judged import Judged, named_place, place_of
from ptx_text import Executed, kernel_lines, program_ptx, read_counts, short_name
from simulate import BUILD, CASES, COMPARE_COUNTS, case_counts


def add_up(files: list[Path]) -> dict[str, list[Executed]]:
    """Instructions of each kernel, with the lanes of all files."""
    first, *others = files
    kernels = read_counts(first)
    for other in others:
        rows = (row.split(" ", 5) for row in other.read_text().splitlines())
        for row in rows:
            if row[0] == "kernel":
                instructions = kernels[row[1]]
                number = 0
                continue
            one = instructions[number]
            if one.line != int(row[0]):
                raise SystemExit(f"{other}: counts of other PTX")
            lanes, skipped = one.lanes + int(row[3]), one.skipped + int(row[4])
            instructions[number] = one._replace(lanes=lanes, skipped=skipped)
            number += 1
    return kernels


def ways_not_taken(lines: Sequence[str], instructions: Sequence[Executed]) -> Iterator[str]:
    """Of a kernel: the source lines of branches that ran, with a way that leads to instructions
    which never did. All others that never ran lie behind these."""
    labels = {
        match[1]: number
        for number, line in enumerate(lines, 1)
        if (match := re.match(r"\s*(\$[\w$]+):", line))
    }
    ran = {one.line: bool(one.lanes or one.skipped) for one in instructions}
    numbers = sorted(ran)
    for one in instructions:
        target = re.search(r"\bbra\s+(\$[\w$]+)", lines[one.line - 1])
        if one.opcode != "bra" or target is None or not ran[one.line]:
            continue
        for lanes, begin in ((one.lanes, labels[target[1]]), (one.skipped, one.line + 1)):
            there = bisect_left(numbers, begin)
            if not lanes and there < len(numbers) and not ran[numbers[there]]:
                yield named_place(lines, one)


def report(kernels: dict[str, list[Executed]], texts: Sequence[str]) -> list[str]:
    """A table of kernels, and one of the ways that no lane took."""
    rows = [
        "| kernel | instructions | executed | share | branches | both ways |",
        "|---|---|---|---|---|---|",
    ]
    missed: dict[str, Counter[str]] = defaultdict(Counter)
    for kernel, instructions in kernels.items():
        name = short_name(kernel)
        executed = sum(one.lanes != 0 for one in instructions)
        share = executed / len(instructions)
        # "bra.uni" are those without a guard. Both ways: some lane takes it, and some does not.
        branches = [one for one in instructions if one.opcode == "bra"]
        both = sum(one.lanes != 0 and one.skipped != 0 for one in branches)
        of_instructions = f"{len(instructions)} | {executed} | {share:.1%}"
        rows.append(f"| {name} | {of_instructions} | {len(branches)} | {both} |")
        (text,) = (text for text in texts if kernel in kernel_lines(text))
        for source in ways_not_taken(text.split("\n"), instructions):
            missed[source][name] += 1
    judged = Judged()
    rows += ["", "| branch with a way that no lane took | copies by kernel | line | why |"]
    rows.append("|---|---|---|---|")
    for source in sorted(missed):
        counts = ", ".join(f"{name} {count}" for name, count in missed[source].items())
        text = place_of(source).text.replace("|", "\\|")
        rows.append(f"| {source} | {counts} | `{text}` | {judged.why('way', source) or '?'} |")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("counts", nargs="*", type=Path, default=[COMPARE_COUNTS, *case_counts()])
    parser.add_argument("--out", type=Path, default=BUILD / "coverage.md")
    arguments = parser.parse_args()
    rows = report(add_up(arguments.counts), program_ptx(CASES))
    arguments.out.write_text("\n".join(rows) + "\n")
    print("\n".join(rows[: rows.index("")]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
