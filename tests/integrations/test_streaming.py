"""L3 in MosaicML Streaming, in a venv of its own: it bounds what the others have newer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import streaming
from engines import ROOT
from PIL import Image
from streaming.base.format.mds.encodings import mds_decode, mds_encode
from streaming.vision.base import StreamingVisionDataset
from torch.utils.data import DataLoader

import l3dali
import l3dali.streaming

DOC = (ROOT / "docs" / "integrations.md").read_text()


@pytest.fixture(autouse=True)
def registered() -> None:
    l3dali.streaming.register()


def pixels(seed: int, *shape: int, kind: Any = np.uint8) -> npt.NDArray[Any]:
    top = np.iinfo(kind).max
    return np.random.default_rng(seed).integers(0, top, shape, kind, endpoint=True)


def values(index: int) -> tuple[Any, npt.NDArray[Any]]:
    """What is written, and the array that is read."""
    kind = np.uint16 if index % 2 else np.uint8
    array = pixels(index, 30, 40, 3, kind=kind)
    if index == 2:
        return Image.fromarray(array), array
    if index == 4:
        return l3dali.encode(array), array
    return array, array


def write(folder: Path, count: int = 8) -> None:
    columns = {"image": "l3", "class": "int"}
    with streaming.MDSWriter(out=str(folder), columns=columns) as writer:
        for i in range(count):
            writer.write({"image": values(i)[0], "class": i})


def _first(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return samples[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_shards(tmp_path: Path, workers: int) -> None:
    write(tmp_path / "shards")
    dataset = streaming.StreamingDataset(local=str(tmp_path / "shards"), batch_size=1)
    loader = DataLoader(dataset, batch_size=1, num_workers=workers, collate_fn=_first)
    found = {sample["class"]: sample["image"] for sample in loader}
    assert sorted(found) == list(range(8))
    for index, image in found.items():
        assert image.dtype == values(index)[1].dtype
        assert np.array_equal(image, values(index)[1])


def test_bytes_need_no_registration(tmp_path: Path) -> None:
    arrays = [pixels(i, 30, 40, 3) for i in range(3)]
    columns = {"x": "bytes", "y": "int"}
    with streaming.MDSWriter(out=str(tmp_path / "shards"), columns=columns) as writer:
        for i, array in enumerate(arrays):
            writer.write({"x": l3dali.encode(array), "y": i})
    dataset = StreamingVisionDataset(
        local=str(tmp_path / "shards"), transform=l3dali.decode, batch_size=1
    )
    for i in range(3):
        image, label = dataset[i]
        assert label == i
        assert np.array_equal(image, arrays[i])


def test_options() -> None:
    array = np.zeros((200, 300), np.uint8)
    l3dali.streaming.register(coding="packed", max_pixels=100)
    data = mds_encode("l3", array)
    assert data == l3dali.encode(array, coding="packed")
    with pytest.raises(l3dali.L3Error, match="pixels"):
        mds_decode("l3", data)
    l3dali.streaming.register()
    assert np.array_equal(mds_decode("l3", data), array)


def test_refuses(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="float64"):
        mds_encode("l3", np.zeros((2, 2)))
    with pytest.raises(OSError, match="mode CMYK"):
        mds_encode("l3", Image.new("CMYK", (2, 2)))
    data = l3dali.encode(pixels(1, 30, 40))
    columns = {"image": "l3"}
    with streaming.MDSWriter(out=str(tmp_path / "shards"), columns=columns) as writer:
        writer.write({"image": data[:-1]})
    dataset = streaming.StreamingDataset(local=str(tmp_path / "shards"), batch_size=1)
    with pytest.raises(l3dali.L3Error) as caught:
        dataset[0]
    assert caught.value.status is l3dali.Status.TRUNCATED


def test_example(tmp_path: Path) -> None:
    """The example of docs/integrations.md runs as printed."""
    examples = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)
    (code,) = [example for example in examples if "import streaming" in example]
    (tmp_path / "example.py").write_text(code)
    subprocess.run([sys.executable, "example.py"], cwd=tmp_path, check=True)
