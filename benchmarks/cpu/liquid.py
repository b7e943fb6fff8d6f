"""Mixed data sets beside single formats, with the disk and the cores held to what a regime says.

    python -m benchmarks.cpu.liquid --data ../shared/data

A regime is a data set (PNG: photographs, screenshots and masks; JPEG: photographs), a disk rate
and a number of cores. In each, every single format, the plan, the plan with 20 % of the images
moved to smaller or to larger files, the plan's shares given to images by lot, and a grid of mixes
by lot take turns, round after round. A turn is a DALI pipeline of its own on the CPU that decodes
whole passes over the set and crops, after one that warms it up; the order of images is the same
for all.

The disk is held by the control group blkio, with files dropped from the page cache as soon as
they are read. That needs root, control groups of version 1, and a disk that is faster than the
regime. Where it cannot be had, files stay in the page cache and readers wait for a token bucket.
Files are read 4 at a time either way, by threads of the same process: what reading costs the
cores counts.

A profile of the set, made before, predicts each. What pipelines reach of the cores (`efficiency`)
is taken anew for each regime, from turns of each single format with the disk not held: the
machine may be shared. Nothing is fitted to the turns that are predicted.
Results are written after each regime. `--add` keeps regimes of an earlier run.

On a machine that others use, threads that wake up find the cores taken, and pipelines do not run as
they would alone. As root, `chrt --rr 1` or `nice -n -20` in front of it helps; the results say so.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import imagecodecs
import matplotlib as mpl
import numpy as np
import nvidia.dali as dali
import skimage.data
from benchmarks.peers import Image, images
from benchmarks.report import RESULTS, code_commit, made, markdown_table, save_results
from nvidia.dali import fn, types
from rich.progress import track

import l3dali
import l3dali.pipeline
from l3dali.datasets.convert.choosing import Seen
from l3dali.datasets.convert.storage import open_folder
from l3dali.datasets.liquid.fit import fit_groups
from l3dali.datasets.liquid.groups import group_of
from l3dali.datasets.liquid.host import Reading, measure_reading
from l3dali.datasets.liquid.measure import measure_profile
from l3dali.datasets.liquid.model import Limits, turn_seconds
from l3dali.datasets.liquid.plan import find_plan
from l3dali.datasets.liquid.profile import CPU, L3_FORMATS, SOURCE, Profile, cost_key
from l3dali.images.headers import read_header

mpl.use("Agg")
import matplotlib.pyplot as plt

PNG, JPEG = SETS = ("png", "jpeg")
DISKS = (100, 200, 400, 1000)  # MB/s
CORES = (1, 2)
FORMATS = (SOURCE, *L3_FORMATS)
SIZE = "768x512"
SOURCES = ("photo/large", "photo/kodak", "photo/gb82")
BATCH = 32
READERS = 4
AHEAD = 3  # batches that are read before DALI asks for them
RING = 2 * AHEAD + 4  # batches in memory, those in DALI's queues too
CROP = (16, 16)  # of what is decoded, small so that it costs next to nothing
MOVED = 0.2
GRID = (0.25, 0.5, 0.75)
GRID_PAIRS = {
    PNG: (("rans", "packed"), ("packed", "stored")),
    JPEG: ((SOURCE, "packed"), (SOURCE, "stored")),
}
RESAMPLES = 2000
CPU_BOUND = 0.7  # of the time at the cores that reading may take, where cores bind
CALIBRATING_TURNS = 3  # of each single format
FREE = 1.1  # times the regime's rate that the disk must give without limits

CODE = ("encoder", "src", "python/l3dali", "benchmarks/cpu/liquid.py")

Assignment = tuple[str, ...]  # a format for each image


@dataclass(frozen=True)
class Picture:
    """An image of a data set, stored in each format.

    Attributes:
        name: of its source.
        group: of a profile, that it belongs to.
        pixels: width times height.
        paths: by format.
        sizes: by format, in bytes.
    """

    name: str
    group: str
    pixels: int
    paths: dict[str, Path]
    sizes: dict[str, int]


@dataclass(frozen=True)
class Regime:
    """What a data set is read and decoded with; `disk` in MB/s."""

    set: str
    disk: int
    cores: int

    @property
    def name(self) -> str:
        """Names it in results and arguments."""
        return f"{self.set}/{self.disk}/{self.cores}"


# Data sets.


def png_images(data: Path | None, count: int) -> Iterator[Image]:
    """Photographs, screenshots and masks: two, one and one of four."""
    if data is not None:
        photos = [piece for name in SOURCES for _, piece in images(data, f"{name}@{SIZE}")]
        screens = [image for _, image in images(data, f"screen@{SIZE}")]
        masks = [image for _, image in images(data, "mask")]
    else:
        photos = [skimage.data.astronaut(), skimage.data.coffee(), skimage.data.chelsea()]
        screens = [skimage.data.page(), skimage.data.text()]
        masks = [np.asarray(skimage.data.horse()).astype(np.uint8)]
    kinds = [itertools.cycle(kind) for kind in (photos, screens, photos, masks)]
    for i in range(count):
        yield next(kinds[i % len(kinds)])


def jpeg_images(data: Path | None, count: int) -> Iterator[Image]:
    """Photographs."""
    if data is not None:
        photos = [piece for name in SOURCES for _, piece in images(data, f"{name}@{SIZE}")]
    else:
        photos = [skimage.data.astronaut(), skimage.data.coffee(), skimage.data.chelsea()]
    yield from itertools.islice(itertools.cycle(photos), count)


def make_set(name: str, data: Path | None, count: int, folder: Path) -> list[Picture]:
    """Writes a data set in every format."""
    made: list[Picture] = []
    source = png_images if name == PNG else jpeg_images
    for i, image in enumerate(track(source(data, count), f"encode {name}", total=count)):
        if name == PNG:
            encoded = bytes(imagecodecs.png_encode(image, level=6))
        else:
            encoded = bytes(imagecodecs.jpeg8_encode(image, level=90))
            image = imagecodecs.jpeg8_decode(encoded)
        files = {SOURCE: encoded}
        files.update(
            {mode: l3dali.encode(image, coding=mode, threads=0) for mode in l3dali.CODINGS}
        )
        paths = {}
        for stored_as, content in files.items():
            suffix = name if stored_as == SOURCE else "l3"
            paths[stored_as] = folder / name / stored_as / f"{i:04}.{suffix}"
            paths[stored_as].parent.mkdir(parents=True, exist_ok=True)
            paths[stored_as].write_bytes(content)
        made.append(
            Picture(
                f"{i:04}.{name}",
                group_of(encoded, read_header(encoded)),
                image.shape[0] * image.shape[1],
                paths,
                {key: len(file) for key, file in files.items()},
            )
        )
    os.sync()  # so that they can be dropped from the page cache
    # Kinds must not follow each other in step with batches.
    return [made[i] for i in np.random.default_rng(0).permutation(len(made))]


# The disk.


class Blkio:
    """A control group of version 1 that holds what this process reads from a disk.

    Raises:
        OSError: there is none to be had.
    """

    name = "control group blkio, page cache dropped"
    cold = True
    root = Path("/sys/fs/cgroup/blkio")

    def __init__(self, folder: Path) -> None:
        number = folder.stat().st_dev
        disk = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
        if (disk / "partition").exists():
            disk = disk.parent
        self._device = (disk / "dev").read_text().strip()
        self._group = self.root / f"l3-liquid-{os.getpid()}"
        self._before = self._own_group()
        self._group.mkdir()
        (self._group / "cgroup.procs").write_text(str(os.getpid()))

    def hold(self, rate: float) -> None:
        """Sets the rate in bytes a second; 0: no limit."""
        limit = self._group / "blkio.throttle.read_bps_device"
        limit.write_text(f"{self._device} {rate:.0f}")

    def wait(self, size: int) -> None:
        """The kernel waits."""

    def close(self) -> None:
        """Goes back to where the process was."""
        (self._before / "cgroup.procs").write_text(str(os.getpid()))
        self._group.rmdir()

    def _own_group(self) -> Path:
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "blkio" in controllers.split(","):
                return self.root / path.lstrip("/")
        raise OSError("no control group blkio")


class TokenBucket:
    """Readers wait until what they have read may have come from a disk of some rate."""

    name = "token bucket in the readers, files in the page cache"
    cold = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rate = math.inf
        self._free = 0.0

    def hold(self, rate: float) -> None:
        """Sets the rate in bytes a second; 0: no limit."""
        self._rate, self._free = rate or math.inf, time.monotonic()

    def wait(self, size: int) -> None:
        """Waits for `size` bytes."""
        with self._lock:
            self._free = max(self._free, time.monotonic()) + size / self._rate
            rest = self._free - time.monotonic()
        if rest > 0:
            time.sleep(rest)

    def close(self) -> None:
        """Nothing is to be undone."""


Disk = Blkio | TokenBucket


class Reader:
    """Gives DALI batches of files, in a fixed order without end.

    Buffers are used again, as readers of DALI do.
    """

    def __init__(self, files: Sequence[tuple[Path, int]], disk: Disk) -> None:
        self._disk = disk
        self._files = itertools.cycle([(os.fspath(path), size) for path, size in files])
        self._batch = min(BATCH, len(files))
        largest = max(size for _, size in files)
        buffers = [[np.empty(largest, np.uint8) for _ in range(self._batch)] for _ in range(RING)]
        self._ring = itertools.cycle(buffers)
        self._pool = ThreadPoolExecutor(READERS)
        self._waiting: list[list[Future[list[Image]]]] = []

    def __call__(self) -> list[Image]:
        """The next batch."""
        while len(self._waiting) <= AHEAD:
            part = list(zip(next(self._ring), self._files, strict=False))
            self._waiting.append(
                [self._pool.submit(self._read, part[i::READERS]) for i in range(READERS)]
            )
        parts = [future.result() for future in self._waiting.pop(0)]
        return [parts[i % READERS][i // READERS] for i in range(self._batch)]

    def _read(self, files: list[tuple[Image, tuple[str, int]]]) -> list[Image]:
        done = []
        for buffer, (path, size) in files:
            number = os.open(path, os.O_RDONLY)
            try:
                count = os.readv(number, [buffer[:size].data])
                if self._disk.cold:
                    os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(number)
            if count != size:
                raise OSError(f"{path} has changed")
            self._disk.wait(size)
            done.append(buffer[:size])
        return done

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown(cancel_futures=True)


def take_turn(files: Sequence[tuple[Path, int]], disk: Disk, cores: int, seconds: float) -> float:
    """Images a second over whole passes, at least one, in a pipeline of its own."""
    if disk.cold:
        for path, _ in files:
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    batch = min(BATCH, len(files))
    batches = len(files) // batch
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(before)[:cores]))
    reader = Reader(files, disk)
    pipe = dali.Pipeline(batch, cores, None, prefetch_queue_depth=2)
    try:
        with pipe:
            encoded = fn.external_source(reader, no_copy=True, dtype=types.UINT8, ndim=1)
            decoded = l3dali.pipeline.decode(encoded, output_type=types.ANY_DATA)
            # As in training, an operator follows: DALI would copy a mixed batch that is an output.
            pipe.set_outputs(fn.crop(decoded, crop=CROP))
        for _ in range(max(batches, 2 * AHEAD)):
            pipe.run()
        count = 0
        begin = time.perf_counter()
        while (took := time.perf_counter() - begin) < seconds or not count:
            for _ in range(batches):
                pipe.run()
            count += batches * batch
        return count / took
    finally:
        del pipe  # ends its threads
        gc.collect()
        reader.close()
        os.sched_setaffinity(0, before)


# What the model says.


@dataclass(frozen=True)
class Model:
    """A profile of a data set, and what it says of its images.

    Attributes:
        profile: with the host's cores and disk as those of a regime.
        pictures: of the set.
    """

    profile: Profile
    pictures: list[Picture]

    def predict(self, assignment: Assignment) -> float:
        """Images a second: the disk or the cores bind."""
        host = self.profile.host
        size, seconds = self.cost(assignment)
        seconds += len(assignment) * self._turns(assignment)
        bound = seconds / (host.cores * host.efficiency)
        if host.disk is not None:
            bound = max(bound, size / host.disk)
        return len(assignment) / bound

    def cost(self, assignment: Assignment) -> tuple[float, float]:
        """Bytes and CPU seconds of a pass over the set."""
        size = sum(
            picture.sizes[stored_as]
            for picture, stored_as in zip(self.pictures, assignment, strict=True)
        )
        return size, sum(self._seconds(assignment))

    def _seconds(self, assignment: Assignment) -> list[float]:
        """CPU seconds of each image."""
        seconds = []
        for picture, stored_as in zip(self.pictures, assignment, strict=True):
            cost = self.profile.groups[picture.group].cpu_seconds[cost_key(stored_as, CPU)]
            seconds.append(cost(picture.sizes[stored_as], picture.pixels))
        return seconds

    def _turns(self, assignment: Assignment) -> float:
        """CPU seconds an image for which cores wait while two decoders take turns."""
        seconds = self._seconds(assignment)
        parts = []
        for is_source in (True, False):
            mine = [
                taken
                for taken, stored_as in zip(seconds, assignment, strict=True)
                if (stored_as == SOURCE) == is_source
            ]
            if mine:
                parts.append((len(mine) / len(assignment), sum(mine) / len(mine)))
        return turn_seconds(parts, BATCH, self.profile.host.cores)

    def files(self, assignment: Assignment) -> list[tuple[Path, int]]:
        """Paths and sizes."""
        return [
            (picture.paths[stored_as], picture.sizes[stored_as])
            for picture, stored_as in zip(self.pictures, assignment, strict=True)
        ]


def plan_for(profile: Profile, pictures: list[Picture]) -> Assignment:
    """What `l3 plan` chooses for the images of a set."""
    plan = find_plan(profile, Limits(profile.host), FORMATS)
    seen = [Seen(each.name, each.group, each.sizes[SOURCE], each.pixels) for each in pictures]
    return tuple(plan.choose(seen))


def with_reading(profile: Profile, old: Reading, new: Reading) -> Profile:
    """The profile, had reading cost `new`."""

    def changed(name: str, size: int, seconds: float) -> float:
        return max(0.0, seconds - old.cpu_seconds(size, 0)) + new.cpu_seconds(size, 0)

    samples = [
        replace(
            sample,
            cpu_seconds={
                key: changed(key, sample.sizes[key.partition("@")[0]], seconds)
                for key, seconds in sample.cpu_seconds.items()
            },
        )
        for sample in profile.samples
    ]
    return replace(profile, samples=samples, groups=fit_groups(samples))


def moved(assignment: Assignment, pictures: list[Picture], step: int, seed: int = 0) -> Assignment:
    """The assignment with a share of the images, by lot, in the next larger or smaller format."""
    order = sorted(FORMATS, key=lambda name: sum(picture.sizes[name] for picture in pictures))
    chosen = np.random.default_rng(seed).permutation(len(assignment))
    new = list(assignment)
    left = round(MOVED * len(assignment))
    for i in chosen:
        place = order.index(assignment[i]) + step
        if left and 0 <= place < len(order):
            new[i] = order[place]
            left -= 1
    return tuple(new)


def by_lot(assignment: Assignment, seed: int = 0) -> Assignment:
    """The same shares, given to images by lot."""
    return tuple(assignment[i] for i in np.random.default_rng(seed).permutation(len(assignment)))


def assignments(
    set_name: str, plan: Assignment, pictures: list[Picture]
) -> tuple[dict[str, Assignment], dict[str, Assignment]]:
    """What a regime measures: single formats and the plan with its kin; the grid."""
    count = len(pictures)
    chosen = {name: (name,) * count for name in FORMATS}
    chosen |= {
        "plan": plan,
        "plan, 20 % smaller files": moved(plan, pictures, -1),
        "plan, 20 % larger files": moved(plan, pictures, 1),
        "plan by lot": by_lot(plan),
    }
    grid = {}
    for (one, other), share in itertools.product(GRID_PAIRS[set_name], GRID):
        first = round(share * count)
        mix = by_lot((one,) * first + (other,) * (count - first), seed=1)
        grid[f"{share:.0%} {one}, {other}"] = mix
    return chosen, grid


def calibrated(model: Model, disk: Disk, free_rate: float, seconds: float) -> Model:
    """The model with the efficiency that single formats reach while the disk is not held.

    Args:
        model: of the regime.
        disk: how it reads.
        free_rate: bytes a second of that without a limit; formats that it slows down do not count.
        seconds: of a turn.
    """
    host = model.profile.host
    disk.hold(0)
    reached: list[float] = []
    for name in FORMATS:
        assignment = (name,) * len(model.pictures)
        size, cpu_seconds = model.cost(assignment)
        cpu_seconds /= host.cores
        if size / free_rate < CPU_BOUND * cpu_seconds:
            rates = [
                take_turn(model.files(assignment), disk, round(host.cores), seconds)
                for _ in range(CALIBRATING_TURNS)
            ]
            reached.append(float(np.median(rates)) * cpu_seconds / len(assignment))
    if not reached:
        return model
    host = replace(host, efficiency=float(np.median(reached)))
    return replace(model, profile=replace(model.profile, host=host))


# Regimes.


@dataclass(frozen=True)
class Row:
    """An assignment in a regime.

    Attributes:
        name: of the assignment.
        predicted: images a second.
        measured: likewise, of each round.
        is_grid: it is one of the grid of mixes.
    """

    name: str
    predicted: float
    measured: list[float]
    is_grid: bool = False

    @property
    def rate(self) -> float:
        """The median."""
        return float(np.median(self.measured))

    @property
    def error(self) -> float:
        """Of the prediction, relative to what was measured."""
        return abs(self.predicted - self.rate) / self.rate


def interval(values: Sequence[float], others: Sequence[float] | None = None) -> tuple[float, float]:
    """Of the median, or of the median ratio of two rows round by round: 95 %, by bootstrap."""
    rng = np.random.default_rng(0)
    ratios = np.asarray(values) / (1.0 if others is None else np.asarray(others))
    drawn = rng.choice(ratios, (RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return float(low), float(high)


def measure_regime(
    regime: Regime,
    model: Model,
    plan: Assignment,
    disk: Disk,
    arguments: argparse.Namespace,
) -> list[Row]:
    """Lets assignments take turns; those that are the same are measured once a round."""
    chosen, grid = assignments(regime.set, plan, model.pictures)
    disk.hold(regime.disk * 1e6)
    measured: dict[Assignment, list[float]] = {}
    turns = [
        (number, assignment)
        for number in range(arguments.rounds)
        for assignment in dict.fromkeys(
            [*chosen.values(), *(grid.values() if number < arguments.grid_rounds else ())]
        )
    ]
    rng = np.random.default_rng(0)
    order = [turns[i] for i in sorted(range(len(turns)), key=lambda i: (turns[i][0], rng.random()))]
    for _, assignment in track(order, description=f"{regime.name:14}"):
        rate = take_turn(model.files(assignment), disk, regime.cores, arguments.seconds)
        measured.setdefault(assignment, []).append(rate)
    return [
        Row(name, model.predict(assignment), measured[assignment], is_grid)
        for group, is_grid in ((chosen, False), (grid, True))
        for name, assignment in group.items()
        if assignment in measured
    ]


def summarize(
    regime: Regime, rows: list[Row], held: str, plan: Assignment, profile: Profile
) -> dict[str, Any]:
    """What a regime says."""
    by_name = {row.name: row for row in rows}
    source, planned = by_name[SOURCE], by_name["plan"]
    best = max((by_name[name] for name in FORMATS), key=lambda row: row.rate)
    says = max((by_name[name] for name in FORMATS), key=lambda row: row.predicted)
    grid = [row for row in rows if row.is_grid]
    top = max([*grid, *(by_name[name] for name in FORMATS)], key=lambda row: row.rate)
    return {
        **asdict(regime),
        "held_by": held,
        "efficiency": profile.host.efficiency,
        "shares": {name: plan.count(name) / len(plan) for name in FORMATS if name in plan},
        "best_single": best.name,
        "switch": best.rate / source.rate,
        "switch_interval": interval(best.measured, source.measured),
        "switch_predicted": says.predicted / source.predicted,
        "mix": planned.rate / best.rate,
        "mix_interval": interval(planned.measured, best.measured),
        "mix_predicted": planned.predicted / says.predicted,
        "total": planned.rate / source.rate,
        "best_of_grid": top.name,
        "plan_of_best": planned.rate / top.rate,
        "error": float(np.median([row.error for row in rows])),
        "rows": [{**asdict(row), "interval": interval(row.measured)} for row in rows],
    }


# Results.


def page(results: dict[str, Any]) -> str:
    """The results for people."""
    regimes = list(results["regimes"].values())
    rows = [
        [
            f"{r['set']}, {r['disk']} MB/s, {r['cores']} core{'s' if r['cores'] > 1 else ''}",
            f"{rate_of(r, SOURCE):.0f}",
            f"{r['best_single']} {rate_of(r, r['best_single']):.0f}",
            f"{rate_of(r, 'plan'):.0f}",
            ", ".join(f"{share:.0%} {name}" for name, share in r["shares"].items()),
            f"{r['switch']:.2f} ({r['switch_predicted']:.2f})",
            f"{r['mix']:.2f} [{r['mix_interval'][0]:.2f}, {r['mix_interval'][1]:.2f}]"
            f" ({r['mix_predicted']:.2f})",
            f"{r['total']:.2f}",
            f"{r['plan_of_best']:.2f} of {r['best_of_grid']}",
            f"{r['error']:.1%}",
        ]
        for r in regimes
    ]
    head = ["regime", "source", "best single", "plan", "shares", "switch", "mix", "total"]
    text = "\nImages a second, medians over the rounds. `switch`: the best single format over the "
    text += (
        "source; `mix`: the plan over the best single format, with a bootstrap interval of 95 %; "
    )
    text += "in brackets what is predicted. `error`: median of the predictions of all mixes. "
    text += "Regimes name the commit and the machine that they were measured with.\n\n"
    text += markdown_table([*head, "plan / best of grid", "error"], rows)
    errors = [
        abs(row["predicted"] - np.median(row["measured"])) / np.median(row["measured"])
        for r in regimes
        for row in r["rows"]
    ]
    text += f"\nMedian error of all {len(errors)} predictions: {np.median(errors):.1%}.\n"
    for r in regimes:
        name = f"{r['set']}, {r['disk']} MB/s, {r['cores']} cores"
        text += f"\n## {name}\n\nThe disk is held by: {r['held_by']}. "
        text += f"Pipelines reach {r['efficiency']:.0%} of the cores. "
        text += f"Load of the machine at the end: {r['load']:.1f} processes. "
        text += f"Priority: {r['priority']}. {r['machine']}. "
        text += f"Code of commit {r['commit']}, {r['date']}.\n\n"
        text += markdown_table(
            ["stored as", "images/s", "95 %", "predicted", "rounds"],
            [
                [
                    row["name"],
                    f"{np.median(row['measured']):.0f}",
                    f"{row['interval'][0]:.0f} to {row['interval'][1]:.0f}",
                    f"{row['predicted']:.0f}",
                    str(len(row["measured"])),
                ]
                for row in r["rows"]
            ],
        )
    return text


def rate_of(regime: dict[str, Any], name: str) -> float:
    """Images a second of an assignment."""
    return float(np.median(next(r["measured"] for r in regime["rows"] if r["name"] == name)))


def draw(results: dict[str, Any], out: Path) -> None:
    """Rates over the disk's, and predictions beside what was measured."""
    regimes = list(results["regimes"].values())
    kinds = sorted({(r["set"], r["cores"]) for r in regimes})
    figure, axes = plt.subplots(
        1, len(kinds) + 1, figsize=(4.5 * (len(kinds) + 1), 4.2), squeeze=False
    )
    for axis, (set_name, cores) in zip(axes[0], kinds, strict=False):
        mine = sorted(
            (r for r in regimes if (r["set"], r["cores"]) == (set_name, cores)),
            key=lambda r: int(r["disk"]),
        )
        disks = [r["disk"] for r in mine]
        for name in (*FORMATS, "plan"):
            rates = [rate_of(r, name) for r in mine]
            spans = [next(x["interval"] for x in r["rows"] if x["name"] == name) for r in mine]
            bars = [
                [max(0.0, rate - span[0]) for rate, span in zip(rates, spans, strict=True)],
                [max(0.0, span[1] - rate) for rate, span in zip(rates, spans, strict=True)],
            ]
            style = "k-o" if name == "plan" else "--."
            axis.errorbar(disks, rates, bars, fmt=style, label=name, capsize=2)
        axis.set(
            title=f"{set_name.upper()}, {cores} core{'s' if cores > 1 else ''}",
            xlabel="disk, MB/s",
            ylabel="images/s",
            xscale="log",
            yscale="log",
        )
        axis.set_xticks(disks, [str(disk) for disk in disks])
        axis.legend(fontsize=7)
    axis = axes[0][-1]
    for set_name, cores in kinds:
        rows = [
            row for r in regimes if (r["set"], r["cores"]) == (set_name, cores) for row in r["rows"]
        ]
        axis.plot(
            [row["predicted"] for row in rows],
            [np.median(row["measured"]) for row in rows],
            ".",
            label=f"{set_name}, {cores} core{'s' if cores > 1 else ''}",
        )
    limits = [*axis.get_xlim(), *axis.get_ylim()]
    axis.axline((1, 1), slope=1, color="gray", linewidth=0.8)
    axis.set(
        title="predictions",
        xlabel="predicted images/s",
        ylabel="measured images/s",
        xscale="log",
        yscale="log",
        xlim=(max(1, min(limits)), max(limits)),
        ylim=(max(1, min(limits)), max(limits)),
    )
    axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(out / "liquid.png", dpi=110)
    plt.close(figure)


