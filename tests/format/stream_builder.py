"""Builds L3 streams from explicit choices, those our encoder would never make included.

A `Stream` is a file as its parts. Payloads come from pixels (`packed_tile` and the other
`*_tile` functions, `rans_body`) or from raw fields (`packed_payload`, `RansBody`). Invalid
streams come from wrong choices, or from `repair` on damaged bytes.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from reference_decoder import (
    CONSTANT,
    HEADER_BYTES,
    HEADER_OFFSETS,
    LAYOUT_ABSOLUTE,
    LAYOUT_CONSTANT,
    LAYOUT_DELTA,
    LAYOUT_SPARSE,
    LEVELS,
    MATCH,
    PACKED,
    RANS,
    RAW_BITS,
    SIGNATURE,
    STORED,
    TOKEN_BEGINS,
    TOKENS,
    Header,
    MatchModel,
    RansModel,
    Values,
    crc32c,
    match_contexts,
    match_steps,
    rans_channels,
    rans_lanes,
    tile_check,
    walk_match,
    walk_rans,
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
    version: int = 1
    is_signed: bool = False
    chunks: list[bytes] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    sample_type: int | None = None  # else what bits and sign say
    chunks_bytes: int | None = None
    index: list[int] | None = None
    table: Sequence[int] | None = None  # the samples of the value table among the chunks

    def to_bytes(self) -> bytes:
        """Returns the file. Its CRCs are right for whatever the fields say."""
        chunks = b"".join(self.chunks)
        known_type = (self.sample_bits == 16) + 2 * self.is_signed
        header = SIGNATURE + struct.pack(
            "<BBHBBBBIII",
            self.version,
            known_type if self.sample_type is None else self.sample_type,
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

    def samples_of(self, values: Integers) -> Integers:
        """The samples that values stand for (format.md 4)."""
        numbers = values.astype(np.int64) << self.shift
        bits = self.used_bits + self.shift
        if self.table is not None:
            numbers, bits = np.asarray(self.table)[values], self.sample_bits
        return numbers - (1 << bits - 1 if self.is_signed else 0)

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


def payload(coding: int, body: bytes, transform: int = 0, reserved: int = 0) -> bytes:
    """A payload: check, tile header, body and its padding."""
    unchecked = struct.pack("<IBBH", 0, coding, transform, reserved) + body
    unchecked += bytes(-len(unchecked) % 16)
    return _u32(tile_check(unchecked)) + unchecked[4:]


def constant_tile(values: Sequence[int]) -> bytes:
    """A tile with the same values in each pixel."""
    return payload(CONSTANT, struct.pack("<4H", *values, *[0] * (4 - len(values))))


def stored_tile(values: Integers, sample_bits: int) -> bytes:
    """A tile with its values as they are."""
    return payload(STORED, values.astype(f"<u{sample_bits // 8}").tobytes())


# format.md 5.3


@dataclass
class PackedChannel:
    """The fields of one channel of a packed tile of h rows and G groups a row.

    The writer takes them as they are and only cuts residuals to the widths that the
    codes give.
    """

    layout: int = LAYOUT_CONSTANT
    base: int = 0
    start_width: int = 0
    predictors: Sequence[int] = ()  # h
    codes: ArrayLike = ()  # (h, G): of widths; for sparse layouts the width minus 1
    folded: ArrayLike = ()  # (h, 8 * G): residuals
    masks: ArrayLike = ()  # (h, 8 * G): for sparse layouts, 1 where a residual is coded
    flags: ArrayLike = ()  # (h, G): for sparse layouts, 1 where a group is coded
    row_flags: ArrayLike = ()  # h: for sparse layouts, 1 where a row is coded
    unused_bit: int = 0  # what the bits that fill up a last byte are


def pack_fields(values: ArrayLike, widths: ArrayLike, unused_bit: int = 0) -> bytes:
    """Writes the fields, least significant bit first, and fills up the last byte."""
    values, widths = np.broadcast_arrays(values, widths)
    bits = values.reshape(-1, 1) >> np.arange(16) & 1
    bits = bits[np.arange(16) < widths.reshape(-1, 1)]
    filled = np.append(bits, [unused_bit] * (-len(bits) % 8))
    return np.packbits(filled.astype(np.uint8), bitorder="little").tobytes()


def pack_rows(table: ArrayLike, width: int, unused_bit: int = 0) -> bytes:
    """Writes a table of fields; each row begins at a whole byte."""
    rows = np.atleast_2d(np.asarray(table, np.int64))
    return b"".join(pack_fields(row, width, unused_bit) for row in rows)


def packed_body(channels: Sequence[PackedChannel], used_bits: int) -> bytes:
    """The body of a packed tile."""
    coded = [channel for channel in channels if channel.layout != LAYOUT_CONSTANT]
    code_bits = {LAYOUT_ABSOLUTE: 4, LAYOUT_DELTA: 2}
    parts = [struct.pack("<BBH", c.layout, c.start_width, c.base) for c in channels]
    parts += [pack_rows(channel.predictors, 4, channel.unused_bit) for channel in coded]
    for channel in coded:
        codes = channel.row_flags if channel.layout == LAYOUT_SPARSE else channel.codes
        parts.append(pack_rows(codes, code_bits.get(channel.layout, 1), channel.unused_bit))
    rows = [list(_packed_rows(channel, used_bits)) for channel in coded]
    return b"".join(parts + [row for line in zip(*rows, strict=True) for row in line])


def packed_payload(channels: Sequence[PackedChannel], used_bits: int, transform: int = 0) -> bytes:
    """A packed tile from its fields."""
    return payload(PACKED, packed_body(channels, used_bits), transform)


def _packed_rows(channel: PackedChannel, used_bits: int) -> Iterable[bytes]:
    folded, codes = np.asarray(channel.folded), np.asarray(channel.codes)
    if channel.layout != LAYOUT_SPARSE:
        for row, widths in zip(folded, widths_of(channel, used_bits), strict=True):
            yield pack_fields(row, widths.repeat(8))
        return
    rows = zip(folded, codes, np.asarray(channel.masks), np.asarray(channel.flags), strict=True)
    for (row, row_codes, masks, flags), is_coded in zip(
        rows, np.asarray(channel.row_flags), strict=True
    ):
        if is_coded:
            coded = flags == 1
            masks = masks.reshape(-1, 8)[coded].reshape(-1)
            fields = row.reshape(-1, 8)[coded].reshape(-1)
            widths = np.minimum(row_codes[coded] + 1, used_bits).repeat(8) * masks
            parts = ((flags, 1), (row_codes[coded], 4), (masks, 1), (fields, widths))
            yield b"".join(
                pack_fields(numbers, bits, channel.unused_bit) for numbers, bits in parts
            )
        else:
            yield b""


def widths_of(channel: PackedChannel, used_bits: int) -> Values:
    """The widths that the codes of an absolute or delta layout mean."""
    codes = np.asarray(channel.codes, np.int64)
    if channel.layout == LAYOUT_ABSOLUTE:
        return np.minimum(np.where(codes == 15, 16, codes), used_bits)
    widths = np.empty_like(codes)
    width = np.full(codes.shape[1], channel.start_width)
    for y, row in enumerate(codes):
        widths[y] = width = np.clip(width + row - 1, 0, used_bits)
    return widths


# From pixels to packed tiles.


@dataclass(frozen=True)
class ChannelChoice:
    """How to code one channel of a packed tile. Predictors repeat down the rows.

    `spare_bits` widens each group, `extreme_codes` takes the highest code among those that
    mean the width wanted, `loose_masks` codes sparse residuals that are 0 and those past
    the right edge as well, and says of each row that it is coded.
    """

    layout: int = LAYOUT_ABSOLUTE
    predictors: Sequence[int] = (1,)
    base: int = 0
    start_width: int | None = None
    spare_bits: int = 0
    extreme_codes: bool = False
    loose_masks: bool = False
    unused_bit: int = 0


def packed_tile(
    values: Integers, used_bits: int, choices: Sequence[ChannelChoice], transform: int = 0
) -> bytes:
    """A packed tile that holds the values of shape (h, w, channels)."""
    planes = values.astype(np.int64)
    if transform == 1:
        half = 1 << (used_bits - 1)
        planes[..., [0, 2]] = (planes[..., [0, 2]] - planes[..., [1]] + half) % (2 * half)
    channels = [
        _channel_of_plane(planes[..., c], used_bits, choice) for c, choice in enumerate(choices)
    ]
    return packed_payload(channels, used_bits, transform)


def _channel_of_plane(plane: Values, used_bits: int, choice: ChannelChoice) -> PackedChannel:
    if choice.layout == LAYOUT_CONSTANT:
        return PackedChannel(base=int(plane[0, 0]))
    h, w = plane.shape
    groups = -(-w // 8)
    predictors = np.resize(choice.predictors, h)
    folded = np.zeros((h, 8 * groups), np.int64)
    folded[:, :w] = fold_residuals(plane, predictors, choice.base, used_bits)
    channel = PackedChannel(
        choice.layout,
        choice.base,
        predictors=predictors.tolist(),
        folded=folded,
        unused_bit=choice.unused_bit,
    )
    by_group = folded.reshape(h, groups, 8)
    needed = _bit_length(by_group.max(axis=2))
    wanted = np.minimum(needed + choice.spare_bits, used_bits)
    if choice.layout == LAYOUT_ABSOLUTE:
        is_widest = (wanted >= 15) | ((wanted == used_bits) & choice.extreme_codes)
        channel.codes = np.where(is_widest, 15, wanted)
    elif choice.layout == LAYOUT_DELTA:
        _choose_delta_codes(channel, wanted, used_bits, choice)
    else:
        masks = (by_group != 0) | ((needed > 0)[..., None] & choice.loose_masks)
        channel.masks = masks.reshape(h, -1).astype(int)
        channel.flags = (needed > 0).astype(int)
        channel.row_flags = ((needed > 0).any(axis=1) | choice.loose_masks).astype(int)
        is_widest = (wanted == used_bits) & choice.extreme_codes
        channel.codes = np.where(is_widest, 15, np.maximum(wanted, 1) - 1)
    return channel


def fold_residuals(plane: Values, predictors: Integers, base: int, used_bits: int) -> Values:
    """The folded residuals of a plane, with a predictor for each row (format.md 5.3)."""
    above = np.vstack([np.full((1, plane.shape[1]), base), plane[:-1]])
    n = above
    nw = np.hstack([above[:, :1], above[:, :-1]])
    ne = np.hstack([above[:, 1:], above[:, -1:]])
    w = np.hstack([above[:, :1], plane[:, :-1]])
    predictions: Values = np.array(
        [
            w,
            n,
            (nw + 2 * n + ne + 2) // 4,
            w + n - nw,
            w + (n - 2 * nw + ne + 2) // 4,
            (n + ne + 1) // 2,
            (nw + n + 1) // 2,
            w + (ne - nw + 1) // 2,
        ]
    )
    half = 1 << (used_bits - 1)
    return _fold(plane - predictions[predictors, np.arange(len(plane))], half)


def _fold(residuals: Values, half: int) -> Values:
    residuals = (residuals + half) % (2 * half) - half
    return np.where(residuals < 0, -2 * residuals - 1, 2 * residuals)


def _bit_length(numbers: Values) -> Values:
    lengths: Values = (numbers[..., None] >> np.arange(16) > 0).sum(axis=-1)
    return lengths


def _choose_delta_codes(
    channel: PackedChannel, wanted: Values, used_bits: int, choice: ChannelChoice
) -> None:
    least = wanted.copy()  # a width can rise by 2 a row only, so it must rise early
    for y in range(len(least) - 1, 0, -1):
        least[y - 1] = np.maximum(least[y - 1], least[y] - 2)
    start = max(0, int(least[0].max()) - 2)
    channel.start_width = start if choice.start_width is None else choice.start_width
    codes = np.empty_like(least)
    width = np.full(least.shape[1], channel.start_width)
    for y, row in enumerate(least):
        codes[y] = np.clip(row - width + 1, 0, 3)
        width = np.clip(width + codes[y] - 1, 0, used_bits)
        if choice.extreme_codes:
            codes[y][width == used_bits] = 3
            codes[y][(width == 0) & (codes[y] == 1)] = 0
    channel.codes = codes


# format.md 5.4


def rans_model(frequency: ArrayLike, channels: int = 1, gradient_weight: int = 6) -> RansModel:
    """A model whose tables share the levels alike, rising, and so do its sets."""
    frequency = np.asarray(frequency, np.int64)
    levels = np.arange(LEVELS) * len(frequency) // LEVELS
    return RansModel(
        gradient_weight, np.tile([20, 40], (channels, 1)), np.tile(levels, (channels, 1)), frequency
    )


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


def rans_model_chunk(model: RansModel, spare_tokens: int = 0) -> bytes:
    """The `RANS` chunk. Each table lists that many tokens past its last, with frequency 0."""
    data = bytearray([len(model.frequency), model.gradient_weight])
    for set_begin, table_of_level in zip(model.set_begin, model.table_of_level, strict=True):
        data += bytes(set_begin.tolist()) + _runs(table_of_level)
    return chunk(b"RANS", bytes(data) + _tables(model.frequency, spare_tokens))


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


def _tables(frequencies: Values, spare_tokens: int) -> bytes:
    data = b""
    for frequency in frequencies:
        numbers = np.trim_zeros(frequency, "b").tolist() + [0] * spare_tokens
        data += bytes([len(numbers)]) + b"".join(map(base128, numbers))
    return data


@dataclass
class RansBody:
    """The fields of a rans body, written as they are. Missing positions are filled up with 0."""

    base: Sequence[int]
    coefficients: Sequence[Values]  # by position: (sets, taps)
    states: Values
    words: Values
    sets: Sequence[int] | None = None  # else as many as there are coefficients for

    def to_bytes(self) -> bytes:
        """Returns the body."""
        sets = [len(c) for c in self.coefficients] if self.sets is None else self.sets
        parts = [
            struct.pack("<4B", *sets, *[0] * (4 - len(sets))),
            struct.pack("<4H", *self.base, *[0] * (4 - len(self.base))),
            *(c.astype("i1").tobytes() for c in self.coefficients),
            self.states.astype("<u4").tobytes(),
            self.words.astype("<u2").tobytes(),
        ]
        return b"".join(parts)

    def to_payload(self) -> bytes:
        """Returns a payload with this body."""
        return payload(RANS, self.to_bytes())


def rans_body(
    values: Integers,
    used_bits: int,
    model: RansModel,
    coefficients: Sequence[Values],
    base: Sequence[int],
    laps: int = 0,
) -> RansBody:
    """A rans body that holds the values of shape (h, w, channels).

    Coefficients and base are by position. A residual goes round 2^used_bits `laps` times more
    than needed.
    """
    h, w, channels = values.shape
    planes = values.astype(np.int64)[..., rans_channels(channels)].reshape(h * w, channels)
    symbols: list[tuple[Values, Values, Values]] = []

    def read(p: int, places: Values, lanes: Values, tables: Values, predictions: Values) -> Values:
        folded = _fold(planes[places, p] - predictions, 1 << (used_bits - 1))
        folded += laps << used_bits + 1
        symbols.append((lanes, tables, folded))
        return folded

    walk_rans((h, w), used_bits, model, base, coefficients, read)
    states, words = _encode_lanes((h, w), symbols, model.frequency, used_bits > 8)
    return RansBody(base, coefficients, states, words)


def _encode_lanes(
    shape: tuple[int, int],
    symbols: list[tuple[Values, Values, Values]],
    frequencies: Values,
    refills_twice: bool,
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
        if refills_twice:  # a refill between token and raw bits
            drain(lanes, 1 << 32 - bits)
            states[lanes] = states[lanes] << bits | raw
            bits = raw = np.zeros_like(bits)
        drain(lanes, frequency << 22 - bits)
        whole, part = np.divmod(states[lanes] << bits | raw, frequency)
        states[lanes] = (whole << 10) + part + starts[tables, tokens]
    return states, np.concatenate(words[::-1])


# format.md 5.5


def match_model(frequency: ArrayLike, colors: ArrayLike | None = None) -> MatchModel:
    """A model whose tables share the contexts in turn; colours have shape (numbers, channels)."""
    frequency = np.asarray(frequency, np.int64)
    contexts = np.arange(64) % max(1, len(frequency))
    return MatchModel(contexts, frequency, None if colors is None else np.asarray(colors, np.int64))


def sorted_colors(colors: Values, used_bits: int) -> Values:
    """Distinct colours of shape (numbers, channels) in an order that gaps can have."""
    colors = np.unique(colors, axis=0)
    keys = np.array([color_key(color.tolist(), used_bits) for color in colors], object)
    ends = [0, 16]
    while ends[-1] < len(keys):
        ends.append(2 * ends[-1])
    order = np.concatenate(
        [begin + np.argsort(keys[begin:end]) for begin, end in itertools.pairwise(ends)]
    )
    sorted_: Values = colors[order.astype(int)]
    return sorted_


def color_key(color: Sequence[int], used_bits: int) -> int:
    """The key of a colour."""
    fields = list(color)
    if len(fields) >= 3:
        red, green, blue = fields[:3]
        fields[:3] = blue - green, red - green, green
    return sum(field % (1 << used_bits) << used_bits * i for i, field in enumerate(fields))


def match_model_chunk(model: MatchModel, used_bits: int, spare_tokens: int = 0) -> bytes:
    """The `MTCH` chunk."""
    data = bytes([len(model.frequency)]) + _runs(model.table_of_context)
    data += _tables(model.frequency, spare_tokens)
    colors = [] if model.colors is None else model.colors.tolist()
    data += struct.pack("<H", len(colors))
    key = -1
    for number, color in enumerate(colors):
        if number >= 16 and number & number - 1 == 0:
            key = -1
        next_key = color_key(color, used_bits)
        data += base128(next_key - key - 1)
        key = next_key
    return chunk(b"MTCH", data)


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
    return MatchBody(base, skips, *_encode_lanes((h, w), kept, model.frequency, True))


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
