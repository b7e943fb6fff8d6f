"""The encoder writes as many bytes as tests/encoder/size_ledger.csv says."""

from __future__ import annotations

import pytest

pytest.importorskip("skimage")

import size_ledger


@pytest.mark.slow
def test_bytes_are_those_of_the_ledger() -> None:
    kept = size_ledger.read(size_ledger.LEDGER.read_text())
    found = size_ledger.measure(step=4)
    assert kept.keys() == found.keys() | {"sum"}
    of_found = {name: {column: kept[name][column] for column in found[name]} for name in found}
    changes = size_ledger.changes(of_found, found)
    remedy = "if that is meant, run tests/encoder/size_ledger.py and say in the commit by how much"
    assert not changes, "\n".join([*changes, remedy])
