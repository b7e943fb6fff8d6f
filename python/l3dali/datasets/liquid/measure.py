"""Measures what `Profile` holds: the data set's costs by format, and the host.

Nothing is written; the data set is read alone.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import numpy as np

from l3dali import __version__, codec
from l3dali.console import counted, progress, reason_of, without_password
from l3dali.datasets.convert.images import Options
from l3dali.datasets.liquid import host as machine
from l3dali.datasets.liquid.dataset import draw, open_dataset
from l3dali.datasets.liquid.decoding import DaliDecoders, find_decoders, measure_core_seconds
from l3dali.datasets.liquid.fit import fit_groups
from l3dali.datasets.liquid.gpu import open_gpu
from l3dali.datasets.liquid.groups import group_of
from l3dali.datasets.liquid.profile import (
    CACHE,
    CPU,
    DEFAULT_BATCH,
    DEFAULT_SAMPLES,
    DEFAULT_SECONDS,
    JPEG,
    L3_FORMATS,
    MIXED,
    SOURCE,
    Host,
    Linear,
    Profile,
    Sample,
    Training,
    cost_key,
)
from l3dali.datasets.liquid.step import measure_step
from l3dali.errors import UsageError
from l3dali.images.headers import read_header
from l3dali.images.lossy import lossy_format
from l3dali.images.picture import Picture
from l3dali.images.reading import read_picture
from l3dali.images.transcoding import encode_jpeg, encode_picture, fits_jpeg

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from l3dali.codec import Image
    from l3dali.console import Failure
    from l3dali.datasets.liquid.dataset import Candidate
    from l3dali.datasets.liquid.decoding import Decoders
    from l3dali.datasets.liquid.gpu import Gpu
    from l3dali.datasets.liquid.step import Step

# Shares of the time. What is left is for listing and reading the sample.
_LOOKING, _STORAGE, _DECODING, _PIPELINES = 0.1, 0.08, 0.6, 0.15
_RUN_FILES, _RUN_BYTES = 64, 2**27  # of the runs end to end
_RUN_RAW_BYTES = 2**28  # of a batch, unless a core has more in one image
_SHORTEST_RUN, _LONGEST_RUN = 0.3, 3.0  # seconds
_SHOWN_FAILURES = 10
_LEAST_FACTOR = 0.1  # of a sample's weight, where larger ones count more


@dataclass(frozen=True)
class Given:
    """What the caller knows of the host, and is not measured. None: measure it.

    Attributes:
        cores: that decode.
        disk: bytes a second; infinity: unlimited.
        network: likewise; None for data on a disk is unlimited.
        upload: likewise.
        train_rate: images a second of the training step.
        gpu_cache: bytes of a GPU's memory for encoded images; 0: none.
    """

    cores: float | None = None
    disk: float | None = None
    network: float | None = None
    upload: float | None = None
    train_rate: float | None = None
    gpu_cache: float | None = None

    def __post_init__(self) -> None:
        """Refuses what no host has."""
        for name, value in vars(self).items():
            if value == 0 and name == "gpu_cache":
                continue
            if value is not None and not value > 0:  # NaN too
                raise UsageError(f"{name} is {value}; a number above 0 is needed")
        for name in ("cores", "train_rate", "gpu_cache"):
            if getattr(self, name) == math.inf:
                raise UsageError(f"{name} is infinite")


def measure_profile(
    sources: Sequence[str],
    *,
    samples: int = DEFAULT_SAMPLES,
    seconds: float = DEFAULT_SECONDS,
    seed: int = 0,
    allow_lossy: bool = False,
    labels: Sequence[str] = (),
    max_pixels: int = codec.DEFAULT_MAX_PIXELS,
    given: Given | None = None,
    training: Training | None = None,
    step: Step | None = None,
    reading: machine.Reading | None = None,
    quiet: bool = False,
    failures: list[Failure] | None = None,
) -> Profile:
    """Measures a data set on this host.

    Args:
        sources: folders, shards, braces, URLs, as `l3 convert` takes them.
        samples: how many images to measure.
        seconds: about how long to take; there are fewer samples then, but one of each group.
        seed: chooses the images.
        allow_lossy: JPEG of quality 95 is a candidate for 8-bit images that are not lossy.
        labels: names of label maps, as in `l3 convert`.
        max_pixels: an image of more is passed over.
        given: what is known and not measured.
        training: the step, from `measure_step`.
        step: the step itself, to be measured; with a GPU, beside a decoder too.
        reading: what reading costs, if it was measured already.
        quiet: tell no progress.
        failures: gets what cannot be listed or read of the data set; single images are notes.

    Raises:
        UsageError: there are no images, none can be read, or an option makes no sense.
        OSError: the data set cannot be read.
    """
    if samples < 1 or not 0 < seconds < math.inf:
        raise UsageError("samples and seconds are numbers above 0")
    given = given or Given()
    begin = time.monotonic()
    rng = np.random.default_rng(seed)
    options = Options(labels=tuple(labels), max_pixels=max_pixels)
    found = open_dataset(sources, options, samples=samples, seconds=_LOOKING * seconds, rng=rng)
    notes = list(found.notes)
    if failures is not None:
        failures += found.failures
    decoders = find_decoders()

    storage_rate = given.network if found.is_remote else given.disk
    if reading is None:
        reading_seconds = _STORAGE * seconds if storage_rate is None else min(1.0, 0.02 * seconds)
        reading = machine.measure_reading(found.files, reading_seconds, rng)
    if storage_rate is None:
        notes += reading.notes
        storage_rate = reading.rate

    drawn = draw(found.candidates, samples, rng)
    usable = machine.usable_cores()
    gpu: Gpu | None = None
    try:
        gpu = open_gpu(max(1, math.floor(usable)))
    except LookupError as error:
        notes.append(
            f"no GPU was measured ({error}): plans from this profile decode on the CPU, unless "
            "l3 plan --host names a host with GPUs"
        )
    meter = _Meter(decoders, options, allow_lossy, reading.cpu_seconds, gpu)
    end = time.monotonic() + _DECODING * seconds
    measured = list(progress(meter.measure(drawn, end), len(drawn), quiet=quiet))
    if not measured:
        first = f": {meter.failures[0]}" if meter.failures else ""
        raise UsageError("; ".join([f"none of the images can be read{first}", *found.notes]))
    notes += meter.notes(len(drawn) - len(measured) - len(meter.failures))
    done = _weighted(drawn, measured, meter.failed)
    efficiency = 1.0
    if isinstance(decoders, DaliDecoders):
        efficiency, told = meter.efficiency(done, usable, _PIPELINES * seconds)
        notes += told
    else:
        notes.append(
            f"DALI is not installed: decoding was measured by {decoders.name}, memory that it "
            "takes included, and no pipeline end to end"
        )
    if given.train_rate is not None:
        training = Training(given.train_rate)
    elif step is not None:
        training = _measure_training(step, gpu, meter.some_files())
    upload = given.upload
    if upload is None and gpu is not None:
        upload = gpu.upload_rate()
    cache = given.gpu_cache
    if cache is None and gpu is not None:
        cache = float(gpu.cache_bytes)
        notes.append(
            f"{cache / 1e9:.1f} GB for a cache on the GPU, a quarter of the memory that is free; "
            "--gpu-cache gives another size"
        )
    groups = fit_groups(done)
    return Profile(
        sources=list(map(without_password, sources)),
        labels=list(labels),
        fingerprint=found.fingerprint,
        images=sum(fits.images for fits in groups.values()),
        host=Host(
            cores=usable if given.cores is None else given.cores,
            disk=_finite(given.disk if found.is_remote else storage_rate),
            network=_finite(storage_rate if found.is_remote else given.network),
            upload=_finite(upload),
            gpu=None if gpu is None else gpu.name,
            gpu_cache=cache or None,
            efficiency=efficiency,
        ),
        groups=groups,
        samples=done,
        training=training,
        made={
            "version": __version__,
            "machine": machine.processor(),
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "decoders": decoders.name,
            "load": f"{os.getloadavg()[0]:.1f} processes on {os.cpu_count()} cores",
            "seconds": f"{time.monotonic() - begin:.0f}",
        },
        notes=notes,
    )


def _measure_training(step: Step, gpu: Gpu | None, files: Sequence[bytes]) -> Training:
    """Times a step of the caller's, alone and beside a decoder on the GPU."""
    try:
        if gpu is None or not files:
            return measure_step(step.run, step.images, seconds=step.seconds)
        decode, count = gpu.decoder(files)
        return measure_step(
            step.run, step.images, decode=decode, decoded_images=count, seconds=step.seconds
        )
    except Exception as error:  # whatever a step may raise
        raise UsageError(f"the training step failed: {type(error).__name__}: {error}") from error


