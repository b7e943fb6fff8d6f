"""Which instructions of each kernel `make simulate` executed, by source line.

    python tests/ptx/kernel_coverage.py [COUNTS...] --out build/simulate/coverage.md

Several files of counts add up, if they are of the same PTX.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path

from ptx_text import Executed, read_counts, short_name
from simulate import BUILD, COMPARE_COUNTS, case_counts


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


def report(kernels: dict[str, list[Executed]]) -> list[str]:
    """A table of kernels, and one of source lines that some kernel never ran."""
    rows = [
        "| kernel | instructions | executed | share | branches | both ways |",
        "|---|---|---|---|---|---|",
    ]
    missed: dict[str, dict[str, int]] = defaultdict(dict)
    reached: set[str] = set()
    for kernel, instructions in kernels.items():
        name = short_name(kernel)
        executed = sum(one.lanes != 0 for one in instructions)
        share = executed / len(instructions)
        # "bra.uni" are those without a guard. Both ways: some lane takes it, and some does not.
        branches = [one for one in instructions if one.opcode == "bra"]
        both = sum(one.lanes != 0 and one.skipped != 0 for one in branches)
        of_instructions = f"{len(instructions)} | {executed} | {share:.1%}"
        rows.append(f"| {name} | {of_instructions} | {len(branches)} | {both} |")
        for one in instructions:
            if one.lanes:
                reached.add(one.source)
            else:
                missed[one.source][name] = missed[one.source].get(name, 0) + 1
    rows += ["", "| source line | never executed, instructions by kernel | elsewhere |"]
    rows.append("|---|---|---|")
    for source in sorted(missed):
        counts = ", ".join(f"{name} {count}" for name, count in missed[source].items())
        rows.append(f"| {source} | {counts} | {'executed' if source in reached else 'never'} |")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("counts", nargs="*", type=Path, default=[COMPARE_COUNTS, *case_counts()])
    parser.add_argument("--out", type=Path, default=BUILD / "coverage.md")
    arguments = parser.parse_args()
    rows = report(add_up(arguments.counts))
    arguments.out.write_text("\n".join(rows) + "\n")
    print("\n".join(rows[: rows.index("")]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
