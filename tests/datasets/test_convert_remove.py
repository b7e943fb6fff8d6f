"""`l3 convert`: results whose sources are gone or failed, and folders named twice."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from convert_tools import convert, files_below, png, rows_of, samples, write_pngs, write_tar

from l3dali.cli import convert as command
from l3dali.cli import main
from l3dali.datasets.convert.sources import Sources, find_sources
from l3dali.datasets.convert.storage import LocalFolder

pytestmark = pytest.mark.usefixtures("in_process")  # as in test_convert_back.py


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tar(tmp_path / "s" / "a.tar", samples(3))
    return write_pngs(tmp_path / "s", "0.png", "1.png", "2.png", "3.png")


def test_results_of_sources_that_are_gone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0
    assert "gone" not in capsys.readouterr().err
    before = files_below(dest)
    (folder / "1.png").unlink()
    (folder / "a.tar").unlink()
    assert convert(folder, dest) == 0
    told = capsys.readouterr().err
    assert "results of other sources, or of sources that are gone: 2; --remove-gone removes" in told
    assert "1.l3 (of 1.png)" in told
    assert convert(folder, dest, "--remove-gone", "--dry-run") == 0
    assert "gone: 2; would be removed" in capsys.readouterr().err
    assert files_below(dest) == before
    assert convert(folder, dest, "--remove-gone") == 0
    assert "gone: 2 removed" in capsys.readouterr().err
    assert files_below(dest) == {"0.l3", "2.l3", "3.l3"}
    assert rows_of(dest).keys() == {"0.png", "2.png", "3.png"}
    assert convert(folder, dest, "--remove-gone") == 0
    assert "gone" not in capsys.readouterr().err
    (folder / "1.png").write_bytes(png(1))
    assert convert(folder, dest) == 0
    assert "1.l3" in files_below(dest)


def test_a_folder_that_became_a_file(tmp_path: Path) -> None:
    source, dest = tmp_path / "s", tmp_path / "d"
    write_pngs(source, "class/inner/0.png", "other/1.png", "other/2.png")
    assert convert(source, dest) == 0
    shutil.rmtree(source / "class")
    (source / "class").write_text("a file")
    (source / "other/1.png").unlink()
    assert convert(source, dest, "--remove-gone") == 0
    assert files_below(dest) == {"class", "other/2.l3"}
    (source / "class").unlink()
    (source / "other/2.png").unlink()
    (source / "3.png").write_bytes(png(0))
    assert convert(source, dest, "--remove-gone") == 0
    assert not (dest / "other").exists()  # ImageFolder of torchvision takes no empty class


def test_files_that_a_user_changed_stay(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dest = folder.parent / "d"
    write_tar(folder / "b.tar", samples(1))
    assert convert(folder, dest) == 0
    for name in ("1.png", "2.png", "b.tar"):
        (folder / name).unlink()
    for name in ("1.l3", "3.l3", "b.idx"):
        (dest / name).write_bytes(b"mine")
    assert convert(folder, dest, "--to", "png", "--remove-gone") == 0  # 0.l3 is superseded
    told = capsys.readouterr().err
    assert "gone: 2 removed" in told
    assert "gone: 1; --remove-gone removes the unchanged ones" in told
    results = {"0.png", "3.png", "a.tar", "a.idx"}
    assert files_below(dest) == {"1.l3", "3.l3", "b.idx", *results}


def test_a_result_that_cannot_be_removed_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0
    (folder / "1.png").unlink()
    remove = LocalFolder.remove

    def refuse(self: LocalFolder, name: str) -> None:
        if name in ("1.l3", "0.l3"):
            raise PermissionError(errno.EPERM, "Operation not permitted", self.place(name))
        remove(self, name)

    monkeypatch.setattr(LocalFolder, "remove", refuse)
    for _ in range(2):
        assert convert(folder, dest, "--to", "png", "--remove-gone") == 2
        told = capsys.readouterr().err
        assert "\n1.png: its result cannot be removed: Operation not permitted: " in told
        assert "\n0.png: its earlier result cannot be removed: Operation not permitted: " in told
        assert {"1.png", "0.png"} < rows_of(dest).keys()
    monkeypatch.undo()
    assert convert(folder, dest, "--to", "png", "--remove-gone") == 0
    assert files_below(dest) == {"0.png", "2.png", "3.png", "a.tar", "a.idx"}


def test_an_interrupt_during_removal_leaves_no_rows(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0
    for name in ("1.png", "2.png", "3.png", "a.tar"):
        (folder / name).unlink()
    remove = LocalFolder.remove

    def interrupt(self: LocalFolder, name: str) -> None:
        remove(self, name)
        if len(files_below(dest) & {"1.l3", "2.l3", "a.tar"}) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(LocalFolder, "remove", interrupt)
    assert convert(folder, dest, "--remove-gone") == 130
    monkeypatch.undo()
    assert len(rows_of(dest)) < 5
    assert convert(folder, dest, "--remove-gone") == 0
    assert files_below(dest) == {"0.l3"}
    assert rows_of(dest).keys() == {"0.png"}
    assert main(["verify", str(dest), "--quiet"]) == 0


def test_a_result_of_another_source_stays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dest = folder.parent / "d"
    (folder / "b.idx").write_text("v1.2 1\n")
    assert convert(folder, dest) == 0
    (folder / "1.png").rename(folder / "1.PNG")
    write_tar(folder / "b.tar", samples(1))  # whose index is no source
    (folder / "a.tar").unlink()
    (folder / "a.tfrecord").write_bytes(b"")  # which has an index of the same name
    assert convert(folder, dest) == 0
    assert "gone: 1; " in capsys.readouterr().err
    assert convert(folder, dest, "--remove-gone") == 0
    assert rows_of(dest)["1.PNG"].result == "1.l3"
    results = {"0.l3", "1.l3", "2.l3", "3.l3", "a.tfrecord", "a.idx", "b.tar", "b.idx"}
    assert files_below(dest) == results
    (folder / "1.PNG").write_bytes(png(1)[:40])
    assert convert(folder, dest, "--on-error", "fail", "--remove-gone") == 2
    assert files_below(dest) == results


def test_single_files_do_not_show_what_is_gone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0
    assert convert(folder / "1.png", dest) == 0
    assert "gone" not in capsys.readouterr().err
    assert convert(folder / "1.png", dest, "--remove-gone") == 2
    assert "needs whole folders as SOURCE" in capsys.readouterr().err


def test_sources_that_fail_keep_their_results(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0
    before = files_below(dest)
    for name in ("1.png", "a.tar"):
        (folder / name).write_bytes((folder / name).read_bytes()[:100])
    for _ in range(2):  # They are tried again.
        capsys.readouterr()
        assert convert(folder, dest, "--on-error", "fail") == 2
        told = capsys.readouterr().err
        for result in ("1.l3", "a.tar"):
            assert told.count(f"; the earlier result {result} was kept\n") == 1
        assert files_below(dest) == before
        assert {rows_of(dest)[name].status for name in ("1.png", "a.tar")} == {"failed"}
    assert main(["verify", str(dest)]) == 2
    told = capsys.readouterr().err
    assert "d/a.tar: the conversion of a.tar has failed: not a whole tar file" in told
    assert "l3: 2 failed" in told
    (folder / "1.png").write_bytes(png(7))
    (folder / "a.tar").unlink()
    write_tar(folder / "b.tar", samples(1))
    assert convert(folder, dest, "--remove-gone") == 0
    assert files_below(dest) == {"0.l3", "1.l3", "2.l3", "3.l3", "b.tar", "b.idx"}
    assert main(["verify", str(dest)]) == 0


def test_what_cannot_be_listed_is_not_gone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0
    (folder / "1.png").unlink()
    (folder / "1.png").symlink_to("nowhere")
    assert convert(folder, dest, "--remove-gone") == 2
    assert "--remove-gone needs all sources" in capsys.readouterr().err
    assert (dest / "1.l3").exists()


def test_what_is_behind_a_link_is_not_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Folders there are not listed."""
    write_pngs(tmp_path, "s/a/0.png", "s/ab/0.png", "t/0.png")
    names = ["s"], ["s", "t"]
    for number, sources in enumerate(names):
        assert convert(*(tmp_path / name for name in sources), tmp_path / f"d{number}") == 0
    (tmp_path / "s" / "a").rename(tmp_path / "elsewhere")
    (tmp_path / "s" / "a").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "s" / "ab" / "0.png").unlink()
    (tmp_path / "s" / "0.png").write_bytes(png())
    for number, sources in enumerate(names):
        capsys.readouterr()
        folders = [tmp_path / name for name in [*sources, f"d{number}"]]
        assert convert(*folders, "--remove-gone") == 0
        told = capsys.readouterr().err
        assert "gone: 1 removed" in told
        assert "links to folders not followed: 1" in told
    assert files_below(tmp_path / "d0") == {"0.l3", "a/0.l3"}
    assert files_below(tmp_path / "d1") == {"s/0.l3", "s/a/0.l3", "t/0.l3"}


def test_sources_are_listed_under_the_lock(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else what another run had converted since the listing would seem to be gone."""
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0

    def find(arguments: list[str]) -> Sources:
        monkeypatch.setattr(command, "find_sources", find_sources)
        found = find_sources(arguments)
        (folder / "new.png").write_bytes(png(9))
        assert convert(folder, dest) == 2
        assert "another l3 convert writes to" in capsys.readouterr().err
        return found

    monkeypatch.setattr(command, "find_sources", find)
    assert convert(folder, dest, "--remove-gone") == 0
    assert "gone" not in capsys.readouterr().err
    assert convert(folder, dest, "--remove-gone") == 0
    assert (dest / "new.l3").exists()


@pytest.mark.parametrize("name", ["d", "new/deep/d"])
def test_a_dry_run_leaves_nothing(folder: Path, name: str) -> None:
    before = {path.name for path in folder.parent.iterdir()}
    assert convert(folder, folder.parent / name, "--dry-run") == 0
    assert {path.name for path in folder.parent.iterdir()} == before
