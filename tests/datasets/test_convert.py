"""`l3 convert` with folders and WebDataset shards: results, resuming, failures, bad input."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import wait
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from convert_tools import (
    Members,
    as_pixels,
    convert,
    files_below,
    image,
    pax,
    pixels_of,
    png,
    read_tar,
    rows_of,
    samples,
    write_bad_shard,
    write_tar,
)
from held_work import DONE, DONE_OF_BATCH

import l3dali
from l3dali import codec
from l3dali.cli import main
from l3dali.datasets.convert import engine, storage, tar, work
from l3dali.datasets.convert.engine import convert_job
from l3dali.datasets.convert.images import Options
from l3dali.datasets.convert.job import Job, convert_each
from l3dali.datasets.convert.manifest import Manifest, Row
from l3dali.datasets.convert.storage import (
    HashedReader,
    HashedWriter,
    LocalFolder,
    folded,
    hash_file,
    open_folder,
    walk,
)
from l3dali.datasets.convert.work import find_sources, find_work
from l3dali.images import headers, reading
from l3dali.images.headers import read_header

imagecodecs = pytest.importorskip("imagecodecs")
pytest.importorskip("rich")

FORMATS = {"gnu": tarfile.GNU_FORMAT, "ustar": tarfile.USTAR_FORMAT, "pax": tarfile.PAX_FORMAT}


def paletted() -> tuple[bytes, Any]:
    """A palette image, and the numbers of its entries."""
    from PIL import Image

    numbers = image(channels=1) % 3
    picture = Image.fromarray(numbers)
    picture.putpalette([9, 8, 7, 60, 50, 40, 200, 100, 0])
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue(), numbers


def data_of(path: Path) -> Members:
    return [(name, data) for name, data, *_ in read_tar(path)]


# Folders.


def test_a_folder_and_back(tmp_path: Path) -> None:
    source, there, back = (tmp_path / name for name in ("source", "there", "back"))
    (source / "a").mkdir(parents=True)
    for i, name in enumerate(["one.png", "a/two.PNG", "a/no_suffix"]):
        (source / name).write_bytes(png(i))
    (source / "a" / "labels.json").write_bytes(b'{"two": 2}')
    (source / "empty").write_bytes(b"")
    assert convert(source, there) == 0
    assert files_below(there) == {
        "one.l3",
        "a/two.l3",
        "a/no_suffix.l3",
        "a/labels.json",
        "empty",
    }
    assert np.array_equal(l3dali.imread(there / "a" / "two.l3"), image(1))
    assert convert(there, back, "--to", "png") == 0
    assert (back / "a" / "labels.json").read_bytes() == b'{"two": 2}'
    assert np.array_equal(pixels_of((back / "a" / "no_suffix.png").read_bytes()), image(2))
    pixels = [{row.pixels_hash for row in rows_of(folder).values()} for folder in (there, back)]
    assert pixels[0] == pixels[1]
    assert len(pixels[0]) == 4  # three images, and none


def test_labels_keep_their_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mask, numbers = paletted()
    members = [("1.rgb.png", png()), ("1.seg.png", mask)]
    source = write_tar(tmp_path / "s" / "a.tar", members)
    assert convert(source, tmp_path / "d", "--labels", "seg.png") == 0
    (_, rgb), (name, seg) = data_of(tmp_path / "d" / "a.tar")
    assert name == "1.seg.l3"
    assert np.array_equal(codec.decode(seg), numbers)
    assert codec.info(seg).labels
    assert not codec.info(rgb).labels
    assert capsys.readouterr().err == ""
    assert convert(source, tmp_path / "e") == 0
    assert "palette images that became colours: 1; --labels" in capsys.readouterr().err


# Shards.


@pytest.mark.parametrize(
    ("labels", "chosen"),
    [
        ("gtFine/*", {"gtFine/a/1", "gtFine/2"}),
        ("*", {"gtFine/a/1", "gtFine/2", "left/gtFine/3"}),
        ("*/gtFine/?.png", {"left/gtFine/3"}),
        ("2.png", {"gtFine/2"}),
        ("gtFine/[!2]*", {"gtFine/a/1"}),
    ],
)
def test_labels_by_folder(tmp_path: Path, labels: str, chosen: set[str]) -> None:
    mask, _ = paletted()
    names = ["gtFine/a/1", "gtFine/2", "left/gtFine/3"]
    for name in names:
        path = tmp_path / "s" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(mask)
    write_tar(tmp_path / "t" / "a.tar", [(f"{name}.png", mask) for name in names])
    for source in ("s", "t"):
        assert convert(tmp_path / source, tmp_path / f"{source}-l3", "--labels", labels) == 0
    loose = {name: (tmp_path / "s-l3" / f"{name}.l3").read_bytes() for name in names}
    packed = {name.removesuffix(".l3"): data for name, data in data_of(tmp_path / "t-l3" / "a.tar")}
    for found in (loose, packed):
        assert {name for name, data in found.items() if codec.info(data).labels} == chosen


def test_quiet_and_json_summary(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_tar(tmp_path / "s" / "a.tar", [("1.png", png()), ("2.png", b"damaged")])
    options = ("--quiet", "--json-summary", tmp_path / "summary.json")
    assert convert(tmp_path / "s", tmp_path / "d", *options) == 2
    output = capfd.readouterr()
    assert output.out == ""
    assert "a.tar: 2.png: " in output.err
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [failure["path"] for failure in summary["failures"]] == ["a.tar: 2.png"]
    assert (summary["exit_code"], summary["images"], summary["failed"]) == (2, 1, 1)
    assert summary["written_bytes"] == len(data_of(tmp_path / "d" / "a.tar")[0][1])
    assert convert(tmp_path / "s", tmp_path / "d", "--json-summary", "-") == 2
    output = capfd.readouterr()
    assert json.loads(output.out)["kept"] == 1
    assert "nothing to do" in output.err
    log = tmp_path / "log"
    log.write_text("earlier\n")
    command = [sys.executable, "-m", "l3dali", "convert", str(tmp_path / "s"), str(tmp_path / "d")]
    with log.open("a") as file:
        subprocess.run([*command, "--json-summary", "-"], stdout=file, check=False)
    assert json.loads(log.read_text().removeprefix("earlier\n"))["kept"] == 1
    (tmp_path / "own").write_text("notes")
    assert convert(tmp_path / "s", tmp_path / "e", "--json-summary", tmp_path / "own") == 2
    assert "holds something else" in capfd.readouterr().err
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize("format", FORMATS)
def test_a_shard_and_back(tmp_path: Path, format: str) -> None:
    members = samples(5)
    source = write_tar(tmp_path / "s" / "a.tar", members, FORMATS[format])
    assert convert(source.parent, tmp_path / "d") == 0
    assert convert(tmp_path / "d", tmp_path / "b", "--to", "png") == 0
    result = read_tar(tmp_path / "d" / "a.tar")
    assert [name for name, *_ in result] == [name.replace(".png", ".l3") for name, _ in members]
    assert [row[2:] for row in result] == [row[2:] for row in read_tar(source)]
    assert as_pixels([row[:2] for row in result]) == as_pixels(members)
    assert as_pixels(data_of(tmp_path / "b" / "a.tar")) == as_pixels(members)
    assert [row[0] for row in read_tar(tmp_path / "b" / "a.tar")] == [name for name, _ in members]
    row = rows_of(tmp_path / "d")["a.tar"]
    assert row.pixels_hash == rows_of(tmp_path / "b")["a.tar"].pixels_hash
    assert row.images == 5
    assert row.result_bytes == (tmp_path / "d" / "a.tar").stat().st_size


@pytest.mark.parametrize("format", FORMATS)
def test_a_shard_without_images_stays_byte_for_byte(tmp_path: Path, format: str) -> None:
    members = [("a/" + "long" * 20 + f"{i}.txt", b"x" * (i * 300)) for i in range(40)]
    members += [("../up.txt", b"1"), ("/absolute.txt", b"2"), ("n\udcff.txt", b"3"), ("none", b"")]
    source = write_tar(tmp_path / "s" / "a.tar", members, FORMATS[format])
    assert convert(source, tmp_path / "d") == 0
    assert (tmp_path / "d" / "a.tar").read_bytes() == source.read_bytes()
    assert files_below(tmp_path) == {"s/a.tar", "d/a.tar", "d/a.idx"} | {
        "d/l3-manifest.jsonl",
        "d/l3-report.html",
    }


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "stem",
    [
        "l" * 120,
        "f" * 90 + "/" + "l" * 95,
        "\udcff\udcfe",
        "\u00fc",
        "2024 " + "long/" * 120 + "a",  # as a record of pax begins
    ],
)
def test_names_that_need_more_than_a_header(tmp_path: Path, format: str, stem: str) -> None:
    if format == "ustar" and (stem.startswith("ll") or len(stem) > 255):
        pytest.skip("ustar cannot hold the name")
    members = [(f"{stem}.png", png()), (f"{stem}.cls", b"1"), ("next.png", png(1))]
    source = write_tar(tmp_path / "s" / "a.tar", members, FORMATS[format])
    assert convert(source, tmp_path / "d") == 0
    result = data_of(tmp_path / "d" / "a.tar")
    assert [name for name, _ in result] == [f"{stem}.l3", f"{stem}.cls", "next.l3"]
    assert as_pixels(result) == as_pixels(members)


def test_pax_headers_are_kept(tmp_path: Path) -> None:
    source = tmp_path / "a.tar"
    with tarfile.open(
        source, "w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "all"}
    ) as tar:
        for i in range(2):
            info = tarfile.TarInfo(f"{i}.png")
            data = png(i)
            info.size, info.mtime = len(data), 1.25
            info.pax_headers = {"SCHILY.xattr.user.note": f"n{i}", "path": f"{i}.png"}
            tar.addfile(info, io.BytesIO(data))
    assert convert(source, tmp_path / "d") == 0
    with tarfile.open(tmp_path / "d" / "a.tar") as tar:
        assert tar.pax_headers == {"comment": "all"}
        assert [m.name for m in tar] == ["0.l3", "1.l3"]
        assert [m.pax_headers["SCHILY.xattr.user.note"] for m in tar] == ["n0", "n1"]
        assert {m.pax_headers["comment"] for m in tar} == {"all"}
        assert {m.mtime for m in tar} == {1.25}


def with_times(header: bytes) -> bytes:
    """A GNU header with the times of last access and change, as incremental archives have them."""
    block = bytearray(header)
    block[345:369] = b"15107263222\0" * 2
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def test_times_of_access_in_gnu_headers_are_no_folder(tmp_path: Path) -> None:
    """They lie where ustar has the folder that a member is in."""
    long = "l" * 120
    members = [("a", b""), ("a/0.png", png()), ("a/0.cls", b"1"), ("a/link", b"")]
    content = b""
    for name, data in [*members, (f"{long}.png", png(1))]:
        info = tarfile.TarInfo(name)
        info.size, info.linkname = len(data), "0.cls" if name == "a/link" else ""
        info.type = {"a": tarfile.DIRTYPE, "a/link": tarfile.SYMTYPE}.get(name, tarfile.REGTYPE)
        header = info.tobuf(tarfile.GNU_FORMAT)
        content += header[:-512] + with_times(header[-512:]) + data + bytes(-len(data) % 512)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.tar").write_bytes(content + bytes(1024))
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    lines = (tmp_path / "d" / "a.idx").read_text().splitlines()
    assert [line.split()[3::4] for line in lines[1:]] == [["a/0.l3", "a/0.cls"], [f"{long}.l3"]]
    result = (tmp_path / "d" / "a.tar").read_bytes()
    assert result.count(b"15107263222\0" * 2) == 4  # A long name has headers of its own.
    assert result[512:].startswith(b"a/0.l3\0")
    listed = subprocess.run(
        ["tar", "tf", tmp_path / "d" / "a.tar"], stdout=subprocess.PIPE, text=True
    )
    assert listed.stdout.split() == ["a/", "a/0.l3", "a/0.cls", "a/link", f"{long}.l3"]
    assert convert(tmp_path / "s", tmp_path / "z", "--container", "zip") == 0
    with zipfile.ZipFile(tmp_path / "z" / "a.zip") as archive:
        assert archive.namelist() == listed.stdout.split()


def test_members_share_global_pax_keys(tmp_path: Path) -> None:
    keys = "".join(f"12 k{i:04}=yy\n" for i in range(1000)).encode()
    path = tmp_path / "a.tar"
    members = write_tar(tmp_path / "b.tar", samples(2)).read_bytes()
    path.write_bytes(pax("g", tarfile.XGLTYPE, keys) + members)
    folder = LocalFolder(tmp_path)
    with folder.open("a.tar") as file:
        found = list(tar.read_entries(HashedReader(file, "a.tar"), Options()))
    assert len(found) == 6
    assert len(found[0].global_pax) == 1000
    assert all(member.global_pax is found[0].global_pax for member in found)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (
            b"".join(b"12 k%04d=yy\n" % i for i in range(1001)),
            "a pax header of more than 1000 keys",
        ),
        (b"999 k0000=yy\n", "a pax record is longer than its header"),
        (b"9" * 4000 + b" path=x\n", "a number of more than 200 digits"),
        (b"9" * 150 + b" path=x\n", "a pax record without a length and a key"),
        # tarfile took the rest of the header as the key of each record: 1000 times 16 MB.
        (b"2 " * 900 + b"k" * 2**22 + b"=", "a pax record"),
        (b"2 k=", "a pax record is shorter than its key"),
        # tarfile of Python 3.11.9 searches digits in the square of their number: for 500 s.
        (b"1" * 2**20, "a number of more than 200 digits"),
        (b"%d path=%b\n" % (2**20 + 14, b"1" * 2**20), "a number of more than 200 digits"),
    ],
)
@pytest.mark.parametrize("kind", [tarfile.XGLTYPE, tarfile.XHDTYPE])
def test_pax_headers_without_measure(
    tmp_path: Path, kind: bytes, header: bytes, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    members = write_tar(tmp_path / "b.tar", samples(2)).read_bytes()
    (tmp_path / "a.tar").write_bytes(pax("x", kind, header) + members)
    assert convert(tmp_path / "a.tar", tmp_path / "d") == 2
    assert reason in capsys.readouterr().err


def test_global_pax_keys_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = write_tar(tmp_path / "b.tar", samples(2)).read_bytes()
    headers = b"".join(pax("g", tarfile.XGLTYPE, b"12 k%04d=yy\n" % i) for i in range(101))
    many = b"".join(
        pax("g", tarfile.XGLTYPE, b"".join(b"12 %c%04d=yy\n" % (k, i) for i in range(500)))
        for k in b"abc"
    )
    (tmp_path / "a.tar").write_bytes(headers + members)
    assert convert(tmp_path / "a.tar", tmp_path / "d") == 0
    (tmp_path / "a.tar").write_bytes(many + members)
    assert convert(tmp_path / "a.tar", tmp_path / "e") == 2
    assert "more than 1000 keys of all members" in capsys.readouterr().err


def test_headers_of_all_members_outlive_dropped_samples(tmp_path: Path) -> None:
    """Those in front of a damaged image went with it: times and attributes of all others."""

    def member(name: str, data: bytes) -> bytes:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        return info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)

    def shared(record: bytes) -> bytes:
        return pax("g", tarfile.XGLTYPE, b"%d %b\n" % (len(record) + 4, record))

    (tmp_path / "a.tar").write_bytes(
        shared(b"mtime=1234.25")
        + member("0.png", b"bad")
        + shared(b"comment=\xff one")
        + member("1.txt", b"")
        + member("1.png", b"bad")
        + member("2.png", png(2))
        + member("3.png", png(3))
        + shared(b"comment=another")
        + member("4.png", b"bad")
        + shared(b"uname=somebody")
        + member("5.png", png(5))
        + member("6.png", b"bad")
        + bytes(1024)
    )
    assert convert(tmp_path / "a.tar", tmp_path / "d", "--on-error", "drop") == 2
    data = (tmp_path / "d" / "a.tar").read_bytes()
    with tarfile.open(tmp_path / "d" / "a.tar") as archive:
        found = [(m.name, m.mtime, m.uname, archive.pax_headers["comment"]) for m in archive]
    assert found == [
        ("2.l3", 1234.25, "", "\udcff one"),
        ("3.l3", 1234.25, "", "\udcff one"),
        ("5.l3", 1234.25, "somebody", "another"),
    ]
    index = (tmp_path / "d" / "a.idx").read_text().splitlines()[1:]
    for line, seed in zip(index, (2, 3, 5), strict=True):
        at, size = map(int, line.split()[1:3])
        assert (l3dali.decode(data[at : at + size]) == image(seed)).all()


@pytest.mark.parametrize(
    "record",
    [b"12 size=%d\n", b"14 path=p.png\n", b"14 linkpath=x\n", b"25 GNU.sparse.name=a.tif\n"],
)
def test_global_pax_keys_of_one_member(
    tmp_path: Path, record: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """The result was a tar file that nothing could read, or that lost names."""
    members = write_tar(tmp_path / "b.tar", [("0.png", png()), ("1.png", png())]).read_bytes()
    record = record.replace(b"%d", b"%d" % len(png()))
    (tmp_path / "a.tar").write_bytes(pax("g", tarfile.XGLTYPE, record) + members)
    assert convert(tmp_path / "a.tar", tmp_path / "d") == 2
    assert "a pax header that gives all members one " in capsys.readouterr().err
    assert files_below(tmp_path / "d") == set()


@pytest.mark.parametrize("size", [100, 5000])
def test_a_size_that_is_not_the_header_s(
    tmp_path: Path, size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """More was read as the whole rest of the file."""
    record = b"%d GNU.sparse.realsize=%d\n" % (25 + len(str(size)), size)
    members = write_tar(tmp_path / "b.tar", [("0.png", png()), ("1.png", png())]).read_bytes()
    (tmp_path / "a.tar").write_bytes(pax("x", tarfile.XHDTYPE, record) + members)
    assert convert(tmp_path / "a.tar", tmp_path / "d") == 2
    assert re.search("0.png: a damaged header|: invalid header", capsys.readouterr().err)


@pytest.mark.parametrize("key", ["GNU.sparse.name", "GNU.sparse.realsize", "SCHILY.realsize"])
def test_pax_keys_of_names_and_sizes_are_made_anew(tmp_path: Path, key: str) -> None:
    """Readers go by them: the result had the old name or size."""
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("a.png")
        info.size = len(png())
        info.pax_headers = {key: "a.png" if key.endswith("name") else str(info.size), "own": "1"}
        archive.addfile(info, io.BytesIO(png()))
    assert convert(tmp_path / "a.tar", tmp_path / "d") == 0
    with tarfile.open(tmp_path / "d" / "a.tar") as archive:
        (member,) = archive
        assert (member.name, member.pax_headers) == ("a.l3", {"own": "1"})
        assert l3dali.info(archive.extractfile(member).read()).width == 30  # type: ignore[union-attr]


def test_contiguous_members_are_files(tmp_path: Path) -> None:
    """As all readers of tar files have it; images among them stayed, in silence."""
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for kind in (tarfile.REGTYPE, tarfile.CONTTYPE):
            info = tarfile.TarInfo(f"{kind.decode()}.png")
            info.type, info.size = kind, len(png())
            archive.addfile(info, io.BytesIO(png()))
    assert convert(tmp_path / "a.tar", tmp_path / "d") == 0
    with tarfile.open(tmp_path / "d" / "a.tar") as archive:
        assert archive.getnames() == ["0.l3", "7.l3"]
    assert main(["verify", str(tmp_path / "d")]) == 0


@pytest.mark.parametrize("container", ["tar", "zip"])
@pytest.mark.parametrize("name", ["a.ppm", "a.image", "a.l3"])
def test_images_that_are_sparse_members(
    tmp_path: Path, container: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They stayed as they were, in silence."""
    (tmp_path / "s").mkdir()
    for file_name, head in ((name, b"P6 512 512 255\n"), ("b.txt", b"text")):
        with (tmp_path / "s" / file_name).open("wb") as file:
            file.write(head)
            file.truncate(15 + 3 * 512 * 512)
    pack = ["tar", "-C", str(tmp_path / "s"), "-cSf"]
    subprocess.run([*pack, str(tmp_path / "t.tar"), "b.txt"], check=True)
    with tarfile.open(tmp_path / "t.tar") as archive:
        if not archive.getmember("b.txt").issparse():
            pytest.skip("this file system, or tar, has no sparse files")
    subprocess.run([*pack, str(tmp_path / "i.tar"), name, "b.txt"], check=True)
    to = ("--container", container)
    assert convert(tmp_path / "i.tar", tmp_path / "d", *to) == 2
    assert f"{name}: an image that is a sparse member" in capsys.readouterr().err
    assert convert(tmp_path / "t.tar", tmp_path / "d", *to) == (0 if container == "tar" else 2)
    assert ("zip archives have no more" in capsys.readouterr().err) == (container == "zip")


