"""docs/my-data.md, "My data is": each row as printed, through `l3 encode`, DALI and PyTorch."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pydicom
import pytest
import tifffile
import torch
from convert_tools import saved
from engines import ROOT
from numpy.typing import NDArray
from nvidia.dali import fn, pipeline_def, types
from PIL import Image

import l3dali
import l3dali.fn
import l3dali.torch
from l3dali.cli import main

pytestmark = pytest.mark.dali

Array = NDArray[Any]
PAGE = (ROOT / "docs" / "my-data.md").read_text()
SECTION = PAGE[PAGE.index("## My data is\n") : PAGE.index("## Masks")]
ROWS = {
    cells[0]: cells[1:]
    for line in SECTION.splitlines()
    if line.startswith("| ") and not line.startswith("| my data")
    for cells in [[cell.strip(" `") for cell in line.strip("|").split(" | ")]]
}
RNG = np.random.default_rng(1)


def png(pixels: Array) -> tuple[str, bytes]:
    return "png", bytes(imagecodecs.png_encode(pixels))


def palette() -> tuple[str, bytes]:
    image = Image.fromarray(CLASSES)
    image.putpalette([200, 10, 10, 10, 200, 10] * 13)
    return "png", saved(image, "PNG")


def tiff(pixels: Array) -> tuple[str, bytes]:
    file = io.BytesIO()
    planes = "contig" if pixels.ndim == 3 and pixels.shape[2] > 1 else None
    tifffile.imwrite(file, pixels, photometric="minisblack", planarconfig=planes)
    return "tif", file.getvalue()


def npy(pixels: Array) -> bytes:
    file = io.BytesIO()
    np.save(file, pixels)
    return file.getvalue()


SLICE = Path(pydicom.__file__).parent / "data" / "test_files" / "CT_small.dcm"
CT = pydicom.dcmread(SLICE).pixel_array[..., None]
SHAPE = (40, 50)
CLASSES = RNG.integers(0, 26, SHAPE).astype(np.uint8)
IDS = RNG.choice(np.array([7, 24001, 26000, 26001, 33001], np.uint16), SHAPE)
DEPTH = RNG.integers(0, 2931, SHAPE).astype(np.uint16)
COLOURS = RNG.integers(0, 256, (*SHAPE, 3)).astype(np.uint8)
RGBA = RNG.integers(0, 256, (*SHAPE, 4)).astype(np.uint8)
DEEP = RNG.integers(0, 65536, (*SHAPE, 3)).astype(np.uint16)
BANDS = RNG.integers(0, 4096, (*SHAPE, 13)).astype(np.uint16)
METRES = DEPTH[..., None].astype(np.float32) / 1000
HEIGHTS = np.where(DEPTH < 99, np.nan, 0.3048 * DEPTH)[..., None].astype(np.float32)
REFLECTANCE = (BANDS[..., :3] * np.float32(1e-4)).astype(np.float32)
WIDE_IDS = IDS[..., None].astype(np.uint32) * 60_013
SMOOTH = np.add.outer(np.arange(40), np.arange(50))[..., None] + np.arange(3) * 50
JPEG = bytes(imagecodecs.jpeg8_encode(SMOOTH.astype(np.uint8), level=95))

# Of each row the file, and the array (H, W, C) that both calls give.
DATA: dict[str, tuple[tuple[str, bytes], Array]] = {
    "gray masks": (png(CLASSES), CLASSES[..., None].astype(np.int64)),
    "palette masks": (palette(), CLASSES[..., None].astype(np.int64)),
    "colour masks": (png(RGBA), RGBA[..., :3]),
    "instance ids": (png(IDS), IDS[..., None].astype(np.int64)),
    "depth": (png(DEPTH), DEPTH[..., None].astype(np.float32) * np.float32(0.001)),
    "RGBA": (png(RGBA), RGBA[..., :3]),
    "16-bit photographs": (png(DEEP), DEEP.astype(np.float32) / np.float32(65535)),
    "many bands": (tiff(BANDS), BANDS[..., [3, 2, 1]]),
    "CT and MR slices (DICOM)": (("dcm", SLICE.read_bytes()), CT),
    ".npy`, channels first": (("npy", npy(np.moveaxis(COLOURS, 2, 0))), COLOURS),
    "depth in metres, floats": (("npy", npy(METRES)), METRES),
    "elevation (GeoTIFF, floats)": (tiff(HEIGHTS), HEIGHTS),
    "reflectance, floats": (tiff(REFLECTANCE), REFLECTANCE[..., ::-1]),
    "32-bit ids": (tiff(WIDE_IDS), WIDE_IDS.astype(np.int64)),
    "JPEG": (("jpg", JPEG), imagecodecs.jpeg8_decode(JPEG)),
}


def test_each_row_has_data() -> None:
    assert ROWS.keys() == DATA.keys()


@pytest.mark.parametrize("row", ROWS)
def test_row(tmp_path: Path, row: str) -> None:
    option, in_dali, in_torch = ROWS[row]
    (suffix, data), expected = DATA[row]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / f"a.{suffix}").write_bytes(data)
    assert re.fullmatch(r"none|--\S.*", option)
    options = [] if option == "none" else shlex.split(option)
    path = tmp_path / "l3" / "a.l3"
    command = ["convert", str(tmp_path / "data"), str(tmp_path / "l3"), "--grow"]
    assert main([*command, *options]) == 0
    assert l3dali.info(path).labels == (option in ("--labels '*'", "--palette index"))

    names = {"fn": fn, "l3dali": l3dali, "torch": torch, "types": types}

    @pipeline_def(batch_size=2, num_threads=2, device_id=None)
    def decoded() -> Any:
        encoded, _ = fn.readers.file(files=[str(path)] * 2)
        return eval(in_dali, names | {"e": encoded})

    (output,) = decoded().run()
    for got in map(np.array, output):
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=0)

    tensor = eval(in_torch, names | {"f": path.read_bytes()})
    if 'layout="HWC"' not in in_torch:
        tensor = tensor.permute(1, 2, 0)
    assert tensor.numpy().dtype == expected.dtype
    np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-6, atol=0)
