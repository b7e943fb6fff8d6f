"""Nothing that `l3` starts runs Python files of the current folder: it may hold untrusted ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import image, write_png

from l3dali import codec
from l3dali.cli import main

pytest.importorskip("scipy")  # for plans

COMMANDS = [
    "convert images converted -j 2",
    "convert converted images-again -j 2 --to png",
    "verify converted -j 2",
    "encode images/0.png images/1.png -o encoded -j 2 --verify",
    "decode encoded/0.l3 encoded/1.l3 -o decoded -j 2",
    "profile images --seconds 0.1 --disk 2GB/s",
    "plan profile.json",
]
PACKAGES = ["PIL", "imagecodecs", "l3dali", "nvidia", "numpy", "pyarrow", "rich", "tifffile"]


def test_nothing_of_the_current_folder_is_run(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("l3")
    marks = tmp_path / "marks"
    for i in range(4):
        write_png(tmp_path / "images" / f"{i}.png", image(i))
    (tmp_path / "a.l3").write_bytes(codec.encode(image()))
    for name in [*sys.stdlib_module_names, *PACKAGES]:
        code = f"open({str(marks)!r}, 'a').write(__file__)\nraise ImportError"
        (tmp_path / f"{name}.py").write_text(code)
    for command in COMMANDS:
        done = subprocess.run([program, *command.split()], cwd=tmp_path, capture_output=True)
        assert not marks.exists(), (command, marks.read_text())
        assert done.returncode == 0, done


def test_relative_paths_begin_in_the_folder_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Children that were started elsewhere wrote results there."""
    for name in ("one", "two"):
        write_png(tmp_path / name / "photos" / "a.png", image())
        monkeypatch.chdir(tmp_path / name)
        assert main(["convert", "photos", "photos-l3", "-q"]) == 0
        assert (tmp_path / name / "photos-l3" / "a.l3").exists()
