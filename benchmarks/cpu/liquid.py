"""Mixed data sets beside single formats, at the disk rate and with the cores of a regime."""

from __future__ import annotations

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
from functools import partial
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import nvidia.dali as dali
import skimage.data
from benchmarks.cpu.case import Result, interval
from benchmarks.peers import PNG as PNG_6
from benchmarks.peers import Image, images, l3_encoder
from benchmarks.report import RESULTS, made, markdown_table, table
from nvidia.dali import fn, types
from rich.progress import track

import l3dali
import l3dali.pipeline
from l3dali import codec
from l3dali.datasets.convert.images import Seen, group_of
from l3dali.datasets.convert.storage import open_folder
from l3dali.datasets.liquid.host import measure_reading
from l3dali.datasets.liquid.measure import measure_profile
from l3dali.datasets.liquid.model import Limits, turn_seconds
from l3dali.datasets.liquid.plan import find_plan
from l3dali.datasets.liquid.profile import CPU, FORMATS, SOURCE, Profile, cost_key
from l3dali.images.formats import read_header
from l3dali.images.transcoding import encode_jpeg

PNG, JPEG, IMAGENET = SETS = ("png", "jpeg", "imagenet")
DISKS = (100, 200, 400, 1000)  # MB/s
CORES = (1, 2)
SIZE = "768x512"
SOURCES = ("photo/large", "photo/kodak", "photo/gb82")
BATCH = 32
READERS = 4
SAVED = 0.02  # seconds of an unused disk, in the token bucket
AHEAD = 3  # batches that are read before DALI asks for them
RING = 2 * AHEAD + 4  # batches in memory, those in DALI's queues too
CROP = (16, 16)  # of what is decoded, small so that it costs next to nothing
CPU_BOUND = 0.7  # of the time at the cores that reading may take, where cores bind
CALIBRATING_TURNS = 3  # of each single format

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
    images: int = 128,
    rounds: int = 5,
    seconds: float = 0.8,
    profile_seconds: float = 30.0,
    regimes: Sequence[str] = EVERY,
    add: bool = False,
    out: Path = RESULTS,
) -> Iterator[Result]:
    """Mixed data sets beside single formats, at the disk rate and with the cores of a regime.

    A regime is a data set (PNG: photographs, screenshots and masks; JPEG: photographs of quality
    90; ImageNet: files of DATA/jpeg that coding jpeg supports, if there are any), a disk rate and a
    number of cores. In each, every single format and the plan take turns, round after round.
    A turn is a DALI pipeline of its own on the CPU that decodes the whole set several times and
    crops, after one that warms it up; the order of images is the same for all. Files stay in the
    page cache and readers wait for a token bucket, which stands for the disk. They read 4 files at
    a time, by threads of the same process: what reading costs the cores counts.

    A profile of the set, made before, predicts each rate. What pipelines reach of the cores
    (`efficiency`) is taken anew for each regime, from turns of each single format without a limit
    of the disk. Nothing is fitted to the turns that are predicted. Results are written after each
    regime.

    Images a second, medians over the rounds. `switch`: the best single format over the source;
    `mix`: the plan over the best single format, with a bootstrap interval of 95 %; in brackets what
    is predicted. `error`: median of the predictions of a regime.

    --images are those of a set, a multiple of 32. --seconds are those of a turn, at the least.
    --regimes are SET/MB/CORES, as png/400/2; --add keeps those of an earlier run.
    """
    if unknown := set(regimes) - REGIMES.keys():
        raise SystemExit(f"no such regime: {', '.join(sorted(unknown))}")
    if images < BATCH or images % BATCH:
        raise SystemExit(f"--images is a multiple of {BATCH}")
    chosen = [REGIMES[name] for name in regimes]
    path = out / "liquid.json"
    known = json.loads(path.read_text())["regimes"] if add and path.exists() else {}
    with tempfile.TemporaryDirectory(prefix="l3-") as parent:
        for name in dict.fromkeys(regime.set for regime in chosen):
            mine = [regime for regime in chosen if regime.set == name]
            pictures = make_set(name, data, images, Path(parent))
            for regime, model in measure_set(mine, pictures, profile_seconds) if pictures else ():
                model = calibrated(model, seconds)
                plan = plan_for(model.profile, pictures)
                rows = measure_regime(regime, model, plan, rounds, seconds)
                known[regime.name] = {
                    **summarize(regime, rows, plan, model.profile),
                    **made(CODE),
                    "load": os.getloadavg()[0],
                }
                yield Result(page(known), {"regimes": known}, code=CODE)


