"""Several images as a volume: pages of a TIFF, frames of a DICOM file, a DICOM series.

Files are read so only where an option asks for volumes.
"""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from l3dali.errors import ImageError
from l3dali.images import dicom
from l3dali.images.picture import Header, ImageFormat, Picture, ReadOptions
from l3dali.volumes import stacked, tile_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pydicom
    import tifffile

    from l3dali.codec import Image

_ZIP = b"PK\3\4"
_TOLERANCE = 0.01  # of a distance between slices
_AXES_OF_CHANNELS = "CS"
_PEAK = 5


def stack_format(format: str, data: bytes) -> str:
    """The name in `FORMATS` of a file that holds a stack; "" if it holds one image."""
    if data.startswith(_ZIP):
        return "dicom series"
    if format == "tiff":
        import tifffile

        with tifffile.TiffFile(io.BytesIO(data)) as file:
            sides, series = _sides(file)
            is_stack = math.prod(sides.values()) > math.prod(series.keyframe.shape)
    else:
        is_stack = format == "dicom" and dicom.frames_of(dicom.dataset_of(data, True)) > 1
    return f"{format} stack" if is_stack else ""


def zipped(folder: Path) -> bytes:
    """The files of a folder in an archive, which is read as a series."""
    import zipfile

    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.name != "DICOMDIR":
                archive.write(path, path.name)
    return memory.getvalue()


# ---- TIFF ----


def _sides(file: tifffile.TiffFile) -> tuple[dict[str, int], tifffile.TiffPageSeries]:
    """The sides of the first series by the names of axes, but those of 1."""
    series = file.series[0]
    names = zip(series.axes, series.shape, strict=True)
    return {name: side for name, side in names if side > 1 or name in "YX"}, series


def _order(sides: dict[str, int]) -> tuple[str, str]:
    """The axes of slices and of channels; "" for none."""
    others = [name for name in sides if name not in "YX"]
    channels = [name for name in others if name in _AXES_OF_CHANNELS]
    depths = [name for name in others if name not in _AXES_OF_CHANNELS] or channels[:1]
    channels = [name for name in channels if name not in depths]
    if len(depths) != 1 or len(channels) > 1:
        raise ImageError(f"a TIFF of axes {''.join(sides)} is not a volume with channels")
    return depths[0], "".join(channels)


def _read_tiff_header(data: bytes) -> Header:
    import tifffile

    with tifffile.TiffFile(io.BytesIO(data)) as file:
        sides, series = _sides(file)
        depth, channels = _order(sides)
        if series.dtype is None:
            raise ImageError("pages of different types are not a volume")
        shape, count = [sides[name] for name in (depth, "Y", "X")], sides.get(channels, 1)
        return Header.of_volume("tiff stack", shape, count, series.dtype.itemsize, peak=_PEAK)


def _read_tiff(data: bytes, _: ReadOptions) -> Picture:
    import tifffile

    with tifffile.TiffFile(io.BytesIO(data)) as file:
        sides, series = _sides(file)
        depth, channels = _order(sides)
        array = series.asarray().reshape(tuple(sides.values()))
        description = file.imagej_metadata or {}
    names = "".join(sides)
    array = array.transpose([names.index(name) for name in f"{depth}YX{channels}"])
    pairs = {"spacing": (1, 1, description["spacing"])} if "spacing" in description else {}
    return _picture(np.ascontiguousarray(array), {}, pairs)


def _picture(array: Image, metadata: dict[str, Any], geometry: dict[str, Any]) -> Picture:
    image, pairs = stacked(array, metadata, geometry, tile_of(array.shape)[0])
    return Picture(image, metadata=pairs, has_alpha=False)


# ---- DICOM ----


class _Slice(NamedTuple):
    """A slice and its place; LPS, in millimetres. What is not known is empty."""

    name: str
    pixels: Image
    position: tuple[float, ...]  # of the first pixel
    orientation: tuple[float, ...]  # of x, then of y
    spacing: tuple[float, ...]  # from row to row, and from column to column
    rescale: tuple[float, ...]  # slope and intercept

    def shared(self) -> dict[str, Any]:
        """What all slices of a volume share, by names for people."""
        return {
            "size": self.pixels.shape,
            "type": self.pixels.dtype,
            "spacing": self.spacing,
            "orientation": [round(number, 4) for number in self.orientation],
        }


def _dicom_header(format: str, dataset: pydicom.FileDataset, depth: int) -> Header:
    shape = depth, dataset.Rows, dataset.Columns
    channels, sample_bytes = int(dataset.SamplesPerPixel), dataset.BitsAllocated // 8
    return Header.of_volume(format, shape, channels, sample_bytes, peak=_PEAK)


