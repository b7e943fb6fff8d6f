"""DICOM files that pydicom ships, beside pydicom's own arrays."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import l3dali
from l3dali.cli import main
from l3dali.images.headers import ImageError

pydicom = pytest.importorskip("pydicom")
pytest.importorskip("gdcm")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

FOLDER = Path(pydicom.__file__).parent / "data" / "test_files"
# One image of 8 to 16 bits: signed and not, MONOCHROME1 and 2, RGB, YBR, palettes; plain in both
# byte orders, deflated, RLE, JPEG, JPEG lossless, JPEG-LS and JPEG 2000.
READ = [
    *("693_J2KI", "CT_small", "ExplVR_BigEnd", "GDCMJ2K_TextGBR", "J2K_pixelrep_mismatch"),
    *("JPEG2000", "JPEGLSNearLossless_08"),
    *("JPEGLSNearLossless_16", "MR_small", "MR_small_RLE", "MR_small_bigendian"),
    *("MR_small_implicit", "MR_small_jp2klossless", "MR_small_jpeg_ls_lossless"),
    *("MR_small_padded", "SC_jpeg_no_color_transform", "SC_rgb_dcmtk_+eb+cy+s2", "SC_rgb_gdcm_KY"),
    *("SC_rgb_jls_lossy_line", "SC_rgb_jpeg_app14_dcmd", "SC_rgb_jpeg_dcmtk", "SC_rgb_jpeg_gdcm"),
    *("SC_rgb_rle", "SC_rgb_rle_16bit", "SC_rgb_small_odd", "SC_rgb_small_odd_big_endian"),
    *("SC_ybr_full_422_uncompressed", "examples_jpeg2k", "examples_overlay", "examples_palette"),
    *("examples_rgb_color", "image_dfl"),
]
# Names of docs/format.md 4.1.
NAMES = {
    "RescaleSlope": "rescale_slope",
    "RescaleIntercept": "rescale_intercept",
    "PixelSpacing": "spacing",
}
KEPT = {"RescaleSlope", "RescaleIntercept", "WindowCenter", "WindowWidth", "PixelSpacing"}


def bytes_of(name: str) -> bytes:
    return (FOLDER / f"{name}.dcm").read_bytes()


def kept_of(encoded: bytes) -> dict[str, Any]:
    """The kept data elements, by keyword."""
    metadata = l3dali.info(encoded).metadata
    assert metadata is not None
    assert metadata.keys() <= {*NAMES.values(), "dicom", "source_suffix"}
    named = {name: metadata[key] for name, key in NAMES.items() if key in metadata}
    named.update(metadata["dicom"])
    return named


def right(data: bytes) -> NDArray[Any]:
    dataset = pydicom.dcmread(io.BytesIO(data))
    pixels: NDArray[Any] = dataset.pixel_array
    if dataset.PhotometricInterpretation == "PALETTE COLOR":
        pixels = pydicom.pixels.apply_color_lut(pixels, dataset)
    return pixels


@pytest.mark.parametrize("name", READ)
def test_samples_are_those_of_pydicom(name: str) -> None:
    data = bytes_of(name)
    encoded = l3dali.transcode(data)
    decoded, want = l3dali.decode(encoded), right(data)
    assert decoded.dtype == want.dtype.newbyteorder("=")
    np.testing.assert_array_equal(decoded, want)
    kept = kept_of(encoded)
    assert kept.keys() <= KEPT | {"PhotometricInterpretation"}
    dataset = pydicom.dcmread(io.BytesIO(data))
    for keyword in KEPT & kept.keys():
        assert np.array_equal(kept[keyword], np.array(dataset[keyword].value, float)), keyword
    assert KEPT & kept.keys() == {name for name in KEPT if dataset.get(name) not in (None, "")}
    stored = dataset.PhotometricInterpretation
    assert kept["PhotometricInterpretation"] == (stored if want.ndim == 2 else "RGB")


def monochrome1(**elements: Any) -> bytes:
    dataset = pydicom.dcmread(FOLDER / "CT_small.dcm")
    dataset.PhotometricInterpretation = "MONOCHROME1"
    for keyword, value in elements.items():
        setattr(dataset, keyword, value)
    file = io.BytesIO()
    dataset.save_as(file)
    return file.getvalue()


def test_monochrome1_is_not_inverted() -> None:
    encoded = l3dali.transcode(monochrome1())
    np.testing.assert_array_equal(l3dali.decode(encoded), right(bytes_of("CT_small")))
    assert kept_of(encoded)["PhotometricInterpretation"] == "MONOCHROME1"


def test_rescale_and_windows_are_kept_and_not_applied() -> None:
    windows = {"WindowCenter": [40, 400.5], "WindowWidth": [80, 2000]}
    kept = kept_of(l3dali.transcode(monochrome1(**windows)))
    assert kept["RescaleSlope"] == 1
    assert kept["RescaleIntercept"] == -1024
    assert kept["WindowCenter"] == [40, 400.5]
    assert kept["WindowWidth"] == [80, 2000]


def test_a_smaller_image_has_no_spacing() -> None:
    smaller = l3dali.transcode(monochrome1(PixelSpacing=[0.5, 0.75]), max_side=64)
    assert "PixelSpacing" not in kept_of(smaller)
    assert kept_of(l3dali.transcode(monochrome1(PixelSpacing=[0.5, 0.75])))["PixelSpacing"] == [
        0.5,
        0.75,
    ]


def test_nothing_names_a_patient() -> None:
    data = monochrome1(PatientName="Doe^Jane", PatientID="4711", InstitutionName="Charity")
    encoded = l3dali.transcode(data)
    for text in (b"Doe", b"4711", b"Charity"):
        assert text in data
        assert text not in encoded
    encoded = l3dali.transcode(data, dicom_tags=["PatientID", "SliceThickness"])
    kept = kept_of(encoded)
    named = kept_of(l3dali.transcode(data, dicom_tags=["PatientName", "ImageType"]))
    assert named["PatientName"] == "Doe^Jane"
    assert named["ImageType"][0] == "ORIGINAL"
    assert kept["PatientID"] == "4711"
    assert kept["SliceThickness"] == 5
    assert b"Doe" not in encoded
    with pytest.raises(ValueError, match="'PatientsName' is not a DICOM keyword"):
        l3dali.transcode(data, dicom_tags=["PatientsName"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("SC_rgb_rle_2frame", "2 frames; L3 holds single images"),
        ("SC_rgb_rle_32bit", "samples of 32 bits"),
        ("liver_1frame", "samples of 1 bits"),
        ("rtplan", "without an image"),
        ("MR_truncated", "the file ends too early"),
        ("JPGExtended", "no plugin of pydicom decodes its JPEG Extended"),
    ],
)
def test_other_files_get_a_sentence(name: str, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        l3dali.transcode(bytes_of(name))


# Zeros are samples like any other in files without compression.
@pytest.mark.parametrize(
    ("name", "tells_zeros"),
    [
        ("MR_small", False),
        ("MR_small_RLE", True),
        ("MR_small_jp2klossless", True),
        ("MR_small_jpeg_ls_lossless", True),
        ("SC_rgb_jpeg_gdcm", True),
        ("SC_rgb_jpeg_dcmtk", True),
        ("image_dfl", True),
    ],
)
def test_a_cut_file_gives_its_pixels_or_an_error(name: str, tells_zeros: bool) -> None:
    data = bytes_of(name)
    for place in range(1, 60):
        size = len(data) * place // 60
        for rest in (b"", bytes(len(data) - size))[: 1 + tells_zeros]:
            try:
                decoded = l3dali.decode(l3dali.transcode(data[:size] + rest))
            except ImageError:
                continue
            np.testing.assert_array_equal(decoded, right(data))


def test_commands(tmp_path: Path) -> None:
    """A folder of slices becomes L3 by `l3 convert`, and DALI gives their int16."""
    source, target = tmp_path / "slices", tmp_path / "l3"
    source.mkdir()
    names = ["CT_small", "MR_small", "MR_small_RLE"]
    for name in names:
        (source / f"{name}.dcm").write_bytes(bytes_of(name))
    (source / "IM0001").write_bytes(bytes_of("MR_small_implicit"))
    assert main(["convert", str(source), str(target), "--dicom-tags", "SliceThickness"]) == 0
    kept = kept_of((target / "CT_small.l3").read_bytes())
    assert kept["SliceThickness"] == 5
    assert main(["verify", str(target), "--source", str(source)]) == 0
    written = sorted(path.name for path in target.rglob("*.l3"))
    assert written == ["CT_small.l3", "IM0001.l3", "MR_small.l3", "MR_small_RLE.l3"]


def test_a_wrong_keyword_ends_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.dcm").write_bytes(bytes_of("CT_small"))
    wrong = ["--dicom-tags", "SliceThickness, SliceThicknes"]
    assert main(["convert", str(tmp_path), str(tmp_path / "l3"), *wrong]) == 2
    assert "'SliceThicknes' is not a DICOM keyword" in capsys.readouterr().err
    assert not (tmp_path / "l3").exists()


@pytest.mark.dali
def test_int16_through_dali() -> None:
    pytest.importorskip("nvidia.dali")
    from nvidia.dali import fn, pipeline_def, types

    import l3dali.fn

    names = ["CT_small", "MR_small", "693_J2KI"]
    files = [np.frombuffer(l3dali.transcode(bytes_of(name)), np.uint8) for name in names]

    @pipeline_def(batch_size=3, num_threads=2, device_id=None)
    def pipeline() -> Any:
        encoded = fn.external_source(lambda: files, batch=True, dtype=types.UINT8)
        return l3dali.fn.decode(encoded, dtype=types.INT16)

    (batch,) = pipeline().run()
    for at, name in enumerate(names):
        np.testing.assert_array_equal(np.array(batch.at(at))[..., 0], right(bytes_of(name)))
