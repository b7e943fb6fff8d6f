"""Changes the kernels' PTX, one instruction at a time: does a run notice?

    python tests/ptx/mutants.py --count 200 --seed 1

Mutants are other instructions in the place of some that batches executed. Removals are barriers,
branches, masks and clamps that are missing: all barriers, and some of the rest. Ends with 1 if of a
kernel's mutants less than 95 % are noticed, or a removal is not whose line is not known to be
redundant (redundant.py).
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_cases import NO_PTX, SURVIVES, Change, Outcome, try_changes
from ptx_text import Executed, kernel_lines, program_ptx, read_counts, short_name
from simulate import ALL_CASES, BUILD, CASES, COUNTS

_LEAST_NOTICED = 0.95
_BRANCHES, _MASKS, _CLAMPS = 30, 15, 10  # of each kernel

_SWAPS = [
    ("add", "sub"),
    ("and", "or"),
    ("xor", "or"),
    ("shl.b32", "shr.u32"),
    ("shl.b64", "shr.u64"),
    ("min", "max"),
    ("setp.ge", "setp.gt"),
    ("setp.lt", "setp.le"),
    ("setp.eq", "setp.ne"),
    ("shf.r", "shf.l"),
    ("shfl.sync.up", "shfl.sync.down"),
    ("mul.lo.s32", "add.s32"),
    ("ld.shared.u8", "ld.shared.s8"),
    ("ld.global.u8", "ld.global.s8"),
    ("dp4a.u32.u32", "dp4a.u32.s32"),
    ("dp2a.lo", "dp2a.hi"),
    ("cvt.rzi", "cvt.rni"),
    ("add.rz", "add.rp"),
    ("mad.lo.s32", "mad.hi.s32"),
    ("setp.leu", "setp.ltu"),
    ("fma.rn", "fma.rz"),
    ("add.rn", "add.rm"),
    ("mul.rn", "mul.rp"),
]
_REMOVED = ("bar.", "st.", "atom.", "red.")
_LABEL = re.compile(r"^\s*[$\w]+:")


@dataclass(frozen=True)
class Mutant:
    """A change of an instruction: what kind, and what was there."""

    kind: str
    executed: Executed
    before: str
    change: Change


def mutate(line: str, opcode: str, chance: random.Random) -> str | None:
    """Another instruction in its place. None: nothing to change is known."""
    choices = []
    for one, other in _SWAPS:
        for old, new in ((one, other), (other, one)):
            if opcode.startswith(old) and not (old == "xor" and new == "xor"):
                choices.append(line.replace(opcode, new + opcode[len(old) :], 1))
    if opcode.startswith(_REMOVED):
        choices.append("")
    if guard := re.match(r"\s*@(!?)(%\w+)", line):
        flipped = f"@{'' if guard[1] else '!'}{guard[2]}"
        choices.append(line.replace(guard[0].strip(), flipped, 1))
    if number := re.search(r",\s*(-?\d+)(?=[,;])", line):
        changed = str(int(number[1]) ^ (1 << chance.randrange(4)))
        choices.append(line[: number.start(1)] + changed + line[number.end(1) :])
    if offset := re.search(r"\+(\d+)\]", line):
        choices.append(line[: offset.start(1)] + str(int(offset[1]) + 8) + line[offset.end(1) :])
    if opcode.startswith("selp"):
        choices.append(re.sub(r"(%\w+), (%\w+), (%p\w*);", r"\2, \1, \3;", line))
    choices = [choice for choice in choices if choice.strip() != line.strip()]
    return chance.choice(choices) if choices else None


def make_mutants(
    lines: Sequence[str], kernel: str, executed: Sequence[Executed], count: int, seed: int
) -> list[Mutant]:
    """As many as asked for, of instructions that were executed, or fewer."""
    chance = random.Random(f"{short_name(kernel)} {seed}")
    candidates = list(executed)
    chance.shuffle(candidates)
    mutants: list[Mutant] = []
    for one in candidates:
        if len(mutants) == count:
            break
        line = lines[one.line - 1]
        after = mutate(line, one.opcode, chance)
        if after is not None:
            changed = Change(kernel, one.line, after)
            mutants.append(Mutant("mutant", one, line.strip(), changed))
    return mutants


def without(line: str, executed: Executed) -> tuple[str, str] | None:
    """What is taken away, and the line that is left. None: nothing that is looked for."""
    if executed.opcode.startswith("bar."):
        return "barrier", ""
    if executed.opcode == "bra" and "@" in line and executed.skipped:
        return "branch", ""
    if re.search(r"and\.b32.*, -?\d+;", line):
        return "mask", re.sub(r"and\.b32(.*), -?\d+;", r"mov.b32\1;", line)
    if clamp := re.match(r"(\s*)(?:min|max)\.[us](\d+)(.*, .*),[^,]*;", line):
        return "clamp", f"{clamp[1]}mov.b{clamp[2]}{clamp[3]};"
    return None


def make_removals(
    lines: Sequence[str], kernel: str, executed: Sequence[Executed], seed: int
) -> list[Mutant]:
    """All barriers of a kernel; branches, masks and clamps, some of each."""
    chance = random.Random(f"{short_name(kernel)} {seed}")
    most = {"branch": _BRANCHES, "mask": _MASKS, "clamp": _CLAMPS}
    candidates = list(executed)
    chance.shuffle(candidates)
    found: Counter[str] = Counter()
    removals = []
    for one in candidates:
        line = lines[one.line - 1]
        taken = without(line, one)
        if taken is None or found[taken[0]] == most.get(taken[0]):
            continue
        found[taken[0]] += 1
        removals.append(Mutant(taken[0], one, line.strip(), Change(kernel, one.line, taken[1])))
    return removals


def noticed_of(results: Sequence[tuple[Mutant, Outcome]]) -> str:
    seen = sum(outcome.batch != SURVIVES for _, outcome in results)
    return f"{seen} of {len(results)}"


def table(results: Sequence[tuple[Mutant, Outcome]]) -> list[str]:
    """By kernel: mutants and removals that were noticed, and by which check."""
    kinds = ["mutant", "barrier", "branch", "mask", "clamp"]
    checks = Counter(o.noticed_by for _, o in results if o.batch != SURVIVES)
    rows = [f"| kernel | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    kernels = dict.fromkeys(m.change.kernel for m, _ in results)
    for kernel in kernels:
        cells = [
            noticed_of([(m, o) for m, o in results if m.change.kernel == kernel and m.kind == kind])
            for kind in kinds
        ]
        rows.append(f"| {short_name(kernel)} | {' | '.join(cells)} |")
    rows += ["", "| noticed by | changes |", "|---|---|"]
    rows += [f"| {check} | {count} |" for check, count in checks.most_common()]
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=200, help="of each kernel")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=ALL_CASES, help="batches")
    parser.add_argument("--kernels", nargs="*", help="as: packed 8, plans")
    parser.add_argument("--counts", type=Path, default=COUNTS)
    parser.add_argument("--out", type=Path, default=BUILD / "mutants.md")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    tried: list[Mutant] = []
    texts = program_ptx(CASES)
    for kernel, instructions in read_counts(arguments.counts).items():
        if arguments.kernels and short_name(kernel) not in arguments.kernels:
            continue
        (text,) = (text for text in texts if kernel in kernel_lines(text))
        lines = text.split("\n")
        executed = [
            one
            for one in instructions
            if one.lanes
            and one.opcode in lines[one.line - 1]
            and not _LABEL.match(lines[one.line - 1])
        ]
        tried += make_mutants(lines, kernel, executed, arguments.mutants, arguments.seed)
        tried += make_removals(lines, kernel, executed, arguments.seed)
    outcomes = try_changes([one.change for one in tried], arguments.jobs, arguments.count)
    results = [(m, o) for m, o in zip(tried, outcomes, strict=True) if o.batch != NO_PTX]
    rows = [*table(results), "", "| survivor | source | was | became |", "|---|---|---|---|"]
    for m, outcome in results:
        if outcome.batch == SURVIVES:
            rows.append(
                f"| {short_name(m.change.kernel)}, {m.kind}, line {m.executed.line} | "
                f"{m.executed.source} | `{m.before}` | `{m.change.text.strip() or 'nothing'}` |"
            )
    arguments.out.write_text("\n".join(rows) + "\n")
    print("\n".join(rows))
    wrong = 0
    for kernel in dict.fromkeys(m.change.kernel for m, _ in results):
        of_kernel = [o for m, o in results if m.change.kernel == kernel and m.kind == "mutant"]
        share = sum(o.batch != SURVIVES for o in of_kernel) / max(1, len(of_kernel))
        if share < _LEAST_NOTICED:
            print(f"{short_name(kernel)}: {share:.1%} of mutants noticed, fewer than 95 %")
            wrong += 1
    return int(wrong != 0)


if __name__ == "__main__":
    sys.exit(main())
