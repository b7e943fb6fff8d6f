"""What the kernels execute, counted without a GPU, and what a GPU is predicted to make of it.

    make simulate
    python -m benchmarks.gpu.model --data ../shared/data [--archs 80 90]

The PTX machine runs the kernels on three images of 512x512 pixels and counts each line of PTX.
ptxas compiles the same PTX; the counts go to the machine code that comes from each line. From them:
instructions a pixel by pipe, passes of shared memory, sectors of global memory, warps that a
multiprocessor holds; the rate at which the busiest pipe is full (ceiling); and that of a model of
one scheduler, which takes the stall counts and barriers that machine code holds.

PTX counts are exact, those of machine code are good to 5 %, ceilings to 10 %, the model to 30 %:
it assumes how long memory takes, and nothing was calibrated on a GPU. Needs nvcc, ptxas and
nvdisasm: of a CUDA toolkit, or nvdisasm of the package nvidia-cuda-nvdisasm.
"""

from __future__ import annotations

import argparse
import heapq
import importlib.util
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from benchmarks.gpu import ptxas
from benchmarks.gpu.images import Image, cut, noisy_gradient
from benchmarks.report import made, markdown_table

import l3dali

ROOT = Path(__file__).resolve().parents[2]
_SIDE_PX = 512
# Decodes a file by the CUDA engine and compares: tests/ptx/library_test.cc.
_DECODE = Path("build/simulate/site/nvidia/nvimgcodec/extensions/l3_simulated_extension")
_TURNS = 60  # of the hottest loop, that the model runs

# By compute capability: clock, and cycles for which an instruction of a warp fills a pipe of a
# scheduler. That for memory is shared by four.
CLOCKS_GHZ = {80: 1.41, 90: 1.98}
_PIPE_CYCLES = {"ALU": 2, "FMA": 2, "XU": 8, "memory": 4}
_PIPES = {
    "ALU": "IADD IADD3 ISETP LEA LOP3 PLOP3 PRMT SEL SGXT SHF VABSDIFF VABSDIFF4 VIADD VIADDMNMX "
    "VIMNMX VOTE VOTEU IMNMX FSETP FSEL FMNMX BMSK MOV IABS P2R R2P FLO",
    "FMA": "FADD IDP IMAD FMUL FFMA HADD2 HFMA2 F2FP",
    "memory": "LDG LDS SHFL STG STS LD ST ATOMG RED LDSM REDUX ATOM LDL STL LDC S2R S2UR R2UR",
    "XU": "POPC I2F F2I F2F MUFU BREV FRND I2I",
}
_PIPE_OF = {name: pipe for pipe, names in _PIPES.items() for name in names.split()}
# Cycles until a result is there; of what is not named 20.
_LATENCY = {
    **dict.fromkeys(("LDS", "SHFL", "REDUX"), 24),
    **dict.fromkeys(("STS", "STG", "ST", "LDC"), 12),
    **dict.fromkeys(("POPC", "I2F", "F2I"), 14),
    **{"VOTE": 6, "LDL": 33, "LDG": 34, "LD": 34},
}
_LATENCY_PAYLOAD = 500  # of 16 bytes from global memory


@dataclass(frozen=True)
class Case:
    """An image by a kernel."""

    name: str
    kind: Literal["packed", "rans"]  # as in ptxas.KINDS
    pixels: Image
    in_teams: bool = False  # as few packed tiles are decoded: by a warp for each channel

    def encode(self) -> bytes:
        tile = (128, 128) if self.kind == "rans" else (64, 256)
        return l3dali.encode(self.pixels, coding=self.kind, tile=tile)

    @property
    def tiles(self) -> int:
        return int(self.pixels[..., 0].size) // 128**2

    @property
    def number(self) -> int:
        """Of the kernel's kind, in what ptxas.py lists."""
        return ptxas.TEAMS if self.in_teams else ptxas.KINDS.index(self.kind)

    @property
    def kernel(self) -> str:
        """A part of its name."""
        kind = "InTeamsI" if self.in_teams else f"KindE{self.number}E"
        return kind + "LNS_9StoreKindE0E" + ("" if self.in_teams else "Lj1E")


