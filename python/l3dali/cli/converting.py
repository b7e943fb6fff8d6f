"""The command `l3 convert`: what it refuses, what it does, what it says."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.cli.arguments import local_cores
from l3dali.cli.inputs import NOT_L3_FILES, is_image_name
from l3dali.cli.loop import interrupt_once, signal_of
from l3dali.cli.outputs import STDOUT
from l3dali.cli.report import EXIT_FAILED, check_summary, conclude, growth_lines
from l3dali.console import (
    Failure,
    complain,
    counted,
    megabytes,
    print_table,
    progress,
    reason_of,
    say,
    tell_failures,
)
from l3dali.datasets.convert import engine as local
from l3dali.datasets.convert.choosing import SOURCE
from l3dali.datasets.convert.images import Options
from l3dali.datasets.convert.manifest import FAILED, Manifest
from l3dali.datasets.convert.preview import preview, tell_growth
from l3dali.datasets.convert.report import (
    HEADERS,
    count_text,
    make_page,
    stored_text,
    summarize,
)
from l3dali.datasets.convert.storage import (
    MANIFEST_NAME,
    OWN_NAMES,
    REPORT_NAME,
    LocalFolder,
    is_remote,
    open_folder,
    split_url,
)
from l3dali.datasets.convert.work import (
    READ_SHARDS,
    find_sources,
    find_work,
    is_shard_name,
    unused_labels,
)
from l3dali.datasets.liquid.dataset import fingerprint
from l3dali.datasets.liquid.plan import read_plan
from l3dali.errors import UsageError
from l3dali.images.reading import READ_SUFFIXES, unread_images

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from l3dali.datasets.convert.job import Job
    from l3dali.datasets.convert.manifest import Row
    from l3dali.datasets.convert.report import Summary
    from l3dali.datasets.convert.storage import Folder
    from l3dali.datasets.convert.work import Sources, Work
    from l3dali.datasets.liquid.plan import Plan

    Engine = Callable[[Sequence[Job], int, list[Row]], Iterator[list[Row]]]

_SHOWN_GONE = 10
_FEW = 3  # names that are told
_LOSSY = {"jpeg", "webp", "jpegxl", "jpeg2000"}  # formats that may lose data


def run(arguments: argparse.Namespace) -> int:
    """Converts, prints a summary and writes the report; gives the exit code."""
    if arguments.plan is not None and (arguments.coding is not None or arguments.to != "l3"):
        raise UsageError("--plan chooses the formats; omit --coding and --to")
    if arguments.to != "l3" and arguments.coding is not None:
        raise UsageError("--coding cannot be combined with --to: it only applies to L3 output")
    _refuse_dest(arguments.dest)
    plan = None if arguments.plan is None else read_plan(arguments.plan)
    options = Options(
        to=arguments.to,
        coding=arguments.coding or codec.DEFAULT_CODING,
        effort=arguments.effort,
        labels=tuple(arguments.labels or (plan.labels if plan is not None else ())),
        on_error=arguments.on_error,
        max_pixels=arguments.max_pixels,
        verify=arguments.verify,
        plan=plan,
        worker_memory=arguments.worker_memory * 2**20,
    )
    if arguments.json_summary is not None:
        if arguments.dry_run:
            raise UsageError("--json-summary cannot be combined with --dry-run")
        check_summary(arguments.json_summary)
    target = open_folder(arguments.dest)
    if arguments.dry_run:
        sources = _find_sources(arguments, plan)
        with Manifest(target, read_only=True) as manifest:
            work = find_work(sources, arguments.dest, options, manifest, 1)
            _tell_of_books(manifest)
            _judge_names(work, options)
            _tell_of_gone(work.gone, would_remove=arguments.remove_gone)
            return _preview(work, options.labels)
    with Manifest(target) as manifest:  # Its lock comes first: no other run adds to what is listed.
        interrupt_once()
        sources = _find_sources(arguments, plan)
        with _open_engine(arguments) as (engine, workers):
            interrupt_once()  # again, as Ray sets handlers of its own
            work = find_work(sources, arguments.dest, options, manifest, workers)
            _tell_of_books(manifest)
            _refuse_summary(arguments.json_summary, target, manifest, work)
            is_new = work.jobs and not work.kept  # What goes on has been judged.
            if is_new and options.to == "l3" and plan is None and not arguments.grow:
                growth = tell_growth(work.jobs, arguments.jobs or local_cores())
                if growth:
                    raise UsageError(growth)
            _judge_names(work, options)
            if work.jobs:
                manifest.begin()
            _settle_gone(work.gone, manifest, work, remove=arguments.remove_gone)
            start = time.perf_counter()
            new = _convert(work, engine, workers, manifest, quiet=arguments.quiet)
            try:
                manifest.save()
            except Exception as error:  # Storage raises anything. It is tried once more.
                work.failures.append(Failure(MANIFEST_NAME, reason_of(error)))
            written, confirmed = _apart(new, work)
            summary = summarize(written, work.kept + confirmed, time.perf_counter() - start)
            summary.failures = work.failures + summary.failures
            if work.jobs:
                page = make_page(summary, f"l3 convert to {target.place()}")
                with suppress(Exception), target.publish(REPORT_NAME) as file:  # maybe in a bucket
                    file.write(page.encode("utf-8", "backslashreplace"))
            code = _tell(summary, work, options, arguments)
            if plan is not None and not arguments.quiet:
                _tell_of_unseen([*new, *work.kept], plan)
            return code


def _refuse_dest(url: str) -> None:
    """Refuses a DEST that is meant to be a file: `l3 convert a.tar out.tar`."""
    _, name = split_url(url)
    local = None if is_remote(url) else Path(url.removeprefix("file://"))
    if local is not None and local.is_dir():
        return
    if local is not None and local.exists():
        raise UsageError(f"{url} is a file; DEST is a folder")
    if local is not None and local.is_symlink():
        raise UsageError(f"{url} is a link to nothing; DEST is a folder")
    for is_one, what in ((is_shard_name(name), "a shard"), (is_image_name(name), "an image")):
        if is_one:
            raise UsageError(
                f"DEST is a folder, and files keep their names in it; {url} has the name of {what}."
                f" Name a folder, or {url}/ if it is to be called so"
            )


def _find_sources(arguments: argparse.Namespace, plan: Plan | None) -> Sources:
    sources = find_sources(arguments.sources)
    if plan is not None and fingerprint(sources) != plan.fingerprint:
        raise UsageError(
            f"{arguments.plan} does not match SOURCE: it is of another data set, or files were "
            "added, removed or changed since the profile; profile and plan again"
        )
    if arguments.remove_gone:  # What is not named would seem to be gone.
        if not sources.are_whole:
            raise UsageError("--remove-gone needs whole folders as SOURCE, not single files")
        for failure in sources.failures[:1]:
            reason = f"{failure.path}: {failure.reason}"
            raise UsageError(f"{reason}; --remove-gone needs to know all sources")
    return sources


def _refuse_summary(path: Path | None, target: Folder, manifest: Manifest, work: Work) -> None:
    """Refuses a file for the summary that is or may become one of DEST's."""
    if path is None or not isinstance(target, LocalFolder):
        return
    place = os.path.join(os.path.realpath(path.parent), path.name)  # noqa: PTH118
    own = {*OWN_NAMES, *work.claims}
    for row in manifest.rows.values():
        own |= {row.result or "", row.index or ""}
    if os.path.relpath(place, target.real_place()) in own:
        raise UsageError(f"--json-summary {path}: the run has this name for a file of its own")


