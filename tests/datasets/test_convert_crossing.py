"""`l3 convert --container`: zip archives that become tar files, and tar files zip archives."""

from __future__ import annotations

import calendar
import errno
import io
import os
import shutil
import stat
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from convert_tools import (
    as_pixels,
    convert,
    files_below,
    image,
    make_plan,
    pax,
    png,
    rows_of,
    samples,
    save,
    write_tar,
)

import l3dali
from l3dali.cli import main
from l3dali.datasets.convert import tar
from l3dali.datasets.convert.storage import LocalFolder

imagecodecs = pytest.importorskip("imagecodecs")
pytest.importorskip("rich")

TO_TAR = "--container", "tar"
TO_ZIP = "--container", "zip"
SECONDS = 1_600_000_000  # an even number: so zip archives have times of their own too


def write_zip(path: Path, *more: tuple[str, bytes]) -> Path:
    """Images, labels, folders, a link, comments, names that are not ASCII."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = b"a set"
        content = [("folder/", b""), *samples(4), ("folder/caf\u00e9.png", png(7)), *more]
        content += [("../up.txt", b"up"), ("/absolute.txt", b"abs"), ("C:\\x.txt", b"drive")]
        for i, (name, data) in enumerate([*content, ("link", b"folder")]):
            info = zipfile.ZipInfo(name, (2020, 9, 13, 12, 26, 40))
            kind = stat.S_IFLNK if name == "link" else 0
            kind = stat.S_IFDIR if name == "folder/" else kind or stat.S_IFREG
            info.external_attr = (kind | 0o750) << 16 | 0x10 * (name == "folder/")
            info.extra = b"UT\5\0\1" + SECONDS.to_bytes(4, "little")
            info.compress_type = zipfile.ZIP_DEFLATED
            info.comment = b"%d" % i if i % 2 else b""
            archive.writestr(info, data)
    return path


def seen_in_zip(path: Path) -> list[tuple[Any, ...]]:
    """Name, data, mode, time and comment of members, and the archive's comment."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        shared = archive.comment
        return [
            (
                i.filename,
                archive.read(i),
                i.external_attr >> 16,
                i.date_time,
                i.extra,
                i.comment,
                shared,
            )
            for i in archive.infolist()
        ]


def seen_in_tar(path: Path) -> list[tuple[Any, ...]]:
    """The same as a zip archive would have it."""
    found = []
    with tarfile.open(path) as archive:
        shared = archive.pax_headers.get("comment", "").encode()
        for member in archive:
            file = archive.extractfile(member) if member.isreg() else None
            data = file.read() if file is not None else member.linkname.encode()
            kind = {tarfile.DIRTYPE: stat.S_IFDIR, tarfile.SYMTYPE: stat.S_IFLNK}
            mode = kind.get(member.type, stat.S_IFREG) | member.mode
            comment = member.pax_headers.get("comment", "").encode()
            extra = b"UT\5\0\1" + int(member.mtime).to_bytes(4, "little")
            name = member.name + "/" * member.isdir()
            own = comment if comment != shared else b""
            found.append((name, data, mode, (2020, 9, 13, 12, 26, 40), extra, own, shared))
    return found


