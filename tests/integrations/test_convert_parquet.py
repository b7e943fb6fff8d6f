"""`l3 convert` with Parquet, as Hugging Face has it, and WebDataset read by its own package."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import hostile_readers
import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import webdataset
from convert_tools import (
    convert,
    files_below,
    image,
    make_plan,
    pixels_of,
    png,
    rows_of,
    samples,
    save,
    write_tar,
)
from nvidia.dali import fn, pipeline_def

import l3dali.plugin  # noqa: F401
from l3dali import decode
from l3dali.datasets.convert import engine, parquet, parquet_pages, tfrecord
from l3dali.datasets.convert.images import Options
from l3dali.datasets.convert.job import failed_rows
from l3dali.signatures import format_of

COUNT = 10
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def write_table(path: Path) -> pa.Table:
    """All shapes that images have in tables, nulls, and columns of other types."""
    pictures = [{"bytes": png(i), "path": f"{i}.png"} for i in range(COUNT)]
    table = pa.table(
        {
            "label": pa.array(range(COUNT), pa.int8()),
            "image": pa.array([None, *pictures[1:]], IMAGE),
            "no_path": pa.array([{"bytes": png(i), "path": None} for i in range(COUNT)], IMAGE),
            "plain": pa.array([png(i) for i in range(COUNT - 1)] + [None], pa.large_binary()),
            "several": pa.array(
                [pictures[:i] if i != 3 else None for i in range(COUNT)], pa.list_(IMAGE)
            ),
            "text": pa.array([b"BM no image"] * COUNT, pa.binary()),
            "when": pa.array(range(COUNT), pa.timestamp("ns")),
            "other": pa.array([{"bytes": i} for i in range(COUNT)], pa.struct([("bytes", "i4")])),
            "word": pa.array(["a", "b"] * (COUNT // 2)).dictionary_encode(),
        },
        metadata={"huggingface": '{"info": {"features": {"image": {"_type": "Image"}}}}'},
    )
    path.parent.mkdir(exist_ok=True)
    compression = {"label": "GZIP"}
    pq.write_table(table, path, row_group_size=4, compression=compression)
    return table


@pytest.mark.parametrize("added", [{"late": "one"}, {"late": "one", "huggingface": "new"}, {}])
def test_pairs_of_the_footer_stay(tmp_path: Path, added: dict[str, str]) -> None:
    """Those that the Arrow schema has, with its values or newer ones, and others."""
    path = tmp_path / "s" / "a.parquet"
    table = write_table(path)
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(added)
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    before, after = (pq.read_metadata(tmp_path / folder / "a.parquet").metadata for folder in "sd")
    assert before.pop(b"ARROW:schema")
    assert after.pop(b"ARROW:schema")
    assert before == after
    assert after.keys() == {b"huggingface", *map(str.encode, added)}
    schemas = [pq.read_schema(tmp_path / folder / "a.parquet") for folder in "sd"]
    assert schemas[0].metadata == schemas[1].metadata == table.schema.metadata


def test_spare_bytes_in_the_footer(tmp_path: Path) -> None:
    """As fastparquet leaves them where it makes a pair shorter; pyarrow reads them."""
    path = tmp_path / "s" / "a.parquet"
    write_table(path)
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little") + 9
    path.write_bytes(data[:-8] + b"spare" + bytes(4) + length.to_bytes(4, "little") + data[-4:])
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert pq.read_table(tmp_path / "d" / "a.parquet").num_rows == COUNT


def test_types_that_pyarrow_does_not_keep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As ENUM of protobuf, INTERVAL and GEOMETRY of DuckDB: it would write their bytes alone."""
    source = tmp_path / "s" / "a.parquet"
    source.parent.mkdir()
    pq.write_table(pa.table({"image": [png(1)], "kind": ["cat"]}), source)
    data = source.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    at = data.index(b"\x1c\0\0", data.index(b"kind", footer))
    source.write_bytes(data[:at] + b"\x4c" + data[at + 1 :])  # STRING to ENUM, in Thrift
    assert pq.ParquetFile(source).schema.column(1).logical_type.type == "ENUM"
    assert convert(source.parent, tmp_path / "d") == 2
    assert "does not keep: 'kind' of type Enum; cast it" in capsys.readouterr().err


def as_seen(value: Any, key: str = "") -> Any:
    """A value with images as pixels, and without their suffix."""
    if isinstance(value, dict):
        return {name: as_seen(inside, name) for name, inside in value.items()}
    if isinstance(value, list):
        return [as_seen(inside, key) for inside in value]
    if isinstance(value, bytes) and format_of(value[:16])[0] in ("png", "l3"):
        return pixels_of(value).tobytes()
    return value.rpartition(".")[0] if key == "path" and value is not None else value


def rows(table: pa.Table) -> Any:
    times = table.column("when").cast(pa.int64()).to_pylist()
    return as_seen(table.drop_columns("when").to_pylist()), times


