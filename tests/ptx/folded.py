"""A second reading of operation_cases.py: what NVIDIA's ptxas makes of the same constants.

    python tests/ptx/folded.py [--arch 80]

ptxas computes many operations itself where all operands are constants. Each case is assembled with
its operands in place, and a result that ptxas folded is read back from the disassembly. It prints
for each opcode how many cases were folded, and those that differ from the table.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import operation_cases as cases
from operation_cases import INPUTS, Group, outputs
from operation_model import bits_of
from operation_modules import REGISTERS, SLOT, declare, equal, module, register_type

ENTRIES = 24  # kernels of one cubin
CASES = 48  # of a group, in one kernel; a group's first cases are those worked out by hand


def cuda_tool(name: str) -> str | None:
    """A program of CUDA: of L3_CUDA_ROOT, beside nvcc, on PATH, or of the PyPI wheels."""
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc")
    folders = [Path(os.environ["L3_CUDA_ROOT"], "bin")] if os.environ.get("L3_CUDA_ROOT") else []
    folders += [Path(nvcc).resolve().parent] if nvcc else []
    folders += [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    wheels = importlib.util.find_spec("nvidia")
    for folder in (wheels and wheels.submodule_search_locations) or ():
        folders += sorted(Path(folder).glob("cu*/bin"), reverse=True)
    return next((str(f / name) for f in folders if os.access(f / name, os.X_OK)), None)


def constant_kernel(group: Group, name: str, rows: Sequence[cases.Row]) -> str:
    """A kernel that computes the rows from constants, and stores each result in its slot."""
    text = f".visible .entry {name}(.param .u64 out)\n{{\n{REGISTERS}{declare(group)}"
    text += "  ld.param.u64 %out, [out]; cvta.to.global.u64 %out, %out;\n"
    slot = 0
    for row in rows:
        for register, type_, value in zip(INPUTS, group.inputs, row, strict=False):
            if type_ == "pred":
                text += f"  mov.pred {register}, {value};\n"
            elif type_ in ("f32", "f64"):
                digits = bits_of(type_) // 4
                text += (
                    f"  mov.{type_} {register}, 0{'f' if digits == 8 else 'd'}{value:0{digits}X};\n"
                )
            else:
                text += f"  mov.{register_type(type_)} {register}, {value:#x};\n"
        text += f"  {{ {group.code} }}\n"
        for register, type_ in zip(outputs(len(group.outputs)), group.outputs, strict=True):
            if type_ == "pred":
                text += f"  selp.u32 %number, 1, 0, {register};\n"
                register, type_ = "%number", "b32"
            text += f"  st.global.{register_type(type_)} [%out+{SLOT * slot}], {register};\n"
            slot += 1
    return text + "  ret;\n}\n"


_KERNEL = re.compile(r"^\.text\.(\w+):")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_STORE = re.compile(r"\[U?R\d+(?:\.64)?(?:\+(0x[0-9a-f]+))?\](?:\[\w+\])?, (\w+)")
_REGISTER = re.compile(r"U?R(\d+)")


def _half(text: str) -> int:
    """The bits of a half as the disassembler writes it."""
    named = {"+INF": 0x7C00, "-INF": 0xFC00, "+QNAN": 0x7FFF, "-QNAN": 0xFFFF}
    if text in named:
        return named[text]
    return int(np.array(float(text), np.float16).view(np.uint16))


class Registers:
    """The registers of a kernel whose values are known."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def value(self, operand: str) -> int | None:
        operand = operand.removesuffix(".reuse")
        if operand in ("RZ", "URZ", "SRZ"):
            return 0
        if re.fullmatch(r"-?0x[0-9a-f]+", operand):
            return int(operand, 16) & 0xFFFFFFFF
        return self.known.get(operand)

    def run(self, opcode: str, operands: Sequence[str]) -> None:
        """Follows what only moves; every other result is unknown."""
        base = opcode.split(".")[0]
        result: int | None = None
        if opcode in ("MOV", "UMOV", "R2UR", "S2UR") and len(operands) == 2:
            result = self.value(operands[1])
        elif opcode == "IMAD.MOV.U32" and operands[1:3] == ["RZ", "RZ"]:
            result = self.value(operands[3])
        elif (
            opcode in ("HFMA2.MMA", "HFMA2")
            and operands[1:3] == ["-RZ", "RZ"]
            and len(operands) == 5
        ):
            try:
                result = _half(operands[3]) << 16 | _half(operands[4])
            except ValueError:  # as it writes a half that is no plain number
                result = None
        elif base in ("CS2R", "UCS2R") and operands[1] in ("SRZ", "URZ"):
            wide = [] if opcode.endswith(".32") else [self._next(operands[0])]
            for name in (operands[0], *wide):
                self.known[name] = 0
            return
        target = next((one for one in operands if not one.lstrip("!").startswith(("P", "UP"))), "")
        if not _REGISTER.fullmatch(target):
            return
        if result is None:
            # Of how many registers it writes nothing is known, so neighbours are forgotten too.
            for name in (target, *(self._next(target, i) for i in (1, 2, 3))):
                self.known.pop(name, None)
        else:
            self.known[target] = result

    @staticmethod
    def _next(name: str, by: int = 1) -> str:
        number = _REGISTER.fullmatch(name)
        return re.sub(r"\d+", str(int(number[1]) + by), name) if number else name