@contextmanager
def _open_engine(arguments: argparse.Namespace) -> Iterator[tuple[Engine, int]]:
    """The engine, and how many jobs it has room for at a time."""
    jobs = arguments.jobs or local_cores()
    if arguments.engine == "local":
        yield local.run_local, jobs
        return
    from l3dali.datasets.convert import ray_engine  # needs Ray

    cores = ray_engine.connect(jobs)
    try:
        yield ray_engine.run_on_ray, arguments.jobs or max(1, cores)
    finally:
        ray_engine.disconnect()


def _tell_of_books(manifest: Manifest) -> None:
    if not manifest.has_lock:
        complain("l3: the disk of DEST has no locks: run no other l3 convert on it meanwhile")
    if manifest.ignored:
        complain(f"l3: lines of {MANIFEST_NAME} that are no rows, ignored: {manifest.ignored}")


def _settle_gone(gone: Sequence[Row], manifest: Manifest, work: Work, *, remove: bool) -> None:
    """Removes results whose sources are gone, if that is wished, and tells of those that stay."""
    if remove and gone:
        left = manifest.remove(gone)
        complain(f"l3: results of sources that are gone: {len(gone) - len(left)} removed")
        work.failures += [Failure(row.source, row.reason) for row in left if row.reason]
        gone = left
    _tell_of_gone(gone)


