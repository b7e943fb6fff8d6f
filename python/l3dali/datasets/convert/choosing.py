"""What chooses how images are stored, as far as `l3 convert` knows it; liquid has one that does."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from l3dali.images.headers import Header

# What an image may be stored as, besides modes of the encoder and `png`.
SOURCE = "source"  # it stays as it is
UNKNOWN = "unknown"  # what a plan would choose for an image whose header is damaged


class Seen(NamedTuple):
    """What a plan chooses by."""

    name: str  # the place of the image
    group: str  # what its header says of it
    source_bytes: int
    pixels: int  # width times height


class Chooser(Protocol):
    """A plan: it chooses what each image of a data set is stored as."""

    @property
    def identity(self) -> str:
        """A short text that differs where choices do."""

    def group_of(self, data: bytes, header: Header, *, labels: bool) -> str:
        """What the header of an image says of it, in a few words."""

    def choose(self, images: Sequence[Seen]) -> list[str]:
        """What each image is to be stored as. The same image gets the same on any machine."""
