"""`make soak HOURS=n`: work with damaged files and interrupts; does anything leak or differ?

Two workers (soak_workers.py) run for the whole time: the Python package, and DALI pipelines on the
CPU, some that stay and some that come and go. Beside them this process interrupts `l3 encode` and
`l3 decode` over folders, by SIGINT and SIGKILL, starts them again and compares every file; and it
kills a training, which must repeat its batches from the last checkpoint. Writes
benchmarks/results/soak.{md,json,png}. Ends with 1 if a pixel differs, a worker dies, or memory,
threads or files grow beyond RULE.

Runs in the root of the repository with that folder on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
from benchmarks.peers import machine
from benchmarks.report import RESULTS, markdown_table, save_results
from soak_workers import (
    ENCODED,
    ROUNDS,
    SOURCES,
    Usage,
    assert_same,
    find_damaged,
    idle_usage,
    make_images,
    read_images,
    usage_of,
)

import l3dali

WORKERS = Path(__file__).with_name("soak_workers.py")
DRIVER = "driver"
LONG_RUN_S = 600
RSS_MARGIN_MIB, SHORT_RSS_MARGIN_MIB, RSS_MARGIN_PERCENT = 16, 128, 5
MIN_ROUNDS = 4
REPORT_EVERY_S = 300  # so that a run that is cut short has a result
RULE = (
    "Each process says what it takes after each round of its work, when it is idle and its "
    "allocator has given back what is free (malloc_trim). Of these numbers the first quarter is "
    "warm-up. The median of resident memory in the last quarter may exceed that of the second by "
    f"{RSS_MARGIN_PERCENT} % and {RSS_MARGIN_MIB} MiB ({SHORT_RSS_MARGIN_MIB} MiB in runs under "
    f"{LONG_RUN_S // 60} minutes, which are all warm-up); the medians of threads and of open files "
    "in the last quarter may not exceed the largest of the second."
)


def judge(rounds: Sequence[Usage], seconds: float) -> list[str]:
    """What of a process has grown beyond RULE."""
    if len(rounds) < MIN_ROUNDS:
        return [f"{len(rounds)} rounds are too few to judge; {MIN_ROUNDS} are needed"]
    second, last = quarters(rounds)
    complaints = []
    margin_mib = RSS_MARGIN_MIB if seconds >= LONG_RUN_S else SHORT_RSS_MARGIN_MIB
    before = statistics.median(u.rss_kib for u in second)
    after = statistics.median(u.rss_kib for u in last)
    if after > before * (1 + RSS_MARGIN_PERCENT / 100) + margin_mib * 1024:
        complaints.append(f"memory grew from {before / 1024:.1f} to {after / 1024:.1f} MiB")
    for what in ("threads", "fds"):
        most = max(getattr(u, what) for u in second)
        usual = statistics.median(getattr(u, what) for u in last)
        if usual > most:
            complaints.append(f"{what} grew from {most} to {usual:g}")
    return complaints


def quarters(rounds: Sequence[Usage]) -> tuple[Sequence[Usage], Sequence[Usage]]:
    """The second quarter and the last."""
    count = len(rounds)
    return rounds[count // 4 : count // 2], rounds[count - count // 4 :]


@dataclass
class Process:
    """One that runs for the whole time."""

    name: str
    pid: int
    rounds: list[Usage] = field(default_factory=list)
    samples: list[tuple[float, Usage]] = field(default_factory=list)  # at any time


class Soak:
    """A run: its folder, its processes and what they did."""

    def __init__(self, folder: Path, seconds: float, seed: int) -> None:
        """Makes the images."""
        self.folder, self.seconds = folder, seconds
        self.rng = np.random.default_rng(seed)
        make_images(folder, seed)
        self.images, self.bad = read_images(folder), find_damaged(folder)
        assert self.bad, "no damaged file"
        self.counts: Counter[str] = Counter()
        self.processes = [Process(DRIVER, os.getpid())]
        self.digests: dict[int, str] = {}  # of the training's batches
        self.begin = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the time has passed, and enough been done to judge."""
        late = time.monotonic() - self.begin > self.seconds
        return late and len(self.processes[0].rounds) >= MIN_ROUNDS

    @property
    def elapsed_s(self) -> float:
        """How long it has run."""
        return min(time.monotonic() - self.begin, self.seconds)

    def run(self, on_round: Callable[[], None]) -> list[str]:
        """Runs everything; returns complaints. Calls `on_round` now and then."""
        workers = [self._start_worker(i, name) for i, name in enumerate(ROUNDS)]
        sampler = threading.Thread(target=self._sample, daemon=True)
        sampler.start()
        complaints: list[str] = []
        try:
            while not self.is_over and not complaints:
                for work in (self._convert, self._train):
                    work()
                    self.processes[0].rounds.append(idle_usage())
                    on_round()
                complaints += self._dead_workers(workers)
            for _, reader in () if complaints else workers:
                reader.join()
        except AssertionError as error:
            complaints.append(str(error))
        finally:
            for worker, _ in workers:
                worker.terminate()
        complaints = complaints or self._dead_workers(workers)
        return complaints + self.growth()

    def growth(self) -> list[str]:
        """What has grown so far."""
        return [
            f"{process.name}: {what}"
            for process in self.processes
            for what in judge(process.rounds, self.elapsed_s)
        ]

    def _start_worker(self, seed: int, name: str) -> tuple[subprocess.Popen[str], threading.Thread]:
        command = [sys.executable, WORKERS, name, self.folder, "--seed", str(seed)]
        command += ["--seconds", str(self.seconds), "--rounds", str(MIN_ROUNDS)]
        with self._log(name).open("w") as log:
            worker = subprocess.Popen(
                list(map(str, command)),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        process = Process(name, worker.pid)
        self.processes.append(process)

        def read() -> None:
            assert worker.stdout is not None
            for line in worker.stdout:
                message = json.loads(line)
                process.rounds.append(Usage(**message["usage"]))
                for what, count in message["counts"].items():
                    self.counts[f"{name}: {what}"] += count

        reader = threading.Thread(target=read)
        reader.start()
        return worker, reader

    def _log(self, name: str) -> Path:
        """What the process says: DALI and the operators name each damaged sample."""
        return self.folder / f"{name}.log"

    def _dead_workers(
        self, workers: Sequence[tuple[subprocess.Popen[str], threading.Thread]]
    ) -> list[str]:
        return [
            f"{process.name} ended with {worker.poll()}: {self._last_line(process.name)}"
            for (worker, _), process in zip(workers, self.processes[1:], strict=True)
            if worker.poll() not in (None, 0)
        ]

    def _last_line(self, name: str) -> str:
        lines = self._log(name).read_text(errors="replace").splitlines()
        return lines[-1] if lines else "no output"

    def _sample(self) -> None:
        while not self.is_over:
            for process in self.processes:
                try:
                    usage = usage_of(process.pid)
                except (OSError, KeyError):  # it has ended
                    continue
                process.samples.append(((time.monotonic() - self.begin) / 60, usage))
            time.sleep(max(0.2, self.seconds / 800))

    # Conversions.

    def _convert(self) -> None:
        """Both ways, interrupted until they are through."""
        encoded, decoded = self.folder / "encoded", self.folder / "decoded"
        encode: list[str | Path] = ["encode", self.folder / SOURCES, "-o", encoded, "--effort", "1"]
        encode += ["--coding", str(self.rng.choice(l3dali.CODINGS))]
        self._interrupt(encode, encoded, set(), lambda path: l3dali.imread(path))
        decode: list[str | Path] = ["decode", self.folder / ENCODED, "-o", decoded]
        self._interrupt(
            decode, decoded, self.bad, lambda path: imagecodecs.png_decode(path.read_bytes())
        )
        for made in (encoded, decoded):
            shutil.rmtree(made)
        self.counts["conversions: folders"] += 2

    def _interrupt(
        self,
        command: Sequence[str | Path],
        made: Path,
        bad: set[str],
        read: Callable[[Path], Any],
    ) -> None:
        """Runs `l3` until it has made every file, and compares each as soon as it is there."""
        compared: set[str] = set()
        full = [sys.executable, "-m", "l3dali", *map(str, command), "--skip-existing", "-j", "2"]
        while True:
            child = subprocess.Popen(full, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
            stop_at = len(compared) + int(self.rng.integers(1, len(self.images)))
            how = signal.SIGINT if self.rng.random() < 0.5 else signal.SIGKILL
            while child.poll() is None and len(list(made.glob("[!.]*"))) < stop_at:
                time.sleep(0.005)
            time.sleep(self.rng.uniform(0, 0.02))
            if self.is_over:
                how = signal.SIGKILL
            child.send_signal(how)
            _, complaint = child.communicate()
            debris = list(made.glob(".*"))
            if child.returncode in (-signal.SIGKILL, 130):
                self.counts[f"conversions: {how.name}"] += 1
            if child.returncode != -signal.SIGKILL:
                assert not debris, f"{full} left {debris}"
            for part in debris:  # of a process that was killed
                part.unlink()
            for path in set(made.glob("*")):
                if path.stem not in compared:
                    assert_same(str(path), read(path), self.images[path.stem])
                    compared.add(path.stem)
                    self.counts["conversions: files compared"] += 1
            if child.returncode in (0, 2):
                named = {name for name in self.images if f"{name}.l3: " in complaint.decode()}
                assert (child.returncode, named) == (2 if bad else 0, bad), complaint.decode()
                assert compared == self.images.keys() - bad, f"{full}: files are missing"
                return
            assert child.returncode in (-signal.SIGKILL, 130), complaint.decode()
            if self.is_over:
                return

    # Trainings.

    def _train(self) -> None:
        """Runs some batches, kills the process; batches that come again must be the same."""
        command = [sys.executable, str(WORKERS), "training", str(self.folder)]
        batches = int(self.rng.integers(1, 8))
        with (
            self._log("training").open("w") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as child,
        ):
            assert child.stdout is not None
            for _ in range(batches):
                line = child.stdout.readline().split()
                assert line, f"the training ended: {self._last_line('training')}"
                number, digest = int(line[0]), line[1]
                seen = self.digests.setdefault(number, digest)
                assert seen == digest, f"batch {number} of the training differs after a restart"
                self.counts["training: batches"] += 1
                if self.is_over:
                    break
            child.kill()
        self.counts["training: SIGKILL"] += 1


# The report.


def draw(processes: Sequence[Process], path: Path) -> None:
    """Memory, threads and open files over time, with the numbers of idle processes beside."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(3, 1, figsize=(9, 9), sharex=True)
    whats = (("rss_kib", "resident memory, MiB", 1024), ("threads", "threads", 1))
    for panel, (what, label, unit) in zip(panels, (*whats, ("fds", "open files", 1)), strict=True):
        for process in processes:
            times = [minutes for minutes, _ in process.samples]
            values = [getattr(usage, what) / unit for _, usage in process.samples]
            panel.plot(times, values, label=process.name, linewidth=1)
        panel.set_ylabel(label)
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
    panels[0].legend()
    panels[-1].set_xlabel("minutes")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)


def report(soak: Soak, complaints: Sequence[str], where: str, out: Path) -> None:
    """Writes page, numbers and plot."""
    rows = []
    for process in soak.processes:
        if len(process.rounds) < MIN_ROUNDS:
            continue
        second, last = quarters(process.rounds)
        row = [process.name, str(len(process.rounds))]
        for what, unit in (("rss_kib", 1024), ("threads", 1), ("fds", 1)):
            for part in (second, last):
                row.append(f"{statistics.median(getattr(u, what) for u in part) / unit:.4g}")
        rows.append(row)
    head = ["process", "rounds", "MiB, 2nd quarter", "MiB, last", "threads, 2nd", "last"]
    head += ["open files, 2nd", "last"]
    failed = "\n".join(f"* FAILED: {what}" for what in complaints)
    done = markdown_table(["what", "count"], [[k, str(v)] for k, v in sorted(soak.counts.items())])
    text = (
        f"{where}.\n\n{soak.elapsed_s / 60:.3g} of {soak.seconds / 60:.3g} minutes of `make soak`; "
        f"{len(soak.images)} images, "
        f"of which {len(soak.bad)} are damaged.\n\n"
        f"{failed or 'Nothing grew, nothing differed.'}\n\n{RULE} Medians:\n\n"
        f"{markdown_table(head, rows)}\n{done}\n![plot](soak.png)\n"
    )
    data = {
        "where": where,
        "seconds": round(soak.elapsed_s, 1),
        "complaints": list(complaints),
        "counts": soak.counts,
        "processes": {
            process.name: {
                "rounds": len(process.rounds),
                "minutes": [round(minutes, 2) for minutes, _ in process.samples[::4]],
                **{
                    what: [getattr(usage, what) for _, usage in process.samples[::4]]
                    for what in ("rss_kib", "threads", "fds")
                },
            }
            for process in soak.processes
        },
    }
    draw(soak.processes, out / "soak.png")
    save_results("soak", "A soak", text, data, out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the soak; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--cores", type=int, default=0, help="processors to use; default: all")
    parser.add_argument("--nice", type=int, default=0, help="lowers the priority, up to 19")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    if args.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    os.nice(args.nice)
    # What runs in the background of a shell ignores it, and so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cores = len(os.sched_getaffinity(0))
    where = f"{machine()}, {cores} processors, nice {os.nice(0)}"
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="l3-soak-") as folder:
        soak = Soak(Path(folder) / "images", args.hours * 3600, args.seed)
        reported_s = 0.0

        def report_now_and_then() -> None:
            nonlocal reported_s
            if soak.elapsed_s > reported_s + REPORT_EVERY_S:
                reported_s = soak.elapsed_s
                report(soak, soak.growth(), where, args.out)

        report(soak, [], where, args.out)  # What drawing takes is taken before the first round.
        complaints = soak.run(report_now_and_then)
    report(soak, complaints, where, args.out)
    print((args.out / "soak.md").read_text())
    for complaint in complaints:
        print(f"soak: {complaint}", file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
