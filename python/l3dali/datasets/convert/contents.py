"""Finds and reads L3 images in data sets: files and shards, with a manifest or without."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from l3dali.console import Failure, counted, megabytes, ratio, reason_of, shortened
from l3dali.datasets.convert.images import Options
from l3dali.datasets.convert.manifest import FAILED, Manifest, Row
from l3dali.datasets.convert.reader import FILES, kinds_of_sources, look_into
from l3dali.datasets.convert.sources import find_sources
from l3dali.datasets.convert.storage import MANIFEST_NAME, Stored, hash_file, open_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from l3dali import codec
    from l3dali.datasets.convert.images import Blob

_L3 = Options(to="png")  # by which L3 files are the images


class Place(NamedTuple):
    """A file to look into."""

    folder: str  # its path or URL
    file: Stored  # in that folder
    kind: str  # of the file, as a job has it
    row: Row | None = None  # what the manifest of the folder says of it; None if there is nothing

    def __str__(self) -> str:
        """Its path or URL."""
        return open_folder(self.folder).place(self.file.name)

    @property
    def is_copy(self) -> bool:
        """Whether it is a file of a folder that `l3 convert` has only copied."""
        return self.kind == FILES and not self.file.name.lower().endswith(".l3")


@dataclass
class Places:
    """The files of data sets."""

    found: list[Place] = field(default_factory=list)  # those to look into
    failures: list[Failure] = field(default_factory=list)  # of folders, of results
    others: Counter[str] = field(default_factory=Counter)  # how many files were skipped, by suffix
    links: int = 0  # links to folders, which are not followed
    unconverted: int = 0  # failed sources without a result, by the manifests
    is_converted: bool = False  # there are manifests, which may have no rows


def find_places(arguments: Iterable[str]) -> Places:
    """The L3 files and shards that arguments name as in `l3 convert`, and results in manifests.

    Raises:
        UsageError: an argument names nothing.
    """
    sources = find_sources(arguments)
    places = Places(failures=list(sources.failures), links=len(sources.links))
    by_place: dict[str, Place] = {}
    for url, files in sources.folders.items():
        folder = open_folder(url)
        root = folder.real_place().rstrip("/")
        rows, unconverted = _rows_by_result(url, files)
        places.is_converted |= bool(rows) or MANIFEST_NAME in files
        for name, kind in kinds_of_sources(folder, files).items():
            place = Place(url, files[name], kind, rows.get(name))
            if place.is_copy and place.row is None:
                places.others[PurePosixPath(name).suffix.lower()] += 1
            elif place.row is not None or f"{root}/{name}" not in by_place:  # of another PATH
                by_place[f"{root}/{name}"] = place
        if url in sources.whole:
            places.unconverted += unconverted
            places.failures += [
                Failure(folder.place(result), f"this result of {row.source} is missing")
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


def sum_place(place: Place, look: Callable[[Blob], codec.Info]) -> tuple[Contents, list[Failure]]:
    """Calls `look` with each L3 image of a file; compares the file's SHA-256 with its row.

    Returns:
        Sums, none if the file itself has failed; and failures, also those that `look` raises.
    """
    contents = Contents(files=1, bytes=place.file.size, copies=place.is_copy)
    failures: list[Failure] = []

    def count(blob: Blob) -> None:
        try:
            contents.add_image(look(blob))
        except (ValueError, MemoryError, RuntimeError) as error:
            where = "" if place.kind == FILES else f"{shortened(blob.place)}: "
            reason = f"{where}{reason_of(error)}"
            failures.append(Failure(str(place), reason))

    row = place.row
    try:
        if place.is_copy:
            digest = hash_file(open_folder(place.folder), place.file.name)
        else:
            digest = look_into(place.folder, place.file.name, place.kind, _L3, count)
    except Exception as error:  # Containers raise anything.
        return Contents(), [Failure(str(place), reason_of(error)), *failures]
    if row is None and place.kind == FILES and not (place.is_copy or contents.images or failures):
        failures.append(Failure(str(place), "not an L3 image"))
    if row is not None:
        if digest != row.result_hash and not failures:  # Damage is reported once.
            failures.append(Failure(str(place), "changed since l3 convert wrote it (SHA-256)"))
        if reason := _fault_of_index(place.folder, row):
            failures.append(Failure(str(place), reason))
        contents.unconverted += len(row.failures)
        if row.status == FAILED and not failures:
            reason = f"the conversion of {row.source} has failed: {row.reason}"
            failures.append(Failure(str(place), reason))
    return contents, failures


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
