"""The input files of a command: PATHs, lists of names, standard input."""

from __future__ import annotations

import os
import stat
import sys
from codecs import BOM_UTF8
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.console import Failure
from l3dali.datasets.convert.sources import Pipe, find_places
from l3dali.errors import UsageError
from l3dali.images.formats import WRITERS
from l3dali.images.stacks import zipped
from l3dali.signatures import IMAGE_SUFFIXES, unread_images

if TYPE_CHECKING:
    import argparse
    from typing import Any

    from l3dali.datasets.convert.sources import Place, Places

STDIN = Path("/dev/stdin")  # for `-`, which may also be the name of a file
KNOWN_SUFFIXES = IMAGE_SUFFIXES | WRITERS.keys() | {".l3"}
NOT_L3_FILES = (
    "use the originals, or the output of l3 convert --to png; docs/my-data.md shows how Python "
    "encodes L3 files again"
)


def find_inputs(
    options: argparse.Namespace, convert: str
) -> tuple[dict[Path, Path], list[Failure]]:
    """The files that PATHs or a list name, and names in a list that fail.

    Args:
        options: of the command.
        convert: the command for a folder, with {} for the folder.

    Returns:
        By path, where its result goes below the folder for results, except for the suffix: to the
        bare name of a PATH, or to the name in a list.

    Raises:
        UsageError: there are no files, or a PATH is a folder.
    """
    files: dict[Path, Path] = {}
    failures: list[Failure] = []
    names, base = _named(options)
    for path in names:
        relative = Path(path.name if base is None else os.path.relpath(path, base))
        if os.path.isdir(path) and not getattr(options, "volumes", False):  # noqa: PTH112
            reason = f"a folder: use {convert.format(path)}"
            if base is None:
                raise UsageError(f"{path} is {reason}")
            failures.append(Failure(path, reason))
        elif relative.parts[:1] == ("..",):
            reason = f"outside {'the current folder' if base == Path() else base}"
            failures.append(Failure(path, reason))
        else:
            files[path] = relative
    if not files and not failures:
        raise UsageError(f"{options.files_from} names no files")
    return files, failures


def find_l3_images(options: argparse.Namespace) -> tuple[dict[str, Place | Pipe], Places]:
    """What PATHs or a list name, by name: files, shards, folders, URLs, standard input.

    Raises:
        UsageError: there are no L3 files.
    """
    paths, _ = _named(options)
    pipes = [path for path in paths if isinstance(path, Path) and is_pipe(path)]
    places = find_places(str(path) for path in paths if path not in pipes)
    found: dict[str, Place | Pipe] = {
        str(path): Pipe(str(path), partial(read_file, path)) for path in pipes
    }
    found |= {str(place): place for place in places.found}
    if not found and not places.failures:
        advice = unread_images(places.others, "there")
        raise UsageError("; ".join(["no L3 files and no shards in the folders named", *advice]))
    return found, places


def is_pipe(path: Path) -> bool:
    """Whether a path is standard input, a pipe or a device."""
    if path == STDIN:
        return True
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _named(options: argparse.Namespace) -> tuple[list[Any], Path | None]:
    """What PATHs or a list name; for a list also the folder that its names start at."""
    paths: list[Path | str] = options.paths
    if options.files_from is None:
        if not paths:
            raise UsageError("no PATH; '-' is standard input")
        return list(dict.fromkeys(paths)), None
    base = paths[0] if paths else Path()
    if len(paths) > 1 or not isinstance(base, Path) or not base.is_dir():
        raise UsageError("--files-from allows one PATH: the folder that its names start at")
    return [base / name for name in _listed(options.files_from)], base


def _listed(source: Path) -> list[str]:
    """The names in the file of `--files-from`."""
    names = read_file(source)
    if b"\0" in names:
        listed = names.split(b"\0")
    else:  # Windows writes a mark at the start and carriage returns.
        listed = [line.removesuffix(b"\r") for line in names.removeprefix(BOM_UTF8).split(b"\n")]
    return [os.fsdecode(name) for name in listed if name]


def read_file(path: Path) -> bytes:
    """The bytes of a file or a pipe, or an archive of a folder."""
    if path == STDIN:
        return read_stdin()
    if path.is_dir():  # with --volumes
        return zipped(path)
    return path.read_bytes()


def read_stdin() -> bytes:
    """The bytes of standard input; UsageError if it is a terminal."""
    if sys.stdin.isatty():
        raise UsageError("standard input is a terminal; pipe a file into it, or name a file")
    return sys.stdin.buffer.read()
