"""Finds the files that the arguments of a command name, and reads L3 images in them."""

from __future__ import annotations

import os
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from l3dali.console import (
    Failure,
    counted,
    megabytes,
    ratio,
    reason_of,
    shortened,
    without_password,
)
from l3dali.datasets.convert.containers import FILES, is_shard_name, kinds_of_sources, read_blobs
from l3dali.datasets.convert.images import Blob, Options
from l3dali.datasets.convert.manifest import FAILED, Manifest, Row
from l3dali.datasets.convert.storage import (
    MANIFEST_NAME,
    Stored,
    hash_file,
    is_remote,
    open_folder,
    split_url,
)
from l3dali.errors import UsageError, needs
from l3dali.signatures import IMAGE_SUFFIXES, suffix_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from l3dali import codec

_WITH_QUERY = re.compile(r"https?://[^?#]*[?#]")
_LOOKUPS = 32  # at a time, of files in buckets


@dataclass
class Sources:
    """The files and folders that the arguments of a command name."""

    folders: dict[str, dict[str, Stored]] = field(default_factory=dict)  # by folder and name
    failures: list[Failure] = field(default_factory=list)  # what cannot be listed
    links: list[tuple[str, str]] = field(default_factory=list)  # links to folders
    linked: list[str] = field(default_factory=list)  # targets of links to files, which are followed
    whole: set[str] = field(default_factory=set)  # the folders that were named themselves

    @property
    def are_whole(self) -> bool:
        """Whether folders were named, and no files one by one."""
        return self.whole >= self.folders.keys()

    def root_of(self, url: str) -> tuple[str, str]:
        """The folder that names of sources start at, and their prefix there.

        If several folders were named, the prefix is the folder's own name, as in `l3 encode`.

        Raises:
            UsageError: there are several, and this one has no name, as the root of a bucket.
        """
        if len(self.whole) < 2 or url not in self.whole:
            return url, ""
        path = url.removeprefix("file://")
        if not is_remote(url):  # a link that is named keeps its name
            path = os.path.realpath(path) if ".." in path.split("/") else os.path.abspath(path)  # noqa: PTH100
        parent, name = split_url(path.rstrip("/"))
        if not name or parent.endswith(":/"):
            raise UsageError(f"{url} has no name for a folder of results; convert it alone")
        return parent, f"{name}/"


def find_sources(arguments: Iterable[str], *, is_strict: bool = True) -> Sources:
    """Finds the files of folders, and files named one by one or by braces (`a-{000..146}.tar`).

    Raises:
        UsageError: an argument names nothing; without `is_strict` that is a failure.
    """
    sources = Sources()
    for argument in arguments:
        if _WITH_QUERY.search(argument):
            raise UsageError(f"{argument}: URLs with ? or # are not supported; download the file")
        names = _expanded(argument)
        is_one = is_strict and len(names) == 1
        pool = ThreadPoolExecutor(_LOOKUPS if len(names) > 1 else 1)
        try:
            found = list(pool.map(_find_file if is_one else _find_one_of_many, names))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # a server may never answer
        for name, file in zip(names, found, strict=True):
            if isinstance(file, Failure):
                sources.failures.append(file)
            elif file is not None:
                sources.folders.setdefault(split_url(name)[0], {})[file.name] = file
                if (link := Path(name.removeprefix("file://"))).is_symlink():
                    sources.linked.append(os.path.realpath(link))
            else:
                _add_folder(sources, name, is_one=is_one)
    return sources


def _add_folder(sources: Sources, name: str, *, is_one: bool) -> None:
    listing = open_folder(name).list_files()
    if not listing.files and not listing.failures and not _is_folder(name):
        if not is_one:
            sources.failures.append(Failure(without_password(name), "no such file or folder"))
            if not is_shard_name(name) and suffix_of(name).lower() not in IMAGE_SUFFIXES:
                sources.folders.setdefault(name, {})  # Other names must not change.
                sources.whole.add(name)
            return
        advice = "; the shell expands *: leave out the quotes" if "*" in name else ""
        if name.startswith(("http://", "https://")):
            advice = "; folders on web servers cannot be listed: name their files"
        raise UsageError(f"{name}: no such file or folder{advice}")
    name = name.rstrip("/") or name
    sources.folders.setdefault(name, {}).update(listing.files)
    if name not in sources.whole:  # else it was named twice
        sources.whole.add(name)
        sources.failures += [Failure(*each) for each in listing.failures]
        sources.links += [(name, link) for link in listing.links]
        sources.linked += listing.linked