@dataclass
class Line:
    """What a line of PTX executed, of all warps."""

    opcode: str
    warps: int
    source: str
    wavefronts: int = 0
    sectors: int = 0


@dataclass
class Instruction:
    """Of machine code, with what its encoding tells of when the next may start."""

    text: str
    line: int  # of the PTX
    label: str  # that stands before it
    stall: int = 1
    writes: int = 7  # the barrier that its result frees; 7: none
    reads: int = 7
    waits: int = 0  # for barriers, a bit each
    wavefronts: float = 1.0

    @property
    def opcode(self) -> str:
        return re.sub(r"^@!?U?P\w+\s+", "", self.text).split()[0].rstrip(",")

    @property
    def base(self) -> str:
        return self.opcode.split(".")[0]

    @property
    def is_guarded(self) -> bool:
        return self.text.startswith("@")

    @property
    def pipe(self) -> str:
        usual = "uniform" if self.base.startswith("U") else "control"
        return _PIPE_OF.get(self.base, usual)


@dataclass
class Block:
    """Instructions that run one after the other."""

    code: list[Instruction] = field(default_factory=list)
    count: int = 0  # of warps


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))[:300]}\n{done.stdout}{done.stderr}"[-3000:])
    return done.stdout + done.stderr


def read_images(data: Path) -> list[Case]:
    """Photographs that the notes name; a noisy gradient where they are missing."""
    places: list[tuple[str, Literal["packed", "rans"], str, int, int]] = [
        ("city", "packed", "photo/gb82/city-lossless.png", 0, 0),
        ("grass", "rans", "photo/gb82/grass-lossless.png", 0, 0),
        ("colosseum", "rans", "photo/large/roman-colosseum.png", 384, 640),
    ]
    cases = []
    for name, kind, path, top, left in places:
        if (data / path).exists() and importlib.util.find_spec("imagecodecs") is not None:
            import imagecodecs

            image = imagecodecs.png_decode((data / path).read_bytes())
            cases.append(Case(name, kind, cut(image[top:, left:], _SIDE_PX, _SIDE_PX)))
        else:
            print(f"{data / path} cannot be read: a noisy gradient instead", file=sys.stderr)
            cases.append(Case("gradient", kind, noisy_gradient(_SIDE_PX, _SIDE_PX)))
        if kind == "packed":
            cases.append(replace(cases[-1], in_teams=True))
    return list({(case.name, case.number): case for case in cases}.values())


def _sections(path: Path, kernel: str) -> Iterator[list[str]]:
    """The rows of a file of counts that are this kernel's, split at blanks."""
    is_ours = False
    for row in path.read_text().splitlines():
        if row.startswith("kernel "):
            is_ours = kernel in row
        elif is_ours:
            yield row.split(" ", 6)


def execute(case: Case, ptx: Path, folder: Path) -> dict[int, Line]:
    """Decodes the image by the PTX machine, which also compares; returns what each line did."""
    image, counts, traffic = folder / "image.l3", folder / "counts.txt", folder / "traffic.txt"
    image.write_bytes(case.encode())
    files = {"L3_PTX": str(ptx), "L3_PTX_COUNTS": str(counts), "L3_PTX_TRAFFIC": str(traffic)}
    if not case.in_teams:
        files["L3_CUDART_MULTIPROCESSORS"] = "1"  # which a few tiles keep busy
    run(ROOT / _DECODE, image, **files, L3_PTX_CHECKS="none")
    lines: dict[int, Line] = {}
    for line, opcode, warps, _, _, source_line, source in _sections(counts, case.kernel):
        lines[int(line)] = Line(opcode, int(warps), f"{Path(source).name}:{source_line}")
    for line, wavefronts, sectors in _sections(traffic, case.kernel):
        lines[int(line)].wavefronts = int(wavefronts)
        lines[int(line)].sectors = int(sectors)
    return lines


