"""`make gpu`: tests, compute-sanitizer and benchmarks on a GPU host; tables last.

Runs in the root of the repository, after `make build`, with benchmarks/ on PYTHONPATH.
Results are gathered in build/ and replace those in benchmarks/results/<gpu> when a benchmark
has measured something. Ends with 1 if a step failed, or if tests lack something to run.
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
from report import made

# compute-sanitizer says so under some virtual machines; CUDA itself works there.
_UNSUPPORTED = "Device not supported"
_BUILD = Path("build/release")
_RESULTS = Path("benchmarks/results")
_GATHERED = Path("build/gpu_results")


@dataclass(frozen=True)
class Step:
    """One command of the run, known in the table by its name."""

    name: str
    group: str
    command: Sequence[str | Path]
    modules: Sequence[str] = ()  # that the command imports and a GPU host may lack
    lack: str = ""  # what it means that the command is not there
    extras: Sequence[str] = ()  # modules without which the command does less

    def missing(self) -> str:
        """What the step needs and the host lacks; empty if it has all."""
        if shutil.which(self.command[0]) is None:
            return self.lack or f"{self.command[0]} is not on PATH"
        return _lacking(self.modules)

    def missing_extras(self) -> str:
        """What the step could use and the host lacks; empty if it has all."""
        return _lacking(self.extras)


@dataclass(frozen=True)
class Result:
    """How a step ended, with the last line that it printed."""

    name: str
    outcome: str
    seconds: float
    last_line: str
    is_error: bool = False


def _lacking(modules: Sequence[str]) -> str:
    lacking = [name for name in modules if not _is_installed(name)]
    return f"Python lacks {', '.join(lacking)}" if lacking else ""


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # nor its package
        return False


def _steps(data: Path, results: Path, pipeline_options: Sequence[str]) -> list[Step]:
    # Without Python, so that compute-sanitizer sees our kernels and little else.
    compare: list[str | Path] = [
        _BUILD / "l3_compare_on_gpu",
        *sorted(Path("tests").glob("*/**/*.l3")),
    ]
    sanitizer = ["compute-sanitizer", "--error-exitcode=1"]
    images = write_l3(data, _BUILD / "gpu_images")
    packed = [path for path in images if path.name.endswith(".packed.l3")]
    package = ("PIL", "imagecodecs", "netpbmfile", "nvidia.dali", "rich", "tifffile")
    testing = ("hypothesis", "pytest", "skimage", *package)
    drawing = ("imagecodecs", "matplotlib", "nvidia.dali", "rich")

    def timing(name: str, files: list[Path], *options: str, lack: str = "") -> Step:
        program, json_file = _BUILD / f"l3_bench_{name}", results / f"{name}.json"
        return Step(name, "benchmarks", [program, "--json", json_file, *options, *files], lack=lack)

    pipeline = ["benchmarks/pipeline.py", "--device=mixed", f"--data={data}", f"--out={results}"]
    pipeline += ["--minutes=6", *pipeline_options]
    return [
        Step("compare", "tests", compare),
        Step("tests", "tests", [sys.executable, "-m", "pytest", "-q"], testing),
        Step("memcheck", "tests", [*sanitizer, "--tool=memcheck", *compare]),
        Step("racecheck", "tests", [*sanitizer, "--tool=racecheck", *compare]),
        Step("initcheck", "tests", [*sanitizer, "--tool=initcheck", *compare]),
        Step("demo", "tests", [sys.executable, "examples/demo.py"], (*drawing, "PIL", "skimage")),
        timing("kernels", images),
        timing("paper_layout", packed),
        timing("nvcomp", packed, "--batch", "32", lack="nvcomp: not installed"),
        Step("pipeline", "benchmarks", [sys.executable, *pipeline], drawing, extras=["pynvml"]),
    ]


def _run(step: Step) -> Result:
    print(f"\n== {step.name}: {' '.join(map(str, step.command))}", flush=True)
    if missing := step.missing():
        return Result(step.name, "NOT RUN", 0.0, missing, is_error=step.group == "tests")
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
    if less := step.missing_extras():
        last_line = f"{less}; {last_line}"
    seconds = time.monotonic() - start
    return Result(step.name, outcome, seconds, last_line, is_error=outcome == "FAILED")


def _print_table(results: Sequence[Result]) -> None:
    print(f"\n{'step':<14}{'outcome':<10}{'seconds':>8}  last line")
    for r in results:
        print(f"{r.name:<14}{r.outcome:<10}{r.seconds:>8.1f}  {r.last_line}")


def _print_alarms(results: Sequence[Result]) -> None:
    """What nobody shall overlook."""
    print()
    for r in results:
        if r.outcome != "passed":
            print(f"!! {r.outcome}: {r.name}: {r.last_line}")


def _results_folder(gpu: tuple[str, str] | None) -> Path:
    name = gpu[0] if gpu else "no GPU"
    return _RESULTS / re.sub(r"\W+", "_", name).strip("_").lower()


def _begin_results(folder: Path, gpu: tuple[str, str] | None) -> None:
    """Empties the folder, so that it holds one run, and writes host.json."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    name, driver = gpu or ("no GPU", "none")
    host = {"made": made(), "gpu": name, "driver": driver, "date": date.today().isoformat()}
    (folder / "host.json").write_text(json.dumps(host, indent=1) + "\n")


def _publish(gathered: Path, folder: Path) -> None:
    """Replaces the results of an older run, once a benchmark has rows."""
    contents = (json.loads(path.read_text()) for path in gathered.glob("*.json"))
    if any(content.get("rows") for content in contents):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(gathered, folder, ignore=shutil.ignore_patterns("*.part"))


def main() -> int:
    """Runs the steps; returns 1 if one failed, or tests could not run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["tests", "benchmarks"])
    parser.add_argument("--data", type=Path, required=True, help="images of the benchmarks")
    parser.add_argument("--pipeline", default="", help="more options of pipeline.py, in one string")
    arguments = parser.parse_args()
    gpu = describe_gpu()
    folder = _results_folder(gpu)
    _begin_results(_GATHERED, gpu)
    steps = _steps(arguments.data, _GATHERED, arguments.pipeline.split())
    results = []
    for step in steps:
        if arguments.only in (None, step.group):
            results.append(_run(step))
            _publish(_GATHERED, folder)
    _print_table(results)
    if arguments.only != "tests":
        summary = [sys.executable, "benchmarks/gpu_summary.py", str(_GATHERED)]
        results.append(_run(Step("summary", "benchmarks", summary)))
        _publish(_GATHERED, folder)
    _print_alarms(results)
    return int(any(r.is_error for r in results))


if __name__ == "__main__":
    sys.exit(main())
