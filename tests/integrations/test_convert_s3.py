"""`l3 convert` from and to a bucket: a real S3 server on loopback, with its faults."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3fs
from convert_tools import (
    as_pixels,
    data_of,
    image,
    pixels_of,
    png,
    read_tar,
    rows_of,
    samples,
    write_files,
    write_pngs,
    write_tar,
)
from s3_tools import FOREVER, Fault, Server

import l3dali

SHARD_SAMPLES = 40
BLOCK_BYTES = 5 * 2**20


@pytest.fixture
def small_blocks(site: Path) -> None:
    """Requests of 5 MiB, the least that S3 takes as a part of an upload, in all processes."""
    code = "from l3dali.datasets.convert import storage as s; s._WHOLE_BLOCK_BYTES = s._PART_BYTES"
    (site / "sitecustomize.py").write_text(f"{code} = {BLOCK_BYTES}")


def convert_cli(*arguments: object) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the workers of this one have the environment of the first test."""
    return subprocess.run(
        [sys.executable, "-m", "l3dali", "convert", *map(str, arguments)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def upload(folder: Path, name: str) -> None:
    s3fs.S3FileSystem().put(str(folder), f"data/{name}", recursive=True)


def download(name: str, folder: Path) -> Path:
    fs = s3fs.S3FileSystem()
    fs.invalidate_cache()
    fs.get(f"data/{name}", str(folder), recursive=True)
    return folder


def listed(name: str) -> set[str]:
    fs = s3fs.S3FileSystem()
    fs.invalidate_cache()
    found = {key.removeprefix(f"data/{name}/") for key in fs.find(f"data/{name}")}
    return found - {"l3-manifest.jsonl"}


def unfinished_uploads() -> list[Any]:
    fs = s3fs.S3FileSystem()
    return list(fs.call_s3("list_multipart_uploads", Bucket="data").get("Uploads", []))


def test_round_trips(server: Server, tmp_path: Path) -> None:
    source = tmp_path / "s"
    shard = write_tar(source / "a.tar", samples(5))
    write_files(source, {"folder/x.png": png(7), "folder/labels.json": b'{"x": 7}'})
    table = pa.table({"label": [1, 2], "image": [png(1), png(2)]})
    pq.write_table(table, source / "t.parquet")
    upload(source, "in")
    for command in (
        ["s3://data/in", "s3://data/l3"],
        ["s3://data/l3", "s3://data/png", "--to=png"],
    ):
        done = convert_cli(*command)
        assert done.returncode == 0, done
    assert listed("l3") == {"a.tar", "a.idx", "folder/x.l3", "folder/labels.json", "t.parquet"}
    there, back = download("l3", tmp_path / "l3"), download("png", tmp_path / "png")
    expected = as_pixels(data_of(shard))
    for folder in (there, back):
        assert as_pixels(data_of(folder / "a.tar")) == expected
        result = pq.read_table(folder / "t.parquet")
        assert result["label"].to_pylist() == [1, 2]
        for i, value in enumerate(result["image"].to_pylist()):
            assert np.array_equal(pixels_of(value), image(i + 1))
        assert (folder / "folder" / "labels.json").read_bytes() == b'{"x": 7}'
    assert np.array_equal(pixels_of((back / "folder" / "x.png").read_bytes()), image(7))
    assert {row.status for row in rows_of(there).values()} == {"done"}
    assert unfinished_uploads() == []

    server.requests.clear()
    again = convert_cli("s3://data/in", "s3://data/l3")
    assert "nothing to do" in again.stdout, again
    assert {method for method, _ in server.requests} <= {"GET", "HEAD"}
    upload_again = write_tar(source / "a.tar", samples(2, 20))
    s3fs.S3FileSystem().put(str(upload_again), "data/in/a.tar")
    assert convert_cli("s3://data/in", "s3://data/l3").returncode == 0
    assert len(read_tar(download("l3", tmp_path / "new") / "a.tar")) == 6


def test_empty_objects_that_stand_for_folders(server: Server, tmp_path: Path) -> None:
    fs = s3fs.S3FileSystem()
    fs.pipe_file("data/in/a/x.png", png(7))
    for key in ("in/", "in/a/", "in/empty/"):
        fs.call_s3("put_object", Bucket="data", Key=key, Body=b"")
    done = convert_cli("s3://data/in", tmp_path)
    assert done.returncode == 0, done
    assert rows_of(tmp_path).keys() == {"a/x.png"}


def test_names_of_objects_are_no_patterns(server: Server, tmp_path: Path) -> None:
    """Removing one result removed others, outside of DEST too."""
    source = write_pngs(tmp_path / "s", "ok.png", "*", "?k.png", "[o]k.png")
    fs = s3fs.S3FileSystem()
    fs.pipe_file("data/d1/ok.l3", b"another's")
    assert convert_cli(source, "s3://data/d[1]").returncode == 0
    fs.pipe_file("data/d[1]/mine.txt", b"mine")
    for name in ("*", "?k.png", "[o]k.png"):
        (source / name).unlink()
    assert convert_cli(source, "s3://data/d[1]", "--remove-gone").returncode == 0
    assert listed("d[1]") == {"ok.l3", "mine.txt"}
    assert listed("d1") == {"ok.l3"}


@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD"])
def test_503_is_tried_again(server: Server, tmp_path: Path, method: str) -> None:
    upload(write_tar(tmp_path / "s" / "a.tar", samples(3)).parent, "in")
    # Answers to HEAD have no body that says what is wrong, so only botocore tries again: once here.
    times = 1 if method == "HEAD" else 3
    server.faults.append(Fault(method, "/l3/a.tar" if method == "PUT" else "/in/a.tar", times))
    done = convert_cli("s3://data/in/a.tar", "s3://data/l3")
    assert done.returncode == 0, done
    assert server.faults[0].met == times
    assert listed("l3") == {"a.tar", "a.idx"}


def test_lasting_503_names_the_object(server: Server, tmp_path: Path) -> None:
    for name in "ab":
        write_tar(tmp_path / "s" / f"{name}.tar", samples(3))
    upload(tmp_path / "s", "in")
    server.faults.append(Fault("GET", "/in/a.tar", FOREVER))
    done = convert_cli("s3://data/in", "s3://data/l3")
    assert done.returncode == 2
    assert "s3://data/in/a.tar" in done.stderr, done
    assert "Traceback" not in done.stderr
    assert listed("l3") == {"b.tar", "b.idx"}
    server.faults[:] = [Fault("PUT", "/l3/a.tar", FOREVER)]
    done = convert_cli("s3://data/in", "s3://data/l3")
    assert done.returncode == 2
    assert "s3://data/l3/a.tar" in done.stderr, done
    assert "a.tar" not in listed("l3")
    server.faults.clear()
    assert convert_cli("s3://data/in", "s3://data/l3").returncode == 0
    assert listed("l3") == {"a.tar", "a.idx", "b.tar", "b.idx"}


def test_an_object_that_cannot_be_removed(server: Server, tmp_path: Path) -> None:
    write_files(tmp_path / "s", dict.fromkeys(("a.l3", "b.l3"), l3dali.encode(image())))
    assert convert_cli(tmp_path / "s", "s3://data/out", "--to", "png").returncode == 0
    server.faults.append(Fault("DELETE", "/out/a.png", FOREVER))
    done = convert_cli(tmp_path / "s", "s3://data/out", "--to", "tif")
    assert done.returncode == 2
    assert "a.l3: its earlier result cannot be removed: " in done.stderr, done
    assert "s3://data/out/a.png" in done.stderr
    assert listed("out") == {"a.png", "a.tif", "b.tif"}
    server.faults.clear()
    assert convert_cli(tmp_path / "s", "s3://data/out", "--to", "tif").returncode == 0
    assert listed("out") == {"a.tif", "b.tif"}


@pytest.mark.parametrize("times", [2, FOREVER])
def test_a_connection_closed_in_the_middle(server: Server, tmp_path: Path, times: int) -> None:
    source = write_tar(tmp_path / "s" / "a.tar", samples(SHARD_SAMPLES))
    upload(source.parent, "in")
    server.faults.append(Fault("GET", "/in/a.tar", times, kind="cut"))
    done = convert_cli("s3://data/in", "s3://data/l3")
    assert server.faults[0].met >= 2
    assert "Traceback" not in done.stderr
    if times == FOREVER:
        assert done.returncode == 2
        assert "s3://data/in/a.tar" in done.stderr, done
        assert listed("l3") <= {"a.idx"}
    else:
        assert done.returncode == 0, done
        result = data_of(download("l3", tmp_path / "l3") / "a.tar")
        assert as_pixels(result) == as_pixels(samples(SHARD_SAMPLES))
    assert unfinished_uploads() == []


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", ["500", "short", "replaced"])
def test_a_bucket_that_lies(server: Server, tmp_path: Path, kind: str) -> None:
    """Answers that always fail, answers that are too short, an object replaced during its reading.

    What comes of it is the object's pixels, or a failure that names the object.
    """
    noise = np.random.default_rng(1).integers(0, 256, (BLOCK_BYTES + 2**19,), np.uint8).tobytes()
    members = [*samples(2), ("0002.bin", noise)]
    upload(write_tar(tmp_path / "s" / "a.tar", members).parent, "in")
    other = write_tar(tmp_path / "b.tar", [*samples(2, first=2), ("0002.bin", noise[::-1])])

    def replace(number: int) -> None:
        if number == 2 and kind == "replaced":
            s3fs.S3FileSystem().put(str(other), "data/in/a.tar")

    fault = Fault("GET", "/in/a.tar", FOREVER, "none" if kind == "replaced" else kind, replace)
    server.faults.append(fault)
    done = convert_cli("s3://data/in", "s3://data/l3", "--grow")  # reads it once
    assert fault.met >= 2
    assert "Traceback" not in done.stderr
    if kind == "short" and done.returncode == 0:
        result = data_of(download("l3", tmp_path / "l3") / "a.tar")
        assert as_pixels(result) == as_pixels(members)
    else:
        assert done.returncode == 2
        assert "a.tar" in done.stderr, done
        assert listed("l3") <= {"a.idx"}
    assert unfinished_uploads() == []


@pytest.mark.usefixtures("small_blocks")
def test_a_large_upload_is_whole_or_absent(server: Server, tmp_path: Path) -> None:
    """Parts of a multi-part upload: its last part fails, and nothing stands there."""
    noise = np.random.default_rng(1).integers(0, 256, (BLOCK_BYTES + 2**19,), np.uint8).tobytes()
    source = write_tar(tmp_path / "s" / "a.tar", [*samples(2), ("0002.bin", noise)])
    upload(source.parent, "in")
    server.requests.clear()
    assert convert_cli("s3://data/in", "s3://data/whole", "--grow").returncode == 0
    for method, part in (("GET", "/in/a.tar"), ("PUT", "/whole/a.tar?partNumber")):
        # A bucket answers some thousand a second.
        assert sum(each == method and part in path for each, path in server.requests) == 2
    server.faults[:] = [Fault("PUT", "/l3/a.tar", FOREVER)]
    done = convert_cli("s3://data/in", "s3://data/l3")
    assert done.returncode == 2
    assert "s3://data/l3/a.tar" in done.stderr, done
    assert "a.tar" not in listed("l3")
    assert unfinished_uploads() == []


@pytest.mark.parametrize(
    ("fault", "source"),
    [
        (Fault("GET", "/in/b-00000-of-00001", FOREVER, "cut"), "s3://data/in"),
        (Fault("HEAD", "/in/b-00000-of-00001", FOREVER), "s3://data/in/{a.tar,b-00000-of-00001}"),
    ],
    ids=["first bytes", "place"],
)
def test_a_file_that_cannot_be_looked_at_costs_no_others(
    server: Server, tmp_path: Path, fault: Fault, source: str
) -> None:
    """Errors of aiohttp are no OSErrors: they ended the run with a traceback."""
    upload(write_tar(tmp_path / "s" / "a.tar", samples(1)).parent, "in")
    (tmp_path / "b-00000-of-00001").write_bytes(bytes(99))
    upload(tmp_path / "b-00000-of-00001", "in/b-00000-of-00001")
    server.faults.append(fault)
    done = convert_cli(source, tmp_path / "d")
    assert fault.met >= 2
    assert "Traceback" not in done.stderr
    assert "b-00000-of-00001: " in done.stderr, done
    assert done.returncode == 2
    assert (tmp_path / "d" / "a.tar").exists()