@pytest.mark.parametrize("flag", ["-j1", "-j2", "--dry-run", "--untrusted"])
def test_a_column_at_which_pyarrow_aborts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], flag: str
) -> None:
    """Its statistics are of another type than the schema has."""
    source = tmp_path / "s"
    source.mkdir()
    pq.write_table(pa.table({"image": [png(1)]}), source / "sound.parquet")
    data = (source / "sound.parquet").read_bytes()
    at = data.index(b"\x15\x0c", len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
    (source / "a.parquet").write_bytes(data[:at] + b"\x15\x02" + data[at + 2 :])
    assert convert(source, tmp_path / "d", flag) == 2
    said = "".join(capfd.readouterr())
    reason = "a damaged Parquet file: what read its footer ended by SIGABRT"
    if flag == "--dry-run":
        reason = "the process that read it ended by SIGABRT"
    assert f"a.parquet: {reason}" in said
    assert "terminate" not in said
    if flag != "--dry-run":
        assert rows_of(tmp_path / "d")["sound.parquet"].status == "done"


def test_a_compression_that_pyarrow_does_not_know(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """pyarrow 26 aborts where a column is asked for it."""
    (tmp_path / "s").mkdir()
    pq.write_table(pa.table({"image": [png(1)]}), tmp_path / "s" / "a.parquet")
    data = (tmp_path / "s" / "a.parquet").read_bytes()
    snappy, unknown = (b"\x05image\x15" + bytes([2 * number]) for number in (1, 17))
    assert data.count(snappy) == 1
    (tmp_path / "s" / "a.parquet").write_bytes(data.replace(snappy, unknown))
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    said = "".join(capfd.readouterr())
    assert "a.parquet: a damaged Parquet file: " in said  # pyarrow 25 finds bytes damaged
    assert "terminate" not in said


def test_a_table_and_back(tmp_path: Path) -> None:
    table = write_table(tmp_path / "s" / "a.parquet")
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert convert(tmp_path / "d", tmp_path / "b", "--to", "png") == 0
    paths = [tmp_path / folder / "a.parquet" for folder in "sdb"]
    tables = [pq.read_table(path) for path in paths]
    for other in tables[1:]:
        assert other.schema.equals(tables[0].schema, check_metadata=True)
        assert rows(other) == rows(table)
    images = tables[1].column("image").to_pylist()
    assert images[0] is None
    assert [entry["path"] for entry in images[1:]] == [f"{i}.l3" for i in range(1, COUNT)]
    assert all(format_of(entry["bytes"][:16])[0] == "l3" for entry in images[1:])
    assert tables[2].column("image").to_pylist()[5]["path"] == "5.png"
    files = [pq.ParquetFile(path).metadata for path in paths]
    for group in range(3):
        assert {file.row_group(group).num_rows for file in files} == {4 if group < 2 else 2}
        assert {file.row_group(group).column(0).compression for file in files} == {"GZIP"}
    found, back = (rows_of(tmp_path / folder)["a.parquet"] for folder in "db")
    assert found.pixels_hash == back.pixels_hash
    assert found.images == 9 + 10 + 9 + (45 - 3)


@pytest.mark.parametrize(
    "options",
    [
        {"use_compliant_nested_type": False},
        {"use_compliant_nested_type": False, "store_schema": False},
        {"write_time_adjusted_to_utc": True},
    ],
    ids=["item", "item alone", "utc"],
)
def test_columns_are_written_as_they_were(tmp_path: Path, options: dict[str, Any]) -> None:
    """Lists whose items are not called `element` lost their compression, times their zone."""
    path = tmp_path / "s" / "a.parquet"
    table = write_table(path)
    table = table.append_column("tokens", pa.array([[i] * 400 for i in range(COUNT)]))
    table = table.append_column("at", pa.array(range(COUNT), pa.time64("us")))
    pq.write_table(table, path, compression="zstd", **options)
    pq.ParquetWriter(tmp_path / "s" / "no_rows.parquet", table.schema, **options).close()
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    for name in ("no_rows", "a"):
        before, after = (pq.ParquetFile(tmp_path / folder / f"{name}.parquet") for folder in "sd")
        for i in range(len(before.schema)):
            old, new = before.schema.column(i), after.schema.column(i)
            assert (new.path, str(new.logical_type)) == (old.path, str(old.logical_type))
    for i in range(len(before.schema)):
        old, new = before.metadata.row_group(0).column(i), after.metadata.row_group(0).column(i)
        assert new.compression == old.compression
        assert new.has_dictionary_page == old.has_dictionary_page


@pytest.mark.parametrize("limit", [2**20, 2**24])
def test_images_that_rows_share_are_written_once(tmp_path: Path, limit: int) -> None:
    """As of questions about images: 41 times the bytes came out."""
    images = [png(i) for i in range(400)]
    own = pa.array([*map(png, range(400, 404)), None]).dictionary_encode()  # as pyarrow has it, too
    table = pa.table({"image": images * 30, "other": pa.chunked_array([own] * 2400)})
    no_images = pa.table({name: pa.array([None], table[name].type) for name in table.column_names})
    (tmp_path / "s").mkdir()
    with pq.ParquetWriter(
        tmp_path / "s" / "a.parquet", table.schema, dictionary_pagesize_limit=limit
    ) as writer:
        writer.write_table(no_images)
        writer.write_table(table)
    assert convert(tmp_path / "s", tmp_path / "d", "--coding", "stored") == 0
    before, after = ((tmp_path / each / "a.parquet").stat().st_size for each in "sd")
    assert after < 3 * before


def test_images_that_rows_share_grow(tmp_path: Path) -> None:
    """JPEGs grow by four, these by a hundred: 0.3 MB of JPEGs became 33."""
    files = [io.BytesIO() for _ in range(200)]
    for i, file in enumerate(files):
        PIL.Image.new("RGB", (100, 100), (i, i, i)).save(file, "PNG")
    flat = [file.getvalue() for file in files]
    (tmp_path / "s").mkdir()
    pq.write_table(pa.table({"image": flat * 10}), tmp_path / "s" / "a.parquet")
    assert convert(tmp_path / "s", tmp_path / "d", "--coding", "stored", "--grow") == 0
    groups = pq.ParquetFile(tmp_path / "d" / "a.parquet").num_row_groups
    once = len(flat) * 100 * 100 * 3
    assert (tmp_path / "d" / "a.parquet").stat().st_size < 1.1 * groups * once < 5 * once


def test_columns_of_extension_types(tmp_path: Path) -> None:
    """As DuckDB writes JSON."""
    path = tmp_path / "s" / "a.parquet"
    table = write_table(path)
    for name, type, storage in (("json", pa.json_(), pa.utf8()), ("id", pa.uuid(), pa.binary(16))):
        values = pa.array([b"[%14d]" % i for i in range(COUNT)], pa.binary(16)).cast(storage)
        table = table.append_column(name, pa.ExtensionArray.from_storage(type, values))
    pq.write_table(table, path)
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    before, after = (pq.read_table(tmp_path / folder / "a.parquet") for folder in "sd")
    assert after.schema.equals(before.schema, check_metadata=True)
    assert after.select(["json", "id"]).equals(table.select(["json", "id"]))


@pytest.mark.parametrize(
    ("names", "kept"),
    [(["n", "word"], 2), (["n", "image.path", "word"], 1), (["plain"], 0)],
)
def test_sorting_columns(tmp_path: Path, names: list[str], kept: int) -> None:
    """They say how rows are sorted, as far as the values stay."""
    pictures = [{"bytes": png(i), "path": f"{i}.png"} for i in range(4)]
    table = pa.table(
        {
            "image": pa.array(pictures, IMAGE),
            "plain": [png(i) for i in range(4)],
            "word": ["a", "b", "c", "d"],
            "n": range(4),
        }
    )
    order = {"image.path": 1, "plain": 2, "word": 3, "n": 4}
    sorting = [pq.SortingColumn(order[name], descending=name == "word") for name in names]
    (tmp_path / "s").mkdir()
    source, result = (tmp_path / folder / "a.parquet" for folder in "sd")
    pq.write_table(table, source, row_group_size=2, sorting_columns=sorting)
    assert convert(source, tmp_path / "d") == 0
    metadata = pq.ParquetFile(result).metadata
    for group in range(metadata.num_row_groups):
        assert metadata.row_group(group).sorting_columns == tuple(sorting[:kept])


REQUIRED = pa.struct([pa.field("bytes", pa.binary(), nullable=False)])
REQUIRED_VIEWS = pa.struct(
    [
        pa.field("bytes", pa.binary_view(), nullable=False),
        pa.field("path", pa.string_view(), nullable=False),
    ]
)
PICTURES = [{"bytes": png(i), "path": f"{i}.png"} for i in range(4)]


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (pa.struct([("id", "i4"), ("image", IMAGE)]), [{"id": 1, "image": PICTURES[0]}, None]),
        (pa.struct([("a", pa.struct([("b", pa.binary())]))]), [None, {"a": {"b": png()}}]),
        (pa.list_(pa.struct([("x", IMAGE)])), [[], [{"x": PICTURES[0]}, None], None]),
        (pa.list_(IMAGE, 2), [None, PICTURES[:2], [None, PICTURES[2]], None, PICTURES[2:]]),
        (pa.list_(pa.large_binary(), 1), [[png()], None, [None]]),
        (REQUIRED, [None, {"bytes": png()}, None]),
        (REQUIRED_VIEWS, [None, PICTURES[0]]),
        (pa.struct([("bytes", "i4"), ("image", pa.binary())]), [{"bytes": 1, "image": png()}]),
    ],
    ids=["struct", "field", "list", "fixed", "fixed-plain", "required", "views", "other-bytes"],
)
@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_images_inside_of_structs_and_lists(
    tmp_path: Path, type: Any, values: list[Any], kind: str
) -> None:
    """They stayed as they were, without a word."""
    if kind == "parquet" and pa.types.is_fixed_size_list(type) and pa.__version__ < "26":
        pytest.skip("pyarrow reads no fixed lists that are null")
    table = pa.table({"n": range(len(values)), "x": pa.array(values, type)})
    source = tmp_path / "s" / f"a.{kind}"
    source.parent.mkdir()
    if kind == "parquet":
        pq.write_table(table, source, row_group_size=2)
    else:
        with pa.ipc.new_stream(source, table.schema) as writer:
            writer.write_table(table.slice(0, 1))
            writer.write_table(table.slice(1))
    assert convert(source.parent, tmp_path / "d") == 0
    result = tmp_path / "d" / source.name
    found = pq.read_table(result) if kind == "parquet" else pa.ipc.open_stream(result).read_all()
    assert found.schema.equals(table.schema)
    assert as_seen(found.to_pylist()) == as_seen(table.to_pylist())
    assert rows_of(tmp_path / "d")[source.name].images == str(values).count("PNG")
    assert "PNG" not in str(found.to_pylist())


