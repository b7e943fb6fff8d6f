"""The PTX interpreter against operation_cases.py, and that table against NVIDIA's ptxas."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import operation_cases as cases
import pytest
from folded import cuda_tool, read_folded
from numpy.typing import NDArray
from operation_cases import FAMILIES, SCRATCH, Group
from operation_modules import entry, equal, module, opcodes, slots

ROOT = Path(__file__).resolve().parents[2]
SHOWN = 20  # differences of a family in a failure
UNWRITTEN = 0xA5A5A5A5A5A5A5A5

# What the interpreter takes and the table lacks: saturation that cannot happen (ptxas refuses it),
# qualifiers in another order than the manual's, vectors and floats as parameters, ret.uni, trap.
NO_CASES = re.compile(
    r"cvt\.sat\.|ld\.global\.(nc\.c[ags]|L1::\w+\.nc)\b|(ld|st)\.param\.|ret\.uni$|trap$"
)

# What ptxas 13.0 folds against the manual: 2**52 + 1 is an integer, and INT_MIN is below 0.
PTXAS_ERRS = (
    "cvt.rni.u64.f64 of 0x4330000000000001: ptxas 0x10000000000002, table 0x10000000000001",
    "slct.s32.s32 of 0x0, 0xffff8000, 0x80000000: ptxas 0x0, table 0xffff8000",
)


@functools.cache
def interpreter() -> ctypes.CDLL:
    folder = Path(os.environ.get("L3_TESTING_LIBRARY", ROOT / "build/release/x")).parent
    library = ctypes.CDLL(str(folder / "libl3_ptx.so"))
    library.l3_ptx_operations.restype = ctypes.c_char_p
    return library


@functools.cache
def operations() -> frozenset[str]:
    """The opcodes with modifiers that the interpreter knows."""
    return frozenset(interpreter().l3_ptx_operations().decode().split())


def is_known(group: Group) -> bool:
    return opcodes(group) <= operations()


def run_ptx(text: str, blocks: int, threads: int, buffers: list[NDArray[np.uint64]]) -> str:
    """Runs the kernel `run`, changing `buffers`. Returns the error, empty if there is none."""
    count = len(buffers)
    pointers = (ctypes.c_void_p * count)(*(b.ctypes.data for b in buffers))
    sizes = (ctypes.c_size_t * count)(*(b.nbytes for b in buffers))
    error = ctypes.create_string_buffer(1024)
    result = interpreter().l3_ptx_run(
        text.encode(),
        b"run",
        ctypes.c_uint32(blocks),
        ctypes.c_uint32(threads),
        ctypes.c_uint32(0),
        pointers,
        sizes,
        ctypes.c_int(count),
        error,
        ctypes.c_size_t(len(error)),
    )
    message = error.value.decode()
    assert (result == 0) == (message == ""), (result, message)
    return message


def differences(group: Group) -> list[str]:
    """The cases in which the interpreter gives something else, or its error."""
    operands = slots([row for row, _ in group.rows])
    found = np.full((len(group.rows), len(group.outputs)), UNWRITTEN, np.uint64)
    scratch = np.zeros(len(group.rows) * SCRATCH // 8, np.uint64)
    blocks, rest = divmod(len(group.rows), group.threads)
    assert rest == 0, group.name
    text = module([group], [entry(group)], group.target)
    error = run_ptx(text, blocks, group.threads, [operands, found, scratch])
    if error:
        return [f"{group.name}: {error}"]
    return [
        f"{group.name} of {', '.join(map(hex, row))}: result {i} is {value:#x}, not {expected:#x}"
        for (row, results), values in zip(group.rows, found.tolist(), strict=True)
        for i, (value, expected) in enumerate(zip(values, results, strict=True))
        if not equal(value, expected, group.outputs[i])
    ]


def assert_none(lines: list[str]) -> None:
    assert not lines, "\n".join([f"{len(lines)} differences", *lines[:SHOWN]])


@pytest.mark.parametrize("family", FAMILIES)
def test_interpreter(family: str) -> None:
    known = [group for group in cases.groups(family) if is_known(group)]
    assert len(known) > 1
    assert_none([line for group in known for line in differences(group)])


@pytest.mark.parametrize("family", FAMILIES)
def test_unknown_operations_do_not_run(family: str) -> None:
    """They stop the interpreter with their line and their name."""
    unknown = [group for group in cases.groups(family) if not is_known(group)]
    errors = {group.name: " ".join(differences(group)) for group in unknown}
    says = re.compile(r".*: <ptx>:\d+: [\w.:]+: this operation is not known")
    assert [error for error in errors.values() if not says.fullmatch(error)] == []


def test_every_known_operation_has_a_case() -> None:
    groups = [group for family in FAMILIES for group in cases.groups(family)]
    used = set().union(*(opcodes(group) for group in groups))
    missing = sorted(name for name in operations() - used if not NO_CASES.match(name))
    assert_none(missing)


@pytest.mark.parametrize("family", FAMILIES)
def test_model_agrees_with_what_was_worked_out_by_hand(family: str) -> None:
    assert_none(
        [
            f"{group.name} of {operands}: {by_hand} by hand, {modelled} by model"
            for group in cases.groups(family)
            for operands, by_hand, modelled in group.by_hand
            if not all(map(equal, modelled, by_hand, group.outputs))
        ]
    )


def test_names_are_unique() -> None:
    names = [group.name for family in FAMILIES for group in cases.groups(family)]
    assert len(set(names)) == len(names)


def _tool(name: str) -> str:
    path = cuda_tool(name)
    if path is None:
        pytest.skip(f"{name} is not installed, so NVIDIA's assembler judges nothing here")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_ptxas_takes_every_module(family: str, tmp_path: Path) -> None:
    """On sm_80, what it has, and the rest on sm_90: ptxas is the judge of syntax."""
    ptxas = _tool("ptxas")
    groups = cases.groups(family)
    for arch, chosen in (
        (80, [group for group in groups if group.target <= 80]),
        (90, [group for group in groups if group.target > 80]),
    ):
        entries = (entry(group, f"k{i}") for i, group in enumerate(chosen))
        text = module(chosen, entries, arch)
        (tmp_path / "all.ptx").write_text(text)
        command = [
            ptxas,
            "-O0",
            f"-arch=sm_{arch}",
            "-o",
            f"{tmp_path}/cubin",
            f"{tmp_path}/all.ptx",
        ]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr[:2000]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_ptxas_folds_to_the_table(family: str) -> None:
    reading = read_folded(cases.groups(family), 80, _tool("ptxas"), _tool("nvdisasm"))
    assert_none([line for line in reading.differences if line not in PTXAS_ERRS])
    if family in ("integers", "logic", "comparison", "floating point", "conversions"):
        assert reading.folded.total() > reading.seen.total() // 10, "the disassembly is not read"
