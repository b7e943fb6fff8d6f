"""What the compiler makes of the CUDA kernels, and the throughput that it allows: no GPU needed.

    python -m benchmarks.gpu.ptxas [--archs 75 80 86 89 90 100 120] [--nvdisasm nvdisasm]

Registers, stack and spills of every kernel on every architecture, from `ptxas -v`; the warps
that a multiprocessor holds, for a batch of 32 RGB8 images of 2048x1024 in tiles of 128x128; and
from the disassembly, on sm_90, the instructions of the rans loops, by pipe, and those of a row of
a packed tile, stored as it is and normalized to CHW float16 (nvdisasm comes with the CUDA toolkit,
or as the PyPI wheel nvidia-cuda-nvdisasm).
"""

from __future__ import annotations

import argparse
import heapq
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from benchmarks.report import RESULTS, markdown_table, save_results

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
LOOKUPS = {"CompactRansLookup": "compact", "WideRansLookup": "wide"}
# Template arguments: the lookup, and the number of the StoreKind.
AS_STORED, BY_PLAN, BY_PLANS = range(3)
KERNELS = {
    ("v", AS_STORED): "without rans tiles",
    ("v", BY_PLAN): "without rans tiles, plans",
    ("v", BY_PLANS): "without rans tiles, several plans a tile",
    ("CompactRansLookup", AS_STORED): "rans, compact tables",
    ("WideRansLookup", AS_STORED): "rans, wide tables",
    ("CompactRansLookup", BY_PLAN): "rans, compact tables, plans",
    ("CompactRansLookup", BY_PLANS): "rans, compact tables, several plans a tile",
}

# Prints how the rans tiles of a batch of 32 images of 128 tiles are decoded: lookup, warps a block,
# blocks, bytes.
_PLAN = """
#include <cstdio>
#include <cstdlib>
#include "cuda/engine/batch_layout.h"
#include "cuda/kernels/rans_lookup.cuh"
#include "cuda/kernels/warp_scratch.cuh"
int main(int, char** v) {
  uint32_t n[8];
  for (int i = 0; i < 8; ++i) n[i] = static_cast<uint32_t>(std::atoi(v[i + 1]));
  const uint32_t scratch = l3::RansScratchBytes(3, 1, 7);
  const auto warps = [&](int i) { return l3::WarpLimits{n[i], n[i] < 20 ? n[i] : 20}; };
  const l3::GpuLimits gpu = {n[0], n[1], n[2], n[3], warps(4), warps(5), warps(6), warps(7)};
  const std::vector<uint64_t> tasks(32, 128);
  const l3::RansPlan plan =
      l3::PlanRans(tasks, {{32, 0, 0}}, scratch, l3::StoreKind(std::atoi(v[9])), gpu);
  const bool wide = plan.lookup == l3::RansLookupKind::kWide;
  const size_t lookup = wide ? sizeof(l3::WideRansLookup) : sizeof(l3::CompactRansLookup);
  std::printf("%s %u %u %zu %zu", wide ? "WideRansLookup" : "CompactRansLookup",
              plan.warps_per_block, plan.blocks_per_multiprocessor,
              lookup + plan.warps_per_block * scratch, sizeof(l3::WarpScratch));
}
"""