def _expanded(argument: str) -> list[str]:
    # Path.exists raises where the braces are longer than a name may be.
    if "{" not in argument or (not is_remote(argument) and os.path.exists(argument)):  # noqa: PTH110
        return [argument]
    try:
        from braceexpand import braceexpand
    except ImportError:
        raise needs("braceexpand", argument) from None
    try:
        return list(braceexpand(argument))
    except ValueError as error:
        raise UsageError(f"{argument}: {error}") from None


def _find_file(url: str) -> Stored | None:
    folder, name = split_url(url)
    if not name or folder.endswith(":/") or _is_folder(url):
        return None
    return open_folder(folder).stat(name)


def _find_one_of_many(url: str) -> Stored | Failure | None:
    try:
        return _find_file(url)
    except (OSError, UsageError) as error:
        reason = getattr(error, "strerror", None) or without_password(str(error))
        return Failure(without_password(url), reason)


def _is_folder(url: str) -> bool:
    return not is_remote(url) and Path(url.removeprefix("file://")).is_dir()


_L3 = Options(to="png")  # by which L3 files are the images


class Pipe(NamedTuple):
    """Standard input, or a pipe."""

    name: str
    read: Callable[[], bytes]

    def look(self, look: Callable[[Blob], codec.Info]) -> tuple[Contents, list[Failure]]:
        """As `Place.look`."""
        contents = Contents(files=1)
        try:
            data = self.read()
            contents.bytes = len(data)
            contents.add_image(look(Blob(self.name, data, self.name)))
        except (OSError, ValueError, MemoryError, RuntimeError) as error:
            return Contents(), [_failure(self.name, error)]
        return contents, []


class Place(NamedTuple):
    """A file to look into."""

    folder: str  # its path or URL
    file: Stored  # in that folder
    kind: str  # of the file, as a job has it
    row: Row | None = None  # of the manifest of the folder, if it has one
    is_named: bool = False  # it was named itself

    def __str__(self) -> str:
        """Its path or URL."""
        return open_folder(self.folder).place(self.file.name)

    @property
    def is_copy(self) -> bool:
        """Whether it is a file of a folder that `l3 convert` has only copied."""
        return (
            self.kind == FILES and not self.is_named and not self.file.name.lower().endswith(".l3")
        )

    def look(self, look: Callable[[Blob], codec.Info]) -> tuple[Contents, list[Failure]]:
        """Calls `look` with each L3 image of the file; compares the file's SHA-256 with its row.

        Returns:
            Sums, none if the file itself has failed; and failures, also those that `look` raises.
        """
        contents = Contents(files=1, bytes=self.file.size, copies=self.is_copy)
        failures: list[Failure] = []

        def count(blob: Blob) -> None:
            try:
                contents.add_image(look(blob))
            except (ValueError, MemoryError, RuntimeError) as error:
                where = "" if self.kind == FILES else f"{shortened(blob.place)}: "
                failures.append(_failure(str(self), error, where))

        row = self.row
        digests: list[str] = []
        try:
            if self.is_named and self.kind == FILES and row is None:
                with open_folder(self.folder).open(self.file.name) as file:
                    count(Blob(self.file.name, file.read(), self.file.name))
            elif self.is_copy:
                digests.append(hash_file(open_folder(self.folder), self.file.name))
            else:
                where = self.folder, self.file.name, self.kind
                for blob in read_blobs(*where, _L3, digests.append):
                    count(blob)
        except Exception as error:  # Containers raise anything.
            return Contents(), [_failure(str(self), error), *failures]
        if row is None and not (self.is_copy or contents.images or failures):
            reason = "not an L3 image" if self.kind == FILES else "a shard without L3 images"
            failures.append(Failure(str(self), reason))
        if row is not None:
            if digests != [row.result_hash] and not failures:  # Damage is reported once.
                failures.append(Failure(str(self), "changed since l3 convert wrote it (SHA-256)"))
            if reason := _fault_of_index(self.folder, row):
                failures.append(Failure(str(self), reason))
            contents.unconverted += len(row.failures)
            if row.status == FAILED and not failures:
                reason = f"the conversion of {row.source} has failed: {row.reason}"
                failures.append(Failure(str(self), reason))
        return contents, failures


@dataclass
class Places:
    """The files of data sets."""

    found: list[Place] = field(default_factory=list)  # those to look into
    failures: list[Failure] = field(default_factory=list)  # of folders, of results
    others: Counter[str] = field(default_factory=Counter)  # how many files were skipped, by suffix
    links: int = 0  # links to folders, which are not followed
    unconverted: int = 0  # failed sources without a result, by the manifests
    is_converted: bool = False  # there are manifests, which may have no rows

    def lines(self) -> list[str]:
        """What was skipped, for people."""
        counts = {
            "other files skipped": self.others.total(),
            "links to folders not followed": self.links,
        }
        return [f"{what}: {count}" for what, count in counts.items() if count]

    def fields(self) -> dict[str, int]:
        """What was skipped, for `--json-summary`."""
        return {"skipped": self.others.total(), "links_not_followed": self.links}


