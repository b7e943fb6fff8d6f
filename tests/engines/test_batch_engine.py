"""The batch engine and the encoded cache on an emulated GPU: tests/native/batch_test.cc, and
tests/native/compare_engines.cc, which compute-sanitizer watches on a real one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tests/native/batch_test.cc"


def run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a test program, of the build that L3_TESTING_LIBRARY names."""
    library = os.environ.get("L3_TESTING_LIBRARY", ROOT / "build/release/libl3_testing.so")
    command = [Path(library).parent / name, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_names() -> None:
    listed = run("l3_batch_test", "--list")
    assert listed.stdout.split() == NAMES


NAMES = sorted(
    line.split('"')[1] for line in SOURCE.read_text().splitlines() if line.startswith('    {"')
)


@pytest.mark.parametrize("name", NAMES)
def test_batch(name: str) -> None:
    result = run("l3_batch_test", name)
    assert result.returncode == 0, result.stderr


def test_every_kernel_decodes_as_the_cpu_does() -> None:
    """Some of the files that the GPU gets, sound and damaged ones: lanes are emulated."""
    small = (path for path in sorted(ROOT.glob("tests/*/**/*.l3")) if "256" not in path.name)
    result = run("l3_compare_emulated", *list(small)[::5])
    assert result.returncode == 0, result.stdout + result.stderr
