"""What chooses how images are stored, as far as `l3 convert` knows it; liquid has one that does."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from l3dali.signatures import PNG_SIGNATURE

if TYPE_CHECKING:
    from l3dali.images.picture import Header

# What an image may be stored as, besides modes of the encoder and `png`.
SOURCE = "source"  # it stays as it is
UNKNOWN = "unknown"  # what a plan would choose for an image whose header is damaged


class Seen(NamedTuple):
    """What a plan chooses by."""

    name: str  # the place of the image
    group: str  # by `group_of`
    source_bytes: int
    pixels: int  # width times height


class Chooser(Protocol):
    """A plan: it chooses what each image of a data set is stored as."""

    @property
    def identity(self) -> str:
        """A short text that differs where choices do."""

    def choose(self, image: Seen) -> str:
        """What an image is to be stored as. The same image gets the same on any machine."""


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
