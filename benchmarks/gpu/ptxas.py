"""What the compiler makes of the CUDA kernels: no GPU needed.

    python -m benchmarks.gpu.ptxas [--archs 75 80 86 89 90 100 120]

Registers, stack and spills of every kernel on every architecture, from `ptxas -v`. And what
compiling each architecture costs: CPU seconds and bytes.
"""

from __future__ import annotations

import argparse
import re
import resource
import shutil
import subprocess
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS, processor, save_results, table

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "src/cuda/kernels"
GPUS = {75: "T4", 80: "A100", 86: "A10", 89: "L40S", 90: "H200", 100: "B200", 120: "RTX 5090"}
STORES = ("as stored", "plans")  # by StoreKind, the kernels' template argument
COSTS = {"CPU s": "{cpu_s:.1f}", "PTX MB": "{ptx_mb:.1f}", "code MB": "{code_mb:.2f}"}
NUMBERS = {key: f"{{{key}}}" for key in ("registers", "stack", "spills")}

Rows = dict[str, dict[str, Any]]


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout + done.stderr


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def kernels_of(unit: str, log: str) -> Rows:
    """What `ptxas -v` says of the kernels of a source file."""
    kernels = {}
    for part in log.split("Compiling entry function")[1:]:
        store = re.search(r"StoreKindE(\d)E", part)
        registers = re.search(r"Used (\d+) registers", part)
        assert registers is not None
        stack, stores, loads = map(int, re.findall(r"(\d+) bytes (?:stack|spill)", part)[:3])
        if store is not None:
            name = unit + " in teams" * ("InTeams" in part) + f", {STORES[int(store[1])]}"
        else:
            function = re.search(r"_cu_[0-9a-f]{8}(\d+)(\w+)", part)  # behind the file's name
            assert function is not None
            name = f"{unit}, {function[2][: int(function[1])]}"
        kernels[name] = {"registers": int(registers[1]), "stack": stack, "spills": stores + loads}
    return dict(sorted(kernels.items()))


def compile_kernels(nvcc: str, arch: int) -> tuple[Rows, dict[str, float]]:
    """All of them, one source file after the other; and what that costs."""
    kernels: Rows = {}
    costs = dict.fromkeys(("cpu_s", "ptx_mb", "code_mb"), 0.0)
    begin = _cpu_seconds()
    for source in sorted(KERNELS.glob("*.cu")):
        with tempfile.TemporaryDirectory() as folder:
            fatbin = Path(folder, "kernels.fatbin")
            flags = ("-std=c++17", "-O3", f"-I{ROOT / 'src'}", "-Xptxas", "-v")
            code = f"-gencode=arch=compute_{arch},code=sm_{arch}"
            keep = ("-keep", "-keep-dir", folder)
            log = _run(nvcc, *flags, code, *keep, "-fatbin", source, "-o", fatbin)
            costs["ptx_mb"] += Path(folder, f"{source.stem}.ptx").stat().st_size / 1e6
            costs["code_mb"] += fatbin.stat().st_size / 1e6
        named = kernels_of(source.stem, log).items()
        kernels |= {f"sm_{arch} ({GPUS[arch]}), {name}": row for name, row in named}
    return kernels, costs | {"cpu_s": _cpu_seconds() - begin}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--archs", type=int, nargs="+", choices=list(GPUS), default=list(GPUS))
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    if shutil.which(args.nvcc) is None:
        parser.error(f"{args.nvcc} is not on PATH: give its place")
    version = re.search(r"release \S+ (\S+)", _run(args.nvcc, "--version"))
    assert version is not None
    kernels: Rows = {}
    costs: Rows = {}
    for arch in args.archs:
        found, costs[f"sm_{arch}"] = compile_kernels(args.nvcc, arch)
        kernels |= found
    text = (
        f"{processor()}, {date.today().isoformat()}, nvcc {version[1]}.\n\n"
        "Of each architecture: CPU seconds of nvcc and all that it runs, without a cache; PTX;\n"
        f"and machine code as it lies in the library.\n\n{table('', costs, COSTS)}"
        f"\nStack and spills in bytes.\n\n{table('kernel', kernels, NUMBERS)}"
    )
    title = "What the compiler makes of the CUDA kernels"
    data = {"nvcc": version[1], "costs": costs, "kernels": kernels}
    print(save_results("ptxas", title, text, data, args.out))


if __name__ == "__main__":
    main()