def find_places(arguments: Iterable[str]) -> Places:
    """The L3 files and shards that arguments name as in `l3 convert`, and results in manifests.

    Arguments that name nothing become failures.
    """
    sources = find_sources(arguments, is_strict=False)
    places = Places(failures=list(sources.failures), links=len(sources.links))
    by_place: dict[str, Place] = {}
    for url, files in sources.folders.items():
        folder = open_folder(url)
        root = folder.real_place().rstrip("/")
        rows, unconverted = _rows_by_result(url, files)
        places.is_converted |= bool(rows) or MANIFEST_NAME in files
        for name, kind in kinds_of_sources(folder, files).items():
            is_named = url not in sources.whole
            place = Place(url, files[name], kind, rows.get(name), is_named)
            if place.is_copy and place.row is None:
                places.others[PurePosixPath(name).suffix.lower()] += 1
            elif place.row is not None or f"{root}/{name}" not in by_place:  # of another PATH
                by_place[f"{root}/{name}"] = place
        if url in sources.whole:
            places.unconverted += unconverted
            places.failures += [
                Failure(
                    folder.place(result),
                    f"this result of {row.source} is missing; run l3 convert again",
                )
                for result, row in rows.items()
                if result not in files
            ]
    places.found = list(by_place.values())
    return places


def _rows_by_result(url: str, files: Iterable[str]) -> tuple[dict[str, Row], int]:
    """Rows of the manifests in a folder and below it, and the number of failed sources."""
    rows: dict[str, Row] = {}
    unconverted = 0
    below = [name[: -len(MANIFEST_NAME)] for name in files if name.endswith(f"/{MANIFEST_NAME}")]
    for prefix in ["", *sorted(below, key=len)]:
        folder = open_folder(f"{url}/{prefix}" if prefix else url)
        with Manifest(folder, read_only=True) as manifest:
            for row in manifest.rows.values():
                unconverted += row.status == FAILED and row.result is None
                if row.result is not None:
                    index = None if row.index is None else prefix + row.index
                    row = replace(row, source=prefix + row.source, index=index)
                    rows[prefix + str(row.result)] = row
    return rows, unconverted


@dataclass
class Contents:
    """Sums over files and the L3 images in them."""

    files: int = 0  # how many, with those that hold no L3 image
    bytes: int = 0  # of the files
    copies: int = 0  # files among them that `l3 convert` has only copied
    unconverted: int = 0  # images that could not be converted, and failed sources, by the manifests
    images: int = 0  # L3 images
    pixels: int = 0  # of these
    raw_bytes: int = 0  # of their samples
    l3_bytes: int = 0  # of the L3 images themselves

    def add_image(self, info: codec.Info) -> None:
        """Counts an L3 image."""
        self.images += 1
        self.pixels += info.width * info.height
        self.raw_bytes += info.raw_bytes
        self.l3_bytes += info.encoded_bytes

    def add(self, other: Contents) -> None:
        """Adds other sums."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def lines(self) -> list[str]:
        """For people."""
        failed = counted(self.unconverted, "image")
        return [
            f"{counted(self.files, 'file')} of {megabytes(self.bytes)}"
            + (f", {self.copies} of them copies of originals" if self.copies else "")
            + (f"; {failed} could not be converted" if self.unconverted else ""),
            f"{counted(self.images, 'L3 image')} of {self.pixels} pixels, "
            f"{megabytes(self.l3_bytes)}, ratio to raw {ratio(self.l3_bytes, self.raw_bytes)}",
        ]


def _failure(place: str, error: Exception, where: str = "") -> Failure:
    if isinstance(error, BrokenPipeError):  # of the output
        raise error
    reason = "not enough memory" if isinstance(error, MemoryError) else reason_of(error)
    return Failure(place, where + reason.removesuffix(f": {place}"))


def _fault_of_index(url: str, row: Row) -> str:
    """Why the DALI index of a shard is missing or changed; "" if it is neither."""
    if row.index is None:
        return ""
    folder = open_folder(url)
    try:
        if folder.stat(row.index) is None:
            return f"its index {row.index} is missing; run l3 convert again"
        if row.index_hash in ("", hash_file(folder, row.index)):
            return ""
    except OSError as error:
        return f"its index {row.index}: {reason_of(error)}"
    return f"its index {row.index} has changed (SHA-256); remove it and run l3 convert again"
