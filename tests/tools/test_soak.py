"""`make soak`: a run of seconds, and that it sees what it is to see."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for folder in ("benchmarks", "tools"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    return importlib.import_module("soak")


@pytest.mark.dali
@pytest.mark.slow
def test_a_run_of_seconds(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    program = str(ROOT / "tools/soak.py")
    command = [sys.executable, program, "--hours", "0.003", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / "soak.md").read_text()
    assert "Nothing grew, nothing differed." in page
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")
    data = json.loads((tmp_path / "soak.json").read_text())
    assert data["made"]["commit"]
    assert "processors, nice" in page
    for kind in ("codec: images", "codec: damaged", "pipelines: checkpoints"):
        assert data["counts"][kind] > 0, kind
    for kind in ("pipelines: damaged", "conversions: files compared", "training: SIGKILL"):
        assert data["counts"][kind] > 0, kind
    assert {len(p["rss_kib"]) > 0 for p in data["processes"].values()} == {True}


@pytest.mark.parametrize(
    ("what", "by", "complaint"),
    [
        ("rss_kib", 1024, "memory grew from 129.5 to 169.5 MiB"),
        ("threads", 1, "threads grew from 49 to 79.5"),
        ("fds", 1, "fds grew from 49 to 79.5"),
    ],
)
def test_growth_is_seen(soak: ModuleType, what: str, by: int, complaint: str) -> None:
    flat = [soak.Usage(rss_kib=100 << 10, threads=10, fds=10)] * 80
    assert soak.judge(flat, 3600) == []
    growing = [replace(u, **{what: getattr(u, what) + i * by}) for i, u in enumerate(flat)]
    assert soak.judge(growing, 3600) == [complaint]


def test_what_is_allowed(soak: ModuleType) -> None:
    warm = [soak.Usage(rss_kib=1024, threads=1, fds=1)] * 20
    busy = soak.Usage(rss_kib=100 << 10, threads=10, fds=10)
    more = replace(busy, rss_kib=busy.rss_kib + (20 << 10))  # 16 MiB and 5 %
    peak = replace(busy, fds=12)
    assert soak.judge([*warm, *[busy] * 19, peak, *[busy] * 20, *[more] * 20], 3600) == []
    far = replace(busy, rss_kib=busy.rss_kib + (22 << 10))
    late = [*warm, *[busy] * 40, *[far] * 20]
    assert soak.judge(late, 60) == []
    assert len(soak.judge(late, 3600)) == 1
    assert "too few" in soak.judge(warm[:3], 60)[0]


@pytest.mark.parametrize("worker", ["codec", "pipelines"])
def test_a_pixel_that_differs_is_seen(soak: ModuleType, tmp_path: Path, worker: str) -> None:
    """A source is changed behind the files that were made of it; of `codec`, its answer is."""
    imagecodecs = pytest.importorskip("imagecodecs")
    if worker == "pipelines":
        pytest.importorskip("nvidia.dali")
    workers = importlib.import_module("soak_workers")
    workers.make_images(tmp_path / "images", 1)
    code = "import soak_workers, l3dali; "
    if worker == "pipelines":
        for path in (tmp_path / "images" / "png").iterdir():
            pixels = imagecodecs.png_decode(path.read_bytes())
            pixels.flat[0] ^= 1
            path.write_bytes(imagecodecs.png_encode(pixels))
    else:
        code += "read = l3dali.imread; l3dali.imread = lambda p, **o: read(p, **o) ^ 1; "
    code += "soak_workers.main()"
    command = [sys.executable, "-c", code, worker, str(tmp_path / "images"), "--seconds", "60"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tools")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert "differs from the source" in done.stderr


def test_images_are_damaged(soak: ModuleType, tmp_path: Path) -> None:
    workers = importlib.import_module("soak_workers")
    workers.make_images(tmp_path / "images", 3)
    bad = workers.find_damaged(tmp_path / "images")
    assert len(bad) == workers.IMAGES * workers.DAMAGED_PERCENT // 100
    kinds = {
        (image.dtype, image.ndim) for image in workers.read_images(tmp_path / "images").values()
    }
    assert kinds == {(np.dtype(t), n) for t in (np.uint8, np.uint16) for n in (2, 3)}
