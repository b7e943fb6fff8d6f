"""Mixed data sets beside single formats, with the disk and the cores held to what a regime says."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import json
import math
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import nvidia.dali as dali
import skimage.data
from benchmarks.cpu.case import Result, interval
from benchmarks.peers import PNG as PNG_6
from benchmarks.peers import Image, images, l3_encoder
from benchmarks.report import RESULTS, made, table
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

PNG, JPEG = SETS = ("png", "jpeg")
DISKS = (100, 200, 400, 1000)  # MB/s
CORES = (1, 2)
FORMATS = (SOURCE, *L3_FORMATS)
SIZE = "768x512"
SOURCES = ("photo/large", "photo/kodak", "photo/gb82")
BATCH = 32
READERS = 4
SAVED = 0.02  # seconds of an unused disk, in the token bucket
AHEAD = 3  # batches that are read before DALI asks for them
RING = 2 * AHEAD + 4  # batches in memory, those in DALI's queues too
CROP = (16, 16)  # of what is decoded, small so that it costs next to nothing
MOVED = 0.2
GRID = (0.25, 0.5, 0.75)
GRID_PAIRS = {
    PNG: (("rans", "packed"), ("packed", "stored")),
    JPEG: ((SOURCE, "packed"), (SOURCE, "stored")),
}
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

    @property
    def title(self) -> str:
        """Names it on the page."""
        return f"{self.set}, {self.disk} MB/s, {self.cores} core{'s' * (self.cores > 1)}"


REGIMES = {
    regime.name: regime
    for regime in itertools.starmap(Regime, itertools.product(SETS, DISKS, CORES))
}
EVERY = tuple(REGIMES)


def liquid(
    data: Path | None = None,
    folder: Path | None = None,
    images: int = 128,
    rounds: int = 5,
    grid_rounds: int = 2,
    seconds: float = 0.8,
    profile_seconds: float = 30.0,
    regimes: Sequence[str] = EVERY,
    add: bool = False,
    out: Path = RESULTS,
) -> Iterator[Result]:
    """Mixed data sets beside single formats, with disk and cores held to what a regime says.

    A regime is a data set (PNG: photographs, screenshots and masks; JPEG: photographs), a disk rate
    and a number of cores. In each, every single format, the plan, the plan with 20 % of the images
    moved to smaller or to larger files, the plan's shares given to images by lot, and a grid of
    mixes by lot take turns, round after round. A turn is a DALI pipeline of its own on the CPU that
    decodes whole passes over the set and crops, after one that warms it up; the order of images is
    the same for all.

    The disk is held by the control group blkio, with files dropped from the page cache as soon as
    they are read. That needs root, control groups of version 1, and a disk that is faster than the
    regime. Where it cannot be had, files stay in the page cache and readers wait for a token
    bucket. Files are read 4 at a time either way, by threads of the same process: what reading
    costs the cores counts.

    A profile of the set, made before, predicts each. What pipelines reach of the cores
    (`efficiency`) is taken anew for each regime, from turns of each single format with the disk not
    held: the machine may be shared. Nothing is fitted to the turns that are predicted. Results are
    written after each regime.

    On a machine that others use, threads that wake up find the cores taken, and pipelines do not
    run as they would alone. As root, `chrt --rr 1` or `nice -n -20` in front of it helps; the
    results say so.

    Images a second, medians over the rounds. `switch`: the best single format over the source;
    `mix`: the plan over the best single format, with a bootstrap interval of 95 %; in brackets what
    is predicted. `error`: median of the predictions of all mixes. Regimes name the commit and the
    machine that they were measured with.

    --folder is where data sets are written: on the disk that is held. --images are those of a set,
    a multiple of 32. --grid-rounds of the --rounds have the grid. --seconds are those of a turn, at
    the least. --regimes are SET/MB/CORES, as png/400/2; --add keeps those of an earlier run.
    """
    if unknown := set(regimes) - REGIMES.keys():
        raise SystemExit(f"no such regime: {', '.join(sorted(unknown))}")
    if images < BATCH or images % BATCH:
        raise SystemExit(f"--images is a multiple of {BATCH}")
    chosen = [REGIMES[name] for name in regimes]
    path = out / "liquid.json"
    known = json.loads(path.read_text())["regimes"] if add and path.exists() else {}
    origin = {**made(CODE), "priority": priority()}
    with contextlib.ExitStack() as stack:
        folder = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="l3-")))
        blkio: Blkio | None = None
        try:
            blkio = Blkio(folder)
            stack.callback(blkio.close)
        except OSError as error:
            print(f"no control group for the disk ({error}): a token bucket holds it")
        for name in dict.fromkeys(regime.set for regime in chosen):
            mine = [regime for regime in chosen if regime.set == name]
            pictures = make_set(name, data, images, folder)
            profiles = measure_set(mine, pictures, blkio, profile_seconds)
            for regime, model, disk in profiles:
                model = calibrated(model, disk, seconds)
                plan = plan_for(model.profile, pictures)
                rows = measure_regime(regime, model, plan, disk, (rounds, grid_rounds), seconds)
                known[regime.name] = {
                    **summarize(regime, rows, disk.name, plan, model.profile),
                    **origin,
                    "load": os.getloadavg()[0],
                }
                plot = functools.partial(draw, known)
                yield Result(page(known), {"regimes": known}, plot, CODE)


# Data sets.


def source_images(name: str, data: Path | None, count: int) -> Iterator[Image]:
    """Of PNG two photographs, a screenshot and a mask of four; of JPEG photographs."""
    if data is not None:
        photos = [piece for folder in SOURCES for _, piece in images(data, f"{folder}@{SIZE}")]
        screens = [image for _, image in images(data, f"screen@{SIZE}")]
        masks = [image for _, image in images(data, "mask")]
    else:
        photos = [skimage.data.astronaut(), skimage.data.coffee(), skimage.data.chelsea()]
        screens = [skimage.data.page(), skimage.data.text()]
        masks = [np.asarray(skimage.data.horse()).astype(np.uint8)]
    kinds = (photos, screens, photos, masks) if name == PNG else (photos,)
    cycles = [itertools.cycle(kind) for kind in kinds]
    for i in range(count):
        yield next(cycles[i % len(cycles)])


def make_set(name: str, data: Path | None, count: int, folder: Path) -> list[Picture]:
    """Writes a data set in every format."""
    made: list[Picture] = []
    sources = source_images(name, data, count)
    for i, image in enumerate(track(sources, f"encode {name}", total=count)):
        if name == PNG:
            encoded = PNG_6.encode(image)
        else:
            encoded = bytes(imagecodecs.jpeg8_encode(image, level=90))
            image = imagecodecs.jpeg8_decode(encoded)
        files = {SOURCE: encoded}
        files.update({mode: l3_encoder(mode, 0)(image) for mode in l3dali.CODINGS})
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
    """Readers wait until what they have read may have come from a disk of some rate.

    What they leave unused is kept for SAVED seconds, as the kernel's throttle keeps it for a slice.
    Without that, a reader that wakes up late on a busy machine loses the disk's time for good.
    """

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
            self._free = max(self._free, time.monotonic() - SAVED) + size / self._rate
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
        free_rate: bytes a second of the disk that is not held.
    """

    profile: Profile
    pictures: list[Picture]
    free_rate: float

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
        return sum(size for _, size in self.files(assignment)), sum(self._seconds(assignment))

    def _seconds(self, assignment: Assignment) -> Any:
        """CPU seconds of each image."""
        return np.array(
            [
                self.profile.groups[picture.group].cpu_seconds[cost_key(stored_as, CPU)](
                    picture.sizes[stored_as], picture.pixels
                )
                for picture, stored_as in zip(self.pictures, assignment, strict=True)
            ]
        )

    def _turns(self, assignment: Assignment) -> float:
        """CPU seconds an image for which cores wait while two decoders take turns."""
        seconds, is_source = self._seconds(assignment), np.array(assignment) == SOURCE
        of_decoders = [chosen for chosen in (is_source, ~is_source) if chosen.any()]
        parts = [(float(c.mean()), float(seconds[c].mean())) for c in of_decoders]
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