def _finite(rate: float | None) -> float | None:
    return None if rate is None or math.isinf(rate) else rate


def _weighted(
    drawn: Sequence[Candidate], measured: Sequence[tuple[int, Sample]], failed: set[int]
) -> list[Sample]:
    """The samples, which also stand for what the time did not suffice for.

    Their weights grow or shrink with their sizes, so that the bytes of each stratum come out as
    they are.
    """
    strata: dict[str, list[int]] = defaultdict(list)
    for i, each in enumerate(drawn):
        if i not in failed:
            strata[each.stratum].append(i)
    reached = {i for i, _ in measured}
    weights: dict[int, float] = {}
    for alike in strata.values():
        known = [i for i in alike if i in reached]
        if not known:
            continue
        count = sum(drawn[i].weight for i in alike)
        total_bytes = sum(drawn[i].weight * drawn[i].size for i in alike)
        sizes = np.array([drawn[i].size for i in known], np.float64)
        shares = np.array([drawn[i].weight for i in known], np.float64)
        shares *= count / shares.sum()
        over = sizes - shares @ sizes / count
        if spread := shares @ over**2:
            shares *= np.maximum(1 + (total_bytes - shares @ sizes) / spread * over, _LEAST_FACTOR)
            shares *= count / shares.sum()
        weights.update(zip(known, shares.tolist(), strict=True))
    return [replace(sample, weight=weights[i]) for i, sample in measured]


