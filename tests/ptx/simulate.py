"""`make simulate`: the project's GPU test on a machine without a GPU.

nvcc compiles the kernels to PTX of one architecture; the PTX machine runs it under the real host
code, over a stand-in for libcudart. `--all` is `make simulate-all`: every architecture, other
orders of lanes and streams, and failures of every call.
Ends with 1 if a run finds anything. Without nvcc it prints that it is skipped.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.append("build_backend")

from l3_build_backend import _cuda_wheel_root, _has_usable_nvcc

BUILD = Path("build/simulate")
DIGESTS = BUILD / "digests.txt"
ARCH = "80"
# With 90 and the newest: what the wheels have kernels for, and where PTX differs most.
OTHER_ARCHS = ("75", "90")
COMPARE = BUILD / "l3_simulated_compare"
STREAMS = BUILD / "l3_simulated_streams"
CASES = BUILD / "l3_simulated_cases"
BATCH = BUILD / "l3_simulated_batch"
OPERATOR = BUILD / "l3_simulated_operator"
NVIMGCODEC = BUILD / "l3_simulated_nvimgcodec"
SITE = BUILD / "site"  # laid out as site-packages
EXTENSION = SITE / "nvidia/nvimgcodec/extensions/l3_simulated_extension"
# Small batches: of `make simulate`, of `make simulate-all`, and with lanes by chance, by each seed.
FEW_CASES, ALL_CASES, CASES_BY_CHANCE = 300, 24000, 500
SHARES = 8
# Of the warps of a launch: no batch comes near, and a kernel that never ends does. Large pages, as
# half of a batch's time is faults of small ones.
CASE_LIMITS = {
    "L3_PTX_MAX_INSTRUCTIONS": "10000000",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
LIMIT_BY_CHANCE = {"L3_PTX_MAX_INSTRUCTIONS": "100000000"}  # lanes that part run one by one
_TARGETS = (COMPARE.name, STREAMS.name, CASES.name, BATCH.name, OPERATOR.name)
_MODULE = "l3_simulated_module"  # of Python
# Tests of the emulated GPU that CUDA's device is not for.
NOT_SIMULATED = {
    "destruction_waits_for_its_own_work": "copies to pageable memory are queued",
    "hundred_megapixels": "is long",
    "memory_of_the_framework": "kernels use memory that CUDA does not know",
    "windows_of_one_file": "tiles are counted",
}
# And what else some of them do that the machine would report.
_CHECKS = {
    "cache_keeps_no_damage": "undefined",  # a cache is filled beside hits: tests/ptx/README.md
    "windows_of_pinned_files": "order",  # bytes between windows are read
}


@dataclass(frozen=True)
class Run:
    """A command that must end well, under these variables."""

    name: str
    command: Sequence[str | Path]
    environment: dict[str, str] = field(default_factory=dict)
    shows: bool = False


def find_nvcc() -> Path | None:
    """The nvcc that the build takes: on PATH or in CUDACXX, or of the wheels."""
    if _has_usable_nvcc():
        return Path(os.environ.get("CUDACXX") or str(shutil.which("nvcc")))
    root = _cuda_wheel_root("bin/nvcc")
    return root / "bin/nvcc" if root else None


def adapters_to_build(everything: bool) -> list[str]:
    """Targets of adapters, of those whose packages are here."""
    found = [BATCH.name] if everything else []
    nvidia = importlib.util.find_spec("nvidia")
    folders = (nvidia and nvidia.submodule_search_locations) or ()
    has_header = any(Path(f, "nvimgcodec/include/nvimgcodec.h").exists() for f in folders)
    has_python = Path(sysconfig.get_path("include"), "Python.h").exists()
    if has_header and has_python:  # CMake asks for both
        found += [EXTENSION.name, "l3_simulated_library"]
        found += [NVIMGCODEC.name] if everything else []
    else:
        print("SKIPPED: the GPU decoder of nvImageCodec, whose header or Python's is not installed")
    if everything and has_python and importlib.util.find_spec("pybind11"):
        found.append(_MODULE)
    elif everything:
        print("SKIPPED: l3dali._cuda, which needs pybind11 and Python's headers")
    return found


def build(nvcc: Path, everything: bool = False) -> None:
    """Builds the programs, with PTX of one architecture in them."""
    adapters = adapters_to_build(everything)
    options = ["-DL3_CUDA=ON", f"-DL3_CUDA_ARCHS={ARCH}-virtual"]
    options += ["-DL3_SIMULATE=ON", "-DL3_DALI=OFF", "-DL3_BUILD_TESTS=ON"]
    options += [f"-DL3_NVIMGCODEC={'ON' if EXTENSION.name in adapters else 'OFF'}"]
    options += [f"-DL3_BUILD_PYTHON={'ON' if _MODULE in adapters else 'OFF'}"]
    options += [f"-DPython_EXECUTABLE={sys.executable}"]
    if _MODULE in adapters:
        options.append(f"-Dpybind11_DIR={importlib.import_module('pybind11').get_cmake_dir()}")
    if not _has_usable_nvcc():
        options.append(f"-DL3_CUDA_ROOT={nvcc.parent.parent}")
    subprocess.run(["cmake", "-S", ".", "-B", BUILD, "-G", "Ninja", *options], check=True)
    # The kernels take longest: first, so that the rest is done meanwhile.
    targets = [*_TARGETS, *adapters]
    subprocess.run(["cmake", "--build", BUILD, "--parallel", "--target", *targets], check=True)


def test_files() -> list[Path]:
    """What `make gpu` compares, in its order."""
    return sorted(Path("tests").glob("*/**/*.l3"))


def stream_files() -> list[Path]:
    """Two files of packed tiles and two of rans tiles, small, for runs of which there are many."""
    names = [
        "int8_1_bits_shift_7_packed",
        "int16_1_bits_shift_0_packed",
        "rans_gradient_weight_63",
        "rans_size_33x9",
    ]
    return [Path(f"tests/golden/v1/{name}.l3") for name in names]


def execute(run: Run) -> str:
    """Runs it. Returns what is wrong, empty if nothing is."""
    environment = os.environ | run.environment
    if run.shows:
        result = subprocess.run(run.command, env=environment, check=False)
        output = ""
    else:
        captured = subprocess.run(
            run.command, env=environment, check=False, capture_output=True, text=True
        )
        result, output = captured, (captured.stdout + captured.stderr)[-3000:]  # type: ignore[assignment]
    if result.returncode == 0:
        return ""
    return f"{run.name}: ended with {result.returncode}\n{output}"


def execute_all(runs: Sequence[Run], jobs: int) -> list[str]:
    """Runs them side by side, with progress."""
    wrong = []
    start = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        for number, (run, what) in enumerate(zip(runs, pool.map(execute, runs), strict=True), 1):
            seconds = time.monotonic() - start
            print(f"[{number}/{len(runs)}, {seconds:.0f} s] {run.name}", flush=True)
            if what:
                print(what, flush=True)
                wrong.append(what)
    return wrong


def usual_runs() -> list[Run]:
    streams: list[str | Path] = [STREAMS, *stream_files()]
    orders = {"at_once": "1", "late": "1"} | {f"early {i}": "1" for i in range(8)}
    named = [(f"streams {pace}", pace, seed) for pace, seed in orders.items()]
    named += [(f"streams by chance {seed}", "random", seed) for seed in "12345"]
    return [
        Run(name, streams, {"L3_CUDART_STREAMS": pace, "L3_PTX_SEED": seed})
        for name, pace, seed in named
    ]


def adapter_runs(everything: bool) -> list[Run]:
    """The operator and the library; and tests of the emulated GPU, with CUDA's in its place."""
    files = stream_files()
    runs = [
        Run(f"operator, {pace}", [OPERATOR, *files], {"L3_CUDART_STREAMS": pace})
        for pace in ("at_once", "late", "random")
    ]
    adapters = adapters_to_build(everything)
    if EXTENSION.name in adapters:
        runs.append(Run("library", [EXTENSION.absolute(), files[-1]]))
    for program in (BATCH, NVIMGCODEC):
        if program.name in adapters:
            listed = subprocess.run([program, "--list"], check=True, capture_output=True, text=True)
            for test in sorted(set(listed.stdout.split()) - NOT_SIMULATED.keys()):
                checks = {"L3_PTX_CHECKS": _CHECKS[test]} if test in _CHECKS else {}
                runs.append(Run(f"{program.name} {test}", [program, test], checks))
    if _MODULE in adapters:
        python = Path(".venv-integrations/bin/python")
        if python.exists():
            test = "tests/integrations/test_torch_decode.py"
            command: list[str | Path] = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
            module = {"L3_SIMULATED_CUDA": str(next(SITE.glob("l3dali/_cuda*")))}
            runs.append(
                Run("l3dali.torch", [*command, test, "-k", "simulated or ptx_machine"], module)
            )
        else:
            print("SKIPPED: l3dali.torch, which needs PyTorch: make test-integrations installs it")
    return runs


