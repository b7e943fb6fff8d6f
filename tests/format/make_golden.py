"""Writes tests/golden/v1, tests/invalid and their manifest; --check fails if a file differs.

The files are frozen with the format: tests/frozen.sha256 has their hashes (`sha256sum -c` knows
it), and none of them changes or goes any more. New files may come. The manifest's digests are of
the pixels that files were built from, so no decoder is its own judge; rans and match tiles are
built on the reference's walk, so there the engines judge it. An invalid file is named
<status>__<reason>.l3, and the name is the assertion.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from format_rules import shown_by
from numpy.typing import NDArray
from reference_decoder import (
    CONSTANT,
    HEADER_OFFSETS,
    LAYOUT_ABSOLUTE,
    LAYOUT_CONSTANT,
    LAYOUT_DELTA,
    LAYOUT_SPARSE,
    MATCH,
    PACKED,
    RANS,
    STORED,
    TAP_COUNTS,
    Header,
    MatchModel,
    RansModel,
    built_in_rans_model,
    mix,
    rans_roles,
)
from stream_builder import (
    ChannelChoice,
    PackedChannel,
    RansBody,
    Stream,
    base128,
    chunk,
    constant_tile,
    groups_chunk,
    match_body,
    match_model,
    match_model_chunk,
    packed_body,
    packed_tile,
    payload,
    rans_body,
    rans_model,
    rans_model_chunk,
    rans_table,
    repair,
    sorted_colors,
    stored_tile,
    value_table_chunk,
)

TESTS = Path(__file__).resolve().parents[1]
MANIFEST = TESTS / "conformance.json"
FROZEN = TESTS / "frozen.sha256"
Samples = NDArray[Any]


def texture(shape: tuple[int, int, int], limit: int, noise: int = 8, flat: int = 1) -> Samples:
    """A picture of values below `limit`: a slope and noise; one pixel in `flat` is not flat."""
    h, w, c = shape
    y, x, channel = np.ogrid[:h, :w, :c]
    places = np.arange(h * w * c, dtype=np.uint32).reshape(shape)
    slope = (x + 2 * y + 40 * channel) * limit // 512
    grain = np.where(mix(places + np.uint32(7)) % flat == 0, mix(places) % noise, 0)
    values: Samples = (slope // flat + grain) % limit
    return values


def packed(
    stream: Stream, values: Samples, choices: Sequence[ChannelChoice], transform: int = 0
) -> tuple[bytes, Samples]:
    """A file with all tiles packed in one way, and its samples without a value table."""
    channels = list(choices) * (stream.channels // len(choices))
    stream.payloads = [
        packed_tile(tile, stream.used_bits, channels, transform) for tile in stream.tiles_of(values)
    ]
    return stream.to_bytes(), stream.samples_of(values)


def rans(
    stream: Stream,
    values: Samples,
    model: RansModel | None,
    coefficients: Sequence[Samples] | None = None,
    base: int = 0,
) -> tuple[bytes, Samples]:
    """A file with all tiles in rans, and its samples without a value table.

    Without a model of its own it has the built-in one, without coefficients the gradient.
    """
    if model is None:
        model = built_in_rans_model(stream.channels, stream.used_bits)
    else:
        stream.chunks.append(rans_model_chunk(model))
    if coefficients is None:
        coefficients = smooth([0] * stream.channels)
    bases = [base] * stream.channels
    stream.payloads = [
        rans_body(tile, stream.used_bits, model, coefficients, bases).to_payload()
        for tile in stream.tiles_of(values)
    ]
    return stream.to_bytes(), stream.samples_of(values)


def smooth(sets: Sequence[int]) -> list[Samples]:
    """Coefficients of a few 64ths, but for that of W, which makes their sum 1; by position."""
    coefficients = []
    for role, count in zip(rans_roles(len(sets)), sets, strict=True):
        places = np.arange(count * TAP_COUNTS[role], dtype=np.uint32)
        numbers = mix(places).astype(np.int64).reshape(count, TAP_COUNTS[role]) % 9 - 4
        numbers[:, 3] += 64 - numbers.sum(axis=1)
        coefficients.append(numbers)
    return coefficients


def spread_model(used_bits: int, channels: int, tables: int = 6) -> RansModel:
    """A model with every token in every table, the first tables for small residuals."""
    tokens = 24 if used_bits <= 8 else 40
    return rans_model([rans_table(tokens, 2 + t) for t in range(tables)], channels)


def drawing(shape: tuple[int, int, int], limit: int, colors: int = 40) -> Samples:
    """Rectangles, lines and lone pixels of a few colours, with values below `limit`."""
    h, w, c = shape
    y, x = np.ogrid[:h, :w]
    places = np.arange(h * w, dtype=np.uint32).reshape(h, w)
    lone = np.where(mix(places) % 37 == 0, mix(places + np.uint32(5)) % colors, 0)
    lines = np.where((x + y) % 23 == 0, 3, 0)
    number = (x // 19 * 7 + y // 13 * 3 + lone + lines) % colors
    palette = mix(np.arange(colors * c, dtype=np.uint32)).reshape(colors, c) % limit
    values: Samples = palette.astype(np.int64)[number]
    return values


def match(
    stream: Stream,
    values: Samples,
    tables: Samples | None = None,
    *,
    has_colors: bool = True,
    base: int = 0,
) -> tuple[bytes, Samples]:
    """A file with all tiles in match, and its samples without a value table.

    Without tables it has six, of all tokens. Colours are optional for one channel.
    """
    if tables is None:
        tables = np.array([rans_table(40, 2 + t) for t in range(6)])
    colors = None
    if has_colors:
        colors = sorted_colors(values.reshape(-1, stream.channels), stream.used_bits)
    model = match_model(tables, colors)
    stream.chunks.append(match_model_chunk(model, stream.used_bits))
    stream.payloads = [
        match_body(numbers_of(tile, model), model, base).to_payload()
        for tile in stream.tiles_of(values)
    ]
    return stream.to_bytes(), stream.samples_of(values)


def numbers_of(values: Samples, model: MatchModel) -> Samples:
    """The numbers of the colours of shape (h, w, channels)."""
    if model.colors is None:
        return values[..., 0]
    number_of = {tuple(color): number for number, color in enumerate(model.colors.tolist())}
    numbers = [number_of[tuple(color)] for color in values.reshape(-1, values.shape[2]).tolist()]
    return np.array(numbers).reshape(values.shape[:2])


ONE_TOKEN = rans_model([[1024]])
FOUR_BITS = rans_model([[64] * 16])
LIKE_WEST = match_model([[1024]])
ALL_PREDICTORS = tuple(range(8))
ABSOLUTE = ChannelChoice(LAYOUT_ABSOLUTE, ALL_PREDICTORS)
DELTA = ChannelChoice(LAYOUT_DELTA, ALL_PREDICTORS)
SPARSE = ChannelChoice(LAYOUT_SPARSE, ALL_PREDICTORS)
FLAT = ChannelChoice(LAYOUT_CONSTANT)
CODED = {"absolute": ABSOLUTE, "delta": DELTA, "sparse": SPARSE}


def encoded_sample() -> Samples:
    """What the encoder wrote encoder_effort_9.l3 from: large enough for a model of its own."""
    return texture((150, 310, 3), 256, noise=4)


def golden_files() -> Iterator[tuple[str, tuple[bytes, Samples]]]:
    """Yields names, files and the samples they must decode to."""
    # Written once, by `l3dali.encode(..., effort=9)`.
    encoded = TESTS / "golden/v1/encoder_effort_9.l3"
    yield encoded.stem, (encoded.read_bytes(), encoded_sample())

    small = Stream(45, 19)  # 2 by 3 tiles, those at the edges cut short
    gray = texture((19, 45, 1), 256)
    speckled = texture((19, 45, 1), 256, noise=200, flat=30)

    tiles = small.tiles_of(gray)
    yield "stored", (replace(small, payloads=[stored_tile(t, 8) for t in tiles]).to_bytes(), gray)
    steps = np.zeros_like(gray)
    for i, tile in enumerate(small.tiles_of(steps)):
        tile[:] = 40 * i + 1
        small.payloads.append(constant_tile([40 * i + 1]))
    yield "constant", (small.to_bytes(), steps)

    for name, choice in CODED.items():
        yield f"layout_{name}", packed(small, gray, [choice])
        yield f"layout_{name}_speckled", packed(small, speckled, [choice])
        spare = replace(choice, spare_bits=3)
        yield f"layout_{name}_wide", packed(small, gray, [spare])
        extreme = replace(choice, spare_bits=8, extreme_codes=True, unused_bit=1)
        yield f"layout_{name}_extreme_codes", packed(small, gray, [extreme])
    loose = replace(SPARSE, loose_masks=True, unused_bit=1)
    yield "layout_sparse_loose_masks", packed(small, speckled, [loose])
    yield "layout_delta_clamped", packed(small, steps, [replace(DELTA, start_width=8, base=1)])
    for predictor in ALL_PREDICTORS:
        choice = ChannelChoice(LAYOUT_DELTA, [predictor], base=100)
        yield f"predictor_{predictor}", packed(small, gray, [choice])

    for sample_bits, used_bits, shift in [
        (8, 1, 0), (8, 3, 2), (8, 7, 1), (16, 1, 15), (16, 8, 0), (16, 9, 0), (16, 12, 4),
        (16, 15, 0), (16, 16, 0),
    ]:  # fmt: skip
        limit = 1 << used_bits
        values = texture((19, 45, 1), limit, noise=limit)
        stream = Stream(45, 19, 1, sample_bits, used_bits, shift)
        for name, choice in CODED.items():
            yield f"bits_{used_bits}_of_{sample_bits}_{name}", packed(stream, values, [choice])
        stream.payloads = [stored_tile(tile, sample_bits) for tile in stream.tiles_of(values)]
        yield (
            f"bits_{used_bits}_of_{sample_bits}_stored",
            (stream.to_bytes(), stream.samples_of(values)),
        )

    for channels in (2, 3, 4):
        colour = texture((19, 45, channels), 256)
        yield f"channels_{channels}", packed(Stream(45, 19, channels), colour, [DELTA])
        if channels >= 3:
            vivid = texture((19, 45, channels), 256, noise=256)  # differences wrap
            stream = Stream(45, 19, channels)
            yield f"subtract_green_{channels}", packed(stream, vivid, [DELTA], 1)
            stream = Stream(45, 19, channels, used_bits=7)
            yield f"subtract_green_{channels}_7_bits", packed(stream, vivid % 128, [SPARSE], 1)
            vivid = texture((19, 45, channels), 1 << 16, noise=1 << 16)
            stream = Stream(45, 19, channels, 16, 16)
            yield f"subtract_green_{channels}_16_bits", packed(stream, vivid, [ABSOLUTE], 1)
    colour = texture((19, 45, 3), 256)
    colour[..., [0, 2]] = 9
    yield "layout_constant", packed(Stream(45, 19, 3), colour, [FLAT, DELTA, FLAT])

    for width, height in [(1, 1), (1, 40), (70, 1), (32, 8), (33, 9), (31, 7)]:
        values = texture((height, width, 3), 256)
        stream = Stream(width, height, 3)
        yield f"size_{width}x{height}", packed(stream, values, [DELTA, SPARSE, ABSOLUTE], 1)
    for width_log2, height_log2 in [(8, 3), (5, 8), (8, 8)]:
        values = texture((260, 261, 1), 256, noise=2)
        stream = Stream(261, 260, tile_width_log2=width_log2, tile_height_log2=height_log2)
        name = f"tile_{1 << width_log2}x{1 << height_log2}"
        yield name, packed(stream, values, [ChannelChoice(LAYOUT_DELTA, [2])])
    for width_log2, height_log2 in [(9, 3), (5, 9), (15, 15)]:
        stream = Stream(45, 19, tile_width_log2=width_log2, tile_height_log2=height_log2)
        stream.payloads = [stored_tile(tile, 8) for tile in stream.tiles_of(gray)]
        yield f"tile_{1 << width_log2}x{1 << height_log2}_stored", (stream.to_bytes(), gray)

    for sample_bits, count in [(8, 1), (8, 5), (8, 256), (16, 2), (16, 300)]:
        table = _table(sample_bits, count)
        used_bits = max(1, (count - 1).bit_length())
        ranks = texture((19, 45, 1), count)
        stream = Stream(45, 19, 1, sample_bits, used_bits, chunks=[value_table_chunk(table)])
        data, _ = packed(stream, ranks, [SPARSE])
        yield f"value_table_{count}_of_{sample_bits}_bits", (data, np.array(table)[ranks])
    padded_gaps = struct.pack("<I", 2) + base128(3, 3) + base128(0, 2)
    stream = Stream(45, 19, used_bits=1, chunks=[chunk(b"VTAB", padded_gaps)])
    ranks = texture((19, 45, 1), 2)
    data, _ = packed(stream, ranks, [DELTA])
    yield "value_table_long_gaps", (data, 3 + ranks)

    labels = steps // 40
    stream = Stream(45, 19, meaning=1, chunks=[chunk(b"plte", bytes(range(24)))])
    yield "labels_palette", packed(stream, labels, [SPARSE])
    stream = Stream(45, 19, chunks=[
        chunk(b"icc ", b"profile"), chunk(b"zzz1", b""), chunk(b"exif", b"II*\0"),
        chunk(b"zzz1", b"twice"), chunk(b" 2Zz", b"x"),
    ])  # fmt: skip
    yield "chunks", packed(stream, gray, [DELTA])
    pairs = '{"spacing":[0.7,0.7],"unit":"µm","tiff":{"42113":{"type":"ASCII","value":"0"}}}'
    stream = Stream(45, 19, chunks=[
        chunk(b"keyv", pairs.encode()), chunk(b"xmp ", b"<x:xmpmeta xmlns:x='adobe:ns:meta/'/>"),
    ])  # fmt: skip
    yield "chunks_metadata", packed(stream, gray, [DELTA])
    stream = Stream(45, 19, chunks=[chunk(b"keyv", b'{"a":\xff'), chunk(b"xmp ", b"")])
    yield "chunks_metadata_damaged", packed(stream, gray, [DELTA])
    yield from _golden_rans_files()
    yield from _golden_group_files()
    yield from _golden_match_files()
    yield from _golden_signed_files()
    yield "all_features", _all_features()


def grouped(
    stream: Stream,
    values: Samples,
    groups: Sequence[Sequence[int]],
    model: RansModel | None = None,
    sets: Sequence[int] = (1, 2, 3, 0),
) -> tuple[bytes, Samples]:
    """A file of more than four channels: groups in turn packed, as rans, stored and constant.

    Without a model it has the built-in one. A group whose turn it is to be constant is made so.
    """
    stream.chunks.insert(0, groups_chunk(groups))
    if model is not None:
        stream.chunks.append(rans_model_chunk(model))
    used = model or built_in_rans_model(4, stream.used_bits)
    samples = values.copy()
    for t, tile in enumerate(stream.tiles_of(samples)):
        for i, group in enumerate(groups):
            part, n = tile[..., group], len(group)
            kind = (t + i) % 4
            if kind == 0:
                stream.payloads.append(packed_tile(part, stream.used_bits, [DELTA] * n, n // 3))
            elif kind == 1:
                body = rans_body(part, stream.used_bits, used, smooth(sets[:n]), [7] * n)
                stream.payloads.append(body.to_payload())
            elif kind == 2:
                stream.payloads.append(stored_tile(part, stream.sample_bits))
            else:
                tile[..., group] = part[0, 0]
                stream.payloads.append(constant_tile(part[0, 0].tolist()))
    return stream.to_bytes(), samples << stream.shift


def _golden_group_files() -> Iterator[tuple[str, tuple[bytes, Samples]]]:
    values = texture((70, 75, 9), 256)
    groups = [[0, 1, 2], [3], [4, 5, 6, 7], [8]]
    yield "groups", grouped(Stream(75, 70, 9), values, groups)
    mixed = [[6, 2], [8, 0, 5, 3], [1], [7, 4]]
    model = spread_model(8, 4)
    yield "groups_mixed_model", grouped(Stream(75, 70, 9), values, mixed, model)
    deep = texture((70, 75, 5), 1 << 12, noise=90)
    stream = Stream(75, 70, 5, 16, 12, 4)
    yield "groups_16_bits", grouped(stream, deep, [[4, 2, 0], [3, 1]], spread_model(12, 4))
    one = texture((9, 40, 6), 256)
    yield "groups_of_one", grouped(Stream(40, 9, 6), one, [[c] for c in (5, 3, 1, 0, 2, 4)])
    many = texture((3, 2, 4096), 256)
    stream = Stream(2, 3, 4096)
    in_order = [list(range(c, c + 4)) for c in range(0, 4096, 4)]
    stream.chunks = [groups_chunk(in_order)]
    stream.payloads = [stored_tile(many[..., group], 8) for group in in_order]
    yield "groups_4096_channels", (stream.to_bytes(), many)
    table = _table(8, 20)
    ranks = texture((19, 45, 7), 20)
    stream = Stream(45, 19, 7, used_bits=5)
    stream.chunks = [groups_chunk([[6, 5, 4], [3, 2, 1, 0]]), value_table_chunk(table)]
    for tile in stream.tiles_of(ranks):
        for group in ([6, 5, 4], [3, 2, 1, 0]):
            stream.payloads.append(packed_tile(tile[..., group], 5, [SPARSE] * len(group)))
    yield "groups_value_table", (stream.to_bytes(), np.array(table)[ranks])
    large = texture((19, 45, 5), 256)
    stream = Stream(45, 19, 5, tile_width_log2=9, tile_height_log2=3)
    stream.chunks = [groups_chunk([[1], [0, 2, 3, 4]])]
    for tile in stream.tiles_of(large):
        stream.payloads += [stored_tile(tile[..., group], 8) for group in ([1], [0, 2, 3, 4])]
    yield "groups_large_tiles_stored", (stream.to_bytes(), large)


def _golden_rans_files() -> Iterator[tuple[str, tuple[bytes, Samples]]]:
    def stream(
        width: int,
        height: int,
        channels: int = 1,
        bits: int = 8,
        used_bits: int = 8,
        shift: int = 0,
    ) -> Stream:
        return Stream(width, height, channels, bits, used_bits, shift, 6, 6)

    # Tiles of 64 columns, 32 lanes and up to two rows each, and of 6 columns and 2 lanes.
    for channels in (1, 2, 3, 4):
        for bits in (8, 16):
            values = texture((66, 70, channels), 1 << bits, noise=bits * bits, flat=2)
            name = f"rans_{channels}_channels_{bits}_bits"
            one = stream(70, 66, channels, bits, bits)
            yield name, rans(one, values, spread_model(bits, channels), smooth([3] * channels), 200)
            one = stream(70, 66, channels, bits, bits)
            yield f"{name}_built_in", rans(one, values, None, smooth([1] * channels))

    for width, height in [
        (1, 1), (1, 40), (2, 9), (3, 5), (4, 4), (7, 9), (8, 3), (16, 16), (31, 20), (33, 9),
        (63, 40), (64, 33), (40, 1),
    ]:  # fmt: skip
        values = texture((height, width, 3), 256)
        file = rans(stream(width, height, 3), values, spread_model(8, 3), smooth([2] * 3))
        yield f"rans_size_{width}x{height}", file
    one = Stream(261, 260, tile_width_log2=8, tile_height_log2=8)
    values = texture((260, 261, 1), 256, noise=2)
    yield "rans_tile_256x256", rans(one, values, spread_model(8, 1), smooth([2]))

    colour = texture((19, 45, 3), 256)
    for sets in range(4):
        file = rans(stream(45, 19, 3), colour, spread_model(8, 3), smooth([sets] * 3), 99)
        yield f"rans_sets_{sets}", file
    mixed = texture((19, 45, 4), 256)
    file = rans(stream(45, 19, 4), mixed, spread_model(8, 4), smooth([0, 3, 1, 2]))
    yield "rans_sets_by_position", file
    extreme = [np.resize([-128, 127, 127, -128, 127], (3, taps)) for taps in TAP_COUNTS]
    yield "rans_extreme_coefficients", rans(stream(45, 19, 3), colour, None, extreme)
    gray = texture((19, 45, 1), 256)
    model = replace(spread_model(8, 1), set_begin=np.array([[0, 64]]))
    yield "rans_set_begin_0_and_64", rans(stream(45, 19), gray, model, smooth([3]))

    for used_bits, shift in [(1, 15), (7, 0), (8, 8), (9, 0), (12, 4)]:
        values = texture((19, 45, 3), 1 << used_bits, noise=1 << used_bits, flat=2)
        one = stream(45, 19, 3, 16, used_bits, shift)
        yield f"rans_bits_{used_bits}_of_16", rans(one, values, spread_model(used_bits, 3))
    noise = texture((40, 70, 3), 1 << 16, noise=1 << 16)
    yield "rans_noise_16_bits", rans(stream(70, 40, 3, 16, 16), noise, spread_model(16, 3))

    for weight in (0, 63):
        model = replace(spread_model(8, 1), gradient_weight=weight)
        yield f"rans_gradient_weight_{weight}", rans(stream(45, 19), gray, model)
    yield "rans_32_tables", rans(stream(45, 19), gray, spread_model(8, 1, 32))
    flat = np.full((19, 45, 1), 7)  # no word is read: the only token there is takes no bits
    yield "rans_one_token", rans(stream(45, 19), flat, rans_model([[1024]]), base=7)
    step = np.where(np.arange(45) < 20, 0, 18) * np.ones((19, 1), np.int64)
    model = rans_model([[1000, *[0] * 17, 24, *[0] * 5]])  # residuals of 0, and of 18 in row 0
    yield "rans_zero_frequencies", rans(stream(45, 19), step[..., None], model)

    model = spread_model(5, 1)
    one = stream(45, 19, 1, 8, 5, 3)
    one.chunks = [rans_model_chunk(model)]
    values = gray % 32
    one.payloads = [rans_body(values, 5, model, smooth([0]), [0], laps=1).to_payload()]
    yield "rans_residuals_beyond_used_bits", (one.to_bytes(), values << 3)
    for sample_bits, count in [(8, 5), (16, 300)]:
        table = _table(sample_bits, count)
        ranks = texture((19, 45, 3), count)
        one = stream(45, 19, 3, sample_bits, (count - 1).bit_length())
        one.chunks = [value_table_chunk(table)]
        data, _ = rans(one, ranks, spread_model(one.used_bits, 3), smooth([1] * 3))
        yield f"rans_value_table_{count}_of_{sample_bits}_bits", (data, np.array(table)[ranks])


def _golden_match_files() -> Iterator[tuple[str, tuple[bytes, Samples]]]:
    def stream(w: int, h: int, channels: int = 1, bits: int = 8, used: int = 8) -> Stream:
        return Stream(w, h, channels, bits, used, 0, 6, 6)

    for channels, bits in [(1, 8), (2, 8), (3, 8), (4, 8), (1, 16), (2, 16), (3, 16)]:
        values = drawing((66, 70, channels), 1 << bits)
        yield (
            f"match_{channels}_channels_{bits}_bits",
            match(stream(70, 66, channels, bits, bits), values, base=3),
        )
    values = drawing((66, 70, 4), 1 << 14)
    yield "match_4_channels_14_bits", match(stream(70, 66, 4, 16, 14), values)
    for bits, base in [(8, 200), (16, 65535)]:
        values = drawing((66, 70, 1), 60000) % (1 << bits)
        file = match(stream(70, 66, 1, bits, bits), values, has_colors=False, base=base)
        yield f"match_values_of_{bits}_bits", file

    for width, height in [
        (1, 1), (1, 40), (2, 9), (3, 5), (4, 4), (7, 9), (8, 3), (16, 16), (31, 20), (33, 9),
        (63, 40), (64, 33), (40, 1),
    ]:  # fmt: skip
        values = drawing((height, width, 3), 256)
        yield f"match_size_{width}x{height}", match(stream(width, height, 3), values)
    one = Stream(261, 260, tile_width_log2=8, tile_height_log2=8)
    values = drawing((260, 261, 1), 6, 6) // 5
    yield "match_tile_256x256", match(one, values)
    for steps, width, height in [(256, 4, 127), (256, 8, 125), (256, 64, 97), (260, 4, 129)]:
        one = Stream(width, height, tile_width_log2=8, tile_height_log2=8)
        values = drawing((height, width, 1), 6, 6) // 5
        yield f"match_steps_{steps}_of_{width}x{height}", match(one, values)
    values = np.zeros((64, 64, 3), np.int64)
    values[63, 63] = 255  # all blocks of steps are skipped but for the last
    yield "match_last_pixel", match(stream(64, 64, 3), values)

    for colors in (1, 15, 16, 17, 31, 32, 33, 2000):
        values = drawing((45, 70, 3), 256, colors)
        values[0, :2] = [9, 8, 7]  # never constant
        yield f"match_{colors}_colours", match(stream(70, 45, 3), values)
    gray = drawing((45, 70, 1), 256)
    tables = np.array([rans_table(40, 2 + t) for t in range(20)])
    yield "match_20_tables_beside_built_in", match(stream(70, 45), gray, tables)
    tables = np.array([rans_table(40, 2 + t) for t in range(31)])
    one = stream(70, 45)
    one.chunks = [rans_model_chunk(ONE_TOKEN)]
    yield "match_31_tables_beside_one", match(one, gray, tables)
    for channels, bits, used in [(1, 8, 8), (3, 8, 6), (1, 16, 12), (3, 16, 16)]:
        one = Stream(45, 19, channels, bits, used, bits - used, 6, 6, is_signed=True)
        values = drawing((19, 45, channels), 1 << used)
        file = match(one, values, has_colors=channels > 1)
        yield f"match_signed_{channels}_channels_{used}_of_{bits}_bits", file
    one = Stream(45, 19, 1, 8, 5, 3, 6, 6)
    yield "match_shift", match(one, drawing((19, 45, 1), 32))
    for sample_bits, count, channels in [(8, 5, 3), (16, 300, 2), (16, 300, 1)]:
        table = _table(sample_bits, count)
        ranks = drawing((19, 45, channels), count)
        one = Stream(45, 19, channels, sample_bits, (count - 1).bit_length(), 0, 6, 6)
        one.chunks = [value_table_chunk(table)]
        data, _ = match(one, ranks, has_colors=channels > 1)
        yield f"match_value_table_{count}_of_{channels}_channels", (data, np.array(table)[ranks])


def _golden_signed_files() -> Iterator[tuple[str, tuple[bytes, Samples]]]:
    for bits, used_bits, shift in [
        (8, 8, 0), (8, 3, 2), (8, 1, 7), (16, 16, 0), (16, 13, 0), (16, 12, 4), (16, 8, 0),
        (16, 7, 3), (16, 1, 0),
    ]:  # fmt: skip
        values = texture((19, 45, 3), 1 << used_bits, noise=1 << used_bits, flat=2)
        one = Stream(45, 19, 3, bits, used_bits, shift, is_signed=True)
        name = f"int{bits}_{used_bits}_bits_shift_{shift}"
        yield f"{name}_packed", packed(one, values, [DELTA, ABSOLUTE, SPARSE], used_bits % 2)
        one.payloads = [stored_tile(tile, bits) for tile in one.tiles_of(values)]
        yield f"{name}_stored", (one.to_bytes(), one.samples_of(values))
        one = replace(one, tile_width_log2=6, tile_height_log2=6)
        yield f"{name}_rans", rans(one, values, spread_model(used_bits, 3), smooth([1] * 3))
    for bits, channels in [(8, 1), (8, 4), (16, 1), (16, 2)]:
        values = texture((66, 70, channels), 1 << bits, noise=bits)
        one = Stream(70, 66, channels, bits, bits, is_signed=True)
        yield f"int{bits}_{channels}_channels_packed", packed(one, values, [DELTA])
        one = replace(one, tile_width_log2=6, tile_height_log2=6)
        yield f"int{bits}_{channels}_channels_rans", rans(one, values, None)
        steps = np.zeros_like(values)
        one = replace(one, payloads=[])
        for i, tile in enumerate(one.tiles_of(steps)):
            tile[:] = np.array([60, 128, 250, 0])[:channels] + i
            one.payloads.append(constant_tile(tile[0, 0].tolist()))
        yield f"int{bits}_{channels}_channels_constant", (one.to_bytes(), one.samples_of(steps))
    values = texture((19, 45, 2), 1 << 11, noise=200)
    one = Stream(45, 19, 2, 16, 11, 1, 15, 15, is_signed=True)
    one.payloads = [stored_tile(values, 16)]
    yield "int16_tile_32768x32768_stored", (one.to_bytes(), one.samples_of(values))
    for bits, count in [(8, 1), (8, 5), (8, 256), (16, 300)]:
        step = 1 if count == 256 else 3
        table = [(1 << bits) // 2 - count // 2 * step + step * i for i in range(count)]
        ranks = texture((19, 45, 3), count)
        used_bits = max(1, (count - 1).bit_length())
        samples = np.array(table)[ranks] - (1 << (bits - 1))
        one = Stream(45, 19, 3, bits, used_bits, is_signed=True)
        one.chunks = [value_table_chunk(table)]
        data, _ = packed(one, ranks, [SPARSE])
        yield f"int{bits}_value_table_{count}_packed", (data, samples)
        one = replace(one, tile_width_log2=6, tile_height_log2=6)
        data, _ = rans(one, ranks, spread_model(used_bits, 3), smooth([1] * 3))
        yield f"int{bits}_value_table_{count}_rans", (data, samples)


def _table(sample_bits: int, count: int) -> list[int]:
    """Distinct samples in rising order: squares, as far as they leave room."""
    return [min(i * i, (1 << sample_bits) - 1 - count + i) for i in range(1, count + 1)]


def _all_features() -> tuple[bytes, Samples]:
    """What one image can hold at once: every coding, layout, predictor and kind of chunk."""
    table = _table(16, 300)
    model = rans_model([rans_table(36, 2 + t) for t in range(9)], 4)
    stream = Stream(150, 70, 4, 16, 9, 0, 6, 4, 1, chunks=[
        chunk(b"exif", b"MM\0*"), value_table_chunk(table), chunk(b"none", b"abcde"),
        chunk(b"icc ", b"icc"), chunk(b"plte", b"\1\2\3\4"), rans_model_chunk(model, 2),
    ])  # fmt: skip
    ranks = texture((70, 150, 4), 300, noise=90, flat=3)
    mixed = [
        ABSOLUTE,
        replace(DELTA, base=255, spare_bits=1),
        SPARSE,
        replace(SPARSE, loose_masks=True, unused_bit=1, predictors=(3, 6, 1)),
        replace(ABSOLUTE, spare_bits=9, extreme_codes=True, unused_bit=1, base=511),
        replace(DELTA, extreme_codes=True, unused_bit=1, spare_bits=7),
    ]
    for i, tile in enumerate(stream.tiles_of(ranks)):
        if i % 6 == 0:
            tile[:] = [i, 299, 0, 2 * i]
            stream.payloads.append(constant_tile(tile[0, 0].tolist()))
        elif i % 6 == 1:
            stream.payloads.append(stored_tile(tile, 16))
        elif i % 6 == 2:
            body = rans_body(tile, 9, model, smooth([i // 6 % 4] * 4), [511, 0, 1, 255])
            stream.payloads.append(body.to_payload())
        else:
            choices = [mixed[(i + c) % len(mixed)] for c in range(4)]
            if i % 6 == 4:
                tile[..., 3] = 299
                choices[3] = FLAT
            stream.payloads.append(packed_tile(tile, 9, choices, transform=i % 2))
    return stream.to_bytes(), np.array(table)[ranks]


def invalid_files() -> Iterator[tuple[str, bytes]]:
    """Yields names and files, in the order of format.md."""
    yield from _bad_files()
    yield from _bad_headers()
    yield from _bad_chunks()
    yield from _bad_groups()
    yield from _bad_value_tables()
    yield from _bad_indexes()
    yield from _bad_payloads()
    yield from _bad_packed_bodies()
    yield from _bad_rans_models()
    yield from _bad_rans_bodies()
    yield from _bad_match_models()
    yield from _bad_match_bodies()


Fields = dict[str, Any]


def _gray(**fields: object) -> Stream:
    """A stream of 2 by 2 tiles, with its fields replaced."""
    stream = Stream(40, 10, payloads=[constant_tile([i]) for i in range(4)])
    return replace(stream, **fields)  # type: ignore[arg-type]


def _one_tile(tile: bytes, **fields: object) -> bytes:
    return replace(Stream(20, 8, payloads=[tile]), **fields).to_bytes()  # type: ignore[arg-type]


def _patched(data: bytes, offset: int, patch: bytes) -> bytes:
    return data[:offset] + patch + data[offset + len(patch) :]


def _bad_files() -> Iterator[tuple[str, bytes]]:
    chunks = [chunk(b"icc ", b"1234")]
    data = _gray(chunks=chunks).to_bytes()  # index 44 to 60, CRC to 64
    yield "kTruncated__empty_file", b""
    yield "kTruncated__ends_in_signature", data[:5]
    yield "kTruncated__ends_in_header", data[:31]
    yield "kTruncated__ends_in_chunks", data[:40]
    yield "kTruncated__ends_in_index", data[:50]
    yield "kTruncated__ends_in_index_crc", data[:63]
    yield "kTruncated__ends_before_payloads", data[:64]
    yield "kTruncated__ends_in_last_payload", data[:-1]
    yield "kTruncated__claims_2_to_the_31_pixels", Stream(1 << 16, 1 << 15).to_bytes()[:40]
    padded = _gray().to_bytes()  # index 32 to 48, CRC to 52, padding to 64
    yield "kTruncated__ends_in_padding", padded[:60]
    yield "kTruncated__before_padding_is_judged", _patched(padded, 55, b"\1")[:-1]
    yield "kCorruptHeader__padding_not_zero", _patched(padded, 63, b"\1")
    yield "kCorruptHeader__bytes_after_last_payload", data + bytes(16)
    yield "kBadMagic__text_mode_transfer", data.replace(b"\r\n", b"\n")
    yield "kBadMagic__top_bit_stripped", _patched(data, 0, b"\x0b")
    yield "kBadMagic__short_and_different", b"\x89PNG"
    yield "kUnsupportedVersion__2", _gray(version=2).to_bytes()
    yield "kUnsupportedVersion__before_header_crc", _patched(data, HEADER_OFFSETS["version"], b"\2")
    yield "kChecksumMismatch__header_crc", _patched(data, HEADER_OFFSETS["header_crc"], bytes(4))
    yield (
        "kChecksumMismatch__before_header_fields",
        _patched(data, HEADER_OFFSETS["channels"], b"\0"),
    )
    yield "kChecksumMismatch__index_crc", _patched(data, 60, bytes(4))
    yield "kChecksumMismatch__before_chunks", _patched(data, 32, b"\0")
    yield "kChecksumMismatch__tile", _patched(data, 64, bytes(4))
    yield "kChecksumMismatch__before_coding", _patched(data, 68, b"\7")


def _bad_headers() -> Iterator[tuple[str, bytes]]:
    for reason, fields in {
        "channels_0": {"channels": 0},
        "channels_4097": {"channels": 4097},
        "channels_65535": {"channels": 65535},
        "sample_type_4": {"sample_type": 4},
        "sample_type_255": {"sample_type": 255},
        "used_bits_0": {"used_bits": 0},
        "used_bits_0_signed": {"is_signed": True, "used_bits": 0},
        "used_bits_above_sample_bits": {"used_bits": 9},
        "used_bits_above_sample_bits_signed": {"is_signed": True, "used_bits": 9},
        "shift_too_large": {"used_bits": 6, "shift": 3},
        "shift_too_large_signed": {"is_signed": True, "used_bits": 6, "shift": 3},
        "tile_width_log2_4": {"tile_width_log2": 4},
        "tile_height_log2_2": {"tile_height_log2": 2},
        "meaning_2": {"meaning": 2},
        "width_0": {"width": 0},
        "height_0": {"height": 0},
        "pixels_above_2_to_the_31": {"width": 1 << 16, "height": (1 << 15) + 1},
        "chunks_bytes_not_multiple_of_4": {"chunks_bytes": 2},
        "chunks_bytes_above_2_to_the_28": {"chunks_bytes": (1 << 28) + 4},
    }.items():
        yield f"kCorruptHeader__{reason}", _gray(**fields).to_bytes()
    # Fields of a byte each: channels, bits, used bits, shift, tile sides, meaning.
    for reason, fields_before in {
        "gray": [1, 8, 8, 0, 5, 3, 0],
        "16_bits_shifted": [3, 16, 12, 4, 8, 6, 0],
    }.items():
        before = _patched(_gray().to_bytes(), HEADER_OFFSETS["sample_type"], bytes(fields_before))
        yield f"kCorruptHeader__of_a_file_written_before_{reason}", repair(before)


def _bad_chunks() -> Iterator[tuple[str, bytes]]:
    icc = chunk(b"icc ", b"1")
    for reason, chunks in {
        "chunk_header_passes_area": [icc, b"exif"],
        "chunk_data_passes_area": [chunk(b"exif", bytes(8))[:-4]],
        "chunk_length_2_to_the_32": [b"exif" + b"\xff" * 4],
        "chunk_type_not_ascii": [chunk(b"ic\xe9 ", b"")],
        "chunk_type_punctuation": [chunk(b"icc_", b"")],
        "chunk_type_before_required": [chunk(b"ABC\0", b"")],
        "chunk_padding_not_zero": [icc[:-1] + b"\1"],
        "chunk_icc_twice": [icc, icc],
        "chunk_exif_twice": [chunk(b"exif", b"")] * 2,
        "chunk_plte_twice": [chunk(b"plte", bytes(4))] * 2,
        "chunk_xmp_twice": [chunk(b"xmp ", b"<x/>")] * 2,
        "chunk_keyv_twice": [chunk(b"keyv", b"{}")] * 2,
        "chunk_vtab_twice": [value_table_chunk(range(256))] * 2,
        "chunk_rans_twice": [rans_model_chunk(ONE_TOKEN)] * 2,
        "chunk_mtch_twice": [match_model_chunk(LIKE_WEST, 8)] * 2,
        "first_bad_chunk_decides": [icc, icc, chunk(b"NEED", b"")],
    }.items():
        yield f"kCorruptHeader__{reason}", _gray(chunks=chunks).to_bytes()
    required = chunk(b"NEED", b"")
    yield "kUnsupportedFeature__required_chunk", _gray(chunks=[icc, required]).to_bytes()
    late = _gray(chunks=[required, icc, icc], index=[0, 0, 0, 0])
    yield "kUnsupportedFeature__before_later_chunks_and_index", late.to_bytes()


def _bad_groups() -> Iterator[tuple[str, bytes]]:
    good = groups_chunk([[0, 1, 2], [3, 4]])
    icc = chunk(b"icc ", b"1")
    one = constant_tile([1])

    def five(chunks: list[bytes], payloads: int = 2, **fields: Any) -> bytes:
        return Stream(9, 8, 5, chunks=chunks, payloads=[one] * payloads, **fields).to_bytes()

    for reason, data in {
        "missing": five([]),
        "behind_a_chunk": five([icc, good]),
        "of_4_channels": _gray(channels=4, chunks=[groups_chunk([[0, 1, 2, 3]])]).to_bytes(),
        "twice": five([good, good]),
        "of_no_bytes": five([b"GRPS" + bytes(4)]),
        "of_one_byte": five([chunk(b"GRPS", b"\2")]),
        "count_1": five([groups_chunk([[0, 1, 2, 3, 4]])], 1),
        "count_6": five([groups_chunk([[c] for c in range(5)], 6)], 6),
        "group_of_0": five([groups_chunk([[0, 1, 2, 3], [], [4]])], 3),
        "group_of_5": five([groups_chunk([[0, 1, 2, 3, 4], []])]),
        "channel_5": five([groups_chunk([[0, 1, 2], [3, 5]])]),
        "channel_65535": five([groups_chunk([[0, 1, 2], [3, 65535]])]),
        "channel_repeated": five([groups_chunk([[0, 1, 2], [3, 3]])]),
        "channel_repeated_in_groups": five([groups_chunk([[0, 1, 2], [3, 4, 0]])]),
        "channel_missing": five([groups_chunk([[0, 1, 2], [3]])]),
        "end_within_a_number": five([chunk(b"GRPS", good[8:-3])]),
        "end_before_the_last_group": five([chunk(b"GRPS", good[8:-7])]),
        "end_late": five([chunk(b"GRPS", good[8:-1] + b"\0")]),
        "count_less_than_there_are": five([groups_chunk([[0, 1, 2], [3], [4]], 2)]),
        "index_falls_within_a_tile": five([good], index=[2, 1]),
        "large_tile_as_long_as_all_channels": five([good], 2, tile_width_log2=9),
    }.items():
        yield f"kCorruptHeader__groups_{reason}", data
    sound = five([good])
    yield "kTruncated__groups_end_before_their_number", sound[:41]
    yield "kTruncated__groups_need_a_longer_index", sound[:62]
    yield "kChecksumMismatch__groups_before_they_are_judged", _patched(sound, 43, b"\7")
    wide = Stream(1 << 16, 1 << 15, 4096, chunks=[groups_chunk([[c] for c in range(4096)])])
    yield "kTruncated__groups_of_4096_channels_of_2_to_the_31_pixels", wide.to_bytes()
    few = Stream(9, 8, 5, chunks=[good], payloads=[constant_tile([1, 2, 3])] * 2).to_bytes()
    yield "kCorruptTile__group_has_fewer_channels", few


def _bad_value_tables() -> Iterator[tuple[str, bytes]]:
    def count(number: int) -> bytes:
        return struct.pack("<I", number)

    for reason, used_bits, data in [
        ("count_0", 1, count(0)),
        ("count_above_2_to_the_sample_bits", 8, count(257) + bytes(257)),
        ("count_2_to_the_32_minus_1", 8, b"\xff" * 4 + bytes(252)),
        ("used_bits_too_large", 4, count(8) + bytes(8)),
        ("used_bits_too_small", 2, count(5) + bytes(5)),
        ("used_bits_of_one_value", 2, count(1) + bytes(1)),
        ("gaps_end_early", 2, count(4) + bytes(3)),
        ("gaps_end_within_a_gap", 2, count(4) + bytes(3) + b"\x80"),
        ("gaps_end_late", 2, count(4) + bytes(5)),
        ("gap_of_4_bytes", 2, count(4) + base128(0, 4) + bytes(3)),
        ("value_256", 2, count(4) + base128(253) + bytes(3)),
        ("gap_of_2_to_the_21_minus_1", 2, count(4) + bytes(3) + base128((1 << 21) - 1)),
    ]:
        stream = _gray(used_bits=used_bits, chunks=[chunk(b"VTAB", data)])
        yield f"kCorruptHeader__value_table_{reason}", stream.to_bytes()
    shifted = _gray(used_bits=2, shift=1, chunks=[value_table_chunk([1, 2, 3])])
    yield "kCorruptHeader__value_table_with_shift", shifted.to_bytes()
    signed = _gray(used_bits=2, is_signed=True)
    signed.chunks = [chunk(b"VTAB", count(4) + base128(253) + bytes(3))]
    yield "kCorruptHeader__value_table_value_256_signed", signed.to_bytes()
    for reason, used_bits, data in [
        ("length_3", 16, count(1 << 16)[:3]),
        ("gaps_missing", 16, count(1 << 16)),
        ("value_65536", 2, count(3) + base128(65534) + bytes(2)),
    ]:
        deep = _gray(sample_bits=16, used_bits=used_bits, chunks=[chunk(b"VTAB", data)])
        yield f"kCorruptHeader__value_table_{reason}", deep.to_bytes()


def _bad_indexes() -> Iterator[tuple[str, bytes]]:
    three = [constant_tile([i]) for i in range(3)]
    for reason, index in {"first_payload": [0, 1, 2, 3], "payload": [1, 1, 2, 3]}.items():
        stream = _gray(index=index, payloads=three)
        yield f"kCorruptHeader__index_{reason}_empty", stream.to_bytes()
    for name, index in {
        "kCorruptHeader__index_falls": [2, 1, 3, 4],
        "kCorruptHeader__index_payload_of_2_to_the_31_bytes": [1, 2, 3, 3 + (1 << 27)],
        "kTruncated__index_payload_below_2_to_the_31_bytes": [1, 2, 3, 2 + (1 << 27)],
        "kTruncated__index_beyond_file": [1, 2, 3, 5],
    }.items():
        yield name, _gray(index=index).to_bytes()


def _bad_payloads() -> Iterator[tuple[str, bytes]]:
    flat = bytes(8)
    for name, tile in {
        "kUnsupportedFeature__coding_5": payload(5, flat),
        "kUnsupportedFeature__transform_2": payload(CONSTANT, flat, transform=2),
        "kUnsupportedFeature__before_reserved": payload(255, flat, reserved=1),
        "kCorruptTile__reserved_not_zero": payload(CONSTANT, flat, reserved=256),
        "kCorruptTile__subtract_green_gray": payload(PACKED, bytes(4), transform=1),
        "kCorruptTile__constant_body_ends_early": payload(CONSTANT, flat + bytes(16)),
        "kCorruptTile__constant_missing_channel": constant_tile([1, 1]),
        "kCorruptTile__stored_passes_payload": payload(STORED, bytes(152)),
        "kCorruptTile__stored_body_ends_early": payload(STORED, bytes(168 + 16)),
        "kCorruptTile__stored_byte_after_body": payload(STORED, bytes(167) + b"\1"),
    }.items():
        yield name, _one_tile(tile)
    for coding, name in [(CONSTANT, "constant"), (STORED, "stored")]:
        tile = payload(coding, bytes(8 if coding == CONSTANT else 480), transform=1)
        yield f"kCorruptTile__subtract_green_{name}", _one_tile(tile, channels=3)
    two = payload(PACKED, bytes(8), transform=1)
    yield "kCorruptTile__subtract_green_gray_alpha", _one_tile(two, channels=2)
    large_tiles: Fields = {"tile_width_log2": 15, "tile_height_log2": 15}
    claim = Stream(1 << 16, 1 << 15, payloads=[constant_tile([0])] * 2, **large_tiles)
    yield "kCorruptHeader__large_tiles_claim_2_to_the_31_pixels", claim.to_bytes()
    stored = stored_tile(np.zeros((8, 20, 1), np.int64), 8)
    for reason, tile in {"short": stored[:-16], "long": stored + bytes(16)}.items():
        yield f"kCorruptHeader__large_tile_{reason}", _one_tile(tile, **large_tiles)
    for side in ("width", "height"):
        as_rans = payload(RANS, stored[8:])
        yield f"kCorruptTile__largest_{side}_rans", _one_tile(as_rans, **{f"tile_{side}_log2": 15})
        large: Fields = {f"tile_{side}_log2": 9, "width": 8, "height": 1}
        yield f"kCorruptTile__large_{side}_constant", _one_tile(constant_tile([1]), **large)
        packed_flat = payload(PACKED, bytes(4))
        yield f"kCorruptTile__large_{side}_packed", _one_tile(packed_flat, **large)
        large |= {"width": 32, "chunks": [rans_model_chunk(FOUR_BITS)]}
        nibbles = texture((1, 32, 1), 256, noise=9)
        tile = rans_body(nibbles, 8, FOUR_BITS, smooth([0]), [0]).to_payload()
        yield f"kCorruptTile__large_{side}_rans", _one_tile(tile, **large)
        bytes_each = match_model([[32] * 32])  # 5 bits, and 3 raw ones
        large |= {"chunks": [match_model_chunk(bytes_each, 8)]}
        tile = match_body(12 + np.arange(32)[None] % 8, bytes_each, 0).to_payload()
        yield f"kCorruptTile__large_{side}_match", _one_tile(tile, **large)

    values = np.zeros((8, 20, 1), np.int64)
    values[7, 19] = 32
    yield "kCorruptTile__constant_above_used_bits", _one_tile(constant_tile([32]), used_bits=5)
    yield "kCorruptTile__stored_above_used_bits", _one_tile(stored_tile(values, 8), used_bits=5)
    deep: Fields = {"sample_bits": 16, "used_bits": 5}
    yield "kCorruptTile__stored_above_used_bits_16", _one_tile(stored_tile(values, 16), **deep)
    for bits, name in [(8, "signed"), (16, "signed_16")]:
        few: Fields = {"sample_bits": bits, "used_bits": 5, "is_signed": True}
        yield (
            f"kCorruptTile__stored_above_used_bits_{name}",
            _one_tile(stored_tile(values, bits), **few),
        )
    few = {"used_bits": 5, "is_signed": True}
    yield "kCorruptTile__constant_above_used_bits_signed", _one_tile(constant_tile([32]), **few)
    table: Fields = {"used_bits": 6, "chunks": [value_table_chunk(range(5, 38))]}
    values[7, 19] = 33
    yield "kCorruptTile__constant_outside_value_table", _one_tile(constant_tile([33]), **table)
    yield "kCorruptTile__stored_outside_value_table", _one_tile(stored_tile(values, 8), **table)
    for name, choice in CODED.items():
        tile = packed_tile(values, 6, [choice])
        yield f"kCorruptTile__{name}_outside_value_table", _one_tile(tile, **table)
    tile = payload(PACKED, struct.pack("<BBH", LAYOUT_CONSTANT, 0, 33))
    yield "kCorruptTile__packed_constant_outside_value_table", _one_tile(tile, **table)

    good, unchecked = constant_tile([1]), bytes(4) + constant_tile([1])[4:]
    bad = constant_tile([1, 1])
    first = _gray(payloads=[good, bad, unchecked, good])
    yield "kCorruptTile__first_bad_tile_decides", first.to_bytes()
    first = _gray(payloads=[good, good, unchecked, bad])
    yield "kChecksumMismatch__first_bad_tile_decides", first.to_bytes()


def _bad_packed_bodies() -> Iterator[tuple[str, bytes]]:
    plain = PackedChannel(
        LAYOUT_ABSOLUTE,
        predictors=[0] * 8,
        codes=[[0] * 3] * 8,
        folded=[[0] * 24] * 8,
        masks=[[0] * 24] * 8,
        flags=[[0] * 3] * 8,
        row_flags=[0] * 8,
    )
    delta = replace(plain, layout=LAYOUT_DELTA)
    sparse = replace(plain, layout=LAYOUT_SPARSE)
    constant = replace(plain, layout=LAYOUT_CONSTANT)
    above_7 = [0] * 7 + [8]
    for reason, channel in {
        "base_above_used_bits": replace(plain, base=64),
        "base_above_used_bits_constant": replace(constant, base=64),
        "start_width_absolute": replace(plain, start_width=1),
        "start_width_constant": replace(constant, start_width=1),
        "start_width_sparse": replace(sparse, start_width=1),
        "start_width_above_used_bits": replace(delta, start_width=7),
        "predictor_above_7": replace(plain, predictors=above_7),
        "predictor_above_7_delta": replace(delta, predictors=above_7),
        "predictor_above_7_sparse": replace(sparse, predictors=above_7),
    }.items():
        tile = payload(PACKED, packed_body([channel], 6))
        yield f"kCorruptTile__{reason}", _one_tile(tile, used_bits=6)
    for channel in (constant, plain, delta, sparse):  # valid but for the layout's third bit
        body = packed_body([channel], 6)
        layout = channel.layout + 4
        tile = payload(PACKED, bytes([layout]) + body[1:])
        yield f"kCorruptTile__layout_{layout}", _one_tile(tile, used_bits=6)
    body = packed_body([constant, constant, replace(plain, predictors=above_7)], 6)
    yield "kCorruptTile__last_channel", _one_tile(payload(PACKED, body), used_bits=6, channels=3)

    body = packed_body([delta], 8)  # 4 + 4 + 8 bytes
    yield "kCorruptTile__packed_body_ends_early", _one_tile(payload(PACKED, body + bytes(24)))
    rest = bytes(7) + b"\1"
    yield "kCorruptTile__packed_byte_after_body", _one_tile(payload(PACKED, body + rest))

    # One row of 256 pixels: each part of a body passes the end of a payload cut at 16 * n bytes.
    wide: Fields = {"width": 256, "height": 1, "tile_width_log2": 8}
    values = texture((1, 256, 4), 256, noise=256)
    values[values == 0] = 1
    for part, channels, choice, payload_bytes in [
        ("channel_headers", 4, ABSOLUTE, 16),
        ("absolute_widths", 1, ABSOLUTE, 16),
        ("absolute_residuals", 1, ABSOLUTE, 128),
        ("delta_widths", 1, DELTA, 16),
        ("delta_residuals", 1, DELTA, 128),
        ("sparse_flags", 1, SPARSE, 16),
        ("sparse_widths", 1, SPARSE, 32),
        ("sparse_masks", 1, SPARSE, 64),
        ("sparse_residuals", 1, SPARSE, 128),
    ]:
        whole = packed_tile(values[..., :channels], 8, [choice] * channels)
        cut = payload(PACKED, whole[8:payload_bytes])
        name = f"kCorruptTile__{part}_pass_payload"
        yield name, _one_tile(cut, channels=channels, **wide)
    tall: Fields = {"width": 1, "height": 256, "tile_height_log2": 8}
    for part, choice, payload_bytes in [
        ("predictors", ABSOLUTE, 128),
        ("sparse_row_flags", SPARSE, 144),
    ]:
        whole = packed_tile(texture((256, 1, 1), 256), 8, [choice])
        cut = payload(PACKED, whole[8:payload_bytes])
        yield f"kCorruptTile__{part}_pass_payload", _one_tile(cut, **tall)


def _bad_rans_models() -> Iterator[tuple[str, bytes]]:
    good = rans_model([rans_table(5, 2), rans_table(24, 3)])
    late = good.table_of_level.copy()
    late[0, 63] = 2
    falls = np.array([[21, 20]])
    for reason, model in {
        "table_count_0": replace(good, frequency=good.frequency[:0]),
        "table_count_33": replace(good, frequency=good.frequency.repeat(17, axis=0)[:33]),
        "gradient_weight_64": replace(good, gradient_weight=64),
        "set_begin_65": replace(good, set_begin=np.array([[20, 65]])),
        "set_begin_falls": replace(good, set_begin=falls),
        "table_of_run_not_below_table_count": replace(good, table_of_level=late),
        "run_passes_level_63": replace(good, table_of_level=np.array([[1] + [0] * 64])),
        "frequencies_add_up_to_0": rans_model([[0] * 24]),
        "frequencies_add_up_to_1023": rans_model([rans_table(24, 2, total=1023)]),
        "frequencies_add_up_to_1025": rans_model([rans_table(24, 2, total=1025)]),
        "frequencies_add_up_to_66560": rans_model([[16383] * 4 + [1028]]),
        "second_table": rans_model([rans_table(24, 2), rans_table(24, 2, total=1023)]),
        "25_frequencies": rans_model([rans_table(25, 2)]),
    }.items():
        yield f"kCorruptHeader__rans_{reason}", _gray(chunks=[rans_model_chunk(model)]).to_bytes()
    third = rans_model(good.frequency, channels=3)
    third.set_begin[2] = falls
    colour = [constant_tile([i, i, i]) for i in range(4)]
    stream = _gray(chunks=[rans_model_chunk(third)], channels=3, payloads=colour)
    yield "kCorruptHeader__rans_third_position", stream.to_bytes()
    spare = rans_model_chunk(rans_model([rans_table(24, 2)]), spare_tokens=1)
    yield "kCorruptHeader__rans_25_frequencies_the_last_0", _gray(chunks=[spare]).to_bytes()
    spare = rans_model_chunk(rans_model([rans_table(40, 2)]), spare_tokens=1)
    deep: Fields = {"sample_bits": 16, "used_bits": 9}
    yield "kCorruptHeader__rans_41_frequencies", _gray(chunks=[spare], **deep).to_bytes()

    levels_only = bytes([1, 0, 20, 40, *[7 << 5] * 8])
    for reason, data in {
        "ends_in_limits": bytes([1]),
        "ends_in_set_begin": bytes([1, 0, 20]),
        "ends_in_runs": levels_only[:-1],
        "ends_before_tables": levels_only,
        "ends_in_table": levels_only + bytes([2]) + base128(1024),
        "ends_in_frequency": levels_only + bytes([2]) + base128(1024) + b"\x80",
        "ends_late": levels_only + bytes([1]) + base128(1024) + bytes(1),
        "frequency_of_3_bytes": levels_only + bytes([1]) + base128(1024, 3),
    }.items():
        yield f"kCorruptHeader__rans_{reason}", _gray(chunks=[chunk(b"RANS", data)]).to_bytes()


def _one_token_body(channels: int = 1) -> RansBody:
    """For 20 by 8 pixels of 0, with 8 lanes; no lane needs a word."""
    states = np.full(8, 1 << 16)
    return RansBody([0] * channels, smooth([0] * channels), states, np.empty(0, np.int64))


def _bad_rans_bodies() -> Iterator[tuple[str, bytes]]:
    one_token: Fields = {"chunks": [rans_model_chunk(ONE_TOKEN)]}
    good = _one_token_body()
    first = (np.arange(8) == 0).astype(np.int64)
    word = np.zeros(1, np.int64)  # after 1 it makes the state that a lane must end in
    for reason, body in {
        "sets_4": replace(good, coefficients=smooth([4])),
        "sets_of_missing_position": replace(good, sets=[0, 0, 0, 1]),
        "base_of_missing_position": replace(good, base=[0, 0, 0, 1]),
        "first_state_1": replace(good, states=good.states - 65535 * first, words=word),
        "last_state_1": replace(good, states=good.states - 65535 * first[::-1], words=word),
        "first_end_state": replace(good, states=good.states + first),
        "last_end_state": replace(good, states=good.states + first[::-1]),
        "end_state_2_to_the_31": replace(good, states=good.states << 15 * first),
    }.items():
        yield f"kCorruptTile__rans_{reason}", _one_tile(body.to_payload(), **one_token)
    tile = replace(good, base=[32]).to_payload()
    yield "kCorruptTile__rans_base_above_used_bits", _one_tile(tile, used_bits=5, **one_token)
    colour = rans_model_chunk(rans_model([[1024]], channels=3))
    for reason, body in {
        "third_sets_4": replace(_one_token_body(3), coefficients=smooth([0, 0, 4])),
        "third_base_above_used_bits": replace(_one_token_body(3), base=[0, 0, 32]),
    }.items():
        data = _one_tile(body.to_payload(), channels=3, used_bits=5, chunks=[colour])
        yield f"kCorruptTile__rans_{reason}", data
    tile = payload(RANS, _one_token_body(3).to_bytes(), transform=1)
    yield "kCorruptTile__subtract_green_rans", _one_tile(tile, channels=3, chunks=[colour])
    for reason, rest in {  # behind a body of 44 bytes and a header of 8
        "byte_after_body": bytes(11) + b"\1",
        "body_ends_early": bytes(28),
    }.items():
        tile = payload(RANS, good.to_bytes() + rest)
        yield f"kCorruptTile__rans_{reason}", _one_tile(tile, **one_token)
    values = np.zeros((8, 20, 1), np.int64)
    values[7, 19] = 33
    model = spread_model(6, 1)
    chunks = [value_table_chunk(range(5, 38)), rans_model_chunk(model)]
    tile = rans_body(values, 6, model, smooth([0]), [0]).to_payload()
    yield "kCorruptTile__rans_outside_value_table", _one_tile(tile, used_bits=6, chunks=chunks)

    whole = replace(good, coefficients=smooth([3])).to_payload()  # 8, 12, 24 and 32 bytes
    for part, payload_bytes in {"header": 16, "coefficients": 32, "states": 64}.items():
        cut = payload(RANS, whole[8:payload_bytes])
        yield f"kCorruptTile__rans_{part}_pass_payload", _one_tile(cut, **one_token)
    for bits, reason in [(8, "words"), (16, "words_of_16_bits")]:
        model = spread_model(bits, 1)
        images = (texture((8, 20, 1), 1 << bits, noise) for noise in range(8, 40))
        bodies = (rans_body(v, bits, model, smooth([0]), [0]).to_bytes() for v in images)
        body_bytes = next(body for body in bodies if len(body) % 16 == 10)
        tile = payload(RANS, body_bytes[:-2])  # just the last word lies outside
        deep: Fields = {"sample_bits": bits, "used_bits": bits}
        data = _one_tile(tile, chunks=[rans_model_chunk(model)], **deep)
        yield f"kCorruptTile__rans_{reason}_pass_payload", data


def _bad_match_models() -> Iterator[tuple[str, bytes]]:
    good = match_model([rans_table(5, 2), rans_table(40, 3)], [[7], [9]])
    late = good.table_of_context.copy()
    late[63] = 2
    for reason, model in {
        "table_count_0": replace(good, frequency=good.frequency[:0]),
        "table_count_33": replace(good, frequency=good.frequency.repeat(17, axis=0)[:33]),
        "33_tables_beside_built_in": replace(
            good, frequency=good.frequency.repeat(11, axis=0)[:21]
        ),
        "table_of_run_not_below_table_count": replace(good, table_of_context=late),
        "run_passes_context_63": replace(good, table_of_context=np.array([1] + [0] * 64)),
        "frequencies_add_up_to_1023": match_model([rans_table(24, 2, total=1023)]),
    }.items():
        data = _gray(chunks=[match_model_chunk(model, 8)]).to_bytes()
        yield f"kCorruptHeader__match_{reason}", data
    spare = match_model_chunk(match_model([rans_table(40, 2)]), 8, spare_tokens=1)
    yield "kCorruptHeader__match_41_frequencies", _gray(chunks=[spare]).to_bytes()
    two = replace(good, frequency=good.frequency[:1].repeat(2, axis=0))
    chunks = [match_model_chunk(two, 8), rans_model_chunk(rans_model([rans_table(9, 2)] * 31))]
    yield "kCorruptHeader__match_33_tables_with_rans", _gray(chunks=chunks).to_bytes()
    colour = [constant_tile([i, i, i]) for i in range(4)]
    stream = _gray(chunks=[match_model_chunk(LIKE_WEST, 8)], channels=3, payloads=colour)
    yield "kCorruptHeader__match_values_of_3_channels", stream.to_bytes()
    colour = [constant_tile([i, i, i, i]) for i in range(4)]
    deep = match_model([[1024]], [[0, 0, 0, 0]])
    stream = _gray(
        chunks=[match_model_chunk(deep, 15)], channels=4, sample_bits=16, used_bits=15,
        payloads=colour,
    )  # fmt: skip
    yield "kCorruptHeader__match_colours_of_60_bits", stream.to_bytes()

    runs_only = bytes([1, *[7 << 5] * 8])
    head = runs_only + bytes([1]) + base128(1024)
    chunks = [groups_chunk([[0, 1, 2], [3, 4]]), chunk(b"MTCH", head + bytes([1, 0, 0]))]
    many = _gray(channels=5, chunks=chunks, payloads=[constant_tile([1])] * 8)
    yield "kCorruptHeader__match_in_channel_groups", many.to_bytes()
    for reason, data in {
        "ends_in_runs": runs_only[:-1],
        "ends_before_tables": runs_only,
        "ends_in_table": runs_only + bytes([2]) + base128(1024),
        "ends_before_count": head,
        "ends_in_count": head + bytes([1]),
        "ends_before_gaps": head + bytes([1, 0]),
        "ends_in_gap": head + bytes([1, 0, 0x80]),
        "ends_late": head + bytes([1, 0, 5, 5]),
        "65533_colours": head + struct.pack("<H", 65533) + bytes(65533),
        "gap_of_9_bytes": head + bytes([1, 0]) + base128(1, 9),
        "key_256": head + bytes([2, 0]) + base128(255) + base128(0),
        "key_256_in_second_block": head + bytes([17, 0]) + bytes(16) + base128(256),
    }.items():
        yield f"kCorruptHeader__match_{reason}", _gray(chunks=[chunk(b"MTCH", data)]).to_bytes()


def _bad_match_bodies() -> Iterator[tuple[str, bytes]]:
    # For 20 by 8 pixels of number 0, with 8 lanes.
    like_west: Fields = {"chunks": [match_model_chunk(LIKE_WEST, 8)]}
    good = match_body(np.zeros((8, 20), np.int64), LIKE_WEST, 0)
    read = replace(good, skips=0 * good.skips)
    first = (np.arange(8) == 0).astype(np.int64)
    word = np.zeros(1, np.int64)
    yield "kCorruptTile__match_without_chunk", _one_tile(good.to_payload())
    for reason, body in {
        "first_state_1": replace(read, states=read.states - 65535 * first, words=word),
        "last_state_1": replace(read, states=read.states - 65535 * first[::-1], words=word),
        "state_1_all_skipped": replace(good, states=good.states - 65535 * first),
        "first_end_state": replace(read, states=read.states + first),
        "last_end_state": replace(read, states=read.states + first[::-1]),
        "end_state_all_skipped": replace(good, states=good.states + first),
    }.items():
        yield f"kCorruptTile__match_{reason}", _one_tile(body.to_payload(), **like_west)
    tile = replace(good, base=32).to_payload()
    yield "kCorruptTile__match_base_above_used_bits", _one_tile(tile, used_bits=5, **like_west)
    two = match_model([rans_table(40, 2)], [[7], [9]])
    fields: Fields = {"chunks": [match_model_chunk(two, 8)]}
    blank = np.zeros((8, 20), np.int64)
    tile = match_body(blank, two, 2).to_payload()
    yield "kCorruptTile__match_base_without_colour", _one_tile(tile, **fields)
    for number in (2, 65531):
        blank[7, 19] = number
        tile = match_body(blank, two, 0).to_payload()
        yield f"kCorruptTile__match_number_{number}_of_2", _one_tile(tile, **fields)
    values = match_model([rans_table(40, 2)])
    blank[7, 19] = 33
    chunks = [value_table_chunk(range(5, 38)), match_model_chunk(values, 6)]
    tile = match_body(blank, values, 0).to_payload()
    yield "kCorruptTile__match_outside_value_table", _one_tile(tile, used_bits=6, chunks=chunks)
    blank[7, 19] = 64
    tile = match_body(blank, values, 0).to_payload()
    chunks = [match_model_chunk(values, 6)]
    yield "kCorruptTile__match_value_64_of_6_bits", _one_tile(tile, used_bits=6, chunks=chunks)
    coloured = match_model([rans_table(40, 2)], [[7], [33]])
    chunks = [value_table_chunk(range(5, 38)), match_model_chunk(coloured, 6)]
    tile = match_body(blank // 64, coloured, 0).to_payload()
    yield (
        "kCorruptTile__match_colour_outside_value_table",
        _one_tile(tile, used_bits=6, chunks=chunks),
    )
    colour = match_model([[1024]], [[1, 2, 3]])
    tile = payload(MATCH, match_body(0 * blank, colour, 0).to_bytes(), transform=1)
    chunks = [match_model_chunk(colour, 8)]
    yield "kCorruptTile__subtract_green_match", _one_tile(tile, channels=3, chunks=chunks)
    for reason, rest in {  # behind a body of 36 bytes and a header of 8
        "byte_after_body": bytes(3) + b"\1",
        "body_ends_early": bytes(20),
    }.items():
        tile = payload(MATCH, good.to_bytes() + rest)
        yield f"kCorruptTile__match_{reason}", _one_tile(tile, **like_west)
    whole = good.to_payload()
    for part, payload_bytes in {"first_state": 16, "states": 32}.items():
        tile = payload(MATCH, whole[8:payload_bytes])
        yield f"kCorruptTile__match_{part}_pass_payload", _one_tile(tile, **like_west)
    pictures = (texture((8, 20, 1), 256, noise)[..., 0] for noise in range(1, 90))
    bodies = (match_body(picture, values, 0).to_bytes() for picture in pictures)
    body_bytes = next(body for body in bodies if len(body) % 16 == 10)
    tile = payload(MATCH, body_bytes[:-2])  # just the last word lies outside
    yield (
        "kCorruptTile__match_words_pass_payload",
        _one_tile(tile, chunks=[match_model_chunk(values, 8)]),
    )


def all_files() -> dict[Path, bytes]:
    """Every file, by its path."""
    files: dict[Path, bytes] = {}
    entries: list[dict[str, Any]] = []

    def add(folder: str, name: str, data: bytes, status: str, **decoded: Any) -> None:
        files[TESTS / folder / f"{name}.l3"] = data
        entry = {"file": f"{folder}/{name}.l3", "status": status, **decoded}
        entries.append(entry | {"rules": shown_by(name)})

    for name, (data, samples) in golden_files():
        dtype = Header.from_bytes(data).dtype
        add(
            "golden/v1",
            name,
            data,
            "kOk",
            shape=samples.shape,
            dtype=dtype.name,
            sha256=hashlib.sha256(samples.astype(dtype).tobytes()).hexdigest(),
        )
    for name, data in invalid_files():
        add("invalid", name, data, name.split("__")[0])
    files[MANIFEST] = (json.dumps({"version": 1, "files": entries}, indent=1) + "\n").encode()
    return files


def main() -> int:
    """Writes or checks the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    files = all_files()
    present = {p for folder in ("golden/v1", "invalid") for p in (TESTS / folder).glob("*.*")}
    present |= {MANIFEST, FROZEN} & {*TESTS.glob("*.json"), *TESTS.glob("*.sha256")}
    frozen = dict(line.split("  ")[::-1] for line in FROZEN.read_text().splitlines())
    hashes = {
        str(path.relative_to(TESTS)): hashlib.sha256(data).hexdigest()
        for path, data in files.items()
        if path.suffix == ".l3"
    }
    broken = [name for name, digest in frozen.items() if hashes.get(name) != digest]
    for name in broken:
        print(f"{name} is frozen, and make_golden.py makes another")
    if broken:
        return 1
    lines = [f"{digest}  {name}\n" for name, digest in (frozen | hashes).items()]
    files[FROZEN] = "".join(lines).encode()  # new ones come last
    stale = present - files.keys()
    differing = {p for p, data in files.items() if p not in present or p.read_bytes() != data}
    if check:
        for path in sorted(stale | differing):
            print(f"{path.relative_to(TESTS)} is not what make_golden.py makes")
        return 1 if stale or differing else 0
    for path in stale:
        path.unlink()
    for path in differing:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[path])
    print(f"{len(files)} files, {len(differing)} changed, {len(stale)} removed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
