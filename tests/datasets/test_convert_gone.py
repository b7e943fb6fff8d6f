"""`l3 convert`: results whose sources are gone, folders named twice, and what a dry run tries."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from convert_tools import (
    convert,
    files_below,
    image,
    make_plan,
    png,
    read_tar,
    rows_of,
    samples,
    save,
    write_tar,
)

pytest.importorskip("rich")

import l3dali
from l3dali.cli import converting, main
from l3dali.datasets.convert.manifest import Manifest, Row
from l3dali.datasets.convert.storage import (
    MANIFEST_NAME,
    LocalFolder,
    RemoteFolder,
    Stored,
    hash_file,
    open_folder,
)
from l3dali.datasets.convert.work import Sources, find_sources


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s").mkdir()
    for i in range(4):
        (tmp_path / "s" / f"{i}.png").write_bytes(png(i))
    write_tar(tmp_path / "s" / "a.tar", samples(3))
    return tmp_path / "s"


def test_results_of_sources_that_are_gone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0
    assert "gone" not in capsys.readouterr().err
    before = files_below(dest)
    (folder / "1.png").unlink()
    (folder / "a.tar").unlink()
    assert convert(folder, dest) == 0
    told = capsys.readouterr().err
    assert "results whose sources are gone: 2; --remove-gone removes those" in told
    assert "1.l3 (of 1.png)" in told
    assert files_below(dest) == before
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
    (source / "class" / "inner").mkdir(parents=True)
    (source / "other").mkdir()
    for name in ("class/inner/0.png", "other/1.png", "other/2.png"):
        (source / name).write_bytes(png(0))
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


def test_a_result_that_somebody_changed_stays(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0
    for name in ("1", "2"):
        (folder / f"{name}.png").unlink()
    (dest / "1.l3").write_bytes(b"mine")
    assert convert(folder, dest, "--remove-gone") == 0
    told = capsys.readouterr().err
    assert "gone: 1 removed" in told
    assert "gone: 1; --remove-gone removes those not changed since" in told
    assert (dest / "1.l3").read_bytes() == b"mine"
    assert not (dest / "2.l3").exists()


def test_a_result_that_cannot_be_removed_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended the run, and each one after it."""
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0
    for name in ("1.png", "2.png", "a.tar"):
        (folder / name).unlink()
    (folder / "new.png").write_bytes(png(9))
    remove = LocalFolder.remove

    def refuse(self: LocalFolder, name: str) -> None:
        if name in ("1.l3", "a.idx"):
            raise PermissionError(errno.EPERM, "Operation not permitted", self.place(name))
        remove(self, name)

    monkeypatch.setattr(LocalFolder, "remove", refuse)
    for removed in (1, 0):
        capsys.readouterr()
        assert convert(folder, dest, "--remove-gone") == 2
        told = capsys.readouterr().err
        assert f"gone: {removed} removed" in told
        assert "l3: 2 failed" in told
        assert "\n1.png: its result cannot be removed: Operation not permitted: " in told
        assert files_below(dest) == {"0.l3", "1.l3", "3.l3", "a.tar", "a.idx", "new.l3"}
        assert {"1.png", "a.tar"} < rows_of(dest).keys()
    monkeypatch.undo()
    assert convert(folder, dest, "--remove-gone") == 0
    assert files_below(dest) == {"0.l3", "3.l3", "new.l3"}


