"""Profiles and plans with a GPU; it is emulated, and its times are nobody's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

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
    parse_profile,
    read_profile,
    without_gpu,
)
from l3dali.datasets.liquid.step import Step
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
        assert sample.gpu_seconds.keys() == {f"{coding}@mixed" for coding in codec.CODINGS}
        assert all(seconds > 0 for seconds in sample.gpu_seconds.values())
    for fits in written.groups.values():
        assert fits.gpu_seconds.keys() == {f"{coding}@mixed" for coding in codec.CODINGS}
        assert fits.cpu_seconds.keys() >= PLACES


def test_what_is_measured_is_decoded(emulated: Any) -> None:
    gpu = Gpu(emulated, "")
    file = codec.encode(image(1))
    before = emulated.launches()
    times = gpu.measure(file, image(1).nbytes)
    # A fill, and for each place a batch that warms up before those that count.
    assert emulated.launches() - before == 1 + 2 * (1 + of_gpu._BATCHES)
    assert min(times.gpu_seconds, times.mixed_cpu_seconds, times.cached_cpu_seconds) > 0
    decode, count = gpu.decoder([file] * 3)
    decode()
    assert count == 6
    damaged = bytearray(file)
    damaged[-60] ^= 255
    with pytest.raises(L3Error):
        gpu.measure(bytes(damaged), image(1).nbytes)


def test_batches_of_large_images_are_smaller(
    emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu(emulated, "")
    sizes = []
    batch_of = gpu._batch

    def counted(files: list[bytes]) -> Any:
        sizes.append(len(files))
        return batch_of(files)

    monkeypatch.setattr(gpu, "_batch", counted)
    monkeypatch.setattr(of_gpu, "_BATCHES", 1)
    monkeypatch.setattr(of_gpu, "_MOST_BYTES", 3 * image(1).nbytes)
    for raw_bytes in (image(1).nbytes, 10**9):
        gpu.measure(codec.encode(image(1)), raw_bytes)
    assert sizes == [3, 1]


def test_a_gpu_that_fails_is_told_of(with_gpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Gpu, file: bytes, raw_bytes: int) -> None:
        raise MemoryError("cudaMalloc failed")

    monkeypatch.setattr(Gpu, "measure", full)
    profile = measure_profile([str(with_gpu)], quiet=True)
    assert "rans of png rgb 16 on the GPU: cudaMalloc failed" in profile.notes
    assert not any(fits.gpu_seconds for fits in profile.groups.values())


def test_what_is_given_of_a_gpu(with_gpu: Path) -> None:
    given = measure.Given(upload=5e9, gpu_cache=0)
    host = measure_profile([str(with_gpu)], given=given, quiet=True).host
    assert (host.upload, host.gpu_cache) == (5e9, None)


def test_without_a_gpu_one_line_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(of_gpu, "has_gpu", lambda: False)
    assert main(["profile", str(folder), "-o", str(folder.parent / "p.json")]) == 0
    assert (
        "no GPU was measured (there is none): plans from this profile decode on the CPU"
        in capsys.readouterr().err
    )


def test_a_gpu_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("CUDA driver version is insufficient")

    monkeypatch.setattr(of_gpu, "has_gpu", lambda: True)
    monkeypatch.setattr(of_gpu, "Gpu", broken)
    with pytest.raises(LookupError, match=r"it cannot be used: CUDA driver|without its CUDA"):
        open_gpu(1)


# The training step.

STEP = """
from __future__ import annotations

import time
from dataclasses import dataclass
import beside

@dataclass
class Settings:
    seconds: float = 0.002

def step():
    time.sleep(Settings().seconds)

def broken():
    raise ValueError("no data")
