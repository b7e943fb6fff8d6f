"""Groups of images that cost alike, told by what their headers say."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from l3dali.signatures import PNG_SIGNATURE

if TYPE_CHECKING:
    from l3dali.images.headers import Header

PALETTE = "palette"

_PNG_COLOR_TYPES = {0: "gray", 2: "rgb", 3: PALETTE, 4: "gray+alpha", 6: "rgba"}
_PNG_CHANNELS = {"gray": 1, "rgb": 3, PALETTE: 3, "gray+alpha": 2, "rgba": 4}
_LABELS = "labels"


def group_of(data: bytes, header: Header, *, labels: bool = False) -> str:
    """The group of an image, as `png rgb 8` (bits) or `jpeg 3` (bytes a pixel).

    Args:
        data: its bytes, or the first 32 of them.
        header: what `read_header` says of it.
        labels: its samples are numbers of classes.
    """
    name = f"{header.format} {header.raw_bytes // (header.width * header.height)}"
    if data.startswith(PNG_SIGNATURE):
        name = f"png {_PNG_COLOR_TYPES.get(data[25], '?')} {data[24]}"
    return f"{name} {_LABELS}" if labels else name


class Traits(NamedTuple):
    """What the name of a group says of its images, as far as it does."""

    format: str
    channels: int
    is_wide: bool  # more than 8 bits a sample
    is_labels: bool


def traits_of(group: str) -> Traits:
    """What the name of a group says."""
    format, *words = group.split() or [""]
    is_labels = words[-1:] == [_LABELS]
    kind, bits = (*words, "", "")[:2]
    if kind in _PNG_CHANNELS:
        channels = 1 if is_labels and kind == PALETTE else _PNG_CHANNELS[kind]
        return Traits(format, channels, bits == "16", is_labels)
    pixel_bytes = int(kind) if kind.isdecimal() and len(kind) < 10 else 0
    is_wide = pixel_bytes > 4
    return Traits(format, pixel_bytes // 2 if is_wide else pixel_bytes, is_wide, is_labels)


def has_numbers(group: str) -> bool:
    """Whether its images are label maps of PNG whose numbers other decoders change.

    They make colours of palettes, and scale gray of few bits.
    """
    _, *words = group.split() or [""]
    few_bits = words[:1] == ["gray"] and words[1:2] in (["1"], ["2"], ["4"])
    return traits_of(group).is_labels and (PALETTE in words or few_bits)
