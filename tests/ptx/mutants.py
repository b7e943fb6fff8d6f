"""Changes the kernels' PTX, one instruction at a time: does a run notice?

    python tests/ptx/mutants.py --mutants 200 --seeds 1 2

Mutants are other instructions in the place of some that batches executed. Removals are barriers,
branches, masks and clamps that are missing, from each source line that has one. What known_bits.py
shows to be the same is not tried. What is not noticed and not in judged.md is listed. Ends with 1
if too few mutants of a kernel are noticed, or what is taken away from a line is not.
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

from judged import Judged, named_place, place_of
from kernel_cases import NO_PTX, SAME, SURVIVES, Change, Outcome, try_changes
from kernel_coverage import add_up
from known_bits import KnownBits
from ptx_text import Executed, body_of, kernel_lines, program_ptx, short_name
from simulate import BUILD, CASES, case_counts

_LEAST_NOTICED = 0.95  # of all kernels
_LEAST_OF_A_KERNEL = 0.92  # Of 200 mutants, of which 5 % survive, a share has an error of 1.5 %.

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
    seed: int = 0  # 0: something is taken away

    @property
    def place(self) -> tuple[str, str]:
        return self.kind, self.executed.source


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


class Rules:
    """What known_bits.py says of changes in the lines of a unit."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._known: dict[tuple[int, int], KnownBits] = {}
        self.used: Counter[str] = Counter()

    def shows_same(self, number: int, after: str) -> str | None:
        """The rule by which another text in a line, counted from 1, changes nothing."""
        begin, end = body = body_of(self._lines, number)
        if body not in self._known:
            self._known[body] = KnownBits(self._lines[begin:end])
        rule = self._known[body].same_result(self._lines[number - 1], after)
        if rule is not None:
            self.used[rule] += 1
        return rule


def make_mutants(
    lines: Sequence[str],
    kernel: str,
    executed: Sequence[Executed],
    count: int,
    seed: int,
    rules: Rules,
) -> list[Mutant]:
    """As many as asked for, of instructions that were executed, or fewer. None that a rule shows
    to be the same."""
    chance = random.Random(f"{short_name(kernel)} {seed}")
    candidates = list(executed)
    chance.shuffle(candidates)
    mutants: list[Mutant] = []
    for one in candidates:
        if len(mutants) == count:
            break
        line = lines[one.line - 1]
        after = mutate(line, one.opcode, chance)
        if after is not None and rules.shows_same(one.line, after) is None:
            changed = Change(kernel, one.line, after)
            placed = one._replace(source=named_place(lines, one))
            mutants.append(Mutant("mutant", placed, line.strip(), changed, seed))
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


def _runs_both_ways(one: Executed) -> int:
    return min(one.lanes, one.skipped or one.lanes)


def make_removals(lines: Sequence[str], kernel: str, executed: Sequence[Executed]) -> list[Mutant]:
    """Of each source line with a barrier, branch, mask or clamp all copies in the kernel."""
    found = []
    for one in executed:
        line = lines[one.line - 1]
        taken = without(line, one)
        if taken is not None:
            placed = one._replace(source=named_place(lines, one))
            changed = Change(kernel, one.line, taken[1])
            found.append(Mutant(taken[0], placed, line.strip(), changed))
    return found


def is_noticed(outcomes: Sequence[Outcome]) -> bool:
    return any(outcome.batch not in (SURVIVES, SAME) for outcome in outcomes)


