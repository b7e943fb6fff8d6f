"""What is known of the bits of a kernel's registers: those that may be 1, and those that count.

A bit counts if it can reach memory, an address, a branch or another lane. Both are found for the
whole kernel at once, whatever way it takes, so they hold wherever an instruction runs. A change
of an instruction that can change no bit that counts changes nothing: same_result() says by which
rule.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

_STATEMENT = re.compile(r"^[\s{}]*(?:@!?(%?\w+)\s+)?([a-z][\w.]*)\s+(.*)$")
_REGISTER = re.compile(r"%(rs|rd|r)\d+$")
_NUMBER = re.compile(r"-?(?:0x[0-9A-Fa-f]+|\d+)U?$")
_WIDTHS = {"rs": 16, "r": 32, "rd": 64}
# Blocks are 32 lanes wide and have at most 32 warps.
_SPECIAL = {"%tid.x": 31, "%tid.y": 31}


class Statement(NamedTuple):
    """An instruction: its opcode by parts, and its operands as they are written."""

    opcode: tuple[str, ...]
    operands: tuple[str, ...]

    @property
    def type(self) -> str:
        return self.opcode[-1]

    @property
    def bits(self) -> int:
        number = re.search(r"\d+$", self.type)
        return int(number[0]) if number else 1


def read_statement(text: str) -> Statement | None:
    """The instruction of a line. None: it has none, or one with a guard."""
    match = _STATEMENT.match(text.split(";")[0])
    if match is None or match[1]:
        return None
    operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", match[3])
    return Statement(tuple(match[2].split(".")), tuple(part.strip() for part in operands))


def _full(bits: int) -> int:
    return (1 << bits) - 1


def _up_to(value: int) -> int:
    """All bits up to the highest of a value."""
    return _full(value.bit_length())


def _from(value: int, bits: int) -> int:
    """All bits from the lowest of a value on."""
    return _full(bits) & ~((value & -value) - 1) if value else 0


def _nibbles(order: int) -> list[int]:
    return [order >> 4 * i & 15 for i in range(4)]


class KnownBits:
    """Of the registers of a kernel, from its lines of PTX."""

    def __init__(self, lines: Sequence[str]) -> None:
        texts = (text for line in lines for text in line.split(";"))
        # What a guard may leave out, it may also do: guards are left away.
        bare = (re.sub(r"^([\s{}]*)@!?%?\w+\s+", r"\1", text) for text in texts)
        found = [read_statement(text) for text in bare]
        self._statements = [one for one in found if one is not None and one.operands]
        self._may_be_one: dict[str, int] = defaultdict(int)
        self._counts: dict[str, int] = defaultdict(int)
        self._defined = [self._destinations(one) for one in self._statements]
        # Registers that are one number everywhere.
        sources: dict[str, list[str]] = defaultdict(list)
        for one, defined in zip(self._statements, self._defined, strict=True):
            for name in defined:
                sources[name].append(one.operands[1] if one.opcode[0] == "mov" else "")
        self._numbers = {
            name: found[0]
            for name, found in sources.items()
            if len(found) == 1 and _NUMBER.match(found[0])
        }
        readers: dict[str, list[int]] = defaultdict(list)
        writers: dict[str, list[int]] = defaultdict(list)
        for number, one in enumerate(self._statements):
            for name in re.findall(r"%(?:rs|rd|r)\d+", " ".join(one.operands)):
                readers[name].append(number)
            for name in self._defined[number]:
                writers[name].append(number)
        self._settle(self._forward, readers)
        self._settle(self._backward, writers)
        self._truths = self._find_truths()

    def may_be_one(self, operand: str, bits: int) -> int:
        if _NUMBER.match(operand):
            return int(operand.rstrip("U"), 0) & _full(bits)
        if _REGISTER.match(operand):
            return self._may_be_one[operand] & _full(bits)
        return _SPECIAL.get(operand, _full(bits))

    def _last(self, one: Statement) -> int | None:
        """The last operand, if it is a number."""
        last = self._numbers.get(one.operands[-1], one.operands[-1])
        return int(last.rstrip("U"), 0) if _NUMBER.match(last) else None

    def counts(self, operand: str) -> int:
        return self._counts[operand] if _REGISTER.match(operand) else -1

    def _settle(self, step: Callable[[int], list[str]], next_ones: dict[str, list[int]]) -> None:
        """Takes steps until nothing changes. A step gives the registers it changed."""
        waiting = list(range(len(self._statements)))
        is_waiting = [True] * len(waiting)
        while waiting:
            number = waiting.pop()
            is_waiting[number] = False
            for name in step(number):
                for other in next_ones[name]:
                    if not is_waiting[other]:
                        is_waiting[other] = True
                        waiting.append(other)

    @staticmethod
    def _destinations(one: Statement) -> list[str]:
        if one.opcode[0] in ("st", "bra", "bar", "call", "setp", "red", "ret"):
            return []
        first = one.operands[0].split("|")[0].strip("{} ")
        return [name.strip() for name in first.split(",") if _REGISTER.match(name.strip())]

    # Which bits may be 1.

    def _forward(self, number: int) -> list[str]:
        one = self._statements[number]
        changed = []
        for name in self._defined[number]:
            width = _WIDTHS[_REGISTER.match(name)[1]]  # type: ignore[index]
            bits = self._result(one, width) & _full(width)
            if bits & ~self._may_be_one[name]:
                self._may_be_one[name] |= bits
                changed.append(name)
        return changed

    def _result(self, one: Statement, width: int) -> int:
        """Bits of what it computes that may be 1."""
        kind, full = one.opcode[0], _full(width)
        if kind == "ld":
            return _full(one.bits) if one.type[0] in "ub" else full
        values = [self.may_be_one(operand, one.bits) for operand in one.operands[1:]]
        a, b = (*values, 0, 0)[:2]
        if one.operands[0].startswith("{") or one.operands[1].startswith("{"):
            return full
        if kind == "mov":
            return a
        if kind in ("and", "or", "xor"):
            return a & b if kind == "and" else a | b
        if kind == "selp":
            return a | b
        if kind in ("shl", "shr"):
            return self._shifted(one, a, width)
        if kind in ("add", "sub"):
            return self._sum(a, b, kind == "add", width)
        if kind in ("mul", "mad") and one.opcode[1] in ("lo", "wide"):
            product = a * b if one.type[0] != "s" or not (a | b) >> (one.bits - 1) else full + 1
            low = (a & -a) * (b & -b)
            bits = _from(low, width) & (_up_to(product) if product <= full else full)
            return bits if kind == "mul" else self._sum(bits, values[2], True, width)
        if kind in ("min", "max") and (one.type[0] == "u" or not (a | b) >> (one.bits - 1)):
            return _up_to(min(a, b)) & (a | b) if kind == "min" else a | b
        if self._is_integer_cvt(one):
            signed = one.type[0] == "s" and a >> (one.bits - 1) & 1
            return full if signed else a
        if kind == "prmt" and (order := self._last(one)) is not None:
            return self._permuted(order, a, b)
        if kind == "lop3" and (table := self._last(one)) is not None:
            terms = [m for m in range(8) if table >> m & 1]
            each = [(m & 4, m & 2, m & 1) for m in terms]
            bits = 0
            for term in each:
                part = full
                for wanted, value in zip(term, values, strict=False):
                    part &= value if wanted else full
                bits |= part
            return bits
        if kind == "popc":
            return 63
        if kind == "shfl":
            return self.may_be_one(one.operands[1], width)
        if kind == "div" and one.type[0] == "u":
            return _up_to(a)
        return full

    @staticmethod
    def _is_integer_cvt(one: Statement) -> bool:
        return (
            one.opcode[0] == "cvt"
            and "sat" not in one.opcode
            and one.opcode[-2][0] in "us"
            and one.type[0] in "us"
        )

    @staticmethod
    def _sum(a: int, b: int, adds: bool, width: int) -> int:
        if adds and a & b == 0:
            return a | b
        return _from(a | b, width) & (_up_to(a + b) if adds else _full(width))

    def _shifted(self, one: Statement, a: int, width: int) -> int:
        by = self._last(one)
        if one.opcode[0] == "shl":
            return a << by if by is not None else _from(a, width)
        if one.type[0] == "s" and a >> (one.bits - 1):
            return _full(width)
        return a >> by if by is not None else _up_to(a)

    @staticmethod
    def _permuted(order: int, a: int, b: int) -> int:
        source, bits = b << 32 | a, 0
        for i, digit in enumerate(_nibbles(order)):
            byte = source >> 8 * (digit & 7) & 255
            if digit & 8:
                byte = 255 if byte & 128 else 0
            bits |= byte << 8 * i
        return bits

    # Which bits count.

    def _backward(self, number: int) -> list[str]:
        one = self._statements[number]
        defined = self._defined[number]
        wanted = 0
        for name in defined:
            wanted |= self._counts[name]
        changed = []
        demands = self._demands(one, bool(defined), wanted)
        if wanted and one.operands[-1] in self._numbers:
            demands.append((one.operands[-1], _full(64)))
        for operand, bits in demands:
            for name in re.findall(r"%(?:rs|rd|r)\d+", operand):
                if bits & ~self._counts[name]:
                    self._counts[name] |= bits
                    changed.append(name)
        return changed

    def _demands(self, one: Statement, has_result: bool, wanted: int) -> list[tuple[str, int]]:
        """Of its operands, the bits that count where those of its result do."""
        kind, operands = one.opcode[0], one.operands
        everything = [(operand, _full(64)) for operand in operands[has_result:]]
        if kind == "st":
            return [(operands[0], _full(64)), (operands[1], _full(one.bits))]
        if kind == "ld" and wanted == 0 and has_result and "%f" not in operands[0]:
            return []  # ptxas leaves out what nobody reads
        if not has_result or kind in ("ld", "atom", "vote", "redux"):
            return everything
        full = _full(one.bits)
        if kind == "shfl":
            # Lane 0 is within any limit.
            is_first = one.opcode[2] == "idx" and self.may_be_one(operands[2], 32) == 0
            limit = 0x1F00 if is_first else 0x1F1F
            lanes = [(operands[2], 31), (operands[3], limit), (operands[4], full)]
            return [(operands[1], wanted), *lanes]
        if wanted == 0:
            return []
        if kind == "mov" and not operands[1].startswith("{") and not operands[0].startswith("{"):
            return [(operands[1], wanted)]
        if kind in ("and", "or", "xor"):
            a, b = operands[1:3]
            if kind == "and":
                return [
                    (a, wanted & self.may_be_one(b, one.bits)),
                    (b, wanted & self.may_be_one(a, one.bits)),
                ]
            sets = self.may_be_one(b, one.bits) if kind == "or" and _NUMBER.match(b) else 0
            return [(a, wanted & ~sets), (b, wanted)]
        if kind in ("not", "selp"):
            return [(operand, wanted) for operand in operands[1:]]
        if kind in ("shl", "shr") and (by := self._last(one)) is not None:
            if kind == "shl":
                return [(operands[1], wanted >> by)]
            bits = wanted << by & full
            if one.type[0] == "s" and wanted << by & ~full:
                bits |= 1 << (one.bits - 1)
            return [(operands[1], bits)]
        if kind in ("add", "sub", "neg") or (kind in ("mul", "mad") and one.opcode[1] == "lo"):
            return [(operand, _up_to(wanted)) for operand in operands[1:]]
        if kind == "mul" and one.opcode[1] == "wide" and one.type[0] == "u":
            return [(operand, _up_to(wanted) & full) for operand in operands[1:]]
        if self._is_integer_cvt(one):
            bits = wanted & full
            if one.type[0] == "s" and wanted & ~full:
                bits |= 1 << (one.bits - 1)
            return [(operands[1], bits)]
        if kind == "prmt" and (order := self._last(one)) is not None:
            source = 0
            for i, digit in enumerate(_nibbles(order)):
                byte = wanted >> 8 * i & 255
                if digit & 8:
                    byte = 128 if byte else 0
                source |= byte << 8 * (digit & 7)
            return [(operands[1], source & _full(32)), (operands[2], source >> 32)]
        if kind == "bfi" and _NUMBER.match(operands[3]) and (length := self._last(one)) is not None:
            begin, taken = int(operands[3]), _full(length)
            return [(operands[1], wanted >> begin & taken), (operands[2], wanted)]
        if kind == "lop3" and (table := self._last(one)) is not None:
            ways = zip(operands[1:4], (4, 2, 1), strict=True)
            return [
                (name, wanted)
                for name, way in ways
                if any((table >> m ^ table >> (m ^ way)) & 1 for m in range(8))
            ]
        if kind == "dp2a":
            part = 0xFFFF if one.opcode[1] == "lo" else 0xFFFF0000
            return [(operands[1], full), (operands[2], part), (operands[3], _up_to(wanted))]
        if kind == "dp4a":
            return [(operands[1], full), (operands[2], full), (operands[3], _up_to(wanted))]
        if kind == "shf":
            amount = 31 if "wrap" in one.opcode else _full(32)
            return [(operands[1], full), (operands[2], full), (operands[3], amount)]
        return everything

    # What changes nothing.

    def same_result(self, before: str, after: str) -> str | None:
        """The rule by which another instruction in its place gives the same where it counts.
        None: it may give another result."""
        old, new = read_statement(before), read_statement(after)
        if old is None or new is None or old.operands[:1] != new.operands[:1]:
            return None
        if old.opcode[0] == "setp":
            return self._same_comparison(old, new)
        if old.opcode == new.opcode and old.opcode[0] == "shfl":
            from_first = old.opcode[2] == "idx" and self.may_be_one(old.operands[2], 32) == 0
            same = old.operands[:3] == new.operands[:3] and old.operands[4:] == new.operands[4:]
            return "lane 0 is within any limit" if from_first and same else None
        destination = old.operands[0]
        if not _REGISTER.match(destination):
            return None
        if destination in self._truths and self._same_truth(old, new):
            return "only whether it is 0 counts"
        differ = self._differ(old, new)
        if differ is None:
            return None
        if differ == 0:
            return "these bits are always the same"
        return "these bits do not count" if differ & self.counts(destination) == 0 else None

    def _differ(self, old: Statement, new: Statement) -> int | None:
        """Bits of their results that may not be the same. None: any."""
        kinds = old.opcode[0], new.opcode[0]
        bits = old.bits
        a, b = old.operands[1], (*old.operands[2:], "0")[0]
        ones = self.may_be_one(a, bits), self.may_be_one(b, bits)
        others = new.operands[1:]
        if kinds == ("xor", "or") and others == old.operands[1:]:
            return ones[0] & ones[1]
        if kinds[0] == "and" and others[:1] == (a,) and _NUMBER.match(b):
            if kinds[1] == "mov":
                return ones[0] & ~ones[1]
            if kinds[1] == "and" and _NUMBER.match(others[1]):
                return (ones[1] ^ self.may_be_one(others[1], bits)) & ones[0]
        if kinds == ("min", "mov") and old.type[0] == "u" and others == (a,):
            return 0 if _NUMBER.match(b) and ones[0] <= ones[1] else ones[0]
        if kinds in (("add", "sub"), ("sub", "add")) and others == old.operands[1:]:
            lowest = (ones[1] & -ones[1]) << 1
            return _from(lowest, bits)
        if kinds in (("dp4a", "dp4a"), ("dp2a", "dp2a")) and others == old.operands[1:]:
            # One takes bytes of the second number as signed.
            tops = {"lo": 0x8080, "hi": 0x80800000}.get(old.opcode[1], 0x80808080)
            same_part = old.opcode[:-2] == new.opcode[:-2]
            return 0 if same_part and ones[1] & tops == 0 else _full(bits)
        if kinds == ("shf", "shf") and others == old.operands[1:] and self._last(old) == 16:
            return 0  # half of 64 bits, from either end
        numbers = _NUMBER.match(b) and others[0] == a and _NUMBER.match(others[-1])
        if old.opcode == new.opcode and kinds[0] in ("mov", "selp"):
            changed = 0
            for was, is_now in zip(old.operands[1:], new.operands[1:], strict=True):
                values = self.may_be_one(was, bits), self.may_be_one(is_now, bits)
                known = was == is_now or (_NUMBER.match(was) and _NUMBER.match(is_now))
                changed |= values[0] ^ values[1] if known else values[0] | values[1]
            return changed
        limits = self._last(old) or 0, self._last(new) or 0
        if kinds in (("min", "min"), ("max", "max")) and numbers and min(limits) >= 0:
            # They part between the limits, which have the same bits above those that differ.
            return _up_to(limits[0] ^ limits[1])
        if kinds[0] == kinds[1] and kinds[0] in ("add", "sub", "or", "xor") and numbers:
            change = ones[1] ^ self.may_be_one(others[1], bits)
            return _from(change, bits) if kinds[0] in ("add", "sub") else change
        if kinds == ("prmt", "prmt") and old.operands[1:3] == new.operands[1:3]:
            orders = self._last(old), self._last(new)
            if orders[0] is not None and orders[1] is not None:
                pairs = zip(_nibbles(orders[0]), _nibbles(orders[1]), strict=True)
                differ = 0
                for i, (one, other) in enumerate(pairs):
                    if one != other:
                        bytes_ = self._permuted(one, *ones) | self._permuted(other, *ones)
                        differ |= (bytes_ & 255) << 8 * i
                return differ
        width = _WIDTHS[_REGISTER.match(old.operands[0])[1]]  # type: ignore[index]
        return self._result(old, width) | self._result(new, width)

    @staticmethod
    def _same_truth(old: Statement, new: Statement) -> bool:
        """Numbers of a byte that are 0 in both, or in none."""
        if old.opcode != new.opcode or old.opcode[0] not in ("mov", "selp"):
            return False
        pairs = list(zip(old.operands[1:], new.operands[1:], strict=True))
        return all(
            a == b
            or (
                _NUMBER.match(a)
                and _NUMBER.match(b)
                and max(int(a, 0), int(b, 0)) < 256
                and (int(a, 0) == 0) == (int(b, 0) == 0)
            )
            for a, b in pairs
        )

    def _find_truths(self) -> set[str]:
        """Registers of which only counts whether they are 0."""
        used: dict[str, list[Statement]] = defaultdict(list)
        for one, defined in zip(self._statements, self._defined, strict=True):
            for operand in one.operands[1 if defined else 0 :]:
                for name in re.findall(r"%(?:rs|rd|r)\d+", operand):
                    used[name].append(one)
        truths = set(used)

        def tells_no_more(one: Statement) -> bool:
            is_byte = one.opcode[0] == "and" and one.operands[-1] == "255"
            if one.opcode[0] in ("mov", "selp") or is_byte:
                return one.operands[0] in truths
            return one.opcode[:2] in (("setp", "eq"), ("setp", "ne")) and one.operands[2] == "0"

        while lost := {name for name in truths if not all(map(tells_no_more, used[name]))}:
            truths -= lost
        return truths

    def _same_comparison(self, old: Statement, new: Statement) -> str | None:
        """Of numbers that cannot be equal, < says what <= says."""
        if old.operands != new.operands or old.type != new.type or old.type[0] not in "us":
            return None
        pairs = ({"lt", "le"}, {"gt", "ge"})
        if {old.opcode[1], new.opcode[1]} not in pairs:
            return None
        a, b = old.operands[1:3]
        if not _NUMBER.match(b):
            return None
        number = self.may_be_one(b, old.bits)
        return "never equal" if number & ~self.may_be_one(a, old.bits) else None
