"""Settings and fixtures of all tests."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from typing import TypeVar

import engines
import pytest
from hypothesis import settings

from l3dali._gpu import has_gpu

settings.register_profile("l3", deadline=None)
settings.load_profile("l3")

# Under L3_REQUIRE_CUDA=1 a skip is a failure, but for these reasons: what a GPU host may lack and
# the GPU engine does not need. The package that it needs is DALI.
FINE_ON_A_GPU_HOST = re.compile(
    r"could not import '(?!nvidia)"
    r"|(PyTorch|the package tfrecord) is not installed"
    r"|l3_bench_nvcomp is not built"
    r"|this machine or build has no engine avx"
    r"|shared/data"
    r"|there is a GPU"
)
Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def _judge_skip(report: Report) -> Report:
    """Makes a skip that a GPU host has no excuse for a failure."""
    if os.environ.get("L3_REQUIRE_CUDA") != "1" or not report.skipped:
        return report
    if not isinstance(report.longrepr, tuple):  # expected to fail, and did
        return report
    path, line, reason = report.longrepr
    if not FINE_ON_A_GPU_HOST.search(reason):
        report.outcome = "failed"
        report.longrepr = f"{path}:{line}: L3_REQUIRE_CUDA=1 allows no skip. {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judges the skips of tests."""
    return _judge_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Judges the skips of whole files."""
    return _judge_skip((yield))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips tests marked `cuda` without a GPU, and loads the operators for those marked `dali`."""
    if item.get_closest_marker("cuda") and not has_gpu():
        pytest.skip("no GPU")
    if item.get_closest_marker("dali"):
        import l3dali.plugin  # noqa: F401


@pytest.fixture(params=["cpu", pytest.param("mixed", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> str:
    """The device of the DALI operator under test."""
    return str(request.param)


@pytest.fixture
def require_engine(request: pytest.FixtureRequest) -> None:
    """Skips the parameter `engine` where this build or this machine lacks it."""
    engine = request.getfixturevalue("engine")
    if engine != "reference" and not engines.is_available(engine):
        pytest.skip(f"this machine or build has no engine {engine}")