def test_an_interrupt_amid_removing_leaves_no_rows(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows stayed for good whose results were gone, and `l3 verify` failed for them."""
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0
    for name in ("1.png", "2.png", "3.png", "a.tar"):
        (folder / name).unlink()
    (dest / "3.l3").unlink()
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
    assert "removed" in capsys.readouterr().err
    assert files_below(dest) == {"0.l3"}
    assert rows_of(dest).keys() == {"0.png"}
    assert main(["verify", str(dest), "--quiet"]) == 0


def test_an_interrupt_where_no_rows_can_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error took the place of the interrupt."""
    pytest.importorskip("fsspec")

    def fails(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Manifest, "save", fails)
    with pytest.raises(KeyboardInterrupt), Manifest(open_folder("memory://none")):
        raise KeyboardInterrupt
    assert "Permission denied" in capsys.readouterr().err


def test_a_bucket_that_removes_nothing(
    folder: Path, memory: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(folder, "memory://kept/d") == 0
    (folder / "1.png").unlink()
    (folder / "new.png").write_bytes(png(9))

    remove = type(memory)._rm

    def refuse(self: Any, path: str) -> None:  # as fsspec's own, which DBFS has
        if not path.endswith(".tmp"):
            raise NotImplementedError
        remove(self, path)

    arguments = folder, "memory://kept/d", "--container", "zip", "--remove-gone"
    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "_rm", refuse)
        assert convert(*arguments) == 2
        told = capsys.readouterr().err
        assert "1.png: its result cannot be removed: memory://kept/d/1.l3: NotImplemented" in told
        assert "a.tar: its earlier result cannot be removed: memory://kept/d/a.idx: Not" in told
        assert memory.exists("/kept/d/new.l3")
    assert convert(*arguments) == 0
    assert {Path(name).name for name in memory.find("/kept/d")} == {
        *("0.l3", "2.l3", "3.l3", "new.l3", "a.zip", "l3-manifest.jsonl", "l3-report.html")
    }


@pytest.mark.parametrize("way", ["--remove-gone", "--container", "without an index"])
def test_an_index_that_somebody_changed_stays(
    tmp_path: Path, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was removed with its tar, or when a tar that has none was written."""
    source, dest = tmp_path / "s", tmp_path / "d"
    for name in "ab":
        write_tar(source / f"{name}.tar", samples(1))
    assert convert(source, dest) == 0
    (dest / "a.idx").write_text("mine")
    more: tuple[str, ...] = ()
    for name in "ab":
        if way == "--remove-gone":
            (source / f"{name}.tar").unlink()
            (source / "0.png").write_bytes(png())
            more = (way,)
        elif way == "--container":
            more = (way, "zip")
        else:
            write_tar(source / f"{name}.tar", [("a b.txt", b"")])
    capsys.readouterr()
    assert convert(source, dest, *more) == 0
    assert (dest / "a.idx").read_text() == "mine"
    assert not (dest / "b.idx").exists()
    told = "indexes that stay, as others may have written them: 1 (a.idx)"
    assert told in capsys.readouterr().err


def test_rows_are_not_walked_for_each_that_is_superseded(tmp_path: Path) -> None:
    """Whether others have an index took all rows: 100,000 shards took a quarter of an hour."""
    folder = LocalFolder(tmp_path)
    walks: list[str] = []

    class Rows(dict[str, Row]):
        def values(self) -> Any:
            walks.append("values")
            return super().values()

        def items(self) -> Any:
            walks.append("items")
            return super().items()

        def __iter__(self) -> Any:
            walks.append("keys")
            return super().__iter__()

    def row(name: str, result: str, index: str | None) -> Row:
        (tmp_path / result).touch()
        hashed = ""
        if index is not None:
            (tmp_path / index).touch()
            hashed = hash_file(folder, index)
        stamp = str((tmp_path / result).stat().st_mtime_ns)
        return Row(
            name,
            "webdataset",
            "done",
            "",
            "rans",
            result=result,
            index=index,
            index_hash=hashed,
            result_stamp=stamp,
        )

    names = [f"{i}.tar" for i in range(9)]
    with Manifest(folder) as manifest:
        manifest.begin()
        manifest.add([row(name, name, f"{name[:-4]}.idx") for name in names])
        manifest.add([row("8.tfrecord", "8.tfrecord", "8.idx")])  # two of one index
        manifest.rows = Rows(manifest.rows)
        manifest.add([row(name, f"{name[:-4]}.zip", None) for name in names])
        assert not walks
        assert files_below(tmp_path) == {f"{i}.zip" for i in range(9)} | {
            "8.idx",
            "8.tfrecord",
            ".l3-lock",
        }
        manifest.add([row("8.tfrecord", "8.tfrecord", None)])
        assert not (tmp_path / "8.idx").exists()
    with Manifest(folder) as manifest:
        assert len(manifest.rows) == 10


def test_an_index_of_an_older_row_stays(tmp_path: Path) -> None:
    """Such rows do not say what it was."""
    source, dest = write_tar(tmp_path / "s" / "a.tar", samples(1)).parent, tmp_path / "d"
    assert convert(source, dest) == 0
    manifest = dest / "l3-manifest.jsonl"
    row = json.loads(manifest.read_text())
    del row["index_hash"]
    manifest.write_text(json.dumps(row) + "\n")
    (source / "a.tar").unlink()
    (source / "0.png").write_bytes(png())
    assert convert(source, dest, "--remove-gone") == 0
    assert files_below(dest) == {"0.l3", "a.idx"}


def test_an_index_that_was_a_source_is_not_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.idx").write_text("v1.2 1\n")
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    write_tar(tmp_path / "s" / "a.tar", samples(1))
    for _ in range(2):
        assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert "gone" not in capsys.readouterr().err
    assert files_below(tmp_path / "d") == {"a.tar", "a.idx"}


def test_a_result_of_another_source_stays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0
    (folder / "1.png").rename(folder / "1.PNG")
    assert convert(folder, dest, "--remove-gone") == 0
    assert "gone" not in capsys.readouterr().err
    assert rows_of(dest)["1.PNG"].result == "1.l3"
    assert (dest / "1.l3").exists()


def test_a_result_that_another_source_has_not_made_goes(folder: Path) -> None:
    """It might have: what the source holds was not known."""
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0
    (folder / "1.png").unlink()
    (folder / "1.jpg").write_bytes(b"no image")
    assert convert(folder, dest, "--remove-gone") == 2
    assert "1.jpg" in files_below(dest)
    assert "1.l3" not in files_below(dest)
    assert rows_of(dest)["1.jpg"].result == "1.jpg"


@pytest.mark.parametrize("name", ["1.PNG", "a.zip"])
def test_a_result_goes_that_another_source_fails_to_make(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """In each run the source might make it, and nothing told of the result."""
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0
    (gone,) = folder.glob(name[:2] + "*")
    gone.unlink()
    write_tar(folder / "b.tar", samples(1))
    (folder / name).write_bytes(png(1)[:40])
    options = ["--on-error", "fail", *(["--container", "tar"] if name == "a.zip" else [])]
    result = "1.l3" if name == "1.PNG" else "a.tar"
    for _ in range(2):
        capsys.readouterr()
        assert convert(folder, dest, *options) == 2
        told = capsys.readouterr().err
        assert "results whose sources are gone: 1; --remove-gone removes those" in told
        assert f"{result} (of {gone.name})" in told
        assert result in files_below(dest)
    assert convert(folder, dest, *options, "--remove-gone") == 2
    assert "gone: 1 removed" in capsys.readouterr().err
    assert files_below(dest) == {"0.l3", "2.l3", "3.l3", "b.tar", "b.idx"} | (
        {"a.tar", "a.idx"} if name == "1.PNG" else {"1.l3"}
    )
    assert gone.name not in rows_of(dest)


def test_names_that_a_run_in_the_c_locale_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are those of the same files: --remove-gone took the sources for gone."""
    source, dest = tmp_path / "s", tmp_path / "d"
    write_tar(source / "\xe9.tar", samples(1))
    (source / "\xf8.png").write_bytes(png())
    program = Path(sys.executable).with_name("l3")
    env = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0"}
    subprocess.run([program, "convert", source, dest], env=env, check=True, capture_output=True)
    assert r'"source":"\udcc3\udcb8.png"' in (dest / "l3-manifest.jsonl").read_text()
    before = files_below(dest)
    assert before == {"\xe9.tar", "\xe9.idx", "\xf8.l3"}
    assert convert(source, dest, "--remove-gone") == 0
    assert "nothing to do: 1 shard and 1 file done" in capsys.readouterr().out
    (source / "\xf8.png").write_bytes(b"damaged")
    for _ in range(2):
        assert convert(source, dest, "--remove-gone", "--on-error", "fail") == 2
        told = capsys.readouterr().err
        assert "its earlier result, \xf8.l3, stays" in told
        assert "gone" not in told
        assert files_below(dest) == before
    assert rows_of(dest).keys() >= {"\xe9.tar", "\xf8.png"}


def test_an_earlier_result_of_a_source_that_fails_stays(folder: Path) -> None:
    """It had been of another, which is gone."""
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0
    (folder / "1.png").rename(folder / "1.PNG")
    assert convert(folder, dest) == 0
    (folder / "1.PNG").write_bytes(png(1)[:40])
    for _ in range(2):
        assert convert(folder, dest, "--on-error", "fail", "--remove-gone") == 2
        assert "1.l3" in files_below(dest)


def test_single_files_say_nothing_of_what_is_gone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0
    assert convert(folder / "1.png", dest) == 0
    assert "gone" not in capsys.readouterr().err
    assert convert(folder / "1.png", dest, "--remove-gone") == 2
    assert "needs whole folders as SOURCE" in capsys.readouterr().err


@pytest.fixture
def failed(folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Results of sources that were cut since, and have failed."""
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0
    before = files_below(dest)
    for name in ("1.png", "a.tar"):
        (folder / name).write_bytes((folder / name).read_bytes()[:100])
    for _ in range(2):  # They are tried again.
        capsys.readouterr()
        assert convert(folder, dest, "--on-error", "fail") == 2
        told = capsys.readouterr().err
        assert "; its earlier result, 1.l3, stays\n" in told
        assert told.count("; its earlier result, a.tar, stays\n") == 1
        assert files_below(dest) == before
        assert {rows_of(dest)[name].status for name in ("1.png", "a.tar")} == {"failed"}
    assert main(["verify", str(dest)]) == 2
    told = capsys.readouterr().err
    assert "d/a.tar: the conversion of a.tar has failed: not a whole tar file" in told
    assert "l3: 2 failed" in told
    return dest


def test_earlier_results_of_gone_sources_that_have_failed(
    folder: Path, failed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing told of them, ever."""
    for name in ("1.png", "2.png", "a.tar"):
        (folder / name).unlink()
    (failed / "1.l3").write_bytes(b"mine")
    assert convert(folder, failed, "--remove-gone") == 0
    told = capsys.readouterr().err
    assert "gone: 2 removed" in told
    assert "gone: 1; --remove-gone removes those not changed since" in told
    assert files_below(failed) == {"0.l3", "1.l3", "3.l3"}


def test_earlier_results_of_sources_that_have_failed_are_superseded(
    folder: Path, failed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tar(folder / "a.tar", samples(2))
    (folder / "1.png").write_bytes(png(7))
    assert convert(folder, failed, "--container", "zip") == 0
    assert "results replaced, since their sources are others than before: 1 (1.l3)" in (
        capsys.readouterr().err
    )
    assert files_below(failed) == {"0.l3", "1.l3", "2.l3", "3.l3", "a.zip"}
    assert main(["verify", str(failed)]) == 0


def test_an_earlier_result_that_another_source_may_replace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, dest = tmp_path / "s", tmp_path / "d"
    source.mkdir()
    data = l3dali.encode(image(), metadata={"source_suffix": "tif"})
    (source / "a.l3").write_bytes(data)
    assert convert(source, dest, "--to", "source") == 0
    (source / "a.l3").write_bytes(data[:-1])
    (source / "a.tif").write_bytes(b"no image")
    assert convert(source, dest, "--to", "png", "--on-error", "fail") == 2
    assert "earlier result" not in capsys.readouterr().err
    assert {name: row.result for name, row in rows_of(dest).items()} == {
        "a.l3": None,
        "a.tif": "a.tif",
    }


def test_a_source_that_has_failed_is_not_done_by_another_plan(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("scipy")
    dest = folder.parent / "d"
    plan = save(make_plan(folder, {"packed": 1.0}), folder.parent / "plan.json")
    more = "--on-error", "fail"
    assert convert(folder, dest, "--plan", plan, *more) == 0
    (folder / "1.png").write_bytes(png(1)[:-30])
    save(make_plan(folder, {"packed": 1.0}), plan)
    assert convert(folder, dest, "--plan", plan, *more) == 2
    save(make_plan(folder, {"packed": 1.0, "source": 0.0}), plan)  # which chooses the same
    capsys.readouterr()
    assert convert(folder, dest, "--plan", plan, *more, "--dry-run") == 0
    assert "would convert 1 file" in capsys.readouterr().out


def test_what_cannot_be_listed_is_not_gone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0
    (folder / "1.png").unlink()
    (folder / "1.png").symlink_to("nowhere")
    assert convert(folder, dest, "--remove-gone") == 2
    assert "--remove-gone needs to know all sources" in capsys.readouterr().err
    assert (dest / "1.l3").exists()


def test_what_is_behind_a_link_is_not_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Folders there are not listed."""
    for folder in ("s/a", "s/ab", "t"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "0.png").write_bytes(png())
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
    """What another run had converted since the listing seemed to be gone."""
    dest = folder.parent / "d"
    assert convert(folder, dest) == 0

    def find(arguments: list[str]) -> Sources:
        monkeypatch.setattr(converting, "find_sources", find_sources)
        found = find_sources(arguments)
        (folder / "new.png").write_bytes(png(9))
        assert convert(folder, dest) == 2
        assert "another l3 convert works on" in capsys.readouterr().err
        return found

    monkeypatch.setattr(converting, "find_sources", find)
    assert convert(folder, dest, "--remove-gone") == 0
    assert "gone" not in capsys.readouterr().err
    assert convert(folder, dest, "--remove-gone") == 0
    assert (dest / "new.l3").exists()


def test_a_plan_and_sources_that_are_gone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("scipy")
    dest = folder.parent / "d"
    mix = {"source": 0.5, "packed": 0.5}
    plan = save(make_plan(folder, mix), folder.parent / "plan.json")
    assert convert(folder, dest, "--plan", plan) == 0
    results = {row.source: row.result for row in rows_of(dest).values()}
    assert {Path(str(each)).suffix for each in results.values()} == {".png", ".l3", ".tar"}
    for name in ("0.png", "1.png", "2.png", "3.png"):
        (folder / name).unlink()
    assert convert(folder, dest, "--plan", plan) == 2  # another data set
    save(make_plan(folder, mix), plan)
    assert convert(folder, dest, "--plan", plan, "--remove-gone") == 0
    assert "gone: 4 removed" in capsys.readouterr().err
    assert files_below(dest) == {"a.tar", "a.idx"}
    assert len(read_tar(dest / "a.tar")) == 9


def test_a_plan_among_the_images(folder: Path) -> None:
    pytest.importorskip("scipy")
    plan = save(make_plan(folder, {"packed": 1.0}), folder / "plan.json")
    assert convert(folder, folder.parent / "d", "--plan", plan) == 0


# Folders named twice.


def test_a_folder_in_several_spellings_counts_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    Path("link").symlink_to("s")
    spellings = ["s", "s/", "./s", f"{folder}/../s", "link", f"file://{folder}", "s/1.png"]
    assert sum(map(len, find_sources(spellings).folders.values())) == 5
    assert find_sources(["link/1.png", "s"]).folders.keys() == {"link"}
    assert convert("s", "link", "d") == 0
    assert rows_of(Path("d")).keys() == {"0.png", "1.png", "2.png", "3.png", "a.tar"}


# Names on disks that do not tell cases apart.


@pytest.mark.parametrize("names", [("a", "A", "b"), ("\u00e9", "e\u0301")])  # é, twice
def test_results_that_differ_in_cases_alone(
    tmp_path: Path,
    names: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "s").mkdir()
    for i, name in enumerate(names):
        (tmp_path / "s" / f"{name}.png").write_bytes(png(i))
    if not LocalFolder(tmp_path).folds_case():
        assert convert(tmp_path / "s", tmp_path / "d") == 0
        assert files_below(tmp_path / "d") == {f"{name}.l3" for name in names}
    monkeypatch.setattr(LocalFolder, "folds_case", lambda self: True)
    assert convert(tmp_path / "s", tmp_path / "e") == 2
    assert "does not tell cases apart: rename one of them, or name a DEST on another disk" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "e").exists()


# Dry runs.


@pytest.mark.parametrize("name", ["d", "new/deep/d"])
def test_a_dry_run_leaves_nothing(folder: Path, name: str) -> None:
    before = {path.name for path in folder.parent.iterdir()}
    assert convert(folder, folder.parent / name, "--dry-run") == 0
    assert {path.name for path in folder.parent.iterdir()} == before


def test_a_dry_run_says_that_nothing_can_be_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder.parent / "file").write_bytes(b"")
    assert convert(folder, folder.parent / "file" / "d", "--dry-run") == 2
    assert "cannot be written: Not a directory" in capsys.readouterr().err
    assert convert(folder, "/proc/d", "--dry-run") == 2
    assert "/proc/d cannot be written" in capsys.readouterr().err


def test_what_is_tried_in_a_bucket_is_dropped() -> None:
    fsspec = pytest.importorskip("fsspec")
    open_folder("memory://tried/d").check_writable()
    assert not [path for path in fsspec.filesystem("memory").find("/tried") if path]


def test_a_folder_that_is_there_is_tried(tmp_path: Path) -> None:
    LocalFolder(tmp_path).check_writable()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(params=["old", "new", "buffered"])
def folding(request: pytest.FixtureRequest) -> str:
    """A folder on a server that does not tell cases apart, and which spelling it keeps."""
    fsspec = pytest.importorskip("fsspec")
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem
    upload = fsspec.spec.AbstractBufferedFile

    class Buffered(upload):  # type: ignore[misc, valid-type]
        """As of stores that take uploads."""

        data = b""

        def _upload_chunk(self, final: bool = False) -> bool:
            self.data += self.buffer.getvalue()
            return True

        def commit(self) -> None:
            self.fs.pipe_file(self.path, self.data)

        def discard(self) -> None:
            pass

    class Folding(memory):  # type: ignore[misc, valid-type]
        protocol = "folding"
        store: ClassVar[dict[str, Any]] = {}
        pseudo_dirs: ClassVar[list[str]] = [""]

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            path = super()._strip_protocol(path.replace("folding://", "memory://"))
            there = (name for name in cls.store if name.lower() == path.lower())
            return next(there, path)

        def cp_file(self, path1: str, path2: str, **options: Any) -> None:
            if request.param == "new":
                self.store.pop(self._strip_protocol(path2), None)
            super().cp_file(path1, path2, **options)

        def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
            if request.param == "buffered" and not options["autocommit"]:
                return Buffered(self, path, mode, autocommit=False)
            return super()._open(path, mode, **options)

    fsspec.register_implementation("folding", Folding, clobber=True)
    return "folding://d"


@pytest.mark.parametrize("removes", [(), ("--remove-gone",)])
@pytest.mark.usefixtures("in_process")
def test_a_source_renamed_in_cases_alone_keeps_its_result(
    tmp_path: Path, folding: str, removes: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """The result of the earlier name, which is the same file, was removed as of a gone source."""
    source = tmp_path / "s"
    (source / "Some").mkdir(parents=True)
    for name in ("a.png", "b.png", "Some/c.png"):
        (source / name).write_bytes(png(ord(name[0])))
    write_tar(source / "t.tar", samples(2))
    assert convert(source, folding, "-j1") == 0
    for old, new in (("a.png", "A.png"), ("Some", "some"), ("t.tar", "T.tar")):
        (source / old).rename(source / new)
    assert convert(source, folding, "-j1", *removes) == 0
    assert convert(source, folding, "-j1", "--remove-gone") == 0
    captured = capsys.readouterr()
    assert "nothing to do: 1 shard and 3 files done" in captured.out
    assert "gone" not in captured.err
    assert main(["verify", folding, "--source", str(source)]) == 0


@pytest.mark.usefixtures("in_process")
def test_a_look_at_cases_that_fails_is_no_answer(
    tmp_path: Path, folding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another source's result took the place of the earlier one."""
    source = tmp_path / "s"
    source.mkdir()
    for name in ("a.png", "b.png"):
        (source / name).write_bytes(png(ord(name[0])))
    assert convert(source, folding, "-j1") == 0
    earlier = hash_file(open_folder(folding), "a.l3")
    (source / "A.png").write_bytes(png())
    real = RemoteFolder.stat

    def fails(folder: RemoteFolder, name: str) -> Stored | None:
        if name not in (MANIFEST_NAME, "a.l3", "A.l3", "b.l3"):
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        return real(folder, name)

    with monkeypatch.context() as patch:
        patch.setattr(RemoteFolder, "stat", fails)
        assert convert(source, folding, "-j1") == 2
    assert hash_file(open_folder(folding), "a.l3") == earlier
    assert main(["verify", folding]) == 0


@pytest.mark.usefixtures("in_process")
def test_a_result_renamed_in_cases_alone_stays(tmp_path: Path, folding: str) -> None:
    """It was removed in the moment it was made: as what the source had before."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "IMG.PNG").write_bytes(png())
    (tmp_path / "s" / "é.PNG").write_bytes(png(1))
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    for to in ("source", "png", "source"):
        assert convert(tmp_path / "d", folding, "-j1", "--to", to) == 0
        assert main(["verify", folding]) == 0
        assert main(["info", folding, "--totals"]) == 0
    (tmp_path / "d" / "IMG.l3").rename(tmp_path / "d" / "img.l3")
    (tmp_path / "d" / "l3-manifest.jsonl").unlink()
    assert convert(tmp_path / "d", folding, "-j1", "--to", "source", "--remove-gone") == 0
    assert main(["verify", folding, "--source", str(tmp_path / "d")]) == 0


def test_what_only_looks_like_a_result_in_other_cases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A look at what has taken its place ended the run."""
    source, dest = tmp_path / "s", tmp_path / "d"
    source.mkdir()
    (source / "x.png").write_bytes(png())
    assert convert(source, dest) == 0
    (dest / "x.l3").rename(dest / "X.l3")
    (dest / "x.l3").mkdir()
    (source / "y.png").write_bytes(png(1))
    assert main(["verify", str(dest)]) == 2
    assert "x.l3: no such file" in capsys.readouterr().err
    assert convert(source, dest) == 2
    assert (dest / "y.l3").exists()
    assert (dest / "X.l3").exists()


@pytest.mark.usefixtures("in_process")
def test_a_server_that_does_not_tell_cases_apart(
    tmp_path: Path, folding: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s").mkdir()
    for i, name in enumerate(("a", "A", "b")):
        (tmp_path / "s" / f"{name}.png").write_bytes(png(i))
    for _ in range(2):
        assert convert(tmp_path / "s", folding, "-j1") == 2
        assert "does not tell cases apart" in capsys.readouterr().err
        (tmp_path / "s" / "A.png").rename(tmp_path / "a")
        assert convert(tmp_path / "s", folding, "-j1") == 0
        (tmp_path / "a").rename(tmp_path / "s" / "A.png")
