"""DALI reads what `l3 convert` writes, with the index files beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert_tools import convert, image, png, samples, write_tar
from dali_tools import pipeline, unpack
from nvidia.dali import fn, tfrecord

pytestmark = pytest.mark.dali
pytest.importorskip("rich")

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


def test_names_with_blanks_have_no_index(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "a.tar", [("a " + name, data) for name, data in samples(COUNT)])
    assert convert(source, tmp_path / "d") == 0
    assert not (tmp_path / "d" / "a.idx").exists()
    paths = [str(tmp_path / "d" / "a.tar")]
    images, _ = decode_all(lambda: fn.readers.webdataset(paths=paths, ext=["l3", "cls"]))
    assert np.array_equal(images[-1], image(COUNT - 1))


@pytest.mark.parametrize("choice", ["keep", "drop"])
def test_the_index_is_that_of_wds2idx(tmp_path: Path, choice: str) -> None:
    from wds2idx import IndexCreator

    members = samples(4)
    members[4] = (members[4][0], b"damaged")
    members += [("a/.hidden", b"1"), ("b.c/d.e.f", b"2"), ("b.c/d.g", b"3")]
    assert (
        convert(write_tar(tmp_path / "a.tar", members), tmp_path / "d", "--on-error", choice) == 2
    )
    with IndexCreator(str(tmp_path / "d" / "a.tar"), str(tmp_path / "x.idx"), False) as creator:
        creator.create_index()
    assert (tmp_path / "d" / "a.idx").read_text() == (tmp_path / "x.idx").read_text()


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


def test_files(tmp_path: Path) -> None:
    for i in range(COUNT):
        (tmp_path / "s" / f"class{i % 2}").mkdir(parents=True, exist_ok=True)
        (tmp_path / "s" / f"class{i % 2}" / f"{i}.png").write_bytes(png(i))
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    root = str(tmp_path / "d")
    images, _ = decode_all(lambda: fn.readers.file(file_root=root, file_filters=["*.l3"]))
    expected = [image(i) for i in (0, 2, 4, 1, 3, 5)]
    assert all(np.array_equal(got, want) for got, want in zip(images, expected, strict=True))
