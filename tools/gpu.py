"""`make gpu`: tests, compute-sanitizer and benchmarks on a GPU host; one table last."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# compute-sanitizer says so under some virtual machines; CUDA itself works there.
_UNSUPPORTED = "Device not supported"
_TESTING_LIBRARY = "build/release/libl3_testing.so"


@dataclass(frozen=True)
class Step:
    """One command of the run, known in the table by its name."""

    name: str
    group: str
    command: Sequence[str]


@dataclass(frozen=True)
class Result:
    """How a step ended, with the last line that it printed."""

    name: str
    outcome: str
    seconds: float
    last_line: str


def _steps() -> list[Step]:
    pytest = [sys.executable, "-m", "pytest", "-q"]
    kernels = [*pytest, "-m", "cuda and not slow"]
    sanitizer = ["compute-sanitizer", "--error-exitcode=1", "--target-processes=all"]
    return [
        Step("tests", "tests", pytest),
        Step("memcheck", "tests", [*sanitizer, "--tool=memcheck", *kernels]),
        Step("racecheck", "tests", [*sanitizer, "--tool=racecheck", *kernels]),
        Step("pipeline", "benchmarks", [sys.executable, "benchmarks/pipeline.py"]),
    ]


def _run(step: Step) -> Result:
    print(f"\n== {step.name}: {' '.join(step.command)}", flush=True)
    if shutil.which(step.command[0]) is None:
        return Result(step.name, "NOT RUN", 0.0, f"{step.command[0]} is not on PATH")
    environment = os.environ | {"L3_REQUIRE_CUDA": "1", "L3_TESTING_LIBRARY": _TESTING_LIBRARY}
    start = time.monotonic()
    process = subprocess.Popen(
        step.command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    last_line = ""
    unsupported = False
    for line in process.stdout:
        print(line, end="", flush=True)
        last_line = line.strip() or last_line
        unsupported = unsupported or _UNSUPPORTED in line
    outcome = "passed" if process.wait() == 0 else "NOT RUN" if unsupported else "FAILED"
    return Result(step.name, outcome, time.monotonic() - start, last_line)


def main() -> int:
    """Runs the steps; returns 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["tests", "benchmarks"])
    only = parser.parse_args().only
    os.chdir(Path(__file__).parents[1])
    results = [_run(step) for step in _steps() if only in (None, step.group)]
    print(f"\n{'step':<12}{'outcome':<10}{'seconds':>8}  last line")
    for r in results:
        print(f"{r.name:<12}{r.outcome:<10}{r.seconds:>8.1f}  {r.last_line}")
    return int(any(r.outcome == "FAILED" for r in results))


if __name__ == "__main__":
    sys.exit(main())
