"""`make gpu`: tests, compute-sanitizer and benchmarks on a GPU host; tables last.

Runs in the root of the repository, after `make build-tests`, that folder on PYTHONPATH. Each step
has its time: one that takes longer is ended, and has failed. `--only STEP ...` runs some steps, and
keeps what others have measured with this commit on this GPU and day.
Results are gathered in build/ and replace those in benchmarks/results/<gpu> when a benchmark
has measured something. `--pack FOLDER` puts them there too, with what was printed, every few
seconds: of a run that is cut off this is left. Ends with 1 if a step failed, or if tests lack
something to run.
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
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from benchmarks.gpu.host import describe_gpu
from benchmarks.gpu.images import missing_sets, write_l3
from benchmarks.report import made

# compute-sanitizer says so under some virtual machines; CUDA itself works there.
_UNSUPPORTED = "Device not supported"
_BUILD = Path("build/release")
_SIMULATED = Path("build/simulate/digests.txt")
_RESULTS = Path("benchmarks/results")
_GATHERED = Path("build/gpu_results")
_LOG = "log.txt"
_DIGESTS = "digests.txt"  # of the GPU test, more than a MB
_UNPUBLISHED = shutil.ignore_patterns("*.part", _LOG, _DIGESTS)
_PACK_SECONDS = 10


@dataclass(frozen=True)
class Step:
    """One command of the run, known in the table by its name."""

    name: str
    group: str
    command: Sequence[str | Path]
    modules: Sequence[str] = ()  # that the command imports and a GPU host may lack
    lack: str = ""  # what it means that the command is not there
    extras: Sequence[str] = ()  # modules without which the command does less
    limit_s: float = 540

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


def _steps(
    data: Path, results: Path, pipeline_options: Sequence[str], training_options: Sequence[str] = ()
) -> list[Step]:
    # Without Python, so that compute-sanitizer sees our kernels and little else.
    compare: list[str | Path] = [
        _BUILD / "l3_compare_on_gpu",
        *sorted(Path("tests").glob("*/**/*.l3")),
    ]
    # With what `make simulate` has made of the same files, if it ran here.
    digests = results / _DIGESTS
    shown: list[str | Path] = ["env", f"L3_DIGESTS={digests}", *compare]
    simulated: list[str | Path] = [sys.executable, "tests/ptx/digests.py", digests, _SIMULATED]
    sanitizer = ["compute-sanitizer", "--error-exitcode=1"]
    images = write_l3(data, _BUILD / "gpu_images")
    packed = [path for path in images if path.name.endswith(".packed.l3")]
    package = ("PIL", "imagecodecs", "netpbmfile", "nvidia.dali", "tifffile")
    testing = ("hypothesis", "pytest", "skimage", *package)
    drawing = ("imagecodecs", "matplotlib", "nvidia.dali", "rich")

    # By several processes: a test waits for Python and DALI more than for the GPU. Of a run that is
    # cut off the names are left.
    pytest = [sys.executable, "-m", "pytest", "-v", "-m"]
    in_parallel = ["-n", str(os.cpu_count())] if _is_installed("xdist") else []

    def timing(name: str, files: list[Path], *options: str, lack: str = "") -> Step:
        program, json_file = _BUILD / f"l3_bench_{name}", results / f"{name}.json"
        return Step(name, "benchmarks", [program, "--json", json_file, *options, *files], lack=lack)

    pipeline = ["-m", "benchmarks.pipeline", "--device=mixed", f"--data={data}", f"--out={results}"]
    pipeline += ["--minutes=6"]
    training = ["-m", "benchmarks.gpu.training", f"--data={data}", f"--out={results}"]
    training += [f"--files={_BUILD / 'training'}", "--minutes=8"]
    # JPEG files, on 2 cores and on 16.
    of_jpeg = ["JPEG 95", "JPEG 95, nvJPEG hybrid", "JPEG 95, nvJPEG hardware"]
    of_jpeg += ["JPEG 95, DALI on the CPU", "L3 jpeg"]
    jpeg_pipeline = [*pipeline[:-1], "--name=pipeline_jpeg", "--sets", "jpeg", "photo/large"]
    jpeg_pipeline += ["--threads", "2", "16", "--pin", "--batch", "32", "--tasks", "whole", "crops"]
    jpeg_pipeline += ["--rounds", "1", "--files", "128", "--minutes=2", "--formats", *of_jpeg]
    jpeg_training = [*training, "--models", "resnet50", "--inputs", "JPEG 95", "L3 jpeg"]
    jpeg_training += ["--cores", "2", "8", "--minutes=4"]
    pipeline += pipeline_options
    training += training_options
    steps = [
        Step("compare", "tests", shown),
        *([Step("digests", "tests", simulated)] if _SIMULATED.exists() else []),
        Step(
            "pytest",
            "tests",
            [*pytest, "cuda and not alone", *in_parallel],
            testing,
            extras=["xdist"],
        ),
        Step("pytest_alone", "tests", [*pytest, "cuda and alone"], testing),
        Step("memcheck", "tests", [*sanitizer, "--tool=memcheck", *compare]),
        Step("racecheck", "tests", [*sanitizer, "--tool=racecheck", *compare]),
        Step("initcheck", "tests", [*sanitizer, "--tool=initcheck", *compare]),
        Step("synccheck", "tests", [*sanitizer, "--tool=synccheck", *compare]),
        Step("demo", "tests", [sys.executable, "examples/demo.py"], (*drawing, "PIL", "skimage")),
        timing("kernels", images),
        timing("nvcomp", packed, "--batch", "32", lack="nvcomp: not installed"),
        timing("nvcomp6", packed, "--batch", "32", lack="nvcomp 6: `make gpu-peers` unpacks it"),
        Step("pipeline", "benchmarks", [sys.executable, *pipeline], drawing, extras=["pynvml"]),
        Step("jpeg", "jpegs", [sys.executable, *jpeg_pipeline], drawing, extras=["pynvml"]),
        Step(
            "jpeg_training",
            "jpegs",
            [sys.executable, *jpeg_training],
            (*drawing, "torch", "torchvision"),
            extras=["pynvml"],
        ),
        Step(
            "training",
            "benchmarks",
            [sys.executable, *training],
            (*drawing, "torch"),
            extras=["torchvision", "transformers", "pynvml"],
        ),
    ]
    limits = {"compare": 120, "kernels": 180, "nvcomp": 180, "nvcomp6": 180}
    return [replace(step, limit_s=limits.get(step.name, step.limit_s)) for step in steps]


def _run(step: Step) -> Result:
    command = " ".join(map(str, step.command))
    _say(f"\n== {step.name}, {step.limit_s:g} s at most: {command}"[:2000])
    if missing := step.missing():
        return Result(step.name, "NOT RUN", 0.0, missing, is_error=step.group == "tests")
    library = str(_BUILD / "libl3_testing.so")
    environment = os.environ | {"L3_REQUIRE_CUDA": "1", "L3_TESTING_LIBRARY": library}
    start = time.monotonic()
    process = subprocess.Popen(
        step.command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    ended = threading.Event()

    def end() -> None:
        ended.set()
        process.kill()

    timer = threading.Timer(step.limit_s, end)
    timer.start()
    assert process.stdout is not None
    last_line = ""
    unsupported = False
    for line in process.stdout:
        _say(line.rstrip("\n"))
        last_line = line.strip() or last_line
        unsupported = unsupported or _UNSUPPORTED in line
    outcome = "passed" if process.wait() == 0 else "NOT RUN" if unsupported else "FAILED"
    timer.cancel()
    if ended.is_set():
        outcome, last_line = "FAILED", f"ended after {step.limit_s:g} s; {last_line}"
    if less := step.missing_extras():
        last_line = f"{less}; {last_line}"
    seconds = time.monotonic() - start
    return Result(step.name, outcome, seconds, last_line, is_error=outcome == "FAILED")


def _say(text: str) -> None:
    """Prints it, and adds it to the log."""
    print(text, flush=True)
    with (_GATHERED / _LOG).open("a") as log:
        log.write(text + "\n")


def _print_table(results: Sequence[Result]) -> None:
    _say(f"\n{'step':<14}{'outcome':<10}{'seconds':>8}  last line")
    for r in results:
        _say(f"{r.name:<14}{r.outcome:<10}{r.seconds:>8.1f}  {r.last_line}")


def _print_alarms(results: Sequence[Result], missing: Sequence[str]) -> None:
    """Failures and missing parts, where they cannot be overlooked."""
    _say("")
    for r in results:
        if r.outcome != "passed":
            _say(f"!! {r.outcome}: {r.name}: {r.last_line}")
    for line in missing:
        _say(f"!! {line}")


def _results_folder(gpu: tuple[str, str] | None) -> Path:
    name = gpu[0] if gpu else "no GPU"
    return _RESULTS / re.sub(r"\W+", "_", name).strip("_").lower()


def _begin_results(folder: Path, gpu: tuple[str, str] | None, goes_on: bool = False) -> None:
    """Writes host.json to an empty folder, so that it holds one run; one that goes on keeps it."""
    name, driver = gpu or ("no GPU", "none")
    host = {"made": made(), "gpu": name, "driver": driver, "date": date.today().isoformat()}
    path = folder / "host.json"
    if goes_on and path.exists() and json.loads(path.read_text()) == host:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path.write_text(json.dumps(host, indent=1) + "\n")


def _publish(gathered: Path, folder: Path) -> None:
    """Replaces the results of an older run, once a benchmark has rows."""
    contents = (json.loads(path.read_text()) for path in gathered.glob("*.json"))
    if any(content.get("rows") for content in contents):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(gathered, folder, ignore=_UNPUBLISHED)


def _pack(gathered: Path, folder: Path) -> None:
    """Writes all that there is so far to gpu_results.tar.gz, which is whole at any time."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / "gpu_results.tar.gz.part"
    with tarfile.open(part, "w:gz") as tar:
        for path in sorted(gathered.iterdir()):
            try:
                tar.add(path, arcname=path.name)
            except FileNotFoundError:  # a .part that got its name
                continue
    part.replace(folder / "gpu_results.tar.gz")