def save(results: dict[str, Any], out: Path) -> None:
    """Writes everything that is known so far."""
    save_results("liquid", "Mixed data sets", page(results), results, out)
    draw(results, out)


# The program.


def priority() -> str:
    """How this process is scheduled beside others."""
    if os.sched_getscheduler(0) in (os.SCHED_RR, os.SCHED_FIFO):
        return "real time"
    return f"nice {os.nice(0)}"


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, help="images; without it those of scikit-image")
    parser.add_argument("--folder", type=Path, help="where data sets are written; the disk held")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--images", type=int, default=128, help="of a set, a multiple of 32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--grid-rounds", type=int, default=2, help="of them with the grid")
    parser.add_argument("--seconds", type=float, default=0.8, help="of a turn, at the least")
    parser.add_argument("--profile-seconds", type=float, default=30.0)
    parser.add_argument(
        "--regimes", nargs="+", metavar="SET/MB/CORES", help="as png/400/2; default: all"
    )
    parser.add_argument("--add", action="store_true", help="keep regimes of an earlier run")
    options = parser.parse_args(arguments)
    every = [Regime(*parts) for parts in itertools.product(SETS, DISKS, CORES)]
    if options.regimes is None:
        options.regimes = [regime.name for regime in every]
    unknown = set(options.regimes) - {regime.name for regime in every}
    if unknown:
        parser.error(f"no such regime: {', '.join(sorted(unknown))}")
    options.regimes = [regime for regime in every if regime.name in options.regimes]
    if options.images < BATCH or options.images % BATCH:
        parser.error(f"--images is a multiple of {BATCH}")
    if options.data is not None and not options.data.is_dir():
        parser.error(f"{options.data}: no such folder")
    return options


