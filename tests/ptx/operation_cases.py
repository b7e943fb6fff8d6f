"""Cases of PTX operations: what one instruction makes of which operands, on every lane.

Written from NVIDIA's PTX ISA manual alone (sections as in 9.0), by someone who had not read the
interpreter, so that both do not share a mistake. operation_model.py has the arithmetic. A number
written out beside a group was worked out by hand: test_operations.py compares the two.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import operation_model as model
from operation_model import F16, F32, F64, FORMATS, Result, bits_of, clamp, limits, mask, read

Row = tuple[int, ...]
Function = Callable[..., "Result | Sequence[Result] | bool"]

WARP = 32
INPUTS = ("%a", "%b", "%c", "%e")
SCRATCH = 64  # bytes that each thread has behind %mem, and in `shared` and `local`
INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
ALL_INTEGERS = ("u8", "s8", *INTEGERS)


def outputs(count: int) -> tuple[str, ...]:
    """%d, %d1, %d2 and so on."""
    return tuple("%d" + (str(i) if i else "") for i in range(count))


@dataclass
class Group:
    """One instruction, or a few lines, with the operands and results of each thread.

    `code` reads %a, %b, %c, %e of the types `inputs`, and writes %d, %d1, ... of the types
    `outputs`; f32, f64, f16 and f16x2 accept any NaN for a NaN. A row has one thread's operands and
    results. Whole warps of rows run: a lane is the place of a row in its warp.
    """

    name: str
    code: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    rows: list[tuple[Row, Row]]
    target: int = 75
    threads: int = WARP
    declare: str = ""
    is_lanewise: bool = True  # a row's results follow from its own operands
    by_hand: list[tuple[Row, Row, Row]] = field(default_factory=list)  # operands, result, model's

    @property
    def is_foldable(self) -> bool:
        """Whether an assembler may know the results: no other lane and no memory has a part."""
        return self.is_lanewise and not self.declare and "[" not in self.code


_groups: list[Group] = []  # of the family that is being made


def add(
    code: str,
    inputs: str,
    out: str,
    operands: Iterable[Sequence[int]],
    function: Function,
    *,
    name: str = "",
    by_hand: Sequence[tuple[int, ...]] = (),
    target: int = 75,
    declare: str = "",
) -> None:
    """Adds a group of cases whose results follow from their own operands.

    `by_hand` has operands and results, of one thread each.
    """
    types, results = tuple(inputs.split()), tuple(out.split())

    def expect(row: Row) -> Row | None:
        value = function(*row)
        values = tuple(value) if isinstance(value, Sequence) else (value,)
        known = tuple(int(one) for one in values if one is not None)
        return known if len(known) == len(values) else None

    written = [(row[: len(types)], row[len(types) :]) for row in by_hand]
    rows: list[tuple[Row, Row]] = []
    checked: list[tuple[Row, Row, Row]] = []
    for row, result in written:
        modelled = expect(row)
        assert modelled is not None
        checked.append((row, result, modelled))
        rows.append((row, result))
    for operand in operands:
        row = tuple(value & mask(bits_of(t)) for value, t in zip(operand, types, strict=True))
        if (expected := expect(row)) is not None:
            rows.append((row, expected))
    rows += rows[:1] * (-len(rows) % WARP)
    name = name or code.split()[0]
    group = Group(name, code, types, results, rows, target, WARP, declare, by_hand=checked)
    _groups.append(group)


def add_warp(
    name: str,
    code: str,
    inputs: str,
    out: str,
    warps: Iterable[Sequence[Sequence[int]]],
    function: Callable[[int, Sequence[Row]], int | Sequence[int]],
    target: int = 75,
) -> None:
    """Adds a group whose results depend on the lane and on all operands of its warp."""
    rows: list[tuple[Row, Row]] = []
    for warp in warps:
        for i, row in enumerate(operands := [tuple(row) for row in warp]):
            value = function(i, operands)
            rows.append((row, tuple(value) if isinstance(value, Sequence) else (value,)))
    types, results = tuple(inputs.split()), tuple(out.split())
    _groups.append(Group(name, code, types, results, rows, target, is_lanewise=False))


# fmt: off
# ruff: noqa: B023 (a function is called before its loop goes on)

# Operands

EDGES = {8: (0, 1, 2, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF, 0x5A),
    16: (0, 1, 2, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF, 0x1234, 0xBEEF),
    32: (*(0, 1, 2, 3, 31, 32, 33, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF),
    *(0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF, 0x12345678, 0x9ABCDEF0, 0xFFFF8000)),
    64: (*(0, 1, 2, 63, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x100000000, 0x123456789ABCDEF0),
    *(0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0x8000000000000001, 0xFFFFFFFFFFFFFFFE),
    *(0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF80000000, 0xFEDCBA9876543210))}
COUNTS = (0, 1, 7, 8, 15, 16, 17, 30, 31, 32, 33, 47, 48, 62, 63, 64, 65, 95, 96, 255, 256,
    0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)

FLOATS = (*(0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000,
    0x80800000), *(0x00800001, 0x33800000, 0x3EFFFFFF, 0x3F000000, 0xBF000000, 0x3F7FFFFF,
    0x3F800000, 0xBF800000), *(0x3F800001, 0x3FC00000, 0xBFC00000, 0x40200000, 0x40600000,
    0x4B000001, 0x4B7FFFFF, 0x437F8000), *(0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000,
    0x7FC00000, 0xFFC00001, 0x7F800001, 0x3DCCCCCD))
DOUBLES = (*(0, 1 << 63, 1, 0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x3FE0000000000000,
    0x3FF0000000000000), *(0xBFF8000000000000, 0x3FF0000000000001, 0x4330000000000001,
    0x7FEFFFFFFFFFFFFF, 0x40EFFC0000000000), *(0x7FF0000000000000, 0xFFF0000000000000,
    0x7FF8000000000000, 0x36A0000000000000, 0x47EFFFFFE0000000), *(0x3FF0000010000000,
    0x3FF0000030000000, 0x41DFFFFFFFC00000, 0xC1E0000000200000, 0x43E0000000000000),
    *(0x3810000000000000, 0x380FFFFFE0000000, 0x47EFFFFFF0000000, 0x3E60000000000000,
    0x40EFFE0000000000))
HALVES = (0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3800, 0x3BFF, 0x3C00, 0xBC00, 0x3C01, 0x3E00,
    0x4100, 0x6400, 0x6401, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x2E66)


def chosen(seed: str, bits: Sequence[int], count: int) -> Iterator[Row]:
    """Operands by a seed: edges and random numbers, mixed."""
    numbers = random.Random(seed)
    for _ in range(count):
        yield tuple(numbers.choice(EDGES[b]) if numbers.random() < 0.5 else numbers.getrandbits(b)
            for b in bits)


def pairs(values: Sequence[int]) -> Iterable[Row]:
    return itertools.product(values, values)


# 9.7.1, integer arithmetic


def integer_arithmetic() -> None:
    for t in INTEGERS:
        bits, b = bits_of(t), f"b{bits_of(t)}"

        def signed(value: int) -> int:
            return read(value, t)

        def wrap(value: int) -> int:
            return value & mask(bits)

        two, both = f"{b} {b}", list(pairs(EDGES[bits]))
        three = list(chosen(f"mad {t}", (bits,) * 3, 160))
        add(f"add.{t} %d, %a, %b;", two, b, both, lambda x, y: wrap(x + y))
        add(f"sub.{t} %d, %a, %b;", two, b, both, lambda x, y: wrap(x - y))
        for mode, shift in (("lo", 0), ("hi", bits)):

            def product(x: int, y: int) -> int:
                return int(signed(x) * signed(y) >> shift)

            add(f"mul.{mode}.{t} %d, %a, %b;", two, b, both, lambda x, y: wrap(product(x, y)))
            add(f"mad.{mode}.{t} %d, %a, %b, %c;", f"{two} {b}", b, three,
                lambda x, y, z: wrap(product(x, y) + z))
        if bits < 64:
            wide = bits * 2
            add(f"mul.wide.{t} %d, %a, %b;", two, f"b{wide}", both,
                lambda x, y: signed(x) * signed(y) & mask(wide))
            add(f"mad.wide.{t} %d, %a, %b, %c;", f"{two} b{wide}", f"b{wide}", chosen(f"wide {t}",
                (bits, bits, wide), 160), lambda x, y, z: signed(x) * signed(y) + z & mask(wide))
        for name, choose in (("min", min), ("max", max)):
            add(f"{name}.{t} %d, %a, %b;", two, b, both,
                lambda x, y: wrap(choose(signed(x), signed(y))))
        add(f"sad.{t} %d, %a, %b, %c;", f"{two} {b}", b, three,
            lambda x, y, z: wrap(z + abs(signed(x) - signed(y))))

        # By zero the result is unspecified, as is the remainder of negative numbers; the least
        # number by -1 is not named.
        def quotient(x: int, y: int) -> Result:
            n, m = signed(x), signed(y)
            if m == 0 or (m == -1 and n == limits(t)[0]):
                return None
            return int(wrap(abs(n) // abs(m) * (1 if (n < 0) == (m < 0) else -1)))

        divided = [*both, *chosen(f"div {t}", (bits, bits), 160)]
        add(f"div.{t} %d, %a, %b;", two, b, divided, quotient)
        add(f"rem.{t} %d, %a, %b;", two, b, divided,
            lambda x, y: None if signed(x) < 0 or signed(y) <= 0 else signed(x) % signed(y))
        if t[0] == "s":
            add(f"abs.{t} %d, %a;", b, b, chosen(t, (bits,), 64), lambda x: wrap(abs(signed(x))),
                by_hand=[(1 << bits - 1, 1 << bits - 1), (mask(bits), 1)])
            add(f"neg.{t} %d, %a;", b, b, chosen(t, (bits,), 64), lambda x: wrap(-x),
                by_hand=[(1 << bits - 1, 1 << bits - 1), (1, mask(bits)), (0, 0)])

    edges = list(pairs(EDGES[32]))[::2]
    add("add.sat.s32 %d, %a, %b;", "b32 b32",
        "b32", edges, lambda x, y: clamp(read(x, "s32") + read(y, "s32"), "s32") & mask(32),
        by_hand=[(0x7FFFFFFF, 1, 0x7FFFFFFF), (0x80000000, 0xFFFFFFFF, 0x80000000)])
    add("sub.sat.s32 %d, %a, %b;", "b32 b32",
        "b32", edges, lambda x, y: clamp(read(x, "s32") - read(y, "s32"), "s32") & mask(32),
        by_hand=[(0, 0x80000000, 0x7FFFFFFF), (0x80000000, 1, 0x80000000)])
    add("mad.hi.sat.s32 %d, %a, %b, %c;", "b32 b32 b32", "b32", chosen("sat", (32,) * 3, 160),
        lambda x, y, z: (clamp((read(x, "s32") * read(y, "s32") >> 32) + read(z, "s32"),
        "s32") & mask(32)), by_hand=[(0x80000000, 0x80000000, 0x7FFFFFFF, 0x7FFFFFFF)])
    for mode, low in (("lo", 0), ("hi", 16)):
        for t in ("u32", "s32"):
            s = t[0]
            add(f"mul24.{mode}.{t} %d, %a, %b;", "b32 b32", "b32", edges,
                lambda x, y: read(x, f"{s}24") * read(y, f"{s}24") >> low & mask(32))

    # 9.7.2, a carry into another instruction
    four = list(chosen("carry", (32,) * 4, 160))

    def pair(x: int) -> tuple[int, int]:
        return x & mask(32), x >> 32 & mask(32)

    in_out = ("b32 b32 b32 b32", "b32 b32")
    add("add.cc.u32 %d, %a, %c; addc.u32 %d1, %b, %e;",
        *in_out, four, lambda a, b, c, e: pair((a | b << 32) + (c | e << 32)), name="addc.u32",
        by_hand=[(0xFFFFFFFF, 0, 1, 0, 0, 1), (0xFFFFFFFF, 0xFFFFFFFF, 1, 0, 0, 0)])
    add("sub.cc.u32 %d, %a, %c; subc.u32 %d1, %b, %e;",
        *in_out, four, lambda a, b, c, e: pair((a | b << 32) - (c | e << 32)), name="subc.u32",
        by_hand=[(0, 1, 1, 0, 0xFFFFFFFF, 0), (0, 0, 1, 0, 0xFFFFFFFF, 0xFFFFFFFF)])
    add("mad.lo.cc.u32 %d, %a, %b, %c; madc.hi.u32 %d1, %a, %b, %e;",
        *in_out, four, lambda a, b, c, e: pair(a * b + (c | e << 32)), name="madc.hi.u32",
        by_hand=[(0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 0xFFFFFFFF)])

    for bits in (32, 64):
        b = f"b{bits}"
        one = [(x,) for x in EDGES[bits]] + list(chosen(f"bits {bits}", (bits,), 64))
        add(f"popc.{b} %d, %a;", b, "b32", one, lambda x: x.bit_count(),
            by_hand=[(0, 0), (mask(bits), bits)])
        add(f"clz.{b} %d, %a;", b, "b32", one, lambda x: bits - x.bit_length(),
            by_hand=[(0, bits), (1, bits - 1), (1 << bits - 1, 0)])
        add(f"brev.{b} %d, %a;", b, b, one, lambda x: int(f"{x:0{bits}b}"[::-1], 2),
            by_hand=[(1, 1 << bits - 1), (6, 3 << bits - 3)])
        add(f"cnot.{b} %d, %a;", b, b, one, lambda x: x == 0, by_hand=[(0, 1), (1 << bits - 1, 0)])
        # Both are restricted to 0..255; only on 32 bits does ptxas, too, drop the bits above.
        more = (256, 0x101, 0x1FF) if bits == 32 else ()
        fields = list(itertools.product((0, 1, 8, 31, 32, 33, 63, 64, 255, *more),
            (0, 1, 7, 8, 31, 32, 33, 63, 64, 255, *more)))
        for t in (f"u{bits}", f"s{bits}"):
            add(f"bfind.{t} %d, %a;", b, "b32", one, lambda x: model.find_bit(x, t, False),
                by_hand=[(0, mask(32)), (2, 1)])
            add(f"bfind.shiftamt.{t} %d, %a;", b, "b32", one, lambda x: model.find_bit(x, t, True),
                by_hand=[(0, mask(32)), (1, bits - 1)])
            add(f"bfe.{t} %d, %a, %b, %c;", f"{b} b32 b32", b, [(x, p, n) for x in (EDGES[bits][-1],
                mask(bits), 1 << bits - 1, EDGES[bits][-2]) for p, n in fields],
                lambda x, p, n: model.extract_field(x, p, n, t))
        add(f"bfi.{b} %d, %a, %b, %c, %e;", f"{b} {b} b32 b32", b, [(x, y, p, n) for x,
            y in ((mask(bits), 0), (EDGES[bits][-1], mask(bits)), (5, EDGES[bits][-1])) for p,
            n in fields], lambda x, y, p, n: model.insert_field(x, y, p, n, bits),
            by_hand=[(0xF, 0, 4, 2, 0x30), (0xF, 7, 4, 0, 7), (mask(bits), 7, bits, 8, 7),
            (mask(bits), 0, bits - 4, 8, 15 << bits - 4)])
    # By hand: the sign of a field that passes the top, a start beyond it, and no length.
    add("bfe.s32 %d, %a, %b, %c;", "b32 b32 b32", "b32", [], lambda x, p, n: model.extract_field(x,
        p, n, "s32"), name="bfe.s32 by hand", by_hand=[(0x80000000, 28, 8, 0xFFFFFFF8),
        (0x80000000, 40, 8, 0xFFFFFFFF), (0x80000000, 40, 0, 0), (0x000000F0, 4, 4, 0xFFFFFFFF),
        (0x000000F0, 4, 5, 0xF), (0x12345678, 0x104, 0x108, 0x67)])
    add("fns.b32 %d, %a, %b, %c;", "b32 b32 b32", "b32",
        [(m, base, n) for m in (0, 0xAAAAAAAA, 0x80000001, 0xFFFFFFFF, 0x00FF0100) for base in (0,
        3, 8, 31) for n in (0, 1, 2, 16, 33, -1, -2, -16, -33)], model.nth_set_bit,
        by_hand=[(0xAAAAAAAA, 3, 1, 3), (0xAAAAAAAA, 3, -1 & mask(32), 3), (0xAAAAAAAA, 2, 1, 3),
        (0xAAAAAAAA, 2, -1 & mask(32), 1)])
    counts = list(itertools.product((0, 1, 5, 31, 32, 33, 63, 0xFFFFFFFF), repeat=2))
    for mode in ("clamp", "wrap"):
        add(f"bmsk.{mode}.b32 %d, %a, %b;", "b32 b32", "b32", counts,
            lambda x, y: model.bit_mask(x, y, mode), by_hand=[(1, 2, 6)])
        for t in ("u32", "s32"):
            add(f"szext.{mode}.{t} %d, %a, %b;", "b32 b32", "b32", [(x, n) for x in (0x9ABCDEF0,
                0xFFFFFFFF, 0x55555555) for n in (0, 1, 4, 5, 31, 32, 33, 0xFFFFFFFF)],
                lambda x, n: model.extend_bits(x, n, mode, t))

    # 9.7.1.23 and 9.7.1.24: c is signed unless both are unsigned, which changes no bit of the sum.
    packed = [*chosen("dot", (32,) * 3, 192), (mask(32), mask(32), 0),
        (0x80808080, 0x80808080, 0x80000000)]
    for t, u in itertools.product(("u", "s"), repeat=2):

        def dot(a: int, b: int, c: int, width: int, first: int) -> int:
            x, y = model.split(a, f"{t}{width}"), model.split(b, f"{u}8")
            return c + sum(p * q for p, q in zip(x, y[first:], strict=False)) & mask(32)

        add(f"dp4a.{t}32.{u}32 %d, %a, %b, %c;", "b32 b32 b32", "b32", packed,
            lambda a, b, c: dot(a, b, c, 8, 0))
        for half, first in (("lo", 0), ("hi", 2)):
            add(f"dp2a.{half}.{t}32.{u}32 %d, %a, %b, %c;", "b32 b32 b32", "b32", packed,
                lambda a, b, c: dot(a, b, c, 16, first))
    add("dp4a.u32.s32 %d, %a, %b, %c;", "b32 b32 b32", "b32", [], lambda a, b, c: dot_by_hand(a, b,
        c), name="dp4a.u32.s32 by hand", by_hand=[(0xFF000000, 0xFF000000, 0, 0xFFFFFF01)])
    add("dp2a.hi.u32.s32 %d, %a, %b, %c;",
        "b32 b32 b32", "b32", [], lambda a, b, c: (c + (a & 0xFFFF) * read(b >> 16,
        "s8") + (a >> 16) * read(b >> 24, "s8") & mask(32)), name="dp2a.hi.u32.s32 by hand",
        by_hand=[(0xFFFF0002, 0x80FF1234, 5, (5 - 2 - 128 * 0xFFFF) & mask(32))])

    # 9.7.1.1 and on: halves of a register, since sm_90
    for t in ("u16x2", "s16x2"):
        lane = t[:3]
        for name in ("add", "min", "max"):

            def halves(x: int, y: int) -> int:
                both = zip(model.split(x, lane), model.split(y, lane), strict=True)
                if name == "add":
                    return model.join([p + q for p, q in both], 16)
                return model.join([(min if name == "min" else max)(p, q) for p, q in both], 16)

            add(f"{name}.{t} %d, %a, %b;", "b32 b32", "b32", edges, halves, target=90)
    for name, choose in (("min", min), ("max", max)):
        for order in ("relu.s32", "s32.relu"):  # by the manual, and as nvcc writes it
            add(f"{name}.{order} %d, %a, %b;", "b32 b32", "b32", edges,
                lambda x, y: max(0, choose(read(x, "s32"), read(y, "s32"))), target=90)


def dot_by_hand(a: int, b: int, c: int) -> int:
    total = sum((a >> i & 255) * read(b >> i, "s8") for i in (0, 8, 16, 24))
    return c + total & mask(32)


def video() -> None:
    """9.7.19.3: four bytes at once; each result is cut to its byte, or all are added to c."""
    packed = [*chosen("video", (32,) * 3, 192), (0x00FF00FF, 0xFF00FF00, 0),
        (0x80808080, 0x7F7F7F7F, 1)]
    for t, u in itertools.product(("u", "s"), repeat=2):

        def differences(a: int, b: int) -> list[int]:
            return [abs(p - q) for p,
                q in zip(model.split(a, f"{t}8"), model.split(b, f"{u}8"), strict=True)]

        add(f"vabsdiff4.u32.{t}32.{u}32 %d, %a, %b, %c;", "b32 b32 b32", "b32", packed,
            lambda a, b, c: model.join([x & 255 for x in differences(a, b)], 8))
        add(f"vabsdiff4.u32.{t}32.{u}32.add %d, %a, %b, %c;", "b32 b32 b32", "b32", packed,
            lambda a, b, c: c + sum(differences(a, b)) & mask(32))
    add("vabsdiff4.u32.u32.u32 %d, %a, %b, %c;", "b32 b32 b32", "b32", [],
        lambda a, b, c: model.join([abs((a >> i & 255) - (b >> i & 255)) for i in (0, 8, 16, 24)],
        8), name="vabsdiff4 by hand", by_hand=[(0x01FF0003, 0xFF010500, 7, 0xFEFE0503)])


# 9.7.8, logic and shifts


def logic() -> None:
    for b in ("b16", "b32", "b64"):
        bits = bits_of(b)
        both = list(pairs(EDGES[bits]))
        add(f"and.{b} %d, %a, %b;", f"{b} {b}", b, both, lambda x, y: x & y)
        add(f"or.{b} %d, %a, %b;", f"{b} {b}", b, both, lambda x, y: x | y)
        add(f"xor.{b} %d, %a, %b;", f"{b} {b}", b, both, lambda x, y: x ^ y)
        add(f"not.{b} %d, %a;", b, b, chosen(b, (bits,), 64), lambda x: x ^ mask(bits))
        shifts = [(x, n) for x in (EDGES[bits][-1], mask(bits), 1, 1 << bits - 1) for n in COUNTS]
        add(f"shl.{b} %d, %a, %b;", f"{b} b32", b, shifts,
            lambda x, n: model.shift_left(x, n, bits), by_hand=[(1, bits - 1, 1 << bits - 1),
            (mask(bits), bits, 0), (mask(bits), mask(32), 0)])
        for t in (b, f"u{bits}", f"s{bits}"):
            add(f"shr.{t} %d, %a, %b;", f"{b} b32", b, shifts, lambda x, n: model.shift_right(x, n,
                t), by_hand=[(1 << bits - 1, mask(32), mask(bits) if t[0] == "s" else 0),
                (mask(bits) >> 1, bits, 0)])
    bools = list(pairs((0, 1)))
    add("and.pred %d, %a, %b;", "pred pred", "pred", bools, lambda x, y: x & y)
    add("or.pred %d, %a, %b;", "pred pred", "pred", bools, lambda x, y: x | y)
    add("xor.pred %d, %a, %b;", "pred pred", "pred", bools, lambda x, y: x ^ y)
    add("not.pred %d, %a;", "pred", "pred", [(0,), (1,)], lambda x: 1 - x)

    words = [(x, y, n) for x,
        y in ((0x12345678, 0x9ABCDEF0), (0xFFFFFFFF, 0), (0x80000001, 0x80000001)) for n in COUNTS]
    known = {"l.clamp": [(0x89ABCDEF, 0x01234567, 4, 0x12345678), (1, 2, 0, 2), (1, 2, 32, 1),
        (1, 2, 33, 1), (1, 2, 63, 1)], "l.wrap": [(0x89ABCDEF, 0x01234567, 4, 0x12345678), (1, 2,
        0, 2), (1, 2, 32, 2), (1, 2, 33, 4)], "r.clamp": [(0x89ABCDEF, 0x01234567, 4, 0x789ABCDE),
        (1, 2, 0, 1), (1, 2, 32, 2), (1, 2, 33, 2), (1, 2, 63, 2)], "r.wrap": [(0x89ABCDEF,
        0x01234567, 4, 0x789ABCDE), (1, 2, 0, 1), (1, 2, 32, 1), (4, 2, 33, 2)]}
    for way, by_hand in known.items():
        direction, mode = way.split(".")
        add(f"shf.{way}.b32 %d, %a, %b, %c;", "b32 b32 b32", "b32", words,
            lambda x, y, n: model.funnel_shift(x, y, n, direction, mode), by_hand=by_hand)

    controls = (0x3210, 0x7654, 0x0123, 0x4567, 0xBA98, 0xFEDC, 0x0000, 0x8888, 0x7777, 0xFFFF,
        0x5140, 0x7362, 0xDEAD3210, 0x4440, 0x2C5B)
    sources = ((0x33221100, 0x77665544), (0x80FF7F01, 0xFE817F80))
    add("prmt.b32 %d, %a, %b, %c;", "b32 b32 b32", "b32", [*((x, y, c) for x,
        y in sources for c in controls), *chosen("prmt", (32,) * 3, 256)], model.permute,
        by_hand=[(0x33221100, 0x77665544, 0x7531, 0x77553311), (0x80FF7F01, 0, 0xBA98, 0xFFFF0000),
        (0x80FF7F01, 0xFE817F80, 0x4C37, 0x80FF80FE), (0x33221100, 0x77665544, 0xFFFF0000, 0)])
    by_hand_modes = {"f4e": (1, 0x44332211), "b4e": (1, 0x66770011), "rc8": (2, 0x22222222),
        "ecl": (1, 0x33221111), "ecr": (1, 0x11111100), "rc16": (1, 0x33223322)}
    for mode, (c, result) in by_hand_modes.items():
        add(f"prmt.b32.{mode} %d, %a, %b, %c;", "b32 b32 b32",
            "b32", [(x, y, c) for x, y in sources for c in (0, 1, 2, 3, 4, 7, 0xFFFFFFFC, 0x7654)],
            lambda x, y, c: model.permute(x, y, c, mode),
            by_hand=[(0x33221100, 0x77665544, c, result)])

    # All 256 tables; the first operands give the table itself in the low byte.
    values = [(0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA), (0x12345678, 0x9ABCDEF0, 0x0F1E2D3C),
        (0, mask(32), 0x00FF00FF)]
    for start in range(0, 256, 16):
        tables = range(start, start + 16)
        code = " ".join(f"lop3.b32 {d}, %a, %b, %c, {t};" for d,
            t in zip(outputs(16), tables, strict=True))
        add(code, "b32 b32 b32", " ".join(["b32"] * 16), values[1:], lambda x, y, z:
            [model.logic3(x, y, z, t) for t in tables], name=f"lop3.b32 {start} and on",
            by_hand=[(*values[0], *(t * 0x01010101 for t in tables))])
    for operation in ("or", "and"):
        add(f"lop3.{operation}.b32 %d|%d1, %a, %b, %c, 0x80, %e;", "b32 b32 b32 pred", "b32 pred",
            [(x, y, z, q) for x, y, z in ((7, 3, 2), (4, 2, 1), (0, 0, 0)) for q in (0, 1)],
            lambda x, y, z, q: (x & y & z, (x & y & z != 0) | q if operation == "or"
            else (x & y & z != 0) & q))


# 9.7.6 and 9.7.7, comparison and selection


def comparison() -> None:
    for t in ("b16", "b32", "b64", *INTEGERS):
        bits, b = bits_of(t), f"b{bits_of(t)}"
        names = {"b": "eq ne", "s": "eq ne lt le gt ge",
            "u": "eq ne lt le gt ge lo ls hi hs"}[t[0]].split()
        code = " ".join(f"setp.{n}.{t} {d}, %a, %b;" for n,
            d in zip(names, outputs(len(names)), strict=True))
        add(code, f"{b} {b}", " ".join(["pred"] * len(names)), pairs(EDGES[bits]), lambda x, y:
            [model.compare(read(x, t), read(y, t), n) for n in names], name=f"setp.{t}")
    ordered = ("eq", "ne", "lt", "le", "gt", "ge")
    names = [*ordered, *(n + "u" for n in ordered), "num", "nan"]
    for t, floats, suffixes in (("f32", FLOATS, ("", ".ftz")), ("f64", DOUBLES, ("",))):
        for ftz in suffixes:
            code = " ".join(f"setp.{n}{ftz}.{t} {d}, %a, %b;" for n,
                d in zip(names, outputs(len(names)), strict=True))
            add(code, f"{t} {t}", " ".join(["pred"] * len(names)), pairs(floats),
                lambda x, y: [model.float_compare(x, y, n, FORMATS[t], bool(ftz)) for n in names],
                name=f"setp{ftz}.{t}")
    # By hand: NaN on either side, both zeros, and subnormals.
    add("setp.ne.f32 %d, %a, %b; setp.neu.f32 %d1, %a, %b; setp.ltu.f32 %d2, %a, %b; "
        "setp.ge.f32 %d3, %a, %b;", "f32 f32", "pred pred pred pred",
        [], lambda x, y: [model.float_compare(x, y, n, F32) for n in ("ne", "neu", "ltu", "ge")],
        name="setp.f32 by hand", by_hand=[(0x7FC00000, 0, 0, 1, 1, 0),
        (0, 0x80000000, 0, 0, 0, 1), (0x3F800000, 0xFFC00001, 0, 1, 1, 0), (1, 0, 1, 1, 0, 1),
        (0x80000001, 0x80000000, 1, 1, 1, 0)])

    joined: dict[str, Callable[[int, int], int]] = {"and": lambda x, y: x & y,
        "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y}
    rows = [(x, y, c) for x, y in ((1, 2), (2, 1), (0xFFFFFFFF, 1), (5, 5)) for c in (0, 1)]
    for name, function in joined.items():
        for negate in ("", "!"):
            add(f"setp.lt.{name}.s32 %d|%d1, %a, %b, {negate}%c;", "b32 b32 pred",
                "pred pred", rows, lambda x, y, c: (function(int(read(x, "s32") < read(y, "s32")),
                c ^ (negate == "!")), function(int(read(x, "s32") >= read(y, "s32")),
                c ^ (negate == "!"))), name=f"setp.lt.{name}.s32 {negate}")
        # With a NaN the comparison is false, so its complement is true.
        add(f"setp.lt.{name}.f32 %d|%d1, %a, %b, %c;", "f32 f32 pred", "pred pred", [(x,
            y, c) for x, y in ((0x3F800000, 0x40000000), (0x7FC00000, 0x40000000)) for c in (0, 1)],
            lambda x, y, c: [function(t, c) for t in (int(model.float_compare(x, y, "lt", F32)),
            int(not model.float_compare(x, y, "lt", F32)))])
    for t in ("b16", "b32", "b64", *INTEGERS, "f32", "ftz.f32"):
        kind = t.split(".")[-1]
        some: Sequence[int] = FLOATS[::3] if kind == "f32" else EDGES[bits_of(kind)][-6:]
        known = {"b": "eq ne", "s": "eq ne lt le gt ge", "u": "eq ne lt le gt ge lo ls hi hs",
            "f": " ".join(names)}[kind[0]].split()
        register = kind if kind == "f32" else f"b{bits_of(kind)}"
        for n in known:

            def is_so(x: int, y: int) -> bool:
                if kind == "f32":
                    return model.float_compare(x, y, n, F32, t != kind)
                return model.compare(read(x, kind), read(y, kind), n)

            code = " ".join(f"setp.{n}.{o}.{t} {d}, %a, %b, %c;"
                for o, d in zip(joined, outputs(3), strict=True))
            add(code, f"{register} {register} pred", "pred pred pred",
                [(x, y, c) for x, y in pairs(some) for c in (0, 1)],
                lambda x, y, c: [f(int(is_so(x, y)), c) for f in joined.values()],
                name=f"setp.{n} and more.{t}")
    add("setp.eq.u32 %d|%d1, %a, %b;", "b32 b32", "pred pred", pairs((0, 1, mask(32))),
        lambda x, y: (x == y, x != y), name="setp.eq.u32 with q")

    for target, true in (("u32", mask(32)), ("s32", mask(32)), ("f32", F32.one)):
        add(f"set.lt.{target}.s32 %d, %a, %b;", "b32 b32", "b32", pairs(EDGES[32]),
            lambda x, y: true if read(x, "s32") < read(y, "s32") else 0)
    add("set.leu.u32.f32 %d, %a, %b;", "f32 f32", "b32", pairs(FLOATS),
        lambda x, y: mask(32) if model.float_compare(x, y, "leu", F32) else 0)

    for t in ("b16", "b32", "b64", *INTEGERS, "f32", "f64"):
        b = f"b{bits_of(t)}"
        register = t if t[0] == "f" else b
        values = (*{"f32": FLOATS, "f64": DOUBLES}.get(t, EDGES[bits_of(t)]),)
        # The bits of a NaN are kept, so the result is seen as bits.
        move = f"mov.b{bits_of(t)} %d, {'%f' if t == 'f32' else '%g'};" if register != b else ""
        to = {"f32": "%f", "f64": "%g"}.get(t, "%d")
        rows = [(x, y, c) for x, y in itertools.pairwise(values) for c in (0, 1)]
        add(f"selp.{t} {to}, %a, %b, %c; {move}", f"{register} {register} pred", b, rows,
            lambda x, y, c: x if c else y)
        if t not in ("b16", "u16", "s16"):
            add(f"slct.{t}.s32 {to}, %a, %b, %c; {move}", f"{register} {register} b32", b,
                [(values[0], values[-1], c) for c in EDGES[32]],
                lambda x, y, c: x if read(c, "s32") >= 0 else y)
    # 9.7.6.4: -0.0 is not below 0, and b is selected for a NaN.
    for ftz in ("", ".ftz"):
        add(f"slct{ftz}.u32.f32 %d, %a, %b, %c;", "b32 b32 f32", "b32", [(1, 2, c) for c in FLOATS],
            lambda x, y, c: x if model.float_compare(c, 0, "ge", F32, bool(ftz)) else y,
            by_hand=[(1, 2, 0x80000000, 1), (1, 2, 0x7FC00000, 2),
            (1, 2, 0x80000001, 1 if ftz else 2)])


# 9.7.3 to 9.7.5, floating point


def floating_point() -> None:
    sample = random.Random("f32")
    several: list[Row] = [
        tuple(sample.choice(FLOATS) if sample.random() < 0.6 else sample.getrandbits(32)
              for _ in range(3)) for _ in range(192)]
    # Sums and products between two floats, so that each rounding shows.
    several += [(0x3F800000 + i, 0x3F800000 | i * 977 & mask(23),
        0x33000000 + i * 7) for i in range(1, 64)]
    several += [(0x3F800000 | i, 0x33800000 ^ s, 0x3F800000) for i in (0, 1) for s in (0, 1 << 31,
        1)]
    two = [row[:2] for row in several] + [(row[0], row[2]) for row in several[::2]]

    for mode, ftz, sat in itertools.product(("", "rn", "rz", "rm", "rp"), ("", ".ftz"),
        ("", ".sat")):
        suffix = (f".{mode}" if mode else "") + ftz + sat
        options: dict[str, Any] = {"mode": mode or "rn", "ftz": bool(ftz), "sat": bool(sat)}
        rows = two if suffix else [*two, *pairs(FLOATS)]
        add(f"add{suffix}.f32 %d, %a, %b;", "f32 f32", "f32", rows,
            lambda x, y: model.float_add(x, y, **options))
        add(f"sub{suffix}.f32 %d, %a, %b;", "f32 f32", "f32", rows,
            lambda x, y: model.float_add(x, y ^ 1 << 31, **options))
        add(f"mul{suffix}.f32 %d, %a, %b;", "f32 f32", "f32", rows,
            lambda x, y: model.float_multiply_add(x, y, None, **options))
        if mode:
            add(f"fma{suffix}.f32 %d, %a, %b, %c;", "f32 f32 f32", "f32", several,
                lambda x, y, z: model.float_multiply_add(x, y, z, **options))
    for mode, ftz in itertools.product(("rn", "rz", "rm", "rp"), ("", ".ftz")):
        add(f"div.{mode}{ftz}.f32 %d, %a, %b;", "f32 f32", "f32", two,
            lambda x, y: model.float_divide(x, y, mode, bool(ftz)))
        add(f"rcp.{mode}{ftz}.f32 %d, %a;", "f32", "f32", ((row[0],) for row in two),
            lambda x: model.float_divide(F32.one, x, mode, bool(ftz)))
        add(f"sqrt.{mode}{ftz}.f32 %d, %a;", "f32", "f32", ((row[0],) for row in two),
            lambda x: model.float_root(x, mode, bool(ftz)))
    # By hand: halfway sums under each rounding, the sign of x - x, overflow, and subnormals.
    tiny, half_ulp = 1, 0x33800000
    for mode, up, down, zero, over in (("rn", 0x3F800000, 0xBF800000, 0, 0x7F800000),
        ("rz", 0x3F800000, 0xBF800000, 0, 0x7F7FFFFF), ("rm", 0x3F800000, 0xBF800001, 0x80000000,
        0x7F7FFFFF), ("rp", 0x3F800001, 0xBF800000, 0, 0x7F800000)):
        add(f"add.{mode}.f32 %d, %a, %b;", "f32 f32",
            "f32", [], lambda x, y: model.float_add(x, y, mode), name=f"add.{mode}.f32 by hand",
            by_hand=[(0x3F800000, half_ulp, up), (0xBF800000, half_ulp | 1 << 31, down),
            (0x3F800000, 0xBF800000, zero), (0x7F7FFFFF, 0x7F7FFFFF, over), (tiny, tiny, 2),
            (0x80000000, 0x80000000, 0x80000000), (0x00800000, 0x80000001, 0x007FFFFF)])
    add("mul.rn.f32 %d, %a, %b;", "f32 f32",
        "f32", [], lambda x, y: model.float_multiply_add(x, y, None), name="mul.rn.f32 by hand",
        by_hand=[(0x00000001, 0x3F000000, 0), (0x00000003, 0x3F000000, 2), (0x80000001, 0x3F000000,
        0x80000000), (0x3F800001, 0x3F800001, 0x3F800002), (0x7F800000, 0, 0x7FC00000)])

    wide = list(pairs(DOUBLES))[::3]
    for mode in ("", "rn", "rz", "rm", "rp"):
        dot = f".{mode}" if mode else ""
        add(f"add{dot}.f64 %d, %a, %b;", "f64 f64", "f64", wide,
            lambda x, y: model.float_add(x, y, mode or "rn", F64))
        add(f"mul{dot}.f64 %d, %a, %b;", "f64 f64", "f64", wide,
            lambda x, y: model.float_multiply_add(x, y, None, mode or "rn", F64))
    add("fma.rn.f64 %d, %a, %b, %c;", "f64 f64 f64",
        "f64", [(x, y, z) for x, y in wide[::2] for z in (0, 1 << 63, 0xBFF0000000000000)],
        lambda x, y, z: model.float_multiply_add(x, y, z, "rn", F64))

    one = [(x,) for x in FLOATS]
    for t, form, values in (("f32", F32, FLOATS), ("f64", F64, DOUBLES)):
        for ftz in ("", ".ftz") if t == "f32" else ("",):
            add(f"abs{ftz}.{t} %d, %a;", t, t, [(x,) for x in values],
                lambda x: model.flush(x, form, bool(ftz)) & ~form.sign)
            add(f"neg{ftz}.{t} %d, %a;", t, t, [(x,) for x in values],
                lambda x: model.flush(x, form, bool(ftz)) ^ form.sign)
            for name in ("min", "max"):
                add(f"{name}{ftz}.{t} %d, %a, %b;", f"{t} {t}", t, pairs(values),
                    lambda x, y: model.float_extreme(x, y, name == "min", form, bool(ftz)),
                    by_hand=[(form.nan, form.one, form.one), (form.one, form.nan, form.one),
                    (0, form.sign, form.sign if name == "min" else 0),
                    (form.sign, 0, form.sign if name == "min" else 0)])
                if t == "f32":
                    add(f"{name}{ftz}.NaN.f32 %d, %a, %b;", "f32 f32", "f32", pairs(values),
                        lambda x, y: model.float_extreme(x, y, name == "min", F32, bool(ftz), True),
                        target=80)
        # The sign is a's, the rest b's.
        add(f"copysign.{t} %d, %a, %b;", f"{t} {t}", t, pairs(values),
            lambda x, y: x & form.sign | y & ~form.sign, by_hand=[(form.sign, form.one,
            form.one | form.sign), (form.one, form.sign | form.one, form.one)])
    tests: dict[str, Callable[[int], bool]] = {"finite": lambda x: x & F32.infinity != F32.infinity,
        "infinite": lambda x: model.is_infinite(x, F32),
        "number": lambda x: not model.is_nan(x, F32), "notanumber": lambda x: model.is_nan(x, F32),
        "normal": lambda x: x & F32.infinity != F32.infinity and not model.is_subnormal(x, F32),
        "subnormal": lambda x: model.is_subnormal(x, F32)}
    for name, test in tests.items():
        add(f"testp.{name}.f32 %d, %a;", "f32", "pred", one, test)

    # Halves, alone and in pairs
    both = list(pairs(HALVES))
    mixed = [(x | y << 16, y | z << 16) for x, y,
        z in zip(HALVES, HALVES[3:], HALVES[7:], strict=False)]
    for name in ("add", "mul"):

        def half(x: int, y: int) -> int:
            one, addend = (F16.one, y) if name == "add" else (y, None)
            return model.float_multiply_add(x, one, addend, "rn", F16) or 0

        add(f"{name}.rn.f16 %d, %a, %b;", "f16 f16", "f16", both, half)
        add(f"{name}.rn.f16x2 %d, %a, %b;", "f16x2 f16x2", "f16x2", mixed,
            lambda x, y: half(x & mask(16), y & mask(16)) | half(x >> 16, y >> 16) << 16)
    add("fma.rn.f16 %d, %a, %b, %c;",
        "f16 f16 f16", "f16", [(x, y, z) for x, y in both[::3] for z in (0, 0x8000, 0xBC00, 1)],
        lambda x, y, z: model.float_multiply_add(x, y, z, "rn", F16))
    add("neg.f16 %d, %a;", "f16", "f16", [(x,) for x in HALVES], lambda x: x ^ 0x8000)
    add("abs.f16 %d, %a;", "f16", "f16", [(x,) for x in HALVES], lambda x: x & 0x7FFF)
    add("neg.f16x2 %d, %a;", "f16x2", "f16x2", [(x | y << 16,) for x, y in both[::7]],
        lambda x: x ^ 0x80008000)
    for name in ("min", "max"):
        add(f"{name}.f16 %d, %a, %b;", "f16 f16", "f16", both,
            lambda x, y: model.float_extreme(x, y, name == "min", F16), target=80)


# 9.7.9.21, conversions


def conversions() -> None:
    for source, target in itertools.product(ALL_INTEGERS, repeat=2):
        # A register wider than the type: low bits are read, the result is extended as its type.
        wide_in, wide_out = (64 if bits_of(t) == 64 else 32 for t in (source, target))
        operands = [(x,) for x in (*EDGES[wide_in], *EDGES[8], *EDGES[16])]
        b_in, b_out = f"b{wide_in}", f"b{wide_out}"
        add(f"cvt.{target}.{source} %d, %a;", b_in, b_out, operands,
            lambda x: read(read(x, source), target) & mask(wide_out))
        low, high = limits(target)
        if not low <= limits(source)[0] <= limits(source)[1] <= high:
            add(f"cvt.sat.{target}.{source} %d, %a;", b_in, b_out, operands,
                lambda x: clamp(read(x, source), target) & mask(wide_out))
    for target, source in (("u16", "u32"), ("u16", "u64"), ("s16", "s8"), ("u16", "u8"),
        ("s16", "s32")):
        wide = max(16, bits_of(source))
        add(f"cvt.{target}.{source} %d, %a;", f"b{wide}",
            "b16", [(x,) for x in EDGES[wide]], lambda x: read(read(x, source), target) & mask(16),
            name=f"cvt.{target}.{source} in b16")
    for target, source in (("u32", "u16"), ("s32", "s16"), ("u64", "u16"), ("s64", "s16"),
        ("u32", "u8"), ("s32", "s8")):
        add(f"cvt.{target}.{source} %d, %a;", "b16", f"b{bits_of(target)}",
            [(x,) for x in EDGES[16]], lambda x: read(x, source) & mask(bits_of(target)),
            name=f"cvt.{target}.{source} of b16")

    for source, target in itertools.product(ALL_INTEGERS, ("f16", "f32", "f64")):
        wide = 64 if bits_of(source) == 64 else 32
        values = [*EDGES[wide], 0x1000001, 0x1000002, 0x1000003, 0xFFFFFF7F, 0xFFFFFF80, 0x7FFFFFBF,
            0x7FFFFFC0, 0xFF000001, 0xFEFFFFFF, 2049, 2051, 65519, 65520, 65504, 0x20000000000003FF,
            0x7FFFFFBFFFFFFFFF, 0x8000008000000000, 0x8000008000000001, 0x00200000000000001]
        for mode in ("rn", "rz", "rm", "rp"):
            add(f"cvt.{mode}.{target}.{source} %d, %a;", f"b{wide}",
                target, [(x & mask(wide),) for x in values],
                lambda x: model.round_float(Fraction(read(x, source)), FORMATS[target], mode))
    add("cvt.rn.f32.u32 %d, %a;", "b32", "f32", [], lambda x: model.round_float(Fraction(x),
        F32, "rn"), name="cvt.rn.f32.u32 by hand", by_hand=[(0, 0), (1, 0x3F800000),
        (0x1000001, 0x4B800000), (0x1000003, 0x4B800002), (mask(32), 0x4F800000)])

    near = [0x4EFFFFFF, 0x4F000000, 0x4F7FFFFF, 0x4F800000, 0xCF000000, 0xCF000001, 0x5F000000,
        0x5EFFFFFF, 0x5F7FFFFF, 0x5F800000, 0xDF000000, 0xDF000001, 0x42FEFFFF, 0x42FF0000,
        0x42FF0001, 0x437F0000, 0x437F7FFF, 0x437F8000, 0xC3000000, 0xC3008000, 0xC3010000,
        0x477FFF00, 0x477FFF80, 0x46FFFE00, 0x46FFFF00, 0xC7000000, 0x3EFFFFFF, 0xBF7FFFFF,
        0xC0200000, 0xC0600000, 0x5D5E0B6B, 0xDD5E0B6B]
    singles = [(x,) for x in (*FLOATS, *near)]
    others: dict[str, list[tuple[int]]] = {"f16": [(x,) for x in HALVES],
        "f64": [(x,) for x in DOUBLES]}
    others["f64"] += [(x,) for x in (0x41EFFFFFFFE00000, 0x41EFFFFFFFF00000, 0xC1E0000000100000,
        0x43DFFFFFFFFFFFFF, 0x43EFFFFFFFFFFFFF, 0x43F0000000000000, 0xC3E0000000000001)]
    for target, mode in itertools.product(ALL_INTEGERS, ("rni", "rzi", "rmi", "rpi")):
        wide = 64 if bits_of(target) == 64 else 32

        def to_int(x: int, source: str, ftz: bool) -> int:
            return read(model.float_to_int(x, source, target, mode, ftz), target) & mask(wide)

        for ftz in ("", ".ftz"):
            add(f"cvt.{mode}{ftz}.{target}.f32 %d, %a;", "f32", f"b{wide}", singles,
                lambda x: to_int(x, "f32", bool(ftz)))
        add(f"cvt.{mode}.sat.{target}.f32 %d, %a;", "f32", f"b{wide}", singles,
            lambda x: to_int(x, "f32", False))
        for source, operands in others.items():
            add(f"cvt.{mode}.{target}.{source} %d, %a;", source, f"b{wide}", operands,
                lambda x: to_int(x, source, False))
    add("cvt.rzi.s64.f32 %d, %a;", "f32", "b64",
        [], lambda x: model.float_to_int(x, "f32", "s64", "rzi"), name="cvt.rzi.s64.f32 by hand",
        by_hand=[(0x7FC00000, 1 << 63), (0x7F800000, (1 << 63) - 1), (0xFF800000, 1 << 63),
        (0xBF7FFFFF, 0), (0x5F000000, (1 << 63) - 1), (0xC0200000, mask(64) - 1)])
    add("cvt.rzi.u32.f32 %d, %a;", "f32", "b32", [], lambda x: model.float_to_int(x, "f32",
        "u32", "rzi"), name="cvt.rzi.u32.f32 by hand", by_hand=[(0x7FC00000, 0), (0xBF800000, 0),
        (0x4F800000, mask(32)), (0x437FFFFF, 255), (0xFF800000, 0)])
    add("cvt.rni.s32.f32 %d, %a;", "f32", "b32", [], lambda x: model.float_to_int(x, "f32",
        "s32", "rni"), name="cvt.rni.s32.f32 by hand", by_hand=[(0x3F000000, 0), (0x3FC00000, 2),
        (0x40200000, 2), (0xBFC00000, mask(32) - 1), (0xBF000000, 0)])

    # Halves: ties, the greatest, overflow, subnormals and what is below them.
    ties = [0x477FE000, 0x477FEFFF, 0x477FF000, 0x47800000, 0xC77FF000, 0x33000000, 0x33000001,
        0x32FFFFFF, 0x33800000, 0x33C00000, 0x33BFFFFF, 0x387FE000, 0x387FC000, 0x387FDFFF,
        0x38800000, 0x3F801000, 0x3F803000, 0x3F800FFF, 0x3F801001, 0xBF801000, 0xBF801001,
        0xB3000000, 0xB3000001, 0x38000000, 0x38002000, 0x38006000, 0x3F7FF000, 0x33400000,
        0xB3400000, 0x00000001, 0x47FFFFFF]
    operands = [*singles, *((x,) for x in ties),
        *(((0x33000000 + i * 0x001F3567) & mask(32),) for i in range(160))]
    for mode, ftz, sat in itertools.product(("rn", "rz", "rm", "rp"), ("", ".ftz"), ("", ".sat")):
        add(f"cvt.{mode}{ftz}{sat}.f16.f32 %d, %a;", "f32", "f16", operands,
            lambda x: model.float_to_float(x, "f32", "f16", mode, bool(ftz), bool(sat)))
        add(f"cvt.{mode}{ftz}{sat}.f32.f64 %d, %a;", "f64", "f32", others["f64"],
            lambda x: model.float_to_float(x, "f64", "f32", mode, bool(ftz), bool(sat)))
        if not ftz:
            add(f"cvt.{mode}{sat}.f16.f64 %d, %a;", "f64", "f16", others["f64"],
                lambda x: model.float_to_float(x, "f64", "f16", mode, False, bool(sat)))
    add("cvt.rn.f16.f32 %d, %a;", "f32", "f16", [], lambda x: model.float_to_float(x, "f32", "f16",
        "rn"), name="cvt.rn.f16.f32 by hand", by_hand=[(0x477FE000, 0x7BFF), (0x477FEFFF, 0x7BFF),
        (0x477FF000, 0x7C00), (0xC77FF000, 0xFC00), (0x33000000, 0), (0x33000001, 1),
        (0x33C00000, 2), (0x33800000, 1), (0x387FE000, 0x0400), (0x387FC000, 0x03FF),
        (0x3F801000, 0x3C00), (0x3F803000, 0x3C02), (0x80000001, 0x8000), (0x7F800000, 0x7C00)])
    add("cvt.rz.f16.f32 %d, %a;", "f32", "f16", [], lambda x: model.float_to_float(x, "f32", "f16",
        "rz"), name="cvt.rz.f16.f32 by hand", by_hand=[(0x47800000, 0x7BFF), (0xFF7FFFFF, 0xFBFF),
        (0x7F800000, 0x7C00), (0x33FFFFFF, 1), (0x337FFFFF, 0)])
    for ftz in ("", ".ftz"):
        z = bool(ftz)
        add(f"cvt{ftz}.f32.f16 %d, %a;", "f16", "f32", [(x,) for x in range(0, 65536,
            97)] + others["f16"], lambda x: model.float_to_float(x, "f16", "f32", "rn", z))
        add(f"cvt{ftz}.f64.f32 %d, %a;", "f32", "f64", singles,
            lambda x: model.float_to_float(x, "f32", "f64", "rn", z))
        for mode, sat in itertools.product(("rni", "rzi", "rmi", "rpi"), ("", ".sat")):
            add(f"cvt.{mode}{ftz}{sat}.f32.f32 %d, %a;", "f32", "f32", singles,
                lambda x: model.float_to_float(x, "f32", "f32", mode, z, bool(sat)))
    add("cvt.rzi.f32.f32 %d, %a;", "f32", "f32", [], lambda x: model.float_to_float(x,
        "f32", "f32", "rzi"), name="cvt.rzi.f32.f32 by hand", by_hand=[(0xBF7FFFFF, 0x80000000),
        (0x40200000, 0x40000000), (0x4B7FFFFF, 0x4B7FFFFF), (0xFF800000, 0xFF800000)])
    for sat in ("", ".sat"):
        add(f"cvt.ftz{sat}.f32.f32 %d, %a;", "f32", "f32", singles,
            lambda x: model.float_to_float(x, "f32", "f32", "rn", True, bool(sat)))
    add("cvt.sat.f32.f32 %d, %a;", "f32", "f32", singles, lambda x: model.float_to_float(x,
        "f32", "f32", "rn", False, True), by_hand=[(0x7FC00000, 0), (0xBF800000, 0),
        (0x40000000, 0x3F800000), (0x3F000000, 0x3F000000)])
    add("cvt.f64.f16 %d, %a;", "f16", "f64", others["f16"],
        lambda x: model.float_to_float(x, "f16", "f64", "rn"))
    for mode in ("rni", "rzi", "rmi", "rpi"):
        add(f"cvt.{mode}.f64.f64 %d, %a;", "f64", "f64", others["f64"],
            lambda x: model.float_to_float(x, "f64", "f64", mode))
        add(f"cvt.{mode}.f16.f16 %d, %a;", "f16", "f16", others["f16"],
            lambda x: model.float_to_float(x, "f16", "f16", mode))

    # Two at once: a is the upper half.
    packed = [(x, y) for (x,), (y,) in zip(operands, operands[11:], strict=False)]
    for mode, relu in itertools.product(("rn", "rz"), ("", ".relu")):

        def narrow(x: int, t: str) -> int:
            value = model.float_to_float(x, "f32", t, mode)
            assert value is not None
            form = FORMATS[t]
            return (0 if relu and not model.is_nan(value, form) and model.is_negative(value,
                form) else value)

        # Is -0.0 negative for .relu? It is left out.
        plain = [row for row in packed if not relu or not any(model.is_negative(x,
            F32) and (model.is_zero(model.float_to_float(x, "f32", "f16", mode) or 0,
            F16) or model.is_zero(x, F32) or model.is_subnormal(x, F32)) for x in row)]
        for t in ("f16", "bf16"):
            add(f"cvt.{mode}{relu}.{t}x2.f32 %d, %a, %b;", "f32 f32", "f16x2" if t == "f16"
                else "bf16x2", plain, lambda x, y: narrow(x, t) << 16 | narrow(y, t), target=80,
                by_hand=[(0x3F800000, 0x40000000, 0x3C004000 if t == "f16" else 0x3F804000)])
        add(f"cvt.{mode}{relu}.bf16.f32 %d, %a;", "f32", "bf16", [row[:1] for row in plain],
            lambda x: narrow(x, "bf16"), target=80)


# 9.7.9.3 and 9.7.9.4, mov; 10, special registers


def moves() -> None:
    for t in ("b16", "b32", "b64", *INTEGERS):
        b = f"b{bits_of(t)}"
        add(f"mov.{t} %d, %a;", b, b, [(x,) for x in EDGES[bits_of(t)]], lambda x: x)
    add("cnot.b16 %d, %a;", "b16", "b16", [(x,) for x in EDGES[16]], lambda x: x == 0)
    add("mov.f32 %f, %a; mov.b32 %d, %f;", "f32", "b32", [(x,) for x in FLOATS], lambda x: x)
    add("mov.f64 %g, %a; mov.b64 %d, %g;", "f64", "b64", [(x,) for x in DOUBLES], lambda x: x)
    add("mov.pred %d, %a;", "pred", "pred", [(0,), (1,)], lambda x: x)
    add("mov.b32 %d, {%a, %b};", "b16 b16", "b32", pairs(EDGES[16]), lambda x, y: x | y << 16,
        name="mov.b32 pack")
    add("mov.b32 {%d, %d1}, %a;", "b32", "b16 b16", [(x,) for x in EDGES[32]], lambda x:
        (x & mask(16), x >> 16), name="mov.b32 unpack", by_hand=[(0x12345678, 0x5678, 0x1234)])
    add("mov.b64 %d, {%a, %b};", "b32 b32", "b64", pairs(EDGES[32]), lambda x, y: x | y << 32,
        name="mov.b64 pack")
    add("mov.b64 {%d, %d1}, %a;", "b64", "b32 b32", [(x,) for x in EDGES[64]],
        lambda x: (x & mask(32), x >> 32), name="mov.b64 unpack")
    add("mov.b64 %d, {%a, %b, %c, %e};", "b16 b16 b16 b16", "b64", chosen("pack", (16,) * 4, 64),
        lambda *x: sum(v << 16 * i for i, v in enumerate(x)), name="mov.b64 pack 4")
    add("mov.b64 {%d, %d1, %d2, %d3}, %a;", "b64", "b16 b16 b16 b16", [(x,) for x in EDGES[64]],
        lambda x: [x >> i & mask(16) for i in (0, 16, 32, 48)], name="mov.b64 unpack 4")
    add("mov.b64 {%d, _}, %a;", "b64", "b32", [(x,) for x in EDGES[64]], lambda x: x & mask(32),
        name="mov.b64 sink low")
    add("mov.b64 {_, %d}, %a;", "b64", "b32", [(x,) for x in EDGES[64]], lambda x: x >> 32,
        name="mov.b64 sink high")
    # 4.5: constants; 0f and 0d have the bits; an immediate is cut to the type.
    add("mov.u32 %d, 0xDEADBEEF; mov.s32 %d1, -5; mov.b32 %d2, 0b1011; "
        "mov.u32 %d3, 017; mov.u64 %d4, 0x123456789ABCDEF0; "
        "mov.s64 %d5, -1; mov.u16 %d6, 65535; mov.s16 %d7, -32768; "
        "mov.f32 %f, 0f3DCCCCCD; mov.b32 %d8, %f; "
        "mov.f64 %g, 0d3FF8000000000000; mov.b64 %d9, %g; mov.u32 %d10, 4294967295;",
        "b32", "b32 b32 b32 b32 b64 b64 b16 b16 b32 b64 b32", [(0,)],
        lambda x: (0xDEADBEEF, mask(32) - 4, 11, 15, 0x123456789ABCDEF0, mask(64), 65535, 32768,
        0x3DCCCCCD, 0x3FF8000000000000, mask(32)), name="mov constants")
    add("mov.pred %d, 1; mov.pred %d1, 0;", "b32", "pred pred", [(0,)], lambda x: (1, 0),
        name="mov.pred constants")

    dimensions = ("mov.u32 %d, %tid.x; mov.u32 %d1, %tid.y; mov.u32 %d2, %tid.z; "
        "mov.u32 %d3, %ntid.x; "
        "mov.u32 %d4, %ntid.y; mov.u32 %d5, %ntid.z; mov.u32 %d6, %ctaid.x; "
        "mov.u32 %d7, %ctaid.y; "
        "mov.u32 %d8, %ctaid.z; mov.u32 %d9, %nctaid.x; mov.u32 %d10, %nctaid.y; "
        "mov.u32 %d11, %nctaid.z; " "mov.u32 %d12, %laneid;")
    _groups.append(Group("mov special registers", dimensions, ("b32",), ("b32",) * 13, [((0,),
        (t, 0, 0, 96, 1, 1, c, 0, 0, 3, 1, 1, t % 32)) for c in range(3) for t in range(96)],
        threads=96, is_lanewise=False))
    add_warp("mov lane masks", "mov.u32 %d, %lanemask_eq; mov.u32 %d1, %lanemask_le; "
        "mov.u32 %d2, %lanemask_lt; mov.u32 %d3, %lanemask_ge; " "mov.u32 %d4, %lanemask_gt;",
        "b32", "b32 b32 b32 b32 b32", [[(0,)] * WARP], lambda i, _: (1 << i, (2 << i) - 1,
        (1 << i) - 1, mask(32) ^ (1 << i) - 1, mask(32) ^ (2 << i) - 1))


# 9.7.9.6, 9.7.13, across the lanes of a warp

MASKS = (0, 1, 0x80000000, 0xFFFFFFFF, 0x0000FFFF, 0xAAAAAAAA, 0x12345678, 0x00010000)


def warp_bits(bits: int) -> list[Row]:
    return [(bits >> i & 1,) for i in range(WARP)]


def ballot(rows: Sequence[Row], column: int = 0) -> int:
    return sum(1 << i for i, row in enumerate(rows) if row[column])


def warps() -> None:
    numbers = random.Random("warps")
    bounds = [s << 8 | c for s in (0, 16, 24, 28, 30, 31, 3, 21) for c in (0, 3, 7, 15, 30, 31)]
    for mode in ("idx", "up", "down", "bfly"):
        several = [[(1000 + i, numbers.choice((b, numbers.randrange(40))),
            c) for i in range(WARP)] for c in bounds for b in (0, 1, 2, 5, 16, 31, 32, 0xFFFFFFFF)]

        def moved(i: int, rows: Sequence[Row]) -> tuple[int, int]:
            source, within = model.shuffle_source(i, rows[i][1], rows[i][2], mode)
            return rows[source][0], int(within)

        add_warp(f"shfl.sync.{mode}.b32", f"shfl.sync.{mode}.b32 %d|%d1, %a, %b, %c, 0xffffffff;",
            "b32 b32 b32", "b32 pred", several, moved)
        add_warp(f"shfl.sync.{mode}.b32 without p", f"shfl.sync.{mode}.b32 %d, %a, %b, %c, -1;",
            "b32 b32 b32", "b32", several[::7], lambda i, rows: moved(i, rows)[0])
    # By hand: the second lane of each segment of 8, and what passes the edge of a segment.
    add_warp("shfl.sync by hand", "shfl.sync.idx.b32 %d|%p0, %a, 1, 0x181f, -1; "
        "shfl.sync.up.b32 %d1|%d2, %a, 1, 0x1800, -1; "
        "shfl.sync.down.b32 %d3|%d4, %a, 1, 0x181f, -1; "
        "shfl.sync.bfly.b32 %d5, %a, 7, 0x1f, -1;", "b32", "b32 b32 pred b32 pred b32",
        [[(100 + i,) for i in range(WARP)]], lambda i, _: (100 + i // 8 * 8 + 1, 100 + i -
        (i % 8 > 0), int(i % 8 > 0), 100 + i + (i % 8 < 7), int(i % 8 < 7), 100 + (i ^ 7)))
    # Each half of a warp on its own side of a branch.
    add_warp("shfl.sync in halves",
        "mov.u32 %t0, %laneid; setp.ge.u32 %p0, %t0, 16; @%p0 bra UPPER;\n"
        "shfl.sync.down.b32 %d, %a, 1, 0x1f, 0x0000ffff; setp.eq.u32 %p1, %t0, 15; "
        "selp.b32 %d, 0, %d, %p1; bra.uni DONE;\n"
        "UPPER: shfl.sync.idx.b32 %d, %a, 16, 0x1f, 0xffff0000;\n"
        "DONE: bar.warp.sync 0xffffffff;", "b32", "b32", [[(100 + i,) for i in range(WARP)]],
        lambda i, _: 116 if i >= 16 else 0 if i == 15 else 101 + i)
    add_warp("shfl.sync of predicated lanes",
        "setp.ne.u32 %p0, %b, 0; vote.sync.ballot.b32 %t0, %p0, -1; mov.u32 %d, 7;\n"
        "@%p0 shfl.sync.idx.b32 %d, %a, 4, 0x1f, %t0;", "b32 b32", "b32",
        [[(100 + i, m >> i & 1) for i in range(WARP)] for m in (0x10, 0xFFFFFFFF, 0xF0F0F0F0)],
        lambda i, rows: 104 if rows[i][1] else 7)

    votes = [warp_bits(m) for m in MASKS]
    add_warp("vote.sync.ballot.b32", "vote.sync.ballot.b32 %d, %a, 0xffffffff; "
        "vote.sync.ballot.b32 %d1, !%a, 0xffffffff;", "pred", "b32 b32", votes,
        lambda _, rows: (ballot(rows), mask(32) ^ ballot(rows)))
    for mode in ("all", "any", "uni"):

        def voted(_: int, rows: Sequence[Row]) -> tuple[int, int]:
            seen = {row[0] for row in rows}
            result = {"all": 0 not in seen, "any": 1 in seen, "uni": len(seen) == 1}[mode]
            negated = {"all": 1 not in seen, "any": 0 in seen, "uni": len(seen) == 1}[mode]
            return int(result), int(negated)

        add_warp(f"vote.sync.{mode}.pred",
            f"vote.sync.{mode}.pred %d, %a, -1; vote.sync.{mode}.pred %d1, !%a, -1;", "pred",
            "pred pred", votes, voted)
    # Lanes that are not in the mask, or have ended, add nothing: their predicates are all true.
    add_warp("vote.sync of some lanes",
        "mov.pred %p1, 1; mov.u32 %d, 9; mov.u32 %d1, 9; mov.u32 %d2, 9; "
        "@!%b bra SKIP;\n" "vote.sync.ballot.b32 %d, %a, 0x0ff00001; "
        "vote.sync.all.pred %p2, !%a, 0x0ff00001; selp.u32 %d1, 1, 0, %p2;\n"
        "vote.sync.any.pred %p2, %a, 0x0ff00001; selp.u32 %d2, 1, 0, %p2;\n"
        "SKIP: bar.warp.sync -1;", "pred pred", "b32 b32 b32",
        [[(m >> i & 1, 0x0FF00001 >> i & 1) for i in range(WARP)] for m in (mask(32), 0, 0xF00FFFFE,
        0x00100000)], lambda i, rows: ((9, 9, 9) if not rows[i][1] else (ballot(rows) & 0x0FF00001,
        int(ballot(rows) & 0x0FF00001 == 0), int(ballot(rows) & 0x0FF00001 != 0))))
    # Results are stored, then lanes end; those that are left vote with the whole mask.
    add_warp("vote.sync after lanes have ended",
        "mov.u32 %d, 0; st.global.b64 [%out], 77; @!%a exit; "
        "vote.sync.ballot.b32 %d, %b, 0xffffffff;", "pred pred",
        "b32", [[(m >> i & 1, 1) for i in range(WARP)] for m in MASKS],
        lambda i, rows: ballot(rows) if rows[i][0] else 77)

    for bits in (32, 64):
        high = 1 << bits - 1
        sets = [[(numbers.choice((5, 6, high | 5)),) for _ in range(WARP)],
            [(high,)] * WARP, [(i,) for i in range(WARP)],
            [(5 if bits == 32 else i // 16 << 32 | 5,) for i in range(WARP)]]
        add_warp(f"match.any.sync.b{bits}",
            f"match.any.sync.b{bits} %d, %a, 0xffffffff;", f"b{bits}", "b32", sets,
            lambda i, rows: sum(1 << j for j in range(WARP) if rows[j] == rows[i]))
        # All equal: the mask and true; else 0 and false.
        add_warp(f"match.all.sync.b{bits}", f"match.all.sync.b{bits} %d|%d1, %a, 0xffffffff;",
            f"b{bits}", "b32 pred", sets,
            lambda _, rows: (mask(32), 1) if len(set(rows)) == 1 else (0, 0))

    sums = [[(numbers.choice((*EDGES[32], numbers.getrandbits(32))),) for _ in range(WARP)] for _ in
        range(8)]
    for name, t in (("add", "u32"), ("add", "s32"), ("min", "u32"), ("min", "s32"), ("max", "u32"),
        ("max", "s32")):

        def reduced(_: int, rows: Sequence[Row]) -> int:
            values = [read(row[0], t) for row in rows]
            return (sum(values) if name == "add" else min(values) if name == "min"
                else max(values)) & mask(32)

        add_warp(f"redux.sync.{name}.{t}", f"redux.sync.{name}.{t} %d, %a, 0xffffffff;", "b32",
            "b32", sums, reduced, target=80)
    for name in ("and", "or", "xor"):

        def combined(_: int, rows: Sequence[Row]) -> int:
            result = rows[0][0]
            for row in rows[1:]:
                result = {"and": result & row[0], "or": result | row[0],
                    "xor": result ^ row[0]}[name]
            return result

        add_warp(f"redux.sync.{name}.b32", f"redux.sync.{name}.b32 %d, %a, 0xffffffff;", "b32",
            "b32", [*sums, [(0xFFFFFFF0 | i,) for i in range(WARP)]], combined, target=80)
    add_warp("redux.sync in halves",
        "mov.u32 %t0, %laneid; setp.ge.u32 %p0, %t0, 16; @%p0 bra UPPER;\n"
        "redux.sync.add.u32 %d, %a, 0x0000ffff; "
        "bra.uni DONE;\nUPPER: redux.sync.add.u32 %d, %a, 0xffff0000;\n" "DONE: bar.warp.sync -1;",
        "b32", "b32", sums,
        lambda i, rows: sum(row[0] for row in rows[i // 16 * 16 :][:16]) & mask(32), target=80)
    # A predicated-off lane gives 0; whether lanes run together is not said, so a bit may miss.
    add_warp("activemask.b32",
        "mov.u32 %t1, 0; @%a activemask.b32 %t1; vote.sync.ballot.b32 %t0, %a, -1; "
        "not.b32 %t2, %t0; "
        "and.b32 %d, %t1, %t2; mov.u32 %t3, %lanemask_eq; and.b32 %t3, %t3, %t1; "
        "setp.ne.u32 %d1, %t3, 0;", "pred", "b32 pred", votes, lambda i, rows: (0, rows[i][0]))


# 9.7.12, predication and branches


def control() -> None:
    numbers = range(WARP)
    add_warp("predication",
        "mov.u32 %d, 1; @%a mov.u32 %d, 2; mov.u32 %d1, 1; @!%a add.u32 %d1, %d1, 4;", "pred",
        "b32 b32", [warp_bits(m) for m in MASKS], lambda i, rows: (2, 1) if rows[i][0] else (1, 5))
    add_warp("bra with and without its lanes",
        "mov.u32 %d, 0; @%a bra YES;\nadd.u32 %d, %d, 1; bra.uni JOIN;\n"
        "YES: add.u32 %d, %d, 16;\n" "JOIN: add.u32 %d, %d, 256;", "pred", "b32",
        [warp_bits(m) for m in MASKS], lambda i, rows: 272 if rows[i][0] else 257)
    add_warp("bra nested and back together",
        "mov.u32 %d, 0; setp.lt.u32 %p0, %a, 16; @!%p0 bra ELSE;\n"
        "setp.lt.u32 %p1, %a, 4; @%p1 bra FIRST;\n"
        "add.u32 %d, %d, 1; bra.uni MIDDLE;\nFIRST: add.u32 %d, %d, 2;\n"
        "MIDDLE: add.u32 %d, %d, 8; bra.uni JOIN;\n"
        "ELSE: add.u32 %d, %d, 4;\nJOIN: bar.warp.sync -1; mov.pred %p2, 1; "
        "vote.sync.ballot.b32 %d1, %p2, -1;", "b32", "b32 b32", [[(i,) for i in numbers]],
        lambda i, _: (4 if i >= 16 else 10 if i < 4 else 9, mask(32)))
    # Each lane takes its own number of turns.
    add_warp("bra in a loop", "mov.u32 %d, 0; mov.u32 %t0, %a;\nTURN: setp.eq.u32 %p0, %t0, 0; "
        "@%p0 bra DONE;\nadd.u32 %d, %d, %t0; "
        "sub.u32 %t0, %t0, 1; bra TURN;\nDONE: bar.warp.sync -1; "
        "shfl.sync.idx.b32 %d1, %d, 31, 31, -1;",
        "b32", "b32 b32", [[(i * 7 % 32,) for i in numbers]],
        lambda i, rows: (rows[i][0] * (rows[i][0] + 1) // 2, rows[31][0] * (rows[31][0] + 1) // 2))
    function = (".func (.param .b32 result) twice(.param .b32 first, .param .b64 second)\n{\n"
        "  .reg .b32 %x<3>; .reg .b64 %y;\n"
        "  ld.param.b32 %x0, [first]; ld.param.b64 %y, [second];\n"
        "  cvt.u32.u64 %x1, %y; mad.lo.u32 %x2, %x0, 2, %x1; st.param.b32 [result], %x2; ret;\n}")
    for call in ("call", "call.uni"):
        add("{ .param .b32 p0; .param .b64 p1; .param .b32 back; st.param.b32 [p0], %a; "
            f"st.param.b64 [p1], %b; {call} (back), twice, (p0, p1); ld.param.b32 %d, [back]; }}",
            "b32 b64", "b32", chosen(call, (32, 64), 32), lambda x, y: 2 * x + y & mask(32),
            name=call, declare=function)
    add_warp("ret of some lanes",
        "mov.u32 %d, 5; st.global.b64 [%out], 7; @%a ret; add.u32 %d, %d, 1;", "pred", "b32",
        [warp_bits(m) for m in MASKS], lambda i, rows: 7 if rows[i][0] else 6)
    # A scope has registers of its own.
    add("{ .reg .b32 %own; mov.u32 %own, 3; add.u32 %d, %a, %own; } { .reg .b32 %own; "
        "mov.u32 %own, 5; add.u32 %d1, %a, %own; }", "b32", "b32 b32", [(1,)],
        lambda x: (x + 3, x + 5), name="scopes")
    # Lanes hand a value to the next through shared memory; then warps do.
    add_warp("bar.warp.sync",
        "mov.u32 %t0, %laneid; mov.u32 %t1, shared; mad.lo.u32 %t2, %t0, 4, %t1; "
        "st.shared.b32 [%t2], %a; "
        "bar.warp.sync 0xffffffff; add.u32 %t0, %t0, 1; and.b32 %t0, %t0, 31; "
        "mad.lo.u32 %t2, %t0, 4, %t1; " "ld.shared.b32 %d, [%t2];", "b32", "b32",
        [[(i * i,) for i in numbers]], lambda i, rows: rows[(i + 1) % WARP][0])
    for barrier in ("bar.sync 0;", "bar.cta.sync 0;", "barrier.sync 0;", "barrier.cta.sync 0;",
        "barrier.sync.aligned 0;", "barrier.cta.sync.aligned 0;"):
        handed: list[tuple[Row, Row]] = [((i * 3,), ((127 - i) * 3,)) for i in range(128)]
        _groups.append(Group(barrier.rstrip(";"),
            "mov.u32 %t0, %tid.x; mov.u32 %t1, shared; mad.lo.u32 %t2, %t0, 4, %t1; "
            "st.shared.b32 [%t2], %a; "
            f"{barrier} sub.u32 %t0, 127, %t0; mad.lo.u32 %t2, %t0, 4, %t1; "
            "ld.shared.b32 %d, [%t2];", ("b32",), ("b32",), handed * 2,
            threads=128, is_lanewise=False))
    for name, join in (("popc.u32", sum), ("and.pred", min), ("or.pred", max)):
        for seed in ((0, 0), (1, 1), (0, 1), (1, 0)):
            bits = [seed[i % 2] if i < 64 else seed[0] for i in range(96)]
            _groups.append(Group(f"bar.red.{name} {seed}", f"bar.red.{name} %d, 0, %a;", ("pred",),
                ("b32" if name == "popc.u32" else "pred",), [((b,), (join(bits),)) for b in bits],
                threads=96, is_lanewise=False))


# 9.7.9.8 to 9.7.9.12, memory

BYTES = 0xF1E2D3C4B5A69788  # of each thread: signs in all sizes, and no two bytes equal
MORE = 0x0123456789ABCDEF
STORED = tuple(f"{kind}{bits}" for bits in (8, 16, 32, 64) for kind in "usb")
QUALIFIERS = (".ca", ".cg", ".cs", ".lu")


def memory() -> None:
    both = [(BYTES, MORE), (MORE, BYTES), (0x8000000000000000, 0x00000000FFFFFFFF)]
    # Where the thread's 16 bytes are, in each state space.
    place = {"global": ("", "%in"),
        "": ("", "%gin"), "shared": ("st.shared.b64 [%sh], %a; st.shared.b64 [%sh+8], %b;", "%sh"),
        "local": ("st.local.b64 [local], %a; st.local.b64 [local+8], %b;", "local"),
        "of shared": ("st.shared.b64 [%sh], %a; st.shared.b64 [%sh+8], %b; cvt.u64.u32 %w0, %sh; "
        "cvta.shared.u64 %w0, %w0;", "%w0"),
        "of local": ("st.local.b64 [local], %a; st.local.b64 [local+8], %b; mov.u64 %w0, local; "
        "cvta.local.u64 %w0, %w0;", "%w0"), "constant": ("", "table")}
    table = ", ".join(f"{both[0][i // 8] >> i % 8 * 8 & 255:#x}" for i in range(16))
    constant = f".const .align 16 .b8 table[16] = {{{table}}};"
    opcodes = {"global": ["ld.global", *(f"ld.global{q}" for q in QUALIFIERS[:4]),
        *(f"ld.global{q}.nc" for q in ("", *QUALIFIERS[:3])), "ld.global.nc.L1::no_allocate",
        "ld.global.nc.L1::evict_last", "ld.global.L1::no_allocate", "ld.volatile.global",
        "ld.relaxed.gpu.global"], "": ["ld", "ld.volatile"], "of shared": ["ld"],
        "of local": ["ld"],
        "shared": ["ld.shared", "ld.volatile.shared"], "local": ["ld.local"],
        "constant": ["ld.const"]}
    for space, names in opcodes.items():
        before, address = place[space]
        rows, declare = (both[:1], constant) if space == "constant" else (both, "")
        for opcode in names:
            label = f"{opcode} {space}" if space.startswith("of") else opcode
            for t in STORED:
                # Into registers of each width: sign for signed types, else zeros (9.4.1).
                size = bits_of(t) // 8
                for width in (16, 32, 64):
                    if width < bits_of(t):
                        continue
                    offsets = (0, 16 - size, size) if size > 1 else (0, 1, 15)
                    code = " ".join(f"{opcode}.{t} {d}, [{address}+{o}];" for d,
                        o in zip(outputs(3), offsets, strict=True))
                    add(f"{before} {code}", "b64 b64", " ".join([f"b{width}"] * 3), rows,
                        lambda x, y: [read((x | y << 64) >> 8 * i,
                        t) & mask(width) for i in offsets],
                        name=f"{label}.{t} to b{width}", declare=declare)
            add(f"{before} {opcode}.f32 %d, [{address}+4]; {opcode}.f64 %d1, [{address}+8];",
                "b64 b64", "b32 b64", rows, lambda x, y: (x >> 32, y), name=f"{label}.f32",
                declare=declare)
            for count, t in itertools.product((2, 4), (*STORED, "f32", "f64")):
                if count * bits_of(t) > 128:
                    continue
                width = 32 if bits_of(t) == 8 else bits_of(t)
                # Elements of a vector lie one behind the other, aligned to the whole.
                size = bits_of(t) // 8
                offset = 16 - size * count
                vector = "{" + ", ".join(outputs(count)) + "}"
                add(f"{before} {opcode}.v{count}.{t} {vector}, [{address}+{offset}];",
                    "b64 b64", " ".join([f"b{width}"] * count), rows,
                    lambda x, y: [read((x | y << 64) >> 8 * (offset + size * i), t.replace("f",
                    "b")) & mask(width) for i in range(count)], name=f"{label}.v{count}.{t}",
                    declare=declare)
    add("ld.global.u32 %d, [%in]; ld.global.u32 %d1, [%in+12]; add.s64 %w0, %in, 8; "
        "ld.global.u32 %d2, [%w0+-4];", "b64 b64", "b32 b32 b32", both,
        lambda x, y: (x & mask(32), y >> 32, x >> 32), name="ld offsets")
    # The kernel's parameters: the parts of a pointer against the whole.
    add("ld.param.u64 %w0, [in]; ld.param.u32 %t0, [in]; ld.param.u32 %t1, [in+4]; "
        "mov.b64 %w1, {%t0, %t1}; sub.s64 %d, %w1, %w0; "
        "ld.param.v2.u32 {%t0, %t1}, [in]; mov.b64 %w1, {%t0, %t1}; "
        "sub.s64 %d1, %w1, %w0; ld.param.u8 %t0, [in+1]; "
        "shr.u64 %w1, %w0, 8; and.b64 %w1, %w1, 255; cvt.u64.u32 %w2, %t0; "
        "sub.s64 %d2, %w1, %w2; ld.param.b64 %w1, [in]; " "sub.s64 %d3, %w1, %w0;", "b32",
        "b64 b64 b64 b64", [(0,)], lambda x: (0, 0, 0, 0), name="ld.param")
    for t in STORED:
        for offset in range(0, 8, bits_of(t) // 8):
            whole = f"{'s' if t[0] == 's' else 'u'}{bits_of(t)}"
            part = f"cvt.u32.u64 %t0, %w2; cvt.{whole[0]}64.{whole} %w2, %t0;"
            add(f"ld.param.u64 %w0, [in]; ld.param.{t} %w1, [in+{offset}]; "
                f"shr.u64 %w2, %w0, {offset * 8}; {part if bits_of(t) < 64 else ''} "
                "sub.s64 %d, %w1, %w2;", "b32", "b64", [(0,)], lambda x: 0,
                name=f"ld.param.{t} at {offset}")
    # To generic and back.
    add("cvta.global.u64 %w0, %in; cvta.to.global.u64 %w1, %w0; sub.s64 %d, %w1, %in; "
        "ld.u32 %d1, [%w0]; cvta.to.global.u64 %w2, %gin; " "ld.global.u32 %d2, [%w2];",
        "b64", "b64 b32 b32", [(BYTES,)], lambda x: (0, x & mask(32), x & mask(32)),
        name="cvta.global.u64")
    add("cvt.u64.u32 %w3, %sh; cvta.shared.u64 %w0, %w3; cvta.to.shared.u64 %w1, %w0; "
        "sub.s64 %d, %w1, %w3; st.u32 [%w0+4], %a; " "ld.shared.u32 %d1, [%sh+4];", "b32",
        "b64 b32", [(0x12345678,)], lambda x: (0, x), name="cvta.shared.u64")
    add("mov.u64 %w3, local; cvta.local.u64 %w0, %w3; cvta.to.local.u64 %w1, %w0; "
        "sub.s64 %d, %w1, %w3; st.u32 [%w0+4], %a; " "ld.local.u32 %d1, [local+4];", "b32",
        "b64 b32", [(0x12345678,)], lambda x: (0, x), name="cvta.local.u64")
    add("mov.u64 %w0, table; cvta.const.u64 %w1, %w0; cvta.to.const.u64 %w2, %w1; "
        "mul.wide.u32 %w3, %a, 4; add.s64 %w0, %w2, %w3; add.s64 %w1, %w1, %w3; "
        "ld.const.u32 %d, [%w0]; ld.u32 %d1, [%w1]; ld.const.s8 %d2, [table+7];",
        "b32", "b32 b32 b32",
        [(0,), (1,), (2,), (3,)], lambda i: (*((BYTES | MORE << 64) >> 32 * i & mask(32),) * 2,
        0xFFFFFFF1), name="cvta.const.u64", declare=constant)
    variable = ".global .align 8 .b32 numbers[4] = {10, 20, 0x80000000, 40};"
    add("mov.u64 %w0, numbers; mul.wide.u32 %w1, %a, 4; add.s64 %w0, %w0, %w1; "
        "ld.global.u32 %d, [%w0]; ld.global.u32 %d1, [numbers+8]; "
        "mov.u64 %w0, numbers+4; ld.global.u32 %d2, [%w0];", "b32", "b32 b32 b32",
        [(0,), (1,), (2,), (3,)], lambda i: ((10, 20, 0x80000000, 40)[i], 0x80000000, 20),
        name="ld.global of a variable", declare=variable)

    # Stores: only the bytes of the type change.
    before_all = "mov.u64 %w2, 0x1111111111111111;"
    hints = (".wb", ".cg", ".cs", ".wt", ".L1::no_allocate")
    stores = {**{q: (f"st.global{q}", "%mem", "ld.global") for q in hints},
        "global": ("st.global", "%mem", "ld.global"), "": ("st", "%gmem", "ld"),
        "shared": ("st.shared", "%sh", "ld.shared"), "local": ("st.local", "local", "ld.local")}
    for opcode, address, load in stores.values():
        clear = f"{before_all} {opcode}.b64 [{address}], %w2; {opcode}.b64 [{address}+8], %w2;"
        back = f"{load}.b64 %d, [{address}]; {load}.b64 %d1, [{address}+8];"

        def stored(values: Sequence[int], offset: int, size: int) -> tuple[int, int]:
            whole = bytearray(b"\x11" * 16)
            for i, value in enumerate(values):
                at = offset + i * size
                whole[at : at + size] = (value & mask(8 * size)).to_bytes(size, "little")
            return int.from_bytes(whole[:8], "little"), int.from_bytes(whole[8:], "little")

        for t in STORED:
            size = bits_of(t) // 8
            for width in (16, 32, 64):
                if width >= bits_of(t):
                    add(f"{clear} {opcode}.{t} [{address}+{size}], %a; {back}", f"b{width}",
                        "b64 b64", [(x,) for x in EDGES[width]], lambda x: stored([x], size, size),
                        name=f"{opcode}.{t} of b{width}")
        for t, form in (("f32", FLOATS), ("f64", DOUBLES)):
            add(f"{clear} {opcode}.{t} [{address}+8], %a; {back}",
                t, "b64 b64", [(x,) for x in form], lambda x: stored([x], 8, bits_of(t) // 8),
                name=f"{opcode}.{t}")
        for count, t in itertools.product((2, 4), (*STORED, "f32", "f64")):
            if count * bits_of(t) > 128:
                continue
            width = 32 if bits_of(t) == 8 else bits_of(t)
            size = bits_of(t) // 8
            offset = 16 - size * count
            register = t if t[0] == "f" else f"b{width}"
            sources = INPUTS[:count]
            add(f"{clear} {opcode}.v{count}.{t} [{address}+{offset}], {{{', '.join(sources)}}}; "
                f"{back}", " ".join([register] * count), "b64 b64",
                chosen(f"st {t}", (width,) * count, 32), lambda *x: stored(x, offset, size),
                name=f"{opcode}.v{count}.{t}")
    for opcode in ("st.volatile.global", "st.relaxed.gpu.global"):
        add(f"{opcode}.u32 [%mem+4], %a; ld.global.u32 %d, [%mem+4];", "b32", "b32",
            [(x,) for x in EDGES[32]], lambda x: x, name=f"{opcode}.u32")
    add("@%b st.global.u32 [%mem], %a; @!%b st.global.u32 [%mem], 5; mov.u32 %d, 9; "
        "@%b ld.global.u32 %d, [%mem];", "b32 pred", "b32", [(x, y) for x in EDGES[32] for y in (0,
        1)], lambda x, y: x if y else 9, name="ld and st predicated")
    for fence in ("membar.gl;", "membar.cta;", "fence.acq_rel.gpu;", "fence.acq_rel.cta;",
        "fence.sc.cta;"):
        add(f"st.global.u32 [%mem], %a; {fence} ld.global.u32 %d, [%mem];", "b32", "b32", [(7,)],
            lambda x: x, name=fence[:-1])


# 9.7.13.6 and 9.7.13.7, atom and red


def atomics() -> None:
    def applied(name: str, t: str, old: int, b: int, c: int = 0) -> int:
        x, y = read(old, t), read(b, t)
        return {"add": old + b, "min": min(x, y), "max": max(x, y), "and": old & b, "or": old | b,
            "xor": old ^ b, "exch": b, "inc": 0 if old >= b else old + 1, "dec": b if old == 0 or
            old > b else old - 1, "cas": c if old == b else old}[name] & mask(bits_of(t))

    forms = [(n, t) for n in ("add", "min", "max") for t in ("u32", "s32", "u64", "s64") if (n,
        t) != ("add", "s64")]
    forms += [(n, b) for n in ("and", "or", "xor", "exch", "cas") for b in ("b32",
        "b64")] + [("inc", "u32"), ("dec", "u32")]
    for sem, scope, space in itertools.product(("", ".relaxed"), ("", ".cta", ".gpu"),
        ("global", "shared", "")):
        address = {"global": "%mem", "shared": "%sh", "": "%gmem"}[space]
        dot = f".{space}" if space else ""
        order = sem + scope
        for name, t in forms:
            bits = bits_of(t)
            b = f"b{bits}"
            old = {16: "%h0", 32: "%t0", 64: "%w0"}[bits]
            more = ", %c" if name == "cas" else ""
            rows = [row if name == "cas"
                else row[:2] for row in chosen(f"{name} {t}", (bits,) * 3, 32 if order else 96)]
            if name == "cas":
                rows += [(x, x, y) for x, y, _ in rows[:32]]
            elif not order:
                rows += list(pairs(EDGES[bits]))[:: 3 if bits == 32 else 2]
            # %a lies in memory; the old value comes back, the new one is left.
            add(f"st{dot}.{b} [{address}], %a; "
                f"atom{order}{dot}.{name}.{t} %d, [{address}], %b{more}; "
                f"ld{dot}.{b} %d1, [{address}];", " ".join([b] * (3 if more else 2)),
                f"{b} {b}", rows, lambda x, y, z=0: (x, applied(name, t, x, y, z)),
                name=f"atom{order}{dot}.{name}.{t}")
            if name not in ("exch", "cas"):
                add(f"st{dot}.{b} [{address}], %a; red{order}{dot}.{name}.{t} [{address}], %b; "
                    f"ld{dot}.{b} %d, [{address}];", f"{b} {b}", b, rows,
                    lambda x, y: applied(name, t, x, y), name=f"red{order}{dot}.{name}.{t}")
            # All lanes on one place: the total, for what does not depend on their order.
            if name in ("exch", "cas", "inc", "dec") or not space or order:
                continue
            numbers = random.Random(f"{name} {t} together")
            several = [[(numbers.choice((*EDGES[bits], numbers.getrandbits(bits))),) for _ in
                range(WARP)] for _ in range(6)]
            one = {"global": "%mem0", "shared": "%sh0"}[space]

            def total(_: int, operands: Sequence[Row]) -> int:
                result = operands[0][0]
                for row in operands[1:]:
                    result = applied(name, t, result, row[0])
                return result

            start = ("mov.u32 %t1, %laneid; setp.eq.u32 %p0, %t1, 0; "
                f"@%p0 st{dot}.{b} [{one}], %a; bar.warp.sync -1;")
            for opcode in (f"atom{dot}.{name}.{t} {old},", f"red{dot}.{name}.{t}"):
                add_warp(f"{opcode.split()[0]} together",
                    f"{start} @!%p0 {opcode} [{one}], %a; bar.warp.sync -1; "
                    f"ld{dot}.{b} %d, [{one}];",
                    b, b, several, total)
        # All add 1, so old values differ: each lane marks the place of its own, and all are marked.
        if space and not order:
            one = {"global": "%mem0", "shared": "%sh0"}[space]
            for name, operand in (("add", "1"), ("inc", "0xffffffff")):
                wide = space == "global"
                move = (f"mul.wide.u32 %w0, %t0, 4; add.s64 %w0, %w0, {one};"
                    if wide else f"mad.lo.u32 %t2, %t0, 4, {one};")
                own = (f"mul.wide.u32 %w1, %t1, 4; add.s64 %w1, %w1, {one};"
                    if wide else f"mad.lo.u32 %t3, %t1, 4, {one};")
                at, here = ("%w0", "%w1") if wide else ("%t2", "%t3")
                add_warp(f"atom{dot}.{name}.u32 tickets",
                    f"mov.u32 %t1, %laneid; {own} st{dot}.b32 [{here}+4], 0; "
                    "setp.eq.u32 %p0, %t1, 0; " f"@%p0 st{dot}.b32 [{one}], 0; bar.warp.sync -1; "
                    f"atom{dot}.{name}.u32 %t0, [{one}], {operand}; {move} "
                    f"st{dot}.b32 [{at}+4], 1; bar.warp.sync -1; ld{dot}.b32 %d, [{here}+4]; "
                    f"ld{dot}.b32 %d1, [{one}];", "b32", "b32 b32", [[(0,)] * WARP],
                    lambda *_: (1, WARP))
    for opcode in ("atom.acq_rel.cta.global.add.u32",
        "atom.global.sys.add.u32"):
        add(f"st.global.b32 [%mem], %a; {opcode} %d, [%mem], %b; ld.global.b32 %d1, [%mem];",
            "b32 b32", "b32 b32", pairs((0, 1, mask(32))), lambda x, y: (x, x + y & mask(32)),
            name=opcode)
    # Rounds to nearest even; subnormals may be flushed in global memory, so there are none.
    normal = [x for x in FLOATS if not model.is_subnormal(x, F32)]
    add("st.shared.b32 [%sh], %a; mov.b32 %f, %b; atom.shared.add.f32 %f, [%sh], %f; "
        "mov.b32 %d, %f; ld.shared.f32 %d1, [%sh];",
        "b32 b32", "b32 f32", [(x, y) for x in normal for y in normal if not is_tiny(x, y)],
        lambda x, y: (x, model.float_add(x, y)), name="atom.shared.add.f32")


def is_tiny(x: int, y: int) -> bool:
    value = model.float_add(x, y)
    return value is None or model.is_subnormal(value, F32)


FAMILIES: dict[str, Callable[[], None]] = {"integers": integer_arithmetic, "video": video, "logic":
    logic, "comparison": comparison, "floating point": floating_point, "conversions": conversions,
    "moves": moves, "warps": warps, "control": control, "memory": memory, "atomics": atomics}


@functools.cache
def groups(family: str) -> list[Group]:
    """The groups of a family, made when they are first asked for."""
    _groups.clear()
    FAMILIES[family]()
    return list(_groups)
