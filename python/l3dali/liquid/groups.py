"""Groups of images that cost alike, told by what their headers say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from l3dali.image_headers import PNG_SIGNATURE

if TYPE_CHECKING:
    from l3dali.image_headers import Header

_PNG_COLOR_TYPES = {0: "gray", 2: "rgb", 3: "palette", 4: "gray+alpha", 6: "rgba"}


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
    return f"{name} labels" if labels else name
