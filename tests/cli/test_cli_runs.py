"""Long runs of the command `l3`: progress, failures, what ends them, and what is printed."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from cli_tools import L3, image, images_in, write_png
from convert_tools import png, write_files

import l3dali
from l3dali import console
from l3dali.cli import main

NOISE = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """A folder of 30 small images."""
    return write_files(tmp_path / "copies", {f"{i:03}.png": png() for i in range(30)})


# Progress and reports.


def test_progress_is_for_terminals(tree: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = ["encode", str(tree / "one.png"), str(tree / "a" / "two.PNG")]
    subprocess.run([*L3, *arguments], stderr=theirs, stdout=subprocess.PIPE, check=True)
    assert b"2 of 2 files" in os.read(ours, 100_000)
    flags = ["--overwrite", "--quiet"]
    subprocess.run([*L3, *arguments, *flags], stderr=theirs, stdout=subprocess.PIPE, check=True)
    os.set_blocking(ours, False)
    with pytest.raises(BlockingIOError):
        os.read(ours, 1)
    os.close(theirs)
    os.close(ours)
    plain = subprocess.run([*L3, *arguments, "--overwrite"], capture_output=True, check=True)
    assert plain.stderr == b""


def test_lines_of_progress_without_a_terminal(
    copies: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "LINE_SECONDS", 0.0)
    assert main(["encode", *images_in(copies)]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("l3: 30 of 30 files after ")
    assert re.match("l3: [1-9] of 30 files after ", lines[0])
    assert main(["encode", *images_in(copies), "--overwrite", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_quiet_prints_only_failures(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "bad.png").write_text("no image")
    assert main(["encode", *images_in(tree), "--quiet"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == f"l3: 1 failed\n{tree}/bad.png: not an image of a known format\n"


def test_many_equal_failures_take_few_lines(
    copies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["encode", *images_in(copies)]) == 0
    (copies / "bad.png").write_text("no image")
    capsys.readouterr()
    assert main(["encode", *images_in(copies)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "l3: 31 failed",
        *(
            f"{copies}/00{i}.png: the result exists; use --overwrite or --skip-existing: "
            f"{copies}/00{i}.l3"
            for i in range(3)
        ),
        "and 27 more like these",
        f"{copies}/bad.png: not an image of a known format",
        "l3: --json-summary FILE lists more",
    ]


def test_json_summary(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "bad.png").write_text("no image")
    l3dali.imwrite(tree / "one.l3", image())
    file = tree.parent / "summary.json"
    arguments = ["encode", *images_in(tree), "--skip-existing"]
    assert main([*arguments, "--json-summary", str(file)]) == 2
    summary = json.loads(file.read_text())
    written = [tree / "a" / "two.l3", tree / "a" / "b" / "three.l3"]
    expected = {
        "version": l3dali.__version__,
        "exit_code": 2,
        "files": 4,
        "done": 2,
        "kept": 1,
        "images": 2,
        "failed": 1,
        "raw_bytes": 40 * 50 * 4,
        "written_bytes": sum(path.stat().st_size for path in written),
        "palettes_expanded": 0,
        "remarks": [],
        "failures": [{"path": f"{tree}/bad.png", "reason": "not an image of a known format"}],
    }
    assert {name: summary[name] for name in expected} == expected
    assert summary.keys() == expected.keys() | {"read_bytes", "seconds", "formats"}


@pytest.mark.parametrize("name", ["source.png", "list", "folder"])
def test_json_summary_takes_the_place_of_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_png(Path("source.png"))
    Path("list").write_text("source.png\n")
    Path("folder").mkdir()
    before = {path: path.read_bytes() for path in tmp_path.glob("*") if path.is_file()}
    assert main(["encode", "--files-from", "list", "--json-summary", name]) == 2
    assert f"l3: --json-summary {name}: the file is " in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in tmp_path.glob("*") if path.is_file()}


COMMANDS = ["encode", "decode", "info", "verify", "view", "convert", "profile", "plan"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_and_exit_codes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    help_text = capsys.readouterr().out
    assert f"examples:\n  l3 {command}" in help_text
    assert "exit codes:\n  0  " in help_text
    assert max(map(len, help_text.splitlines())) <= 80


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert re.findall(r"^    (\w+)\b", capsys.readouterr().out, re.MULTILINE) == COMMANDS


# Lossy sources.


def test_growth_of_lossy_sources_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(2):
        PIL.Image.fromarray(NOISE).save(tmp_path / f"{i}.jpg", quality=30)
    PIL.Image.fromarray(NOISE).save(tmp_path / "2.webp", quality=30)
    write_png(tmp_path / "3.png")
    assert main(["encode", *map(str, tmp_path.iterdir())]) == 0
    assert "l3: images that grew: 1; L3 is lossless" in capsys.readouterr().err


# What ends a run.


def test_output_folder_without_permission_ends_the_run(
    copies: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, access = copies.parent / "out", os.access
    out.mkdir()
    # Root may always write.
    monkeypatch.setattr(os, "access", lambda path, mode: path != out and access(path, mode))
    assert main(["encode", *images_in(copies), "-o", str(out / "new"), "--jobs", "2"]) == 2
    errors = capsys.readouterr().err
    assert f"l3: {out} cannot be written: Permission denied" in errors


# Signals.


def test_an_interrupt_of_a_read_that_does_not_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.l3")
    process = subprocess.Popen(
        [*L3, "verify", tmp_path / "pipe.l3"], stderr=subprocess.PIPE, text=True
    )
    writer = os.open(tmp_path / "pipe.l3", os.O_WRONLY)  # waits for the command to read
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == "l3: interrupted; 0 of 1 files are done\n"
    assert process.returncode == 130
    os.close(writer)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_within_a_codec(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Those in Python, as of names in zip archives, raise another one with a text from it."""

    def fail() -> None:
        try:
            raise KeyboardInterrupt(number)
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt("decoding with 'cp437' codec failed") from error

    monkeypatch.setattr("l3dali.cli.make_parser", fail)
    assert main(["info"]) == 128 + number
