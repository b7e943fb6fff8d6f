"""What the compiler makes of the CUDA kernels: no GPU needed.

    python -m benchmarks.gpu.ptxas [--archs 75 80 86 89 90 100 120]

Registers, stack and spills of every kernel on every architecture, from `ptxas -v`, and the warps
that a multiprocessor holds, for a batch of 32 images of 2048x1024 with three channels in tiles of
128x128. And what compiling each architecture costs: CPU seconds and bytes. Results of the same
commit for other architectures are kept: not all must be compiled in one go.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shutil
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.report import RESULTS, made, markdown_table, save_results

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Gpu:
    """What a compute capability has room for (CUDA C++ Programming Guide), and a GPU of it."""

    name: str
    multiprocessors: int
    warps: int  # of a multiprocessor, as are the rest
    blocks: int
    shared_kib: int
    block_shared_kib: int
    reserved_kib: int  # that every block takes besides its own


GPUS = {
    75: Gpu("T4", 40, 32, 16, 64, 64, 0),
    80: Gpu("A100", 108, 64, 32, 164, 163, 1),
    86: Gpu("A10", 72, 48, 16, 100, 99, 1),
    89: Gpu("L40S", 142, 48, 24, 100, 99, 1),
    90: Gpu("H200", 132, 64, 32, 228, 227, 1),
    100: Gpu("B200", 148, 64, 32, 228, 227, 1),
    120: Gpu("RTX 5090", 170, 48, 24, 100, 99, 1),
}
# By the kernels' template arguments: TileKind, StoreKind. A unit has a kind and a size of samples.
KINDS = ("rans", "packed")
STORES = ("as stored", "plans")
UNITS = {(kind, size): f"{name}_{8 * size}" for kind, name in enumerate(KINDS) for size in (1, 2)}
# In place of a kind: packed tiles of three channels of a byte, by a warp for each channel.
TEAMS, TEAM_WARPS = 2, 3

# Prints how the rans tiles of a batch of 32 images of 128 tiles are decoded: warps a block, blocks,
# bytes; and the bytes of a packed tile, by a warp and by a team.
_PLAN = """
#include <cstdio>
#include <cstdlib>
#include "cuda/engine/rans_grid.h"
#include "cuda/kernels/rans_lookup.cuh"
#include "cuda/kernels/warp_scratch.cuh"
int main(int, char** v) {
  uint32_t n[6];
  for (int i = 0; i < 6; ++i) n[i] = static_cast<uint32_t>(std::atoi(v[i + 1]));
  const uint32_t scratch = l3::RansScratchBytes(3, n[5], 7);
  const l3::GpuLimits gpu = {n[0], n[1], n[2], n[3], {}};
  const std::vector<uint64_t> tasks(32, 128);
  const l3::WarpLimits warps = {n[4], n[4] < 20 ? n[4] : 20};
  const l3::RansGrid plan = l3::PlanRans(tasks, {32}, scratch, warps, gpu);
  std::printf("%u %u %zu %zu %zu", plan.warps_per_block, plan.blocks_per_multiprocessor,
              sizeof(l3::RansLookup) + plan.warps_per_block * scratch, sizeof(l3::WarpScratch),
              sizeof(l3::TeamScratch));
}
"""


@dataclass(frozen=True)
class Kernel:
    """What ptxas says of a kernel."""

    registers: int
    stack_bytes: int
    spill_bytes: int

    def warps(self, gpu: Gpu) -> int:
        """That a multiprocessor has registers for: each scheduler has 16,384, given out by 256."""
        per_warp = -(-self.registers * 32 // 256) * 256
        return min(4 * (16384 // per_warp), gpu.warps)


# By kind, bytes of a sample and store.
Kernels = dict[tuple[int, int, int], Kernel]


@dataclass(frozen=True)
class Build:
    """What an architecture costs."""

    cpu_seconds: float  # user and system, of nvcc and all that it runs
    ptx_bytes: int
    fatbin_bytes: int  # machine code as it lies in the library


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return done.stdout + done.stderr


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def kernels_of(log: str) -> Kernels:
    """What `ptxas -v` says."""
    kernels = {}
    for part in log.split("Compiling entry function")[1:]:
        if teams := re.search(r"DecodeTilesInTeams\w*?KindE(\d)E", part):
            kind, store, size = TEAMS, int(teams[1]), 1
        else:
            found = re.search(r"DecodeTilesI\w*?KindE(\d)E\w*?KindE(\d)ELj(\d)E", part)
            assert found is not None
            kind, store, size = map(int, found.groups())
        stack, stores, loads = map(int, re.findall(r"(\d+) bytes (?:stack|spill)", part)[:3])
        registers = re.search(r"Used (\d+) registers", part)
        assert registers is not None
        kernels[kind, size, store] = Kernel(int(registers[1]), stack, stores + loads)
    return kernels


def compile_kernels(nvcc: str, arch: int, folder: Path) -> tuple[Kernels, Build]:
    """All of them, one unit after the other."""
    kernels: Kernels = {}
    begin, ptx_bytes, fatbin_bytes = _cpu_seconds(), 0, 0
    for unit in UNITS.values():
        source, fatbin = Path(f"src/cuda/kernels/{unit}.cu"), folder / f"{unit}.fatbin"
        flags = ("-std=c++17", "-O3", "-Isrc", "-Xptxas", "-v", "-keep", "-keep-dir", folder)
        code = f"-gencode=arch=compute_{arch},code=sm_{arch}"
        log = _run(nvcc, *flags, code, "-fatbin", source, "-o", fatbin)
        ptx_bytes += (folder / f"{unit}.ptx").stat().st_size
        fatbin_bytes += fatbin.stat().st_size
        kernels |= kernels_of(log)
    return kernels, Build(_cpu_seconds() - begin, ptx_bytes, fatbin_bytes)


def plan_batch(gpu: Gpu, kernel: Kernel, size: int, folder: Path) -> tuple[int, ...]:
    """Warps a block, blocks on a multiprocessor, bytes a block, of a packed tile, of a team."""
    program = folder / "plan"
    if not program.exists():
        source = program.with_suffix(".cc")
        source.write_text(_PLAN)
        units = ["src/cuda/engine/rans_grid.cc", *map(str, (ROOT / "src/format").glob("*.cc"))]
        _run("g++", "-std=c++17", "-Isrc", "-w", source, *units, "-o", program)
    kib = (gpu.shared_kib, gpu.block_shared_kib, gpu.reserved_kib)
    numbers = (gpu.multiprocessors, *(1024 * n for n in kib), kernel.warps(gpu), size)
    return tuple(map(int, _run(program, *map(str, numbers)).split()))


def occupancy(gpu: Gpu, kernel: Kernel, kind: int, size: int, folder: Path) -> tuple[int, int, int]:
    """Blocks on a multiprocessor, warps a block, bytes a block."""
    per_block, blocks, block_bytes, packed_bytes, team_bytes = plan_batch(gpu, kernel, size, folder)
    if kind == KINDS.index("rans"):
        return blocks, per_block, block_bytes
    warps, shared_bytes = (TEAM_WARPS, team_bytes) if kind == TEAMS else (1, packed_bytes)
    by_shared = 1024 * gpu.shared_kib // (shared_bytes + 1024 * gpu.reserved_kib)
    return min(kernel.warps(gpu) // warps, gpu.blocks, by_shared), warps, shared_bytes


def _kernel_rows(arch: int, kernels: Kernels, folder: Path) -> list[list[str]]:
    rows = []
    for (kind, size, store), kernel in sorted(kernels.items()):
        blocks, warps, shared = occupancy(GPUS[arch], kernel, kind, size, folder)
        unit = "packed_8 in teams" if kind == TEAMS else UNITS[kind, size]
        name = f"sm_{arch} ({GPUS[arch].name}), {unit}, {STORES[store]}"
        numbers = (kernel.registers, kernel.stack_bytes, kernel.spill_bytes, shared)
        held = f"{blocks} x {warps}" if kind != KINDS.index("packed") else str(blocks)
        rows.append([name, *map(str, numbers), held])
    return rows


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
    page = ""
    for arch in args.archs:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            kernels, build = compile_kernels(args.nvcc, arch, folder)
            rows = _kernel_rows(arch, kernels, folder)
        page = save(version[1], arch, rows, build, args.out)
    print(page)


def save(nvcc: str, arch: int, rows: list[list[str]], build: Build, out: Path) -> str:
    """Adds an architecture to the results, if they are of this commit and compiler."""
    path = out / "ptxas.json"
    old = json.loads(path.read_text()) if path.exists() else {}
    is_same = old.get("nvcc") == nvcc and old["made"]["commit"] == made()["commit"]
    archs = old["archs"] if is_same else {}
    archs[f"sm_{arch}"] = {"build": asdict(build), "kernels": rows}
    archs = dict(sorted(archs.items(), key=lambda item: int(item[0][3:])))
    builds = [
        [
            name,
            f"{one['build']['cpu_seconds']:.0f}",
            f"{one['build']['ptx_bytes'] / 1e6:.1f}",
            f"{one['build']['fatbin_bytes'] / 1e6:.2f}",
        ]
        for name, one in archs.items()
    ]
    builds.append(["all", *(f"{sum(float(row[i]) for row in builds):.1f}" for i in (1, 2, 3))])
    origin = made()
    text = (
        f"{origin['machine']}, {origin['date']}, nvcc {nvcc}.\n\n"
        "Of each architecture: CPU seconds of nvcc and all that it runs, without a cache; PTX;\n"
        "and machine code as it lies in the library.\n\n"
        + markdown_table(["", "CPU s", "PTX MB", "code MB"], builds)
        + "\nStack and spills in bytes. Shared memory, and warps that a multiprocessor holds\n"
        "(blocks x warps of each), as planned for 32 images of 2048x1024 with three channels in\n"
        "tiles of 128x128.\n\n"
        + markdown_table(
            ["kernel", "registers", "stack", "spills", "shared bytes a block", "warps"],
            [row for one in archs.values() for row in one["kernels"]],
        )
    )
    title = "What the compiler makes of the CUDA kernels"
    return save_results("ptxas", title, text, {"nvcc": nvcc, "archs": archs}, out)


if __name__ == "__main__":
    main()
