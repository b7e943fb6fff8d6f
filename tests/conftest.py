"""Settings and fixtures of all tests."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import engines
import pytest
from hypothesis import settings

from l3dali.driver import gpu_name

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of a job in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # for processes that tests start

settings.register_profile("l3", deadline=None)
settings.load_profile("l3")

# Under L3_REQUIRE_CUDA=1 a skip is a failure, but for these reasons: what a GPU host may lack and
# the GPU engine does not need. The package that it needs is DALI.
FINE_ON_A_GPU_HOST = re.compile(
    r"could not import '(?!nvidia)"
    r"|(PyTorch|clang\+\+|nvdisasm|ptxas|the package tfrecord) is not installed"
    r"|(g\+\+ -m32|Node|file|update-mime-database) is not installed"
    r"|l3_bench_nvcomp is not built"
    r"|this machine or build has no engine (avx|neon)"
    r"|shared/data"
    r"|there is a GPU"
)
# Under L3_REQUIRE_PACKAGES=1 a package that is missing fails the tests that need it.
MISSING_PACKAGE = re.compile(r"could not import|is not installed")
Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def _failed_if_required(report: Report) -> Report:
    """Makes a skip a failure where the environment says that there is no excuse for it."""
    if not report.skipped or not isinstance(report.longrepr, tuple):  # expected to fail, and did
        return report
    path, line, reason = report.longrepr
    inexcusable = {
        "L3_REQUIRE_CUDA": not FINE_ON_A_GPU_HOST.search(reason),
        "L3_REQUIRE_PACKAGES": MISSING_PACKAGE.search(reason) is not None,
    }
    for variable, is_inexcusable in inexcusable.items():
        if is_inexcusable and os.environ.get(variable) == "1":
            report.outcome = "failed"
            report.longrepr = f"{path}:{line}: {variable}=1 allows no skip. {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Decides whether a skip of a test is allowed."""
    return _failed_if_required((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Decides whether a skip of a whole file is allowed."""
    return _failed_if_required((yield))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips tests without what their markers say; loads the operators for those marked `dali`."""
    if item.get_closest_marker("cuda") and not gpu_name():
        pytest.skip("no GPU")
    if item.get_closest_marker("torch"):
        pytest.importorskip("torch", reason="PyTorch is not installed")
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
    if engine in engines.ENGINES and not engines.is_available(engine):
        pytest.skip(f"this machine or build has no engine {engine}")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Three images in a tree, and two files that are none."""
    from cli_tools import write_tree

    return write_tree(tmp_path / "tree")


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `l3 convert` work without children, which would not see what a test has patched."""
    from l3dali.datasets.convert import containers

    monkeypatch.setattr(containers, "_IN_PROCESS", re.compile(""))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules that processes of the test find first, such as sitecustomize.py."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=os.pathsep)
    (tmp_path / "site").mkdir()
    return tmp_path / "site"


@pytest.fixture
def memory() -> Generator[Any]:
    """fsspec's file system in memory, empty."""
    fsspec = pytest.importorskip("fsspec")
    storage = fsspec.filesystem("memory")
    storage.store.clear()
    yield storage
    storage.store.clear()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An S3 server with an empty bucket `data`, which s3fs uses in any process."""
    import s3fs
    from s3_tools import s3_server

    with s3_server() as started:
        for name, value in started.environment.items():
            monkeypatch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir("data")
        yield started
