"""All formats of image files: their sizes, their coding, and writing them without loss."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from l3dali.errors import ImageError, as_image_errors
from l3dali.images import (
    bmp,
    dicom,
    exr,
    jpeg,
    jpeg2000,
    jpegxl,
    netpbm,
    nifti,
    npy,
    png,
    tiff,
    webp,
)
from l3dali.images.stacks import STACKS, stack_format
from l3dali.signatures import format_not_read, format_of

if TYPE_CHECKING:
    from l3dali.images.picture import Header, ImageFormat, Picture

_MODULES = (png, tiff, webp, bmp, netpbm, jpegxl, jpeg2000, jpeg, npy, dicom, nifti, exr)
# By the names of `format_of`, which the modules have.
FORMATS: dict[str, ImageFormat] = {m.__name__.rpartition(".")[2]: m.FORMAT for m in _MODULES}
_TIFFS = (".tif", ".tiff")
WRITERS = {suffix: writer for each in FORMATS.values() for suffix, writer in each.writers.items()}
FORMATS |= STACKS


def read_header(data: bytes, *, volumes: bool = False) -> Header:
    """Reads the size of an image of any known format; decodes nothing.

    A file of a few bytes can claim an image that takes all memory. With `volumes` several images in
    a file are a volume.

    Raises:
        ImageError: the format is unknown, the header is damaged, or the image is not supported:
            several pages, or more than 4 channels (of TIFF 4096).
    """
    format, _ = format_of(data)
    with as_image_errors():
        format = (volumes and stack_format(format, data)) or format
        if format not in FORMATS:
            raise ImageError(_why_unknown(format, data))
        header = FORMATS[format].read_header(data)
    if header.width < 1 or header.height < 1:
        raise ImageError(f"cannot be read: {header.width} x {header.height} pixels")
    return header


def _why_unknown(format: str, data: bytes) -> str:
    if format == "l3":
        return "already an L3 file"
    if not data:
        return "the file is empty"
    other = format_not_read(data)
    unsupported = f"{other} files are not supported; convert it to PNG first"
    return unsupported if other else "not an image of a known format"


def lossy_format(data: bytes) -> str | None:
    """The name of the lossy format of an image file; None if it is lossless or unknown."""
    format = FORMATS.get(format_of(data)[0])
    with suppress(ValueError, IndexError, struct.error):  # A damaged one counts as lossless.
        return format.lossy_name(data) if format else None
    return None


def write_picture(picture: Picture, suffix: str) -> bytes:
    """The bytes of a lossless image file of the format that `suffix` (".png") names.

    PNG and WebP keep ICC, EXIF and XMP, JPEG 2000 keeps ICC of RGB and gray, TIFF keeps ICC, XMP,
    EXIF but for its directories, and the TIFF tags of `metadata`, PNG keeps palettes and the PNG
    chunks of `metadata`. TIFF and .npy hold all samples, OpenEXR floats and uint32, PFM float32.

    Raises:
        ImageError: the format cannot hold the picture, or its metadata is damaged.
    """
    channels, bits = picture.channels, 8 * picture.pixels.dtype.itemsize
    writer = WRITERS[suffix]
    dtype = picture.pixels.dtype
    is_float = picture.floats is not None or dtype.kind == "f"
    is_held = dtype.name in writer.types and (picture.floats is None or suffix in _TIFFS)
    if not is_held and (is_float or dtype.kind == "i"):
        what = "floats" if is_float else "signed samples"
        raise ImageError(f"{suffix} cannot hold {what}; use .tif")
    if not is_held or channels not in writer.channels:
        many = f"{channels} channel" if channels == 1 else f"{channels} channels"
        able = ".png" if channels in WRITERS[".png"].channels and bits < 32 else ".tif"
        raise ImageError(f"{suffix} cannot hold {many} of {bits} bits; use {able}")
    if max(picture.pixels.shape[:2]) > writer.longest:
        raise ImageError(f"{suffix} has sides of at most {writer.longest} pixels; use .tif")
    try:
        return writer.write(picture)
    except ValueError as error:  # of damaged metadata
        raise ImageError(str(error)) from None
