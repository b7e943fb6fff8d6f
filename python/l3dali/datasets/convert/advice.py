"""What is worth saying before a data set is converted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from l3dali.console import megabytes
from l3dali.datasets.convert.images import Blob
from l3dali.datasets.convert.job import Job, read_blobs
from l3dali.datasets.convert.pipeline import ImagePool
from l3dali.errors import UsageError
from l3dali.images.lossy import lossy_format

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SAMPLED_IMAGES = 100


@dataclass(frozen=True)
class Growth:
    """What lossy sources would become, going by the first images.

    Attributes:
        images: how many were tried.
        format: of most of them.
        before: their bytes.
        after: the bytes of their results.
        set_bytes: of the whole set.
    """

    images: int
    format: str
    before: int
    after: int
    set_bytes: int

    def __str__(self) -> str:
        """The advice."""
        factor = self.after / self.before
        return (
            f"the sources are {self.format} files, which lose data to be small; kept "
            f"without loss they grow. The first {self.images} images: from "
            f"{megabytes(self.before)} to {megabytes(self.after)}, ratio {factor:.2f}; the whole "
            f"set: from {megabytes(self.set_bytes)} to about "
            f"{megabytes(round(self.set_bytes * factor))}. --grow converts them all the same"
        )


@dataclass(frozen=True)
class _Sample:
    """One image of the first ones."""

    blobs: Sequence[Blob]


def find_growth(jobs: Sequence[Job], threads: int) -> Growth | None:
    """Tries the first images, if most are of a lossy format; None if they would not grow."""
    formats = [lossy_format(sample.blobs[0].data) for sample in _first_images(jobs)]
    lossy = [name for name in formats if name is not None]
    if 2 * len(lossy) <= len(formats):
        return None
    options = replace(jobs[0].options, on_error="keep", verify=False)
    pool = ImagePool(options, threads)
    for _ in pool.convert(_first_images(jobs)):
        pass
    totals = pool.totals.formats.values()
    before = sum(total.source_bytes for total in totals)
    after = sum(total.result_bytes for total in totals)
    if after <= before:
        return None
    images = sum(total.images for total in totals)
    set_bytes = sum(job.bytes for job in jobs)
    return Growth(images, max(lossy, key=lossy.count), before, after, set_bytes)


def _first_images(jobs: Sequence[Job]) -> Iterator[_Sample]:
    count = 0
    for job in jobs:
        for file in job.files:
            # What is damaged is for the run to say.
            try:
                for blob in read_blobs(job, file.name):
                    yield _Sample([blob])
                    count += 1
                    if count == SAMPLED_IMAGES:
                        return
            except UsageError:
                raise
            except (ValueError, OSError):
                continue
