"""docs/datasets.md and docs/dev/datasets-api.rst: commands and programs run as printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import imagecodecs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tfrecord
from convert_tools import rows_of, write_files, write_tar
from engines import ROOT

PAGE = (ROOT / "docs" / "datasets.md").read_text()
BLOCKS = re.findall(r"^```(bash|python)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
API = (ROOT / "docs" / "dev" / "datasets-api.rst").read_text()
BLOCKS += [
    ("python", textwrap.dedent(code))
    for code in re.findall(r"^\.\. code-block:: python\n\n((?: {4}.*\n|\n)+)", API, re.MULTILINE)
]
# Of test_convert_s3.py, test_files_s3.py and test_convert_ray.py; what a package index serves.
ELSEWHERE = ("s3://", "--engine ray", "pip install")


def picture(seed: int, height: int = 48, width: int = 64) -> bytes:
    ramp = np.add.outer(np.arange(height), np.arange(width))[..., None] // 2 + np.arange(3) * 30
    return bytes(imagecodecs.png_encode((ramp + seed).astype(np.uint8)))


def flat(value: int, dtype: str, *channels: int) -> bytes:
    return bytes(imagecodecs.png_encode(np.full((100, 200, *channels), value, dtype)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data sets that the page names."""
    for shard in range(2):
        members = [
            member
            for i in range(6)
            for member in ((f"{i:04}.png", picture(i)), (f"{i:04}.cls", b"%d" % shard))
        ]
        write_tar(tmp_path / "shards" / f"train-{shard:03}.tar", members)
    for i in range(3):
        stem = f"aachen_{i:06}_000019"
        for name, data in [
            (f"leftImg8bit/train/aachen/{stem}_leftImg8bit.png", picture(i, 100, 200)),
            (f"gtFine/train/aachen/{stem}_gtFine_labelIds.png", flat(24 + i, "uint8")),
            (f"gtFine/train/aachen/{stem}_gtFine_instanceIds.png", flat(24000 + i, "uint16")),
            (f"gtFine/train/aachen/{stem}_gtFine_color.png", flat(i, "uint8", 4)),
            (f"gtFine/train/aachen/{stem}_gtFine_polygons.json", b"{}"),
        ]:
            write_files(tmp_path / "cityscapes", {name: data})
    (tmp_path / "records").mkdir()
    writer = tfrecord.TFRecordWriter(str(tmp_path / "records" / "a.tfrecord"))
    writer.write({"image": (picture(1), "byte"), "label": (1, "int")})
    writer.close()
    (tmp_path / "hub").mkdir()
    table = pa.table({"image": [{"bytes": picture(1), "path": "1.png"}], "label": [1]})
    pq.write_table(table, tmp_path / "hub" / "train.parquet")
    return tmp_path


def test_the_page_runs(folder: Path) -> None:
    commands = programs = 0
    for language, text in BLOCKS:
        if language == "python":
            if "s3://" in text:
                continue
            programs += 1
            script = folder / f"program{programs}.py"
            script.write_text(text)
            subprocess.run([sys.executable, script], cwd=folder, check=True, timeout=120)
            continue
        for line in text.splitlines():
            if any(part in line for part in ELSEWHERE):
                continue
            commands += 1
            program, *arguments = shlex.split(line)
            assert program == "l3"
            command = [sys.executable, "-m", "l3dali", *arguments]
            subprocess.run(command, cwd=folder, check=True, timeout=120)
    assert (commands, programs) == (7, 4)
    by_dask, by_command = rows_of(folder / "dask-l3"), rows_of(folder / "imagenet-l3")
    assert {name: row.result_hash for name, row in by_dask.items()} == {
        name: row.result_hash for name, row in by_command.items()
    }
    back = rows_of(folder / "imagenet-png")
    assert {row.pixels_hash for row in back.values()} == {
        row.pixels_hash for row in by_command.values()
    }
    from l3dali import codec

    maps = list((folder / "cityscapes-l3" / "gtFine").rglob("*.l3"))
    assert len(maps) == 9
    for path in maps:
        assert codec.info(path.read_bytes()).labels == path.stem.endswith("Ids"), path
