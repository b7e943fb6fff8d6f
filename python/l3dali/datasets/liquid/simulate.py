"""A training's pipelines by discrete events: what a mix of formats brings, batch by batch.

Knows costs, shares and a host, as the linear programme does. What the programme takes as averages
happens here one after the other: batches differ in size, queues are full or empty, decoders take
turns, and GPUs that train together wait for the last one.

    file system, network, disk -> reader -> cores -> link, switch -> GPU decodes -> step

Each GPU has a pipeline of its own, with its part of the node's cores. A node without a GPU has one.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from l3dali.datasets.liquid.model import (
    CORES,
    DISK,
    FILE_SYSTEM,
    GPU,
    NETWORK,
    STEP,
    SWITCH,
    UPLOAD,
    hit_share,
    solve,
)
from l3dali.datasets.liquid.plan import make_model
from l3dali.datasets.liquid.profile import CPU, DEFAULT_BATCH, L3_FORMATS, MOST_PIXELS
from l3dali.errors import UsageError, needs

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator

    import numpy.typing as npt

    from l3dali.datasets.liquid.model import Array, Costs, Limits
    from l3dali.datasets.liquid.profile import Host, Profile, Training

    Process = Generator[Any, Any, None]

# What decodes an image, in the order in which a batch is decoded.
CORES_L3, CORES_OTHERS, ON_GPU = range(3)

DEFAULT_BATCHES = 40  # of each GPU
_IMAGES = 4096  # that a data set is stood for by
_WARM_UP = 0.25  # of the batches, which do not count
_MOST_PIPELINES = 4096
_MOST_TASKS = 2**26  # of all batches together: ten seconds or so
_TASK_PIXELS = 2**19  # src/op/cpu_backend.h


@dataclass(frozen=True)
class Images:
    """What images take, one number each.

    Attributes:
        read_bytes: from disk, network and file system.
        read_seconds: of cores, by threads that read.
        cpu_seconds: of cores, to decode or to hand over to a GPU.
        decoders: CORES_L3, CORES_OTHERS or ON_GPU.
        tasks: into which an image is cut, that cores share.
        upload_bytes: to the GPU.
        gpu_seconds: to decode there.
    """

    read_bytes: Array
    read_seconds: Array
    cpu_seconds: Array
    decoders: npt.NDArray[np.intp]
    tasks: npt.NDArray[np.intp]
    upload_bytes: Array
    gpu_seconds: Array

    def __getitem__(self, rows: npt.NDArray[np.intp]) -> Images:
        """Some of them, in this order."""
        return Images(*(getattr(self, each.name)[rows] for each in fields(self)))


@dataclass(frozen=True)
class Queues:
    """How far the parts of a pipeline run ahead of each other, in batches.

    Attributes:
        read: that are read before cores ask for them.
        decoded: between cores and GPU, and between GPU and step.
    """

    read: int = 3
    decoded: int = 2


@dataclass(frozen=True)
class Simulated:
    """What came of it.

    Attributes:
        rate: images a second, of all GPUs together.
        busy: by resource, the part of the time that it was busy; of the fullest one of a kind.
        stalled: the part of the time that training steps waited for images; 0 without training.
    """

    rate: float
    busy: dict[str, float]
    stalled: float

    @property
    def busiest(self) -> str:
        """The resource that binds."""
        return max(self.busy, key=lambda name: self.busy[name])


def draw_images(
    costs: Costs, shares: Array, rng: np.random.Generator, count: int = _IMAGES
) -> Images:
    """Images that stand for a data set: as many of each as its weight and shares say."""
    parts = np.cumsum((costs.weights[:, None] * shares).ravel())
    points = (np.arange(count) + rng.random()) / count * parts[-1]
    chosen = np.minimum(np.searchsorted(parts, points, side="right"), len(parts) - 1)
    rows, columns = np.divmod(chosen, len(costs.columns))
    kinds = np.array(
        [
            (CORES_L3 if stored_as in L3_FORMATS else CORES_OTHERS) if place == CPU else ON_GPU
            for stored_as, place in costs.columns
        ],
        np.intp,
    )

    def amount(name: str) -> Array:
        taken: Array = costs.later[name][rows, columns]
        return taken

    decoders, pixel_bytes = kinds[columns], amount("upload_bytes")  # of those that cores decode
    return Images(
        amount("read_bytes"),
        np.zeros(count),
        amount("cpu_seconds"),
        decoders,
        np.where(decoders == CORES_L3, tasks_of(pixel_bytes / 3), 1),
        pixel_bytes,
        amount("gpu_seconds"),
    )


def tasks_of(pixels: Array) -> npt.NDArray[np.intp]:
    """Into how many tasks `fn.l3.decode` cuts images on cores."""
    return np.ceil(np.clip(pixels, 1, MOST_PIXELS) / _TASK_PIXELS).astype(np.intp)


def makespan(seconds: Array, threads: int) -> float:
    """How long threads take for tasks, the longest first, as DALI's thread pool has them."""
    if threads == 1 or len(seconds) <= 1:
        return float(seconds.sum())
    if len(seconds) <= threads:
        return float(seconds.max())
    ends = [0.0] * threads
    for each in np.sort(seconds)[::-1].tolist():
        heapq.heapreplace(ends, ends[0] + each)
    return max(ends)


