"""What reads images through Pillow or imageio reads L3."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import datasets
import imageio.v3 as iio
import numpy as np
import numpy.typing as npt
import pytest
import skimage.io
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms.functional import pil_to_tensor

import l3dali
import l3dali.imageio
import l3dali.pillow

l3dali.pillow.register()
l3dali.imageio.register()


def pixels(seed: int, *shape: int, kind: Any = np.uint8) -> npt.NDArray[Any]:
    top = np.iinfo(kind).max
    return np.random.default_rng(seed).integers(0, top, shape, kind, endpoint=True)


def test_hugging_face_image(tmp_path: Path) -> None:
    arrays = [pixels(i, 30, 40, 3) for i in range(4)]
    l3dali.imwrite(tmp_path / "1.l3", arrays[1])
    values = [
        {"bytes": l3dali.encode(arrays[0]), "path": None},
        str(tmp_path / "1.l3"),
        Image.open(io.BytesIO(l3dali.encode(arrays[2]))),  # kept as L3
        l3dali.encode(arrays[3]),
    ]
    features = datasets.Features({"image": datasets.Image()})
    table = datasets.Dataset.from_dict({"image": values}, features=features)
    table.save_to_disk(tmp_path / "table")
    table = datasets.load_from_disk(tmp_path / "table")
    for array, row in zip(arrays, table, strict=True):
        assert row["image"].mode == "RGB"
        assert np.array_equal(np.asarray(row["image"]), array)
    stored = table.cast_column("image", datasets.Image(decode=False))[2]["image"]["bytes"]
    assert np.array_equal(l3dali.decode(stored), arrays[2])


def _is_l3(path: str) -> bool:
    return path.endswith(".l3")


def _register_in_worker(number: int) -> None:
    l3dali.pillow.register()


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_torchvision_image_folder(tmp_path: Path, context: str) -> None:
    arrays = [pixels(i, 30, 40, 3) for i in range(4)]
    for i, array in enumerate(arrays):
        (tmp_path / f"class{i % 2}").mkdir(exist_ok=True)
        Image.fromarray(array).save(tmp_path / f"class{i % 2}" / f"{i}.l3")
    (tmp_path / "class0" / "readme.txt").write_text("no image")
    folder = ImageFolder(tmp_path, transform=pil_to_tensor, is_valid_file=_is_l3)
    loader = DataLoader(
        folder,
        batch_size=4,
        num_workers=1,
        multiprocessing_context=context,
        worker_init_fn=_register_in_worker,
    )
    ((images, labels),) = list(loader)
    assert labels.tolist() == [0, 0, 1, 1]
    expected = torch.from_numpy(np.stack([arrays[i] for i in (0, 2, 1, 3)])).permute(0, 3, 1, 2)
    assert torch.equal(images, expected)


@pytest.mark.parametrize("shape", [(30, 40), (30, 40, 2), (30, 40, 3), (30, 40, 4)])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int8, np.int16])
def test_imageio(tmp_path: Path, shape: tuple[int, ...], kind: Any) -> None:
    array = pixels(1, *shape, kind=kind)
    iio.imwrite(tmp_path / "a.l3", array, coding="packed")
    data = (tmp_path / "a.l3").read_bytes()
    assert data == l3dali.encode(array, coding="packed")
    assert iio.imwrite("<bytes>", array, extension=".l3", coding="packed") == data
    nameless = io.BytesIO()
    iio.imwrite(nameless, array, plugin="L3", coding="packed")
    assert nameless.getvalue() == data
    for source in (tmp_path / "a.l3", io.BytesIO(data)):
        found = iio.imread(source, extension=".l3")
        assert found.dtype == kind
        assert np.array_equal(found, array)
    (tmp_path / "a.l3").rename(tmp_path / "unnamed")
    assert np.array_equal(iio.imread(tmp_path / "unnamed", plugin="L3"), array)
    assert np.array_equal(iio.imread(data, plugin="L3", index=...), array[np.newaxis])
    assert np.array_equal(next(iter(iio.imiter(data, plugin="L3"))), array)
    properties = iio.improps(data, plugin="L3")
    assert (properties.shape, properties.dtype) == (shape, kind)
    assert iio.improps(data, plugin="L3", index=...).shape == (1, *shape)


def test_imageio_metadata_and_errors(tmp_path: Path) -> None:
    data = l3dali.encode(pixels(1, 30, 40), labels=True, icc=b"icc")
    assert iio.immeta(data, plugin="L3") == {"icc": b"icc", "labels": True}
    with pytest.raises(IndexError, match="one image"):
        iio.imread(data, plugin="L3", index=1)
    with pytest.raises(l3dali.L3Error) as caught:
        iio.imread(data[:-1], plugin="L3")
    assert caught.value.status is l3dali.Status.TRUNCATED
    with pytest.raises(OSError, match="can not handle"):
        iio.imread(b"no L3 file", plugin="L3")
    (tmp_path / "a.l3").write_bytes(data)
    with pytest.raises(TypeError, match="float64"):
        iio.imwrite(tmp_path / "a.l3", np.zeros((3, 4)))
    with pytest.raises(ValueError, match="an L3 file holds one image"):
        iio.imwrite(tmp_path / "b.l3", [np.zeros((4, 4), np.uint8)] * 2)
    assert not (tmp_path / "b.l3").exists()
    assert (tmp_path / "a.l3").read_bytes() == data


def test_imageio_reads_streams_that_cannot_seek() -> None:
    class Stream(io.RawIOBase):
        def readinto(self, buffer: Any) -> int:
            part = data.read(len(buffer))
            buffer[: len(part)] = part
            return len(part)

        def readable(self) -> bool:
            return True

    array = pixels(1, 30, 40)
    data = io.BytesIO(l3dali.encode(array))
    assert np.array_equal(iio.imread(Stream(), plugin="L3"), array)
    with pytest.raises(ValueError, match="cannot convert colours: read without mode"):
        iio.imread(l3dali.encode(array), plugin="L3", mode="L")


def test_imageio_writes_one_image(tmp_path: Path) -> None:
    file = tmp_path / "a.l3"
    image = np.zeros((7, 8, 3), np.uint8)
    with iio.imopen(file, "w", plugin="L3") as opened:
        opened.write(image)
        with pytest.raises(ValueError, match="one image"):
            opened.write(image)
    assert np.array_equal(iio.imread(file), image)


def test_imageio_through_pillow(tmp_path: Path) -> None:
    array = pixels(1, 30, 40, 3)
    l3dali.imwrite(tmp_path / "a.l3", array)
    assert np.array_equal(iio.imread(tmp_path / "a.l3", plugin="pillow"), array)


def test_scikit_image(tmp_path: Path) -> None:
    array = pixels(1, 30, 40, 3, kind=np.uint16)
    skimage.io.imsave(tmp_path / "a.l3", array, check_contrast=False)
    found = skimage.io.imread(tmp_path / "a.l3")
    assert found.dtype == np.uint16
    assert np.array_equal(found, array)
    several = skimage.io.ImageCollection(
        str(tmp_path / "*.l3"), load_func=lambda path, **_: l3dali.imread(path)
    )
    assert [np.array_equal(image, array) for image in several] == [True]
