"""PEP 517 backend: scikit-build-core plus the requirements that depend on machine and options.

Options come from `pip install -C cmake.define.NAME=VALUE .` or from the environment:

    L3_DALI=OFF      no DALI operators: encoder, decoder and command line alone
    L3_CUDA          OFF: no CUDA engine, so the operators run on the CPU alone. Default: ON if
                     this machine has a GPU or L3_CUDA_ARCHS is set
    L3_CUDA_ARCHS    GPU architectures, such as "90" or "native"; "all": every one that
                     L3 supports; default: the GPUs of this machine
    L3_DALI_PACKAGE  the DALI to build against; default: the pin of the `dali` extra

A usable nvcc on PATH (or in CUDACXX) is used; otherwise the compiler comes from its PyPI wheels.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from scikit_build_core import build as _skbuild
from scikit_build_core.build import (
    build_sdist,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = dict[str, Any]

_MIN_CUDA_MAJOR = 12
_CUDA_HEADERS = ("nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cuda-cccl")
_CUDA_COMPILER = (*_CUDA_HEADERS, "nvidia-cuda-nvcc", "nvidia-nvvm")
_CUDA_WHEEL_VERSION = "==13.0.*"
_CUDA_WHEEL_FOLDER = "cu13"


def _option(settings: Settings, name: str, default: str) -> str:
    return str(settings.get(f"cmake.define.{name}", os.environ.get(name, default)))


def _is_on(value: str) -> bool:
    return value.upper() not in ("", "0", "OFF", "NO", "N", "FALSE")


def _with_dali(settings: Settings) -> bool:
    return _is_on(_option(settings, "L3_DALI", "ON"))


def _has_gpu() -> bool:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return False
    listed = subprocess.run([smi, "--list-gpus"], capture_output=True, text=True, check=False)
    return listed.returncode == 0 and "GPU" in listed.stdout


def _with_cuda(settings: Settings) -> bool:
    """Whether to build the CUDA engine: operators use it, on hosts with a GPU."""
    has_use = _with_dali(settings) and (bool(_option(settings, "L3_CUDA_ARCHS", "")) or _has_gpu())
    return _is_on(_option(settings, "L3_CUDA", "ON" if has_use else "OFF"))


def _has_usable_nvcc() -> bool:
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc")
    if nvcc is None:
        return False
    version = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    release = re.search(r"release (\d+)\.", version.stdout)
    return release is not None and int(release[1]) >= _MIN_CUDA_MAJOR


def _cuda_wheel_root(needed_file: str) -> Path | None:
    """Folder that the CUDA wheels share, if they are installed and hold `needed_file`."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec and spec.submodule_search_locations) or ():
        root = Path(folder, _CUDA_WHEEL_FOLDER)
        if (root / needed_file).exists():
            return root
    return None


def _pyproject() -> dict[str, Any]:
    with Path("pyproject.toml").open("rb") as file:
        content: dict[str, Any] = tomllib.load(file)
    return content


def _dali_requirement() -> str:
    """The DALI to build against. Ends the build at once if the operators cannot be built for it."""
    pyproject = _pyproject()
    (pinned,) = pyproject["project"]["optional-dependencies"]["dali"]
    oldest = pyproject["tool"]["l3dali"]["min-dali"]
    wanted = os.environ.get("L3_DALI_PACKAGE") or pinned
    pin = re.search(r"==\s*(\d+)\.(\d+)", wanted)
    if pin and (int(pin[1]), int(pin[2])) < tuple(map(int, oldest.split("."))):
        raise SystemExit(
            f"L3's operators need DALI {oldest} or newer, and L3_DALI_PACKAGE asks for {wanted}: "
            f"name a newer one, or set L3_DALI=OFF for the encoder, the decoder and the command "
            f"line alone."
        )
    return str(wanted)


def _extra_requirements(settings: Settings) -> list[str]:
    requirements: list[str] = []
    if _with_dali(settings):
        requirements.append(_dali_requirement())
    wheels: tuple[str, ...] = ()
    if _with_cuda(settings):
        wheels = () if _has_usable_nvcc() else _CUDA_COMPILER
    elif _with_dali(settings):
        wheels = _CUDA_HEADERS  # DALI's headers include CUDA's.
    return requirements + [wheel + _CUDA_WHEEL_VERSION for wheel in wheels]


def _build_settings(config_settings: Settings | None) -> Settings:
    """The caller's settings with every L3 option spelled out for CMake."""
    settings = dict(config_settings or {})
    with_cuda = _with_cuda(settings)
    root = None
    if with_cuda and not _has_usable_nvcc():
        root = _cuda_wheel_root("bin/nvcc")
        if root is None:
            raise SystemExit(
                f"L3 needs nvcc {_MIN_CUDA_MAJOR} or newer for its CUDA engine. Put it on PATH, "
                f"build with pip's build isolation (which fetches it), or set L3_CUDA=OFF."
            )
    elif not with_cuda:
        root = _cuda_wheel_root("include/cuda_runtime_api.h")
        if _with_dali(settings) and not _option(settings, "L3_CUDA", ""):
            print(
                "l3dali: this machine has no GPU, so the operators are built for the CPU alone. "
                "To add GPUs, name their compute capability: L3_CUDA_ARCHS=90 pip install ...",
                file=sys.stderr,
            )
    options = {
        "L3_DALI": "ON" if _with_dali(settings) else "OFF",
        "L3_CUDA": "ON" if with_cuda else "OFF",
        "L3_CUDA_ARCHS": _option(settings, "L3_CUDA_ARCHS", ""),
        "L3_CUDA_ROOT": str(root or ""),
    }
    return settings | {f"cmake.define.{name}": value for name, value in options.items()}


def get_requires_for_build_wheel(config_settings: Settings | None = None) -> list[str]:
    requirements = _skbuild.get_requires_for_build_wheel(config_settings)
    return [*requirements, *_extra_requirements(config_settings or {})]


def get_requires_for_build_editable(config_settings: Settings | None = None) -> list[str]:
    requirements = _skbuild.get_requires_for_build_editable(config_settings)
    return [*requirements, *_extra_requirements(config_settings or {})]


def build_wheel(
    wheel_directory: str,
    config_settings: Settings | None = None,
    metadata_directory: str | None = None,
) -> str:
    settings = _build_settings(config_settings)
    return str(_skbuild.build_wheel(wheel_directory, settings, metadata_directory))


def build_editable(
    wheel_directory: str,
    config_settings: Settings | None = None,
    metadata_directory: str | None = None,
) -> str:
    settings = _build_settings(config_settings)
    return str(_skbuild.build_editable(wheel_directory, settings, metadata_directory))


if __name__ == "__main__":  # for builds without isolation: what to install first
    print("\n".join(get_requires_for_build_wheel()))
