"""Many small batches over the PTX machine, also with changed kernels: l3_simulated_cases."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ptx_text import kernel_lines, program_ptx, short_name
from simulate import CASE_LIMITS, CASES, case_counts, test_files

SURVIVES, NO_PTX = -1, -2


@dataclass(frozen=True)
class Change:
    """Another text in the place of a line of a kernel's PTX."""

    kernel: str
    line: int
    text: str


@dataclass(frozen=True)
class Outcome:
    batch: int  # that ended badly, or SURVIVES, or NO_PTX
    what: str  # was wrong

    @property
    def noticed_by(self) -> str:
        """The check, in a word or two."""
        words = {
            "nothing orders": "order",
            ".nc": "order",
            "nobody has written": "unwritten bytes",
            "for ever": "waiting",
            "own mask": "waiting",
            "does not end": "instructions of a launch",
            "out of bounds": "bounds",
            "no multiple": "alignment",
            "pixels": "pixels or Status",
        }
        return next((kind for part, kind in words.items() if part in self.what), self.what)


@contextmanager
def kernel_files() -> Iterator[dict[str, Path]]:
    """The PTX of each kernel in a file of its own, with the lines that it has in its unit."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for text in program_ptx(CASES):
            kernels = kernel_lines(text)
            for kernel in kernels:
                lines = text.split("\n")
                for begin, end in (kernels[other] for other in kernels if other != kernel):
                    lines[begin : end + 1] = [""] * (end + 1 - begin)
                paths[kernel] = Path(folder, f"{short_name(kernel)}.ptx")
                paths[kernel].write_text("\n".join(lines))
        yield paths


def try_changes(changes: Sequence[Change], jobs: int) -> list[Outcome]:
    """Runs batches with each changed kernel, until one ends badly."""
    outcomes: dict[int, Outcome] = {}
    start = time.monotonic()
    environment = os.environ | CASE_LIMITS
    runs = ":".join(f"{counts}.runs" for counts in case_counts())
    with kernel_files() as paths, tempfile.NamedTemporaryFile("w") as listed:
        listed.writelines(f"{one.kernel}\t{one.line}\t{one.text.strip()}\n" for one in changes)
        listed.flush()
        environment["L3_PTX"] = ":".join(map(str, paths.values()))

        def run_shard(shard: int) -> None:
            options = ["try", listed.name, f"{shard}/{jobs}", runs]
            command: list[str | Path] = [CASES, *options, *test_files()]
            with subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, text=True
            ) as process:
                assert process.stdout is not None
                for row in process.stdout:
                    number, batch, what = row.rstrip("\n").split("\t")
                    outcomes[int(number)] = Outcome(int(batch), what)
                    if len(outcomes) % 100 == 0:
                        seconds = time.monotonic() - start
                        print(f"[{len(outcomes)}/{len(changes)}, {seconds:.0f} s]", flush=True)
            if process.returncode != 0:
                raise RuntimeError(f"shard {shard} of changed kernels ended badly")

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(run_shard, range(jobs)))
    return [outcomes[number] for number in range(len(changes))]
