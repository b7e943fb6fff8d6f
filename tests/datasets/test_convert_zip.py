"""`l3 convert` with zip archives: there and back, and archives that are damaged or hostile."""

from __future__ import annotations

import io
import stat
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert_tools import convert, files_below, image, pixels_of, png, rows_of

import l3dali
from l3dali.cli import main
from l3dali.datasets.convert import zip_archive

imagecodecs = pytest.importorskip("imagecodecs")
pytest.importorskip("rich")

Members = list[tuple[str, bytes]]


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


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
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
    assert (rows[0].kind, rows[0].images) == ("zip", 5)
    assert main(["verify", str(tmp_path / "d")]) == 0
    inode = (tmp_path / "d" / "a.zip").stat().st_ino
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert (tmp_path / "d" / "a.zip").stat().st_ino == inode


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


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_killed_and_run_again(tmp_path: Path, rows: int) -> None:
    """Whenever that is: the same bytes come out in the end, and no other file is left."""
    for i in range(6):
        write_zip(tmp_path / "s" / f"{i}.zip", members(30))
    assert convert(tmp_path / "s", tmp_path / "whole") == 0
    manifest = tmp_path / "d" / "l3-manifest.jsonl"
    run = subprocess.Popen(
        [sys.executable, "-m", "l3dali", "convert", "s", "d", "-q", "-j", "2"], cwd=tmp_path
    )
    while run.poll() is None and not (
        manifest.exists() and manifest.read_bytes().count(b"\n") >= rows
    ):
        time.sleep(0.005)
    run.kill()
    run.wait()
    for _ in range(200):  # Workers of the killed run may hold the lock.
        if convert(tmp_path / "s", tmp_path / "d") == 0:
            break
        time.sleep(0.05)
    assert files_below(tmp_path / "d") == files_below(tmp_path / "whole")
    for path in (tmp_path / "whole").glob("*.zip"):
        assert (tmp_path / "d" / path.name).read_bytes() == path.read_bytes()


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
    (tmp_path / "s").mkdir(exist_ok=True)
    (tmp_path / "s" / "a.zip").write_bytes(data)
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
        (b"#!/bin/sh\n" + WHOLE, "something before it"),
        (flipped(WHOLE, 60), "0.png: a damaged member"),
        (flipped(PACKED, 40), "1.txt: a damaged member"),
        (flipped(WHOLE, 2), "not a zip archive"),
    ],
)
def test_damage(
    tmp_path: Path, data: bytes, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(tmp_path, data, reason, capsys)


def test_a_link_to_an_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        info = zipfile.ZipInfo("link.txt")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "../0.png")
    refused(tmp_path, file.getvalue(), "link.txt: a link to an image, ../0.png", capsys)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["a.png", "a.png"], "two members of the name a.png"),
        (["a.png", "a.tif"], "a.png and a.tif would both be a.l3"),
        (["a.png", "A.tif"], "a.png and A.tif would both be A.l3, on disks that know no cases"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_collide(
    tmp_path: Path, names: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(tmp_path, archive_of([(name, png(i)) for i, name in enumerate(names)]), reason, capsys)


def test_names_that_collide_already_stay(tmp_path: Path) -> None:
    source = write_zip(tmp_path / "s" / "a.zip", [("a.png", png()), ("A.png", png(1))])
    assert convert(source, tmp_path / "d") == 0
    assert [row[0] for row in read_zip(tmp_path / "d" / "a.zip")] == ["a.l3", "A.l3"]


def test_an_encrypted_member(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(archive_of([("a.png", png())]))
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    refused(tmp_path, bytes(data), "a.png: an encrypted member", capsys)


def test_a_bomb_of_overlapping_members(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory whose 2,000 entries name one member: more than deflate can hold."""
    one = archive_of([("000000", bytes(10**6))])
    at, end = one.index(b"PK\1\2"), one.index(b"PK\5\6")
    entry = one[at:end]
    entries = b"".join(entry.replace(b"000000", b"%06d" % i) for i in range(2000))
    tail = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 2000, 2000, len(entries), at, 0)
    data = one[:at] + entries + tail
    refused(tmp_path, data, "more than any can hold", capsys)


def test_an_image_that_inflates_too_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(zip_archive, "MAX_IMAGE_BYTES", 10_000)
    source = write_zip(tmp_path / "a.zip", [("a.bmp", b"BM" + bytes(10_000))])
    assert convert(source, tmp_path / "d", "-j", 1) == 2
    assert "a.bmp: an image of 10002 bytes; up to 10000 are read" in capsys.readouterr().err


def test_an_l3_file_that_inflates_too_far(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """2 MB of zeros in a zip archive would take 4 GB."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("small.l3", l3dali.encode(image()))
        with archive.open("bomb.l3", "w") as member:
            for _ in range(65):
                member.write(bytes(2**20))
    for command in (["info"], ["verify"]):
        assert main([*command, str(path)]) == 2
        assert "bomb.l3: an image of 68157440 bytes; up to 67108864" in capsys.readouterr().err


def test_a_png_bomb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of an archive as of a folder: the header says 50,000 x 50,000; nothing is decoded."""
    bomb = bytearray(png())
    bomb[16:24] = struct.pack(">II", 50_000, 50_000)
    source = write_zip(tmp_path / "a.zip", [("0.png", bytes(bomb)), ("1.png", png())])
    assert convert(source, tmp_path / "d", "--untrusted") == 2
    assert "50000 x 50000" in capsys.readouterr().err
    found = {row[0]: row[1] for row in read_zip(tmp_path / "d" / "a.zip")}
    assert np.array_equal(pixels_of(found["1.l3"]), image(0))
    assert found["0.png"] == bytes(bomb)


@pytest.mark.parametrize("seed", range(40))
def test_damage_at_random_ends_in_an_error_or_not_at_all(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = bytearray(WHOLE)
    for at in rng.integers(4, len(data), 3):
        data[at] = rng.integers(256)
    (tmp_path / "a.zip").write_bytes(data)
    assert convert(tmp_path / "a.zip", tmp_path / "d", "-j", 1) in (0, 2)