"""


@pytest.fixture
def program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = folder.parent / "train.py"
    path.write_text(STEP)
    (folder.parent / "beside.py").write_text("")
    monkeypatch.setattr(Step.__init__, "__defaults__", (0.1,))  # seconds
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    __import__("sys").modules.pop("train", None)
    return path


def test_a_step_is_measured_beside_the_gpu(
    with_gpu: Path, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = with_gpu.parent / "p.json"
    step = ["--step", f"{program}:step", "--step-images", "32"]
    assert main(["profile", str(with_gpu), "-o", str(output), *step]) == 0
    training = read_profile(output).training
    assert training is not None
    assert 0 < training.samples_per_second < 16_000
    # The step sleeps, so decoding beside it costs it nothing but turns with Python's lock.
    assert training.gpu_share > 0
    assert "of the GPU's time it leaves" in " ".join(capsys.readouterr().out.split())


def test_a_step_without_a_gpu(folder: Path, program: Path) -> None:
    output = folder.parent / "p.json"
    step = ["--step", f"{program}:step", "--step-images", "32"]
    assert main(["profile", str(folder), "-o", str(output), *step]) == 0
    training = read_profile(output).training
    assert training is not None
    assert training.gpu_share == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step", "{}:step"], "go together"),
        (["--step-images", "3"], "go together"),
        (["--step", "{}:step", "--step-images", "3", "--train-rate", "9"], "give one of them"),
        (["--step", "{}", "--step-images", "3"], "is no FILE.py:NAME"),
        (["--step", "nowhere.py:step", "--step-images", "3"], "is no FILE.py:NAME"),
        (["--step", "{}:missing", "--step-images", "3"], "has no function 'missing'"),
        (["--step", "{}:broken", "--step-images", "3"], "ValueError: no data"),
        (["--gpu-cache", "much"], "no size"),
    ],
)
def test_steps_that_cannot_be(
    folder: Path,
    program: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    output = folder.parent / "p.json"
    given = [each.format(program) for each in arguments]
    assert main(["profile", str(folder), "-o", str(output), *given]) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


def test_a_program_that_cannot_be_read(
    folder: Path, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program.write_text("import no_such_module")
    step = ["--step", f"{program}:step", "--step-images", "3"]
    assert main(["profile", str(folder), "-o", str(folder.parent / "p.json"), *step]) == 2
    assert "ModuleNotFoundError" in capsys.readouterr().err


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
    sample = Sample("0.png", "png rgb 8", 640_000, 562_113, 1_686_339, 1000, sizes, cpu, gpu, {})
    fits = Fits(
        1000,
        640_000_000,
        {name: Linear(base=size) for name, size in sizes.items()},
        {key: Linear(base=seconds) for key, seconds in cpu.items()},
        {key: Linear(base=seconds) for key, seconds in gpu.items()},
    )
    there = Host(cores=2, **{"disk": 400e6, "upload": 25e9, "gpu": "GPU", **host})
    return Profile(["set"], "", 1000, there, {"png rgb 8": fits}, [sample])


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
    assert "caution" not in said


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


def test_a_mix_reads_what_is_cached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Originals of a few bytes stay, and the others are in the cache."""
    profile = made_up_profile(gpu_cache=1e9)
    small = replace(profile.samples[0], name="1.png", group="jpeg 3", sizes={"source": 64_000})
    profile = replace(
        profile,
        groups={
            **profile.groups,
            "jpeg 3": replace(
                profile.groups["png rgb 8"],
                sizes={"source": Linear(base=64_000)},
                cpu_seconds={"source@cpu": Linear(base=15e-3)},
                gpu_seconds={},
            ),
        },
        samples=[
            *profile.samples,
            replace(small, cpu_seconds={"source@cpu": 15e-3}, gpu_seconds={}, weight=1),
        ],
    )
    shares = plan(tmp_path, profile)["predicted"]["shares"]
    assert shares.keys() == {"packed@cache", "source@cpu"}
    said = capsys.readouterr().out
    assert 'l3dali.pipeline.decode(encoded, device="mixed", cache_size=954)' in said
    assert "--gpu-cache 0 predicts what is" in said


def test_cores_take_load_off_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = made_up_profile(disk=None)
    slow = {"packed@mixed": Linear(base=1e-3), "rans@mixed": Linear(base=2e-3)}
    profile = replace(
        profile,
        groups={"png rgb 8": replace(profile.groups["png rgb 8"], gpu_seconds=slow)},
        samples=[replace(profile.samples[0], gpu_seconds={k: f.base for k, f in slow.items()})],
    )
    shares = plan(tmp_path, profile)["predicted"]["shares"]
    assert shares.keys() == {"packed@mixed", "packed@cpu"}
    # Cores are busy with x 0.5 ms + (1 - x) 0.1 ms over two, the GPU with (1 - x) 1 ms.
    assert shares["packed@cpu"] == pytest.approx(0.95 / 1.2, abs=0.01)
    assert "cpu_share=0.79" in " ".join(capsys.readouterr().out.split())


def test_a_plan_for_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = made_up_profile(gpu_cache=260e6, upload=1e8)
    found = plan(tmp_path, profile, "--device", "cpu")
    assert {key.partition("@")[2] for key in found["predicted"]["shares"]} == {"cpu"}
    assert "upload" not in found["predicted"]["binding"]
    assert "decode them by" not in capsys.readouterr().out
    assert without_gpu(profile).host == Host(cores=2, disk=400e6)
    assert parse_profile(without_gpu(profile).to_json()) == without_gpu(profile)


def test_a_plan_for_a_gpu_that_was_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.json").write_text(without_gpu(made_up_profile()).to_json())
    command = ["plan", str(tmp_path / "p.json"), "-o", str(tmp_path / "plan.json")]
    assert main([*command, "--device", "mixed"]) == 2
    assert "no GPU was measured; profile on a host that has one" in capsys.readouterr().err
