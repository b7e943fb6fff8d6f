"""The key-value pairs of L3 files, as JSON."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Volume", "dump_metadata", "load_metadata"]

MAX_METADATA_BYTES = 2**24  # of a block; the largest ICC profiles have 1 to 4 MiB
_MOST_LEVELS = 200  # of nested lists and mappings


def dump_metadata(metadata: Mapping[str, Any]) -> bytes:
    """The pairs as JSON in UTF-8 (docs/format.md 4).

    Args:
        metadata: None, bool, int, finite float (as "no_data" any), str, lists, tuples and mappings,
            by names; NumPy's numbers and arrays become Python's.

    Raises:
        TypeError: a name is not a string, or a value has another type.
        ValueError: a number is not finite, a text cannot be UTF-8, lists and mappings are nested
            more than 200 deep, or the JSON is larger than 16 MiB.
    """
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a mapping, not {type(metadata).__name__}")
    no_data = metadata.get(NO_DATA)
    if isinstance(no_data, (float, np.floating)) and not math.isfinite(no_data):
        metadata = {**metadata, NO_DATA: str(float(no_data))}  # JSON has no such numbers
    text = json.dumps(
        _plain(metadata, _MOST_LEVELS), ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"metadata: a text cannot be written as UTF-8: {error.reason}") from None
    if len(data) > MAX_METADATA_BYTES:
        raise ValueError(_TOO_LONG)
    return data


_TOO_LONG = f"metadata exceeds {MAX_METADATA_BYTES} bytes as JSON"


def load_metadata(data: bytes) -> dict[str, Any]:
    """The pairs in JSON, the inverse of `dump_metadata`.

    Raises:
        ValueError: the data is not a JSON object in UTF-8 within the limits of `dump_metadata`.
    """
    if len(data) > MAX_METADATA_BYTES:
        raise ValueError(f"the metadata has {len(data)} bytes, more than {MAX_METADATA_BYTES}")
    try:
        pairs = json.loads(data.decode())
        if not isinstance(pairs, dict):
            raise ValueError("it is JSON, but not an object")
        if pairs.get(NO_DATA) in _NOT_FINITE:
            pairs[NO_DATA] = float(pairs[NO_DATA])
        dump_metadata(pairs)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the metadata is damaged: {error}") from None
    return pairs


def _plain(value: Any, levels: int) -> Any:
    """The value in Python's own types, nested at most `levels` deep."""
    if isinstance(value, (np.generic, np.ndarray)):
        if value.size > MAX_METADATA_BYTES:
            raise ValueError(_TOO_LONG)
        value = value.tolist()
    if value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"metadata: {value} is not JSON; omit it, or write it as text")
        return value
    if isinstance(value, (Mapping, Sequence)) and levels == 0:
        raise ValueError("metadata is nested too deep, or contains itself")
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise TypeError(f"metadata: names must be strings, not {name!r}")
        return {str(name): _plain(each, levels - 1) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [_plain(each, levels - 1) for each in value]
    raise TypeError(
        f"metadata: {type(value).__name__} is not JSON; use numbers, text, lists or mappings"
    )


# Names of pairs.
VOLUME = "volume"  # slices, one below the other
NIFTI = "nifti"  # the header of a NIfTI file and its extensions, in hexadecimal digits
NO_DATA = "no_data"  # the value of missing samples
_NOT_FINITE = ("nan", "inf", "-inf")
TIFF = "tiff"  # tags of TIFF files
PNG = "png"  # chunks of PNG files
DICOM = "dicom"  # data elements of DICOM files, by keyword
FLOATS = "floats"  # "float16" or "float32": the type whose bits the samples are
PNG_RESOLUTION = b"pHYs"
_PHYS_BYTES = 9
PNG_TEXTS = frozenset({b"tEXt", b"zTXt", b"iTXt"})
KEPT_PNG_CHUNKS = PNG_TEXTS | {PNG_RESOLUTION}


@dataclass(frozen=True)
class Volume:
    """The volume that an image holds, by its metadata. Sizes are in voxels."""

    depth: int  #: number of slices
    height: int
    width: int
    rows: int  #: of the image, for each slice: those behind `height` are padding
    metadata_json: bytes = field(hash=False, repr=False)  #: of the image

    @property
    def pairs(self) -> Mapping[str, Any]:
        """The value of "volume" in the metadata; ValueError if the metadata is damaged."""
        pairs: Mapping[str, Any] = load_metadata(self.metadata_json)[VOLUME]
        return pairs

    @property
    def shape(self) -> tuple[int, int, int]:
        """(D, H, W): axes z, y and x."""
        return self.depth, self.height, self.width

    @property
    def affine(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """4 x 4, from (x, y, z, 1) of a voxel to millimetres, RAS; as nibabel's.

        What was not stored is 1 (spacing, direction) or 0 (origin).
        """
        pairs = self.pairs
        if "affine" in pairs:
            return np.array(pairs["affine"], float).reshape(4, 4)
        affine = np.eye(4)
        direction = np.array(pairs.get("direction", np.eye(3)), float).reshape(3, 3)
        affine[:3, :3] = direction * np.array(pairs.get("spacing", (1, 1, 1)), float)
        affine[:3, 3] = pairs.get("origin", (0, 0, 0))
        has_place = pairs.keys() & {"direction", "spacing", "origin"}
        return np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine if has_place else affine  # LPS to RAS

    @property
    def voxels(self) -> dict[int, np.ndarray[Any, np.dtype[np.int64]]]:
        """Of a label volume: (N, 3), z, y and x of some voxels of each class but 0."""
        sample = self.pairs.get("voxels", {})
        return {
            int(number): np.stack(np.unravel_index(np.cumsum(gaps), self.shape), axis=1)
            for number, gaps in sample.items()
        }


def volume_of(metadata: Mapping[str, Any] | None, height: int, width: int) -> Volume | None:
    """The volume in an image of `height` x `width` pixels; None if it holds none."""
    pairs = (metadata or {}).get(VOLUME)
    return None if pairs is None else volume_in(dump_metadata({VOLUME: pairs}), height, width)


_VOLUME = rb'"volume"\s*:\s*\{\s*"depth"\s*:\s*(\d{1,10})\s*,\s*"height"\s*:\s*(\d{1,10})'


def volume_in(metadata_json: bytes | None, height: int, width: int) -> Volume | None:
    """As `volume_of`, without reading the rest; the rule of src/output/volume.cc."""
    if metadata_json is None or not (found := re.search(_VOLUME, metadata_json)):
        return None
    depth, rows = map(int, found.groups())
    if depth < 1 or height % depth or not 0 < rows * depth <= height:
        return None
    return Volume(depth, rows, width, height // depth, metadata_json)


class TiffTag(NamedTuple):
    """A tag as a TIFF file holds it."""

    type: str  # its name in TIFF 6.0
    data: bytes  # the bytes of its values, little-endian


_NAMES = (
    *("BYTE", "ASCII", "SHORT", "LONG", "RATIONAL", "SBYTE", "UNDEFINED", "SSHORT", "SLONG"),
    *("SRATIONAL", "FLOAT", "DOUBLE"),
)
# By name: the number, and struct's code of an item (a RATIONAL has two).
TIFF_TYPES = dict(zip(_NAMES, enumerate("BsHIIbBhiifd", 1), strict=True))
_OPAQUE = ("BYTE", "UNDEFINED")
# Geometry, which is wrong after pixels were turned or resampled.
_GEOMETRY_TAGS = frozenset({282, 283, 296, 33550, 33922, 34264, 50844})
_DESCRIPTION = 270
_GDAL_METADATA = 42112
# ImageDescription, resolution, GeoTIFF's tie points, scale, transformation and keys, GDAL's
# metadata and value for no data, and the polynomials of satellite scenes (RPC).
KEPT_TIFF_TAGS = _GEOMETRY_TAGS | {
    _DESCRIPTION, 34735, 34736, 34737, _GDAL_METADATA, 42113,
}  # fmt: skip
# The kind of each TIFF sample after gray or RGB: 0 a band, 2 alpha. Not kept for a single alpha,
# nor if all of more than four samples are bands.
EXTRA_SAMPLES = 338


def tiff_item_bytes(type_name: str) -> int:
    """Bytes of one value of the type."""
    size = struct.calcsize(f"<{TIFF_TYPES[type_name][1]}")
    return 2 * size if type_name.endswith("RATIONAL") else size


def metadata_of_tiff(tags: Mapping[int, TiffTag]) -> dict[str, Any] | None:
    """The pairs for tags; None without tags."""
    if not tags:
        return None
    return {TIFF: {str(code): _entry(tag) for code, tag in sorted(tags.items())}}


def tiff_of_metadata(metadata: Mapping[str, Any] | None) -> dict[int, TiffTag]:
    """The kept tags in pairs; ValueError if a tag is not as in docs/format.md."""
    entries = (metadata or {}).get(TIFF, {})
    if not isinstance(entries, Mapping):
        raise ValueError("the metadata is damaged: tiff is not an object")
    tags = {}
    for code in sorted(KEPT_TIFF_TAGS):
        if (entry := entries.get(str(code))) is not None:
            try:
                tags[code] = _tag(entry)
            except (TypeError, ValueError, KeyError, OverflowError, struct.error) as error:
                raise ValueError(f"the metadata is damaged: TIFF tag {code}: {error}") from None
    return tags


def extra_samples(metadata: Mapping[str, Any] | None) -> list[int] | None:
    """The kept kinds of `EXTRA_SAMPLES`, or None."""
    tags = (metadata or {}).get(TIFF)
    entry = tags.get(str(EXTRA_SAMPLES)) if isinstance(tags, Mapping) else None
    value = entry.get("value") if isinstance(entry, Mapping) else None
    is_sound = isinstance(value, list) and value and all(kind in (0, 2) for kind in value)
    return value if is_sound else None


def metadata_of_png(chunks: Sequence[tuple[bytes, bytes]]) -> dict[str, Any] | None:
    """The pairs for chunks, each a type and data; None without chunks."""
    return {PNG: [[kind.decode(), data.hex()] for kind, data in chunks]} if chunks else None


def png_of_metadata(metadata: Mapping[str, Any] | None) -> list[tuple[bytes, bytes]]:
    """The chunks of a PNG in pairs; ValueError if they are not as in docs/image-formats.md."""
    try:
        chunks = [
            (kind.encode(), bytes.fromhex(data)) for kind, data in (metadata or {}).get(PNG, [])
        ]
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"the metadata is damaged: PNG chunks: {error}") from None
    for kind, data in chunks:
        if kind not in KEPT_PNG_CHUNKS or (kind == PNG_RESOLUTION and len(data) != _PHYS_BYTES):
            raise ValueError(f"the metadata is damaged: a PNG chunk {kind!r}")
    return chunks


def without_geometry(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The pairs without geometry, which is wrong after pixels were turned or resampled."""
    rest = dict(metadata or {})
    rest.pop("spacing", None)
    if isinstance(tags := rest.pop(TIFF, None), Mapping):
        gone = {str(code) for code in _GEOMETRY_TAGS}
        tags = {code: entry for code, entry in tags.items() if code not in gone}
    if isinstance(chunks := rest.pop(PNG, None), list):
        chunks = [chunk for chunk in chunks if chunk[0] != PNG_RESOLUTION.decode()]
    return rest | {name: value for name, value in ((TIFF, tags), (PNG, chunks)) if value} or None


def of_channels(
    metadata: Mapping[str, Any] | None, channels: Sequence[int], count: int
) -> dict[str, Any] | None:
    """The pairs for some of `count` channels, in this order.

    `band_names` follow their channels. GDAL's metadata, descriptions in which programs count
    channels, and "float32" are dropped. TIFF tags must be valid.
    """
    pairs = dict(metadata or {})
    names = pairs.pop("band_names", None)
    if isinstance(names, list) and len(names) == count:
        pairs["band_names"] = [names[channel] for channel in channels]
    if pairs.get(FLOATS) == "float32":  # two channels a float
        del pairs[FLOATS]
    entries = dict(pairs.pop(TIFF, {}))
    text = str(entries.get(str(_DESCRIPTION), {}).get("value", "")).lstrip("\ufeff \t\r\n")
    counts_channels = text.startswith(("ImageJ=", "<", "{"))  # the last two of OME and JSON
    for code in (EXTRA_SAMPLES, _GDAL_METADATA, *[_DESCRIPTION] * counts_channels):
        entries.pop(str(code), None)
    if entries:
        pairs[TIFF] = entries
    return pairs or None


def _entry(tag: TiffTag) -> dict[str, Any]:
    """A tag as a JSON object, which `_tag` turns back into the same bytes."""
    code = TIFF_TYPES[tag.type][1]
    if tag.type == "ASCII":
        text = tag.data.removesuffix(b"\0").decode(errors="ignore")
        if text.encode() + b"\0" == tag.data:
            return {"type": tag.type, "value": text}
    elif tag.type not in _OPAQUE:
        count = len(tag.data) // struct.calcsize(f"<{code}")
        value = list(struct.unpack(f"<{count}{code}", tag.data))
        if all(math.isfinite(each) for each in value):
            return {"type": tag.type, "value": value}
    return {"type": tag.type, "hex": tag.data.hex()}


def _tag(entry: Any) -> TiffTag:
    if not isinstance(entry, Mapping):
        raise ValueError("not an object")
    name = entry["type"]
    if name not in TIFF_TYPES:
        raise ValueError(f"not a type of TIFF 6.0: {name!r}")
    if "hex" in entry:
        data = bytes.fromhex(entry["hex"])
    elif name == "ASCII":
        data = entry["value"].encode() + b"\0" if isinstance(entry["value"], str) else b""
    else:
        value = entry["value"]
        data = struct.pack(f"<{len(value)}{TIFF_TYPES[name][1]}", *value)
    if not data or len(data) % tiff_item_bytes(name):
        raise ValueError("incomplete values")
    return TiffTag(name, data)
