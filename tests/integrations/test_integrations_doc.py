"""The examples of docs/integrations.md run as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from engines import ROOT

import l3dali

DOC = (ROOT / "docs" / "integrations.md").read_text()
EXAMPLES = [
    example
    for example in re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)
    if "import streaming" not in example  # test_streaming.py has its package
]


def test_examples_are_found() -> None:
    assert len(EXAMPLES) == 10


@pytest.mark.parametrize("code", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example(tmp_path: Path, code: str) -> None:
    (tmp_path / "images" / "cats").mkdir(parents=True)
    l3dali.imwrite(tmp_path / "images" / "cats" / "0.l3", np.zeros((48, 64, 3), np.uint8))
    (tmp_path / "example.py").write_text(code)
    subprocess.run([sys.executable, "example.py"], cwd=tmp_path, check=True)


README = (ROOT / "README.md").read_text()
AROUND_README_LINES = """
import imageio.v3 as iio, numpy as np, webdataset
from PIL import Image
import l3dali.imageio, l3dali.pillow, l3dali.webdataset

image = np.full((48, 64), 7, np.uint8)
l3dali.imwrite("a.l3", image)
with webdataset.TarWriter("a.tar") as writer:
    writer.write({{"__key__": "0", "l3": l3dali.encode(image)}})
urls = "file:a.tar"
{lines}
assert np.array_equal(Image.open("a.l3"), image)
assert np.array_equal(iio.imread("a.l3"), image)
{last_line}
assert np.array_equal(next(iter(samples))["l3"], image)
"""


def test_readme_lines(tmp_path: Path) -> None:
    """The three that most people need, with the imports and names that they speak of."""
    (lines,) = re.findall(r"```python\n(l3dali\.pillow.*?)```", README, re.DOTALL)
    last_line = "samples = " + lines.splitlines()[-1]
    code = AROUND_README_LINES.format(lines=lines, last_line=last_line)
    (tmp_path / "example.py").write_text(code)
    subprocess.run([sys.executable, "example.py"], cwd=tmp_path, check=True)
