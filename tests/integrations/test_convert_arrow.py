"""`l3 convert` with Arrow files: what `save_to_disk` of Hugging Face's datasets writes."""

from __future__ import annotations

import contextlib
import io
import struct
import tracemalloc
from collections.abc import Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import imagecodecs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tifffile
from convert_tools import convert, files_below, image, pixels_of, png, rows_of
from test_convert_parquet import COUNT, IMAGE, memory_of_pyarrow, rows, write_table

from l3dali.cli import main
from l3dali.datasets.convert import arrow, arrow_messages, job, parquet, parquet_pages
from l3dali.datasets.convert.arrow_messages import RECORD_BATCH, footer_blocks
from l3dali.datasets.convert.children import ChildDiedError
from l3dali.datasets.convert.images import Options
from l3dali.datasets.convert.parquet import bytes_of
from l3dali.datasets.convert.storage import MANIFEST_NAME, REPORT_NAME
from l3dali.images.reading import read_picture
from l3dali.signatures import L3_SIGNATURE


def write_arrow(path: Path, kind: str) -> pa.Table:
    """The table of the Parquet tests, in batches of four rows, and an empty file of it."""
    table = write_table(path.parent / "t.parquet")
    (path.parent / "t.parquet").unlink()
    new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    with new(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    return table


def read_arrow(path: Path, kind: str) -> tuple[Any, list[int]]:
    """The table, and the rows of each batch."""
    with pa.OSFile(str(path)) as file:
        reader = pa.ipc.open_stream(file) if kind == "stream" else pa.ipc.open_file(file)
        table = reader.read_all()
    return table, [len(batch) for batch in table.to_batches()]


@pytest.mark.parametrize("kind", ["stream", "file"])
def test_a_table_and_back(tmp_path: Path, kind: str) -> None:
    table = write_arrow(tmp_path / "s" / "a.arrow", kind)
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert convert(tmp_path / "d", tmp_path / "b", "--to", "png") == 0
    for folder in "db":
        found, sizes = read_arrow(tmp_path / folder / "a.arrow", kind)
        assert found.schema.equals(table.schema, check_metadata=True)
        assert rows(found) == rows(table)
        assert sizes == [4, 4, 2]
    images = read_arrow(tmp_path / "d" / "a.arrow", kind)[0].column("image").to_pylist()
    assert [entry["path"] for entry in images[1:]] == [f"{i}.l3" for i in range(1, COUNT)]
    there, back = (rows_of(tmp_path / folder)["a.arrow"] for folder in "db")
    assert there.pixels_hash == back.pixels_hash
    assert (there.kind, there.images) == ("arrow", 9 + 10 + 9 + (45 - 3))
    assert main(["verify", str(tmp_path / "d")]) == 0


def test_values_below_a_null_are_no_images(tmp_path: Path) -> None:
    """As in a dictionary, where null structs have the number of the first value."""
    struct = pa.struct([("bytes", pa.dictionary(pa.int32(), pa.binary())), ("path", pa.string())])
    damaged = {"bytes": png(0)[:50], "path": "0.png"}
    sound = {"bytes": png(1), "path": "1.png"}
    table = pa.table({"image": pa.array([damaged, sound, None, None], struct), "label": range(4)})
    (tmp_path / "s").mkdir()
    with pa.ipc.new_stream(str(tmp_path / "s" / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert convert(tmp_path / "s", tmp_path / "d", "--on-error", "drop") == 2
    left, _ = read_arrow(tmp_path / "d" / "a.arrow", "stream")
    assert left.column("label").to_pylist() == [1, 2, 3]
    assert [value and value["path"] for value in left.column("image").to_pylist()] == [
        "1.l3",
        None,
        None,
    ]


def test_values_below_null_lists(tmp_path: Path) -> None:
    """As polars has them where it chooses by a condition."""
    nulls = pa.array([False, True, False])
    values = pa.array([png(0), png(1)[:50], png(2)])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), values, mask=nulls)
    table = pa.table({"images": lists, "label": range(3)})
    (tmp_path / "s").mkdir()
    with pa.ipc.new_stream(str(tmp_path / "s" / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    found, _ = read_arrow(tmp_path / "d" / "a.arrow", "stream")
    (first,), none, (last,) = found.column("images").to_pylist()
    assert none is None
    assert np.array_equal(pixels_of(first), image(0))
    assert np.array_equal(pixels_of(last), image(2))


def test_fields_beside_an_image(tmp_path: Path) -> None:
    value = {"bytes": png(0), "path": "0.png", "mask": png(1), "more": [{"bytes": png(2)}]}
    (tmp_path / "s").mkdir()
    pq.write_table(pa.table({"image": [value]}), tmp_path / "s" / "a.parquet")
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    (found,) = pq.read_table(tmp_path / "d" / "a.parquet").column("image").to_pylist()
    for i, data in enumerate((found["bytes"], found["mask"], found["more"][0]["bytes"])):
        assert data.startswith(L3_SIGNATURE)
        assert np.array_equal(pixels_of(data), image(i))


def test_a_set_of_hugging_face_and_back(tmp_path: Path) -> None:
    """It loads as before, from the folder that l3 convert has made."""
    features = datasets.Features(
        {"image": datasets.Image(decode=False), "label": datasets.Value("int8")}
    )
    entries = {
        "image": [{"bytes": png(i), "path": f"{i}.png"} for i in range(COUNT)],
        "label": list(range(COUNT)),
    }
    made = datasets.Dataset.from_dict(entries, features=features)
    datasets.DatasetDict({"train": made}).save_to_disk(str(tmp_path / "s"), num_shards={"train": 2})
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert convert(tmp_path / "d", tmp_path / "b", "--to", "png") == 0
    assert files_below(tmp_path / "d") == files_below(tmp_path / "s")
    for folder in "db":
        loaded = datasets.load_from_disk(str(tmp_path / folder))["train"]
        assert loaded["label"] == list(range(COUNT))
        for i, entry in enumerate(loaded["image"]):
            assert np.array_equal(pixels_of(entry["bytes"]), image(i))
            assert entry["path"] == f"{i}.{'l3' if folder == 'd' else 'png'}"


@pytest.mark.parametrize("container", ["parquet", "arrow"])
def test_paths_are_values(tmp_path: Path, container: str) -> None:
    """Hostile, equal, empty or absent: no file is written by them, and they come back."""
    paths = ["../../x.png", "/abs.png", "C:\\w.png", "a\0b.png", "x" * 10**5 + ".png", "", None]
    paths += ["same.png", "same.png", "SAME.png"]
    files = [{"bytes": png(i), "path": path} for i, path in enumerate(paths)]
    table = pa.table({"image": pa.array(files, IMAGE)})
    (tmp_path / "s").mkdir()
    write_table_as(table, tmp_path / "s" / f"a.{container}")
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert convert(tmp_path / "d", tmp_path / "b", "--to", "png") == 0
    for folder, suffix in ("d", "l3"), ("b", "png"):
        path = tmp_path / folder / f"a.{container}"
        found = pq.read_table(path) if container == "parquet" else read_arrow(path, "stream")[0]
        for i, (entry, old) in enumerate(zip(found["image"].to_pylist(), paths, strict=True)):
            assert entry["path"] == (old and old.replace(".png", f".{suffix}"))
            assert np.array_equal(pixels_of(entry["bytes"]), image(i))
    own = {f"{folder}/{name}" for folder in "db" for name in (MANIFEST_NAME, REPORT_NAME)}
    assert files_below(tmp_path) == {*own, *(f"{folder}/a.{container}" for folder in "sdb")}


@pytest.mark.parametrize("kind", ["stream", "file"])
@pytest.mark.parametrize("what", ["a record batch", "dictionaries"])
@pytest.mark.usefixtures("in_process")
def test_what_is_compressed_too_much(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    what: str,
) -> None:
    """It is refused before it is expanded; what is no larger than the limit is not."""
    monkeypatch.setattr(arrow, "_EXPANDED_BYTES", 2**20)
    new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    for name, count in ("small", 2**19), ("large", 2**21):
        values = pa.array([bytes(count), png(1)])
        if what == "dictionaries":
            values = pa.DictionaryArray.from_arrays(pa.array([1, 1], pa.int32()), values)
        batch = pa.record_batch({"image": values})
        path = tmp_path / "s" / f"{name}.arrow"
        path.parent.mkdir(exist_ok=True)
        with new(str(path), batch.schema, options=options) as writer:
            writer.write_batch(batch)
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 2
    assert f"large.arrow: {what} of " in capsys.readouterr().err
    assert files_below(tmp_path / "d") == {"small.arrow"}


def write_table_as(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("container", ["parquet", "arrow"])
def test_many_bands_and_other_formats_come_back(tmp_path: Path, container: str) -> None:
    """As they were, but for JPEG, which comes back as PNG."""
    bands = np.stack([image(i, 1).astype(np.uint16) * 99 for i in range(7)], axis=2)
    file = io.BytesIO()
    tifffile.imwrite(file, bands, photometric="minisblack", planarconfig="contig")
    jpeg = bytes(imagecodecs.jpeg8_encode(image(1), level=90))
    files = [("a.tiff", file.getvalue()), ("b.png", png(2)), ("c.jpg", jpeg)]
    table = pa.table({"image": pa.array([{"bytes": d, "path": p} for p, d in files], IMAGE)})
    (tmp_path / "s").mkdir()
    path = tmp_path / "s" / f"a.{container}"
    write_table_as(table, path)
    assert convert(tmp_path / "s", tmp_path / "d", "--grow") == 0
    assert convert(tmp_path / "d", tmp_path / "b", "--to", "source") == 0
    result = tmp_path / "b" / path.name
    back = pq.read_table(result) if container == "parquet" else read_arrow(result, "stream")[0]
    found = back.column("image").to_pylist()
    assert [entry["path"] for entry in found] == ["a.tiff", "b.png", "c.png"]
    for entry, (_, data) in zip(found, files, strict=True):
        assert np.array_equal(read_picture(entry["bytes"]).pixels, read_picture(data).pixels)


@pytest.mark.parametrize("choice", ["fail", "keep", "drop"])
def test_a_damaged_image(tmp_path: Path, choice: str, capsys: pytest.CaptureFixture[str]) -> None:
    values = [png(0), png(1)[:99], png(2)]
    table = pa.table({"i": values, "n": [0, 1, 2]})
    (tmp_path / "s").mkdir()
    with pa.ipc.new_stream(str(tmp_path / "s" / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert convert(tmp_path / "s", tmp_path / "d", "--on-error", choice) == 2
    assert "row 1, i: cannot be read" in capsys.readouterr().err
    result = tmp_path / "d" / "a.arrow"
    assert result.exists() == (choice != "fail")
    if choice == "drop":
        assert read_arrow(result, "stream")[0].column("n").to_pylist() == [0, 2]
    if choice == "keep":
        assert read_arrow(result, "stream")[0].column("i").to_pylist()[1] == values[1]


BESIDE = {
    "text": pa.array([f"{i}" * 20 for i in range(6)], pa.string_view()),
    "bytes": pa.array([b"%d" % i for i in range(6)], pa.binary_view()),
    "lists of text": pa.array(
        [["a", None], [], None, ["b"], ["c"], []], pa.list_(pa.string_view())
    ),
    "structs of text": pa.array(
        [{"a": f"{i}"} for i in range(6)], pa.struct({"a": pa.string_view()})
    ),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([3, 6], pa.int32()), pa.array(["x", "y"])),
}


@pytest.mark.parametrize(
    ("beside", "suffix"),
    [(beside, "arrow") for beside in BESIDE]
    + [(beside, "parquet") for beside in BESIDE if beside != "runs"],
)
@pytest.mark.parametrize("damaged", [[3], [0, 2, 5], range(6)], ids=str)
def test_dropped_rows_of_what_pyarrow_cannot_filter(
    tmp_path: Path, beside: str, damaged: Iterable[int], suffix: str
) -> None:
    """Text as polars writes it, among others: one damaged image failed the shard."""
    images = [png(i)[:99] if i in damaged else png(i) for i in range(6)]
    table = pa.table({"i": images, "beside": BESIDE[beside]})
    (tmp_path / "s").mkdir()
    name = f"a.{suffix}"
    if suffix == "parquet":
        pq.write_table(table, tmp_path / "s" / name)
    else:
        with pa.ipc.new_file(str(tmp_path / "s" / name), table.schema) as writer:
            writer.write_table(table)
    assert convert(tmp_path / "s", tmp_path / "d", "--on-error", "drop") == 2
    path = tmp_path / "d" / name
    found = pq.read_table(path) if suffix == "parquet" else read_arrow(path, "file")[0]
    found.validate(full=True)
    assert found.schema.equals(table.schema)
    left = [i for i in range(6) if i not in damaged]
    values = table.column("beside").to_pylist()
    assert found.column("beside").to_pylist() == [values[i] for i in left]
    assert [data[:8] for data in found.column("i").to_pylist()] == [L3_SIGNATURE] * len(left)


@pytest.mark.parametrize("kind", ["stream", "file"])
@pytest.mark.parametrize("kept", [0, 3, 500, 5000, -9])
def test_damaged_files(
    tmp_path: Path, kept: int, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_arrow(tmp_path / "s" / "a.arrow", kind)
    data = (tmp_path / "s" / "a.arrow").read_bytes()
    (tmp_path / "s" / "a.arrow").write_bytes(data[:kept])
    code = convert(tmp_path / "s", tmp_path / "d")
    if kind == "stream" and kept == -9:  # A stream may end without its mark.
        return
    assert code == 2
    assert "a.arrow: " in capsys.readouterr().err
    assert files_below(tmp_path / "d") == set()


@pytest.mark.parametrize("kind", ["stream", "file"])
@pytest.mark.parametrize(
    "what", ["the same", "rows behind none", "none behind rows", "junk", "a byte"]
)
def test_data_behind_the_end(
    tmp_path: Path, what: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files behind one another lost all rows but the first one's, or the last one's."""
    path, none = tmp_path / "s" / "a.arrow", tmp_path / "none"
    table = write_arrow(path, kind)
    new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    with new(str(none), table.schema):
        pass
    data = path.read_bytes()
    behind = {"the same": data, "none behind rows": none.read_bytes(), "junk": b"junk" * 10**6}
    path.write_bytes(data + behind.get(what, b"x"))
    if what == "rows behind none":
        path.write_bytes(none.read_bytes() + data)
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert files_below(tmp_path / "d") == set()
    assert main(["verify", str(tmp_path / "s")]) == 2
    told = capsys.readouterr().err
    if kind == "stream" or what not in ("junk", "a byte"):  # Else pyarrow finds no footer.
        assert told.count("a.arrow: data ") == 2


def test_a_footer_that_names_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One bit of it was enough: a table without rows came out."""
    path = tmp_path / "s" / "a.arrow"
    write_arrow(path, "file")
    data = bytearray(path.read_bytes())
    root = len(data) - 10 - int.from_bytes(data[-10:-6], "little")
    root += int.from_bytes(data[root : root + 4], "little")
    table = root - int.from_bytes(data[root : root + 4], "little", signed=True)
    data[table + 8 : table + 12] = bytes(4)  # where dictionaries and batches are listed
    path.write_bytes(data)
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert "data that the footer does not name" in capsys.readouterr().err


@pytest.mark.parametrize("writer", ["a bare schema", "padding"])
@pytest.mark.parametrize("count", [0, COUNT])
def test_beginnings_of_files(tmp_path: Path, writer: str, count: int) -> None:
    """Those of polars have a schema without its size, those of arrow-rs 64 bytes before it."""
    path = tmp_path / "s" / "a.arrow"
    table = write_arrow(path, "file").slice(0, count)
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)
    data = path.read_bytes()
    if writer == "a bare schema":
        path.write_bytes(data[:8] + struct.pack("<IHH", 16, 0, 10) + data[16:])
    elif count == 0:  # Else the places of batches would change.
        path.write_bytes(data[:8] + bytes(56) + data[8:])
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert rows(read_arrow(tmp_path / "d" / "a.arrow", "file")[0]) == rows(table)


@pytest.mark.parametrize("end", ["no mark", "an old mark", "zeros"])
def test_ends_of_streams(tmp_path: Path, end: str) -> None:
    path = tmp_path / "s" / "a.arrow"
    table = write_arrow(path, "stream")
    data = path.read_bytes()
    ends = {"no mark": data[:-8], "an old mark": data[:-8] + bytes(4), "zeros": data + bytes(100)}
    path.write_bytes(ends[end])
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert rows(read_arrow(tmp_path / "d" / "a.arrow", "stream")[0]) == rows(table)


@pytest.mark.parametrize("behind", [0, 4])
@pytest.mark.parametrize("batches", [1, 2, 3])
def test_a_stream_whose_rest_is_zeros(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], batches: int, behind: int
) -> None:
    """As a download that was broken off may leave it; it counted as the end, and rows were lost."""
    path = tmp_path / "s" / "a.arrow"
    batch = write_arrow(path, "stream").combine_chunks().to_batches()[0]
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, batch.schema) as stream:
        ends = [file.tell()]
        for _ in range(3):
            stream.write_batch(batch)
            ends.append(file.tell())
    data = path.read_bytes()
    size = ends[batches] + behind * (batches < 3)
    path.write_bytes(data[:size].ljust(len(data), b"\0"))
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert "data behind the end of the stream" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(30))
def test_damage_at_random_ends_in_an_error_or_not_at_all(tmp_path: Path, seed: int) -> None:
    """In a process of its own: pyarrow may crash, which costs the shard."""
    kind = "stream" if seed % 2 else "file"
    write_arrow(tmp_path / "s" / "a.arrow", kind)
    data = bytearray((tmp_path / "s" / "a.arrow").read_bytes())
    rng = np.random.default_rng(seed)
    for at in rng.integers(0, len(data) if seed % 3 else 3000, 4):
        data[at] = rng.integers(256)
    (tmp_path / "s" / "a.arrow").write_bytes(data)
    (tmp_path / "s" / "b.png").write_bytes(png())
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 2) in (0, 2)
    assert (tmp_path / "d" / "b.l3").exists()


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("layout", ["dictionary", "views"])
def test_what_rows_share_is_taken_out_within_a_bound(
    tmp_path: Path, nested: bool, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows with one value of 100 kB: of a bound of 1 MB, ten at a time."""
    values = pa.array([bytes(100_000)], pa.large_binary())
    if layout == "dictionary":
        column = pa.DictionaryArray.from_arrays(pa.array([0] * 64, pa.int32()), values)
    else:
        _, view, data = values.cast(pa.binary_view()).buffers()
        views = pa.py_buffer(view.to_pybytes()[:16] * 64)
        column = pa.Array.from_buffers(pa.binary_view(), 64, [None, views, data])
    if nested:
        column = pa.StructArray.from_arrays([column], ["bytes"])
    with pa.ipc.new_stream(str(tmp_path / "a.arrow"), pa.schema([("i", column.type)])) as writer:
        writer.write_batch(pa.record_batch([column], ["i"]))
    monkeypatch.setattr(arrow, "_EXPANDED_BYTES", 1_000_100)
    with (tmp_path / "a.arrow").open("rb") as file:
        parts = [len(rows.batch) for rows in arrow.read_entries(file, Options())]
    assert sum(parts) == 64
    assert max(parts) == 10
    assert convert(tmp_path / "a.arrow", tmp_path / "d", "-j", 1) == 0
    assert (
        read_arrow(tmp_path / "d" / "a.arrow", "stream")[0].column("i").to_pylist()[63] is not None
    )


def test_no_rows(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    table = pa.table({"image": pa.array([], IMAGE)})
    with pa.ipc.new_stream(str(tmp_path / "s" / "a.arrow"), table.schema):
        pass
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert read_arrow(tmp_path / "d" / "a.arrow", "stream")[0].equals(table)


def write_batch(path: Path, column: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    with pa.ipc.new_stream(str(path), pa.schema([("i", column.type)])) as writer:
        writer.write_batch(pa.record_batch([column], ["i"]))


def views_of_one(value: bytes, count: int, type: Any) -> Any:
    _, view, data = pa.array([value], pa.binary_view()).buffers()
    views = pa.py_buffer(view.to_pybytes()[:16] * count)
    return pa.Array.from_buffers(type, count, [None, views, data])


def in_a_list(values: Any) -> Any:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


MOST = 2**31 - 1  # rows of a batch
EMPTY = pa.Array.from_buffers(pa.binary(0), MOST, [None, pa.py_buffer(b"")])
SHARED = pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int16()), [bytes(200_000)])
NULLS = pa.Array.from_buffers(pa.null(), MOST, [None])
TOO_MUCH = "values of its rows are too many"


def below_nulls(**fields: Any) -> Any:
    count = len(next(iter(fields.values())))
    return pa.StructArray.from_arrays(
        list(fields.values()), list(fields), mask=pa.array([True] * count)
    )


def in_null_lists(count: int, buffers: int) -> Any:
    """A list of lists, of which each second is null and has a view, of so many buffers."""
    views = views_of_one(b"short", count, pa.binary_view())
    empty = [pa.py_buffer(b"")] * buffers
    views = pa.Array.from_buffers(views.type, count, [*views.buffers()[:2], *empty])
    mask = pa.array([i % 2 == 0 for i in range(count)])
    return in_a_list(
        pa.ListArray.from_arrays(pa.array(range(count + 1), pa.int32()), views, mask=mask)
    )


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (NULLS, "too many rows"),
        (pa.Array.from_buffers(pa.struct([]), MOST, [None]), "too many rows"),
        (in_a_list(EMPTY), "too many rows"),
        (views_of_one(bytes(200_000), 2000, pa.binary_view()), TOO_MUCH),
        (in_a_list(views_of_one(bytes(200_000), 2000, pa.binary_view())), TOO_MUCH),
        (in_a_list(views_of_one(bytes(200_000), 2000, pa.string_view())), TOO_MUCH),
        (SHARED, TOO_MUCH),
        (in_a_list(SHARED), TOO_MUCH),
        (pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), EMPTY), ""),
        (below_nulls(a=in_a_list(EMPTY)), ""),
        (in_a_list(below_nulls(bytes=SHARED)), ""),
        (in_null_lists(2000, 5000), "null lists of views are too many"),
    ],
    ids=[
        "nulls",
        "structs",
        "list",
        "views",
        "view-list",
        "text-list",
        "dictionary",
        "dictionary-list",
        "empty",
        "null-lists",
        "null-bytes",
        "null-views",
    ],
)
@pytest.mark.usefixtures("in_process")
def test_small_files_that_claim_many_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], column: Any, reason: str
) -> None:
    """368 bytes of 2**31 - 1 rows or values took hours, or 8 GB; 2,000 share 200 kB."""
    write_batch(tmp_path / "s" / "a.arrow", column)
    with memory_of_pyarrow() as pool:
        assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == (2 if "many" in reason else 0)
    assert pool.max_memory() < 2**28
    assert reason in capsys.readouterr().err
    assert files_below(tmp_path / "d") == (set() if "many" in reason else {"a.arrow"})


@pytest.mark.usefixtures("in_process")
def test_paths_that_are_no_text(tmp_path: Path) -> None:
    """1,080 bytes, with a list of text as path, took 5 GB as objects of Python."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 500, pa.int16()), ["x" * 200_000])
    column = pa.StructArray.from_arrays([pa.array([png()]), in_a_list(texts)], ["bytes", "path"])
    write_batch(tmp_path / "s" / "a.arrow", column)
    tracemalloc.start()
    try:
        assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 0
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()
    found = read_arrow(tmp_path / "d" / "a.arrow", "stream")[0].column("i")[0]
    assert found["bytes"].as_py().startswith(L3_SIGNATURE)
    assert found["path"] == column[0]["path"]


def test_null_lists_of_views_in_large_files() -> None:
    """163 MB with 9,019 buffers, as pyarrow makes them, was refused."""
    batch = pa.record_batch([in_null_lists(2000, 5000)], ["i"])
    parquet.Claims(io.BytesIO(bytes(2**25))).count(batch)
    with pytest.raises(parquet_pages.ParquetError, match="null lists of views"):
        parquet.Claims(io.BytesIO(bytes(2**20))).count(batch)


def test_lengths_of_null_views_are_any() -> None:
    """They made parts of one row each: 20,000 rows took 29 s."""
    views = np.zeros((4, 4), np.int32)
    views[:, 0] = [2**31 - 1, 3, -5, 2]
    buffers = [pa.py_buffer(b"\x0a"), pa.py_buffer(views.tobytes() + b"padded")]
    array = pa.Array.from_buffers(pa.string_view(), 4, buffers)
    array.validate(full=True)
    assert parquet.lengths_of(array).to_pylist() == [None, 3, None, 2]
    assert parquet.lengths_of(array[1:3]).to_pylist() == [3, None]
    assert arrow._shared_bytes(array) == 3
    assert parquet.lengths_of(array[:0]).to_pylist() == []
    assert parquet.lengths_of(pa.array([], pa.binary_view())).to_pylist() == []


def test_unions_below_nulls(tmp_path: Path) -> None:
    """pyarrow 26 ended the process."""
    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])
    images = pa.array([png(), png()])
    column = pa.StructArray.from_arrays(
        [images, union], ["bytes", "u"], mask=pa.array([True, False])
    )
    write_batch(tmp_path / "s" / "a.arrow", column)
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    found = read_arrow(tmp_path / "d" / "a.arrow", "stream")[0].column("i").to_pylist()
    assert found[0] is None
    assert found[1]["u"] == 2
    assert found[1]["bytes"].startswith(L3_SIGNATURE)


def messages_of(data: bytes) -> list[tuple[arrow_messages.Message, bytes]]:
    found, at = [], 0
    while message := arrow_messages.read_message(io.BytesIO(data), at):
        found.append((message, data[at : message.end]))
        at = message.end
    return found


def stream_of(batch: Any, compression: str | None) -> bytes:
    file = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(file, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return file.getvalue()


def test_fields_that_share_one_dictionary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """2,000 of a dictionary that was compressed took 300 kB, and 120 GB as written."""
    batch = pa.record_batch(
        {str(i): pa.array([bytes(2**24)]).dictionary_encode() for i in range(20)}
    )
    data = stream_of(batch, "zstd")
    (_, schema), first, second, *_, (_, values) = messages_of(data)
    head = schema[8:]
    changed = bytearray(head)
    for field in arrow_messages._root(head).table(2).tables(1)[2:]:
        struct.pack_into("<q", changed, field.table(4).place(0), 1)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.arrow").write_bytes(
        schema[:8] + changed + first[1] + second[1] + values + b"\xff" * 4 + bytes(4)
    )
    with (tmp_path / "s" / "a.arrow").open("rb") as source:
        found = arrow_messages.fields_of_dictionaries(source, has_footer=False)
    assert found == {0: 1, 1: 19}
    assert read_arrow(tmp_path / "s" / "a.arrow", "stream")[0].num_columns == 20
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 2
    assert "bytes that would take" in capsys.readouterr().err


def test_dictionaries_of_fields_in_others(tmp_path: Path) -> None:
    words = pa.array(["a", "b"]).dictionary_encode()
    batch = pa.record_batch(
        {
            "list": pa.ListArray.from_arrays([0, 1, 2], words),
            "struct": pa.StructArray.from_arrays([words, words], ["a", "b"]),
            "plain": pa.array([1, 2]),
        }
    )
    with pa.ipc.new_file(tmp_path / "a.arrow", batch.schema) as writer:
        writer.write_batch(batch)
    (tmp_path / "a.arrows").write_bytes(stream_of(batch, None))
    for name, has_footer in {"a.arrow": True, "a.arrows": False}.items():
        with (tmp_path / name).open("rb") as source:
            found = arrow_messages.fields_of_dictionaries(source, has_footer=has_footer)
        assert found == {0: 1, 1: 1, 2: 1}


def test_buffers_that_have_the_same_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """3,000 columns of the same 200 kB took 952 kB, and 600 MB as written."""
    batch = pa.record_batch({str(i): np.zeros(2**17) for i in range(200)})
    (_, schema), (_, values) = messages_of(stream_of(batch, None))
    head = bytearray(values[8 : -200 * 2**20])
    root = arrow_messages._root(bytes(head))
    at = root.table(2)._target(2) + 4
    for i in range(2 * 200):
        struct.pack_into("<q", head, at + 16 * i, 0)
    struct.pack_into("<q", head, root.place(3), 2**20)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.arrow").write_bytes(
        schema + values[:8] + head + bytes(2**20) + b"\xff" * 4 + bytes(4)
    )
    assert read_arrow(tmp_path / "s" / "a.arrow", "stream")[0].num_columns == 200
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 2
    assert "a record batch of 1048576 bytes that would take 209715200" in capsys.readouterr().err


