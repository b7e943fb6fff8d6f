"""`l3 convert` with Parquet, as Hugging Face has it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from convert_tools import (
    convert,
    files_below,
    image,
    make_plan,
    palette_picture,
    pixels_of,
    png,
    rows_of,
    save,
    saved,
)

from l3dali import decode
from l3dali.signatures import format_of

# Tests of buckets, limits and pages convert tables in children, which take long to start.
pytestmark = pytest.mark.usefixtures("in_process")

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


def put(path: Path, table: pa.Table, **options: Any) -> Path:
    """Writes a Parquet file, or a stream of Arrow, with its folder."""
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path, **options)
        return path
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)
    return path


def get(path: Path) -> pa.Table:
    """Reads what `put` writes."""
    if path.suffix == ".parquet":
        return pq.read_table(path)
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_stream(file).read_all()


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
    assert "pyarrow cannot keep column 'kind' of type ENUM; cast it" in capsys.readouterr().err


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


def test_a_column_at_which_pyarrow_aborts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its statistics are of another type than the schema has."""
    monkeypatch.undo()  # A child reads it.
    source = tmp_path / "s"
    source.mkdir()
    pq.write_table(pa.table({"image": [png(1)]}), source / "sound.parquet")
    data = (source / "sound.parquet").read_bytes()
    at = data.index(b"\x15\x0c", len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
    (source / "a.parquet").write_bytes(data[:at] + b"\x15\x02" + data[at + 2 :])
    assert convert(source, tmp_path / "d") == 2
    said = "".join(capfd.readouterr())
    assert "a.parquet: the reader crashed (SIGABRT)" in said
    assert "terminate" not in said
    assert rows_of(tmp_path / "d")["sound.parquet"].status == "done"


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
    assert found.total.images == 9 + 10 + 9 + (45 - 3)


@pytest.mark.parametrize(
    "options",
    [
        {"use_compliant_nested_type": False},
        {"use_compliant_nested_type": False, "store_schema": False},
    ],
    ids=["item", "item alone"],
)
def test_columns_are_written_as_they_were(tmp_path: Path, options: dict[str, Any]) -> None:
    """Lists whose items are not called `element` lost their compression."""
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
    images = [saved(image(i, 3, 64, 64), "PNG") for i in range(100)]
    own = pa.array([*map(png, range(4)), None]).dictionary_encode()  # as pyarrow has it, too
    table = pa.table({"image": images * 30, "other": pa.chunked_array([own] * 600)})
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
    """They stayed as they were."""
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
    assert rows_of(tmp_path / "d")[source.name].total.images == str(values).count("PNG")
    assert "PNG" not in str(found.to_pylist())


def test_labels_by_the_name_of_a_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As sets of Hugging Face have them: image and mask may have one path."""
    mask = palette_picture()
    value = {"bytes": saved(mask, "PNG"), "path": "0.png"}
    table = pa.table({"image": [value], "mask": [value], "masks": [[value]]})
    put(tmp_path / "s" / "a.parquet", table)
    assert convert(tmp_path / "s", tmp_path / "d", "--labels", "mask", "--labels", "masks") == 0
    assert "named" not in capsys.readouterr().err
    row = pq.read_table(tmp_path / "d" / "a.parquet").to_pylist()[0]
    assert decode(row["image"]["bytes"]).shape == (24, 30, 3)
    for each in (row["mask"], row["masks"][0]):
        assert np.array_equal(decode(each["bytes"]), np.asarray(mask))


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("choice", ["fail", "keep", "drop"])
def test_a_damaged_image(
    tmp_path: Path, kind: str, choice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    values = [png(0), png(1)[:99], png(2)]
    table = pa.table({"i": values, "n": [0, 1, 2]})
    result = tmp_path / "d" / put(tmp_path / "s" / f"a.{kind}", table).name
    assert convert(tmp_path / "s", tmp_path / "d", "--on-error", choice) == 2
    assert "row 1, i: cannot be read" in capsys.readouterr().err
    assert result.exists() == (choice != "fail")
    if choice == "drop":
        assert get(result).column("n").to_pylist() == [0, 2]
    if choice == "keep":
        assert get(result).column("i").to_pylist()[1] == values[1]


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
    """At a page of an unknown kind, pyarrow ended silently."""
    path = tmp_path / "s" / "a.parquet"
    table = pa.table({"image": [png()] * 4, "label": range(4)})
    put(path, table, row_group_size=2, use_dictionary=False)
    data = path.read_bytes()
    page = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    all_rows = data.index(b"\x16\x08", len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
    for place, old, new, told in (
        (page, b"\x15\0", b"\x15\x08", "it has fewer rows than its footer lists"),
        (all_rows, b"\x16\x08", b"\x16\x06", "it has fewer rows than its footer lists"),
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
    assert "a.parquet: several Parquet files" in capsys.readouterr().err
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
    assert row.total.images == 3
    if pa.types.is_struct(type):
        assert after.to_pylist()[0]["image"]["path"] == "a.l3"


def test_images_of_one_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = png()
    source = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": pa.array([data], pa.binary(len(data)))}), source)
    assert convert(source, tmp_path / "d") == 2
    assert "images in a column of fixed_size_binary" in capsys.readouterr().err


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


T = pa.timestamp("us")
TIMES = [datetime(1700, 1, 2, 3, 4, 5, 678901), None, datetime(9999, 12, 31)]


@pytest.mark.parametrize(
    ("type", "wrap"),
    [
        (T, lambda time: time),
        (pa.list_(T), lambda time: [None, time]),
        (pa.struct([("a", T)]), lambda time: {"a": time}),
    ],
    ids=["time", "list", "struct"],
)
def test_times_of_96_bits(tmp_path: Path, type: Any, wrap: Any) -> None:
    """In nanoseconds 9999-12-31 was 1816-03-29. They become microseconds."""
    table = pa.table({"n": range(3), "a.b": pa.array(map(wrap, TIMES), type)})
    options: dict[str, Any] = {"use_deprecated_int96_timestamps": True, "store_schema": False}
    put(tmp_path / "s" / "a.parquet", table, **options)
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    found = pq.read_table(tmp_path / "d" / "a.parquet").column("a.b")
    assert found.cast(type).to_pylist() == table.column("a.b").to_pylist()


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_paths_without_bytes(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As `datasets` writes images that it has not embedded: it said that there was no image."""
    for name, value in ("paths", None), ("some", png()):
        pictures = [{"bytes": value, "path": "0.png"}, {"bytes": None, "path": "1.png"}]
        table = pa.table({"n": [1, 2], "image": pa.array(pictures, IMAGE)})
        put(tmp_path / "s" / f"{name}.{kind}", table)
    assert convert(tmp_path / "s", tmp_path / "d") == 2
    reported = capsys.readouterr().err
    assert "l3: 1 failed\n" in reported
    assert f"paths.{kind}: column 'image' has paths of images and no bytes: convert" in reported
    assert files_below(tmp_path / "d") == {f"some.{kind}"}


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_no_rows(tmp_path: Path, kind: str) -> None:
    table = pa.table({"image": pa.array([], IMAGE)})
    source = put(tmp_path / "s" / f"a.{kind}", table)
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert get(tmp_path / "d" / source.name).equals(table)


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
