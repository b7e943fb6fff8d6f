"""Settings and fixtures of all tests."""

from __future__ import annotations

import os

import engines
import pytest
from hypothesis import settings

from l3dali._gpu import has_gpu

settings.register_profile("l3", deadline=None)
settings.load_profile("l3")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips tests marked `cuda` without a GPU; fails them under L3_REQUIRE_CUDA=1.

    Loads the operators for tests marked `dali`.
    """
    if item.get_closest_marker("cuda") and not has_gpu():
        if os.environ.get("L3_REQUIRE_CUDA") == "1":
            pytest.fail("L3_REQUIRE_CUDA=1, but there is no GPU")
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
