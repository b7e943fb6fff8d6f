"""`l3 convert` with folders and WebDataset shards: results, resuming, failures, bad input."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from children import child_environment
from convert_tools import (
    Members,
    as_pixels,
    convert,
    data_of,
    files_below,
    image,
    noisy_jpeg,
    palette_picture,
    pax,
    pixels_of,
    png,
    read_tar,
    rows_of,
    samples,
    saved,
    write_bad_shard,
    write_files,
    write_pngs,
    write_tar,
)
from held_work import DONE, DONE_OF_BATCH

import l3dali
from l3dali import codec
from l3dali.cli import main
from l3dali.datasets.convert import storage
from l3dali.datasets.convert.manifest import Manifest
from l3dali.datasets.convert.storage import LocalFolder, open_folder
from l3dali.images import formats
from l3dali.images.formats import read_header

FORMATS = {"gnu": tarfile.GNU_FORMAT, "ustar": tarfile.USTAR_FORMAT, "pax": tarfile.PAX_FORMAT}


# Folders.


def test_a_folder_and_back(tmp_path: Path) -> None:
    source, there, back = (tmp_path / name for name in ("source", "there", "back"))
    write_pngs(source, "one.png", "a/two.PNG", "a/no_suffix")
    write_files(source, {"a/labels.json": b'{"two": 2}', "empty": b""})
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
    mask = palette_picture()
    members = [("1.rgb.png", png()), ("1.seg.png", saved(mask, "PNG"))]
    source = write_tar(tmp_path / "s" / "a.tar", members)
    assert convert(source, tmp_path / "d", "--labels", "seg.png") == 0
    (_, rgb), (name, seg) = data_of(tmp_path / "d" / "a.tar")
    assert name == "1.seg.l3"
    assert np.array_equal(codec.decode(seg), np.asarray(mask))
    assert codec.info(seg).labels
    assert not codec.info(rgb).labels
    assert capsys.readouterr().err == ""
    assert convert(source, tmp_path / "e") == 0
    assert "palette images that became colours: 1; --palette" in capsys.readouterr().err


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
    names = ["gtFine/a/1", "gtFine/2", "left/gtFine/3"]
    files = {f"{name}.png": saved(palette_picture(), "PNG") for name in names}
    write_files(tmp_path / "s", files)
    write_tar(tmp_path / "t" / "a.tar", list(files.items()))
    for source in ("s", "t"):
        assert convert(tmp_path / source, tmp_path / f"{source}-l3", "--labels", labels) == 0
    loose = {name: (tmp_path / "s-l3" / f"{name}.l3").read_bytes() for name in names}
    packed = {name.removesuffix(".l3"): data for name, data in data_of(tmp_path / "t-l3" / "a.tar")}
    for found in (loose, packed):
        assert {name for name, data in found.items() if codec.info(data).labels} == chosen


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
    assert row.total.images == 5
    assert row.result_bytes == (tmp_path / "d" / "a.tar").stat().st_size


@pytest.mark.parametrize("format", FORMATS)
def test_a_shard_without_images_stays_byte_for_byte(tmp_path: Path, format: str) -> None:
    members = [("a/" + "long" * 20 + f"{i}.txt", b"x" * (i * 300)) for i in range(40)]
    members += [("../up.txt", b"1"), ("/absolute.txt", b"2"), ("n\udcff.txt", b"3"), ("none", b"")]
    source = write_tar(tmp_path / "s" / "a.tar", members, FORMATS[format])
    assert convert(source, tmp_path / "d") == 0
    assert (tmp_path / "d" / "a.tar").read_bytes() == source.read_bytes()
    assert files_below(tmp_path) == {"s/a.tar", "d/a.tar", "d/a.idx", "d/l3-manifest.jsonl"}


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


def test_headers_of_all_members_outlive_dropped_samples(tmp_path: Path) -> None:
    def member(name: str, data: bytes) -> bytes:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        return info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)

    def shared(record: bytes) -> bytes:
        return pax("g", tarfile.XGLTYPE, b"%d %b\n" % (len(record) + 4, record))

    (tmp_path / "a.tar").write_bytes(
        shared(b"mtime=1234.25")
        + member("0.png", b"bad")
        + member("2.png", png(2))
        + shared(b"comment=another")
        + member("4.png", b"bad")
        + member("5.png", png(5))
        + bytes(1024)
    )
    assert convert(tmp_path / "a.tar", tmp_path / "d", "--on-error", "drop") == 2
    with tarfile.open(tmp_path / "d" / "a.tar") as archive:
        found = [(m.name, m.mtime, archive.pax_headers.get("comment")) for m in archive]
    assert found == [("2.l3", 1234.25, None), ("5.l3", 1234.25, "another")]
    data = (tmp_path / "d" / "a.tar").read_bytes()
    index = (tmp_path / "d" / "a.idx").read_text().splitlines()[1:]
    for line, seed in zip(index, (2, 5), strict=True):
        at, size = map(int, line.split()[1:3])
        assert (l3dali.decode(data[at : at + size]) == image(seed)).all()


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


# Resuming.


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


def test_what_a_container_raises_fails_it_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_bad_shard(
        write_tar(tmp_path / "s" / "b.tar", samples(1)).parent / "a.tar"
    ).parent
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


def edit(target: Path, **fields: object) -> None:
    """Changes the first row of a manifest, as a user may by hand."""
    path = target / "l3-manifest.jsonl"
    first, *others = path.read_text().splitlines(keepends=True)
    path.write_text("".join([json.dumps(json.loads(first) | fields) + "\n", *others]))


@pytest.mark.parametrize("text", ['{"image":"0.png"}\n{"image":"1.png"}\n', "\n", "notes\n{"])
def test_a_manifest_with_lines_that_are_no_rows_stays(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target, empty = write_pngs(tmp_path / "s", "0.png"), tmp_path / "d", tmp_path / "empty"
    empty.mkdir()
    write_files(target, {"0.l3": b"a user's", "l3-manifest.jsonl": text.encode()})
    for more in ([source, target], [source, target, "--dry-run"], [empty, target]):
        assert convert(*more) == 2
        assert "line 1 is invalid in this version: remove" in capsys.readouterr().err
        assert (target / "l3-manifest.jsonl").read_text() == text
    assert (target / "0.l3").read_text() == "a user's"
    assert files_below(target) == {"0.l3"}


def test_rows_of_newer_versions_count(tmp_path: Path) -> None:
    source, target = write_pngs(tmp_path / "s", "0.png"), tmp_path / "d"
    assert convert(source, target) == 0
    inode = (target / "0.l3").stat().st_ino
    edit(target, rate=[{"x": 1}], formats={"png": {"images": 1, "frames": 2}})
    (source / "1.png").write_bytes(png(1))
    assert convert(source, target) == 0
    assert (target / "0.l3").stat().st_ino == inode
    assert rows_of(target).keys() == {"0.png", "1.png"}


@pytest.mark.parametrize(
    "fields",
    [
        {"result": "../victim"},
        {"source": "../0.png"},
        {"index": "../victim"},
        {"status": "yes"},
        {"formats": {"png": 1}},
    ],
)
def test_lines_that_are_no_rows_are_refused(
    tmp_path: Path, fields: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = write_pngs(tmp_path / "s", "0.png", "1.png"), tmp_path / "d"
    assert convert(source, target) == 0
    shutil.copy2(target / "0.l3", tmp_path / "victim")
    edit(target, **fields)
    for command in ([source, target, "--remove-gone"], [source, target, "--dry-run"]):
        assert convert(*command) == 2
        assert "line 1 is invalid in this version" in capsys.readouterr().err
    assert main(["verify", str(target)]) == 2
    assert files_below(tmp_path) >= {"victim", "d/0.l3", "d/1.l3"}


def test_what_gdal_has_beside_an_image_is_copied(tmp_path: Path) -> None:
    """TIFFs of smaller copies alone, or of a mask, as GDAL puts them beside an image."""
    write_pngs(tmp_path / "s", "c.1.msk")  # of a user
    for name, kind in (("a.tif", 0), ("a.tif.ovr", 1), ("a.tif.msk", 0), ("b.msk", 0)):
        tifffile.imwrite(tmp_path / "s" / name, np.zeros((9, 9), np.uint8), subfiletype=kind)
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
    write_files(source, {"0.png": png(), "b.txt": b"text"})
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


def test_a_result_behind_a_link_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = write_pngs(tmp_path / "s", "sub/0.png", "1.png"), tmp_path / "d"
    assert convert(source, target) == 0
    (target / "sub").rename(tmp_path / "elsewhere")
    (target / "sub").symlink_to(tmp_path / "elsewhere")
    (source / "sub" / "0.png").unlink()
    assert convert(source, target, "--remove-gone") == 2
    assert "cannot be removed: its folder is behind a link" in capsys.readouterr().err
    assert files_below(tmp_path / "elsewhere") == {"0.l3"}


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
    f"l3: interrupted; [1-{SHARDS}] of {SHARDS} shards and files are done; run again to continue\n"
)


def start_held_run(folder: Path, cores: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "import held_work; held_work.run()"]
    return subprocess.Popen(
        [*command, folder / "s", folder / "d", "-j", str(cores)],
        env=child_environment(),
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


@pytest.mark.parametrize(("cores", "sent"), [(1, signal.SIGTERM), (2, signal.SIGINT)])
def test_interrupted_within_batches(tmp_path: Path, cores: int, sent: int) -> None:
    write_pngs(tmp_path / "s", *(f"{i:02}.png" for i in range(24)))
    write_files(tmp_path / "s", {f"{i:02}.txt": bytes(len(png())) for i in range(24)})
    run = start_held_run(tmp_path, cores)
    wanted = cores * DONE_OF_BATCH  # and copies that are made ahead
    while len(list(tmp_path.glob("d/??.*"))) < wanted and run.poll() is None:
        time.sleep(0.01)
    os.killpg(run.pid, sent)
    _, error = run.communicate(timeout=60)
    assert run.returncode == 128 + sent
    made = sorted(path.name for path in tmp_path.glob("d/??.*"))
    results = {str(row.result) for row in rows_of(tmp_path / "d").values()}
    assert f"interrupted; {len(results)} of 48 shards and files are done" in error.decode()
    # The last results may have no rows; the next run takes such results over.
    assert results <= set(made)
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert len(rows_of(tmp_path / "d")) == 48


@pytest.mark.parametrize("choice", ["keep", "drop"])
@pytest.mark.parametrize("error", [MemoryError, OSError, ModuleNotFoundError])
@pytest.mark.usefixtures("in_process")
def test_failures_by_memory_or_a_missing_package_are_tried_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    choice: str,
    error: type[Exception],
) -> None:
    """Not what is damaged: it would fail in each run."""

    def read(*_: object) -> Any:
        raise error("broken data stream")

    write_tar(tmp_path / "s" / "a.tar", samples(2))
    write_pngs(tmp_path / "s", "b.png")
    write_tar(tmp_path / "s" / "damaged.tar", [("0.jpg", b"\xff\xd8\xff and no more")])
    # Its two bytes do not say for sure that it is an image.
    jxl = bytes(imagecodecs.jpegxl_encode(image(), lossless=True, usecontainer=False))
    write_tar(tmp_path / "s" / "c.tar", [("0.image", jxl)])
    command = (tmp_path / "s", tmp_path / "d", "-j", 1, "--on-error", choice)
    with monkeypatch.context() as patch:
        header = read_header(png())._replace(read_bytes=2**62)
        for name in ("png", "jpegxl"):
            format = replace(formats.FORMATS[name], read=read)
            if error is OSError:  # as of WebP and JPEG
                format = replace(format, read_header=lambda _: header)
            patch.setitem(formats.FORMATS, name, format)
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
    """Nor are they tried again, as if memory had been missing."""
    bad = bytearray(png())
    bad[16:24] = struct.pack(">2I", side, side)
    bad[24:26] = 16, 6  # bits of RGBA
    bad[29:33] = struct.pack(">I", zlib.crc32(bad[12:29]))
    write_tar(tmp_path / "s" / "a.tar", [*samples(2), ("bad.png", bytes(bad))])
    write_files(tmp_path / "s", {"0.png": png(), "1.png": bytes(bad), "2.png": png()})
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 2
    assert capsys.readouterr().err.count("pixels are more than the limit") == 2
    assert files_below(tmp_path / "d") >= {"a.tar", "0.l3", "1.png", "2.l3"}
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 2
    assert "nothing to do" in capsys.readouterr().out


def test_killed(tmp_path: Path, held_run: subprocess.Popen[bytes]) -> None:
    held_run.kill()
    held_run.communicate(timeout=60)  # Ends when no process holds the pipes: workers go too.
    check_that_it_goes_on(tmp_path / "s", tmp_path / "d")


def test_an_index_that_has_changed_is_made_anew(tmp_path: Path) -> None:
    """One whose time alone has changed is not."""
    write_tar(tmp_path / "s" / "a.tar", samples(2))
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    index = tmp_path / "d" / "a.idx"
    whole, made = index.read_bytes(), (tmp_path / "d" / "a.tar").stat().st_ino
    os.utime(index, (1, 1))
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert (tmp_path / "d" / "a.tar").stat().st_ino == made
    index.write_bytes(whole[:-2])
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert index.read_bytes() == whole


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


def test_a_folder_of_others_is_no_dest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_pngs(tmp_path / "s", "a.png")
    dest = write_files(tmp_path / "d", {"a.l3": b"mine"})
    assert convert(source, dest) == 2
    assert f"{dest}/a.l3 exists and was not written by l3 convert" in capsys.readouterr().err
    assert (dest / "a.l3").read_bytes() == b"mine"


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
    inside = write_pngs(tmp_path / "w" / "s", "a.png") / "a.png"
    source = {"folder": inside.parent, "file": inside}.get(kind, tmp_path / "s")
    if kind == "link":
        source.mkdir()
        (source / "a.png").symlink_to(inside)
    elif kind == "linked folder":
        source.symlink_to(inside.parent)
    assert convert(source, tmp_path / "w") == 2
    assert f"is in {tmp_path / 'w'}; name another folder" in capsys.readouterr().err
    assert files_below(tmp_path / "w") == {"s/a.png"}


def test_a_link_in_dest_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = write_pngs(tmp_path / "s", "sub/a.png"), tmp_path / "d"
    write_files(target, {"real/a.l3": b"mine"})
    (target / "sub").symlink_to("real")
    assert convert(source, target) == 2
    assert "sub/a.png: its folder is behind a link" in capsys.readouterr().err
    assert files_below(target) == {"real/a.l3"}
    assert (target / "real" / "a.l3").read_text() == "mine"


@pytest.mark.parametrize("at", ["a.tar", "a.idx"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.usefixtures("in_process")
def test_no_shard_has_the_index_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool, error: Any, at: str
) -> None:
    source, target = write_tar(tmp_path / "s" / "a.tar", samples(3)), tmp_path / "d"
    if is_there:
        assert convert(source, target) == 0
        write_tar(source, samples(4))
    before = {path.name: path.read_bytes() for path in target.glob("a.*")}

    def replace(temporary: str, path: Path) -> None:
        if path.name == at:
            raise error
        real(temporary, path)

    real = os.replace
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        assert convert(source, target, "-j1") == (130 if error is KeyboardInterrupt else 2)
    if at == "a.tar":  # The new index was there, and is removed.
        before.pop("a.idx", None)
    assert {path.name: path.read_bytes() for path in target.glob("a.*")} == before
    assert convert(source, target) == 0
    assert rows_of(target)["a.tar"].index == "a.idx"
    assert (target / "a.idx").read_text().startswith(f"v1.2 {3 + is_there}\n")


def test_a_folder_in_the_place_of_an_index(tmp_path: Path) -> None:
    source, target = write_tar(tmp_path / "s" / "a.tar", samples(3)), tmp_path / "d"
    assert convert(source, target) == 0
    before = (target / "a.tar").read_bytes()
    (target / "a.idx").unlink()
    (target / "a.idx").mkdir()
    write_tar(source, samples(4))
    assert convert(source, target) == 2
    assert (target / "a.tar").read_bytes() == before


def test_a_manifest_that_takes_no_rows_is_reported_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is opened before results are replaced."""
    write_pngs(tmp_path / "s", "a.png")
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


