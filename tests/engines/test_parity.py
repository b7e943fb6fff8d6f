"""Every engine gives the reference's samples, or its Status and tile, on any stream."""

from __future__ import annotations

import engines
import numpy as np
import pytest
import strategies
import stream_builder as build
from engines import ENGINES, Made, decode_with_all
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=60)
@given(made=strategies.MADE, threads=st.integers(1, 2), row_padding=st.sampled_from([0, 6]))
def test_streams_beyond_our_encoder(made: Made, threads: int, row_padding: int) -> None:
    assert engines.decode("reference", made.data) == made.outcome
    for engine in filter(engines.is_available, ENGINES):
        outcome = engines.decode(engine, made.data, threads=threads, row_padding_bytes=row_padding)
        assert outcome == made.outcome, engine


@settings(max_examples=60)
@given(data=strategies.DAMAGED)
def test_damaged_streams(data: bytes) -> None:
    decode_with_all(data)


# Where blocks of 16 steps end before lanes begin rows, with them and after them.
@pytest.mark.parametrize("width", [31, 63, 144, 241])
def test_match_blocks_that_are_skipped(width: int) -> None:
    rng = np.random.default_rng(width)
    stream = build.Stream(width, 256, tile_width_log2=8, tile_height_log2=8)
    model = build.match_model([build.rans_table(40, 2 + t) for t in range(20)])
    stream.chunks.append(build.match_model_chunk(model))
    # A pixel in 500 is unlike the one before it: about half of the blocks are skipped.
    changes = rng.integers(1, 256, (256, width)) * (rng.random((256, width)) < 1 / 500)
    for tile in stream.tiles_of(np.cumsum(changes, axis=1) % 256):
        body = build.match_body(tile, model, 0)
        assert width == 31 or 0.2 < body.skips.mean() < 0.8
        stream.payloads.append(body.to_payload())
    assert decode_with_all(stream.to_bytes()).status == "kOk"


@pytest.mark.parametrize("is_shown", [False, True])
def test_match_base_beyond_the_value_table(is_shown: bool) -> None:
    frequency = [1000, 0, 0, 0, 24] if not is_shown else [1024]
    model = build.match_model([frequency + [0] * (40 - len(frequency))])
    numbers = np.full((16, 32), 3 if is_shown else 0)
    stream = build.Stream(32, 16, used_bits=2, tile_height_log2=4)
    stream.chunks += [build.value_table_chunk([7, 8, 255]), build.match_model_chunk(model)]
    stream.payloads.append(build.match_body(numbers, model, 3).to_payload())
    assert decode_with_all(stream.to_bytes()).status == ("kCorruptTile" if is_shown else "kOk")
