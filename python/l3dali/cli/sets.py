"""`l3 verify` of data sets: shards, URLs and results of `l3 convert`."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.cli.inputs import STDIN, Found
from l3dali.cli.loop import run, threads_per_file
from l3dali.cli.reading import PictureReader
from l3dali.cli.report import Done, finish
from l3dali.console import Failure, counted
from l3dali.datasets.convert.contents import Contents, find_places, sum_place
from l3dali.datasets.convert.images import Options, has_image_suffix, renamed
from l3dali.datasets.convert.reader import FILES, OTHER, is_shard_name, kinds_of_sources
from l3dali.datasets.convert.sources import find_sources
from l3dali.datasets.convert.storage import hash_file, open_folder
from l3dali.errors import UsageError
from l3dali.signatures import unread_images

if TYPE_CHECKING:
    import argparse

    from l3dali.datasets.convert.contents import Place, Places
    from l3dali.datasets.convert.images import Blob


def are_sets(options: argparse.Namespace) -> bool:
    """Whether there is `--source`, or a PATH is a shard, a URL or a folder."""
    if options.source is not None and (options.files_from is not None or len(options.paths) != 1):
        raise UsageError("--source needs one PATH")
    if options.files_from is not None:
        return False
    return options.source is not None or any(
        isinstance(path, str) or path.is_dir() or is_shard_name(path.name) for path in options.paths
    )


def verify(options: argparse.Namespace) -> int:
    """Decodes each L3 image, compares files with the manifest; returns the exit code."""
    if STDIN in options.paths:
        raise UsageError("standard input cannot be combined with shards, URLs and converted sets")
    places = find_places(map(str, options.paths))
    if not places.found and not places.failures:
        raise UsageError("no L3 files and no shards in the folders named")
    threads = threads_per_file(options.jobs, len(places.found))
    named = {str(place): place for place in places.found}
    reader = PictureReader(options)
    sources = None if options.source is None else _Sources(options, places)
    found: list[Contents] = []

    def work(name: str) -> Done:
        place = named[name]

        def look(blob: Blob) -> codec.Info:
            is_copied = place.row is not None and place.row.kind == OTHER
            if sources is not None and place.kind == FILES and not is_copied:
                reader.compare(sources.read(place), blob.data, threads)
                sources.compared.append(name)
            else:
                reader.verify(blob.data, threads)
            return codec.info(blob.data)

        contents, failures = sum_place(place, look)
        if sources is not None and not failures:
            sources.compare_hashes(place)
        if failures:
            places.failures.extend(failures[1:])
            raise ValueError(failures[0].reason)
        found.append(contents)
        return Done(contents.raw_bytes, contents.bytes)

    report = run(list(named), work, options)
    total = Contents(unconverted=places.unconverted)
    for contents in found:
        total.add(contents)
    searched = Found(failures=places.failures, others=places.others, links=places.links)
    sizes, fields = {"L3": total.l3_bytes}, {"totals": vars(total)}
    lines = total.lines()
    if sources is not None:
        text = counted(len(sources.compared), "image")
        lines += [f"{text} compared with the sources", *sources.remarks]
    return finish(report, searched, options, sizes, lines, fields)


class _Sources:
    """The sources of results, by result; sources without one become failures of `places`."""

    def __init__(self, options: argparse.Namespace, places: Places) -> None:
        found = find_sources([str(options.source)])
        if len(found.folders) != 1:
            raise UsageError(f"--source {options.source} names several folders; name one")
        ((url, files),) = found.folders.items()
        places.failures += found.failures
        places.links += len(found.links)
        self._folder = open_folder(url)
        self.compared: list[str] = []
        self._of_result: dict[str, str] = {}
        wanted: list[str] = []
        others = Counter(PurePosixPath(name).suffix.lower() for name in files)
        self.remarks = [] if places.is_converted else unread_images(others, f"of {url}")
        for name, kind in kinds_of_sources(self._folder, files).items():
            is_image = has_image_suffix(name, Options())
            if is_image and kind == FILES:
                self._of_result[renamed(name, "l3")] = name
            else:  # maybe a result beside its source
                self._of_result.setdefault(name, name)
            if places.is_converted or kind != FILES or is_image:
                wanted.append(name)
        self._of_result |= {
            place.file.name: place.row.source for place in places.found if place.row is not None
        }
        if not found.whole and len(wanted) == len(places.found) == 1:  # two files of any names
            self._of_result[places.found[0].file.name] = wanted[0]
        there = {self._of_result.get(place.file.name) for place in places.found}
        places.failures += [
            Failure(self._folder.place(name), "it has no result", "no result")
            for name in wanted
            if name not in there
        ]

    def _source_of(self, place: Place) -> str:
        name = self._of_result.get(place.file.name)
        if name is None:
            raise ValueError(f"no source found in {self._folder.place()}")
        return name

    def read(self, place: Place) -> bytes:
        """The bytes of the source of a file."""
        with self._folder.open(self._source_of(place)) as file:
            return file.read()

    def compare_hashes(self, place: Place) -> None:
        """Raises ValueError unless the source is the one that the manifest has."""
        name = self._source_of(place)
        if place.row is None and place.kind != FILES:
            raise ValueError("its source is not in any manifest")
        if place.row is not None and hash_file(self._folder, name) != place.row.source_hash:
            raise ValueError(
                f"{self._folder.place(name)} has changed since the conversion (SHA-256)"
            )
