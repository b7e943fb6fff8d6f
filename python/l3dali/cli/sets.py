"""`l3 verify` and `l3 info` of data sets: shards, URLs, and results of `l3 convert`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.cli.batch import STDIN, Found
from l3dali.cli.reading import PictureReader
from l3dali.cli.report import Done, Report, finish, json_list
from l3dali.cli.work import check_summary, run, threads_per_file
from l3dali.console import Failure, printable, reason_of
from l3dali.datasets.convert.contents import (
    Contents,
    find_places,
    kinds_of_sources,
    sum_place,
)
from l3dali.datasets.convert.images import Options, has_image_suffix, renamed
from l3dali.datasets.convert.job import FILES, OTHER
from l3dali.datasets.convert.storage import (
    MANIFEST_NAME,
    RemoteFolder,
    hash_file,
    is_remote,
    open_folder,
    walk,
)
from l3dali.datasets.convert.work import find_sources, is_shard_name
from l3dali.errors import UsageError
from l3dali.files import RemoteFile, read_info

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from l3dali.datasets.convert.contents import Place, Places
    from l3dali.datasets.convert.images import Blob


def are_sets(options: argparse.Namespace) -> bool:
    """Whether a PATH is a shard, a URL, or a folder with shards or a manifest in it."""
    return options.files_from is None and any(map(_is_set, options.paths))


def _is_set(path: Path | str) -> bool:
    if isinstance(path, str):
        return True
    if path == STDIN:
        return False
    try:
        if not path.is_dir():
            return is_shard_name(path.name)
    except OSError:  # It is told of as a file that cannot be read.
        return False
    return any(
        name == MANIFEST_NAME or is_shard_name(name) for _, _, names in walk(path) for name in names
    )


def _places(options: argparse.Namespace) -> Places:
    if STDIN in options.paths:
        raise UsageError("standard input does not go with shards, URLs and results of l3 convert")
    places = find_places(map(str, options.paths))
    if not places.found and not places.failures:
        raise UsageError("no L3 files and no shards in what was named")
    return places


def verify(options: argparse.Namespace) -> int:
    """Decodes each L3 image, compares files with the manifest; gives the exit code."""
    if options.json_summary is not None:
        check_summary(options.json_summary)
    places = _places(options)
    threads = threads_per_file(options.jobs, len(places.found))
    named = {str(place): place for place in places.found}
    reader = PictureReader(options)
    sources = None if options.source is None else _Sources(options, places, reader)
    results: dict[str, Contents] = {}

    def work(name: str) -> Done:
        place = named[name]

        def look(blob: Blob) -> codec.Info:
            is_copied = place.row is not None and place.row.kind == OTHER
            if sources is not None and place.kind == FILES and not is_copied:
                sources.compare_pixels(place, blob.data, threads)
            else:
                reader.verify(blob.data, threads)
            return codec.info(blob.data)

        contents, failures = sum_place(place, look)
        if sources is not None and not failures:
            sources.compare_hashes(place)
        if failures:
            places.failures.extend(failures[1:])
            raise ValueError(failures[0].reason)
        results[name] = contents
        return Done(contents.raw_bytes, contents.bytes, 0)

    report = run(list(named), work, options)
    total = _sum(results.values())
    total.unconverted += places.unconverted

    def remark(_report: Report) -> list[str]:
        return total.lines()

    found = Found(failures=places.failures, others=places.others, links=places.links)
    columns = {"L3": total.l3_bytes}
    return finish(report, found, options, columns, remark, {"totals": total.fields()})


def _sum(several: Iterable[Contents]) -> Contents:
    total = Contents()
    for contents in several:
        total.add(contents)
    return total


class _Sources:
    """The files that results were made from, and which of them each was made of."""

    def __init__(self, options: argparse.Namespace, places: Places, reader: PictureReader) -> None:
        if len(options.paths) != 1:
            raise UsageError("--source goes with one PATH")
        self._reader = reader
        found = find_sources([str(options.source)])
        if len(found.folders) != 1:
            raise UsageError(f"--source {options.source} names several folders; one is compared")
        ((url, files),) = found.folders.items()
        places.failures += found.failures
        places.links += len(found.links)
        self._folder = open_folder(url)
        self._of_result: dict[str, str] = {}
        kinds = kinds_of_sources(self._folder, files)
        for name, kind in kinds.items():
            is_image = kind == FILES and has_image_suffix(name, Options())
            self._of_result[renamed(name, "l3") if is_image else name] = name
        self._of_result |= {
            place.file.name: place.row.source for place in places.found if place.row is not None
        }
        # What has no result, or was copied by hand. `l3 convert` takes all files.
        there = {self._of_result.get(place.file.name) for place in places.found}
        for name, kind in kinds.items():
            is_wanted = places.is_converted or kind != FILES or has_image_suffix(name, Options())
            if is_wanted and name not in there:
                place = self._folder.place(name)
                places.failures.append(Failure(place, "nothing has been made of it", "no result"))

    def _source_of(self, place: Place) -> str:
        name = self._of_result.get(place.file.name)
        if name is None:
            raise ValueError(f"no source in {self._folder.place()}")
        return name

    def compare_pixels(self, place: Place, data: bytes, threads: int) -> None:
        """Raises ValueError unless an L3 file has the pixels and the palette of its source."""
        name = self._source_of(place)
        with self._folder.open(name) as file:
            source = file.read()
        self._reader.compare(Path(self._folder.place(name)), source, data, threads)

    def compare_hashes(self, place: Place) -> None:
        """Raises ValueError unless the source is the one that the manifest has."""
        name = self._source_of(place)
        if place.row is None:
            if place.kind != FILES:
                raise ValueError("no line of a manifest says what it was made of")
            return
        if hash_file(self._folder, name) != place.row.source_hash:
            raise ValueError(f"{self._folder.place(name)} is not what it was made of (SHA-256)")


def info(options: argparse.Namespace, show: Callable[[str, codec.Info], str]) -> int:
    """Prints what files and shards hold, and sums; gives the exit code.

    Args:
        options: of the command.
        show: what is to be printed of an L3 file: a text, or JSON.
    """
    places = _places(options)
    report = Report()
    shown: list[str] = []
    total = Contents(unconverted=places.unconverted)
    for place in places.found:
        infos: list[codec.Info] = []

        def look(blob: Blob, infos: list[codec.Info] = infos) -> codec.Info:
            found = codec.info(blob.data)
            if found.codings is None:
                raise ValueError("the data ends too early")
            infos[:] = [found]
            return found

        if place.kind == FILES and is_remote(place.folder) and not place.is_copy:
            contents, failures = _sum_head(place, infos)
        else:
            contents, failures = sum_place(place, look, hashes=False)
        report.failures += failures
        total.add(contents)
        if options.totals or not contents.files or (place.is_copy and not options.json):
            continue
        if place.kind == FILES and infos:
            try:
                shown.append(show(str(place), infos[0]))
            except MemoryError as error:
                report.failures.append(Failure(str(place), reason_of(error)))
                continue
        elif options.json:
            fields = {"path": str(place), "kind": place.kind} | contents.fields()
            shown.append(json.dumps(fields))
        else:
            lines = [printable(str(place)), f"  shard  {place.kind}", *contents.lines()]
            shown.append("\n".join([*lines[:2], *(f"  {line}" for line in lines[2:])]))
        if not options.json:
            print(shown.pop())
    if options.json:
        print(json.dumps(total.fields(), indent=2) if options.totals else json_list(shown))
    else:
        print("\n".join(["total", *(f"  {line}" for line in total.lines())]))
    found = Found(failures=places.failures, others=places.others, links=places.links)
    return finish(report, found, options)


def _sum_head(place: Place, infos: list[codec.Info]) -> tuple[Contents, list[Failure]]:
    """Sums of an L3 file that is afar: its head says enough, but for the codings."""
    contents = Contents(files=1, bytes=place.file.size)
    try:
        file = RemoteFolder(place.folder).openable(place.file.name)
        infos[:] = [read_info(RemoteFile(file.fs, file.path, str(place)))]
    except (OSError, ValueError) as error:
        return Contents(), [Failure(str(place), reason_of(error))]
    if 0 < place.file.size < infos[0].encoded_bytes:  # Not all servers tell it.
        return Contents(), [Failure(str(place), "the data ends too early")]
    contents.add_image(infos[0], place.kind)
    reason = "" if place.row is None else contents.add_row(place.row)
    return contents, [Failure(str(place), reason)] if reason else []
