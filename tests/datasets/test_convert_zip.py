"""`l3 convert` with zip archives: there and back, and archives that are damaged or hostile."""

from __future__ import annotations

import io
import stat
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert_tools import convert, files_below, image, pixels_of, png, rows_of

import l3dali
from l3dali.cli import main
from l3dali.datasets.convert import zip_archive
from l3dali.datasets.convert.storage import CHUNK_BYTES, MANIFEST_NAME, REPORT_NAME
from l3dali.images.reading import read_picture

imagecodecs = pytest.importorskip("imagecodecs")
pytest.importorskip("rich")

Members = list[tuple[str, bytes]]
OWN_FILES = MANIFEST_NAME, REPORT_NAME


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


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
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


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_zipfile_unpacks_without_bound(
    tmp_path: Path, method: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the directory says of their size: 4.6 kB of bzip2 took 11.4 GB."""
    write_zip(tmp_path / "s" / "a.zip", members(), method)
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert "folder/: packed by another method than deflate" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == set()


@pytest.mark.parametrize("name", ["notes/", "a.png/"])
def test_a_file_with_the_name_of_a_folder(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its data was lost in silence."""
    write_zip(tmp_path / "s" / "a.zip", [("0.png", png())])
    with zipfile.ZipFile(tmp_path / "s" / "a.zip", "a") as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = (stat.S_IFREG | 0o640) << 16
        with archive.open(info, "w") as file:
            file.write(png())
    with tarfile.open(tmp_path / "s" / "b.tar", "w") as tar:
        member = tarfile.TarInfo(name)
        member.size = 9
        tar.addfile(member, io.BytesIO(bytes(9)))
    for container in "zip", "tar":
        assert convert(tmp_path / "s", tmp_path / "d", "--container", container) == 2
        assert capsys.readouterr().err.count(f"{name}: a file with the name of a folder") == 2
    assert files_below(tmp_path / "d") == set()


def test_what_macos_adds_is_no_image(tmp_path: Path) -> None:
    """A file beside each file, in archives of the Finder and on disks of other systems."""
    double = b"\0\5\x16\7\0\2\0\0Mac OS X        "
    write_zip(tmp_path / "s" / "a.zip", [("a.png", png()), ("__MACOSX/._a.png", double)])
    (tmp_path / "s" / "b.png").write_bytes(png())
    (tmp_path / "s" / "._b.png").write_bytes(double)
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    with zipfile.ZipFile(tmp_path / "d" / "a.zip") as archive:
        assert archive.namelist() == ["a.l3", "__MACOSX/._a.png"]
        assert archive.read("__MACOSX/._a.png") == double
    assert (tmp_path / "d" / "._b.png").read_bytes() == double
    assert main(["encode", str(tmp_path / "s"), "-o", str(tmp_path / "e")]) == 0
    assert files_below(tmp_path / "e") == {"b.l3"}
    (tmp_path / "s" / "._c.png").write_bytes(png())  # an image: it was left out, without a word
    assert main(["encode", str(tmp_path / "s"), "-o", str(tmp_path / "e"), "--overwrite"]) == 0
    assert files_below(tmp_path / "e") == {"b.l3", "._c.l3"}


@pytest.mark.usefixtures("in_process")
def test_an_image_is_unpacked_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of zlib for 1 GB heard no Ctrl-C for 3 to 8 s."""
    sizes: list[int | None] = []
    read = zipfile.ZipExtFile.read

    def watched(file: zipfile.ZipExtFile, size: int | None = -1) -> bytes:
        sizes.append(size)
        return read(file, size)

    write_zip(tmp_path / "s" / "a.zip", [("a.png", png()), ("b.txt", b"text")])
    monkeypatch.setattr(zipfile.ZipExtFile, "read", watched)
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 0
    assert sizes
    assert all(size is not None and 0 <= size <= CHUNK_BYTES for size in sizes)


def local_extra(archive: zipfile.ZipFile, data: bytes, name: str) -> bytes:
    at = archive.getinfo(name).header_offset
    name_bytes, extra_bytes = struct.unpack_from("<2H", data, at + 26)
    return data[at + 30 + name_bytes :][:extra_bytes]


def test_what_other_programs_write_of_members_stays(tmp_path: Path) -> None:
    """No attributes, as of Java and Go; more in extra fields before the data, as of Info-ZIP."""
    before, behind = b"UT\x09\0\3abcdefghux\4\0\0\0\0\0", b"UT\5\0\3abcd"
    source = tmp_path / "s" / "a.zip"
    source.parent.mkdir()
    out, directory = b"", b""
    for name, content in ((b"a.png", png()), (b"a.txt", b"text"), (b"b/", b"")):
        sizes = struct.pack("<4L", zlib.crc32(content), len(content), len(content), len(name))
        head = struct.pack("<4H", 0, 0, 0x6000, 0x5821) + sizes[:-2]
        extra = struct.pack("<H", len(behind)) + bytes(10) + struct.pack("<L", len(out))
        directory += b"PK\1\2" + struct.pack("<2H", 20, 20) + head + extra + name + behind
        out += b"PK\3\4" + struct.pack("<H", 20) + head + struct.pack("<H", len(before))
        out += name + before + content
    end = struct.pack("<4H2LH", 0, 0, 3, 3, len(directory), len(out), 0)
    source.write_bytes(out + directory + b"PK\5\6" + end)
    assert convert(source.parent, tmp_path / "d") == 0
    data = (tmp_path / "d" / "a.zip").read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["a.l3", "a.txt", "b/"]
        for info in archive.infolist():
            assert (info.external_attr, info.extra) == (0, behind)
            assert local_extra(archive, data, info.filename) == before


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
    for _ in range(200):  # Workers of the killed run may hold the lock, or write, for a moment.
        is_done = convert(tmp_path / "s", tmp_path / "d") == 0
        if is_done and not [*(tmp_path / "d").glob(".l3-*.tmp")]:
            break
        time.sleep(0.05)
    assert files_below(tmp_path / "d") == files_below(tmp_path / "whole")
    for path in (tmp_path / "whole").glob("*.zip"):
        assert (tmp_path / "d" / path.name).read_bytes() == path.read_bytes()


def test_what_lies_beside_an_archive_stays(tmp_path: Path) -> None:
    """A file of the name that an index of it would have, copied before the archive is converted."""
    write_zip(tmp_path / "s" / "a.zip", members(1))
    (tmp_path / "s" / "a.zip.idx").write_bytes(bytes(10**6))
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 0
    assert files_below(tmp_path / "d") == {"a.zip", "a.zip.idx"}


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


def refused(
    tmp_path: Path, data: bytes, reason: str, capsys: pytest.CaptureFixture[str], url: str = ""
) -> None:
    """One line names it, nothing is left, and other archives are converted; to zip and to tar."""
    (tmp_path / "s").mkdir(exist_ok=True)
    (tmp_path / "s" / "a.zip").write_bytes(data)
    write_zip(tmp_path / "s" / "b.zip", members(1))
    for target, left in ("zip", {"b.zip"}), ("tar", {"b.tar", "b.idx"}):
        assert convert(url or tmp_path / "s", tmp_path / target, "--container", target) == 2
        told = capsys.readouterr().err
        assert "l3: 1 failed\na.zip: " in told
        assert reason in told
        assert files_below(tmp_path / target) == left


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
        (PACKED + WHOLE, "data before the first member"),
        (WHOLE + archive_of([]), "data before the first member"),
        (b"PK\3\4" + bytes(500) + WHOLE, "data before the first member"),
        (WHOLE + b"more", "data behind the end"),
        (flipped(WHOLE, 60), "0.png: a damaged member"),
        (flipped(PACKED, 40), "1.txt: a damaged member"),
        (flipped(WHOLE, 2), "not a zip archive"),
    ],
)
def test_damage(
    tmp_path: Path, data: bytes, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(tmp_path, data, reason, capsys)


@pytest.mark.parametrize("is_64", [False, True])
def test_members_that_a_damaged_directory_loses(
    tmp_path: Path, is_64: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """zipfile reads the directory as long as it goes, and ended at a comment that is too long."""
    if is_64:
        monkeypatch.setattr("zipfile.ZIP_FILECOUNT_LIMIT", 1)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in "abc":
            archive.writestr(name, name)
    data = bytearray(file.getvalue())
    if is_64:
        assert data[-98:-94] == b"PK\6\6"
        data[-14:-10] = b"\xff" * 4  # The number is in the other record.
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.zip").write_bytes(data)
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    data[data.index(b"PK\1\2") + 33] ^= 1  # the length of a comment
    refused(tmp_path, bytes(data), "a damaged directory: it has not the members", capsys)


def test_zeros_behind_the_end(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.zip").write_bytes(WHOLE + bytes(99))
    assert convert(tmp_path / "s", tmp_path / "d") == 0


def test_a_link_to_an_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        info = zipfile.ZipInfo("link.txt")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "../0.png")
    refused(tmp_path, file.getvalue(), "link.txt: a link to an image, ../0.png", capsys)


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
        (["a.png", "a.png"], "two members of the name a.png"),
        (["a.png", "a.tif"], "a.png and a.tif would both be a.l3"),
        (["a.png", "a.PNG"], "a.png and a.PNG would both be a.l3"),
        (
            ["a.png", "A.tif"],
            "a.png and A.tif would both be A.l3, on disks that know no cases too: ",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_collide(
    tmp_path: Path, names: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the archive that is made; of a tar file samples have their own names."""
    path = tmp_path / "s" / "a.zip"
    path.parent.mkdir()
    path.write_bytes(archive_of([(name, png(i)) for i, name in enumerate(names)]))
    assert convert(path, tmp_path / "d") == 2
    assert f"l3: 1 failed\na.zip: {reason}" in capsys.readouterr().err
    code = 0 if "A.tif" in names else 2
    assert convert(path, tmp_path / "t", "--container", "tar") == code
    assert files_below(tmp_path / "d") == set()
    assert files_below(tmp_path / "t") == ({"a.tar", "a.idx"} if code == 0 else set())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (WHOLE.replace(b"0.png", b"0\0png"), "'0\\x00png': a name with a NUL in it"),
        (archive_of([("a" * 65_531 + ".png", png())]).replace(b"aaaa.png", b"aaaa.xxx"), ""),
    ],
)
def test_names_that_are_none(
    tmp_path: Path, data: bytes, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if reason:
        refused(tmp_path, data, reason, capsys)
        return
    # One more suffix does not fit a zip archive; a tar file has no such bound.
    (tmp_path / "a.zip").write_bytes(data)
    assert convert(tmp_path / "a.zip", tmp_path / "d") == 2
    assert "aaaa.xxx: a name that is too long for zip archives" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == set()
    assert convert(tmp_path / "a.zip", tmp_path / "d", "--container", "tar") == 0


def test_a_member_without_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = bytearray(archive_of([("x", b"")]))
    one[26] = 0  # the length of the name, and the name
    del one[30]
    at = one.index(b"PK\1\2")
    one[at + 28] = 0
    del one[at + 46]
    end = one.index(b"PK\5\6")
    one[end + 12 : end + 20] = struct.pack("<LL", end - at, at)
    refused(tmp_path, bytes(one), "a member without a name", capsys)


def test_a_member_that_is_shorter_than_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a tar file the members behind it would be cut at wrong places."""
    for name in ("a.txt", "a.png"):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(name, b"hello")
        data = bytearray(file.getvalue())
        data[data.index(b"PK\1\2") + 24] = 50
        refused(tmp_path, bytes(data), f"{name}: a damaged member: 5 bytes of 50", capsys)


def test_ways_of_packing_that_are_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(PACKED)
    data[8] = data[data.index(b"PK\1\2") + 10] = 99
    refused(tmp_path, bytes(data), "1.txt: packed by another method than deflate", capsys)


def test_a_link_without_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "x" * 5000)
    (tmp_path / "a.zip").write_bytes(file.getvalue())
    for container in "tar", "zip":
        assert convert(tmp_path / "a.zip", tmp_path / "d", "--container", container) == 2
        assert "a.zip: link: a link of 5000 bytes" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == set()


@pytest.mark.parametrize("back", ["png", "tif", "source"])
@pytest.mark.parametrize("container", ["zip", "tar"])
def test_names_that_lead_out_are_names(tmp_path: Path, container: str, back: str) -> None:
    """Nothing is extracted: they stay as they are, and no other file is written."""
    names = ["../../x", "/abs", "C:\\w", "..\\b", "C:x", "a//b", "./c", "con", "~/d", "$HOME", "e "]
    content = [(f"{name}.png", png(i)) for i, name in enumerate(names)]
    source = write_zip(tmp_path / "in" / "s" / "a.zip", content)
    there, again = tmp_path / "in" / "d", tmp_path / "in" / "b"
    assert convert(source, there, "--container", container) == 0
    assert convert(there, again, "--to", back, "--container", "zip") == 0
    suffix = "tif" if back == "tif" else "png"
    found = read_zip(again / "a.zip")
    assert [row[0] for row in found] == [f"{name}.{suffix}" for name in names]
    for i, row in enumerate(found):
        assert np.array_equal(read_picture(row[1]).pixels, image(i))
    assert files_below(tmp_path) - {"in/d/a.idx"} == {
        *("in/s/a.zip", f"in/d/a.{container}", "in/b/a.zip"),
        *(f"in/{folder}/{name}" for folder in "db" for name in OWN_FILES),
    }


UNIX, DOS = 3, 0
SAVED = "\u65e5\u672c\u00e9"  # a name


def named_in_utf8(raw: bytes, check: int = 0) -> bytes:
    """An extra field that says SAVED of this name, in place of `raw`."""
    body = struct.pack("<BL", 1, zlib.crc32(raw + b".txt") ^ check) + f"{SAVED}.txt".encode()
    return struct.pack("<HH", 0x7075, len(body)) + body


@pytest.mark.parametrize(
    ("raw", "system", "extra", "name"),
    [
        (SAVED.encode(), UNIX, b"", SAVED),  # as zip of Linux and macOS write it
        (SAVED.encode(), DOS, b"", SAVED.encode().decode("cp437")),
        (b"caf\x82", UNIX, b"", "caf\u00e9"),
        (b"caf\x82", DOS, b"", "caf\u00e9"),
        (b"___", DOS, named_in_utf8(b"___"), SAVED),
        (b"___", UNIX, named_in_utf8(b"___"), SAVED),
        (b"___", DOS, named_in_utf8(b"___", check=1), "___"),
    ],
)
@pytest.mark.parametrize("container", ["zip", "tar"])
def test_names_without_a_mark(
    tmp_path: Path, raw: bytes, system: int, extra: bytes, name: str, container: str
) -> None:
    """They were code page 437 for zipfile, which garbled them for good."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        info = zipfile.ZipInfo("n" * len(raw) + ".txt")
        info.create_system, info.extra = system, b"UT\5\0\1abcd" + extra
        archive.writestr(info, b"caption")
    data = file.getvalue().replace(b"n" * len(raw) + b".txt", raw + b".txt")
    (tmp_path / "a.zip").write_bytes(data)
    assert convert(tmp_path / "a.zip", tmp_path / "d", "--container", container) == 0
    if container == "tar":
        with tarfile.open(tmp_path / "d" / "a.tar") as tar:
            assert tar.getnames() == [f"{name}.txt"]
        return
    with zipfile.ZipFile(tmp_path / "d" / "a.zip") as archive:
        (found,) = archive.infolist()
        assert (found.filename, found.extra) == (f"{name}.txt", b"UT\5\0\1abcd")
        assert archive.read(found) == b"caption"


def test_of_a_url_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("fsspec")
    refused(tmp_path, WHOLE[:-30], "not a whole zip archive", capsys, f"file://{tmp_path}/s")


@pytest.mark.parametrize("to", ["png", "tif", "source"])
def test_the_way_back_has_the_same_bounds(
    tmp_path: Path, to: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """L3 files that are damaged or claim too much are told of by name, and kept; others turn."""
    good, large = l3dali.encode(image()), l3dali.encode(np.zeros((2000, 2000), np.uint8))
    content = [("good.l3", good), ("large.l3", large), ("cut.l3", good[:-9]), ("no.l3", b"L3")]
    source = write_zip(tmp_path / "s" / "a.zip", content)
    for container in ("zip", "tar"):
        target = tmp_path / container
        options = "--to", to, "--max-pixels", 1_000_000, "--container", container
        assert convert(source, target, *options) == 2
        told = capsys.readouterr().err
        for name in ("large.l3", "cut.l3", "no.l3"):
            assert f"a.zip: {name}: " in told
        assert convert(target, tmp_path / f"{container} again", "--container", "zip") == 0
        found = {row[0]: row[1] for row in read_zip(tmp_path / f"{container} again" / "a.zip")}
        assert found == {**dict(content), "good.l3": found["good.l3"]}
        assert np.array_equal(pixels_of(found["good.l3"]), image())


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


def directory_of(extra: bytes, offsets: list[int]) -> bytes:
    """An archive of one folder, which its directory has once for each offset of a header."""
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 20, *[0] * 7, 2, len(extra)) + b"d/" + extra
    entries = b"".join(
        struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, *[0] * 7, 5, *[0] * 5, offset) + b"%04d/" % i
        for i, offset in enumerate(offsets)
    )
    count, sizes = len(offsets), (len(entries), len(local))
    return local + entries + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, *sizes, 0)


def test_folders_of_one_header(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its extra fields would be written for each of them: 120 kB made 65 MB."""
    data = directory_of(struct.pack("<2H", 0x9999, 65531) + bytes(65531), [0] * 1000)
    refused(tmp_path, data, "0000/: a member that reaches into what lies behind it", capsys)


def test_extra_fields_that_overlap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Headers of folders within the extra field of the first, each with all that is behind it."""
    field = struct.pack("<4s5H3L2H", b"PK\3\4", 20, *[0] * 7, 0, 30_000)
    extra = struct.pack("<2H", 0x9999, 60_000) + field * 1000 + bytes(30_000)
    data = directory_of(extra, [0, *(36 + 30 * i for i in range(1000))])
    (tmp_path / "a.zip").write_bytes(data)
    assert convert(tmp_path / "a.zip", tmp_path / "d") == 2
    assert "a.zip: extra fields that overlap" in capsys.readouterr().err


@pytest.mark.usefixtures("in_process")
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
    assert convert(source, tmp_path / "d") == 2
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
