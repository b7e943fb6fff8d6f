"""From images of other formats to L3, metadata kept."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from l3dali import codec
from l3dali.arguments import DEFAULT_THREADS, checked_max_pixels
from l3dali.errors import ImageError
from l3dali.metadata import (
    extra_samples,
    of_channels,
    png_of_metadata,
    tiff_of_metadata,
    volume_of,
)
from l3dali.signatures import format_of
from l3dali.volumes import slices_of, tile_of, with_sample

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Any

    from typing_extensions import Buffer

    from l3dali.arguments import Layout
    from l3dali.codec import Image
    from l3dali.images.picture import Palette, Picture

# Key-value pair of results: the suffix of a lossy source.
LOSSY_SUFFIX_KEY = "lossy_source_suffix"


def transcode(
    data: Buffer,
    *,
    palette: Palette = "rgb",
    labels: bool = False,
    orient: bool = False,
    max_side: int | None = None,
    layout: Layout | None = None,
    dicom_tags: Collection[str] = (),
    volumes: bool = False,
    max_pixels: int | None = codec.DEFAULT_MAX_PIXELS,
    coding: codec.FileCoding | None = None,
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
        data: the bytes of a PNG, TIFF, JPEG, WebP, BMP, netpbm, JPEG XL, JPEG 2000, .npy, OpenEXR
            or DICOM file.
        palette: "rgb" stores the colours of palette images, "index" the numbers of their entries
            and the palette. Gray of 1, 2 or 4 bits is scaled to 255 by "rgb", kept by "index".
        labels: samples are numbers of classes; includes palette="index".
        orient: turn the image as its EXIF orientation says, and clear that.
        max_side: shrink larger images to this many pixels on the longer side: antialiased, or by
            the nearest pixel for labels, palette entries and TIFF files with a value for no data.
        layout: of a .npy file, as in `encode`.
        dicom_tags: keywords of more data elements of a DICOM file to keep in `metadata`, such as
            "SliceThickness".
        volumes: store the pages of a TIFF, or the frames of a DICOM file, as one volume: see
            `encode_volume`. NIfTI files always are volumes.
        max_pixels: limit of the image, checked before decoding; None: 2^31.
        coding: as in `encode`; or "jpeg", which keeps the coefficients of JPEG files. Such results
            are smaller than the file, and `restore_jpeg` gives it back. Other images are coded as
            "rans", and so are JPEG files with `labels`, `orient` or `max_side`. None is "jpeg"
            where that coding supports the file, else "rans".
        effort: as in `encode`.
        threads: as in `encode`.
        tile: as in `encode`.

    Raises:
        ImageError: the file is damaged, too large, holds several images, or cannot be kept exactly,
            or `coding` is "jpeg", which does not support this JPEG file.
        TypeError, ValueError: an argument is not valid.
    """
    if isinstance(data, (str, os.PathLike)):
        raise TypeError("transcode takes the bytes of a file, not its path")
    content = data if isinstance(data, bytes) else memoryview(data).tobytes()
    limit = checked_max_pixels(max_pixels)
    keeps_pixels = not (labels or orient or max_side is not None)
    if (kept := coding_of(content, coding, keeps_pixels=keeps_pixels)) == "jpeg":
        try:
            return encode_jpeg(content, max_pixels=limit, threads=threads, tile=tile)[0]
        except JpegRefusedError:
            if coding is not None:
                raise
            kept = "rans"
    from l3dali.images.reading import read_picture  # `import l3dali` loads no formats

    picture = read_picture(
        content,
        palette=palette,
        labels=labels,
        orient=orient,
        max_side=max_side,
        layout=layout,
        dicom_tags=dicom_tags,
        volumes=volumes,
        max_pixels=limit,
    )
    return encode_picture(
        picture, labels=labels, coding=kept, effort=effort, threads=threads, tile=tile
    )


