"""DICOM files, read by pydicom: the samples as stored, and how to show them."""

from __future__ import annotations

import io
from collections.abc import MutableSequence
from typing import TYPE_CHECKING

import numpy as np

from l3dali.errors import ImageError
from l3dali.images.picture import Header, ImageFormat, Picture, ReadOptions, package
from l3dali.metadata import DICOM, dump_metadata

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    import pydicom

    from l3dali.codec import Image

# Kept data elements by the names of format.md 4.1; none of them names a patient.
_NAMES = {
    "RescaleSlope": "rescale_slope",
    "RescaleIntercept": "rescale_intercept",
    "PixelSpacing": "spacing",
}
_WINDOWS = ("WindowCenter", "WindowWidth")
# Of an enhanced file: those of its frame count before those of all frames.
_GROUPS = ("PerFrameFunctionalGroupsSequence", "SharedFunctionalGroupsSequence")


def _read_header(data: bytes) -> Header:
    """Size of the image in a DICOM file.

    Raises:
        ImageError: the file holds no image, several frames, a video, or samples that are not of
            8, 16 or 32 bits.
    """
    dataset = dataset_of(data, True)
    if "Rows" not in dataset or "Columns" not in dataset:
        raise ImageError("a DICOM file without an image")
    frames = frames_of(dataset)
    syntax = dataset.file_meta.TransferSyntaxUID.name
    if frames != 1 or "MPEG" in syntax or "HEVC" in syntax:
        what = f"a DICOM file of {frames} frames" if frames != 1 else "a video in a DICOM file"
        raise ImageError(f"{what}; L3 holds single images")
    bits = dataset.BitsAllocated
    if bits not in (8, 16, 32):
        raise ImageError(f"DICOM samples of {bits} bits are not supported; 8, 16 and 32 are")
    is_palette = dataset.PhotometricInterpretation == "PALETTE COLOR"
    channels = 4 if is_palette else dataset.SamplesPerPixel
    size = dataset.Columns, dataset.Rows, channels, 2 if is_palette else bits // 8
    return Header.of("dicom", *size, peak=4)


def _read(data: bytes, options: ReadOptions) -> Picture:
    """The samples of the first frame: not rescaled, YCbCr as RGB, without bits of overlays.

    `palette` "rgb" expands palettes.

    Raises:
        ImageError: a palette or a Modality LUT that cannot be kept, or an unknown keyword.
        Exception: of pydicom and its plugins, for damaged files.
    """
    dataset = dataset_of(data)
    check_keywords(options.dicom_tags)
    pixels = samples_of(dataset)
    kept = _modality_lut(dataset, pixels)
    is_palette = dataset.PhotometricInterpretation == "PALETTE COLOR"
    if is_palette:
        if options.palette == "index":
            raise ImageError("the palette of a DICOM file cannot be kept; use palette rgb")
        from pydicom.pixels import apply_color_lut

        pixels = apply_color_lut(pixels, dataset)
    metadata, dropped = _elements(dataset, kept, options.dicom_tags)
    stored = dataset.PhotometricInterpretation
    metadata[DICOM]["PhotometricInterpretation"] = "RGB" if pixels.ndim == 3 else stored
    remarks = tuple(f"damaged metadata was dropped: DICOM {name}" for name in dropped)
    icc = dataset.get("ICCProfile")
    return Picture(pixels, icc=icc, metadata=metadata, expanded=is_palette, remarks=remarks)


def kept_of(dataset: pydicom.FileDataset, tags: Collection[str]) -> dict[str, Any]:
    """The pairs for a file's data elements."""
    check_keywords(tags)
    return _elements(dataset, {}, tags)[0]


def _elements(
    dataset: pydicom.FileDataset, known: dict[str, Any], tags: Collection[str]
) -> tuple[dict[str, Any], list[str]]:
    """The pairs for data elements and values that are known, and names of damaged ones."""
    kept, dropped = dict(known), []
    for name in (*_NAMES, *_WINDOWS, *tags):
        value = element_of(dataset, name)
        try:
            dump_metadata({name: _plain(value)})
        except ValueError:  # as NaN
            dropped.append(name)
            continue
        if value not in (None, ""):
            kept[name] = _plain(value)
    metadata = {_NAMES[name]: kept.pop(name) for name in _NAMES if name in kept}
    return {**metadata, DICOM: kept}, dropped


def samples_of(dataset: pydicom.FileDataset, index: int | None = 0) -> Image:
    """The samples of a frame, or of all frames, without bits of overlays."""
    from pydicom.pixels import pixel_array

    try:
        pixels = pixel_array(dataset, index=index)
    except (NotImplementedError, RuntimeError) as error:
        syntax = dataset.file_meta.TransferSyntaxUID.name
        raise ImageError(f"cannot be read: no plugin of pydicom decodes its {syntax}") from error
    # JPEG 2000 and JPEG-LS may have overlays in the unused bits, and no signs there.
    unused = dataset.BitsAllocated - dataset.BitsStored
    samples: Image = pixels.astype(pixels.dtype.newbyteorder("="), copy=False)
    return samples << unused >> unused if unused and samples.dtype.kind != "f" else samples


def _modality_lut(dataset: pydicom.FileDataset, pixels: Image) -> dict[str, Any]:
    """Slope and intercept for the samples, where a table stands in their place.

    Raises:
        ImageError: the table is not linear.
    """
    if not dataset.get("ModalityLUTSequence"):
        return {}
    from pydicom.pixels import apply_modality_lut

    samples = np.unique(pixels)
    values = apply_modality_lut(samples, dataset).astype(float)
    slope = (values[-1] - values[0]) / max(1, int(samples[-1]) - int(samples[0]))
    intercept = values[0] - slope * samples[0]
    if not np.array_equal(slope * samples + intercept, values):
        raise ImageError(
            "a DICOM file with a Modality LUT that is not linear is not supported; apply it with "
            "pydicom.pixels.apply_modality_lut, and encode the array"
        )
    return {"RescaleSlope": float(slope), "RescaleIntercept": float(intercept)}


def element_of(dataset: pydicom.FileDataset, keyword: str, frame: int = 0) -> Any:
    """The value of a data element, of an enhanced file in the functional groups of a frame."""
    places = zip(_GROUPS, (frame, 0), strict=True)  # frames share the second
    groups = [(dataset.get(name) or ())[at : at + 1] for name, at in places]
    for group in (each for some in groups for each in some):
        for macro in group:
            if macro.VR == "SQ" and macro.value and keyword in macro.value[0]:
                return macro.value[0].get(keyword)
    return dataset.get(keyword)


def check_keywords(names: Collection[str]) -> None:
    """Raises ImageError for a name that is not a keyword, or if pydicom is missing."""
    for name in names:
        if _library("pydicom.datadict").tag_for_keyword(name) is None:
            raise ImageError(f"{name!r} is not a DICOM keyword, such as 'SliceThickness'")


def _library(name: str) -> Any:
    return package(name, "a DICOM file", "pydicom python-gdcm")


def frames_of(dataset: pydicom.FileDataset) -> int:
    """The number of images in a file."""
    return int(dataset.get("NumberOfFrames") or 1)


def dataset_of(data: bytes, without_pixels: bool = False) -> pydicom.FileDataset:
    """What pydicom reads; ImageError if it is not installed."""
    return _library("pydicom").dcmread(io.BytesIO(data), stop_before_pixels=without_pixels)


def _plain(value: Any) -> Any:
    """A value of a data element in types of JSON, else its text."""
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, MutableSequence):  # and no name of a person
        return [_plain(each) for each in value]
    return str(value)


FORMAT = ImageFormat(_read_header, _read)
