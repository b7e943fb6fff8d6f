"""The command `l3 verify`."""

from __future__ import annotations

import argparse
import threading
import time
from collections import Counter
from contextlib import nullcontext, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.cli.inputs import find_l3_images
from l3dali.cli.loop import sum_contents
from l3dali.cli.parser import JOBS, PLACES, READING, SUMMARY, new_command, path_or_url_argument
from l3dali.cli.summary import check_summary, conclude
from l3dali.console import Failure, counted, reason_of, speed
from l3dali.datasets.convert.containers import FILES, OTHER, kinds_of_sources
from l3dali.datasets.convert.conversion import compare
from l3dali.datasets.convert.images import Options, has_image_suffix, l3_names
from l3dali.datasets.convert.pool import read_alone
from l3dali.datasets.convert.sources import Contents, Place, find_sources
from l3dali.datasets.convert.storage import hash_file, open_folder
from l3dali.errors import L3Error, UsageError
from l3dali.signatures import unread_images

if TYPE_CHECKING:
    from l3dali.cli.parser import Commands
    from l3dali.datasets.convert.images import Blob
    from l3dali.datasets.convert.sources import Places

_LARGE_BYTES = 2**28  # of pixels: one such image is decoded at a time
_one_is_large = threading.Lock()


def add_command(commands: Commands) -> None:
    """Adds `l3 verify`."""
    new_command(
        commands,
        "verify",
        _verify,
        "Check L3 files; compare them with their sources.",
        """
        l3 verify train_l3/                      checksums, every tile decoded
        l3 verify train_l3/ --source train/      pixels, and missing results
        l3 verify train_l3/ --json-summary - --quiet | jq .failures
        l3 verify s3://data/train-l3             shards, and hashes of the manifest
        """,
        PLACES,
        "--source SOURCE   source of PATH, a file or folder, to compare",
        *(READING, JOBS, SUMMARY),
        paths={"type": path_or_url_argument},
        source={"type": path_or_url_argument},
    )


def _verify(options: argparse.Namespace) -> int:
    """Decodes each L3 image, compares files with the manifest; returns the exit code."""
    check_summary(options.json_summary)
    if options.source is not None and (options.files_from is not None or len(options.paths) != 1):
        raise UsageError("--source needs one PATH")
    inputs, places = find_l3_images(options)
    threads = max(1, options.jobs // max(1, len(inputs)))
    sources = None if options.source is None else _Sources(options, places)

    def look_at(name: str) -> tuple[Contents, list[Failure]]:
        each = inputs[name]
        place = each if isinstance(each, Place) else None
        is_image = place is not None and place.kind == FILES
        is_copy = place is not None and place.row is not None and place.row.kind == OTHER

        def look(blob: Blob) -> codec.Info:
            if sources is not None and place is not None and is_image and not is_copy:
                sources.compare(place, blob.data, threads)
            else:
                _check(blob.data, threads, options.max_pixels)
            return codec.info(blob.data)

        contents, failures = each.look(look)
        if sources is not None and place is not None and not failures:
            failures += sources.compare_hashes(place)
        return contents, failures

    start = time.perf_counter()
    total, failures = sum_contents(look_at, list(inputs), options.jobs, quiet=options.quiet)
    seconds = time.perf_counter() - start
    total.unconverted += places.unconverted
    lines = places.lines()
    if total.files:
        rate = f"{seconds:.1f} s, {speed(total.raw_bytes, seconds)} MB of pixels a second"
        lines += [*total.lines(), rate]
    if sources is not None:
        if sources.compared or not sources.shards:
            lines += [f"{counted(sources.compared, 'image')} compared with the sources"]
        if sources.shards:
            shards = counted(sources.shards, "shard")
            lines += [f"{shards} with sources that have not changed (SHA-256); pixels not compared"]
        lines += sources.remarks
    failures = sorted(places.failures + failures, key=lambda failure: Path(failure.path))
    fields = {"files": len(inputs), "seconds": round(seconds, 3), "totals": vars(total)}
    return conclude(options, failures, lines, fields | places.fields())


def _check(data: bytes, threads: int, max_pixels: int) -> None:
    size = 0
    with suppress(L3Error):  # verify raises it, too
        size = codec.info(data).raw_bytes
    with _one_is_large if size > _LARGE_BYTES else nullcontext():
        codec.verify(data, threads=threads, max_pixels=max_pixels)


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
        self._options = Options(
            orient=options.orient,
            max_side=options.max_side,
            layout=options.layout,
            max_pixels=options.max_pixels,
            refuse_labels=False,
        )
        self.compared = 0  # images
        self.shards = 0  # whose sources are those of the manifest
        others = Counter(PurePosixPath(name).suffix.lower() for name in files)
        self.remarks = [] if places.is_converted else unread_images(others, f"of {url}")
        kinds = kinds_of_sources(self._folder, files)
        images = {
            n for n, kind in kinds.items() if kind == FILES and has_image_suffix(n, Options())
        }
        results = {result: name for name, result in l3_names(images).items()}
        rows = {place.file.name: place.row.source for place in places.found if place.row}
        self._of_result = {name: name for name in kinds} | results | rows
        wanted = [
            name
            for name, kind in kinds.items()
            if places.is_converted or kind != FILES or name in images
        ]
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

    def compare(self, place: Place, data: bytes, threads: int) -> None:
        """Compares an L3 file with its source.

        Raises:
            L3Error: it is damaged.
            ValueError: pixels or palette differ, or the source cannot be read.
        """
        decoded = codec.decode(data, threads=threads, max_pixels=self._options.max_pixels)
        with self._folder.open(self._source_of(place)) as file:
            source = file.read()
        info = codec.info(data)
        picture = read_alone(source, self._options, labels=info.labels)
        compare(decoded, picture.pixels)
        if picture.palette != info.palette:
            raise ValueError("the palette differs from the source's")
        self.compared += 1

    def compare_hashes(self, place: Place) -> list[Failure]:
        """A failure unless the source is the one that the manifest has."""
        try:
            name = self._source_of(place)
            if place.row is None and place.kind != FILES:
                raise ValueError("its source is not in any manifest")
            if place.row is not None and hash_file(self._folder, name) != place.row.source_hash:
                raise ValueError(
                    f"{self._folder.place(name)} has changed since the conversion (SHA-256)"
                )
            self.shards += place.kind != FILES
        except (OSError, ValueError) as error:
            return [Failure(str(place), reason_of(error))]
        return []
