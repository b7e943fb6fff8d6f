"""The rules by which mutants.py leaves a change of a kernel out: known_bits.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from judged import Judged
from known_bits import KnownBits

# Loads, what is computed of them, and stores. %r1 is a byte, %r2 a word, %r3 a lane.
_TEXT = """
ld.global.u8 %r1, [%rd1];
ld.global.u32 %r2, [%rd1+4];
mov.u32 %r3, %tid.x;
and.b32 %r4, %r1, 255;
and.b32 %r5, %r2, 255;
and.b32 %r6, %r2, 511;
st.global.u8 [%rd2], %r6;
shl.b32 %r7, %r1, 8;
xor.b32 %r8, %r7, %r1;
xor.b32 %r9, %r7, %r2;
setp.lt.u32 %p1, %r7, 257;
setp.lt.u32 %p2, %r7, 256;
min.u32 %r10, %r3, 31;
min.u32 %r11, %r2, 31;
and.b32 %r12, %r2, 31;
shfl.sync.idx.b32 %r13|%p3, %r2, %r12, 31, -1;
shfl.sync.idx.b32 %r14|%p4, %r2, 0, 31, -1;
and.b32 %r15, %r2, 63;
prmt.b32 %r16, %r1, %r2, 0x5433;
add.s32 %r17, %r2, 1;
and.b32 %r18, %r17, 0;
mov.u32 %r19, 0;
$loop:
and.b32 %r20, %r19, 15;
add.s32 %r19, %r19, 1;
@%p1 bra $loop;
st.global.v4.u32 [%rd2], {%r4, %r5, %r8, %r9};
st.global.v4.u32 [%rd2], {%r10, %r11, %r13, %r14};
selp.b32 %r24, 1, 0, %p2;
setp.ne.s32 %p5, %r24, 0;
selp.b32 %r25, 1, 0, %p5;
mov.u32 %r26, 31;
mov.u32 %r27, 0;
shfl.sync.idx.b32 %r28|%p3, %r2, %r27, %r26, -1;
st.global.v2.u32 [%rd2], {%r25, %r28};
mov.u32 %r21, 0x7F017F00;
dp4a.u32.u32 %r22, %r2, %r21, %r1;
dp2a.lo.u32.u32 %r23, %r2, %r2, %r1;
st.global.v2.u32 [%rd2], {%r22, %r23};
st.global.v4.u32 [%rd2], {%r15, %r16, %r18, %r20};
max.s32 %r31, %r2, 0;
shr.s32 %r32, %r31, 6;
selp.u16 %rs1, 1, 0, %p2;
and.b16 %rs2, %rs1, 255;
setp.ne.s16 %p6, %rs2, 0;
selp.b32 %r33, %r2, 0, %p6;
st.global.v2.u32 [%rd2], {%r32, %r33};
shf.l.wrap.b32 %r29, %r2, %r1, 16;
add.s64 %rd5, %rd1, 8;
ld.global.u32 %r40, [%rd5];
shf.r.wrap.b32 %r41, %r1, %r40, 8;
add.s64 %rd6, %rd1, 16;
ld.global.v2.u32 {%r42, %r43}, [%rd6];
st.global.u32 [%rd2], %r43;
shf.l.wrap.b32 %r30, %r2, %r1, 15;
st.global.v2.u32 [%rd2], {%r29, %r30};
mov.u32 %r34, 0x1032;
mov.u32 %r35, 0;
prmt.b32 %r36, %r2, %r35, %r34;
selp.b32 %r37, -1, 0, %p2;
bfi.b32 %r38, %r37, %r2, 1, 1;
st.global.v2.u32 [%rd2], {%r36, %r38};
"""
_KERNEL = _TEXT.split("\n")


@pytest.mark.parametrize(
    ("before", "after", "rule"),
    [
        # A byte has no other bits; a word has.
        ("and.b32 %r4, %r1, 255;", "mov.b32 %r4, %r1;", "these bits are always the same"),
        ("and.b32 %r5, %r2, 255;", "mov.b32 %r5, %r2;", None),
        # Of what is stored as a byte the ninth bit does not count, and the eighth does.
        ("and.b32 %r6, %r2, 511;", "and.b32 %r6, %r2, 255;", "these bits do not count"),
        ("and.b32 %r6, %r2, 511;", "and.b32 %r6, %r2, 383;", None),
        # Apart or not.
        ("xor.b32 %r8, %r7, %r1;", "or.b32 %r8, %r7, %r1;", "these bits are always the same"),
        ("xor.b32 %r9, %r7, %r2;", "or.b32 %r9, %r7, %r2;", None),
        # A multiple of 256 is never 257.
        ("setp.lt.u32 %p1, %r7, 257;", "setp.le.u32 %p1, %r7, 257;", "never equal"),
        ("setp.lt.u32 %p2, %r7, 256;", "setp.le.u32 %p2, %r7, 256;", None),
        ("setp.lt.u32 %p1, %r7, 257;", "setp.ge.u32 %p1, %r7, 257;", None),
        # Lanes are below 32.
        ("min.u32 %r10, %r3, 31;", "mov.b32 %r10, %r3;", "these bits are always the same"),
        ("min.u32 %r11, %r2, 31;", "mov.b32 %r11, %r2;", None),
        # Shuffles look at five bits of a lane's number.
        ("and.b32 %r12, %r2, 31;", "mov.b32 %r12, %r2;", "these bits do not count"),
        ("and.b32 %r12, %r2, 31;", "and.b32 %r12, %r2, 15;", None),
        (
            "shfl.sync.idx.b32 %r14|%p4, %r2, 0, 31, -1;",
            "shfl.sync.idx.b32 %r14|%p4, %r2, 0, 23, -1;",
            "lane 0 is within any limit",
        ),
        (
            "shfl.sync.idx.b32 %r13|%p3, %r2, %r12, 31, -1;",
            "shfl.sync.idx.b32 %r13|%p3, %r2, %r12, 23, -1;",
            None,
        ),
        # Bytes 1 to 3 of a byte are 0, whichever is taken; its byte 0 is not.
        ("prmt.b32 %r16, %r1, %r2, 0x5433;", "prmt.b32 %r16, %r1, %r2, 0x5420;", None),
        (
            "prmt.b32 %r16, %r1, %r2, 0x5433;",
            "prmt.b32 %r16, %r1, %r2, 0x5421;",
            "these bits are always the same",
        ),
        # What nothing looks at.
        ("add.s32 %r17, %r2, 1;", "sub.s32 %r17, %r2, 1;", "these bits do not count"),
        # Bytes below 128 are the same with and without a sign.
        (
            "dp4a.u32.u32 %r22, %r2, %r21, %r1;",
            "dp4a.u32.s32 %r22, %r2, %r21, %r1;",
            "these bits are always the same",
        ),
        (
            "dp2a.lo.u32.u32 %r23, %r2, %r2, %r1;",
            "dp2a.lo.u32.s32 %r23, %r2, %r2, %r1;",
            None,
        ),
        # Below what a shift drops; and not.
        ("max.s32 %r31, %r2, 0;", "max.s32 %r31, %r2, 63;", "these bits do not count"),
        ("max.s32 %r31, %r2, 0;", "max.s32 %r31, %r2, 64;", None),
        # Whether it is 0, through a mask of a byte.
        ("selp.u16 %rs1, 1, 0, %p2;", "selp.u16 %rs1, 9, 0, %p2;", "only whether it is 0 counts"),
        ("selp.u16 %rs1, 1, 0, %p2;", "selp.u16 %rs1, 256, 0, %p2;", None),
        # Half of 64 bits is the same from either end.
        (
            "shf.l.wrap.b32 %r29, %r2, %r1, 16;",
            "shf.r.wrap.b32 %r29, %r2, %r1, 16;",
            "these bits are always the same",
        ),
        ("shf.l.wrap.b32 %r30, %r2, %r1, 15;", "shf.r.wrap.b32 %r30, %r2, %r1, 15;", None),
        # Only whether it is 0 counts, or not.
        ("selp.b32 %r24, 1, 0, %p2;", "selp.b32 %r24, 9, 0, %p2;", "only whether it is 0 counts"),
        ("selp.b32 %r24, 1, 0, %p2;", "selp.b32 %r24, 0, 1, %p2;", None),
        ("selp.b32 %r25, 1, 0, %p5;", "selp.b32 %r25, 9, 0, %p5;", None),
        # Lane 0 is within any limit, also where registers have both.
        ("mov.u32 %r26, 31;", "mov.u32 %r26, 29;", "these bits do not count"),
        ("mov.u32 %r27, 0;", "mov.u32 %r27, 2;", None),
        # What an order in a register picks, and the order itself.
        ("mov.u32 %r35, 0;", "mov.u32 %r35, 4;", "these bits do not count"),
        ("mov.u32 %r34, 0x1032;", "mov.u32 %r34, 0x1033;", None),
        # A field of one bit.
        ("selp.b32 %r37, -1, 0, %p2;", "selp.b32 %r37, -3, 0, %p2;", "these bits do not count"),
        ("selp.b32 %r37, -1, 0, %p2;", "selp.b32 %r37, -2, 0, %p2;", None),
        # A register that a loop changes.
        ("and.b32 %r20, %r19, 15;", "mov.b32 %r20, %r19;", None),
        # The address of what nobody reads, and of what one reads.
        ("add.s64 %rd5, %rd1, 8;", "sub.s64 %rd5, %rd1, 8;", "these bits do not count"),
        ("add.s64 %rd6, %rd1, 16;", "sub.s64 %rd6, %rd1, 16;", None),
        # Guarded instructions are left to the runs.
        ("@%p1 bra $loop;", "", None),
    ],
)
def test_a_rule_holds_where_it_must(before: str, after: str, rule: str | None) -> None:
    assert before in _KERNEL
    assert KnownBits(_KERNEL).same_result(before, after) == rule


def test_lines_that_were_judged_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    assert Judged().stale() == []