def calibrated(model: Model, disk: Disk, seconds: float) -> Model:
    """The model with the efficiency that single formats reach in turns while the disk is not held.

    Formats that the disk slows down even so do not count.
    """
    host = model.profile.host
    disk.hold(0)
    reached: list[float] = []
    for name in FORMATS:
        assignment = (name,) * len(model.pictures)
        size, cpu_seconds = model.cost(assignment)
        cpu_seconds /= host.cores
        if size / model.free_rate < CPU_BOUND * cpu_seconds:
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


def measure_regime(
    regime: Regime,
    model: Model,
    plan: Assignment,
    disk: Disk,
    rounds: tuple[int, int],
    seconds: float,
) -> list[Row]:
    """Lets assignments take turns; those that are the same are measured once a round.

    Of the rounds the second number has the grid too.
    """
    chosen, grid = assignments(regime.set, plan, model.pictures)
    disk.hold(regime.disk * 1e6)
    measured: dict[Assignment, list[float]] = {}
    turns = [
        (number, assignment)
        for number in range(rounds[0])
        for assignment in dict.fromkeys(
            [*chosen.values(), *(grid.values() if number < rounds[1] else ())]
        )
    ]
    rng = np.random.default_rng(0)
    order = [turns[i] for i in sorted(range(len(turns)), key=lambda i: (turns[i][0], rng.random()))]
    for _, assignment in track(order, description=f"{regime.name:14}"):
        rate = take_turn(model.files(assignment), disk, regime.cores, seconds)
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


