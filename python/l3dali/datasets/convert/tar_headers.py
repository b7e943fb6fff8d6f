"""What `tarfile` may read of headers: it sums up, searches and keeps without a limit."""

from __future__ import annotations

import re

MAX_PAX_KEYS = 1000  # of a header, and of all members together
# Older versions search runs of digits in the square of their length.
_MAX_DIGITS = 200
_DIGITS_AS_ZEROS = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
_PAX_RECORD = re.compile(rb"(\d{1,9}) [^=]{1,1000}=")
_RECORD_BEGIN = re.compile(rb"\d+ ")
_BLOCK = 512
_EXTENSIONS = b"xXgLK"  # kinds of headers with a body
_PAX_KINDS = b"xXg"


class TarError(ValueError):
    """A tar file that is damaged or cannot be converted."""


class HeaderLimits:
    """Judges in turn what is read of headers, before tarfile has it."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes` may be read for a member."""
        self._most_bytes = most_bytes
        self._has_body = self._is_pax = False  # what was read last
        self.begin_member()

    def begin_member(self) -> None:
        """What follows is of another member."""
        self._bytes = 0

    def expect(self, size: int) -> None:
        """Refuses to read so many bytes next, if they are too many."""
        self._bytes += size
        if size < 0 or self._bytes > self._most_bytes:
            raise TarError(f"a damaged tar file: a header of {self._bytes} bytes")

    def judge(self, data: bytes) -> None:
        """Refuses what was read, if tarfile would take long over it."""
        # What is longer than a block may be pax, but behind the header of a long name.
        if self._is_pax or (len(data) > _BLOCK and not self._has_body):
            _check_pax(data)
        kind = data[156:157]
        self._has_body = not self._has_body and kind != b"" and kind in _EXTENSIONS
        self._is_pax = self._has_body and kind in _PAX_KINDS


def _check_pax(data: bytes) -> None:
    """Refuses records of a pax header that are too many, or do not lie one behind another."""
    if b"0" * (_MAX_DIGITS + 1) in data.translate(_DIGITS_AS_ZEROS):
        raise TarError(f"a pax header with a number of more than {_MAX_DIGITS} digits")
    at = 0
    for _ in range(MAX_PAX_KEYS + 1):
        record = _PAX_RECORD.match(data, at)
        if record is None:
            if _RECORD_BEGIN.match(data, at):
                raise TarError("a damaged tar file: a pax record without a length and a key")
            return
        size = int(record[1])
        if size > len(data) - at:
            raise TarError("a damaged tar file: a pax record is longer than its header")
        if size < record.end() - at:
            raise TarError("a damaged tar file: a pax record is shorter than its key")
        at += size
    raise TarError(f"a pax header of more than {MAX_PAX_KEYS} keys")
