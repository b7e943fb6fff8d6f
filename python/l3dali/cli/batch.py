"""Which files a command works on, and the work on many at a time.

Knows nothing of images.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from l3dali import codec
from l3dali.console import Failure
from l3dali.datasets.convert.images import is_apple_double
from l3dali.datasets.convert.storage import LocalFolder, folded, walk
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Mapping
    from types import FrameType

# How `-` is kept: a file may have that name.
STDIN = Path("/dev/stdin")
STDOUT = Path("/dev/stdout")
TICK_SECONDS = 0.2
_APPLE_DOUBLE = b"\0\5\x16\7"  # how it begins
_END_SECONDS = 1.9  # that a command may take to end; waits for workers hear of a signal 0.1 s later

Result = TypeVar("Result")
Named = TypeVar("Named", Path, str)


class OutputError(OSError):
    """No result can be written any more, so there is no use in going on."""


@dataclass(frozen=True)
class File:
    """A file that a command works on.

    Attributes:
        path: where it is.
        relative: where its result goes below the folder for results, but for the suffix.
    """

    path: Path
    relative: Path


@dataclass
class Found:
    """The files that the arguments of a command name.

    Attributes:
        files: those to work on.
        failures: folders that cannot be read.
        pipes: those of the files that are pipes, named one by one.
        others: how many files in folders were passed over for their suffix, by suffix.
        links: symbolic links to folders, which are not followed.
    """

    files: list[File] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    pipes: set[Path] = field(default_factory=set)
    others: Counter[str] = field(default_factory=Counter)
    links: int = 0


def find_files(inputs: Iterable[Path], suffixes: Collection[str]) -> Found:
    """Lists files named one by one, and those in named folders that have one of the suffixes.

    Results of files keep the bare name. Those of a folder keep their names from there on, with the
    folder's own before them if several folders are named.
    """
    found = Found()
    is_folder = {path: _is_folder(path, found) for path in inputs}
    folders = {_place(path) for path in is_folder if is_folder[path]}
    for path in is_folder:
        if is_folder[path]:
            name = Path(_place(path)).name if len(folders) > 1 else ""
            _search_folder(path, suffixes, found, Path(name))
        elif is_folder[path] is not None:
            _add_file(File(path, Path(path.name)), found)
    return found


def find_listed(names: Iterable[str], base: Path, suffixes: Collection[str]) -> Found:
    """Lists the files and folders of a list, whose names start at the folder `base`.

    Absolute names are taken too. Results keep their names from `base` on.
    """
    found = Found()
    start = _place(base)
    for name in names:
        path = base / name
        relative = Path(os.path.relpath(_place(path), start))
        if relative.parts[:1] == ("..",):
            reason = f"outside {'the current folder' if base == Path() else base}"
            found.failures.append(Failure(path, reason))
            continue
        is_folder = _is_folder(path, found)
        if is_folder:
            _search_folder(path, suffixes, found, relative)
        elif is_folder is not None:
            _add_file(File(path, relative), found)
    return found


def _is_folder(path: Path, found: Found) -> bool | None:
    """None if that cannot be told, which is a failure."""
    try:
        return path != STDIN and path.is_dir()
    except OSError as error:
        found.failures.append(failure_of(path, error))
        return None


def _add_file(file: File, found: Found) -> None:
    found.files.append(file)
    if file.path == STDIN or file.path.is_fifo():
        found.pipes.add(file.path)


def _search_folder(root: Path, suffixes: Collection[str], found: Found, under: Path) -> None:
    def on_error(error: OSError) -> None:
        found.failures.append(Failure(error.filename, error.strerror or str(error)))

    for name, folders, files in walk(root, on_error):
        folder = Path(name)
        folders.sort()
        found.links += sum(os.path.islink(folder / child) for child in folders)  # noqa: PTH114
        for file in sorted(files):
            path = folder / file
            if is_apple_double(file) and _begins_as_apple_double(path):
                continue
            if path.suffix.lower() in suffixes:
                found.files.append(File(path, under / path.relative_to(root)))
            else:
                found.others[path.suffix.lower()] += 1


def _begins_as_apple_double(path: Path) -> bool:
    with suppress(OSError):  # It is for who reads it to say.
        if path.is_file():
            with path.open("rb") as file:
                return file.read(len(_APPLE_DOUBLE)) == _APPLE_DOUBLE
    return False


def plan_targets(found: Found, output: Path | None, suffix: str) -> dict[Path, Path]:
    """The target of each file: beside it, in the folder `output`, or `output` itself.

    `output` is the target if it is standard output or a pipe, or if it ends in `suffix`, is no
    folder, and there is one file.

    Raises:
        UsageError: two files would get one target, or a target is itself a source.
    """
    names_file = output is not None and output.suffix.lower() == suffix and not output.is_dir()
    if output is not None and (names_file or is_stream(output)):
        if len(found.files) != 1:
            raise UsageError(f"{output} takes one result, but there are {len(found.files)}")
        return with_one_target(found.files[0].path, output)
    if output is not None and output.exists() and not output.is_dir():
        raise UsageError(f"{output} is not a folder")
    if found.pipes:
        raise UsageError(f"{min(found.pipes)} has no name for a result: -o FILE{suffix}, or -o -")
    return without_collisions(
        (file.path, (output / file.relative if output else file.path).with_suffix(suffix))
        for file in found.files
    )


def is_stream(path: Path) -> bool:
    """Whether a result is written straight to `path`: standard output, a pipe, a device."""
    return path == STDOUT or codec.is_special(path)


def with_one_target(source: Path, target: Path) -> dict[Path, Path]:
    """As `without_collisions`, of one source and a target that may be a stream.

    Raises:
        UsageError: as `plan_targets`, or the stream is open on the source, or for reading alone.
    """
    if codec.is_open_to_read(target):
        raise UsageError(f"{target} cannot be written: it is open for reading alone")
    with suppress(OSError):  # Who opens them tells of that.
        if is_stream(target) and source.is_file() and source.samefile(target):
            raise UsageError(f"{source} would be its own result: {target} is open on it")
    return without_collisions([(source, target)])


def without_collisions(pairs: Iterable[tuple[Path, Path]]) -> dict[Path, Path]:
    """The target of each source, which are judged as places: no target replaces a source.

    Hard links are places of their own: a result replaces one, and leaves the others. Names that
    differ in cases alone are one place where the disk does not tell them apart.

    Raises:
        UsageError: as `plan_targets`.
    """
    targets: dict[Path, Path] = {}
    sources: dict[str, tuple[str, Path]] = {}  # and their places, by place of the target

    @cache
    def real(folder: str) -> str:
        """The same under all names of a folder: links, and mounts of it elsewhere."""
        try:
            status = os.stat(folder or ".")  # noqa: PTH116
        except OSError:
            return os.path.realpath(folder)
        return f"{status.st_dev}:{status.st_ino}"

    def place_of(path: Path | str) -> str:
        """One for all names of its folder; a link in place of the file stays."""
        folder, name = os.path.split(path)
        return os.path.join(real(folder), name)  # noqa: PTH118

    alike: dict[str, str] = {}  # places of targets, by what some disks take for one name

    @cache
    def folds_case(folder: Path) -> bool:
        return LocalFolder(folder).folds_case()

    def as_target(place: str, folder: Path) -> str:
        """The place of a target that the disk takes for this one; else this one."""
        first = alike.get(folded(place), place)
        return first if first != place and folds_case(folder) else place

    for source, target in pairs:
        place, target_place = place_of(source), place_of(target)
        alike.setdefault(folded(target_place), target_place)
        target_place = as_target(target_place, target.parent)
        first_place, first = sources.setdefault(target_place, (place, source))
        if first_place != place:
            raise UsageError(
                f"{first} and {source} would both become {target}: rename one of them, or put them "
                "into folders of their own"
            )
        targets.setdefault(first, target)
    for target_place, (place, source) in sources.items():
        places = {as_target(place, source.parent)}
        if target_place in places:
            raise UsageError(f"{source} would be its own result: name another")
        if os.path.islink(source):  # noqa: PTH114 (False where that cannot be told)
            led_to = Path(os.path.realpath(source))
            places.add(as_target(place_of(led_to), led_to.parent))
        if places & sources.keys():
            raise UsageError(f"{source} is both a source and a target")
    return targets


def _place(path: Path) -> str:
    """One name for a place, however it is spelled; links stay."""
    # Path.absolute() and normpath take four times as long, for each of a million files.
    return os.path.abspath(path)  # noqa: PTH100


class Stop:
    """Requests to stop, by Ctrl-C or SIGTERM, while this is entered.

    The first asks to finish the files in hand, the second to drop them too, the third ends the
    process. Signals that somebody handles or ignores already are left alone.

    Attributes:
        requests: how many there have been.
        signal_number: the last one's.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.signal_number = 0
        self._earlier: Mapping[signal.Signals, object] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
            self._earlier = {s: d for s, d in defaults.items() if signal.getsignal(s) is d}
            for number in self._earlier:
                signal.signal(number, self._request)
        return self

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requests += 1
        self.signal_number = number
        if self.requests > 1:
            for each in self._earlier:
                signal.signal(each, signal.SIG_DFL)

    def __exit__(self, *exception: object) -> None:
        if self.requests < 2:
            for number, handler in self._earlier.items():
                signal.signal(number, handler)  # type: ignore[arg-type]


