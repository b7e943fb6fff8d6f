"""The PTX machine: PTX that it must not run, and each check noticed by a kernel made for it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from machine import HEAD, kernel, run

WORDS = np.arange(32, dtype=np.uint32)
NOTHING = np.zeros(32, np.uint32)
COPY = "ld.global.u32 %r1, [%in];\n st.global.u32 [%out], %r1;"
SHARED = ".extern .shared .align 16 .b8 shared[];\n"
# The address of a thread's word in shared memory: %r10; of its neighbour's: %r11.
PLACES = """
    mov.u32 %r9, shared;
    shl.b32 %r10, %t, 2;
    add.u32 %r10, %r9, %r10;
    xor.b32 %r11, %r10, 4;
"""


def error_of(
    body: str, *, before: str = "", blocks: int = 1, threads: int = 32, shared_bytes: int = 0
) -> str:
    ptx = kernel(body, before=before)
    outcome = run(ptx, [WORDS, NOTHING], blocks=blocks, threads=threads, shared_bytes=shared_bytes)
    return outcome.error


def test_copies() -> None:
    outcome = run(kernel(COPY), [WORDS, NOTHING])
    assert outcome.error == ""
    np.testing.assert_array_equal(outcome.buffers[1], WORDS)


# PTX that is not run.

BAD_PTX = {
    "": "<ptx>:1: .version: the file ends here, cut short",
    ".version 9.9\n.target sm_80\n": "version 9.9 is newer than 9.0",
    ".version 8.0\n.target sm_80\n.address_size 32\n": ".address_size: only 64 is known",
    HEAD + ".tex .u64 t;\n": "<ptx>:4: .tex: this directive is not known",
    HEAD + ".visible .entry K()\n{\n}\n": "<ptx>:6: .entry K: it has no instructions",
    HEAD + ".visible .entry K()\n{\n.reg .b128 %x;\nret;\n}\n": "type .b128 is not known",
    HEAD + ".visible .entry K() .maxclusterrank 4\n{\nret;\n}\n": "directive is not known",
    HEAD + ".visible .entry K()\n{\nret;\n}\n.visible .entry K()\n{\nret;\n}\n": "declared twice",
}


@pytest.mark.parametrize("text", BAD_PTX)
def test_bad_module(text: str) -> None:
    error = run(text, []).error
    assert BAD_PTX[text] in error
    assert re.match(r"<ptx>:\d+: ", error)


# Memory.


def test_bounds() -> None:
    text = kernel(COPY)
    error = run(text, [WORDS[:31], NOTHING]).error
    assert "ld.global.u32" in error
    assert "4 bytes at byte 124 of the 124 of an allocation, block 0 warp 0 lane 31" in error
    assert "st.global.u32" in run(text, [WORDS, NOTHING[:31]]).error
    before = "ld.global.u32 %r1, [%in + -4];\n st.global.u32 [%out], %r1;"
    assert "out of bounds" in error_of(before)
    assert "out of bounds" in error_of(COPY.replace("[%in]", "[0]"))


def test_bounds_of_shared_memory() -> None:
    body = PLACES + "st.shared.u32 [%r10], %t;"
    assert error_of(body, before=SHARED, shared_bytes=128) == ""
    error = error_of(body, before=SHARED, shared_bytes=124)
    assert "shared memory out of bounds, 4 bytes at 124 of 124" in error
    assert "out of bounds" in error_of("st.shared.u32 [0], %t;", shared_bytes=128)


def test_alignment() -> None:
    error = error_of(COPY.replace("[%in]", "[%in+2]"))
    assert "an address that is not a multiple of 4" in error
    vector = "ld.global.v2.u32 {%r1, %r2}, [%in+4];\n st.global.u32 [%out], %r1;"
    assert "not a multiple of 8" in error_of(vector)


# Order.


def exchange(between: str, threads: int = 32) -> str:
    body = PLACES + f"st.shared.u32 [%r10], %t;\n {between}\n ld.shared.u32 %r1, [%r11];"
    return error_of(body, before=SHARED, shared_bytes=4 * threads, threads=threads)


def test_races_in_shared_memory() -> None:
    race = "a read of bytes written in shared memory by a lane that nothing orders before this"
    assert race in exchange("")
    assert exchange("bar.warp.sync -1;") == ""
    assert exchange("bar.sync 0;") == ""
    # Shuffles and votes wait, and order no memory.
    assert race in exchange("shfl.sync.idx.b32 %r2, %t, 0, 31, -1;")
    assert race in exchange("vote.sync.ballot.b32 %r2, 1, -1;")


def test_races_between_warps() -> None:
    body = (
        PLACES
        + "xor.b32 %r11, %r10, 128;\n st.shared.u32 [%r10], %t;\n"
        + "{}\n ld.shared.u32 %r1, [%r11];"
    )

    def error(between: str) -> str:
        ptx = kernel(body.replace("{}", between), before=SHARED)
        buffers = [np.zeros(64, np.uint32)] * 2
        return run(ptx, buffers, shared_bytes=256, threads=64).error

    assert "in shared memory by a lane that nothing orders" in error("")
    assert "in shared memory by a lane that nothing orders" in error("bar.warp.sync -1;")
    assert error("bar.sync 0;") == ""


def test_writes_after_reads() -> None:
    body = (
        PLACES
        + """
    st.shared.u32 [%r10], %t;
    bar.warp.sync -1;
    ld.shared.u32 %r1, [%r11];
    {}
    st.shared.u32 [%r10], 5;"""
    )
    error = error_of(body.replace("{}", ""), before=SHARED, shared_bytes=128)
    assert "a write of bytes read in shared memory" in error
    fixed = body.replace("{}", "bar.warp.sync -1;")
    assert error_of(fixed, before=SHARED, shared_bytes=128) == ""


def test_writes_of_several_lanes() -> None:
    body = PLACES + "st.shared.u32 [%r9], {};"
    assert "a write of bytes written" in error_of(
        body.replace("{}", "%t"), before=SHARED, shared_bytes=128
    )
    # Lanes that write one value at once write one value.
    assert error_of(body.replace("{}", "7"), before=SHARED, shared_bytes=128) == ""


def test_races_in_global_memory() -> None:
    word = "sub.s64 %d1, %out, %o;\n"
    error = error_of(word + "st.global.u32 [%d1], %t;")
    assert "a write of bytes written in global memory" in error
    least = word + "atom.global.min.u64 %d2, [%d1], %o;"
    assert error_of(least) == ""
    blocks = run(kernel(word + "st.global.u32 [%d1], 7;"), [WORDS, NOTHING], blocks=2).error
    assert "in global memory by a lane that nothing orders" in blocks
    atomic = run(kernel(least), [WORDS, WORDS + 7], blocks=2)
    assert (atomic.error, *atomic.buffers[1][:3]) == ("", 0, 0, 9)
    mixed = least + "\n ld.global.u32 %r1, [%d1];"
    assert "a read of bytes written in global memory" in error_of(mixed)


def test_nc_of_what_the_launch_writes() -> None:
    body = "ld.global.nc.u32 %r1, [%out];\n st.global.u32 [%out], %r1;"
    assert "a write of what the launch reads by ld.global.nc" in error_of(body)
    body = "st.global.u32 [%out], 1;\n ld.global.nc.u32 %r1, [%out];"
    assert "ld.global.nc of what the launch writes" in error_of(body)


# Lanes that wait.

PART = """
    setp.lt.u32 %p1, %t, 7;
    @%p1 bra there;
    {}
