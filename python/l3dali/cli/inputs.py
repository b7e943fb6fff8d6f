"""The input files of a command: PATHs, lists of names, folders, standard input."""

from __future__ import annotations

import os
import stat
import sys
from codecs import BOM_UTF8
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.console import Failure
from l3dali.errors import UsageError
from l3dali.images.formats import WRITERS
from l3dali.signatures import IMAGE_SUFFIXES, unread_images

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection

STDIN = Path("/dev/stdin")  # for `-`, which may also be the name of a file
L3_SUFFIX = ".l3"
KNOWN_SUFFIXES = IMAGE_SUFFIXES | WRITERS.keys() | {L3_SUFFIX}
NOT_L3_FILES = (
    "use the originals, or the output of l3 convert --to png; docs/my-data.md shows how Python "
    "encodes L3 files again"
)


@dataclass(frozen=True)
class File:
    """A file that a command works on."""

    path: Path  # where it is
    relative: Path  # where its result goes below the folder for results, except for the suffix


@dataclass
class Found:
    """The files that the arguments of a command name."""

    files: list[File] = field(default_factory=list)  # those to work on
    failures: list[Failure] = field(default_factory=list)  # folders, or names in a list
    pipes: set[Path] = field(default_factory=set)  # those that are pipes or devices
    others: Counter[str] = field(default_factory=Counter)  # skipped files by suffix
    links: int = 0  # symbolic links to folders, which are not followed


def find_inputs(options: argparse.Namespace, suffixes: Collection[str]) -> Found:
    """The files that PATHs or a list name, and files in named folders with one of the suffixes.

    Results keep the bare name of a named file, and the names below a named folder. These start
    with the folder's own name if several folders are named.

    Raises:
        UsageError: there are no files, or PATHs and options do not fit.
    """
    if options.files_from is not None:
        found = _find_listed(options, suffixes)
    elif not options.paths:
        raise UsageError("no PATH; '-' is standard input")
    else:
        found = Found()
        places = {path: Path(_absolute(path)) for path in options.paths}
        folders = {path for path in places if path != STDIN and os.path.isdir(path)}  # noqa: PTH112
        has_several = len({places[path] for path in folders}) > 1
        for path, place in places.items():
            if path in folders:
                _search_folder(path, suffixes, found, Path(place.name if has_several else ""))
            else:
                _add_file(File(path, Path(path.name)), found)
    if not found.files and not found.failures:
        advice = unread_images(found.others, "there")
        if suffixes == {L3_SUFFIX}:
            advice = ["l3 encode converts images to L3"]
        elif count := found.others[L3_SUFFIX]:
            advice.append(f"{count} files are L3 already: {NOT_L3_FILES}")
        where = "in the folders named" if options.files_from is None else f"in {options.files_from}"
        raise UsageError("; ".join([f"no {' '.join(sorted(suffixes))} files {where}", *advice]))
    return found


def _find_listed(options: argparse.Namespace, suffixes: Collection[str]) -> Found:
    """Lists the files and folders of a list. Results keep their names below PATH."""
    base = options.paths[0] if options.paths else Path()
    if len(options.paths) > 1 or isinstance(base, str) or not base.is_dir():
        raise UsageError("--files-from allows one PATH: the folder that its names start at")
    source: Path = options.files_from
    names = read_stdin() if source == STDIN else source.read_bytes()
    if b"\0" in names:
        listed = names.split(b"\0")
    else:  # Windows writes a mark at the start and carriage returns.
        listed = [line.removesuffix(b"\r") for line in names.removeprefix(BOM_UTF8).split(b"\n")]
    found = Found()
    start = _absolute(base)
    for name in filter(None, listed):
        path = base / os.fsdecode(name)
        relative = Path(os.path.relpath(_absolute(path), start))
        if relative.parts[:1] == ("..",):
            reason = f"outside {'the current folder' if base == Path() else base}"
            found.failures.append(Failure(path, reason))
        elif os.path.isdir(path):  # noqa: PTH112
            _search_folder(path, suffixes, found, relative)
        else:
            _add_file(File(path, relative), found)
    return found


def _absolute(path: Path) -> str:
    # Path.absolute() and normpath take four times as long, for each of a million files.
    return os.path.abspath(path)  # noqa: PTH100


def _add_file(file: File, found: Found) -> None:
    found.files.append(file)
    is_special = os.path.exists(file.path) and not os.path.isfile(file.path)  # noqa: PTH110, PTH113
    if file.path == STDIN or is_special:
        found.pipes.add(file.path)


def _search_folder(root: Path, suffixes: Collection[str], found: Found, under: Path) -> None:
    def on_error(error: OSError) -> None:
        found.failures.append(Failure(error.filename, error.strerror or str(error)))

    for name, folders, files in os.walk(root, onerror=on_error):
        folder = Path(name)
        folders.sort()
        found.links += sum(os.path.islink(folder / child) for child in folders)  # noqa: PTH114
        for file in sorted(files):
            path = folder / file
            suffix = path.suffix.lower()
            if suffix in suffixes and not file.startswith("._"):  # macOS keeps attributes there
                found.files.append(File(path, under / path.relative_to(root)))
            else:
                found.others[suffix] += 1


def is_image_name(name: str) -> bool:
    """Whether this is the name of an image."""
    return Path(name).suffix.lower() in KNOWN_SUFFIXES


def read_file(path: Path, pipes: Collection[Path] = ()) -> bytes:
    """The bytes of a regular file, or of one of the `pipes`."""
    if path == STDIN:
        return read_stdin()
    if path not in pipes and not stat.S_ISREG(path.stat().st_mode):  # A pipe may never end.
        raise OSError("not a file")
    return path.read_bytes()


def read_stdin() -> bytes:
    """The bytes of standard input; UsageError if it is a terminal."""
    if sys.stdin.isatty():
        raise UsageError("standard input is a terminal; pipe a file into it, or name a file")
    return sys.stdin.buffer.read()
