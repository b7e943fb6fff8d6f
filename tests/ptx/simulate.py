"""`make simulate`: the project's GPU test on a machine without a GPU.

nvcc compiles the kernels to PTX of one architecture; the PTX machine runs it under the real host
code, over a stand-in for libcudart. `--all` is `make simulate-all`: every architecture.
Ends with 1 if a run finds anything. Without nvcc it prints that it is skipped.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.append("build_backend")

from l3_build_backend import _cuda_wheel_root, _has_usable_nvcc

BUILD = Path("build/simulate")
ARCH = "80"
# With 80 and the newest: what the wheels have kernels for, and where PTX differs most.
OTHER_ARCHS = ("75", "90")
COMPARE = BUILD / "l3_simulated_compare"
EXTENSION = BUILD / "site/nvidia/nvimgcodec/extensions/l3_simulated_extension"


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


def has_nvimgcodec() -> bool:
    """Whether its header and Python's are here: CMake asks for both."""
    nvidia = importlib.util.find_spec("nvidia")
    folders = (nvidia and nvidia.submodule_search_locations) or ()
    has_header = any(Path(f, "nvimgcodec/include/nvimgcodec.h").exists() for f in folders)
    return has_header and Path(sysconfig.get_path("include"), "Python.h").exists()


def build(nvcc: Path) -> None:
    """Builds the programs, with PTX of one architecture in them."""
    options = ["-DL3_CUDA=ON", f"-DL3_CUDA_ARCHS={ARCH}-virtual", "-DL3_SIMULATE=ON"]
    options += ["-DL3_DALI=OFF", "-DL3_BUILD_PYTHON=OFF", "-DL3_BUILD_TESTS=ON"]
    options += [f"-DL3_NVIMGCODEC={'ON' if has_nvimgcodec() else 'OFF'}"]
    options += [f"-DPython_EXECUTABLE={sys.executable}"]
    if not _has_usable_nvcc():
        options.append(f"-DL3_CUDA_ROOT={nvcc.parent.parent}")
    subprocess.run(["cmake", "-S", ".", "-B", BUILD, "-G", "Ninja", *options], check=True)
    targets = [COMPARE.name]
    if has_nvimgcodec():
        targets += [EXTENSION.name, "l3_simulated_library"]
    else:
        print("SKIPPED: the GPU decoder of nvImageCodec, whose header or Python's is not installed")
    subprocess.run(["cmake", "--build", BUILD, "--parallel", "--target", *targets], check=True)


def compile_ptx(nvcc: Path, arch: str) -> str:
    """PTX of another architecture, for the same programs. Returns the files, for L3_PTX."""
    paths = []
    for source in sorted(Path("src/cuda/kernels").glob("*.cu")):
        path = BUILD / f"{source.stem}_{arch}.ptx"
        print(f"== {source.stem}, PTX of sm_{arch}", flush=True)
        options = ["--ptx", "-std=c++17", "-O3", f"-arch=compute_{arch}", "-Isrc"]
        subprocess.run([nvcc, *options, source, "-o", path], check=True)
        paths.append(str(path))
    return ":".join(paths)


def newest_arch(nvcc: Path) -> str:
    command: list[str | Path] = [nvcc, "--list-gpu-arch"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return str(max(int(arch) for arch in re.findall(r"compute_(\d+)\s", listed)))


def make_runs(nvcc: Path, everything: bool) -> list[Run]:
    files = sorted(Path("tests").glob("*/**/*.l3"))  # what `make gpu` compares, in its order
    compare: list[str | Path] = [COMPARE, *files]
    runs = [Run("compare", compare, {"L3_DIGESTS": str(BUILD / "digests.txt")}, shows=True)]
    if has_nvimgcodec():
        small = Path("tests/golden/v1/rans_size_33x9.l3")
        runs.append(Run("library", [EXTENSION.absolute(), small]))
    if everything:
        for arch in (*OTHER_ARCHS, newest_arch(nvcc)):
            runs.append(Run(f"sm_{arch}", compare, {"L3_PTX": compile_ptx(nvcc, arch)}))
    return runs


def execute(run: Run) -> str:
    """Runs it. Returns what is wrong, empty if nothing is."""
    pipe = None if run.shows else subprocess.PIPE
    result = subprocess.run(
        run.command,
        env=os.environ | run.environment,
        check=False,
        stdout=pipe,
        stderr=pipe and subprocess.STDOUT,
        text=True,
    )
    if result.returncode == 0:
        return ""
    return f"{run.name}: ended with {result.returncode}\n{(result.stdout or '')[-3000:]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every architecture")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    nvcc = find_nvcc()
    if nvcc is None:
        print(
            "SKIPPED: make simulate, which needs nvcc: there is none on PATH, in CUDACXX or in "
            "the wheels of .venv. No kernel was run."
        )
        return 0
    build(nvcc)
    runs = make_runs(nvcc, arguments.all)
    start = time.monotonic()
    failures = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for number, (run, what) in enumerate(zip(runs, pool.map(execute, runs), strict=True), 1):
            seconds = time.monotonic() - start
            print(f"[{number}/{len(runs)}, {seconds:.0f} s] {run.name}", flush=True)
            if what:
                print(what, flush=True)
                failures += 1
    print(f"{failures} of {len(runs)} runs failed")
    return int(failures != 0)


if __name__ == "__main__":
    sys.exit(main())