@pytest.mark.parametrize("choice", ["keep", "drop"])
@pytest.mark.usefixtures("in_process")
def test_results_that_are_too_large_for_their_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    """2 GiB of a column failed the shard; its rows are cut before that."""
    lists = [[{"bytes": png(i), "path": f"{i}.png"}] * (i % 3) for i in range(12)]
    images = [png(i) if i % 4 else png(i)[:99] for i in range(12)]
    table = pa.table({"image": images, "views": lists, "id": range(12)})
    (tmp_path / "s").mkdir()
    pq.write_table(table, tmp_path / "s" / "a.parquet")
    tables = []
    for count, size in enumerate((2**30, 1, 700)):
        monkeypatch.setattr(parquet, "PIECE_BYTES", size)
        dest = tmp_path / f"{count}"
        assert convert(tmp_path / "s", dest, "-j", 1, "--on-error", choice) == 2
        tables.append(pq.read_table(dest / "a.parquet"))
    assert tables[0] == tables[1] == tables[2]
    assert len(tables[0]) == (12 if choice == "keep" else 9)


def test_labels_by_the_name_of_a_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As sets of Hugging Face have them: image and mask may have one path."""
    numbers = np.arange(64, dtype=np.uint8).reshape(8, 8) % 3
    mask = PIL.Image.fromarray(numbers, "P")
    mask.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    file = io.BytesIO()
    mask.save(file, "PNG")
    value = {"bytes": file.getvalue(), "path": "0.png"}
    (tmp_path / "s").mkdir()
    table = pa.table({"image": [value], "mask": [value], "masks": [[value]]})
    pq.write_table(table, tmp_path / "s" / "a.parquet")
    assert convert(tmp_path / "s", tmp_path / "d", "--labels", "mask", "--labels", "masks") == 0
    assert "named" not in capsys.readouterr().err
    row = pq.read_table(tmp_path / "d" / "a.parquet").to_pylist()[0]
    assert decode(row["image"]["bytes"]).shape == (8, 8, 3)
    for each in (row["mask"], row["masks"][0]):
        assert np.array_equal(decode(each["bytes"]), numbers)


@pytest.mark.parametrize("choice", ["fail", "keep", "drop"])
def test_a_damaged_image(tmp_path: Path, choice: str, capsys: pytest.CaptureFixture[str]) -> None:
    values = [png(0), png(1)[:99], png(2)]
    (tmp_path / "s").mkdir()
    pq.write_table(pa.table({"i": values, "n": [0, 1, 2]}), tmp_path / "s" / "a.parquet")
    assert convert(tmp_path / "s", tmp_path / "d", "--on-error", choice) == 2
    assert "row 1, i: cannot be read" in capsys.readouterr().err
    result = tmp_path / "d" / "a.parquet"
    assert result.exists() == (choice != "fail")
    if choice == "drop":
        assert pq.read_table(result).column("n").to_pylist() == [0, 2]
    if choice == "keep":
        assert pq.read_table(result).column("i").to_pylist()[1] == values[1]


@pytest.mark.parametrize("kept", [0, 3, 500, -1])
def test_damaged_files(tmp_path: Path, kept: int, capsys: pytest.CaptureFixture[str]) -> None:
    write_table(tmp_path / "s" / "a.parquet")
    data = (tmp_path / "s" / "a.parquet").read_bytes()
    (tmp_path / "s" / "a.parquet").write_bytes(data[:kept])
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert "a.parquet: not a whole Parquet file" in capsys.readouterr().err
    assert not (tmp_path / "d" / "a.parquet").exists()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("is_dictionary", [False, True])
def test_pages_with_wrong_checksums(
    tmp_path: Path, version: str, is_dictionary: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """pyarrow looks at none that it is not asked to: labels became others."""
    (tmp_path / "s").mkdir()
    table = pa.table({"image": [png()] * 4, "label": [f"label {i}" for i in range(4)]})
    path = tmp_path / "s" / "a.parquet"
    options = {"data_page_version": version, "use_dictionary": is_dictionary}
    options |= {"compression": "none", "write_statistics": False}
    pq.write_table(table, path, write_page_checksum=True, **options)
    data = path.read_bytes()
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    for old, new in ((b"label 2", b"label 7"), (png()[-30:-20], bytes(10))):
        path.write_bytes(data.replace(old, new, 1))
        assert convert(tmp_path / "s", tmp_path / "d") == 2
        assert "a damaged Parquet file: could not verify page integrity" in capsys.readouterr().err


def test_rows_that_pyarrow_does_not_reach(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At a page of a kind that it does not know, it ended without a word."""
    (tmp_path / "s").mkdir()
    path = tmp_path / "s" / "a.parquet"
    table = pa.table({"image": [png()] * 4, "label": range(4)})
    pq.write_table(table, path, row_group_size=2, use_dictionary=False)
    data = path.read_bytes()
    page = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    rows = data.rindex(b"\x16\x04", 0, -8)  # two, of the last row group
    all_rows = data.index(b"\x16\x08", len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
    for place, old, new, told in (
        (page, b"\x15\0", b"\x15\x08", "a page of no known kind or size"),
        (rows, b"\x16\x04", b"\x16\x02", "columns of other lengths"),
        (all_rows, b"\x16\x08", b"\x16\x06", "it has not the rows that its footer names"),
    ):
        assert data[place : place + 2] == old
        path.write_bytes(data[:place] + new + data[place + 2 :])
        assert convert(tmp_path / "s", tmp_path / "d") == 2
        assert f"a damaged Parquet file: {told}" in capsys.readouterr().err


def test_files_behind_one_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rows of the first one were read by the footer of the last one, which it fits."""
    path = tmp_path / "s" / "a.parquet"
    write_table(path)
    write_table(tmp_path / "s" / "whole.parquet")
    path.write_bytes(2 * path.read_bytes())
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert "a.parquet: a file behind another" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == {"whole.parquet"}


@pytest.mark.parametrize(
    "type",
    [
        pa.dictionary(pa.int32(), pa.binary()),
        pa.dictionary(pa.int8(), pa.large_binary()),
        pa.binary_view(),
        pa.struct([("bytes", pa.binary_view()), ("path", pa.string())]),
        pa.list_(pa.dictionary(pa.int32(), pa.binary())),
    ],
    ids=str,
)
def test_bytes_in_other_layouts(tmp_path: Path, type: pa.DataType) -> None:
    values: list[Any] = [png(0), None, png(1), png(0)]
    if pa.types.is_struct(type):
        values = [{"bytes": value, "path": "a.png"} for value in values]
    elif pa.types.is_list(type):
        values = [[value] for value in values]
    source = tmp_path / "a.parquet"
    flat = pa.array([png(0), None, png(1), png(0)], pa.binary())
    array = pa.array(values, type) if not pa.types.is_dictionary(type) else flat.cast(type)
    pq.write_table(pa.table({"image": array}), source)
    assert convert(source, tmp_path / "d") == 0
    before, after = pq.read_table(source), pq.read_table(tmp_path / "d" / "a.parquet")
    assert after.schema.equals(before.schema)
    assert as_seen(after.to_pylist()) == as_seen(before.to_pylist())
    (row,) = rows_of(tmp_path / "d").values()
    assert row.images == 3
    if pa.types.is_struct(type):
        assert after.to_pylist()[0]["image"]["path"] == "a.l3"


def test_images_of_one_size_are_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = png()
    source = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": pa.array([data], pa.binary(len(data)))}), source)
    assert convert(source, tmp_path / "d") == 2
    assert "images in a column of fixed_size_binary" in capsys.readouterr().err


def test_a_dictionary_that_expands_costs_its_shard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,024 rows with one value of 1 MiB, where a worker of --untrusted has 256 MiB."""
    values = pa.array([bytes(2**20)], pa.large_binary())
    rows = pa.DictionaryArray.from_arrays(pa.array([0] * 1024, pa.int32()), values)
    (tmp_path / "s").mkdir()
    pq.write_table(
        pa.table({"text": rows}),
        tmp_path / "s" / "a.parquet",
        dictionary_pagesize_limit=2**30,
        store_schema=False,
    )
    assert (tmp_path / "s" / "a.parquet").stat().st_size < 2**20
    write_tar(tmp_path / "s" / "b.tar", samples(2))
    monkeypatch.setattr(engine, "_work", hostile_readers.work_in_little)
    assert convert(tmp_path / "s", tmp_path / "d", "--untrusted", "--grow") == 2
    assert "\na.parquet: " in capsys.readouterr().err
    assert files_below(tmp_path / "d") == {"b.tar", "b.idx"}


@pytest.mark.parametrize("store_schema", [True, False])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_dictionary_expands_a_little_at_a_time(
    tmp_path: Path, store_schema: bool, compression: str
) -> None:
    """2,000 rows with one value of 4 MiB, without --untrusted: 8 GiB if all were there at once."""
    value = png() + np.random.default_rng(0).bytes(2**22)
    source = tmp_path / "a.parquet"
    rows = pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int32()), pa.array([value]))
    pq.write_table(
        pa.table({"image": rows, "number": range(2000)}),
        source,
        compression=compression,
        dictionary_pagesize_limit=2**30,
        store_schema=store_schema,
    )
    lengths = []
    with source.open("rb") as opened:
        for entry in parquet.read_entries(opened, Options()):
            lengths.append(len(entry.batch))
            assert sum(len(blob.data) for blob in entry.blobs) <= parquet._EXPANDED_BYTES
            if len(lengths) > 3:
                break
    assert set(lengths) == {parquet._EXPANDED_BYTES // (len(value) + 4)}


@pytest.mark.parametrize("what", ["rows", "values of its rows"])
def test_small_files_that_claim_many_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """Of a dictionary of one value a file of 10 kB may have millions of rows."""
    value, count = (b"", 2**20 + 1) if what == "rows" else (b"no image" * 300, 50_000)
    (tmp_path / "s").mkdir()
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), [value])
    pq.write_table(pa.table({"i": column}), tmp_path / "s" / "a.parquet")
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 2
    assert f"{what} " in capsys.readouterr().err
    assert files_below(tmp_path / "d") == set()