there:"""


def test_lanes_that_wait_always() -> None:
    for waits in (
        "bar.warp.sync -1;",
        "shfl.sync.idx.b32 %r1, %t, 0, 31, -1;",
        "vote.sync.ballot.b32 %r1, 1, -1;",
        "redux.sync.add.u32 %r1, %t, -1;",
        "bar.sync 0;",
    ):
        body = PART.replace("{}", waits) + "\n bar.warp.sync -1;"
        error = error_of(body)
        assert "lanes wait for each other endlessly" in error, waits
    # Those that have ended are not waited for.
    assert error_of("setp.lt.u32 %p1, %t, 7;\n @%p1 ret;\n bar.warp.sync -1;\n bar.sync 0;") == ""


def test_lanes_that_are_no_members() -> None:
    assert "a lane that is not in its own mask" in error_of("bar.warp.sync 0x7FFFFFFF;")


def test_launches_that_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("L3_PTX_MAX_INSTRUCTIONS", "1000")
    assert "does not end within" in error_of("again: bra again;")


def test_trap() -> None:
    assert "trap" in error_of("trap;")


# How it runs.


def test_functions_and_local_memory() -> None:
    before = """
.func (.param .b32 result) Pick(.param .b32 number, .param .align 4 .b8 both[8])
{
    .local .align 8 .b8 depot[16];
    .reg .b32 %r<5>;
    .reg .b64 %rd<5>;
    mov.u64 %rd1, depot;
    cvta.local.u64 %rd1, %rd1;
    ld.param.u32 %r1, [both];
    ld.param.u32 %r2, [both+4];
    st.u32 [%rd1], %r1;
    st.u32 [%rd1+4], %r2;
    ld.param.u32 %r3, [number];
    mul.wide.u32 %rd2, %r3, 4;
    add.s64 %rd2, %rd1, %rd2;
    ld.u32 %r4, [%rd2];
    st.param.b32 [result], %r4;
    ret;
}
"""
    body = """
    shl.b32 %r2, %t, 2;
    setp.gt.u32 %p1, %t, 20;
    @%p1 bra there;
    and.b32 %r3, %t, 1;
    { .param .b32 param0; .param .align 4 .b8 param1[8]; .param .b32 retval0;
    st.param.b32 [param0], %r3;
    st.param.b32 [param1], %r2;
    st.param.b32 [param1+4], %t;
    call.uni (retval0), Pick, (param0, param1);
    ld.param.b32 %r2, [retval0];
    }
there:
    st.global.u32 [%out], %r2;"""
    outcome = run(kernel(body, before=before), [WORDS, NOTHING])
    assert outcome.error == ""
    picked = np.where(WORDS & 1, WORDS, 4 * WORDS)
    np.testing.assert_array_equal(outcome.buffers[1], np.where(WORDS > 20, 4 * WORDS, picked))
    recursive = before.replace("    ret;\n", "    call.uni Pick, ();\n    ret;\n", 1)
    assert "call" in error_of(body, before=recursive)
