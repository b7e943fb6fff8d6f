"""Command lines of README, docs/cli.md, docs/liquid.md and of the help texts run as printed."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from cli_tools import image, write_png
from engines import ROOT

import l3dali
from l3dali.cli import main, make_parser

pytest.importorskip("braceexpand")
pytest.importorskip("fsspec")
pytest.importorskip("scipy")

from l3dali.datasets.liquid import measure

# What needs a network or another program, says what there is, or runs in another test: that of the
# worked example, those of conformance and of the viewer.
ELSEWHERE = re.compile(
    r"s3://|https://|display|jq|make_image|[A-Z]{4}|example.json|l3 (conformance|view)\b"
)
# What commands write where no -o says so.
WRITTEN = {
    "encode": "photo.l3",
    "decode": "photo.png",
}
# Of profiles: their time is short, and no plan depends on this machine's disk.
GIVEN = ["--seconds", "0.1", "--disk", "2GB/s"]


def _help_texts() -> dict[str, str]:
    """The examples of each command."""
    actions = make_parser()._actions
    (commands,) = (a for a in actions if isinstance(a, argparse._SubParsersAction))
    texts = {name: parser.format_help() for name, parser in commands.choices.items()}
    return {f"l3 {name}": text.partition("\nexamples:\n")[2] for name, text in texts.items()}


NAMES = ("README.md", "docs/first-steps.md", "docs/cli.md", "docs/liquid.md")
PAGES = {name: (ROOT / name).read_text() for name in NAMES}
HELP = _help_texts()


def _examples(text: str) -> list[str]:
    """Lines that begin with `l3`, or pipe to it, without comments."""
    lines = re.findall(r"^ *((?:find .*\| )?l3 [a-z]+.*)$", text, re.MULTILINE)
    return [re.split(r" {2,}", line)[0] for line in lines]


EXAMPLES = {
    name: lines
    for name, text in (PAGES | HELP).items()
    if (lines := [line for line in _examples(text) if not ELSEWHERE.search(line)])
}


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the examples name."""
    folder = tmp_path_factory.mktemp("planned")
    for i in range(4):
        for name in ("inbox", "photos", "png", "train", "val"):
            write_png(folder / name / f"{name}{i}.png", image(i))
    for name in ("0_leftImg8bit.png", "0_labelIds.png", "0_instanceIds.png"):
        write_png(folder / "cityscapes" / name, image(channels=3 if "Img" in name else 1))
    write_png(folder / "photo.png")
    l3dali.imwrite(folder / "photo.l3", image())
    l3dali.imwrite(folder / "scene.l3", np.concatenate([image(), image(1)], axis=2))
    (folder / "shards").mkdir()
    for i in range(2):
        with tarfile.open(folder / "shards" / f"a-{i:03}.tar", "w") as tar:
            tar.add(folder / "photo.png", "0.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "_LONGEST_RUN", 0.05)
        patch.chdir(folder)
        assert main(["convert", "train/", "train_l3/", "-q"]) == 0
        assert main(["convert", "shards", "shards-l3", "-q"]) == 0
        assert main(["profile", "photos", "-o", "profile.json", *GIVEN]) == 0
        assert main(["plan", "profile.json", "-o", "plan.json"]) == 0
    return folder


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(
    planned: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(planned, folder)
    monkeypatch.setattr(measure, "_LONGEST_RUN", 0.05)
    monkeypatch.chdir(folder)
    for line in EXAMPLES[name]:
        _remove_result(line)
        if re.search(r"[|*>]", line):
            line = line.replace("l3 ", f"{shlex.quote(sys.executable)} -m l3dali ", 1)
            subprocess.run(line, shell=True, check=True)
        else:
            arguments = shlex.split(line.replace("{000..146}", "{000..001}"))[1:]
            assert main(arguments + (GIVEN if arguments[0] == "profile" else [])) == 0, line


def _remove_result(line: str) -> None:
    """What an example before it, or the fixture, has written to the same place."""
    _, command, *arguments = shlex.split(line[line.index("l3 ") :])
    if "--skip-existing" in arguments:
        return
    named = arguments[arguments.index("-o") + 1] if "-o" in arguments else WRITTEN.get(command)
    if named is not None and Path(named).is_dir():
        shutil.rmtree(named)
    elif named is not None:
        Path(named).unlink(missing_ok=True)


def test_each_command_has_examples() -> None:
    assert len(HELP) == 8
    for name, text in HELP.items():
        assert len(_examples(text)) >= 2, name