def test_large_members_that_are_no_images(tmp_path: Path) -> None:
    video = os.urandom(2**20) * 9
    members = [("0.mp4", video), ("0.png", png()), ("1.mp4", video), ("1.png", png()[:90])]
    source = write_tar(tmp_path / "a.tar", members)
    assert convert(source, tmp_path / "keep") == 2
    assert [len(data) for _, data in data_of(tmp_path / "keep" / "a.tar")][::2] == [len(video)] * 2
    assert convert(source, tmp_path / "drop", "--on-error", "drop") == 2
    assert as_pixels(data_of(tmp_path / "drop" / "a.tar")) == as_pixels(members[:2])


def test_sources_by_braces(tmp_path: Path) -> None:
    pytest.importorskip("braceexpand")
    for i in range(4):
        write_tar(tmp_path / "s" / f"a-{i:03}.tar", samples(2, 2 * i))
    assert convert(tmp_path / "s" / "a-{001..002}.tar", tmp_path / "d") == 0
    assert files_below(tmp_path / "d") == {"a-001.tar", "a-001.idx", "a-002.tar", "a-002.idx"}
    assert convert(tmp_path / "s" / "a-{002..004}.tar", tmp_path / "d") == 2  # 004 is missing
    assert (tmp_path / "d" / "a-003.tar").exists()


def test_braces_of_many_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looked at all others: 40,000 took 94 s."""
    pytest.importorskip("braceexpand")
    asked = []

    def ask(*arguments: Any) -> bool:
        asked.append(arguments[1])
        return isinstance(*arguments)

    monkeypatch.setattr(work, "isinstance", ask, raising=False)
    sources = work.find_sources([f"{tmp_path}/part-{{0..499}}"])
    assert len(sources.failures) == len(sources.whole) == 500
    assert len(asked) < 5 * 500


# Resuming.


@pytest.mark.parametrize(
    "braces", ["{0..999999999}", "{000..999999999}", "{9999999999..0..3}", "{0..9999}{0..9999}"]
)
def test_braces_without_end(
    tmp_path: Path, braces: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("braceexpand")
    assert convert(tmp_path / f"a-{braces}.tar", tmp_path / "d") == 2
    assert "more than 1000000 names; name the folder instead" in capsys.readouterr().err


def test_a_second_run_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tar(tmp_path / "s" / "a.tar", samples(3))
    (tmp_path / "s" / "one.png").write_bytes(png())
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "d").iterdir()}
    capsys.readouterr()
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert "nothing to do: 1 shard and 1 file done, 0 of" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "d").iterdir()}


def test_what_changed_is_converted_again(tmp_path: Path) -> None:
    sources = [write_tar(tmp_path / "s" / f"{i}.tar", samples(2, i)) for i in range(4)]
    results = [tmp_path / "d" / f"{i}.tar" for i in range(4)]
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    first = [result.read_bytes() for result in results]
    inodes = [result.stat().st_ino for result in results]
    write_tar(sources[0], samples(2, 7))  # the same size
    os.utime(sources[1])  # nothing but its time
    results[2].unlink()
    (tmp_path / "d" / "3.idx").unlink()
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert as_pixels(data_of(results[0])) == as_pixels(samples(2, 7))
    assert [result.read_bytes() for result in results[1:]] == first[1:]
    assert (tmp_path / "d" / "3.idx").exists()
    assert inodes[1] == results[1].stat().st_ino
    # The time that has been checked is remembered, not hashed again.
    assert rows_of(tmp_path / "d")["1.tar"].source_stamp == str(sources[1].stat().st_mtime_ns)


def test_a_result_that_was_damaged_is_made_again(tmp_path: Path) -> None:
    write_tar(tmp_path / "s" / "a.tar", samples(1))
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    result = tmp_path / "d" / "a.tar"
    whole = result.read_bytes()
    result.write_bytes(whole[:600] + b"?" + whole[601:])
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert result.read_bytes() == whole


@pytest.mark.parametrize(
    "option",
    [("--coding", "packed"), ("--effort", "1"), ("--labels", "png"), ("--on-error", "drop")],
)
def test_options_are_part_of_the_identity(tmp_path: Path, option: tuple[str, str]) -> None:
    write_tar(tmp_path / "s" / "a.tar", samples(1))
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    first = (tmp_path / "d" / "a.tar").stat().st_ino
    assert convert(tmp_path / "s", tmp_path / "d", *option) == 0
    assert (tmp_path / "d" / "a.tar").stat().st_ino != first
    assert " ".join(option)[2:].replace(" ", "=") in rows_of(tmp_path / "d")["a.tar"].options


def test_headers_without_end_fail_their_shard_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_tar(tmp_path / "s" / "b.tar", samples(1)).parent
    header = tarfile.TarInfo("long")
    header.type = tarfile.GNUTYPE_LONGNAME
    (source / "a.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) * 5000)
    assert convert(source, tmp_path / "d") == 2
    assert "a.tar: a damaged tar file: too many headers" in capsys.readouterr().err
    assert (tmp_path / "d" / "b.tar").exists()
    assert not (tmp_path / "d" / "a.tar").exists()


def test_what_a_container_raises_fails_it_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_bad_shard(
        write_tar(tmp_path / "s" / "b.tar", samples(1)).parent / "a.tar"
    ).parent
    assert convert("--dry-run", source, tmp_path / "d") == 2
    assert "l3: 1 failed\na.tar: " in capsys.readouterr().err
    assert convert(source, tmp_path / "d") == 2
    assert "l3: 1 failed\na.tar: " in capsys.readouterr().err
    assert files_below(tmp_path / "d") == {"b.tar", "b.idx"}


@pytest.mark.usefixtures("in_process")
def test_what_a_job_raises_ends_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_tar(tmp_path / "s" / "a.tar", samples(1)).parent
    (source / "0.png").write_bytes(png())

    def broken(*arguments: object) -> None:
        raise RuntimeError("of no kind that is foreseen")

    monkeypatch.setattr("l3dali.datasets.convert.job._convert_shard", broken)
    assert convert(source, tmp_path / "d", "-j", 1) == 2
    assert "a.tar: of no kind that is foreseen" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == {"0.l3"}


def test_a_manifest_of_brackets_is_passed_over(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "s" / "a.tar", samples(1)).parent
    assert convert(source, tmp_path / "d") == 0
    (tmp_path / "d" / "l3-manifest.jsonl").write_text('{"source":"a","kind":' + "[" * 100_000)
    assert convert(source, tmp_path / "d") == 0
    assert list(rows_of(tmp_path / "d")) == ["a.tar"]


def edit(target: Path, **fields: object) -> None:
    """Changes the first row of a manifest, as somebody may by hand."""
    path = target / "l3-manifest.jsonl"
    first, *others = path.read_text().splitlines(keepends=True)
    path.write_text("".join([json.dumps(json.loads(first) | fields) + "\n", *others]))


@pytest.mark.parametrize("text", ['{"image":"0.png"}\n{"image":"1.png"}\n', "\n", "notes\n{"])
def test_a_manifest_that_no_run_has_written_stays(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It made all of DEST the command's, and a run that was refused emptied it."""
    source, target, empty = tmp_path / "s", tmp_path / "d", tmp_path / "empty"
    for folder in (source, target, empty):
        folder.mkdir()
    (source / "0.png").write_bytes(png())
    (target / "0.l3").write_text("somebody's")
    (target / "l3-manifest.jsonl").write_text(text)
    for more in ([source, target], [source, target, "--dry-run"], [empty, target]):
        assert convert(*more) == 2
        assert "no rows of results that this version reads: name another" in capsys.readouterr().err
        assert (target / "l3-manifest.jsonl").read_text() == text
    assert (target / "0.l3").read_text() == "somebody's"
    assert files_below(target) == {"0.l3"}