POOLS: list[Any] = []  # which have to be there as long as what is in them


def test_paths_of_an_extension_type(tmp_path: Path) -> None:
    paths = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["a.png"]))
    column = pa.StructArray.from_arrays([pa.array([png()]), paths], ["bytes", "path"])
    (tmp_path / "s").mkdir()
    pq.write_table(pa.table({"i": column}), tmp_path / "s" / "a.parquet")
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    found = pq.read_table(tmp_path / "d" / "a.parquet").column("i")
    assert found.type == column.type
    assert found[0]["path"].as_py() == "a.l3"


@contextlib.contextmanager
def memory_of_pyarrow() -> Iterator[Any]:
    """A pool of memory for pyarrow, whose peak begins here."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)


@pytest.mark.usefixtures("in_process")
def test_text_in_lists_that_share_a_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One row of 1,018 bytes took 10.15 GB; without images nothing counted."""
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(5000, np.int32)), ["x" * 100_000])
    lists = pa.ListArray.from_arrays([0, len(text)], text)
    pairs = pa.MapArray.from_arrays([0, len(text)], pa.array(range(len(text))), text)
    (tmp_path / "s").mkdir()
    for name, column in {"a": lists, "b": pairs}.items():
        pq.write_table(
            pa.table({"t": column, "s": pa.StructArray.from_arrays([column], ["t"])}),
            tmp_path / "s" / f"{name}.parquet",
            store_schema=False,  # else they are read as dictionaries
            compression="zstd",
        )
    with memory_of_pyarrow() as pool:
        assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 2
    assert pool.max_memory() < 2**26
    assert capsys.readouterr().err.count("values of its rows are too many") == 2


