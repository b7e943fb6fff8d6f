"""`l3 convert` killed before each change of a file in DEST, and run again: the same in the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from convert_tools import convert, files_below, png, rows_of, samples, write_tar

pytest.importorskip("fsspec")

from l3dali.cli import main

# Each run begins with a copy of `before`. The audit events are named in Python's documentation.
KILLED = """
import itertools, os, re, shutil, sys
from l3dali.cli import main
from l3dali.datasets.convert import containers

containers._IN_PROCESS = re.compile("")  # no children, which would change files unseen

EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}

def is_killed(step, place):
    if child := os.fork():
        return os.waitpid(child, 0)[1] == 9 << 8
    left = step
    def count(event, arguments):
        nonlocal left
        if event in EVENTS and place in str(arguments[0]) and arguments[1:2] != ("rb",):
            left -= 1
            if left == 0:
                os._exit(9)
    sys.addaudithook(count)
    os._exit(main(["convert", "s", place, "-j1", "-q", *sys.argv[2:]]))

for step in itertools.count(1, int(sys.argv[1])):
    shutil.copytree("before", f"killed/{step}")
    if not is_killed(step, f"killed/{step}"):
        break
"""


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(("each", "options"), [(1, []), (4, ["--on-error", "drop"])])
def test_killed_before_each_change(tmp_path: Path, each: int, options: list[str]) -> None:
    source, before = tmp_path / "s", tmp_path / "before"
    (source / "below").mkdir(parents=True)
    for i, name in enumerate(["changed", "gone", "renamed", "other", "below/gone"]):
        (source / f"{name}.png").write_bytes(png(i))
    (source / "repaired.png").write_bytes(png(6)[:50])
    (source / "note.txt").write_text("a note")
    write_tar(source / "changed.tar", samples(3))
    write_tar(source / "gone.tar", samples(2))
    convert(source, before, *options)
    for name in ("gone.png", "other.png", "below/gone.png", "gone.tar"):
        (source / name).unlink()
    (source / "below").rmdir()
    (source / "changed.png").write_bytes(png(7))
    (source / "renamed.png").rename(source / "renamed.PNG")
    (source / "other.ppm").write_bytes(b"P6 1 1 255\n123")
    (source / "repaired.png").write_bytes(png(6))
    write_tar(source / "changed.tar", samples(4))

    options = ["--remove-gone", *options]
    subprocess.run([sys.executable, "-c", KILLED, str(each), *options], cwd=tmp_path, check=True)
    killed = sorted((tmp_path / "killed").iterdir(), key=lambda path: int(path.name))
    assert len(killed) > 25 / each
    whole = killed[-1]  # which nothing has killed
    names = {"changed.l3", "renamed.l3", "other.l3", "repaired.l3", "note.txt"}
    assert files_below(whole) == names | {"changed.tar", "changed.idx"}
    assert not (whole / "below").exists()
    for dest in killed:
        assert convert(source, dest, "-j1", "-q", *options) == 0
        assert main(["verify", str(dest), "--quiet"]) == 0
        assert files_below(dest) == files_below(whole)
        assert {row.result for row in rows_of(dest).values()} >= names
        for name in files_below(dest):
            assert (dest / name).read_bytes() == (whole / name).read_bytes()
