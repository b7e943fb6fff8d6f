"""The encoder writes as many bytes as tests/encoder/size_ledger.csv says."""

from __future__ import annotations

import pytest

pytest.importorskip("skimage")

import size_ledger


@pytest.fixture(scope="module")
def kept() -> dict[str, dict[str, int]]:
    return size_ledger.read(size_ledger.LEDGER.read_text())


@pytest.mark.slow
def test_bytes_are_those_of_the_ledger(kept: dict[str, dict[str, int]]) -> None:
    changes = size_ledger.changes(kept, size_ledger.measure())
    remedy = "if that is meant, run tests/encoder/size_ledger.py and say in the commit by how much"
    assert not changes, "\n".join([*changes, remedy])


def test_a_changed_number_is_told(kept: dict[str, dict[str, int]]) -> None:
    new = {name: dict(row) for name, row in kept.items()}
    new["camera.png"]["rans 5"] += 1
    new["sum"]["rans 5"] += 1
    (line, of_sum) = size_ledger.changes(kept, new)
    assert line.startswith("camera.png, rans 5: ")
    assert of_sum.startswith("sum, rans 5: ")
    assert size_ledger.changes(kept, kept) == []
    assert size_ledger.read(size_ledger.page(kept)) == kept
    del new["camera.png"]
    assert "camera.png: only in one of the ledgers" in size_ledger.changes(kept, new)
