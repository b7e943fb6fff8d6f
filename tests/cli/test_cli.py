"""The command `l3`: what it writes, what it says, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import PIL.Image
import pytest
import tifffile
from cli_tools import L3, image, images_in, write_png
from convert_tools import files_below

import l3dali
from l3dali.cli import main
from l3dali.images.formats import write_picture
from l3dali.images.picture import Picture
from l3dali.images.reading import read_picture

# Commands that are run as programs convert in children, which take longer to start.
pytestmark = pytest.mark.usefixtures("in_process")

# Encode and decode.


def test_file_goes_where_output_says(tmp_path: Path) -> None:
    path = write_png(tmp_path / "photo.png")
    assert main(["encode", str(path), "-o", str(tmp_path / "other.l3")]) == 0
    assert main(["encode", str(path), "-o", str(tmp_path / "new" / "folder")]) == 0
    assert files_below(tmp_path) == {"photo.png", "other.l3", "new/folder/photo.l3"}


def test_list_is_mirrored(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tree.parent / "out"
    (tree.parent / "list").write_text("one.png\na/two.PNG\na/b/three.png\n")
    listed = ["--files-from", str(tree.parent / "list")]
    assert main(["encode", str(tree), *listed, "-o", str(out), "--verify"]) == 0
    assert files_below(out) == {"one.l3", "a/two.l3", "a/b/three.l3"}
    assert np.array_equal(l3dali.imread(out / "a" / "two.l3"), image(2))
    output = capsys.readouterr()
    assert output.out.split()[:6] == ["format", "images", "pixels", "source", "result", "ratio"]
    cells = output.out.splitlines()[1].split()
    assert cells[:2] == ["png", "3"]
    source = sum(Path(path).stat().st_size for path in images_in(tree))
    written = sum(path.stat().st_size for path in out.rglob("*.l3"))
    assert f"{written / source:.2f}" in cells


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["encode", "tree"], "l3 convert tree OUT"),
        (["encode", "tree", "-o", "l3"], "l3 convert tree l3"),
        (["decode", "tree", "-o", "png"], "l3 convert tree png --to png"),
        (["encode", "--files-from", "list"], "l3 convert tree OUT"),
    ],
    ids=" ".join,
)
def test_folders_are_for_convert(
    tree: Path,
    arguments: list[str],
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tree.parent)
    Path("list").write_text("tree\n")
    assert main(arguments) == 2
    assert f"a folder: use {command}\n" in capsys.readouterr().err
    assert not list(tree.parent.rglob("*.l3"))


def test_a_reader_of_the_output_that_goes(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (512, 512, 3)).astype(np.uint8)
    command = [*L3, "encode", str(write_png(tmp_path / "photo.png", noise)), "-o", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("suffix", [".tif", ".pam"])
def test_decode_to(suffix: str, tree: Path) -> None:
    l3, back = tree.parent / "l3", tree.parent / "back"
    assert main(["encode", *images_in(tree), "-o", str(l3)]) == 0
    files = [str(path) for path in l3.iterdir()]
    assert main(["decode", *files, "-o", str(back), "--format", suffix[1:]]) == 0
    assert files_below(back) == {f"one{suffix}", f"two{suffix}", f"three{suffix}"}
    pixels = read_picture((back / f"three{suffix}").read_bytes()).pixels
    assert np.array_equal(pixels, image(3, channels=1))


@pytest.mark.parametrize(("dtype", "channels"), [(np.int8, 3), (np.int16, 1)])
def test_signed_samples_come_from_tiff_and_go_there(
    dtype: Any, channels: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = np.iinfo(dtype)
    pixels = np.random.default_rng(0).integers(limits.min, limits.max + 1, (20, 30, channels))
    pixels = pixels.astype(dtype)[:, :, 0] if channels == 1 else pixels.astype(dtype)
    source = tmp_path / "a.tif"
    source.write_bytes(write_picture(Picture(pixels), ".tif"))
    encoded = tmp_path / "a.l3"
    assert main(["encode", str(source), "--verify"]) == 0
    decoded = l3dali.imread(encoded)
    assert decoded.dtype == dtype
    assert np.array_equal(decoded, pixels)
    assert main(["verify", str(encoded), "--source", str(source)]) == 0
    assert main(["decode", str(encoded), "-o", str(tmp_path / "b.tif")]) == 0
    assert np.array_equal(read_picture((tmp_path / "b.tif").read_bytes()).pixels, pixels)
    capsys.readouterr()
    assert main(["info", str(encoded)]) == 0
    assert f"{8 * pixels.itemsize} bits signed, " in capsys.readouterr().out
    assert main(["decode", str(encoded), "-o", str(tmp_path / "b.png")]) == 2
    assert ".png cannot hold signed samples; use .tif" in capsys.readouterr().err
    assert not (tmp_path / "b.png").exists()
    source.unlink()
    assert main(["decode", str(encoded)]) == 0
    assert np.array_equal(read_picture(source.read_bytes()).pixels, pixels)


@pytest.mark.parametrize("palette", ["rgb", "index"])
def test_palette(palette: str, tmp_path: Path) -> None:
    picture = PIL.Image.fromarray(image()).quantize(9)
    picture.save(tmp_path / "labels.png")
    arguments = ["encode", str(tmp_path / "labels.png"), "--palette", palette]
    assert main([*arguments, "-o", str(tmp_path / "labels.l3")]) == 0
    info = l3dali.info((tmp_path / "labels.l3").read_bytes())
    expected = picture if palette == "index" else picture.convert("RGB")
    assert np.array_equal(l3dali.imread(tmp_path / "labels.l3"), np.asarray(expected))
    assert info.labels == (palette == "index")
    assert main(["decode", str(tmp_path / "labels.l3"), "-o", str(tmp_path / "back")]) == 0
    back = PIL.Image.open(tmp_path / "back" / "labels.png")
    assert back.mode == expected.mode
    assert np.array_equal(np.asarray(back.convert("RGB")), np.asarray(picture.convert("RGB")))
    folders = ["verify", str(tmp_path / "labels.l3"), "--source", str(tmp_path / "labels.png")]
    assert main(folders) == 0


def test_options_reach_the_encoder(tmp_path: Path) -> None:
    path = write_png(tmp_path / "photo.png")
    for options in ({"coding": "packed"}, {"effort": 9}):
        given = [f"--{name}={value}" for name, value in options.items()]
        assert main(["encode", str(path), "--overwrite", *given]) == 0
        expected = l3dali.encode(image(), **options)
        assert (tmp_path / "photo.l3").read_bytes() == expected


# Existing targets, collisions and odd files.


def test_existing_result_fails_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_png(tmp_path / "photo.png")
    target = tmp_path / "photo.l3"
    target.write_bytes(b"old")
    assert main(["encode", str(path)]) == 2
    reason = "the result exists; use --overwrite or --skip-existing"
    assert f"{path}: {reason}: {target}\n" in capsys.readouterr().err
    assert main(["encode", str(path), "--skip-existing"]) == 0
    assert "existing results kept: 1" in capsys.readouterr().err
    assert target.read_bytes() == b"old"
    assert main(["encode", str(path), "--overwrite"]) == 0
    assert np.array_equal(l3dali.imread(target), image())


def test_two_sources_of_one_result_stop_before_work(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "one.tif").write_bytes(b"")
    assert main(["encode", f"{tree}/one.png", f"{tree}/one.tif"]) == 2
    told = f"l3: {tree}/one.png and {tree}/one.tif would both make {tree}/one.l3: rename one"
    assert told in capsys.readouterr().err
    assert not list(tree.rglob("*.l3"))
    for folder in ("a", "b"):
        write_png(tmp_path / "in" / folder / "x.png")
    out = tmp_path / "out"
    (out / "a").mkdir(parents=True)
    (out / "b").symlink_to("a")
    (tmp_path / "list").write_text("a/x.png\nb/x.png\n")
    listed = [str(tmp_path / "in"), "--files-from", str(tmp_path / "list")]
    for more in ([], ["--overwrite"]):
        assert main(["encode", *listed, "-o", str(out), *more]) == 2
        assert f"b/x.png would both make {out}/a/x.l3" in capsys.readouterr().err
    assert not list(out.rglob("*.l3"))
    (out / "a/x.png").touch()  # a source that would be its result, by another name
    assert main(["decode", str(out / "a/x.png"), "-o", str(out / "b/x.png"), "--overwrite"]) == 2
    assert "input and output are the same file" in capsys.readouterr().err


def test_no_result_replaces_its_source_through_links(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = l3dali.encode(image())
    for command, stored, link in (
        (["encode", "s.png"], "s.l3", "s.png"),
        (["decode", "a.l3", "-o", "store.png"], "store.png", "a.l3"),
        (["profile", "photo", "-o", "photo"], "photo", None),
    ):
        Path(stored).write_bytes(data)
        if link is not None:
            Path(link).symlink_to(stored)
        assert main([*command, "--overwrite"]) == 2
        assert "input and output are the same file" in capsys.readouterr().err
        assert Path(stored).read_bytes() == data
    for verb, name in (("encode", "a.l3"), ("decode", "s.png")):
        assert main([verb, name, "--overwrite"]) == 2
        assert f"{name} would replace itself" in capsys.readouterr().err
    Path("hard.png").hardlink_to("s.l3")
    assert main(["decode", "s.l3", "-o", "hard.png", "--overwrite"]) == 2


def test_failed_files_are_listed_and_the_rest_is_done(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    (tree / "many\nlines [red].png").write_text("no image")
    assert main(["encode", *images_in(tree), str(tree / "missing.png")]) == 2
    assert len(list(tree.rglob("*.l3"))) == 3
    errors = capsys.readouterr().err.splitlines()
    assert "l3: 3 failed" in errors
    failures = errors[errors.index("l3: 3 failed") + 1 :]
    assert len(failures) == 3
    assert failures[0].startswith(f"{tree}/bad.png: cannot be read: ")
    assert failures[1] == f"{tree}/many\\nlines [red].png: not an image of a known format"
    assert failures[2] == f"{tree}/missing.png: No such file or directory"


@pytest.mark.parametrize("name", ["two words", "Straße 写真", "new\nline", "[bold]", "-o", "a.b."])
def test_names(name: str, tmp_path: Path) -> None:
    write_png(tmp_path / name / f"{name}.png")
    source = tmp_path / name / f"{name}.png"
    assert main(["encode", "-o", str(tmp_path / "out"), "--", str(source)]) == 0
    assert np.array_equal(l3dali.imread(tmp_path / "out" / f"{name}.l3"), image())
    assert main(["info", str(tmp_path / "out")]) == 0


def test_only_files_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    l3dali.imwrite(tmp_path / "pipe.l3", image())
    assert main(["verify", str(tmp_path), "--source", str(tmp_path)]) == 2  # It never ended.
    assert "pipe.png: not a file" in capsys.readouterr().err


# Info and verify.


def test_info(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    l3dali.imwrite(tmp_path / "photo.l3", image(), icc=b"profile")
    assert main(["info", str(tmp_path / "photo.l3")]) == 0
    output = capsys.readouterr().out
    assert "50 x 40, channels: 3, 8 bits" in output
    assert "raw 6000 bytes" in output
    assert "ICC of 7 bytes" in output


def test_info_of_few_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Depth up to 2930 does not fit in the 8 bits that code its 249 values."""
    depth = np.linspace(0, 2930, 249).astype(np.uint16)[np.arange(4980) * 7 % 249].reshape(60, 83)
    l3dali.imwrite(tmp_path / "depth.l3", depth)
    l3dali.imwrite(tmp_path / "dense.l3", np.arange(4096, dtype=np.uint16).reshape(64, 64))
    assert main(["info", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "channels: 1, 16 bits, 249 distinct values, coded in 8 bits\n" in output
    assert "channels: 1, 16 bits, 12 used\n" in output


def test_info_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.l3", "b.l3"):
        l3dali.imwrite(tmp_path / name, image())
    (tmp_path / "c.l3").write_bytes(b"damaged")
    assert main(["info", "--json", str(tmp_path)]) == 2
    output = capsys.readouterr()
    entries = json.loads(output.out)
    assert [Path(entry["path"]).name for entry in entries] == ["a.l3", "b.l3"]
    assert entries[0]["encoded_bytes"] == (tmp_path / "a.l3").stat().st_size
    assert sum(entries[0]["codings"].values()) == 1
    assert "c.l3: " in output.err


def encode_tree(tree: Path, out: Path) -> None:
    """As `l3 encode` of 1.0.0 wrote a folder: without a manifest."""
    for path in images_in(tree):
        target = (out / Path(path).relative_to(tree)).with_suffix(".l3")
        assert main(["encode", path, "-o", str(target)]) == 0


def test_verify_compares_with_sources(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tree.parent / "out"
    against_tree = ["verify", str(out), "--source", str(tree)]
    encode_tree(tree, out)
    assert main(against_tree) == 0
    l3dali.imwrite(out / "one.l3", image(8))
    (out / "a" / "two.l3").rename(out / "more.l3")
    capsys.readouterr()
    assert main(against_tree) == 2
    error = capsys.readouterr().err
    assert f"{out}/one.l3: the pixels of the result differ from the source's\n" in error
    assert f"{out}/more.l3: no source found in {tree}\n" in error
    assert f"{tree}/a/two.PNG: it has no result\n" in error


def test_verify_reports_images_that_it_did_not_compare(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tree.parent / "out"
    encode_tree(tree, out)
    (tree / "moving.gif").write_bytes(b"GIF89a")
    (tree / "link").symlink_to(tree / "a")
    capsys.readouterr()
    assert main(["verify", str(out), "--source", str(tree)]) == 0
    error = capsys.readouterr().err
    assert f"images among the files of {tree}: 1 .gif; convert them" in error
    assert "links to folders not followed: 1" in error
    assert main(["encode", *images_in(tree)]) == 0
    assert main(["verify", str(tree), "--source", str(tree)]) == 0  # beside their sources


def test_gif_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    PIL.Image.new("P", (4, 4)).save(tmp_path / "a.gif")
    assert main(["encode", str(tmp_path / "a.gif")]) == 2
    output = capsys.readouterr()
    assert output.out == ""  # no table of zeros
    assert "a.gif: GIF files are not supported; convert it to PNG first\n" in output.err


@pytest.mark.parametrize("command", ["encode", "decode"])
def test_shards_are_for_convert(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.tar", "b.zip"):
        (tmp_path / name).write_bytes(bytes(1024))
        assert main([command, str(tmp_path / name), "-o", str(tmp_path / "out")]) == 2
        assert f"{name}: a shard: use l3 convert" in capsys.readouterr().err


# How it ends.


@pytest.mark.parametrize(
    "arguments",
    [
        ["mix", "a.png"],
        ["encode", "a.png", "--coding", "zip"],
        ["encode", "a.png", "--jobs", "0"],
        ["encode", ""],
        ["encode", "--files-from", "list", "a.png"],
        ["encode", "--files-from", "file"],
        ["encode", "a.png", "-o", "b.png"],
        ["decode", "a.l3", "-o", "b.jpg"],
        ["decode", "a.l3", "--format", "jpg"],
        ["encode", "a.png", "--overwrite", "--skip-existing"],
        ["encode", "a.png", "b.png", "-o", "c.l3"],
        ["encode", "empty"],
        ["decode", "a.l3", "-o", "b.png", "--format", "tif"],
        ["verify", "a.l3", "b.l3", "--source", "a.png"],
    ],
    ids=" ".join,
)
def test_usage_errors_are_one_line(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("list").write_text("a.l3\n")
    Path("empty").mkdir()
    write_png(Path("a.png"))
    l3dali.imwrite("a.l3", image())
    assert main(arguments) == 2
    output = capsys.readouterr()
    assert output.err.startswith("l3: ")
    assert output.err.count("\n") == 1
    assert output.out == ""
    assert files_below(tmp_path) == {"file", "list", "a.png", "a.l3"}


@pytest.mark.parametrize("command", ["encode", "verify"])
def test_no_password_is_printed(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor by commands that take no URL: they see a path, with one slash."""
    more = ["--json-summary", str(tmp_path / "summary.json")]
    assert main([command, f"http://bob:{60 * 'secret'}@127.0.0.1:1/a.l3", *more]) == 2
    told = capsys.readouterr().err + "".join(p.read_text() for p in tmp_path.glob("*.json"))
    assert "bob@127.0.0.1" in told
    assert "secret" not in told


def test_no_file_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    """Libraries and children write messages into what has it."""
    script = (
        "import os, l3dali.cli; l3dali.cli.main(['info', '.']); "
        "null = os.stat(os.devnull).st_rdev; "
        "told = [os.get_inheritable(i) and os.fstat(i).st_rdev == null for i in range(3)]; "
        "open('told', 'w').write(str(told))"
    )
    closed = '"$0" -c "$1" <&- >&- 2>&-'
    subprocess.run(["sh", "-c", closed, sys.executable, script], cwd=tmp_path, check=True)
    assert (tmp_path / "told").read_text() == "[True, True, True]"


def test_many_bands_through_tiff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In as TIFF, listed by `l3 info`, out as TIFF and, three of them, as PNG."""
    bands = np.arange(40 * 30 * 7).reshape(40, 30, 7).astype(np.uint16)
    scene = tmp_path / "scene.tif"

    def run(*arguments: object) -> tuple[int, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    tifffile.imwrite(scene, bands, photometric="minisblack", planarconfig="contig")
    assert run("encode", "--verify", scene)[0] == 0
    l3 = tmp_path / "scene.l3"
    assert np.array_equal(l3dali.imread(l3), bands)
    code, output = run("info", l3)
    assert code == 0
    assert "channels: 7" in output
    assert "of channels: " in output
    assert run("decode", l3, "-o", tmp_path / "back.tif")[0] == 0
    assert np.array_equal(tifffile.imread(tmp_path / "back.tif"), bands)
    assert run("decode", l3, "-o", tmp_path / "rgb.png", "--channels", "3,0,6")[0] == 0
    png = imagecodecs.imread(tmp_path / "rgb.png")
    assert np.array_equal(png, bands[..., [3, 0, 6]])
    code, output = run("decode", l3, "-o", tmp_path / "all.png")
    assert code == 2
    assert ".png cannot hold 7 channels of 16 bits; use .tif" in output
    code, output = run("decode", l3, "-o", tmp_path / "no.png", "--channels", "3,9")
    assert code == 2
    assert "channel 9 does not exist: the image has 7" in output


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("1,1", "names 1 more than once"),
        ("4096", "must be 0 to 4095, not 4096"),
        *((text, f"{text!r} is not a list of numbers, such as 3,2,1") for text in ("-1", "a", "")),
    ],
)
def test_wrong_channels(
    tmp_path: Path, wrong: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["decode", str(tmp_path / "scene.l3"), f"--channels={wrong}"]) == 2
    assert says in capsys.readouterr().err
