"""`l3 convert --engine ray` on a real cluster of two workers, one of which is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from convert_tools import (
    convert,
    files_below,
    png,
    read_tar,
    rows_of,
    samples,
    saved,
    write_tar,
)

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # what Ray calls loopback alone
import ray
from ray.cluster_utils import Cluster

OBJECTS = int(100e6)
# A worker does its first job, and holds the others until a file says go on: so there is a run to
# disturb, whatever the clock says.
HELD = """
import os, time
from l3dali.datasets.convert import job

convert_each = job.convert_each
jobs = []

def held(*arguments, **options):
    jobs.append(arguments)
    while len(jobs) > 1 and not os.path.exists(GO):
        time.sleep(0.01)
    yield from convert_each(*arguments, **options)

job.convert_each = held
"""
# The reader of BMP crashes.
CRASHING = """
import ctypes
from dataclasses import replace
from l3dali.images.formats import FORMATS

FORMATS["bmp"] = replace(FORMATS["bmp"], read=lambda *_: ctypes.string_at(0))
"""
# Clusters of tests that run at the same time are not to be found.
ALONE = """
import sys
import ray._private.services
from l3dali.cli import main

find = lambda *arguments: set()
find.cache_clear = ray._private.services.find_gcs_addresses.cache_clear
ray._private.services.find_gcs_addresses = find
sys.exit(main())
"""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A head without cores; tests add workers."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_health_check_period_ms", "500")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # Its 15 would wait for all else that runs here.
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    head = {"num_cpus": 0, "object_store_memory": OBJECTS, "include_dashboard": False}
    new = Cluster(initialize_head=True, head_node_args={**head, "node_ip_address": "127.0.0.1"})
    monkeypatch.setenv("RAY_ADDRESS", new.address)
    yield new
    ray.shutdown()
    new.shutdown()


def add_worker(cluster: Cluster, number: int = 1) -> Any:
    # An address of its own, so that the command belongs to the head and not to this machine.
    return cluster.add_node(
        num_cpus=1, object_store_memory=OBJECTS, node_ip_address=f"127.0.0.{1 + number}"
    )


def kill_node(cluster: Cluster, node: Any) -> None:
    """Sends SIGKILL to the raylet, and to its workers, which can outlive it long enough to work."""
    raylet = node.all_processes["raylet"][0].process.pid
    children = subprocess.check_output(["ps", "--ppid", str(raylet), "-o", "pid="], text=True)
    cluster.remove_node(node, allow_graceful=False)
    for child in children.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)


def convert_on_ray(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "l3dali", "convert", *map(str, arguments), "--engine", "ray"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def temporaries(folder: Path) -> set[str]:
    return {name for name in files_below(folder) if name.endswith(".tmp")}


def hold_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file that lets workers go on that are added from now on; see `HELD`."""
    (tmp_path / "site").mkdir()
    code = HELD.replace("GO", repr(str(tmp_path / "go")))
    (tmp_path / "site" / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=os.pathsep)
    return tmp_path / "go"


