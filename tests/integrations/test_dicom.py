"""DICOM files that pydicom ships, beside pydicom's own arrays."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pydicom
import pytest
from convert_tools import write_files
from numpy.typing import NDArray

import l3dali
from l3dali.cli import main
from l3dali.errors import ImageError
from l3dali.images.reading import read_picture

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


def written(pixels: NDArray[Any], data: Any = None, bits: int = 16, **elements: Any) -> bytes:
    """A file with `pixels`, or with `data` in their place: a frame of a codestream, or all frames.

    `syntax` is among the elements the transfer syntax of that.
    """
    dataset = pydicom.dcmread(FOLDER / "CT_small.dcm")
    for keyword in ("RescaleSlope", "RescaleIntercept", "PixelSpacing"):
        delattr(dataset, keyword)
    dataset.Rows, dataset.Columns = pixels.shape
    dataset.BitsStored, dataset.HighBit = bits, bits - 1
    dataset.PixelRepresentation = int(pixels.dtype.kind == "i")
    dataset.PixelData = pixels.tobytes() if data is None else data
    if syntax := elements.pop("syntax", None):
        dataset.file_meta.TransferSyntaxUID = syntax
        dataset.PixelData = pydicom.encaps.encapsulate(data)
    for keyword, value in elements.items():
        setattr(dataset, keyword, value)
    file = io.BytesIO()
    dataset.save_as(file)
    return file.getvalue()


ROWS, COLUMNS = np.mgrid[:24, :32]
OF_12_BITS = ((ROWS * 131 + COLUMNS * 37) % 4096).astype(np.uint16)


def jpeg2000(pixels: NDArray[Any]) -> bytes:
    return bytes(imagecodecs.jpeg2k_encode(pixels, level=0, reversible=True, codecformat="j2k"))


def rle(pixels: NDArray[Any]) -> list[bytes]:
    dataset = pydicom.dcmread(io.BytesIO(written(pixels)))
    dataset.compress(pydicom.uid.RLELossless)
    return list(pydicom.encaps.generate_frames(dataset.PixelData, number_of_frames=1))


@pytest.mark.parametrize("frames", [{}, {"NumberOfFrames": 1}])
@pytest.mark.parametrize("kind", ["plain", "JPEG 2000", "RLE"])
def test_the_first_of_more_frames_than_the_file_names(kind: str, frames: dict[str, int]) -> None:
    several = [OF_12_BITS, OF_12_BITS + 1, OF_12_BITS + 2]
    if kind == "plain":
        data = written(OF_12_BITS, np.stack(several).tobytes(), **frames)
    elif kind == "JPEG 2000":
        syntax = pydicom.uid.JPEG2000Lossless
        data = written(OF_12_BITS, [jpeg2000(each) for each in several], syntax=syntax, **frames)
    else:
        data = written(
            OF_12_BITS, [rle(each)[0] for each in several], syntax=pydicom.uid.RLELossless, **frames
        )
    np.testing.assert_array_equal(l3dali.decode(l3dali.transcode(data)), OF_12_BITS)


@pytest.mark.parametrize("dtype", [np.uint16, np.int16])
@pytest.mark.parametrize("kind", ["plain", "JPEG 2000", "JPEG-LS", "JPEG", "RLE"])
def test_overlays_in_unused_bits_are_no_samples(kind: str, dtype: type) -> None:
    overlay = np.where((ROWS + COLUMNS) % 5 == 0, 0x1000, 0).astype(np.uint16)
    right = OF_12_BITS.astype(dtype) - (2048 if dtype is np.int16 else 0)
    stored = (right.astype(np.uint16) & 0xFFF) | overlay
    syntax, encode = {
        "plain": (None, None),
        "JPEG 2000": (pydicom.uid.JPEG2000Lossless, jpeg2000),
        "JPEG-LS": (pydicom.uid.JPEGLSLossless, imagecodecs.jpegls_encode),
        "JPEG": (
            pydicom.uid.JPEGLosslessSV1,
            lambda pixels: imagecodecs.ljpeg_encode(pixels, bitspersample=16),
        ),
        "RLE": (pydicom.uid.RLELossless, lambda pixels: rle(pixels)[0]),
    }[kind]
    data = stored.tobytes() if encode is None else [bytes(encode(stored))]
    decoded = l3dali.decode(l3dali.transcode(written(right, data, bits=12, syntax=syntax)))
    assert decoded.dtype == dtype
    np.testing.assert_array_equal(decoded, right)


def sequence(**elements: Any) -> Any:
    """A sequence of one item."""
    item = pydicom.Dataset()
    for keyword, value in elements.items():
        setattr(item, keyword, value)
    return pydicom.Sequence([item])


def groups(slope: float, spacing: list[float]) -> Any:
    values = sequence(RescaleIntercept=-1024, RescaleSlope=slope, RescaleType="HU")
    measures = sequence(PixelSpacing=spacing, SliceThickness=3)
    return sequence(PixelValueTransformationSequence=values, PixelMeasuresSequence=measures)


def test_functional_groups_of_enhanced_files() -> None:
    shared = {"SharedFunctionalGroupsSequence": groups(2, [0.5, 0.75])}
    data = written(OF_12_BITS, NumberOfFrames=1, **shared)
    pairs = l3dali.info(l3dali.transcode(data, dicom_tags=["SliceThickness"])).metadata
    assert pairs is not None
    assert (pairs["rescale_slope"], pairs["rescale_intercept"]) == (2, -1024)
    assert (pairs["spacing"], pairs["dicom"]["SliceThickness"]) == ([0.5, 0.75], 3)
    own = {"PerFrameFunctionalGroupsSequence": groups(3, [0.25, 0.25])}
    kept = kept_of(l3dali.transcode(written(OF_12_BITS, NumberOfFrames=1, **shared, **own)))
    assert (kept["RescaleSlope"], kept["PixelSpacing"]) == (3, [0.25, 0.25])


def test_a_modality_lut_becomes_slope_and_intercept() -> None:
    table = (3 * np.arange(4096) + 7).astype(np.uint16)
    lut = {"LUTDescriptor": [4096, 0, 16], "ModalityLUTType": "US", "LUTData": table.tobytes()}
    kept = kept_of(l3dali.transcode(written(OF_12_BITS, ModalityLUTSequence=sequence(**lut))))
    assert (kept["RescaleSlope"], kept["RescaleIntercept"]) == (3, 7)
    lut["LUTData"] = (table // 2).tobytes()
    data = written(OF_12_BITS, ModalityLUTSequence=sequence(**lut))
    with pytest.raises(ImageError, match="Modality LUT that is not linear"):
        l3dali.transcode(data)


@pytest.mark.parametrize("text", [b"nan", b"inf", b"1e400"])
def test_a_number_that_is_none_costs_itself_alone(text: bytes, tmp_path: Path) -> None:
    data = written(OF_12_BITS, RescaleSlope="1.25e1", RescaleIntercept="3", WindowCenter=[40, 50])
    data = data.replace(b"1.25e1", text.ljust(6))
    encoded = l3dali.transcode(data)
    np.testing.assert_array_equal(l3dali.decode(encoded), OF_12_BITS)
    kept = kept_of(encoded)
    assert "RescaleSlope" not in kept
    assert (kept["RescaleIntercept"], kept["WindowCenter"]) == (3, [40, 50])
    assert read_picture(data).remarks == ("damaged metadata was dropped: DICOM RescaleSlope",)


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
    """A folder of slices becomes L3 by `l3 convert`."""
    source, target = tmp_path / "slices", tmp_path / "l3"
    names = ["CT_small", "ExplVR_BigEnd", "MR_small", "MR_small_RLE"]
    files = {f"{name}.dcm": bytes_of(name) for name in names}
    write_files(source, {**files, "IM0001": bytes_of("MR_small_implicit")})
    assert main(["convert", str(source), str(target), "--dicom-tags", "SliceThickness"]) == 0
    kept = kept_of((target / "CT_small.l3").read_bytes())
    assert kept["SliceThickness"] == 5
    assert main(["verify", str(target), "--source", str(source)]) == 0
    found = sorted(path.name for path in target.rglob("*.l3"))
    assert found == sorted(f"{name}.l3" for name in (*names, "IM0001"))


def test_a_wrong_keyword_ends_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.dcm").write_bytes(bytes_of("CT_small"))
    wrong = ["--dicom-tags", "SliceThickness, SliceThicknes"]
    assert main(["convert", str(tmp_path), str(tmp_path / "l3"), *wrong]) == 2
    assert "'SliceThicknes' is not a DICOM keyword" in capsys.readouterr().err
    assert not (tmp_path / "l3").exists()