@pytest.mark.parametrize("rows", [0, 5, MOST])
def test_rows_without_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: int
) -> None:
    """2**48 of them, in 1.3 kB, were counted in parts of 1,024, without an end."""
    (tmp_path / "s").mkdir()
    batch = pa.record_batch([pa.nulls(rows)], ["i"]).select([])
    with pa.ipc.new_stream(tmp_path / "s" / "a.arrow", batch.schema) as new:
        new.write_batch(batch)
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == (2 if rows else 0)
    assert ("rows without columns" in capsys.readouterr().err) == (rows > 0)


@pytest.mark.parametrize("part_rows", [1, 1000])
@pytest.mark.parametrize("choice", ["keep", "drop"])
@pytest.mark.usefixtures("in_process")
def test_batches_whose_results_are_too_large_for_their_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str, part_rows: int
) -> None:
    """More than 2 GiB of L3 files: "offset overflow while concatenating arrays", or chunks."""
    for module in (arrow, parquet):
        monkeypatch.setattr(module, "PIECE_BYTES", 3000)
    monkeypatch.setattr(arrow, "_PART_ROWS", part_rows)
    values = [{"bytes": png(i) if i % 4 else png(i)[:99], "path": f"{i}.png"} for i in range(12)]
    table = pa.table({"image": values, "label": range(12)})
    (tmp_path / "s").mkdir()
    with pa.ipc.new_stream(str(tmp_path / "s" / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1, "--on-error", choice) == 2
    found, sizes = read_arrow(tmp_path / "d" / "a.arrow", "stream")
    left = [i for i in range(12) if choice == "keep" or i % 4]
    assert found.column("label").to_pylist() == left
    for i, value in zip(left, found.column("image").to_pylist(), strict=True):
        if i % 4:
            assert np.array_equal(pixels_of(value["bytes"]), image(i))
    assert len(sizes) > 1
    assert sum(sizes) == len(left)


@pytest.mark.parametrize("kind", ["stream", "file"])
def test_dictionaries_that_grow_are_not_written_anew(tmp_path: Path, kind: str) -> None:
    """With each batch they would take the square of their values."""
    (tmp_path / "s").mkdir()
    path = tmp_path / "s" / "a.arrow"
    schema = pa.schema(
        [("image", pa.binary()), ("caption", pa.dictionary(pa.int32(), pa.string()))]
    )
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    captions: list[str] = []
    with (pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file)(
        path, schema, options=options
    ) as new:
        for number in range(30):
            captions += [f"a caption that is long {number} {i}" for i in range(100)]
            places = pa.array([len(captions) - 1], pa.int32())
            words = pa.DictionaryArray.from_arrays(places, pa.array(captions))
            new.write_batch(pa.record_batch([pa.array([png(number)]), words], schema=schema))
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    found, sizes = read_arrow(tmp_path / "d" / "a.arrow", kind)
    assert sizes == [1] * 30
    assert found.column("caption").to_pylist() == captions[99::100]
    assert (tmp_path / "d" / "a.arrow").stat().st_size < 1.2 * path.stat().st_size


@pytest.mark.parametrize("kind", ["stream", "file"])
@pytest.mark.parametrize("choice", ["keep", "drop"])
def test_batches_keep_their_metadata(tmp_path: Path, kind: str, choice: str) -> None:
    """And their number; one of no rows too. So does the footer of a file."""
    (tmp_path / "s").mkdir()
    start = partial(pa.ipc.new_file, metadata={"made by": "cats"})
    path = tmp_path / "s" / "a.arrow"
    words = pa.array(["a", "b", "a"]).dictionary_encode()
    batch = pa.record_batch([pa.array([png(0), png(1)[:99], png(2)]), words], ["i", "w"])
    with (pa.ipc.new_stream if kind == "stream" else start)(path, batch.schema) as new:
        for number, each in enumerate((batch, batch.slice(0, 0), batch.slice(2))):
            new.write_batch(each, custom_metadata={"caption": f"cat {number}"})
        new.write_batch(batch)
    assert convert(tmp_path / "s", tmp_path / "d", "--on-error", choice) == 2
    with pa.OSFile(str(tmp_path / "d" / "a.arrow")) as file:
        if kind == "stream":
            found = list(pa.ipc.open_stream(file).iter_batches_with_custom_metadata())
        else:
            opened = pa.ipc.open_file(file)
            found = [opened.get_batch_with_custom_metadata(i) for i in range(4)]
            assert opened.metadata == {b"made by": b"cats"}
    captions = [custom and custom[b"caption"] for _, custom in found]
    assert captions == [b"cat 0", b"cat 1", b"cat 2", None]
    whole = ["a", "b", "a"] if choice == "keep" else ["a", "a"]
    assert [each.column(1).to_pylist() for each, _ in found] == [whole, [], ["a"], whole]
    assert all(each.column(0)[0].as_py().startswith(L3_SIGNATURE) for each, _ in found if len(each))


@pytest.mark.parametrize("value", [float("nan"), ""])
def test_a_large_dictionary_that_rows_share(tmp_path: Path, value: Any) -> None:
    """Each part of the rows compared or measured all of it: 7 kB took minutes and gigabytes."""
    values = pa.array([value] * 2**20)
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2**18, np.int32)), values)
    (tmp_path / "s").mkdir()
    batch = pa.record_batch([column], ["i"])
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(tmp_path / "s" / "a.arrow", batch.schema, options=options) as new:
        new.write_batch(batch)
    assert (tmp_path / "s" / "a.arrow").stat().st_size < 2000
    with (tmp_path / "s" / "a.arrow").open("rb") as opened:
        parts = [len(rows.batch) for rows in arrow.read_entries(opened, Options())]
    assert set(parts) == {1024}
    assert convert(tmp_path / "s" / "a.arrow", tmp_path / "d", "-j", 1) == 0
    found = read_arrow(tmp_path / "d" / "a.arrow", "stream")[0].column("i")
    assert len(found) == 2**18
    assert len(found.chunk(0).dictionary) == 2**20