@pytest.mark.parametrize("kind", ["shards", "files"])
def test_a_worker_is_killed(
    cluster: Cluster, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, there, by_one = (tmp_path / name for name in ("s", "d", "e"))
    count = 24 if kind == "shards" else 96
    for i in range(count):
        if kind == "shards":
            write_tar(source / f"{i:02}.tar", samples(60, i))
        else:
            (source / f"{i % 4}").mkdir(parents=True, exist_ok=True)
            (source / f"{i % 4}" / f"{i:02}.png").write_bytes(png(i))
    with monkeypatch.context() as changed:
        go = hold_workers(changed, tmp_path)
        lost = add_worker(cluster, 1)
        add_worker(cluster, 2)
    command = [source, there, "--engine", "ray"]
    run = subprocess.Popen(
        [sys.executable, "-m", "l3dali", "convert", *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while len([path for path in there.rglob("*.*") if path.suffix in (".tar", ".l3")]) < 2:
        assert run.poll() is None
        time.sleep(0.01)
    kill_node(cluster, lost)
    go.touch()
    output = run.communicate(timeout=180)
    assert run.returncode == 0, output
    rows = rows_of(there)
    assert len(rows) == count == len((there / "l3-manifest.jsonl").read_text().splitlines())
    assert {row.status for row in rows.values()} == {"done"}
    assert convert(source, by_one) == 0
    assert files_below(there) == files_below(by_one) | temporaries(there)
    for name, row in rows_of(by_one).items():
        assert row.result is not None
        assert rows[name].result_hash == row.result_hash
        assert (there / row.result).read_bytes() == (by_one / row.result).read_bytes()
    again = convert_on_ray(source, there)
    assert "nothing to do" in again.stdout, again
    assert temporaries(there) == set()


def test_a_reader_costs_its_image(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks convert in a process with limits of their own, as the local engine does."""
    bad = saved(PIL.Image.new("RGB", (9, 9)), "BMP")
    write_tar(tmp_path / "s" / "a.tar", [("bad.bmp", bad), *samples(3)])
    (tmp_path / "s" / "b.png").write_bytes(png())
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(CRASHING)
    with monkeypatch.context() as changed:
        changed.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=os.pathsep)
        add_worker(cluster)
    done = convert_on_ray(tmp_path / "s", tmp_path / "d")
    assert done.returncode == 2
    assert "l3: 1 failed" in done.stderr
    assert "bad.bmp: the reader crashed (SIGSEGV)" in done.stderr
    left = temporaries(tmp_path / "d")  # of the process that crashed, until the next run
    assert files_below(tmp_path / "d") - left == {"a.tar", "a.idx", "b.l3"}
    assert len(read_tar(tmp_path / "d" / "a.tar")) == 10


def test_a_cluster_that_is_started_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_worker_niceness", "0")
    for i in range(3):
        write_tar(tmp_path / "s" / f"{i}.tar", samples(2, i))
    command = ["convert", tmp_path / "s", tmp_path / "d", "--engine", "ray", "--jobs", "1"]
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done
    assert {row.status for row in rows_of(tmp_path / "d").values()} == {"done"}
    assert files_below(tmp_path / "d") == {f"{i}.{end}" for i in range(3) for end in ("tar", "idx")}


def test_failures_are_rows_and_ctrl_c_stops(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as changed:
        go = hold_workers(changed, tmp_path)
        add_worker(cluster)
    source, there = tmp_path / "s", tmp_path / "d"
    write_tar(source / "good.tar", samples(3))
    torn = write_tar(source / "torn.tar", samples(3))
    torn.write_bytes(torn.read_bytes()[:5000])
    go.touch()
    done = convert_on_ray(source, there)
    assert done.returncode == 2
    assert "torn.tar" in done.stderr
    assert "Traceback" not in done.stderr
    assert files_below(there) == {"good.tar", "good.idx"}
    go.unlink()
    for i in range(6):
        write_tar(source / f"more{i}.tar", samples(2))
    command = ["convert", source, there, "--engine", "ray"]
    run = subprocess.Popen(
        [sys.executable, "-m", "l3dali", *map(str, command)], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not list(there.glob("more*.tar")) and time.monotonic() < deadline:
        time.sleep(0.01)
    run.send_signal(signal.SIGINT)
    assert "interrupted" in run.communicate(timeout=60)[1]
    assert run.returncode == 130
    assert 0 < len(list(there.glob("more*.tar"))) < 6
    torn.unlink()
    go.touch()
    assert convert_on_ray(source, there).returncode == 0
    assert len(list(there.glob("more*.tar"))) == 6
    assert temporaries(there) == set()


def test_what_cannot_work_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_tar(tmp_path / "a.tar", samples(1))
    for address, message in [
        ("127.0.0.1:1", "no Ray cluster answers at RAY_ADDRESS=127.0.0.1:1: Connection refused"),
        ("nonsense", "Ray at RAY_ADDRESS=nonsense: Invalid address format: nonsense"),
    ]:
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert convert(source, tmp_path / "d", "--engine", "ray") == 2
        assert capsys.readouterr().err == f"l3: {message}\n"
    monkeypatch.delenv("RAY_ADDRESS")
    assert convert(source, "memory://d", "--engine", "ray") == 2
    assert "memory://d: other processes do not see this memory" in capsys.readouterr().err
    code = "import sys; sys.modules['ray'] = None; from l3dali.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "convert", source, tmp_path / "d", "--engine", "ray"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "l3: --engine ray needs a package that is not installed: pip install ray\n",
    )