@contextmanager
def _repeating(work: Callable[[], None], seconds: float) -> Iterator[None]:
    """Works in the background every few seconds, and once more at the end."""
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(seconds):
            work()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        work()


def _choose(steps: Sequence[Step], only: Sequence[str] | None) -> list[Step]:
    """Those of these names and groups; without any, all."""
    names = {step.name for step in steps} | {step.group for step in steps} | {"summary"}
    if unknown := [name for name in only or () if name not in names]:
        raise SystemExit(f"no step {', '.join(unknown)}; there are {', '.join(sorted(names))}")
    return [step for step in steps if only is None or {step.name, step.group} & set(only)]


def main() -> int:
    """Runs the steps; returns 1 if one failed, or tests could not run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="STEP", help="steps; or tests, benchmarks")
    parser.add_argument("--data", type=Path, required=True, help="images of the benchmarks")
    parser.add_argument("--pack", type=Path, help="folder for what there is so far")
    parser.add_argument("--pipeline", default="", help="more options of pipeline.py, in one string")
    parser.add_argument("--training", default="", help="the same of training.py")
    arguments = parser.parse_args()
    gpu = describe_gpu()
    _begin_results(_GATHERED, gpu, goes_on=arguments.only is not None)
    options = arguments.pipeline.split(), arguments.training.split()
    steps = _choose(_steps(arguments.data, _GATHERED, *options), arguments.only)
    if arguments.pack is None:
        return _run_all(steps, arguments, _results_folder(gpu))
    with _repeating(lambda: _pack(_GATHERED, arguments.pack), _PACK_SECONDS):
        return _run_all(steps, arguments, _results_folder(gpu))


def _run_all(steps: Sequence[Step], arguments: argparse.Namespace, folder: Path) -> int:
    results = []
    for step in steps:
        results.append(_run(step))
        _publish(_GATHERED, folder)
    _print_table(results)
    measures = any(step.group != "tests" for step in steps)
    if measures or "summary" in (arguments.only or ()):
        summary = [sys.executable, "-m", "benchmarks.gpu.summary", str(_GATHERED)]
        results.append(_run(Step("summary", "benchmarks", summary)))
        _publish(_GATHERED, folder)
    missing = missing_sets(arguments.data) if measures else []
    if any(step.name == "compare" for step in steps) and not _SIMULATED.exists():
        missing.append(f"{_SIMULATED} is missing, so nothing was compared with the PTX machine")
    _print_alarms(results, missing)
    return int(any(r.is_error for r in results))


if __name__ == "__main__":
    sys.exit(main())
