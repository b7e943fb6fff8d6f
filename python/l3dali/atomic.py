"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path


def is_special(path: Path) -> bool:
    """Whether a path is a pipe or a device, or a link in /dev or /proc."""
    if path.is_symlink():
        folder = os.path.realpath(path.parent)
        return folder == "/dev" or folder.startswith("/proc/")
    return path.exists() and not path.is_file() and not path.is_dir()


def write_atomically(
    path: Path, data: bytes, *, like: Path | None = None, replace: bool = True
) -> None:
    """Writes a file under a temporary name beside `path`, then renames it.

    It gets the permissions and times of the file `like`, or else the permissions of the file that
    it replaces. Data is written into special files.

    Raises:
        FileExistsError: `path` exists, and is not to be replaced.
        OSError: it cannot be written.
    """
    if is_special(path):
        with path.open("wb") as file:
            file.write(data)
        return
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    temporary = path.with_name(f".l3-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            if like is not None or (path.exists() and not path.is_symlink()):
                status = (like or path).stat()
                with contextlib.suppress(OSError):  # Some disks have no permissions.
                    temporary.chmod(status.st_mode & 0o777)  # not set-user-ID: another may own it
            file.write(data)
        if like is not None:
            os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
        if not replace and os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        raise