def measure_set(
    name: str,
    pictures: list[Picture],
    blkio: Blkio | None,
    arguments: argparse.Namespace,
    record: Callable[[Regime, dict[str, Any]], None],
) -> None:
    """Profiles a set for each number of cores, and measures its regimes."""
    folder = open_folder(str(pictures[0].paths["stored"].parent))
    files = [(folder, file) for file in folder.list_files().files.values()]
    rng = np.random.default_rng(0)
    measure_reading(files, 5, rng)  # the first use of a disk differs
    if blkio is not None:
        blkio.hold(0)
    readings = {cold: measure_reading(files, 5, rng, cold=cold) for cold in (True, False)}
    everywhere = os.sched_getaffinity(0)
    for cores in CORES:
        regimes = [r for r in arguments.regimes if (r.set, r.cores) == (name, cores)]
        if not regimes or len(everywhere) < cores:
            continue
        os.sched_setaffinity(0, set(sorted(everywhere)[:cores]))
        try:
            profile = measure_profile(
                [str(pictures[0].paths[SOURCE].parent)],
                samples=len(pictures),
                seconds=arguments.profile_seconds,
                reading=readings[True],
                quiet=True,
            )
        finally:
            os.sched_setaffinity(0, everywhere)
        for regime in regimes:
            rate = regime.disk * 1e6
            disk: Disk = TokenBucket()
            mine = with_reading(profile, readings[True], readings[False])
            if blkio is not None and readings[True].rate > FREE * rate:
                disk, mine = blkio, profile
            mine = replace(mine, host=replace(mine.host, disk=rate, cores=float(cores)))
            if blkio is not None:
                blkio.hold(0)
            free_rate = readings[disk.cold].rate
            model = calibrated(Model(mine, pictures), disk, free_rate, arguments.seconds)
            plan = plan_for(model.profile, pictures)
            rows = measure_regime(regime, model, plan, disk, arguments)
            record(regime, summarize(regime, rows, disk.name, plan, model.profile))


