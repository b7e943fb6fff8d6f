"""libl3_ptx.so from Python: runs small kernels of hand-written PTX."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


@dataclass(frozen=True)
class Outcome:
    """How a kernel ended: an empty error is well."""

    error: str
    buffers: list[np.ndarray]


@cache
def library() -> ctypes.CDLL:
    testing = os.environ.get("L3_TESTING_LIBRARY", ROOT / "build/release/libl3_testing.so")
    return ctypes.CDLL(str(Path(testing).parent / "libl3_ptx.so"))


def run(
    ptx: str,
    buffers: Sequence[np.ndarray],
    *,
    entry: str = "K",
    blocks: int = 1,
    threads: int = 32,
    shared_bytes: int = 0,
) -> Outcome:
    """Runs a kernel on copies of the buffers."""
    copies = [np.ascontiguousarray(buffer).copy() for buffer in buffers]
    count = len(copies)
    pointers = (ctypes.c_void_p * count)(*(copy.ctypes.data for copy in copies))
    sizes = (ctypes.c_size_t * count)(*(copy.nbytes for copy in copies))
    error = ctypes.create_string_buffer(1000)
    result = library().l3_ptx_run(
        ptx.encode(),
        entry.encode(),
        ctypes.c_uint32(blocks),
        ctypes.c_uint32(threads),
        ctypes.c_uint32(shared_bytes),
        pointers,
        sizes,
        count,
        error,
        ctypes.c_size_t(len(error)),
    )
    text = error.value.decode()
    assert (result == 0) == (text == "")
    assert "\n" not in text
    return Outcome(text, copies)


def kernel(body: str, *, before: str = "") -> str:
    """A module with a kernel of two buffers: %in and %out are their addresses, %t is the thread,
    %o its offset in words, and there are registers, half, whole and wide: %h, %r, %d; %p, %f."""
    return (
        HEAD
        + before
        + """
.visible .entry K(.param .u64 in, .param .u64 out)
{
    .reg .pred %p<9>;
    .reg .b16 %h<9>;
    .reg .b32 %r<19>;
    .reg .f32 %f<9>;
    .reg .b64 %d<19>;
    .reg .b64 %in, %out, %o;
    .reg .b32 %t;
    ld.param.u64 %in, [in];
    ld.param.u64 %out, [out];
    mov.u32 %t, %tid.x;
    mul.wide.u32 %o, %t, 4;
    add.s64 %in, %in, %o;
    add.s64 %out, %out, %o;
"""
        + body
        + "\n    ret;\n}\n"
    )