def calls_of(run: Run) -> Iterator[tuple[str, int]]:
    """How many calls of each kind a program makes that could fail."""
    environment = os.environ | run.environment | {"L3_CUDART_CALLS": "1"}
    result = subprocess.run(
        run.command, env=environment, check=True, capture_output=True, text=True
    )
    for name, count in re.findall(r"l3_cudart: (\w+) calls: (\d+)", result.stderr):
        if name != "other":  # where waiting itself fails nobody can know when work ends
            yield name, int(count)


def failure_runs() -> list[Run]:
    """Each call of CUDA fails in turn: what goes on must be right, and nothing may leak."""
    late = {"L3_CUDART_STREAMS": "late"}
    streams = Run("streams", [STREAMS, *stream_files()], late)
    failures = [(name, i) for name, count in calls_of(streams) for i in range(1, count + 1)]
    return [
        Run(f"{name} {i} fails", streams.command, late | {"L3_CUDART_FAIL": f"{name} {i}"})
        for name, i in failures
    ]


def compile_ptx(nvcc: Path, arch: str) -> str:
    """PTX of another architecture, for the same programs. Returns the files, for L3_PTX."""
    sources = sorted(Path("src/cuda/kernels").glob("*.cu"))
    newest = max(p.stat().st_mtime for p in Path("src").rglob("*") if p.is_file())
    paths = []
    for source in sources:
        path = BUILD / f"{source.stem}_{arch}.ptx"
        paths.append(str(path))
        if path.exists() and path.stat().st_mtime > newest:
            continue
        print(f"== {source.stem}, PTX of sm_{arch}", flush=True)
        options = ["--ptx", "-std=c++17", "-O3", f"-arch=compute_{arch}", "-Isrc"]
        part = path.with_suffix(".part")
        subprocess.run([nvcc, *options, source, "-o", part], check=True)
        part.replace(path)
    return ":".join(paths)


