"""What a run would do, without writing anything."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from l3dali.datasets.convert.images import foresee_format
from l3dali.datasets.convert.job import read_blobs
from l3dali.datasets.convert.pipeline import Choices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from l3dali.datasets.convert.job import Job


@dataclass
class Preview:
    """What would become of a shard or a file.

    Attributes:
        source_bytes: its size.
        is_done: its result would stay as it is.
        stored: its images by the format that they would be stored in.
        failure: why it cannot be read.
    """

    source_bytes: int
    is_done: bool = False
    stored: Counter[str] = field(default_factory=Counter)
    failure: str = ""


def preview(jobs: Sequence[Job], foreseen: Mapping[str, str]) -> Iterator[Preview]:
    """Reads the sources of jobs, and asks what their images would be stored as.

    Args:
        jobs: of the run.
        foreseen: by source, the format of an image that need not be read for that.
    """
    for job in jobs:
        for file in job.files:
            found = Preview(file.size)
            if file.name in foreseen:
                found.stored[foreseen[file.name]] += 1
                yield found
                continue
            choices = Choices()
            try:
                for blob in read_blobs(job, file.name):
                    chosen = foresee_format(blob, job.options)
                    if chosen is not None:
                        choices.add(chosen)
                        found.stored[chosen] += 1
            except (OSError, ValueError) as error:
                found.failure = str(error)
            row = job.previous.get(file.name)
            found.is_done = row is not None and row.choices == choices.hexdigest()
            yield found
