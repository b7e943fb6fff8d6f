"""Which files a command works on, and the work on many at a time.

Knows nothing of images.
"""

from __future__ import annotations

import os
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable

Result = TypeVar("Result")


class UsageError(Exception):
    """A command that cannot be carried out as asked; nothing has been done."""


@dataclass(frozen=True)
class File:
    """A file that a command works on.

    Attributes:
        path: where it is.
        relative: the same from the folder that was named, or the bare name.
    """

    path: Path
    relative: Path


@dataclass(frozen=True)
class Failure:
    """A file that did not work out, and why."""

    path: Path
    reason: str


@dataclass
class Found:
    """The files that the arguments of a command name.

    Attributes:
        files: those to work on.
        failures: folders that cannot be read.
        others: files in folders that were passed over for their suffix.
        links: symbolic links to folders, which are not followed.
    """

    files: list[File] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    others: int = 0
    links: int = 0


def find_files(inputs: Iterable[Path], suffixes: Collection[str]) -> Found:
    """Lists files named one by one, and those in named folders that have one of the suffixes."""
    found = Found()
    for path in inputs:
        try:
            is_folder = path.is_dir()
        except OSError as error:
            found.failures.append(failure_of(path, error))
            continue
        if is_folder:
            _search_folder(path, suffixes, found)
        else:
            found.files.append(File(path, Path(path.name)))
    return found


def _search_folder(root: Path, suffixes: Collection[str], found: Found) -> None:
    def on_error(error: OSError) -> None:
        found.failures.append(failure_of(Path(error.filename), error))

    for name, folders, files in os.walk(root, onerror=on_error):
        folder = Path(name)
        folders.sort()
        found.links += sum((folder / child).is_symlink() for child in folders)
        for file in sorted(files):
            path = folder / file
            if path.suffix.lower() in suffixes:
                found.files.append(File(path, path.relative_to(root)))
            else:
                found.others += 1


def plan_targets(found: Found, output: Path | None, suffix: str) -> dict[Path, Path]:
    """The target of each file: beside it, in the folder `output`, or `output` itself.

    `output` is the target if it ends in `suffix`, is no folder, and there is one file.

    Raises:
        UsageError: two files would get one target, or a target is itself a source.
    """
    if output is not None and output.suffix.lower() == suffix and not output.is_dir():
        if len(found.files) != 1:
            raise UsageError(f"{output} is one file, but there are {len(found.files)} to write")
        return _without_collisions([(found.files[0].path, output)])
    if output is not None and output.exists() and not output.is_dir():
        raise UsageError(f"{output} is not a folder")
    return _without_collisions(
        (file.path, (output / file.relative if output else file.path).with_suffix(suffix))
        for file in found.files
    )


def _without_collisions(pairs: Iterable[tuple[Path, Path]]) -> dict[Path, Path]:
    targets: dict[Path, Path] = {}
    sources: dict[str, Path] = {}  # by place of the target
    for source, target in pairs:
        first = sources.setdefault(_place(target), source)
        if _place(first) != _place(source):
            raise UsageError(f"{first} and {source} would both become {target}")
        targets[first] = target
    for source in targets:
        if _place(source) in sources:
            raise UsageError(f"{source} is both a source and a target")
    return targets


def _place(path: Path) -> str:
    """One name for a place, however it is spelled; links stay."""
    return os.path.normpath(path.absolute())


def run_all(
    paths: Iterable[Path], work: Callable[[Path], Result], threads: int
) -> Generator[tuple[Path, Result | Exception]]:
    """Yields each path with the result of `work`, or with the error that ended it.

    Closing the generator drops the work not begun and waits for the rest.
    """

    def attempt(path: Path) -> tuple[Path, Result | Exception]:
        try:
            return path, work(path)
        except Exception as error:  # Whatever it is, the other files go on.
            return path, error

    pool = ThreadPoolExecutor(threads)
    queue = iter(paths)
    pending: set[Future[tuple[Path, Result | Exception]]] = set()
    try:
        while True:
            pending |= {pool.submit(attempt, p) for p in islice(queue, 2 * threads - len(pending))}
            if not pending:
                return
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def failure_of(path: Path, error: Exception) -> Failure:
    """Says for people why the work on `path` failed."""
    reason = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        elsewhere = error.filename not in (None, os.fspath(path))
        reason = f"{error.strerror}: {error.filename}" if elsewhere else error.strerror
    return Failure(path, reason)