COLUMNS = {
    "source": "{source:.0f}",
    "best single": "{best_single} {best:.0f}",
    "plan": "{plan:.0f}",
    "shares": "{shown_shares}",
    "switch": "{switch:.2f} ({switch_predicted:.2f})",
    "mix": "{mix:.2f} [{mix_interval[0]:.2f}, {mix_interval[1]:.2f}] ({mix_predicted:.2f})",
    "total": "{total:.2f}",
    "plan / best of grid": "{plan_of_best:.2f} of {best_of_grid}",
    "error": "{error:.1%}",
}
ROW_COLUMNS = {
    "images/s": "{rate:.0f}",
    "95 %": "{interval[0]:.0f} to {interval[1]:.0f}",
    "predicted": "{predicted:.0f}",
    "rounds": "{rounds}",
}


def page(regimes: dict[str, Any]) -> str:
    """The results for people."""
    shown = {}
    errors = []
    text = ""
    for r in regimes.values():
        title = Regime(r["set"], r["disk"], r["cores"]).title
        rates = {row["name"]: float(np.median(row["measured"])) for row in r["rows"]}
        shares = ", ".join(f"{share:.0%} {name}" for name, share in r["shares"].items())
        best = {"best": rates[r["best_single"]], "shown_shares": shares}
        shown[title] = {**r, **best, "source": rates[SOURCE], "plan": rates["plan"]}
        errors += [abs(w["predicted"] - rates[w["name"]]) / rates[w["name"]] for w in r["rows"]]
        rows = {
            w["name"]: {**w, "rate": rates[w["name"]], "rounds": len(w["measured"])}
            for w in r["rows"]
        }
        text += (
            f"\n## {title}\n\nThe disk is held by: {r['held_by']}. Pipelines reach "
            f"{r['efficiency']:.0%} of the cores. Load of the machine at the end: {r['load']:.1f} "
            f"processes. Priority: {r['priority']}. {r['machine']}. Code of commit {r['commit']}, "
            f"{r['date']}.\n\n{table('stored as', rows, ROW_COLUMNS)}"
        )
    return (
        f"{table('regime', shown, COLUMNS)}\nMedian error of all {len(errors)} predictions: "
        f"{np.median(errors):.1%}.\n{text}"
    )


