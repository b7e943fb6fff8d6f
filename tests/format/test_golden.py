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
    entry["file"]: {name: entry[name] for name in ("shape", "dtype", "sha256")}
    for entry in MANIFEST["files"]
    if entry["status"] == "kOk"
}

# Of the hashes of release 1.0.0's files, as sha256sum prints them, by name. Two of its 513 claimed
# version 2, before it was one; two that claim version 3 are in their place.
FILES_OF_1_0_0 = 511
DIGEST_OF_1_0_0 = "4f0dca66a7b22e4c9a834591f319621cd6cc2385aad919ce873a5ba331d7efff"


@pytest.mark.parametrize("engine", ["reference", *engines.ENGINES])
@pytest.mark.usefixtures("require_engine")
def test_golden_files(engine: str) -> None:
    for name, expected in DIGESTS.items():
        outcome = engines.decode(engine, (TESTS / name).read_bytes())
        assert outcome.samples is not None, (name, outcome)
        digest = {
            "shape": list(outcome.samples.shape),
            "dtype": str(outcome.samples.dtype),
            "sha256": hashlib.sha256(outcome.samples.tobytes()).hexdigest(),
        }
        assert digest == expected, name


def is_added(name: str) -> bool:
    """Whether a file is newer than release 1.0.0."""
    path = Path(name)
    of_version_2 = path.parent.name == "v2" or (TESTS / path).read_bytes()[8:9] == b"\2"
    return of_version_2 or path.stem in ADDED


ADDED = (
    "kUnsupportedVersion__3",
    "kUnsupportedVersion__3_before_header_crc",
    "kUnsupportedVersion__131",
    "kUnsupportedFeature__jpeg_in_version_1",
    "kUnsupportedFeature__smpl_in_version_1",
    "kUnsupportedVersion__130",
    "kCorruptHeader__sample_type_f32_in_version_1",
    "kCorruptHeader__sample_type_f16_in_version_1",
)


def test_files_of_version_1_are_frozen() -> None:
    """Files are added; those of release 1.0.0 stay as they are."""
    names = {entry["file"] for entry in MANIFEST["files"]}
    folders = (TESTS / "golden/v1", TESTS / "golden/v2", TESTS / "invalid")
    assert names == {p.relative_to(TESTS).as_posix() for each in folders for p in each.iterdir()}
    first = sorted(name for name in names if not is_added(name))
    assert len(first) == FILES_OF_1_0_0
    lines = [f"{hashlib.sha256((TESTS / n).read_bytes()).hexdigest()}  {n}\n" for n in first]
    assert hashlib.sha256("".join(lines).encode()).hexdigest() == DIGEST_OF_1_0_0


def test_manifest_is_up_to_date() -> None:
    """If not, run tests/format/manifest.py."""
    assert manifest.page() == manifest.MANIFEST.read_text()
