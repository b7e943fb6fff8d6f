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
    assert len(EXAMPLES) == 9


@pytest.mark.parametrize("code", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example(tmp_path: Path, code: str) -> None:
    (tmp_path / "images" / "cats").mkdir(parents=True)
    l3dali.imwrite(tmp_path / "images" / "cats" / "0.l3", np.zeros((48, 64, 3), np.uint8))
    (tmp_path / "example.py").write_text(code)
    subprocess.run([sys.executable, "example.py"], cwd=tmp_path, check=True)