def draw(known: dict[str, Any], path: Path) -> None:
    """Rates over the disk's, and predictions beside what was measured."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    kinds: dict[str, list[dict[str, Any]]] = {}
    for regime in sorted(known.values(), key=lambda r: int(r["disk"])):
        kinds.setdefault(f"{regime['set']}, {regime['cores']} cores", []).append(regime)
    size = (4.5 * (len(kinds) + 1), 4.2)
    figure, axes = plt.subplots(1, len(kinds) + 1, figsize=size, layout="tight")
    errors = axes[-1]
    for axis, (title, regimes) in zip(axes, kinds.items(), strict=False):
        disks = [r["disk"] for r in regimes]
        for name in (*FORMATS, "plan"):
            rows = [row for r in regimes for row in r["rows"] if row["name"] == name]
            rates = np.array([np.median(row["measured"]) for row in rows])
            spans = np.array([row["interval"] for row in rows]).T
            bars = np.maximum(0, [rates - spans[0], spans[1] - rates])
            style = "k-o" if name == "plan" else "--."
            axis.errorbar(disks, rates, bars, fmt=style, label=name, capsize=2)
        axis.set(title=title, xlabel="disk, MB/s", ylabel="images/s", xscale="log", yscale="log")
        axis.set_xticks(disks, [str(disk) for disk in disks])
        points = [(w["predicted"], np.median(w["measured"])) for r in regimes for w in r["rows"]]
        errors.plot(*zip(*points, strict=True), ".", label=title)
    errors.set(title="predictions", xlabel="predicted images/s", ylabel="measured images/s")
    errors.set(xscale="log", yscale="log")
    errors.axline((1, 1), (2, 2), color="gray", linewidth=0.8)
    for axis in axes:
        axis.legend(fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def priority() -> str:
    """How this process is scheduled beside others."""
    if os.sched_getscheduler(0) in (os.SCHED_RR, os.SCHED_FIFO):
        return "real time"
    return f"nice {os.nice(0)}"


def measure_set(
    regimes: Sequence[Regime], pictures: list[Picture], blkio: Blkio | None, seconds: float
) -> Iterator[tuple[Regime, Model, Disk]]:
    """Profiles a set for each number of cores; its regimes, what says what they reach, the disk."""
    folder = open_folder(str(pictures[0].paths["stored"].parent))
    files = [(folder, file) for file in folder.list_files().files.values()]
    rng = np.random.default_rng(0)
    measure_reading(files, 5, rng)  # the first use of a disk differs
    if blkio is not None:
        blkio.hold(0)
    readings = {cold: measure_reading(files, 5, rng, cold=cold) for cold in (True, False)}
    everywhere = os.sched_getaffinity(0)
    for cores in CORES:
        chosen = [regime for regime in regimes if regime.cores == cores]
        if not chosen or len(everywhere) < cores:
            continue
        os.sched_setaffinity(0, set(sorted(everywhere)[:cores]))
        try:
            profile = measure_profile(
                [str(pictures[0].paths[SOURCE].parent)],
                samples=len(pictures),
                seconds=seconds,
                reading=readings[True],
                quiet=True,
            )
        finally:
            os.sched_setaffinity(0, everywhere)
        for regime in chosen:
            rate = regime.disk * 1e6
            disk: Disk = TokenBucket()
            mine = with_reading(profile, readings[True], readings[False])
            if blkio is not None and readings[True].rate > FREE * rate:
                disk, mine = blkio, profile
            mine = replace(mine, host=replace(mine.host, disk=rate, cores=float(cores)))
            if blkio is not None:
                blkio.hold(0)
            yield regime, Model(mine, pictures, readings[disk.cold].rate), disk
