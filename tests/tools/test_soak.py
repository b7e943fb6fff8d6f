"""`make soak`: a run of seconds, and that it sees what it is to see."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("imagecodecs")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return importlib.import_module("soak")


@pytest.fixture
def scenario(soak: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """On few images."""
    monkeypatch.setattr(soak, "IMAGES", 20)
    soak.make_images(tmp_path / "images", np.random.default_rng(3))
    made = soak.Scenario(tmp_path / "images", 1)
    assert len(made.bad) == 20 * soak.DAMAGED_PERCENT // 100
    kinds = {(image.dtype, image.ndim > 2) for image in made.images.values()}
    assert kinds == {(np.dtype(t), True) for t in (np.uint8, np.uint16)} | {(np.dtype("u1"), False)}
    return made


@pytest.mark.dali
@pytest.mark.slow
def test_a_run_of_seconds(
    soak: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(soak, "IMAGES", 20)
    assert soak.main(["--hours", "0", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "soak.md").read_text()
    assert "Nothing grew, nothing differed." in page
    assert "processors, nice" in page
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")
    data = json.loads((tmp_path / "soak.json").read_text())
    assert data["made"]["commit"]
    assert len(data["rss_kib"]) >= soak.MIN_ROUNDS
    assert data["counts"].keys() > {
        *("codec: images", "codec: damaged", "pipelines: checkpoints", "pipelines: damaged"),
        *("conversions: files compared", "training: SIGKILL"),
    }


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


@pytest.mark.dali
@pytest.mark.parametrize("work", ["use_codec", "use_pipelines", "convert", "train"])
def test_what_differs_is_seen(
    soak: ModuleType, scenario: Any, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """Sources are changed behind what was made of them; and what was decoded or trained on."""
    if work == "use_codec":
        read = soak.l3dali.imread
        monkeypatch.setattr(soak.l3dali, "imread", lambda path, **how: read(path, **how) ^ 1)
    for image in scenario.images.values():
        image.flat[0] ^= 1
    scenario.digests[0] = ""
    with pytest.raises(AssertionError, match="differs"):
        getattr(scenario, work)()


def test_a_process_that_dies_is_seen(soak: ModuleType, tmp_path: Path) -> None:
    run = soak.Run(0)
    (complaint,) = run.watch(tmp_path, 1, lambda: None)  # without images
    assert complaint.startswith("the works ended with 1: FileNotFoundError")
