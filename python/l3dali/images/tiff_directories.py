"""Directories of TIFF files, and EXIF blocks from them and back."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Literal

from l3dali.metadata import TIFF_TYPES, tiff_item_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import tifffile

BYTE_ORDERS: dict[str, Literal["little", "big"]] = {"<": "little", ">": "big"}
TIFF_ITEM_BYTES = {number: tiff_item_bytes(name) for name, (number, _) in TIFF_TYPES.items()}
TIFF_ITEM_BYTES |= {13: 4, 16: 8, 17: 8, 18: 8, 129: 1}  # directories, BigTIFF's, and UTF-8
_ORIENTATION = 0x0112
_SUB_IFDS, _EXIF, _GPS, _INTEROPERABILITY = 0x014A, 0x8769, 0x8825, 0xA005
# The tags that describe the picture and not the file: make, model, orientation, date, artist,
# copyright, and the EXIF and GPS directories.
_PLAIN_TAGS = (0x010F, 0x0110, _ORIENTATION, 0x0132, 0x013B, 0x8298)
_HEADER_BYTES, _COUNT_BYTES, _ENTRY_BYTES, _PLACE_BYTES = 8, 2, 12, 4

_ASCII, _SHORT, _LONG = 2, 3, 4  # types of values
_INTEGERS = (1, _SHORT, _LONG, 16)  # without a sign: BYTE to LONG8

Entries = dict[int, tuple[int, int, bytes]]  # type, count and bytes of values, by tag


def tiff_entries(
    data: bytes, layout: tifffile.TiffFormat, offset: int
) -> Iterator[tuple[int, int, int, int, int]]:
    """Yields tag, type and count of each entry of a directory, and where values begin and end."""
    first = offset + layout.tagnosize
    count = int.from_bytes(data[offset:first], BYTE_ORDERS[layout.byteorder])
    end = min(first + count * layout.tagsize, len(data) - layout.tagsize + 1)
    for at in range(first, end, layout.tagsize):
        tag, kind = struct.unpack_from(layout.tagformat1, data, at)
        items, value = struct.unpack_from(layout.tagformat2, data, at + 4)
        size = items * TIFF_ITEM_BYTES.get(kind, 0)
        place = at + layout.tagsize - layout.tagoffsetthreshold
        if size > layout.tagoffsetthreshold:
            (place,) = struct.unpack(layout.offsetformat, value)
        yield tag, kind, items, place, place + size


def descriptive_exif(data: bytes, page: tifffile.TiffPage) -> bytes | None:
    """The tags of a TIFF's page that describe the picture as an EXIF block; None without any."""
    layout = page.parent.tiff
    order = layout.byteorder
    entries = entries_at(data, layout, page.offset, (*_PLAIN_TAGS, _EXIF, _GPS))
    kind, count, value = entries.get(_ORIENTATION, (0, 0, b""))
    if count == 1 and kind in _INTEGERS:  # TIFF takes any, EXIF a SHORT.
        turn = min(int.from_bytes(value, BYTE_ORDERS[order]), 0xFFFF)
        entries[_ORIENTATION] = _SHORT, 1, struct.pack(f"{order}H", turn)
    block = _directory(data, layout, entries, _HEADER_BYTES, (_EXIF, _GPS))
    if len(block) == _COUNT_BYTES + _PLACE_BYTES:  # without an entry
        return None
    mark = b"II" if order == "<" else b"MM"
    return mark + struct.pack(f"{order}HI", 42, _HEADER_BYTES) + block


def entries_at(
    data: bytes, layout: tifffile.TiffFormat, offset: int, wanted: Collection[int] | None = None
) -> Entries:
    """The whole entries of a directory, with the `wanted` tags (None: all)."""
    found = list(tiff_entries(data, layout, offset))
    if 2 * sum(kind in TIFF_ITEM_BYTES for _, kind, *_ in found) < len(found):
        return {}  # Most types are unknown: other data lies here.
    entries: Entries = {}
    for tag, kind, count, begin, end in found:
        if begin < end <= len(data) and (wanted is None or tag in wanted):
            entries.setdefault(tag, (kind, count, data[begin:end]))
    return entries


def damaged_tags(data: bytes, layout: tifffile.TiffFormat, offset: int) -> list[int]:
    """The tags of a directory whose values, or directories, are missing."""
    damaged = []
    for tag, kind, count, begin, end in tiff_entries(data, layout, offset):
        is_there = begin >= 8 and end <= len(data)
        if is_there and tag in (_EXIF, _GPS, _SUB_IFDS) and count:
            size = TIFF_ITEM_BYTES.get(kind, 0)
            places = (data[at : at + size] for at in range(begin, end, size or 1))
            order = BYTE_ORDERS[layout.byteorder]
            is_there = all(entries_at(data, layout, int.from_bytes(at, order)) for at in places)
        if not is_there:
            damaged.append(tag)
    return damaged


def _directory(
    data: bytes,
    layout: tifffile.TiffFormat,
    entries: Entries,
    at: int,
    followed: Collection[int],
) -> bytes:
    """A directory for offset `at`, with its values and the `followed` directories."""
    order = layout.byteorder
    below = {
        tag: entries_at(data, layout, int.from_bytes(entries[tag][2], BYTE_ORDERS[order]))
        for tag in followed
        if tag in entries
    }
    entries = {tag: entry for tag, entry in entries.items() if below.get(tag, True)}
    lines = [struct.pack(f"{order}H", len(entries))]
    values = []
    place = at + _COUNT_BYTES + _ENTRY_BYTES * len(entries) + _PLACE_BYTES
    for tag, (kind, items, value) in sorted(entries.items()):
        if tag in below:
            further = (_INTEROPERABILITY,) if tag == _EXIF else ()
            kind, items = _LONG, 1
            value = _directory(data, layout, below[tag], place, further)
        if tag in below or len(value) > _PLACE_BYTES:
            values.append(value + bytes(len(value) % 2))
            value = struct.pack(f"{order}I", place)
            place += len(values[-1])
        lines.append(struct.pack(f"{order}HHI", tag, kind, items) + value.ljust(4, b"\0"))
    return b"".join([*lines, bytes(_PLACE_BYTES), *values])


def plain_exif_tags(exif: bytes | None) -> list[tuple[int, int, int, Any, bool]]:
    """The tags of an EXIF block that a TIFF has itself, for tifffile; none if it is damaged."""
    from tifffile import TIFF

    exif = (exif or b"").removeprefix(b"Exif\0\0")
    layout = {b"II*\0": TIFF.CLASSIC_LE, b"MM\0*": TIFF.CLASSIC_BE}.get(exif[:4])
    if layout is None:
        return []
    order = BYTE_ORDERS[layout.byteorder]
    entries = entries_at(exif, layout, int.from_bytes(exif[4:8], order), _PLAIN_TAGS)
    tags: list[tuple[int, int, int, Any, bool]] = []
    for code, (kind, count, value) in entries.items():
        text = value.removesuffix(b"\0") + b"\0"
        if code == _ORIENTATION:
            turn = int.from_bytes(value, order)
            if (kind, count) == (_SHORT, 1) and turn in range(2, 9):
                tags.append((code, _SHORT, 1, turn, True))
        elif kind == _ASCII and len(text) > 1:
            tags.append((code, _ASCII, len(text), text, True))
    return tags
