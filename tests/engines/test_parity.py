"""Every engine gives the reference's samples, or its Status and tile, on any stream."""

from __future__ import annotations

import engines
import strategies
from engines import ENGINES, ROOT, Made, decode_with_all
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


def test_files_that_were_found() -> None:
    """Of `match_steps_skipped_*` about half of the blocks of 16 steps are skipped: before lanes
    begin rows, with them and after them."""
    for path in (ROOT / "tests" / "fuzz" / "found").glob("*.l3"):
        status, separator, _ = path.name.partition("__")
        assert decode_with_all(path.read_bytes()).status == (status if separator else "kOk"), path