# One kernel for RGB8 alone, so that its loops can be told apart.
_RGB8 = """
#include "cuda/kernels/tile_kernels.cuh"
using namespace l3;
__global__ void __launch_bounds__(640) Rgb8(DecodeSample sample, TilePayload tile,
                                            const RansModel* model, Status* status) {
  extern __shared__ uint4 shared[];
  auto* lookup = reinterpret_cast<LOOKUP*>(shared);
  DeviceWarp warp;
  BuildRansLookupOf<ByteSamples>(warp, 0, 1, *model, lookup);
  __syncthreads();
  const TileRect rect = GetTileRect(sample.info, blockIdx.x);
  const ImageOutput output = OutputOfTile(sample.info, sample.output, rect);
  const HwcStore<3> store(GlobalPointer(output.data), output.row_stride_bytes);
  RunningCheck<DeviceWarp> check(warp, tile.data, tile.size);
  *status = DecodeRansTileWarp<3, 1, ByteSamples>(
      warp, sample.info, sample.map, rect, tile, *lookup, store, &check,
      reinterpret_cast<RansScratch<3, 1>*>(lookup + 1));
}
"""
# The same for packed tiles, whose samples leave as they are or by a plan.
_PACKED = """
#include "cuda/kernels/tile_kernels.cuh"
using namespace l3;
__global__ void __launch_bounds__(32, 16) Rgb8(DecodeSample sample, const OutputPlan* plans,
                                               TilePlans several, TilePayload tile,
                                               Status* status) {
  extern __shared__ uint4 shared[];
  DeviceWarp warp;
  const TileRect rect = GetTileRect(sample.info, blockIdx.x);
  const auto store = MakeStore<3, 1>(sample, OUTPUT, rect);
  RunningCheck<DeviceWarp> check(warp, tile.data, tile.size);
  *status = DecodePackedTileWarp<3, 1>(warp, sample.info, sample.map, rect, tile, store, &check,
                                       reinterpret_cast<WarpScratch*>(shared));
}
"""
ROW_SAMPLES = 24  # of a lane, in a row of 256 RGB8 pixels
# Loops that decode steps, from the shortest.
LOOPS = ("no lane at an edge", "a lane may be at an edge", "without coefficients")
# Lanes a clock and scheduler, and instructions, by pipe. Integer arithmetic but for products is
# ALU; shuffles and memory pass one unit for all four schedulers.
PIPES = {
    "ALU": "IADD3 ISETP LEA LOP3 PLOP3 PRMT SEL SGXT SHF VABSDIFF4 VIADD VIADDMNMX VIMNMX VOTE",
    "FMA": "FADD IDP IMAD",
    "LSU": "LDG LDS SHFL STG STS",
    "XU": "POPC",
}


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


# By their template arguments.
Kernels = dict[tuple[str, int], Kernel]


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return done.stdout + done.stderr


def _nvcc(nvcc: str, arch: int, source: Path, cubin: Path, *options: str) -> str:
    flags = ("-std=c++17", "-O3", "-cubin", f"-arch=sm_{arch}", "-Isrc", "-Xptxas", "-v")
    return _run(nvcc, *flags, *options, source, "-o", cubin)


def compile_kernels(nvcc: str, arch: int, folder: Path) -> Kernels:
    """All of them."""
    log = _nvcc(nvcc, arch, Path("src/cuda/engine/launch.cu"), folder / f"{arch}.cubin")
    kernels = {}
    for part in log.split("Compiling entry function")[1:]:
        arguments = re.search(r"DecodeTilesI(\w+?)LN\w*?StoreKindE([012])E", part)
        assert arguments is not None
        lookup = next((name for name in LOOKUPS if name in arguments[1]), "v")
        stack, stores, loads = map(int, re.findall(r"(\d+) bytes (?:stack|spill)", part)[:3])
        registers = re.search(r"Used (\d+) registers", part)
        assert registers is not None
        kernels[lookup, int(arguments[2])] = Kernel(int(registers[1]), stack, stores + loads)
    return kernels


def _parse(sass: str) -> tuple[list[str], dict[str, int], set[int]]:
    """Instructions without guards; labels and the numbers of guarded instructions."""
    labels: dict[str, int] = {}
    code: list[str] = []
    guarded = set()
    for line in sass.splitlines():
        if label := re.match(r"(\.L_x_\d+):", line):
            labels[label[1]] = len(code)
        elif found := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+ )?(.*?)\s*;", line):
            if found[1]:
                guarded.add(len(code))
            code.append(found[2])
    return code, labels, guarded


def _names(code: list[str]) -> Counter[str]:
    return Counter(re.split(r"[. ]", text)[0] for text in code)


def _loops(sass: str) -> list[Counter[str]]:
    """Instructions of the innermost loops that decode steps, by name, from the shortest."""
    code, labels, _ = _parse(sass)
    loops = []
    for i, instruction in enumerate(code):
        branch = re.match(r"BRA.*`\((\.L_x_\d+)\)", instruction)
        begin = labels[branch[1]] if branch else i + 1
        names = _names(code[begin : i + 1])
        if names["VOTE"] and names["VOTE"] % 6 == 0:
            loops.append(names)
    return sorted(loops, key=Counter.total)[: len(LOOPS)]


@dataclass(frozen=True)
class Block:
    """Instructions without a branch among them, and where they lead."""

    code: list[str]
    next_blocks: list[int]  # by their first instruction


