"""Errors of L3 data, and of images of other formats."""

from __future__ import annotations

import re
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ImageError", "L3Error", "Status", "UsageError"]


class Status(IntEnum):
    """The result of decoding, as in docs/format.md 2 and `return_status` of the DALI operators."""

    OK = 0
    TRUNCATED = 1
    BAD_MAGIC = 2
    UNSUPPORTED_VERSION = 3
    UNSUPPORTED_FEATURE = 4
    CORRUPT_HEADER = 5
    CORRUPT_TILE = 6
    CHECKSUM_MISMATCH = 7
    OUTPUT_TOO_SMALL = 8
    INVALID_ARGUMENT = 9


class L3Error(ValueError):
    """Data that is not a valid L3 image, or an image that L3 cannot hold.

    There is a class for each status, as `l3dali.errors.TruncatedError`.

    Attributes:
        status: the reason.
        index: the item of a batch, or None.
    """

    status: Status = Status.INVALID_ARGUMENT
    index: int | None

    def __new__(
        cls, message: str = "", status: Status | None = None, index: int | None = None
    ) -> L3Error:
        """The error of the class of `status`."""
        chosen = _CLASSES[status] if cls is L3Error and status is not None else cls
        return super().__new__(chosen, message)

    def __init__(
        self, message: str = "", status: Status | None = None, index: int | None = None
    ) -> None:
        """Makes the error.

        Args:
            message: the text.
            status: chooses the class; default: the class that is called.
            index: the item of a batch, which the message names, too.
        """
        super().__init__(message)
        self.index = index


L3Error.__module__ = Status.__module__ = "l3dali"  # where users find them


def _class_of(status: Status) -> type[L3Error]:
    name = status.name.title().replace("_", "") + "Error"
    made = type(name, (L3Error,), {"status": status, "__doc__": f"Of status {status.name}."})
    made.__module__ = __name__
    globals()[name] = made  # for pickles
    return made


_CLASSES: dict[Status, type[L3Error]] = {
    status: _class_of(status) for status in Status if status is not Status.OK
}


class UsageError(Exception):
    """A call that is wrong, or needs a package that is not installed; nothing was done."""


def needs(packages: str, what: str) -> UsageError:
    """The error for packages that are not installed."""
    return UsageError(f"{what} needs a package that is not installed: pip install {packages}")


class ImageError(ValueError):
    """A file that cannot be read, or an image that a format cannot hold."""


@contextmanager
def as_image_errors() -> Iterator[None]:
    """Makes ImageErrors of what libraries raise for damaged images, which may be anything."""
    try:
        yield
    except ImageError:
        raise
    except Exception as error:
        raise unreadable(error) from error


def unreadable(error: Exception) -> ImageError:
    """The error for an exception of a library that reads images."""
    name, text = type(error).__name__, str(error)
    if isinstance(error, (MemoryError, ImportError)):
        return ImageError(f"cannot be read: {name}: {text}")
    if re.search(_TOO_EARLY, text):
        return ImageError(ENDS_TOO_EARLY)
    python = (ArithmeticError, AttributeError, LookupError, TypeError, UnicodeError)
    # The text of some errors of imagecodecs is garbage.
    is_text = text.isascii() and text.isprintable() and " object at 0x" not in text
    if isinstance(error, python) or not is_text:
        return ImageError("cannot be read: the file is damaged")
    is_damage = "support" not in text  # such as "Unsupported BMP compression"
    return ImageError("cannot be read: " + "the file is damaged: " * is_damage + text)


ENDS_TOO_EARLY = "cannot be read: the file ends too early"
# Texts of libpng, struct, Pillow, NumPy, tifffile and netpbmfile.
_TOO_EARLY = (
    r"input stream too small|requires a buffer|image file is truncated|smaller than requested"
    r"|failed to read \d+ bytes|cannot reshape array|EOF: reading|data is less than expected"
)
