"""Draws a sample of the images of a data set by their headers; decodes nothing."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from l3dali.console import Failure, reason_of
from l3dali.datasets.convert.containers import FILES, kind_of, read_blobs
from l3dali.datasets.convert.images import group_of, has_image_suffix
from l3dali.datasets.convert.sources import find_sources
from l3dali.datasets.convert.storage import is_remote, open_folder
from l3dali.datasets.convert.work import unused_labels
from l3dali.errors import ImageError, UsageError
from l3dali.images.formats import read_header
from l3dali.signatures import READ_SUFFIXES, format_of, unread_images

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np

    from l3dali.datasets.convert.images import Options
    from l3dali.datasets.convert.storage import Folder, Stored

_PEEKED_FILES = 2000
_PEEKED_BYTES = 2**14
_HELD_BYTES = 2**28  # of images from shards
_SHARDS = 16  # that images are taken from, at the least
_SPARE = 4  # times as many images are looked at as are measured
_SMALLEST_GROUP = 12
_L3_FILES = "L3 files (plans are for originals)"


@dataclass(frozen=True)
class Candidate:
    """An image that may be measured."""

    name: str  # of its file, or its place in a shard
    size: int  # in bytes
    group: str  # by `group_of`, as its header has it
    weight: float  # how many images of the data set it stands for
    is_labels: bool  # its samples are numbers of classes
    read: Callable[[], bytes]  # gives its bytes


@dataclass
class DataSet:
    """The files and candidates of a data set."""

    files: list[tuple[Folder, Stored]]  # all of them, with their folders
    is_remote: bool  # any of them is reached by a URL
    candidates: list[Candidate] = field(default_factory=list)  # weighted to the whole data set
    notes: list[str] = field(default_factory=list)  # what is estimated, for people
    failures: list[Failure] = field(default_factory=list)  # what cannot be listed or read, and why


def open_dataset(
    arguments: Iterable[str],
    options: Options,
    *,
    samples: int,
    seconds: float,
    rng: np.random.Generator,
) -> DataSet:
    """Lists a data set, and reads headers and shards for up to `seconds`.

    Raises:
        UsageError: an argument names nothing, or there are no images.
        OSError: a folder cannot be read.
    """
    sources = find_sources(arguments)
    skipped: Counter[str] = Counter()
    others: Counter[str] = Counter()  # by suffix
    loose: list[tuple[Folder, Stored]] = []
    shards: list[tuple[Folder, Stored, str, str]] = []  # and folder's name, and kind
    for url, listed in sources.folders.items():
        root, prefix = sources.root_of(url)
        folder = open_folder(root)
        for file in (replace(each, name=prefix + each.name) for each in listed.values()):
            kind = kind_of(folder, file)
            if kind == FILES and not has_image_suffix(file.name, options):
                suffix = PurePosixPath(file.name).suffix.lower()
                skipped[_L3_FILES if suffix == ".l3" else "files that are not images"] += 1
                others[suffix] += 1
            elif not file.size:
                skipped["empty files"] += 1
            elif kind == FILES:
                loose.append((folder, file))
            else:
                shards.append((folder, file, root, kind))
    files = [*loose, *(shard[:2] for shard in shards)]
    found = DataSet(files, any(map(is_remote, sources.folders)), failures=sources.failures)
    found.notes += [f"{what} skipped: {count}" for what, count in sorted(skipped.items())]
    seconds /= bool(loose) + bool(shards) or 1
    names = {file.name for _, file in loose}
    if loose:
        _look_at_files(loose, found, options, samples, seconds, rng)
    if shards:
        names |= _look_into_shards(shards, found, options, samples, seconds, rng)
    if names:
        found.notes += unused_labels(options, names, are_all=not shards)
    if not found.candidates:
        lines = [f"no images found in the data set; supported: {' '.join(sorted(READ_SUFFIXES))}"]
        if skipped[_L3_FILES]:
            lines.append(f"it has {_L3_FILES}, which l3 convert --to png decodes")
        lines += [f"{failure.path}: {failure.reason}" for failure in found.failures[:1]]
        raise UsageError("; ".join([*lines, *unread_images(others, "there")]))
    return found


def _look_at_files(
    files: Sequence[tuple[Folder, Stored]],
    found: DataSet,
    options: Options,
    samples: int,
    seconds: float,
    rng: np.random.Generator,
) -> None:
    """Reads the headers of some files."""
    end = time.monotonic() + seconds
    looked: list[Candidate] = []
    for i in rng.permutation(len(files))[: max(_PEEKED_FILES, _SPARE * samples)]:
        folder, file = files[i]
        if len(looked) >= samples and time.monotonic() > end:
            break
        try:
            with folder.open(file.name) as opened:
                head = opened.read(_PEEKED_BYTES)
        except Exception as error:  # Storage raises anything.
            found.failures.append(Failure(folder.place(file.name), reason_of(error)))
            continue
        labels = bool(options.labels_of(file.name))
        read = partial(_read_file, folder, file.name)
        looked.append(_candidate(file.name, file.size, head, labels, read))
    found.candidates += [replace(each, weight=len(files) / len(looked)) for each in looked]


def _look_into_shards(
    shards: Sequence[tuple[Folder, Stored, str, str]],
    found: DataSet,
    options: Options,
    samples: int,
    seconds: float,
    rng: np.random.Generator,
) -> set[str]:
    """Reads the beginnings of some shards; returns the names of the images."""
    end = time.monotonic() + seconds
    share = -(-_SPARE * samples // min(len(shards), _SHARDS))
    looked: list[Candidate] = []
    names: set[str] = set()
    held = read_images = 0
    is_whole = True
    for i in rng.permutation(len(shards)):
        if len(looked) >= _SPARE * samples or held >= _HELD_BYTES:
            is_whole = False
            break
        _, file, root, kind = shards[i]
        count = 0
        try:
            for blob in read_blobs(root, file.name, kind, options):
                if count == share or held >= _HELD_BYTES or (count and time.monotonic() > end):
                    is_whole = False
                    break
                count += 1
                held += len(blob.data)
                names.update(blob.names)
                if blob.data:
                    place = f"{file.name}: {blob.place}"
                    labels = bool(options.labels_of(*blob.names))
                    read = partial(bytes, blob.data)
                    looked.append(_candidate(place, len(blob.data), blob.data, labels, read))
        except UsageError:
            raise
        except Exception as error:  # Containers raise anything.
            found.failures.append(Failure(file.name, reason_of(error)))
        read_images += count
    weight = 1.0
    if looked and not is_whole:
        shard_bytes = sum(file.size for _, file, *_ in shards)
        weight = max(1.0, shard_bytes / held)
        found.notes.append(
            f"the number of images in shards is estimated from {read_images} of them, "
            f"{held / shard_bytes:.1%} of the bytes"
        )
    found.candidates += [replace(each, weight=weight) for each in looked]
    return names


def _read_file(folder: Folder, name: str) -> bytes:
    with folder.open(name) as file:
        return file.read()


def _candidate(
    name: str, size: int, head: bytes, labels: bool, read: Callable[[], bytes]
) -> Candidate:
    try:
        group = group_of(head, read_header(head), labels=labels)
    except ImageError:
        group = format_of(head)[0]
    return Candidate(name, size, group, 1.0, labels, read)


def draw(candidates: Sequence[Candidate], count: int, rng: np.random.Generator) -> list[Candidate]:
    """A sample, stratified by group and, within a group, by size.

    The groups alternate, so that the beginning is a smaller sample.
    """
    groups: dict[str, list[Candidate]] = defaultdict(list)
    for each in candidates:
        groups[each.group].append(each)
    drawn: list[tuple[float, int, Candidate]] = []
    for number, group in enumerate(groups.values()):
        group.sort(key=lambda each: (each.size, each.name))
        share = round(count * len(group) / len(candidates))
        bins = min(len(group), max(_SMALLEST_GROUP, share))
        edges = [i * len(group) // bins for i in range(bins + 1)]
        chosen = [
            replace(
                group[rng.integers(first, end)],
                weight=sum(each.weight for each in group[first:end]),
            )
            for first, end in pairwise(edges)
        ]
        # Each group evenly over the whole.
        order = enumerate(rng.permutation(bins))
        drawn += [((place + 0.5) / bins, number, chosen[i]) for place, i in order]
    return [each for _, _, each in sorted(drawn, key=lambda place: place[:2])]
