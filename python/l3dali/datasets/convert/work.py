"""What a run has to do, by the manifest; and what it did, in words and as JSON."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from l3dali.console import Failure, counted, megabytes, ratio, speed
from l3dali.datasets.convert.containers import (
    FILES,
    OTHER,
    SHARDS,
    has_index,
    index_name,
    kinds_of_sources,
)
from l3dali.datasets.convert.images import (
    SOURCE,
    SOURCE_FORMAT,
    FormatTotals,
    Options,
    Sums,
    has_image_suffix,
    l3_names,
    renamed,
    result_names,
)
from l3dali.datasets.convert.job import Job, may_be_done
from l3dali.datasets.convert.manifest import DONE, DROPPED, FAILED, Manifest, Row
from l3dali.datasets.convert.storage import OWN_NAMES, Stored, leads_out, open_folder
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from l3dali.datasets.convert.sources import Sources
    from l3dali.datasets.convert.storage import Folder

READ_SHARDS = "shards: " + " ".join(module.SUFFIXES[0] for module in SHARDS.values())
_COMPRESSED_SHARD = re.compile(
    r"\.(t|((tar|tfrec(ords?)?|parquet|arrow|zip)(-\d+-of-\d+)?\.))"
    r"(gz|bz2?|xz|zst|lz4|lz|lzma)$"
    r"|\.tar\.(zstd|lzo|br|z)$",
    re.IGNORECASE,
)
_BATCH_FILES = 256
_BATCH_BYTES = 2**22  # less than a second of work
_BATCHES_A_WORKER = 4
_MOST_NAMED = 10  # sources of a remark


@dataclass
class Work:
    """The work of a run."""

    jobs: list[Job] = field(default_factory=list)  # what is to be done
    kept: list[Row] = field(default_factory=list)  # rows of results that are done already
    failures: list[Failure] = field(default_factory=list)  # sources that no job can be made for
    links: int = 0  # links to folders, which are not followed
    linked: int = 0  # how many links to files are followed
    names: set[str] = field(default_factory=set)  # all sources
    claims: dict[str, str] = field(default_factory=dict)  # sources by possible results
    gone: list[Row] = field(default_factory=list)  # results without a source
    outdated: Counter[str] = field(default_factory=Counter)  # results by their other options

    def changed_options(self, options: Options) -> list[str]:
        """A remark on results that are converted again since their options were others."""
        new = _parts_of(options.identity)
        changes = Counter[str]()
        for identity, count in self.outdated.items():
            old = _parts_of(identity)
            names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
            texts = [
                f"{name} was {old.get(name) or 'not set'}, is {new.get(name) or 'not set'}"
                for name in names
            ]
            changes[", ".join(texts)] += count
        return [
            f"converting {counted(count, 'result')} again, since options differ: {text}"
            for text, count in changes.items()
        ]


def _parts_of(identity: str) -> dict[str, str]:
    """The options in an identity, by name."""
    parts = re.split(r"(?:^| )([a-z]+(?:-[a-z]+)*)=", identity + " ")
    return {name: value.strip() for name, value in zip(parts[1::2], parts[2::2], strict=True)}


def unused_labels(options: Options, names: Iterable[str], *, are_all: bool) -> list[str]:
    """A remark for each of `options.labels` that matches none of these images.

    Raises:
        UsageError: no label matches, and there are no other images (`are_all`).
    """
    found = {label for name in names for label in options.labels_of(name)}
    if are_all and options.labels and not found:
        given = ", ".join(options.labels)
        raise UsageError(
            f"--labels {given}: no image matches; write the ends of names (_labelIds.png) "
            "or FOLDER/*"
        )
    what = "no image" if are_all else "none of the sampled images"
    return [f"--labels {each!r} matches {what}" for each in options.labels if each not in found]


def find_work(
    sources: Sources, target_url: str, options: Options, manifest: Manifest, workers: int
) -> Work:
    """Jobs for the sources that are not done by the manifest; `workers` jobs run at a time.

    Raises:
        UsageError: there are no files, two sources have one result, a result would be a source, or
            a new DEST has files with the names of results.
    """
    target = open_folder(target_url)
    _refuse_overlap(sources, target_url)
    listing = target.list_files()
    existing = listing.files
    work = Work(failures=list(sources.failures))
    for place, reason in listing.failures:  # A run might replace files that it cannot list.
        raise UsageError(f"{place}, in DEST: {reason}")
    work.links, work.linked = len(sources.links), len(sources.linked)
    manifest.claims = work.claims
    unlisted: set[str] = set()
    moved: set[str] = set()  # sources whose results get other names, for those of new sources
    for url, listed in sources.folders.items():
        source_url, prefix = sources.root_of(url)
        unlisted.update(prefix + link for at, link in sources.links if at == url)
        files = {prefix + name: replace(file, name=prefix + name) for name, file in listed.items()}
        folder = open_folder(source_url)
        loose: list[Stored] = []
        kinds = kinds_of_sources(folder, files)
        names: dict[str, str] = {}  # of L3 files
        if options.to == "l3":
            images = (name for name, kind in kinds.items() if kind == FILES)
            names = l3_names(name for name in images if has_image_suffix(name, options))
        for name, kind in kinds.items():
            file = files[name]
            is_compressed = kind == FILES and _COMPRESSED_SHARD.search(name)
            if is_compressed or leads_out(name):
                reason = "a compressed shard, which readers cannot index; decompress it first"
                if leads_out(name):
                    reason = "the name leads out of the folder, or has empty parts"
                work.failures.append(Failure(folder.place(name), reason))
                continue
            work.names.add(name)
            row = manifest.rows.get(name)
            if row is not None and row.result == renamed(name, "l3") != names.get(name, row.result):
                moved.add(name)
            is_kept = row is not None and _is_unchanged(row, file, existing, options)
            is_kept = is_kept and name not in moved
            if row is not None and row.status == DONE and row.options not in options.accepted:
                work.outdated[row.options] += 1
            results = [name, index_name(name)] if has_index(kind) else [name]
            if kind == FILES:
                results = result_names(name, options, names.get(name))
            if row is not None and row.result is not None and is_kept:
                results = [*results, row.result]
            for result in results:
                if options.to == SOURCE_FORMAT:  # An image comes back with the suffix that it had.
                    stem, dot, suffix = result.rpartition(".")
                    result = stem + dot + suffix.lower()
                claim(work.claims, result, name, folder.place(name))
            if row is not None and is_kept:
                work.kept.append(row)
            elif kind == FILES:
                loose.append(file)
            else:
                work.jobs.append(Job(kind, source_url, target_url, (file,), options))
        work.jobs += batches(loose, source_url, target_url, options, workers, names)
    if not work.names and not work.failures:
        raise UsageError("no files in the folders named")
    _find_unknown(work, target, {*existing, *listing.links}, manifest)
    if sources.are_whole:
        work.gone = [
            row
            for row in manifest.rows.values()
            if row.result is not None
            and row.result not in work.claims
            and row.source not in work.names
            and not any(_is_within(row.source, link) for link in unlisted)
        ]
    rows_of_results = (row for row in manifest.rows.values() if row.result in existing)
    previous = {row.source: row for row in rows_of_results if row.source not in moved}
    for at, job in enumerate(work.jobs):
        rows = {file.name: previous[file.name] for file in job.files if file.name in previous}
        work.jobs[at] = replace(job, previous=rows)
    # Large ones first, so that no core is left with one at the end.
    work.jobs.sort(key=lambda job: -job.bytes)
    return work


def claim(claims: dict[str, str], result: str, source: str, shown: str = "") -> None:
    """Adds a result and its source, which errors show as `shown`.

    Raises:
        UsageError: another source has this result.
    """
    other = claims.setdefault(result, source)
    if other != source:
        raise UsageError(
            f"{other} and {shown or source} would both make {result}: rename one of them, or put "
            "them into folders of their own"
        )


def _find_unknown(work: Work, target: Folder, there: set[str], manifest: Manifest) -> None:
    """Adds to jobs the files of DEST that have names of results and are not in the manifest."""
    rows = manifest.rows.values()
    unknown = there - {name for row in rows for name in (row.result, row.index)} - {*OWN_NAMES}
    if not manifest.existed:
        for name in (*work.claims, *work.names):
            if name in unknown:
                raise UsageError(
                    f"{target.place(name)} exists and was not written by l3 convert; name another "
                    "folder"
                )
    by_stem = defaultdict[str, list[str]](list)
    for name in unknown:
        by_stem[renamed(name, "")].append(name)
    for at, job in enumerate(work.jobs if unknown else ()):
        names = {index_name(file.name) for file in job.files} | {file.name for file in job.files}
        names.update(job.names.values())
        found = {each for name in names for each in by_stem[renamed(name, "")]}
        work.jobs[at] = replace(job, unknown=frozenset(found))


def _refuse_overlap(sources: Sources, target_url: str) -> None:
    target = open_folder(target_url).real_place()
    places = {url: open_folder(url).real_place() for url in sources.folders}
    for url, place in places.items():
        if _is_within(target, place) and (url in sources.whole or target == place):
            raise UsageError(f"{target_url} is in {url}; name a folder outside of it")
    for place in [*places.values(), *sources.linked]:
        if _is_within(place, target):  # A result might replace a source.
            raise UsageError(f"the source {place} is in {target_url}; name another folder")


def _is_within(place: str, folder: str) -> bool:
    return place == folder or place.startswith(folder.rstrip("/") + "/")


def _is_unchanged(row: Row, file: Stored, existing: Mapping[str, Stored], options: Options) -> bool:
    """Whether the row counts, and source and result are still those of the row."""
    is_known = file == Stored(row.source, row.source_bytes, row.source_stamp)
    if not (may_be_done(row, options) and is_known and file.stamp):  # without one it is read
        return False
    if row.index is not None:
        index = existing.get(row.index)
        if index is None or index.stamp != row.index_stamp:
            return False
    if row.result is None:  # dropped
        return True
    result = Stored(row.result, row.result_bytes, row.result_stamp)
    return row.result_stamp != "" and existing.get(row.result) == result


def batches(
    files: Sequence[Stored],
    source_url: str,
    target_url: str,
    options: Options,
    workers: int,
    names: Mapping[str, str],
) -> list[Job]:
    """Jobs of files that are each converted alone: several a job, since a job has its price.

    `names` are those of results, by source; others get theirs by `renamed`.
    """
    most = min(_BATCH_FILES, max(1, len(files) // (_BATCHES_A_WORKER * workers)))
    batches: list[list[Stored]] = []
    size = 0
    for file in files:
        if not batches or len(batches[-1]) >= most or size + file.size > _BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(file)
        size += file.size
    return [
        Job(FILES, source_url, target_url, tuple(batch), options, names=own)
        for batch in batches
        for own in [{file.name: names[file.name] for file in batch if file.name in names}]
    ]


HEADERS = ("format", "images", "pixels", "source", "result", "ratio")


@dataclass(kw_only=True)
class Summary(Sums):
    """Sums over the rows of a data set."""

    converted: int = 0  # rows of this run
    kept: int = 0  # rows that were done before
    shards: int = 0  # of both, those of shards
    failed: Counter[str] = field(default_factory=Counter)  # images by `keep` or `drop`
    copied: int = 0  # files without images, or their bytes in shards' stead
    others: Counter[str] = field(default_factory=Counter)  # the suffixes of these
    imageless: list[str] = field(default_factory=list)  # shards without images
    unindexed: int = 0  # WebDataset shards without an index for DALI
    remarked: dict[str, list[str]] = field(default_factory=dict)  # some sources by their remarks
    failures: list[Failure] = field(default_factory=list)  # images and files that failed
    seconds: float = 0.0  # of this run
    raw_bytes: int = 0  # pixels of this run

    @property
    def done_text(self) -> str:
        """The number of shards and files that are done, in words."""
        return count_text(self.shards, self.converted + self.kept - self.shards)

    def table(self) -> list[list[str]]:
        """Cells below `HEADERS`: a row for each format of the sources, and their sum."""
        named = sorted(self.formats.items())
        if len(named) != 1:
            named.append(("all", self.total))
        return [
            [
                name,
                str(one.images),
                megabytes(one.raw_bytes) if one.raw_bytes else "-",  # Not all are decoded.
                megabytes(one.source_bytes),
                megabytes(one.result_bytes),
                ratio(one.result_bytes, one.source_bytes),
            ]
            for name, one in named
        ]

    def __str__(self) -> str:
        """One line for people."""
        parts = [f"{self.done_text} done, {self.converted} of them in this run"]
        if len(self.stored) > 1 or SOURCE in self.stored:
            parts.append(f"images by format: {stored_text(self.stored)}")
        if self.label_kinds:
            parts.append(f"--labels marked {stored_text(self.label_kinds)}")
        if self.copied:
            parts.append(f"{self.copied} copied unchanged")
        for handling, count in sorted(self.failed.items()):
            action = "copied to DEST unconverted" if handling == "keep" else "left out"
            parts.append(f"{count} failed, {action} (--on-error {handling})")
        if self.raw_bytes:
            pixels = speed(self.raw_bytes, self.seconds)
            parts.append(f"{self.seconds:.1f} s, {pixels} MB of pixels a second")
        return "; ".join(parts)

    def fields(self) -> dict[str, Any]:
        """The fields of `--json-summary`, named as in the other commands."""
        total = self.total
        return {
            "done": self.converted,
            "kept": self.kept,
            "images": total.images,
            "raw_bytes": total.raw_bytes,
            "read_bytes": total.source_bytes,
            "written_bytes": total.result_bytes,
            "seconds": round(self.seconds, 3),
            "palettes_expanded": total.expanded,
            "remarks": [
                {"text": text, "images": count, "first_files": self.remarked[text]}
                for text, count in sorted(self.remarks.items())
            ],
            "formats": {name: asdict(one) for name, one in sorted(self.formats.items())},
        }


def summarize(new: Iterable[Row], kept: Iterable[Row], seconds: float) -> Summary:
    """Sums over the rows of a run, and over rows of earlier runs."""
    summary = Summary(seconds=seconds)
    for rows, is_new in ((new, True), (kept, False)):
        for row in rows:
            if row.reason:
                summary.failures.append(Failure(row.source, row.reason))
            else:
                summary.failures += [
                    Failure(row.source if row.kind == "image" else f"{row.source}: {place}", reason)
                    for place, reason in row.failures
                ]
            summary.labels.update(row.labels)
            if row.status == FAILED:
                continue
            if row.kind == "image" and row.failures:
                summary.failed["drop" if row.status == DROPPED else "keep"] += 1
            else:
                summary.converted += is_new
                summary.kept += not is_new
                summary.shards += row.kind in SHARDS
            if is_new:
                summary.raw_bytes += row.total.raw_bytes
            if row.status == DONE and row.kind == OTHER:
                summary.copied += 1
                summary.others[PurePosixPath(row.source).suffix.lower()] += 1
            if row.kind in SHARDS and not row.stored and not row.failures:
                summary.imageless.append(row.source)
            lacks_index = has_index(row.kind) and row.index is None
            summary.unindexed += lacks_index and row.status == DONE
            summary.stored.update(row.stored)
            summary.label_kinds.update(row.label_kinds)
            summary.remarks.update(row.remarks)
            for text in row.remarks:
                named = summary.remarked.setdefault(text, [])
                named += [row.source] * (len(named) < _MOST_NAMED)
            for name, one in row.formats.items():
                summary.formats.setdefault(name, FormatTotals()).add(one)
    return summary


def count_text(shards: int, files: int) -> str:
    """The numbers of shards and files that are not 0."""
    several = ((shards, "shard"), (files, "file"))
    texts = [counted(count, name) for count, name in several if count]
    return " and ".join(texts) or "0 files"


def stored_text(stored: Mapping[str, int]) -> str:
    """The number of images in each format, largest first."""
    ordered = sorted(stored.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {name}" for name, count in ordered)
