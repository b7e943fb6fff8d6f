"""What the build asks for, and what the plugin says when it does not fit."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("scikit_build_core")
_ROOT = Path(__file__).parents[1]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.chdir(_ROOT)
    monkeypatch.syspath_prepend(str(_ROOT / "build_backend"))
    for name in ("L3_DALI", "L3_CUDA", "L3_DALI_PACKAGE", "CUDACXX"):
        monkeypatch.delenv(name, raising=False)
    return importlib.import_module("l3_build_backend")


def _requirements(backend: ModuleType, settings: dict[str, str] | None = None) -> str:
    return " ".join(backend.get_requires_for_build_wheel(settings))


@pytest.fixture
def no_nvcc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def nvcc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    script = tmp_path / "nvcc"
    script.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {request.param}'\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")


@pytest.mark.parametrize("nvcc", ["12.4, V12.4.131", "13.0, V13.0.88"], indirect=True)
@pytest.mark.usefixtures("nvcc")
def test_usable_nvcc_is_used(backend: ModuleType) -> None:
    requirements = _requirements(backend)
    assert "nvidia-dali-cuda120==" in requirements
    assert "nvidia-cuda" not in requirements


@pytest.mark.parametrize("nvcc", ["11.8, V11.8.89"], indirect=True)
@pytest.mark.usefixtures("nvcc")
def test_old_nvcc_is_replaced(backend: ModuleType) -> None:
    assert "nvidia-cuda-nvcc==" in _requirements(backend)


@pytest.mark.usefixtures("no_nvcc")
def test_missing_nvcc_is_fetched(backend: ModuleType) -> None:
    assert "nvidia-cuda-nvcc==" in _requirements(backend)


@pytest.mark.usefixtures("no_nvcc")
def test_without_cuda_only_headers_are_fetched(backend: ModuleType) -> None:
    requirements = _requirements(backend, {"cmake.define.L3_CUDA": "OFF"})
    assert "nvidia-cuda-runtime==" in requirements
    assert "nvidia-cuda-nvcc" not in requirements


@pytest.mark.usefixtures("no_nvcc")
def test_without_dali_nothing_of_nvidia_is_fetched(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("L3_DALI", "OFF")
    assert "nvidia" not in _requirements(backend)


@pytest.mark.usefixtures("no_nvcc")
def test_other_dali_package(backend: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("L3_DALI_PACKAGE", "nvidia-dali-cuda130==2.3.0")
    requirements = _requirements(backend)
    assert "nvidia-dali-cuda130==2.3.0" in requirements
    assert "cuda120" not in requirements


@pytest.mark.dali
@pytest.mark.parametrize(
    ("built_with", "installed", "remedy"),
    [
        ("", "2.4.0", "L3_DALI=OFF"),
        ("2.4.0", None, r"pip install 'l3dali\[dali\]'"),
        ("2.4.0", "2.3.0", "L3_DALI_PACKAGE=nvidia-dali-cuda120==2.3.0"),
    ],
)
def test_plugin_names_the_remedy(built_with: str, installed: str | None, remedy: str) -> None:
    plugin = importlib.import_module("l3dali.plugin")
    plugin.check_dali("2.4.0", "2.4.0")
    with pytest.raises(ImportError, match=remedy):
        plugin.check_dali(built_with, installed)


def _python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    ).stderr


@pytest.mark.dali
def test_plugin_loads_twice_and_before_dynamic_mode() -> None:
    code = """
import importlib, warnings
import l3dali.plugin
importlib.reload(l3dali.plugin)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from nvidia.dali import fn
    import nvidia.dali.experimental.dynamic as ndd
fn.l3.decode, ndd.l3.decode
"""
    assert _python(code) == ""


@pytest.mark.dali
def test_plugin_warns_when_dynamic_mode_came_first() -> None:
    code = """
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import nvidia.dali.experimental.dynamic
import l3dali.plugin
"""
    assert "import l3dali.plugin before it" in _python(code)