def _blocks(sass: str) -> dict[int, Block]:
    code, labels, guarded = _parse(sass)
    ends = (i + 1 for i, text in enumerate(code) if re.match(r"BRA|BRX|EXIT", text))
    starts = sorted({0, *labels.values(), *ends} - {len(code)})
    blocks = {}
    for begin, end in zip(starts, [*starts[1:], len(code)], strict=True):
        last, targets = code[end - 1], []
        if re.match("BRA|BRX", last):
            targets = [labels[label] for label in re.findall(r"\.L_x_\d+", last)]
        falls_through = end - 1 in guarded or not re.match("BRA|BRX|EXIT", last)
        if falls_through or re.match(r"BRA(\.\w+)* !?U?P", last):
            targets.append(end)
        blocks[begin] = Block(code[begin:end], [t for t in targets if t < len(code)])
    return blocks


def shortest_loop(blocks: dict[int, Block], start: int) -> int:
    """Instructions of the shortest way from a block back to it; 0 if there is none."""
    size = len(blocks[start].code)
    queue = [(size, block) for block in blocks[start].next_blocks]
    seen = set()
    while queue:
        length, block = heapq.heappop(queue)
        if block == start:
            return length
        if block not in seen:
            seen.add(block)
            length += len(blocks[block].code)
            for target in blocks[block].next_blocks:
                heapq.heappush(queue, (length, target))
    return 0


def count_packed_row(nvcc: str, nvdisasm: str, folder: Path) -> list[list[str]]:
    """Rows of the table: what a row of a packed tile of RGB8 takes on sm_90."""

    def blocks(name: str, output: str) -> dict[int, Block]:
        source = folder / f"{name}.cu"
        source.write_text(_PACKED.replace("OUTPUT", output))
        cubin = source.with_suffix(".cubin")
        _nvcc(nvcc, 90, source, cubin)
        return _blocks(_run(nvdisasm, "-c", cubin))

    def loops(of: dict[int, Block], *names: tuple[str, int]) -> list[int]:
        """Those through blocks that have so many of these instructions."""
        found = []
        for start, block in of.items():
            counts = _names(block.code)
            if all(counts[name] >= least for name, least in names):
                found.append(shortest_loop(of, start))
        return found

    # Of the loops of packed tiles the longest has all channels as deltas, with whole chunks stored.
    stored = max(loops(blocks("stored", "sample.output"), ("STG", 6), ("LDS", 12)))
    # Blocks of three channels follow one another; a mirrored row reverses what it has made.
    planned = blocks("planned", "plans[blockIdx.y]")
    halves = [("FMUL", 8), ("F2FP", 4)]
    mirrored = loops(planned, *halves, ("PRMT", 4))
    plain = [n for n in loops(planned, *halves) if n not in mirrored]
    # The loop over plans is shorter than that over rows.
    several = blocks("several", "several")
    further = [n for n in loops(several, *halves) if n not in loops(several, *halves, ("PRMT", 4))]
    rows = []
    for title, count in (
        ("as stored", stored),
        ("normalized CHW float16", max(plain)),
        ("normalized CHW float16, mirrored", max(mirrored)),
        ("one more plan of several: normalized CHW float16", max(further)),
    ):
        numbers = f"{count}", f"{count / ROW_SAMPLES:.1f}", f"{count / stored:.2f}"
        rows.append([title, *numbers])
    return rows


def count_instructions(nvcc: str, nvdisasm: str, lookup: str, folder: Path) -> list[Counter[str]]:
    """Of the RGB8 loops on sm_90, with this lookup."""
    source = folder / f"{lookup}.cu"
    source.write_text(_RGB8)
    cubin = source.with_suffix(".cubin")
    _nvcc(nvcc, 90, source, cubin, f"-DLOOKUP={lookup}")
    return _loops(_run(nvdisasm, "-c", cubin))


def plan_batch(
    gpu: Gpu, kernels: Kernels, store: int, folder: Path
) -> tuple[str, int, int, int, int]:
    """Lookup, warps a block, blocks on a multiprocessor, bytes a block, bytes without rans."""
    program = folder / "plan"
    if not program.exists():
        source = program.with_suffix(".cc")
        source.write_text(_PLAN)
        units = ["src/cuda/engine/batch_layout.cc", *map(str, (ROOT / "src/format").glob("*.cc"))]
        _run("g++", "-std=c++17", "-Isrc", "-w", source, *units, "-o", program)
    kib = (gpu.shared_kib, gpu.block_shared_kib, gpu.reserved_kib)
    warps = [kernels[key].warps(gpu) for key in KERNELS if key[0] != "v"]
    numbers = (gpu.multiprocessors, *(1024 * n for n in kib), *warps, store)
    lookup, *rest = _run(program, *map(str, numbers)).split()
    per_block, blocks, block_bytes, packed_bytes = map(int, rest)
    return lookup, per_block, blocks, block_bytes, packed_bytes


