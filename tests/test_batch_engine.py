"""The batch engine and the encoded cache on an emulated GPU: tests/native/batch_test.cc."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "tests/native/batch_test.cc"


def program() -> Path:
    """The test program, of the build that L3_TESTING_LIBRARY names."""
    library = os.environ.get("L3_TESTING_LIBRARY", ROOT / "build/release/libl3_testing.so")
    return Path(library).parent / "l3_batch_test"


def test_names() -> None:
    listed = subprocess.run([program(), "--list"], capture_output=True, text=True, check=True)
    assert listed.stdout.split() == NAMES


NAMES = sorted(
    line.split('"')[1] for line in SOURCE.read_text().splitlines() if line.startswith('    {"')
)


@pytest.mark.parametrize("name", NAMES)
def test_batch(name: str) -> None:
    result = subprocess.run([program(), name], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
