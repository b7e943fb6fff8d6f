"""Hypothesis strategies: streams that the format allows, images, and damage.

Choices that explain a failure are drawn; bulk numbers come from a drawn seed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import stream_builder as build
from engines import SAMPLE_TYPES
from hypothesis import strategies as st
from numpy.random import Generator
from numpy.typing import NDArray
from reference_decoder import (
    CONSTANT,
    HEADER_BYTES,
    HEADER_OFFSETS,
    LAYOUT_ABSOLUTE,
    LAYOUT_CONSTANT,
    LAYOUT_DELTA,
    LAYOUT_SPARSE,
    PACKED,
    STORED,
    TAP_COUNTS,
    TOKENS,
    RansModel,
    built_in_rans_model,
    rans_roles,
)

Samples = NDArray[Any]

SEEDS = st.integers(0, 2**32 - 1)
# One pixel, a tile and its neighbours, primes.
SIDES = st.sampled_from([1, 2, 7, 8, 9, 13, 31, 32, 33, 63, 64, 65, 97])
# So narrow that a tile has few lanes, and the sides of a tile.
RANS_SIDES = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 70])
LAYOUTS = (LAYOUT_CONSTANT, LAYOUT_ABSOLUTE, LAYOUT_DELTA, LAYOUT_SPARSE)


def _channel_counts(most: int) -> st.SearchStrategy[int]:
    """Few as often as many."""
    few = st.integers(1, min(4, most))
    return few if most <= 4 else few | st.integers(5, most)


@st.composite
def _empty_streams(
    draw: st.DrawFn,
    rng: Generator,
    sides: st.SearchStrategy[int],
    tile_width_log2: list[int],
    tile_height_log2: list[int],
    most_channels: int,
) -> tuple[build.Stream, int]:
    """A stream without tiles, and what its values must stay below."""
    sample_bits = draw(st.sampled_from([8, 16]))
    used_bits = draw(st.integers(1, sample_bits))
    stream = build.Stream(
        width=draw(sides),
        height=draw(sides),
        channels=draw(_channel_counts(most_channels)),
        sample_bits=sample_bits,
        used_bits=used_bits,
        tile_width_log2=draw(st.sampled_from(tile_width_log2)),
        tile_height_log2=draw(st.sampled_from(tile_height_log2)),
        meaning=draw(st.integers(0, 1)),
        is_signed=draw(st.booleans()),
    )
    value_limit = 1 << used_bits
    if draw(st.booleans()):
        fewest = 1 if used_bits == 1 else value_limit // 2 + 1
        value_limit = draw(st.just(value_limit) | st.integers(fewest, value_limit))
        values = rng.choice(1 << sample_bits, value_limit, replace=False)
        stream.chunks.append(build.value_table_chunk(np.sort(values).tolist()))
    else:
        stream.shift = draw(st.integers(0, sample_bits - used_bits))
    return stream, value_limit


def _groups(rng: Generator, stream: build.Stream) -> list[list[int]]:
    """The channels of each group; more than four get a list."""
    if stream.channels <= 4:
        return [list(range(stream.channels))]
    order = rng.permutation(stream.channels).tolist()
    groups = []
    while order:
        size = int(rng.integers(1, 5))
        groups.append(order[:size])
        order = order[size:]
    stream.chunks.insert(0, build.groups_chunk(groups))
    return groups


def some_of(items: tuple[int, ...]) -> st.SearchStrategy[list[int]]:
    """Some of the items, at least one."""
    return st.lists(st.sampled_from(items), min_size=1, unique=True)


@st.composite
def streams(draw: st.DrawFn, most_channels: int = 9) -> bytes:
    """A stream of random fields: nearly always valid, seldom like our encoder's."""
    rng = np.random.default_rng(draw(SEEDS))
    stream, value_limit = draw(
        _empty_streams(rng, SIDES, [5, 6, 7, 8, 9, 15], [3, 4, 5, 6, 8, 10], most_channels)
    )
    sample_bits, used_bits = stream.sample_bits, stream.used_bits
    kinds = [b"icc ", b"exif", b"plte", b"xmp ", b"keyv", b"zzZ9", b"0 aA"]
    for kind in draw(st.permutations(kinds)):
        if draw(st.booleans()):
            stream.chunks.insert(0, build.chunk(kind, rng.bytes(draw(st.integers(0, 9)))))

    is_large = max(stream.tile_width_log2, stream.tile_height_log2) > 8
    codings = [STORED] if is_large else draw(some_of((CONSTANT, STORED, PACKED)))
    layouts = draw(some_of(LAYOUTS))
    density = draw(st.sampled_from([0.02, 0.5, 1.0]))
    image = np.empty((stream.height, stream.width, stream.channels), np.uint8)
    groups = _groups(rng, stream)
    tiles = stream.tiles_of(image)
    for h, w, n in [(*tile.shape[:2], len(group)) for tile in tiles for group in groups]:
        coding = rng.choice(codings)
        if coding == CONSTANT:
            values = rng.integers(0, value_limit, n)
            stream.payloads.append(build.constant_tile(values.tolist()))
        elif coding == STORED:
            values = rng.integers(0, value_limit, (h, w, n))
            stream.payloads.append(build.stored_tile(values, sample_bits))
        else:
            transform = int(rng.integers(0, 2)) if n >= 3 else 0
            channels = [
                _channel(rng, rng.choice(layouts), h, w, used_bits, density) for _ in range(n)
            ]
            stream.payloads.append(build.packed_payload(channels, used_bits, transform))
    return stream.to_bytes()