@pytest.mark.parametrize("kind", ["stream", "file"])
def test_many_batches_of_a_large_dictionary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """Each batch has all of it judged: 400 kB took 78 s. Dictionaries of each batch are fine."""
    (tmp_path / "s").mkdir()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    for name, values in ("a", pa.array([""] * 2**16)), ("b", pa.array(["x", "y"])):
        batch = pa.record_batch(
            [pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), values)], ["i"]
        )
        path = str(tmp_path / "s" / f"{name}.arrow")
        with new(path, batch.schema, options=options) as writer:
            for _ in range(1000):
                writer.write_batch(batch)
    with pa.ipc.new_stream(str(tmp_path / "s" / "c.arrow"), batch.schema) as writer:
        for i in range(2000):
            words = pa.array([f"{i:09}", "a"]).dictionary_encode()
            writer.write_batch(pa.record_batch([words], ["i"]))
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 2
    told = capsys.readouterr().err
    assert "l3: 1 failed\na.arrow: " in told
    assert " bytes that would take " in told
    assert files_below(tmp_path / "d") == {"b.arrow", "c.arrow"}


def test_long_lists_of_what_is_no_image(tmp_path: Path) -> None:
    """They cost nothing: label maps may be such lists."""
    write_batch(tmp_path / "s" / "a.arrow", in_a_list(NULLS))
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 0
    found = read_arrow(tmp_path / "d" / "a.arrow", "stream")[0].column("i")
    assert found.combine_chunks().value_lengths().to_pylist() == [MOST]


