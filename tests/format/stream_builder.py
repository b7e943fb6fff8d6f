"""Builds L3 streams from explicit choices, those our encoder would never make included.

A `Stream` is a file as its parts. Payloads come from pixels (`constant_tile`, `stored_tile`,
`match_body`) or from raw fields (`payload`). Invalid streams come from wrong choices, or from
`repair` on damaged bytes. tests/fuzz/generator.h builds streams of every coding.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from reference_decoder import (
    CONSTANT,
    HEADER_BYTES,
    HEADER_OFFSETS,
    MATCH,
    RAW_BITS,
    SIGNATURE,
    STORED,
    TOKEN_BEGINS,
    TOKENS,
    Header,
    MatchModel,
    Values,
    crc32c,
    match_contexts,
    match_steps,
    rans_lanes,
    tile_check,
    walk_match,
)

Integers = NDArray[Any]


@dataclass
class Stream:
    """A file as its parts (format.md 2). `to_bytes` adds all that follows from them."""

    width: int
    height: int
    channels: int = 1
    sample_bits: int = 8
    used_bits: int = 8
    shift: int = 0
    tile_width_log2: int = 5
    tile_height_log2: int = 3
    meaning: int = 0
    is_signed: bool = False
    version: int = 1
    sample_type: int | None = None  # what the header says, if it does not follow from the above
    chunks: list[bytes] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    chunks_bytes: int | None = None
    index: list[int] | None = None

    def to_bytes(self) -> bytes:
        """Returns the file. Its CRCs are right for whatever the fields say."""
        chunks = b"".join(self.chunks)
        header = SIGNATURE + struct.pack(
            "<BBHBBBBIII",
            self.version,
            (self.sample_bits == 16) + 2 * self.is_signed
            if self.sample_type is None
            else self.sample_type,
            self.channels,
            self.used_bits,
            self.shift,
            self.tile_width_log2 | self.tile_height_log2 << 4,
            self.meaning,
            self.width,
            self.height,
            len(chunks) if self.chunks_bytes is None else self.chunks_bytes,
        )
        ends = np.cumsum([len(payload) // 16 for payload in self.payloads])
        index = np.asarray(ends if self.index is None else self.index, "<u4").tobytes()
        data = header + _u32(crc32c(header)) + chunks + index + _u32(crc32c(chunks + index))
        return data + bytes(-len(data) % 16) + b"".join(self.payloads)

    def tiles_of(self, image: Integers) -> list[Integers]:
        """Cuts an image of shape (height, width, channels) into views of its tiles."""
        tile_width, tile_height = 1 << self.tile_width_log2, 1 << self.tile_height_log2
        return [
            image[y : y + tile_height, x : x + tile_width]
            for y in range(0, self.height, tile_height)
            for x in range(0, self.width, tile_width)
        ]


def _u32(number: int) -> bytes:
    return struct.pack("<I", number)


# format.md 4


def chunk(kind: bytes, data: bytes) -> bytes:
    """A chunk, padded to a multiple of 4 bytes."""
    return kind + _u32(len(data)) + data + bytes(-len(data) % 4)


def groups_chunk(groups: Sequence[Sequence[int]], count: int | None = None) -> bytes:
    """The `GRPS` chunk. `count` is what it says of their number, if not the truth."""
    data = struct.pack("<H", len(groups) if count is None else count)
    for group in groups:
        data += struct.pack(f"<B{len(group)}H", len(group), *group)
    return chunk(b"GRPS", data)


def value_table_chunk(samples: Sequence[int]) -> bytes:
    """The `VTAB` chunk of distinct samples in rising order, as the numbers it holds."""
    gaps = np.diff(samples, prepend=-1) - 1
    return chunk(b"VTAB", _u32(len(samples)) + b"".join(map(base128, gaps.tolist())))


def base128(number: int, min_bytes: int = 1) -> bytes:
    """A number in base 128, in at least `min_bytes` bytes."""
    out = bytearray()
    while number >= 128 or len(out) + 1 < min_bytes:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


# format.md 5


def payload(coding: int, body: bytes) -> bytes:
    """A payload: check, tile header, body and its padding."""
    unchecked = struct.pack("<IBBH", 0, coding, 0, 0) + body
    unchecked += bytes(-len(unchecked) % 16)
    return _u32(tile_check(unchecked)) + unchecked[4:]


def constant_tile(values: Sequence[int]) -> bytes:
    """A tile with the same values in each pixel."""
    return payload(CONSTANT, struct.pack("<4H", *values, *[0] * (4 - len(values))))


def stored_tile(values: Integers, sample_bits: int) -> bytes:
    """A tile with its values as they are."""
    return payload(STORED, values.astype(f"<u{sample_bits // 8}").tobytes())


# format.md 5.4


def rans_table(tokens: int, decay: int, total: int = 1024) -> list[int]:
    """Frequencies of at least 1, each of which takes one in `decay` of what is left."""
    frequency = np.zeros(len(TOKENS), np.int64)
    frequency[:tokens] = 1
    rest = total - tokens
    for token in range(tokens):
        share = rest // decay
        frequency[token] += share
        rest -= share
    frequency[0] += rest
    numbers: list[int] = frequency.tolist()
    return numbers


def _runs(table_of: Values) -> bytes:
    run_begins = [0]
    for level, table in enumerate(table_of):
        begin = run_begins[-1]
        if table != table_of[begin] or level - begin == 8:
            run_begins.append(level)
    ends = [*run_begins[1:], len(table_of)]
    return bytes(
        int(table_of[begin]) | (end - begin - 1) << 5
        for begin, end in zip(run_begins, ends, strict=True)
    )


def _tables(frequencies: Values) -> bytes:
    data = b""
    for frequency in frequencies:
        numbers = np.trim_zeros(frequency, "b").tolist()
        data += bytes([len(numbers)]) + b"".join(map(base128, numbers))
    return data


def _encode_lanes(
    shape: tuple[int, int],
    symbols: list[tuple[Values, Values, Values]],
    frequencies: Values,
) -> tuple[Values, Values]:
    """The states of the lanes and their words. A symbol has lanes, tables and what tokens mean."""
    states = np.full(min(rans_lanes(shape[1]), shape[0]), 1 << 16, np.int64)
    words: list[Values] = [np.empty(0, np.int64)]

    def drain(lanes: Values, limits: Values) -> None:
        full = lanes[states[lanes] >= limits]
        words.append(states[full] & 0xFFFF)
        states[full] >>= 16

    starts = np.cumsum(frequencies, axis=1) - frequencies
    for lanes, tables, folded in reversed(symbols):
        tokens = np.searchsorted(TOKEN_BEGINS, folded, "right") - 1
        bits = RAW_BITS[tokens]
        frequency = frequencies[tables, tokens]
        if not frequency.all():
            raise AssertionError("the model has no frequency for a token")
        raw = folded - TOKEN_BEGINS[tokens]
        drain(lanes, 1 << 32 - bits)  # a refill between token and raw bits
        states[lanes] = states[lanes] << bits | raw
        drain(lanes, frequency << 22)
        whole, part = np.divmod(states[lanes], frequency)
        states[lanes] = (whole << 10) + part + starts[tables, tokens]
    return states, np.concatenate(words[::-1])


# format.md 5.5


def match_model(frequency: ArrayLike) -> MatchModel:
    """A model whose tables share the contexts in turn."""
    frequency = np.asarray(frequency, np.int64)
    contexts = np.arange(64) % max(1, len(frequency))
    return MatchModel(contexts, frequency, None)


def match_model_chunk(model: MatchModel) -> bytes:
    """The `MTCH` chunk, without colours."""
    data = bytes([len(model.frequency)]) + _runs(model.table_of_context) + _tables(model.frequency)
    return chunk(b"MTCH", data + struct.pack("<H", 0))


@dataclass
class MatchBody:
    """The fields of a match body, written as they are."""

    base: int
    skips: Values  # a bit for each block of 16 steps
    states: Values
    words: Values

    def to_bytes(self) -> bytes:
        """Returns the body."""
        skips = np.zeros(-(-len(self.skips) // 16) * 16, np.uint8)
        skips[: len(self.skips)] = self.skips
        parts = [
            struct.pack("<H", self.base),
            np.packbits(skips, bitorder="little").tobytes(),
            self.states.astype("<u4").tobytes(),
            self.words.astype("<u2").tobytes(),
        ]
        return b"".join(parts)

    def to_payload(self) -> bytes:
        """Returns a payload with this body."""
        return payload(MATCH, self.to_bytes())


def match_body(numbers: Integers, model: MatchModel, base: int) -> MatchBody:
    """A match body that holds the numbers of shape (h, w).

    The first of W, N, NE and NW that is alike is taken. Blocks of steps are skipped where they
    can be.
    """
    h, w = numbers.shape
    flat = numbers.astype(np.int64).reshape(-1)
    blocks = -(-match_steps(h, w) // 16)
    likes_west = np.ones(16 * blocks, np.int64)
    symbols: dict[int, tuple[Values, Values, Values]] = {}  # by step

    def read(step: int, places: Values, lanes: Values, around: Values) -> Values:
        folded = flat[places] + 4
        for token, candidate in [(3, 2), (2, 0), (1, 1), (0, 3)]:
            folded = np.where(around[candidate] == flat[places], token, folded)
        likes_west[step] = int((around[3] == flat[places]).all())
        symbols[step] = lanes, model.table_of_context[match_contexts(around)], folded
        return folded

    walk_match((h, w), base, np.zeros(blocks, np.int64), 1 << 16, read)
    skips: Values = likes_west.reshape(-1, 16).min(axis=1)
    kept = [symbol for step, symbol in symbols.items() if not skips[step // 16]]
    return MatchBody(base, skips, *_encode_lanes((h, w), kept, model.frequency))


# Damaged bytes.


def repair(data: bytes) -> bytes:
    """Makes the CRCs and tile checks of damaged bytes right again, as far as they lie inside."""
    if len(data) < HEADER_BYTES:
        return data
    out = bytearray(data)
    crc_begin = HEADER_OFFSETS["header_crc"]
    out[crc_begin:HEADER_BYTES] = _u32(crc32c(data[:crc_begin]))
    header = Header.from_bytes(data)
    groups = int.from_bytes(data[40:42], "little") if header.channels > 4 else 1
    index_begin = HEADER_BYTES + header.chunks_bytes
    index_end = index_begin + 4 * header.tile_count * groups
    if len(out) < index_end + 4:
        return bytes(out)
    out[index_end : index_end + 4] = _u32(crc32c(data[HEADER_BYTES:index_end]))
    begin = payloads = -(-(index_end + 4) // 16) * 16
    for (end,) in struct.iter_unpack("<I", out[index_begin:index_end]):
        end = payloads + 16 * end
        if begin < end <= len(out):
            out[begin : begin + 4] = _u32(tile_check(bytes(out[begin:end])))
        begin = end
    return bytes(out)
