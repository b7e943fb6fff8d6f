"""Limits of the workers of `l3 convert`: a reader costs its item. And: what Ctrl-C waits for."""

from __future__ import annotations

import io
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import hostile_readers
import imagecodecs
import numpy as np
import PIL.Image
import pytest
from children import child_environment
from convert_tools import (
    convert,
    data_of,
    files_below,
    image,
    noisy_jpeg,
    png,
    rows_of,
    samples,
    saved,
    write_files,
    write_pngs,
    write_tar,
)

from l3dali import codec
from l3dali.cli import main
from l3dali.datasets.convert import engine, job, pool, workers
from l3dali.datasets.convert.conversion import convert_image
from l3dali.datasets.convert.images import Blob, Options

REASONS = {  # patterns
    "allocates": r"needs more than 0.5 GiB \(--worker-memory\)",
    "spins": f"no progress for {hostile_readers.CPU_SECONDS} s of CPU",
    "crashes": r"the reader crashed \(SIGSEGV\)",
    "exits": "its process ended with 0",
    "raises": "its process ended with 3",
    "signals": f"its process ended by signal {signal.SIGRTMIN + 5}",
}
SOUND = {"sound", "slow"}


def bmp(kind: str, seed: int) -> bytes:
    return saved(image(seed), "BMP")[:-1] + bytes([hostile_readers.KINDS.index(kind)])


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_work", hostile_readers.work)
    monkeypatch.setattr(workers, "CPU_SECONDS", hostile_readers.CPU_SECONDS)


MEMBERS = [
    (f"{seed}-{kind}.bmp", bmp(kind, seed)) for seed, kind in enumerate(hostile_readers.KINDS[:-1])
]
LITTLE = ("--worker-memory", 512)


@pytest.mark.usefixtures("hostile")
def test_a_reader_costs_its_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second try has a process for each image, with time by the header."""
    members = [*MEMBERS[::2], *samples(3)]
    write_tar(tmp_path / "s" / "a.tar", members)
    write_files(tmp_path / "s", dict(MEMBERS[1::2]))
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 2, *LITTLE) == 2
    told = capsys.readouterr().err
    assert f"l3: {len(REASONS)} failed" in told
    for kind, reason in REASONS.items():
        assert re.search(f"-{kind}.bmp: {reason}\n", told), kind
    found = dict(data_of(tmp_path / "d" / "a.tar"))
    stems = [name.rpartition(".")[0] for name, _ in members]
    assert [name.rpartition(".")[0] for name in found] == stems
    found |= {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()}
    for name, before in MEMBERS:
        stem, _, kind = name.removesuffix(".bmp").rpartition("-")
        if kind in SOUND:
            with PIL.Image.open(io.BytesIO(before)) as opened:
                np.testing.assert_array_equal(codec.decode(found[f"{stem}-{kind}.l3"]), opened)
        else:
            assert found[name] == before  # --on-error keep
    # Where memory was short, the next run tries again.
    assert {row.transient for row in rows_of(tmp_path / "d").values()} <= {"", "memory"}


@pytest.mark.usefixtures("hostile")
def test_encode_survives_a_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_files(tmp_path, {f"{kind}.bmp": bmp(kind, 1) for kind in ("crashes", "sound")})
    assert main(["encode", *map(str, sorted(tmp_path.iterdir()))]) == 2
    assert "crashes.bmp: the reader crashed (SIGSEGV)\n" in capsys.readouterr().err
    assert (tmp_path / "sound.l3").exists()


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("choice", ["fail", "drop"])
def test_failures_are_failures(tmp_path: Path, choice: str) -> None:
    source = write_files(tmp_path / "s", dict(MEMBERS[:3:2]))
    assert convert(source, tmp_path / "d", "-j", 1, *LITTLE, "--on-error", choice) == 2
    assert files_below(tmp_path / "d") == {"0-sound.l3"}


def test_a_missing_package_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tar(tmp_path / "s" / "a.tar", [("0.bmp", bmp("sound", 0))])
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_work", hostile_readers.work_without_a_package)
        assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert convert(tmp_path / "s", tmp_path / "d") == 0


def test_a_result_of_too_many_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job, "_LEAST_MOST_BYTES", 1000)
    monkeypatch.setattr(job, "_MOST_TIMES", 0.5)
    monkeypatch.setattr(engine, "is_in_process", lambda *_: True)  # for these patches
    write_tar(tmp_path / "s" / "a.tar", samples(20))
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert "a.tar: the result takes more than" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == set()


@pytest.mark.parametrize("jobs", ["-j1", "-j2"])
def test_a_killed_worker_costs_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], jobs: str
) -> None:
    monkeypatch.setattr(engine, "_work", hostile_readers.work_or_end)
    monkeypatch.setattr(pool, "_convert", hostile_readers.convert_or_end)
    sides = {"deadly.jpg": 99, "a.jpg": 64, "b.jpg": 65}
    write_files(tmp_path / "s", {name: noisy_jpeg(side) for name, side in sides.items()})
    run = [tmp_path / "s", tmp_path / "d", jobs, "--coding", "rans"]
    assert convert(*run) == 2
    assert "The first 2 images" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == set()
    assert convert(*run, "--grow") == 2
    assert "deadly.jpg: its process ended by SIGKILL" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == {"a.l3", "b.l3"}


# As a caller may write it: multiprocessing would run it in each child.
SCRIPT = """
from l3dali.cli import main

