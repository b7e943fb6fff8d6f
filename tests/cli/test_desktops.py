"""The files by which desktops and file(1) know L3."""

from __future__ import annotations

import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import l3dali
from l3dali.signatures import L3_SIGNATURE

ROOT = Path(__file__).parents[2]
SHARE = ROOT / "share"
GOLDEN = sorted((ROOT / "tests/golden/v1").glob("*.l3"))


def test_desktop_files_agree() -> None:
    tree = ET.parse(SHARE / "mime/packages/l3.xml")
    names = {"m": "http://www.freedesktop.org/standards/shared-mime-info"}
    kind = tree.find("m:mime-type", names)
    match = tree.find(".//m:match", names)
    assert kind is not None
    assert match is not None
    assert match.attrib["value"].encode().decode("unicode_escape").encode("latin-1") == L3_SIGNATURE


@pytest.mark.skipif(shutil.which("file") is None, reason="file is not installed")
def test_file_knows_golden_files(tmp_path: Path) -> None:
    file = tmp_path / "x"
    l3dali.imwrite(file, np.zeros((5, 7, 2), np.int16))
    command = ["file", "-b", "-m", str(SHARE / "l3dali/magic")]
    told = subprocess.run([*command, file], capture_output=True, text=True, check=True).stdout
    assert told == "L3 image data, version 1, 7 x 5, channels: 2, 16 bits signed\n"
    told = subprocess.run(
        [*command, "--mime-type", *GOLDEN], capture_output=True, text=True, check=True
    ).stdout
    assert set(told.split()) == {"image/x-l3"}