def test_text_in_lists_that_is_not_too_much(tmp_path: Path) -> None:
    """What it may take at most is refused nowhere, only what it takes."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 500 + [1]), ["x", "y" * 100_000])
    lists = pa.ListArray.from_arrays([0, 1, len(text)], text)
    table = pa.table({"t": lists, "m": pa.MapArray.from_arrays([0, 1, len(text)], text, text)})
    (tmp_path / "s").mkdir()
    pq.write_table(table, tmp_path / "s" / "a.parquet", store_schema=False, compression="zstd")
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 0
    found, source = (pq.read_table(tmp_path / folder / "a.parquet") for folder in "ds")
    assert found.equals(source)


def test_columns_of_more_values_than_rows(tmp_path: Path) -> None:
    """The rest was lost without a word."""
    pq.write_table(pa.table({"i": range(60), "j": range(60)}), tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    sixty = b"\x16" + tfrecord._varint(120)  # a field of 64 bits
    assert data[footer:].count(sixty) == 4  # the file's, of two columns, and of the row group
    head, of_file, *rest = data[footer:].split(sixty)
    fewer = b"\x16" + tfrecord._varint(100)
    *columns, end = rest
    changed = head + fewer + of_file + sixty + sixty.join(columns) + fewer + end
    (tmp_path / "a.parquet").write_bytes(data[:footer] + changed)
    assert pq.read_metadata(tmp_path / "a.parquet").num_rows == 50
    with (
        (tmp_path / "a.parquet").open("rb") as file,
        pytest.raises(parquet_pages.ParquetError, match="other lengths"),
    ):
        list(parquet.read_entries(file, Options()))


def test_long_names_that_many_columns_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """200 kB, a group of 2,000 columns, took 3.2 GB: pyarrow has each path several times."""
    groups = pa.struct(
        [(str(i), pa.struct([("x", "i4"), ("y", pa.list_(pa.int32()))])) for i in range(9)]
    )
    (tmp_path / "s").mkdir()
    pq.ParquetWriter(tmp_path / "a.parquet", pa.schema([("i", "i4"), ("s", groups)])).close()
    file = pq.ParquetFile(tmp_path / "a.parquet")
    paths = [file.schema.column(i).path for i in range(len(file.schema))]
    with (tmp_path / "a.parquet").open("rb") as source:
        names = parquet_pages.path_bytes(parquet._footer(source))
    assert names == sum(len("schema" + path.replace(".", "")) for path in paths)
    groups = pa.struct([(str(i), pa.bool_()) for i in range(200)])
    schema = pa.schema([("x" * 100_000, groups)])
    pq.ParquetWriter(tmp_path / "s" / "b.parquet", schema, store_schema=False).close()
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 2
    assert "names of its columns are too long" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_small_files_of_many_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """1,500 columns of one value a million times took 84 s, 3,000 of nulls 978 MB."""
    (tmp_path / "s").mkdir()
    source = tmp_path / "s" / f"a.{kind}"
    if kind == "parquet":
        table = pa.table({str(i): np.zeros(2**19, np.int8) for i in range(40)})
        pq.write_table(table, source)
    else:
        table = pa.table({str(i): pa.nulls(2**19) for i in range(40)})
        with pa.ipc.new_file(source, table.schema) as writer:
            writer.write_table(table)
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 2
    assert "too many rows or columns" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == set()


def test_many_files_are_opened_by_one_process(tmp_path: Path) -> None:
    """The child that looks at footers kept a file open for each."""
    pq.write_table(pa.table({"i": [1]}), tmp_path / "a.parquet")
    counts = []
    with (tmp_path / "a.parquet").open("rb") as source:
        for _ in range(3):
            parquet.open_file(source)
            counts.append(len(parquet._idle[-1].call(os.listdir, "/proc/self/fd")))
    assert counts[2] == counts[0]


def test_values_that_repeat_those_before_them(tmp_path: Path) -> None:
    """369 bytes took 5.3 GB: 1,024 rows of 3 MB were decoded at once."""
    path = tmp_path / "a.parquet"
    table = pa.table({"i": pa.array([bytes(2**20)] * 300)})
    encoding = {"i": "DELTA_BYTE_ARRAY"}
    pq.write_table(table, path, compression="zstd", use_dictionary=False, column_encoding=encoding)
    with path.open("rb") as source:
        file = parquet.open_file(source)
        group = file.metadata.row_group(0)
        repeated = parquet.Claims(source).count_pages(source, group, file.schema)
        assert parquet._most_rows(source, group, repeated, [False]) <= 128


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "tar"])
def test_one_shard_is_read_in_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """Ctrl-C waited for pyarrow; and whatever ended the process ended the command."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / f"a.{suffix}").write_bytes(b"damaged")
    in_children: list[int] = []

    def count(jobs: Any, workers: int, left: Any) -> Any:
        in_children.append(len(jobs))
        return iter([failed_rows(each, "seen") for each in jobs])

    monkeypatch.setattr(engine, "_run_in_processes", count)
    assert convert(tmp_path / "s", tmp_path / "d", "-j1") == 2
    assert in_children == [1]


