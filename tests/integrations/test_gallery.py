"""The examples of the gallery run as programs, and draw at least one picture each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from engines import ROOT

for package in ("moto", "s3fs", "skimage", "torch", "webdataset"):
    pytest.importorskip(package)

EXAMPLES = sorted((ROOT / "examples" / "gallery").glob("*.py"))
RUN = """
import runpy, sys
import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot
pyplot.show = lambda: pyplot.savefig("picture.png")
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_examples_are_found() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(tmp_path: Path, example: Path) -> None:
    subprocess.run([sys.executable, "-c", RUN, example], cwd=tmp_path, check=True)
    assert (tmp_path / "picture.png").stat().st_size > 4_000
