"""`l3 convert --engine ray` on a real cluster of two workers, one of which is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from convert_tools import convert, files_below, png, rows_of, samples, write_tar

from l3dali.datasets.convert import ray_engine

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # what Ray calls loopback alone
ray = pytest.importorskip("ray")
pytest.importorskip("rich")
from ray.cluster_utils import Cluster  # noqa: E402

OBJECTS = int(100e6)
# No start of a worker may import l3dali: what a machine is where nobody has installed it.
WITHOUT_L3DALI = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "l3dali":
            raise ModuleNotFoundError("No module named 'l3dali'", name=name)

sys.meta_path.insert(0, Missing())
"""
# A worker does its first job, and holds the others until a file says go on: so there is a run to
# disturb, whatever the clock says.
HELD = """
import os, time
from l3dali.datasets.convert import job

convert_each = job.convert_each
jobs = []

def held(*arguments, **options):
    jobs.append(arguments)
    is_stopped = arguments[1]
    while len(jobs) > 1 and not os.path.exists(GO) and not is_stopped():
        time.sleep(0.01)
    yield from convert_each(*arguments, **options)

job.convert_each = held
"""
# A worker ends at a step of what is named after it: once for each name, or, of some, always.
STEPS = ("reading", "encoding", "writing", "announced", "appeared", "published")
DYING = """
import os, signal
from l3dali.datasets.convert import pipeline, storage

def die_at(step, place):
    name = os.path.basename(place)
    always = os.path.exists(FOLDER + "/always")
    if not name.startswith(step) or name.endswith(".idx"):
        return
    if always and name not in ("writing.tar", "published.tar"):
        return
    deaths = FOLDER + "/" + name
    if os.path.exists(deaths) and not always:
        return
    with open(deaths, "a") as file:
        file.write(".")
    os.kill(os.getpid(), signal.SIGKILL)

def read(self, size):
    data = _read(self, size)
    die_at("reading", self._place)
    return data

def convert_image(blob, *arguments):
    die_at("encoding", blob.name)
    return _convert_image(blob, *arguments)

def write(self, data):
    half = len(data) // 2
    _write(self, data[:half])
    self._file.flush()
    die_at("writing", self._place)
    _write(self, data[half:])

def replace(source, target, **folders):
    die_at("announced", target)
    _replace(source, target, **folders)
    die_at("appeared", target)  # a shard before its index
    name, end = os.path.splitext(target)
    if end != ".tar":  # It has appeared with its index.
        die_at("published", name + ".tar" if end == ".idx" else target)

_read, storage.HashedReader._read = storage.HashedReader._read, read
_convert_image, pipeline.convert_image = pipeline.convert_image, convert_image
_write, storage.HashedWriter.write = storage.HashedWriter.write, write
_replace, os.replace = os.replace, replace
"""
# A worker tells its nice when it converts.
NICE = """
import os
from l3dali.datasets.convert import job

convert_each = job.convert_each

def tell(*arguments, **options):
    with open(FILE, "a") as file:
        print(os.nice(0), file=file)
    yield from convert_each(*arguments, **options)

job.convert_each = tell
"""
WITH_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
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
    head = {"num_cpus": 0, "object_store_memory": OBJECTS, "include_dashboard": False}
    new = Cluster(initialize_head=True, head_node_args={**head, "node_ip_address": "127.0.0.1"})
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