SHARED = pa.array(np.zeros(2**25, np.int8))


@pytest.mark.parametrize(
    "column",
    [
        pa.ListArray.from_arrays(pa.array([0, 2**25], pa.int32()), SHARED),
        pa.FixedSizeListArray.from_arrays(SHARED, 2**15),
        pa.ListViewArray.from_arrays(pa.array([0], "i4"), pa.array([2**25], "i4"), SHARED),
        pa.ExtensionArray.from_storage(
            pa.opaque(pa.list_(pa.int8()), "a", "b"),
            pa.ListArray.from_arrays(pa.array(range(0, 2**25 + 1, 2**15), pa.int32()), SHARED),
        ),
    ],
    ids=["list", "fixed", "views", "extension"],
)
def test_small_files_of_long_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], column: Any
) -> None:
    """600 bytes of 2**27 values took 2.7 GB; what is no image was not counted."""
    (tmp_path / "s").mkdir()
    pq.write_table(pa.table({"i": column}), tmp_path / "s" / "a.parquet")
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 2
    assert "values of its rows are too many" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == set()


def categories(kind: str, count: int) -> pa.Array:
    """As many distinct names, of which each row has one."""
    names = pa.array([f"name-{i}" for i in range(count)]).dictionary_encode()
    if kind == "lists":
        names = pa.ListArray.from_arrays(pa.array(range(count + 1), pa.int32()), names)
    if kind != "flat":
        is_null = pa.array([i % 7 == 3 for i in range(count)])
        names = pa.StructArray.from_arrays([names], ["name"], mask=is_null)
    return names