def _tell_of_gone(gone: Sequence[Row], *, would_remove: bool = False) -> None:
    """Says which results have no source among those named."""
    if not gone:
        return
    what = "would be removed" if would_remove else "--remove-gone removes those not changed since"
    complain(f"l3: results whose sources are gone: {len(gone)}; {what}")
    for row in gone[:_SHOWN_GONE]:
        complain(f"{row.result} (of {row.source})")
    if len(gone) > _SHOWN_GONE:
        complain(f"... and {len(gone) - _SHOWN_GONE} more")


def _counted_names(names: Sequence[str]) -> str:
    return f"{len(names)} ({', '.join(names[:_FEW])}{', ...' * (len(names) > _FEW)})"


def _preview(work: Work, labels: Sequence[str]) -> int:
    """Says what would be done; gives the exit code."""
    count = sum(len(job.files) for job in work.jobs)
    found = list(progress(preview(work.jobs), count))
    new = [each for each in found if not each.is_done and not each.failure]
    done = sum(each.is_done and not each.failure for each in found)
    size = sum(each.source_bytes for each in new)
    shards = sum(each.is_shard for each in new)
    print(
        f"would convert {count_text(shards, len(new) - shards)} of {megabytes(size)}; "
        f"{len(work.kept) + done} are done"
    )
    stored = sum((each.choices.counts for each in new), Counter[str]())
    if stored:
        print(f"their images by format: {stored_text(stored)}")
    palettes = sum(each.choices.palettes for each in new)
    _tell_of_palettes(palettes, "would become", labels)
    names = Counter(Path(name).suffix.lower() for name in work.names)
    say(unread_images(names, "that would be copied as they are"))
    failures = [each.failure for each in found if each.failure is not None] + work.failures
    failures += [failure for each in found for failure in each.choices.failures]
    tell_failures(failures)
    return EXIT_FAILED if failures else 0


def _convert(
    work: Work, engine: Engine, workers: int, manifest: Manifest, *, quiet: bool
) -> list[Row]:
    new: list[Row] = []
    left: list[Row] = []
    full = 0
    files = sum(len(job.files) for job in work.jobs)
    try:
        try:
            with closing(engine(work.jobs, workers, left)) as results:  # type: ignore[type-var]
                for rows in progress(results, files, quiet=quiet, files_of=len):
                    manifest.add(rows)
                    new += rows
                    full = full + 1 if local.is_disk_full(rows, work.jobs[0].target) else 0
                    if full > workers:  # One large result takes the space of those beside it.
                        complain("l3: no space left; run again to continue")
                        break
        finally:
            known = {row.source for row in new}
            # Not what failed as its process was told to end, too.
            rest = {row.source: row for row in left if row.status != FAILED or row.result}
            left = [row for source, row in rest.items() if source not in known]
            manifest.add(left)
            new += left
    except KeyboardInterrupt as error:
        done = len(work.kept) + sum(row.status != FAILED for row in new)
        told = f"{done} of {len(work.kept) + files} shards and files are done"
        raise KeyboardInterrupt(signal_of(error), f"{told}; the same command goes on") from None
    return new


def _apart(rows: Sequence[Row], work: Work) -> tuple[list[Row], list[Row]]:
    """Rows of new results, and earlier ones of sources that changed their times alone."""
    parts: tuple[list[Row], list[Row]] = ([], [])
    previous = {name: row for job in work.jobs for name, row in job.previous.items()}
    for row in rows:
        before = previous.get(row.source)
        is_same = before is not None and row == replace(
            before,
            options=row.options,
            source_stamp=row.source_stamp,
            result_stamp=row.result_stamp,
            index_stamp=row.index_stamp,
        )
        parts[is_same].append(row)
    return parts