class _Line:
    """Something that serves one after the other, as a link or a GPU."""

    def __init__(self, env: Any, rate: float | None) -> None:
        self._env = env
        self._rate = math.inf if rate is None else rate
        self._free_at = 0.0
        self.busy = 0.0

    def take(self, amount: float) -> float:
        """Queues an amount; says when it is done."""
        seconds = amount / self._rate
        self.busy += seconds
        self._free_at = max(self._free_at, self._env.now) + seconds
        return self._free_at


class _Barrier:
    """Where steps wait for those of all other GPUs."""

    def __init__(self, env: Any, count: int) -> None:
        self._env = env
        self._count = self._missing = count
        self._all = env.event()

    def wait(self) -> Any:
        """The event that all have come."""
        self._missing -= 1
        event = self._all
        if not self._missing:
            self._missing, self._all = self._count, self._env.event()
            event.succeed()
        return event


class _Run:
    """All pipelines of all nodes."""

    def __init__(
        self,
        env: Any,
        host: Host,
        training: Training | None,
        queues: Queues,
        batch: int,
        batches: int,
    ) -> None:
        self.env = env
        self.host = host
        self.queues = queues
        self.count = host.nodes * host.gpus
        cores = host.cores / host.gpus
        self.threads = max(1, math.floor(cores + 1e-9))
        self.speed = host.efficiency * cores / self.threads
        self.batch = batch
        self.batches = batches
        self.step_seconds, self.gpu_share = 0.0, 1.0
        if training is not None:
            self.step_seconds = batch * self.count / training.samples_per_second
            self.gpu_share = training.gpu_share
        self.barrier = _Barrier(env, self.count if training is not None else 1)
        self.done: list[float] = []
        self.stalled = 0.0
        self.lines: dict[str, list[_Line]] = {}

    def line(self, name: str, rate: float | None) -> _Line:
        line = _Line(self.env, rate)
        self.lines.setdefault(name, []).append(line)
        return line

    def start(self, images: Images, shuffled: bool, seed: int) -> None:
        host = self.host
        behind = 1
        if host.upload is not None and host.switch is not None and host.switch < host.upload:
            behind = max(1, min(host.gpus, round(host.upload / host.switch)))
        file_system = self.line(FILE_SYSTEM, host.file_system)
        for node in range(host.nodes):
            storage = [
                file_system,
                self.line(NETWORK, host.network),
                self.line(DISK, host.disk),
            ]
            switch = None
            for gpu in range(host.gpus):
                if gpu % behind == 0:
                    rate = None if host.switch is None else host.switch * behind
                    switch = self.line(SWITCH, rate)
                assert switch is not None
                rng = np.random.default_rng((seed, node, gpu))
                given = _batches(images, self.batch, rng if shuffled else None)
                _Pipeline(self, given, storage, [self.line(UPLOAD, host.upload), switch])


class _Pipeline:
    """The pipeline of a GPU, or of a node without one."""

    def __init__(
        self, run: _Run, batches: Iterator[Images], storage: list[_Line], links: list[_Line]
    ) -> None:
        import simpy

        self._run, self._env = run, run.env
        self._batches, self._storage, self._links = batches, storage, links
        self._cores = run.line(CORES, 1.0)
        self._gpu, self._step = run.line(GPU, 1.0), run.line(STEP, 1.0)
        queues = run.queues
        # A part holds one batch besides those in its queue.
        self._read = simpy.Store(self._env, queues.read)
        self._decoded = simpy.Store(self._env, queues.decoded)
        self._uploaded = simpy.Store(self._env, 1)
        self._ready = simpy.Store(self._env, queues.decoded)
        for part in (self._reads, self._decodes, self._uploads, self._decodes_there, self._trains):
            self._env.process(part())

    def _until(self, end: float) -> Any:
        return self._env.timeout(max(0.0, end - self._env.now))

    def _reads(self) -> Process:
        for batch in self._batches:
            size = float(batch.read_bytes.sum())
            yield self._until(max(line.take(size) for line in self._storage))
            yield self._read.put(batch)

    def _decodes(self) -> Process:
        run = self._run
        while True:
            batch = yield self._read.get()
            # Operators take turns; threads that read fill the time for which cores wait.
            turns = 0.0
            for each in (CORES_L3, CORES_OTHERS):
                mine = batch.decoders == each
                tasks = batch.tasks[mine]
                turns += makespan(np.repeat(batch.cpu_seconds[mine] / tasks, tasks), run.threads)
            turns += float(batch.cpu_seconds[batch.decoders == ON_GPU].sum()) / run.threads
            work = float(batch.cpu_seconds.sum() + batch.read_seconds.sum()) / run.threads
            yield self._until(self._cores.take(max(turns, work) / run.speed))
            yield self._decoded.put(batch)

    def _uploads(self) -> Process:
        while True:
            batch = yield self._decoded.get()
            size = float(batch.upload_bytes.sum())
            yield self._until(max(link.take(size) for link in self._links))
            yield self._uploaded.put(batch)

    def _decodes_there(self) -> Process:
        while True:
            batch = yield self._uploaded.get()
            seconds = float(batch.gpu_seconds.sum())
            yield self._until(self._gpu.take(seconds))
            yield self._ready.put(seconds)

    def _trains(self) -> Process:
        run = self._run
        while True:
            asked = self._env.now
            seconds = yield self._ready.get()
            run.stalled += self._env.now - asked
            # Decoding beside it takes the step a part of that time.
            slowed = seconds * (1 - run.gpu_share) if run.step_seconds else 0.0
            yield self._until(self._step.take(run.step_seconds + slowed))
            run.done.append(self._env.now)
            yield run.barrier.wait()


