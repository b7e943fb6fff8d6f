"""Which files there are, which of them are done, and the jobs for the rest."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.console import Failure, without_password, without_passwords
from l3dali.datasets.convert import tfrecord
from l3dali.datasets.convert.choosing import Seen
from l3dali.datasets.convert.images import (
    HEAD_BYTES,
    Options,
    may_be_image,
    renamed,
    result_names,
)
from l3dali.datasets.convert.job import (
    FILES,
    SHARDS,
    TFRECORD,
    WEBDATASET,
    ZIP,
    Job,
    shard_results,
)
from l3dali.datasets.convert.manifest import FAILED, Manifest, Row, index_name, row_of_json
from l3dali.datasets.convert.pipeline import Choices
from l3dali.datasets.convert.storage import (
    LOCK_NAME,
    MANIFEST_NAME,
    REPORT_NAME,
    LocalFolder,
    RemoteFolder,
    Stored,
    folded,
    is_remote,
    leads_out,
    named_as,
    open_folder,
    split_url,
)
from l3dali.errors import UsageError, needs
from l3dali.images.reading import IMAGE_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from l3dali.datasets.convert.storage import Folder, Listing

READ_SHARDS = "shards: .tar .tfrecord .parquet .arrow .zip"  # for people
OWN_NAMES = (MANIFEST_NAME, REPORT_NAME, LOCK_NAME)
_COMPRESSED_SHARD = re.compile(
    r"\.(t|((tar|tfrec(ords?)?|parquet|arrow|zip)(-\d+-of-\d+)?\.))"
    r"(gz|bz2?|xz|zst|lz4|lz|lzma)$"
    r"|\.tar\.(zstd|lzo|br|z)$",
    re.IGNORECASE,
)
_RANGE = re.compile(r"\{([-+]?\d+)\.\.([-+]?\d+)(?:\.\.([-+]?\d+))?\}")
_WITH_QUERY = re.compile(r"https?://[^?#]*[?#]")
_BATCH_FILES = 256
_BATCH_BYTES = 2**22  # less than a second's work: rows are written at its end
_BATCHES_A_WORKER = 4
_MOST_ASKED = 100  # sources that are gone
_FIRST_FILES = 16  # of a suffix; suffixes, too
_ROW_BYTES = 2**20  # more than most rows take
_LOOKUPS = 32  # at a time, of files in buckets
_MOST_NAMES = 10**6  # that braces may stand for


@dataclass
class Sources:
    """What the arguments of a command name.

    Attributes:
        folders: by the folder's path or URL, the files below it by name.
        failures: what cannot be listed, or not be converted.
        links: folders, and names below them of links to others, which are not followed.
        linked: where links to files lead, which are followed.
        whole: the folders that were named themselves.
        temporaries: files with the names of temporary ones, which are left out.
        spelled: by the place of a folder, the name that it was given first.
    """

    folders: dict[str, dict[str, Stored]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)
    whole: set[str] = field(default_factory=set)
    temporaries: list[str] = field(default_factory=list)
    spelled: dict[str, str] = field(default_factory=dict)

    @property
    def are_whole(self) -> bool:
        """Whether folders were named, and no files one by one."""
        return self.whole >= self.folders.keys()

    def root_of(self, url: str) -> tuple[str, str]:
        """The folder that names of sources start at, and what they start with there.

        Of several folders that were named, files keep the folder's own name, as in `l3 encode`.

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
            raise UsageError(f"{url} has no name for its results beside others; convert it alone")
        return parent, f"{name}/"