@dataclass(frozen=True)
class _Kept:
    """An image for the runs end to end: its files by format, its first pixel, decoding alone."""

    files: dict[str, bytes]
    head: Image
    raw_bytes: int
    seconds: dict[str, float]


class _Meter:
    """Encodes images to each candidate and measures the decoders."""

    def __init__(
        self,
        decoders: Decoders,
        options: Options,
        allow_lossy: bool,
        read_seconds: Linear,
        gpu: Gpu | None = None,
    ) -> None:
        self._decoders = decoders
        self._gpu = gpu
        self._options = options
        self._allow_lossy = allow_lossy
        self._read_seconds = read_seconds
        self._not_decoded: dict[str, int] = defaultdict(int)
        self._not_on_gpu: dict[str, str] = {}
        self._kept: dict[str, list[_Kept]] = defaultdict(list)
        self._kept_bytes = 0
        self._expanded = 0
        self.failures: list[str] = []
        self.failed: set[int] = set()

    def measure(
        self, drawn: Sequence[Candidate], end: float
    ) -> Iterator[tuple[int, Sample] | None]:
        """Yields the number of each image that can be read with what it costs."""
        strata: set[str] = set()
        for i, each in enumerate(drawn):
            if time.monotonic() > end and each.stratum in strata:
                continue
            try:
                sample = self._measure_image(each)
            except Exception as error:  # Libraries raise anything on damaged data.
                self.failed.add(i)
                reason = " ".join(str(error).split()) or type(error).__name__
                self.failures.append(f"{each.name}: {reason}")
                yield None
            else:
                strata.add(each.stratum)
                yield i, sample

    def _measure_image(self, image: Candidate) -> Sample:
        data = image.read()
        labels = image.is_labels
        picture = read_picture(data, labels=labels, max_pixels=self._options.max_pixels)
        self._expanded += picture.expanded
        pixels = picture.pixels
        files = {SOURCE: data}
        encode_seconds: dict[str, float] = {}
        for coding in codec.CODINGS:
            if coding in L3_FORMATS:
                start = time.thread_time()
                files[coding] = encode_picture(picture, labels=labels, coding=coding)
                encode_seconds[coding] = time.thread_time() - start
        is_fit = fits_jpeg(Picture(pixels)) and not labels and lossy_format(data) is None
        if self._allow_lossy and is_fit:
            start = time.thread_time()
            files[JPEG] = encode_jpeg(Picture(pixels))
            encode_seconds[JPEG] = time.thread_time() - start
        group = group_of(data, read_header(data), labels=labels)
        seconds: dict[str, float] = {}  # of decoding alone, by format
        for name, file in files.items():
            # Operators expand palettes and scale few bits, and the numbers are what is wanted here.
            taken = (
                None
                if name == SOURCE and picture.has_numbers
                else self._decoders.seconds(name, file, pixels)
            )
            if taken is None:
                self._not_decoded[f"{name} of {group}"] += 1
            else:
                seconds[name] = taken
        sizes = {name: len(file) for name, file in files.items()}
        cpu_seconds = {
            cost_key(name, CPU): taken + self._read_seconds(sizes[name], 0)
            for name, taken in seconds.items()
        }
        gpu_seconds: dict[str, float] = {}
        for name in L3_FORMATS if self._gpu is not None else ():
            self._measure_on_gpu(name, files[name], pixels.nbytes, group, cpu_seconds, gpu_seconds)
        if (
            len(self._kept[group]) < _RUN_FILES
            and self._kept_bytes + sum(sizes.values()) <= _RUN_BYTES
        ):
            self._kept[group].append(_Kept(files, pixels[:1, :1].copy(), pixels.nbytes, seconds))
            self._kept_bytes += sum(sizes.values())
        return Sample(
            name=image.name,
            group=group,
            source_bytes=len(data),
            pixels=pixels.shape[0] * pixels.shape[1],
            raw_bytes=pixels.nbytes,
            weight=image.weight,
            sizes=sizes,
            cpu_seconds=cpu_seconds,
            gpu_seconds=gpu_seconds,
            encode_seconds=encode_seconds,
        )

    def _measure_on_gpu(
        self,
        name: str,
        file: bytes,
        raw_bytes: int,
        group: str,
        cpu_seconds: dict[str, float],
        gpu_seconds: dict[str, float],
    ) -> None:
        """Adds what an L3 file costs where the GPU decodes it."""
        assert self._gpu is not None
        try:
            times = self._gpu.measure(file, raw_bytes)
        except (MemoryError, RuntimeError, ValueError) as error:
            self._not_on_gpu[f"{name} of {group}"] = str(error) or type(error).__name__
            return
        mixed, cached = cost_key(name, MIXED), cost_key(name, CACHE)
        cpu_seconds[mixed] = times.mixed_cpu_seconds + self._read_seconds(len(file), 0)
        cpu_seconds[cached] = times.cached_cpu_seconds
        gpu_seconds[mixed] = times.gpu_seconds

    def some_files(self) -> list[bytes]:
        """A batch of L3 files, those that take a GPU most: of the group with most of them."""
        kept = max(self._kept.values(), key=len, default=[])
        files = [each.files["rans"] for each in kept][:DEFAULT_BATCH]
        return (files * DEFAULT_BATCH)[:DEFAULT_BATCH]

    def notes(self, unmeasured: int) -> list[str]:
        """What was passed over, for people."""
        notes = []
        if self.failures:
            notes.append(f"{counted(len(self.failures), 'image')} of the sample cannot be read")
            notes += self.failures[:_SHOWN_FAILURES]
            if more := len(self.failures[_SHOWN_FAILURES:]):
                notes.append(f"and {more} more")
        if self._expanded:
            notes.append(
                f"palette images of the sample that become colours: {self._expanded}; "
                "--labels keeps the numbers of their entries"
            )
        if unmeasured:
            unmeasured_images = counted(unmeasured, "image")
            notes.append(f"the time did not suffice for {unmeasured_images}; --seconds gives more")
        for what, count in self._not_decoded.items():
            notes.append(
                f"{what}: for {counted(count, 'image')} {self._decoders.name} cannot give the "
                "samples that L3 keeps"
            )
        notes += [f"{what} on the GPU: {reason}" for what, reason in self._not_on_gpu.items()]
        return notes

    def efficiency(
        self, samples: Sequence[Sample], cores: float, seconds: float
    ) -> tuple[float, list[str]]:
        """What pipelines reach of what the costs say, and what is to be said of that.

        Each format alone, images of the group that stands for most; the median counts.
        """
        weights: dict[str, float] = defaultdict(float)
        for sample in samples:
            weights[sample.group] += sample.weight * sample.pixels
        kept = self._kept.get(max(weights, key=lambda group: weights[group]))
        if not kept:
            return 1.0, ["no pipeline was run end to end: the images are too large"]
        threads = max(1, math.floor(cores))
        shares: list[float] = []
        formats = [key for key in kept[0].seconds if all(key in each.seconds for each in kept)]
        largest = max(each.raw_bytes for each in kept)
        batch = min(DEFAULT_BATCH, max(threads, _RUN_RAW_BYTES // largest))
        length = min(max(seconds / (len(formats) or 1) / 2, _SHORTEST_RUN), _LONGEST_RUN)
        for name in formats:
            files = [each.files[name] for each in kept]
            heads = [each.head for each in kept]
            try:
                taken = measure_core_seconds(name, files, heads, threads, length, batch)
            except OSError as error:  # as where TMPDIR is full
                return 1.0, [f"no pipeline was run end to end: {reason_of(error)}"]
            if taken is not None:
                alone = statistics.mean(each.seconds[name] for each in kept)
                shares.append(min(1.0, alone / taken) if taken else 1.0)
        if not shares:
            return 1.0, ["no pipeline was run end to end"]
        return statistics.median(shares), []
