"""Every engine gives the reference's samples, or its Status and tile, on any stream."""

from __future__ import annotations

from collections.abc import Callable

import engines
import pytest
import strategies
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


@settings(max_examples=80)
@given(image=strategies.images(), effort=st.integers(1, 9))
def test_rans_encoder_output(image: Samples, effort: int) -> None:
    data = engines.encode(image, mode="rans", effort=effort)
    for engine in ("reference", *filter(engines.is_available, ENGINES)):
        assert engines.decode(engine, data) == engines.Outcome("kOk", None, image), engine
