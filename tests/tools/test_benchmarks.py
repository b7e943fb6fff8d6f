"""The benchmarks' own parts: the paper's layout, reports, arguments, and what a bare host sees."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import l3dali
import l3dali.cli
from l3dali.dali.driver import has_gpu

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
def test_paper_layout_has_its_size(write: Callable[[str, Any], Path]) -> None:
    # 13 bytes and 3 x 16 bits; then 12 bits, padded to 2 bytes, for each row of a channel.
    done = _run("paper_layout", "--host-only", write("flat", np.zeros((64, 64, 3), np.uint8)))
    assert f"{8 * (13 + 6 + 3 * 64 * 2) / 64**2:.3f} bits a pixel" in done.stdout


@pytest.mark.dali
def test_paper_layout_passes_over_16_bits(write: Callable[[str, Any], Path]) -> None:
    done = _run("paper_layout", "--host-only", write("deep", np.zeros((9, 9), np.uint16)))
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.dali
def test_rows_are_named_by_mode(write: Callable[[str, Any], Path]) -> None:
    # No tile of it is a rans tile, as in label maps of rans mode.
    names = ("map.rans", "map.packed", ".rans", "rans")
    files = [write(name, np.zeros((9, 9, 3), np.uint8)) for name in names]
    done = _run("kernels", "--host-only", *files)
    assert done.stdout.splitlines() == [
        *("L3 rans: map.rans.l3", "L3 packed: map.packed.l3", "L3: .rans.l3", "L3: rans.l3")
    ]


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


def test_ceilings() -> None:
    ceilings = benchmarks("gpu.summary").Ceilings(device_copy=2000, host_to_device=50)
    # 4000 GB/s read or written, of which two thirds are pixels; 50 GB/s that double.
    assert ceilings.memory_bound(2) == pytest.approx(4000 * 2 / 3)
    assert ceilings.upload_bound(2) == 100


def test_usual_rows() -> None:
    large = [_row("a", batch=batch, pixel_bytes=90 * batch) for batch in (1, 8, 256)]
    small = _row("b", file="icon.packed.l3", batch=256, pixel_bytes=50 * 256)
    assert benchmarks("gpu.summary").usual([small, *large]) == [large[1]]


def test_summary_of_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed = {"images": 8, "copies": 32, "median_us": 90.0, "pixel_gb_s": 700.0}
    mixed |= {"alone_us": 95.0, "alone_gb_s": 660.0}
    kernels = {"device_copy_gb_s": 2000.0, "host_to_device_gb_s": 50.0, "mixed": [mixed]}
    kernels |= {"rows": [_large("L3 rans", 32)]}
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


def test_summary_needs_no_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host = {"gpu": "NVIDIA Test", "driver": "580", "date": "2026-01-01"}
    kernels = {"device_copy_gb_s": 2000.0, "host_to_device_gb_s": 50.0}
    (tmp_path / "host.json").write_text(json.dumps(host))
    (tmp_path / "kernels.json").write_text(json.dumps(kernels | {"rows": [_large("L3 rans", 1)]}))
    summary = benchmarks("gpu.summary")
    monkeypatch.setattr(summary.importlib.util, "find_spec", lambda name: None)
    summary.summarise(tmp_path)
    assert "Python lacks matplotlib" in capsys.readouterr().out
    assert not (tmp_path / "kernels.png").exists()
    assert (tmp_path / "summary.md").exists()


def test_pipeline_numbers() -> None:
    numbers = benchmarks("gpu.verdict").pipeline_numbers
    # 10,000 images of 2 MB a second: 20 GB/s, 40 % of the upload; 0.2 ms of CPU each: 2 cores.
    row = numbers(PIPELINE_ROW, 50.0)
    assert (row["encoded_gb_s"], row["upload_percent"], row["cpu_cores"]) == (20, 40, 2)
    assert row["cpu_s_per_encoded_gb"] == pytest.approx(0.1)
    assert row["cpu_s_per_pixel_gb"] == pytest.approx(0.2 / 6)
    assert numbers(PIPELINE_ROW, None)["upload_percent"] is None
    for name in ("PNG -6", "JPEG 95", "HTJ2K", "JPEG 2000", "L3 rans, cached"):
        assert numbers(PIPELINE_ROW | {"format": name}, 50.0)["upload_percent"] is None
    assert numbers(PIPELINE_ROW | {"format": "raw (numpy)"}, 50.0)["upload_percent"] == 40


def test_pipeline_table() -> None:
    few = PIPELINE_ROW | {"threads": 1}
    numbers = [benchmarks("gpu.verdict").pipeline_numbers(r, 50.0) for r in (few, PIPELINE_ROW)]
    assert benchmarks("gpu.summary").pipeline_table(numbers) == [
        ["L3 rans", "16", "32", "10000", "30.0", "20.00", "40", "2.00", "0.033", "0.100", "-"]
    ]


def _large(codec: str, batch: int, **changes: Any) -> dict[str, Any]:
    size = {"width": 2048, "height": 1024, "channels": 3, "sample_bits": 8}
    return _row(codec, batch=batch) | size | changes


def test_kernel_targets() -> None:
    rows = [
        _large("L3 packed", 32, pixel_gb_s=1200.0),
        _large("L3 packed, CHW float16", 32, pixel_gb_s=960.0),
        _large("L3 rans", 32, pixel_gb_s=319.0),
        _large("L3 rans", 1, median_us=250.0),
        _large("L3 packed", 256, width=500, height=375, pixel_gb_s=900.0),
        _large("L3 packed", 1, sample_bits=16, median_us=1.0),  # another kind
    ]
    targets = benchmarks("gpu.verdict").kernel_targets(rows)
    assert [(t.measured, t.met) for t in targets] == [
        *((1200, True), (319, False)),
        *((None, None), (250, False)),  # one image: under 250
        *((75, True), (None, None)),
        *((80, True), (None, None)),
    ]
    assert [t.where for t in targets[:3]] == ["photo", "photo", ""]


def test_pipeline_targets() -> None:
    verdict = benchmarks("gpu.verdict")
    cached = {"format": "L3 rans, cached", "times_png": 60.0, "cpu_s_per_1000": 0.02}
    rows = [
        PIPELINE_ROW,
        PIPELINE_ROW | {"batch": 128, "images_per_s": 20001.0, "times_png": 50.0},  # the fastest
        PIPELINE_ROW | {"threads": 8, "batch": 128, "images_per_s": 99999.0},
        PIPELINE_ROW | cached,
    ]
    targets = verdict.pipeline_targets([verdict.pipeline_numbers(row, 50.0) for row in rows])
    assert {t.met for t in targets[:5]} == {None}  # packed
    assert [t.what for t in targets[7:9]] == [
        *("pipeline, rans, 16 threads", "pipeline, rans, cached, 16 threads")
    ]
    assert [(t.measured, t.met, t.where) for t in targets[5:]] == [
        (50, True, "photo/large, batch 128"),
        (pytest.approx(80.004), True, "photo/large, batch 128"),
        (pytest.approx(4.0002), False, "photo/large, batch 128"),
        (60, True, "photo/large, batch 32"),
        (pytest.approx(0.2), False, "photo/large, batch 32"),
    ]


def test_targets_without_pipelines() -> None:
    targets = benchmarks("gpu.verdict").pipeline_targets([])
    assert [t.met for t in targets] == [None] * 10


def test_l3_is_ahead_where_it_is_as_dense_and_faster() -> None:
    verdict = benchmarks("gpu.verdict")
    point = verdict.Point
    packed, rans = point("L3 packed", "photo", 2.0, 1000.0), point("L3 rans", "photo", 2.5, 400.0)
    elsewhere = point("L3 rans", "mask", 99.0, 9999.0)
    peers = {
        point("equal density", "photo", 2.0, 999.0): (packed, "ahead"),
        point("faster", "photo", 1.5, 2000.0): (packed, "slower"),
        point("between", "photo", 2.2, 500.0): (rans, "slower"),
        point("slow", "photo", 2.2, 399.0): (rans, "ahead"),
        point("denser", "photo", 3.0, 1.0): (rans, "less dense"),
    }
    verdicts = verdict.judge([*peers, point("alone", "icon", 1, 1)], [packed, rans, elsewhere])
    assert [(v.l3, v.outcome) for v in verdicts] == list(peers.values())
    assert verdicts[1].times == 0.5


def test_cached_rows_have_no_verdict() -> None:
    verdict = benchmarks("gpu.verdict")
    formats = ("PNG -6", "L3 rans", "L3 rans, cached")
    rows = [verdict.pipeline_numbers(PIPELINE_ROW | {"format": f}, 50.0) for f in formats]
    peers, l3 = verdict.pipeline_points(rows)
    assert ([p.codec for p in peers], [p.codec for p in l3]) == (["PNG -6"], ["L3 rans"])
    assert peers[0].gb_s == 60


def test_summary_without_results(tmp_path: Path) -> None:
    assert benchmarks("gpu.summary").summarise(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_gpu_images_need_no_data(tmp_path: Path) -> None:
    images = benchmarks("gpu.images").benchmark_images(tmp_path)
    shapes = {name: image.shape for name, image in images.items()}
    assert shapes == {"gradient_2048x1024": (1024, 2048, 3), "gradient_500x375": (375, 500, 3)}


def test_cut_mirrors_what_is_missing() -> None:
    cut = benchmarks("gpu.images").cut(np.array([[1, 2, 3], [4, 5, 6]]), 1, 5)
    assert cut.tolist() == [[1, 2, 3, 3, 2]]


@pytest.mark.dali
def test_pipeline_rows_are_medians() -> None:
    pipeline = benchmarks("pipeline")
    png = [pipeline.Turn(10, 8, None), pipeline.Turn(20, 8, None), pipeline.Turn(40, 8, None)]
    turns = [pipeline.Turn(30, 4, 1), pipeline.Turn(40, 2, 3), pipeline.Turn(200, 1, 2)]
    what = pipeline.Configuration(pipeline.formats("cpu")[0], 2, 32)
    row = pipeline.summarise("set", what, turns, png, 1.0, 3.0)
    assert (row.images_per_s, row.slowest_images_per_s, row.fastest_images_per_s) == (40, 30, 200)
    assert row.times_png == 3  # of 3, 2 and 5
    assert (row.cpu_s_per_1000, row.png_cpu_ratio, row.gpu_ms_per_image) == (2, 4, 2)
    # One that failed in the second round: its first is compared with PNG's first.
    assert pipeline.summarise("set", what, turns[:1], png, 1.0, 3.0).times_png == 3


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


@pytest.fixture
def small_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Any]:
    """Runs pipeline.py on one image, the time of its turns made up; returns rows and page."""
    pipeline = benchmarks("pipeline")
    monkeypatch.setattr(pipeline, "noisy_gradient", lambda h, w: np.zeros((9, 9, 3), np.uint8))
    monkeypatch.setattr(pipeline, "take_turn", lambda *_: pipeline.Turn(10, 1, None))

    def run(arguments: str) -> Any:
        paths = ["--data", str(tmp_path), "--out", str(tmp_path)]
        pipeline.main([*paths, *f"--device cpu --tasks whole --files 4 {arguments}".split()])
        rows = json.loads((tmp_path / "pipeline_cpu.json").read_text())["rows"]
        return rows, (tmp_path / "pipeline_cpu.md").read_text()

    return run


@pytest.mark.dali
def test_pipeline_needs_no_photographs(small_run: Callable[[str], Any]) -> None:
    rows, page = small_run("--threads 1 --rounds 1")
    assert {row["set"] for row in rows} == {"gradient"}
    assert "1 images of gradient" in page


@pytest.mark.dali
def test_pipeline_batches(small_run: Callable[[str], Any]) -> None:
    rows, page = small_run("--threads 1 2 --batch 2 4 --rounds 1")
    at = [(row["threads"], row["batch"]) for row in rows if row["format"] == "L3 rans"]
    assert at == [(1, 2), (2, 2), (2, 4)]
    others = {row["format"] for row in rows if row["batch"] == 4}
    assert others == {"PNG -6", "L3 packed", "L3 rans"}
    assert "batches of 2 and 4" in page


@pytest.mark.dali
@pytest.mark.parametrize(("minutes", "rounds"), [("0", 1), ("9", 3)])
def test_pipeline_keeps_to_its_time(
    small_run: Callable[[str], Any], minutes: str, rounds: int
) -> None:
    rows, page = small_run(f"--threads 1 --minutes {minutes}")
    assert {row["rounds"] for row in rows} == {rounds}
    assert f"in turn, {rounds} rounds of" in page


@pytest.mark.dali
def test_turn_that_fails_leaves_the_others(
    small_run: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = benchmarks("pipeline")

    def fail_once_warm(what: Any, *_: Any) -> Any:
        turns.append(what)
        if what.format.name == "L3 rans" and what.batch == 4 and turns.count(what) == 2:
            raise RuntimeError("out of memory\nstack trace")
        return pipeline.Turn(10, 1, None)

    turns: list[Any] = []
    monkeypatch.setattr(pipeline, "take_turn", fail_once_warm)
    rows, page = small_run("--threads 2 --batch 2 4")
    rounds = {(row["format"], row["batch"]): row["rounds"] for row in rows}
    assert (rounds["L3 rans", 4], rounds["L3 rans", 2], rounds["L3 packed", 4]) == (1, 3, 3)
    assert (
        "Not measured: L3 rans, whole images, 2 threads, batch 4 (out of memory), on gradient.\n"
        in page
    )


@pytest.mark.dali
def test_rounds_are_written_as_they_end(
    small_run: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline = benchmarks("pipeline")

    def stop(what: Any, *_: Any) -> Any:
        turns.append(what)
        if turns.count(what) == 2:
            raise KeyboardInterrupt
        return pipeline.Turn(10, 1, None)

    turns: list[Any] = []
    monkeypatch.setattr(pipeline, "take_turn", stop)
    with pytest.raises(KeyboardInterrupt):
        small_run("--threads 1")
    assert len(json.loads((tmp_path / "pipeline_cpu.json").read_text())["rows"]) == len(turns) - 1


@pytest.mark.dali
def test_nothing_is_in_flight_between_turns() -> None:
    pipeline = benchmarks("pipeline")
    computed = itertools.count()
    pipe = pipeline.dali.Pipeline(2, 1, None)
    with pipe:
        source = pipeline.fn.external_source(lambda: [np.full(1, next(computed))] * 2)
        pipe.set_outputs(source)
    pipe.build()
    assert pipeline.run_batches(pipe, lambda batches: batches >= 5) >= 5
    for enough in (1, 7):
        before = next(computed)
        batches = pipeline.run_batches(pipe, lambda batches, enough=enough: batches >= enough)
        assert next(computed) - before - 1 == batches
        assert pipe.empty()


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
@pytest.mark.parametrize(
    ("samples_each", "why_not", "expected_s"),
    [(5, "", 0.05), (3, "", 0.1), (1, "", 0.15), (0, "Python lacks pynvml", 0.05)],
)
def test_turn_waits_for_samples_of_the_gpu(
    monkeypatch: pytest.MonkeyPatch, samples_each: int, why_not: str, expected_s: float
) -> None:
    pipeline = benchmarks("pipeline")
    clock = itertools.count()

    class Pipe:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...
        def set_outputs(self, *_: object) -> None: ...
        def schedule_run(self) -> None: ...
        def share_outputs(self) -> None: ...
        def release_outputs(self) -> None: ...
        def empty(self) -> bool:
            return True

    class GpuUse:
        def __init__(self) -> None:
            self.why_not = why_not
            self.count = 0

        def samples(self) -> list[float]:
            self.count += samples_each
            return [0.5] * self.count

    monkeypatch.setattr(pipeline.dali, "Pipeline", lambda *_: Pipe())
    monkeypatch.setattr(pipeline, "GpuUse", GpuUse)
    monkeypatch.setattr(pipeline.time, "perf_counter", lambda: next(clock) / 1000)
    fmt = pipeline.Format("any", bytes, lambda files, device: files)
    turn = pipeline.take_turn(pipeline.Configuration(fmt, 1, 2), ["a"], "mixed", 0.05)
    assert turn.gpu_samples == samples_each * round(expected_s / 0.05)
    # Half of the time: of 2 images a millisecond, as the clock says, a quarter each.
    assert turn.gpu_ms_per_image == (None if why_not else pytest.approx(0.25, rel=0.1))


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


@pytest.mark.dali
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--device gpu", "invalid choice"),
        ("--threads 0", "0 is not positive"),
        ("--batch x", "invalid positive value"),
        ("--device cpu --sets nothing", "no images in"),
        pytest.param(
            "--device mixed --sets one",
            "no GPU, so nothing was timed",
            marks=pytest.mark.skipif(has_gpu(), reason="there is a GPU"),
        ),
    ],
)
def test_pipeline_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, complaint: str
) -> None:
    imagecodecs = pytest.importorskip("imagecodecs")
    (tmp_path / "one").mkdir()
    image = imagecodecs.png_encode(np.zeros((9, 9, 3), np.uint8))
    (tmp_path / "one" / "a.png").write_bytes(image)
    with pytest.raises(SystemExit) as stop:
        benchmarks("pipeline").main(["--data", str(tmp_path), *arguments.split()])
    assert complaint in f"{stop.value} {capsys.readouterr().err}"


class FakeCuda:
    """CUDA's driver as ctypes shows it, with one GPU."""

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return flags

    def cuDeviceGet(self, device: Any, number: int) -> int:  # noqa: N802
        return number

    def cuDeviceGetName(self, name: Any, size: int, device: Any) -> int:  # noqa: N802
        name.value = b"NVIDIA H200"
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:  # noqa: N802
        version._obj.value = 12080
        return 0


