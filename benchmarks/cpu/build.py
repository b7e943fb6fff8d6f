"""What it costs to install from source."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cpu.case import Result
from benchmarks.report import CODE, table

ROOT = Path(__file__).parents[2]
WAYS = {
    "no GPU": "",
    "sm_90": "90",
    "sm_90, by `make build`": "90",
    "sm_80, sm_90, sm_120": "80;90;120",
    "all seven": "all",
}


def build(ways: Sequence[str] = tuple(WAYS)) -> Result:
    """`pip install '.[dali]'` in a clone and a new venv, without a cache of compiled code.

    `make build` makes the venv, and installs what the demo needs too. Packages come from a folder:
    their installation counts, also that of those which only the build needs, and their download
    does not. CPU seconds are user and system time of all processes. The library is what holds the
    CUDA engine, and `kernels` is the part of the CPU seconds beyond "no GPU".
    """
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        download(Path(folder))
        for way in ways:
            rows[way] = install(WAYS[way], Path(folder), by_make="make" in way)
            rows[way]["kernels"] = rows[way]["cpu"] - rows.get("no GPU", rows[way])["cpu"]
    columns = {"seconds": "{wall:.0f}", "CPU s": "{cpu:.0f}", "kernels, CPU s": "{kernels:.0f}"}
    columns |= {"library MB": "{library_mb:.2f}"}
    text = f"{os.cpu_count()} cores.\n\n{table('for', rows, columns)}"
    return Result(text, rows, code=(*CODE, "CMakeLists.txt", "cmake", "build_backend"))


def download(folder: Path) -> None:
    """All packages of the commands and of the builds that they start."""
    command = [sys.executable, "-m", "pip", "download", "-q", "-d", str(folder)]
    command += ["pip", "scikit-build-core", "pybind11", f"{ROOT}[demo,dali]"]
    for archs in ("", "all"):
        backend = [sys.executable, "build_backend/l3_build_backend.py"]
        environment = os.environ | {"L3_CUDA_ARCHS": archs}
        command += subprocess.check_output(backend, cwd=ROOT, env=environment, text=True).split()
    subprocess.run(command, check=True)


def install(archs: str, packages: Path, *, by_make: bool) -> dict[str, float]:
    """Clones and installs; what that cost."""
    launchers = [f"CMAKE_{language}_COMPILER_LAUNCHER" for language in ("C", "CXX", "CUDA")]
    cleared = (*launchers, "L3_CUDA")
    kept = {name: value for name, value in os.environ.items() if name not in cleared}
    environment = kept | {
        "CCACHE_DISABLE": "1",
        "L3_CUDA_ARCHS": archs,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(packages),
    }
    with tempfile.TemporaryDirectory() as name:
        clone, venv = Path(name, "clone"), Path(name, "venv")
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        command = [str(venv / "bin/python"), "-m", "pip", "install", "-q", ".[dali]"]
        if by_make:
            venv, command = clone / ".venv", ["make", "-s", "build", f"PYTHON={sys.executable}"]
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, cwd=clone, env=environment)
        wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        libraries = [path.stat().st_size for path in venv.rglob("l3dali/*cuda*.so")]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": wall, "cpu": cpu, "library_mb": sum(libraries) / 1e6}