def _kernel_rows(compiled: dict[int, Kernels], folder: Path) -> list[list[str]]:
    rows = []
    for arch, kernels in compiled.items():
        gpu = GPUS[arch]
        for (lookup, store), title in KERNELS.items():
            kernel = kernels[lookup, store]
            batch = plan_batch(gpu, kernels, store, folder)
            chosen, per_block, blocks, block_bytes, packed_bytes = batch
            warps, shared = "-", "-"
            if lookup == "v":
                by_shared = 1024 * gpu.shared_kib // (packed_bytes + 1024 * gpu.reserved_kib)
                warps = str(min(kernel.warps(gpu), gpu.blocks, by_shared))
                shared = str(packed_bytes)
            elif lookup == chosen:
                warps, shared = f"{blocks} x {per_block}", str(block_bytes)
            numbers = (kernel.registers, kernel.stack_bytes, kernel.spill_bytes)
            rows.append([f"sm_{arch} ({gpu.name}), {title}", *map(str, numbers), shared, warps])
    return rows


def _instruction_rows(loops: dict[str, list[Counter[str]]]) -> list[list[str]]:
    rows = []
    for lookup, counters in loops.items():
        for title, names in zip(LOOPS, counters, strict=True):
            steps = names["VOTE"] / 3
            pipes = [sum(names[name] for name in text.split()) for text in PIPES.values()]
            numbers = (names.total(), *pipes, names.total() - sum(pipes))
            label = f"{LOOKUPS[lookup]} tables, {title}"
            rows.append([label, *(f"{n / steps:.1f}" for n in numbers)])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--archs", type=int, nargs="+", choices=list(GPUS), default=list(GPUS))
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--nvdisasm", default="nvdisasm")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    for tool in (args.nvcc, args.nvdisasm):
        if shutil.which(tool) is None:
            parser.error(f"{tool} is not on PATH: give its place")
    version = re.search(r"release \S+ (\S+)", _run(args.nvcc, "--version"))
    assert version is not None
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(args.jobs) as pool:
        folder = Path(name)
        compiled = dict(
            zip(
                args.archs,
                pool.map(lambda arch: compile_kernels(args.nvcc, arch, folder), args.archs),
                strict=True,
            )
        )
        kernels = _kernel_rows(compiled, folder)
        loops = {
            lookup: count_instructions(args.nvcc, args.nvdisasm, lookup, folder)
            for lookup in LOOKUPS
        }
        packed_rows = count_packed_row(args.nvcc, args.nvdisasm, folder)
    instructions = _instruction_rows(loops)
    head = ["kernel", "registers", "stack", "spills", "shared bytes a block", "warps"]
    text = (
        f"nvcc {version[1]}, {date.today()}. Stack and spills in bytes. Shared memory, and warps\n"
        "that a multiprocessor holds (blocks x warps of each), as planned for a batch of 32 RGB8\n"
        "images of 2048x1024 in tiles of 128x128; `-` where the batch takes the other tables.\n"
        "With `plans`, samples need not leave whole and as stored; with several a tile, windows\n"
        "of one file share its tiles.\n\n"
        + markdown_table(head, kernels)
        + "\n## Instructions a step of the rans loops\n\n"
        "RGB8 on sm_90: a step decodes three samples on each of 32 lanes. Counted in the\n"
        "disassembly, branches that few steps take included.\n\n"
        + markdown_table(["loop", "all", *PIPES, "others"], instructions)
        + "\n## Instructions of a row of a packed tile\n\n"
        "256 RGB8 pixels on sm_90, decoded and stored, by what becomes of them; on the shortest\n"
        "way through the code that does so for all three channels.\n\n"
        + markdown_table(
            ["samples leave", "all", "a sample of a lane", "of as stored"], packed_rows
        )
    )
    data = {
        "nvcc": version[1],
        "kernels": kernels,
        "instructions": instructions,
        "packed_rows": packed_rows,
    }
    title = "What the compiler makes of the CUDA kernels"
    print(save_results("ptxas", title, text, data, args.out))


if __name__ == "__main__":
    main()