def stored(disassembly: str) -> dict[str, dict[int, int | None]]:
    """Of each kernel: what it stores at which offset, None where that is not a constant."""
    kernels: dict[str, dict[int, int | None]] = {}
    slots: dict[int, int | None] = {}
    registers = Registers()
    for line in disassembly.splitlines():
        if kernel := _KERNEL.match(line):
            slots = kernels[kernel[1]] = {}
            registers = Registers()
        elif line.startswith(".L_"):
            registers = Registers()
        elif instruction := _INSTRUCTION.match(line):
            guard, opcode, rest = instruction.groups()
            if opcode.startswith(("BRA", "CALL", "RET")):
                registers = Registers()
            if opcode.startswith("STG"):
                store = _STORE.search(rest)
                if store is None or guard:
                    continue
                offset, register = int(store[1] or "0", 16), store[2]
                value = registers.value(register)
                if ".64" in opcode:
                    upper = 0 if register == "RZ" else registers.value(Registers._next(register))
                    value = None if value is None or upper is None else value | upper << 32
                slots[offset] = value
            else:
                registers.run("?" if guard else opcode, [part.strip() for part in rest.split(",")])
    return kernels


@dataclass
class Reading:
    """What ptxas folded."""

    folded: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


def _batches(groups: Sequence[Group]) -> Iterator[Sequence[Group]]:
    for start in range(0, len(groups), ENTRIES):
        yield groups[start : start + ENTRIES]


def read_folded(groups: Sequence[Group], arch: int, ptxas: str, nvdisasm: str) -> Reading:
    """Assembles the cases of `groups` on constants, and compares what was folded."""
    reading = Reading()
    foldable = [group for group in groups if group.is_foldable and group.target <= arch]
    with tempfile.TemporaryDirectory() as folder:
        ptx, cubin = Path(folder, "folded.ptx"), Path(folder, "folded.cubin")
        for batch in _batches(foldable):
            chosen = [(group, group.rows[:CASES]) for group in batch]
            kernels = (
                constant_kernel(group, f"k{i}", [operands for operands, _ in rows])
                for i, (group, rows) in enumerate(chosen)
            )
            ptx.write_text(module(batch, kernels, arch))
            command = [ptxas, f"-arch=sm_{arch}", str(ptx), "-o", str(cubin)]
            subprocess.run(command, check=True, capture_output=True, text=True)
            listing = subprocess.run(
                [nvdisasm, "-c", str(cubin)], check=True, capture_output=True, text=True
            )
            found = stored(listing.stdout)
            for i, (group, rows) in enumerate(chosen):
                _compare(group, rows, found[f"k{i}"], reading)
    return reading


def _compare(
    group: Group,
    rows: Sequence[tuple[cases.Row, cases.Row]],
    slots: dict[int, int | None],
    reading: Reading,
) -> None:
    opcode = group.code.split()[0]
    slot = 0
    for operands, results in rows:
        for expected, type_ in zip(results, group.outputs, strict=True):
            value = slots.get(SLOT * slot)
            slot += 1
            reading.seen[opcode] += 1
            if value is None:
                continue
            reading.folded[opcode] += 1
            if not equal(value, expected, type_):
                reading.differences.append(
                    f"{group.name} of {', '.join(map(hex, operands))}: "
                    f"ptxas {value:#x}, table {expected:#x}"
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--arch", type=int, default=80)
    args = parser.parse_args()
    ptxas, nvdisasm = cuda_tool("ptxas"), cuda_tool("nvdisasm")
    if ptxas is None or nvdisasm is None:
        raise SystemExit("ptxas and nvdisasm are needed: of a CUDA toolkit, or of the PyPI wheels")
    total = 0
    for family in cases.FAMILIES:
        reading = read_folded(cases.groups(family), args.arch, ptxas, nvdisasm)
        for opcode, seen in reading.seen.items():
            print(f"{opcode}: {reading.folded[opcode]} of {seen} folded")
        print(*reading.differences, sep="\n", end="\n" if reading.differences else "")
        total += reading.folded.total()
    print(f"{total} results of ptxas compared")


if __name__ == "__main__":
    main()