def test_lines_are_dropped_when_a_run_gets_to_its_work(tmp_path: Path) -> None:
    source, target, empty = tmp_path / "s", tmp_path / "d", tmp_path / "empty"
    source.mkdir()
    empty.mkdir()
    (source / "0.png").write_bytes(png())
    assert convert(source, target) == 0
    manifest = target / "l3-manifest.jsonl"
    before = manifest.read_text() + "notes\n"
    manifest.write_text(before)
    assert convert(empty, target) == 2
    assert manifest.read_text() == before
    (source / "1.png").write_bytes(png(1))
    assert convert(source, target) == 0
    assert rows_of(target).keys() == {"0.png", "1.png"}


def test_fields_of_newer_versions_stay(tmp_path: Path) -> None:
    """A row with one field more was no row: its result was made anew."""
    source, target = tmp_path / "s", tmp_path / "d"
    source.mkdir()
    (source / "0.png").write_bytes(png())
    assert convert(source, target) == 0
    inode = (target / "0.l3").stat().st_ino
    formats = {"png": {"images": 1, "frames": 2}}
    edit(target, rate=[{"x": 1}], further=None, formats=formats)
    (source / "1.png").write_bytes(png(1))
    with (target / "l3-manifest.jsonl").open("a") as file:
        file.write("notes\n")  # All rows are written anew.
    assert convert(source, target) == 0
    assert (target / "0.l3").stat().st_ino == inode
    first, second = map(json.loads, (target / "l3-manifest.jsonl").read_text().splitlines())
    assert (first["rate"], first["further"]) == ([{"x": 1}], None)
    assert first.keys() - second.keys() == {"rate", "further"}


@pytest.mark.parametrize(
    "fields",
    [
        {"result": 5},
        {"result": "0\0.l3"},
        {"result": "../victim"},
        {"result": "other.l3"},
        {"result": None},
        {"source": ["x"]},
        {"source": "../0.png", "result": "../0.l3"},
        {"options": 5},
        {"status": "yes"},
        {"index": "../victim"},
        {"index": "other.l3"},
        {"stored": {"rans": "1"}},
        {"source_bytes": True},
        {"formats": {"png": {"images": []}}},
        {"failures": [[1, 2]]},
        {"formats": {"png\33[2J": {"images": 1}}},
        {"formats": {"png": {"raw_bytes": 10**400}}},
        {"formats": {"png": {"images": -1}}},
        {"stored": {"rans\n": 1}},
        {"version": "\33[2J"},
        {"source": "\ud800.png", "result": "\ud800.l3"},
        {"source": "a/" * 10**6 + "0.png", "result": None, "status": "failed"},
    ],
)
def test_rows_edited_by_hand_are_passed_over(
    tmp_path: Path, fields: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "s", tmp_path / "d"
    source.mkdir()
    (source / "0.png").write_bytes(png())
    assert convert(source, target) == 0
    (source / "1.png").write_bytes(png(1))  # a good row
    assert convert(source, target) == 0
    # As a result that is as it was written: size and time are those of the row.
    shutil.copy2(target / "0.l3", tmp_path / "victim")
    shutil.copy2(target / "0.l3", tmp_path / "0.l3")
    shutil.copy2(target / "0.l3", target / "other.l3")
    edit(target, **fields)
    for more in (["--dry-run"], ["--effort", 1, "--remove-gone"]):
        capsys.readouterr()
        assert convert(source, target, *more) == 0
        assert "no rows of results in DEST, passed over: 1" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"victim", "0.l3"}
    assert files_below(target) == {"0.l3", "1.l3", "other.l3"}
    assert rows_of(target)["0.png"].result == "0.l3"


def test_a_long_line_in_a_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is read in parts: one of 100 MB was deaf to Ctrl-C for 3 seconds."""
    source, target = tmp_path / "s", tmp_path / "d"
    source.mkdir()
    (source / "0.png").write_bytes(png())
    assert convert(source, target) == 0
    manifest = target / "l3-manifest.jsonl"
    row = manifest.read_bytes()
    manifest.write_bytes(b"[" + b"1," * 2**24 + b"\n" + row)
    capsys.readouterr()
    assert convert(source, target) == 0
    told = capsys.readouterr()
    assert "no rows of results in DEST, passed over: 17" in told.err
    assert "nothing to do" in told.out


def test_a_long_reason_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """14 MB of tar wrote a line of 56 MB, and a manifest of 84 MB that no run could read."""
    (tmp_path / "s").mkdir()
    with tarfile.open(tmp_path / "s" / "a.tar", "w", format=tarfile.GNU_FORMAT) as file:
        member = tarfile.TarInfo("\33" * 100_000 + "1.png")
        member.type, member.linkname = tarfile.SYMTYPE, "\33" * 100_000 + "0.png"
        file.addfile(member)
    for _ in range(2):
        assert convert(tmp_path / "s", tmp_path / "d") == 2
        assert len(capsys.readouterr().err) < 3000
    assert (tmp_path / "d" / "l3-manifest.jsonl").stat().st_size < 5000


def test_names_in_a_manifest_are_no_markup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "s", tmp_path / "d"
    source.mkdir()
    (source / "0.png").write_bytes(png())
    assert convert(source, target) == 0
    script = "<script>alert(1)</script>"
    edit(target, formats={"[/red]": {"images": 1}, script: {"images": 1}}, stored={script: 1})
    (source / "1.png").write_bytes(png())
    assert convert(source, target) == 0
    assert "[/red]" in capsys.readouterr().out
    page = (target / "l3-report.html").read_text()
    assert page.count("&lt;script&gt;") >= 2
    assert "<script" not in page


def test_damaged_tags_are_not_announced(tmp_path: Path) -> None:
    """Workers said on three lines each what tifffile and Pillow have against a tag."""
    tags = [(256, 8), (257, 8), (258, 8), (259, 1), (262, 1), (277, 1), (278, 8), (279, 64)]
    entries = [struct.pack("<HHII", tag, 4, 1, value) for tag, value in [*tags, (273, 8)]]
    entries += [struct.pack("<HHII", 0x9000 + i, 5, 1000, 2**31 - 1) for i in range(9)]
    head = b"II*\0" + struct.pack("<I", 72) + bytes(64) + struct.pack("<H", len(entries))
    (tmp_path / "s").mkdir()
    for name in "ab":
        (tmp_path / "s" / f"{name}.tif").write_bytes(head + b"".join(sorted(entries)) + bytes(4))
    # A process of its own, whose workers have its standard error.
    command = [sys.executable, "-m", "l3dali", "convert", "s", "d", "-j", "2"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stderr == ""
    assert files_below(tmp_path / "d") == {"a.l3", "b.l3"}


@pytest.mark.parametrize("limit", ["-Sn 40", "-n 39", "-n 40", "-n 52", "-n 16"])
def test_more_jobs_than_files_may_be_open(tmp_path: Path, limit: str) -> None:
    """Of 340 cores the run ended: "standard output: Too many open files"."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 192:
        pytest.skip("no more open files are allowed here")
    (tmp_path / "s").mkdir()
    for number in range(32):
        (tmp_path / "s" / f"{number}.png").write_bytes(png(number))
    jobs = [] if limit == "-n 16" else ["-j", "16"]
    command = [sys.executable, "-m", "l3dali", "convert", "s", "d", *jobs]
    limited = ["bash", "-c", f'ulimit {limit}; exec "$@"', "bash", *command]
    run = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, check=False)
    if limit == "-Sn 40":
        assert (run.returncode, run.stderr) == (0, "")
    else:
        assert (run.returncode, run.stdout) == (2, "")
        assert "l3: too many jobs at once (-j): Too many open files" in run.stderr
        assert "Traceback" not in run.stderr


def test_what_gdal_has_beside_an_image_is_copied(tmp_path: Path) -> None:
    """TIFFs of smaller copies alone, or of a mask, as GDAL puts them beside an image."""
    tifffile = pytest.importorskip("tifffile")
    (tmp_path / "s").mkdir()
    for name, kind in (("a.tif", 0), ("a.tif.ovr", 1), ("a.tif.msk", 0), ("b.msk", 0)):
        tifffile.imwrite(tmp_path / "s" / name, np.zeros((9, 9), np.uint8), subfiletype=kind)
    (tmp_path / "s" / "c.1.msk").write_bytes(png())  # of somebody
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    for name in ("a.tif.ovr", "a.tif.msk"):
        assert (tmp_path / "d" / name).read_bytes() == (tmp_path / "s" / name).read_bytes()
    made = {"a.l3", "a.tif.ovr", "a.tif.msk", "b.msk.l3", "c.1.msk.l3"}
    assert files_below(tmp_path / "d") == made


@pytest.mark.usefixtures("in_process")
def test_results_have_the_readers_of_their_sources(tmp_path: Path) -> None:
    """What is made of private files was everybody's."""
    source, target = tmp_path / "s", tmp_path / "d"
    write_tar(source / "a.tar", samples(1))
    (source / "0.png").write_bytes(png())
    (source / "b.txt").write_text("text")
    before = os.umask(0o027)
    try:
        for effort, mode in enumerate((0o600, 0o644, 0o400), 1):
            for path in source.iterdir():
                path.chmod(mode)
            assert convert(source, target, "-j", 1, "--effort", effort) == 0
            found = {(target / name).stat().st_mode & 0o777 for name in files_below(target)}
            assert found == {mode & 0o640 | 0o600}
    finally:
        os.umask(before)


def test_a_row_behind_a_link_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "s", tmp_path / "d"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "0.png").write_bytes(png())
    (source / "1.png").write_bytes(png())
    assert convert(source, target) == 0
    (target / "sub").rename(tmp_path / "elsewhere")
    (target / "sub").symlink_to(tmp_path / "elsewhere")
    (source / "sub" / "0.png").unlink()
    assert convert(source, target, "--remove-gone") == 0
    assert "passed over: 1" in capsys.readouterr().err
    assert files_below(tmp_path / "elsewhere") == {"0.l3"}


def test_a_manifest_without_its_last_newline_loses_no_row(tmp_path: Path) -> None:
    source, target = tmp_path / "s", tmp_path / "d"
    source.mkdir()
    (source / "0.png").write_bytes(png())
    assert convert(source, target) == 0
    manifest = target / "l3-manifest.jsonl"
    manifest.write_text(manifest.read_text().rstrip("\n"))
    (source / "1.png").write_bytes(png(1))
    assert convert(source, target) == 0
    assert rows_of(target).keys() == {"0.png", "1.png"}


def test_an_index_of_a_source_that_is_there_stays(tmp_path: Path) -> None:
    """Shards of two kinds have one index; the first is gone."""
    source, target = write_tar(tmp_path / "s" / "a.tar", samples(1)).parent, tmp_path / "d"
    assert convert(source, target) == 0
    (source / "a.tar").unlink()
    (source / "a.tfrecord").write_bytes(b"")
    assert convert(source, target) == 0
    assert convert(source, target, "--remove-gone") == 0
    assert files_below(target) == {"a.tfrecord", "a.idx"}


def test_a_file_with_the_name_of_an_earlier_index_stays(tmp_path: Path) -> None:
    """It is published while the rows that supersede the index are added."""
    source, target = tmp_path / "s", tmp_path / "d"
    source.mkdir()
    with zipfile.ZipFile(source / "a.zip", "w") as archive:
        archive.writestr("0.txt", b"x")
    assert convert(source, target, "--container", "tar") == 0
    assert files_below(target) == {"a.tar", "a.idx"}
    (source / "a.idx").write_text("mine")
    folder = open_folder(str(target))
    with Manifest(folder) as manifest:
        work = find_work(find_sources([str(source)]), str(target), Options(), manifest, 1)
        rows = [row for job in work.jobs for row in convert_job(job)]
        for row in sorted(rows, key=lambda row: row.source == "a.idx"):
            manifest.add([row])
    assert files_below(target) == {"a.zip", "a.idx"}
    assert (target / "a.idx").read_text() == "mine"


def test_a_result_of_the_same_bytes_stays(tmp_path: Path) -> None:
    """Tags of objects are those of their bytes: what one source had made another has made now."""
    pytest.importorskip("fsspec")
    source, target = tmp_path / "s", f"memory://{tmp_path}"
    source.mkdir()
    data = l3dali.encode(image(), metadata={"source_suffix": "tif"})
    (source / "a.l3").write_bytes(data)
    assert convert(source, target, "--to", "source") == 0
    folder = open_folder(target)
    with folder.open("a.tif") as file:
        (source / "a.tif").write_bytes(file.read())
    with Manifest(folder) as manifest:
        options = Options(to="png")
        work = find_work(find_sources([str(source)]), target, options, manifest, 1)
        rows = {row.source: row for job in work.jobs for row in convert_job(job)}
        old = manifest.rows["a.l3"]
        old.result_stamp = rows["a.tif"].result_stamp
        manifest.add([rows["a.l3"]])
        manifest.add([rows["a.tif"]])
    assert folder.list_files().files.keys() >= {"a.png", "a.tif"}