def newest_arch(nvcc: Path) -> str:
    listed = subprocess.run(
        [nvcc, "--list-gpu-arch"], check=True, capture_output=True, text=True
    ).stdout
    return str(max(int(arch) for arch in re.findall(r"compute_(\d+)\s", listed)))


def all_runs(nvcc: Path) -> list[Run]:
    compare: list[str | Path] = [COMPARE, *test_files()]
    runs = []
    for arch in (*OTHER_ARCHS, newest_arch(nvcc)):
        ptx = {"L3_PTX": compile_ptx(nvcc, arch)}
        runs.append(Run(f"sm_{arch}", compare, ptx))
    random = {"L3_PTX_POLICY": "random", "L3_PTX_SEED": "1", "L3_CUDART_STREAMS": "random"}
    runs.append(Run("lanes and streams by chance", compare, random))
    runs.append(Run("late streams", compare, {"L3_CUDART_STREAMS": "late"}))
    return runs


def case_runs(count: int, **environment: str) -> list[Run]:
    """Generated and small files, in many small batches."""
    name = " ".join([f"{count} small batches", *environment.values()])
    limits = CASE_LIMITS | (LIMIT_BY_CHANCE if environment else {}) | environment
    shares = [f"{shard}/{SHARES}" for shard in range(SHARES)]
    return [
        Run(f"{name}, share {share}", [CASES, share, str(count), *test_files()], limits)
        for share in shares
    ]


def chance_runs() -> list[Run]:
    return [
        run
        for seed in "123"
        for run in case_runs(CASES_BY_CHANCE, L3_PTX_POLICY="random", L3_PTX_SEED=seed)
    ]


def compare_runs() -> list[Run]:
    written = {"L3_DIGESTS": str(DIGESTS)}
    return [Run("compare", [COMPARE, *test_files()], written, shows=True)]


def parts(is_all: bool, nvcc: Path) -> dict[str, Callable[[], list[Run]]]:
    """What there is to run, in order. Runs of a part are made when it begins."""
    usual: dict[str, Callable[[], list[Run]]] = {
        "compare": compare_runs,
        "batches": lambda: case_runs(ALL_CASES if is_all else FEW_CASES),
        "streams": usual_runs,
        "adapters": lambda: adapter_runs(is_all),
    }
    if not is_all:
        return usual
    return usual | {
        "architectures": lambda: all_runs(nvcc),
        "chance": chance_runs,
        "failures": failure_runs,
    }


def cpu_seconds() -> float:
    """Of all that ran so far."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="all that takes up to an hour")
    parser.add_argument(
        "--parts", nargs="*", help="these alone, as the table at the end names them"
    )
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    nvcc = find_nvcc()
    if nvcc is None:
        print(
            "SKIPPED: make simulate, which needs nvcc: there is none on PATH, in CUDACXX or in "
            "the wheels of .venv. No kernel was run."
        )
        return 0
    start = time.monotonic()
    rows = ["| part | runs | failed | seconds | CPU seconds |", "|---|---|---|---|---|"]
    wrong: list[str] = []
    found = parts(arguments.all, nvcc)
    if unknown := set(arguments.parts or ()) - {"build", *found}:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are build, {', '.join(found)}")
    chosen = {name: runs for name, runs in found.items() if name in (arguments.parts or found)}
    for name, make_runs in {"build": None, **chosen}.items():
        begun, used = time.monotonic(), cpu_seconds()
        print(f"== {name}", flush=True)
        failed: list[str] = []
        runs: list[Run] = []
        if make_runs is None:
            build(nvcc, arguments.all)
        else:
            runs = make_runs()
            failed = execute_all(runs, arguments.jobs)
        wrong += failed
        took = f"{time.monotonic() - begun:.0f} | {cpu_seconds() - used:.0f}"
        rows.append(f"| {name} | {len(runs)} | {len(failed)} | {took} |")
    print("\n".join(rows))
    print(f"{len(wrong)} runs failed, after {time.monotonic() - start:.0f} s")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
