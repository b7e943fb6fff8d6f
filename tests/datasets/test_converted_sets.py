"""`l3 verify` of shards, URLs and results of `l3 convert`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from convert_tools import (
    convert,
    image,
    make_plan,
    png,
    rows_of,
    samples,
    save,
    write_files,
    write_pngs,
    write_tar,
)

import l3dali
from l3dali.cli import main

IMAGES = 3


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def make_set(folder: Path) -> Path:
    """A shard, loose images in two folders, and a file that is none."""
    write_tar(folder / "a.tar", samples(IMAGES))
    return write_files(folder, {"0.png": png(10), "sub/1.png": png(11), "labels.json": b"{}"})


@pytest.fixture
def converted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert convert(make_set(tmp_path / "s"), tmp_path / "d") == 0
    capsys.readouterr()
    return tmp_path / "d"


def test_verify_a_result(converted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", converted) == 0
    told = capsys.readouterr().err
    assert f"l3: {IMAGES + 2} L3 images of {(IMAGES + 2) * image().shape[0] * 30} pixels" in told
    assert "4 files of" in told
    assert "1 of them copies" in told
    for source in (converted.parent / "s", f"file://{converted.parent / 's'}"):
        assert run("verify", converted, "--source", source) == 0
        told = capsys.readouterr().err
        assert "2 images compared with the sources\n" in told
        assert "1 shard with sources that have not changed (SHA-256)" in told


def test_images_that_could_not_be_converted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = make_set(tmp_path / "s")
    write_files(source, dict.fromkeys(("x.png", "y.png"), png(1)[:-30]))
    assert convert(source, tmp_path / "d") == 2
    assert run("verify", tmp_path / "d") == 0
    told = capsys.readouterr().err
    assert "3 of them copies of originals; 2 images could not be converted\n" in told


def test_totals(converted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = converted.parent / "summary.json"
    assert run("verify", converted, "--quiet", "--json-summary", told) == 0
    summary = json.loads(told.read_text())
    totals = summary["totals"]
    rows = rows_of(converted).values()
    assert totals["files"] == summary["files"] == 4
    assert totals["bytes"] == sum(row.result_bytes for row in rows)
    sums = [total for row in rows for total in row.formats.values()]
    assert totals["images"] == sum(total.images for total in sums) == IMAGES + 2
    assert totals["l3_bytes"] == sum(each.result_bytes for each in sums)
    assert totals["raw_bytes"] == (IMAGES + 2) * image().nbytes


def test_info_of_shards(converted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("info", converted, "--json") == 0
    assert len(json.loads(capsys.readouterr().out)) == IMAGES + 2
    assert run("info", converted / "a.tar") == 0
    assert f"{converted / 'a.tar'}: 0000.l3\n  image  30 x 24" in capsys.readouterr().out


def test_a_shard_without_a_manifest(converted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (converted / "l3-manifest.jsonl").unlink()
    assert run("verify", converted) == 0
    told = capsys.readouterr().err
    assert f"{IMAGES + 2} L3 images" in told
    assert "other files skipped: 1" in told
    assert run("verify", converted, "--source", converted.parent / "s") == 2
    assert "a.tar: its source is not in any manifest" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["tar", "l3", "copy"])
def test_damage(converted: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A byte of a payload, and of a file that holds no L3 image."""
    path = converted / {"tar": "a.tar", "l3": "0.l3", "copy": "labels.json"}[kind]
    data = bytearray(path.read_bytes())
    at = data.index(b"\x8bL3F") + 140 if kind == "tar" else -1
    data[at] ^= 1
    path.write_bytes(data)
    assert run("verify", converted) == 2
    told = capsys.readouterr().err
    assert "l3: 1 failed" in told
    assert told.count(f"{path}: ") == 1
    if kind == "tar":
        assert f"{path}: 0000.l3: " in told
    elif kind == "copy":
        assert "changed since l3 convert wrote it" in told


