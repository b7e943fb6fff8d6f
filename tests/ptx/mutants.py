"""Changes the kernels' PTX, one instruction at a time: does a run notice?

    python tests/ptx/mutants.py --mutants 200 --seed 1

Mutants are other instructions in the place of some that batches executed. Removals are barriers,
branches, masks and clamps that are missing, from each source line that has one. Ends with 1 if too
few mutants are noticed, or a missing barrier is not.
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
from kernel_coverage import add_up
from ptx_text import Executed, kernel_lines, own_place, program_ptx, short_name
from simulate import BUILD, CASES, case_counts

_LEAST_NOTICED = 0.7

_SWAPS = [
    ("add", "sub"),
    ("and", "or"),
    ("shl.b32", "shr.u32"),
    ("shl.b64", "shr.u64"),
    ("min", "max"),
    ("setp.ge", "setp.gt"),
    ("setp.lt", "setp.le"),
    ("setp.eq", "setp.ne"),
    ("shf.r", "shf.l"),
    ("shfl.sync.up", "shfl.sync.down"),
    ("mul.lo.s32", "add.s32"),
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
            if opcode.startswith(old):
                choices.append(line.replace(opcode, new + opcode[len(old) :], 1))
    if opcode.startswith("xor"):  # the other way nothing changes where bits are apart
        choices.append(line.replace("xor", "or", 1))
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
    """Of each source line with a barrier, branch, mask or clamp one copy in the kernel."""
    chance = random.Random(f"{short_name(kernel)} {seed}")
    candidates = list(executed)
    chance.shuffle(candidates)
    found: dict[tuple[str, str], Mutant] = {}
    for one in candidates:
        line = lines[one.line - 1]
        taken = without(line, one)
        if taken is None:
            continue
        # What CUDA's headers wrap is known by the line that calls it.
        is_own = not one.source.partition(":")[0].endswith(".hpp")
        place = one.source if is_own else own_place(lines, one.line)
        changed = Change(kernel, one.line, taken[1])
        found.setdefault(
            (taken[0], place), Mutant(taken[0], one._replace(source=place), line.strip(), changed)
        )
    return list(found.values())


def is_noticed(outcomes: Sequence[Outcome]) -> bool:
    return any(outcome.batch != SURVIVES for outcome in outcomes)


def mutant_table(results: Sequence[tuple[Mutant, Outcome]]) -> tuple[list[str], float]:
    """By kernel; the share of all that were noticed."""
    rows = ["| kernel | mutants | noticed | share |", "|---|---|---|---|"]
    kernels: dict[str, list[bool]] = {}
    for m, outcome in results:
        for name in (short_name(m.change.kernel), "all"):
            kernels.setdefault(name, []).append(is_noticed([outcome]))
    for name, seen in kernels.items():
        rows.append(f"| {name} | {len(seen)} | {sum(seen)} | {sum(seen) / len(seen):.1%} |")
    return rows, sum(kernels["all"]) / len(kernels["all"])


def removal_table(
    results: Sequence[tuple[Mutant, Outcome]],
) -> tuple[list[str], list[tuple[str, str]]]:
    """By kind: source lines that are missed when their copy in some kernel is taken away. Then kind
    and place of those that are not."""
    places: dict[tuple[str, str], list[Outcome]] = {}
    for m, outcome in results:
        places.setdefault((m.kind, m.executed.source), []).append(outcome)
    rows = ["| taken away | source lines | noticed |", "|---|---|---|"]
    for kind in dict.fromkeys(kind for kind, _ in places):
        seen = [is_noticed(outcomes) for (of, _), outcomes in places.items() if of == kind]
        rows.append(f"| {kind} | {len(seen)} | {sum(seen)} |")
    return rows, [place for place, outcomes in places.items() if not is_noticed(outcomes)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=200, help="of each kernel")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernels", nargs="*", help="as: packed 8, plans")
    parser.add_argument("--out", type=Path, default=BUILD / "mutants.md")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    tried: list[Mutant] = []
    texts = program_ptx(CASES)
    for kernel, instructions in add_up(case_counts()).items():
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
    outcomes = try_changes([one.change for one in tried], arguments.jobs)
    results = [(m, o) for m, o in zip(tried, outcomes, strict=True) if o.batch != NO_PTX]
    mutants = [(m, o) for m, o in results if m.kind == "mutant"]
    rows, share = mutant_table(mutants)
    removed, survivors = removal_table([(m, o) for m, o in results if m.kind != "mutant"])
    rows += ["", *removed]
    checks = Counter(outcome.noticed_by for _, outcome in results if outcome.batch != SURVIVES)
    rows += ["", "| noticed by | changes |", "|---|---|"]
    rows += [f"| {check} | {count} |" for check, count in checks.most_common()]
    print("\n".join(rows))
    rows += ["", "| mutant that survives | source | was | became |", "|---|---|---|---|"]
    rows += [
        f"| {short_name(m.change.kernel)} {m.executed.line} | {m.executed.source} | "
        f"`{m.before}` | `{m.change.text.strip() or 'nothing'}` |"
        for m, outcome in mutants
        if outcome.batch == SURVIVES
    ]
    rows += ["", "| not noticed if taken away | source |", "|---|---|"]
    rows += [f"| {kind} | {place} |" for kind, place in survivors]
    arguments.out.write_text("\n".join(rows) + "\n")
    print(f"{share:.1%} of the mutants noticed; it fails below {_LEAST_NOTICED:.0%}")
    return int(share < _LEAST_NOTICED or any(kind == "barrier" for kind, _ in survivors))


if __name__ == "__main__":
    sys.exit(main())
