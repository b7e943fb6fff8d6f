"""From images of other formats to L3, metadata kept."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.arguments import DEFAULT_THREADS, checked_max_pixels
from l3dali.images.picture import Picture
from l3dali.images.reading import read_picture
from l3dali.metadata import extra_samples, of_channels, png_of_metadata, tiff_of_metadata

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Any

    from typing_extensions import Buffer

    from l3dali.arguments import Layout
    from l3dali.codec import Image
    from l3dali.images.picture import Palette


def transcode(
    data: Buffer,
    *,
    palette: Palette = "rgb",
    labels: bool = False,
    orient: bool = False,
    max_side: int | None = None,
    layout: Layout | None = None,
    dicom_tags: Collection[str] = (),
    max_pixels: int | None = codec.DEFAULT_MAX_PIXELS,
    coding: codec.Coding = codec.DEFAULT_CODING,
    effort: int = codec.DEFAULT_EFFORT,
    threads: int = DEFAULT_THREADS,
    tile: tuple[int, int] | None = None,
) -> bytes:
    """Converts an image file to L3, as `l3 encode` does.

    Pixels, ICC, EXIF and XMP are kept, and in `metadata` some tags of TIFF files: GeoTIFF,
    resolution and description.

    Pillow, tifffile and imagecodecs decode the file in this process. `l3 encode` and `l3 convert`
    limit the memory of such processes.

    Args:
        data: the bytes of a PNG, TIFF, JPEG, WebP, BMP, netpbm, JPEG XL, JPEG 2000, .npy or DICOM
            file.
        palette: "rgb" stores the colours of palette images, "index" the numbers of their entries
            and the palette. Gray of 1, 2 or 4 bits is scaled to 255 by "rgb", kept by "index".
        labels: samples are numbers of classes; includes palette="index".
        orient: turn the image as its EXIF orientation says, and clear that.
        max_side: shrink larger images to this many pixels on the longer side: antialiased, or by
            the nearest pixel for labels, palette entries and TIFF files with a value for no data.
        layout: of a .npy file, as in `encode`.
        dicom_tags: keywords of more data elements of a DICOM file to keep in `metadata`, such as
            "SliceThickness".
        max_pixels: limit of the image, checked before decoding; None: 2^31.
        coding: as in `encode`.
        effort: as in `encode`.
        threads: as in `encode`.
        tile: as in `encode`.

    Raises:
        ImageError: the file is damaged, too large, holds several images, or cannot be kept exactly.
        TypeError, ValueError: an argument is not valid.
    """
    if isinstance(data, (str, os.PathLike)):
        raise TypeError("transcode takes the bytes of a file, not its path")
    picture = read_picture(
        data if isinstance(data, bytes) else memoryview(data).tobytes(),
        palette=palette,
        labels=labels,
        orient=orient,
        max_side=max_side,
        layout=layout,
        dicom_tags=dicom_tags,
        max_pixels=checked_max_pixels(max_pixels),
    )
    return encode_picture(
        picture, labels=labels, coding=coding, effort=effort, threads=threads, tile=tile
    )


def encode_picture(picture: Picture, *, labels: bool = False, **options: Any) -> bytes:
    """Encodes a picture with its metadata; options and errors are those of `encode`."""
    return codec.encode(
        picture.pixels,
        layout="HWC",
        labels=labels or picture.has_numbers,
        icc=picture.icc,
        exif=picture.exif,
        palette=picture.palette,
        xmp=picture.xmp,
        metadata=picture.metadata,
        **options,
    )


def decoded_picture(
    pixels: Image, info: codec.Info, channels: Sequence[int] | None = None
) -> Picture:
    """The picture of a decoded L3 file, for `write_picture`.

    `channels` are those that were decoded, None for all. A part of them has neither profile nor
    palette.
    """
    try:
        metadata, is_damaged = info.metadata, info.palette_is_damaged
        tiff_of_metadata(metadata)
        png_of_metadata(metadata)
    except ValueError:
        metadata, is_damaged = None, True
    picture = Picture(
        pixels,
        icc=info.icc,
        exif=info.exif,
        palette=info.palette,
        xmp=info.xmp,
        metadata=metadata,
        is_damaged=is_damaged,
        has_alpha=info.channels in (2, 4) and extra_samples(metadata) is None,
    )
    if channels is None:
        return picture
    return replace(
        picture,
        icc=None,
        palette=None,
        metadata=of_channels(metadata, channels, info.channels),
        has_alpha=picture.has_alpha and channels[-1] == info.channels - 1,
    )
