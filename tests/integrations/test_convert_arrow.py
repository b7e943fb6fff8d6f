"""`l3 convert` with Arrow files: what `save_to_disk` of Hugging Face's datasets writes."""

from __future__ import annotations

import io
from collections.abc import Iterable
from functools import partial
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
from test_convert_parquet import COUNT, IMAGE, get, put, rows, write_table

from l3dali.cli import main
from l3dali.datasets.convert.storage import MANIFEST_NAME
from l3dali.images.reading import read_picture
from l3dali.signatures import L3_SIGNATURE

pytestmark = pytest.mark.usefixtures("in_process")  # as in test_convert_parquet.py


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
    assert (there.kind, there.total.images) == ("arrow", 9 + 10 + 9 + (45 - 3))
    assert main(["verify", str(tmp_path / "d")]) == 0


def test_values_below_a_null_are_no_images(tmp_path: Path) -> None:
    """As in a dictionary, where null structs have the number of the first value."""
    struct = pa.struct([("bytes", pa.dictionary(pa.int32(), pa.binary())), ("path", pa.string())])
    damaged = {"bytes": png(0)[:50], "path": "0.png"}
    sound = {"bytes": png(1), "path": "1.png"}
    table = pa.table({"image": pa.array([damaged, sound, None, None], struct), "label": range(4)})
    put(tmp_path / "s" / "a.arrow", table)
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
    put(tmp_path / "s" / "a.arrow", table)
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    found, _ = read_arrow(tmp_path / "d" / "a.arrow", "stream")
    (first,), none, (last,) = found.column("images").to_pylist()
    assert none is None
    assert np.array_equal(pixels_of(first), image(0))
    assert np.array_equal(pixels_of(last), image(2))


def test_fields_beside_an_image(tmp_path: Path) -> None:
    value = {"bytes": png(0), "path": "0.png", "mask": png(1), "more": [{"bytes": png(2)}]}
    put(tmp_path / "s" / "a.parquet", pa.table({"image": [value]}))
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
    put(tmp_path / "s" / f"a.{container}", table)
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert convert(tmp_path / "d", tmp_path / "b", "--to", "png") == 0
    for folder, suffix in ("d", "l3"), ("b", "png"):
        path = tmp_path / folder / f"a.{container}"
        found = get(path)
        for i, (entry, old) in enumerate(zip(found["image"].to_pylist(), paths, strict=True)):
            assert entry["path"] == (old and old.replace(".png", f".{suffix}"))
            assert np.array_equal(pixels_of(entry["bytes"]), image(i))
    own = {f"{folder}/{MANIFEST_NAME}" for folder in "db"}
    assert files_below(tmp_path) == {*own, *(f"{folder}/a.{container}" for folder in "sdb")}


@pytest.mark.parametrize("container", ["parquet", "arrow"])
def test_many_bands_and_other_formats_come_back(tmp_path: Path, container: str) -> None:
    bands = np.stack([image(i, 1).astype(np.uint16) * 99 for i in range(7)], axis=2)
    file = io.BytesIO()
    tifffile.imwrite(file, bands, photometric="minisblack", planarconfig="contig")
    jpeg = bytes(imagecodecs.jpeg8_encode(image(1), level=90))
    files = [("a.tiff", file.getvalue()), ("b.png", png(2)), ("c.jpg", jpeg)]
    table = pa.table({"image": pa.array([{"bytes": d, "path": p} for p, d in files], IMAGE)})
    path = tmp_path / "s" / f"a.{container}"
    put(path, table)
    assert convert(tmp_path / "s", tmp_path / "d", "--grow") == 0
    assert convert(tmp_path / "d", tmp_path / "b", "--to", "source") == 0
    found = get(tmp_path / "b" / path.name).column("image").to_pylist()
    assert [entry["path"] for entry in found] == ["a.tiff", "b.png", "c.jpg"]
    for entry, (_, data) in zip(found, files, strict=True):
        assert np.array_equal(read_picture(entry["bytes"]).pixels, read_picture(data).pixels)


BESIDE = {
    "text": pa.array([f"{i}" * 20 for i in range(6)], pa.string_view()),
    "bytes": pa.array([b"%d" % i for i in range(6)], pa.binary_view()),
    "lists of text": pa.array(
        [["a", None], [], None, ["b"], ["c"], []], pa.list_(pa.string_view())
    ),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([3, 6], pa.int32()), pa.array(["x", "y"])),
}


@pytest.mark.parametrize(
    ("beside", "suffix"),
    [(beside, "arrow") for beside in BESIDE]
    + [(beside, "parquet") for beside in BESIDE if beside != "runs"],
)
@pytest.mark.parametrize("damaged", [[0, 2, 5], range(6)], ids=str)
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
    reason = "data after the end of the stream" if kind == "stream" else "several Arrow files"
    if kind == "stream" or what not in ("junk", "a byte"):  # Else pyarrow finds no footer.
        assert capsys.readouterr().err.count(f"a.arrow: {reason}") == 2


@pytest.mark.parametrize("end", ["no mark", "an old mark", "zeros"])
def test_ends_of_streams(tmp_path: Path, end: str) -> None:
    path = tmp_path / "s" / "a.arrow"
    table = write_arrow(path, "stream")
    data = path.read_bytes()
    ends = {"no mark": data[:-8], "an old mark": data[:-8] + bytes(4), "zeros": data + bytes(100)}
    path.write_bytes(ends[end])
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert rows(get(tmp_path / "d" / "a.arrow")) == rows(table)


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
    assert "data after the end of the stream" in capsys.readouterr().err


def write_batch(path: Path, column: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    with pa.ipc.new_stream(str(path), pa.schema([("i", column.type)])) as writer:
        writer.write_batch(pa.record_batch([column], ["i"]))


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
    found = get(result).column("i")
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
    assert ("a.arrow: Dictionary replacement" in capsys.readouterr().err) == (kind == "file")


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
    assert result.stat().st_size < 1.3 * source.stat().st_size


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
