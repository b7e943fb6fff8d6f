"""The output files of a command, which appear whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali import atomic
from l3dali.cli.inputs import KNOWN_SUFFIXES, is_pipe
from l3dali.datasets.convert.work import claim
from l3dali.errors import UsageError
from l3dali.signatures import suffix_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping

STDOUT = Path("/dev/stdout")  # for `-o -`


def is_stream(path: Path) -> bool:
    """Whether `path` is standard output, a pipe or a device."""
    return path == STDOUT or atomic.is_special(path)


def find_targets(
    files: Mapping[Path, Path], options: argparse.Namespace, suffix_for: Callable[[Path], str]
) -> dict[Path, Path]:
    """The target of each file: beside it, in the folder `options.output`, or `options.output`.

    The latter for a stream, or one file and a name that ends in its suffix and is no folder.
    `suffix_for` gives the suffix of each result. Without `options.output` pipes are written to
    standard output.

    Raises:
        UsageError: `options.output` does not fit, two files have one target, or a target is a
            source.
    """
    pipes = list(filter(is_pipe, files))
    if options.output is None and pipes:
        options.output = STDOUT
    output: Path | None = options.output
    if output is not None:
        if is_stream(output):
            if output == STDOUT and sys.stdout.isatty():
                raise UsageError(
                    "image data cannot be written to a terminal; redirect it, or use -o FILE"
                )
            if STDOUT == output == options.json_summary:
                raise UsageError("standard output cannot take both the result and the JSON summary")
        names = list(files)
        suffix = suffix_for(names[0]) if len(names) == 1 else ""
        is_file = (
            bool(suffix) and suffix_of(output).lower() == suffix.lower() and not output.is_dir()
        )
        if is_stream(output) or is_file:
            if len(names) != 1:
                raise UsageError(f"{output} takes one result, but there are {len(names)}")
            return without_collisions([(names[0], output)])
        if output.exists() and not output.is_dir():
            raise UsageError(f"{output} is not a folder")
        if not output.exists() and suffix_of(output).lower() in KNOWN_SUFFIXES:
            what = f"the result is a {suffix} file" if suffix else f"there are {len(names)} results"
            raise UsageError(f"{what}, but OUT is {output}; create it first if it is a folder")
        place = next(each for each in (output, *output.absolute().parents) if each.exists())
        if not os.access(place, os.W_OK | os.X_OK):
            raise UsageError(f"{place} cannot be written: {os.strerror(errno.EACCES)}")
    if pipes:
        raise UsageError(f"{min(pipes)} has no name for a result: use -o FILE or -o -")
    return without_collisions(
        (path, _target_of(path, output / relative if output else path, suffix_for(path)))
        for path, relative in files.items()
    )


def _target_of(source: Path, path: Path, suffix: str) -> Path:
    """The path with another suffix, also in place of .nii.gz; `0.jpg.l3` becomes `0.jpg`.

    A source that is a folder, with a DICOM series, has no suffix.
    """
    own = "" if source.is_dir() else suffix_of(path)
    stem = path.name[: len(path.name) - len(own)]
    target = path.with_name(stem if own == ".l3" and stem.endswith(suffix) else stem + suffix)
    if target == source:
        advice = "l3 encode makes L3 files, l3 decode reads them"
        raise UsageError(f"{source} would replace itself: {advice}")
    return target


def without_collisions(pairs: Iterable[tuple[Path, Path]]) -> dict[Path, Path]:
    """The target of each source.

    Raises:
        UsageError: two sources have one target, or a target is a source, also through links.
    """
    real = cache(os.path.realpath)
    targets: dict[str, tuple[Path, Path]] = {}  # by the place of the source
    claims: dict[str, str] = {}
    for pair in pairs:
        place, result = (f"{real(path.parent)}/{path.name}" for path in pair)
        claim(claims, result, place)
        targets.setdefault(place, pair)
    found = dict(targets.values())
    sources = {_identity(source): source for source in found}
    for target in found.values():
        identity = _identity(target)
        if identity is not None and identity in sources:
            raise UsageError(f"input and output are the same file: {target} is {sources[identity]}")
    return found


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a regular file, or of the file that a stream is open on."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def keeps(target: Path, options: argparse.Namespace) -> bool:
    """Whether an existing result is kept; called before the work.

    Raises:
        FileExistsError: there is a result, and no option to replace or to keep it.
    """
    if is_stream(target):
        if target in (STDOUT, options.output):
            return False
        reason = "the result would be a pipe or a device"
        raise FileExistsError(errno.EEXIST, reason, os.fspath(target))
    if os.path.lexists(target) and not options.overwrite:
        if options.skip_existing:
            return True
        reason = "the result exists; use --overwrite or --skip-existing"
        raise FileExistsError(errno.EEXIST, reason, os.fspath(target))
    return False


def write_file(target: Path, data: bytes) -> None:
    """Writes a result, whole or not at all."""
    if target == STDOUT:
        sys.stdout.flush()
        # The buffer of sys.stdout would write failed data again.
        try:
            with os.fdopen(sys.stdout.fileno(), "wb", closefd=False) as file:
                file.write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(target)) from None
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_atomically(target, data)


def check_new_file(path: Path, sources: Iterable[str | Path], *, overwrite: bool) -> None:
    """Raises UsageError if a file exists or is one of the sources, or its folder does not exist."""
    for source in sources:
        without_collisions([(Path(source), path)])
    if not is_stream(path):
        if path.is_dir() or not path.parent.is_dir():
            raise UsageError(f"{path} cannot be written: name a file in a folder that exists")
        if os.path.lexists(path) and not overwrite:
            raise UsageError(f"{path} exists; --overwrite replaces it")
