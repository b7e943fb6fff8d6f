"""`l3 convert` whose workers do two shards, or files of a batch, and wait until the run is to end.

So what a test does to it comes during the run, whatever the clock says.
"""

from __future__ import annotations

import sys
import time
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

from l3dali import cli
from l3dali.datasets.convert import engine
from l3dali.datasets.convert import job as jobs
from l3dali.datasets.convert.containers import FILES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from l3dali.datasets.convert.job import Job
    from l3dali.datasets.convert.manifest import Row

DONE = ("00.tar", "01.tar")
DONE_OF_BATCH = 2
_work, _convert_each = engine._work, jobs._convert_each


def work(job: Job) -> Iterator[list[Row]]:
    while job.kind != FILES and job.files[0].name not in DONE:
        time.sleep(0.01)
    jobs._convert_each = convert_each
    return _work(job)


def convert_each(job: Job, *arguments: Any) -> Iterator[Row]:
    yield from islice(_convert_each(job, *arguments), DONE_OF_BATCH if job.kind == FILES else None)
    while job.kind == FILES:
        time.sleep(0.01)


def run() -> NoReturn:
    engine._work = work
    jobs._convert_each = convert_each
    sys.argv.insert(1, "convert")
    cli.run()