def main() -> None:
    """Runs the benchmark."""
    arguments = parse_arguments()
    path = arguments.out / "liquid.json"
    results: dict[str, Any] = {"regimes": {}}
    if arguments.add and path.exists():
        results["regimes"] = json.loads(path.read_text())["regimes"]
    origin = {**made(), "commit": code_commit(CODE), "priority": priority()}

    def record(regime: Regime, summary: dict[str, Any]) -> None:
        results["regimes"][regime.name] = {**summary, **origin, "load": os.getloadavg()[0]}
        save(results, arguments.out)
        print(
            f"{regime.name}: {summary['best_single']}, plan {summary['shares']}, switch "
            f"{summary['switch']:.2f}, mix {summary['mix']:.2f}, error {summary['error']:.1%}"
        )

    with contextlib.ExitStack() as stack:
        folder = arguments.folder or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="l3-liquid-"))
        )
        blkio: Blkio | None = None
        try:
            blkio = Blkio(folder)
            stack.callback(blkio.close)
        except OSError as error:
            print(f"no control group for the disk ({error}): a token bucket holds it")
        for name in dict.fromkeys(regime.set for regime in arguments.regimes):
            pictures = make_set(name, arguments.data, arguments.images, folder)
            measure_set(name, pictures, blkio, arguments, record)
    print(f"results: {arguments.out}")


if __name__ == "__main__":
    main()