def read_sass(text: str, kernel: str) -> list[Instruction]:
    """A kernel of what `nvdisasm -gp -hex -c` prints."""
    code: list[Instruction] = []
    is_ours, line, label = False, 0, ""
    for row in text.splitlines():
        if re.match(r"\s*\.section\s", row):
            is_ours = ".text." in row and kernel in row
        if not is_ours:
            continue
        if place := re.search(r'nv_debug_ptx_txt", line (\d+)', row):
            line = int(place[1])
        elif named := re.match(r"(\.L_\w+):", row):
            label = named[1]
        elif first := re.match(r"\s*/\*[0-9a-f]+\*/\s+(.*?);\s*/\* 0x[0-9a-f]+ \*/", row):
            code.append(Instruction(first[1].strip(), line, label))
            label = ""
        elif (second := re.match(r"\s*/\* 0x([0-9a-f]+) \*/", row)) and code:
            control = int(second[1], 16) >> 41
            code[-1].stall = max(1, control & 15)
            code[-1].writes = control >> 5 & 7
            code[-1].reads = control >> 8 & 7
            code[-1].waits = control >> 11 & 63
    return code


def blocks_of(code: Sequence[Instruction], lines: dict[int, Line]) -> list[Block]:
    """Basic blocks. One ran as often as the median of its instructions' lines."""
    blocks = [Block()]
    for one in code:
        if one.label and blocks[-1].code:
            blocks.append(Block())
        blocks[-1].code.append(one)
        if one.base in ("BRA", "EXIT", "BRX", "RET", "BREAK"):
            blocks.append(Block())
    blocks = [block for block in blocks if block.code]
    # Code for lanes that come to a collective apart: warps that are together never run it.
    apart = {found[1] for i in code if (found := re.search(r"BRA\.DIV.*?(\.L_\w+)", i.text))}
    is_apart = False
    for block in blocks:
        if label := block.code[0].label:
            is_apart = label in apart or (is_apart and label not in apart)
        if not is_apart:
            ran = sorted(lines[i.line].warps if i.line in lines else 0 for i in block.code)
            block.count = ran[len(ran) // 2]
        last = block.code[-1]
        if last.base == "EXIT" or (last.opcode == "BRA" and not last.is_guarded):
            is_apart = False
    for one in code:
        ran_line = lines.get(one.line)
        if one.pipe == "memory" and ran_line and ran_line.warps and ran_line.wavefronts:
            one.wavefronts = ran_line.wavefronts / ran_line.warps
    return blocks


def count(blocks: Sequence[Block]) -> tuple[Counter[str], float]:
    """Instructions by pipe, and passes of the unit for memory."""
    pipes: Counter[str] = Counter()
    wavefronts = 0.0
    for block in blocks:
        for one in block.code:
            pipes[one.pipe] += block.count
            wavefronts += block.count * one.wavefronts if one.pipe == "memory" else 0.0
    return pipes, wavefronts


def cycles_of(blocks: Sequence[Block]) -> dict[str, float]:
    """Cycles of one scheduler that issue and each pipe take at least, for all warps."""
    pipes, wavefronts = count(blocks)
    cycles = {name: float(pipes[name] * _PIPE_CYCLES[name]) for name in ("ALU", "FMA", "XU")}
    cycles["issue"] = float(sum(pipes.values()))
    cycles["memory"] = wavefronts * _PIPE_CYCLES["memory"]
    return cycles


def issue_rate(blocks: Sequence[Block], warps: int, seed: int = 1) -> float:
    """Instructions a cycle of one scheduler with so many warps, which take their turns by chance.

    Each runs the blocks as often as the counts say, in the order of the code.
    """
    chance = random.Random(seed)
    top = max(block.count for block in blocks)
    hot = [(block.code, block.count / top) for block in blocks if block.count > 0.002 * top]

    def trace() -> Iterator[Instruction]:
        for _ in range(_TURNS):
            for code, share in hot:
                for _ in range(int(share) + (chance.random() < share - int(share))):
                    yield from code

    traces = [trace() for _ in range(warps)]
    barriers = [[0.0] * 8 for _ in range(warps)]
    waiting: list[tuple[float, float, int, Instruction]] = []
    end, issued, next_issue = 0.0, 0, 0.0
    free: dict[str, float] = defaultdict(float)
    # How far a pipe may be behind before it stops a warp: its queue.
    queue = {"memory": 60.0, "XU": 16.0, "ALU": 0.0, "FMA": 0.0}

    def push(warp: int, ready: float) -> None:
        nonlocal end
        one = next(traces[warp], None)
        if one is None:
            end = max(end, ready)
            return
        for barrier in range(6):
            if one.waits >> barrier & 1:
                ready = max(ready, barriers[warp][barrier])
        heapq.heappush(waiting, (ready, chance.random(), warp, one))

    for warp in range(warps):
        push(warp, chance.random() * 200)
    while waiting:
        ready, _, warp, one = heapq.heappop(waiting)
        pipe = one.pipe
        start = max(ready, next_issue, free[pipe] - queue.get(pipe, float("inf")))
        if start > ready + 0.5 and waiting and waiting[0][0] < start:  # another may go first
            heapq.heappush(waiting, (start, chance.random(), warp, one))
            continue
        next_issue = start + 1
        issued += 1
        busy = _PIPE_CYCLES.get(pipe, 1) * (one.wavefronts if pipe == "memory" else 1.0)
        begin = max(start, free[pipe]) if pipe in ("memory", "XU") else start
        free[pipe] = begin + busy
        latency = _LATENCY.get(one.base, 20)
        if one.base in ("LDG", "LD") and "128" in one.opcode and "CONSTANT" in one.opcode:
            latency = _LATENCY_PAYLOAD
        barriers[warp][one.writes] = max(barriers[warp][one.writes], begin + busy + latency)
        barriers[warp][one.reads] = max(barriers[warp][one.reads], begin + busy + 10)
        push(warp, start + one.stall)
    return issued / end


@dataclass(frozen=True)
class Prediction:
    """Of a case on a GPU; rates are bytes of pixels a second."""

    case: str
    gpu: str
    warps: int
    ptx: float  # instructions of warps a pixel, as all that follow up to `memory`
    sass: float
    pipes: dict[str, float]
    wavefronts: float
    cycles: dict[str, float]  # of a scheduler, a pixel
    ceiling: float
    model: float
    lone_us: float  # of a tile whose warps have a scheduler each; waits for each other are missing
    shared_passes: float  # of a load or store in shared memory: 1 is without conflicts
    sectors: list[tuple[str, str, float, float]]  # source, opcode, requests a pixel, sectors each


def predict(
    case: Case, arch: int, lines: dict[int, Line], blocks: list[Block], warps: int
) -> Prediction:
    """All that is said of a case."""
    gpu = ptxas.GPUS[arch]
    pixels = case.pixels.shape[0] * case.pixels.shape[1]
    pipes, wavefronts = count(blocks)
    cycles = cycles_of(blocks)
    total = sum(pipes.values())
    # Four schedulers a multiprocessor.
    per_cycle = 4 * gpu.multiprocessors * CLOCKS_GHZ[arch] * 1e9 * case.pixels.nbytes
    shared = [one for one in lines.values() if ".shared" in one.opcode and one.warps]
    places: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for one in lines.values():
        if one.sectors:
            places[one.source, one.opcode][0] += one.warps
            places[one.source, one.opcode][1] += one.sectors
    return Prediction(
        case=f"{case.kind}{' in teams' if case.in_teams else ''}, {case.name}",
        gpu=f"{gpu.name}, sm_{arch}",
        warps=warps,
        ptx=sum(one.warps for one in lines.values()) / pixels,
        sass=total / pixels,
        pipes={name: number / pixels for name, number in pipes.most_common()},
        wavefronts=wavefronts / pixels,
        cycles={name: number / pixels for name, number in cycles.items()},
        ceiling=per_cycle / max(cycles.values()),
        model=per_cycle * issue_rate(blocks, round(warps / 4)) / total,
        lone_us=total
        / case.tiles
        / (ptxas.TEAM_WARPS if case.in_teams else 1)
        / (issue_rate(blocks, 1) * CLOCKS_GHZ[arch] * 1e3),
        shared_passes=sum(one.wavefronts for one in shared) / max(1, sum(o.warps for o in shared)),
        sectors=[
            (source, opcode, requests / pixels, sectors / requests)
            for (source, opcode), (requests, sectors) in sorted(
                places.items(), key=lambda item: -item[1][1]
            )
        ],
    )


def predict_all(cases: Sequence[Case], arch: int, tools: dict[str, str]) -> Iterator[Prediction]:
    """Compiles what the cases need, and runs them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in sorted({case.kind for case in cases}):
            number = ptxas.KINDS.index(kind)
            unit = ptxas.UNITS[number, 1]
            print(f"== {unit}, sm_{arch}", file=sys.stderr, flush=True)
            ptx, cubin = folder / f"{unit}.ptx", folder / f"{unit}.cubin"
            source = f"src/cuda/kernels/{unit}.cu"
            flags = ("-std=c++17", "-O3", "-Isrc", "-lineinfo", f"-arch=compute_{arch}")
            run(tools["nvcc"], *flags, "-ptx", source, "-o", ptx)
            options = ("-v", "-O3", "-lineinfo", f"-arch=sm_{arch}")
            log = run(tools["ptxas"], *options, ptx, "-o", cubin)
            compiled = ptxas.kernels_of(log)
            sass = run(tools["nvdisasm"], "-gp", "-hex", "-c", cubin)
            for case in cases:
                if case.kind == kind:
                    lines = execute(case, ptx, folder)
                    blocks = blocks_of(read_sass(sass, case.kernel), lines)
                    held, per_block, _ = ptxas.occupancy(
                        ptxas.GPUS[arch], compiled[case.number, 1, 0], case.number, 1, folder
                    )
                    one = predict(case, arch, lines, blocks, held * per_block)
                    print(f"{one.case}: {one.sass:.2f} instructions a pixel", file=sys.stderr)
                    yield one


def report(predictions: Sequence[Prediction]) -> str:
    """Tables, in Markdown."""
    origin = made()
    head = ["predicted", "warps", "PTX", "SASS", "ceiling, GB/s", "model, GB/s", "lone tile, us"]
    names = ["issue", "ALU", "FMA", "XU", "memory"]
    rates, costs, memory = [], [], []
    for one in predictions:
        title = f"{one.gpu}: {one.case}"
        numbers = [str(one.warps), f"{one.ptx:.2f}", f"{one.sass:.2f}"]
        speeds = [f"{one.ceiling / 1e9:.0f}", f"{one.model / 1e9:.0f}", f"{one.lone_us:.1f}"]
        rates.append([title, *numbers, *speeds])
        cycles = [f"{one.cycles[name]:.2f}" for name in names]
        costs.append([title, *cycles, f"{one.wavefronts:.2f}", f"{one.shared_passes:.2f}"])
        for source, opcode, requests, sectors in one.sectors[:6]:
            memory.append([f"{title}: {source}, {opcode}", f"{requests:.3f}", f"{sectors:.1f}"])
    passes = ["passes of memory", "of a shared access"]
    return (
        f"Code of commit {origin['commit']}, {origin['date']}. Predicted, of {_SIDE_PX}x{_SIDE_PX} "
        "pixels of RGB8.\nPTX and SASS are instructions of warps a pixel, rates are of pixels.\n\n"
        + markdown_table(head, rates)
        + "\nCycles of a scheduler a pixel that each takes at least, and passes of the unit for\n"
        "memory. Without bank conflicts a shared access takes one pass, of 8 bytes a lane two.\n\n"
        + markdown_table(["", *names, *passes], costs)
        + "\nLoads and stores of global memory that touch most sectors of 32 bytes.\n\n"
        + markdown_table(["", "requests a pixel", "sectors a request"], memory)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--archs", type=int, nargs="+", choices=list(CLOCKS_GHZ), default=[80, 90])
    parser.add_argument("--out", type=Path, help="a file for the tables, written as they come")
    for tool in ("nvcc", "ptxas", "nvdisasm"):
        parser.add_argument(f"--{tool}", default=tool)
    args = parser.parse_args()
    tools = {tool: getattr(args, tool) for tool in ("nvcc", "ptxas", "nvdisasm")}
    for tool in tools.values():
        if shutil.which(tool) is None:
            parser.error(f"{tool} is not on PATH: give its place")
    if not (ROOT / _DECODE).exists():
        parser.error(f"{_DECODE} is missing: `make simulate` builds it")
    cases = read_images(args.data)
    predictions: list[Prediction] = []
    for arch in args.archs:
        for one in predict_all(cases, arch, tools):
            predictions.append(one)
            if args.out is not None:  # so that a run that is cut off leaves what it has
                args.out.write_text(report(predictions))
    print(report(predictions))


if __name__ == "__main__":
    main()
