"""Plain arithmetic of PTX in Python integers and fractions: what the cases expect of a machine.

Written from NVIDIA's PTX ISA manual, for operation_cases.py. It must not know the interpreter, nor
be known by it. A value is the bits of a register, as an unsigned int.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

Result = int | None  # None: the manual leaves it open, so there is no case


def bits_of(type_: str) -> int:
    """Width of a PTX type, such as 32 of `s32`."""
    return 1 if type_ == "pred" else 32 if type_ == "f16x2" else int(type_.lstrip("bfsu"))


def mask(bits: int) -> int:
    return (1 << bits) - 1


def read(value: int, type_: str) -> int:
    """The integer that a register means as `type_`: its low bits, signed for `s`."""
    bits = bits_of(type_)
    value &= mask(bits)
    return value - (1 << bits) if type_[0] == "s" and value >> (bits - 1) else value


def limits(type_: str) -> tuple[int, int]:
    bits = bits_of(type_)
    return (-(1 << bits - 1), mask(bits - 1)) if type_[0] == "s" else (0, mask(bits))


def clamp(value: int, type_: str) -> int:
    low, high = limits(type_)
    return max(low, min(high, value))


# Integers


def shift_left(a: int, count: int, bits: int) -> int:
    """9.7.8.8: amounts above the width are clamped to it."""
    return (a << min(count, bits)) & mask(bits)


def shift_right(a: int, count: int, type_: str) -> int:
    """9.7.8.9: signed shifts fill with the sign, others with 0."""
    return (read(a, type_) >> min(count, bits_of(type_))) & mask(bits_of(type_))


def funnel_shift(a: int, b: int, count: int, direction: str, mode: str) -> int:
    """9.7.8.7: b holds bits 63:32. `l` takes the 32 high bits, `r` the 32 low bits."""
    n = min(count, 32) if mode == "clamp" else count & 31
    both = b << 32 | a
    return (both << n >> 32 if direction == "l" else both >> n) & mask(32)


# Bytes of {b, a} for results 3, 2, 1, 0, by the two low bits of c (9.7.9.7, the second table).
PERMUTE_MODES = {
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


def permute(a: int, b: int, c: int, mode: str = "") -> int:
    source = (b << 32 | a).to_bytes(8, "little")
    if mode:
        return int.from_bytes(bytes(source[int(i)] for i in PERMUTE_MODES[mode][c & 3]), "big")
    result = 0
    for i in range(4):
        control = c >> 4 * i & 15
        byte = source[control & 7]
        if control & 8:
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << 8 * i
    return result


def extract_field(a: int, position: int, length: int, type_: str) -> int:
    """9.7.1.17, bit by bit."""
    top = bits_of(type_) - 1
    position, length = position & 255, length & 255
    signed = type_[0] == "s" and length > 0
    sign = a >> min(position + length - 1, top) & 1 if signed else 0
    result = 0
    for i in range(top + 1):
        bit = a >> (position + i) & 1 if i < length and position + i <= top else sign
        result |= bit << i
    return result


def insert_field(a: int, b: int, position: int, length: int, bits: int) -> int:
    """9.7.1.18, bit by bit."""
    position, length = position & 255, length & 255
    for i in range(length):
        if position + i < bits:
            b = b & ~(1 << position + i) | (a >> i & 1) << position + i
    return b


def find_bit(a: int, type_: str, as_shift: bool) -> int:
    """9.7.1.15: the highest bit that is not the sign."""
    value = read(a, type_)
    top = (~value if value < 0 else value).bit_length() - 1
    if top < 0:
        return mask(32)
    return bits_of(type_) - 1 - top if as_shift else top


def nth_set_bit(a: int, base: int, offset: int) -> int:
    """9.7.1.16."""
    offset = read(offset, "s32")
    if offset == 0:
        return base if a >> base & 1 else mask(32)
    positions = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [i for i in positions if a >> i & 1]
    return found[abs(offset) - 1] if len(found) >= abs(offset) else mask(32)


def bit_mask(a: int, b: int, mode: str) -> int:
    """9.7.1.21: a mask of b bits from bit a."""
    if mode == "clamp":
        position, length = min(a, 32), min(b, 32)
    else:
        position, length = a & 31, b & 31
    return mask(length) << position & mask(32)


def extend_bits(a: int, b: int, mode: str, type_: str) -> int:
    """9.7.1.20: the low b bits of a, extended."""
    if mode == "clamp" and b >= 32:
        return a
    length = b & 31
    low = a & mask(length)
    if type_ == "s32" and length and low >> length - 1:
        low -= 1 << length
    return low & mask(32)


def split(value: int, type_: str) -> list[int]:
    """The elements of a 32-bit register as `type_`, the lowest first."""
    return [read(value >> i, type_) for i in range(0, 32, bits_of(type_))]


def join(elements: Sequence[int], bits: int) -> int:
    return sum((value & mask(bits)) << bits * i for i, value in enumerate(elements))


def logic3(a: int, b: int, c: int, table: int) -> int:
    """9.7.8.6: a has weight 4 in the index of the table, b 2, c 1."""
    result = 0
    for i in range(32):
        index = (a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1
        result |= (table >> index & 1) << i
    return result


# Floats: a number is exact, and rounded once


@dataclass(frozen=True)
class Format:
    exponent_bits: int
    fraction_bits: int

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        return mask(self.exponent_bits - 1)

    @property
    def infinity(self) -> int:
        return mask(self.exponent_bits) << self.fraction_bits

    @property
    def sign(self) -> int:
        return 1 << self.bits - 1

    @property
    def nan(self) -> int:
        return mask(self.bits - 1)

    @property
    def one(self) -> int:
        return self.bias << self.fraction_bits


F16, BF16, F32, F64 = Format(5, 10), Format(8, 7), Format(8, 23), Format(11, 52)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def is_nan(value: int, form: Format) -> bool:
    return value & mask(form.bits - 1) > form.infinity


def is_infinite(value: int, form: Format) -> bool:
    return value & mask(form.bits - 1) == form.infinity


def is_zero(value: int, form: Format) -> bool:
    return value & mask(form.bits - 1) == 0


def is_subnormal(value: int, form: Format) -> bool:
    return 0 < value & mask(form.bits - 1) <= mask(form.fraction_bits)


def is_negative(value: int, form: Format) -> bool:
    return value & form.sign != 0


def exact(value: int, form: Format) -> Fraction:
    """The number that a finite float is."""
    exponent = value >> form.fraction_bits & mask(form.exponent_bits)
    fraction = value & mask(form.fraction_bits)
    if exponent:
        fraction += 1 << form.fraction_bits
    scale = max(exponent, 1) - form.bias - form.fraction_bits
    number = Fraction(fraction) * Fraction(2) ** scale
    return -number if is_negative(value, form) else number


def round_number(number: Fraction, mode: str) -> int:
    """The integer for `number` under rn, rz, rm or rp, with or without an i behind."""
    below = number.numerator // number.denominator
    rest = number - below
    if mode.startswith("rn"):
        return below + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and below % 2 == 1))
    if mode.startswith("rz"):
        return below + (number < 0 and rest > 0)
    return below + (mode.startswith("rp") and rest > 0)


def flush(value: int, form: Format, ftz: bool) -> int:
    return value & form.sign if ftz and is_subnormal(value, form) else value


def round_float(number: Fraction, form: Format, mode: str, zero_sign: bool = False) -> int:
    """The float for an exact number; `zero_sign` is the sign of an exact zero."""
    if number == 0:
        return form.sign if zero_sign else 0
    sign = form.sign if number < 0 else 0
    magnitude = abs(number)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    lowest = 1 - form.bias
    quantum = Fraction(2) ** (max(exponent, lowest) - form.fraction_bits)
    significand = abs(round_number(number / quantum, mode))
    # A carry out of the significand adds 1 to the exponent, as it shall.
    value = ((max(exponent, lowest) - lowest) << form.fraction_bits) + significand
    if value >= form.infinity:
        towards_zero = mode == "rz" or mode == ("rp" if number < 0 else "rm")
        value = form.infinity - 1 if towards_zero else form.infinity
    return sign | value


def finish(value: int, number: Fraction, form: Format, ftz: bool, sat: bool) -> Result:
    """Flushes and saturates a rounded result."""
    if ftz:
        smallest = Fraction(2) ** (1 - form.bias)
        if abs(number) < smallest and not is_subnormal(value, form) and not is_zero(value, form):
            return None  # tiny before rounding and not after
        value = flush(value, form, ftz)
    if sat:
        if is_negative(value, form):
            return None if is_zero(value, form) else 0  # is -0.0 within [0.0, 1.0]?
        value = min(value, form.one)
    return value


def float_multiply_add(
    a: int,
    b: int,
    c: int | None,
    mode: str = "rn",
    form: Format = F32,
    ftz: bool = False,
    sat: bool = False,
) -> Result:
    """a * b + c, rounded once; without c the product alone."""
    a, b = flush(a, form, ftz), flush(b, form, ftz)
    nan = 0 if sat else form.nan
    if is_nan(a, form) or is_nan(b, form):
        return nan
    sign = is_negative(a, form) != is_negative(b, form)
    infinite = is_infinite(a, form) or is_infinite(b, form)
    if infinite and (is_zero(a, form) or is_zero(b, form)):
        return nan
    if c is not None:
        c = flush(c, form, ftz)
        if is_nan(c, form):
            return nan
        if is_infinite(c, form):
            if infinite and is_negative(c, form) != sign:
                return nan
            infinite, sign = True, is_negative(c, form)
    if infinite:
        value = form.infinity | (form.sign if sign else 0)
        return finish(value, Fraction(1), form, ftz, sat)
    number = exact(a, form) * exact(b, form)
    if c is not None:
        # A sum of zeros of both signs, or x - x: -0 when rounding down, else +0.
        if number + exact(c, form) == 0 and (number != 0 or sign != is_negative(c, form)):
            sign = mode == "rm"
        number += exact(c, form)
    return finish(round_float(number, form, mode, sign), number, form, ftz, sat)


def float_add(
    a: int, b: int, mode: str = "rn", form: Format = F32, ftz: bool = False, sat: bool = False
) -> Result:
    return float_multiply_add(a, form.one, b, mode, form, ftz, sat)


def float_divide(a: int, b: int, mode: str, ftz: bool = False) -> Result:
    a, b = flush(a, F32, ftz), flush(b, F32, ftz)
    sign = is_negative(a, F32) != is_negative(b, F32)
    signed = F32.sign if sign else 0
    both = (a, b)
    if any(is_nan(x, F32) for x in both) or all(is_zero(x, F32) for x in both):
        return F32.nan
    if is_infinite(a, F32):
        return F32.nan if is_infinite(b, F32) else signed | F32.infinity
    if is_zero(b, F32):
        return signed | F32.infinity
    if is_infinite(b, F32):
        return signed
    number = exact(a, F32) / exact(b, F32)
    return finish(round_float(number, F32, mode, sign), number, F32, ftz, False)


def float_root(a: int, mode: str, ftz: bool = False) -> Result:
    a = flush(a, F32, ftz)
    if is_nan(a, F32) or is_zero(a, F32):
        return F32.nan if is_nan(a, F32) else a
    if is_negative(a, F32):
        return F32.nan
    if is_infinite(a, F32):
        return a
    # Cut off at 2**-160, far below what rounding looks at, with a bit more where that was inexact.
    square = int(exact(a, F32) * Fraction(2) ** 320)
    root = math.isqrt(square)
    number = Fraction(2 * root + (root * root != square), 2**161)
    return finish(round_float(number, F32, mode), number, F32, ftz, False)


def float_compare(a: int, b: int, operation: str, form: Format, ftz: bool = False) -> bool:
    """9.3.1.2: the ordered ones are false on NaN, those with u and `nan` true."""
    unordered = is_nan(a, form) or is_nan(b, form)
    if operation in ("num", "nan"):
        return unordered == (operation == "nan")
    if unordered:
        return len(operation) == 3
    a, b = flush(a, form, ftz), flush(b, form, ftz)
    return compare(order(a, form), order(b, form), operation[:2])


def order(value: int, form: Format) -> Fraction:
    """A number that orders floats as their values; both zeros are 0."""
    if is_infinite(value, form):
        value = value & form.sign | form.infinity - 1
        return exact(value, form) * 2
    return exact(value, form)


def compare(a: Fraction | int, b: Fraction | int, operation: str) -> bool:
    return {
        "eq": a == b,
        "ne": a != b,
        "lt": a < b,
        "le": a <= b,
        "gt": a > b,
        "ge": a >= b,
        "lo": a < b,
        "ls": a <= b,
        "hi": a > b,
        "hs": a >= b,
    }[operation]


def float_extreme(
    a: int, b: int, smallest: bool, form: Format = F32, ftz: bool = False, nan: bool = False
) -> int:
    """min and max: a NaN loses, but under .NaN; -0.0 is below +0.0."""
    a, b = flush(a, form, ftz), flush(b, form, ftz)
    if is_nan(a, form) or is_nan(b, form):
        if nan or (is_nan(a, form) and is_nan(b, form)):
            return form.nan
        return b if is_nan(a, form) else a
    first, second = ((order(x, form), not is_negative(x, form)) for x in (a, b))
    return a if (first < second) == smallest else b


def float_to_int(value: int, source: str, type_: str, mode: str, ftz: bool = False) -> int:
    """9.7.9.21: clamped to the type; NaN is 0, or 1 << (bits - 1) of or to 64 bits (since 9.0)."""
    form = FORMATS[source]
    bits = bits_of(type_)
    low, high = limits(type_)
    value = flush(value, form, ftz)
    if is_nan(value, form):
        return 1 << bits - 1 if source == "f64" or bits == 64 else 0
    if is_infinite(value, form):
        number = low if is_negative(value, form) else high
    else:
        number = clamp(round_number(exact(value, form), mode), type_)
    return number & mask(bits)


def float_to_float(
    value: int, source: str, type_: str, mode: str, ftz: bool = False, sat: bool = False
) -> Result:
    """To another format, or to an integer in the same one when `mode` has an i."""
    form, target = FORMATS[source], FORMATS[type_]
    value = flush(value, form, ftz and source == "f32")
    if is_nan(value, form):
        return 0 if sat else target.nan
    sign = is_negative(value, form)
    if is_infinite(value, form):
        result = target.infinity | (target.sign if sign else 0)
        return finish(result, Fraction(1), target, False, sat)
    number = exact(value, form)
    if mode.endswith("i"):
        number = Fraction(round_number(number, mode))
    result = round_float(number, target, mode[:2], sign)
    return finish(result, number, target, ftz and type_ == "f32", sat)


def shuffle_source(lane: int, b: int, c: int, mode: str) -> tuple[int, bool]:
    """9.7.9.6: the lane that is read, and whether it was in range."""
    offset, bound, segment = b & 31, c & 31, c >> 8 & 31
    highest = lane & segment | bound & ~segment
    if mode == "up":
        source, within = lane - offset, lane - offset >= highest
    elif mode == "idx":
        source = lane & segment | offset & ~segment
        within = source <= highest
    else:
        source = lane + offset if mode == "down" else lane ^ offset
        within = source <= highest
    return (source if within else lane), within