def try_mutants(tried: Sequence[Mutant], judged: Judged, jobs: int) -> list[tuple[Mutant, Outcome]]:
    """What is taken away from a source line is tried in the copy that most batches run. Where that
    is neither noticed nor judged, in a copy of each kernel, and then in all."""
    mutants = [m for m in tried if m.kind == "mutant"]
    removals = [m for m in tried if m.kind != "mutant"]
    removals.sort(key=lambda m: _runs_both_ways(m.executed), reverse=True)
    first: dict[tuple[str, str], Mutant] = {}
    of_kernels: dict[tuple[tuple[str, str], str], Mutant] = {}
    for m in removals:
        first.setdefault(m.place, m)
        of_kernels.setdefault((m.place, m.change.kernel), m)
    settled = {place for place in first if judged.why(*place) is not None}
    results: dict[Mutant, Outcome] = {}
    for some in ([*mutants, *first.values()], [*of_kernels.values()], removals):
        left = [m for m in some if m not in results and (not results or m.place not in settled)]
        outcomes = try_changes([m.change for m in left], jobs) if left else []
        results |= zip(left, outcomes, strict=True)
        settled |= {m.place for m, outcome in results.items() if is_noticed([outcome])}
    return [(m, outcome) for m, outcome in results.items() if outcome.batch != NO_PTX]


def mutant_table(
    results: Sequence[tuple[Mutant, Outcome]], judged: Judged
) -> tuple[list[str], float, float]:
    """By seed and kernel; of all, and of the worst kernel, the share that was noticed of those that
    are not judged to be the same."""
    rows = ["| seed | kernel | mutants | noticed | judged | noticed of the others |"]
    rows.append("|---|---|---|---|---|---|")
    kernels: dict[tuple[str, str], list[tuple[bool, bool]]] = {}
    for m, outcome in results:
        noticed = is_noticed([outcome])
        excused = not noticed and judged.why_mutant(m.executed, m.change.kernel) is not None
        for row in ((str(m.seed), short_name(m.change.kernel)), ("all", "all")):
            kernels.setdefault(row, []).append((noticed, excused))
    shares: dict[str, float] = {}
    for (seed, name), seen in sorted(kernels.items()):
        noticed_count, excused_count = (sum(flags) for flags in zip(*seen, strict=True))
        share = noticed_count / max(1, len(seen) - excused_count)
        shares[name] = min(share, shares.get(name, 1))
        rows.append(
            f"| {seed} | {name} | {len(seen)} | {noticed_count} | {excused_count} | {share:.1%} |"
        )
    return rows, shares.get("all", 0.0), min(shares.values(), default=0.0)


def removal_table(
    results: Sequence[tuple[Mutant, Outcome]], same: set[tuple[str, str]], judged: Judged
) -> tuple[list[str], list[tuple[str, str]]]:
    """By kind: source lines that are missed when a copy is taken away. Then kind and place of those
    that are not. `same`: of all of whose copies a rule shows that nothing changes."""
    places: dict[tuple[str, str], list[Outcome]] = {}
    for m, outcome in results:
        places.setdefault(m.place, []).append(outcome)
    missed = [place for place, outcomes in places.items() if not is_noticed(outcomes)]
    rows = [
        "| taken away | source lines | noticed | a rule shows it changes nothing | judged | left |",
        "|---|---|---|---|---|---|",
    ]
    left = [(kind, place) for kind, place in missed if judged.why(kind, place) is None]
    for kind in dict.fromkeys(kind for kind, _ in [*places, *same]):
        of_kind = {place for place in [*places, *same] if place[0] == kind}
        noticed = len([place for place in places if place[0] == kind]) - sum(
            place[0] == kind for place in missed
        )
        by_rule = sum(place[0] == kind for place in same)
        open_ = sum(place[0] == kind for place in left)
        rows.append(
            f"| {kind} | {len(of_kind)} | {noticed} | {by_rule} | "
            f"{len(of_kind) - noticed - by_rule - open_} | {open_} |"
        )
    return rows, left


