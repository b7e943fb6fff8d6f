"""Frozen streams decode to the pixels they were built from, on every engine."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import engines
import pytest

TESTS = Path(__file__).parents[1]
MANIFEST = json.loads((TESTS / "conformance.json").read_text())
DIGESTS = {
    Path(entry["file"]).stem: {name: entry[name] for name in ("shape", "dtype", "sha256")}
    for entry in MANIFEST["files"]
    if entry["status"] == "kOk"
}

# Of tests/frozen.sha256.
FILES_OF_1_0_0 = 513
DIGEST_OF_1_0_0 = "2b0602b7628eb13e47829e8e3d950a094938459c44c37a12ae8c4ff8d18acbee"


@pytest.mark.parametrize("name", DIGESTS)
@pytest.mark.parametrize("engine", ["reference", *engines.ENGINES])
@pytest.mark.usefixtures("require_engine")
def test_golden_file(engine: str, name: str) -> None:
    outcome = engines.decode(engine, (TESTS / "golden" / "v1" / f"{name}.l3").read_bytes())
    assert outcome.samples is not None, outcome
    digest = {
        "shape": list(outcome.samples.shape),
        "dtype": str(outcome.samples.dtype),
        "sha256": hashlib.sha256(outcome.samples.tobytes()).hexdigest(),
    }
    assert digest == DIGESTS[name]


def test_files_of_version_1_are_frozen() -> None:
    """Files are added behind those of release 1.0.0, which stay as they are."""
    lines = (TESTS / "frozen.sha256").read_text().splitlines(keepends=True)
    first = "".join(lines[:FILES_OF_1_0_0])
    assert hashlib.sha256(first.encode()).hexdigest() == DIGEST_OF_1_0_0
    frozen = dict(line.rstrip("\n").split("  ")[::-1] for line in lines)
    found = [
        path.relative_to(TESTS).as_posix()
        for folder in ("golden/v1", "invalid")
        for path in (TESTS / folder).iterdir()
    ]
    assert sorted(frozen) == sorted(found)
    for name, digest in frozen.items():
        assert hashlib.sha256((TESTS / name).read_bytes()).hexdigest() == digest, name


def test_files_are_what_make_golden_makes() -> None:
    script = Path(__file__).with_name("make_golden.py")
    check = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stdout + check.stderr
