"""Profiles and plans with a GPU; it is emulated, so its times mean nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest

pytest.importorskip("scipy")

from cli_tools import image, write_png
from emulated_gpu import load_emulated

from l3dali import codec
from l3dali.cli import main
from l3dali.datasets.liquid import gpu as of_gpu
from l3dali.datasets.liquid import measure
from l3dali.datasets.liquid.gpu import Gpu, open_gpu
from l3dali.datasets.liquid.measure import measure_profile
from l3dali.datasets.liquid.profile import (
    Fits,
    Host,
    Linear,
    Profile,
    Sample,
    read_profile,
    without_gpu,
)
from l3dali.errors import L3Error

PLACES = {f"{coding}@{place}" for coding in codec.CODINGS for place in ("cpu", "mixed", "cache")}


@pytest.fixture(scope="module")
def emulated() -> Any:
    return load_emulated()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(measure, "_LONGEST_RUN", 0.05)
    monkeypatch.setattr(of_gpu, "_BATCHES", 2)
    monkeypatch.setattr(of_gpu, "DEFAULT_BATCH", 4)
    monkeypatch.setattr(of_gpu, "_UPLOAD_BYTES", 2**16)
    for i in range(2):
        write_png(tmp_path / "set" / f"{i}.png", image(i))
    write_png(tmp_path / "set" / "deep.png", image(9).astype(np.uint16) * 257)
    (tmp_path / "set" / "one.jpg").write_bytes(imagecodecs.jpeg8_encode(image(8), level=90))
    return tmp_path / "set"


@pytest.fixture
def with_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch, emulated: Any) -> Path:
    monkeypatch.setattr(measure, "open_gpu", lambda threads: Gpu(emulated, "Emulated 1", threads))
    return folder


def test_a_gpu_is_measured(with_gpu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = with_gpu.parent / "p.json"
    assert main(["profile", str(with_gpu), "-o", str(output)]) == 0
    shown = capsys.readouterr()
    assert "no GPU was measured" not in shown.err
    assert "images/s of the GPU" in shown.out
    assert "Emulated 1, 0.3 GB of it for a cache" in shown.out
    written = read_profile(output)
    assert written.host.gpu == "Emulated 1"
    assert written.host.gpu_cache == 2**28
    assert written.host.upload is not None
    assert written.host.upload > 0
    for sample in written.samples:
        assert sample.cpu_seconds.keys() >= PLACES
        assert sample.gpu_seconds.keys() == {f"{name}@mixed" for name in sample.sizes} - {
            "source@mixed"
        }
        assert all(seconds > 0 for seconds in sample.gpu_seconds.values())
    for fits in written.groups.values():
        assert fits.gpu_seconds.keys() == {f"{name}@mixed" for name in fits.sizes} - {
            "source@mixed"
        }
        assert fits.cpu_seconds.keys() >= PLACES


def test_what_is_measured_is_decoded(emulated: Any) -> None:
    gpu = Gpu(emulated, "")
    file = codec.encode(image(1))
    before = emulated.launches()
    times = gpu.measure(file, image(1).nbytes)
    # A fill, and for each place a batch that warms up before those that count.
    assert emulated.launches() - before == 1 + 2 * (1 + of_gpu._BATCHES)
    assert min(times.gpu_seconds, times.mixed_cpu_seconds, times.cached_cpu_seconds) > 0
    damaged = bytearray(file)
    damaged[-60] ^= 255
    with pytest.raises(L3Error):
        gpu.measure(bytes(damaged), image(1).nbytes)


def test_a_gpu_that_fails_is_a_note(with_gpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Gpu, file: bytes, raw_bytes: int) -> None:
        raise MemoryError("cudaMalloc failed")

    monkeypatch.setattr(Gpu, "measure", full)
    profile = measure_profile([str(with_gpu)], quiet=True)
    assert "1 image: rans of png rgb 16 on the GPU: cudaMalloc failed" in profile.notes
    assert not any(fits.gpu_seconds for fits in profile.groups.values())


def test_without_a_gpu_one_line_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(of_gpu, "gpu_name", lambda: "")
    assert main(["profile", str(folder), "-o", str(folder.parent / "p.json")]) == 0
    assert (
        "no GPU was measured (there is none): plans from this profile decode on the CPU"
        in capsys.readouterr().err
    )


def test_a_gpu_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("CUDA driver version is insufficient")

    monkeypatch.setattr(of_gpu, "gpu_name", lambda: "a GPU")
    monkeypatch.setattr(of_gpu, "Gpu", broken)
    with pytest.raises(LookupError, match=r"it cannot be used: CUDA driver|without its CUDA"):
        open_gpu(1)


# Plans.


def made_up_profile(**host: Any) -> Profile:
    """A thousand photographs; a host whose GPU decodes L3 far faster than its two cores."""
    sizes = {"source": 640_000, "rans": 520_000, "packed": 660_000}
    cpu = {
        "source@cpu": 15e-3,
        "rans@cpu": 3.7e-3,
        "packed@cpu": 5e-4,
        "rans@mixed": 1e-4,
        "packed@mixed": 1e-4,
        "rans@cache": 2e-5,
        "packed@cache": 2e-5,
    }
    gpu = {"rans@mixed": 4e-5, "packed@mixed": 2e-5}
    sample = Sample("0.png", "png rgb 8", 640_000, 562_113, 1_686_339, 1000, sizes, cpu, gpu)
    fits = Fits(
        1000,
        640_000_000,
        {name: Linear(base=size) for name, size in sizes.items()},
        {key: Linear(base=seconds) for key, seconds in cpu.items()},
        {key: Linear(base=seconds) for key, seconds in gpu.items()},
    )
    there = Host(cores=2, **{"disk": 400e6, "upload": 25e9, "gpu": "GPU", **host})
    return Profile(["set"], 1000, there, {"png rgb 8": fits}, [sample])


def plan(tmp_path: Path, profile: Profile, *arguments: str) -> dict[str, Any]:
    (tmp_path / "p.json").write_text(profile.to_json())
    output = tmp_path / "plan.json"
    command = ["plan", str(tmp_path / "p.json"), "-o", str(output), "--overwrite", *arguments]
    assert main(command) == 0
    return dict(json.loads(output.read_text()))


def test_a_plan_decodes_on_the_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(tmp_path, made_up_profile())
    assert found["predicted"]["shares"].keys() == {"rans@mixed"}
    # The disk binds, with the smallest files.
    assert found["predicted"]["rate"] == pytest.approx(400e6 / 520_000, rel=1e-3)
    said = capsys.readouterr().out
    assert 'decode them by: fn.l3.decode(encoded, device="mixed")\n' in said


def test_a_plan_uses_the_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(tmp_path, made_up_profile(gpu_cache=260e6))  # room for half of the set
    shares = found["predicted"]["shares"]
    assert shares["rans@cache"] == pytest.approx(0.5, abs=0.01)
    assert found["predicted"]["rate"] == pytest.approx(2 * 400e6 / 520_000, rel=0.01)
    assert found["predicted"]["first_rate"] == pytest.approx(400e6 / 520_000, rel=0.01)
    said = capsys.readouterr().out
    wanted = 'fn.l3.decode(encoded, device="mixed", cache_size=248, skip_cached_images=True)\n'
    assert f"decode them by: {wanted}" in said
    assert "read them by: fn.readers.file(files=paths, skip_cached_images=True)" in said


def test_a_plan_for_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = made_up_profile(gpu_cache=260e6, upload=1e8)
    found = plan(tmp_path, profile, "--device", "cpu")
    assert {key.partition("@")[2] for key in found["predicted"]["shares"]} == {"cpu"}
    assert "upload" not in found["predicted"]["binding"]
    assert "decode them by" not in capsys.readouterr().out
    assert without_gpu(profile).host == Host(cores=2, disk=400e6)
