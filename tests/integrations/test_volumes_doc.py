"""The programs of docs/volumes.md run as printed on NIfTI, and give the patches of NumPy."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tifffile
from dicom_series import write_series
from engines import ROOT

import l3dali
from l3dali.cli import main

nibabel = pytest.importorskip("nibabel")

Array = npt.NDArray[Any]
PAGE = (ROOT / "docs" / "volumes.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(COMMANDS,) = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
NAMES = ("example", "patches", "with_dali", "with_torch", "with_monai", "with_nnunet")
SIZE = 96


@pytest.fixture
def volumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Array, Array]]:
    """Three scans and label maps, converted; one is thinner than a patch."""
    rng = np.random.default_rng(0)
    made = []
    for i, shape in enumerate([(110, 130, 120), (97, 100, 140), (40, 120, 110)]):
        scan = rng.integers(-1024, 2000, shape).astype(np.int16)
        labels = np.zeros(shape, np.uint8)
        labels[5:12, 80:90, 20:24] = 1
        labels[20:30, 10:20, 90:100] = 2
        made.append((scan, labels))
        for folder, array in (("imagesTr", scan), ("labelsTr", labels)):
            path = tmp_path / "set" / folder / f"case_{i}.nii.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            nibabel.save(nibabel.Nifti1Image(array.transpose(2, 1, 0), np.eye(4)), path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name, code in zip(NAMES, BLOCKS, strict=True):
        Path(f"{name}.py").write_text(code)
    assert main(["convert", "set", "l3", "--labels", "labelsTr/*"]) == 0
    return made


def patch(volume: Array, anchor: Array, fill: int) -> Array:
    """The patch of a volume, filled behind its end."""
    padded = np.pad(volume, [(0, SIZE)] * 3, constant_values=fill)
    z, y, x = anchor
    return padded[z : z + SIZE, y : y + SIZE, x : x + SIZE]


def test_commands_run_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("imagesTr", "labelsTr"):
        Path("Task09_Spleen", folder).mkdir(parents=True)
        image = nibabel.Nifti1Image(np.ones((9, 8, 7), np.int16), np.eye(4))
        nibabel.save(image, f"Task09_Spleen/{folder}/spleen_2.nii.gz")
    tifffile.imwrite("stack.tif", np.ones((3, 20, 30), np.uint8), photometric="minisblack")
    slices = write_series(Path("scans/case"), {"b": 2, "a": 1})
    for line in COMMANDS.splitlines():
        words = [
            name
            for word in shlex.split(line, comments=True)
            for name in sorted(map(str, Path().glob(word))) or [word]
        ]
        assert main(words[1:]) == 0
    assert Path("l3/imagesTr/spleen_2.nii.gz").exists()
    np.testing.assert_array_equal(l3dali.decode_volume("series/case.l3"), slices)


@pytest.mark.parametrize("name", ["example", "with_dali", "with_torch", "with_monai"])
def test_runs_as_printed(volumes: object, name: str) -> None:
    if name == "with_monai":
        pytest.importorskip("monai")
    subprocess.run([sys.executable, f"{name}.py"], check=True)


@pytest.mark.parametrize("shape", [(1, 9, 70, 80), (2, 9, 70, 80)])
@pytest.mark.usefixtures("volumes")
def test_slices_for_nnunet(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    Path("a.l3").write_bytes(l3dali.encode_volume(np.moveaxis(array, 0, -1), coding="packed"))
    volume = __import__("with_nnunet").Channels("a.l3")
    assert (volume.shape, volume.dtype) == (shape, array.dtype)
    patch = slice(None), slice(2, 7), slice(0, 64), slice(30, 80)
    np.testing.assert_array_equal(volume[patch], array[patch])


@pytest.mark.parametrize("name", ["with_dali", "with_torch"])
def test_patches_are_those_of_numpy(volumes: list[tuple[Array, Array]], name: str) -> None:
    program = __import__(name)
    is_dali = name == "with_dali"
    epoch = [
        batch[0] if is_dali else batch
        for batch in (program.batches() if is_dali else program.batches(0))
    ]
    samples = [
        {key: np.asarray(value[i]) for key, value in batch.items()}
        for batch in epoch
        for i in range(2)
    ]
    assert len(samples) == 8
    centred = 0
    for index, sample in enumerate(samples):
        scan, labels = volumes[index % 3]
        expected = (patch(scan, sample["anchor"], -1024).astype(np.float32) - 99) / 40
        np.testing.assert_allclose(sample["image"][0], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(sample["labels"][0], patch(labels, sample["anchor"], 0))
        centred += bool(sample["labels"].any())
    assert centred >= 3
