"""What docs/format.md shows is so: its example, and its numbers of Status values."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase

import engines
import numpy as np
import pytest
from engines import ENGINES, ROOT
from format_rules import FILES, NoFile, rules_of
from reference_decoder import STATUS_NAMES

TEXT = (ROOT / "docs" / "format.md").read_text()
FOLDERS = [ROOT / "tests" / folder for folder in ("golden/v1", "golden/v2", "invalid")]
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


def test_every_rule_has_files() -> None:
    names = [path.stem for folder in FOLDERS for path in folder.glob("*.l3")]
    for rule in rules_of(TEXT):
        found = [files for part, files in FILES.get(rule.section, {}).items() if part in rule.text]
        assert len(found) == 1, f"tests/format/format_rules.py names {len(found)} times: {rule}"
        if isinstance(found[0], NoFile):
            assert not rule.status, f"a rule of validity has a file: {rule}"
            continue
        statuses = set()
        for pattern in found[0].split():
            matching = [name for name in names if fnmatchcase(name, pattern)]
            assert matching, f"no file {pattern}, which is to show {rule}"
            statuses |= {name.split("__")[0] if "__" in name else "kOk" for name in matching}
        assert not rule.status or rule.status in statuses, rule


def test_every_entry_of_the_table_is_of_one_rule() -> None:
    rules = rules_of(TEXT)
    for section, parts in FILES.items():
        for part in parts:
            found = [rule for rule in rules if rule.section == section and part in rule.text]
            assert len(found) == 1, (section, part)


def test_every_file_shows_a_rule() -> None:
    manifest = json.loads((ROOT / "tests" / "conformance.json").read_text())
    for entry in manifest["files"]:
        assert entry["rules"], entry["file"]


def test_every_field_of_the_header_has_both_kinds_of_files() -> None:
    fields = [rule for rule in rules_of(TEXT) if rule.section == "3" and rule.text[0] == "|"]
    assert len(fields) == 12
    for field in fields:
        (files,) = (files for part, files in FILES["3"].items() if part in field.text)
        assert isinstance(files, str)
        assert {pattern[0] == "k" for pattern in files.split()} == {True, False}, field


def test_status_values() -> None:
    rows = re.findall(r"^\| (\d) \| `(k\w+)` \|", TEXT, re.MULTILINE)
    assert rows == [(str(value), name) for value, name in enumerate(STATUS_NAMES)]
    assert [engines.status_name(value) for value in range(len(rows))] == list(STATUS_NAMES)