def _read_frames_header(data: bytes) -> Header:
    dataset = dicom.dataset_of(data, True)
    return _dicom_header("dicom stack", dataset, dicom.frames_of(dataset))


def _read_frames(data: bytes, options: ReadOptions) -> Picture:
    dataset = dicom.dataset_of(data)
    pixels = dicom.samples_of(dataset, None)
    slices = [_slice(f"frame {i}", dataset, frame, i) for i, frame in enumerate(pixels)]
    if "PerFrameFunctionalGroupsSequence" not in dataset:  # there is one position, of the first
        slices = [each._replace(position=()) for each in slices]
    return _volume(slices, dicom.kept_of(dataset, options.dicom_tags))


def _read_series_header(data: bytes) -> Header:
    import zipfile

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
        if not names:
            raise ImageError("a folder without files is not a DICOM series")
        first = dicom.dataset_of(archive.read(names[0]), True)
    if "Rows" not in first:
        raise ImageError(f"{names[0]} holds no image; take it out of the folder")
    return _dicom_header("dicom series", first, len(names))


def _read_series(data: bytes, options: ReadOptions) -> Picture:
    import zipfile

    slices, series = [], set()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            dataset = dicom.dataset_of(archive.read(name))
            series.add(dataset.get("SeriesInstanceUID"))
            if len(series) > 1:
                raise ImageError(f"{name} belongs to another series than {archive.namelist()[0]}")
            slices.append(_slice(name, dataset, dicom.samples_of(dataset), 0))
    return _volume(slices, dicom.kept_of(dataset, options.dicom_tags))


def _slice(name: str, dataset: pydicom.FileDataset, pixels: Image, frame: int) -> _Slice:
    def numbers(keyword: str) -> tuple[float, ...]:
        value = dicom.element_of(dataset, keyword, frame)
        return () if value is None else tuple(map(float, np.atleast_1d(value)))

    return _Slice(
        name,
        pixels,
        numbers("ImagePositionPatient"),
        numbers("ImageOrientationPatient"),
        numbers("PixelSpacing"),
        (*(numbers("RescaleSlope") or (1.0,)), *(numbers("RescaleIntercept") or (0.0,))),
    )


def _volume(slices: Sequence[_Slice], metadata: dict[str, Any]) -> Picture:
    """The slices in the order of their places.

    Raises:
        ImageError: they differ in size, type, spacing or orientation, or one is missing.
    """
    first = slices[0]
    for each in slices[1:]:
        for what, value in each.shared().items():
            if value != first.shared()[what]:
                raise ImageError(f"{each.name} has another {what} than {first.name}")
    geometry: dict[str, Any] = {}
    if first.position and first.orientation:
        slices, geometry = _in_order(slices)
    rescales = [each.rescale for each in slices]
    names = ("rescale_slope", "rescale_intercept")
    gone = {"spacing"}
    if len(set(rescales)) > 1:
        geometry["rescale"] = rescales
        gone |= set(names)
    elif rescales[0] != (1.0, 0.0):
        metadata |= dict(zip(names, rescales[0], strict=True))
    metadata = {name: value for name, value in metadata.items() if name not in gone}
    return _picture(np.stack([each.pixels for each in slices]), metadata, geometry)


def _in_order(slices: Sequence[_Slice]) -> tuple[list[_Slice], dict[str, Any]]:
    orientation = np.reshape(slices[0].orientation, (2, 3))
    normal = np.cross(*orientation)
    for each in slices:
        if not each.position:
            raise ImageError(f"{each.name} has no position")
    places = [float(normal @ np.array(each.position)) for each in slices]
    order = np.argsort(places, kind="stable")
    ordered = [slices[i] for i in order]
    gaps = np.diff(np.array(places)[order])
    usual = float(np.median(gaps)) if len(gaps) else 1.0
    for i, gap in enumerate(gaps):
        if abs(gap - usual) > _TOLERANCE * abs(usual) + 1e-3 or gap <= 0:
            raise ImageError(
                f"slices are missing or repeated: {ordered[i + 1].name} is {gap:.3f} mm behind "
                f"{ordered[i].name}, and most slices are {usual:.3f} mm apart"
            )
    rows, columns = slices[0].spacing or (1.0, 1.0)
    axes = np.stack([*orientation, normal], axis=1)
    geometry = {
        "spacing": (columns, rows, usual),
        "origin": ordered[0].position,
        "direction": axes.reshape(-1),
    }
    return ordered, geometry


STACKS = {
    "tiff stack": ImageFormat(_read_tiff_header, _read_tiff),
    "dicom stack": ImageFormat(_read_frames_header, _read_frames),
    "dicom series": ImageFormat(_read_series_header, _read_series),
}