def removed_rows(results: Sequence[tuple[Mutant, Outcome]], judged: Judged) -> list[str]:
    """Each source line that something was taken away from, and by which checks it was noticed."""
    rows = ["| taken away | file | line | noticed by |", "|---|---|---|---|"]
    places: dict[tuple[str, str, str], list[tuple[Mutant, Outcome]]] = {}
    for m, outcome in results:
        place = place_of(m.executed.source)
        places.setdefault((m.kind, place.file, place.text), []).append((m, outcome))
    for (kind, file, text), tried in sorted(places.items()):
        checks = sorted({outcome.noticed_by for _, outcome in tried if is_noticed([outcome])})
        is_judged = judged.why(kind, tried[0][0].executed.source) is not None
        what = ", ".join(checks) or ("none, judged" if is_judged else "none")
        escaped = text.replace("|", "\\|")
        rows.append(f"| {kind} | {file} | `{escaped}` | {what} |")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=200, help="of each kernel")
    parser.add_argument("--no-removals", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1], help="samples of as many each")
    parser.add_argument("--kernels", nargs="*", help="as: packed 8, plans")
    parser.add_argument("--out", type=Path, default=BUILD / "mutants.md")
    parser.add_argument("--removed", type=Path, default=BUILD / "removed.md")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    judged = Judged()
    tried: list[Mutant] = []
    same: set[tuple[str, str]] = set()  # removals that change nothing
    texts = program_ptx(CASES)
    used: Counter[str] = Counter()  # rules
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
        rules = Rules(lines)
        for seed in arguments.seeds:
            tried += make_mutants(lines, kernel, executed, arguments.mutants, seed, rules)
        used += rules.used
        if arguments.no_removals:
            continue
        for removal in make_removals(lines, kernel, executed):
            if rules.shows_same(removal.change.line, removal.change.text) is None:
                tried.append(removal)
            else:
                same.add(removal.place)
    same -= {m.place for m in tried}
    results = try_mutants(tried, judged, arguments.jobs)
    mutants = [(m, o) for m, o in results if m.kind == "mutant"]
    rows, share, worst = mutant_table(mutants, judged)
    rows += ["", "| not tried, as a rule shows it changes nothing | mutants |", "|---|---|"]
    rows += [f"| {rule} | {count} |" for rule, count in used.most_common()]
    removals = [(m, o) for m, o in results if m.kind != "mutant"]
    removed, left = removal_table(removals, same, judged)
    rows += ["", *removed]
    arguments.removed.write_text("\n".join(removed_rows(removals, judged)) + "\n")
    checks = Counter(outcome.noticed_by for _, outcome in results if is_noticed([outcome]))
    rows += ["", "| noticed by | changes |", "|---|---|"]
    rows += [f"| {check} | {count} |" for check, count in checks.most_common()]
    print("\n".join(rows))
    rows += ["", "| mutant that survives | source | was | became | why |", "|---|---|---|---|---|"]
    for m, outcome in mutants:
        if is_noticed([outcome]):
            continue
        why = judged.why_mutant(m.executed, m.change.kernel)
        if why is None and outcome.batch == SAME:
            why = "no batch that was tried has another value there"
        rows.append(
            f"| {short_name(m.change.kernel)} {m.executed.line} | {m.executed.source} | "
            f"`{m.before}` | `{m.change.text.strip() or 'nothing'}` | {why or '?'} |"
        )
    rows += ["", "| not noticed if taken away, not judged | source | line | of |"]
    rows.append("|---|---|---|---|")
    for kind, place in left:
        copies = [
            f"{short_name(m.change.kernel)} {m.change.line} `{m.before}`"
            for m, _ in results
            if m.place == (kind, place)
        ]
        rows.append(f"| {kind} | {place} | `{place_of(place).text}` | {'; '.join(copies)} |")
    arguments.out.write_text("\n".join(rows) + "\n")
    print(f"{share:.1%} of mutants noticed, {worst:.1%} of the worst kernel's; this fails below")
    print(f"{_LEAST_NOTICED:.0%} and {_LEAST_OF_A_KERNEL:.0%}")
    print(f"{len(left)} removals neither noticed nor judged: see {arguments.out}")
    return int(share < _LEAST_NOTICED or worst < _LEAST_OF_A_KERNEL or bool(left))


if __name__ == "__main__":
    sys.exit(main())