@pytest.mark.usefixtures("in_process")
def test_rows_beside_long_lists_are_dropped(tmp_path: Path) -> None:
    """A filter took 8.8 GB for 584 bytes: a number for each null."""
    lists = pa.ListArray.from_arrays(pa.array([0, MOST - 3, MOST, MOST], pa.int32()), NULLS)
    (tmp_path / "s").mkdir()
    images = pa.array([png(), png()[:50], png()])
    batch = pa.record_batch(
        {"i": images, "l": lists, "s": pa.StructArray.from_arrays([lists], ["l"])}
    )
    (tmp_path / "s" / "a.arrow").write_bytes(stream_of(batch, None))
    with memory_of_pyarrow() as pool:
        assert convert(tmp_path / "s", tmp_path / "d", "-j", 1, "--on-error", "drop") == 2
    assert pool.max_memory() < 2**28
    found = read_arrow(tmp_path / "d" / "a.arrow", "stream")[0]
    assert found.column("l").combine_chunks().value_lengths().to_pylist() == [MOST - 3, 0]
    assert found.column("s").combine_chunks().field("l").value_lengths().to_pylist() == [
        MOST - 3,
        0,
    ]


def test_a_footer_that_names_a_batch_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s").mkdir()
    source = tmp_path / "s" / "a.arrow"
    with pa.ipc.new_file(str(source), pa.schema([("i", pa.binary())])) as writer:
        for value in bytes(10_000), *[b""] * 9:
            writer.write_batch(pa.record_batch([pa.array([value])], ["i"]))
    with source.open("rb") as file:
        blocks = [struct.pack("<qi", *block) for block in footer_blocks(file, RECORD_BATCH)]
    data = bytearray(source.read_bytes())
    first = data.rindex(blocks[0])
    for block in blocks[1:-1]:  # Behind the last one no data may lie.
        at = data.rindex(block)
        data[at : at + 24] = data[first : first + 24]
    source.write_bytes(data)
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 2
    assert "messages that have the same bytes" in capsys.readouterr().err


