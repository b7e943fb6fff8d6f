"""OpenEXR files of one part, by the package OpenEXR: channels of one type, half, float or uint."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from l3dali.arguments import MAX_CHANNELS
from l3dali.errors import ImageError
from l3dali.images.picture import Header, ImageFormat, Picture, ReadOptions, Writer, package

if TYPE_CHECKING:
    from typing import Any

_ORDER = {name: i for i, name in enumerate("RGBYXZA")}  # alpha comes last
_USUAL = (["Y"], ["R", "G", "B"])  # names that need not be kept


def _library() -> Any:
    return package("OpenEXR", "an OpenEXR file", "OpenEXR")


def _open(data: bytes, *, header_only: bool) -> Any:
    file = _library().File(io.BytesIO(data), separate_channels=True, header_only=header_only)
    if len(file.parts) != 1:
        raise ImageError(f"an OpenEXR file of {len(file.parts)} parts; L3 holds single images")
    return file


def _read_header(data: bytes) -> Header:
    header = _open(data, header_only=True).header()
    (left, top), (right, bottom) = (map(int, corner) for corner in header["dataWindow"])
    width, height = right - left + 1, bottom - top + 1
    size = width, height, len(header["channels"]), 4
    return Header.of("exr", *size, peak=3, most=MAX_CHANNELS)


def _read(data: bytes, options: ReadOptions) -> Picture:
    """The channels in the order R, G, B, others by name, A; their names are in `band_names`."""
    channels = _open(data, header_only=False).channels()
    names = sorted(channels, key=lambda name: (_ORDER.get(name, 3.5), name))
    planes = [channels[name].pixels for name in names]
    kinds = {plane.dtype.name for plane in planes}
    if len(kinds) != 1:
        raise ImageError(f"an OpenEXR file of {' and '.join(sorted(kinds))} channels")
    if len({plane.shape for plane in planes}) != 1:
        raise ImageError("an OpenEXR file with subsampled channels is not supported")
    picture = Picture(planes[0] if len(planes) == 1 else np.stack(planes, axis=2))
    if names in _USUAL:
        return picture
    # Alpha of OpenEXR is premultiplied, so it is a band.
    bands = [0] * (len(names) - (3 if names[:3] == ["R", "G", "B"] else 1))
    marked = picture.with_extra_samples(bands) if len(names) <= 4 else picture
    metadata = {**(marked.metadata or {}), "band_names": names}
    return Picture(picture.pixels, metadata=metadata, has_alpha=False)


def _write(picture: Picture) -> bytes:
    openexr = _library()
    pixels = np.atleast_3d(picture.pixels)
    count = pixels.shape[2]
    names = (picture.metadata or {}).get("band_names")
    if not (isinstance(names, list) and len(names) == count and len(set(names)) == count):
        usual = {1: ["Y"], 3: list("RGB"), 4: list("RGBA")}
        names = usual.get(count) or [f"B{number:04}" for number in range(count)]
    planes = {name: np.ascontiguousarray(pixels[:, :, i]) for i, name in enumerate(names)}
    header = {"compression": openexr.ZIP_COMPRESSION, "type": openexr.scanlineimage}
    file = io.BytesIO()
    openexr.File(header, planes).write(file)
    return file.getvalue()


_WRITER = Writer(_write, range(1, MAX_CHANNELS + 1), ("float16", "float32", "uint32"))
FORMAT = ImageFormat(_read_header, _read, {".exr": _WRITER})
