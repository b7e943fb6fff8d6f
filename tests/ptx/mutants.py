"""Changes instructions of the kernels' PTX, one at a time: does a run notice?

    python tests/ptx/mutants.py --count 200 --seed 1 --out build/simulate/mutants.md

Takes instructions that `make simulate` executed. A mutant is noticed if pixels or a Status differ,
or a check finds something. Those that survive are listed with their source line.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ptx_text import Executed, kernel_lines, program_ptx, read_counts, short_name
from simulate import BUILD, COMPARE, test_files

# The ways of tests/native/compare_engines.cc that launch a kernel, by their numbers.
WAYS = {
    f"{kind} {bits}{plans}": ways
    for kind, plans, ways in (
        ("packed", "", "0"),
        ("packed", ", plans", "1,2,3,13,14"),
        ("rans", "", "4"),
        ("rans", ", plans", "5,6,7,15,16,17"),
    )
    for bits in (8, 16)
}
LIMITS = {"L3_PTX_MAX_INSTRUCTIONS": "200000000"}
_SECONDS = 120
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
    kernel: str
    executed: Executed
    before: str
    after: str


def change(line: str, opcode: str, chance: random.Random) -> str | None:
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
    candidates = [one for one in executed if one.warps]
    chance.shuffle(candidates)
    mutants: list[Mutant] = []
    for one in candidates:
        if len(mutants) == count:
            break
        line = lines[one.line - 1]
        if one.opcode not in line or _LABEL.match(line):
            continue
        after = change(line, one.opcode, chance)
        if after is not None:
            mutants.append(Mutant(kernel, one, line.strip(), after))
    return mutants


def small_files(count: int) -> list[Path]:
    """Of all kinds, each small, so that a run takes a second."""
    files = sorted(Path("tests").glob("*/**/*.l3"), key=lambda path: path.stat().st_size)
    fit = [path for path in files if 100 < path.stat().st_size < 4000]
    return sorted(fit[:: max(1, len(fit) // count)])


def is_noticed(ptx: Path, kernel: str, files: Sequence[Path]) -> bool:
    """Whether a run with this PTX ends badly."""
    environment = os.environ | LIMITS | {"L3_PTX": str(ptx), "L3_WAYS": WAYS[short_name(kernel)]}
    try:
        result = subprocess.run(
            [COMPARE, *files], env=environment, capture_output=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return True
    return result.returncode != 0


def try_mutant(mutant: Mutant, lines: Sequence[str], files: Sequence[Path]) -> bool:
    """Whether it is noticed: by small files, or else by all of them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mutant.ptx")
        changed = list(lines)
        changed[mutant.executed.line - 1] = mutant.after
        path.write_text("\n".join(changed))
        few = is_noticed(path, mutant.kernel, files)
        return few or is_noticed(path, mutant.kernel, test_files())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="mutants of each kernel")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", type=int, default=60)
    parser.add_argument("--kernels", nargs="*", default=list(WAYS))
    parser.add_argument("--out", type=Path, default=BUILD / "mutants.md")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    texts = program_ptx(COMPARE)
    files = small_files(arguments.files)
    rows, survivors = [], []
    for kernel, executed in read_counts(BUILD / "counts.txt").items():
        name = short_name(kernel)
        if name not in arguments.kernels:
            continue
        (text,) = (text for text in texts if kernel in kernel_lines(text))
        lines = text.split("\n")
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as whole:
            whole.write("\n".join(lines))
            whole.flush()
            if is_noticed(Path(whole.name), kernel, files):
                raise SystemExit(f"{name}: the kernel fails as it is")
        mutants = make_mutants(lines, kernel, executed, arguments.count, arguments.seed)
        noticed = 0
        with ThreadPoolExecutor(arguments.jobs) as pool:
            results = pool.map(
                lambda mutant, lines=lines: try_mutant(mutant, lines, files), mutants
            )
            for number, (mutant, seen) in enumerate(zip(mutants, results, strict=True), 1):
                noticed += seen
                if not seen:
                    survivors.append(mutant)
                if number % 20 == 0:
                    print(f"{name}: {noticed} of {number} noticed", flush=True)
        rows.append(f"| {name} | {len(mutants)} | {noticed} | {noticed / len(mutants):.0%} |")
    table = ["| kernel | mutants | noticed | share |", "|---|---|---|---|", *rows, ""]
    table += ["| survivor | source | was | became |", "|---|---|---|---|"]
    table += [
        f"| {short_name(m.kernel)} {m.executed.line} | {m.executed.source} | `{m.before}` | "
        f"`{m.after.strip() or 'nothing'}` |"
        for m in survivors
    ]
    arguments.out.write_text("\n".join(table) + "\n")
    print("\n".join(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
