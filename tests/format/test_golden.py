"""Frozen streams decode to the pixels they were built from, on every engine."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import engines
import manifest
import pytest

TESTS = Path(__file__).parents[1]
MANIFEST = json.loads((TESTS / "conformance.json").read_text())
DIGESTS = {
    Path(entry["file"]).stem: {name: entry[name] for name in ("shape", "dtype", "sha256")}
    for entry in MANIFEST["files"]
    if entry["status"] == "kOk"
}

# Of the hashes of release 1.0.0's files, as sha256sum prints them, by name.
FILES_OF_1_0_0 = 513
DIGEST_OF_1_0_0 = "3f5eda4e6c714871606f38bbd3f97434ea9e765dbf7f7d1a9ec4d6118f67452d"
ADDED: set[str] = set()  # since, as invalid/NAME.l3


@pytest.mark.parametrize("engine", ["reference", *engines.ENGINES])
@pytest.mark.usefixtures("require_engine")
def test_golden_files(engine: str) -> None:
    for name, expected in DIGESTS.items():
        outcome = engines.decode(engine, (TESTS / "golden" / "v1" / f"{name}.l3").read_bytes())
        assert outcome.samples is not None, (name, outcome)
        digest = {
            "shape": list(outcome.samples.shape),
            "dtype": str(outcome.samples.dtype),
            "sha256": hashlib.sha256(outcome.samples.tobytes()).hexdigest(),
        }
        assert digest == expected, name


def test_files_of_version_1_are_frozen() -> None:
    """Files are added; those of release 1.0.0 stay as they are."""
    names = {entry["file"] for entry in MANIFEST["files"]}
    folders = (TESTS / "golden/v1", TESTS / "invalid")
    assert names == {p.relative_to(TESTS).as_posix() for each in folders for p in each.iterdir()}
    first = sorted(names - ADDED)
    assert len(first) == FILES_OF_1_0_0
    lines = [f"{hashlib.sha256((TESTS / n).read_bytes()).hexdigest()}  {n}\n" for n in first]
    assert hashlib.sha256("".join(lines).encode()).hexdigest() == DIGEST_OF_1_0_0


def test_manifest_is_up_to_date() -> None:
    """If not, run tests/format/manifest.py."""
    assert manifest.page() == manifest.MANIFEST.read_text()
