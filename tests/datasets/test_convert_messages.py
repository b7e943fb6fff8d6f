"""`l3 convert` and `l3 encode` say what matters: growth, nothing found, a DEST that is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from convert_tools import (
    convert,
    files_below,
    image,
    noisy_jpeg,
    png,
    rows_of,
    samples,
    saved,
    write_files,
    write_pngs,
    write_tar,
)
from PIL import Image

import l3dali
from l3dali.cli import main
from l3dali.datasets.convert.storage import LOCK_NAME, MANIFEST_NAME, LocalFolder
from l3dali.images.reading import read_picture

pytestmark = pytest.mark.usefixtures("in_process")  # as in test_convert_back.py


def large_png() -> bytes:
    ramp = np.add.outer(np.arange(128), np.arange(128)).astype(np.uint8)
    noise = np.random.default_rng(0).integers(0, 8, ramp.shape, np.uint8)
    return bytes(imagecodecs.png_encode(ramp // 2 + noise, level=1))


@pytest.mark.parametrize("to", ["l3", "png"])
def test_nothing_found(tmp_path: Path, to: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_files(tmp_path / "s", {"a.gif": b"GIF89a", "b.7z": b"7z"})
    code = convert(tmp_path / "s", tmp_path / "d", "--to", to)
    told = capsys.readouterr().err
    if to == "l3":
        assert code == 0
        assert "l3: no image was found in 2 files; supported: " in told
        assert ".parquet" in told
        assert files_below(tmp_path / "d") == {"a.gif", "b.7z"}
    else:
        assert "no L3 file among 2 files; --to png decodes L3 files: name the folder" in told
        assert code == 2
        assert not (tmp_path / "d").exists()


def test_originals_do_not_replace_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`l3 convert s d --to png`, where `l3 convert d s2 --to png` is meant, removed all of d."""
    write_pngs(tmp_path / "s", "a.png", "b.png")
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    for dry_run in ([], ["--dry-run"]):
        assert convert(tmp_path / "s", tmp_path / "d", "--to", "png", *dry_run) == 2
        assert "no L3 file among 2 files" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == {"a.l3", "b.l3"}
    (tmp_path / "d" / "a.l3").rename(tmp_path / "s" / "c.L3")
    assert convert(tmp_path / "s", tmp_path / "e", "--to", "png") == 0


def test_other_names_of_the_local_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tar(tmp_path / "s" / "a.tar", samples(2))
    for scheme in ("local://", "file://localhost", "file:/"):
        other = f"{scheme}{tmp_path}/s"
        for source, dest in ((tmp_path / "s", other), (other, tmp_path / "d")):
            assert convert(source, dest) == 2
            assert "name the path without the scheme" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a.tar", "a.idx", "l3-manifest.jsonl"])
def test_a_summary_replaces_nothing_that_its_run_writes(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tar(tmp_path / "s" / "a.tar", samples(1))
    target = tmp_path / "d"
    assert convert(tmp_path / "s", target, "--json-summary", target / name) == 2
    assert "the file is not a summary" in capsys.readouterr().err
    before = (target / name).read_bytes()
    assert b'"exit_code"' not in before
    assert convert(tmp_path / "s", target, "--json-summary", target / name) == 2
    assert (target / name).read_bytes() == before
    for _ in range(2):
        assert convert(tmp_path / "s", target, "--json-summary", target / "summary.json") == 0


def test_l3_files_alone_are_nothing_to_convert(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pngs(tmp_path / "s", "a.png")
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert convert(tmp_path / "d", tmp_path / "e", "--coding", "packed") == 2
    assert "L3 files already; for another coding use the originals" in capsys.readouterr().err
    assert not (tmp_path / "e").exists()
    (tmp_path / "d" / "b.png").write_bytes(png())
    assert convert(tmp_path / "d", tmp_path / "f", "--coding", "packed") == 0
    assert "L3 files copied unchanged: 1; for another coding use" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["s", "file"], "l3: file is not a folder"),
        (["*.tar", "d"], "*.tar: no such file or folder; the shell expands *: leave"),
        (["s", "d", "--to", "png", "--coding", "packed"], "it only applies to L3 output"),
    ],
)
def test_refused_before_work(
    tmp_path: Path,
    arguments: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, {"s/a.png": png(), "file": b"kept"})
    assert convert(*arguments) == 2
    assert told in capsys.readouterr().err
    assert files_below(tmp_path) == {"s/a.png", "file"}


