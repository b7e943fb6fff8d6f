"""Long runs of the command `l3`: progress, failures, what ends them, and what is printed."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import (
    L3,
    L3_WITH_CTRL_C,
    PIL_Image,
    files_below,
    image,
    images_in,
    write_copies,
    write_png,
    write_tree,
)

import l3dali
from l3dali import atomic, console
from l3dali.cli import main

ROOT = Path(__file__).parents[2]
NOISE = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Three images in a tree, and two files that are none."""
    return write_tree(tmp_path / "tree")


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """A folder of 30 small images."""
    return write_copies(tmp_path / "copies", 30, write_png(tmp_path / "source.png"))


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
    assert any(line.startswith("l3: 2 of 30 files after ") for line in lines)
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
        "failed": 1,
        "not_begun": 0,
        "raw_bytes": 40 * 50 * 4,
        "written_bytes": sum(path.stat().st_size for path in written),
        "palettes_expanded": 0,
        "stopped": None,
        "interrupted": False,
        "failures": [{"path": f"{tree}/bad.png", "reason": "not an image of a known format"}],
    }
    assert {name: summary[name] for name in expected} == expected
    assert summary.keys() == expected.keys() | {"read_bytes", "seconds"}


@pytest.mark.parametrize("name", ["source.png", "list", "folder"])
def test_json_summary_takes_the_place_of_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_png(Path("source.png"))
    Path("list").write_text("source.png\n")
    Path("folder").mkdir()
    before = {path: path.read_bytes() for path in tmp_path.glob("*") if path.is_file()}
    arguments = ["encode", "--files-from", "list", "--json-summary", name]
    assert main(arguments) == 2
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
        PIL_Image.fromarray(NOISE).save(tmp_path / f"{i}.jpg", quality=30)
    PIL_Image.fromarray(NOISE).save(tmp_path / "2.webp", quality=30)
    write_png(tmp_path / "3.png")
    assert main(["encode", *map(str, tmp_path.iterdir())]) == 0
    assert "l3: lossy images that grew: 3, since L3" in capsys.readouterr().err


# What ends a run.


def fail_after(count: int, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets all writes of files but the first so many fail with an errno."""
    write = atomic.write_atomically
    calls: list[Path] = []

    def refuse(path: Path, data: bytes, **options: Any) -> None:
        calls.append(path)
        if len(calls) > count:
            raise OSError(number, os.strerror(number), os.fspath(path))
        write(path, data, **options)

    monkeypatch.setattr(atomic, "write_atomically", refuse)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_what_cannot_get_better_ends_the_run(
    number: int,
    copies: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = copies.parent / "out"
    arguments = ["encode", *images_in(copies), "-o", str(out), "--jobs", "2"]
    with monkeypatch.context() as patch:
        fail_after(5, number, patch)
        assert main(arguments) == 2
    errors = capsys.readouterr().err.splitlines()
    assert errors[-1].startswith(f"l3: stopped: {os.strerror(number)}: {out}/")
    assert errors[-1].endswith("; 5 of 30 files are done; --skip-existing continues from there")
    assert len(errors) <= 6  # started ones failed too, the others did not start
    assert len(files_below(out)) == 5
    assert main([*arguments, "--skip-existing"]) == 0
    assert "existing results kept: 5" in capsys.readouterr().err
    assert len(files_below(out)) == 30


def refuse_access(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a folder look read-only; root may always write."""
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != folder and access(path, mode))


def test_output_folder_without_permission_ends_the_run(
    copies: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = copies.parent / "out"
    out.mkdir()
    refuse_access(out, monkeypatch)
    assert main(["encode", *images_in(copies), "-o", str(out / "new"), "--jobs", "2"]) == 2
    errors = capsys.readouterr().err
    assert f"l3: {out} cannot be written: Permission denied" in errors


# Signals.


# The command, in which all images but two wait until a file named "go" is there.
HELD = """
import itertools, os, signal, sys, time
from l3dali.cli import loop, run

number = itertools.count()
convert_alone = loop.convert_alone

def held(*arguments, **options):
    if next(number) >= 2:
        while not os.path.exists("go"):
            time.sleep(0.01)
    return convert_alone(*arguments, **options)

loop.convert_alone = held
signal.signal(signal.SIGINT, signal.default_int_handler)
run()
"""
HELD_FILES = 12


def start_held_run(tmp_path: Path, *flags: str) -> subprocess.Popen[str]:
    """Begins to encode files, and returns when one is done and most are not."""
    files = images_in(
        write_copies(tmp_path / "tree", HELD_FILES, write_png(tmp_path / "source.png"))
    )
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, "encode", *files, "-o", "out", "--jobs", "2", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    while not list((tmp_path / "out").glob("*.l3")) and process.poll() is None:
        time.sleep(0.01)
    assert process.poll() is None
    return process


def check_whole(out: Path) -> int:
    """How many results there are, each whole, and nothing else."""
    written = sorted(out.iterdir())
    for path in written:
        assert path.suffix == ".l3"
        l3dali.verify(path.read_bytes())
    return len(written)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_waits_for_no_file(number: int, code: int, tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    process = start_held_run(tmp_path, "--json-summary", str(summary))
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert 0 < check_whole(tmp_path / "out") <= 2
    told = json.loads(summary.read_text())
    done = told["done"]
    assert done == 0 or output.split()[7] == str(done)
    advice = "--skip-existing continues from there"
    assert errors == f"l3: interrupted; {done} of {HELD_FILES} files are done; {advice}\n"
    assert (told["interrupted"], told["not_begun"]) == (True, HELD_FILES - done)


def test_an_interrupt_of_a_read_that_does_not_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.l3")
    process = subprocess.Popen(
        [*L3_WITH_CTRL_C, "verify", tmp_path / "pipe.l3"], stderr=subprocess.PIPE, text=True
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
