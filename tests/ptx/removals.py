"""Takes away one wait of the engine at a time: does the test of streams fail?

    python tests/ptx/removals.py --out build/simulate/removals.md

Barriers, checks and masks of kernels are taken away by mutants.py.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from simulate import BUILD, STREAMS, Run, execute, failure_runs, usual_runs

_ENGINE = Path("src/cuda/engine")
_FAILURES = 9  # one of so many is tried
# Statements of the engine that order work. Each occurrence is taken away by itself.
WAITS = {
    "batch_decoder.cc": re.compile(
        r"^ *[\w.>\[\]-]*(?:uploaded|done)->(?:Synchronize|Record|MakeWait)\([^;]*\);\n"
        r"|^ *if \(any_cached\) cache_->WaitForFills\(stream\);\n",
        re.MULTILINE,
    ),
    "encoded_cache.cc": re.compile(r"^ *filled_->(?:Record|MakeWait)\(stream\);\n", re.MULTILINE),
}


@dataclass(frozen=True)
class Removal:
    file: str
    line: int
    statement: str
    text: str  # of the file, without it


def removals() -> Iterator[Removal]:
    for file, pattern in WAITS.items():
        text = (_ENGINE / file).read_text()
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            # An empty statement in its place: an if before it keeps its own.
            without = text[: match.start()] + ";\n" + text[match.end() :]
            yield Removal(file, line, match[0].strip(), without)


def command_of(target: str) -> str:
    """What makes a target, as ninja would."""
    listed = subprocess.run(
        ["ninja", "-C", BUILD, "-t", "commands", "-s", target],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    return listed.split("&&")[1] if "&&" in listed else listed


def build_without(removal: Removal) -> Path:
    """The test of streams, with another text of this file."""
    folder = (BUILD / "removals" / f"{removal.file}_{removal.line}").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    source, program = folder / removal.file, folder / "streams"
    source.write_text(removal.text)
    command: list[str | Path] = ["g++", "-std=c++17", "-O0", "-w", "-I", "src", "-c", source]
    subprocess.run([*command, "-o", folder / "changed.o"], check=True)
    link = command_of(STREAMS.name).split()
    link[link.index("-o") + 1] = str(program)
    # Before the library, whose own object is then not taken.
    link.insert(link.index("-o"), str(folder / "changed.o"))
    subprocess.run(link, cwd=BUILD, check=True)
    return program


@cache
def runs() -> list[Run]:
    """Late streams see most. Failures see the waits where a call has failed: some of them do."""
    usual = sorted(usual_runs(), key=lambda run: run.name != "streams late")
    return [*usual[:2], *failure_runs()[::_FAILURES], *usual[2:]]


def failing_run(removal: Removal) -> str:
    """The first run that fails without it; empty if none does."""
    program = build_without(removal)
    for run in runs():
        if what := execute(Run(run.name, [program, *run.command[1:]], run.environment)):
            found = re.search(
                r"(?:: |l3_cudart: )([^:\n]*(?:released|changed|order|differ)[^\n]*)", what
            )
            return f"{run.name}{': ' + found[1][:90] if found else ''}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=BUILD / "removals.md")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    found = list(removals())
    rows = ["| taken away | the run that fails |", "|---|---|"]
    missed = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for removal, run in zip(found, pool.map(failing_run, found), strict=True):
            rows.append(
                f"| {removal.file}:{removal.line} `{removal.statement}` | {run or 'NONE'} |"
            )
            print(rows[-1], flush=True)
            missed += not run
    rows += ["", f"{len(found)} taken away, {missed} not noticed."]
    arguments.out.write_text("\n".join(rows) + "\n")
    print(rows[-1])
    return int(missed != 0)


if __name__ == "__main__":
    sys.exit(main())
