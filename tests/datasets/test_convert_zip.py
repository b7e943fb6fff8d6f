"""`l3 convert` with zip archives: there and back, and archives that are damaged or hostile."""

from __future__ import annotations

import io
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert_tools import (
    Members,
    convert,
    files_below,
    image,
    pixels_of,
    png,
    rows_of,
    write_files,
)

import l3dali
from l3dali.cli import main
from l3dali.datasets.convert.storage import MANIFEST_NAME
from l3dali.images.reading import read_picture

pytestmark = pytest.mark.usefixtures("in_process")  # as in test_convert_back.py


def members(count: int = 4) -> Members:
    found: Members = [("folder/", b"")]
    for i in range(count):
        found += [(f"folder/{i}.png", png(i)), (f"folder/{i}.txt", b"caption" * 50 + b"%d" % i)]
    return [*found, ("../up.txt", b"up"), ("/absolute.txt", b"abs"), ("caf\u00e9.png", png(9))]


def write_zip(path: Path, content: Members, method: int = zipfile.ZIP_DEFLATED) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.comment = b"a set"
        for i, (name, data) in enumerate(content):
            info = zipfile.ZipInfo(name, (2001, 2, 3, 4, 5, 2 * i))
            info.external_attr = (stat.S_IFREG | 0o640) << 16
            info.compress_type = method
            info.extra = b"UT\5\0\1abcd"
            archive.writestr(info, data)
    return path


def read_zip(path: Path) -> list[tuple[Any, ...]]:
    """Name, data, and what else the directory keeps."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.comment == b"a set"
        return [
            (info.filename, archive.read(info), info.date_time, info.external_attr, info.extra)
            for info in archive.infolist()
        ]


def as_seen(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A member with an image as pixels, and without its suffix."""
    name, data, *rest = row
    if name.endswith((".png", ".l3")):
        return (name.rpartition(".")[0], pixels_of(data).tobytes(), *rest)
    return row


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_an_archive_and_back(tmp_path: Path, method: int) -> None:
    source = write_zip(tmp_path / "s" / "a.zip", members(), method)
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert convert(tmp_path / "d", tmp_path / "b", "--to", "png") == 0
    assert files_below(tmp_path) >= {"s/a.zip", "d/a.zip", "b/a.zip"}
    before = read_zip(source)
    there, back = read_zip(tmp_path / "d" / "a.zip"), read_zip(tmp_path / "b" / "a.zip")
    assert [row[0] for row in there] == [row[0].replace(".png", ".l3") for row in before]
    assert [row[0] for row in back] == [row[0] for row in before]
    assert list(map(as_seen, there)) == list(map(as_seen, back)) == list(map(as_seen, before))
    rows = [rows_of(tmp_path / folder)["a.zip"] for folder in "db"]
    assert rows[0].pixels_hash == rows[1].pixels_hash
    assert (rows[0].kind, rows[0].total.images) == ("zip", 5)
    assert main(["verify", str(tmp_path / "d")]) == 0
    inode = (tmp_path / "d" / "a.zip").stat().st_ino
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert (tmp_path / "d" / "a.zip").stat().st_ino == inode


def test_what_macos_adds_is_no_image(tmp_path: Path) -> None:
    """A file beside each file, in archives of the Finder and on disks of other systems."""
    double = b"\0\5\x16\7\0\2\0\0Mac OS X        "
    write_zip(tmp_path / "s" / "a.zip", [("a.png", png()), ("__MACOSX/._a.png", double)])
    write_files(tmp_path / "s", {"b.png": png(), "._b.png": double})
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    with zipfile.ZipFile(tmp_path / "d" / "a.zip") as archive:
        assert archive.namelist() == ["a.l3", "__MACOSX/._a.png"]
        assert archive.read("__MACOSX/._a.png") == double
    assert (tmp_path / "d" / "._b.png").read_bytes() == double


def test_results_are_the_same_bytes(tmp_path: Path) -> None:
    """Of two runs, on one thread and on several, and where files cannot be sought."""
    pytest.importorskip("fsspec")
    source = write_zip(tmp_path / "s" / "a.zip", members(20))
    for i, jobs in enumerate((1, 3)):
        assert convert(source, tmp_path / f"d{i}", "-j", jobs) == 0
    data = [(tmp_path / name / "a.zip").read_bytes() for name in ("d0", "d1")]
    assert data[0] == data[1]
    assert convert(source, "memory://zipped/d") == 0
    assert convert("memory://zipped/d", tmp_path / "b", "--to", "png") == 0
    assert list(map(as_seen, read_zip(tmp_path / "b" / "a.zip"))) == [
        as_seen(row) for row in read_zip(source)
    ]