if main(["convert", "s", "d"]) != 0:
    raise SystemExit("it has failed")
"""


@pytest.mark.parametrize("arguments", [["script.py"], ["-"]])
def test_a_script_is_not_run_in_children(tmp_path: Path, arguments: list[str]) -> None:
    write_pngs(tmp_path / "s", "0.png", "1.png", "2.png")
    (tmp_path / "script.py").write_text(SCRIPT)
    with (tmp_path / "script.py").open() as script:
        subprocess.run([sys.executable, *arguments], stdin=script, cwd=tmp_path, check=True)
    assert files_below(tmp_path / "d") == {"0.l3", "1.l3", "2.l3"}


def test_a_daemonic_process(tmp_path: Path) -> None:
    """multiprocessing lets those have no children."""
    write_pngs(tmp_path / "s", "0.png", "1.png", "2.png")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(convert, (tmp_path / "s", tmp_path / "d")) == 0
    assert files_below(tmp_path / "d") == {"0.l3", "1.l3", "2.l3"}


def test_what_the_system_has_killed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_convert", hostile_readers.end)
    # The second may be an image, and may be none.
    for blob in (Blob("a.png", png(), "a.png"), Blob("a.txt", b"P5, a text", "a.txt")):
        outcome = pool.convert_alone(blob, Options(), 1, lambda: None)
        assert outcome is not None
        assert outcome.failure == "its process ended by SIGKILL"
        assert outcome.transient == "memory"


def test_a_reader_costs_its_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In `l3 profile`, whose process the crash ended."""
    pytest.importorskip("nvidia.dali")
    monkeypatch.setattr(pool, "_read", hostile_readers.read_or_end)
    write_files(tmp_path / "s", {f"{kind}.bmp": bmp(kind, 0) for kind in ("sound", "crashes")})
    profile = tmp_path / "p.json"
    assert main(["profile", str(tmp_path / "s"), "-o", str(profile), "--seconds", "1"]) == 0
    assert "crashes.bmp: the reader crashed (SIGSEGV)" in profile.read_text()


SIGNALS = """
import signal
from hostile_readers import engine, workers, work
from l3dali.cli import run

if __name__ == "__main__":
    numbers = [signal.SIGALRM, signal.SIGPROF, signal.SIGCHLD]
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    for number in numbers[:2]:
        signal.signal(number, signal.SIG_IGN)
    engine._work = work
    run()
"""


def test_signals_of_the_caller_are_not_those_of_children(tmp_path: Path) -> None:
    write_files(tmp_path / "s", {f"{kind}.bmp": bmp(kind, 0) for kind in ("spins", "waits")})
    (tmp_path / "run.py").write_text(SIGNALS)
    command = [sys.executable, "run.py", "convert", "s", "d", "-j2"]
    environment = child_environment(SHORT_WAITS="1")
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 2
    for kind in ("spins", "waits"):
        assert f"{kind}.bmp: no progress for " in run.stderr


