"""What it costs to install from source."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cpu.case import Result
from benchmarks.report import table

ROOT = Path(__file__).parents[2]
WAYS = {
    "no GPU": {"L3_CUDA": "OFF"},
    "sm_90": {"L3_CUDA_ARCHS": "90"},
    "sm_80, sm_90, sm_120": {"L3_CUDA_ARCHS": "80;90;120"},
}


def build(ways: Sequence[str] = tuple(WAYS)) -> Result:
    """CPU seconds of `pip install '.[dali]'` in a clone, without a cache of compiled code.

    All packages that it needs are there: neither their download nor their installation counts.
    User and system time of all processes. The library is what holds the CUDA engine.
    """
    rows = {way: install(WAYS[way]) for way in ways}
    columns = {"CPU s": "{cpu_seconds:.0f}", "library MB": "{library_mb:.2f}"}
    return Result(table("for", rows, columns), rows)


def install(options: dict[str, str]) -> dict[str, float]:
    """Clones and installs; what that cost."""
    cleared = ("CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_C_COMPILER_LAUNCHER", "L3_CUDA")
    kept = {name: value for name, value in os.environ.items() if name not in cleared}
    environment = kept | {"CCACHE_DISABLE": "1"} | options
    with tempfile.TemporaryDirectory() as name:
        clone, site = Path(name, "clone"), Path(name, "site")
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation"]
        command += ["--no-deps", "--target", str(site), str(clone)]
        begin = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, env=environment)
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        libraries = [path.stat().st_size for path in site.rglob("*cuda*.so")]
    seconds = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
    return {"cpu_seconds": seconds, "library_mb": sum(libraries) / 1e6}
