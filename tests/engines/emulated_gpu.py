"""The bindings of the batch engine on an emulated GPU."""

from __future__ import annotations

import importlib.util
import os
import sysconfig
from pathlib import Path
from typing import Any

import pytest

_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


def _load(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_emulated() -> Any:
    """The module in the place of `l3dali._cuda`; skips where tests were not built."""
    folder = Path(os.environ.get("L3_TESTING_LIBRARY", "build/release/none")).parent
    path = folder / f"_emulated{_SUFFIX}"
    if not path.exists():
        pytest.skip("the emulated GPU is not built")
    return _load("_emulated", path)
