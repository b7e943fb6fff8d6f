"""Readers of other formats, containers and books on damaged bytes; reading of libFuzzer's logs.

The C++ targets' corpora are replayed by `make sanitize`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FUZZ = Path(__file__).parents[1] / "fuzz"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FUZZ / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "path", sorted((FUZZ / "corpus" / "fuzz_readers").iterdir()), ids=lambda path: path.name
)
def test_readers_take_what_fuzzing_found(path: Path) -> None:
    for package in ("imagecodecs", "netpbmfile", "PIL", "tifffile"):
        pytest.importorskip(package)
    _load("fuzz_readers").check(path.read_bytes())


def test_readers_survive_damage(tmp_path: Path) -> None:
    for package in ("imagecodecs", "netpbmfile", "PIL", "tifffile"):
        pytest.importorskip(package)
    command = [sys.executable, str(FUZZ / "fuzz_readers.py"), "--runs", "300"]
    done = subprocess.run([*command, "--found", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Done 300 runs" in done.stdout


@pytest.mark.parametrize(
    "target", ["tar", "tfrecord", "zip", "manifest", "profile", "host", "plan"]
)
def test_commands_survive_damaged_books(tmp_path: Path, target: str) -> None:
    for package in ("crc32c", "imagecodecs", "rich", "scipy"):
        pytest.importorskip(package)
    command = [sys.executable, str(FUZZ / "fuzz_books.py"), target, "--runs", "40"]
    done = subprocess.run([*command, "--found", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Done 40 runs" in done.stdout


@pytest.mark.parametrize("target", ["requests", "files"])
def test_the_viewer_survives_what_it_is_asked_and_shown(tmp_path: Path, target: str) -> None:
    for package in ("PIL", "starlette"):
        pytest.importorskip(package)
    command = [sys.executable, str(FUZZ / "fuzz_view.py"), target, "--runs", "60"]
    done = subprocess.run([*command, "--found", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Done 60 runs" in done.stdout


@pytest.mark.parametrize(
    "fault",
    ["block[-1] = 1", "block[kBytes] = 1", "delete[] block; block[kBytes / 2] = 1"],
)
@pytest.mark.parametrize("alignment", ["", "(std::align_val_t{256}) "])
def test_large_blocks_are_watched(tmp_path: Path, fault: str, alignment: str) -> None:
    """A fuzz target keeps large blocks for the next image, and still sees what is out of them."""
    source = tmp_path / "main.cc"
    source.write_text(f"""
#include "fuzz/large_blocks.h"
int main(int count, char**) {{
  constexpr int kBytes = 100'003;
  for (int i = 0; i < 9; ++i) {{
    volatile char* kept = new {alignment}char[kBytes + i];
    kept[0] = kept[kBytes + i - 1] = 1;
    ::operator delete[](const_cast<char*>(kept));
  }}
  char* volatile block = new {alignment}char[kBytes];
  if (count > 1) {{ {fault}; }}
}}
""")
    root = Path(__file__).parents[2]
    command = [
        "g++",
        "-std=c++17",
        "-fsanitize=address",
        f"-I{root / 'tests'}",
        f"-I{root / 'src'}",
    ]
    subprocess.run([*command, str(source), "-o", str(tmp_path / "main")], check=True)
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0"}
    for arguments, fails in (([], False), (["fault"], True)):
        done = subprocess.run(
            [str(tmp_path / "main"), *arguments], capture_output=True, text=True, env=environment
        )
        assert (done.returncode != 0) == fails, done.stderr
        assert ("use-after-poison" in done.stderr) == fails, done.stderr


def test_a_reader_that_fails_or_hangs_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for package in ("imagecodecs", "PIL", "tifffile"):
        pytest.importorskip(package)
    readers = _load("fuzz_readers")

    def check(data: bytes) -> None:
        if len(data) % 4 == 0:
            raise KeyError("no ImageError")
        while len(data) % 4 == 1:
            pass

    monkeypatch.setattr(readers, "check", check)
    monkeypatch.setattr(readers, "MAX_SECONDS", 1)
    assert readers.run_readers(6, 0, tmp_path) == len(list(tmp_path.iterdir())) > 0


@pytest.mark.parametrize(
    ("tail", "executions", "cpu_s"),
    [
        (["stat::number_of_executed_units: 700", "", '{"exit": 0, "cpu_s": 700.0}'], 700, 700.0),
        (["Done 650 runs in 9 second(s)"], 650, None),
        ([], 500, None),  # killed
    ],
)
def test_ledger_reads_logs(
    tmp_path: Path, tail: list[str], executions: int, cpu_s: float | None
) -> None:
    head = {
        "target": "fuzz_parse",
        "build": "fuzz",
        "commit": "c0ffee",
        "cpu": "any",
        "started": "",
    }
    lines = [
        json.dumps(head),
        "INFO: Loaded 1 modules   (45564 inline 8-bit counters): 45564 [0x1, 0x2), ",
        "#300\tNEW    cov: 30 ft: 40 corp: 3/9b lim: 4 exec/s: 0 rss: 30Mb L: 3/4",
        "#400\tREDUCE cov: 31 ft: 44 corp: 3/9b lim: 4 exec/s: 0 rss: 30Mb L: 2/4",
        "#500\tpulse  cov: 31 ft: 44 corp: 3/9b lim: 4 exec/s: 0 rss: 30Mb",
        "left out: 20",
    ]
    campaign = _load("campaign")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("\n".join(lines + tail))
    (tmp_path / "artifacts").mkdir()
    record = campaign.read_log(tmp_path / "logs" / "a.log")
    assert record["executions"] == executions
    assert record.get("cpu_s") == cpu_s
    assert (record["cov"], record["features"], record["edges"]) == (31, 44, 45564)

    campaign.ledger(tmp_path, tmp_path / "none", tmp_path / "fuzz")
    assert json.loads((tmp_path / "fuzz.json").read_text())["executions"] == executions
    since = f"{executions - 400} | {'0.0' if cpu_s is None else '5.0'}"
    row = f"| `fuzz_parse` | fuzz | 1 | {executions} | 20 | {since} |"
    assert row in (tmp_path / "fuzz.md").read_text()

    (tmp_path / "logs" / "a.log").rename(tmp_path / "logs" / "b.log")  # of another machine
    campaign.ledger(tmp_path, tmp_path / "none", tmp_path / "fuzz")
    assert json.loads((tmp_path / "fuzz.json").read_text())["executions"] == 2 * executions
