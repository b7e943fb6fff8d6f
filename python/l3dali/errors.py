"""What goes wrong with L3 data.

Knows nothing of the codec, which raises this.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

StatusName = Literal[
    "kTruncated",
    "kBadMagic",
    "kUnsupportedVersion",
    "kUnsupportedFeature",
    "kCorruptHeader",
    "kCorruptTile",
    "kChecksumMismatch",
    "kOutputTooSmall",
    "kInvalidArgument",
]

_NAMED = re.compile(rf"\(({'|'.join(get_args(StatusName))})\)")


class L3Error(ValueError):
    """Data that is no valid L3 image, or an image that L3 cannot hold.

    Attributes:
        status: the name of the reason, as docs/format.md lists them.
        index: which item of a batch it is; None where there is no batch.
    """

    status: StatusName
    index: int | None

    def __init__(
        self, message: str = "", status: StatusName | None = None, index: int | None = None
    ) -> None:
        """Makes the error.

        Args:
            message: what is wrong. It ends with the status in brackets.
            status: by default the last that the message names: whoever makes an error anew from
                the text of another, as PyTorch does with those of its workers, keeps it.
            index: which item of a batch it is. The message names it too.
        """
        super().__init__(message)
        named = _NAMED.findall(message)
        self.status = status or (named[-1] if named else "kInvalidArgument")
        self.index = index


L3Error.__module__ = "l3dali"  # where users find it, in tracebacks and pickles


class UsageError(Exception):
    """A command that cannot be carried out as asked; nothing has been done."""
