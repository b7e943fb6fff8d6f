"""Processes that tests start."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).parent
# Where modules are that tests import; pyproject.toml lists the same for pytest.
ROOMS = [
    TESTS,
    *(TESTS / room for room in ("format", "engines", "encoder", "dali", "datasets", "cli")),
]


def child_environment(**variables: str) -> dict[str, str]:
    """For a child that imports modules of the tests: PYTHONPATH begins with their folders.

    What it held before stays: packages may be there alone.
    """
    paths = [*map(str, ROOMS), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
