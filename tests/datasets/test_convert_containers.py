"""`l3 convert` with TFRecord shards and with storage that is not local."""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert_tools import (
    as_pixels,
    convert,
    files_below,
    image,
    negative_header,
    pixels_of,
    png,
    read_tar,
    rows_of,
    samples,
    write_tar,
)

import l3dali
from l3dali.cli import main
from l3dali.console import reason_of
from l3dali.datasets.convert import pipeline, tar, tfrecord
from l3dali.datasets.convert.engine import convert_job
from l3dali.datasets.convert.images import Blob, Options, Outcome, convert_image
from l3dali.datasets.convert.manifest import FAILED, Manifest, Row, row_of_json
from l3dali.datasets.convert.storage import (
    MANIFEST_NAME,
    HashedReader,
    Listing,
    RemoteFolder,
    Stored,
    open_folder,
)
from l3dali.datasets.convert.work import find_sources, find_work
from l3dali.signatures import L3_SIGNATURE

pytest.importorskip("rich")
crc32c = pytest.importorskip("crc32c")


def frame(record: bytes) -> bytes:
    """A record as a file has it."""
    length = struct.pack("<Q", len(record))
    crcs = [struct.pack("<I", tfrecord.masked_crc(part)) for part in (length, record)]
    return length + crcs[0] + record + crcs[1]


def field(number: int, value: bytes) -> bytes:
    """A field of bytes of a message."""
    size, length = len(value), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + value


def example(*features: tuple[str, bytes], sequence: bool = False) -> bytes:
    """An Example whose features hold one value of bytes each, in this order, and more."""
    entries = []
    for key, value in features:
        feature = field(1, field(1, value))
        if sequence:
            feature = field(1, feature) * 2
        entries.append(field(1, field(1, key.encode()) + field(2, feature)))
    # Numbers of the label as no library would pack them, and a field that nobody knows.
    label = field(2, field(3, b"\x08\x87\x80\x00"))
    entries.append(field(1, field(1, b"label") + label))
    return field(2 if sequence else 1, b"".join(entries)) + field(9, b"unknown")


def records_of(path: Path) -> list[bytes]:
    data, records = path.read_bytes(), []
    while data:
        length = struct.unpack_from("<Q", data)[0]
        record = data[12 : 12 + length]
        assert data[: 16 + length] == frame(record)
        records.append(record)
        data = data[16 + length :]
    return records


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("name", ["a.tfrecord", "train-00000-of-00002"])
def test_records_and_back(tmp_path: Path, name: str, sequence: bool) -> None:
    def features(i: int, image: bytes) -> list[tuple[str, bytes]]:
        caption = ("caption", b"P6 and so on")
        return [caption, ("image/encoded", image), ("image/format", b"png")]

    source = tmp_path / "s" / name
    source.parent.mkdir()
    records = [example(*features(i, png(i)), sequence=sequence) for i in range(4)]
    others = [b"\xff no message", png(9), b""]
    source.write_bytes(b"".join(map(frame, records + others)))
    (source.parent / "readme-00001-of-00002").write_bytes(b"no records")
    assert convert(source.parent, tmp_path / "d") == 0
    assert convert(tmp_path / "d", tmp_path / "b", "--to", "png") == 0
    *there, raw, bare, empty = records_of(tmp_path / "d" / name)
    for i, record in enumerate(there):
        # Rebuilt with the L3 file in it, all else is byte for byte what it was.
        start = record.index(b"\x8bL3") if b"\x8bL3" in record else -1
        results = find_images(record)
        assert len(results) == 1 + sequence
        assert all(np.array_equal(pixels_of(result), image(i)) for result in results)
        assert record == example(*features(i, results[0]), sequence=sequence), start
    assert (raw, empty) == (others[0], others[2])
    assert np.array_equal(pixels_of(bare), image(9))
    *back, _, bare, _ = records_of(tmp_path / "b" / name)
    for i, record in enumerate(back):
        results = find_images(record, "png")
        assert np.array_equal(pixels_of(results[0]), image(i))
        assert record == example(*features(i, results[0]), sequence=sequence)
    assert rows_of(tmp_path / "d")[name].pixels_hash == rows_of(tmp_path / "b")[name].pixels_hash
    assert (tmp_path / "d" / "readme-00001-of-00002").read_bytes() == b"no records"


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.usefixtures("in_process")
def test_records_that_were_taken_for_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """A look that failed once had them copied, and they counted as done ever after."""
    name = "train-00000-of-00001"
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / name).write_bytes(frame(example(("image/encoded", png()))))

    def look(head: bytes, size: int = 0) -> bool:
        if fails:
            monkeypatch.undo()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return False

    monkeypatch.setattr(tfrecord, "is_tfrecord", look)
    assert convert(tmp_path / "s", tmp_path / "d") == (2 if fails else 0)
    monkeypatch.undo()
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert rows_of(tmp_path / "d")[name].images == 1


