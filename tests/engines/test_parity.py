"""Every engine gives the reference's samples, or its Status and tile, on any stream."""

from __future__ import annotations

from collections.abc import Callable

import engines
import numpy as np
import pytest
import strategies
import stream_builder as build
from engines import ENGINES, Samples
from hypothesis import given, settings
from hypothesis import strategies as st

# The reference decodes each stream once for all engines: it takes longer than all of them.


@settings(max_examples=600)
@given(data=strategies.streams(), threads=st.integers(1, 2), row_padding=st.sampled_from([0, 6]))
def test_streams_beyond_our_encoder(data: bytes, threads: int, row_padding: int) -> None:
    expected = engines.decode("reference", data)
    for engine in filter(engines.is_available, ENGINES):
        outcome = engines.decode(engine, data, threads=threads, row_padding_bytes=row_padding)
        assert outcome == expected, engine


@settings(max_examples=600)
@given(data=strategies.damaged(strategies.streams()))
def test_damaged_streams(data: bytes) -> None:
    expected = engines.decode("reference", data)
    for engine in filter(engines.is_available, ENGINES):
        assert engines.decode(engine, data) == expected, engine


@settings(max_examples=600)
@given(image=strategies.images())
def test_encoder_output(image: Samples) -> None:
    data = engines.encode(image)
    for engine in ("reference", *filter(engines.is_available, ENGINES)):
        assert engines.decode(engine, data) == engines.Outcome("kOk", None, image), engine


Streams = Callable[[], st.SearchStrategy[bytes]]
STREAMS = pytest.mark.parametrize("streams", [strategies.rans_streams, strategies.match_streams])


@STREAMS
@settings(max_examples=150)
@given(data=st.data(), threads=st.integers(1, 2), row_padding=st.sampled_from([0, 6]))
def test_rans_and_match_streams_beyond_our_encoder(
    streams: Streams, data: st.DataObject, threads: int, row_padding: int
) -> None:
    stream = data.draw(streams())
    expected = engines.decode("reference", stream)
    assert expected.status == "kOk"
    for engine in filter(engines.is_available, ENGINES):
        outcome = engines.decode(engine, stream, threads=threads, row_padding_bytes=row_padding)
        assert outcome == expected, engine


@STREAMS
@settings(max_examples=150)
@given(data=st.data())
def test_damaged_rans_and_match_streams(streams: Streams, data: st.DataObject) -> None:
    stream = data.draw(strategies.damaged(streams()))
    expected = engines.decode("reference", stream)
    for engine in filter(engines.is_available, ENGINES):
        assert engines.decode(engine, stream) == expected, engine


# Where blocks of 16 steps end before lanes begin rows, with them and after them.
@pytest.mark.parametrize("width", [31, 47, 63, 79, 94, 95, 128, 144, 160, 177, 235, 241, 255, 256])
def test_match_blocks_that_are_skipped(width: int) -> None:
    rng = np.random.default_rng(width)
    stream = build.Stream(width, 4 * 256, tile_width_log2=8, tile_height_log2=8)
    frequency = [build.rans_table(int(rng.integers(4, 24)), int(rng.integers(2, 9)))] * 20
    model = build.match_model(rng.permuted(frequency, axis=1))
    stream.chunks.append(build.match_model_chunk(model, 8))
    for _ in range(4):
        body = build.random_match_body(rng, (256, width), model, 256)
        stream.payloads.append(body.to_payload())
    data = stream.to_bytes()
    expected = engines.decode("reference", data)
    assert expected.status == "kOk"
    for engine in filter(engines.is_available, ENGINES):
        assert engines.decode(engine, data) == expected, engine


@pytest.mark.parametrize("is_shown", [False, True])
def test_match_base_beyond_the_value_table(is_shown: bool) -> None:
    frequency = [1000, 0, 0, 0, 24] if not is_shown else [1024]
    model = build.match_model([frequency + [0] * (40 - len(frequency))])
    numbers = np.full((16, 32), 3 if is_shown else 0)
    stream = build.Stream(32, 16, used_bits=2, tile_height_log2=4)
    stream.chunks += [build.value_table_chunk([7, 8, 255]), build.match_model_chunk(model, 2)]
    stream.payloads.append(build.match_body(numbers, model, 3).to_payload())
    data = stream.to_bytes()
    expected = engines.decode("reference", data)
    assert expected.status == ("kCorruptTile" if is_shown else "kOk")
    for engine in filter(engines.is_available, ENGINES):
        assert engines.decode(engine, data) == expected, engine


@settings(max_examples=80)
@given(image=strategies.images(), effort=st.integers(1, 9))
def test_rans_encoder_output(image: Samples, effort: int) -> None:
    data = engines.encode(image, coding="rans", effort=effort)
    for engine in ("reference", *filter(engines.is_available, ENGINES)):
        assert engines.decode(engine, data) == engines.Outcome("kOk", None, image), engine
