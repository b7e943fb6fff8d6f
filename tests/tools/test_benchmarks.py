"""The benchmarks' own parts: the paper's layout, reports, arguments, and what a bare host sees."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import l3dali
import l3dali.cli
from l3dali.driver import has_gpu

if not hasattr(pytest.importorskip("imagecodecs"), "htj2k_encode"):  # for Python 3.10
    pytest.skip("imagecodecs lacks HTJ2K, a peer", allow_module_level=True)

ROOT = Path(__file__).parents[2]
PROGRAMS = ("kernels", "paper_layout", "nvcomp")


def _program(name: str) -> Path:
    """A benchmark of the build in use; those of a GPU are there with the CUDA engine."""
    path = Path(os.environ.get("L3_TESTING_LIBRARY", ROOT / "build/release/x")).parent / name
    if not path.exists():
        pytest.skip(f"{path.name} is not built")
    return path


def _run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [_program(f"l3_bench_{name}"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, Any], Path]:
    """Writes an image of random or given samples as .l3."""

    def write_l3(name: str, image: Any) -> Path:
        path = tmp_path / f"{name}.l3"
        path.write_bytes(l3dali.encode(np.asarray(image), coding="packed"))
        return path

    return write_l3


def benchmarks(name: str) -> Any:
    """A module; some need DALI, or packages that are not everywhere."""
    return importlib.import_module(f"benchmarks.{name}")


RANDOM = np.random.default_rng(7)
IMAGES = {
    "one_pixel": RANDOM.integers(0, 256, (1, 1, 3)),
    "noise": RANDOM.integers(0, 256, (130, 67, 3)),
    "edges_of_patches": RANDOM.integers(100, 140, (65, 129, 4)),
    "gray": np.add.outer(np.arange(200), np.arange(63)) % 256,
    "constant": np.full((64, 64, 2), 200),
    "extremes": RANDOM.choice([0, 255], (70, 70, 3)),
}


@pytest.mark.dali
@pytest.mark.parametrize("name", IMAGES)
def test_paper_layout_is_lossless(name: str, write: Callable[[str, Any], Path]) -> None:
    done = _run("paper_layout", "--host-only", write(name, IMAGES[name].astype(np.uint8)))
    assert done.stderr == ""
    assert f"{name}.l3: exact on the host" in done.stdout


@pytest.mark.dali
@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_says_that_there_is_no_gpu(name: str, write: Callable[[str, Any], Path]) -> None:
    done = _run(name, write("image", np.zeros((9, 9, 3), np.uint8)))
    assert done.returncode == 2
    assert "no usable GPU, so nothing was timed" in done.stderr


@pytest.mark.dali
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "usage: "),
        (["--batch", "1,0", "a.l3"], "'0' is no positive number"),
        (["--batch", "1,", "a.l3"], "'' is no positive number"),
        (["--repeat", "-3", "a.l3"], "'-3' is no positive number"),
        (["--json"], "--json needs a value"),
        (["--cache", "l2", "a.l3"], "unknown cache l2"),
        (["--fast", "a.l3"], "unknown option --fast"),
        (["missing.l3"], "cannot read missing.l3"),
        ([str(ROOT / "README.md")], "kBadMagic"),
    ],
)
def test_program_refuses(name: str, arguments: list[str], complaint: str) -> None:
    done = _run(name, *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr


def _row(codec: str, **changes: Any) -> dict[str, Any]:
    row = {"codec": codec, "file": "photo.packed.l3", "batch": 32, "pixel_gb_s": 500.0}
    row |= {"encoded_bytes": 1000, "pixel_bytes": 2000, "median_us": 4.0, "min_us": 3.5}
    return row | changes


PIPELINE_ROW: dict[str, Any] = {
    "set": "photo/large",
    "format": "L3 rans",
    "threads": 16,
    "batch": 32,
    "images_per_s": 10000.0,
    "times_png": 30.0,
    "cpu_s_per_1000": 0.2,
    "gpu_ms_per_image": None,
    "encoded_bytes": 2e6,
    "pixel_bytes": 6e6,
}


def test_summary_of_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed = {"images": 8, "copies": 32, "median_us": 90.0, "pixel_gb_s": 700.0}
    mixed |= {"alone_us": 95.0, "alone_gb_s": 660.0}
    kernels = {"device_copy_gb_s": 2000.0, "host_to_device_gb_s": 50.0, "mixed": [mixed]}
    kernels |= {
        "rows": [_row("L3 rans", batch=32, width=2048, height=1024, channels=3, sample_bits=8)]
    }
    kernels |= {"failed": [{"what": "photo, batch 256", "reason": "out of memory"}]}
    host = {"gpu": "NVIDIA Test", "driver": "580", "date": "2026-01-01"}
    crops = PIPELINE_ROW | {"task": "crops of 512x512"}  # no target speaks of them
    for name, content in {
        "host": host,
        "kernels": kernels,
        "paper_layout": {"rows": [_row("paper's layout, a batch", pixel_gb_s=80.0)]},
        "pipeline_mixed": {"left_out": ["HTJ2K (no), on x"], "rows": [PIPELINE_ROW, crops]},
        "training": {"rows": [], "gains": [["resnet50, PNG -6", "58", "1.71", "5.0", "1.7", "-"]]},
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))

    benchmarks("gpu.summary").summarise(tmp_path)
    page = (tmp_path / "kernels.md").read_text()
    assert "NVIDIA Test, driver 580, 2026-01-01" in page
    assert "| L3 rans | photo | 32 | 2.00 | 500.0 | 4.0 | 19 |" in page
    assert page.index("L3 rans") < page.index("paper's layout")
    assert "| 8 | 32 | 90.0 | 700.0 | 95.0 | 660.0 |" in page
    assert (tmp_path / "kernels.png").stat().st_size > 0
    assert "paper's layout" in capsys.readouterr().out

    summary = (tmp_path / "summary.md").read_text()
    target = (
        "| kernel, rans, RGB8 2048x1024, batch 32 | photo | >= 320 GB/s of pixels | 500 | met |"
    )
    assert target in summary
    assert "| - | < 150 us | - | not measured |" in summary
    assert "| >= 80 % of upload | 40 | NOT MET |" in summary
    assert "ahead of 1 of 1 rows" in summary
    assert "| resnet50, PNG -6 | 58 | 1.71 | 5.0 | 1.7 | - |" in summary
    assert summary.endswith(
        "## Not measured\n\n* kernels: photo, batch 256: out of memory\n* nvcomp\n"
        "* pipeline_mixed: HTJ2K (no), on x\n* training\n"
    )
    data = json.loads((tmp_path / "summary.json").read_text())
    assert data["host"] == host
    assert [t["met"] for t in data["targets"]].count(True) == 3  # x PNG and cores too
    assert data["peers"][0]["outcome"] == "ahead"
    assert len(data["pipelines"]) == 1
    assert data["pipelines"][0]["cpu_s_per_encoded_gb"] == pytest.approx(0.1)
    assert data["mixed"] == [mixed]


@pytest.mark.dali
def test_pipeline_runs_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imagecodecs = pytest.importorskip("imagecodecs")
    monkeypatch.setenv("OPENCV_LOG_LEVEL", "ERROR")
    (tmp_path / "few").mkdir()
    image = np.add.outer(np.arange(512), np.arange(600))[..., None] + np.array([0, 40, 90])
    (tmp_path / "few" / "a.png").write_bytes(imagecodecs.png_encode(image.astype(np.uint8)))
    once = "--device cpu --threads 1 --batch 2 --rounds 1 --seconds 0 --files 2"
    arguments = ["--data", str(tmp_path), "--sets", "few", "--out", str(tmp_path), *once.split()]
    benchmarks("pipeline").main(arguments)
    rows = json.loads((tmp_path / "pipeline_cpu.json").read_text())["rows"]
    page = (tmp_path / "pipeline_cpu.md").read_text()
    assert [row["format"] for row in rows] == [
        *("PNG -6", "L3 packed", "L3 rans", "HTJ2K", "JPEG 2000", "JPEG 95", "raw (numpy)")
    ] * 2
    assert [row["task"] for row in rows] == ["whole images"] * 7 + ["crops of 512x512"] * 7
    assert "Not measured" not in page
    assert "JPEG 95 (lossy)" in page
    assert rows[0]["times_png"] == 1
    assert (tmp_path / "pipeline_cpu.png").stat().st_size > 0


@pytest.mark.dali
def test_crops_are_the_same_of_every_lossless_format(tmp_path: Path) -> None:
    pipeline = benchmarks("pipeline")
    image = RANDOM.integers(0, 256, (700, 900, 3)).astype(np.uint8)
    crops = {}
    for fmt in pipeline.formats("cpu"):
        if not fmt.lossless or fmt.name == "JPEG 2000":
            continue
        folder = tmp_path / fmt.name.replace(" ", "_")
        files = pipeline.write_files([fmt.encode(image)], 4, folder)
        pipe = pipeline.dali.Pipeline(4, 1, None)
        with pipe:
            pipe.set_outputs(fmt.load_crops(files, "cpu"))
        crops[fmt.name] = np.asarray(pipe.run()[0].as_tensor()).astype(np.float32)
    assert crops["PNG -6"].shape == (4, 3, 512, 512)
    assert not np.array_equal(crops["PNG -6"][0], crops["PNG -6"][1])
    for name, of_format in crops.items():
        # Halves are rounded in two ways.
        np.testing.assert_allclose(
            of_format, crops["PNG -6"], rtol=2**-9, atol=2**-10, err_msg=name
        )


@pytest.mark.dali
def test_format_that_loses_pixels_is_left_out(tmp_path: Path) -> None:
    pipeline = benchmarks("pipeline")
    png, jpeg = (f for f in pipeline.formats("cpu") if f.name in ("PNG -6", "JPEG 95"))
    image = RANDOM.integers(0, 256, (40, 30, 3)).astype(np.uint8)
    files = pipeline.write_files([jpeg.encode(image)], 1, tmp_path / "jpeg")
    assert pipeline.why_not(png, files, image, "cpu") == "does not give back the pixels"
    assert pipeline.why_not(jpeg, files, image, "cpu") == ""
    broken = pipeline.write_files([b"no image"], 1, tmp_path / "broken")
    assert pipeline.why_not(png, broken, image, "cpu") != ""


KERNEL_MODULE = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (a@b)
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)
"""


