"""`l3 convert` whose workers do two shards, and wait with all others until the run is to end.

So what a test does to it comes amid the run, whatever the clock says.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NoReturn

from l3dali import cli
from l3dali.datasets.convert import engine

if TYPE_CHECKING:
    from l3dali.datasets.convert.job import Job
    from l3dali.datasets.convert.manifest import Row

DONE = ("00.tar", "01.tar")
_work = engine._work


def work(job: Job) -> list[Row]:
    while job.files[0].name not in DONE:
        time.sleep(0.01)
    return _work(job)


def run() -> NoReturn:
    engine._work = work
    sys.argv.insert(1, "convert")
    cli.run()