@dataclass
class Work:
    """The work of a run.

    Attributes:
        jobs: what is to be done.
        kept: rows of results that are done already.
        failures: sources that no job can be made for.
        links: links to folders, which are not followed.
        linked: how many links to files are followed.
        left_out: files with names that runs have for their own, but for those of an earlier run.
        names: all sources.
        renewed: rows of results that are done and stay under another plan than they were made by:
            part of `kept`, to be written anew.
        foreseen: by source, the format that a plan chooses for a file of a job, where an earlier
            row says what it chooses by.
        labels: that earlier runs were given and that named images.
        gone: rows of results that are there, whose sources are not in the folders named, nor
            behind links to others; none where files were named one by one.
        claimed: the same of results that a job may make.
        taken: by result that is there, its row, if a job may replace it by one of another source,
            or of one that has changed.
        strays: files in DEST that no row has: L3 files, and those with names that results of the
            sources have under other options. A run that was killed may have left them.
        replaceable: the same of names that a job may give its result.
        key: the same for names that DEST takes for one.
    """

    jobs: list[Job] = field(default_factory=list)
    kept: list[Row] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    links: int = 0
    linked: int = 0
    left_out: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    renewed: list[Row] = field(default_factory=list)
    foreseen: dict[str, str] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    gone: list[Row] = field(default_factory=list)
    claimed: list[Row] = field(default_factory=list)
    taken: dict[str, Row] = field(default_factory=dict)
    strays: list[str] = field(default_factory=list)
    replaceable: list[str] = field(default_factory=list)
    key: Callable[[str], str] = str

    def not_made(self, rows: Iterable[Row]) -> list[Row]:
        """Those of `claimed` that are still of sources that are gone, by all rows after the run."""
        made = self._keys(row for row in rows if row.source in self.names)
        return [
            replace(row, index=None if self.key(row.index or "") in made else row.index)
            for row in self.claimed
            if self.key(row.result or "") not in made
        ]

    def not_replaced(self, rows: Iterable[Row]) -> list[str]:
        """Those of `replaceable` that are still strays, by all rows after the run."""
        made = self._keys(rows)
        return [name for name in self.replaceable if self.key(name) not in made]

    def _keys(self, rows: Iterable[Row]) -> set[str]:
        return {self.key(name) for name in _names_of(rows) if name}

    def replaced(self, rows: Iterable[Row]) -> list[str]:
        """Those of the rows' results that have replaced one of other bytes, or of another name."""
        pairs = ((row, self.taken.get(row.result or "")) for row in rows)
        return [
            old.result or ""
            for row, old in pairs
            if old is not None and (old.source, old.source_hash) != (row.source, row.source_hash)
        ]


def _names_of(rows: Iterable[Row]) -> set[str | None]:
    return {name for row in rows for name in (row.result, row.index)}


def find_sources(arguments: Iterable[str]) -> Sources:
    """Finds the files of folders, and files named one by one or by braces (`a-{000..146}.tar`).

    Raises:
        UsageError: an argument names nothing.
    """
    sources = Sources()
    for argument in arguments:
        if _WITH_QUERY.search(argument):
            raise UsageError(
                f"{argument}: what follows ? or # would be in the name of the result; download it, "
                "or name a URL without"
            )
        names = _expanded(argument)
        find = _find_file if len(names) == 1 else _find_one_of_many
        pool = ThreadPoolExecutor(_LOOKUPS if len(names) > 1 and _takes_many(names[0]) else 1)
        try:
            found = list(pool.map(find, names))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # a server may never answer
        has_files = any(isinstance(each, Stored) for each in found)
        for name, file in zip(names, found, strict=True):
            if isinstance(file, Failure):
                _count_missing(sources, name, file, has_files=has_files)
                continue
            if file is not None:
                folder = _spelled(sources, split_url(name)[0])
                sources.folders.setdefault(folder, {})[file.name] = file
                if (link := Path(name.removeprefix("file://"))).is_symlink():
                    sources.linked.append(os.path.realpath(link))
                continue
            listing = open_folder(name).list_files()
            if not listing.files and not listing.failures and not _is_folder(name):
                if len(names) == 1:
                    advice = "; * is the shell's: leave out the quotes" if "*" in name else ""
                    if name.startswith(("http://", "https://")):
                        advice = "; folders of web servers are not listed: name their files"
                    raise UsageError(f"{name}: no such file or folder{advice}")
                failure = Failure(without_password(name), "no such file")
                _count_missing(sources, name, failure, has_files=has_files)
                continue
            name = _spelled(sources, name)
            sources.folders.setdefault(name, {}).update(listing.files)
            if name in sources.whole:
                continue  # named twice: told of once
            sources.whole.add(name)
            sources.failures += [Failure(*each) for each in listing.failures]
            sources.links += [(name, link) for link in listing.links]
            sources.linked += listing.linked
            sources.temporaries += map(open_folder(name).place, listing.temporaries)
    return sources


