"""tools/conformance.py accepts correct decoders and reports each way to be wrong."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import conformance
import pytest
from conformance import Found, WrongCommandError
from reference_decoder import STATUS_NAMES

TESTS = Path(__file__).parents[1]
TOOL = [sys.executable, str(TESTS.parent / "tools/conformance.py")]
REFERENCE = f"{sys.executable} {TESTS / 'format/reference_decoder.py'} {{input}} {{output}}"
FEW = [
    "golden/v1/stored.l3",
    "golden/v1/bits_12_of_16_delta.l3",
    "golden/v1/rans_3_channels_8_bits.l3",
    "invalid/kTruncated__empty_file.l3",
    "invalid/kBadMagic__short_and_different.l3",
    "invalid/kChecksumMismatch__tile.l3",
]
IMAGE = {"file": "a", "status": "kOk", "rules": [], "shape": [1, 1, 1], "dtype": "uint8"}


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """A folder of a few files, and their manifest."""
    folder = tmp_path / "few files"
    manifest = json.loads((TESTS / "conformance.json").read_text())
    manifest["files"] = [entry for entry in manifest["files"] if entry["file"] in FEW]
    assert len(manifest["files"]) == len(FEW)
    for name in FEW:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TESTS / name, folder / name)
    (folder / "conformance.json").write_text(json.dumps(manifest))
    return folder


def command(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    run = [*TOOL, *map(str, arguments)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def script(folder: Path, text: str) -> str:
    """A decoder in Python; its command."""
    path = folder / "decoder.py"
    path.write_text(f"import sys\nsource, target = sys.argv[1:]\n{text}\n")
    return f"{sys.executable} '{path}' {{input}} {{output}}"


def test_own_decoder_conforms() -> None:
    done = command(TESTS)
    files = len(json.loads((TESTS / "conformance.json").read_text())["files"])
    assert files == len([*TESTS.glob("golden/*/*.l3"), *TESTS.glob("invalid/*.l3")])
    assert f"{files} of {files} files are decoded or refused as" in done.stdout
    rows = [line.split()[0] for line in done.stdout.splitlines() if line.endswith(" 0")]
    sections = "2 3 4 4.1 4.2 4.3 4.4 4.6 5 5.1 5.2 5.3 5.4 5.5 5.6 5.7 6 A B"
    assert rows == sections.split()


def test_statuses_are_in_the_order_of_their_numbers() -> None:
    assert conformance.STATUSES == STATUS_NAMES


def test_another_decoder_conforms(few: Path) -> None:
    done = command(few, "--decoder", REFERENCE)
    assert "6 of 6 files are decoded" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("text", "wrong", "message"),
    [
        ("open(target, 'wb').close()", 6, "stored.l3: 855 bytes of samples expected; found 0"),
        ("sys.exit(6)", 6, "an image expected; it was refused: kCorruptTile"),
        ("sys.exit(7)", 5, "kTruncated expected; found kChecksumMismatch"),
        ("sys.exit(99)", 6, "kTruncated expected; found no Status"),
        ("sys.exit(127)", 6, "kTruncated expected; the decoder ended with status 127"),
        ("import os; os.kill(os.getpid(), 9)", 6, "expected; the decoder ended by signal 9"),
        ("pass", 6, "an image expected; the decoder wrote no output"),
        ("open(target, 'wb').truncate(2**43)", 6, "expected; found 8796093022208"),
        ("open(target, 'wb').write(bytes(855))", 6, "stored.l3: the samples differ; it shows 2: "),
    ],
)
def test_differences_are_found(
    few: Path, tmp_path: Path, text: str, wrong: int, message: str
) -> None:
    done = command(few, "--decoder", script(tmp_path, text), "-j", "2", code=1)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == wrong
    assert f"{6 - wrong} of 6 files" in done.stdout


def test_a_decoder_that_hangs(few: Path, tmp_path: Path) -> None:
    hangs = script(tmp_path, "import time; time.sleep(60)")
    done = command(few, "--decoder", hangs, "--timeout", "0.2", code=1)
    assert "an image expected; the decoder took more than 0.2 seconds" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_decoders(few: Path, tmp_path: Path, number: int) -> None:
    """Those that ignore it were waited for, and what they had started went on."""
    hangs = script(
        tmp_path,
        "import os, signal, subprocess, time\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "print(os.getpid(), child.pid, file=open(sys.path[0] + f'/pids.{os.getpid()}', 'w'))\n"
        "time.sleep(1000)",
    )
    run = [*TOOL, str(few), "--decoder", hangs, "--timeout", "1000", "-j", "2"]
    with subprocess.Popen(run, stderr=subprocess.PIPE, text=True) as process:
        while len(pids := " ".join(p.read_text() for p in tmp_path.glob("pids.*")).split()) < 4:
            time.sleep(0.01)
        process.send_signal(number)
        assert process.communicate(timeout=300)[1] == ""
    assert process.returncode == 128 + number
    for _ in range(100):  # a killed process takes a moment to end on a busy machine
        if not any(map(is_running, pids)):
            return
        time.sleep(0.1)
    raise AssertionError(f"still running: {pids}")


def test_what_a_decoder_leaves_behind_is_ended(few: Path, tmp_path: Path) -> None:
    leaves = script(
        tmp_path,
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "print(child.pid, file=open(sys.path[0] + f'/pids.{child.pid}', 'w'))\n"
        "sys.exit(1)",
    )
    command(few, "--decoder", leaves, code=1)
    pids = [path.read_text().strip() for path in tmp_path.glob("pids.*")]
    assert len(pids) == len(FEW)
    assert not [pid for pid in pids if is_running(pid)]


def is_running(pid: str) -> bool:
    """Not if it is dead and not yet waited for."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")")[-1].split()[0] != "Z"


