"""Importing this module loads the `fn.l3` operators into DALI, once."""

from __future__ import annotations

import ctypes
import re
import sys
import warnings
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from l3dali import _build_info

__all__ = [
    "CacheStatistics",
    "cache_statistics",
    "check_dali",
    "installed_dali",
    "library_path",
    "load",
]

_DYNAMIC_MODE = "nvidia.dali.experimental.dynamic"


class CacheStatistics(NamedTuple):
    """Statistics of the cache of encoded images on a GPU."""

    hits: int
    """Images that were decoded from the cache."""
    misses: int
    """Images that were not."""
    images: int
    """Cached images."""
    payload_bytes: int
    """Their size."""
    memory_bytes: int
    """GPU memory that is allocated for them."""


def cache_statistics(device_id: int = 0) -> CacheStatistics | None:
    """The statistics of the cache that all operators of a GPU share.

    None while no pipeline has an operator with a `cache_size` on the GPU with this number.
    """
    library = ctypes.CDLL(str(library_path()))
    numbers = (ctypes.c_uint64 * len(CacheStatistics._fields))()
    if not library.l3_GetCacheStatistics(ctypes.c_int(device_id), numbers):
        return None
    return CacheStatistics(*numbers)


def library_path() -> Path:
    """The shared library with the operators for the installed DALI.

    Raises:
        ImportError: DALI is not installed, or no operators were built for its version.
    """
    version = installed_dali()
    check_dali(_build_info.DALI_VERSIONS, version)
    return Path(__file__).parent / f"libl3_dali-{version}.so"


def installed_dali() -> str | None:
    """The version of the installed DALI, or None."""
    try:
        import nvidia.dali as dali
    except ModuleNotFoundError as error:
        if error.name in ("nvidia", "nvidia.dali"):
            return None
        raise  # A requirement of DALI is missing.
    return str(dali.__version__)


def dali_package(version: str) -> str:
    """The package of the installed DALI of this version, such as nvidia-dali-cuda130."""
    found = {
        str(distribution.metadata["Name"]).lower().replace("_", "-"): distribution.version
        for distribution in metadata.distributions()
    }
    packages = [name for name in found if re.fullmatch(r"nvidia-dali(-\w+)?-cuda\d+", name)]
    packages.sort(key=lambda name: (found[name] != version, name))
    return packages[0] if packages else "nvidia-dali-cuda120"


def _major_minor(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def check_dali(built_for: Sequence[str], installed: str | None) -> None:
    """Raises ImportError, with the remedy, unless `installed` is one of `built_for`."""
    if not built_for:
        raise ImportError(
            "this l3dali was built without the DALI operators (L3_DALI=OFF): "
            "reinstall it from source without that option"
        )
    if installed is None:
        raise ImportError(
            f"l3dali.plugin needs NVIDIA DALI: pip install "
            f"nvidia-dali-cuda120=={max(built_for, key=_major_minor)}"
        )
    if installed not in built_for:
        package = dali_package(installed)
        oldest = _build_info.MIN_DALI_VERSION
        can_rebuild = _major_minor(installed) >= _major_minor(oldest)
        raise ImportError(
            f"the L3 operators were built for DALI {', '.join(built_for)}, but DALI {installed} "
            f"is installed, and a DALI plugin only works with its own version: "
            f"pip install {package}=={max(built_for, key=_major_minor)}"
            + (
                f", or rebuild in the source tree with "
                f"L3_DALI_PACKAGE={package}=={installed} pip install ."
                if can_rebuild
                else f" (the operators cannot be built for a DALI older than {oldest})"
            )
        )


def load() -> None:
    """Loads the operators into DALI; a repeat does nothing."""
    library = library_path()
    dynamic = sys.modules.get(_DYNAMIC_MODE)
    if dynamic is not None and not hasattr(dynamic, "l3"):
        warnings.warn(
            f"{_DYNAMIC_MODE} was imported before the operators and lacks `l3`: "
            f"import l3dali.plugin first",
            RuntimeWarning,
            stacklevel=2,
        )
    from nvidia.dali import plugin_manager

    plugin_manager.load_library(str(library))
    readers = library.with_name(library.name.replace("l3_dali-", "l3_dali_readers-"))
    if readers.exists():  # Its parts of DALI change more often: a release may have none.
        plugin_manager.load_library(str(readers))


load()