@pytest.mark.parametrize("kind", ["flat", "structs", "lists"])
def test_many_categories_are_written_once(tmp_path: Path, kind: str) -> None:
    """100,000 of them made 91 MB of 716 KB: each row group had all."""
    table = pa.table({"c": categories(kind, 50_000), "i": np.arange(50_000)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=30_000)
    assert convert(tmp_path / "a.parquet", tmp_path / "d") == 0
    new = tmp_path / "d" / "a.parquet"
    assert pq.read_table(new).equals(table)
    assert pq.read_metadata(new).num_row_groups == 2
    assert new.stat().st_size < 1.1 * (tmp_path / "a.parquet").stat().st_size


def test_large_values_that_rows_share_by_category(tmp_path: Path) -> None:
    """20 rows that share 8 values of 9 MB made 1.4 GB."""
    values = pa.array([np.random.default_rng(i).bytes(2**23) for i in range(5)], pa.binary())
    shared = pa.DictionaryArray.from_arrays(pa.array([i % 5 for i in range(40)]), values)
    pq.write_table(pa.table({"a": shared}), tmp_path / "a.parquet")
    assert convert(tmp_path / "a.parquet", tmp_path / "d") == 0
    new = tmp_path / "d" / "a.parquet"
    assert pq.read_table(new).equals(pq.read_table(tmp_path / "a.parquet"))
    assert new.stat().st_size < 1.1 * (tmp_path / "a.parquet").stat().st_size


@pytest.mark.parametrize("kind", ["delta", "flat", "structs"])
def test_what_may_be_large_is_read_in_large_parts(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of one row took 20 times as long, where a value could have repeated those before it."""
    source = tmp_path / "a.parquet"
    if kind == "delta":
        table = pa.table({"c": [f"caption {i} " * 10 for i in range(3000)]})
        encodings = {"c": "DELTA_BYTE_ARRAY"}
        pq.write_table(table, source, use_dictionary=False, column_encoding=encodings)
    else:
        table = pa.table({"c": categories(kind, 3000)})
        pq.write_table(table, source)
    monkeypatch.setattr(parquet, "_EXPANDED_BYTES", 2**16)
    with source.open("rb") as file:
        parts = [entry.batch for entry in parquet.read_entries(file, Options())]
    assert len(parts) == 3
    assert pa.Table.from_batches(parts).equals(table)


def test_small_pages_that_expand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of 3,000 bytes and one value had 2 GB for each row group that named it, in 10 s each."""
    source = tmp_path / "s" / "a.parquet"
    source.parent.mkdir()
    numbers = np.random.default_rng(1).integers(2**63, size=2000)
    options: dict[str, Any] = {"compression": "brotli", "use_dictionary": False}
    pq.write_table(pa.table({"i": numbers}), source, **options)
    data = source.read_bytes()
    head = b"\x15\0\x15"  # kind 0, and then its size
    assert data[4:7] == head
    size = data[7:10]
    assert size[2] < 128
    for sizes, told in ((2**29, "its pages would take too much"), (2**28, "damaged")):
        new = data[:7] + tfrecord._varint(2 * sizes) + data[10:1000] + data[1002:]
        assert len(new) == len(data)
        source.write_bytes(new)
        assert convert(source.parent, tmp_path / "d", "-j1") == 2
        assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "head",
    [
        *[b"\x15\0\x15" + end for end in (b"\x01", b"\xff" * 9 + b"\x01", b"\xff" * 11)],
        *[b"\x15\0" + end for end in (b"\x16\x02", b"\x19\x05", b"\x05\x80\x80\x08")],
        b"\x1c" * 5000,
        b"\x10\0",
        b"\x18\xff\xff\xff\xff\x0f",
        b"\x15\0\x15\xfe\xff\xff\xff\x0f\x05\x05\x02\0",  # Field -3 hid field 2.
        b"\x15\0" + b"\x13\0" * 100,
        b"\x15\x08\x15\2\x15\2\0",
        b"\x15\0\x15\2\x15\2\x2c\x15\1\0\0",
        b"\x15\0\x15\2\x15\2\x2c\x15\x80\x80\x80\x02\0\0",  # more values than the column
        b"",
    ],
)
def test_heads_of_pages_that_are_damaged(tmp_path: Path, head: bytes) -> None:
    source = tmp_path / "a.parquet"
    pq.write_table(pa.table({"i": np.arange(5000)}), source, use_dictionary=False)
    column = pq.read_metadata(source).row_group(0).column(0)
    data = b"PAR1" + head
    assert len(data) < column.total_compressed_size
    with pytest.raises(parquet_pages.ParquetError, match="damaged"):
        list(parquet_pages.pages(io.BytesIO(data), column))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("encoding", ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
def test_lengths_that_a_page_counts(
    tmp_path: Path, version: str, compression: str, encoding: str
) -> None:
    """A page of 100 bytes counted 10^9: 4.1 GB."""
    source = tmp_path / "a.parquet"
    texts = [None if i % 9 == 4 else f"text {i % 50}" * (i % 13) for i in range(5000)]
    table = pa.table({"t": texts, "l": [[text, None] for text in texts]})
    lists = "l.list.element"
    options: dict[str, Any] = {"data_page_version": version, "compression": compression}
    options |= {"use_dictionary": False, "column_encoding": {"t": encoding, lists: encoding}}
    pq.write_table(table, source, data_page_size=5000, **options)
    with source.open("rb") as file:
        parts = [entry.batch for entry in parquet.read_entries(file, Options())]
    assert pa.Table.from_batches(parts).equals(table)
    if compression != "none":
        return
    data = source.read_bytes()
    # 128 numbers a block, of 4 parts; the values of the first page that are not null
    at = data.index(b"\x80\x01\x04")
    count, end = tfrecord.read_varint(data, at + 3)
    more = tfrecord._varint(count + 1000)
    assert len(more) == end - at - 3
    source.write_bytes(data[: at + 3] + more + data[end:])
    with (
        source.open("rb") as file,
        pytest.raises(parquet_pages.ParquetError, match="more than there"),
    ):
        list(parquet.read_entries(file, Options()))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_pages_are_walked(tmp_path: Path, version: str, compression: str) -> None:
    write_table(tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    table = table.append_column("long", pa.array([bytes([i]) * 100_000 for i in range(COUNT)]))
    options: dict[str, Any] = {"data_page_version": version, "compression": compression}
    pq.write_table(table, tmp_path / "b.parquet", data_page_size=100, **options)
    group = pq.read_metadata(tmp_path / "b.parquet").row_group(0)
    with (tmp_path / "b.parquet").open("rb") as file:
        for i in range(group.num_columns):
            column = group.column(i)
            start = column.dictionary_page_offset or column.data_page_offset
            *_, last = pages = list(parquet_pages.pages(file, column))
            assert pages[0].at - start < pages[0].cost
            assert last.at + last.stored == start + column.total_compressed_size
            heads = column.total_compressed_size - sum(page.stored for page in pages)
            assert sum(page.expanded for page in pages) + heads == column.total_uncompressed_size


def test_parts_of_few_rows_are_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By a footer that lied, each of 100,000 rows of 115 bytes was a part: 31 s."""
    source = tmp_path / "s" / "a.parquet"
    source.parent.mkdir()
    pq.write_table(pa.table({"i": np.zeros(20_000, np.int64)}), source)
    data = source.read_bytes()
    size = pq.read_metadata(source).row_group(0).total_byte_size
    old, new = (b"\x16" + tfrecord._varint(2 * each) + b"\x16" for each in (size, 2**61))
    old, new = (each + tfrecord._varint(2 * 20_000) for each in (old, new))
    assert data.count(old) == 1
    footer = int.from_bytes(data[-8:-4], "little") + len(new) - len(old)
    source.write_bytes(data[:-8].replace(old, new) + footer.to_bytes(4, "little") + b"PAR1")
    assert convert(source.parent, tmp_path / "d", "-j1") == 2
    assert "too many rows or columns" in capsys.readouterr().err


def test_long_lists_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    """Masks of one class: 64 of 512 x 512 in some kB, which is no more than any file may have."""
    masks = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2**23, np.uint8)), 2**18)
    source = tmp_path / "a.parquet"
    pq.write_table(pa.table({"mask": masks}), source)
    with source.open("rb") as opened:
        lengths = [len(entry.batch) for entry in parquet.read_entries(opened, Options())]
    assert lengths == [4] * 8
    assert convert(source, tmp_path / "d") == 0
    assert pq.read_table(tmp_path / "d" / "a.parquet").equals(pq.read_table(source))


def test_rows_that_share_values_of_one_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = pa.array([bytes(100_000)], pa.binary(100_000))
    column = values.take(pa.array([0] * 2000))
    (tmp_path / "s").mkdir()
    pq.write_table(pa.table({"i": column}), tmp_path / "s" / "a.parquet")
    assert convert(tmp_path / "s", tmp_path / "d", "-j", 1) == 2
    assert "values of its rows are too many" in capsys.readouterr().err


def test_a_long_name_of_a_column_costs_each_value_little(tmp_path: Path) -> None:
    name = "x" * 2**20 + ".png"
    pq.write_table(pa.table({name: [png(i) for i in range(64)]}), tmp_path / "a.parquet")
    with (tmp_path / "a.parquet").open("rb") as opened:
        (entry,) = parquet.read_entries(opened, Options())
    assert {len(blob.name) for blob in entry.blobs} == {1000}
    assert all(len(blob.place) < 330 and blob.name.endswith("x.png") for blob in entry.blobs)


T = pa.timestamp("us")
NEAR, FAR = datetime(1700, 1, 2, 3, 4, 5, 678901), datetime(9999, 12, 31)


@pytest.mark.parametrize("store_schema", [True, False])
@pytest.mark.parametrize(
    ("type", "wrap"),
    [
        (T, lambda time: time),
        (pa.list_(T), lambda time: [None, time]),
        (pa.struct([("a", pa.struct([("b", T)]))]), lambda time: {"a": {"b": time}}),
        (pa.map_(pa.string(), T), lambda time: [("key", time)]),
    ],
    ids=["time", "list", "struct", "map"],
)
def test_times_of_96_bits(
    tmp_path: Path, type: Any, wrap: Any, store_schema: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of other centuries became others: 9999-12-31 was 1816-03-29."""
    for name, time in ("near", NEAR), ("far", FAR):
        column = pa.array([None, wrap(time)] * 2000, type)
        path = tmp_path / "s" / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(
            pa.table({"n": range(4000), "a.b": column}),
            path,
            use_deprecated_int96_timestamps=True,
            store_schema=store_schema,
        )
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    assert "far.parquet: a time of INT96 outside of the years" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == {"near.parquet"}
    found = pq.read_table(tmp_path / "d" / "near.parquet").column("a.b").cast(type)
    assert (
        found.to_pylist()
        == pa.chunked_array([pa.array([None, wrap(NEAR)] * 2000, type)]).to_pylist()
    )


def test_times_of_96_bits_in_other_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow cuts a batch of more than 2 GiB, but not that of its times: rows were lost."""
    path = tmp_path / "a.parquet"
    times = pa.array([NEAR] * 8, pa.timestamp("ns"))
    pq.write_table(pa.table({"t": times}), path, use_deprecated_int96_timestamps=True)
    whole = pq.ParquetFile.iter_batches

    def cut(file: Any, *, columns: Any = None, **rows: Any) -> Any:
        for batch in whole(file, columns=columns, **rows):
            parts = 1 if columns else 2
            yield from (batch.slice(i * 8 // parts, 8 // parts) for i in range(parts))

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", cut)
    with path.open("rb") as file:
        assert sum(len(each.batch) for each in parquet.read_entries(file, Options())) == 8


def test_few_values_of_many_rows_are_read_together(tmp_path: Path) -> None:
    source = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"word": ["a", "b", "c"] * 1000, "plain": [b"d" * 3000] * 3000}), source
    )
    with source.open("rb") as opened:
        lengths = [len(entry.batch) for entry in parquet.read_entries(opened, Options())]
    assert lengths == [1024, 1024, 952]


def test_no_rows(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    table = pa.table({"image": pa.array([], IMAGE)})
    pq.write_table(table, tmp_path / "s" / "a.parquet")
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert pq.read_table(tmp_path / "d" / "a.parquet").equals(table)


def test_dali_decodes_a_column(tmp_path: Path) -> None:
    write_table(tmp_path / "s" / "a.parquet")
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    column = pq.read_table(tmp_path / "d" / "a.parquet").column("no_path").to_pylist()
    encoded = [np.frombuffer(entry["bytes"], np.uint8) for entry in column]

    @pipeline_def(batch_size=COUNT, num_threads=1, device_id=None)
    def pipeline() -> Any:
        return fn.l3.decode(fn.external_source(lambda: encoded), device="cpu")

    pipe = pipeline()
    pipe.build()
    (decoded,) = pipe.run()
    for i in range(COUNT):
        assert np.array_equal(np.asarray(decoded[i]), image(i))


def test_webdataset_reads_a_shard(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "a.tar", samples(4))
    assert convert(source, tmp_path / "d") == 0
    url = f"file:{tmp_path / 'd' / 'a.tar'}"
    found = list(webdataset.WebDataset(url, shardshuffle=False))
    assert [sample["__key__"] for sample in found] == [f"{i:04}" for i in range(4)]
    for i, sample in enumerate(found):
        assert np.array_equal(pixels_of(sample["l3"]), image(i))
        assert sample["cls"] == b"%d" % i


def test_a_plan_for_a_table(tmp_path: Path) -> None:
    table = write_table(tmp_path / "s" / "a.parquet")
    plan = make_plan(tmp_path / "s", {"source": 0.5, "rans": 0.5})
    path = save(plan, tmp_path / "plan.json")
    assert convert(tmp_path / "s", tmp_path / "d", "--plan", path) == 0
    result = pq.read_table(tmp_path / "d" / "a.parquet")
    assert rows(result) == rows(table)
    suffixes = {"png": ".png", "l3": ".l3"}
    found = set()
    for picture in result.column("image").to_pylist()[1:]:
        kind = format_of(picture["bytes"][:16])[0]
        assert picture["path"].endswith(suffixes[kind])
        found.add(kind)
    assert found == {"png", "l3"}
    stored = rows_of(tmp_path / "d")["a.parquet"].stored
    assert stored.keys() == {"source", "rans"}
