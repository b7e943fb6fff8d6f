"""docs/imagenet.md: its commands and programs run as printed, on two small shards."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
from convert_tools import Members, read_tar, saved, write_tar
from engines import ROOT
from PIL import Image

import l3dali

BLOCKS = re.findall(
    r"^```(bash|python)\n(.*?)^```", (ROOT / "docs" / "imagenet.md").read_text(), re.M | re.S
)
COUNT = 8
CMYK = "0000003.jpg"


def jpeg(seed: int) -> bytes:
    y, x = np.mgrid[: 120 + 9 * seed, : 200 - 7 * seed]
    noise = np.random.default_rng(seed).normal(0, 9, (*y.shape, 3))
    image = Image.fromarray((128 + 70 * np.sin(x / 19 + y / 27)[..., None] + noise).astype("u1"))
    return saved(image.convert("CMYK" if seed == 3 else "RGB"), "JPEG", quality=75 + seed)


def shard(first: int) -> Members:
    return [
        member
        for i in range(first, first + COUNT // 2)
        for member in ((f"{i:07}.cls", b"%d" % (99 * i)), (f"{i:07}.jpg", jpeg(i)))
    ]


def ran(command: list[str], folder: Path, code: int = 0) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_from_shards_to_training_and_back(tmp_path: Path) -> None:
    for i in range(2):
        write_tar(tmp_path / "imagenet" / f"train-{i:03}.tar", shard(i * COUNT // 2))
    (tmp_path / "train-l3" / "n01440764").mkdir(parents=True)
    l3dali.imwrite(tmp_path / "train-l3" / "n01440764" / "0.l3", np.zeros((8, 8), np.uint8))
    told = []
    for language, code in BLOCKS:
        if language == "python":
            told.append(ran([sys.executable, "-c", code], tmp_path))
        else:
            command = [sys.executable, "-m", "l3dali", *shlex.split(code)[1:]]
            told.append(ran(command, tmp_path, code=2 if "--on-error" in code else 0))
    assert f"train-000.tar: {CMYK}: " in told[0]
    trainings = [text for text in told if "torch.Size" in text]
    assert len(trainings) == 2
    for text in trainings:
        batches = re.findall(r"torch\.Size\(\[(\d), 3, 224, 224\]\) tensor\(\[(.*)\]\)", text)
        labels = [int(label) for _, several in batches for label in several.split(", ")]
        assert sum(int(count) for count, _ in batches) == len(labels)
        assert sorted(labels) == [99 * i for i in range(COUNT) if i != 3]
    assert told[-1] == f"train-000.tar ['0000003.cls', '{CMYK}']\ntrain-001.tar []\n"
    before, after = (
        [row for i in range(2) for row in read_tar(tmp_path / name / f"train-{i:03}.tar")]
        for name in ("imagenet", "imagenet-back")
    )
    assert after == [row for row in before if not row[0].startswith("0000003")]