def test_jpeg_would_grow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_tar(tmp_path / "s" / "a.tar", [(f"{i}.jpg", noisy_jpeg()) for i in range(40)])
    assert convert(source, tmp_path / "d", "--coding", "rans") == 2
    error = capsys.readouterr().err
    assert "The first 32 images" in error
    assert "--coding jpeg makes JPEG files smaller, and --grow" in error
    assert files_below(tmp_path / "d") == set()
    assert convert(source, tmp_path / "d", "--coding", "rans", "--grow") == 0
    assert rows_of(tmp_path / "d")["a.tar"].total.images == 40


def test_growth_is_estimated_for_new_sets_only(tmp_path: Path) -> None:
    """A run that was interrupted could not go on where JPEGs were left."""
    source = write_tar(tmp_path / "s" / "a.tar", samples(9)).parent
    assert convert(source, tmp_path / "d", "--coding", "rans") == 0
    write_tar(source / "b.tar", [(f"{i}.jpg", noisy_jpeg()) for i in range(4)])
    assert convert(source, tmp_path / "d", "--coding", "rans") == 0
    assert rows_of(tmp_path / "d")["b.tar"].total.images == 4


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
    assert "after the end mark" in capsys.readouterr().err


@pytest.mark.parametrize("format", ["BMP", "PPM"])
@pytest.mark.parametrize("on_error", ["keep", "drop"])
def test_damage_of_images_with_short_signatures(
    tmp_path: Path, format: str, on_error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names do not decide, and text with the same beginning is no image."""
    data = saved(image(), format)
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
    assert "1048577 zero bytes at the end" in capsys.readouterr().err
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


def test_a_link_to_nothing_in_a_tar(tmp_path: Path) -> None:
    source = tmp_path / "0.tar"
    with tarfile.open(source, "w") as tar:
        link = tarfile.TarInfo("1.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "0.png"
        tar.addfile(link)
    assert convert(source, tmp_path / "d") == 0
    assert (tmp_path / "d" / "0.tar").read_bytes() == source.read_bytes()


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
    assert "a/link: a link to a/x, which is converted" in capsys.readouterr().err
    assert convert(tmp_path / "y.tar", tmp_path / "e") == 0


def test_two_sources_of_one_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pngs(tmp_path / "s", "a.png", "a")
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert "would both make a.l3: rename one of them" in capsys.readouterr().err


def test_links_and_pipes_in_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_pngs(tmp_path / "s", "sub/0.png")
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
    assert "nowhere.png: a broken link" in error


def test_names_that_are_no_text(tmp_path: Path) -> None:
    source = write_pngs(tmp_path / "s", "b\udcff.png")
    assert convert(source, tmp_path / "d") == 0
    assert files_below(tmp_path / "d") == {"b\udcff.l3"}
    assert convert(source, tmp_path / "d") == 0


def test_nothing_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(tmp_path / "none", tmp_path / "d") == 2
    assert "no such file or folder" in capsys.readouterr().err
    (tmp_path / "s").mkdir()
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert "no files in the folders named" in capsys.readouterr().err


@pytest.mark.usefixtures("in_process")
def test_no_space_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(3):
        write_tar(tmp_path / "s" / f"{i}.tar", samples(1, i))

    def full(self: Any, data: bytes) -> None:
        with storage.naming(self._place):
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(storage.HashedWriter, "write", full)
        assert convert(tmp_path / "s", tmp_path / "d", "-j", "1") == 2
    error = capsys.readouterr().err
    assert "no space left; 0 of 3 shards and files are done; run again" in error
    assert error.count("No space left on device") == 2
    assert files_below(tmp_path / "d") == set()
    assert convert(tmp_path / "s", tmp_path / "d") == 0


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


def test_a_run_in_a_folder_of_another_keeps_its_files(tmp_path: Path) -> None:
    left = tmp_path / ".l3-0123456789abcdef.tmp"
    left.write_bytes(b"of a killed run")
    (tmp_path / "l3-manifest.jsonl").touch()
    inner = LocalFolder(tmp_path / "inner")
    with Manifest(inner), inner.publish("a.l3") as file, Manifest(LocalFolder(tmp_path)):
        assert not left.exists()
        file.write(b"whole")
    assert (tmp_path / "inner" / "a.l3").read_bytes() == b"whole"


def test_own_files_of_sets_are_no_sources(tmp_path: Path) -> None:
    write_pngs(tmp_path / "a", "0.png")
    assert convert(tmp_path / "a", tmp_path / "sets" / "a") == 0
    (tmp_path / "sets" / ".l3-0123456789abcdef.tmp").touch()
    assert convert(tmp_path / "sets", tmp_path / "back", "--to", "png") == 0
    assert files_below(tmp_path / "back") == {"a/0.png"}
    assert main(["verify", str(tmp_path / "back"), "--source", str(tmp_path / "sets")]) == 0


def test_a_folder_that_cannot_be_listed_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As drop boxes are, which can be written."""
    write_pngs(tmp_path / "s", "box/a.png")
    write_files(tmp_path / "d", {"box/a.l3": b"mine"})
    scan = os.scandir

    def refuse(path: Any) -> Any:
        if str(path) == str(tmp_path / "d" / "box"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert (tmp_path / "d" / "box" / "a.l3").read_text() == "mine"


def test_files_that_no_run_has_written_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside those that came back: other programs may add files to that folder, under any name."""
    photos, results = tmp_path / "photos", tmp_path / "l3"
    write_files(photos, {"a.png": png(), "notes.json": b"1"})
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
            assert f"{path} exists and is not in l3-manifest.jsonl" in told
            assert path.read_bytes() == data
    for path in mine:
        path.unlink()
    assert convert(results, photos, "--to", "source") == 0
    assert (photos / "todo.txt").read_text() == "1"


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_links_to_nothing_and_pipes_stay(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source, dest = write_pngs(tmp_path / "s", "a.png"), tmp_path / "d"
    dest.mkdir()
    if kind == "link":
        (dest / "a.l3").symlink_to("/away/a.l3")
    else:
        os.mkfifo(dest / "a.l3")
    assert convert(source, dest) == 2
    assert f"{dest}/a.l3, in DEST: " in capsys.readouterr().err
    assert files_below(dest) == {"a.l3"}
    assert (dest / "a.l3").is_fifo() == (kind == "pipe")


def test_an_index_that_no_run_has_written_stays(tmp_path: Path) -> None:
    source, dest = write_tar(tmp_path / "s" / "a.tar", samples(1)).parent, tmp_path / "d"
    assert convert(source, dest) == 0
    (dest / "b.idx").write_text("mine")
    write_tar(source / "b.tar", samples(1))
    assert convert(source, dest) == 2
    assert (dest / "b.idx").read_text() == "mine"
    assert files_below(dest) == {"a.tar", "a.idx", "b.idx"}
    (dest / "b.idx").unlink()
    assert convert(source, dest) == 0


@pytest.mark.parametrize("choice", ["keep", "drop", "fail"])
@pytest.mark.parametrize("target", ["l3", "png"])
def test_a_source_that_is_damaged_later_keeps_its_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], choice: str, target: str
) -> None:
    """The result may be the last sound copy."""
    dest = tmp_path / "d"
    name, whole = ("a.l3", codec.encode(image())) if target == "png" else ("a.png", png())
    source = write_files(tmp_path / "s", {name: whole}) / name
    command = (source.parent, dest, "--to", target, "--on-error", choice)
    assert convert(*command) == 0
    result = dest / f"a.{target}"
    before = result.read_bytes()
    source.write_bytes(whole[:-30])
    for _ in range(2):
        assert convert(*command) == 2
        assert f"the earlier result {result.name} was kept" in capsys.readouterr().err
        assert files_below(dest) == {result.name}
        assert result.read_bytes() == before
    source.write_bytes(whole)
    assert convert(*command) == 0


def test_options_may_drop_what_was_converted(tmp_path: Path) -> None:
    """As a copy that was kept is no sound result: nothing has rotted."""
    source, dest = tmp_path / "s", tmp_path / "d"
    write_files(source, {"a.png": png(), "b.png": png()[:-30]})
    assert convert(source, dest) == 2
    assert convert(source, dest, "--on-error", "fail") == 2
    assert convert(source, dest, "--on-error", "drop", "--max-pixels", 9) == 2
    assert files_below(dest) == set()


def test_one_of_many_that_is_missing_moves_no_results(tmp_path: Path) -> None:
    write_pngs(tmp_path / "part-0", "a.png")
    assert convert(tmp_path / "part-{0..1}", tmp_path / "d") == 2
    assert files_below(tmp_path / "d") == {"part-0/a.l3"}


def test_a_refused_run_leaves_nothing(tmp_path: Path) -> None:
    write_pngs(tmp_path / "s", "a.png", "a")
    assert convert(tmp_path / "s", tmp_path / "new") == 2
    assert not (tmp_path / "new").exists()
