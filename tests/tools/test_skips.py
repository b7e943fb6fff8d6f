"""Where a skip would hide what is to be tested it is a failure: tests/conftest.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from children import ROOMS, child_environment

REASONS = {
    "no GPU": "failed",
    "l3_bench_kernels is not built": "failed",
    "l3_bench_nvcomp is not built": "skipped",
    "PyTorch is not installed": "skipped",
    "clang++ is not installed: nothing says": "skipped",
    "nvdisasm is not installed": "skipped",
    "this machine or build has no engine avx512": "skipped",
    "this machine or build has no engine neon": "skipped",
    "there is a GPU": "skipped",
}


def _outcome(folder: Path, code: str, required: str, variable: str = "L3_REQUIRE_CUDA") -> str:
    """The last line of pytest for a file of tests."""
    file = folder / "test_it.py"
    file.write_text(f"import pytest\n{code}\n")
    environment = child_environment(**{variable: required})
    for name in set(environment) - {variable}:
        if name.startswith("L3_REQUIRE_"):
            del environment[name]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", f"--rootdir={folder}"]
    command.append(str(file))
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    *_, last_line = result.stdout.splitlines()
    return last_line


def test_skips_of_tests(tmp_path: Path) -> None:
    names = enumerate(REASONS)
    code = "\n".join(f"def test_{i}(): pytest.skip({reason!r})" for i, reason in names)
    outcomes = list(REASONS.values())
    failed, skipped = (f"{outcomes.count(kind)} {kind}" for kind in ("failed", "skipped"))
    assert _outcome(tmp_path, code, "1").startswith(f"{failed}, {skipped} in")
    assert _outcome(tmp_path, code, "").startswith(f"{len(REASONS)} skipped in")


@pytest.mark.parametrize(("package", "outcome"), [("nvidia.no_dali", "error"), ("none", "skipped")])
def test_skips_of_files(tmp_path: Path, package: str, outcome: str) -> None:
    code = f"pytest.importorskip({package!r})\ndef test_it(): pass"
    assert _outcome(tmp_path, code, "1").startswith(f"1 {outcome} in")


@pytest.mark.parametrize(("required", "outcome"), [("1", "failed"), ("", "skipped")])
def test_missing_packages(tmp_path: Path, required: str, outcome: str) -> None:
    code = "def test_it(): pytest.importorskip('none', reason='Ray is not installed')"
    assert _outcome(tmp_path, code, required, "L3_REQUIRE_PACKAGES").startswith(f"1 {outcome} in")


def test_missing_gpu_is_no_missing_package(tmp_path: Path) -> None:
    code = "def test_it(): pytest.skip('no GPU')"
    assert _outcome(tmp_path, code, "1", "L3_REQUIRE_PACKAGES").startswith("1 skipped in")


def test_expected_failures_stay(tmp_path: Path) -> None:
    code = "@pytest.mark.xfail\ndef test_it(): assert False"
    assert _outcome(tmp_path, code, "1").startswith("1 xfailed in")


def test_children_keep_the_python_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU host may have its packages there alone."""
    monkeypatch.setenv("PYTHONPATH", "/a:/b")
    assert child_environment(NAME="x")["PYTHONPATH"] == ":".join([*map(str, ROOMS), "/a", "/b"])
    monkeypatch.delenv("PYTHONPATH")
    environment = child_environment(NAME="x")
    assert environment["PYTHONPATH"] == ":".join(map(str, ROOMS))
    assert environment["NAME"] == "x"