@pytest.mark.usefixtures("in_process")
def test_records_without_their_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were copied, and counted as done."""
    (tmp_path / "s").mkdir()
    for name, data in {"text": b"no records", "png": png(), "x": frame(example())}.items():
        (tmp_path / "s" / f"{name}-00000-of-00001").write_bytes(data)
    monkeypatch.setitem(sys.modules, "crc32c", None)
    assert convert(tmp_path / "s", tmp_path / "d", "-j1") == 2
    told = capsys.readouterr().err
    assert "x-00000-of-00001: TFRecord needs what is not installed: pip install crc32c" in told
    assert "l3: 1 failed" in told


def find_images(record: bytes, format: str = "l3") -> list[bytes]:
    """The images of an Example, by the package that others read it with."""
    pb2 = pytest.importorskip(
        "tfrecord", reason="the package tfrecord is not installed"
    ).example_pb2
    message = pb2.SequenceExample.FromString(record)
    lists = [entry.feature for entry in message.feature_lists.feature_list.values()]
    features = [feature for feature_list in lists for feature in feature_list]
    if not features:
        features = list(pb2.Example.FromString(record).features.feature.values())
    values = [value for feature in features for value in feature.bytes_list.value]
    from l3dali.signatures import format_of

    return [value for value in values if format_of(value[:16])[0] == format]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:-1], "ends within record 1"),
        (lambda data: data[:70], "ends within record 0"),
        (lambda data: data + b"1234", "ends within record 2"),
        (lambda data: b"\1" + data[1:], "length is damaged"),
        (lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:], "checksum does not match"),
        (lambda data: b"\x1f\x8b" + data, "a compressed file"),
        (lambda data: struct.pack("<Q", 2**62) + crc_of(struct.pack("<Q", 2**62)), "ends within"),
    ],
)
def test_damaged_records(
    tmp_path: Path, damage: Any, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "a.tfrecord"
    source.write_bytes(damage(frame(example(("i", png()))) + frame(example(("i", png(1))))))
    assert convert(source, tmp_path / "d") == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "d" / "a.tfrecord").exists()


def test_a_length_that_begins_as_gzip(tmp_path: Path) -> None:
    """35,615 bytes; it was taken for a compressed file, so that a result could not be read."""
    record = example(("i", png()), ("t", b""))
    record = example(("i", png()), ("t", bytes(35_615 - len(record) - 9)))
    assert len(record) == 0x8B1F
    (tmp_path / "a.tfrecord").write_bytes(frame(record))
    assert convert(tmp_path / "a.tfrecord", tmp_path / "d") == 0


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_tar_header_of_a_negative_size(
    tmp_path: Path, kind: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is behind one of the last two kinds was read whole, as its body."""
    path = tmp_path / "a.tar"
    path.write_bytes(negative_header("a", kind, -512) + bytes(2**26))
    tracemalloc.start()
    assert convert(path, tmp_path / "d") == 2
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**25
    assert "a.tar: " in capsys.readouterr().err


def test_fields_that_are_no_images_are_not_kept() -> None:
    """Millions of them took 80 times the bytes of their record."""
    record = b"\x08\x00" * 200_000 + example(("image", png())) + b"\x0a\x00" * 1000
    tracemalloc.start()
    found = tfrecord._find_images(record, 0, Options())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [blob.data for blob in found.blobs] == [png()]
    assert tfrecord._rebuilt(found, [None]) == record
    assert peak < 4 * len(record)


def test_a_long_name_costs_each_value_little() -> None:
    """64 images of a name of 1 MB took 128 MB, and millions of values hours."""
    values = b"".join(field(1, png(i)) for i in range(64))
    entry = field(1, b"x" * 2**20 + b".png") + field(2, field(1, values))
    tracemalloc.start()
    found = tfrecord._find_images(field(1, field(1, entry)), 0, Options(labels=("x.png",)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.blobs) == 64
    assert found.blobs[0].name.endswith("x.png")
    assert max(len(blob.place) for blob in found.blobs) < 330
    assert peak < 2**24


def test_a_record_of_too_many_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = b"".join(field(1, b"BM") for _ in range(2**16 + 1))
    entry = field(1, b"image") + field(2, field(1, images))
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame(field(1, field(1, entry))))
    assert convert(path, tmp_path / "d") == 2
    assert "a.tfrecord: record 0: more than 65536 images" in capsys.readouterr().err


