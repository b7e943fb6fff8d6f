"""EXIF blocks of what a TIFF says of its picture, and back. Knows tags, no pixels."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from l3dali.images.headers import (
    BYTE_ORDERS,
    MAX_METADATA_BYTES,
    TIFF_ITEM_BYTES,
    ImageError,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    import tifffile

_ORIENTATION = 0x0112
_EXIF, _GPS, _INTEROPERABILITY = 0x8769, 0x8825, 0xA005
# The tags that describe the picture and not the file: make, model, orientation, date, artist,
# copyright, and the EXIF and GPS directories.
_PLAIN_TAGS = (0x010F, 0x0110, _ORIENTATION, 0x0132, 0x013B, 0x8298)
_HEADER_BYTES, _COUNT_BYTES, _ENTRY_BYTES, _PLACE_BYTES = 8, 2, 12, 4

_ASCII, _SHORT, _LONG = 2, 3, 4  # types of values
_INTEGERS = (1, _SHORT, _LONG, 16)  # without a sign: BYTE to LONG8

_Entries = dict[int, tuple[int, int, bytes]]  # type, count and bytes of values, by tag


def descriptive_exif(data: bytes, page: tifffile.TiffPage) -> bytes | None:
    """The tags of a TIFF's page that describe the picture as an EXIF block; None without any.

    Of a BigTIFF, whose directories have larger entries, those of EXIF and GPS are left out.

    Raises:
        ImageError: they have more than an image may have.
    """
    order = page.parent.byteorder
    if page.parent.is_bigtiff:
        tags = [tag for tag in map(page.tags.get, _PLAIN_TAGS) if tag is not None]
        entries = {
            tag.code: (
                int(tag.dtype),
                tag.count,
                data[tag.valueoffset : tag.valueoffset + tag.valuebytecount],
            )
            for tag in tags
            if int(tag.dtype) in TIFF_ITEM_BYTES
        }
        followed: tuple[int, ...] = ()
    else:
        entries = _entries_at(data, order, page.offset, (*_PLAIN_TAGS, _EXIF, _GPS))
        followed = (_EXIF, _GPS)
    kind, count, value = entries.get(_ORIENTATION, (0, 0, b""))
    if count == 1 and kind in _INTEGERS:  # TIFF takes any, EXIF a SHORT.
        turn = min(int.from_bytes(value, BYTE_ORDERS[order]), 0xFFFF)
        entries[_ORIENTATION] = _SHORT, 1, struct.pack(f"{order}H", turn)
    block = _directory(data, order, entries, _HEADER_BYTES, followed)
    mark = b"II" if order == "<" else b"MM"
    if len(block) == _COUNT_BYTES + _PLACE_BYTES:  # without an entry
        return None
    return mark + struct.pack(f"{order}HI", 42, _HEADER_BYTES) + block


def _entries_at(
    data: bytes, order: str, offset: int, wanted: Collection[int] | None = None
) -> _Entries:
    """The entries of a directory that are whole; none of what another program left in its place.

    Args:
        data: a TIFF, no BigTIFF.
        order: of its bytes.
        offset: of the directory.
        wanted: their tags; None: all.
    """
    entries: _Entries = {}
    room = min(MAX_METADATA_BYTES, len(data))
    count = int.from_bytes(data[offset : offset + _COUNT_BYTES], BYTE_ORDERS[order])
    first = offset + _COUNT_BYTES
    places = range(first, min(first + _ENTRY_BYTES * count, len(data) - 11), _ENTRY_BYTES)
    found = [(*struct.unpack_from(f"{order}HHII", data, at), at) for at in places]
    if wanted is None and 2 * sum(each[1] in TIFF_ITEM_BYTES for each in found) < len(found):
        return {}  # No directory: most entries are of types that TIFF does not have.
    for tag, kind, items, place, at in found:
        size = items * TIFF_ITEM_BYTES.get(kind, 0)
        place = at + 8 if size <= _PLACE_BYTES else place
        if tag in entries or (wanted is not None and tag not in wanted):
            continue  # The first counts.
        if not 0 < size <= len(data) - place:
            continue
        room -= size
        if room < 0:
            raise ImageError(f"EXIF of more than {MAX_METADATA_BYTES >> 20} MiB, or overlapping")
        entries[tag] = kind, items, data[place : place + size]
    return entries


def _directory(
    data: bytes, order: str, entries: _Entries, at: int, followed: Collection[int]
) -> bytes:
    """A directory that will be at `at`, with its values and the directories that it leads to."""
    below = {
        tag: _entries_at(data, order, int.from_bytes(entries[tag][2][:4], BYTE_ORDERS[order]))
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
            value = _directory(data, order, below[tag], place, further)
        if tag in below or len(value) > _PLACE_BYTES:
            values.append(value + bytes(len(value) % 2))
            value = struct.pack(f"{order}I", place)
            place += len(values[-1])
        lines.append(struct.pack(f"{order}HHI", tag, kind, items) + value.ljust(4, b"\0"))
    return b"".join([*lines, bytes(_PLACE_BYTES), *values])


def plain_exif_tags(exif: bytes | None) -> list[tuple[int, int, int, Any, bool]]:
    """Of an EXIF block, what a TIFF says itself, as tifffile writes tags.

    Damaged blocks are kept by L3, and go nowhere else.
    """
    exif = (exif or b"").removeprefix(b"Exif\0\0")
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None or len(exif) < _HEADER_BYTES:
        return []
    (offset,) = struct.unpack_from(f"{order}I", exif, 4)
    try:
        entries = _entries_at(exif, order, offset, _PLAIN_TAGS)
    except ImageError:
        return []
    tags: list[tuple[int, int, int, Any, bool]] = []
    for code, (kind, count, value) in entries.items():
        text = value.removesuffix(b"\0") + b"\0"
        if code == _ORIENTATION:
            turn = int.from_bytes(value, BYTE_ORDERS[order])
            if (kind, count) == (_SHORT, 1) and turn in range(2, 9):
                tags.append((code, _SHORT, 1, turn, True))
        elif kind == _ASCII and len(text) > 1:
            tags.append((code, _ASCII, len(text), text, True))
    return tags
