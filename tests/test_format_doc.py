"""What docs/format.md shows is so: its example, and its numbers of Status values."""

from __future__ import annotations

import re

import engines
import numpy as np
import pytest
from engines import ENGINES, ROOT
from reference_decoder import STATUS_NAMES

TEXT = (ROOT / "docs" / "format.md").read_text()
EXAMPLE = TEXT[TEXT.index("## 8.") : TEXT.index("## Appendix A")]


@pytest.mark.parametrize("engine", ["reference", *ENGINES])
@pytest.mark.usefixtures("require_engine")
def test_example(engine: str) -> None:
    data = bytes.fromhex("".join(re.findall(r"^    [0-9A-F]{2}: (.*)$", EXAMPLE, re.MULTILINE)))
    rows = re.findall(r"^    ((?:\d+ ?)+)$", EXAMPLE, re.MULTILINE)
    image = np.array([row.split() for row in rows], np.uint8)[..., None]
    assert engines.decode(engine, data) == engines.Outcome("kOk", None, image)


def test_bytes_in_the_table_are_those_of_the_file() -> None:
    data = bytes.fromhex("".join(re.findall(r"^    [0-9A-F]{2}: (.*)$", EXAMPLE, re.MULTILINE)))
    parts = re.findall(r"^\| ([0-9A-F]{2}) \| `([0-9A-F ]+)` \|", EXAMPLE, re.MULTILINE)
    assert sum(len(bytes.fromhex(part)) for _, part in parts) == len(data)
    for place, part in parts:
        assert data[int(place, 16) :].startswith(bytes.fromhex(part)), place


def test_status_values() -> None:
    rows = re.findall(r"^\| (\d) \| `(k\w+)` \|", TEXT, re.MULTILINE)
    assert rows == [(str(value), name) for value, name in enumerate(STATUS_NAMES)]
    assert [engines.status_name(value) for value in range(len(rows))] == list(STATUS_NAMES)