# Data sets.


def source_images(name: str, data: Path | None, count: int) -> Iterator[Image]:
    """Of PNG two photographs, a screenshot and a mask of four; of others photographs."""
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


def source_files(name: str, data: Path | None, count: int) -> list[bytes]:
    """The files of a data set."""
    if name != IMAGENET:
        encode = PNG_6.encode if name == PNG else partial(imagecodecs.jpeg8_encode, level=90)
        return [bytes(encode(image)) for image in source_images(name, data, count)]
    found = [path.read_bytes() for path in sorted(data.glob("jpeg/*"))] if data is not None else []
    found = [file for file in found if codec.encode_jpeg(file)[0] is not None][:count]
    return found[: len(found) // BATCH * BATCH]


def make_set(name: str, data: Path | None, count: int, folder: Path) -> list[Picture]:
    """Writes a data set in every format."""
    made: list[Picture] = []
    for i, encoded in enumerate(track(source_files(name, data, count), f"encode {name}")):
        files = {SOURCE: encoded}
        if name == PNG:
            image = imagecodecs.png_decode(encoded)
        else:
            image = imagecodecs.jpeg8_decode(encoded)
            files["jpeg"] = encode_jpeg(encoded)[0]
        files.update({mode: l3_encoder(mode, 0)(image) for mode in l3dali.CODINGS})
        paths = {}
        for stored_as, content in files.items():
            suffix = ("png" if name == PNG else "jpeg") if stored_as == SOURCE else "l3"
            paths[stored_as] = folder / name / stored_as / f"{i:04}.{suffix}"
            paths[stored_as].parent.mkdir(parents=True, exist_ok=True)
            paths[stored_as].write_bytes(content)
        made.append(
            Picture(
                paths[SOURCE].name,
                group_of(encoded, read_header(encoded)),
                image.shape[0] * image.shape[1],
                paths,
                {key: len(file) for key, file in files.items()},
            )
        )
    # Kinds must not follow each other in step with batches.
    return [made[i] for i in np.random.default_rng(0).permutation(len(made))]


# The disk.


class TokenBucket:
    """Readers wait until what they have read may have come from a disk of some rate.

    What they leave unused is kept for SAVED seconds, as the kernel's throttle keeps it for a slice.
    Without that, a reader that wakes up late on a busy machine loses the disk's time for good.
    """

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


class Reader:
    """Gives DALI batches of files, in a fixed order without end.

    Buffers are used again, as readers of DALI do.
    """

    def __init__(self, files: Sequence[tuple[Path, int]], disk: TokenBucket) -> None:
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


def take_turn(
    files: Sequence[tuple[Path, int]], disk: TokenBucket, cores: int, seconds: float
) -> float:
    """Images a second over whole passes, at least one, in a pipeline of its own."""
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
        free_rate: bytes a second of reading without a limit.
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
    return tuple(map(plan.choose, seen))


def calibrated(model: Model, seconds: float) -> Model:
    """The model with the efficiency that single formats reach in turns without a limit of the disk.

    Formats that the disk slows down even so do not count.
    """
    host = model.profile.host
    disk = TokenBucket()
    reached: list[float] = []
    for name in model.pictures[0].sizes:
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
    """

    name: str
    predicted: float
    measured: list[float]

    @property
    def rate(self) -> float:
        """The median."""
        return float(np.median(self.measured))

    @property
    def error(self) -> float:
        """Of the prediction, relative to what was measured."""
        return abs(self.predicted - self.rate) / self.rate


def measure_regime(
    regime: Regime, model: Model, plan: Assignment, rounds: int, seconds: float
) -> list[Row]:
    """Lets single formats and the plan take turns."""
    chosen = {name: (name,) * len(plan) for name in model.pictures[0].sizes} | {"plan": plan}
    disk = TokenBucket()
    disk.hold(regime.disk * 1e6)
    measured: dict[Assignment, list[float]] = {each: [] for each in chosen.values()}
    rng = np.random.default_rng(0)
    for _ in track(range(rounds), description=f"{regime.name:14}"):
        order = list(measured)
        for i in rng.permutation(len(order)):
            files = model.files(order[i])
            measured[order[i]].append(take_turn(files, disk, regime.cores, seconds))
    return [Row(name, model.predict(each), measured[each]) for name, each in chosen.items()]


def summarize(
    regime: Regime, rows: list[Row], plan: Assignment, profile: Profile
) -> dict[str, Any]:
    """What a regime says."""
    by_name = {row.name: row for row in rows}
    source, planned = by_name[SOURCE], by_name["plan"]
    singles = [row for row in rows if row.name != "plan"]
    best = max(singles, key=lambda row: row.rate)
    says = max(singles, key=lambda row: row.predicted)
    return {
        **asdict(regime),
        "held_by": "token bucket in the readers, files in the page cache",
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
        "error": float(np.median([row.error for row in rows])),
        "rates": {row.name: row.rate for row in rows},
    }


# Results.


COLUMNS = {
    "source": "{source:.0f}",
    "jpeg": "{jpeg:.0f}",
    "best single": "{best_single} {best:.0f}",
    "plan": "{plan:.0f}",
    "shares": "{shown_shares}",
    "switch": "{switch:.2f} ({switch_predicted:.2f})",
    "mix": "{mix:.2f} [{mix_interval[0]:.2f}, {mix_interval[1]:.2f}] ({mix_predicted:.2f})",
    "total": "{total:.2f}",
    "error": "{error:.1%}",
}


def page(regimes: dict[str, Any]) -> str:
    """The results for people."""
    shown = {}
    origins = []
    for r in regimes.values():
        title = Regime(r["set"], r["disk"], r["cores"]).title
        shares = ", ".join(f"{share:.0%} {name}" for name, share in r["shares"].items())
        best = {"best": r["rates"][r["best_single"]], "shown_shares": shares}
        shown[title] = {"jpeg": None, **r, **r["rates"], **best}
        origins.append(
            [
                title,
                r["held_by"],
                f"{r['efficiency']:.0%}",
                f"{r['load']:.1f}",
                f"{r['machine']}, {r['commit']}, {r['date']}",
            ]
        )
    head = ["regime", "disk held by", "of the cores reached", "load", "machine, commit, date"]
    return f"{table('regime', shown, COLUMNS)}\n{markdown_table(head, origins)}"


def measure_set(
    regimes: Sequence[Regime], pictures: list[Picture], seconds: float
) -> Iterator[tuple[Regime, Model]]:
    """Profiles a set for each number of cores; its regimes, and what says what they reach."""
    folder = open_folder(str(pictures[0].paths["stored"].parent))
    files = [(folder, file) for file in folder.list_files().files.values()]
    reading = measure_reading(files, 5, np.random.default_rng(0), cold=False)
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
                reading=reading,
                quiet=True,
            )
        finally:
            os.sched_setaffinity(0, everywhere)
        for regime in chosen:
            host = replace(profile.host, disk=regime.disk * 1e6, cores=float(cores))
            yield regime, Model(replace(profile, host=host), pictures, reading.rate)
