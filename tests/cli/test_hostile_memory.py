"""The memory of each command on files that claim much. SECURITY.md has bound and measurement."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import cli_tools
import numpy as np
import pytest
from convert_tools import pax, png, samples, write_tar
from engines import ROOT, mutate_file
from stream_builder import Stream, constant_tile

import l3dali

pytest.importorskip("crc32c")

MAX_PIXELS = 10**6
MIB = 2**20
# MiB, of SECURITY.md: for two jobs and images of `MAX_PIXELS` at most.
BOUNDS = {
    "info": 32,
    "verify": 32,
    "decode": 64,
    "thumbnail": 64,
    "convert": 64,
    "convert --to png": 64,
    "convert --untrusted": 64,
    "profile": 64,
}
Arguments = tuple[object, ...]


def constant_file(columns: int, rows: int) -> bytes:
    """Tiles of 256 x 256 pixels of one value, 8 bytes a pixel: half a MiB for 20 bytes."""
    stream = Stream(
        256 * columns,
        256 * rows,
        channels=4,
        sample_bits=16,
        used_bits=16,
        tile_width_log2=8,
        tile_height_log2=8,
    )
    stream.payloads = [constant_tile([1] * 4)] * (columns * rows)
    return stream.to_bytes()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """L3 files: damaged ones, mutants of sound ones, and some of up to 16 GiB of pixels."""
    folder = tmp_path_factory.mktemp("hostile") / "l3"
    folder.mkdir()
    for path in (ROOT / "tests" / "invalid").glob("*.l3"):
        (folder / path.name).write_bytes(path.read_bytes())
    golden = sorted((ROOT / "tests" / "golden" / "v1").glob("*.l3"))
    for seed, path in enumerate(golden):
        (folder / f"mutant{seed}.l3").write_bytes(mutate_file(path.read_bytes(), b"", seed + 1))
    for columns, rows in ((3, 5), (4, 4), (64, 64), (256, 128)):
        (folder / f"claims{columns}x{rows}.l3").write_bytes(constant_file(columns, rows))
    kept = l3dali.encode(np.zeros((9, 9), np.uint8), icc=bytes(10**7))
    (folder / "profile.l3").write_bytes(kept)
    return folder


@pytest.fixture(scope="module")
def containers(hostile: Path) -> Path:
    """Shards, whose members and headers claim much, and pictures of other formats."""
    folder = hostile.parent / "containers"
    (folder / "loose").mkdir(parents=True)
    members = [(path.name, path.read_bytes()) for path in sorted(hostile.iterdir())]
    write_tar(folder / "l3.tar", members)
    keys = b"".join(b"%d k%06d=v\n" % (len("ab k000000=v\n"), key) for key in range(10**5))
    (folder / "keys.tar").write_bytes(pax("x", tarfile.XHDTYPE, keys) + bytes(1024))
    header = tarfile.TarInfo("long")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2**33 - 1
    (folder / "long.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(512))
    (folder / "fields.tfrecord").write_bytes(frame(b"\x08\x00" * 10**6))
    white = np.zeros((20_000, 20_000), np.uint8)
    (folder / "loose" / "claims.png").write_bytes(cli_tools.imagecodecs.png_encode(white))
    (folder / "loose" / "sound.png").write_bytes(png())
    return folder


def frame(record: bytes) -> bytes:
    from test_convert_containers import frame

    return bytes(frame(record))


# A process begins with the memory of the one that starts it as its peak: this one is small.
STARTER = """
import resource, subprocess, sys
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
code = subprocess.run(sys.argv[1:], **quiet).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak(*arguments: object) -> int:
    """The memory of `l3` with such arguments in bytes, of its largest process."""
    command = [sys.executable, "-c", STARTER, *cli_tools.L3, *map(str, arguments)]
    code, kib = subprocess.check_output(command, text=True).split()
    assert code in ("0", "2")
    return int(kib) * 1024


LIMIT = ("--max-pixels", MAX_PIXELS)
JOBS = ("-j", 2)


@pytest.mark.parametrize("command", BOUNDS)
def test_memory(command: str, hostile: Path, containers: Path, tmp_path: Path) -> None:
    """Beside what the command takes for sound files of a few bytes."""
    sound = tmp_path / "sound"
    sound.mkdir()
    (sound / "a.l3").write_bytes(l3dali.encode(np.zeros((9, 9), np.uint8)))
    one, other = tmp_path / "one", tmp_path / "other"
    arguments: dict[str, list[Arguments]] = {
        "info": [("info", sound), ("info", hostile)],
        "verify": [("verify", *LIMIT, *JOBS, sound), ("verify", *LIMIT, *JOBS, hostile)],
        "decode": [
            ("decode", *LIMIT, *JOBS, "-o", one, sound),
            ("decode", *LIMIT, *JOBS, "-o", other, hostile),
        ],
        "convert --to png": [
            ("convert", *LIMIT, *JOBS, "--to", "png", sound, one),
            ("convert", *LIMIT, *JOBS, "--to", "png", hostile, other),
        ],
    }
    write_tar(tmp_path / "shards" / "a.tar", samples(2))
    shards = tmp_path / "shards"
    for name in ("convert", "convert --untrusted"):
        options = (*LIMIT, *JOBS, *name.split()[1:])
        arguments[name] = [
            ("convert", *options, shards, one),
            ("convert", *options, containers, other),
        ]
    measure = ("profile", "--seconds", 1, *LIMIT, "-o")
    arguments["profile"] = [(*measure, one, shards), (*measure, other, containers)]
    claims = sorted(hostile.glob("[cp]*.l3"))
    arguments["thumbnail"] = [("thumbnail", path, one) for path in (sound / "a.l3", *claims)]
    base, *others = (peak(*each) for each in arguments[command])
    taken = max(others) - base
    assert taken < 2 * BOUNDS[command] * MIB


def test_bounds_are_those_of_the_document() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    found = re.findall(r"^\| `l3 ([^`]*)` \| (\d+) \| [^|]* \|$", text, re.MULTILINE)
    assert {name: int(bound) for name, bound in found} == BOUNDS