def _channel(
    rng: Generator, layout: int, h: int, w: int, used_bits: int, density: float
) -> build.PackedChannel:
    groups = -(-w // 8)

    def bits(*shape: int) -> Samples:
        return (rng.random(shape) < density).astype(int)

    return build.PackedChannel(
        layout=layout,
        base=int(rng.integers(0, 1 << used_bits)),
        start_width=int(rng.integers(0, used_bits + 1)) if layout == LAYOUT_DELTA else 0,
        predictors=rng.integers(0, 8, h).tolist(),
        codes=rng.integers(0, 4 if layout == LAYOUT_DELTA else 16, (h, groups)),
        folded=rng.integers(0, 1 << 16, (h, 8 * groups)),
        masks=bits(h, 8 * groups),
        flags=bits(h, groups),
        row_flags=bits(h),
        unused_bit=int(rng.integers(0, 2)),
    )


@st.composite
def rans_streams(draw: st.DrawFn, most_channels: int = 9) -> bytes:
    """A valid stream of rans tiles, seldom like our encoder's."""
    rng = np.random.default_rng(draw(SEEDS))
    stream, value_limit = draw(_empty_streams(rng, RANS_SIDES, [5, 6, 7], [5, 6, 7], most_channels))
    channels, used_bits = stream.channels, stream.used_bits
    positions = min(channels, 4)
    # Pixels choose the tokens where not all values are valid, the tables elsewhere.
    from_pixels = value_limit < 1 << used_bits or draw(st.booleans())
    if draw(st.booleans()):
        model = built_in_rans_model(positions, used_bits)
    else:
        model = _rans_model(draw, rng, positions, used_bits, has_all_tokens=from_pixels)
        place = draw(st.integers(0, len(stream.chunks)))
        stream.chunks.insert(place, build.rans_model_chunk(model))
    groups = _groups(rng, stream)
    sets = draw(st.lists(st.integers(0, 3), min_size=positions, max_size=positions))
    spread = draw(st.sampled_from([8, 48, 80, 127]))
    noise = draw(st.sampled_from([1, 9, value_limit]))
    y, x, channel = np.ogrid[: stream.height, : stream.width, :channels]
    image = 3 * x + 2 * y + 40 * channel + rng.integers(0, noise, (len(y), x.size, channels))
    tiles = stream.tiles_of(image % value_limit)
    for tile in [tile[..., group] for tile in tiles for group in groups]:
        n = tile.shape[2]
        coefficients = [
            rng.integers(-spread - 1, spread + 1, (count, TAP_COUNTS[role]))
            for role, count in zip(rans_roles(n), sets[:n], strict=True)
        ]
        base: list[int] = rng.integers(0, 1 << used_bits, (n,)).tolist()
        if from_pixels:
            body = build.rans_body(tile, used_bits, model, coefficients, base)
        else:
            body = build.random_rans_body(rng, tile.shape, used_bits, model, coefficients, base)
        stream.payloads.append(body.to_payload())
    return stream.to_bytes()


@st.composite
def match_streams(draw: st.DrawFn) -> bytes:
    """A valid stream of match tiles, some of them beside rans tiles, seldom like our encoder's."""
    rng = np.random.default_rng(draw(SEEDS))
    stream, value_limit = draw(_empty_streams(rng, RANS_SIDES, [5, 6, 7], [5, 6, 7], 4))
    channels, used_bits = stream.channels, stream.used_bits
    if channels * used_bits > 56:
        channels = stream.channels = 3
    rans = built_in_rans_model(channels, used_bits)
    frequency = np.zeros((draw(st.integers(1, 32 - len(rans.frequency))), len(TOKENS)), np.int64)
    for table in frequency:
        used = np.union1d(np.arange(4), rng.integers(0, 40, rng.integers(1, 40)))
        table[used] = build.rans_table(len(used), int(rng.integers(2, 30)))[: len(used)]
    colors = None
    limit = value_limit
    if channels > 1 or draw(st.booleans()):
        most = min(value_limit**channels, draw(st.sampled_from([1, 2, 15, 16, 17, 40, 300, 3000])))
        colors = build.sorted_colors(rng.integers(0, value_limit, (most, channels)), used_bits)
        limit = len(colors)
    model = build.match_model(frequency, colors)
    model = replace(model, table_of_context=rng.integers(0, len(frequency), 64))
    place = draw(st.integers(0, len(stream.chunks)))
    stream.chunks.insert(place, build.match_model_chunk(model, used_bits))
    has_rans = draw(st.booleans())
    for tile in stream.tiles_of(np.zeros((stream.height, stream.width, channels), np.int64)):
        if has_rans and value_limit == 1 << used_bits and rng.random() < 0.3:
            flat = [np.zeros((0, TAP_COUNTS[role]), np.int64) for role in rans_roles(channels)]
            body = build.rans_body(tile, used_bits, rans, flat, [0] * channels)
            stream.payloads.append(body.to_payload())
        else:
            match = build.random_match_body(rng, tile.shape[:2], model, min(limit, 65532))
            stream.payloads.append(match.to_payload())
    return stream.to_bytes()


def _rans_model(
    draw: st.DrawFn, rng: Generator, channels: int, used_bits: int, *, has_all_tokens: bool
) -> RansModel:
    most_tokens = 24 if used_bits <= 8 else 40
    frequency = np.zeros((draw(st.integers(1, 32)), len(TOKENS)), np.int64)
    for table in frequency:
        tokens = most_tokens if has_all_tokens else int(rng.integers(1, most_tokens + 1))
        used = rng.choice(most_tokens, tokens, replace=False)
        table[used] = build.rans_table(tokens, int(rng.integers(2, 30)))[:tokens]
    return RansModel(
        draw(st.integers(0, 63)),
        np.sort(rng.integers(0, 65, (channels, 2))),
        rng.integers(0, len(frequency), (channels, 64)) // rng.integers(1, 9),
        frequency,
    )


@st.composite
def images(draw: st.DrawFn, most_channels: int = 14) -> Samples:
    """An image of shape (height, width, channels) and of one of the kinds that occur."""
    rng = np.random.default_rng(draw(SEEDS))
    dtype = np.dtype(draw(st.sampled_from(SAMPLE_TYPES)))
    sample_bits = 8 * dtype.itemsize
    h, w = draw(SIDES), draw(SIDES)
    c = draw(_channel_counts(most_channels))
    limit = 1 << sample_bits
    y, x, channel = np.ogrid[:h, :w, :c]
    content = draw(
        st.sampled_from(
            ["noise", "constant", "ramp", "texture", "labels", "few values", "shifted", "small"]
        )
    )
    if content == "noise":
        image = rng.integers(0, limit, (h, w, c))
    elif content == "constant":
        image = np.broadcast_to(rng.integers(0, limit, c), (h, w, c))
    elif content == "ramp":
        image = x * 3 + y * 5 + channel * 17
    elif content == "texture":
        image = limit // 2 + x * 2 - y + rng.normal(0, limit / 64, (h, w, c)).astype(int)
    elif content == "labels":
        image = (x // 11 + y // 7 * 3) % 19 + 0 * channel
    elif content == "few values":
        image = rng.choice(rng.integers(0, limit, draw(st.integers(1, 40))), (h, w, c))
    elif content == "small":  # on both sides of zero
        least = -1 << draw(st.integers(0, sample_bits - 2))
        image = rng.integers(least, -least, (h, w, c)) * (1 << draw(st.integers(0, 1)))
    else:
        image = rng.integers(0, limit, (h, w, c)) >> (s := draw(st.integers(1, 7))) << s
    return np.ascontiguousarray(image % limit).astype(f"u{dtype.itemsize}").view(dtype)


@st.composite
def damaged(draw: st.DrawFn, originals: st.SearchStrategy[bytes]) -> bytes:
    """A stream with some bytes changed or cut off behind the version, checksums made right."""
    rng = np.random.default_rng(draw(SEEDS))
    data = np.frombuffer(draw(originals), np.uint8).copy()
    fields = HEADER_OFFSETS["sample_type"]
    begin = rng.choice([fields, HEADER_BYTES, len(data) // 2])  # header, the rest, payloads
    end = HEADER_BYTES if begin == fields else len(data)
    places = rng.integers(begin, end, draw(st.integers(1, 4)))
    data[places] = rng.integers(0, 256, len(places))
    if rng.random() < 0.1:
        data = data[: rng.integers(fields, len(data))]
    return build.repair(data.tobytes())