FORKED = """
import multiprocessing, os, sys
from concurrent.futures import ProcessPoolExecutor
from convert_tools import png
from l3dali.datasets.convert import workers
from l3dali.datasets.convert.images import Blob, Options
from l3dali.datasets.convert.pool import convert_alone

def convert(seed):
    return convert_alone(Blob("a.png", png(seed), "a.png"), Options(), 1, lambda: None)

if __name__ == "__main__":
    expected = [convert(seed) for seed in range(20)]
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        assert list(pool.map(convert, range(20))) == expected
    with workers._server_lock:  # as while another thread starts a child
        fork = os.fork()
        if fork == 0:
            sys.exit(convert(0) != expected[0])  # It ends as a program does.
    assert os.waitpid(fork, 0)[1] == 0
    assert convert(0) == expected[0]
"""


def test_forks_share_no_child(tmp_path: Path) -> None:
    """As workers of other schedulers are: results of images were those of others."""
    (tmp_path / "run.py").write_text(FORKED)
    run = [sys.executable, "run.py"]
    subprocess.run(run, cwd=tmp_path, env=child_environment(), check=True, timeout=60)


def test_alone_is_the_same_for_every_format() -> None:
    """In a child for each, whose libraries are not loaded."""
    pixels = np.ascontiguousarray(np.tile(image(1), (9, 8, 1)))
    files = {
        "a.png": imagecodecs.png_encode(pixels),
        "a.jpg": imagecodecs.jpeg8_encode(pixels),
        "a.webp": imagecodecs.webp_encode(pixels, lossless=True),
        "a.jxl": imagecodecs.jpegxl_encode(pixels, lossless=True),
        "a.jp2": imagecodecs.jpeg2k_encode(pixels, level=0),
        "damaged.png": png()[:60],
        "damaged.tif": b"II*\0 and no more",
    }
    for suffix, format in (("tif", "TIFF"), ("bmp", "BMP"), ("ppm", "PPM")):
        files[f"a.{suffix}"] = saved(pixels, format)
    for name, data in files.items():
        workers._idle.clear()
        blob = Blob(name, bytes(data), name)
        outcome = pool.convert_alone(blob, Options(), 1, lambda: None)
        assert outcome is not None
        assert outcome.failed == name.startswith("damaged"), name
        assert outcome == convert_image(blob, Options()), name


# A server that something kills, as often as a file says.
KILLED = """
import os, pathlib
if b"serve_forks" in pathlib.Path("/proc/self/cmdline").read_bytes():
    left = pathlib.Path("left")
    if (count := int(left.read_text())) > 0:
        left.write_text(str(count - 1))
        os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(("times", "code"), [(1, 0), (100, 2)])
def test_the_fork_server_is_killed(tmp_path: Path, site: Path, times: int, code: int) -> None:
    write_tar(tmp_path / "s" / "a.tar", samples(1))
    (tmp_path / "left").write_text(str(times))
    (site / "sitecustomize.py").write_text(KILLED)
    command = [sys.executable, "-m", "l3dali", "convert", "s", "d"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == code
    assert (tmp_path / "d" / "a.tar").exists() == (code == 0)
    told = "l3: a worker process could not be started\n" if code else ""
    assert run.stderr == told


# Ctrl-C.

HELD = "import held_image; held_image.run()"


def interrupted(program: str, arguments: str, folder: Path, **variables: str) -> tuple[int, str]:
    """Ctrl-C once the file `begun` is in the folder: the exit code, and what was said."""
    run = subprocess.Popen(
        [sys.executable, "-c", program, *arguments.split()],
        cwd=folder,
        env=child_environment(**variables),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    while not (folder / "begun").exists() and run.poll() is None:
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGINT)
    _, told = run.communicate(timeout=120)  # Ends when no process holds the pipe.
    return run.returncode, told


@pytest.mark.parametrize(
    ("held", "jobs"), [("encode", 2), ("read", 1), ("read alone", 2), ("write", 2), ("deaf", 1)]
)
def test_an_interrupt_does_not_wait(tmp_path: Path, held: str, jobs: int) -> None:
    """For an encoder that takes seconds, a reader or a copy that never ends, a call that hangs."""
    side = 4000 if held == "encode" else 100
    noise = np.random.default_rng(0).integers(0, 256, (side, side), np.uint8)
    data = bytes(imagecodecs.png_encode(noise, level=1))
    for number in range(jobs):
        write_tar(tmp_path / "s" / f"{number}.tar", [("a.png", data)])
    code, told = interrupted(HELD, "convert s d -j2 --effort 9", tmp_path, HELD=held)
    done = f"0 of {jobs} shards and files are done; run again to continue"
    assert (code, told) == (130, f"l3: interrupted; {done}\n")
    assert not (tmp_path / "ended").exists()
    assert files_below(tmp_path / "d") == set()


def test_an_interrupt_of_encode(tmp_path: Path) -> None:
    write_pngs(tmp_path, "a.png", "b.png")
    code, told = interrupted(HELD, "encode a.png b.png", tmp_path, HELD="read")
    advice = "--skip-existing continues from there"
    assert (code, told) == (130, f"l3: interrupted; 0 of 2 files are done; {advice}\n")
    assert not list(tmp_path.glob("*.l3"))


# A bucket that answers until the run is interrupted.
STUCK = """
import pathlib, time
import fsspec
from fsspec.implementations.memory import MemoryFileSystem
from l3dali.cli import loop, run

