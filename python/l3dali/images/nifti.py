"""NIfTI, by nibabel: volumes, whose header comes back byte for byte."""

from __future__ import annotations

import gzip
import math
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from l3dali.arguments import MAX_CHANNELS, SAMPLE_SCALARS, SAMPLE_TYPES, unsupported_samples
from l3dali.errors import ENDS_TOO_EARLY, ImageError
from l3dali.images.picture import Header, ImageFormat, Picture, ReadOptions, Writer, package
from l3dali.metadata import NIFTI, volume_of
from l3dali.volumes import slices_of, stacked, tile_of

if TYPE_CHECKING:
    from l3dali.codec import Image

_HEADERS = {348: "Nifti1Header", 540: "Nifti2Header"}
_NARROW = ("uint8", "int8", "uint16", "int16", "int32", "uint32", "float32")


def _read_header(data: bytes) -> Header:
    header, (i, j, k, channels) = _parsed(_start(data, 540))
    sample_bytes = header.get_data_dtype().itemsize
    size = Header.of_volume("nifti", (k, j, i), channels, sample_bytes, peak=4)
    return size._replace(read_bytes=size.read_bytes + len(data))


def _start(data: bytes, size: int) -> bytes:
    """The first bytes of a file that may be compressed."""
    if not data.startswith(b"\x1f\x8b"):
        return data[:size]
    return zlib.decompressobj(31).decompress(data, size)


def _parsed(start: bytes) -> tuple[Any, tuple[int, int, int, int]]:
    """The header, and the sides of axes i, j, k and of a fourth one.

    Raises:
        ImageError: the volume has more axes, or the samples are in a file of their own.
    """
    nibabel = package("nibabel", "a NIfTI file", "nibabel")
    sizes = {int.from_bytes(start[:4], order) for order in ("little", "big")}
    size = next(size for size in _HEADERS if size in sizes)
    header = getattr(nibabel, _HEADERS[size])(start[:size], check=False)
    if bytes(header["magic"].tobytes())[:2] != b"n+":
        raise ImageError("a NIfTI header without samples (.hdr) is not supported; use .nii")
    shape = tuple(map(int, header.get_data_shape()))
    while len(shape) > 4 and shape[-1] == 1:
        shape = shape[:-1]
    if not 1 <= len(shape) <= 4:
        raise ImageError(f"a NIfTI file of {len(shape)} axes; L3 holds three, and channels")
    i, j, k, channels = (*shape, 1, 1, 1)[:4]
    if min(i, j, k, channels) < 1:
        raise ImageError(f"cannot be read: a volume of shape {shape}")
    return header, (i, j, k, channels)


def _read(data: bytes, options: ReadOptions) -> Picture:
    """The volume as an image of its slices.

    Slope and intercept are not applied. Samples of types that L3 lacks become narrower integers
    where these have the same values.
    """
    header, shape = _parsed(_start(data, 540))
    offset, dtype = int(header["vox_offset"]), header.get_data_dtype()
    end = offset + math.prod(shape) * dtype.itemsize
    raw = _start(data, end)
    if len(raw) < end or offset < 348:
        raise ImageError(ENDS_TOO_EARLY)
    if dtype.kind not in "biuf":
        raise ImageError(unsupported_samples(dtype))
    array = np.frombuffer(raw, dtype, math.prod(shape), offset).reshape(shape[::-1])
    array = _narrowed(array.astype(dtype.newbyteorder("="), copy=False))
    array = array[0] if shape[3] == 1 else np.moveaxis(array, 0, -1)
    pairs: dict[str, Any] = {NIFTI: raw[:offset].hex()}
    slope, intercept = header.get_slope_inter()
    if slope is not None:
        pairs |= {"rescale_slope": float(slope), "rescale_intercept": float(intercept)}
    geometry = {"affine": header.get_best_affine()}
    tile = tile_of(array.shape, labels=options.palette == "index")
    image, metadata = stacked(array, pairs, geometry, tile[0])
    return Picture(image, metadata=metadata, has_alpha=False)


def _narrowed(array: Image) -> Image:
    """The same numbers in a type of L3, where that has all of them bit for bit."""
    if array.dtype.type in SAMPLE_SCALARS:
        return array
    bits = f"u{array.dtype.itemsize}"
    with np.errstate(invalid="ignore"):
        for name in _NARROW:
            narrow = array.astype(name)
            if np.array_equal(narrow.astype(array.dtype).view(bits), array.view(bits)):
                return narrow
    raise ImageError(unsupported_samples(array.dtype))


def _write(picture: Picture) -> bytes:
    import nibabel

    volume = volume_of(picture.metadata, *picture.pixels.shape[:2])
    if volume is None:
        raise ImageError("an image is not a volume; use .png or .tif")
    array = slices_of(picture.pixels, volume)
    stored = (picture.metadata or {}).get(NIFTI)
    start = bytes.fromhex(stored or "")
    header, shape = _parsed(start) if start else (None, (0,))
    if header is None or (array.ndim == 4 and picture.channels != shape[-1]):
        moved = array.transpose(2, 1, 0, *range(3, array.ndim))
        return bytes(nibabel.Nifti1Image(moved, volume.affine).to_bytes())
    array = array if array.ndim == 3 else np.moveaxis(array, -1, 0)
    return start + array.astype(header.get_data_dtype()).tobytes()


_WRITER = Writer(_write, range(1, MAX_CHANNELS + 1), SAMPLE_TYPES)
_COMPRESSED = _WRITER._replace(write=lambda picture: gzip.compress(_write(picture), 6, mtime=0))
FORMAT = ImageFormat(_read_header, _read, {".nii": _WRITER, ".nii.gz": _COMPRESSED})
