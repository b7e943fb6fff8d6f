"""What goes wrong with L3 data, and with images of other formats.

Knows nothing of the codec and the readers, which raise this.
"""

from __future__ import annotations

import re
from enum import IntEnum

__all__ = ["ImageError", "L3Error", "Status", "UsageError"]


class Status(IntEnum):
    """What a decoder says of data: the numbers of docs/format.md, section 2.

    `return_status` of the DALI operators gives them, too.
    """

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
    """Data that is no valid L3 image, or an image that L3 cannot hold.

    There is a class for each status, as `l3dali.errors.TruncatedError`: PyTorch makes an error of
    a worker anew from its class and its text alone, and so the status is kept.

    Attributes:
        status: the reason.
        index: which item of a batch it is; None where there is no batch.
    """

    status: Status = Status.INVALID_ARGUMENT
    index: int | None

    def __new__(
        cls, message: str = "", status: Status | None = None, index: int | None = None
    ) -> L3Error:
        """The error of the class that `status` has."""
        chosen = _CLASSES[status] if cls is L3Error and status is not None else cls
        return super().__new__(chosen, message)

    def __init__(
        self, message: str = "", status: Status | None = None, index: int | None = None
    ) -> None:
        """Makes the error.

        Args:
            message: what is wrong.
            status: chooses the class; by default that which is called.
            index: which item of a batch it is. The message names it too.
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
    """A command that cannot be carried out as asked; nothing has been done."""


def needs(packages: str, what: str) -> UsageError:
    """The error of packages that are not installed, named as pip knows them."""
    return UsageError(f"{what} needs what is not installed: pip install {packages}")


class ImageError(ValueError):
    """A file that cannot be read, or an image that a format cannot hold."""


def unreadable(error: Exception) -> ImageError:
    """What to say of an error of a library that reads images."""
    name, text = type(error).__name__, str(error)
    if isinstance(error, (MemoryError, ImportError)):
        return ImageError(f"cannot be read: {name}: {text}")
    if _TOO_EARLY.search(text):
        return ImageError(ENDS_TOO_EARLY)
    python = (ArithmeticError, AttributeError, LookupError, TypeError, UnicodeError)
    # Of some errors of libpng imagecodecs gives memory that holds no words.
    is_text = text.isascii() and text.isprintable() and " object at 0x" not in text
    if isinstance(error, python) or not is_text:
        return ImageError("cannot be read: the file is damaged")
    is_damage = "support" not in text  # as in "Unsupported BMP compression"
    return ImageError("cannot be read: " + "the file is damaged: " * is_damage + text)


ENDS_TOO_EARLY = "cannot be read: the file ends too early"
# As libpng, struct, Pillow, NumPy, tifffile and netpbmfile say it.
_TOO_EARLY = re.compile(
    r"input stream too small|requires a buffer|image file is truncated|smaller than requested"
    r"|failed to read \d+ bytes|cannot reshape array|EOF: reading|data is less than expected"
)
