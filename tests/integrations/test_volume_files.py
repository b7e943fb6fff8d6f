"""NIfTI, TIFF of several pages and DICOM series become volumes, and go back."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tifffile
from dicom_series import write_dicom, write_series

import l3dali
from l3dali.cli import main
from l3dali.errors import ImageError
from l3dali.images.stacks import zipped

nibabel = pytest.importorskip("nibabel")

Array = npt.NDArray[Any]
AFFINE = np.array([[-0.7, 0, 0.01, 90], [0, 0.7, 0, -80.5], [0, 0, 5, 0.25], [0, 0, 0, 1]])


def make(*shape: int, dtype: str = "int16") -> Array:
    rng = np.random.default_rng(0)
    return (np.arange(np.prod(shape)).reshape(shape) // 9 % 90 + rng.integers(0, 5, shape)).astype(
        dtype
    )


def nifti(array: Array, slope: float = 1, kind: Any = nibabel.Nifti1Image) -> bytes:
    image = kind(array, AFFINE, dtype=array.dtype)
    image.set_qform(AFFINE, 1)
    image.set_sform(AFFINE, 4)
    image.header.set_slope_inter(slope, -3 if slope != 1 else 0)
    image.header["descrip"] = "kept"
    return bytes(image.to_bytes())


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", ">i2", "int64", "float64"])
@pytest.mark.parametrize("shape", [(11, 21, 3), (20, 9), (5, 6, 7, 2), (5, 6, 7, 9)])
def test_nifti_comes_back_byte_for_byte(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    array = make(*shape, dtype=dtype)
    data = nifti(array, 0.25)
    for name, content in (("a.nii", data), ("b.nii.gz", gzip.compress(data))):
        (tmp_path / name).write_bytes(content)
        encoded = l3dali.transcode(content)
        decoded = l3dali.decode_volume(encoded)
        axes = (2, 1, 0, 3)[: max(3, len(shape))]
        np.testing.assert_array_equal(decoded, np.atleast_3d(array).transpose(axes))
        info = l3dali.info(encoded)
        assert info.volume is not None
        np.testing.assert_array_equal(info.volume.affine, AFFINE.astype(np.float32))
        assert (info.metadata or {})["rescale_slope"] == 0.25
    files = [str(tmp_path / name) for name in ("a.nii", "b.nii.gz")]
    assert main(["encode", *files, "--verify"]) == 0
    assert main(["decode", str(tmp_path / "b.l3"), "-o", str(tmp_path / "back.nii")]) == 0
    assert (tmp_path / "back.nii").read_bytes() == data
    assert main(["decode", str(tmp_path / "a.l3")]) == 0  # NIfTI is what a volume goes back to
    assert gzip.decompress((tmp_path / "a.nii.gz").read_bytes()) == data


def test_nifti_of_other_kinds() -> None:
    second = nifti(make(5, 6, 7), kind=nibabel.Nifti2Image)
    np.testing.assert_array_equal(
        l3dali.decode_volume(l3dali.transcode(second)), make(5, 6, 7).transpose(2, 1, 0)
    )
    for array, message in (
        (make(5, 6, 7, dtype="float64") + 1 / 3, "float64"),
        (make(5, 6, 2, 2, 2), "5 axes"),
    ):
        with pytest.raises(ImageError, match=message):
            l3dali.transcode(nifti(array))
    with pytest.raises(ImageError, match=r"ends too early|cannot be read"):
        l3dali.transcode(nifti(make(5, 6, 7))[:-9])
    with pytest.raises(ImageError, match="shrunk"):
        l3dali.transcode(nifti(make(5, 6, 7)), max_side=4)


def test_convert_folder_of_scans_and_labels(tmp_path: Path) -> None:
    for i in range(2):
        for folder, array in (("imagesTr", make(9, 11, 4)), ("labelsTr", make(9, 11, 4) // 20)):
            path = tmp_path / "set" / folder / f"case_{i}.nii.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(nifti(array)))
    source, target, back = (str(tmp_path / name) for name in ("set", "l3", "back"))
    assert main(["convert", source, target, "--labels", "labelsTr/*"]) == 0
    info = l3dali.info(f"{target}/labelsTr/case_1.l3")
    assert info.labels
    assert info.volume is not None
    assert info.volume.voxels.keys() == {1, 2}
    assert not l3dali.info(f"{target}/imagesTr/case_1.l3").labels
    assert main(["verify", target, "--source", source]) == 0
    assert main(["convert", target, back, "--to", "source"]) == 0
    for path in sorted((tmp_path / "set").rglob("*.nii.gz")):
        returned = tmp_path / "back" / path.relative_to(tmp_path / "set")
        assert gzip.decompress(returned.read_bytes()) == gzip.decompress(path.read_bytes())


def test_convert_names_labels_that_do_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, array in (("imagesTr/a_0000", make(9, 11, 4)), ("labelsTr/a", make(9, 11, 5) // 20)):
        path = tmp_path / "set" / f"{name}.nii"
        path.parent.mkdir(parents=True)
        path.write_bytes(nifti(array))
    source, target = str(tmp_path / "set"), str(tmp_path / "l3")
    assert main(["convert", source, target, "--labels", "labelsTr/*"]) == 2
    printed = capsys.readouterr().err
    assert "imagesTr/a_0000.l3 has shape (4, 11, 9), but" in printed
    assert "labelsTr/a.l3 has (5, 11, 9)" in printed


@pytest.mark.parametrize("shape", [(4, 30, 20), (4, 30, 20, 3), (4, 2, 30, 20)])
def test_pages_of_a_tiff(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = make(*shape, dtype="uint16")
    axes = {3: "ZYX", 4: "ZYXS" if shape[-1] == 3 else "ZCYX"}[len(shape)]
    metadata = {"axes": axes, "spacing": 2.5}
    tifffile.imwrite(tmp_path / "a.tif", array, imagej=axes != "ZYXS", metadata=metadata)
    data = (tmp_path / "a.tif").read_bytes()
    with pytest.raises(ImageError, match="several images"):
        l3dali.transcode(data)
    decoded = l3dali.decode_volume(l3dali.transcode(data, volumes=True))
    np.testing.assert_array_equal(decoded, np.moveaxis(array, 1, -1) if axes == "ZCYX" else array)
    assert main(["encode", str(tmp_path / "a.tif"), "--volumes"]) == 0
    assert main(["decode", str(tmp_path / "a.l3"), "-o", str(tmp_path / "b.tif")]) == 0
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "b.tif"), decoded)


def test_info_says_that_it_is_a_volume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.l3").write_bytes(l3dali.encode_volume(make(3, 70, 30)))
    assert main(["info", str(tmp_path / "a.l3")]) == 0
    assert "volume 3 x 70 x 30 (z, y, x), one slice every 128 rows" in capsys.readouterr().out
    assert main(["info", str(tmp_path / "a.l3"), "--json"]) == 0
    assert '"volume": [3, 70, 30]' in capsys.readouterr().out


def test_volume_becomes_nifti(tmp_path: Path) -> None:
    """Of a volume that was none, the affine is that of the metadata."""
    volume = make(3, 20, 30)
    (tmp_path / "a.l3").write_bytes(l3dali.encode_volume(volume, affine=AFFINE))
    assert main(["decode", str(tmp_path / "a.l3")]) == 0
    image = nibabel.load(tmp_path / "a.nii.gz")
    np.testing.assert_array_equal(np.asanyarray(image.dataobj), volume.transpose(2, 1, 0))
    np.testing.assert_allclose(image.affine, AFFINE, rtol=1e-6)


def test_dicom_series(tmp_path: Path) -> None:
    case, encoded = tmp_path / "case of 2.5 mm", tmp_path / "case of 2.5 mm.l3"
    volume = write_series(case, {"b": 5, "a": 7.5, "c": 2.5})
    assert main(["encode", str(case), "--volumes", "--verify"]) == 0
    info = l3dali.info(encoded)
    np.testing.assert_array_equal(l3dali.decode_volume(encoded), volume)
    assert info.volume is not None
    assert info.volume.pairs["spacing"] == [0.75, 0.5, 2.5]
    np.testing.assert_array_equal(
        info.volume.affine, [[-0.75, 0, 0, -10], [0, -0.5, 0, -20], [0, 0, 2.5, 2.5], [0, 0, 0, 1]]
    )
    assert (info.metadata or {})["rescale_intercept"] == -1024


@pytest.mark.parametrize(
    ("places", "elements", "message"),
    [
        ({"a": 1, "b": 2, "c": 4, "d": 5}, {}, "missing.*c is 2.000 mm behind b"),
        ({"a": 1, "b": 2, "c": 2}, {}, "repeated"),
        ({"a": 1, "b": 2}, {"PixelSpacing": [1, 1]}, "b has another spacing than a"),
        ({"a": 1, "b": 2}, {"SeriesInstanceUID": "9"}, "another series"),
    ],
)
def test_series_with_gaps_or_differences_is_refused(
    tmp_path: Path, places: dict[str, float], elements: dict[str, Any], message: str
) -> None:
    write_series(tmp_path / "case", places, **elements)
    with pytest.raises(ImageError, match=message):
        l3dali.transcode(zipped(tmp_path / "case"), volumes=True)


def test_slopes_of_slices_are_kept(tmp_path: Path) -> None:
    write_series(tmp_path / "case", {"a": 1, "b": 2, "c": 3}, RescaleSlope=2.5)
    info = l3dali.info(l3dali.transcode(zipped(tmp_path / "case"), volumes=True))
    assert info.volume is not None
    assert info.volume.pairs["rescale"] == [[1, -1024], [2.5, -1024], [1, -1024]]
    assert "rescale_slope" not in (info.metadata or {})


def test_frames_of_a_dicom_file(tmp_path: Path) -> None:
    volume = make(3, 20, 30)
    write_dicom(tmp_path / "a.dcm", volume, 1, NumberOfFrames=3)
    data = (tmp_path / "a.dcm").read_bytes()
    with pytest.raises(ImageError, match="3 frames"):
        l3dali.transcode(data)
    encoded = l3dali.transcode(data, volumes=True)
    np.testing.assert_array_equal(l3dali.decode_volume(encoded), volume)
