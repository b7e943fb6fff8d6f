"""`l3 convert` with TFRecord shards and with storage that is not local."""

from __future__ import annotations

import struct
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert_tools import (
    as_pixels,
    convert,
    data_of,
    files_below,
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

from l3dali.cli import main
from l3dali.console import reason_of
from l3dali.datasets.convert import pool, tar, tfrecord
from l3dali.datasets.convert.images import Options
from l3dali.datasets.convert.manifest import FAILED, Manifest, Row
from l3dali.datasets.convert.storage import HashedReader, RemoteFolder, open_folder

pytest.importorskip("crc32c")
pytestmark = pytest.mark.usefixtures("in_process")  # as in test_convert_back.py


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
    # Numbers of the label as no library would pack them, and an unknown field.
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

    records = [example(*features(i, png(i)), sequence=sequence) for i in range(4)]
    others = [b"\xff no message", png(9), b""]
    files = {name: b"".join(map(frame, records + others)), "readme-00001-of-00002": b"no records"}
    assert convert(write_files(tmp_path / "s", files), tmp_path / "d") == 0
    assert convert(tmp_path / "d", tmp_path / "b", "--to", "png") == 0
    *there, raw, bare, empty = records_of(tmp_path / "d" / name)
    for i, record in enumerate(there):
        # Rebuilt with the L3 file in it, all else is byte for byte what it was.
        results = find_images(record)
        assert len(results) == 1 + sequence
        assert all(np.array_equal(pixels_of(result), image(i)) for result in results)
        assert record == example(*features(i, results[0]), sequence=sequence)
    assert (raw, empty) == (others[0], others[2])
    assert np.array_equal(pixels_of(bare), image(9))
    *back, _, bare, _ = records_of(tmp_path / "b" / name)
    for i, record in enumerate(back):
        results = find_images(record, "png")
        assert np.array_equal(pixels_of(results[0]), image(i))
        assert record == example(*features(i, results[0]), sequence=sequence)
    assert rows_of(tmp_path / "d")[name].pixels_hash == rows_of(tmp_path / "b")[name].pixels_hash
    assert (tmp_path / "d" / "readme-00001-of-00002").read_bytes() == b"no records"


@pytest.mark.usefixtures("in_process")
def test_records_without_their_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were copied, and counted as done."""
    write_files(tmp_path / "s", {"x-00000-of-00001": frame(example())})
    monkeypatch.setitem(sys.modules, "crc32c", None)
    assert convert(tmp_path / "s", tmp_path / "d", "-j1") == 2
    told = capsys.readouterr().err
    assert "x-00000-of-00001: TFRecord needs a package that is not installed: pip" in told
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
        (lambda data: b"\x1f\x8b" + data, "decompress it first"),
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


def test_no_records(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(b"")
    assert convert(tmp_path / "a.tfrecord", tmp_path / "d") == 0
    assert (tmp_path / "d" / "a.tfrecord").read_bytes() == b""


# Other storage.


def test_memory(tmp_path: Path, memory: Any, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_tar(tmp_path / "s" / "a.tar", samples(3))
    write_pngs(tmp_path / "s", "sub/one.png")
    assert convert(tmp_path / "s", "memory://bucket/d") == 0
    assert set(memory.find("/bucket/d")) == {
        f"/bucket/d/{name}" for name in ("a.tar", "a.idx", "sub/one.l3", "l3-manifest.jsonl")
    }
    assert convert(tmp_path / "s", "memory://bucket/d") == 0
    assert "nothing to do" in capsys.readouterr().out
    assert convert("memory://bucket/d", tmp_path / "b", "--to", "png") == 0
    assert as_pixels(data_of(tmp_path / "b" / "a.tar")) == as_pixels(samples(3))
    assert [row[2:] for row in read_tar(tmp_path / "b" / "a.tar")] == [
        row[2:] for row in read_tar(source)
    ]
    assert convert("memory://bucket/d/a.tar", tmp_path / "one", "--to", "png") == 0
    assert convert("file://" + str(tmp_path / "s"), "file://" + str(tmp_path / "f")) == 0
    assert (tmp_path / "f" / "a.tar").exists()


def test_a_failed_shard_leaves_nothing_in_a_bucket(tmp_path: Path, memory: Any) -> None:
    source = write_tar(tmp_path / "s" / "a.tar", samples(3))
    source.write_bytes(source.read_bytes()[:5000])
    assert convert(tmp_path / "s", "memory://bucket/d") == 2
    names = {name.rpartition("/")[2] for name in memory.find("/bucket/d")}
    assert names == {"l3-manifest.jsonl"}


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
        assert f"memory://bucket/s/{name}: the name leads out of the folder, or has" in told
    assert files_below(tmp_path) == {
        f"deep/d/{name}" for name in ("ok.l3", "C:\\ok.l3", "l3-manifest.jsonl")
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
    images = pool.ImagePool(Options(), threads=2)
    pulled = 0

    def read() -> Iterator[tar.Member]:
        nonlocal pulled
        with path.open("rb") as file:
            for member in tar.read_entries(HashedReader(file, "a.tar"), Options()):
                pulled += 1
                yield member

    ahead = [pulled - done for done, _ in enumerate(images.convert(read()))]
    assert len(ahead) == count
    assert max(ahead) * size <= 2 * pool.WAITING_BYTES + 2 * size


FORMATS: tuple[Any, Any] = tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT


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


@pytest.mark.parametrize("data", [b"", bytes(4), b"other"])
@pytest.mark.parametrize("choice", ["keep", "drop"])
def test_a_former_image_keeps_its_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], choice: str, data: bytes
) -> None:
    """Where the name does not say what it is, it was copied in the place of the result."""
    source, dest = tmp_path / "s", tmp_path / "d"
    record = frame(example(("image/encoded", png())))
    write_files(source, {"a.image": png(), "train-00000-of-00001": record})
    command = (source, dest, "--on-error", choice)
    assert convert(*command) == 0
    before = {name: (dest / name).read_bytes() for name in files_below(dest)}
    assert len(before) == 3
    for path in source.iterdir():
        path.write_bytes(data + path.read_bytes()[4:] if len(data) == 4 else data)
    for _ in range(2):
        assert convert(*command) == 2
        told = capsys.readouterr().err
        assert told.count("no longer an image or a shard; remove the earlier") == 2
        assert {name: (dest / name).read_bytes() for name in files_below(dest)} == before
    for name in before:
        (dest / name).unlink()
    assert convert(*command) == 0
    assert files_below(dest) == {path.name for path in source.iterdir()}


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


def test_a_password_is_not_written(
    tmp_path: Path, memory: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reports and rows named DEST as it was given."""
    write_pngs(tmp_path / "s", "a.png")
    dest = "memory://user:secret@host/d"
    assert convert(tmp_path / "s", dest) == 0
    memory.pipe("/user:secret@host/d/b.txt", b"a user's")
    (tmp_path / "s" / "b.txt").write_text("ours")
    assert convert(tmp_path / "s", dest) == 2
    assert "memory://user@host/d/b.txt exists" in capsys.readouterr().err
    told = "http://127.0.0.1:8080: no such user, ask admin@example.org"
    assert reason_of(OSError(told)) == told
    assert main(["verify", dest]) == 0  # It needs the whole URL.
    sources = "memory://user:secret@host/{a,b}.tar", tmp_path / "s"
    assert convert(*sources, tmp_path / "d") == 2
    manifest = memory.cat("/user:secret@host/d/l3-manifest.jsonl")
    assert b"memory://user@host/d/b.txt exists" in manifest
    assert b"secret" not in manifest
