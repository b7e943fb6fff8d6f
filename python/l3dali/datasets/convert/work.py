"""Finds which sources are done, and makes jobs of the others."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from l3dali.console import Failure
from l3dali.datasets.convert.images import SOURCE_FORMAT, Options, renamed, result_names
from l3dali.datasets.convert.job import Job, may_be_done
from l3dali.datasets.convert.manifest import Manifest, Row, index_name
from l3dali.datasets.convert.reader import FILES, kinds_of_sources, shard_results
from l3dali.datasets.convert.sources import place_of
from l3dali.datasets.convert.storage import OWN_NAMES, Stored, leads_out, open_folder
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from l3dali.datasets.convert.sources import Sources
    from l3dali.datasets.convert.storage import Folder

READ_SHARDS = "shards: .tar .tfrecord .parquet .arrow .zip"  # for people
_COMPRESSED_SHARD = re.compile(
    r"\.(t|((tar|tfrec(ords?)?|parquet|arrow|zip)(-\d+-of-\d+)?\.))"
    r"(gz|bz2?|xz|zst|lz4|lz|lzma)$"
    r"|\.tar\.(zstd|lzo|br|z)$",
    re.IGNORECASE,
)
_BATCH_FILES = 256
_BATCH_BYTES = 2**22  # less than a second of work
_BATCHES_A_WORKER = 4


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
    for url, listed in sources.folders.items():
        source_url, prefix = sources.root_of(url)
        unlisted.update(prefix + link for at, link in sources.links if at == url)
        files = {prefix + name: replace(file, name=prefix + name) for name, file in listed.items()}
        folder = open_folder(source_url)
        loose: list[Stored] = []
        for name, kind in kinds_of_sources(folder, files).items():
            file = files[name]
            if _COMPRESSED_SHARD.search(name) or leads_out(name):
                reason = "a compressed shard, which readers cannot index; decompress it first"
                if leads_out(name):
                    reason = "the name leads out of the folder, or has empty parts"
                work.failures.append(Failure(folder.place(name), reason))
                continue
            work.names.add(name)
            row = manifest.rows.get(name)
            is_kept = row is not None and _is_unchanged(row, file, existing, options)
            results = result_names(name, options) if kind == FILES else shard_results(name, kind)
            if row is not None and row.result is not None and is_kept:
                results = [*results, row.result]
            _claim(work, results, name, folder.place(name), options)
            if row is not None and is_kept:
                work.kept.append(row)
            elif kind == FILES:
                loose.append(file)
            else:
                work.jobs.append(Job(kind, source_url, target_url, (file,), options))
        work.jobs += _batches(loose, source_url, target_url, options, workers)
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
    previous = {row.source: row for row in manifest.rows.values() if row.result in existing}
    for at, job in enumerate(work.jobs):
        rows = {file.name: previous[file.name] for file in job.files if file.name in previous}
        work.jobs[at] = replace(job, previous=rows)
    # Large ones first, so that no core is left with one at the end.
    work.jobs.sort(key=lambda job: -job.bytes)
    return work


def _claim(work: Work, results: Iterable[str], source: str, place: str, options: Options) -> None:
    """Refuses two sources of one result."""
    for result in results:
        if options.to == SOURCE_FORMAT:  # An image comes back with the suffix that it had.
            stem, dot, suffix = result.rpartition(".")
            result = stem + dot + suffix.lower()
        other = work.claims.setdefault(result, source)
        if other != source:
            raise UsageError(
                f"{other} and {place} would both make {result}: rename one of them, or put them "
                "into folders of their own"
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
        found = {each for name in names for each in by_stem[renamed(name, "")]}
        work.jobs[at] = replace(job, unknown=frozenset(found))


def _refuse_overlap(sources: Sources, target_url: str) -> None:
    target = place_of(target_url)
    for url in sources.folders:
        if _is_within(target, place_of(url)) and (url in sources.whole or target == place_of(url)):
            raise UsageError(f"{target_url} is in {url}; name a folder outside of it")
    for place in [*map(place_of, sources.folders), *sources.linked]:
        if _is_within(place, target):  # A result might replace a source.
            raise UsageError(f"the source {place} is in {target_url}; name another folder")


def _is_within(place: str, folder: str) -> bool:
    return place == folder or place.startswith(folder.rstrip("/") + "/")


def _is_unchanged(row: Row, file: Stored, existing: Mapping[str, Stored], options: Options) -> bool:
    """Whether the row counts, and source and result are still those of the row."""
    if not may_be_done(row, options):
        return False
    if not file.stamp:  # It is read to know.
        return False
    if Stored(row.source, row.source_bytes, row.source_stamp) != file:
        return False
    if row.index is not None:
        index = existing.get(row.index)
        if index is None or index.stamp != row.index_stamp:
            return False
    if row.result is None:  # dropped
        return True
    result = Stored(row.result, row.result_bytes, row.result_stamp)
    return row.result_stamp != "" and existing.get(row.result) == result


def _batches(
    files: Sequence[Stored], source_url: str, target_url: str, options: Options, workers: int
) -> list[Job]:
    """Jobs of files that are each converted alone: several a job, since a job has its price."""
    most = min(_BATCH_FILES, max(1, len(files) // (_BATCHES_A_WORKER * workers)))
    batches: list[list[Stored]] = []
    size = 0
    for file in files:
        if not batches or len(batches[-1]) >= most or size + file.size > _BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(file)
        size += file.size
    return [Job(FILES, source_url, target_url, tuple(batch), options) for batch in batches]