@pytest.mark.parametrize("nested", ["", "struct", "list"])
def test_views_stay_small(tmp_path: Path, nested: str) -> None:
    """Each part of a batch has its own bytes: 20 parts made a file of 12 times the size."""
    texts = [b"a text that fills more than a view, %06d" % i for i in range(20_000)]
    texts[17_000] = png()
    column: Any = pa.array([*texts[:-1], None], pa.binary_view())
    if nested == "struct":
        column = pa.StructArray.from_arrays([column], ["bytes"])
    elif nested == "list":
        column = pa.ListArray.from_arrays(pa.array(range(0, 20_001, 2), pa.int32()), column)
    write_batch(tmp_path / "s" / "a.arrow", column)
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 0
    result = tmp_path / "d" / "a.arrow"
    assert result.stat().st_size < 1.2 * (tmp_path / "s" / "a.arrow").stat().st_size
    found = read_arrow(result, "stream")[0].column("i")
    assert found.type == column.type
    plain = {"": pa.binary(), "struct": pa.struct([("bytes", pa.binary())])}.get(
        nested, pa.list_(pa.binary())
    )
    new, old = found.cast(plain).to_pylist(), column.cast(plain).to_pylist()
    (changed,) = [i for i in range(len(old)) if new[i] != old[i]]
    assert changed == (17_000 if nested != "list" else 8500)


