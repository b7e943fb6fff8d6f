"""Groups of images that cost alike, named by what their headers say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from l3dali.signatures import PNG_SIGNATURE

if TYPE_CHECKING:
    from l3dali.images.headers import Header

_PNG_COLOR_TYPES = {0: "gray", 2: "rgb", 3: "palette", 4: "gray+alpha", 6: "rgba"}


def group_of(data: bytes, header: Header, *, labels: bool = False) -> str:
    """The group of an image, as `png rgb 8` (bits) or `jpeg 3` (bytes a pixel).

    Args:
        data: its bytes, or the first 32 of them.
        header: of the image.
        labels: its samples are numbers of classes.
    """
    name = f"{header.format} {header.raw_bytes // (header.width * header.height)}"
    if data.startswith(PNG_SIGNATURE):
        name = f"png {_PNG_COLOR_TYPES.get(data[25], '?')} {data[24]}"
    return f"{name} labels" if labels else name


def has_numbers(group: str) -> bool:
    """Whether its images are PNG label maps whose numbers other decoders change.

    They make colours of palettes, and scale gray of few bits.
    """
    few_bits = [f"png gray {bits} labels" for bits in (1, 2, 4)]
    return group in few_bits or (group.startswith("png palette") and group.endswith(" labels"))
