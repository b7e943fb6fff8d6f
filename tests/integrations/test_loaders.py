"""L3 in loaders of training data, each through its own hook."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import litdata
import numcodecs
import numpy as np
import numpy.typing as npt
import pytest
import torch
import webdataset
import zarr
from litdata.streaming import Cache
from PIL import Image

import l3dali
import l3dali.pillow
import l3dali.webdataset
import l3dali.zarr
from l3dali.litdata import L3Serializer
from l3dali.numcodecs import L3


def pixels(seed: int, *shape: int, kind: Any = np.uint8) -> npt.NDArray[Any]:
    limits = np.iinfo(kind)
    return np.random.default_rng(seed).integers(limits.min, limits.max, shape, kind, endpoint=True)


def write_shard(path: Path, count: int = 4) -> list[npt.NDArray[Any]]:
    arrays = [pixels(i, 30, 40, 3, kind=np.uint16) for i in range(count)]
    with webdataset.TarWriter(str(path), encoder=l3dali.webdataset.handlers(effort=1)) as writer:
        for i, array in enumerate(arrays):
            small = (array >> 8).astype(np.uint8)
            writer.write(
                {
                    "__key__": f"{i:03}",
                    "l3": array,
                    "left.l3": Image.fromarray(small),
                    "right.l3": l3dali.encode(small),
                    "cls": i,
                }
            )
    return arrays


def test_webdataset(tmp_path: Path) -> None:
    arrays = write_shard(tmp_path / "a.tar")
    handler = partial(l3dali.webdataset.decode, max_pixels=1200)
    dataset = webdataset.WebDataset(f"file:{tmp_path}/a.tar", shardshuffle=False).decode(handler)
    samples = list(webdataset.WebLoader(dataset, batch_size=None, num_workers=1))
    for i, (array, sample) in enumerate(zip(arrays, samples, strict=True)):
        assert sample["cls"] == i
        assert np.array_equal(sample["l3"], array)
        for name in ("left.l3", "right.l3"):
            assert np.array_equal(sample[name], array >> 8)


def test_webdataset_options_of_images(tmp_path: Path) -> None:
    gray, profile = pixels(1, 30, 40), b"a profile"
    encode = l3dali.webdataset.handlers(icc=profile, exif=b"EXIF", labels=True)["l3"]
    of_array, of_image = (l3dali.info(encode(value)) for value in (gray, Image.fromarray(gray)))
    assert of_array == of_image
    assert (of_image.icc, of_image.exif, of_image.labels) == (profile, b"EXIF", True)
    palette = bytes(range(12))
    encode = l3dali.webdataset.handlers(palette=palette, labels=True)["l3"]
    assert l3dali.info(encode(Image.new("P", (3, 2)))).palette == palette
    image = Image.new("RGB", (3, 2))
    image.info["icc_profile"] = profile
    assert l3dali.info(l3dali.webdataset.handlers(icc=None)["l3"](image)).icc == profile
    for value in (gray, image):
        with pytest.raises(TypeError, match="quality"):
            l3dali.webdataset.handlers(quality=95)["l3"](value)  # type: ignore[call-arg]


def test_webdataset_through_pillow(tmp_path: Path) -> None:
    l3dali.pillow.register()
    arrays = write_shard(tmp_path / "a.tar")
    handler = webdataset.imagehandler("torchrgb8", extensions=["l3"])
    dataset = webdataset.WebDataset(f"file:{tmp_path}/a.tar", shardshuffle=False)
    found = [s["left.l3"] for s in dataset.decode(handler, only="left.l3")]
    for array, image in zip(arrays, found, strict=True):
        assert torch.equal(image, torch.from_numpy((array >> 8).astype(np.uint8)).permute(2, 0, 1))


def test_webdataset_damaged_member(tmp_path: Path) -> None:
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as writer:
        writer.write({"__key__": "torn", "l3": l3dali.encode(pixels(1, 30, 40))[:-1]})
        writer.write({"__key__": "whole", "l3": l3dali.encode(pixels(2, 30, 40))})
    dataset = webdataset.WebDataset(f"file:{tmp_path}/a.tar", shardshuffle=False)
    with pytest.raises(webdataset.autodecode.DecodingError) as caught:
        list(dataset.decode(l3dali.webdataset.decode))
    assert isinstance(caught.value.__cause__, l3dali.L3Error)
    assert caught.value.__cause__.status is l3dali.Status.TRUNCATED
    skipping = webdataset.WebDataset(f"file:{tmp_path}/a.tar", shardshuffle=False).decode(
        l3dali.webdataset.decode, handler=webdataset.ignore_and_continue
    )
    assert [sample["__key__"] for sample in skipping] == ["whole"]


def _litdata_sample(index: int) -> dict[str, Any]:
    return {"image": l3dali.encode(pixels(index, 30, 40, 3)), "class": index}


def _decode_image(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "image": l3dali.decode(sample["image"])}


def test_litdata_optimize(tmp_path: Path) -> None:
    litdata.optimize(
        _litdata_sample, list(range(6)), str(tmp_path / "out"), chunk_size=3, num_workers=1
    )
    dataset = litdata.StreamingDataset(str(tmp_path / "out"), transform=_decode_image)
    found = {int(sample["class"]): sample["image"] for sample in dataset}
    assert sorted(found) == list(range(6))
    for index, image in found.items():
        assert np.array_equal(image, pixels(index, 30, 40, 3))


def test_litdata_writes_arrays(tmp_path: Path) -> None:
    serializers = {"l3": L3Serializer(coding="packed")}
    cache = Cache(str(tmp_path), chunk_size=2, serializers=serializers)
    arrays = [np.full((200, 300), i, np.uint16) for i in range(4)]
    for i, array in enumerate(arrays):
        cache[i] = {"image": array, "box": np.array([i, 1], np.float32)}
    cache.done()
    cache.merge()
    assert sum(file.stat().st_size for file in tmp_path.glob("*.bin")) < arrays[0].nbytes
    dataset = litdata.StreamingDataset(str(tmp_path), serializers=serializers)
    for i, array in enumerate(arrays):
        assert np.array_equal(dataset[i]["image"], array)
        assert dataset[i]["box"].tolist() == [i, 1]


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 3, 5), np.uint8),
        np.zeros((2, 3, 1), np.uint8),
        np.zeros((2, 3), ">u2"),
        np.zeros((2, 3)),
        np.zeros(3),
        np.zeros((2, 3), np.uint8).view(np.recarray),
    ],
)
def test_litdata_leaves_other_arrays(array: Any) -> None:
    assert not L3Serializer().can_serialize(array)
    with pytest.raises(TypeError, match="cannot be restored unchanged"):
        L3Serializer().serialize(array)


def test_litdata_gives_no_other_layout_back() -> None:
    with pytest.raises(ValueError, match="layout"):
        L3Serializer(layout="CHW")
    array = pixels(1, 4, 5, 3)
    serializer = L3Serializer(layout="HWC")
    assert np.array_equal(serializer.deserialize(serializer.serialize(array)[0]), array)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int8, np.int16])
@pytest.mark.parametrize(
    ("shape", "chunks"),
    [
        ((70, 90), (32, 40)),
        ((70, 90, 3), (32, 40, 3)),
        ((3, 70, 90), (2, 32, 40)),
        ((2, 3, 50, 60, 3), (1, 2, 32, 32, 3)),
        ((2, 30, 40, 7), (1, 16, 16, 7)),
    ],
)
def test_zarr(
    tmp_path: Path, shape: tuple[int, ...], chunks: tuple[int, ...], kind: Any, order: Any
) -> None:
    array = pixels(1, *shape, kind=kind)
    store = zarr.create_array(
        tmp_path / "a.zarr",
        shape=shape,
        chunks=chunks,
        dtype=kind,
        order=order,
        zarr_format=2,
        compressors=L3(coding="packed"),
    )
    store[...] = array
    store = zarr.open_array(tmp_path / "a.zarr", mode="r")  # finds the codec by its id
    assert np.array_equal(store[...], array)
    files = [f for f in (tmp_path / "a.zarr").rglob("*") if f.is_file() and f.name[0] != "."]
    assert files
    assert {l3dali.info(file.read_bytes()).dtype.name for file in files} == {np.dtype(kind).name}


def test_numcodecs() -> None:
    found = numcodecs.get_codec({"id": "l3", "coding": "packed", "effort": 3})
    assert found == L3("packed", 3)
    assert found.get_config() == {"id": "l3", "coding": "packed", "effort": 3}
    assert json.dumps(L3("packed", np.int64(3)).get_config()) == json.dumps(found.get_config())
    array = pixels(1, 30, 40, 3)
    data = found.encode(array)
    out = np.empty_like(array)
    assert found.decode(data, out=out) is out
    assert np.array_equal(out, array)
    room = bytearray(array.nbytes)
    assert found.decode(data, out=room) is room
    assert room == array.tobytes()


def test_numcodecs_refuses() -> None:
    with pytest.raises(TypeError, match="byte order"):
        L3().encode(np.zeros((2, 2), ">u2"))
    with pytest.raises(TypeError, match="float64"):
        L3().encode(np.zeros((2, 2)))
    for no_image in (np.uint8(1), np.zeros(9, np.uint8), b"text", np.zeros((2, 2), object)):
        with pytest.raises(TypeError, match=r"two axes|not"):
            L3().encode(no_image)
    data = L3().encode(np.zeros((4, 4), np.uint8))
    with pytest.raises(TypeError, match="object arrays"):
        L3().decode(data, out=np.empty((4, 4), object))
    with pytest.raises(ValueError, match="contiguous"):
        L3().decode(data, out=np.empty((4, 8), np.uint8)[:, ::2])
    with pytest.raises(ValueError, match="reshape"):
        L3().decode(data, out=np.empty(15, np.uint8))
    with pytest.raises(ValueError, match="2\\^28"):
        L3().encode(np.broadcast_to(np.uint8(0), (2**15, 2**14)))
    with pytest.raises(ValueError, match="effort"):
        L3(effort=0)
    with pytest.raises(l3dali.L3Error):
        L3().decode(L3().encode(np.zeros((2, 2), np.uint8))[:-1])


SHAPES_OF_ZARR_3 = [  # array, chunks, shards
    ((70, 90), (32, 40), None),
    ((70, 90, 3), (32, 40, 3), None),
    ((70, 90, 1), (70, 40, 1), None),
    ((3, 70, 90), (2, 32, 40), None),
    ((3, 70, 90), (1, 32, 40), (2, 64, 80)),
    ((2, 3, 50, 60, 3), (1, 2, 32, 32, 3), None),
    ((2, 30, 40, 7), (1, 16, 16, 7), None),
]


@pytest.mark.parametrize("kind", ["uint8", "uint16", ">u2", "int8", "int16", ">i2"])
@pytest.mark.parametrize(("shape", "chunks", "shards"), SHAPES_OF_ZARR_3)
def test_zarr_3(
    tmp_path: Path,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    shards: tuple[int, ...] | None,
    kind: str,
) -> None:
    array = pixels(1, *shape, kind=np.dtype(kind).newbyteorder("="))
    store = zarr.create_array(
        tmp_path / "a.zarr",
        shape=shape,
        chunks=chunks,
        shards=shards,
        dtype=kind,
        serializer=l3dali.zarr.L3(coding="packed"),
        compressors=None,
    )
    store[...] = array
    assert np.array_equal(store[...], array)
    store = zarr.open_array(tmp_path / "a.zarr", mode="r+")  # finds the codec by its name
    assert np.array_equal(store[...], array)
    generator = np.random.default_rng(2)
    points = tuple(generator.integers(0, size, 5) for size in shape)
    assert np.array_equal(store.vindex[points], array[points])
    places = tuple(np.sort(generator.choice(size, min(2, size), replace=False)) for size in shape)
    assert np.array_equal(store.oindex[places], array[np.ix_(*places)])
    part = tuple(slice(size // 3, size, 2) for size in shape)
    assert np.array_equal(store[part], array[part])
    array[part] = 7
    store[part] = 7
    assert np.array_equal(store[...], array)


def test_zarr_3_chunks_are_files(tmp_path: Path) -> None:
    """A chunk is an L3 file, and a window of it needs the tiles of that window alone."""
    array = pixels(1, 512, 512)
    store = zarr.create_array(
        tmp_path / "a.zarr",
        shape=array.shape,
        chunks=array.shape,
        dtype=array.dtype,
        serializer=l3dali.zarr.L3(effort=np.int64(3)),
        compressors=None,
    )
    store[...] = array
    assert store.metadata.codecs[0].to_dict() == {
        "name": "l3dali.l3",
        "configuration": {"coding": "rans", "effort": 3},
    }
    file = tmp_path / "a.zarr" / "c" / "0" / "0"
    assert np.array_equal(l3dali.imread(file), array)
    data = bytearray(file.read_bytes())
    assert l3dali.info(data).tile_count > 1
    data[-1000] ^= 1  # in the last tile
    file.write_bytes(data)
    assert np.array_equal(store[:8, :8], array[:8, :8])
    with pytest.raises(l3dali.L3Error):
        store[...]


@pytest.mark.parametrize(
    "image",
    [np.zeros((8, 9), np.uint16), np.zeros((9, 8), np.uint8), np.zeros((8, 9, 3), np.uint8)],
)
def test_zarr_3_other_file_in_a_chunk(tmp_path: Path, image: Any) -> None:
    store = zarr.create_array(
        tmp_path / "a.zarr",
        shape=(8, 9),
        chunks=(8, 9),
        dtype="uint8",
        serializer=l3dali.zarr.L3(),
        compressors=None,
    )
    store[...] = 1
    l3dali.imwrite(tmp_path / "a.zarr" / "c" / "0" / "0", image)
    for part in (..., (slice(2), slice(2))):
        with pytest.raises(ValueError, match="its L3 file has"):
            store[part]


@pytest.mark.parametrize("kind", ["float16", "float32", "int32", "uint32"])
def test_zarr_3_of_floats_and_32_bits(tmp_path: Path, kind: str) -> None:
    array = (np.arange(60 * 70, dtype=np.uint32).reshape(60, 70) * 70_001).astype(kind)
    store = zarr.create_array(
        tmp_path / "a.zarr",
        shape=array.shape,
        chunks=(40, 40),
        dtype=array.dtype,
        serializer=l3dali.zarr.L3(),
        compressors=None,
    )
    store[...] = array
    assert np.array_equal(store[10:50, 20:], array[10:50, 20:])
    found = L3().decode(L3().encode(array))
    assert (found.dtype, found.tobytes()) == (array.dtype, array.tobytes())


def test_zarr_3_refuses() -> None:
    def create(serializer: Any = None, **options: Any) -> None:
        zarr.create_array(
            {}, serializer=serializer or l3dali.zarr.L3(), compressors=None, **options
        )

    for kind in ("float64", "int64", "bool"):
        with pytest.raises(TypeError, match=f"not {kind}"):
            create(shape=(9, 9), dtype=kind)
    with pytest.raises(ValueError, match="two axes"):
        create(shape=(9,), dtype="uint8")
    with pytest.raises(ValueError, match="2\\^28"):
        create(shape=(2**15, 2**14), chunks=(2**15, 2**14), dtype="uint8")
    with pytest.raises(ValueError, match="effort"):
        l3dali.zarr.L3(effort=0)
    with pytest.raises(ValueError, match="coding"):
        create(
            {"name": "l3dali.l3", "configuration": {"coding": "dense"}}, shape=(9, 9), dtype="u1"
        )