KERNEL_MODULE = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (a@b)
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)
"""


@pytest.mark.parametrize(
    ("script", "cuda", "kernel_module", "described"),
    [
        ("echo 'NVIDIA H200, 580.65.06'", False, "", ("NVIDIA H200", "580.65.06")),
        ("echo 'NVIDIA-SMI has failed'; exit 9", False, "", None),
        (None, False, "", None),
        (None, True, KERNEL_MODULE, ("NVIDIA H200", "580.65.06")),
        ("echo 'no devices'", True, "", ("NVIDIA H200", "for CUDA 12.8")),
    ],
)
def test_gpu_is_described(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str | None,
    cuda: bool,
    kernel_module: str,
    described: tuple[str, str] | None,
) -> None:
    def load(name: str) -> FakeCuda:
        if not cuda:
            raise OSError(name)
        return FakeCuda()

    if script:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    if kernel_module:
        (tmp_path / "version").write_text(kernel_module)
    gpu_host = benchmarks("gpu.host")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gpu_host.ctypes, "CDLL", load)
    monkeypatch.setattr(gpu_host, "KERNEL_MODULE", tmp_path / "version")
    assert gpu_host.describe_gpu() == described


def test_gpu_use_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_host = benchmarks("gpu.host")
    monkeypatch.setattr(gpu_host, "pynvml", None)
    use = gpu_host.GpuUse()
    assert (use.samples(), use.why_not) == ([], "Python lacks pynvml (package nvidia-ml-py)")


@pytest.fixture
def gpu_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    tool: Any = importlib.import_module("gpu")
    monkeypatch.setattr(tool, "_GATHERED", tmp_path / "new")
    (tmp_path / "new").mkdir()
    return tool


def test_absent_benchmark_has_its_line(gpu_tool: Any) -> None:
    step = gpu_tool.Step("nvcomp", "benchmarks", ["no/such/program"], lack="nvcomp: not installed")
    assert gpu_tool._run(step) == gpu_tool.Result("nvcomp", "NOT RUN", 0.0, "nvcomp: not installed")


@pytest.mark.parametrize(("group", "is_error"), [("tests", True), ("benchmarks", False)])
def test_tests_that_cannot_run_are_an_error(gpu_tool: Any, group: str, is_error: bool) -> None:
    result = gpu_tool._run(gpu_tool.Step("x", group, [sys.executable], ["no_such.module"]))
    assert (result.outcome, result.last_line) == ("NOT RUN", "Python lacks no_such.module")
    assert result.is_error == is_error


def test_extra_module_has_its_word(gpu_tool: Any) -> None:
    command = [sys.executable, "-c", "print('done')"]
    step = gpu_tool.Step("pipeline", "benchmarks", command, extras=["no_such_module", "json"])
    result = gpu_tool._run(step)
    assert (result.outcome, result.last_line) == ("passed", "Python lacks no_such_module; done")


def test_sanitizer_of_an_unsupported_machine_is_no_error(gpu_tool: Any) -> None:
    command = [sys.executable, "-c", "print('Device not supported'); raise SystemExit(1)"]
    result = gpu_tool._run(gpu_tool.Step("memcheck", "tests", command))
    assert (result.outcome, result.is_error) == ("NOT RUN", False)


def test_python_steps_name_their_modules(
    gpu_tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_tool, "_BUILD", tmp_path)
    monkeypatch.setattr(gpu_tool, "_SIMULATED", tmp_path / "not made")
    monkeypatch.setattr(gpu_tool, "_is_installed", lambda module: False)
    steps = gpu_tool._steps(tmp_path, tmp_path, ["--rounds", "1"])
    missing = {s.name: s.missing() for s in steps if s.command[0] == sys.executable}
    assert set(missing) == {"pytest", "pytest_alone", "demo", "pipeline", "training"}
    for module in ("imagecodecs", "rich"):
        assert all(module in text for text in missing.values())
    assert "hypothesis, pytest" in missing["pytest"]
    pipeline = next(step for step in steps if step.name == "pipeline")
    assert pipeline.missing_extras() == "Python lacks pynvml"
    assert pipeline.command[-3:] == ["--minutes=6", "--rounds", "1"]


def test_absent_module_has_its_line(gpu_tool: Any) -> None:
    step = gpu_tool.Step("pipeline", "benchmarks", [sys.executable], ("json", "no_such_module"))
    assert gpu_tool._run(step).last_line == "Python lacks no_such_module"


def test_results_of_a_gpu_are_of_one_run(gpu_tool: Any, tmp_path: Path) -> None:
    gpu = ("NVIDIA H200", "580.65.06")
    gathered, folder = tmp_path / "gathered", tmp_path / gpu_tool._results_folder(gpu).name
    assert folder.name == "nvidia_h200"
    for older in (gathered, folder):
        older.mkdir()
        (older / "nvcomp.json").write_text('{"rows": [1]}')
    gpu_tool._begin_results(gathered, gpu)
    (gathered / "kernels.json").write_text('{"rows": []}')
    gpu_tool._publish(gathered, folder)
    assert [path.name for path in folder.iterdir()] == ["nvcomp.json"]  # nothing new was measured
    (gathered / "kernels.json").write_text('{"rows": [1]}')
    (gathered / "pipeline.json.part").write_text("half")
    gpu_tool._publish(gathered, folder)
    assert {path.name for path in folder.iterdir()} == {"host.json", "kernels.json"}
    host = json.loads((folder / "host.json").read_text())
    assert host.items() >= {"gpu": gpu[0], "driver": gpu[1]}.items()


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


def test_step_has_its_time(gpu_tool: Any) -> None:
    code = "import time; print('begins', flush=True); time.sleep(600)"
    step = gpu_tool.Step("memcheck", "tests", [sys.executable, "-c", code], limit_s=5)
    result = gpu_tool._run(step)
    assert (result.outcome, result.is_error) == ("FAILED", True)
    assert result.last_line == "ended after 5 s; begins"


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


def test_some_steps(gpu_tool: Any) -> None:
    steps = [gpu_tool.Step(name, "tests", []) for name in ("compare", "memcheck")]
    steps.append(gpu_tool.Step("kernels", "benchmarks", []))
    assert gpu_tool._choose(steps, None) == steps
    assert gpu_tool._choose(steps, ["kernels", "memcheck"]) == steps[1:]
    assert gpu_tool._choose(steps, ["tests"]) == steps[:2]
    assert gpu_tool._choose(steps, ["summary"]) == []
    variant = gpu_tool.Step("packed_16", "variants", [])
    assert gpu_tool._choose([*steps, variant], None) == steps
    assert gpu_tool._choose([*steps, variant], ["variants"]) == [variant]
    with pytest.raises(SystemExit, match="no step nvcomp; there are benchmarks, compare, kernels"):
        gpu_tool._choose(steps, ["nvcomp"])


def test_variants_that_were_built_are_steps(
    gpu_tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_tool, "_VARIANTS", tmp_path)
    monkeypatch.setattr(gpu_tool, "_BUILD", tmp_path / "release")
    program = tmp_path / "packed_28/l3_bench_kernels"
    program.parent.mkdir()
    program.touch()
    steps = gpu_tool._choose(gpu_tool._steps(tmp_path, tmp_path, []), ["variants"])
    assert [s.name for s in steps] == ["cache_shared", "cache_equal", "cache_l1", "packed_28"]
    assert steps[-1].command[0] == program
    assert steps[-1].command[2] == tmp_path / "variant_packed_28.json"


def test_steps_one_by_one_keep_results(gpu_tool: Any, tmp_path: Path) -> None:
    folder = tmp_path / "gathered"
    gpu_tool._begin_results(folder, ("NVIDIA H200", "580"))
    (folder / "kernels.json").touch()
    gpu_tool._begin_results(folder, ("NVIDIA H200", "580"), goes_on=True)
    assert (folder / "kernels.json").exists()
    gpu_tool._begin_results(folder, ("NVIDIA T4", "580"), goes_on=True)  # another GPU's
    assert not (folder / "kernels.json").exists()


def test_what_there_is_so_far_is_packed(gpu_tool: Any, tmp_path: Path) -> None:
    gathered, folder = tmp_path / "new", tmp_path / "out"
    (gathered / "kernels.json").write_text('{"rows": [1]}')
    gpu_tool._say("a step")
    packed = folder / "gpu_results.tar.gz"
    with gpu_tool._repeating(lambda: gpu_tool._pack(gathered, folder), 0.05):
        while not packed.exists():  # in the background
            time.sleep(0.01)
        (gathered / "nvcomp.json").write_text("{}")
    with tarfile.open(packed) as tar:
        assert sorted(tar.getnames()) == ["kernels.json", "log.txt", "nvcomp.json"]
        log = tar.extractfile("log.txt")
        assert log is not None
        assert log.read() == b"a step\n"


def _training_row(name: str, cores: int, rate: float, **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"model": "resnet50", "input": name, "cores": cores, "batch": 256}
    row |= {"images_per_s": rate, "cpu_s_per_1000": 1.0, "step_ms": 10.0}
    return row | {"pcie_mb_per_image": None, "encoded_bytes": 1e6} | changes


@pytest.mark.dali
def test_gain_is_read_where_the_peer_stood() -> None:
    training = benchmarks("gpu.training")
    # PNG feeds 58 % of the ceiling on 6 cores, between 4 and 8; L3 rans 87 % there.
    share = 1 / 1.71
    png = [("PNG -6", 4, 1000 * (share - 0.1)), ("PNG -6", 8, 1000 * (share + 0.1))]
    numbers = [*png, ("L3 rans", 4, 800.0), ("L3 rans", 8, 940.0), ("JPEG 95", 4, 990.0)]
    rows = [training.Row(**_training_row(*number)) for number in numbers]
    ceiling = training.Row(**_training_row("resident batch", 4, 1000.0, step_ms=8.0))
    assert training.gain_rows([ceiling, *rows]) == [
        ["resnet50, PNG -6", "58", "1.71", "6.0", f"{0.87 / share:.2f}", "-"],
        ["resnet50, JPEG 95", "56", "1.77", "99 to 99 % measured", "-", "-"],
    ]
    assert training.cores_table([ceiling, *rows])[1:] == [
        ["resnet50, L3 rans", "more than 8"],
        ["resnet50, JPEG 95", "4"],
    ]
    first = training.row_table([ceiling, *rows])[1]
    assert first[:5] == ["resnet50, PNG -6", "4", "485", "48", "1.250"]


@pytest.mark.dali
def test_training_images_are_distinct() -> None:
    training = benchmarks("gpu.training")
    photographs = list(np.random.default_rng(1).integers(0, 256, (2, 60, 90, 3), dtype=np.uint8))
    for size in ((50, 38), (100, 50)):
        made = training.distinct_images(photographs, training.Images(*size, 200))
        images = [make() for make in made]
        assert {image.shape for image in images} == {(size[1], size[0], 3)}
        assert len({image.tobytes() for image in images}) == 200


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


def test_sets_travel(tmp_path: Path) -> None:
    imagecodecs = pytest.importorskip("imagecodecs")
    gpu_images = benchmarks("gpu.images")
    data, out = tmp_path / "data", tmp_path / "out"
    images = {"photo/large/a": (9, 9, 3), "photo/large/b": (9, 9, 3), "mask/a": (9, 9)}
    for name, shape in {**images, "mask/b": (9, 9), "photo/kodak/a": (9, 9, 3)}.items():
        path = data / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(imagecodecs.png_encode(np.zeros(shape, np.uint8)))
    copies = gpu_images.copy_sets(data, out)
    assert copies == [out / f"{name}.png" for name in images]
    assert gpu_images.benchmark_images(out).keys() == gpu_images.benchmark_images(data).keys()
    assert gpu_images.missing_sets(out) == [
        f"{out / 'gray16/landsat8'} has no image that can be read: not timed"
    ]


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
        ("match --sets photo/kodak --rounds 1", "codecs", {}, {"photo/kodak"}),
        ("manifest --rows 30", "manifest", {"FILES_A_FOLDER": 10}, {"3", "30"}),
        ("staging --rounds 1", "staging", {"BATCHES": (2,)}, {"measured", "predicted"}),
        (
            "memory",
            "memory",
            {"SQUARE": "900x900x3", "NARROW": (), "THREADS": (2,)},
            {"decode", "shapes"},
        ),
        pytest.param(
            "small --rounds 1 --count 16",
            "small",
            {"BATCH": 8},
            {"MNIST-like", "convert_a_second", "dali_a_second"},
            marks=pytest.mark.dali,
        ),
        pytest.param(
            "roi --rounds 1",
            "dali_windows",
            dict.fromkeys(("BATCH", "PEEK_BATCH", "WARM_UP"), 1),
            {"crop", "random_crop", "peek_us"},
            marks=pytest.mark.dali,
        ),
        pytest.param(
            "windows --rounds 1",
            "dali_windows",
            dict.fromkeys(("BATCH", "WARM_UP", "COUNT"), 1),
            {"L3 packed", "L3 rans"},
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
    programs = {"match": "l3_codec_times", "staging": "l3_staging_times"}
    if program := programs.get(command.split()[0]):
        command += f" --program {_program(program)}"
    found = run_case(command)
    assert found.keys() == {"made", "load", *keys}
    for results in (found[key] for key in keys):
        assert results
        assert "nan" not in json.dumps(results).lower()


@pytest.mark.dali
@pytest.mark.parametrize("module", ["dali_turns", "dali_windows", "small", "split_merge"])
def test_case_alone_has_the_operators(module: str) -> None:
    code = f"import benchmarks.cpu.{module}, nvidia.dali; nvidia.dali.fn.l3.decode"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


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


@pytest.mark.torch
def test_loader_that_loses_pixels_stops_the_run(
    run_case: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torchvision")
    module = benchmarks("cpu.loaders")
    right = module.by_l3
    monkeypatch.setattr(module, "by_l3", lambda data, window: right(data, window) ^ 1)
    with pytest.raises(SystemExit, match=r"L3 packed, l3dali\.torch does not give back the pixels"):
        run_case("loaders --sets photo/large --rounds 1 --files 4")


@pytest.mark.dali
def test_small_copies_beside_jpegs(
    run_case: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = benchmarks("cpu.dali_turns")
    monkeypatch.setattr(module, "ORIGINALS", (("small ones", "photo/large", 350),))
    rows = run_case("shrunk --rounds 1 --seconds 0.01 --files 16")["rows"]
    assert [row["quality"] for row in rows] == [95, 90]
    for row in rows:
        formats = row["formats"]
        assert row["images"] == 1
        assert set(formats) == {module.JPEG, module.RESIZED, "L3 packed", "L3 rans", module.READER}
        assert formats["L3 rans"]["bytes"] < 256 * 192 * 3
        assert (formats[module.JPEG]["bytes_ratio"], formats[module.JPEG]["speed"]) == (1, 1)
        assert all(numbers["cpu_ms"] > 0 for numbers in formats.values())


@pytest.mark.dali
def test_operator_that_loses_pixels_stops_the_run(write: Callable[[str, Any], Path]) -> None:
    module = benchmarks("cpu.dali_turns")
    files = [str(write("a", np.zeros((192, 256, 3), np.uint8)))]
    assert module.check(module._decode_l3, files).shape == (192, 256, 3)
    with pytest.raises(SystemExit, match="does not come back"):
        module.check(lambda files, device: module._decode_l3(files, device) + 1, files)


@pytest.mark.dali
def test_nvimgcodec(run_case: Callable[[str], Any]) -> None:
    found = run_case("nvimgcodec --sets photo/kodak --rounds 1 --seconds 0.01 --files 16")
    assert [row["mode"] for row in found["rows"]] == list(l3dali.CODINGS)
    for row in found["rows"]:
        assert row["images_per_s"].keys() == {"fn.l3.decode", "fn.decoders.image"}
        assert row["share"] > 0


@pytest.mark.dali
def test_split_and_merge(
    run_case: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = benchmarks("cpu.split_merge")
    smaller = {"BATCH": 2, "COPIES": 1, "TURN": 1, "EQUAL_PIPELINES": 2, "LEAST_ROUNDS": 2}
    for name, number in smaller.items():
        monkeypatch.setattr(module, name, number)
    rows = run_case("split_merge --sets photo/large --seconds 0.01")["rows"]
    of_each = [("all L3", "output"), ("every other a PNG", "output")]
    of_each.append(("every other a PNG", "crop of 224x224"))
    assert [(row["mode"], row["batch"], row["end"]) for row in rows] == [
        (mode, *row) for mode in ("packed", "rans") for row in of_each
    ]
    for row in rows:
        assert len(row["clock"]) == len(row["cpu"]) == row["rounds"] >= 2
        assert min(row["clock_ms"], row["clock_best"]) > 0
        for kind in ("clock", "cpu"):
            middle, low, high = row[f"alone_{kind}_part"]
            assert low <= middle <= high
    assert "| photo/large, packed: all L3, output |" in (tmp_path / "split_merge.md").read_text()


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


def test_images_side_by_side() -> None:
    images = [np.full((2, 3, 3), i) for i in range(3)]
    made = benchmarks("cpu.convert").side_by_side(images, "2x2")
    assert made[::2, ::3, 0].tolist() == [[0, 1], [2, 0]]


def test_cost_of_converting_includes_orphans() -> None:
    pytest.importorskip("imagecodecs")
    # The command ends at once; the process that it leaves behind works and needs memory.
    child = "import time; x = b'1' * 2**27\nwhile time.process_time() < 0.3: pass"
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}])"
    run_timed = benchmarks("cpu.convert").run_timed
    cost = benchmarks("cpu.case").apart(run_timed, [sys.executable, "-c", parent])
    assert cost.cpu >= 0.3
    assert cost.peak_kib > 2**17


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


def test_cases_run_in_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("imagecodecs")
    runner = benchmarks("cpu.__main__")
    commands: list[list[str]] = []
    monkeypatch.setattr(runner.subprocess, "run", lambda command, check: commands.append(command))
    runner.main(["memory", "size", "--data", "."])
    assert [command[3:] for command in commands] == [[c, "--data", "."] for c in ("memory", "size")]


def test_turns() -> None:
    case = benchmarks("cpu.case")
    now, order = 0.0, ""

    def call(name: str, seconds: float) -> Callable[[], None]:
        def take() -> None:
            nonlocal now, order
            now, order = now + seconds, order + name

        return take

    calls = {"a": call("a", 1), "b": call("b", 2), "c": call("c", 9)}
    spent = case.in_turns(calls, 3, lambda: now, once_above=5)
    assert order == "abcabab"
    assert {name: seconds.tolist() for name, seconds in spent.items()} == {
        "a": [1, 1, 1],
        "b": [2, 2, 2],
        "c": [9],
    }
    assert case.median_ratio([2, 4, 8], [1, 4, 2]) == 2
    low, high = case.interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert 1 <= low < 3 < high <= 5
    assert case.interval([2.0, 4.0, 8.0], [1.0, 2.0, 4.0]) == (2, 2)
