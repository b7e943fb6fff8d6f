"""Frozen streams decode to the pixels they were built from, on every engine."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import engines
import pytest

TESTS = Path(__file__).parent
MANIFEST = json.loads((TESTS / "conformance.json").read_text())
DIGESTS = {
    Path(entry["file"]).stem: {name: entry[name] for name in ("shape", "dtype", "sha256")}
    for entry in MANIFEST["files"]
    if entry["status"] == "kOk"
}


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


def test_files_are_what_make_golden_makes() -> None:
    script = Path(__file__).with_name("make_golden.py")
    check = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stdout + check.stderr