def test_a_torn_manifest_loses_its_last_row_alone(tmp_path: Path) -> None:
    for i in range(3):
        write_tar(tmp_path / "s" / f"{i}.tar", samples(1, i))
    assert convert(tmp_path / "s", tmp_path / "d", "-j", "1") == 0
    manifest = tmp_path / "d" / "l3-manifest.jsonl"
    manifest.write_bytes(manifest.read_bytes()[:-40])
    (tmp_path / "d" / ".l3-0123456789abcdef.tmp").write_bytes(b"left by a killed run")
    inodes = {i: (tmp_path / "d" / f"{i}.tar").stat().st_ino for i in range(3)}
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    again = [i for i in range(3) if (tmp_path / "d" / f"{i}.tar").stat().st_ino != inodes[i]]
    assert len(again) == 1
    assert len(rows_of(tmp_path / "d")) == 3
    assert not any(name.endswith(".tmp") for name in files_below(tmp_path / "d"))


SHARDS = 6
INTERRUPTED = (
    f"l3: interrupted; [1-{SHARDS}] of {SHARDS} shards and files are done; "
    "the same command goes on\n"
)


def start_held_run(folder: Path, cores: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "import held_work; held_work.run()"]
    return subprocess.Popen(
        [*command, folder / "s", folder / "d", "-j", str(cores)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.fixture
def held_run(tmp_path: Path) -> subprocess.Popen[bytes]:
    """A run with results, and no end before it is stopped; see `held_work`."""
    for i in range(SHARDS):
        extra = [("first.txt", bytes(5000))] if i < len(DONE) else []  # Large ones come first.
        write_tar(tmp_path / "s" / f"{i:02}.tar", [*samples(2), *extra])
    process = start_held_run(tmp_path, 2)
    manifest = tmp_path / "d" / "l3-manifest.jsonl"
    # A worker that is killed before has maybe told all that it did, and nothing fails.
    while not manifest.exists() or manifest.read_text().count("\n") < len(DONE):
        assert process.poll() is None
        time.sleep(0.01)
    return process


@pytest.mark.parametrize("to_group", [True, False])
def test_interrupted(tmp_path: Path, held_run: subprocess.Popen[bytes], to_group: bool) -> None:
    """By Ctrl-C, which goes to all processes, or a signal to the command alone."""
    if to_group:
        os.killpg(held_run.pid, signal.SIGINT)
    else:
        held_run.send_signal(signal.SIGTERM)
    _, error = held_run.communicate(timeout=60)
    assert held_run.returncode == (130 if to_group else 143)
    assert re.fullmatch(INTERRUPTED, error.decode())
    check_that_it_goes_on(tmp_path / "s", tmp_path / "d")


def test_interrupted_again_and_again(tmp_path: Path, held_run: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 1  # Signals 2 seconds after the first are other ones.
    while time.monotonic() < end:
        held_run.send_signal(signal.SIGINT)  # of no effect on a process that has ended
        time.sleep(0.005)
    _, error = held_run.communicate(timeout=60)
    assert held_run.returncode == 130
    assert re.fullmatch(INTERRUPTED, error.decode())
    check_that_it_goes_on(tmp_path / "s", tmp_path / "d")


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_amid_batches(tmp_path: Path, cores: int, sent: int) -> None:
    """Rows were written at the end of a batch: its results had none, and copies no owner."""
    (tmp_path / "s").mkdir()
    for i in range(24):
        (tmp_path / "s" / f"{i:02}.png").write_bytes(png(i))
        (tmp_path / "s" / f"{i:02}.txt").write_bytes(bytes(len(png())))
    run = start_held_run(tmp_path, cores)
    wanted = cores * DONE_OF_BATCH  # and copies that are made ahead
    while len(list(tmp_path.glob("d/??.*"))) < wanted and run.poll() is None:
        time.sleep(0.01)
    os.killpg(run.pid, sent)
    _, error = run.communicate(timeout=60)
    assert run.returncode == 128 + sent
    made = sorted(path.name for path in tmp_path.glob("d/??.*"))
    assert f"interrupted; {len(made)} of 48 shards and files are done" in error.decode()
    assert sorted(str(row.result) for row in rows_of(tmp_path / "d").values()) == made


def test_an_interrupt_comes_between_two_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Raised amid `wait`, it left locks that workers then waited for: the run never ended."""
    waited: list[Any] = []

    def interrupted_wait(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        waited.append(wait(*arguments))
        return waited[-1]

    monkeypatch.setattr(engine, "wait", interrupted_wait)
    earlier = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    (tmp_path / "s").mkdir()
    for i in range(20):
        (tmp_path / "s" / f"{i}.png").write_bytes(png(i))
    try:
        assert convert(tmp_path / "s", tmp_path / "d", "-j", 2) == 143
    finally:
        for each, handler in zip((signal.SIGINT, signal.SIGTERM), earlier, strict=True):
            signal.signal(each, handler)
    assert len(waited) == 1
    assert "interrupted; " in capsys.readouterr().err


def test_names_longer_than_paths_are_compared_as_they_are() -> None:
    """NFC sorts marks, in time by their square: 18 s for 400 KB of them, deaf to Ctrl-C."""
    assert folded("E\u0301") == folded("\u00e9")
    assert folded("E" + 2048 * "\u0301\u0316") == "e" + 2048 * "\u0301\u0316"


def test_rows_that_a_worker_gives_twice_count_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one that is told to end amid a message: 1,551 of 1,500 files were done."""

    class Child:
        def __init__(self, **_: Any) -> None:
            pass

        def each(self, _work: Any, job: Job, check: Any) -> Any:
            check()
            rows = convert_job(job)
            yield rows[:1]
            yield [*rows, *rows[-1:]]

        def end(self, **_: Any) -> bool:
            return False

    monkeypatch.setattr(engine, "Child", Child)
    (tmp_path / "s").mkdir()
    for i in range(20):
        (tmp_path / "s" / f"{i}.png").write_bytes(png(i))
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 2) == 0
    assert "20 files done, 20 of them in this run" in capsys.readouterr().out
    assert len((tmp_path / "d" / "l3-manifest.jsonl").read_text().splitlines()) == 20


@pytest.mark.parametrize("choice", ["keep", "drop"])
@pytest.mark.parametrize("error", [MemoryError, OSError, ModuleNotFoundError])
@pytest.mark.usefixtures("in_process")
def test_what_failed_for_want_of_memory_or_a_package_is_tried_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    choice: str,
    error: type[Exception],
) -> None:
    """Not what is damaged: it would fail in each run."""

    def read(_data: bytes, _palette: str) -> Any:
        raise error("broken data stream")

    write_tar(tmp_path / "s" / "a.tar", samples(2))
    (tmp_path / "s" / "b.png").write_bytes(png(7))
    write_tar(tmp_path / "s" / "damaged.tar", [("0.jpg", b"\xff\xd8\xff and no more")])
    # Its two bytes do not say for sure that it is an image.
    jxl = bytes(imagecodecs.jpegxl_encode(image(), lossless=True, usecontainer=False))
    write_tar(tmp_path / "s" / "c.tar", [("0.image", jxl)])
    command = (tmp_path / "s", tmp_path / "d", "-j", 1, "--on-error", choice)
    with monkeypatch.context() as patch:
        for format in ("png", "jpegxl"):
            patch.setitem(reading._READERS, format, read)
        if error is OSError:  # as of WebP and JPEG: whoever looks finds none
            header = replace(read_header(png()), read_bytes=2**62)
            for format in ("png", "jpegxl"):
                patch.setitem(headers._READERS, format, lambda _: header)
        assert convert(*command) == 2
    found = {name: row.transient for name, row in rows_of(tmp_path / "d").items()}
    reason = "package" if error is ModuleNotFoundError else "memory"
    assert found.items() >= {("a.tar", reason), ("b.png", reason), ("c.tar", reason)}
    capsys.readouterr()
    assert convert(*command) == 2
    printed = capsys.readouterr()
    assert "broken data" not in printed.err
    assert "3 of them in this run" in printed.out
    assert read_tar(tmp_path / "d" / "a.tar")[1][0] == "0000.l3"
    assert convert(*command) == 2
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize("side", [2**31 - 1, 60_000])
def test_images_that_claim_too_much_cost_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], side: int
) -> None:
    """Nor have they failed for want of memory, since no machine has enough to take them."""
    bad = bytearray(png())
    bad[16:24] = struct.pack(">2I", side, side)
    bad[24:26] = 16, 6  # bits of RGBA
    bad[29:33] = struct.pack(">I", zlib.crc32(bad[12:29]))
    write_tar(tmp_path / "s" / "a.tar", [*samples(2), ("bad.png", bytes(bad))])
    for name, data in (("0", png()), ("1", bytes(bad)), ("2", png())):
        (tmp_path / "s" / f"{name}.png").write_bytes(data)
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 2
    assert capsys.readouterr().err.count("pixels are more than the limit") == 2
    assert files_below(tmp_path / "d") >= {"a.tar", "0.l3", "1.png", "2.l3"}
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 2
    assert "nothing to do" in capsys.readouterr().out


def test_a_long_name_takes_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python tries all folders of a name for a place to cut it in two, each time from its start."""

    def split(_info: tarfile.TarInfo, name: str, *_: Any) -> tuple[str, str]:
        raise AssertionError(name)

    name = "a/" * 200 + "0.png"
    behind = write_tar(tmp_path / "gnu.tar", [(name, png())]).read_bytes()
    short = write_tar(tmp_path / "u.tar", [("0.png", png())], tarfile.USTAR_FORMAT).read_bytes()
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.tar").write_bytes(behind[:1024] + short)
    monkeypatch.setattr(tarfile.TarInfo, "_posix_split_name", split)
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 0
    assert [each[0] for each in read_tar(tmp_path / "d" / "a.tar")] == [name[:-3] + "l3"]


LEFT = """
import imagecodecs, numpy
from l3dali.datasets.convert import pipeline
from l3dali.datasets.convert.images import Blob, Options
from l3dali.datasets.convert.job import _Loaded
pipeline.WAITING_BYTES = 100
mask = imagecodecs.png_encode(numpy.zeros((64, 64), numpy.uint8))
entries = (_Loaded(None, [Blob("a.png", mask, "a.png")]) for _ in range(1000))
results = pipeline.ImagePool(Options(coding="stored"), 3).convert(entries)
next(results)
raise ValueError
"""


def test_results_that_nobody_takes_hold_no_process() -> None:
    done = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True, timeout=60)
    assert done.stderr.endswith("\nValueError\n")


@pytest.mark.usefixtures("in_process")
def test_few_large_members_wait_in_tmpdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As videos beside images; up to 64 for each batch did: 150 of 9 MiB took 1.1 GB there."""
    live: weakref.WeakSet[Any] = weakref.WeakSet()
    most = 0
    make = tempfile.TemporaryFile

    def count(*arguments: Any, **options: Any) -> Any:
        nonlocal most
        live.add(file := make(*arguments, **options))
        most = max(most, len(live))
        return file

    monkeypatch.setattr(tempfile, "TemporaryFile", count)
    data = bytes(tar.SPOOLED_BYTES + 1)
    source = write_tar(tmp_path / "s" / "a.tar", [(f"{i}.bin", data) for i in range(20)])
    assert convert(tmp_path / "s", tmp_path / "d", "-j", "1") == 0
    assert read_tar(tmp_path / "d" / "a.tar") == read_tar(source)
    assert 0 < most < 8


