"""`l3 thumbnail`, and the files by which desktops and file(1) know L3."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

import l3dali
from l3dali.cli import main
from l3dali.signatures import L3_SIGNATURE

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
SHARE = ROOT / "share"
GOLDEN = sorted((ROOT / "tests/golden/v1").glob("*.l3"))
RAMP = np.add.outer(np.arange(300), np.arange(900))


def _thumbnail(tmp_path: Path, image: object, *options: str, **kept: object) -> NDArray[np.uint8]:
    source, target = tmp_path / "a.l3", tmp_path / "a.png"
    l3dali.imwrite(source, image, **kept)  # type: ignore[arg-type]
    assert main(["thumbnail", str(source), str(target), "--overwrite", *options]) == 0
    with Image.open(target) as png:
        return np.asarray(png)


def test_sides(tmp_path: Path) -> None:
    photo = np.stack([RAMP % 256] * 3, 2).astype(np.uint8)
    assert _thumbnail(tmp_path, photo).shape == (85, 256, 3)
    assert _thumbnail(tmp_path, photo, "--size", "30").shape == (10, 30, 3)
    assert np.array_equal(_thumbnail(tmp_path, photo, "--size", "4000"), photo)


def test_thumbnails_are_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert _thumbnail(tmp_path, RAMP.astype(np.uint16), exif=exif.tobytes()).shape == (256, 85)


@pytest.mark.parametrize("file", GOLDEN[::40], ids=lambda file: file.stem)
def test_golden_files(tmp_path: Path, file: Path) -> None:
    target = tmp_path / "a.png"
    assert main(["thumbnail", str(file), str(target)]) == 0
    info = l3dali.info(file)
    with Image.open(target) as png:
        assert max(png.size) == min(256, max(info.width, info.height))


def test_an_original_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.png").write_bytes(b"the original")
    command = ["thumbnail", str(GOLDEN[0]), str(tmp_path / "a.png")]
    assert main(command) == 2
    assert "exists; --overwrite replaces it" in capsys.readouterr().err
    assert (tmp_path / "a.png").read_bytes() == b"the original"
    assert main([*command, "--overwrite"]) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_damaged_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.l3"
    file.write_bytes(GOLDEN[0].read_bytes()[:-1])
    assert main(["thumbnail", str(file), str(tmp_path / "a.png")]) == 2
    assert "too early" in capsys.readouterr().err
    assert not (tmp_path / "a.png").exists()


def test_the_name_of_another_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, code in (("a.jpg", 2), ("a.L3", 2), ("a.PNG", 0), ("a.tmp", 0), ("a", 0)):
        assert main(["thumbnail", str(GOLDEN[0]), str(tmp_path / name)]) == code
        assert (tmp_path / name).exists() == (code == 0)
    told = capsys.readouterr().err
    assert f"thumbnails are PNG, and {tmp_path / 'a.jpg'} ends in another suffix" in told


def test_desktop_files_agree() -> None:
    tree = ET.parse(SHARE / "mime/packages/l3.xml")
    names = {"m": "http://www.freedesktop.org/standards/shared-mime-info"}
    kind = tree.find("m:mime-type", names)
    match = tree.find(".//m:match", names)
    assert kind is not None
    assert match is not None
    assert match.attrib["value"].encode().decode("unicode_escape").encode("latin-1") == L3_SIGNATURE
    entry = configparser.ConfigParser(interpolation=None)
    entry.read(SHARE / "thumbnailers/l3.thumbnailer")
    section = entry["Thumbnailer Entry"]
    assert section["MimeType"] == f"{kind.attrib['type']};"
    assert section["Exec"] == "l3 thumbnail --overwrite --size %s %i %o"


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