def _batches(images: Images, size: int, rng: np.random.Generator | None) -> Iterator[Images]:
    """Batches without end: in a new order each epoch, or in the given one."""
    count = len(images.read_bytes)
    if size > count:
        raise UsageError(f"batches of {size} cannot be made of {count} images")
    while True:
        order = np.arange(count) if rng is None else rng.permutation(count)
        for start in range(0, count - size + 1, size):
            yield images[order[start : start + size]]


def simulate(
    images: Images,
    host: Host,
    training: Training | None = None,
    *,
    batch: int = DEFAULT_BATCH,
    batches: int = DEFAULT_BATCHES,
    queues: Queues | None = None,
    shuffled: bool = True,
    seed: int = 0,
) -> Simulated:
    """Runs the pipelines of a host until each has had about so many batches.

    Args:
        images: that stand for the data set, as stored and decoded.
        host: with its nodes and GPUs.
        training: the step, of all GPUs together. With it, GPUs wait for each other after each step.
        batch: images of a batch.
        batches: of each GPU; the first quarter does not count.
        queues: how far parts of a pipeline run ahead.
        shuffled: each epoch has a new order.
        seed: of that order.

    Raises:
        UsageError: SimPy is missing, there are too many GPUs, more than 2^26 tasks, or fewer images
            than a batch has.
    """
    try:
        import simpy
    except ImportError:
        raise needs("simpy", "--simulate") from None
    if host.nodes * host.gpus > _MOST_PIPELINES:
        raise UsageError(
            f"{host.nodes * host.gpus} pipelines; up to {_MOST_PIPELINES} can be simulated"
        )
    tasks = host.nodes * host.gpus * batches * batch * float(images.tasks.mean())
    if tasks > _MOST_TASKS:
        raise UsageError(
            f"{tasks:.0f} tasks of images; up to {_MOST_TASKS} can be simulated: "
            "take fewer nodes, or smaller batches"
        )
    env = simpy.Environment()
    run = _Run(env, host, training, queues or Queues(), batch, batches)
    run.start(images, shuffled, seed)
    wanted = run.count * batches
    while len(run.done) < wanted:
        env.step()
    done = np.sort(np.array(run.done[:wanted]))
    first = run.count * max(1, int(_WARM_UP * batches))  # whole steps: they end together
    seconds = float(done[-1] - done[first - 1])
    if not seconds > 0:
        raise UsageError("decoding takes nothing: there is no limit")
    busy = {
        name: max(line.busy for line in lines) / env.now
        for name, lines in run.lines.items()
        if any(line.busy for line in lines)
    }
    # The lines have taken what is on its way, too.
    busy = {name: min(1.0, part) for name, part in busy.items()}
    stalled = run.stalled / (run.count * env.now) if training is not None else 0.0
    return Simulated((wanted - first) * batch / seconds, busy, stalled)


def simulate_plan(profile: Profile, limits: Limits, formats: Collection[str]) -> Simulated:
    """Runs the best mix of some formats, as `find_plan` has it, after the first epoch.

    Raises:
        UsageError: as `simulate` and `find_plan`.
    """
    costs = make_model(profile, formats, limits.host).costs
    shares = solve(costs, limits).shares
    host = limits.host
    if limits.memory and host.disk is not None:
        stored = costs.mean(costs.later, "stored_bytes", shares) * costs.images
        missed = 1 - hit_share(limits.memory, stored)
        host = replace(host, disk=host.disk / missed if missed > 0 else None)
    images = draw_images(costs, shares, np.random.default_rng(0), max(_IMAGES, 4 * limits.batch))
    return simulate(images, host, limits.training, batch=limits.batch)