def convert_on(
    cluster: Cluster, *arguments: object, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    command = [*map(str, arguments), "--engine", "ray", "--address", cluster.address]
    return subprocess.run(
        [sys.executable, "-m", "l3dali", "convert", *command],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def temporaries(folder: Path) -> set[str]:
    return {name for name in files_below(folder) if name.endswith(".tmp")}


def hold_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file that lets workers go on that are added from now on; see `HELD`."""
    (tmp_path / "site").mkdir()
    code = HELD.replace("GO", repr(str(tmp_path / "go")))
    (tmp_path / "site" / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=os.pathsep)
    return tmp_path / "go"


class Publications:
    """Counts how often each result appears: a rename gives it another inode."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._inodes: dict[str, int] = {}
        self.counts: Counter[str] = Counter()

    def look(self) -> int:
        for path in self._folder.rglob("*"):
            try:
                inode = path.stat().st_ino
            except FileNotFoundError:
                continue
            if path.suffix in (".tar", ".l3") and self._inodes.get(str(path)) != inode:
                self._inodes[str(path)] = inode
                self.counts[path.name] += 1
        return len(self.counts)


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
    command = [source, there, "--engine", "ray", "--address", cluster.address]
    run = subprocess.Popen(
        [sys.executable, "-m", "l3dali", "convert", *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    seen = Publications(there)
    was_killed = False
    deadline = time.monotonic() + 180
    while run.poll() is None and time.monotonic() < deadline:
        if seen.look() >= 2 and not was_killed:
            kill_node(cluster, lost)
            was_killed = True
            go.touch()
        time.sleep(0.002)
    output = run.communicate(timeout=10)
    assert run.returncode == 0, output
    seen.look()
    assert was_killed
    assert len(seen.counts) == count
    assert set(seen.counts.values()) == {1}
    rows = rows_of(there)
    assert len(rows) == count == len((there / "l3-manifest.jsonl").read_text().splitlines())
    assert {row.status for row in rows.values()} == {"done"}
    assert convert(source, by_one) == 0
    assert files_below(there) == files_below(by_one) | temporaries(there)
    for name, row in rows_of(by_one).items():
        assert row.result is not None
        assert rows[name].result_hash == row.result_hash
        assert (there / row.result).read_bytes() == (by_one / row.result).read_bytes()
    again = convert_on(cluster, source, there)
    assert "nothing to do" in again.stdout, again
    assert temporaries(there) == set()


def test_a_worker_dies_at_each_step(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SIGKILL. A job that always ends its worker is told of, and costs no other."""
    source, by_one, died, site = (tmp_path / name for name in ("s", "e", "died", "site"))
    for number, step in enumerate(STEPS):
        write_tar(source / f"{step}.tar", [(f"{step}.member.png", png(number))])
        (source / f"{step}.file.png").write_bytes(png(number))
    for folder in (died, site):
        folder.mkdir()
    (site / "sitecustomize.py").write_text(DYING.replace("FOLDER", repr(str(died))))
    with monkeypatch.context() as changed:
        changed.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
        for number in (1, 2):
            add_worker(cluster, number)
    assert convert(source, by_one) == 0

    def convert_there(name: str) -> tuple[subprocess.CompletedProcess[str], dict[str, int]]:
        """Runs; and how often a worker has died at what."""
        before = {path.name: path.stat().st_size for path in died.iterdir()}
        done = convert_on(cluster, source, tmp_path / name, timeout=400)
        after = {path.name: path.stat().st_size for path in died.iterdir()}
        return done, {name: n for name, size in after.items() if (n := size - before.get(name, 0))}

    def is_same(name: str) -> bool:
        there = tmp_path / name
        same = files_below(there) - temporaries(there) == files_below(by_one)
        return same and all(
            (there / file).read_bytes() == (by_one / file).read_bytes()
            for file in files_below(by_one)
        )

    done, deaths = convert_there("once")
    assert done.returncode == 0, done
    results = {f"{step}.{end}" for step in STEPS[2:] for end in ("tar", "file.l3")}
    inputs = {"reading.tar", "reading.file.png", "encoding.member.png", "encoding.file.png"}
    assert deaths == dict.fromkeys(results | inputs, 1)
    assert is_same("once")

    (died / "always").touch()
    done, deaths = convert_there("always")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done
    # A task is run four times. One whose result has appeared finds it the second time.
    assert deaths == {"writing.tar": 4, "published.tar": 1}
    (failed,) = [row for row in rows_of(tmp_path / "always").values() if row.status != "done"]
    assert failed.source == "writing.tar"
    assert failed.reason.startswith("Ray: ")
    assert "writing.tar: Ray: " in done.stderr
    left = files_below(tmp_path / "always") - temporaries(tmp_path / "always")
    assert left == files_below(by_one) - {"writing.tar", "writing.idx"}
    (died / "always").unlink()
    done, deaths = convert_there("always")
    assert (done.returncode, deaths) == (0, {}), done
    assert is_same("always")
    assert temporaries(tmp_path / "always") == set()


def test_a_cluster_without_machines(cluster: Cluster, tmp_path: Path) -> None:
    """Ray waits for one, as clusters grow. The command waits too, and says so."""
    write_tar(tmp_path / "s" / "a.tar", samples(2))
    command = [tmp_path / "s", tmp_path / "d", "--engine", "ray", "--address", cluster.address]
    run = subprocess.Popen(
        [sys.executable, "-m", "l3dali", "convert", *map(str, command), "--quiet"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stderr is not None
    told = run.stderr.readline()
    assert told == "l3: no machine of the cluster has 1 core now: waiting for one\n"
    add_worker(cluster)
    assert run.communicate(timeout=120)[1] == ""
    assert run.returncode == 0
    assert files_below(tmp_path / "d") == {"a.tar", "a.idx"}


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


@pytest.mark.parametrize(("workers", "tasks"), [(1, 1), (2, 2), (4, 8), (6, 8)])
def test_no_more_cores_than_jobs(workers: int, tasks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray runs what it is given on all cores of the cluster: here 4."""
    monkeypatch.setattr(ray_engine, "_cores", lambda: 4)
    assert ray_engine._room(workers, threads=1) == tasks


@pytest.mark.parametrize(("cores", "count"), [(0, 1), (32, 1), (33, 2), (6400, 8)])
def test_ledgers_grow_with_the_cluster(cores: int, count: int) -> None:
    assert ray_engine._count_of_ledgers(cores) == count


def test_ledgers_are_beside_the_command(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 2):
        add_worker(cluster, number)
    monkeypatch.setattr(ray_engine, "_count_of_ledgers", lambda cores: 4)
    ray_engine.connect(cluster.address, 1)
    asked = [
        ledger.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
        for ledger in ray_engine._ledgers
    ]
    assert ray.get(asked, timeout=120) == [ray.get_runtime_context().get_node_id()] * 4
    ray_engine.disconnect()


def test_several_ledgers_and_workers_that_keep_their_nice(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    code = NICE.replace("FILE", repr(str(tmp_path / "nice")))
    (tmp_path / "site" / "sitecustomize.py").write_text(code)
    for i in range(4):
        write_tar(tmp_path / "s" / f"{i}.tar", samples(2, i))
    with monkeypatch.context() as changed:
        changed.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=os.pathsep)
        changed.setenv("RAY_worker_niceness", "3")  # beside its own
        for number in (1, 2):
            add_worker(cluster, number)
    monkeypatch.setattr(ray_engine, "_CORES_OF_A_LEDGER", 1)
    told = ["--engine", "ray", "--address", cluster.address]
    assert convert(tmp_path / "s", tmp_path / "d", *told) == 0
    assert convert(tmp_path / "s", tmp_path / "e") == 0
    assert (tmp_path / "nice").read_text().split() == [str(os.nice(0) + 3)] * 4
    for name in files_below(tmp_path / "e"):
        assert (tmp_path / "d" / name).read_bytes() == (tmp_path / "e" / name).read_bytes()


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
    done = convert_on(cluster, source, there)
    assert done.returncode == 2
    assert "torn.tar" in done.stderr
    assert "Traceback" not in done.stderr
    assert files_below(there) == {"good.tar", "good.idx"}
    go.unlink()
    for i in range(6):
        write_tar(source / f"more{i}.tar", samples(2))
    command = ["convert", source, there, "--engine", "ray", "--address", cluster.address]
    code = f"{WITH_CTRL_C}; import l3dali.__main__"
    run = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, command)], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not list(there.glob("more*.tar")) and time.monotonic() < deadline:
        time.sleep(0.01)
    run.send_signal(signal.SIGINT)
    assert "interrupted" in run.communicate(timeout=60)[1]
    assert run.returncode == 130
    assert temporaries(there) == set()
    assert 0 < len(list(there.glob("more*.tar"))) < 6
    torn.unlink()
    go.touch()
    assert convert_on(cluster, source, there).returncode == 0
    assert len(list(there.glob("more*.tar"))) == 6


def test_a_worker_without_l3dali(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WITHOUT_L3DALI)
    write_tar(tmp_path / "s" / "a.tar", samples(1))
    with monkeypatch.context() as changed:
        changed.setenv("PYTHONPATH", str(tmp_path / "site"))
        add_worker(cluster)
    done = convert_on(cluster, tmp_path / "s", tmp_path / "d")
    assert done.returncode == 2
    assert "a worker of the cluster has no l3dali; install it on all machines" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_cannot_work_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_tar(tmp_path / "a.tar", samples(1))
    ray_at = ("--engine", "ray", "--address")
    for arguments, message in [
        ((*ray_at, "127.0.0.1:1"), "no Ray cluster answers at 127.0.0.1:1: Connection refused"),
        ((*ray_at, "nonsense"), "Ray at nonsense: Invalid address format: nonsense"),
        (("--address", "127.0.0.1:1"), "--address is for --engine ray"),
    ]:
        assert convert(source, tmp_path / "d", *arguments) == 2
        assert capsys.readouterr().err == f"l3: {message}\n"
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
        "l3: --engine ray needs what is not installed: pip install ray\n",
    )


def test_no_module_of_the_current_folder_is_run(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray puts it first where workers look for modules."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.png").write_bytes(png())
    for name in ("l3dali", "tifffile", "zoneinfo"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'a')")
    add_worker(cluster)
    monkeypatch.chdir(tmp_path)
    program = Path(sys.executable).with_name("l3")
    command = [program, "convert", tmp_path / "s", tmp_path / "d", "--engine", "ray", "--address"]
    done = subprocess.run(
        [*map(str, command), cluster.address], capture_output=True, text=True, timeout=120
    )
    assert not (tmp_path / "mark").exists()
    assert done.returncode == 0, done
