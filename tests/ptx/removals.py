"""Takes away one wait, barrier, check or mask at a time: does a run fail?

    python tests/ptx/removals.py --out build/simulate/removals.md

Waits are taken from the source of the engine, the rest from the PTX of kernels: barriers, branches
and masks that `make simulate` executed, some of each kernel by a seed.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mutants import Mutant, small_files, try_mutant
from ptx_text import Executed, kernel_lines, program_ptx, read_counts, short_name
from simulate import BUILD, STREAMS, Run, calls_of, execute, stream_files, usual_runs

_ENGINE = Path("src/cuda/engine")
# Statements of the engine that order work. Each occurrence is taken away by itself.
WAITS = {
    "batch_decoder.cc": re.compile(
        r"^ *[\w.>\[\]-]*(?:uploaded|done)->(?:Synchronize|Record|MakeWait)\([^;]*\);\n"
        r"|^ *if \(any_cached\) cache_->WaitForFills\(stream\);\n",
        re.MULTILINE,
    ),
    "encoded_cache.cc": re.compile(r"^ *filled_->(?:Record|MakeWait)\(stream\);\n", re.MULTILINE),
}
_BARRIERS, _BRANCHES, _MASKS = 3, 3, 2  # of each kernel


def engine_removals() -> Iterator[tuple[str, Path, str]]:
    """A name, the file and its text without the statement."""
    for name, pattern in WAITS.items():
        path = _ENGINE / name
        text = path.read_text()
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            # An empty statement in its place: an if before it keeps its own.
            without = text[: match.start()] + ";\n" + text[match.end() :]
            yield f"{name}:{line} `{match[0].strip()}`", path, without


def link_command() -> list[str]:
    """What links the test of streams, but for `ninja`'s own words."""
    listed = subprocess.run(
        ["ninja", "-C", BUILD, "-t", "commands", STREAMS.name],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()[-1]
    command = listed.split("&&")[1] if "&&" in listed else listed
    return command.split()


def without_wait(path: Path, text: str, folder: Path) -> Path:
    """The test of streams, with another text of this file."""
    source, program = folder / path.name, folder / "streams"
    source.write_text(text)
    compile_it: list[str | Path] = [
        "g++",
        "-std=c++17",
        "-O1",
        "-Wno-empty-body",
        "-I",
        "src",
        "-c",
        source,
    ]
    subprocess.run([*compile_it, "-o", folder / "changed.o"], check=True)
    link = link_command()
    link[link.index("-o") + 1] = str(program)
    # Before the library, whose own object is then not taken.
    link.insert(link.index("-o"), str(folder / "changed.o"))
    subprocess.run(link, cwd=BUILD, check=True)
    return program


def failing_run(program: Path) -> str:
    """The first run of streams that fails with this program; empty if none does."""
    runs = [Run(r.name, [program, *r.command[1:]], r.environment) for r in usual_runs()]
    streams = Run("late", [program, *stream_files()], {"L3_CUDART_STREAMS": "late"})
    for run in runs:
        if execute(run):
            return run.name
    # Waits for what goes on where a call has failed.
    for name, count in sorted(calls_of(streams), key=lambda call: call[1]):
        for i in range(1, count + 1):
            failure = {"L3_CUDART_FAIL": f"{name} {i}"}
            if execute(Run("", streams.command, streams.environment | failure)):
                return f"{name} {i} fails"
    return ""


def try_wait(removal: tuple[str, Path, str]) -> tuple[str, str]:
    name, path, text = removal
    with tempfile.TemporaryDirectory() as folder:
        return name, failing_run(without_wait(path, text, Path(folder)))


def kernel_removals(
    lines: Sequence[str], kernel: str, executed: Sequence[Executed], seed: int
) -> list[Mutant]:
    """Some barriers, branches and masks of a kernel."""
    chance = random.Random(f"{short_name(kernel)} {seed}")
    ran = [one for one in executed if one.warps and one.opcode in lines[one.line - 1]]
    groups = [
        ([e for e in ran if e.opcode.startswith("bar.")], _BARRIERS),
        ([e for e in ran if e.opcode == "bra" and "@" in lines[e.line - 1]], _BRANCHES),
        ([e for e in ran if re.search(r"and\.b32.*, -?\d+;", lines[e.line - 1])], _MASKS),
    ]
    removals = []
    for group, count in groups:
        for one in chance.sample(group, min(count, len(group))):
            line = lines[one.line - 1]
            is_mask = one.opcode.startswith("and")
            after = re.sub(r"and\.b32(.*), -?\d+;", r"mov.b32\1;", line) if is_mask else ""
            removals.append(Mutant(kernel, one, line.strip(), after))
    return removals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["engine", "kernels"])
    parser.add_argument("--out", type=Path, default=BUILD / "removals.md")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    rows = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        if arguments.only != "kernels":
            for name, run in pool.map(try_wait, engine_removals()):
                rows.append(f"| engine | {name} | {run or 'NOT NOTICED'} |")
                print(rows[-1], flush=True)
        if arguments.only != "engine":
            texts = program_ptx(STREAMS)
            files = small_files(60)
            for kernel, executed in read_counts(BUILD / "counts.txt").items():
                (text,) = (text for text in texts if kernel in kernel_lines(text))
                lines = text.split("\n")
                removals = kernel_removals(lines, kernel, executed, arguments.seed)
                tried = pool.map(lambda one, lines=lines: try_mutant(one, lines, files), removals)
                for one, seen in zip(removals, tried, strict=True):
                    what = f"`{one.before}`, {one.executed.source}"
                    outcome = "compare" if seen else "NOT NOTICED"
                    rows.append(f"| {short_name(kernel)} | {what} | {outcome} |")
                    print(rows[-1], flush=True)
    head = ["| where | taken away | the run that fails |", "|---|---|---|"]
    missed = sum("NOT NOTICED" in row for row in rows)
    rows.append(f"\n{len(rows)} tried, {missed} not noticed.")
    arguments.out.write_text("\n".join([*head, *rows]) + "\n")
    print(rows[-1])
    return int(missed != 0)


if __name__ == "__main__":
    sys.exit(main())