def _count_missing(sources: Sources, name: str, failure: Failure, *, has_files: bool) -> None:
    """Tells of one of several names; where none is a file's, it counts as a folder for results."""
    sources.failures.append(failure)
    is_file = is_shard_name(name) or Path(name).suffix.lower() in IMAGE_SUFFIXES
    if not is_file and not has_files:
        name = _spelled(sources, name)
        sources.folders.setdefault(name, {})
        sources.whole.add(name)


def unused_labels(options: Options, names: Iterable[str], *, are_all: bool) -> list[str]:
    """What to say of `options.labels` that name none of the images.

    Args:
        options: of the run.
        names: of images, as `Options.is_labels` takes them.
        are_all: there are no others.

    Raises:
        UsageError: there are no others, and nothing is named.
    """
    found = {label for name in names for label in options.labels_of(name)}
    if are_all and options.labels and not found:
        given = ", ".join(options.labels)
        raise UsageError(f"--labels {given}: no image is so named; of a folder: 'FOLDER/*'")
    what = "no image" if are_all else "none of the images that were looked at"
    return [f"--labels {each!r} named {what}" for each in options.labels if each not in found]


def count_l3_alone(sources: Sources) -> int:
    """How many L3 files there are, by their names, if nothing else may be an image or hold some."""
    count = 0
    others = []
    for url, files in sources.folders.items():
        folder = open_folder(url)
        for name in files:
            suffix = Path(name).suffix.lower()
            if suffix == ".l3":
                count += 1
            elif suffix in IMAGE_SUFFIXES or is_shard_name(name):
                return 0
            else:
                others.append((folder, name))
    # Where there are L3 files, others are looked into.
    return 0 if count and any(_holds_image(*each, Options()) for each in others) else count


def may_hold_l3(work: Work, options: Options) -> bool:
    """Whether some file is or holds an L3 file, by names, else by the first of each suffix."""
    names = work.names
    if any(is_shard_name(name) or Path(name).suffix.lower() in ("", ".l3") for name in names):
        return True
    seen = Counter[str]()
    for job in work.jobs:
        folder = open_folder(job.source)
        for file in job.files:
            suffix = Path(file.name).suffix.lower()
            seen[suffix] += 1
            is_first = max(seen[suffix], len(seen)) <= _FIRST_FILES
            if is_first and _holds_image(folder, file.name, options):
                return True
    return bool(work.kept)  # by an earlier run, which found some


def _holds_image(folder: Folder, name: str, options: Options) -> bool:
    with suppress(Exception), folder.open(name) as opened:  # The job will say it.
        return may_be_image(name, opened.read(HEAD_BYTES), options)
    return False