def _tell(
    summary: Summary,
    work: Work,
    options: Options,
    arguments: argparse.Namespace,
) -> int:
    """Says what was done; gives the exit code."""
    if not arguments.quiet:
        file = sys.stderr if arguments.json_summary == STDOUT else sys.stdout
        if work.jobs:
            print_table(HEADERS, *summary.table(), file=file)
            print(summary, file=file)
        elif not work.failures:
            print(f"nothing to do: {summary}", file=file)
        elif summary.kept or summary.failed:
            print(summary, file=file)
        _tell_of_palettes(summary.total.expanded, "became", options.labels)
        unused = [name for name in arguments.labels if not summary.labels[name]]
        say(f"--labels {name!r} named no image" for name in unused)
        if summary.unindexed:
            complain(
                "l3: shards without an index for DALI, since names of members have blanks in them: "
                f"{summary.unindexed}; DALI reads the headers instead"
            )
        if summary.total.substituted:
            complain(
                "l3: images that came back as PNG or TIFF, since the format that they came from "
                f"loses data or cannot hold them: {summary.total.substituted}"
            )
        unread = unread_images(summary.others, "copied as they are")
        lines = [*(unread if arguments.to == "l3" else []), *_growth(summary, arguments)]
        if arguments.to == "l3" and (count := summary.others[".l3"]):
            lines.append(f"L3 files copied as they are: {count}; for another coding {NOT_L3_FILES}")
        lines += _nothing_found(summary, arguments.to)
        for line in lines:
            complain(f"l3: {line}")
        if work.links:
            complain(f"l3: links to folders not followed: {work.links}")
        if work.linked:
            complain(f"l3: links to files followed: {work.linked}")
    fields = summary.fields() | {"links_not_followed": work.links}
    return conclude(arguments, summary.failures, [], fields)


def _tell_of_palettes(count: int, become: str, labels: Sequence[str]) -> None:
    if count:
        keeps = "--labels NAMES keeps the numbers of their entries"
        what = "--labels names others" if labels else keeps
        complain(f"l3: palette images that {become} colours: {count}; {what}")


def _tell_of_unseen(rows: Sequence[Row], plan: Plan) -> None:
    """Says how many single images had no costs to be chosen by, and of which groups they are."""
    becomes = f"become {codec.DEFAULT_CODING}, as others change the numbers of classes"
    for stored_as, what in ((SOURCE, "stay as they are"), (codec.DEFAULT_CODING, becomes)):
        groups = (row.group for row in rows if row.group and stored_as in row.stored)
        if unseen := Counter(group for group in groups if group not in plan.groups):
            complain(
                f"l3: images of groups that the profile has not seen, which {what}: "
                f"{unseen.total()} ({', '.join(sorted(unseen))}); profile again with the same "
                "--labels"
            )


def _judge_names(work: Work, options: Options) -> None:
    """Says before the work which --labels name nothing, where no shard may hold what they name.

    Raises:
        UsageError: nothing is named, or L3 files are to be turned back and none is found.
    """
    suffixes = {Path(name).suffix.lower() for name in work.names}
    if suffixes == {".l3"} and options.to == "l3" and options.plan is None:
        raise UsageError(f"all sources are L3 files already; for another coding {NOT_L3_FILES}")
    may_be_l3 = not suffixes.isdisjoint({"", ".l3"}) or any(map(is_shard_name, work.names))
    if options.to != "l3" and work.names and not may_be_l3:
        raise UsageError(
            f"no L3 file among {counted(len(work.names), 'file')}; --to {options.to} decodes L3 "
            "files: name the folder that has them as SOURCE"
        )
    if options.labels and work.names and not any(map(is_shard_name, work.names)):
        say(unused_labels(options, work.names, are_all=True))


def _growth(summary: Summary, arguments: argparse.Namespace) -> list[str]:
    """Says which sources have grown, by their format, and what to do."""
    if arguments.to != "l3" or arguments.plan is not None:  # A plan has weighed bytes.
        return []
    sizes = summary.formats.items()
    lines = growth_lines((n, one.images, one.source_bytes, one.result_bytes) for n, one in sizes)
    grown = {name for name, one in sizes if one.result_bytes > one.source_bytes}
    if grown & _LOSSY:
        lines.append(
            "L3 stores every pixel of lossy images exactly: where bytes count, keep them as they "
            "are (l3 plan chooses what to convert), or make small copies (l3 encode --max-side)"
        )
    if grown - _LOSSY:
        coding = arguments.coding or codec.DEFAULT_CODING
        other = "--coding rans takes fewer bytes; " if coding != "rans" else ""
        lines.append(f"where bytes count, {other}l3 plan chooses what to convert")
    return lines


def _nothing_found(summary: Summary, to: str) -> list[str]:
    """Says that there was no image, and what images are; or in which shards there was none."""
    image = "image" if to == "l3" else "L3 file"
    if summary.stored or summary.failures:
        names = summary.imageless
        return [f"shards in which no {image} was found: {_counted_names(names)}"] * bool(names)
    files = count_text(0, summary.converted + summary.kept)
    if to != "l3":
        return [f"no L3 file was found in {files}"]
    suffixes = " ".join(sorted(READ_SUFFIXES))
    return [
        f"no image was found in {files}; L3 images are copied as they are; read are {suffixes}, "
        f"and in {READ_SHARDS}"
    ]
