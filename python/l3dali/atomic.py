"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def is_special(path: Path) -> bool:
    """Whether a path is a pipe or a device, or a link in /dev or /proc."""
    try:
        mode = path.lstat().st_mode
    except (OSError, ValueError):
        return False
    if stat.S_ISLNK(mode):
        folder = os.path.realpath(path.parent)
        return folder == "/dev" or folder.startswith("/proc/")
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def published(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of `path` when the block ends, and not if it raises.

    `mode` is that of the file, before the umask. Errors of the file name `path`.
    """
    temporary = f"{path.parent}/.l3-{secrets.token_hex(8)}.tmp"
    file: BinaryIO | None = None
    is_written = False
    try:
        file = os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb")
        yield file
        is_written = True
        file.close()
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException as error:
        if file is not None:
            with suppress(OSError):
                file.close()
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        if isinstance(error, OSError) and (file is None or is_written):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        raise


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a file as `published`, with the mode of the one that it replaces.

    Data is written into special files.
    """
    if is_special(path):
        with path.open("wb") as file:
            file.write(data)
        return
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    with published(path) as file:
        try:
            if path.exists() and not path.is_symlink():
                with suppress(OSError):  # Some disks have no permissions.
                    os.fchmod(file.fileno(), path.stat().st_mode & 0o777)  # no set-user-ID
            file.write(data)
            file.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