@pytest.mark.parametrize("choice", ["fail", "keep", "drop"])
def test_a_damaged_image(tmp_path: Path, choice: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_zip(tmp_path / "s" / "a.zip", [("0.png", png()), ("1.png", b"bad"), ("1.txt", b"1")])
    assert convert(tmp_path / "s", tmp_path / "d", "--on-error", choice) == 2
    assert "1.png: not an image" in capsys.readouterr().err
    names = {"keep": ["0.l3", "1.png", "1.txt"], "drop": ["0.l3", "1.txt"]}.get(choice)
    if names is None:
        assert files_below(tmp_path / "d") == set()
    else:
        assert [row[0] for row in read_zip(tmp_path / "d" / "a.zip")] == names


def refused(tmp_path: Path, data: bytes, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line names it, nothing is left, and other archives are converted."""
    write_files(tmp_path / "s", {"a.zip": data})
    write_zip(tmp_path / "s" / "b.zip", members(1))
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    told = capsys.readouterr().err
    assert "l3: 1 failed\na.zip: " in told
    assert reason in told
    assert files_below(tmp_path / "d") == {"b.zip"}


def archive_of(content: Members) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content:
            archive.writestr(name, data)
    return file.getvalue()


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


WHOLE = archive_of([("0.png", png()), ("1.txt", b"caption " * 99)])
PACKED = archive_of([("1.txt", b"caption " * 99)])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a zip archive"),
        (WHOLE[:-30], "not a whole zip archive"),
        (WHOLE[:200], "not a whole zip archive"),
        (b"#!/bin/sh\n" + WHOLE, "data before it"),
        (PACKED + WHOLE, "data before the first member"),
        (WHOLE + archive_of([]), "data before the first member"),
        (flipped(WHOLE, 60), "0.png: a damaged member"),
        (flipped(PACKED, 40), "1.txt: a damaged member"),
        (flipped(WHOLE, 2), "not a zip archive"),
    ],
)
def test_damage(
    tmp_path: Path, data: bytes, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(tmp_path, data, reason, capsys)


def test_members_that_a_damaged_directory_loses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """zipfile reads the directory as long as it goes, and ends at a comment that is too long."""
    data = bytearray(archive_of([(name, name.encode()) for name in "abc"]))
    data[data.index(b"PK\1\2") + 33] ^= 1  # the length of a comment
    refused(tmp_path, bytes(data), "a damaged directory: ", capsys)


@pytest.mark.parametrize("first", [False, True])
def test_a_link_to_an_image_without_a_suffix(
    tmp_path: Path, first: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is x.l3 in the result, where the link leads nowhere."""
    for name, data in ("x", png()), ("y", b"no image"):
        link = zipfile.ZipInfo("a/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        members: list[tuple[str | zipfile.ZipInfo, bytes]] = [("b/" + name, data)]
        members.insert(0 if first else 1, (link, b"../b/" + name.encode()))
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            for info, content in members:
                archive.writestr(info, content)
    assert convert(tmp_path / "x.zip", tmp_path / "d") == 2
    assert "a/link: a link to an image, b/x" in capsys.readouterr().err
    assert convert(tmp_path / "y.zip", tmp_path / "e") == 0


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["a.txt", "a.txt"], "a.txt: another member would be a.txt.l3 too"),
        (["a.png", "a"], "a: another member would be a.l3 too"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_collide(
    tmp_path: Path, names: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = archive_of([(name, png(i)) for i, name in enumerate(names)])
    source = write_files(tmp_path / "s", {"a.zip": archive})
    assert convert(source, tmp_path / "d") == 2
    assert f"l3: 1 failed\na.zip: {reason}" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == set()


def test_names_that_lead_out_are_names(tmp_path: Path) -> None:
    """Nothing is extracted: they stay as they are, and no other file is written."""
    names = ["../../x", "/abs", "C:\\w", "a//b", "./c", "~/d", "e "]
    content = [(f"{name}.png", png(i)) for i, name in enumerate(names)]
    source = write_zip(tmp_path / "in" / "s" / "a.zip", content)
    there, again = tmp_path / "in" / "d", tmp_path / "in" / "b"
    assert convert(source, there) == 0
    assert convert(there, again, "--to", "png") == 0
    found = read_zip(again / "a.zip")
    assert [row[0] for row in found] == [f"{name}.png" for name in names]
    for i, row in enumerate(found):
        assert np.array_equal(read_picture(row[1]).pixels, image(i))
    assert files_below(tmp_path) == {
        *(f"in/{folder}/a.zip" for folder in "sdb"),
        *(f"in/{folder}/{MANIFEST_NAME}" for folder in "db"),
    }


UNIX, DOS = 3, 0
SAVED = "\u65e5\u672c\u00e9"  # a name


@pytest.mark.parametrize(
    ("raw", "system", "name"),
    [
        (SAVED.encode(), UNIX, SAVED),  # as zip of Linux and macOS write it
        (SAVED.encode(), DOS, SAVED.encode().decode("cp437")),
        (b"caf\x82", UNIX, "caf\u00e9"),
    ],
)
def test_names_without_a_mark(tmp_path: Path, raw: bytes, system: int, name: str) -> None:
    """To zipfile they are code page 437."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        info = zipfile.ZipInfo("n" * len(raw) + ".txt")
        info.create_system, info.extra = system, b"UT\5\0\1abcd"
        archive.writestr(info, b"caption")
    data = file.getvalue().replace(b"n" * len(raw) + b".txt", raw + b".txt")
    (tmp_path / "a.zip").write_bytes(data)
    assert convert(tmp_path / "a.zip", tmp_path / "d") == 0
    with zipfile.ZipFile(tmp_path / "d" / "a.zip") as archive:
        (found,) = archive.infolist()
        assert (found.filename, found.extra) == (f"{name}.txt", b"UT\5\0\1abcd")
        assert archive.read(found) == b"caption"


def test_l3_files_that_are_damaged_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, large = l3dali.encode(image()), l3dali.encode(np.zeros((2000, 2000), np.uint8))
    content = [("good.l3", good), ("large.l3", large), ("cut.l3", good[:-9]), ("no.l3", b"L3")]
    source = write_zip(tmp_path / "s" / "a.zip", content)
    assert convert(source, tmp_path / "d", "--to", "png", "--max-pixels", 1_000_000) == 2
    told = capsys.readouterr().err
    for name in ("large.l3", "cut.l3", "no.l3"):
        assert f"a.zip: {name}: " in told
    found = {row[0]: row[1] for row in read_zip(tmp_path / "d" / "a.zip")}
    assert np.array_equal(pixels_of(found.pop("good.png")), image())
    assert found == dict(content[1:])


def test_an_encrypted_member(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(archive_of([("a.png", png())]))
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    refused(tmp_path, bytes(data), "a.png: an encrypted member", capsys)