@pytest.mark.parametrize("kind", ["stream", "file"])
def test_images_in_a_dictionary_of_several_batches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    (tmp_path / "s").mkdir()
    column = pa.array([png(), png(1), png()]).dictionary_encode()
    batch = pa.record_batch([column], ["i"])
    new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    with new(str(tmp_path / "s" / "a.arrow"), batch.schema) as writer:
        for part in (batch.slice(0, 1), batch.slice(1)):
            writer.write_batch(part)
    assert convert(tmp_path / "s", tmp_path / "d") == (0 if kind == "stream" else 2)
    told = "a.arrow: images, or their paths, are in a dictionary of several record batches"
    assert (told in capsys.readouterr().err) == (kind == "file")


def test_a_dictionary_of_views(tmp_path: Path) -> None:
    """Polars writes its categories so."""
    images = pa.array([png(), *[b"no image"] * 2999], pa.binary_view())
    names = pa.array([f"a class of some length, {i}" for i in range(500)], pa.string_view())
    labels = pa.DictionaryArray.from_arrays(pa.array([i % 500 for i in range(3000)]), names)
    (tmp_path / "s").mkdir()
    source = tmp_path / "s" / "a.arrow"
    batch = pa.record_batch([images, labels], ["image", "label"])
    with pa.ipc.new_file(str(source), batch.schema) as writer:
        writer.write_batch(batch)
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    result = tmp_path / "d" / "a.arrow"
    table = read_arrow(result, "file")[0]
    assert table.schema.equals(batch.schema)
    assert table.column("label").to_pylist() == labels.to_pylist()
    assert table.column("image")[0].as_py().startswith(L3_SIGNATURE)
    assert result.stat().st_size < 1.2 * source.stat().st_size