def as_seen(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Images as pixels, and without suffixes."""
    named = as_pixels([row[:2] for row in rows])
    return [(*new, *row[2:]) for new, row in zip(named, rows, strict=True)]


def test_a_zip_archive_becomes_a_tar_file_and_back(tmp_path: Path) -> None:
    """Names, order, data, modes, times, links, comments; twice the same bytes."""
    source = write_zip(tmp_path / "s" / "a.zip", ("large.bin", bytes(tar.SPOOLED_BYTES + 1)))
    assert convert(tmp_path / "s", tmp_path / "d", *TO_TAR) == 0
    assert convert(tmp_path / "d", tmp_path / "b", *TO_ZIP, "--to", "png") == 0
    assert convert(tmp_path / "d", tmp_path / "p", "--to", "png") == 0
    for folder, names in ("d", {"a.tar", "a.idx"}), ("b", {"a.zip"}), ("p", {"a.tar", "a.idx"}):
        assert files_below(tmp_path / folder) == names
    before = as_seen(seen_in_zip(source))
    assert len(before) == 19
    assert as_seen(seen_in_tar(tmp_path / "d" / "a.tar")) == before
    assert as_seen(seen_in_tar(tmp_path / "p" / "a.tar")) == before
    assert as_seen(seen_in_zip(tmp_path / "b" / "a.zip")) == before
    rows = rows_of(tmp_path / "d")["a.zip"], rows_of(tmp_path / "b")["a.tar"]
    assert rows[0].pixels_hash == rows[1].pixels_hash
    assert convert(tmp_path / "s", tmp_path / "again", *TO_TAR, "-j", 1) == 0
    for name in ("a.tar", "a.idx"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "d" / name).read_bytes()


def test_odd_times_and_modes(tmp_path: Path) -> None:
    """A time behind 2038 became 1970, and a mode of 0 another."""
    (tmp_path / "s").mkdir()
    with zipfile.ZipFile(tmp_path / "s" / "a.zip", "w") as archive:
        info = zipfile.ZipInfo("a.txt", (2040, 1, 1, 0, 0, 0))
        info.extra = b"UT\5\0\1" + b"\0\xe0\xaa\x83"  # 2040-01-01 without a sign
        info.external_attr = stat.S_IFREG << 16
        archive.writestr(info, b"")
    assert convert(tmp_path / "s", tmp_path / "d", *TO_TAR) == 0
    with tarfile.open(tmp_path / "d" / "a.tar") as archive:
        (member,) = archive
    assert (member.mode, member.mtime) == (0, calendar.timegm((2040, 1, 1, 0, 0, 0)))


def test_the_index_says_where_members_lie(tmp_path: Path) -> None:
    """As in that of a tar file: so DALI reads the result."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in samples(5):
            archive.writestr(zipfile.ZipInfo(name), data)
    assert convert(path, tmp_path / "d", *TO_TAR) == 0
    data = (tmp_path / "d" / "a.tar").read_bytes()
    version, *lines = (tmp_path / "d" / "a.idx").read_text().splitlines()
    assert version == "v1.2 5"
    for i, line in enumerate(lines):
        words = line.split()
        found = {
            words[at]: data[(b := int(words[at + 1])) : b + int(words[at + 2])] for at in (0, 4, 8)
        }
        assert found["cls"] == b"%d" % i
        assert (l3dali.decode(found["l3"]) == image(i)).all()


def test_done_stays_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_zip(tmp_path / "s" / "a.zip")
    write_tar(tmp_path / "s" / "b.tar", samples(2))
    (tmp_path / "s" / "c.txt").write_bytes(b"beside")
    assert convert(tmp_path / "s", tmp_path / "d", "--dry-run", *TO_TAR) == 0
    assert not (tmp_path / "d").exists()
    for told in ("2 shards and 1 file done", "nothing to do"):
        capsys.readouterr()
        assert convert(tmp_path / "s", tmp_path / "d", *TO_TAR) == 0
        assert told in capsys.readouterr().out
    assert files_below(tmp_path / "d") == {"a.tar", "a.idx", "b.tar", "b.idx", "c.txt"}
    assert main(["verify", str(tmp_path / "d"), "--source", str(tmp_path / "s")]) == 0
    # Another container is another result; the old one goes, in a copy of DEST too.
    shutil.copytree(tmp_path / "d", tmp_path / "copy")
    for result in (tmp_path / "copy").iterdir():
        os.utime(result, (1, 1))
    (tmp_path / "copy" / "b.tar").write_bytes((tmp_path / "copy" / "b.tar").read_bytes() + b"x")
    assert convert(tmp_path / "s", tmp_path / "copy", *TO_ZIP) == 0
    assert files_below(tmp_path / "copy") == {"a.zip", "b.zip", "c.txt", "b.tar", "b.idx"}
    assert convert(tmp_path / "s", tmp_path / "d", *TO_ZIP) == 0
    assert files_below(tmp_path / "d") == {"a.zip", "b.zip", "c.txt"}
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert files_below(tmp_path / "d") == {"a.zip", "b.tar", "b.idx", "c.txt"}
    (tmp_path / "s" / "b.tar").unlink()
    assert convert(tmp_path / "s", tmp_path / "d", "--remove-gone") == 0
    assert files_below(tmp_path / "d") == {"a.zip", "c.txt"}


def refuse_to_remove(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """As if files of these names were immutable, where tests run that may not make them so."""
    remove = LocalFolder.remove

    def refuse(self: LocalFolder, name: str) -> None:
        if name in names:
            raise PermissionError(errno.EPERM, "Operation not permitted", self.place(name))
        remove(self, name)

    monkeypatch.setattr(LocalFolder, "remove", refuse)


@pytest.mark.parametrize("what", ["folder", "pipe", "link", "immutable", "immutable index"])
def test_an_earlier_result_that_cannot_be_removed(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended the run, and each one after it."""
    for name in "ab":
        write_zip(tmp_path / "s" / f"{name}.zip")
    runs: list[tuple[str, ...]] = [(), TO_TAR]
    earlier, made = "a.zip", "b.tar"
    if what == "immutable index":
        runs, earlier, made = runs[::-1], "a.tar", "b.zip"
    assert convert(tmp_path / "s", tmp_path / "d", *runs[0]) == 0
    bad = tmp_path / "d" / earlier
    if what.startswith("immutable"):
        refuse_to_remove(monkeypatch, "a.zip", "a.idx")
    else:
        bad.unlink()
    if what == "folder":
        bad.mkdir()
    elif what == "pipe":
        os.mkfifo(bad)
    elif what == "link":
        bad.symlink_to(bad.name)
    for _ in range(2):
        capsys.readouterr()
        assert convert(tmp_path / "s", tmp_path / "d", *runs[1]) == 2
        told = capsys.readouterr()
        assert "1 shard done" in told.out
        assert "l3: 1 failed\na.zip: its earlier result cannot be removed: " in told.err
        rows = rows_of(tmp_path / "d")
        assert (rows["a.zip"].result, rows["b.zip"].result) == (earlier, made)
    monkeypatch.undo()
    if what == "folder":
        bad.rmdir()
    elif not what.startswith("immutable"):
        bad.unlink()
    assert convert(tmp_path / "s", tmp_path / "d", *runs[1]) == 0
    results = {"a.zip", "b.zip"} if made == "b.zip" else {"a.tar", "a.idx", "b.tar", "b.idx"}
    assert files_below(tmp_path / "d") == results


def test_results_that_no_row_has_are_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a run that was killed before their row was written, when the next has other options."""
    source, dest = write_zip(tmp_path / "s" / "a.zip").parent, tmp_path / "d"
    (source / "x.png").write_bytes(png())
    for way, left in (((), "1 (a.zip)"), (TO_TAR, "2 (a.idx, a.tar)")):
        assert convert(source, dest, *way) == 0
        (dest / "mine.txt").write_bytes(b"")
        (dest / "a.txt").write_bytes(b"")
        assert "they stay" not in capsys.readouterr().err
        (dest / "l3-manifest.jsonl").write_bytes(b"")
        other = () if way else TO_TAR
        for more in (["--dry-run"], ["--quiet"], ["--remove-gone"]):
            assert convert(source, dest, *other, *more) == 0
            assert f"a run that was killed may have left them, and they stay: {left}\n" in (
                capsys.readouterr().err
            )
        results = {"a.zip", "a.tar", "a.idx", "x.l3", "mine.txt", "a.txt"}
        assert files_below(dest) == results
        shutil.rmtree(dest)


def test_a_result_that_no_row_has_of_a_source_that_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a run that was interrupted: its source may be what the interrupt was for."""
    source, dest = write_zip(tmp_path / "s" / "a.zip").parent, tmp_path / "d"
    assert convert(source, dest) == 0
    (dest / "x.l3").write_bytes(png())
    assert convert(source, dest, "--remove-gone") == 0
    assert "they stay: 1 (x.l3)\n" in capsys.readouterr().err
    assert (dest / "x.l3").exists()


def test_a_copy_that_no_row_has_of_what_is_an_image_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a job has looked, it may make either name: so the copy was never told of."""
    source, dest = tmp_path / "s", tmp_path / "d"
    source.mkdir()
    for name in ("a", "b"):
        (source / name).write_bytes(b"no image")
    assert convert(source, dest) == 0
    (dest / "l3-manifest.jsonl").write_bytes(b"")
    (source / "a").write_bytes(png())
    told = "a run that was killed may have left them, and they stay: 1 (a)\n"
    assert convert(source, dest, "--dry-run") == 0
    assert "they stay" not in capsys.readouterr().err
    for more in ([], [], ["--dry-run"]):
        assert convert(source, dest, *more) == 0
        assert told in capsys.readouterr().err
    assert files_below(dest) == {"a", "a.l3", "b"}


def test_gone_archives_take_their_index_with_them(tmp_path: Path) -> None:
    write_zip(tmp_path / "s" / "a.zip")
    write_zip(tmp_path / "s" / "b.zip")
    assert convert(tmp_path / "s", tmp_path / "d", *TO_TAR) == 0
    (tmp_path / "s" / "a.zip").unlink()
    assert convert(tmp_path / "s", tmp_path / "d", "--remove-gone", *TO_TAR) == 0
    assert files_below(tmp_path / "d") == {"b.tar", "b.idx"}


def test_a_plan_and_labels(tmp_path: Path) -> None:
    write_zip(tmp_path / "s" / "a.zip", ("folder/seg.png", png(3, channels=1)))
    plan = save(make_plan(tmp_path / "s", {"source": 1.0}), tmp_path / "plan.json")
    assert convert(tmp_path / "s", tmp_path / "p", "--plan", plan, *TO_TAR) == 0
    assert seen_in_tar(tmp_path / "p" / "a.tar") == seen_in_zip(tmp_path / "s" / "a.zip")
    assert convert(tmp_path / "s", tmp_path / "d", *TO_TAR, "--labels", "seg.png") == 0
    with tarfile.open(tmp_path / "d" / "a.tar") as archive:
        file = archive.extractfile("folder/seg.l3")
        assert file is not None
        assert l3dali.info(file.read()).labels


@pytest.mark.parametrize("choice", ["fail", "keep", "drop"])
def test_a_damaged_image(tmp_path: Path, choice: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As in the container that is made: of a tar file `drop` leaves out the sample."""
    content = [("1.cls", b"1"), ("1.png", b"bad"), ("0.png", png()), ("2.txt", b"2")]
    (tmp_path / "s").mkdir()
    with zipfile.ZipFile(tmp_path / "s" / "a.zip", "w") as archive:
        archive.comment = b"a licence"
        for name, data in content:
            archive.writestr(name, data)
    assert convert(tmp_path / "s", tmp_path / "d", "--on-error", choice, *TO_TAR) == 2
    assert "1.png: not an image" in capsys.readouterr().err
    names = {"keep": ["1.cls", "1.png", "0.l3", "2.txt"], "drop": ["0.l3", "2.txt"]}.get(choice)
    if names is None:
        assert files_below(tmp_path / "d") == set()
    else:
        found = seen_in_tar(tmp_path / "d" / "a.tar")
        assert [row[0] for row in found] == names
        assert {row[-1] for row in found} == {b"a licence"}


def test_where_there_is_no_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.png").write_bytes(png())
    assert convert(tmp_path / "s", tmp_path / "d", *TO_TAR) == 2
    assert "--container is for tar files and zip archives" in capsys.readouterr().err
    assert convert(tmp_path / "s", tmp_path / "d.tar") == 2
    assert "--container tar makes tar files in it" in capsys.readouterr().err
    write_zip(tmp_path / "s" / "x.zip")
    write_tar(tmp_path / "s" / "x.tar", samples(1))
    assert convert(tmp_path / "s", tmp_path / "d", *TO_TAR) == 2
    assert "would both make x.tar" in capsys.readouterr().err
    assert not (tmp_path / "d" / "x.tar").exists()


def tar_of(*infos: tarfile.TarInfo, format: int = tarfile.GNU_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format, errors="surrogateescape") as archive:
        for info in infos:
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    return file.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def two_images(name: str) -> bytes:
    """A tar file in which an image was added again, as `tar -r` does."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for seed in range(2):
            info = tarfile.TarInfo(name)
            info.size = len(png(seed))
            archive.addfile(info, io.BytesIO(png(seed)))
    return file.getvalue()


LONG = b"65551 comment=" + b"x" * 2**16 + b"\n"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (tar_of(entry("a"), entry("a")), "two members of the name a"),
        (two_images("a.png"), "two members of the name a.png"),
        (
            tar_of(entry("hard", tarfile.LNKTYPE, "a")),
            "hard: neither whole file, folder nor symbolic",
        ),
        (tar_of(entry("pipe", tarfile.FIFOTYPE)), "pipe: neither whole file, folder nor symbolic"),
        (tar_of(entry("l", tarfile.SYMTYPE, "../a.png")), "l: a link to an image, ../a.png"),
        (tar_of(entry("\udcff.txt")), ".txt: a name that is not UTF-8"),
        (tar_of(entry("x" * 2**16)), "x: a name that is too long for zip archives"),
        (
            pax("x", tarfile.XHDTYPE, b"12 path=a\0b\n") + tar_of(entry("x")),
            "'a\\x00b': a name that",
        ),
        (pax("x", tarfile.XGLTYPE, LONG) + tar_of(entry("x")), "a comment of 65536 bytes; zip"),
        (pax("x", tarfile.XHDTYPE, LONG) + tar_of(entry("x")), "a comment of 65536 bytes; zip"),
        (tar_of(entry("a"))[:700], "a truncated tar file"),
        (b"no tar" * 200, "not a whole tar file"),
    ],
)
def test_what_no_zip_archive_can_hold(
    tmp_path: Path, data: bytes, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line names it, nothing is left, and other shards are converted."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.tar").write_bytes(data)
    write_tar(tmp_path / "s" / "b.tar", samples(1))
    assert convert(tmp_path / "s", tmp_path / "d", *TO_ZIP) == 2
    told = capsys.readouterr().err
    assert "l3: 1 failed\na.tar: " in told
    assert reason in told
    assert files_below(tmp_path / "d") == {"b.zip"}


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_two_names_of_one_place(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who unpacks the result would have one image of two."""
    write_tar(tmp_path / "a.tar", [("./x.png", png()), ("x.bmp", png(1))])
    assert convert(tmp_path / "a.tar", tmp_path / "d", "--container", kind) == 2
    assert "x.png and x.bmp would both be x.l3" in capsys.readouterr().err
    write_tar(tmp_path / "b.tar", [("./x.png", png()), ("x.png", png(1))])  # as the source is
    assert convert(tmp_path / "b.tar", tmp_path / "d", "--container", kind) == 0


def test_names_that_collide_in_the_zip_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tar(tmp_path / "a.tar", [("a.png", png()), ("x.txt", b""), ("A.tif", png(1))])
    assert convert(tmp_path / "a.tar", tmp_path / "d", *TO_ZIP) == 2
    assert "a.png and A.tif would both be A.l3, on disks that know no cases too: rename one" in (
        capsys.readouterr().err
    )
    assert files_below(tmp_path / "d") == set()


@pytest.mark.parametrize("names", [("x", "x.png"), ("x.png", "y.png", "x.PNG")])
def test_names_that_collide_in_the_tar_file(
    tmp_path: Path, names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Both became x.l3."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in names:
            archive.writestr(name, png(len(name)))
    assert convert(tmp_path / "a.zip", tmp_path / "d", *TO_TAR) == 2
    assert f"{names[0]} and {names[-1]} would both be x.l3" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == set()
