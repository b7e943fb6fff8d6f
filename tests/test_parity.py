"""Every engine gives the reference's samples, or its Status and tile, on any stream."""

from __future__ import annotations

import engines
import pytest
import strategies
from engines import ENGINES, Samples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.usefixtures("require_engine")
engine_matrix = pytest.mark.parametrize("engine", ENGINES)
many = settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])


@engine_matrix
@many
@given(data=strategies.streams(), threads=st.integers(1, 2), row_padding=st.sampled_from([0, 6]))
def test_streams_beyond_our_encoder(
    engine: str, data: bytes, threads: int, row_padding: int
) -> None:
    expected = engines.decode("reference", data)
    outcome = engines.decode(engine, data, threads=threads, row_padding_bytes=row_padding)
    assert outcome == expected


@engine_matrix
@many
@given(data=strategies.damaged(strategies.streams()))
def test_damaged_streams(engine: str, data: bytes) -> None:
    assert engines.decode(engine, data) == engines.decode("reference", data)


@pytest.mark.parametrize("engine", ["reference", *ENGINES])
@many
@given(image=strategies.images())
def test_encoder_output(engine: str, image: Samples) -> None:
    outcome = engines.decode(engine, engines.encode(image))
    assert outcome == engines.Outcome("kOk", None, image)