@pytest.mark.parametrize(
    "type",
    [
        pa.list_view(pa.uint8()),
        pa.struct([("a", pa.large_list_view(pa.uint8()))]),
        pa.list_(pa.string_view(), 3),
        pa.map_(pa.string(), pa.binary_view()),
        pa.dictionary(pa.int8(), pa.binary_view()),
        pa.dense_union([pa.field("a", pa.binary())]),
        pa.opaque(pa.binary_view(), "a", "b"),
        pa.opaque(pa.list_view(pa.uint8()), "a", "b"),
        pa.sparse_union([pa.field("a", pa.list_view(pa.binary()))]),
    ],
    ids=str,
)
def test_views_that_are_not_taken_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], type: Any
) -> None:
    """2 kB of list views that share took 32 GiB."""
    (tmp_path / "s").mkdir()
    with pa.ipc.new_stream(str(tmp_path / "s" / "a.arrow"), pa.schema([("i", type)])):
        pass
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 2
    assert "a type without views" in capsys.readouterr().err


@pytest.mark.parametrize("counts", [[0], [0, 2]])
@pytest.mark.parametrize("is_list", [False, True])
def test_unions_without_values(tmp_path: Path, counts: list[int], is_list: bool) -> None:
    """592 bytes ended `l3 verify`: pyarrow 26 crashes where it counts the bytes of such a union."""
    (tmp_path / "s").mkdir()
    fields = [pa.array([1, 2], pa.int64()), pa.array(["a", "b"])]
    batches = []
    for count in counts:
        numbers = pa.array([0, 1][:count], pa.int8())
        union = pa.UnionArray.from_sparse(numbers, [field[:count] for field in fields])
        if is_list:
            union = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), union)
        images = pa.array([png(seed) for seed in range(len(union))], pa.binary())
        batches.append(pa.record_batch({"image": images, "u": union}))
    with pa.ipc.new_stream(str(tmp_path / "s" / "a.arrow"), batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    result, _ = read_arrow(tmp_path / "d" / "a.arrow", "stream")
    assert result.column("u").to_pylist() == [v for b in batches for v in b["u"].to_pylist()]
    assert main(["verify", str(tmp_path / "d")]) == 0
    assert main(["info", str(tmp_path / "d")]) == 0


def test_verify_reads_containers_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyarrow has faults that end one, and with it the command."""
    write_arrow(tmp_path / "s" / "a.arrow", "stream")
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    with monkeypatch.context() as patch:
        patch.delattr(job, "HashedReader")
        assert main(["verify", str(tmp_path / "d")]) == 0

    def refuse(_idle: object) -> Any:
        raise OSError("a folder in which nothing can be written")

    monkeypatch.setattr(job, "borrowed", refuse)
    assert main(["verify", str(tmp_path / "d")]) == 0


@pytest.mark.parametrize(("code", "result"), [(255, 0), (1, 0), (-11, 2)])
def test_a_reader_that_is_told_to_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
    result: int,
) -> None:
    """SIGTERM to a group of processes made failures of what l3 verify had in hand."""

    class Reader:
        def each(self, function: Any, *arguments: object) -> Any:
            yield from islice(function(*arguments), 1)
            raise ChildDiedError(code)

    write_arrow(tmp_path / "s" / "a.arrow", "stream")
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    monkeypatch.setattr(job, "borrowed", lambda _idle: contextlib.nullcontext(Reader()))
    capsys.readouterr()
    assert main(["verify", str(tmp_path / "d")]) == result
    told = capsys.readouterr().err
    assert ("70 L3 images" in told) == (result == 0)
    assert ("ended by SIGSEGV" in told) == (result == 2)


def test_bytes_of_parts_of_unions() -> None:
    """Each part counted as its whole batch, which was cut in two then."""
    numbers = pa.array(np.arange(1000) % 2, pa.int8())
    fields = [pa.array(range(1000)), pa.array(["text" * 9] * 1000)]
    union = pa.UnionArray.from_sparse(numbers, fields)
    lists = pa.ListArray.from_arrays(pa.array(range(1001), pa.int32()), union)
    structs = pa.StructArray.from_arrays([union, lists], ["a", "b"])
    batch = pa.record_batch({"u": union, "l": lists, "s": structs, "n": fields[0]})
    parts = [bytes_of(batch.slice(start, 10)) for start in range(0, 1000, 10)]
    assert 0.9 * batch.nbytes < sum(parts) < 1.2 * batch.nbytes


def test_floats_in_a_dictionary_beside_an_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To put parts of rows together again, each compares all of them."""
    for name, value in ("a", pa.float32()), ("b", pa.int32()):
        type = pa.struct([("bytes", pa.binary()), ("x", pa.dictionary(pa.int8(), value))])
        write_batch(tmp_path / "s" / f"{name}.arrow", pa.array([], type))
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 2
    assert "a.arrow: floats in a dictionary beside images" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == {"b.arrow"}