class JpegRefusedError(ImageError):
    """Coding "jpeg" does not support a JPEG file. `reason` is a sentence that begins with "it"."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not supported by coding jpeg: {reason}; coding rans stores its pixels")
        self.reason = reason


def jpeg_suffix(info: codec.Info) -> str:
    """The suffix of the JPEG file that `restore_jpeg` gives; "" if it gives none."""
    if not info.restores_jpeg:
        return ""
    suffix = ""
    with suppress(ValueError):
        suffix = str((info.metadata or {}).get(LOSSY_SUFFIX_KEY, ""))
    return f".{suffix}" if suffix.isalnum() else ".jpg"


def suffix_beyond_png(info: codec.Info) -> str:
    """The suffix of a volume's file, or of an image that PNG cannot hold; else ""."""
    if info.volume is None:
        return "" if info.dtype.name in ("uint8", "uint16") and info.channels <= 4 else ".tif"
    with suppress(ValueError):  # damaged metadata
        return ".nii.gz" if info.volume.pairs.keys() & {"affine", "direction"} else ".tif"
    return ".tif"


def suffix_pairs(suffix: str) -> dict[str, str] | None:
    """The key-value pairs that keep the suffix of a JPEG file; none for ".jpg"."""
    return None if suffix in ("", ".jpg") else {LOSSY_SUFFIX_KEY: suffix[1:]}


def coding_of(
    data: bytes, coding: codec.FileCoding | None, *, keeps_pixels: bool
) -> codec.FileCoding:
    """The coding of a file's result: "jpeg" is for JPEG files whose pixels do not change."""
    if coding not in (None, "jpeg"):
        return coding
    return "jpeg" if keeps_pixels and format_of(data)[0] == "jpeg" else "rans"


def encode_jpeg(
    data: bytes, *, max_pixels: int = codec.MAX_PIXELS, **options: Any
) -> tuple[bytes, bool]:
    """The L3 file of a JPEG file, checked, and whether `restore_jpeg` gives the same bytes.

    If it does not, the pixels are those that Pillow decodes. `options` are those of
    `codec.encode_jpeg`.

    Raises:
        JpegRefusedError: the coding does not support the file.
        ImageError: the file is damaged or too large.
    """
    from l3dali.images.formats import read_header
    from l3dali.images.reading import read_picture

    read_header(data).check_pixels(max_pixels)
    encoded, answer = codec.encode_jpeg(data, **options)
    if encoded is None:
        raise JpegRefusedError(str(answer))
    if not answer:
        pixels = codec.decode(encoded, max_pixels=None, threads=options.get("threads", 1))
        if not np.array_equal(pixels, read_picture(data, max_pixels=max_pixels).pixels):
            raise JpegRefusedError("its pixels would differ from Pillow's")
    return encoded, bool(answer)


def encode_picture(picture: Picture, *, labels: bool = False, **options: Any) -> bytes:
    """Encodes a picture with its metadata; options and errors are those of `encode`."""
    is_labels = labels or picture.has_numbers
    metadata = picture.metadata
    if volume := volume_of(metadata, *picture.pixels.shape[:2]):
        shape = (volume.depth, volume.rows, volume.width)
        options["tile"] = options.get("tile") or tile_of(
            shape, labels=is_labels, coding=options.get("coding")
        )
        if is_labels:
            metadata = with_sample(slices_of(picture.pixels, volume), metadata or {})
    return codec.encode(
        picture.pixels,
        layout="HWC",
        labels=is_labels,
        icc=picture.icc,
        exif=picture.exif,
        palette=picture.palette,
        xmp=picture.xmp,
        metadata=metadata,
        **options,
    )


def decoded_picture(
    pixels: Image, info: codec.Info, channels: Sequence[int] | None = None
) -> Picture:
    """The picture of a decoded L3 file, for `write_picture`.

    `channels` are those that were decoded, None for all. A part of them has neither profile nor
    palette.
    """
    from l3dali.images.picture import Picture

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