def doubt_gone(sources: Sources, gone: Sequence[Row]) -> Failure | None:
    """Asks for some sources that are said to be gone: why one may be there, in a bucket."""
    for url in filter(is_remote, sources.whole):
        root, prefix = sources.root_of(url)
        folder = open_folder(root)
        assert isinstance(folder, RemoteFolder)
        for row in gone[:: -(-len(gone) // _MOST_ASKED)]:
            if row.source.startswith(prefix):
                folder.forget(row.source)
                reason = "it is there, and its folder's listing lacks it"
                try:
                    if folder.stat(row.source) is None:
                        continue
                except OSError as error:
                    reason = f"whether it is gone cannot be told: {error.strerror or error}"
                return Failure(folder.place(row.source), f"{reason}; --remove-gone removes nothing")
    return None


def _spelled(sources: Sources, url: str) -> str:
    """The name under which the sources have this folder already, or `url`."""
    return sources.spelled.setdefault(_place(url), url)


def _expanded(argument: str) -> list[str]:
    # Path.exists raises where the braces are longer than a name may be.
    if "{" not in argument or (not is_remote(argument) and os.path.exists(argument)):  # noqa: PTH110
        return [argument]
    try:
        from braceexpand import braceexpand
    except ImportError:
        raise needs("braceexpand", argument) from None
    try:
        _check_ranges(argument)
        names = list(islice(braceexpand(argument), _MOST_NAMES + 1))
    except ValueError as error:
        raise UsageError(f"{argument}: {error}") from None
    if len(names) > _MOST_NAMES:
        raise _too_many(argument)
    return names


def _check_ranges(argument: str) -> None:
    """Refuses ranges that braceexpand would write out in memory."""
    for first, last, step in _RANGE.findall(argument):
        if abs(int(last) - int(first)) // max(1, abs(int(step or 1))) >= _MOST_NAMES:
            raise _too_many(argument)


def _too_many(argument: str) -> UsageError:
    return UsageError(f"{argument}: more than {_MOST_NAMES} names; name the folder instead")


def _find_file(url: str) -> Stored | None:
    folder, name = split_url(url)
    if not name or folder.endswith(":/") or _is_folder(url):
        return None
    return open_folder(folder).stat(name)


def _find_one_of_many(url: str) -> Stored | Failure | None:
    try:
        return _find_file(url)
    except (OSError, UsageError) as error:
        reason = getattr(error, "strerror", None) or without_passwords(str(error))
        return Failure(without_password(url), reason)


def _takes_many(url: str) -> bool:
    """Whether several may be looked for at a time."""
    folder = open_folder(split_url(url)[0])
    return isinstance(folder, RemoteFolder) and folder.shares_connections


def _is_folder(url: str) -> bool:
    return not is_remote(url) and Path(url.removeprefix("file://")).is_dir()


def find_work(
    sources: Sources, target_url: str, options: Options, manifest: Manifest, workers: int
) -> Work:
    """Jobs for the sources that the manifest does not show to be done.

    Args:
        sources: what to convert.
        target_url: the folder for the results.
        options: what to make of images.
        manifest: of the results.
        workers: how many jobs there will be at a time.

    Raises:
        UsageError: there are no files, two sources have one result, a result would be a source, or
            a file is in the way that no earlier run has made.
    """
    target = open_folder(target_url)
    if manifest.is_foreign:
        raise UsageError(
            f"{target.place(MANIFEST_NAME)} holds no rows of results that this version reads: name "
            "another folder, or remove it"
        )
    work = Work(failures=list(sources.failures))
    work.links, work.linked = len(sources.links), len(sources.linked)
    work.left_out = list(sources.temporaries)
    work.labels = sorted({label for row in manifest.rows.values() for label in row.labels})
    _refuse_overlap(sources, target_url)
    listing = target.list_files()
    existing = named_as(_names_of(manifest.rows.values()), listing.files, target)
    claims = manifest.claims = {}
    places: dict[str, str] = {}
    stems = Counter(_stem(name) for name in existing if not manifest.existed)
    kept: list[str] = []  # under these names, if they are damaged, or no images
    has_archive = False
    links: dict[str, list[str]] = defaultdict(list)
    for place, link in sources.links:
        links[place].append(link)
    unlisted: set[str] = set()
    for url, listed in sources.folders.items():
        source_url, prefix = sources.root_of(url)
        unlisted.update(prefix + link for link in links[url])
        files = {prefix + name: replace(file, name=prefix + name) for name, file in listed.items()}
        folder = open_folder(source_url)
        kinds = {name: kind_of(folder, file) for name, file in files.items()}
        indexes = {
            index_name(name) for name, kind in kinds.items() if kind in (WEBDATASET, TFRECORD)
        }
        loose: list[tuple[Stored, Row | None]] = []
        planned: list[tuple[Stored, Row]] = []
        own = defaultdict[str, list[str]](list)  # by the folder that they are in
        for name, file in files.items():
            reason = _refusal(name)
            if is_own_name(name):
                own[name[: name.rfind("/") + 1]].append(folder.place(name))
                continue
            if name in indexes:
                continue
            if reason:
                work.failures.append(Failure(folder.place(name), reason))
                continue
            kind = kinds[name]
            work.names.add(name)
            has_archive = has_archive or kind in (WEBDATASET, ZIP)
            row = manifest.rows.get(name)
            if row is not None and not (
                (row.kind in SHARDS or kind == FILES)  # else it was not known for a shard
                and (_may_be_done(row, options) or _may_be_done_but_for_plan(row, options))
            ):
                row = None
            made = [] if row is None or row.result is None else [row.result]
            for result in dict.fromkeys([*_results(name, kind, options), *made]):
                if result in claims:
                    other = places[claims[result]]
                    raise UsageError(
                        f"{other} and {folder.place(name)} would both make {result}: rename one of "
                        "them, or put them into folders of their own"
                    )
                claims[result] = name
            places[name] = folder.place(name)
            stems[_stem(name)] += kind == FILES
            if kind == FILES:
                kept.append(name)
            if row is not None and _is_done(row, file, existing, options):
                work.kept.append(row)
                continue
            if row is not None and _is_done_but_for_plan(row, file, existing, options):
                planned.append((file, row))
                continue
            if kind == FILES:
                loose.append((file, row))
            else:
                previous = {} if row is None else {name: row}
                work.jobs.append(Job(kind, source_url, target_url, (file,), options, previous))
        for above, those in own.items():
            if not _has_rows(folder, above + MANIFEST_NAME):
                work.left_out += those
        loose += _plan_anew(planned, options, work)
        work.jobs += _batches(loose, source_url, target_url, options, workers)
    if options.container and not has_archive:
        raise UsageError("--container is for tar files and zip archives; the sources have none")
    alike = _refuse_cases(claims, places, target, manifest)

    def as_claimed(name: str) -> str:
        """As a claim has it, if that is the same file."""
        claim = alike.get(folded(name), name)
        if claim == name or not manifest.folds_case:
            return name
        work.key = folded
        return claim

    _refuse_links(claims, listing, target)
    if not manifest.existed:
        links_out = set(listing.links)  # those that stay within are refused
        is_empty = not (links_out or listing.failures or existing.keys() - {LOCK_NAME})
        for name in () if is_empty else (*claims, *kept, REPORT_NAME):
            if _folder_in(links_out, name):
                continue  # The result fails.
            place = target.place(name)
            # The listing lacks pipes, links to nothing, folders that cannot be read.
            is_seen = name in existing
            if not is_seen and not (isinstance(target, LocalFolder) and os.path.lexists(place)):
                continue
            raise UsageError(f"{place} exists, and l3 convert has not made it; name another folder")
    files = {file.name: file for job in work.jobs for file in job.files}
    if sources.are_whole:
        new_indexes = {row.index for row in work.kept}  # of what was a source itself
        for row in manifest.rows.values():
            is_there = row.source in work.names or _folder_in(unlisted, row.source) != ""
            if is_there or row.result is None or row.result in new_indexes:
                continue
            if claims.get(as_claimed(row.result)) in files:
                work.claimed.append(row)
            else:
                is_claimed = row.index is None or as_claimed(row.index) in claims
                work.gone.append(replace(row, index=None if is_claimed else row.index))
    known = {*_names_of(manifest.rows.values()), *OWN_NAMES}
    there = [*existing, *listing.others, *listing.links] if manifest.existed else []
    unknown = [name for name in there if name not in known]
    strangers = defaultdict[str, list[str]](list)  # by stem
    for name in unknown:
        strangers[_stem(name)].append(name)
    found = {each for name in work.names for each in _stems(name)} if unknown else set()
    for name in unknown:
        claim = as_claimed(name)
        if claims.get(claim) in files:
            work.replaceable.append(claim)
        elif claim in claims or name.endswith(".l3") or not found.isdisjoint(_stems(name)):
            work.strays.append(name)
    for row in manifest.rows.values():
        again = files.get(claims.get(row.result or "", ""))
        if again is not None and row.result in existing and not _is_of(row, again):
            work.taken[row.result] = row
    has_crowds = any(count > 1 for count in stems.values())
    crowded = {name for name in work.names if stems[_stem(name)] > 1} if has_crowds else set()
    work.jobs = [
        replace(
            job,
            crowded=crowded.intersection(file.name for file in job.files),
            earlier={
                file.name: row.source_hash
                for file in job.files
                if (row := manifest.rows.get(file.name)) and _is_sound(row, existing)
            },
            strangers=frozenset(
                each
                for possible in (_possible_names(job) if strangers else ())
                for name in strangers.get(_stem(possible), ())
                for each in (name, possible)
                if each == name or (folded(possible) == folded(name) and manifest.folds_case)
            ),
        )
        for job in work.jobs
    ]
    # Large ones first, so that no core is left with one at the end.
    work.jobs.sort(key=lambda job: -job.bytes)
    if not work.names and not work.failures:
        raise UsageError("no files in the folders named")
    return work


def _has_rows(folder: Folder, name: str) -> bool:
    """Whether there is a manifest as runs write it, so that names of theirs are for their files."""
    with suppress(Exception), folder.open(name) as opened:  # Storage raises anything.
        line = opened.read(_ROW_BYTES).partition(b"\n")[0]
        return row_of_json(line.decode(errors="replace")) is not None
    return False


def _refuse_cases(
    claims: Mapping[str, str], places: Mapping[str, str], target: Folder, manifest: Manifest
) -> dict[str, str]:
    """Refuses results that are one file where cases are not told apart; names by `folded`."""
    alike: dict[str, str] = {}
    for result, source in claims.items():
        other = claims[alike.setdefault(folded(result), result)]
        if other != source and manifest.folds_case:
            raise UsageError(
                f"{places[other]} and {places[source]} would both make {result}, where "
                f"{target.place()} does not tell cases apart: rename one of them, or name a DEST "
                "on another disk"
            )
    return alike


def _refuse_links(claims: Iterable[str], listing: Listing, target: Folder) -> None:
    """Refuses links of DEST to folders of it: nobody would see what lies there already."""
    links = {link for link in listing.links if not target.leads_out(link)}
    for result in claims if links else ():
        if link := _folder_in(links, result):
            raise UsageError(
                f"{target.place(link)} is a link, and {result} would go through it: remove it, or "
                "name another DEST"
            )


def _folder_in(names: Container[str], file: str) -> str:
    """The first of the folders that a file is in that is among the names; or ""."""
    folders = accumulate(file.split("/")[:-1], "{}/{}".format)
    return next((folder for folder in folders if folder in names), "")


def _refuse_overlap(sources: Sources, target_url: str) -> None:
    target = _lineage(_place(target_url))
    for source_url in sources.folders:
        source = _lineage(_place(source_url))[0]
        if source in (target if source_url in sources.whole else target[:1]):
            raise UsageError(f"{target_url} is in {source_url}; name a folder outside of it")
    for place in [*map(_place, sources.folders), *sources.linked]:
        if target[0] in _lineage(place):  # Some result might take the place of a source.
            raise UsageError(f"{place}, to be read, is in {target_url}; name another folder")


def _lineage(place: str) -> list[object]:
    """What tells a file or folder, and each that it is in, from others, whatever their names."""
    if is_remote(place):
        parts = place.rstrip("/").split("/")
        parts[2:3] = [part.partition(",")[0] for part in parts[2:3]]  # Ports and users share files.
        return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
    lineage: list[object] = []
    for each in (Path(place), *Path(place).parents):
        try:
            status = each.stat()
        except OSError:
            lineage.append(str(each))
        else:
            lineage.append((status.st_dev, status.st_ino))
    return lineage


@lru_cache(2**16)
def _remote_place(url: str) -> str:
    return open_folder(url).real_place()


def _place(url: str) -> str:
    return _remote_place(url) if is_remote(url) else open_folder(url).real_place()


def kind_of(folder: Folder, file: Stored) -> str:
    """The kind of a job for the file."""
    name = file.name.lower()
    for kind, module in SHARDS.items():
        if name.endswith(module.SUFFIXES):
            return kind
    if tfrecord.may_be_shard(name):
        with suppress(Exception), folder.open(file.name) as opened:  # The job will say it.
            if tfrecord.is_tfrecord(opened.read(HEAD_BYTES)):
                return TFRECORD
    return FILES


def is_own_name(name: str) -> bool:
    """Whether runs have the name for files of their own, which are no sources."""
    return folded(name.rpartition("/")[2]) in OWN_NAMES  # as some disks take them for one


def is_shard_name(name: str) -> bool:
    """Whether a file of this name may be a shard."""
    name = name.lower()
    suffixes = [suffix for module in SHARDS.values() for suffix in module.SUFFIXES]
    return name.endswith(tuple(suffixes)) or tfrecord.may_be_shard(name)


def _refusal(name: str) -> str:
    """Why a source of this name is not converted; "" if it is."""
    if _COMPRESSED_SHARD.search(name):
        return "a compressed shard, which readers cannot index; decompress it first"
    if leads_out(name):
        return "a name that leads out of the folder, or has empty parts: no file's below DEST"
    return ""


def _stem(name: str) -> str:
    """What results of single files have in common that may have one name."""
    return folded(renamed(name, ""))


def _stems(name: str) -> set[str]:
    """The same; and of shards that become others, and indexes, without the suffix too."""
    stem, suffix = folded(name[:-3]), name[-4:].casefold()
    return {_stem(name), *([stem] if suffix in (".tar", ".zip", ".idx") else [])}


def _results(name: str, kind: str, options: Options) -> Sequence[str]:
    return result_names(name, options) if kind == FILES else shard_results(name, kind, options)


def _possible_names(job: Job) -> Iterator[str]:
    for file in job.files:
        yield file.name
        yield from _results(file.name, job.kind, job.options)


def _is_done(row: Row, file: Stored, existing: Mapping[str, Stored], options: Options) -> bool:
    return _may_be_done(row, options) and _is_unchanged(row, file, existing)


def _is_done_but_for_plan(
    row: Row, file: Stored, existing: Mapping[str, Stored], options: Options
) -> bool:
    """Whether a single image is done by another plan, and the row says what plans choose by."""
    return (
        bool(row.group)
        and _may_be_done_but_for_plan(row, options)
        and _is_unchanged(row, file, existing)
    )


def _plan_anew(
    planned: Sequence[tuple[Stored, Row]], options: Options, work: Work
) -> list[tuple[Stored, None]]:
    """Files for which the plan chooses another format than their results have; others are kept.

    Nothing is read: rows have what is chosen by.
    """
    if options.plan is None:
        return []
    chosen = options.plan.choose(
        [Seen(file.name, row.group, file.size, row.area) for file, row in planned]
    )
    digests: dict[str, str] = {}
    for name in set(chosen):
        choices = Choices()
        choices.add(name)
        digests[name] = choices.hexdigest()
    again: list[tuple[Stored, None]] = []
    for (file, row), stored_as in zip(planned, chosen, strict=True):
        if row.choices == digests[stored_as]:
            renewed = replace(row, options=options.identity)
            work.kept.append(renewed)
            work.renewed.append(renewed)
        else:
            work.foreseen[file.name] = stored_as
            again.append((file, None))
    return again


def _is_unchanged(row: Row, file: Stored, existing: Mapping[str, Stored]) -> bool:
    """Whether source and result are those of the row."""
    if not _is_of(row, file):
        return False
    if row.result is None:  # dropped
        return True
    result = existing.get(row.result)
    index = None if row.index is None else existing.get(row.index)
    if row.index is not None and (index is None or row.index_stamp != (index.stamp or None)):
        return False
    return result is not None and _same(row, result)


def _is_of(row: Row, file: Stored) -> bool:
    """Whether a source is that of the row: one without a stamp is read to know."""
    return file.stamp != "" and Stored(row.source, row.source_bytes, row.source_stamp) == file


def _same(row: Row, result: Stored) -> bool:
    return (row.result_bytes, row.result_stamp) == (result.size, result.stamp or None)


def _is_sound(row: Row, existing: Container[str]) -> bool:
    """Whether an image or a shard was converted, and its result is there; maybe it failed since."""
    is_image = row.kind == "image" and row.pixels_hash != "" and not row.transient
    return (is_image or row.kind in SHARDS) and row.result in existing


def _may_be_done(row: Row, options: Options) -> bool:
    return not _is_to_be_tried_again(row, options) and row.options == options.identity


def _may_be_done_but_for_plan(row: Row, options: Options) -> bool:
    return not _is_to_be_tried_again(row, options) and options.differs_in_plan(row.options)


def _is_to_be_tried_again(row: Row, options: Options) -> bool:
    """Whether it has failed, or an image of it may end otherwise now."""
    if row.status == FAILED or not row.transient:  # There may be millions.
        return row.status == FAILED
    stays = {"trusted": options.trust}
    return not all(stays.get(reason) for reason in row.transient.split())


def _batches(
    files: list[tuple[Stored, Row | None]],
    source_url: str,
    target_url: str,
    options: Options,
    workers: int,
) -> list[Job]:
    """Jobs of files that are each converted alone: several a job, since a job has its price."""
    most = min(_BATCH_FILES, max(1, len(files) // (_BATCHES_A_WORKER * workers)))
    jobs: list[Job] = []
    batch: list[tuple[Stored, Row | None]] = []
    size = 0

    def finish() -> None:
        nonlocal size
        if batch:
            previous = {file.name: row for file, row in batch if row is not None}
            chosen = tuple(file for file, _ in batch)
            jobs.append(Job(FILES, source_url, target_url, chosen, options, previous))
        batch.clear()
        size = 0

    for file, row in files:
        if batch and (len(batch) >= most or size + file.size > _BATCH_BYTES):
            finish()
        batch.append((file, row))
        size += file.size
    finish()
    return jobs