@pytest.fixture
def gpu_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    tool: Any = importlib.import_module("gpu")
    monkeypatch.setattr(tool, "_GATHERED", tmp_path / "new")
    (tmp_path / "new").mkdir()
    return tool


def test_run_ends_with_what_nobody_shall_overlook(
    gpu_tool: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def python(code: str) -> list[str]:
        return [sys.executable, "-c", code]

    step = gpu_tool.Step
    rows = python(f"open({str(tmp_path / 'new/kernels.json')!r}, 'w').write('{{\"rows\": [1]}}')")
    steps = [
        step("kernels", "benchmarks", rows),
        step("tests", "tests", python(""), ["no_such_module"]),
        step("pipeline", "benchmarks", python("raise SystemExit('no GPU')")),
    ]
    monkeypatch.setattr(gpu_tool, "_RESULTS", tmp_path / "results")
    monkeypatch.setattr(gpu_tool, "_steps", lambda *_: steps)
    monkeypatch.setattr(gpu_tool, "describe_gpu", lambda: ("NVIDIA T4", "535"))
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--data", str(tmp_path)])
    monkeypatch.chdir(tmp_path)  # where the summary has no script, and so fails
    assert gpu_tool.main() == 1
    alarms = capsys.readouterr().out.split("\n\n")[-1].splitlines()
    assert alarms[:2] == [
        "!! NOT RUN: tests: Python lacks no_such_module",
        "!! FAILED: pipeline: no GPU",
    ]
    assert alarms[2].startswith("!! FAILED: summary: ")
    assert alarms[3].endswith("no image that can be read: a noisy gradient is timed instead")
    published = tmp_path / "results/nvidia_t4"
    assert {path.name for path in published.iterdir()} == {"host.json", "kernels.json"}

    monkeypatch.setattr(sys, "argv", ["gpu.py", "--data", str(tmp_path), "--only", "tests"])
    assert gpu_tool.main() == 1  # a test that cannot run is no pass
    steps[1] = step("tests", "tests", python(""))
    assert gpu_tool.main() == 0


def test_every_step_fits_a_command_of_ten_minutes(gpu_tool: Any, tmp_path: Path) -> None:
    assert all(step.limit_s < 600 for step in gpu_tool._steps(tmp_path, tmp_path, []))


def test_digests_of_the_gpu_are_those_of_the_ptx_machine(
    gpu_tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated, measured = tmp_path / "simulated.txt", tmp_path / "digests.txt"
    monkeypatch.setattr(gpu_tool, "_SIMULATED", simulated)
    rows = [f"{i:016x} all, whole, window 0, tests/a {i}.l3\n" for i in range(30)]
    simulated.write_text("".join(rows))
    steps = gpu_tool._steps(tmp_path, tmp_path, [])
    (step,) = (step for step in steps if step.name == "digests")
    altered = [*rows[:-1], rows[-1].replace("1d", "1e", 1)]
    for content, outcome, last_line in (
        (rows, "passed", "30 and 30 digests, 0 differences"),
        (altered, "FAILED", "30 and 30 digests, 1 differences"),
        (rows[1:], "FAILED", "29 and 30 digests, 1 differences"),
        ([*rows, rows[0]], "FAILED", "31: no digest, or one more of the same: 0000000000000000"),
        ([*rows, "0000"], "FAILED", "31: no digest, or one more of the same: 0000"),
        ([], "FAILED", "empty: the program that writes it was cut off"),
    ):
        measured.write_text("".join(content))
        result = gpu_tool._run(step)
        assert (result.outcome, result.is_error) == (outcome, outcome != "passed")
        assert last_line in result.last_line
    measured.unlink()
    assert "has not run" in gpu_tool._run(step).last_line


def test_steps_one_by_one_keep_results(gpu_tool: Any, tmp_path: Path) -> None:
    folder = tmp_path / "gathered"
    gpu_tool._begin_results(folder, ("NVIDIA H200", "580"))
    (folder / "kernels.json").touch()
    gpu_tool._begin_results(folder, ("NVIDIA H200", "580"), goes_on=True)
    assert (folder / "kernels.json").exists()
    gpu_tool._begin_results(folder, ("NVIDIA T4", "580"), goes_on=True)  # another GPU's
    assert not (folder / "kernels.json").exists()


@pytest.mark.dali
@pytest.mark.torch
@pytest.mark.slow
def test_training_runs_its_first_steps_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    training = benchmarks("gpu.training")
    tiny = f"--data {tmp_path} --device cpu --tiny --files {tmp_path}/files --out {tmp_path}"
    tiny += " --warm 0 --seconds 0 --paced 0 --cores 1"
    arguments = [*tiny.split(), "--models", "lraspp_mobilenet_v3_large", "--inputs"]
    training.main([*arguments, "L3 rans"])
    assert "1 cores, L3 rans: " in capsys.readouterr().out
    training.main([*arguments, "L3 rans", "WebP lossless"])
    out = capsys.readouterr().out
    assert "WebP lossless: " in out
    assert "L3 rans: " not in out  # is known
    content = json.loads((tmp_path / "training.json").read_text())
    inputs = [row["input"] for row in content["rows"]]
    assert inputs == ["resident batch", "L3 rans", "WebP lossless"]
    assert all(row["images_per_s"] > 0 for row in content["rows"])
    assert content["left_out"] == []
    page = (tmp_path / "training.md").read_text()
    assert "cut from a noisy gradient" in page
    assert (tmp_path / "training.png").stat().st_size > 0

    monkeypatch.setattr(training.importlib.util, "find_spec", lambda name: None)
    training.main([*tiny.split(), "--models", "SegFormer-B0"])
    assert (
        "Not measured: SegFormer-B0 (Python lacks transformers)"
        in (tmp_path / "training.md").read_text()
    )


# The cases of benchmarks.cpu.


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """A small one in each set that cases read."""
    imagecodecs = pytest.importorskip("imagecodecs")
    ramp = np.add.outer(np.arange(300), np.arange(400))[..., None] // 3 + np.array([0, 9, 4])
    for name, shape in (("kodak", np.s_[:60, :80]), ("large", np.s_[:, :])):
        (tmp_path / "data/photo" / name).mkdir(parents=True)
        png = imagecodecs.png_encode(ramp[shape].astype(np.uint8))
        (tmp_path / "data/photo" / name / "a.png").write_bytes(png)
    return tmp_path / "data"


@pytest.fixture
def run_case(photographs: Path, tmp_path: Path) -> Callable[[str], Any]:
    """Runs a case with options; returns what its JSON has."""

    def run(command: str) -> Any:
        case, *options = command.split()
        paths = ["--data", str(photographs), "--out", str(tmp_path)]
        benchmarks("cpu.__main__").main([case, *paths, *options])
        page = (tmp_path / f"{case}.md").read_text()
        assert page.startswith("# ")
        assert " cores, load " in page
        return json.loads((tmp_path / f"{case}.json").read_text())

    return run


def test_size_keeps_peers(run_case: Callable[[str], Any], tmp_path: Path) -> None:
    before = run_case("size --sets photo/kodak mask")
    assert before.keys() == {"made", "load", "photo/kodak"}  # there is no mask
    total = before["photo/kodak"]
    assert (total["images"], total["pixels"], total["raw"]) == (1, 60 * 80, 60 * 80 * 3)
    assert total.keys() > {"L3 packed", "L3 rans", "PNG -6", "WebP", "JXL e7"}
    after = run_case("size --sets photo/kodak --keep-peers")
    assert after["photo/kodak"] == total
    assert after["peers_made"] == before["made"]
    assert "Bytes of codecs other than L3 are of" in (tmp_path / "size.md").read_text()


@pytest.mark.parametrize(
    ("command", "module", "smaller", "keys"),
    [
        ("speed --sets photo/kodak --rounds 1", "codecs", {}, {"photo/kodak", "two cores"}),
        ("effort --sets photo/kodak --rounds 1", "codecs", {"EFFORTS": (1, 5)}, {"photo/kodak"}),
        (
            "memory",
            "memory",
            {"SQUARE": "900x900x3", "NARROW": (), "THREADS": (2,)},
            {"decode", "shapes"},
        ),
        pytest.param(
            "roi --rounds 1",
            "dali_windows",
            dict.fromkeys(("BATCH", "PEEK_BATCH", "WARM_UP"), 1),
            {"crop", "random_crop", "peek_us"},
            marks=pytest.mark.dali,
        ),
    ],
)
def test_case(
    run_case: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    module: str,
    smaller: dict[str, Any],
    keys: set[str],
) -> None:
    for name, value in smaller.items():
        monkeypatch.setattr(benchmarks(f"cpu.{module}"), name, value)
    found = run_case(command)
    assert found.keys() == {"made", "load", *keys}
    for results in (found[key] for key in keys):
        assert results
        assert "nan" not in json.dumps(results).lower()


@pytest.mark.torch
def test_loaders(run_case: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchvision")
    monkeypatch.setattr(benchmarks("cpu.loaders"), "L3_CODINGS", ("packed",))
    found = run_case("loaders --sets photo/large --rounds 1 --files 4 --batch 2")
    assert len(found.keys() - {"made", "load"}) == 2  # tasks
    for task in ("whole images", "crops of 512x512"):
        rows = found[f"photo/large, {task}"]
        assert rows.keys() >= {"PNG, torchvision", "L3 packed, l3dali.torch", "L3 packed, Pillow"}
        assert rows["PNG, torchvision"]["times_png"] == 1
        assert all(row["cpu_ms"] > 0 for row in rows.values())


def convert_here(source: Path, target: Path, *options: str) -> Any:
    """`l3 convert` in this process; the cost is made up."""
    arguments = ["convert", str(source), str(target), "--jobs", "1", *options]
    assert l3dali.cli.main(arguments) == 0
    seconds = 9.0 if source.name == "photographs" else 2.0
    return benchmarks("cpu.convert").Cost(seconds, seconds, 50 << 10)


def test_converter(
    run_case: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("skimage")
    module = benchmarks("cpu.convert")
    assert len(module.photographs(tmp_path)) == 4  # scikit-image's
    monkeypatch.setattr(module, "LARGE", ())
    monkeypatch.setattr(module, "CORES", 1)
    monkeypatch.setattr(module, "run_convert", convert_here)
    monkeypatch.setattr(module, "MODES", (("rans", 5),))
    data = run_case("convert --rounds 1 --copies 2 --small 4 --shards 5")
    assert [row["verify"] for row in data["throughput"]] == [True, False]
    assert data["photographs"] == 2
    for row in data["throughput"]:
        assert ("compare" in row) == row["verify"]
        assert row["start_cpu"] > 0
        assert 0 < row["bound"] < 1
    assert [row["image_mib"] * 2**20 for row in data["memory"]] == [60 * 80 * 3, 0]
    assert all(row["peak_mib"] == 50 for row in data["memory"])
    assert (data["small"]["images"], data["resume"]["shards"]) == (4, 5)
    assert "ray" not in data
    page = (tmp_path / "convert.md").read_text()
    assert "a second run over 5 finished shards" in page
    assert "2 workers" not in page


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("", "cases: size, speed, "),
        ("speeds", "no case speeds; cases: size"),
        ("size", "required: --data"),
        ("size --data nowhere", "nowhere: no such folder"),
        ("memory --rounds 3", "unrecognized arguments: --rounds 3"),
        ("memory size --data . --rounds 3", "unrecognized arguments: --rounds 3"),
    ],
)
def test_runner_refuses(capsys: pytest.CaptureFixture[str], arguments: str, complaint: str) -> None:
    pytest.importorskip("imagecodecs")
    with pytest.raises(SystemExit) as stop:
        benchmarks("cpu.__main__").main(arguments.split())
    assert complaint in f"{stop.value} {capsys.readouterr().err}"
