"""Processes that tests start."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).parent


def child_environment(**variables: str) -> dict[str, str]:
    """For a child that imports modules of the tests: PYTHONPATH begins with their folder.

    What it held before stays: packages may be there alone.
    """
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
