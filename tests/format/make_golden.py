"""Writes tests/golden/v1, tests/invalid and their manifest; --check fails if a file differs.

The files are frozen with the format: none of them changes or goes any more (test_golden.py). New
files may come, and are named there. The manifest's digests are of
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
from collections.abc import Iterable, Iterator, Sequence
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
    MatchBody,
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
Samples = NDArray[Any]
Fields = dict[str, Any]
File = tuple[bytes, Samples]  # and what it must decode to


def texture(shape: tuple[int, int, int], limit: int, noise: int = 8, flat: int = 1) -> Samples:
    """A picture of values below `limit`: a slope and noise; one pixel in `flat` is not flat."""
    h, w, c = shape
    y, x, channel = np.ogrid[:h, :w, :c]
    places = np.arange(h * w * c, dtype=np.uint32).reshape(shape)
    slope = (x + 2 * y + 40 * channel) * limit // 512
    grain = np.where(mix(places + np.uint32(7)) % flat == 0, mix(places) % noise, 0)
    values: Samples = (slope // flat + grain) % limit
    return values


def wide_tiles(
    width: int, height: int, channels: int = 1, bits: int = 8, used_bits: int = 8, shift: int = 0
) -> Stream:
    """With tiles of 64 by 64 pixels, which have up to 32 lanes and two rows each."""
    return Stream(width, height, channels, bits, used_bits, shift, 6, 6)


def with_table(stream: Stream, table: Sequence[int]) -> Stream:
    """With a value table, and as many used bits as it wants."""
    used_bits = max(1, (len(table) - 1).bit_length())
    return replace(stream, used_bits=used_bits, chunks=[value_table_chunk(table)], table=table)


def stored(stream: Stream, values: Samples) -> File:
    """A file with all tiles stored, and its samples."""
    stream.payloads = [stored_tile(tile, stream.sample_bits) for tile in stream.tiles_of(values)]
    return stream.to_bytes(), stream.samples_of(values)


def constant(stream: Stream, values: Samples) -> File:
    """A file with all tiles constant, and its samples."""
    stream.payloads = [constant_tile(tile[0, 0].tolist()) for tile in stream.tiles_of(values)]
    return stream.to_bytes(), stream.samples_of(values)


def packed(
    stream: Stream, values: Samples, choices: Sequence[ChannelChoice], transform: int = 0
) -> File:
    """A file with all tiles packed in one way, and its samples."""
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
) -> File:
    """A file with all tiles in rans, and its samples.

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
) -> File:
    """A file with all tiles in match, and its samples.

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
FIVE_TO_37 = value_table_chunk(range(5, 38))
ALL_PREDICTORS = tuple(range(8))
SIZES = [
    (1, 1), (1, 40), (2, 9), (3, 5), (4, 4), (7, 9), (8, 3), (16, 16), (31, 20), (33, 9), (63, 40),
    (64, 33), (40, 1),
]  # fmt: skip
ABSOLUTE = ChannelChoice(LAYOUT_ABSOLUTE, ALL_PREDICTORS)
DELTA = ChannelChoice(LAYOUT_DELTA, ALL_PREDICTORS)
SPARSE = ChannelChoice(LAYOUT_SPARSE, ALL_PREDICTORS)
FLAT = ChannelChoice(LAYOUT_CONSTANT)
CODED = {"absolute": ABSOLUTE, "delta": DELTA, "sparse": SPARSE}


def encoded_sample() -> Samples:
    """What the encoder wrote encoder_effort_9.l3 from: large enough for a model of its own."""
    return texture((150, 310, 3), 256, noise=4)


def golden_files() -> Iterator[tuple[str, File]]:
    """Yields names, files and the samples they must decode to."""
    # Written once, by `l3dali.encode(..., effort=9, tile=(128, 128))`.
    encoded = TESTS / "golden/v1/encoder_effort_9.l3"
    yield encoded.stem, (encoded.read_bytes(), encoded_sample())

    small = Stream(45, 19)  # 2 by 3 tiles, those at the edges cut short
    gray = texture((19, 45, 1), 256)
    speckled = texture((19, 45, 1), 256, noise=200, flat=30)

    yield "stored", stored(small, gray)
    steps = np.zeros_like(gray)
    for i, tile in enumerate(small.tiles_of(steps)):
        tile[:] = 40 * i + 1
    yield "constant", constant(small, steps)

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
        yield f"bits_{used_bits}_of_{sample_bits}_stored", stored(stream, values)

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
        yield f"tile_{1 << width_log2}x{1 << height_log2}_stored", stored(stream, gray)

    for sample_bits, count in [(8, 1), (8, 5), (8, 256), (16, 2), (16, 300)]:
        stream = with_table(Stream(45, 19, 1, sample_bits), _table(sample_bits, count))
        file = packed(stream, texture((19, 45, 1), count), [SPARSE])
        yield f"value_table_{count}_of_{sample_bits}_bits", file
    stream = with_table(Stream(45, 19), [3, 4])
    stream.chunks = [chunk(b"VTAB", struct.pack("<I", 2) + base128(3, 3) + base128(0, 2))]
    yield "value_table_long_gaps", packed(stream, texture((19, 45, 1), 2), [DELTA])

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
) -> File:
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
    return stream.to_bytes(), stream.samples_of(samples)


def _golden_group_files() -> Iterator[tuple[str, File]]:
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
    ranks = texture((19, 45, 7), 20)
    stream = with_table(Stream(45, 19, 7), _table(8, 20))
    stream.chunks.insert(0, groups_chunk([[6, 5, 4], [3, 2, 1, 0]]))
    for tile in stream.tiles_of(ranks):
        for group in ([6, 5, 4], [3, 2, 1, 0]):
            stream.payloads.append(packed_tile(tile[..., group], 5, [SPARSE] * len(group)))
    yield "groups_value_table", (stream.to_bytes(), stream.samples_of(ranks))
    large = texture((19, 45, 5), 256)
    stream = Stream(45, 19, 5, tile_width_log2=9, tile_height_log2=3)
    stream.chunks = [groups_chunk([[1], [0, 2, 3, 4]])]
    for tile in stream.tiles_of(large):
        stream.payloads += [stored_tile(tile[..., group], 8) for group in ([1], [0, 2, 3, 4])]
    yield "groups_large_tiles_stored", (stream.to_bytes(), large)


def _golden_rans_files() -> Iterator[tuple[str, File]]:
    # Tiles of 64 columns, 32 lanes and up to two rows each, and of 6 columns and 2 lanes.
    for channels in (1, 2, 3, 4):
        for bits in (8, 16):
            values = texture((66, 70, channels), 1 << bits, noise=bits * bits, flat=2)
            name = f"rans_{channels}_channels_{bits}_bits"
            one, built_in = (wide_tiles(70, 66, channels, bits, bits) for _ in range(2))
            yield name, rans(one, values, spread_model(bits, channels), smooth([3] * channels), 200)
            yield f"{name}_built_in", rans(built_in, values, None, smooth([1] * channels))

    for width, height in SIZES:
        values = texture((height, width, 3), 256)
        file = rans(wide_tiles(width, height, 3), values, spread_model(8, 3), smooth([2] * 3))
        yield f"rans_size_{width}x{height}", file
    one = Stream(261, 260, tile_width_log2=8, tile_height_log2=8)
    values = texture((260, 261, 1), 256, noise=2)
    yield "rans_tile_256x256", rans(one, values, spread_model(8, 1), smooth([2]))

    colour = texture((19, 45, 3), 256)
    for sets in range(4):
        file = rans(wide_tiles(45, 19, 3), colour, spread_model(8, 3), smooth([sets] * 3), 99)
        yield f"rans_sets_{sets}", file
    mixed = texture((19, 45, 4), 256)
    file = rans(wide_tiles(45, 19, 4), mixed, spread_model(8, 4), smooth([0, 3, 1, 2]))
    yield "rans_sets_by_position", file
    extreme = [np.resize([-128, 127, 127, -128, 127], (3, taps)) for taps in TAP_COUNTS]
    yield "rans_extreme_coefficients", rans(wide_tiles(45, 19, 3), colour, None, extreme)
    gray = texture((19, 45, 1), 256)
    model = replace(spread_model(8, 1), set_begin=np.array([[0, 64]]))
    yield "rans_set_begin_0_and_64", rans(wide_tiles(45, 19), gray, model, smooth([3]))

    for used_bits, shift in [(1, 15), (7, 0), (8, 8), (9, 0), (12, 4)]:
        values = texture((19, 45, 3), 1 << used_bits, noise=1 << used_bits, flat=2)
        one = wide_tiles(45, 19, 3, 16, used_bits, shift)
        yield f"rans_bits_{used_bits}_of_16", rans(one, values, spread_model(used_bits, 3))
    noise = texture((40, 70, 3), 1 << 16, noise=1 << 16)
    yield "rans_noise_16_bits", rans(wide_tiles(70, 40, 3, 16, 16), noise, spread_model(16, 3))

    for weight in (0, 63):
        model = replace(spread_model(8, 1), gradient_weight=weight)
        yield f"rans_gradient_weight_{weight}", rans(wide_tiles(45, 19), gray, model)
    yield "rans_32_tables", rans(wide_tiles(45, 19), gray, spread_model(8, 1, 32))
    flat = np.full((19, 45, 1), 7)  # no word is read: the only token there is takes no bits
    yield "rans_one_token", rans(wide_tiles(45, 19), flat, rans_model([[1024]]), base=7)
    step = np.where(np.arange(45) < 20, 0, 18) * np.ones((19, 1), np.int64)
    model = rans_model([[1000, *[0] * 17, 24, *[0] * 5]])  # residuals of 0, and of 18 in row 0
    yield "rans_zero_frequencies", rans(wide_tiles(45, 19), step[..., None], model)

    model = spread_model(5, 1)
    one = wide_tiles(45, 19, 1, 8, 5, 3)
    one.chunks = [rans_model_chunk(model)]
    values = gray % 32
    one.payloads = [rans_body(values, 5, model, smooth([0]), [0], laps=1).to_payload()]
    yield "rans_residuals_beyond_used_bits", (one.to_bytes(), values << 3)
    for sample_bits, count in [(8, 5), (16, 300)]:
        one = with_table(wide_tiles(45, 19, 3, sample_bits), _table(sample_bits, count))
        file = rans(
            one, texture((19, 45, 3), count), spread_model(one.used_bits, 3), smooth([1] * 3)
        )
        yield f"rans_value_table_{count}_of_{sample_bits}_bits", file


def _golden_match_files() -> Iterator[tuple[str, File]]:
    for channels, bits in [(1, 8), (2, 8), (3, 8), (4, 8), (1, 16), (2, 16), (3, 16)]:
        values = drawing((66, 70, channels), 1 << bits)
        yield (
            f"match_{channels}_channels_{bits}_bits",
            match(wide_tiles(70, 66, channels, bits, bits), values, base=3),
        )
    values = drawing((66, 70, 4), 1 << 14)
    yield "match_4_channels_14_bits", match(wide_tiles(70, 66, 4, 16, 14), values)
    for bits, base in [(8, 200), (16, 65535)]:
        values = drawing((66, 70, 1), 60000) % (1 << bits)
        file = match(wide_tiles(70, 66, 1, bits, bits), values, has_colors=False, base=base)
        yield f"match_values_of_{bits}_bits", file

    for width, height in SIZES:
        values = drawing((height, width, 3), 256)
        yield f"match_size_{width}x{height}", match(wide_tiles(width, height, 3), values)
    one = Stream(261, 260, tile_width_log2=8, tile_height_log2=8)
    values = drawing((260, 261, 1), 6, 6) // 5
    yield "match_tile_256x256", match(one, values)
    for steps, width, height in [(256, 4, 127), (256, 8, 125), (256, 64, 97), (260, 4, 129)]:
        one = Stream(width, height, tile_width_log2=8, tile_height_log2=8)
        values = drawing((height, width, 1), 6, 6) // 5
        yield f"match_steps_{steps}_of_{width}x{height}", match(one, values)
    values = np.zeros((64, 64, 3), np.int64)
    values[63, 63] = 255  # all blocks of steps are skipped but for the last
    yield "match_last_pixel", match(wide_tiles(64, 64, 3), values)

    for colors in (1, 15, 16, 17, 31, 32, 33, 2000):
        values = drawing((45, 70, 3), 256, colors)
        values[0, :2] = [9, 8, 7]  # never constant
        yield f"match_{colors}_colours", match(wide_tiles(70, 45, 3), values)
    gray = drawing((45, 70, 1), 256)
    tables = np.array([rans_table(40, 2 + t) for t in range(20)])
    yield "match_20_tables_beside_built_in", match(wide_tiles(70, 45), gray, tables)
    tables = np.array([rans_table(40, 2 + t) for t in range(31)])
    one = wide_tiles(70, 45)
    one.chunks = [rans_model_chunk(ONE_TOKEN)]
    yield "match_31_tables_beside_one", match(one, gray, tables)
    for channels, bits, used in [(1, 8, 8), (3, 8, 6), (1, 16, 12), (3, 16, 16)]:
        one = replace(wide_tiles(45, 19, channels, bits, used, bits - used), is_signed=True)
        values = drawing((19, 45, channels), 1 << used)
        file = match(one, values, has_colors=channels > 1)
        yield f"match_signed_{channels}_channels_{used}_of_{bits}_bits", file
    yield "match_shift", match(wide_tiles(45, 19, 1, 8, 5, 3), drawing((19, 45, 1), 32))
    for sample_bits, count, channels in [(8, 5, 3), (16, 300, 2), (16, 300, 1)]:
        one = with_table(wide_tiles(45, 19, channels, sample_bits), _table(sample_bits, count))
        file = match(one, drawing((19, 45, channels), count), has_colors=channels > 1)
        yield f"match_value_table_{count}_of_{channels}_channels", file


def _golden_signed_files() -> Iterator[tuple[str, File]]:
    for bits, used_bits, shift in [
        (8, 8, 0), (8, 3, 2), (8, 1, 7), (16, 16, 0), (16, 13, 0), (16, 12, 4), (16, 8, 0),
        (16, 7, 3), (16, 1, 0),
    ]:  # fmt: skip
        values = texture((19, 45, 3), 1 << used_bits, noise=1 << used_bits, flat=2)
        one = Stream(45, 19, 3, bits, used_bits, shift, is_signed=True)
        name = f"int{bits}_{used_bits}_bits_shift_{shift}"
        yield f"{name}_packed", packed(one, values, [DELTA, ABSOLUTE, SPARSE], used_bits % 2)
        yield f"{name}_stored", stored(one, values)
        one = replace(one, tile_width_log2=6, tile_height_log2=6)
        yield f"{name}_rans", rans(one, values, spread_model(used_bits, 3), smooth([1] * 3))
    for bits, channels in [(8, 1), (8, 4), (16, 1), (16, 2)]:
        values = texture((66, 70, channels), 1 << bits, noise=bits)
        one = Stream(70, 66, channels, bits, bits, is_signed=True)
        yield f"int{bits}_{channels}_channels_packed", packed(one, values, [DELTA])
        one = replace(one, tile_width_log2=6, tile_height_log2=6)
        yield f"int{bits}_{channels}_channels_rans", rans(one, values, None)
        steps = np.zeros_like(values)
        for i, tile in enumerate(one.tiles_of(steps)):
            tile[:] = np.array([60, 128, 250, 0])[:channels] + i
        yield f"int{bits}_{channels}_channels_constant", constant(one, steps)
    values = texture((19, 45, 2), 1 << 11, noise=200)
    one = Stream(45, 19, 2, 16, 11, 1, 15, 15, is_signed=True)
    yield "int16_tile_32768x32768_stored", stored(one, values)
    for bits, count in [(8, 1), (8, 5), (8, 256), (16, 300)]:
        step = 1 if count == 256 else 3
        table = [(1 << bits) // 2 - count // 2 * step + step * i for i in range(count)]
        ranks = texture((19, 45, 3), count)
        one = with_table(Stream(45, 19, 3, bits, is_signed=True), table)
        yield f"int{bits}_value_table_{count}_packed", packed(one, ranks, [SPARSE])
        one = replace(one, tile_width_log2=6, tile_height_log2=6)
        file = rans(one, ranks, spread_model(one.used_bits, 3), smooth([1] * 3))
        yield f"int{bits}_value_table_{count}_rans", file


def _table(sample_bits: int, count: int) -> list[int]:
    """Distinct samples in rising order: squares, as far as they leave room."""
    return [min(i * i, (1 << sample_bits) - 1 - count + i) for i in range(1, count + 1)]


def _all_features() -> File:
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


Cases = Iterator[tuple[str, bytes]]


def invalid_files() -> Cases:
    """Yields names and files, in the order of format.md."""
    for part in (
        _bad_files, _bad_headers, _bad_chunks, _bad_groups, _bad_value_tables, _bad_indexes,
        _bad_payloads, _bad_packed_bodies, _bad_rans_models, _bad_rans_bodies, _bad_match_models,
        _bad_match_bodies,
    ):  # fmt: skip
        yield from part()


def _named(prefix: str, cases: dict[str, bytes]) -> Cases:
    for name, data in cases.items():
        yield prefix + name, data


def _gray(*chunks: bytes, **fields: object) -> bytes:
    """A file of 2 by 2 tiles, with its fields replaced."""
    stream = Stream(40, 10, chunks=[*chunks], payloads=[constant_tile([i]) for i in range(4)])
    return replace(stream, **fields).to_bytes()  # type: ignore[arg-type]


def _one(tile: bytes | RansBody | MatchBody, *chunks: bytes, **fields: object) -> bytes:
    """A file of one tile of 20 by 8 pixels, with its fields replaced."""
    data = tile if isinstance(tile, bytes) else tile.to_payload()
    stream = Stream(20, 8, chunks=[*chunks], payloads=[data])
    return replace(stream, **fields).to_bytes()  # type: ignore[arg-type]


def _patched(data: bytes, place: int | str, patch: bytes) -> bytes:
    """With other bytes at an offset, or at a field of the header."""
    offset = HEADER_OFFSETS[place] if isinstance(place, str) else place
    return data[:offset] + patch + data[offset + len(patch) :]


def _last(value: int) -> Samples:
    """Values of a tile of 20 by 8 pixels: 0, but for the last."""
    values = np.zeros((8, 20, 1), np.int64)
    values[7, 19] = value
    return values


def _bad_files() -> Cases:
    data = _gray(chunk(b"icc ", b"1234"))  # index 44 to 60, CRC to 64
    padded = _gray()  # index 32 to 48, CRC to 52, padding to 64
    yield from {
        "kTruncated__empty_file": b"",
        "kTruncated__ends_in_signature": data[:5],
        "kTruncated__ends_in_header": data[:31],
        "kTruncated__ends_in_chunks": data[:40],
        "kTruncated__ends_in_index": data[:50],
        "kTruncated__ends_in_index_crc": data[:63],
        "kTruncated__ends_before_payloads": data[:64],
        "kTruncated__ends_in_last_payload": data[:-1],
        "kTruncated__claims_2_to_the_31_pixels": Stream(1 << 16, 1 << 15).to_bytes()[:40],
        "kTruncated__ends_in_padding": padded[:60],
        "kTruncated__before_padding_is_judged": _patched(padded, 55, b"\1")[:-1],
        "kCorruptHeader__padding_not_zero": _patched(padded, 63, b"\1"),
        "kCorruptHeader__bytes_after_last_payload": data + bytes(16),
        "kBadMagic__text_mode_transfer": data.replace(b"\r\n", b"\n"),
        "kBadMagic__top_bit_stripped": _patched(data, 0, b"\x0b"),
        "kBadMagic__short_and_different": b"\x89PNG",
        "kUnsupportedVersion__2": _gray(version=2),
        "kUnsupportedVersion__before_header_crc": _patched(data, "version", b"\2"),
        "kChecksumMismatch__header_crc": _patched(data, "header_crc", bytes(4)),
        "kChecksumMismatch__before_header_fields": _patched(data, "channels", b"\0"),
        "kChecksumMismatch__index_crc": _patched(data, 60, bytes(4)),
        "kChecksumMismatch__before_chunks": _patched(data, 32, b"\0"),
        "kChecksumMismatch__tile": _patched(data, 64, bytes(4)),
        "kChecksumMismatch__before_coding": _patched(data, 68, b"\7"),
    }.items()


def _bad_headers() -> Cases:
    # Fields of a byte each: channels, bits, used bits, shift, tile sides, meaning.
    before = [
        repair(_patched(_gray(), "sample_type", bytes(fields)))
        for fields in ([1, 8, 8, 0, 5, 3, 0], [3, 16, 12, 4, 8, 6, 0])
    ]
    cases = {
        "channels_0": _gray(channels=0),
        "channels_4097": _gray(channels=4097),
        "channels_65535": _gray(channels=65535),
        "sample_type_4": _gray(sample_type=4),
        "sample_type_255": _gray(sample_type=255),
        "used_bits_0": _gray(used_bits=0),
        "used_bits_0_signed": _gray(is_signed=True, used_bits=0),
        "used_bits_above_sample_bits": _gray(used_bits=9),
        "used_bits_above_sample_bits_signed": _gray(is_signed=True, used_bits=9),
        "shift_too_large": _gray(used_bits=6, shift=3),
        "shift_too_large_signed": _gray(is_signed=True, used_bits=6, shift=3),
        "tile_width_log2_4": _gray(tile_width_log2=4),
        "tile_height_log2_2": _gray(tile_height_log2=2),
        "meaning_2": _gray(meaning=2),
        "width_0": _gray(width=0),
        "height_0": _gray(height=0),
        "pixels_above_2_to_the_31": _gray(width=1 << 16, height=(1 << 15) + 1),
        "chunks_bytes_not_multiple_of_4": _gray(chunks_bytes=2),
        "chunks_bytes_above_2_to_the_28": _gray(chunks_bytes=(1 << 28) + 4),
        "of_a_file_written_before_gray": before[0],
        "of_a_file_written_before_16_bits_shifted": before[1],
    }
    return _named("kCorruptHeader__", cases)


def _bad_chunks() -> Cases:
    icc, required = chunk(b"icc ", b"1"), chunk(b"NEED", b"")
    cases = {
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
        "first_bad_chunk_decides": [icc, icc, required],
    }
    yield from _named("kCorruptHeader__", {name: _gray(*case) for name, case in cases.items()})
    yield "kUnsupportedFeature__required_chunk", _gray(icc, required)
    late = _gray(required, icc, icc, index=[0, 0, 0, 0])
    yield "kUnsupportedFeature__before_later_chunks_and_index", late


def _bad_groups() -> Cases:
    good = groups_chunk([[0, 1, 2], [3, 4]])
    icc = chunk(b"icc ", b"1")

    def five(*chunks: bytes, payloads: int = 2, **fields: Any) -> bytes:
        tiles = [constant_tile([1])] * payloads
        return Stream(9, 8, 5, chunks=[*chunks], payloads=tiles, **fields).to_bytes()

    cases = {
        "missing": five(),
        "behind_a_chunk": five(icc, good),
        "of_4_channels": _gray(groups_chunk([[0, 1, 2, 3]]), channels=4),
        "twice": five(good, good),
        "of_no_bytes": five(b"GRPS" + bytes(4)),
        "of_one_byte": five(chunk(b"GRPS", b"\2")),
        "count_1": five(groups_chunk([[0, 1, 2, 3, 4]]), payloads=1),
        "count_6": five(groups_chunk([[c] for c in range(5)], 6), payloads=6),
        "group_of_0": five(groups_chunk([[0, 1, 2, 3], [], [4]]), payloads=3),
        "group_of_5": five(groups_chunk([[0, 1, 2, 3, 4], []])),
        "channel_5": five(groups_chunk([[0, 1, 2], [3, 5]])),
        "channel_65535": five(groups_chunk([[0, 1, 2], [3, 65535]])),
        "channel_repeated": five(groups_chunk([[0, 1, 2], [3, 3]])),
        "channel_repeated_in_groups": five(groups_chunk([[0, 1, 2], [3, 4, 0]])),
        "channel_missing": five(groups_chunk([[0, 1, 2], [3]])),
        "end_within_a_number": five(chunk(b"GRPS", good[8:-3])),
        "end_before_the_last_group": five(chunk(b"GRPS", good[8:-7])),
        "end_late": five(chunk(b"GRPS", good[8:-1] + b"\0")),
        "count_less_than_there_are": five(groups_chunk([[0, 1, 2], [3], [4]], 2)),
        "index_falls_within_a_tile": five(good, index=[2, 1]),
        "large_tile_as_long_as_all_channels": five(good, tile_width_log2=9),
    }
    yield from _named("kCorruptHeader__groups_", cases)
    sound = five(good)
    yield "kTruncated__groups_end_before_their_number", sound[:41]
    yield "kTruncated__groups_need_a_longer_index", sound[:62]
    yield "kChecksumMismatch__groups_before_they_are_judged", _patched(sound, 43, b"\7")
    wide = Stream(1 << 16, 1 << 15, 4096, chunks=[groups_chunk([[c] for c in range(4096)])])
    yield "kTruncated__groups_of_4096_channels_of_2_to_the_31_pixels", wide.to_bytes()
    few = Stream(9, 8, 5, chunks=[good], payloads=[constant_tile([1, 2, 3])] * 2).to_bytes()
    yield "kCorruptTile__group_has_fewer_channels", few


def _bad_value_tables() -> Cases:
    def table(used_bits: int, count: int, gaps: bytes, **fields: object) -> bytes:
        data = chunk(b"VTAB", struct.pack("<I", count) + gaps)
        return _gray(data, used_bits=used_bits, **fields)

    few = value_table_chunk([1, 2, 3])
    deep = {"sample_bits": 16, "used_bits": 16}
    cases = {
        "count_0": table(1, 0, b""),
        "count_above_2_to_the_sample_bits": table(8, 257, bytes(257)),
        "count_2_to_the_32_minus_1": table(8, (1 << 32) - 1, bytes(252)),
        "used_bits_too_large": table(4, 8, bytes(8)),
        "used_bits_too_small": table(2, 5, bytes(5)),
        "used_bits_of_one_value": table(2, 1, bytes(1)),
        "gaps_end_early": table(2, 4, bytes(3)),
        "gaps_end_within_a_gap": table(2, 4, bytes(3) + b"\x80"),
        "gaps_end_late": table(2, 4, bytes(5)),
        "gap_of_4_bytes": table(2, 4, base128(0, 4) + bytes(3)),
        "value_256": table(2, 4, base128(253) + bytes(3)),
        "gap_of_2_to_the_21_minus_1": table(2, 4, bytes(3) + base128((1 << 21) - 1)),
        "with_shift": _gray(few, used_bits=2, shift=1),
        "value_256_signed": table(2, 4, base128(253) + bytes(3), is_signed=True),
        "length_3": _gray(chunk(b"VTAB", b"\0\0\1"), **deep),
        "gaps_missing": table(16, 1 << 16, b"", sample_bits=16),
        "value_65536": table(2, 3, base128(65534) + bytes(2), sample_bits=16),
    }
    return _named("kCorruptHeader__value_table_", cases)


def _bad_indexes() -> Cases:
    three = [constant_tile([i]) for i in range(3)]
    yield from {
        "kCorruptHeader__index_first_payload_empty": _gray(index=[0, 1, 2, 3], payloads=three),
        "kCorruptHeader__index_payload_empty": _gray(index=[1, 1, 2, 3], payloads=three),
        "kCorruptHeader__index_falls": _gray(index=[2, 1, 3, 4]),
        "kCorruptHeader__index_payload_of_2_to_the_31_bytes": _gray(index=[1, 2, 3, 3 + (1 << 27)]),
        "kTruncated__index_payload_below_2_to_the_31_bytes": _gray(index=[1, 2, 3, 2 + (1 << 27)]),
        "kTruncated__index_beyond_file": _gray(index=[1, 2, 3, 5]),
    }.items()


def _bad_payloads() -> Cases:
    flat = bytes(8)
    yield from {
        "kUnsupportedFeature__coding_5": _one(payload(5, flat)),
        "kUnsupportedFeature__transform_2": _one(payload(CONSTANT, flat, transform=2)),
        "kUnsupportedFeature__before_reserved": _one(payload(255, flat, reserved=1)),
    }.items()
    large_tiles: Fields = {"tile_width_log2": 15, "tile_height_log2": 15}
    stored = stored_tile(_last(0), 8)
    cases = {
        "reserved_not_zero": _one(payload(CONSTANT, flat, reserved=256)),
        "subtract_green_gray": _one(payload(PACKED, bytes(4), transform=1)),
        "constant_body_ends_early": _one(payload(CONSTANT, flat + bytes(16))),
        "constant_missing_channel": _one(constant_tile([1, 1])),
        "stored_passes_payload": _one(payload(STORED, bytes(152))),
        "stored_body_ends_early": _one(payload(STORED, bytes(168 + 16))),
        "stored_byte_after_body": _one(payload(STORED, bytes(167) + b"\1")),
        "subtract_green_constant": _one(payload(CONSTANT, flat, 1), channels=3),
        "subtract_green_stored": _one(payload(STORED, bytes(480), 1), channels=3),
        "subtract_green_gray_alpha": _one(payload(PACKED, flat, 1), channels=2),
    }
    yield from _named("kCorruptTile__", cases)
    claim = Stream(1 << 16, 1 << 15, payloads=[constant_tile([0])] * 2, **large_tiles)
    yield "kCorruptHeader__large_tiles_claim_2_to_the_31_pixels", claim.to_bytes()
    yield "kCorruptHeader__large_tile_short", _one(stored[:-16], **large_tiles)
    yield "kCorruptHeader__large_tile_long", _one(stored + bytes(16), **large_tiles)
    nibbles = rans_body(texture((1, 32, 1), 256, noise=9), 8, FOUR_BITS, smooth([0]), [0])
    bytes_each = match_model([[32] * 32])  # 5 bits, and 3 raw ones
    matched = match_body(12 + np.arange(32)[None] % 8, bytes_each, 0)
    for side in ("width", "height"):
        large: Fields = {f"tile_{side}_log2": 9, "width": 8, "height": 1}
        yield (
            f"kCorruptTile__largest_{side}_rans",
            _one(payload(RANS, stored[8:]), **{f"tile_{side}_log2": 15}),
        )
        cases = {
            "constant": _one(constant_tile([1]), **large),
            "packed": _one(payload(PACKED, bytes(4)), **large),
            "rans": _one(nibbles, rans_model_chunk(FOUR_BITS), **large | {"width": 32}),
            "match": _one(matched, match_model_chunk(bytes_each, 8), **large | {"width": 32}),
        }
        yield from _named(f"kCorruptTile__large_{side}_", cases)

    few: Fields = {"used_bits": 5}
    signed = few | {"is_signed": True}
    deep = {"sample_bits": 16}
    part = FIVE_TO_37
    of_33 = payload(PACKED, struct.pack("<BBH", LAYOUT_CONSTANT, 0, 33))
    cases = {
        "constant_above_used_bits": _one(constant_tile([32]), **few),
        "stored_above_used_bits": _one(stored_tile(_last(32), 8), **few),
        "stored_above_used_bits_16": _one(stored_tile(_last(32), 16), **few, **deep),
        "stored_above_used_bits_signed": _one(stored_tile(_last(32), 8), **signed),
        "stored_above_used_bits_signed_16": _one(stored_tile(_last(32), 16), **signed, **deep),
        "constant_above_used_bits_signed": _one(constant_tile([32]), **signed),
        "constant_outside_value_table": _one(constant_tile([33]), part, used_bits=6),
        "stored_outside_value_table": _one(stored_tile(_last(33), 8), part, used_bits=6),
        **{
            f"{name}_outside_value_table": _one(
                packed_tile(_last(33), 6, [choice]), part, used_bits=6
            )
            for name, choice in CODED.items()
        },
        "packed_constant_outside_value_table": _one(of_33, part, used_bits=6),
    }
    yield from _named("kCorruptTile__", cases)
    good, unchecked = constant_tile([1]), bytes(4) + constant_tile([1])[4:]
    bad = constant_tile([1, 1])
    first = _gray(payloads=[good, bad, unchecked, good])
    yield "kCorruptTile__first_bad_tile_decides", first
    first = _gray(payloads=[good, good, unchecked, bad])
    yield "kChecksumMismatch__first_bad_tile_decides", first


def _bad_packed_bodies() -> Cases:
    rows = {
        "predictors": [0] * 8, "codes": [[0] * 3] * 8, "folded": [[0] * 24] * 8,
        "masks": [[0] * 24] * 8, "flags": [[0] * 3] * 8, "row_flags": [0] * 8,
    }  # fmt: skip
    constant, plain, delta, sparse = (PackedChannel(layout, **rows) for layout in range(4))  # type: ignore[arg-type]
    above_7 = [0] * 7 + [8]
    cases = {
        "base_above_used_bits": replace(plain, base=64),
        "base_above_used_bits_constant": replace(constant, base=64),
        "start_width_absolute": replace(plain, start_width=1),
        "start_width_constant": replace(constant, start_width=1),
        "start_width_sparse": replace(sparse, start_width=1),
        "start_width_above_used_bits": replace(delta, start_width=7),
        "predictor_above_7": replace(plain, predictors=above_7),
        "predictor_above_7_delta": replace(delta, predictors=above_7),
        "predictor_above_7_sparse": replace(sparse, predictors=above_7),
    }
    for reason, channel in cases.items():
        tile = payload(PACKED, packed_body([channel], 6))
        yield f"kCorruptTile__{reason}", _one(tile, used_bits=6)
    for layout, channel in enumerate((constant, plain, delta, sparse), 4):
        body = packed_body([channel], 6)  # valid but for the layout's third bit
        tile = payload(PACKED, bytes([layout]) + body[1:])
        yield f"kCorruptTile__layout_{layout}", _one(tile, used_bits=6)
    body = packed_body([constant, constant, replace(plain, predictors=above_7)], 6)
    yield "kCorruptTile__last_channel", _one(payload(PACKED, body), used_bits=6, channels=3)
    body = packed_body([delta], 8)  # 4 + 4 + 8 bytes
    yield "kCorruptTile__packed_body_ends_early", _one(payload(PACKED, body + bytes(24)))
    late = payload(PACKED, body + bytes(7) + b"\1")
    yield "kCorruptTile__packed_byte_after_body", _one(late)

    # One row of 256 pixels, or a column: each part of a body passes the end of a payload cut at
    # 16 * n bytes.
    wide: Fields = {"width": 256, "height": 1, "tile_width_log2": 8}
    tall: Fields = {"width": 1, "height": 256, "tile_height_log2": 8}
    row = texture((1, 256, 4), 256, noise=256)
    row[row == 0] = 1
    column = texture((256, 1, 1), 256)
    for part, fields, values, choice, payload_bytes in [
        ("channel_headers", wide, row, ABSOLUTE, 16),
        ("absolute_widths", wide, row[..., :1], ABSOLUTE, 16),
        ("absolute_residuals", wide, row[..., :1], ABSOLUTE, 128),
        ("delta_widths", wide, row[..., :1], DELTA, 16),
        ("delta_residuals", wide, row[..., :1], DELTA, 128),
        ("sparse_flags", wide, row[..., :1], SPARSE, 16),
        ("sparse_widths", wide, row[..., :1], SPARSE, 32),
        ("sparse_masks", wide, row[..., :1], SPARSE, 64),
        ("sparse_residuals", wide, row[..., :1], SPARSE, 128),
        ("predictors", tall, column, ABSOLUTE, 128),
        ("sparse_row_flags", tall, column, SPARSE, 144),
    ]:
        n = values.shape[2]
        cut = payload(PACKED, packed_tile(values, 8, [choice] * n)[8:payload_bytes])
        yield f"kCorruptTile__{part}_pass_payload", _one(cut, channels=n, **fields)


def _bad_rans_models() -> Cases:
    def gray(model: RansModel, spare_tokens: int = 0, **fields: object) -> bytes:
        return _gray(rans_model_chunk(model, spare_tokens), **fields)

    def raw(data: bytes) -> bytes:
        return _gray(chunk(b"RANS", data))

    good = rans_model([rans_table(5, 2), rans_table(24, 3)])
    late = good.table_of_level.copy()
    late[0, 63] = 2
    falls = np.array([[21, 20]])
    third = rans_model(good.frequency, channels=3)
    third.set_begin[2] = falls
    colour = [constant_tile([i, i, i]) for i in range(4)]
    levels_only = bytes([1, 0, 20, 40, *[7 << 5] * 8])
    cases = {
        "table_count_0": gray(replace(good, frequency=good.frequency[:0])),
        "table_count_33": gray(replace(good, frequency=good.frequency.repeat(17, axis=0)[:33])),
        "gradient_weight_64": gray(replace(good, gradient_weight=64)),
        "set_begin_65": gray(replace(good, set_begin=np.array([[20, 65]]))),
        "set_begin_falls": gray(replace(good, set_begin=falls)),
        "table_of_run_not_below_table_count": gray(replace(good, table_of_level=late)),
        "run_passes_level_63": gray(replace(good, table_of_level=np.array([[1] + [0] * 64]))),
        "frequencies_add_up_to_0": gray(rans_model([[0] * 24])),
        "frequencies_add_up_to_1023": gray(rans_model([rans_table(24, 2, total=1023)])),
        "frequencies_add_up_to_1025": gray(rans_model([rans_table(24, 2, total=1025)])),
        "frequencies_add_up_to_66560": gray(rans_model([[16383] * 4 + [1028]])),
        "second_table": gray(rans_model([rans_table(24, 2), rans_table(24, 2, total=1023)])),
        "25_frequencies": gray(rans_model([rans_table(25, 2)])),
        "third_position": gray(third, channels=3, payloads=colour),
        "25_frequencies_the_last_0": gray(rans_model([rans_table(24, 2)]), 1),
        "41_frequencies": gray(rans_model([rans_table(40, 2)]), 1, sample_bits=16, used_bits=9),
        "ends_in_limits": raw(bytes([1])),
        "ends_in_set_begin": raw(bytes([1, 0, 20])),
        "ends_in_runs": raw(levels_only[:-1]),
        "ends_before_tables": raw(levels_only),
        "ends_in_table": raw(levels_only + bytes([2]) + base128(1024)),
        "ends_in_frequency": raw(levels_only + bytes([2]) + base128(1024) + b"\x80"),
        "ends_late": raw(levels_only + bytes([1]) + base128(1024) + bytes(1)),
        "frequency_of_3_bytes": raw(levels_only + bytes([1]) + base128(1024, 3)),
    }
    return _named("kCorruptHeader__rans_", cases)


ONE_WORD = np.zeros(1, np.int64)  # after a state of 1 it makes the state that a lane must end in


def _one_token_body(channels: int = 1) -> RansBody:
    """For 20 by 8 pixels of 0, with 8 lanes; no lane needs a word."""
    states = np.full(8, 1 << 16)
    return RansBody([0] * channels, smooth([0] * channels), states, np.empty(0, np.int64))


def _change_state(body: Any, lane: int, change: int, words: Samples | None = None) -> Any:
    """The body with another state of a lane, and other words if some are given."""
    states = body.states.copy()
    states[lane] += change
    return replace(body, states=states, words=body.words if words is None else words)


def _bad_rans_bodies() -> Cases:
    one_token, good, three = rans_model_chunk(ONE_TOKEN), _one_token_body(), _one_token_body(3)
    colour = rans_model_chunk(rans_model([[1024]], channels=3))
    coloured: Fields = {"channels": 3, "used_bits": 5}
    whole = replace(good, coefficients=smooth([3])).to_payload()  # 8, 12, 24 and 32 bytes
    model = spread_model(6, 1)
    outside = rans_body(_last(33), 6, model, smooth([0]), [0])
    sets_4 = replace(three, coefficients=smooth([0, 0, 4]))
    cases = {
        "sets_4": _one(replace(good, coefficients=smooth([4])), one_token),
        "sets_of_missing_position": _one(replace(good, sets=[0, 0, 0, 1]), one_token),
        "base_of_missing_position": _one(replace(good, base=[0, 0, 0, 1]), one_token),
        "first_state_1": _one(_change_state(good, 0, -65535, ONE_WORD), one_token),
        "last_state_1": _one(_change_state(good, 7, -65535, ONE_WORD), one_token),
        "first_end_state": _one(_change_state(good, 0, 1), one_token),
        "last_end_state": _one(_change_state(good, 7, 1), one_token),
        "end_state_2_to_the_31": _one(_change_state(good, 0, 32767 << 16), one_token),
        "base_above_used_bits": _one(replace(good, base=[32]), one_token, used_bits=5),
        "third_sets_4": _one(sets_4, colour, **coloured),
        "third_base_above_used_bits": _one(replace(three, base=[0, 0, 32]), colour, **coloured),
    }
    yield from _named("kCorruptTile__rans_", cases)
    tile = payload(RANS, three.to_bytes(), transform=1)
    yield "kCorruptTile__subtract_green_rans", _one(tile, colour, channels=3)
    cases = {  # behind a body of 44 bytes and a header of 8
        "byte_after_body": _one(payload(RANS, good.to_bytes() + bytes(11) + b"\1"), one_token),
        "body_ends_early": _one(payload(RANS, good.to_bytes() + bytes(28)), one_token),
        "outside_value_table": _one(outside, FIVE_TO_37, rans_model_chunk(model), used_bits=6),
        "header_pass_payload": _one(payload(RANS, whole[8:16]), one_token),
        "coefficients_pass_payload": _one(payload(RANS, whole[8:32]), one_token),
        "states_pass_payload": _one(payload(RANS, whole[8:64]), one_token),
    }
    yield from _named("kCorruptTile__rans_", cases)
    for bits, reason in [(8, "words"), (16, "words_of_16_bits")]:
        model = spread_model(bits, 1)
        images = (texture((8, 20, 1), 1 << bits, noise) for noise in range(8, 40))
        tile = _without_last_word(
            RANS, (rans_body(v, bits, model, smooth([0]), [0]) for v in images)
        )
        data = _one(tile, rans_model_chunk(model), sample_bits=bits, used_bits=bits)
        yield f"kCorruptTile__rans_{reason}_pass_payload", data


def _without_last_word(coding: int, bodies: Iterable[RansBody | MatchBody]) -> bytes:
    """A payload of the first of the bodies whose last word alone comes to lie outside."""
    body = next(data for body in bodies if len(data := body.to_bytes()) % 16 == 10)
    return payload(coding, body[:-2])


def _bad_match_models() -> Cases:
    def gray(model: MatchModel, *more: bytes, **fields: object) -> bytes:
        bits: Any = fields.get("used_bits", 8)
        return _gray(match_model_chunk(model, bits), *more, **fields)

    def raw(data: bytes) -> bytes:
        return _gray(chunk(b"MTCH", data))

    good = match_model([rans_table(5, 2), rans_table(40, 3)], [[7], [9]])
    two = replace(good, frequency=good.frequency[:1].repeat(2, axis=0))
    late = good.table_of_context.copy()
    late[63] = 2
    colour = [constant_tile([i, i, i]) for i in range(4)]
    deep = match_model([[1024]], [[0, 0, 0, 0]])
    deep_fields: Fields = {"channels": 4, "sample_bits": 16, "used_bits": 15}
    deep_tiles = [constant_tile([i, i, i, i]) for i in range(4)]
    runs_only = bytes([1, *[7 << 5] * 8])
    head = runs_only + bytes([1]) + base128(1024)
    groups, tiles = groups_chunk([[0, 1, 2], [3, 4]]), [constant_tile([1])] * 8
    spare = match_model_chunk(match_model([rans_table(40, 2)]), 8, spare_tokens=1)
    repeated = {n: good.frequency.repeat(17, axis=0)[:n] for n in (0, 33)}
    beside = replace(good, frequency=good.frequency.repeat(11, axis=0)[:21])
    cases = {
        "table_count_0": gray(replace(good, frequency=repeated[0])),
        "table_count_33": gray(replace(good, frequency=repeated[33])),
        "33_tables_beside_built_in": gray(beside),
        "table_of_run_not_below_table_count": gray(replace(good, table_of_context=late)),
        "run_passes_context_63": gray(replace(good, table_of_context=np.array([1] + [0] * 64))),
        "frequencies_add_up_to_1023": gray(match_model([rans_table(24, 2, total=1023)])),
        "41_frequencies": _gray(spare),
        "33_tables_with_rans": gray(two, rans_model_chunk(rans_model([rans_table(9, 2)] * 31))),
        "values_of_3_channels": gray(LIKE_WEST, channels=3, payloads=colour),
        "colours_of_60_bits": gray(deep, payloads=deep_tiles, **deep_fields),
        "in_channel_groups": _gray(
            groups, chunk(b"MTCH", head + bytes([1, 0, 0])), channels=5, payloads=tiles
        ),
        "ends_in_runs": raw(runs_only[:-1]),
        "ends_before_tables": raw(runs_only),
        "ends_in_table": raw(runs_only + bytes([2]) + base128(1024)),
        "ends_before_count": raw(head),
        "ends_in_count": raw(head + bytes([1])),
        "ends_before_gaps": raw(head + bytes([1, 0])),
        "ends_in_gap": raw(head + bytes([1, 0, 0x80])),
        "ends_late": raw(head + bytes([1, 0, 5, 5])),
        "65533_colours": raw(head + struct.pack("<H", 65533) + bytes(65533)),
        "gap_of_9_bytes": raw(head + bytes([1, 0]) + base128(1, 9)),
        "key_256": raw(head + bytes([2, 0]) + base128(255) + base128(0)),
        "key_256_in_second_block": raw(head + bytes([17, 0]) + bytes(16) + base128(256)),
    }
    return _named("kCorruptHeader__match_", cases)


def _bad_match_bodies() -> Cases:
    # For 20 by 8 pixels of number 0, with 8 lanes.
    like_west = match_model_chunk(LIKE_WEST, 8)
    good = match_body(_last(0)[..., 0], LIKE_WEST, 0)
    read = replace(good, skips=0 * good.skips)
    values = match_model([rans_table(40, 2)])
    two, coloured = (match_model([rans_table(40, 2)], [[7], [c]]) for c in (9, 33))
    whole = good.to_payload()

    def number(model: MatchModel, last: int, base: int = 0) -> MatchBody:
        return match_body(_last(last)[..., 0], model, base)

    of_6 = match_model_chunk(values, 6)
    cases = {
        "without_chunk": _one(whole),
        "first_state_1": _one(_change_state(read, 0, -65535, ONE_WORD), like_west),
        "last_state_1": _one(_change_state(read, 7, -65535, ONE_WORD), like_west),
        "state_1_all_skipped": _one(_change_state(good, 0, -65535), like_west),
        "first_end_state": _one(_change_state(read, 0, 1), like_west),
        "last_end_state": _one(_change_state(read, 7, 1), like_west),
        "end_state_all_skipped": _one(_change_state(good, 0, 1), like_west),
        "base_above_used_bits": _one(replace(good, base=32), like_west, used_bits=5),
        "base_without_colour": _one(number(two, 0, 2), match_model_chunk(two, 8)),
        "number_2_of_2": _one(number(two, 2), match_model_chunk(two, 8)),
        "number_65531_of_2": _one(number(two, 65531), match_model_chunk(two, 8)),
        "outside_value_table": _one(number(values, 33), FIVE_TO_37, of_6, used_bits=6),
        "value_64_of_6_bits": _one(number(values, 64), of_6, used_bits=6),
        "colour_outside_value_table": _one(
            number(coloured, 1), FIVE_TO_37, match_model_chunk(coloured, 6), used_bits=6
        ),
    }
    yield from _named("kCorruptTile__match_", cases)
    colour = match_model([[1024]], [[1, 2, 3]])
    tile = payload(MATCH, number(colour, 0).to_bytes(), transform=1)
    data = _one(tile, match_model_chunk(colour, 8), channels=3)
    yield "kCorruptTile__subtract_green_match", data
    pictures = (texture((8, 20, 1), 256, noise)[..., 0] for noise in range(1, 90))
    cut = _without_last_word(MATCH, (match_body(picture, values, 0) for picture in pictures))
    cases = {  # behind a body of 36 bytes and a header of 8
        "byte_after_body": _one(payload(MATCH, good.to_bytes() + bytes(3) + b"\1"), like_west),
        "body_ends_early": _one(payload(MATCH, good.to_bytes() + bytes(20)), like_west),
        "first_state_pass_payload": _one(payload(MATCH, whole[8:16]), like_west),
        "states_pass_payload": _one(payload(MATCH, whole[8:32]), like_west),
        "words_pass_payload": _one(cut, match_model_chunk(values, 8)),
    }
    yield from _named("kCorruptTile__match_", cases)


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
    lines = ",\n".join(map(json.dumps, entries))  # a line a file
    files[MANIFEST] = f'{{"version": 1, "files": [\n{lines}\n]}}\n'.encode()
    return files


def main() -> int:
    """Writes or checks the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    files = all_files()
    present = {p for folder in ("golden/v1", "invalid") for p in (TESTS / folder).glob("*.*")}
    present |= {MANIFEST} & {*TESTS.glob("*.json")}
    stale = present - files.keys()
    differing = {p for p, data in files.items() if p not in present or p.read_bytes() != data}
    if check:
        for path in sorted(stale | differing):
            print(f"{path.relative_to(TESTS)} is not what make_golden.py makes")
        return 1 if stale or differing else 0
    if frozen := stale | (differing & present - {MANIFEST}):
        print(f"frozen, and made otherwise or no more: {', '.join(p.name for p in sorted(frozen))}")
        return 1
    for path in differing:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[path])
    print(f"{len(files)} files, {len(differing)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
