"""The worked example of docs/dev/liquid-model.md prints what docs/liquid.md shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from engines import ROOT

pytest.importorskip("scipy")

from l3dali.cli import main

PAGE = (ROOT / "docs" / "liquid.md").read_text()
MODEL = (ROOT / "docs" / "dev" / "liquid-model.md").read_text()
EXAMPLE = MODEL.partition("## A worked example\n")[2]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", EXAMPLE, re.DOTALL | re.MULTILINE)
SHOWN = re.findall(r"^```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_worked_example_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (python, program), (bash, commands) = BLOCKS
    assert (python, bash) == ("python", "bash")
    subprocess.run([sys.executable, "-c", program], check=True)
    for command, shown in zip(commands.splitlines(), SHOWN, strict=True):
        name, *arguments = shlex.split(command)
        assert name == "l3"
        assert main(arguments) == 0
        printed = capsys.readouterr().out
        for line in shown.splitlines():
            assert line in printed


def test_the_share_is_that_of_the_page() -> None:
    """The sum that the page does by hand."""
    share = (662_252 / 400e6 - 0.00046 / 2) / (0.003285 / 2 + 135_936 / 400e6)
    assert f"x = {share:.2f}" in EXAMPLE
    assert f"{(662_252 - 135_936 * share) / 400e3:.3f} ms" in EXAMPLE


def test_the_bound_is_that_of_the_page() -> None:
    b, g = 526_316 / 662_252, 0.00046 / 0.003745
    assert f"at most {(2 - b - g) / (1 - b * g):.2f}" in EXAMPLE
