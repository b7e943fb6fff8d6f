"""Reading sources and writing results: files, pipes, standard input and output."""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.cli.batch import STDIN, STDOUT, OutputError, is_stream
from l3dali.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection

# Errors of writing that the next file would meet as well.
_LASTING = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENODEV, errno.ESTALE}
_WRITES_SECONDS = 10  # for writes in hand when all else is dropped


def read_file(path: Path, pipes: Collection[Path] = ()) -> bytes:
    """The bytes of a regular file, or of one of the `pipes`, which were named as such."""
    if path == STDIN:
        return read_stdin()
    if not stat.S_ISREG(path.stat().st_mode) and path not in pipes:  # A pipe would never end.
        raise OSError("not a file")
    return path.read_bytes()


def read_stdin() -> bytes:
    """The bytes of standard input, which can be read once."""
    if sys.stdin is None or sys.stdin.closed:
        raise OSError("standard input is closed, or has been read already")
    parts = []
    with sys.stdin.buffer as file:
        while (part := file.read()) != b"":
            if part is None:  # A program that shares it has it not wait.
                select.select([file], [], [])
                continue
            parts.append(part)
            if file.isatty():
                break  # Else it would need a second Ctrl-D.
    return b"".join(parts)


def check_stdin() -> None:
    """Raises UsageError if standard input is a terminal, where nobody types images."""
    if sys.stdin is not None and sys.stdin.isatty():
        raise UsageError("standard input is a terminal; pipe a file into it, or name one")


def check_stream(output: Path) -> None:
    """Raises UsageError if `output`, no regular file, cannot take image data."""
    if output == STDOUT and sys.__stdout__ is None:  # `main` has put a substitute in its place.
        raise UsageError("standard output is closed")
    if sys.stdout.isatty() if output == STDOUT else _is_terminal(output):
        raise UsageError("image data is not for terminals; redirect it, or name a file: -o FILE")


def _is_terminal(path: Path) -> bool:
    if path.is_fifo():  # Opening it would wait for its reader.
        return False
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.isatty(descriptor)
    finally:
        os.close(descriptor)


def keeps(target: Path, options: argparse.Namespace) -> bool:
    """Whether an existing result is to stay; raises if it is in the way or its folder is.

    Called before the work, so that none is done in vain.

    Raises:
        FileExistsError: nothing was said about existing results.
        OutputError: no result can be written below `options.output`.
        OSError: this result cannot be written.
    """
    if is_stream(target):
        if target in (STDOUT, options.output):
            return False
        reason = "a pipe or a device is in the place of the result"
        raise FileExistsError(errno.EEXIST, reason, os.fspath(target))
    if os.path.lexists(target) and not options.overwrite:
        if options.skip_existing:
            return True
        reason = "the result exists; see --overwrite and --skip-existing"
        raise FileExistsError(errno.EEXIST, reason, os.fspath(target))
    _check_folder(target.parent, options.output)
    return False


def _check_folder(folder: Path, output: Path | None) -> None:
    """Raises OSError if files cannot be written to `folder`, or not safely."""
    if output is not None and folder.is_relative_to(output) and _leads_out(folder, output):
        raise OSError(errno.ELOOP, f"a link leads out of {output}", os.fspath(folder))
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(folder))
    if not os.access(folder, os.W_OK | os.X_OK):
        read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
        number = errno.EROFS if read_only else errno.EACCES
        kind = OutputError if read_only or _is_above(folder, output) else PermissionError
        raise kind(number, os.strerror(number), os.fspath(folder))


def _leads_out(folder: Path, output: Path) -> bool:
    """Whether links that somebody has put below `output` choose another place for our files."""
    return not Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(output))


def _is_above(folder: Path, output: Path | None) -> bool:
    return output is not None and output.absolute().is_relative_to(folder.absolute())


def write_result(
    target: Path, data: bytes, options: argparse.Namespace, like: Path | None = None
) -> bool:
    """Writes a result as `write_file`; False, or an error, if one has come since `keeps`."""
    try:
        write_file(target, data, like, replace=options.overwrite)
    except FileExistsError:
        if keeps(target, options):
            return False
        raise
    return True


def write_file(
    target: Path, data: bytes, like: Path | None = None, *, replace: bool = True
) -> None:
    """Writes a result, and the folders above it; a file appears whole or not at all.

    Args:
        target: a path, or standard output.
        data: all of the file.
        like: the file whose mode and times it gets.
        replace: whether a file that exists is replaced, and no FileExistsError.

    Raises:
        OutputError: the next file would not be written either.
        OSError: this one was not.
    """
    try:
        if target == STDOUT:
            sys.stdout.flush()
            # Not through its buffer, which would keep and repeat what cannot be written.
            with os.fdopen(sys.stdout.fileno(), "wb", closefd=False) as file:
                file.write(data)
        elif is_stream(target):
            codec.write_atomically(target, data)
        else:
            with _writes:
                target.parent.mkdir(parents=True, exist_ok=True)
                codec.write_atomically(target, data, like=like, replace=replace)
    except OSError as error:
        if error.errno in _LASTING:
            where = error.filename or os.fspath(target)
            raise OutputError(error.errno, error.strerror, where) from None
        raise


class _Writes:
    """Counts the writes in hand, so that the process does not end amid one."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._count = 0
        self._over = False

    def __enter__(self) -> None:
        with self._condition:
            self._condition.wait_for(lambda: not self._over)
            self._count += 1

    def __exit__(self, *exception: object) -> None:
        with self._condition:
            self._count -= 1
            self._condition.notify_all()

    def end(self) -> None:
        """Lets no write begin any more and waits for those in hand."""
        with self._condition:
            self._over = True
            self._condition.wait_for(lambda: self._count == 0, _WRITES_SECONDS)


_writes = _Writes()
end_writes = _writes.end
