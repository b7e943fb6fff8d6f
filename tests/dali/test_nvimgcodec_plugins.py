"""The nvImageCodec extension on an emulated GPU: tests/native/nvimgcodec_test.cc."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tests/native/nvimgcodec_test.cc"
LIBRARY = os.environ.get("L3_TESTING_LIBRARY", ROOT / "build/release/libl3_testing.so")
PROGRAM = Path(LIBRARY).with_name("l3_nvimgcodec_test")
NAMES = sorted(
    line.split('"')[1] for line in SOURCE.read_text().splitlines() if line.startswith('    {"')
)

pytestmark = pytest.mark.skipif(
    not PROGRAM.exists(), reason="nvImageCodec is not installed where the tests were built"
)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs the program."""
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)


def test_names() -> None:
    assert run("--list").stdout.split() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_plugins(name: str) -> None:
    result = run(name)
    assert result.returncode == 0, result.stderr


def test_damaged_files() -> None:
    """Each file once as it is, then mutants: both decoders say and write the same."""
    result = run("--mutants", "1200", ROOT / "tests/invalid", ROOT / "tests/golden")
    assert result.returncode == 0, result.stderr
