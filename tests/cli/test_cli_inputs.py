"""Where the command `l3` takes images from and puts results: pipes, lists, folders, links."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import PIL.Image
import pytest
from cli_tools import L3, image, write_png
from convert_tools import files_below
from PIL import PngImagePlugin

import l3dali
from l3dali.cli import main

pytestmark = pytest.mark.usefixtures("in_process")  # as in test_cli.py


def run(*arguments: Any, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Runs the command with pipes for its three streams."""
    return subprocess.run([*L3, *arguments], input=stdin, capture_output=True, check=False)


# Paths on both sides of an option.


@pytest.mark.parametrize(
    "arguments",
    [
        ["one.png", "--verify", "a/two.PNG"],
        ["--verify", "one.png", "--effort", "1", "a/two.PNG"],
        ["one.png", "--verify", "--", "a/two.PNG"],
    ],
    ids=" ".join,
)
def test_paths_behind_options(
    tree: Path, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    assert main(["encode", "-o", str(tmp_path / "out"), "-q", *arguments]) == 0
    assert files_below(tmp_path / "out") == {"one.l3", "two.l3"}
    assert main(["info", "--json", str(tmp_path / "out"), "--", str(tmp_path / "out")]) == 0
    assert main(["convert", "a", "--no-verify", "one.png", "-q", str(tmp_path / "set")]) == 0
    assert (tmp_path / "set" / "one.l3").exists()


@pytest.mark.parametrize(
    "command",
    [["encode", "a.png", "-o"], ["decode", "a.l3", "-o"], ["plan", "a.json", "-o"]],
)
def test_outputs_that_are_urls(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The result silently went to a folder `s3:` of the current one."""
    monkeypatch.chdir(tmp_path)
    assert main([*command, "s3://bucket/out"]) == 2
    assert "s3://bucket/out is a URL; only l3 convert writes to URLs" in capsys.readouterr().err
    assert files_below(tmp_path) == set()


# Pipes.


def test_encode_and_decode_as_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    encoded = run("encode", "-", stdin=imagecodecs.png_encode(image()))
    assert encoded.returncode == 0
    assert np.array_equal(l3dali.decode(encoded.stdout), image())
    assert encoded.stderr.split()[:2] == [b"format", b"images"]
    decoded = run("decode", "/dev/stdin", "-o", "-", stdin=encoded.stdout)
    assert np.array_equal(imagecodecs.png_decode(decoded.stdout), image())
    command = "decode", "/dev/fd/0", "-o", "/dev/stdout", "--format", "tif"
    tiff = run(*command, stdin=encoded.stdout)
    assert np.array_equal(imagecodecs.imread(tiff.stdout), image())
    assert files_below(tmp_path) == set()


def test_standard_input_from_a_file(tmp_path: Path) -> None:
    with write_png(tmp_path / "photo.png").open("rb") as file:
        done = subprocess.run([*L3, "encode", "-"], stdin=file, capture_output=True, check=True)
    assert np.array_equal(l3dali.decode(done.stdout), image())


@pytest.mark.parametrize(
    ("command", "source", "target"),
    [("encode", "source", "-"), ("decode", "-", "/dev/stdout")],
)
def test_a_stream_that_is_open_on_its_source(
    tmp_path: Path, command: str, source: str, target: str
) -> None:
    data = imagecodecs.png_encode(image()) if command == "encode" else l3dali.encode(image())
    path = tmp_path / "source"
    path.write_bytes(data)
    with path.open("r+b") as file:
        line = [*L3, command, source, "-o", target]
        pipe = subprocess.PIPE
        done = subprocess.run(line, stdin=file, stdout=file, stderr=pipe, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert b"input and output are the same file: " in done.stderr
    assert path.read_bytes() == data


def test_process_substitution(tmp_path: Path) -> None:
    path = write_png(tmp_path / "photo.png")
    script = '"$0" -m l3dali encode <(cat "$1") -o >(cat > "$2"; echo > "$2.done")'
    out = tmp_path / "out.l3"
    subprocess.run(["bash", "-c", script, L3[0], path, out], check=True, capture_output=True)
    while not Path(f"{out}.done").exists():
        pass
    assert np.array_equal(l3dali.imread(out), image())


def test_full_device_behind_standard_output(tmp_path: Path) -> None:
    path = write_png(tmp_path / "photo.png")
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [*L3, "encode", path, "-o", "-"], stdout=full, stderr=subprocess.PIPE, check=False
        )
        untold = subprocess.run([*L3, "info", "nothing"], stderr=full, check=False)
    assert result.returncode == untold.returncode == 2
    assert f"{path}: No space left on device: /dev/stdout\n".encode() in result.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["encode", "tree/one.png", "-"], "/dev/stdout takes one result, but there are 2"),
        (["encode", "-", "-o", "out"], "/dev/stdin has no name for a result"),
        (["encode", "-", "--json-summary", "-"], "cannot take both"),
        (["encode"], "no PATH; '-' is standard input"),
    ],
)
def test_what_pipes_cannot_do(
    arguments: list[str],
    reason: str,
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tree.parent)
    before = files_below(tree.parent)
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert told.startswith("l3: ")
    assert reason in told
    assert told.count("\n") == 1
    assert files_below(tree.parent) == before


def test_image_data_is_not_for_terminals(tmp_path: Path) -> None:
    path = write_png(tmp_path / "photo.png")
    ours, theirs = pty.openpty()
    to_terminal = subprocess.run(
        [*L3, "encode", path, "-o", "-"], stdout=theirs, stderr=subprocess.PIPE, check=False
    )
    from_terminal = subprocess.run(
        [*L3, "encode", "-"], stdin=theirs, capture_output=True, check=False
    )
    for result in (to_terminal, from_terminal):
        assert result.returncode == 2
        assert b"terminal" in result.stderr
    os.close(theirs)
    os.close(ours)


# Lists of files.


@pytest.mark.parametrize("null", [False, True])
def test_list_from_standard_input(null: bool, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree.parent)
    name = "new\nline.png" if null else "straße.png"
    write_png(tree / name)
    paths = tree / "one.png", Path("tree", name), Path("tree/a/two.PNG")
    names = [os.fsencode(path) for path in paths]
    end = b"\0" if null else b"\n"
    result = run("encode", "--files-from", "-", "-o", "out", stdin=end.join(names) + end)
    assert result.returncode == 0
    expected = {"tree/one.l3", "tree/a/two.l3", f"tree/{name[:-4]}.l3"}
    assert files_below(tree.parent / "out") == expected


def test_list_may_be_of_windows(tree: Path) -> None:
    names = b"\xef\xbb\xbfone.png\r\n\r\na/b/three.png\r\na/two.PNG"
    (tree.parent / "list").write_bytes(names)
    out = tree.parent / "out"
    arguments = ["--files-from", str(tree.parent / "list"), "-o", str(out)]
    assert main(["encode", str(tree), *arguments]) == 0
    assert files_below(out) == {"one.l3", "a/two.l3", "a/b/three.l3"}


def test_list_cannot_lead_out_of_its_folder(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = write_png(tree.parent / "outside.png")
    (tree.parent / "list").write_text(f"../outside.png\n{outside}\na/../one.png\nnone.png\n")
    out = tree.parent / "out"
    arguments = ["--files-from", str(tree.parent / "list"), "-o", str(out)]
    assert main(["encode", str(tree), *arguments]) == 2
    errors = capsys.readouterr().err
    assert f"{tree}/../outside.png: outside {tree}\n" in errors
    assert f"{outside}: outside {tree}\n" in errors
    assert f"{tree}/none.png: No such file or directory\n" in errors
    assert files_below(out) == {"one.l3"}


# Folders and links.


def test_link_planted_in_the_output_leads_nowhere(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tree.parent / "out"
    elsewhere = tree.parent / "elsewhere"
    for folder in (out, elsewhere):
        folder.mkdir()
    (out / "a").symlink_to(elsewhere)
    (tree.parent / "list").write_text("one.png\na/two.PNG\na/b/three.png\n")
    listed = ["encode", str(tree), "--files-from", str(tree.parent / "list")]
    assert main([*listed, "-o", str(out)]) == 2
    errors = capsys.readouterr().err
    assert f"{tree}/a/two.PNG: its folder is behind a link: {out}/a/two.l3\n" in errors
    assert f"{tree}/a/b/three.png: its folder is behind a link: {out}/a/b/three.l3\n" in errors
    assert files_below(elsewhere) == set()
    assert (out / "one.l3").exists()
    (out / "a").unlink()
    (tree.parent / "link").symlink_to(out)
    assert main([*listed, "-o", str(tree.parent / "link"), "--skip-existing"]) == 0
    assert files_below(out) == {"one.l3", "a/two.l3", "a/b/three.l3"}


def test_link_in_place_of_a_result_is_not_followed(tmp_path: Path) -> None:
    path = write_png(tmp_path / "photo.png")
    precious, target = tmp_path / "precious", tmp_path / "photo.l3"
    for content in ("keep", None):
        if content:
            precious.write_text(content)
        else:
            precious.unlink()
        target.unlink(missing_ok=True)
        target.symlink_to(precious)
        assert main(["encode", str(path)]) == 2
        assert target.is_symlink()
        assert main(["encode", str(path), "--overwrite"]) == 0
        assert not target.is_symlink()
        assert precious.exists() == bool(content)
    target.unlink()
    os.mkfifo(target)
    for option in ("--quiet", "--overwrite", "--skip-existing"):  # No argument names the pipe.
        assert main(["encode", str(path), option]) == 2
    assert target.is_fifo()


def test_text_and_resolution_of_png_are_kept_on_request(tmp_path: Path) -> None:
    texts = PngImagePlugin.PngInfo()
    texts.add_text("Title", "a road")
    texts.add_text("Comment", "long " * 99, zip=True)
    texts.add_itxt("Author", "Zoë")
    source = tmp_path / "a.png"
    PIL.Image.fromarray(image()).save(source, pnginfo=texts, dpi=(300, 150))
    found = {}
    for options in ((), ("--preserve",), ("--preserve", "--max-side", "20")):
        made = tmp_path / f"made{len(options)}.l3"
        assert main(["encode", str(source), "-o", str(made), "--verify", *options]) == 0
        assert main(["decode", str(made)]) == 0
        with PIL.Image.open(made.with_suffix(".png")) as back:
            back.load()
            found[len(options)] = back.info
    with PIL.Image.open(source) as opened:
        opened.load()
        kept = opened.info
    assert kept["dpi"] == pytest.approx((300, 150), abs=0.1)
    assert found == {0: {}, 1: kept, 3: {n: v for n, v in kept.items() if n != "dpi"}}


def test_modes_and_times_are_kept_on_request(tmp_path: Path) -> None:
    path = write_png(tmp_path / "photo.png")
    os.utime(path, ns=(10**18 + 1, 10**18 + 2))
    path.chmod(0o4640)
    assert main(["encode", str(path), "-o", str(tmp_path / "a.l3"), "--preserve"]) == 0
    assert (
        main(["decode", str(tmp_path / "a.l3"), "-o", str(tmp_path / "b.png"), "--preserve"]) == 0
    )
    for name in ("a.l3", "b.png"):
        status = (tmp_path / name).stat()
        assert (status.st_mode & 0o7777, status.st_mtime_ns) == (0o640, 10**18 + 2)
    assert main(["encode", str(path), "-o", str(tmp_path / "c.l3")]) == 0
    assert (tmp_path / "c.l3").stat().st_mtime_ns != 10**18 + 2


@pytest.mark.parametrize("command", ["info", "verify"])
def test_names_cannot_write_lines_of_their_own(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"a\x1b[31m\nl3: all is well\xff\r.l3")
    Path(name).write_bytes(b"no image")
    assert main([command, name]) == 2
    told = "".join(capfd.readouterr())
    assert not any(character < " " for character in told if character != "\n")
    assert "\nl3: all is well" not in told
    assert r"a\x1b[31m\nl3: all is well\udcff\r.l3" in told