def test_large_files_are_read_and_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system call of 3 GB, or a hash of them, hears no Ctrl-C for seconds."""
    monkeypatch.setattr(storage, "_MOST_AT_ONCE", 1000)
    monkeypatch.setattr(storage, "CHUNK_BYTES", 400)
    sizes: list[int] = []

    class Watched(io.BytesIO):
        def write(self, data: Any) -> int:
            sizes.append(len(data))
            return super().write(data)

        def read(self, size: int | None = -1) -> bytes:
            sizes.append(size or 0)
            return super().read(size)

    data = bytes(range(250)) * 11
    file = Watched()
    writer = HashedWriter(file, "a")
    writer.write(data)
    file.seek(0)
    reader = HashedReader(file, "a", len(data))
    assert reader.read(len(data) - 5, head=b"head") == b"head" + data[:-5]
    assert reader.read() == data[-5:]
    assert writer.hexdigest() == reader.hexdigest()
    assert max(sizes) <= 1000


def test_killed(tmp_path: Path, held_run: subprocess.Popen[bytes]) -> None:
    held_run.kill()
    held_run.communicate(timeout=60)  # Ends when no process holds the pipes: workers go too.
    check_that_it_goes_on(tmp_path / "s", tmp_path / "d")


def test_a_killed_worker(tmp_path: Path, held_run: subprocess.Popen[bytes]) -> None:
    command = ["ps", "-s", str(held_run.pid), "-o", "pid=,ppid="]
    manifest = tmp_path / "d" / "l3-manifest.jsonl"
    # Each shard is tried twice. Then its job has failed; the others go on.
    while "ended by SIGKILL" not in manifest.read_text():
        assert held_run.poll() is None
        pairs = [line.split() for line in subprocess.check_output(command, text=True).splitlines()]
        parents = {parent for _, parent in pairs}
        workers = [pid for pid, _ in pairs if pid not in parents]
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(workers[-1]), signal.SIGKILL)
        time.sleep(0.1)
    held_run.send_signal(signal.SIGINT)
    _, error = held_run.communicate(timeout=60)
    assert held_run.returncode == 130
    assert re.fullmatch(INTERRUPTED, error.decode())
    check_that_it_goes_on(tmp_path / "s", tmp_path / "d")


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("kind", ["webdataset", "files"])
def test_what_was_announced_is_published_once(tmp_path: Path, kind: str, moment: str) -> None:
    """A worker dies around the moment its second result appears; another does the job again."""
    for i in range(3):
        write_tar(tmp_path / "s" / f"{i}.tar", samples(2, i))
        (tmp_path / "s" / f"{i}.png").write_bytes(png(i))
    suffix = ".png" if kind == "files" else ".tar"
    files = LocalFolder(tmp_path / "s").list_files().files.values()
    chosen = tuple(file for file in files if file.name.endswith(suffix))
    job = Job(kind, str(tmp_path / "s"), str(tmp_path / "d"), chosen, Options())
    announced: dict[str, Row] = {}

    def announce(row: Row) -> None:
        announced[row.source] = replace(row)
        if moment == "before" and len(announced) == 2:
            raise SystemExit

    def published() -> dict[str, int]:
        paths = (tmp_path / "d").glob("*.tar" if kind == "webdataset" else "*.l3")
        return {path.name: path.stat().st_ino for path in paths}

    results = convert_each(job, announce=announce)
    if moment == "before":
        with pytest.raises(SystemExit):
            list(results)
    else:
        list(islice(results, 2))
        del results
    first = published()
    assert len(announced) == 2
    assert len(first) == (1 if moment == "before" else 2)
    again = list(convert_each(replace(job, previous=announced)))
    assert len(published()) == 3
    assert {name: published()[name] for name in first} == first
    at_once = list(convert_each(replace(job, target=str(tmp_path / "e"))))
    assert [lasting(row) for row in again] == [lasting(row) for row in at_once]


def test_an_index_that_has_changed_is_made_anew(tmp_path: Path) -> None:
    """One whose time alone has changed is not, nor is that of a row of before."""
    write_tar(tmp_path / "s" / "a.tar", samples(2))
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    index, manifest = tmp_path / "d" / "a.idx", tmp_path / "d" / "l3-manifest.jsonl"
    whole, made = index.read_bytes(), (tmp_path / "d" / "a.tar").stat().st_ino
    os.utime(index, (1, 1))
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    row = json.loads(manifest.read_text().splitlines()[-1])
    del row["index_stamp"]
    manifest.write_text(json.dumps(row) + "\n")
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert (tmp_path / "d" / "a.tar").stat().st_ino == made
    assert rows_of(tmp_path / "d")["a.tar"].index_stamp == str(index.stat().st_mtime_ns)
    index.write_bytes(whole[:-2])
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert index.read_bytes() == whole


def lasting(row: Row) -> Row:
    """The row without what differs between runs."""
    return replace(row, seconds=0.0, result_stamp="", index_stamp="")


def check_that_it_goes_on(source: Path, target: Path) -> None:
    """Nothing that is in the manifest is done again, and all is done in the end."""
    lines = set((target / "l3-manifest.jsonl").read_text().splitlines())
    done = [name for name, row in rows_of(target).items() if row.result is not None]
    inodes = {name: (target / name).stat().st_ino for name in done}
    assert inodes.keys() <= set(DONE)
    assert inodes
    assert convert(source, target) == 0
    assert inodes == {name: (target / name).stat().st_ino for name in inodes}
    # Not startswith: an interrupt may have written rows twice, which the next run writes anew.
    assert lines <= set((target / "l3-manifest.jsonl").read_text().splitlines())
    rows = rows_of(target)
    assert len(rows) == len(list(target.glob("*.tar"))) == SHARDS
    assert len({row.pixels_hash for row in rows.values()}) == 1
    assert not list(target.glob(".l3-*"))


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_file_of_somebody_with_the_name_of_a_manifest(tmp_path: Path, end: str) -> None:
    """One line without an end was taken for the rest of a run that was killed."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.png").write_bytes(png())
    (tmp_path / "d").mkdir()
    notes = tmp_path / "d" / "l3-manifest.jsonl"
    notes.write_text(f"my notes{end}")
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert notes.read_text() == f"my notes{end}"
    notes.write_text('{"source":"a.p')  # A run was killed amid its first row.
    assert convert(tmp_path / "s", tmp_path / "d") == 0


def test_files_of_others_are_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tar(tmp_path / "s" / "a.tar", samples(1))
    precious = write_tar(tmp_path / "d" / "a.tar", samples(2))
    before = precious.read_bytes()
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert "a.tar exists" in capsys.readouterr().err
    assert precious.read_bytes() == before


@pytest.mark.parametrize("dest", ["s", "s/below"])
def test_results_among_the_sources(
    tmp_path: Path, dest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tar(tmp_path / "s" / "a.tar", samples(1))
    assert convert(tmp_path / "s", tmp_path / dest) == 2
    assert "name a folder outside" in capsys.readouterr().err
    assert not (tmp_path / "s" / "below").exists()


@pytest.mark.parametrize("kind", ["folder", "file", "link", "linked folder"])
def test_sources_among_the_results(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second run would write over a source."""
    inside = tmp_path / "w" / "s" / "a.png"
    inside.parent.mkdir(parents=True)
    inside.write_bytes(png())
    source = {"folder": inside.parent, "file": inside}.get(kind, tmp_path / "s")
    if kind == "link":
        source.mkdir()
        (source / "a.png").symlink_to(inside)
    elif kind == "linked folder":
        source.symlink_to(inside.parent)
    assert convert(source, tmp_path / "w") == 2
    assert f"is in {tmp_path / 'w'}; name another folder" in capsys.readouterr().err
    assert files_below(tmp_path / "w") == {"s/a.png"}


@pytest.mark.usefixtures("in_process")
def test_other_names_of_a_bucket(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As `s3` and `s3a`, which name one place."""
    fsspec = pytest.importorskip("fsspec")
    from fsspec.implementations.memory import MemoryFileSystem

    class Bucket(MemoryFileSystem):  # type: ignore[misc]
        protocol = ("bucket", "bucketa")
        store: ClassVar[dict[str, Any]] = {}
        pseudo_dirs: ClassVar[list[str]] = [""]

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return "/" + path.rpartition("://")[2].strip("/")

    for scheme in Bucket.protocol:
        fsspec.register_implementation(scheme, Bucket, clobber=True)
    with fsspec.open("bucket://w/s/a.png", "wb") as file:
        file.write(png())
    for source, target in (
        ("bucket://w/s", "bucketa://w"),
        ("bucket://w/s", "bucketa://w/s/"),
        ("bucket://w/s", "simplecache::bucketa://w"),
        ("bucket://w/s", "bucket://w/x/.."),
        ("bucketa://w", "bucket://w/d"),
        ("bucketa://w/s/a.png", "bucket://w"),
    ):
        assert convert(source, target) == 2
        assert "name " in capsys.readouterr().err
    assert set(Bucket.store) == {"/w/s/a.png"}
    assert convert("bucket://w/s", "bucketa://w/d") == 0


def test_a_folder_of_two_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where cases are not told apart, or a folder is mounted twice."""
    monkeypatch.setattr(LocalFolder, "real_place", lambda self: os.path.abspath(self.root))  # noqa: PTH100
    (tmp_path / "w" / "s").mkdir(parents=True)
    (tmp_path / "W").symlink_to("w")
    (tmp_path / "w" / "s" / "a.png").write_bytes(png())
    for source, target in (("w/s", "W"), ("w", "W/s/d"), ("w/s", "W/s")):
        assert convert(tmp_path / source, tmp_path / target) == 2
    assert files_below(tmp_path / "w") == {"s/a.png"}


def test_a_link_in_dest_leads_no_result_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "s", tmp_path / "d"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a.txt").write_text("source")
    target.mkdir()
    (target / "sub").symlink_to(source / "sub")
    assert convert(source, target) == 2
    assert "a link leads out of" in capsys.readouterr().err
    assert (source / "sub" / "a.txt").read_text() == "source"
    assert not (source / "sub" / "a.txt").is_symlink()


@pytest.mark.parametrize("other", ["is.txt", "real/a.l3"])
def test_a_link_in_dest_hides_nothing(
    tmp_path: Path, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files behind it were replaced, and two results were one."""
    source, target = tmp_path / "s", tmp_path / "d"
    for name in ("sub", "real") if other == "is.txt" else ("sub",):
        (source / name).mkdir(parents=True)
        (source / name / "a.png").write_bytes(png())
    (target / "real").mkdir(parents=True)
    (target / other).write_text("mine")
    (target / "sub").symlink_to("real")
    assert convert(source, target) == 2
    assert f"{target}/sub is a link, and sub/a.l3 would go through it" in capsys.readouterr().err
    assert (target / other).read_text() == "mine"
    assert files_below(target) == {other}


def test_rows_do_not_have_thousands_of_labels(tmp_path: Path) -> None:
    """With 2.6 MB of names no row could be read again, and DEST was refused."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.png").write_bytes(png())
    names = ["a.png", *(f"{'mask' * 640}{i}.png" for i in range(1000))]
    options = [word for name in names for word in ("--labels", name)]
    assert convert(tmp_path / "s", tmp_path / "d", *options) == 0
    row = rows_of(tmp_path / "d")["a.png"]
    assert len(row.to_json()) < 2**12
    assert Options(labels=(*names[1:], names[0])).identity == row.options
    assert Options(labels=tuple(names[1:])).identity != row.options


@pytest.mark.parametrize("at", ["a.tar", "behind a.tar", "a.idx"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.usefixtures("in_process")
def test_shard_and_index_appear_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool, error: Any, at: str
) -> None:
    """The new index stayed, alone or beside the shard of before, which DALI read by it."""
    source, target = write_tar(tmp_path / "s" / "a.tar", samples(3)), tmp_path / "d"
    if is_there:
        assert convert(source, target) == 0
        write_tar(source, samples(4))
    assert convert(source, tmp_path / "e") == 0
    before, new = (
        {path.name: path.read_bytes() for path in folder.glob("a.*")}
        for folder in (target, tmp_path / "e")
    )

    def replace(temporary: str, name: str, **folders: int) -> None:
        if name == at:
            monkeypatch.undo()
            raise error
        _replace(temporary, name, **folders)
        if at == f"behind {name}":
            monkeypatch.undo()
            raise error

    _replace = os.replace
    monkeypatch.setattr(os, "replace", replace)
    code = 130 if error is KeyboardInterrupt else 2 if at == "a.tar" else 0
    assert convert(source, target, "-j1") == code
    found = {path.name: path.read_bytes() for path in target.glob("a.*")}
    assert found == (before if at == "a.tar" else new)
    if at != "a.tar":
        assert rows_of(target)["a.tar"].status == "done"
    assert convert(source, target, "--effort", "2") == 0
    assert rows_of(target)["a.tar"].index == "a.idx"


def refuse_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage takes no `a.idx` any more."""

    def replace(temporary: str, name: str, **folders: int) -> None:
        if name == "a.idx":
            raise OSError(errno.EACCES, "refused")
        _replace(temporary, name, **folders)

    _replace = os.replace
    monkeypatch.setattr(os, "replace", replace)


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.usefixtures("in_process")
def test_an_index_that_cannot_be_published(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_there: bool,
) -> None:
    """Of a shard that is there, the run said that the one before it stays, or nothing."""
    source, target = write_tar(tmp_path / "s" / "a.tar", samples(3)), tmp_path / "d"
    if is_there:
        assert convert(source, target) == 0
        write_tar(source, samples(4))
    refuse_index(monkeypatch)
    assert convert(source, target) == 2
    told = capsys.readouterr().err
    assert "a.tar: refused: " in told
    assert "stays" not in told
    assert not (target / "a.idx").exists()
    row = rows_of(target)["a.tar"]
    assert (row.status, row.result, row.index) == ("failed", "a.tar", None)
    assert row.result_hash == hash_file(LocalFolder(target), "a.tar")
    if is_there:  # An earlier result of another name goes with its row.
        assert convert(source, target, "--container", "zip") == 0
        assert convert(source, target) == 2
        assert files_below(target) == {"a.tar"}
    monkeypatch.undo()
    assert convert(source, target, "--effort", "2") == 0
    assert rows_of(target)["a.tar"].index == "a.idx"


@pytest.mark.usefixtures("in_process")
def test_an_interrupt_behind_an_index_that_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest kept the row of the shard before."""
    source, target = write_tar(tmp_path / "s" / "a.tar", samples(3)), tmp_path / "d"
    assert convert(source, target) == 0
    write_tar(source, samples(4))

    def run(jobs: list[Job], workers: int, left: list[Row]) -> Iterator[list[Row]]:
        for rows in _run(jobs, workers, left):
            left += rows
            raise KeyboardInterrupt
        yield []

    _run = engine.run_local
    refuse_index(monkeypatch)
    monkeypatch.setattr(engine, "run_local", run)
    assert convert(source, target, "-j1") == 130
    row = rows_of(target)["a.tar"]
    assert (row.status, row.result, row.index) == ("failed", "a.tar", None)
    assert row.result_hash == hash_file(LocalFolder(target), "a.tar")


def test_a_folder_in_the_place_of_an_index(tmp_path: Path) -> None:
    source, target = write_tar(tmp_path / "s" / "a.tar", samples(3)), tmp_path / "d"
    assert convert(source, target) == 0
    before = (target / "a.tar").read_bytes()
    (target / "a.idx").unlink()
    (target / "a.idx").mkdir()
    write_tar(source, samples(4))
    assert convert(source, target) == 2
    assert (target / "a.tar").read_bytes() == before


def test_a_manifest_that_takes_no_rows_is_told_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of somebody else's: results were replaced before it was opened."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.png").write_bytes(png())
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    before = (tmp_path / "d" / "a.l3").read_bytes()

    def refuse(self: LocalFolder, name: str) -> Any:
        if name == "l3-manifest.jsonl":
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return open_to_append(self, name)

    open_to_append = LocalFolder.open_to_append
    monkeypatch.setattr(LocalFolder, "open_to_append", refuse)
    assert convert(tmp_path / "s", tmp_path / "d", "--coding", "packed") == 2
    assert (tmp_path / "d" / "a.l3").read_bytes() == before


@pytest.mark.parametrize("has_index", [True, False])
def test_an_index_is_that_of_the_shard(tmp_path: Path, has_index: bool) -> None:
    """A shard that failed at its last bytes left the index of the new one beside the old."""
    source = write_tar(tmp_path / "s" / "a.tar", samples(3))
    target = tmp_path / "d"
    assert convert(source, target) == 0
    if not has_index:
        (target / "a.idx").unlink()
    before = [path.read_bytes() for path in sorted(target.glob("a.*"))]
    write_tar(source, samples(40, 7))
    assert convert(source, tmp_path / "e") == 0
    limit = (tmp_path / "e" / "a.tar").stat().st_size // 1024 - 1
    for options in ([], [], ["--effort", "2"]):  # A row that failed is tried again, as are others.
        command = [sys.executable, "-m", "l3dali", "convert", str(source), str(target), *options]
        limited = ["bash", "-c", f'ulimit -f {limit}; exec "$@"', "bash", *command]
        run = subprocess.run(limited, capture_output=True, text=True, check=False)
        assert "File too large" in run.stderr
        assert [path.read_bytes() for path in sorted(target.glob("a.*"))] == before
    row = rows_of(target)["a.tar"]
    assert (row.index, row.status) == ("a.idx", "failed")
    assert convert(source, target) == 0
    for name in ("a.tar", "a.idx"):
        assert (target / name).read_bytes() == (tmp_path / "e" / name).read_bytes()


def test_a_folder_that_becomes_a_link_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else puts it there between the look at it and the write."""
    outside, dest = tmp_path / "outside", tmp_path / "d"
    outside.mkdir()
    (outside / "a").write_text("precious")
    folder = storage.LocalFolder(dest)
    look = storage.LocalFolder._changed

    def swap() -> None:
        (dest / "sub").rename(dest / "old")
        (dest / "sub").symlink_to(outside)

    def look_and_swap(self: storage.LocalFolder, name: str) -> Path:
        path = look(self, name)
        swap()
        return path

    with folder.publish("sub/a") as file:
        file.write(b"result")
        swap()
    assert (dest / "old" / "a").read_bytes() == b"result"
    for change in (lambda: folder.publish("sub/a").__enter__(), lambda: folder.remove("sub/a")):
        shutil.rmtree(dest)
        (dest / "sub").mkdir(parents=True)
        with monkeypatch.context() as patch:
            patch.setattr(storage.LocalFolder, "_changed", look_and_swap)
            with pytest.raises(NotADirectoryError):
                change()
    assert [path.read_text() for path in outside.iterdir()] == ["precious"]


def test_large_files_are_done_a_few_at_a_time(tmp_path: Path) -> None:
    """What is in hand when a run is ended is done once more."""
    for i in range(64):
        path = tmp_path / "s" / f"{i}.png"
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.truncate(path, 2**19)
    with Manifest(LocalFolder(tmp_path / "d"), read_only=True) as manifest:
        work = find_work(find_sources([f"{tmp_path}/s"]), f"{tmp_path}/d", Options(), manifest, 1)
    assert max(len(job.files) for job in work.jobs) == 8


# Failures.


@pytest.mark.parametrize("choice", ["fail", "keep", "drop"])
def test_a_damaged_image(tmp_path: Path, choice: str, capsys: pytest.CaptureFixture[str]) -> None:
    members = samples(3)
    members[4] = ("0001.png", members[4][1][:100])
    write_tar(tmp_path / "s" / "bad.tar", members)
    write_tar(tmp_path / "s" / "good.tar", samples(2))
    (tmp_path / "s" / "bad.png").write_bytes(b"")
    assert convert(tmp_path / "s", tmp_path / "d", "--on-error", choice) == 2
    error = capsys.readouterr().err
    assert "l3: 2 failed" in error
    assert "0001.png: cannot be read" in error
    assert "bad.png: the file is empty" in error
    assert as_pixels(data_of(tmp_path / "d" / "good.tar")) == as_pixels(samples(2))
    result = tmp_path / "d" / "bad.tar"
    assert (tmp_path / "d" / "bad.png").exists() == (choice == "keep")
    if choice == "fail":
        assert files_below(tmp_path / "d") == {"good.tar", "good.idx"}
    elif choice == "keep":
        kept = data_of(result)
        assert kept[4] == members[4]
        assert as_pixels(kept[:3]) == as_pixels(members[:3])
    else:
        assert as_pixels(data_of(result)) == as_pixels(members[:3] + members[6:])
        assert (tmp_path / "d" / "bad.idx").read_text().startswith("v1.2 2\n")
    rows = rows_of(tmp_path / "d")
    expected = {"fail": "failed", "keep": "done", "drop": "done"}
    assert rows["bad.tar"].status == expected[choice]
    assert rows["bad.png"].status == {"drop": "dropped"}.get(choice, expected[choice])
    # What is finished stays so, and what failed is said again.
    assert convert(tmp_path / "s", tmp_path / "d", "--on-error", choice) == 2
    assert "l3: 2 failed" in capsys.readouterr().err


@pytest.mark.usefixtures("in_process")
def test_verify_finds_an_encoder_that_errs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = codec.encode

    def wrong(pixels: Any, **options: Any) -> bytes:
        other = np.array(pixels)
        other[-1, -1] ^= 1
        return real(other, **options)

    source = write_tar(tmp_path / "a.tar", samples(1))
    monkeypatch.setattr(codec, "encode", wrong)
    assert convert(source, tmp_path / "d", "--on-error", "fail", "-j", "1") == 2
    assert "differ from the source" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == set()
    assert convert(source, tmp_path / "e", "--on-error", "fail", "--no-verify", "-j", "1") == 0


def test_the_report(tmp_path: Path) -> None:
    write_tar(tmp_path / "s" / "a<b>.tar", [*samples(2), ("9.png", b"")])
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    page = (tmp_path / "d" / "l3-report.html").read_text()
    assert "a&lt;b&gt;.tar: 9.png" in page
    assert page.count("<rect") == 2
    for line in (tmp_path / "d" / "l3-manifest.jsonl").read_text().splitlines():
        assert json.loads(line)["formats"]["png"]["images"] == 2


def test_jpeg_would_grow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noisy = np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)
    jpeg = bytes(imagecodecs.jpeg_encode(noisy, level=60))
    source = write_tar(tmp_path / "s" / "a.tar", [(f"{i}.jpg", jpeg) for i in range(120)])
    assert convert(source, tmp_path / "d") == 2
    error = capsys.readouterr().err
    assert "The first 100 images" in error
    assert "--grow" in error
    assert files_below(tmp_path / "d") == set()
    assert convert(source, tmp_path / "d", "--grow") == 0
    assert rows_of(tmp_path / "d")["a.tar"].images == 120


def test_what_is_left_is_not_judged_alone(tmp_path: Path) -> None:
    """A run that was interrupted could not go on where JPEGs were left."""
    noisy = np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)
    jpeg = bytes(imagecodecs.jpeg_encode(noisy, level=60))
    source = write_tar(tmp_path / "s" / "a.tar", samples(9)).parent
    assert convert(source, tmp_path / "d") == 0
    write_tar(source / "b.tar", [(f"{i}.jpg", jpeg) for i in range(4)])
    assert convert(source, tmp_path / "d") == 0
    assert rows_of(tmp_path / "d")["b.tar"].images == 4