def interrupt_once() -> None:
    """Makes Ctrl-C and SIGTERM raise KeyboardInterrupt, with the signal's number, once.

    A second signal would tear the end of the first; seconds later, when that waits for a server,
    it ends the process as it is. Ctrl-C that somebody handles or ignores already is left alone.
    """
    first: float | None = None

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal first
        now = time.monotonic()
        if first is None:
            first = now
            for each in (signal.SIGINT, signal.SIGTERM):
                signal.signal(each, interrupt)
            raise KeyboardInterrupt(number)
        if now - first > _END_SECONDS:
            with suppress(OSError):
                os.write(sys.stderr.fileno(), b"l3: interrupted again, while it ended\n")
            os._exit(128 + number)

    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


def signal_of(error: KeyboardInterrupt) -> int:
    """The number of the signal that has raised it."""
    # Codecs in Python, as of names in zip archives, raise another one with a text, from the first.
    for each in (error, error.__cause__):
        if each is not None and each.args and isinstance(each.args[0], int):
            return each.args[0]
    return signal.SIGINT


def run_all(
    paths: Iterable[Named],
    work: Callable[[Named], Result],
    threads: int,
    stop: Stop | None = None,
) -> Generator[tuple[Named, Result | Exception] | None]:
    """Yields each path, or other name, with the result of `work`, or with the error that ended it.

    Yields None where nothing has happened for `TICK_SECONDS`. After a first request to stop, ends
    with the work that had begun; after a second one at once. Closing the generator drops the work
    not begun and waits for the rest.
    """
    stop = stop or Stop()

    def attempt(path: Named) -> tuple[Named, Result | Exception]:
        try:
            return path, work(path)
        except Exception as error:  # Whatever it is, the other files go on.
            return path, _without_frames(error)

    pool = ThreadPoolExecutor(threads)
    queue = iter(paths)
    pending: set[Future[tuple[Named, Result | Exception]]] = set()
    try:
        while stop.requests < 2:
            if stop.requests:
                pending = {future for future in pending if not future.cancel()}
            else:
                free = 2 * threads - len(pending)
                pending |= {pool.submit(attempt, path) for path in islice(queue, free)}
            if not pending:
                return
            done, pending = wait(pending, timeout=TICK_SECONDS, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
            if not done:
                yield None
    finally:
        pool.shutdown(wait=stop.requests < 2, cancel_futures=True)


def _without_frames(error: Exception) -> Exception:
    """The error, whose frames keep pixels no longer, nor those of its causes."""
    errors: list[BaseException] = [error]
    for each in errors:
        traceback.clear_frames(each.__traceback__)
        more = (each.__cause__, each.__context__)
        errors += [other for other in more if other is not None and other not in errors]
    return error


def failure_of(path: Path | str, error: Exception) -> Failure:
    """Says for people why the work on `path` failed."""
    if isinstance(error, OSError) and error.strerror:
        elsewhere = error.filename not in (None, os.fspath(path))
        reason = f"{error.strerror}: {error.filename}" if elsewhere else error.strerror
        return Failure(path, reason, error.strerror)
    is_memory = isinstance(error, MemoryError)
    reason = "not enough memory" if is_memory else str(error) or type(error).__name__
    return Failure(path, reason)
