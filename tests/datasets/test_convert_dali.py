"""DALI reads what `l3 convert` writes, with the index files beside it."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from convert_tools import convert, image, png, samples, write_tar
from dali_tools import pipeline, unpack
from nvidia.dali import fn, tfrecord

pytestmark = [pytest.mark.dali, pytest.mark.usefixtures("in_process")]

COUNT = 6


def decode_all(reader: Any) -> tuple[list[Any], list[bytes]]:
    def define() -> Any:
        encoded, label = reader()
        return fn.l3.decode(encoded, device="cpu"), label

    decoded, labels = pipeline(define, "cpu", COUNT).run()
    return unpack(decoded), [value.tobytes() for value in unpack(labels)]


@pytest.mark.parametrize("stem", ["", "folder/", "f" * 60 + "/" + "g" * 70 + "_", "\u00fc_"])
@pytest.mark.parametrize("has_index", [True, False])
def test_webdataset(tmp_path: Path, stem: str, has_index: bool) -> None:
    members = [(stem + name, data) for name, data in samples(COUNT)]
    if has_index:
        members.insert(3, ("README", b"no sample: no suffix"))
    source = write_tar(tmp_path / "s" / "a.tar", members)
    assert convert(source.parent, tmp_path / "d") == 0
    paths = {"paths": [str(tmp_path / "d" / "a.tar")]}
    if has_index:
        paths["index_paths"] = [str(tmp_path / "d" / "a.idx")]
    images, labels = decode_all(lambda: fn.readers.webdataset(**paths, ext=["l3", "cls"]))
    for i in range(COUNT):
        assert np.array_equal(images[i], image(i))
        assert labels[i] == b"%d" % i


def test_members_with_holes(tmp_path: Path) -> None:
    """GNU tar stores them without their zeros. The index leaves them out."""
    holes = tarfile.TarInfo("a.bin")
    header = bytearray(holes.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    numbers = [b"%011o\0" % number for number in (0, 1, 200_000, 1)]  # places and sizes of data
    header[124:136], header[386:434], header[483:495] = (
        b"%011o\0" % 2,
        b"".join(numbers),
        (b"%011o\0" % 200_001),
    )
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    plain = tarfile.TarInfo("a.png")
    plain.size = len(png(0))
    shard = plain.tobuf(tarfile.GNU_FORMAT) + png(0).ljust(-(-plain.size // 512) * 512, b"\0")
    (tmp_path / "a.tar").write_bytes(shard + header + b"xy".ljust(512, b"\0") + bytes(1024))
    with tarfile.open(tmp_path / "a.tar") as archive:
        assert [member.issparse() for member in archive] == [False, True]
    assert convert(tmp_path / "a.tar", tmp_path / "d") == 0
    with tarfile.open(tmp_path / "d" / "a.tar") as archive:
        opened = archive.extractfile("a.bin")
        assert opened is not None
        assert opened.read() == b"x" + bytes(199_999) + b"y"
    paths = {"paths": [str(tmp_path / "d" / "a.tar")], "index_paths": [str(tmp_path / "d/a.idx")]}

    def define() -> Any:
        return fn.l3.decode(fn.readers.webdataset(**paths, ext=["l3"]), device="cpu")

    (decoded,) = pipeline(define, "cpu", 1).run()
    assert np.array_equal(unpack(decoded)[0], image(0))


@pytest.mark.parametrize("choice", ["keep", "drop"])
def test_the_index_is_that_of_wds2idx(tmp_path: Path, choice: str) -> None:
    from wds2idx import IndexCreator

    members = samples(4)
    members[4] = (members[4][0], b"damaged")
    jpeg = bytes(imagecodecs.jpeg8_encode(image(), level=90))
    members += [("a/.hidden", b"1"), ("b.c/d.e.f", b"2"), ("b.c/d.g", b"3")]
    members += [("c.cls", b"4"), ("c", png(7)), ("d/e", png(8)), ("d/e.cls", b"5")]  # no suffixes
    members += [("g.jpg", jpeg), ("g.png", png(1, channels=1))]  # g.jpg.l3 and g.png.l3
    members += [("f.cls", b"6"), ("f", png(9)[:99])] if choice == "drop" else []
    assert (
        convert(write_tar(tmp_path / "a.tar", members), tmp_path / "d", "--on-error", choice) == 2
    )
    with IndexCreator(str(tmp_path / "d" / "a.tar"), str(tmp_path / "x.idx"), False) as creator:
        creator.create_index()
    assert (tmp_path / "d" / "a.idx").read_text() == (tmp_path / "x.idx").read_text()


BETWEEN = {
    "._{}.cls": tarfile.REGTYPE,  # as tar of macOS writes one for each file
    "x/.hidden{}.png": tarfile.REGTYPE,
    "folder{}": tarfile.DIRTYPE,
    "folder{}.d": tarfile.DIRTYPE,
    "latest{}": tarfile.SYMTYPE,
}


@pytest.mark.parametrize(
    ("name", "kind", "choice"),
    [
        *[(name, kind, choice) for name, kind in BETWEEN.items() for choice in ("keep", "drop")],
        ("latest{}.txt", tarfile.SYMTYPE, "keep"),  # might begin a sample of its own
    ],
)
def test_what_lies_between_members_of_a_sample(
    tmp_path: Path, name: str, kind: bytes, choice: str
) -> None:
    """DALI skips it, so it must not cut samples in two in the index."""
    from wds2idx import IndexCreator

    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for i in range(4):
            other = png(9 + i)[: 50 if i == 1 else None] if name.endswith(".png") else b""
            image, between = png(i)[: 50 if i == 2 else None], name.format(i)
            for member, data in ((f"{i}.png", image), (between, other), (f"{i}.cls", b"1")):
                info = tarfile.TarInfo(member)
                info.size, info.linkname = len(data), "gone"
                info.type = kind if member == between else tarfile.REGTYPE
                archive.addfile(info, io.BytesIO(data))
    assert convert(tmp_path / "a.tar", tmp_path / "d", "--on-error", choice) == 2
    with tarfile.open(tmp_path / "d" / "a.tar") as archive:
        found = archive.getnames()
    expected = []
    for i in range(4):
        between = name.format(i) if i == 1 else name.format(i).replace(".png", ".l3")
        is_bad = name.endswith(".png") and i == 1
        sample = [f"{i}.png" if i == 2 else f"{i}.l3", between, f"{i}.cls"]
        gone = {*sample[::2]} if i == 2 else {between} if is_bad else set()
        expected += [each for each in sample if choice == "keep" or each not in gone]
    assert found == expected
    with IndexCreator(str(tmp_path / "d" / "a.tar"), str(tmp_path / "x.idx"), False) as creator:
        creator.create_index()
    assert (tmp_path / "d" / "a.idx").read_text() == (tmp_path / "x.idx").read_text()
    assert len((tmp_path / "x.idx").read_text().splitlines()) == (5 if choice == "keep" else 4)


def test_tfrecord(tmp_path: Path) -> None:
    tools = pytest.importorskip("tfrecord", reason="the package tfrecord is not installed")
    from tfrecord.tools.tfrecord2idx import create_index

    source = tmp_path / "s" / "train-00000-of-00001"
    source.parent.mkdir()
    writer = tools.TFRecordWriter(str(source))
    for i in range(COUNT):
        writer.write({"label": (i, "int"), "image/encoded": (png(i), "byte")})
    writer.close()
    assert convert(source.parent, tmp_path / "d") == 0
    result, index = (tmp_path / "d" / f"{source.name}{suffix}" for suffix in ("", ".idx"))
    create_index(str(result), str(tmp_path / "x.idx"))
    assert index.read_text() == (tmp_path / "x.idx").read_text()

    def reader() -> Any:
        outputs = fn.readers.tfrecord(
            path=[str(result)],
            index_path=[str(index)],
            features={
                "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
                "label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
            },
        )
        return outputs["image/encoded"], outputs["label"]

    images, labels = decode_all(reader)
    for i in range(COUNT):
        assert np.array_equal(images[i], image(i))
        assert labels[i] == i.to_bytes(8, "little")
