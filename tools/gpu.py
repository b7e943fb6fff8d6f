"""`make gpu`: tests, compute-sanitizer and benchmarks on a GPU host; one table last.

Runs in the root of the repository, after `make build`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import l3dali

# compute-sanitizer says so under some virtual machines; CUDA itself works there.
_UNSUPPORTED = "Device not supported"
_BUILD = Path("build/release")
_RESULTS = Path("benchmarks/results")


@dataclass(frozen=True)
class Step:
    """One command of the run, known in the table by its name."""

    name: str
    group: str
    command: Sequence[str | Path]
    modules: Sequence[str] = ()  # that the command imports and a GPU host may lack

    def missing(self) -> str:
        """What the step needs and the host lacks; empty if it has all."""
        if shutil.which(self.command[0]) is None:
            return f"{self.command[0]} is not on PATH"
        lacking = [name for name in self.modules if importlib.util.find_spec(name) is None]
        return f"Python lacks {', '.join(lacking)}" if lacking else ""


@dataclass(frozen=True)
class Result:
    """How a step ended, with the last line that it printed."""

    name: str
    outcome: str
    seconds: float
    last_line: str


def _benchmark_files(data: Path) -> list[Path]:
    """The .l3 files in `data`; without any, one of a noisy gradient in each mode."""
    files = sorted(data.rglob("*.l3"))
    if files:
        return files
    rows, columns = np.mgrid[:1024, :2048] >> 4
    noise = np.random.default_rng(1).integers(0, 8, (1024, 2048, 3))
    pixels = (np.stack([rows, columns, rows + columns], axis=-1) + noise).astype(np.uint8)
    for mode in l3dali.MODES:
        files.append(_BUILD / f"noisy_gradient_{mode}.l3")
        files[-1].write_bytes(l3dali.encode(pixels, mode=mode))
    return files


def _steps(data: Path) -> list[Step]:
    pytest = [sys.executable, "-m", "pytest", "-q"]
    # Without Python, so that compute-sanitizer sees our kernels and little else.
    compare: list[str | Path] = [
        _BUILD / "l3_compare_on_gpu",
        *sorted(Path("tests").glob("*/**/*.l3")),
    ]
    sanitizer = ["compute-sanitizer", "--error-exitcode=1"]
    kernels: list[str | Path] = [_BUILD / "l3_bench_kernels", "--json", _RESULTS / "kernels.json"]
    pipeline = [sys.executable, "benchmarks/pipeline.py", "--device=mixed", f"--data={data}"]
    drawing = ("imagecodecs", "matplotlib", "rich")
    return [
        Step("compare", "tests", compare),
        Step("tests", "tests", pytest),
        Step("memcheck", "tests", [*sanitizer, "--tool=memcheck", *compare]),
        Step("racecheck", "tests", [*sanitizer, "--tool=racecheck", *compare]),
        Step("initcheck", "tests", [*sanitizer, "--tool=initcheck", *compare]),
        Step("demo", "tests", [sys.executable, "examples/demo.py"], (*drawing, "skimage")),
        Step("kernels", "benchmarks", [*kernels, *_benchmark_files(data)]),
        Step("pipeline", "benchmarks", pipeline, drawing),
    ]


def _run(step: Step) -> Result:
    print(f"\n== {step.name}: {' '.join(map(str, step.command))}", flush=True)
    if missing := step.missing():
        return Result(step.name, "NOT RUN", 0.0, missing)
    library = str(_BUILD / "libl3_testing.so")
    environment = os.environ | {"L3_REQUIRE_CUDA": "1", "L3_TESTING_LIBRARY": library}
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
    parser.add_argument("--data", type=Path, required=True, help="images of the benchmarks")
    arguments = parser.parse_args()
    steps = [s for s in _steps(arguments.data) if arguments.only in (None, s.group)]
    results = [_run(step) for step in steps]
    print(f"\n{'step':<12}{'outcome':<10}{'seconds':>8}  last line")
    for r in results:
        print(f"{r.name:<12}{r.outcome:<10}{r.seconds:>8.1f}  {r.last_line}")
    return int(any(r.outcome == "FAILED" for r in results))


if __name__ == "__main__":
    sys.exit(main())
