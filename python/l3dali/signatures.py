"""Signatures, suffixes and names of image formats."""

from __future__ import annotations

import os
import re
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

L3_SIGNATURE = b"\x8bL3F\r\n\x1a\n"
HANDLE_SIGNATURE = b"\x8cL3lazy\n"  # of src/files/file_handle.cc
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RIFF = b"RIFF"  # and WEBP behind its size
JPEGXL_CODESTREAM = b"\xff\x0a"
JPEG2000_CODESTREAM = b"\xff\x4f\xff\x51"
_NETPBM = (*(b"P%d" % number for number in range(1, 8)), b"Pf\n", b"PF\n")
SIGNATURES: dict[str, tuple[bytes, ...]] = {
    "l3": (L3_SIGNATURE,),
    "png": (PNG_SIGNATURE,),
    "jpeg": (b"\xff\xd8\xff",),
    "webp": (_RIFF,),
    "jpegxl": (JPEGXL_CODESTREAM, b"\0\0\0\x0cJXL \r\n\x87\n"),
    "jpeg2000": (JPEG2000_CODESTREAM, b"\0\0\0\x0cjP  \r\n\x87\n"),
    "bmp": (b"BM",),
    "tiff": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    "netpbm": _NETPBM,
    "npy": (b"\x93NUMPY",),
    "exr": (b"v/1\x01",),
}
_DICOM = b"DICM"
HEAD_BYTES = 512  # enough for `format_of`
_NIFTI_SIZES = (b"\x5c\1\0\0", b"\0\0\1\x5c", b"\x1c\2\0\0", b"\0\0\2\x1c")  # of headers
_SHORT_SIGNATURES = (b"BM", JPEGXL_CODESTREAM, *_NETPBM)
# Longer patterns for short signatures: reserved bytes and size of BMP; sizes or words of netpbm.
# Text may begin like netpbm in digits.
_SURE = (
    rb"(?s:BM.{4}\0{4}.{4})[\x0c(48@l|]\0|P[4-6]\n(?:#|\d+\s+\d)|P7\n(?:#|[A-Z]+ )|P[Ff]\n\d+\s+\d"
)
# By `format_of`: the name for people, and the suffixes, the usual one first.
_NAMES = {
    "png": ("PNG", ".png"),
    "jpeg": ("JPEG", ".jpg", ".jpeg"),
    "webp": ("WebP", ".webp"),
    "jpegxl": ("JPEG XL", ".jxl"),
    "jpeg2000": ("JPEG 2000", ".jp2", ".j2k"),
    "bmp": ("BMP", ".bmp"),
    "tiff": ("TIFF", ".tif", ".tiff"),
    "netpbm": ("netpbm", ".ppm", ".pgm", ".pam", ".pbm", ".pnm", ".pfm"),
    "npy": ("NumPy", ".npy"),
    "dicom": ("DICOM", ".dcm"),
    "nifti": ("NIfTI", ".nii.gz", ".nii"),
    "exr": ("OpenEXR", ".exr"),
}
FORMAT_OF_SUFFIX = {each: format for format, (_, *all) in _NAMES.items() for each in all}
READ_SUFFIXES = FORMAT_OF_SUFFIX.keys()
IMAGE_SUFFIXES = READ_SUFFIXES | {".avif", ".gif", ".heic", ".heif", ".ico", ".tga"}
# Formats that are not supported.
_NOT_READ = {"GIF": (b"GIF87a", b"GIF89a")}
_BRANDS_NOT_READ = {
    b"avif": "AVIF",
    b"avis": "AVIF",
    b"heic": "HEIC",
    b"heix": "HEIC",
    b"mif1": "HEIC",
}


def suffix_of(name: str | os.PathLike[str]) -> str:
    """The suffix of a file's name, as ".png" or ".nii.gz", or ""."""
    base = os.fspath(name).rpartition("/")[2]
    if base[-len(".nii.gz") :].lower() == ".nii.gz" != base.lower():
        return base[-len(".nii.gz") :]
    stem, dot, suffix = base.rpartition(".")
    return dot + suffix if stem.strip(".") else ""  # as os.path.splitext, which is slower


def format_of(data: bytes) -> tuple[str, bool]:
    """The format by the first `HEAD_BYTES`, such as "png", "l3" or "", and whether it is certain.

    It is not certain for signatures so short that other data may begin alike.
    """
    if data[128:132] == _DICOM:  # after any data, such as the beginning of a TIFF
        return "dicom", True
    if data.startswith(_RIFF) and data[8:12] != b"WEBP":
        return "", False
    for name, signatures in SIGNATURES.items():
        for signature in signatures:
            if data.startswith(signature):
                return name, signature not in _SHORT_SIGNATURES or bool(re.match(_SURE, data))
    head = data[:4]
    if head.startswith(b"\x1f\x8b\x08"):
        try:
            head = zlib.decompressobj(31).decompress(data[:HEAD_BYTES], 4)
        except zlib.error:
            head = b""
    return ("nifti", data[344:346] in (b"n+", b"ni")) if head in _NIFTI_SIZES else ("", False)


def format_not_read(data: bytes) -> str:
    """The name of a known format that is not supported; "" for others."""
    if data[4:8] == b"ftyp":
        return _BRANDS_NOT_READ.get(bytes(data[8:12]), "")
    return next((name for name, begin in _NOT_READ.items() if data.startswith(begin)), "")


def remedy_for_other(data: bytes) -> str:
    """The format of a file that is not L3, and how to convert it; "" if it is unknown."""
    if data.startswith(HANDLE_SIGNATURE):
        return "a lazy handle: use lazy=False, or the operators of fn.l3"
    name, is_sure = format_of(data)
    if name in _NAMES:
        what = f"a {_NAMES[name][0]} file, not an L3 image"
        if not is_sure:
            what = f"not an L3 image, perhaps a {_NAMES[name][0]} file"
        return f"{what}: convert it with l3 encode"
    if other := format_not_read(data):
        article = "an" if other[0] in "AO" else "a"
        return f"{article} {other} file, not an L3 image: convert it to PNG, then with l3 encode"
    return ""


_UNREAD_SUFFIXES = IMAGE_SUFFIXES - READ_SUFFIXES


def unread_images(others: Mapping[str, int], what: str) -> list[str]:
    """A remark on other files, counted by suffix, that are images which are not supported."""
    counts = [f"{others[suffix]} {suffix}" for suffix in sorted(_UNREAD_SUFFIXES & others.keys())]
    if not counts:
        return []
    return [f"images among the files {what}: {', '.join(counts)}; convert them to PNG first"]