loop._END_SECONDS = 0.1

class Stuck(MemoryFileSystem):
    def pipe_file(self, path, value, **options):
        if path.endswith("1.tar"):
            try:
                pathlib.Path("begun").touch()
                time.sleep(20)
            finally:
                pathlib.Path("interrupted").touch()
        if pathlib.Path("interrupted").exists():
            time.sleep(20)
        super().pipe_file(path, value, **options)

fsspec.register_implementation("memory", Stuck, clobber=True)
run()
"""


def test_a_second_interrupt_waits_for_no_bucket(tmp_path: Path) -> None:
    """Which has been asked to keep the manifest."""
    for number in range(2):
        write_tar(tmp_path / "s" / f"{number}.tar", [("a.png", png(number))])
    command = [sys.executable, "-c", STUCK, "convert", "s", "memory://d", "-j1"]
    run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    for name, sent in (("begun", signal.SIGINT), ("interrupted", signal.SIGTERM)):
        while not (tmp_path / name).exists() and run.poll() is None:
            time.sleep(0.01)
        if name == "interrupted":
            time.sleep(0.2)
        run.send_signal(sent)
    assert run.communicate(timeout=15)[1] == "l3: interrupted again during cleanup\n"
    assert run.returncode == 143


# The server takes a second to start.
SLOW = """
import pathlib, time
if b"serve_forks" in pathlib.Path("/proc/self/cmdline").read_bytes():
    open("begun", "w").close()
    time.sleep(1)
"""


def test_an_interrupt_while_children_start(tmp_path: Path, site: Path) -> None:
    for number in range(2):
        write_tar(tmp_path / "s" / f"{number}.tar", [("a.png", png(number))])
    (site / "sitecustomize.py").write_text(SLOW)
    ended, told = interrupted("import l3dali.__main__", "convert s d -j2 --grow", tmp_path)
    assert ended == 130
    assert told.startswith("l3: interrupted; ")
    assert told.count("\n") == 1


# It handles no signal, like the real one during a call.
PYARROW = """
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
open("begun", "w").close()
try:
    time.sleep(9)
finally:
    open("ended", "w").close()
"""


@pytest.mark.parametrize(
    ("arguments", "suffix"),
    [("convert s d", "parquet"), ("verify s", "arrow"), ("profile s -o p.json", "parquet")],
)
def test_an_interrupt_does_not_wait_for_pyarrow(
    tmp_path: Path, site: Path, arguments: str, suffix: str
) -> None:
    """Before the jobs begin, and where there are none."""
    write_files(tmp_path / "s", {f"a.{suffix}": b"damaged"})
    (site / "pyarrow.py").write_text(PYARROW)
    code, told = interrupted("import l3dali.__main__", arguments, tmp_path)
    assert code == 130
    assert "l3: interrupted" in told
    assert "Traceback" not in told
    assert not (tmp_path / "ended").exists()
