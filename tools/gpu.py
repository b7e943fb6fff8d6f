"""`make gpu`: tests, compute-sanitizer and benchmarks on a GPU host; tables last.

Runs in the root of the repository, after `make build`, with benchmarks/ on PYTHONPATH.
Results go to benchmarks/results/<gpu>.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from gpu_host import describe_gpu
from gpu_images import write_l3

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
    lack: str = ""  # what it means that the command is not there

    def missing(self) -> str:
        """What the step needs and the host lacks; empty if it has all."""
        if shutil.which(self.command[0]) is None:
            return self.lack or f"{self.command[0]} is not on PATH"
        lacking = [name for name in self.modules if importlib.util.find_spec(name) is None]
        return f"Python lacks {', '.join(lacking)}" if lacking else ""


@dataclass(frozen=True)
class Result:
    """How a step ended, with the last line that it printed."""

    name: str
    outcome: str
    seconds: float
    last_line: str


def _steps(data: Path, results: Path, pipeline_options: Sequence[str]) -> list[Step]:
    # Without Python, so that compute-sanitizer sees our kernels and little else.
    compare: list[str | Path] = [
        _BUILD / "l3_compare_on_gpu",
        *sorted(Path("tests").glob("*/**/*.l3")),
    ]
    sanitizer = ["compute-sanitizer", "--error-exitcode=1"]
    images = write_l3(data, _BUILD / "gpu_images")
    packed = [path for path in images if path.name.endswith(".packed.l3")]
    drawing = ("imagecodecs", "matplotlib", "rich")

    def timing(name: str, files: list[Path], *options: str, lack: str = "") -> Step:
        program, json_file = _BUILD / f"l3_bench_{name}", results / f"{name}.json"
        return Step(name, "benchmarks", [program, "--json", json_file, *options, *files], lack=lack)

    pipeline = ["benchmarks/pipeline.py", "--device=mixed", f"--data={data}", f"--out={results}"]
    pipeline += pipeline_options
    return [
        Step("compare", "tests", compare),
        Step("tests", "tests", [sys.executable, "-m", "pytest", "-q"]),
        Step("memcheck", "tests", [*sanitizer, "--tool=memcheck", *compare]),
        Step("racecheck", "tests", [*sanitizer, "--tool=racecheck", *compare]),
        Step("initcheck", "tests", [*sanitizer, "--tool=initcheck", *compare]),
        Step("demo", "tests", [sys.executable, "examples/demo.py"], (*drawing, "skimage")),
        timing("kernels", images),
        timing("paper_layout", packed),
        timing("nvcomp", packed, "--batch", "32", lack="nvcomp: not installed"),
        Step("pipeline", "benchmarks", [sys.executable, *pipeline], drawing),
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


def _results_folder(gpu: tuple[str, str] | None) -> Path:
    name = gpu[0] if gpu else "no GPU"
    return _RESULTS / re.sub(r"\W+", "_", name).strip("_").lower()


def _begin_results(folder: Path, gpu: tuple[str, str]) -> None:
    """Empties the folder, so that it holds one run, and writes host.json."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    host = {"gpu": gpu[0], "driver": gpu[1], "date": date.today().isoformat()}
    (folder / "host.json").write_text(json.dumps(host, indent=1) + "\n")


def main() -> int:
    """Runs the steps; returns 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["tests", "benchmarks"])
    parser.add_argument("--data", type=Path, required=True, help="images of the benchmarks")
    parser.add_argument("--pipeline", default="", help="more options of pipeline.py, in one string")
    arguments = parser.parse_args()
    gpu = describe_gpu()
    folder = _results_folder(gpu)
    if gpu and arguments.only != "tests":
        _begin_results(folder, gpu)
    steps = _steps(arguments.data, folder, arguments.pipeline.split())
    steps = [step for step in steps if arguments.only in (None, step.group)]
    results = [_run(step) for step in steps]
    print(f"\n{'step':<14}{'outcome':<10}{'seconds':>8}  last line")
    for r in results:
        print(f"{r.name:<14}{r.outcome:<10}{r.seconds:>8.1f}  {r.last_line}")
    if arguments.only != "tests":
        print(flush=True)
        summary: list[str | Path] = [sys.executable, "benchmarks/gpu_summary.py", folder]
        step = Step("summary", "benchmarks", summary, ("matplotlib", "rich"))
        if missing := step.missing():
            print(f"no summary: {missing}")
        else:
            subprocess.run(summary, check=False)
    return int(any(r.outcome == "FAILED" for r in results))


if __name__ == "__main__":
    sys.exit(main())
