"""`l3 verify` and `l3 info` of data sets: shards, URLs, and results of `l3 convert`."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from l3dali import codec
from l3dali.cli.info import one_by_one, whole_info
from l3dali.cli.inputs import STDIN, Found
from l3dali.cli.loop import run, threads_per_file
from l3dali.cli.reading import PictureReader
from l3dali.cli.report import Done, Report, finish, json_list
from l3dali.console import Failure, printable, reason_of
from l3dali.datasets.convert.contents import (
    Contents,
    find_places,
    sum_place,
)
from l3dali.datasets.convert.images import Options, has_image_suffix, renamed
from l3dali.datasets.convert.job import FILES, OTHER
from l3dali.datasets.convert.reader import kinds_of_sources
from l3dali.datasets.convert.storage import (
    MANIFEST_NAME,
    RemoteFolder,
    hash_file,
    is_remote,
    open_folder,
)
from l3dali.datasets.convert.work import find_sources, is_shard_name
from l3dali.errors import UsageError
from l3dali.files import RemoteFile, read_info

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from l3dali.datasets.convert.contents import Place, Places
    from l3dali.datasets.convert.images import Blob


def are_sets(options: argparse.Namespace) -> bool:
    """Whether a PATH is a shard, a URL, or a folder with shards or a manifest in it."""
    return options.files_from is None and any(map(_is_set, options.paths))


def _is_set(path: Path | str) -> bool:
    if isinstance(path, str):
        return True
    if not os.path.isdir(path):  # noqa: PTH112
        return is_shard_name(path.name)
    return any(
        name == MANIFEST_NAME or is_shard_name(name)
        for _, _, names in os.walk(path)
        for name in names
    )


def _places(options: argparse.Namespace) -> Places:
    if STDIN in options.paths:
        raise UsageError("standard input cannot be combined with shards, URLs and converted sets")
    places = find_places(map(str, options.paths))
    if not places.found and not places.failures:
        raise UsageError("no L3 files and no shards in the folders named")
    return places


def _finish(
    report: Report,
    places: Places,
    options: argparse.Namespace,
    total: Contents,
    **more: Any,
) -> int:
    """As `report.finish`; failures inside of shards join those of the report."""
    found = Found(failures=places.failures, others=places.others, links=places.links)
    return finish(report, found, options, fields={"totals": total.fields()}, **more)


def verify(options: argparse.Namespace) -> int:
    """Decodes each L3 image, compares files with the manifest; returns the exit code."""
    places = _places(options)
    threads = threads_per_file(options.jobs, len(places.found))
    named = {str(place): place for place in places.found}
    reader = PictureReader(options)
    sources = None if options.source is None else _Sources(options, places, reader)
    total = Contents(unconverted=places.unconverted)
    lock = threading.Lock()

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
        with lock:
            total.add(contents)
        return Done(contents.raw_bytes, contents.bytes)

    report = run(list(named), work, options)
    return _finish(
        report,
        places,
        options,
        total,
        file_bytes={"L3": total.l3_bytes},
        remark=lambda _: total.lines(),
    )


class _Sources:
    """The sources of results, by result."""

    def __init__(self, options: argparse.Namespace, places: Places, reader: PictureReader) -> None:
        if len(options.paths) != 1:
            raise UsageError("--source needs one PATH")
        self._reader = reader
        found = find_sources([str(options.source)])
        if len(found.folders) != 1:
            raise UsageError(f"--source {options.source} names several folders; name one")
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
        there = {self._of_result.get(place.file.name) for place in places.found}
        for name, kind in kinds.items():
            is_wanted = places.is_converted or kind != FILES or has_image_suffix(name, Options())
            if is_wanted and name not in there:
                place = self._folder.place(name)
                places.failures.append(Failure(place, "it has no result", "no result"))

    def _source_of(self, place: Place) -> str:
        name = self._of_result.get(place.file.name)
        if name is None:
            raise ValueError(f"no source in {self._folder.place()}")
        return name

    def compare_pixels(self, place: Place, data: bytes, threads: int) -> None:
        """Raises ValueError unless an L3 file has the pixels and the palette of its source."""
        name = self._source_of(place)
        with self._folder.open(name) as file:
            self._reader.compare(file.read(), data, threads)

    def compare_hashes(self, place: Place) -> None:
        """Raises ValueError unless the source is the one that the manifest has."""
        name = self._source_of(place)
        if place.row is None:
            if place.kind != FILES:
                raise ValueError("no manifest names its source")
            return
        if hash_file(self._folder, name) != place.row.source_hash:
            raise ValueError(
                f"{self._folder.place(name)} has changed since the conversion (SHA-256)"
            )


def info(options: argparse.Namespace, show: Callable[[str, codec.Info], str]) -> int:
    """Prints the contents of files and shards, and sums; returns the exit code.

    Args:
        options: of the command.
        show: returns the text or the JSON of an L3 file.
    """
    places = _places(options)
    named = {str(place): place for place in places.found}
    entries: list[str] = []
    total = Contents(unconverted=places.unconverted)

    def work(name: str) -> Done:
        place = named[name]
        infos: list[codec.Info] = []

        def look(blob: Blob) -> codec.Info:
            infos[:] = [whole_info(blob.data)]
            return infos[0]

        if place.kind == FILES and is_remote(place.folder) and not place.is_copy:
            contents, failures = _sum_head(place, infos)
        else:
            contents, failures = sum_place(place, look, hashes=False)
        total.add(contents)
        if not options.totals and contents.files and (options.json or not place.is_copy):
            shown = _shown(place, contents, infos, options, show)
            if options.json:
                entries.append(shown)
            else:
                print(shown)
        if failures:
            places.failures.extend(failures[1:])
            raise ValueError(failures[0].reason)
        return Done(contents.raw_bytes, contents.bytes)

    report = run(list(named), work, one_by_one(options))
    if options.json:
        print(json.dumps(total.fields(), indent=2) if options.totals else json_list(entries))
    else:
        print("\n".join(["total", *(f"  {line}" for line in total.lines())]))
    return _finish(report, places, options, total)


def _shown(
    place: Place,
    contents: Contents,
    infos: list[codec.Info],
    options: argparse.Namespace,
    show: Callable[[str, codec.Info], str],
) -> str:
    if place.kind == FILES and infos:
        return show(str(place), infos[0])
    if options.json:
        return json.dumps({"path": str(place), "kind": place.kind} | contents.fields())
    lines = [f"  {line}" for line in contents.lines()[1:]]
    return "\n".join([printable(str(place)), f"  shard  {place.kind}", *lines])


def _sum_head(place: Place, infos: list[codec.Info]) -> tuple[Contents, list[Failure]]:
    """Sums for a remote L3 file, of which only the head is read; its codings stay unknown."""
    contents = Contents(files=1, bytes=place.file.size)
    try:
        file = RemoteFolder(place.folder).openable(place.file.name)
        infos[:] = [read_info(RemoteFile(file.fs, file.path, str(place)))]
        if 0 < place.file.size < infos[0].encoded_bytes:  # 0: the server does not say the size
            raise ValueError("the data ends too early")
    except (OSError, ValueError) as error:
        return Contents(), [Failure(str(place), reason_of(error))]
    contents.add_image(infos[0], place.kind)
    reason = "" if place.row is None else contents.add_row(place.row)
    return contents, [Failure(str(place), reason)] if reason else []
