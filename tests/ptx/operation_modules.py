"""PTX modules of operation_cases.py: a thread loads its row, runs the code, stores the results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from operation_cases import INPUTS, SCRATCH, Group, outputs
from operation_model import FORMATS, bits_of, is_nan, mask

SLOT = 8  # bytes of an operand or a result
VERSION = "8.3"

REGISTERS = """\
  .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %t<4>; .reg .b64 %w<4>; .reg .f32 %f; .reg .f64 %g;
  .reg .b32 %thread, %number, %sh, %sh0; .reg .b64 %in, %gin, %out, %mem, %mem0, %gmem, %offset;
"""


def register_type(type_: str) -> str:
    """The type of a register that holds `type_`; those of halves have no arithmetic type."""
    if type_ in ("pred", "f32", "f64"):
        return type_
    return "b32" if type_.endswith("x2") else f"b{bits_of(type_)}"


def _load(register: str, type_: str, offset: int) -> str:
    if type_ == "pred":
        return f"  ld.global.b32 %number, [%in+{offset}]; setp.ne.u32 {register}, %number, 0;\n"
    return f"  ld.global.{register_type(type_)} {register}, [%in+{offset}];\n"


def _store(register: str, type_: str, offset: int) -> str:
    if type_ == "pred":
        return f"  selp.u32 %number, 1, 0, {register}; st.global.b32 [%out+{offset}], %number;\n"
    return f"  st.global.{register_type(type_)} [%out+{offset}], {register};\n"


def declare(group: Group) -> str:
    """The registers of a group's operands and results."""
    lines = zip(
        (*INPUTS[: len(group.inputs)], *outputs(len(group.outputs))),
        (*group.inputs, *group.outputs),
        strict=True,
    )
    return "".join(f"  .reg .{register_type(t)} {register};\n" for register, t in lines)


def entry(group: Group, name: str = "run") -> str:
    """The kernel of a group; its buffers are rows of operands, rows of results, and scratch."""
    scratch = SCRATCH * group.threads
    text = f".visible .entry {name}"
    text += "(.param .u64 in, .param .u64 out, .param .u64 mem)\n{\n"
    text += REGISTERS + declare(group)
    text += f"  .shared .align 16 .b8 shared[{scratch}]; .local .align 16 .b8 local[{SCRATCH}];\n"
    text += "  mov.u32 %thread, %tid.x; mov.u32 %sh0, shared; "
    text += f"mad.lo.u32 %sh, %thread, {SCRATCH}, %sh0;\n"
    text += (
        "  mov.u32 %number, %ctaid.x; ld.param.u64 %mem0, [mem]; cvta.to.global.u64 %mem0, %mem0;\n"
    )
    text += f"  mul.wide.u32 %offset, %number, {scratch}; add.s64 %mem0, %mem0, %offset;\n"
    text += f"  mul.wide.u32 %offset, %thread, {SCRATCH}; add.s64 %mem, %mem0, %offset;\n"
    text += (
        f"  cvta.global.u64 %gmem, %mem; mad.lo.u32 %thread, %number, {group.threads}, %thread;\n"
    )
    for buffer, count in (("in", len(group.inputs)), ("out", len(group.outputs))):
        text += f"  ld.param.u64 %{buffer}, [{buffer}]; cvta.to.global.u64 %{buffer}, %{buffer};\n"
        text += f"  mul.wide.u32 %offset, %thread, {SLOT * count}; "
        text += f"add.s64 %{buffer}, %{buffer}, %offset;\n"
    text += "  cvta.global.u64 %gin, %in;\n"
    text += "".join(
        _load(r, t, SLOT * i) for i, (r, t) in enumerate(zip(INPUTS, group.inputs, strict=False))
    )
    text += f"  {group.code}\n"
    results = zip(outputs(len(group.outputs)), group.outputs, strict=True)
    text += "".join(_store(r, t, SLOT * i) for i, (r, t) in enumerate(results))
    return text + "  ret;\n}\n"


def opcodes(group: Group) -> set[str]:
    """The opcodes with modifiers of a group's code."""
    statements = re.split(r"[;{}\n]", f"{group.declare}\n{group.code}")
    bare = (re.sub(r"^\s*(\w+:\s)?\s*(@!?%\w+)?\s*", "", statement) for statement in statements)
    return {match[0] for text in bare if (match := re.match(r"[a-z][\w.:]*", text))}


def module(groups: Iterable[Group], entries: Iterable[str], target: int) -> str:
    """A module of `entries`, with what `groups` declare."""
    head = f".version {VERSION}\n.target sm_{target}\n.address_size 64\n"
    declared = dict.fromkeys(group.declare for group in groups)
    return "\n".join([head, *declared, *entries])


def slots(rows: Sequence[tuple[int, ...]]) -> NDArray[np.uint64]:
    return np.array(rows, np.uint64)


def equal(found: int, expected: int, type_: str) -> bool:
    """Whether a result is the one of the manual, which names no NaN in particular."""
    if type_.endswith("x2"):
        halves = ((found >> i & 0xFFFF, expected >> i & 0xFFFF) for i in (0, 16))
        return all(equal(one, other, type_[:-2]) for one, other in halves)
    if type_ in FORMATS and is_nan(expected, FORMATS[type_]):
        return is_nan(found & mask(bits_of(type_)), FORMATS[type_])
    return found & mask(bits_of(type_)) == expected
