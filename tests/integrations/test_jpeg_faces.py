"""JPEG files in every library that reads L3: the pixels are Pillow's."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
import pytest
import torch
import webdataset
import zarr
from jpeg_pairs import JpegPair, pairs
from PIL import Image, ImageOps
from test_torch_decode import device  # noqa: F401  # a fixture

import l3dali
import l3dali.imageio
import l3dali.pillow
import l3dali.torch
import l3dali.webdataset
import l3dali.zarr
from l3dali.litdata import L3Serializer
from l3dali.numcodecs import L3

WINDOW = (3, 1, 17, 7)  # top, left, height, width
CUT = np.s_[3:20, 1:8]


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    found = [tmp_path / f"{i:02}.l3" for i in range(len(pairs()))]
    for path, pair in zip(found, pairs(), strict=True):
        path.write_bytes(pair.l3)
    return found


def in_hwc(pair: JpegPair, mode: str) -> Any:
    if mode == "GRAY":
        return pair.luma[..., None]
    pixels = np.atleast_3d(pair.pixels)
    return np.broadcast_to(pixels, (*pixels.shape[:2], 3))


@pytest.mark.parametrize("mode", ["RGB", "GRAY"])
def test_torch(paths: list[Path], device: str, mode: Any) -> None:  # noqa: F811
    options: Any = {"device": device, "mode": mode, "layout": "HWC", "threads": 2}
    decoded = l3dali.torch.decode_batch([pair.l3 for pair in pairs()], **options)
    for pair, tensor in zip(pairs(), decoded, strict=True):
        np.testing.assert_array_equal(tensor.cpu().numpy(), in_hwc(pair, mode), pair.name)
    windows = [WINDOW] * len(paths)
    parts = l3dali.torch.decode_files(
        paths, windows=windows, batched=True, dtype=torch.float32, **options
    )
    want = np.stack([in_hwc(pair, mode)[CUT] for pair in pairs()]) * (np.float32(1) / 255)
    np.testing.assert_array_equal(parts.cpu().numpy(), want)
    loader = l3dali.torch.Loader(
        paths, 4, options={"mode": mode, "layout": "HWC"}, window=lambda *_: WINDOW
    )
    batches = np.concatenate([batch.numpy() for batch in loader])
    np.testing.assert_array_equal(batches, [in_hwc(pair, mode)[CUT] for pair in pairs()])


def test_pillow(paths: list[Path]) -> None:
    """Not turned, as Pillow leaves JPEG files; the tag turns them."""
    l3dali.pillow.register()
    for path, pair in zip(paths, pairs(), strict=True):
        of_jpeg, of_l3 = Image.open(io.BytesIO(pair.jpeg)), Image.open(path)
        assert (of_l3.mode, of_l3.size) == (of_jpeg.mode, of_jpeg.size)
        assert of_l3.tobytes() == of_jpeg.tobytes()
        turned = ImageOps.exif_transpose(of_l3)
        assert turned.tobytes() == ImageOps.exif_transpose(of_jpeg).tobytes()


def test_loaders_of_samples(tmp_path: Path) -> None:
    l3dali.imageio.register()
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as writer:
        for i, pair in enumerate(pairs()):
            writer.write({"__key__": f"{i:02}", "l3": pair.l3})
    dataset = webdataset.WebDataset(f"file:{tmp_path}/a.tar", shardshuffle=False)
    samples = dataset.decode(l3dali.webdataset.decode)
    for pair, sample in zip(pairs(), samples, strict=True):
        np.testing.assert_array_equal(sample["l3"], pair.pixels)
        np.testing.assert_array_equal(iio.imread(pair.l3, extension=".l3"), pair.pixels)
        np.testing.assert_array_equal(L3Serializer().deserialize(pair.l3), pair.pixels)
        of_numcodecs = L3().decode(pair.l3).reshape(pair.pixels.shape)
        np.testing.assert_array_equal(of_numcodecs, pair.pixels)


def test_a_chunk_of_zarr(tmp_path: Path) -> None:
    """The codec makes no jpeg tiles of arrays, but reads a chunk that is such a file."""
    pair = pairs()[-1]
    store = zarr.create_array(
        tmp_path / "a.zarr",
        shape=pair.pixels.shape,
        chunks=pair.pixels.shape,
        dtype="uint8",
        serializer=l3dali.zarr.L3(),
        compressors=None,
    )
    store[...] = 1
    (tmp_path / "a.zarr" / "c" / "0" / "0" / "0").write_bytes(pair.l3)
    np.testing.assert_array_equal(store[...], pair.pixels)
    np.testing.assert_array_equal(store[100:300, 57:99], pair.pixels[100:300, 57:99])