def test_any_status(few: Path, tmp_path: Path) -> None:
    refuses = script(tmp_path, "sys.exit(1)")
    done = command(few, "--decoder", refuses, "--any-status", "--json", code=1)
    entries = json.loads(done.stdout)
    assert [entry["file"] for entry in entries if entry["difference"]] == FEW[:3]


def test_samples_count_one_by_one(few: Path) -> None:
    cases = conformance.read_manifest(few)

    def almost(case: conformance.Case) -> Found:
        found = conformance.own_decoder(case)
        samples = found.samples[:-1] + b"\x5a" if found.samples else b""
        return Found(found.status, samples, len(samples))

    wrong = [difference for _, difference in conformance.run(cases, almost) if difference]
    assert wrong == ["the samples differ"] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--decoder", "cat {input}"], "the command does not contain {output}"),
        (["--decoder", "cat '{input} {output}"], "--decoder: No closing quotation"),
        (["--decoder", "no-such-program {input} {output}"], "no-such-program: No such file"),
    ],
)
def test_commands_that_are_none(few: Path, arguments: list[str], message: str) -> None:
    assert message in command(few, *arguments, code=2).stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2 is not known"),
        ({"files": []}, "it names no files"),
        ({"files": [{"file": "a"}]}, "damaged: KeyError: 'status'"),
        ({"files": [{"file": "a", "status": "kNone", "rules": []}]}, "unknown status 'kNone'"),
        ({"files": [IMAGE | {"dtype": "i4"}]}, "damaged: KeyError: 'i4'"),
        ({"files": [IMAGE | {"file": "../a"}]}, "is not a file below the folder"),
    ],
)
def test_damaged_manifests(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(WrongCommandError, match="name the folder with it"):
        conformance.read_manifest(tmp_path)
    (tmp_path / "a").touch()
    manifest = {"version": 1, "files": []} | change
    (tmp_path / "conformance.json").write_text(json.dumps(manifest))
    with pytest.raises(WrongCommandError, match=message):
        conformance.read_manifest(tmp_path)