# Bad input.


@pytest.mark.parametrize("kept", [0, 100, 512, 700, 1536 + 10, 5000])
def test_a_truncated_tar(tmp_path: Path, kept: int, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_tar(tmp_path / "s" / "a.tar", samples(3))
    source.write_bytes(source.read_bytes()[:kept])
    assert convert(source, tmp_path / "d") == 2
    error = capsys.readouterr().err
    assert "a.tar: " in error
    assert "truncated" in error or "not a whole tar" in error
    assert files_below(tmp_path / "d") == set()


def test_a_tar_without_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_tar(tmp_path / "s" / "a.tar", [("0.txt", b"x" * 512)])
    source.write_bytes(source.read_bytes()[:1024])
    assert convert(source, tmp_path / "d") == 2
    assert "no end mark" in capsys.readouterr().err


def test_a_damaged_header(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_tar(tmp_path / "s" / "a.tar", samples(3))
    data = bytearray(source.read_bytes())
    data[1024] ^= 1  # the name of the second member
    source.write_bytes(data)
    assert convert(source, tmp_path / "d") == 2
    assert "no header at byte 1024" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == set()


def test_archives_in_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_tar(tmp_path / "s" / "a.tar", samples(1))
    source.write_bytes(2 * source.read_bytes())
    assert convert(source, tmp_path / "d") == 2
    assert "behind the end mark" in capsys.readouterr().err


@pytest.mark.parametrize("format", ["BMP", "PPM"])
@pytest.mark.parametrize("on_error", ["keep", "drop"])
def test_damage_of_images_with_short_signatures(
    tmp_path: Path, format: str, on_error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their names say nothing, and text that begins so is none."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image()).save(file, format)
    data = file.getvalue()
    texts = {"0.txt": b"BMW, parked", "1.txt": b"P1 12 14\nP2 15 18", "2.txt": b"P5 34 1"}
    images = {"3.image": data, "4.image": data[: len(data) // 2]}
    write_tar(tmp_path / "s" / "a.tar", [*texts.items(), *images.items()])
    assert convert(tmp_path / "s", tmp_path / "d", "--on-error", on_error) == 2
    assert "a.tar: 4.image: " in capsys.readouterr().err
    kept = ["4.image"] * (on_error == "keep")
    assert [name for name, _ in data_of(tmp_path / "d" / "a.tar")] == [*texts, "3.image.l3", *kept]


def test_a_tar_whose_rest_is_zeros(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a download leaves it that made room for the whole file and was interrupted."""
    source = write_tar(tmp_path / "s" / "a.tar", samples(3))
    size = source.stat().st_size
    data = source.read_bytes().rstrip(b"\0")
    whole = -(-len(data) // 512) * 512 + 2**20
    for zeros in (0, 1):
        os.truncate(source, whole + zeros)
        assert convert(source, tmp_path / "d") == 2 * zeros
    assert "1048577 bytes of zeros at the end" in capsys.readouterr().err
    assert size < whole


def test_an_empty_shard(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "s" / "a.tar", [])
    assert convert(source, tmp_path / "d") == 0
    assert data_of(tmp_path / "d" / "a.tar") == []
    assert (tmp_path / "d" / "a.idx").read_text() == "v1.2 0\n"


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([("0.png", png()), ("0.cls", b"0"), ("0.png", png(1))], "would both be 0.l3"),
        ([("0.txt", b"1"), ("0.txt", b"2")], "would both be 0.txt"),
        ([("0.png", png()), ("0.tif", png(1))], "would both be 0.l3"),
        # Of other samples, with the sample's own between them or without a suffix.
        ([("0.png", png()), ("1.cls", b""), ("0.tif", png(1))], "0.png and 0.tif would both be 0"),
        ([("0.png", png()), ("0", png(1))], "0.png and 0 would both be 0.l3"),
        ([("0", png()), ("0.png", png(1))], "0 and 0.png would both be 0.l3"),
        ([("0", png()), ("0.l3", b"no image")], "0 and 0.l3 would both be 0.l3"),
        ([("a/.png", png()), ("a/.png.l3", b"")], "a/.png and a/.png.l3 would both be a/.png.l3"),
    ],
)
def test_duplicate_keys(
    tmp_path: Path, members: Members, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_tar(tmp_path / "s" / "a.tar", members)
    assert convert(source, tmp_path / "d") == 2
    assert reason in capsys.readouterr().err
    assert files_below(tmp_path / "d") == set()


def test_what_is_dropped_takes_no_names(tmp_path: Path) -> None:
    """The whole shard failed."""
    members = [("0.png", png()), ("0.tif", png(1)), ("0.bmp", b"BM"), ("1.png", png(2))]
    source = write_tar(tmp_path / "s" / "a.tar", members)
    assert convert(source, tmp_path / "d", "--on-error", "drop") == 2
    assert [name for name, _ in data_of(tmp_path / "d" / "a.tar")] == ["1.l3"]


@pytest.mark.parametrize("first", ["good", "damaged"])
def test_what_is_dropped_takes_no_names_from_afar(tmp_path: Path, first: str) -> None:
    """The whole shard failed."""
    images = {"good": png(), "damaged": b"\x89PNG"}
    others = {"good": "damaged", "damaged": "good"}
    members = [("a.png", images[first]), ("b.png", png(1)), ("a.bmp", images[others[first]])]
    source = write_tar(tmp_path / "s" / "a.tar", members)
    assert convert(source, tmp_path / "d", "--on-error", "drop") == 2
    names = [name for name, _ in data_of(tmp_path / "d" / "a.tar")]
    assert sorted(names) == ["a.l3", "b.l3"]


def test_links_in_a_tar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for target, code in (("0.txt", 0), ("0.png", 2)):
        source = tmp_path / f"{code}.tar"
        with tarfile.open(source, "w") as tar:
            link = tarfile.TarInfo("1.txt")
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        assert convert(source, tmp_path / f"d{code}") == code
    assert "a link to an image, 0.png" in capsys.readouterr().err
    assert (tmp_path / "d0" / "0.tar").read_bytes() == (tmp_path / "0.tar").read_bytes()


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    ("kind", "link"),
    [(tarfile.SYMTYPE, "../a/x"), (tarfile.LNKTYPE, "a/x"), (tarfile.SYMTYPE, "x")],
)
def test_a_link_to_an_image_without_a_suffix(
    tmp_path: Path, kind: bytes, link: str, first: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is x.l3 in the result, where the link leads nowhere."""
    for name, data in ("x", png()), ("y", b"no image"):
        image, other = tarfile.TarInfo(f"a/{name}"), tarfile.TarInfo("a/link")
        image.size, other.type, other.linkname = len(data), kind, link.replace("x", name)
        members = [(other, b""), (image, data)] if first else [(image, data), (other, b"")]
        with tarfile.open(tmp_path / f"{name}.tar", "w") as tar:
            for info, content in members:
                tar.addfile(info, io.BytesIO(content))
    assert convert(tmp_path / "x.tar", tmp_path / "d") == 2
    assert "a/link: a link to an image, a/x" in capsys.readouterr().err
    assert convert(tmp_path / "y.tar", tmp_path / "e") == 0


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
@pytest.mark.parametrize(("bad", "code"), [("b", 2), ("a", 2), ("", 0)])
def test_a_link_to_a_member_of_a_dropped_sample(
    tmp_path: Path, kind: bytes, bad: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """GNU tar writes hard links for labels that are one file; one that goes, too, is no harm."""
    link = tarfile.TarInfo("a.json")
    link.type, link.linkname = kind, "b.json"
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        for key in "ab" if kind == tarfile.SYMTYPE else "ba":
            data = png()[:60] if key == bad else png()
            image, label = tarfile.TarInfo(f"{key}.png"), tarfile.TarInfo(f"{key}.json")
            image.size, label.size = len(data), 2
            tar.addfile(image, io.BytesIO(data))
            tar.addfile(link if key == "a" else label, io.BytesIO(b"{}"))
    assert convert(tmp_path / "s.tar", tmp_path / "d", "--on-error", "drop") == code
    is_refused = "a.json: a link to b.json, whose sample is dropped" in capsys.readouterr().err
    assert is_refused == (bad == "b")
    assert (tmp_path / "d" / "s.tar").exists() != is_refused


def test_two_sources_of_one_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.png", "a.tif"):
        (tmp_path / "s").mkdir(exist_ok=True)
        (tmp_path / "s" / name).write_bytes(png())
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert "would both make a.l3: rename one of them" in capsys.readouterr().err


def test_each_of_many_folders_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By all that were named before it: 4,000 of them took minutes."""
    folders = [tmp_path / "s" / str(i) for i in range(100)]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "a.txt").write_bytes(b"")
    looked_at = []

    def place_of(url: str) -> str:
        looked_at.append(url)
        return url

    monkeypatch.setattr(work, "_place", place_of)
    assert len(find_sources([str(folder) for folder in folders]).folders) == 100
    assert len(looked_at) == 100


def test_links_and_pipes_in_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "s"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "0.png").write_bytes(png())
    (source / "file.png").symlink_to("sub/0.png")
    (source / "folder").symlink_to("sub")
    (source / "nowhere.png").symlink_to("missing.png")
    os.mkfifo(source / "pipe.png")
    assert convert(source, tmp_path / "d") == 2
    assert files_below(tmp_path / "d") == {"file.l3", "sub/0.l3"}
    error = capsys.readouterr().err
    assert "links to folders not followed: 1" in error
    assert "links to files followed: 1" in error
    assert "pipe.png: not a file" in error
    assert "nowhere.png: a link to nothing" in error


@pytest.mark.parametrize("kind", ["pipe", "zero", "longer"])
@pytest.mark.parametrize("name", ["0.png", "0.txt", "0.tar", "0.zip"])
def test_a_source_that_is_another_when_it_is_read(tmp_path: Path, name: str, kind: str) -> None:
    """A pipe was waited for without end; of a longer file all was read."""
    source, target = tmp_path / "s" / name, str(tmp_path / "d")
    source.parent.mkdir()
    source.write_bytes(bytes(10240) if name == "0.tar" else png())
    with Manifest(LocalFolder(tmp_path / "d"), read_only=True) as manifest:
        sources = find_sources([str(tmp_path / "s")])
        [job] = find_work(sources, target, Options(), manifest, 1).jobs
    if kind == "longer":
        os.truncate(source, 2**40)
    else:
        source.unlink()
    if kind == "pipe":
        os.mkfifo(source)
    if kind == "zero":
        source.symlink_to("/dev/zero")
    [row] = convert_job(job)
    assert row.status == "failed"
    assert row.reason.startswith("more than" if kind == "longer" else "not a file"), row.reason
    assert files_below(tmp_path / "d") == set()


def test_folders_that_cannot_be_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They ended the run. What root cannot enter has a path too long."""
    source = tmp_path / "s"
    source.mkdir()
    (source / "z.png").write_bytes(png())
    monkeypatch.chdir(source)
    for _ in range((4095 - len(str(source))) // 201):
        Path("d" * 200).mkdir()
        monkeypatch.chdir("d" * 200)
    Path("d" * 200).mkdir()
    Path("x" * 250 + ".png").write_bytes(png())
    monkeypatch.chdir(tmp_path)
    assert convert(source, tmp_path / "d") == 2
    told = capsys.readouterr().err
    assert "ddd: File name too long" in told
    assert "xxx.png: File name too long" in told
    assert len(told) < 1000
    assert files_below(tmp_path / "d") == {"z.l3"}
    assert convert(source, tmp_path / "d", "--remove-gone") == 2
    assert "--remove-gone needs to know all sources" in capsys.readouterr().err
    assert main(["encode", str(source), "-o", str(tmp_path / "e")]) == 2
    told = capsys.readouterr().err
    assert "ddd: File name too long" in told
    assert "xxx.png: File name too long" in told
    assert files_below(tmp_path / "e") == {"z.l3"}
    assert main(["verify", str(source)]) == 2
    assert "ddd: File name too long" in capsys.readouterr().err


def test_levels_of_folders_are_no_calls(tmp_path: Path) -> None:
    """The 1,000th ended the run before Python 3.12."""
    tmp_path.joinpath(*["d"] * 400).mkdir(parents=True)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(350)
    try:
        assert len(list(walk(tmp_path))) == 401
    finally:
        sys.setrecursionlimit(limit)


def test_a_copy_of_dest_keeps_its_manifest(tmp_path: Path) -> None:
    """As of `cp -al`, whose files are the same."""
    for i in range(2):
        write_tar(tmp_path / "s" / f"{i}.tar", samples(1, i))
        assert convert(tmp_path / "s", tmp_path / "d") == 0
        if i == 0:
            (tmp_path / "copy").hardlink_to(tmp_path / "d" / "l3-manifest.jsonl")
    assert len((tmp_path / "copy").read_text().splitlines()) == 1
    assert len(rows_of(tmp_path / "d")) == 2


def test_a_name_too_long_for_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A result has one suffix more; others are converted."""
    (tmp_path / "s").mkdir()
    for name in ("x" * 255, "ok.png"):
        (tmp_path / "s" / name).write_bytes(png())
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert f"{'x' * 255}: File name too long" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == {"ok.l3"}


def test_names_that_are_no_text(tmp_path: Path) -> None:
    source = tmp_path / "s"
    source.mkdir()
    (source / "b\udcff.png").write_bytes(png())
    assert convert(source, tmp_path / "d") == 0
    assert files_below(tmp_path / "d") == {"b\udcff.l3"}
    assert convert(source, tmp_path / "d") == 0


def test_a_png_bomb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The header says 50,000 x 50,000; nothing is decoded."""
    import struct
    import zlib

    def chunk(kind: bytes, body: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + crc

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 50_000, 50_000, 8, 0, 0, 0, 0))
    bomb = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(10**6)))
    source = write_tar(tmp_path / "a.tar", [("0.png", bomb), ("1.png", png())])
    assert convert(source, tmp_path / "d", "--on-error", "drop") == 2
    assert "50000 x 50000" in capsys.readouterr().err
    assert [name for name, _ in data_of(tmp_path / "d" / "a.tar")] == ["1.l3"]
    assert convert(source, tmp_path / "e", "--max-pixels", "719") == 2
    assert capsys.readouterr().err.count("limit of 719") == 2


@pytest.mark.parametrize(("channels", "counts"), [(4, 1), (64, 16)])
def test_channels_count_for_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], channels: int, counts: int
) -> None:
    """As in every command: what is over the limit is refused before memory is taken for it."""
    source = tmp_path / "s"
    source.mkdir()
    (source / "a.l3").write_bytes(l3dali.encode(np.zeros((20, 15, channels), np.uint16)))
    limit = 20 * 15 * counts - 1
    assert convert(source, tmp_path / "d", "--to", "png", "--max-pixels", limit) == 2
    assert f"pixels are more than the limit of {limit}" in capsys.readouterr().err


def test_nothing_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(tmp_path / "none", tmp_path / "d") == 2
    assert "no such file or folder" in capsys.readouterr().err
    (tmp_path / "s").mkdir()
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert "no files in the folders named" in capsys.readouterr().err


def test_a_file_in_the_place_of_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.png").write_bytes(png())
    (tmp_path / "d").write_text("mine")
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert "d is a file; DEST is a folder" in capsys.readouterr().err
    assert (tmp_path / "d").read_text() == "mine"


@pytest.mark.parametrize("is_full", [True, False])
@pytest.mark.usefixtures("in_process")
def test_no_space_left(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_full: bool,
) -> None:
    """One large result, or a full TMPDIR, ended the run, though others had found space."""
    from l3dali.datasets.convert import storage

    for i in range(3):
        write_tar(tmp_path / "s" / f"{i}.tar", samples(1, i))

    def full(self: Any, data: bytes) -> None:
        with storage.naming(self._place):
            raise OSError(errno.ENOSPC, "No space left on device")

    free = SimpleNamespace(f_files=9, f_favail=9, f_bavail=int(not is_full), f_frsize=2**20)
    with monkeypatch.context() as patch:
        patch.setattr(storage.HashedWriter, "write", full)
        patch.setattr(os, "statvfs", lambda _: free)
        assert convert(tmp_path / "s", tmp_path / "d", "-j", "1") == 2
    error = capsys.readouterr().err
    assert ("no space left; run again" in error) == is_full
    # The first two shards' where the others wait.
    assert error.count("No space left on device") == (2 if is_full else 3)
    assert files_below(tmp_path / "d") == set()
    assert convert(tmp_path / "s", tmp_path / "d") == 0


@pytest.mark.parametrize("name", [os.strerror(n) for n in (errno.ENOSPC, errno.EDQUOT)])
def test_the_name_of_an_image_is_no_full_disk(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tar(tmp_path / "s" / "a.tar", [(f"{name}.png", png()[:50]), ("pad", bytes(2**16))])
    write_tar(tmp_path / "s" / "b.tar", samples(1))
    assert convert(tmp_path / "s", tmp_path / "d", "-j", "1", "--on-error", "fail") == 2
    assert f"{name}.png: " in (error := capsys.readouterr().err)
    assert "no space left" not in error
    assert rows_of(tmp_path / "d")["b.tar"].status == "done"


def test_one_run_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tar(tmp_path / "s" / "a.tar", samples(1))
    with Manifest(open_folder(str(tmp_path / "d"))):
        assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert "another l3 convert" in capsys.readouterr().err
    assert convert(tmp_path / "s", tmp_path / "d") == 0


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO])
def test_a_disk_without_locks(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Lustre may be: "standard output: Function not implemented"."""

    def flock(file: object, kind: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    write_tar(tmp_path / "s" / "a.tar", samples(1))
    code = convert(tmp_path / "s", tmp_path / "d")
    told = capsys.readouterr().err
    if number == errno.EIO:
        assert (code, f"l3: {tmp_path}/d/.l3-lock: Input/output error" in told) == (2, True)
    else:
        assert (code, "has no locks" in told) == (0, True)
        assert files_below(tmp_path / "d") == {"a.tar", "a.idx"}


def test_the_lock_of_a_run_that_has_ended_locks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run opens the file; its holder ends and takes it away; the next run makes another."""
    from l3dali.datasets.convert.storage import LOCK_NAME
    from l3dali.errors import UsageError

    folder = LocalFolder(tmp_path)
    first = Manifest(folder).__enter__()
    real = LocalFolder.open_to_append

    def open_and_end_the_first(self: LocalFolder, name: str) -> Any:
        monkeypatch.setattr(LocalFolder, "open_to_append", real)
        file = real(self, name)
        first.__exit__()
        return file

    monkeypatch.setattr(LocalFolder, "open_to_append", open_and_end_the_first)
    with Manifest(folder):
        assert (tmp_path / LOCK_NAME).exists()
        with pytest.raises(UsageError, match="another l3 convert"):
            Manifest(folder).__enter__()
    assert files_below(tmp_path) == set()


@pytest.mark.parametrize(("first", "second"), [("w", "w/inner"), ("w/inner", "w")])
def test_a_run_on_a_folder_in_or_around_another(tmp_path: Path, first: str, second: str) -> None:
    """It removed what the other was writing."""
    left = tmp_path / second / ".l3-0123456789abcdef.tmp"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"of a killed run")
    left.with_name("l3-manifest.jsonl").touch()
    with Manifest(LocalFolder(tmp_path / second)):
        assert not left.exists()
    with (
        Manifest(LocalFolder(tmp_path / first)),
        LocalFolder(tmp_path / first).publish("a.l3" if "inner" in first else "inner/a.l3") as file,
        Manifest(LocalFolder(tmp_path / second)),
    ):
        file.write(b"whole")
    assert (tmp_path / "w" / "inner" / "a.l3").read_bytes() == b"whole"


@pytest.mark.parametrize("name", ["l3-report.html", ".l3-lock", ".l3-0123456789abcdef.tmp"])
def test_own_names_of_a_folder_that_no_run_has_made(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were replaced or removed without a word, and left out of SOURCE."""
    for folder in ("s", "d"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(b"somebody's")
    (tmp_path / "s" / "a.png").write_bytes(png())
    is_refused = not name.endswith(".tmp")
    assert convert(tmp_path / "s", tmp_path / "d") == 2 * is_refused
    told = capsys.readouterr().err
    assert f"{tmp_path / 'd' / name} " in told or not is_refused
    assert (tmp_path / "d" / name).read_bytes() == b"somebody's"
    for target, flags in (("e", ["--dry-run"]), ("e", []), ("e", []), ("f", ["--quiet"])):
        assert convert(tmp_path / "s", tmp_path / target, *flags) == 0
        told = capsys.readouterr().err
        said = f"its own: 1 ({tmp_path / 's' / name})" in told
        assert said == ("--quiet" not in flags)
    assert files_below(tmp_path / "e") == {"a.l3"}
    assert convert(tmp_path / "e", tmp_path / "g", "--to", "png") == 0
    assert "left out" not in capsys.readouterr().err


def test_own_files_of_sets_below_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They were copied: verify found none of the results that they name, and DEST was taken."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.png").write_bytes(png())
    (tmp_path / "sets" / "none").mkdir(parents=True)
    (tmp_path / "sets" / "none" / "l3-report.html").write_bytes(b"somebody's")
    assert convert(tmp_path / "a", tmp_path / "sets" / "a") == 0
    capsys.readouterr()
    for sources in ([tmp_path / "sets"], [tmp_path / "sets", tmp_path / "a"]):
        dest = tmp_path / f"back{len(sources)}"
        assert convert(*sources, dest, "--to", "png") == 0
        told = capsys.readouterr().err
        assert f"its own: 1 ({tmp_path / 'sets' / 'none' / 'l3-report.html'})" in told
        assert {path.name for path in dest.rglob("*") if path.is_file()} == {
            "0.png",
            "l3-manifest.jsonl",
            "l3-report.html",
        }
        assert len([*dest.rglob("l3-*")]) == 2
        assert main(["verify", str(dest)]) == 0
    assert main(["verify", str(tmp_path / "back1"), "--source", str(tmp_path / "sets")]) == 0
    assert convert(tmp_path / "a", tmp_path / "back1" / "a", "--to", "png") == 2
    assert "exists, and l3 convert has not made it" in capsys.readouterr().err


def test_a_folder_that_cannot_be_listed_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As drop boxes are, which can be written."""
    (tmp_path / "s" / "box").mkdir(parents=True)
    (tmp_path / "s" / "box" / "a.png").write_bytes(png())
    (tmp_path / "d" / "box").mkdir(parents=True)
    (tmp_path / "d" / "box" / "a.l3").write_text("mine")
    scan = os.scandir

    def refuse(path: Any) -> Any:
        if str(path) == str(tmp_path / "d" / "box"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert (tmp_path / "d" / "box" / "a.l3").read_text() == "mine"


def test_a_shard_that_is_missing_moves_no_results(tmp_path: Path) -> None:
    """It counted as a folder beside the one that is named, which gives its name to results then."""
    write_tar(tmp_path / "s-0.tar", samples(1))
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(png())
    assert convert(tmp_path / "photos", tmp_path / "s-{0..1}.tar", tmp_path / "d") == 2
    assert files_below(tmp_path / "d") == {"a.l3", "s-0.tar", "s-0.idx"}


def test_files_that_no_run_has_written_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside those that came back: whoever works on in that folder adds some, under any name."""
    photos, results = tmp_path / "photos", tmp_path / "l3"
    for name, data in (("a.png", png()), ("notes.json", b"1")):
        photos.mkdir(exist_ok=True)
        (photos / name).write_bytes(data)
    assert convert(photos, results) == 0
    shutil.rmtree(photos)
    assert convert(results, photos, "--to", "source") == 0
    (photos / "mask.PNG").write_bytes(png(1))
    (photos / "todo.txt").write_text("1")
    assert convert(photos, results) == 0
    mine = {photos / "mask.PNG": png(2), photos / "todo.txt": b"2"}
    for path, data in mine.items():
        path.write_bytes(data)
    capsys.readouterr()
    for _ in range(2):
        assert convert(results, photos, "--to", "source") == 2
        told = capsys.readouterr().err
        for path, data in mine.items():
            assert f"{path} is there, and l3-manifest.jsonl has no row of it" in told
            assert path.read_bytes() == data
    for path in mine:
        path.unlink()
    assert convert(results, photos, "--to", "source") == 0
    assert (photos / "todo.txt").read_text() == "1"


def test_files_of_others_stay_whatever_their_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Disks that take NOTES.TXT for notes.txt had it replaced, and told as staying."""
    source, dest = tmp_path / "s", tmp_path / "d"
    source.mkdir()
    (source / "a.png").write_bytes(png())
    assert convert(source, dest) == 0
    (dest / "NOTES.TXT").write_text("mine")
    (source / "notes.txt").write_text("other")
    monkeypatch.setattr(Manifest, "folds_case", True)
    assert convert(source, dest, "-j", 1) == 2
    assert f"{dest}/notes.txt is there, and l3-manifest.jsonl" in capsys.readouterr().err
    assert (dest / "NOTES.TXT").read_text() == "mine"


def test_names_of_the_run_are_its_own_whatever_their_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s").mkdir()
    for name in ("a.png", "L3-Manifest.jsonl", ".L3-lock"):
        (tmp_path / "s" / name).write_bytes(png())
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert files_below(tmp_path / "d") == {"a.l3"}
    assert (
        "files left out, with names that l3 convert has for its own: 2" in capsys.readouterr().err
    )


def test_links_to_nothing_pipes_and_what_is_no_l3_file_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those were replaced, as listings have none: a disk that they lead to may be elsewhere now."""
    source, dest = tmp_path / "s", tmp_path / "d"
    source.mkdir()
    (source / "a.png").write_bytes(png())
    assert convert(source, dest) == 0
    for name in ("b.png", "c.png", "e.png", "f.png"):
        (source / name).write_bytes(png(1))
    (source / "notes.txt").write_text("other")
    (dest / "e.l3").write_text("L3 by its name alone")
    (dest / "f.l3").write_bytes((dest / "a.l3").read_bytes())  # as a run that was killed leaves it
    (dest / "b.l3").symlink_to("/away/b.l3")
    os.mkfifo(dest / "c.l3")
    write_tar(source / "d.tar", samples(1))
    (dest / "d.idx").symlink_to("/away/d.idx")
    (tmp_path / "folder").mkdir()
    (dest / "notes.txt").symlink_to(tmp_path / "folder")
    assert convert(source, dest) == 2
    told = capsys.readouterr().err
    assert "they stay: 5 (e.l3, b.l3, c.l3, ...)" in told
    assert "5 failed" in told
    assert told.count("has no row of it") == 5
    assert (dest / "e.l3").read_text() == "L3 by its name alone"
    assert (dest / "f.l3").read_bytes() != (dest / "a.l3").read_bytes()
    assert (dest / "c.l3").is_fifo()
    assert all((dest / name).is_symlink() for name in ("b.l3", "d.idx", "notes.txt"))
    names = {"a.l3", "b.l3", "c.l3", "d.idx", "e.l3", "f.l3"}
    assert files_below(dest) == names  # and no d.tar


def test_an_index_that_no_run_has_written_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, dest = write_tar(tmp_path / "s" / "a.tar", samples(1)).parent, tmp_path / "d"
    assert convert(source, dest) == 0
    (dest / "b.idx").write_text("mine")
    write_tar(source / "b.tar", samples(1))
    assert convert(source, dest) == 2
    assert (dest / "b.idx").read_text() == "mine"
    assert files_below(dest) == {"a.tar", "a.idx", "b.idx"}
    (dest / "b.idx").unlink()
    assert convert(source, dest) == 0
    (source / "d.tfrecord").touch()  # whose index is empty, too
    (dest / "d.idx").write_text("mine")
    assert convert(source, dest) == 2
    assert (dest / "d.idx").read_text() == "mine"
    (source / "d.tfrecord").unlink()
    large = dest / "c.idx"  # as of another program, which was read whole
    write_tar(source / "c.tar", samples(1))
    large.touch()
    os.truncate(large, 2**36)
    capsys.readouterr()
    assert convert(source, dest) == 2
    assert f"{large} is there, and l3-manifest.jsonl has no row of it" in capsys.readouterr().err


def test_a_damaged_l3_file_replaces_no_sound_one(tmp_path: Path) -> None:
    """Where results are no L3 files, one that no row has is none of a run that was killed."""
    for name, data in (("s/a.png", codec.encode(image())), ("s/b.l3", codec.encode(image()))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    assert convert(tmp_path / "s", tmp_path / "d", "--to", "png") == 0
    whole = codec.encode(image(2))
    (tmp_path / "d" / "c.l3").write_bytes(whole)
    (tmp_path / "s" / "c.l3").write_bytes(whole[:-9])
    assert convert(tmp_path / "s", tmp_path / "d", "--to", "png") == 2
    assert (tmp_path / "d" / "c.l3").read_bytes() == whole


@pytest.mark.parametrize("choice", ["keep", "drop", "fail"])
@pytest.mark.parametrize("target", ["l3", "png"])
def test_a_source_that_is_damaged_later_keeps_its_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], choice: str, target: str
) -> None:
    """The result may be the last sound copy."""
    source, dest = tmp_path / "s" / "a.png", tmp_path / "d"
    source.parent.mkdir()
    if target == "png":
        source = source.with_suffix(".l3")
        source.write_bytes(codec.encode(image()))
    else:
        source.write_bytes(png())
    whole = source.read_bytes()
    command = (source.parent, dest, "--to", target, "--on-error", choice)
    assert convert(*command) == 0
    result = dest / f"a.{target}"
    before = result.read_bytes()
    source.write_bytes(whole[:-30])
    for _ in range(2):
        assert convert(*command) == 2
        assert f"its earlier result, {result.name}, stays" in capsys.readouterr().err
        assert files_below(dest) == {result.name}
        assert result.read_bytes() == before
    source.write_bytes(whole)
    assert convert(*command) == 0


def test_options_may_drop_what_was_converted(tmp_path: Path) -> None:
    """As a copy that was kept is no sound result: nothing has rotted."""
    source, dest = tmp_path / "s", tmp_path / "d"
    source.mkdir()
    (source / "a.png").write_bytes(png())
    (source / "b.png").write_bytes(png()[:-30])
    assert convert(source, dest) == 2
    assert convert(source, dest, "--on-error", "fail") == 2
    assert convert(source, dest, "--on-error", "drop", "--max-pixels", 9) == 2
    assert files_below(dest) == set()


def test_a_folder_that_is_missing_moves_no_results(tmp_path: Path) -> None:
    (tmp_path / "part-0").mkdir()
    (tmp_path / "part-0" / "a.png").write_bytes(png())
    assert convert(tmp_path / "part-{0..1}", tmp_path / "d") == 2
    assert files_below(tmp_path / "d") == {"part-0/a.l3"}


def test_a_shard_that_cannot_be_looked_at_costs_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tar(tmp_path / "s-0.tar", samples(1))
    loop = tmp_path / "s-1.tar"
    loop.symlink_to(loop)
    assert convert(loop, tmp_path / "d") == 2
    assert not (tmp_path / "d").exists()
    assert convert(tmp_path / "s-{0..1}.tar", tmp_path / "d") == 2
    assert f"{loop}: " in capsys.readouterr().err
    assert files_below(tmp_path / "d") == {"s-0.tar", "s-0.idx"}


def test_a_dry_run_tells_sources_that_have_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new time alone is no change."""
    source = tmp_path / "s"
    write_tar(source / "a.tar", samples(1))
    (source / "b.png").write_bytes(png())
    (source / "labels.json").write_text("1")
    assert convert(source, tmp_path / "d") == 0
    for name in ("a.tar", "b.png"):
        os.utime(source / name, (1, 1))
    (source / "labels.json").write_text("22")
    capsys.readouterr()
    assert convert(source, tmp_path / "d", "--dry-run") == 0
    assert re.search(r"would convert 1 file\b.*; 2\s+are done", capsys.readouterr().out)


@pytest.mark.parametrize("choice", ["keep", "fail"])
@pytest.mark.parametrize("target", ["l3", "png"])
def test_what_keeps_its_name_replaces_nobodys_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str, choice: str
) -> None:
    """What is damaged, or no image, may be kept, and would be in place of another's file."""
    source, dest = tmp_path / "s" / "a.png", tmp_path / "d"
    source.parent.mkdir()
    if target == "png":
        source = source.with_suffix(".l3")
    source.write_bytes(png()[:-20])
    dest.mkdir()
    (dest / source.name).write_bytes(png(7))
    assert convert(source.parent, dest, "--to", target, "--on-error", choice) == 2
    assert f"{dest / source.name} exists, and l3 convert has not" in capsys.readouterr().err
    assert (dest / source.name).read_bytes() == png(7)


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "link to nothing"])
def test_what_is_no_file_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    place = tmp_path / "dest" / "a.l3"
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.png").write_bytes(png())
    place.parent.mkdir()
    os.mkfifo(place if kind == "pipe" else tmp_path / "pipe")
    if kind != "pipe":
        place.symlink_to(tmp_path / ("gone" if kind == "link to nothing" else "pipe"))
    assert convert(tmp_path / "source", place.parent) == 2
    assert f"{place} exists, and l3 convert has not made it" in capsys.readouterr().err
    assert place.is_symlink() or place.is_fifo()


@pytest.mark.parametrize("name", [".l3-lock", "l3-manifest.jsonl"])
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_own_files_that_are_none(
    tmp_path: Path, name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tar(tmp_path / "s" / "a.tar", samples(1))
    (tmp_path / "d").mkdir()
    victim = tmp_path / "victim"
    victim.write_bytes(b"")
    path = tmp_path / "d" / name
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(victim)
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert name in capsys.readouterr().err
    assert victim.read_bytes() == b""


def test_a_refused_run_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.png").write_bytes(png())
    (tmp_path / "s" / "a.bmp").write_bytes(png())
    assert convert(tmp_path / "s", tmp_path / "new" / "d") == 2
    assert not (tmp_path / "new").exists()