def test_an_earlier_result_is_gone(converted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That its source has failed since hid it: exit code 0."""
    source = converted.parent / "s"
    (source / "sub" / "1.png").write_bytes(b"damage")
    assert convert(source, converted) == 2
    assert "the earlier result sub/1.l3 was kept" in capsys.readouterr().err
    (converted / "sub" / "1.l3").unlink()
    assert run("verify", converted) == 2
    told = capsys.readouterr().err
    assert "sub/1.l3: this result of sub/1.png is missing" in told


@pytest.mark.parametrize("order", [1, -1])
def test_a_set_and_a_folder_in_it(
    converted: Path, order: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last PATH won: its files were compared with no manifest, or counted twice."""
    paths = [converted, os.path.relpath(converted / "sub"), converted / "0.l3"][::order]
    assert run("verify", *paths) == 0
    assert "4 files of" in capsys.readouterr().err
    shutil.copyfile(converted / "0.l3", converted / "sub" / "1.l3")
    assert run("verify", *paths) == 2
    assert "sub/1.l3: changed since l3 convert wrote it" in capsys.readouterr().err


def test_sources_that_cannot_be_read_have_no_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = make_set(tmp_path / "s")
    (source / "dead.png").symlink_to("nowhere")
    assert convert(source, tmp_path / "d") == 2
    assert run("verify", tmp_path / "d", "--source", source) == 2
    assert "s/dead.png: a broken link" in capsys.readouterr().err


def test_sets_below_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has its own manifest."""
    for name in ("a", "sub/b"):
        source = make_set(tmp_path / "s" / name)
        assert convert(source, tmp_path / "d" / name) == 0
    for more in ((), ("--source", tmp_path / "s")):
        assert run("verify", tmp_path / "d", *more) == 0
        assert "8 files of" in capsys.readouterr().err
    assert run("verify", tmp_path / "d" / "a", tmp_path / "d") == 0
    (tmp_path / "d/a/0.l3").unlink()
    write_files(tmp_path / "d", dict.fromkeys(("a/a.idx", "sub/b/labels.json"), b"damage"))
    assert run("verify", tmp_path / "d") == 2
    told = capsys.readouterr().err
    assert "l3: 3 failed" in told
    assert f"{tmp_path}/d/a/0.l3: this result of a/0.png is missing" in told
    assert f"{tmp_path}/d/a/a.tar: its index a/a.idx has changed" in told
    assert f"{tmp_path}/d/sub/b/labels.json: changed since l3 convert wrote it" in told


def test_a_source_that_has_changed(converted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = converted.parent / "s"
    write_tar(source / "a.tar", samples(IMAGES, 5))
    write_files(source, {"0.png": png(7), "new.png": png(8)})
    assert run("verify", converted, "--source", source) == 2
    told = capsys.readouterr().err
    assert f"{converted / 'a.tar'}: {source / 'a.tar'} has changed since the conversion" in told
    assert f"{converted / '0.l3'}: the pixels of the result differ" in told
    assert f"{source / 'new.png'}: it has no result" in told


def test_sources_of_any_name_without_a_result(
    converted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of l3 convert, which takes all files."""
    source = converted.parent / "s"
    write_files(source, {"a.idx": b"", "l3-manifest.jsonl": b""})  # which are not converted
    (source / "link").symlink_to(".")
    capsys.readouterr()
    assert run("verify", converted, "--source", source) == 0
    assert "links to folders not followed: 1" in capsys.readouterr().err
    write_files(source, {"0002": png(8), "more.json": b"{}"})
    assert run("verify", converted, "--source", source) == 2
    told = capsys.readouterr().err
    for name in ("0002", "more.json"):
        assert f"{source / name}: it has no result" in told


def test_l3_files_that_were_copied(tmp_path: Path) -> None:
    """Their bytes are compared."""
    source = make_set(tmp_path / "s")
    (source / "old.l3").write_bytes(l3dali.encode(image()))
    assert convert(source, tmp_path / "d") == 0
    assert run("verify", tmp_path / "d", "--source", source) == 0
    (source / "old.l3").write_bytes(l3dali.encode(image(1)))
    assert run("verify", tmp_path / "d", "--source", source) == 2


def test_a_shard_without_l3_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tar(tmp_path / "a.tar", samples(1))
    for command in ("verify", "info"):
        assert run(command, tmp_path / "a.tar") == 2
        assert f"{tmp_path / 'a.tar'}: a shard without L3 images\n" in capsys.readouterr().err


def test_indexes_of_shards(converted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = converted / "a.idx"
    lines = index.read_text().splitlines(keepends=True)
    index.write_text("".join(lines[:-1]))
    assert run("verify", converted) == 2
    assert f"{converted / 'a.tar'}: its index a.idx has changed" in capsys.readouterr().err
    index.unlink()
    assert run("verify", converted, "--source", converted.parent / "s") == 2
    assert f"{converted / 'a.tar'}: its index a.idx is missing" in capsys.readouterr().err
    assert convert(converted.parent / "s", converted) == 0
    assert index.read_text().splitlines(keepends=True) == lines
    assert run("verify", converted) == 0


def test_originals_that_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are no missing L3 files; their bytes are compared."""
    pytest.importorskip("scipy")
    source = write_pngs(tmp_path / "s", *(f"{i}.png" for i in range(20)))
    write_tar(source / "a.tar", samples(IMAGES))
    plan = save(make_plan(source, {"source": 0.5, "packed": 0.5}), tmp_path / "plan.json")
    assert convert(source, tmp_path / "d", "--plan", plan) == 0
    originals = sorted((tmp_path / "d").glob("*.png"))
    assert originals
    capsys.readouterr()
    for more in ((), ("--source", source)):
        assert run("verify", tmp_path / "d", *more) == 0
        assert f"{len(originals)} of them copies of originals" in capsys.readouterr().err
    originals[0].write_bytes(originals[0].read_bytes() + b" ")
    assert run("verify", tmp_path / "d", "--source", source) == 2
    assert f"{originals[0]}: changed since l3 convert wrote it" in capsys.readouterr().err


def test_urls(converted: Path, memory: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(converted.parent / "s", "memory://bucket/d") == 0
    assert run("verify", "memory://bucket/d") == 0
    assert "5 L3 images of" in capsys.readouterr().err
    assert run("verify", "memory://bucket/none") == 2
    assert "no such file or folder" in capsys.readouterr().err


def test_other_images_with_the_names_of_l3_files(
    converted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (converted / "x.l3").write_bytes(png()[:-30])
    capsys.readouterr()
    assert run("verify", converted) == 2
    assert "x.l3: not an L3 image" in capsys.readouterr().err


def test_nothing_to_look_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", tmp_path / "none.tar") == 2
    assert "no such file or folder" in capsys.readouterr().err
    (tmp_path / "s").mkdir()
    assert run("verify", tmp_path / "s") == 2
    assert "no L3 files and no shards in the folders named" in capsys.readouterr().err