@pytest.mark.parametrize("on_error", ["keep", "drop"])
def test_done_and_failed_apart(
    tmp_path: Path, on_error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "s"
    write_tar(source / "a.tar", samples(1))
    files = {"b.png": png(), "bad0.png": png()[:200], "bad1.png": b"none", "anim.gif": b"GIF89a"}
    write_files(source, files)
    became = "copied to DEST unconverted" if on_error == "keep" else "left out"
    for new in (3, 0):
        summary = tmp_path / f"{new}.json"
        command = (source, tmp_path / "d", "--on-error", on_error, "--json-summary", summary)
        assert convert(*command) == 2
        output = capsys.readouterr()
        said = (
            f"1 shard and 2 files done, {new} of them in this run; 1 copied unchanged; 2 failed, "
        )
        assert f"{said}{became} (--on-error {on_error})" in output.out
        assert "copied unchanged: 1 .gif; convert them to PNG first" in output.err
        counts = json.loads(summary.read_text())
        assert (counts["done"], counts["kept"], counts["failed"]) == (new, 3 - new, 2)


@pytest.mark.parametrize("shard", [False, True])
def test_kinds_of_labels(tmp_path: Path, shard: bool, capsys: pytest.CaptureFixture[str]) -> None:
    deep = np.full((9, 9), 26001, np.uint16)
    members = [
        *[(f"{i}_instanceIds.png", bytes(imagecodecs.png_encode(deep))) for i in range(3)],
        *[(f"{i}_labelIds.png", png(channels=1)) for i in range(2)],
        ("0_color.png", png(channels=4)),
        ("0_voc.png", mask("palette")),
        ("0_leftImg8bit.png", png()),
    ]
    if shard:
        write_tar(tmp_path / "s" / "a.tar", members)
    else:
        write_files(tmp_path / "s", dict(members))
    names = ("_instanceIds.png", "_labelIds.png", "_color.png", "_voc.png")
    given = [word for name in names for word in ("--labels", name)]
    for _ in range(2):  # converted, and done before
        assert convert(tmp_path / "s", tmp_path / "d", *given) == 0
        said = "; --labels marked 3 gray of 16 bits, 2 gray, 1 "
        assert said in (out := capsys.readouterr().out)
        assert "1 RGBA" in out
        assert "1 palette" in out
    assert convert(tmp_path / "s", tmp_path / "e") == 0
    assert "--labels marked" not in capsys.readouterr().out


@pytest.mark.parametrize("shard", [False, True])
def test_labels_that_name_no_image(
    tmp_path: Path, shard: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "s"
    members = [("a.png", png()), ("a.seg.png", mask("palette"))]
    if shard:
        write_tar(source / "a.tar", members)
    else:
        write_files(source, dict(members))
    given = ("--labels", "_msk.png", "--labels", "a.png")
    for _ in range(2):  # converted, and done before
        assert convert(source, tmp_path / "d", *given) == 2
        told = capsys.readouterr().err.splitlines()
        if shard:  # Of files that is known before the work.
            assert "--labels '_msk.png': matches no image" in told
            assert not any("a.png" in line for line in told)
            text = "l3: palette images that became colours: 1; --palette index keeps the numbers"
            assert any(line.startswith(text) for line in told)
        else:
            assert told == ["l3: --labels '_msk.png' matches no image"]
    assert convert("--dry-run", source, tmp_path / "f", *given) == (0 if shard else 2)
    capsys.readouterr()
    assert convert(source, tmp_path / "e", "--labels", ".seg.png") == 0
    assert "--labels" not in capsys.readouterr().err
    if not shard:
        assert convert(source, tmp_path / "f", "--labels", "s") == 2
        assert (
            "--labels s: no image matches; write the ends of names (_labelIds.png) or FOLDER/*"
            in capsys.readouterr().err
        )
        assert not (tmp_path / "f").exists()


def test_options_that_differ_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pngs(tmp_path / "s", "a.png", "b.png")
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert "again" not in capsys.readouterr().err
    more = ("--effort", 1, "--labels", "b.png", "--max-side", 9, "--orient")
    assert convert(tmp_path / "s", tmp_path / "d", *more) == 0
    told = "effort was 5, is 1, labels was not set, is b.png, orient was not set, is yes, max-side"
    assert (
        f"l3: converting 2 results again, since options differ: {told} was not set, is 9\n"
        in capsys.readouterr().err
    )
    assert l3dali.imread(tmp_path / "d" / "a.l3").shape[1] == 9


def test_a_dry_run_says_that_the_run_would_stop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = [write_files(tmp_path / "s", {"a.jpg": noisy_jpeg()}), tmp_path / "d", "--dry-run"]
    assert convert(*run, "--coding", "rans") == 2
    assert "l3: the run would stop: the sources are JPEG files" in capsys.readouterr().err
    assert convert(*run, "--coding", "rans", "--grow") == 0
    assert convert(*run) == 0


def test_image_options_both_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_files(tmp_path / "s", {"a.png": png(), "b.png": mask("palette")})
    assert convert(tmp_path / "s", tmp_path / "d", "--palette", "index", "--max-side", 20) == 0
    assert l3dali.info(tmp_path / "d" / "b.l3").labels
    shape = l3dali.imread(tmp_path / "d" / "a.l3").shape
    assert max(shape) == 20
    assert convert(tmp_path / "d", tmp_path / "w", "--to", "ppm", "--channels", "2,1,0") == 2
    (tmp_path / "d" / "b.l3").unlink()
    assert convert(tmp_path / "d", tmp_path / "p", "--to", "ppm", "--channels", "2,1,0") == 0
    back = read_picture((tmp_path / "p" / "a.ppm").read_bytes()).pixels
    assert np.array_equal(back, l3dali.imread(tmp_path / "d" / "a.l3")[..., ::-1])
    capsys.readouterr()
    for wrong in (("--channels", "1"), ("--to", "png", "--orient")):
        assert convert(tmp_path / "s", tmp_path / "e", *wrong) == 2
        assert f"l3: {wrong[0] if len(wrong) == 2 else '--orient'} " in capsys.readouterr().err


def test_a_shard_without_an_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tar(tmp_path / "s" / "a.tar", [("a 0.png", png())])
    write_tar(tmp_path / "s" / "b.tar", samples(1))
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert "l3: shards without an index for DALI, since" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == {"a.tar", "b.tar", "b.idx"}


def test_several_folders_keep_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for i, name in enumerate(("train", "val")):
        write_tar(tmp_path / name / "a.tar", samples(2, 2 * i))
        write_files(tmp_path / name, {"sub/0.png": png(i)})
    monkeypatch.chdir(tmp_path)
    wanted = {f"{name}/{file}" for name in ("train", "val") for file in ("a.tar", "a.idx")}
    wanted |= {"train/sub/0.l3", "val/sub/0.l3"}
    assert convert("train", "val/", "out") == 0
    assert files_below(tmp_path / "out") == wanted
    assert np.array_equal(l3dali.imread("out/val/sub/0.l3"), image(1))
    capsys.readouterr()
    assert convert("train", "val", "out") == 0
    assert "nothing to do: 2 shards and 2 files done, 0 of" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path / "train")
    assert convert(".", "../val", "../out2") == 0
    assert files_below(tmp_path / "out2") == wanted
    assert convert("../out", "../back", "--to", "png") == 0
    assert (tmp_path / "back" / "train" / "sub" / "0.png").exists()
    assert convert(".", "../val", "../out", "--remove-gone") == 0  # nothing is
    assert files_below(tmp_path / "out") == wanted
    assert convert("memory://a", "memory://b", "../d") == 2


# `l3 encode --max-side`.


def mask(kind: str) -> bytes:
    """A PNG file of twelve classes, each in a square of 20 x 20 pixels."""
    numbers = np.kron(np.arange(12, dtype=np.uint8).reshape(3, 4), np.ones((20, 20), np.uint8))
    picture = Image.fromarray(numbers)
    if kind == "palette":
        picture.putpalette([i * 20 for i in range(12) for _ in range(3)])
    return saved(picture, "PNG")


@pytest.mark.parametrize("kind", ["gray", "palette"])
def test_label_maps_are_not_made_smaller_by_chance(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {f"{kind}.png": mask(kind), "photo.png": large_png()}
    write_files(tmp_path / "s", files)
    source, result = tmp_path / "s" / f"{kind}.png", tmp_path / "d" / f"{kind}.l3"
    names = [str(tmp_path / "s" / name) for name in files]
    command = ["encode", *names, "-o", str(tmp_path / "d"), "--max-side", "40"]
    assert main([*command, "--json-summary", str(tmp_path / "told.json")]) == 2
    (failure,) = json.loads((tmp_path / "told.json").read_text())["failures"]
    assert failure["path"] == str(source)
    assert "use --labels to keep them, l3 encode --no-labels if it is" in failure["reason"]
    assert (tmp_path / "d" / "photo.l3").exists()
    assert main([*command, "--overwrite", "--labels"]) == 0
    assert set(np.unique(l3dali.imread(result))) <= set(range(12))
    assert main([*command, "--overwrite", "--no-labels"]) == 0
    if kind == "palette":
        assert l3dali.info(result).channels == 3
        assert main([*command, "--overwrite", "--palette", "index"]) == 0 or kind == "gray"
    assert main(["encode", str(source), "-o", str(tmp_path / "same.l3"), "--max-side", "80"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("url", ["https://h.example/a.tar?sig=a/b", "http://h.example/a.l3#x"])
def test_urls_with_a_query(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A result would be named after the query, and a shard would not be known as one."""
    assert convert(url, tmp_path / "d") == 2
    assert f"l3: {url}: URLs with ? or # are not supported" in capsys.readouterr().err
    assert main(["verify", url]) == 2
    assert f"{url}: URLs with ? or # are not supported" in capsys.readouterr().err


def test_no_space_for_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tar(tmp_path / "s" / "a.tar", samples(2))
    opened = LocalFolder.open_to_append

    def full(self: LocalFolder, name: str) -> Any:
        return opened(self, name) if name == LOCK_NAME else Path("/dev/full").open("ab")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFolder, "open_to_append", full)
        assert convert(tmp_path / "s", tmp_path / "d") == 2
    told = capsys.readouterr().err
    assert told == f"l3: {tmp_path / 'd' / MANIFEST_NAME}: No space left on device\n"
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert rows_of(tmp_path / "d").keys() == {"a.tar"}


@pytest.mark.parametrize(
    "name",
    ["a.tar.gz", "a.TXZ", "a.tfrecord-00000-of-00001.gz", "a.parquet.zst", "a.zip.gz"],
)
def test_compressed_shards(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_files(tmp_path / "s", {name: b"\x1f\x8b", "a.png": png()})
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert f"{name}: a compressed shard, which readers cannot index" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == {"a.l3"}


def test_shards_without_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "s"
    write_tar(source / "a.tar", samples(1))
    write_tar(source / "nested.tar", [("a.tar", (source / "a.tar").read_bytes())])
    for target, to in (("d", "l3"), ("d", "l3"), ("b", "png")):  # told again when all is done
        assert convert(source if to == "l3" else tmp_path / "d", tmp_path / target, "--to", to) == 0
        told = capsys.readouterr().err
        what = "image" if to == "l3" else "L3 file"
        assert f"l3: shards in which no {what} was found: 1 (nested.tar)\n" in told
