"""Images of any format, read without loss, and turned or shrunk where that is asked for."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import numpy as np

from l3dali.arguments import (
    MAX_PIXELS_RANGE,
    SAMPLE_SCALARS,
    checked_number,
    unsupported_samples,
)
from l3dali.codec import DEFAULT_MAX_PIXELS
from l3dali.errors import ImageError, as_image_errors
from l3dali.images.formats import FORMATS, read_header
from l3dali.images.geometry import looks_like_labels, shrink, upright, upright_xmp
from l3dali.images.picture import Palette, ReadOptions
from l3dali.images.tiff import NO_DATA
from l3dali.metadata import (
    MAX_METADATA_BYTES,
    VOLUME,
    dump_metadata,
    tiff_of_metadata,
    without_geometry,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from l3dali.arguments import Layout
    from l3dali.images.picture import Header, Picture

for _library in ("imagecodecs", "pydicom"):  # else they log to stderr
    logging.getLogger(_library).addHandler(logging.NullHandler())


def read_picture(
    data: bytes,
    *,
    palette: Palette = "rgb",
    labels: bool = False,
    orient: bool = False,
    max_side: int | None = None,
    max_pixels: int = DEFAULT_MAX_PIXELS,
    keep_text: bool = False,
    refuse_labels: bool = False,
    layout: Layout | None = None,
    dicom_tags: Collection[str] = (),
    volumes: bool = False,
    header: Header | None = None,
) -> Picture:
    """Reads an image file of any known format, which is detected from the bytes.

    Gray of 1, 2 or 4 bits is scaled to 0 ... 255, except for labels; other samples are kept.
    Other options than these are those of `transcode`; it raises as `transcode`.

    * `keep_text`: keep text and resolution of a PNG, in `metadata`.
    * `refuse_labels`: refuse to shrink an image that looks like a label map but is not marked so.
    * `header`: the result of `read_header`, if it is known.
    """
    if palette not in get_args(Palette):
        raise ValueError(f"palette must be one of {', '.join(get_args(Palette))}, not {palette!r}")
    if max_side is not None:
        max_side = checked_number("max_side", max_side, MAX_PIXELS_RANGE)
    header = header or read_header(data, volumes=volumes)
    header.check_pixels(max_pixels)
    options = ReadOptions("index" if labels else palette, layout, dicom_tags, keep_text)
    with as_image_errors():
        picture = FORMATS[header.format].read(data, options)
        _check_metadata(picture)
        if orient:
            pixels, exif = upright(picture.pixels, picture.exif)
            if pixels is not picture.pixels:
                xmp, metadata = upright_xmp(picture.xmp), without_geometry(picture.metadata)
                picture = replace(picture, pixels=pixels, exif=exif, xmp=xmp, metadata=metadata)
    pixels = picture.pixels
    if pixels.dtype.type not in SAMPLE_SCALARS:
        raise ImageError(unsupported_samples(pixels.dtype))
    if pixels.ndim not in (2, 3) or pixels.size == 0:
        raise ImageError(f"cannot be read: an array of shape {pixels.shape}")
    if pixels.shape[2:] == (1,):
        pixels = pixels[:, :, 0]
    if max_side is not None:
        if VOLUME in (picture.metadata or {}):
            raise ImageError("a volume cannot be shrunk by max_side (in the command --max-side)")
        size = pixels.shape[:2]
        # A blend of a value for no data would count as data.
        has_no_data = NO_DATA in tiff_of_metadata(picture.metadata)
        is_nearest = labels or picture.has_numbers or has_no_data
        may_be_labels = refuse_labels and not is_nearest and (pixels.ndim == 2 or picture.expanded)
        if may_be_labels and max(size) > max_side and looks_like_labels(pixels):
            raise ImageError(
                "looks like a label map, whose class numbers --max-side would blend; use --labels "
                "to keep them, l3 encode --no-labels if it is a picture"
            )
        pixels = shrink(pixels, max_side, labels=is_nearest, has_alpha=picture.has_alpha)
        if pixels.shape[:2] != size:
            picture = replace(picture, metadata=without_geometry(picture.metadata))
    pixels = np.ascontiguousarray(pixels)
    return picture if pixels is picture.pixels else replace(picture, pixels=pixels)


def _check_metadata(picture: Picture) -> None:
    blocks = {"ICC profile": picture.icc, "EXIF block": picture.exif, "XMP packet": picture.xmp}
    for name, block in blocks.items():
        if block is not None and len(block) > MAX_METADATA_BYTES:
            raise ImageError(f"the {name} has more than {MAX_METADATA_BYTES >> 20} MiB")
    if picture.metadata is not None:
        try:
            dump_metadata(picture.metadata)
        except ValueError as error:
            raise ImageError(str(error)) from None