def crc_of(data: bytes) -> bytes:
    return struct.pack("<I", tfrecord.masked_crc(data))


@pytest.mark.parametrize("choice", ["keep", "drop"])
def test_a_damaged_image_in_a_record(tmp_path: Path, choice: str) -> None:
    records = [example(("i", png())), example(("i", png(1)[:99])), example(("i", png(2)))]
    source = tmp_path / "a.tfrecord"
    source.write_bytes(b"".join(map(frame, records)))
    assert convert(source, tmp_path / "d", "--on-error", choice) == 2
    result = records_of(tmp_path / "d" / "a.tfrecord")
    assert len(result) == {"keep": 3, "drop": 2}[choice]
    assert (records[1] in result) == (choice == "keep")


def test_many_damaged_images_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A record of 656 kB took 1 GB, and 338 MB of the manifest."""
    images = field(1, b"".join([field(1, png()[:8])] * 1000))
    (tmp_path / "s").mkdir()
    record = field(1, field(1, field(1, b"\xff" * 1000) + field(2, images)))
    (tmp_path / "s" / "a.tfrecord").write_bytes(frame(record))
    (tmp_path / "s" / "b.png").write_bytes(png()[:8])
    told = tmp_path / "told.json"
    more = {"path": "a.tfrecord", "reason": "900 more, which are not named"}
    summary = ("--json-summary", told)
    for dest, options in (("d", summary), ("e", ("--dry-run",)), ("d", summary)):
        assert convert(tmp_path / "s", tmp_path / dest, *options) == 2
        error = capsys.readouterr().err
        assert "l3: 1001 failed" in error
        assert "a.tfrecord: 900 more, which are not named" in error
        report = json.loads(told.read_text())
        assert report["failed"] == 1001
        assert len(report["failures"]) == 102
        assert more in report["failures"]
    row = rows_of(tmp_path / "d")["a.tfrecord"]
    assert (len(row.failures), row.more_failures) == (100, 900)
    assert len(row.to_json()) < 2**16
    old = json.loads(row.to_json()) | {"failures": 9 * row.failures}
    del old["more_failures"]
    assert row_of_json(json.dumps(old)) == replace(row, failures=9 * row.failures, more_failures=0)
    assert "failures: 1001" in (tmp_path / "d" / "l3-report.html").read_text()


def test_damaged_images_of_a_shard_that_is_verified(tmp_path: Path) -> None:
    entry = field(1, b"i" * 1000) + field(2, field(1, field(1, L3_SIGNATURE) * 1000))
    (tmp_path / "a.tfrecord").write_bytes(frame(field(1, field(1, entry))))
    told = tmp_path / "told.json"
    assert main(["verify", str(tmp_path / "a.tfrecord"), "--json-summary", str(told)]) == 2
    report = json.loads(told.read_text())
    assert (report["failed"], len(report["failures"])) == (1000, 101)
    assert told.stat().st_size < 2**16


def test_no_records(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(b"")
    assert convert(tmp_path / "a.tfrecord", tmp_path / "d") == 0
    assert (tmp_path / "d" / "a.tfrecord").read_bytes() == b""


# Other storage.


def test_memory(tmp_path: Path, memory: Any, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_tar(tmp_path / "s" / "a.tar", samples(3))
    (tmp_path / "s" / "sub").mkdir()
    (tmp_path / "s" / "sub" / "one.png").write_bytes(png())
    assert convert(tmp_path / "s", "memory://bucket/d") == 0
    assert set(memory.find("/bucket/d")) == {
        f"/bucket/d/{name}"
        for name in ("a.tar", "a.idx", "sub/one.l3", "l3-manifest.jsonl", "l3-report.html")
    }
    assert convert(tmp_path / "s", "memory://bucket/d") == 0
    assert "nothing to do" in capsys.readouterr().out
    assert convert("memory://bucket/d", tmp_path / "b", "--to", "png") == 0
    members = [row[:2] for row in read_tar(tmp_path / "b" / "a.tar")]
    assert as_pixels(members) == as_pixels(samples(3))
    assert [row[2:] for row in read_tar(tmp_path / "b" / "a.tar")] == [
        row[2:] for row in read_tar(source)
    ]
    assert convert("memory://bucket/d/a.tar", tmp_path / "one", "--to", "png") == 0
    assert convert("file://" + str(tmp_path / "s"), "file://" + str(tmp_path / "f")) == 0
    assert (tmp_path / "f" / "a.tar").exists()


def test_runs_at_once_keep_rows_of_each_other(tmp_path: Path, memory: Any) -> None:
    """Buckets have no lock: the manifest was that of the run that ended last."""
    folder = open_folder("memory://bucket/d")

    def rows_of(name: str, manifest: Manifest) -> list[Row]:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / f"{name}.png").write_bytes(png())
        sources = find_sources([str(tmp_path / name)])
        work = find_work(sources, "memory://bucket/d", Options(), manifest, 1)
        return [row for job in work.jobs for row in convert_job(job)]

    with Manifest(folder) as manifest:
        manifest.add(rows_of("gone", manifest))
    with Manifest(folder) as one:
        with Manifest(folder) as other:
            other.begin()
            other.add(rows_of("b", other))
        assert not one.remove([one.rows["gone.png"]])
        one.add(rows_of("a", one))
    with Manifest(folder, read_only=True) as manifest:
        assert set(manifest.rows) == {"a.png", "b.png"}
    assert set(memory.find("/bucket/d")) >= {"/bucket/d/a.l3", "/bucket/d/b.l3"}


def test_a_listing_that_lacks_a_source(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty answer for its second page is its end to libraries: --remove-gone believed it."""
    for name in ("a", "b"):
        memory.pipe_file(f"/bucket/s/{name}.png", png())
    assert convert("memory://bucket/s", tmp_path / "d") == 0
    find = RemoteFolder._find

    def lie(self: RemoteFolder, failures: list[tuple[str, str]]) -> dict[str, dict[str, Any]]:
        found = find(self, failures)
        return {name: info for name, info in found.items() if not name.endswith("b.png")}

    memory.pipe_file("/bucket/s/c.png", png())
    with monkeypatch.context() as patch:
        patch.setattr(RemoteFolder, "_find", lie)
        assert convert("memory://bucket/s", tmp_path / "d", "--remove-gone") == 2
    assert "b.png: it is there, and its folder's listing lacks it" in capsys.readouterr().err
    assert (tmp_path / "d" / "b.l3").exists()
    assert (tmp_path / "d" / "c.l3").exists()  # What failed is told of at the end.
    memory.rm_file("/bucket/s/b.png")

    look = RemoteFolder.stat

    def refuse(self: RemoteFolder, name: str) -> Stored | None:
        if name.endswith("b.png"):
            raise OSError(errno.EACCES, "403, message='Forbidden'", name)
        return look(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(RemoteFolder, "stat", refuse)
        assert convert("memory://bucket/s", tmp_path / "d", "--remove-gone") == 2
    assert "b.png: whether it is gone cannot be told: 403" in capsys.readouterr().err
    assert (tmp_path / "d" / "b.l3").exists()
    assert convert("memory://bucket/s", tmp_path / "d", "--remove-gone") == 0
    assert not (tmp_path / "d" / "b.l3").exists()


def test_names_in_memory_are_no_patterns(tmp_path: Path, memory: Any) -> None:
    (tmp_path / "s").mkdir()
    for name in ("ok.png", "*", "?k.png", "[o]k.png"):
        (tmp_path / "s" / name).write_bytes(png())
    memory.pipe_file("/bucket/d1/ok.l3", b"another's")
    assert convert(tmp_path / "s", "memory://bucket/d[1]") == 0
    memory.pipe_file("/bucket/d[1]/mine.txt", b"mine")
    for name in ("*", "?k.png", "[o]k.png"):
        (tmp_path / "s" / name).unlink()
    assert convert(tmp_path / "s", "memory://bucket/d[1]", "--remove-gone") == 0
    assert set(memory.store) == {"/bucket/d1/ok.l3"} | {
        f"/bucket/d[1]/{name}"
        for name in ("ok.l3", "mine.txt", "l3-manifest.jsonl", "l3-report.html")
    }


def test_a_failed_shard_leaves_nothing_in_a_bucket(tmp_path: Path, memory: Any) -> None:
    source = write_tar(tmp_path / "s" / "a.tar", samples(3))
    source.write_bytes(source.read_bytes()[:5000])
    assert convert(tmp_path / "s", "memory://bucket/d") == 2
    names = {name.rpartition("/")[2] for name in memory.find("/bucket/d")}
    assert names == {"l3-manifest.jsonl", "l3-report.html"}


def test_names_that_lead_out(
    tmp_path: Path, memory: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys of a bucket may have `..` in them."""
    if "find" not in vars(type(memory)):
        pytest.skip("this fsspec does not list such keys of its memory")
    memory.pipe_file("/bucket/s/ok.png", png())
    file = memory.store["/bucket/s/ok.png"]
    memory.store["/bucket/s/../../out.png"] = file
    memory.store["/bucket/s/a//ok.png"] = memory.store["/bucket/s/./ok.png"] = file
    memory.store["/bucket/s//ok.png"] = file
    memory.store["/bucket/s/C:\\ok.png"] = file
    assert convert("memory://bucket/s", tmp_path / "deep" / "d") == 2
    told = capsys.readouterr().err
    for name in ("../../out.png", "a//ok.png", "./ok.png", "/ok.png"):  # Some would be ok.l3.
        assert f"memory://bucket/s/{name}: a name that leads out of the folder, or has" in told
    assert files_below(tmp_path) == {
        f"deep/d/{name}" for name in ("ok.l3", "C:\\ok.l3", "l3-manifest.jsonl", "l3-report.html")
    }


@pytest.mark.parametrize("when", ["open", "read"])
def test_a_bucket_that_fails(
    tmp_path: Path,
    memory: Any,
    when: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As after the last retry of the library: the error names the object, the others go on."""
    from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

    for name in ("a", "b"):
        path = write_tar(tmp_path / f"{name}.tar", samples(2))
        memory.pipe_file(f"/bucket/s/{name}.tar", path.read_bytes())
    opened, read = MemoryFileSystem.open, MemoryFile.read

    def failing_open(self: Any, path: str, mode: str = "rb", **options: Any) -> Any:
        if path.endswith("s/a.tar") and when == "open":
            raise RuntimeError("503: Slow Down")
        return opened(self, path, mode, **options)

    def failing_read(self: Any, size: int = -1) -> Any:
        if self.path.endswith("s/a.tar") and self.tell() > 2000 and when == "read":
            raise ConnectionError("503: Slow Down")
        return read(self, size)

    monkeypatch.setattr(MemoryFileSystem, "open", failing_open)
    monkeypatch.setattr(MemoryFile, "read", failing_read)
    assert convert("memory://bucket/s", tmp_path / "d") == 2
    assert "memory://bucket/s/a.tar: 503: Slow Down" in capsys.readouterr().err
    assert not (tmp_path / "d" / "a.tar").exists()
    assert (tmp_path / "d" / "b.tar").exists()


def test_members_that_are_no_images_wait_within_the_bound(tmp_path: Path) -> None:
    size, count = 2**22, 40
    path = write_tar(tmp_path / "a.tar", [(f"{i}.txt", bytes(size)) for i in range(count)])
    pool = pipeline.ImagePool(Options(), threads=2)
    pulled = 0

    def read() -> Iterator[tar.Member]:
        nonlocal pulled
        with path.open("rb") as file:
            for member in tar.read_entries(HashedReader(file, "a.tar"), Options()):
                pulled += 1
                yield member

    ahead = [pulled - done for done, _ in enumerate(pool.convert(read()))]
    assert len(ahead) == count
    assert max(ahead) * size <= 2 * pipeline.WAITING_BYTES + 2 * size


@pytest.mark.parametrize("container", ["tar", "tfrecord", "files"])
@pytest.mark.usefixtures("in_process")
def test_an_image_is_let_go_before_the_next(
    tmp_path: Path, container: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is large waits alone: neither bytes nor result of the image before are kept."""
    held: list[int] = []

    def convert_and_count(*arguments: Any) -> Any:
        gc.collect()
        objects = gc.get_objects()
        blobs = sum(isinstance(each, Blob) for each in objects)
        held.append(blobs + sum(isinstance(each, Outcome) for each in objects))
        return convert_image(*arguments)

    monkeypatch.setattr(pipeline, "convert_image", convert_and_count)
    monkeypatch.setattr(pipeline, "BATCH_BYTES", 1)
    monkeypatch.setattr(pipeline, "WAITING_BYTES", 1)
    if container == "files":
        (tmp_path / "s").mkdir()
        for i in range(4):
            (tmp_path / "s" / f"{i}.png").write_bytes(png(i))
    elif container == "tar":
        write_tar(tmp_path / "s" / "a.tar", [(f"{i}.png", png(i)) for i in range(4)])
    else:
        (tmp_path / "s").mkdir()
        records = (frame(example(("image", png(i)))) for i in range(4))
        (tmp_path / "s" / "a.tfrecord").write_bytes(b"".join(records))
    assert convert(tmp_path / "s", tmp_path / "d", "-j", "1") == 0
    assert held == [1] * 4


@pytest.mark.parametrize(("suffix", "fails"), [("bmp", False), ("png", True)])
def test_what_cannot_come_back_as_it_was_keeps_no_pixels(
    suffix: str, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors kept those of each image: 600 MB of 16 that became PNG in place of BMP."""
    shape, dtype = ((9, 9), np.int16) if fails else ((9, 9, 4), np.uint8)
    data = l3dali.encode(np.zeros(shape, dtype), layout="HWC", metadata={"source_suffix": suffix})
    kept: list[weakref.ref[Any]] = []

    def decode(*arguments: Any, **options: Any) -> Any:
        pixels = l3dali.decode(*arguments, **options)
        kept.append(weakref.ref(pixels))
        return pixels

    monkeypatch.setattr(l3dali.codec, "decode", decode)
    gc.disable()
    try:
        outcome = convert_image(
            Blob("a.l3", data, "a.l3"), Options(to="png" if fails else "source")
        )
        assert outcome is not None
        assert bool(outcome.failed) == fails
        del outcome
        assert kept[0]() is None
    finally:
        gc.enable()


FORMATS: tuple[Any, Any] = tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT


@pytest.mark.parametrize("seed", range(8))
def test_headers_are_read_as_tarfile_reads_them(seed: int) -> None:
    """Usual ones in less time: whole or damaged, the same fields or the same error."""
    random = np.random.default_rng(seed)
    for i in range(400):
        info = tarfile.TarInfo("x" * int(random.integers(1, 94)) + "\u00e9/\udcff"[: i % 4])
        info.size, info.mtime = int(random.integers(0, 2**33)), int(random.integers(0, 2**33))
        info.uname, info.uid = "someone", int(random.integers(0, 2**21))
        info.type = random.choice([b"0", b"0", b"5", b"\0", b"2", b"L"])
        header = bytearray(info.tobuf(FORMATS[i % 2], "utf-8", "surrogateescape")[-512:])
        if i % 2:
            for at in random.integers(0, 512, 2):
                header[at] = random.choice([0, 32, 45, 48, 55, 56, 95, 128, 255])
        if i % 3:  # of the changed header; also as signed bytes, as some programs have it
            check = sum(header[:148]) + sum(header[156:]) + 256
            header[148:156] = b"%06o\0 " % check
        found = [read_header(kind, bytes(header)) for kind in (tarfile.TarInfo, tar._Info)]
        assert found[0] == found[1]


def read_header(kind: type[tarfile.TarInfo], header: bytes) -> object:
    try:
        info = kind.frombuf(header, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        return type(error), str(error)
    return info.get_info(), info.chksum, info.issparse()


@pytest.mark.parametrize("format", FORMATS)
def test_headers_are_written_as_tarfile_writes_them(tmp_path: Path, format: Any) -> None:
    names = ["a.png", "x" * 96 + ".png", "\u00e9\udcff.png", "y" * 95 + ".PNG"]
    names += [] if format == tarfile.USTAR_FORMAT else ["z" * 120 + ".png"]
    path = write_tar(tmp_path / "a.tar", [(name, png(i)) for i, name in enumerate(names)], format)
    assert convert(path, tmp_path / "d") == 0
    with tarfile.open(tmp_path / "d" / "a.tar", errors="surrogateescape") as archive:
        data = (tmp_path / "d" / "a.tar").read_bytes()
        for member, name in zip(archive, names, strict=True):
            assert member.name == name[:-3] + "l3"
            header = member.tobuf(format, "utf-8", "surrogateescape")
            assert data[member.offset : member.offset_data] == header


@pytest.mark.parametrize("data", [b"", bytes(4), b"other", b"P2 9 9 255\n", b"BM" + bytes(60)])
@pytest.mark.parametrize("choice", ["keep", "drop"])
def test_what_is_no_image_any_more_keeps_its_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], choice: str, data: bytes
) -> None:
    """Where the name does not say what it is, it was copied in the place of the result."""
    source, dest = tmp_path / "s", tmp_path / "d"
    source.mkdir()
    (source / "a.image").write_bytes(png())
    (source / "train-00000-of-00001").write_bytes(frame(example(("image/encoded", png()))))
    command = (source, dest, "--on-error", choice)
    assert convert(*command) == 0
    before = {name: (dest / name).read_bytes() for name in files_below(dest)}
    assert len(before) == 3
    for path in source.iterdir():
        path.write_bytes(data + path.read_bytes()[4:] if len(data) == 4 else data)
    for _ in range(2):
        assert convert(*command) == 2
        told = capsys.readouterr().err
        assert told.count("it was an image or a shard, and is none now; if so, remove its") == 2
        assert {name: (dest / name).read_bytes() for name in files_below(dest)} == before
    for name in before:
        (dest / name).unlink()
    assert convert(*command) == 0
    assert files_below(dest) == {path.name for path in source.iterdir()}


PLAIN_FOLDERS = """
import fsspec
from fsspec.spec import AbstractFileSystem
from urllib.parse import urlsplit
from l3dali.cli import main
from l3dali.datasets.convert.storage import open_folder

class Plain(AbstractFileSystem):
    @staticmethod
    def _get_kwargs_from_urls(url):
        parts = urlsplit(url)
        given = {"host": parts.hostname, "port": parts.port, "username": parts.username}
        return {name: value for name, value in given.items() if value is not None}

    @classmethod
    def _strip_protocol(cls, path):
        return urlsplit(path).path.rstrip("/") or "/"

    def ls(self, path, detail=True):
        return [{"name": f"{path}/a.png", "size": 1, "type": "file"}]

fsspec.register_implementation("plain", Plain)
for path in ("/d", "/", ""):
    one, other = (open_folder(f"plain://{host}{path}") for host in ("one", "other"))
    print(one.place("a.l3"), one.real_place() != other.real_place())
for server in ("u:secret@ONE", "one:22"):
    for path in ("/d", ""):
        main(["convert", f"plain://one{path}", f"plain://{server}{path}/out"])
"""


def test_any_protocol_of_fsspec() -> None:
    """Those that are not asynchronous, as FTP, ended in a traceback, or all servers were one."""
    command = [sys.executable, "-c", PLAIN_FOLDERS]  # in a process that has loaded no other
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [f"plain://one{path}/a.l3 True" for path in ("/d", "", "")]
    assert run.stderr.splitlines() == [
        f"l3: plain://{server}{path}/out is in plain://one{path}; name a folder outside of it"
        for server in ("u@ONE", "one:22")
        for path in ("/d", "")
    ]


@pytest.mark.usefixtures("memory")
def test_names_that_begin_with_a_slash_stay_in_the_bucket() -> None:
    """`l3 info` opened the file of this machine."""
    folder = open_folder("memory://b/d")
    assert isinstance(folder, RemoteFolder)
    assert folder.openable("/tmp/a.l3").path == "/b/d//tmp/a.l3"


def test_totals_of_files_in_a_bucket(
    tmp_path: Path, memory: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their heads are read, and what the manifest says of them was left out."""
    (tmp_path / "a.png").write_bytes(png())
    assert convert(tmp_path, "memory://b/d") == 0
    capsys.readouterr()
    assert main(["info", "memory://b/d", "--json", "--totals"]) == 0
    totals = json.loads(capsys.readouterr().out)
    assert totals["source_bytes"] == len(png())
    assert totals["result_bytes"] == totals["bytes"] > 0
    memory.pipe("/b/cut.l3", memory.cat("/b/d/a.l3")[:-1])
    assert main(["info", "memory://b/cut.l3"]) == 2
    assert "the data ends too early" in capsys.readouterr().err
    (tmp_path / "a.png").write_bytes(png()[:40])
    assert convert(tmp_path, "memory://b/d") == 2
    capsys.readouterr()
    assert main(["info", "memory://b/d"]) == 2
    assert "the conversion of a.png has failed" in capsys.readouterr().err
    dry = ["--dry-run", "--json-summary", "-"]
    assert convert(tmp_path, "memory://b/d", *dry) == 2
    assert "--json-summary is of a run" in capsys.readouterr().err


def test_a_folder_that_the_listing_of_another_lacks(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server need not name what is below it."""
    memory.pipe("/b/a.l3", l3dali.encode(np.zeros((4, 4), np.uint8)))
    memory.pipe("/b/sub/bad.l3", b"damage")
    find = RemoteFolder.list_files

    def find_some(folder: RemoteFolder) -> Listing:
        listing = find(folder)
        listing.files.pop("sub/bad.l3", None)
        return listing

    monkeypatch.setattr(RemoteFolder, "list_files", find_some)
    assert main(["verify", "memory://b"]) == 0
    assert main(["verify", "memory://b", "memory://b/sub"]) == 2


def test_folders_that_cannot_be_listed(
    tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The listing had no end, or what is in them counted as gone."""
    from fsspec.spec import AbstractFileSystem

    for name in ("1.png", "gone/2.png", "self/3.png"):
        memory.pipe(f"/s/{name}", png())
    memory.pipe("/longer/4.png", png())
    list_one = type(memory).ls

    def list_some(fs: Any, path: str, **options: Any) -> Any:
        if path.endswith("/gone"):
            raise FileNotFoundError(path)
        found = list_one(fs, path, **options)
        if path.endswith("/self"):
            found.append({"name": path, "size": 0, "type": "directory"})
        return found

    monkeypatch.setattr(type(memory), "find", AbstractFileSystem.find)  # as FTP has it
    monkeypatch.setattr(type(memory), "ls", list_some)
    assert convert("memory://s", tmp_path / "d", "-j", 1) == 2
    assert "memory://s/gone: no such folder" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == {"1.l3", "self/3.l3"}
    assert convert("memory://s", tmp_path / "d", "--remove-gone") == 2
    assert "--remove-gone needs to know all sources" in capsys.readouterr().err

    def list_more(fs: Any, path: str, **options: Any) -> Any:
        return [{"name": f"{path}/{name}", "size": 0, "type": "directory"} for name in "ab"]

    monkeypatch.setattr(type(memory), "ls", list_more)
    assert convert("memory://longer", tmp_path / "e", "-j", 1) == 2
    assert "memory://longer: it lists folders in folders without end" in capsys.readouterr().err


def test_no_folder_behind_a_link_is_removed(tmp_path: Path) -> None:
    """One that came when the manifest had been read."""
    (tmp_path / "s/d/e").mkdir(parents=True)
    (tmp_path / "s/d/e/a.png").write_bytes(png())
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    (tmp_path / "victim/e").mkdir(parents=True)
    with Manifest(open_folder(str(tmp_path / "d"))) as manifest:
        shutil.rmtree(tmp_path / "d/d")
        (tmp_path / "d/d").symlink_to(tmp_path / "victim")
        manifest.remove(list(manifest.rows.values()))
    assert (tmp_path / "victim/e").is_dir()


@pytest.mark.usefixtures("memory")
def test_a_manifest_that_a_bucket_refuses_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One upload that failed ended the run, and left the other images."""
    folder = open_folder("memory://b/d")
    monkeypatch.setattr("l3dali.datasets.convert.manifest._UPLOAD_SECONDS", 0.0)

    def refuse(*_: Any) -> Any:
        raise OSError("503 Slow Down")

    with Manifest(folder) as manifest, monkeypatch.context() as patch:
        patch.setattr(RemoteFolder, "publish", refuse)
        manifest.add([Row("a.png", "image", FAILED, "options", "rans")])
    with Manifest(folder, read_only=True) as manifest:
        assert set(manifest.rows) == {"a.png"}


def test_removal_goes_on_where_a_bucket_refuses_its_manifest(
    tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ended with results removed and nothing converted; at its end without a summary."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.png").write_bytes(png())
    assert convert(tmp_path / "s", "memory://b/d") == 0
    (tmp_path / "s" / "a.png").rename(tmp_path / "s" / "b.png")
    publish = RemoteFolder.publish
    refused: list[bool] = []

    def refuse(folder: RemoteFolder, name: str, *rest: Any) -> Any:
        if name == MANIFEST_NAME and refused.pop():
            raise OSError("503 Slow Down")
        return publish(folder, name, *rest)

    monkeypatch.setattr(RemoteFolder, "publish", refuse)
    refused[:] = [False, True]  # from the end: that after the removal, and the last
    assert convert(tmp_path / "s", "memory://b/d", "--remove-gone") == 0
    assert not refused
    assert main(["verify", "memory://b/d"]) == 0
    assert {Path(name).name for name in memory.find("/b/d")} >= {"b.l3"}
    (tmp_path / "s" / "c.png").write_bytes(png())
    refused[:] = [True, True]
    summary = tmp_path / "summary.json"
    assert convert(tmp_path / "s", "memory://b/d", "--json-summary", summary) == 2
    told = json.loads(summary.read_text())
    assert told["exit_code"] == 2
    assert told["done"] == 1
    assert "503 Slow Down" in told["failures"][0]["reason"]


def test_a_password_is_not_written(
    tmp_path: Path, memory: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reports and rows named DEST as it was given."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.png").write_bytes(png())
    dest = "memory://user@here:a secret@host/d"
    assert convert(tmp_path / "s", dest) == 0
    memory.pipe("/user@here:a secret@host/d/b.txt", b"somebody's")
    (tmp_path / "s" / "b.txt").write_text("ours")
    assert convert(tmp_path / "s", dest) == 2
    assert "memory://user@here@host/d/b.txt is there" in capsys.readouterr().err
    told = "http://127.0.0.1:8080: no such user, ask admin@example.org"
    assert reason_of(OSError(told)) == told
    for command in ("info", "verify"):  # They go by the whole URL.
        assert main([command, dest]) == 0
    sources = "memory://user@here:a secret@host/{a,b}.tar", tmp_path / "s"
    assert convert(*sources, tmp_path / "d") == 2
    assert "secret" not in (tmp_path / "d" / "l3-report.html").read_text()
    manifest = memory.cat("/user@here:a secret@host/d/l3-manifest.jsonl")
    assert b"memory://user@here@host/d/b.txt is there" in manifest
    assert b"secret" not in manifest
    (page,) = (data for name, data in memory.store.items() if name.endswith("report.html"))
    assert b"l3 convert to memory://user@here@host/d" in page.getvalue()
    assert b"secret" not in page.getvalue()
