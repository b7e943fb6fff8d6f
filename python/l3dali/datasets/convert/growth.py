"""Estimates before a run whether lossy sources would grow."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, islice
from typing import TYPE_CHECKING

from l3dali.console import megabytes
from l3dali.datasets.convert.children import Child, ChildDiedError
from l3dali.datasets.convert.images import Entry
from l3dali.datasets.convert.limits import limited
from l3dali.datasets.convert.pipeline import ImagePool, sum_totals
from l3dali.datasets.convert.reader import is_in_process, read_blobs
from l3dali.errors import UsageError
from l3dali.images.formats import lossy_format

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from l3dali.datasets.convert.job import Job

SAMPLED_IMAGES = 100
_ATTEMPTS = 3  # An image that ends the process is in the first, largest job, which is then skipped.
_SAMPLED_FILES = 100_000  # from which the images are taken; a child gets their names


def tell_growth(jobs: Sequence[Job], threads: int) -> str:
    """Text that the sources are lossy and would grow, by the first images; "" if they would not."""
    set_bytes = sum(job.bytes for job in jobs)
    ends = accumulate(len(job.files) for job in jobs)
    jobs = [job for job, end in zip(jobs, ends, strict=True) if end <= _SAMPLED_FILES]
    if is_in_process(*(job.source for job in jobs)):
        return _growth(jobs, threads, set_bytes)
    for first in range(min(_ATTEMPTS, len(jobs))):  # The run reports what ended the process.
        child = Child()
        try:
            return child.call(_growth_apart, jobs[first:], threads, set_bytes)
        except (ChildDiedError, MemoryError):
            continue
        finally:
            child.end(kill=True)
    return ""


def _growth_apart(jobs: Sequence[Job], threads: int, set_bytes: int) -> str:
    with limited(jobs[0].options.worker_memory, threads):
        return _growth(jobs, threads, set_bytes)


def _growth(jobs: Sequence[Job], threads: int, set_bytes: int) -> str:
    names = [lossy_format(entry.blobs[0].data) for entry in _first_images(jobs)]
    lossy = [name for name in names if name is not None]
    if 2 * len(lossy) <= len(names):
        return ""
    pool = ImagePool(replace(jobs[0].options, on_error="keep", verify=False), threads)
    for _ in pool.convert(_first_images(jobs)):
        pass
    total = sum_totals(pool.totals.formats.values())
    if total.result_bytes <= total.source_bytes:
        return ""
    factor = total.result_bytes / total.source_bytes
    return (
        f"the sources are {max(lossy, key=lossy.count)} files, which are lossy; lossless copies "
        f"are larger. The first {total.images} images: from "
        f"{megabytes(total.source_bytes)} to {megabytes(total.result_bytes)}, ratio {factor:.2f}; "
        f"the whole set: from {megabytes(set_bytes)} to about "
        f"{megabytes(round(set_bytes * factor))}. --grow converts them anyway"
    )


def _first_images(jobs: Sequence[Job]) -> Iterator[Entry]:
    def readable() -> Iterator[Entry]:
        for job in jobs:
            for file in job.files:
                try:
                    found = read_blobs(job.source, file.name, job.kind, job.options)
                    yield from (Entry([blob]) for blob in found)
                except UsageError:
                    raise
                except Exception:
                    continue  # The run reports damaged files.

    return islice(readable(), SAMPLED_IMAGES)
