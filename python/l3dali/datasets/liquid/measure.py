"""Measures a `Profile`: the costs of a data set by format, and the host. Writes nothing."""

from __future__ import annotations

import math
import platform
import statistics
import time
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import numpy as np

from l3dali import __version__, codec
from l3dali.console import counted, progress, reason_of, without_password
from l3dali.datasets.convert.images import Options, group_of
from l3dali.datasets.convert.pool import read_alone
from l3dali.datasets.liquid import host as machine
from l3dali.datasets.liquid.fit import fit_groups
from l3dali.datasets.liquid.gpu import open_gpu
from l3dali.datasets.liquid.profile import (
    CACHE,
    CPU,
    CROP,
    DEFAULT_BATCH,
    DEFAULT_SAMPLES,
    DEFAULT_SECONDS,
    MIXED,
    SOURCE,
    Host,
    Linear,
    Profile,
    Sample,
    Training,
    by_group,
    cost_key,
)
from l3dali.datasets.liquid.sample import draw, open_dataset
from l3dali.datasets.liquid.timing import Decoders, measure_core_seconds
from l3dali.errors import UsageError
from l3dali.images.formats import read_header
from l3dali.images.transcoding import (
    JpegRefusedError,
    coding_of,
    encode_jpeg,
    encode_picture,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from l3dali.arguments import Layout
    from l3dali.codec import Image
    from l3dali.console import Failure
    from l3dali.datasets.liquid.gpu import Gpu
    from l3dali.datasets.liquid.sample import Candidate

# Shares of the time; the rest is for listing and reading the sample.
_LOOKING, _STORAGE, _DECODING, _PIPELINES = 0.1, 0.08, 0.6, 0.15
_RUN_BYTES = 2**27  # of files, of the runs end to end
_RUN_RAW_BYTES = 2**28  # of a batch, unless a core has more in one image
_SHORTEST_RUN, _LONGEST_RUN = 0.3, 3.0  # seconds
_LEAST_FACTOR = 0.1  # of a sample's weight, where larger ones count more


def measure_profile(
    sources: Sequence[str],
    *,
    samples: int = DEFAULT_SAMPLES,
    seconds: float = DEFAULT_SECONDS,
    labels: Sequence[str] = (),
    max_pixels: int = codec.DEFAULT_MAX_PIXELS,
    layout: Layout | None = None,
    given: Mapping[str, float | None] | None = None,
    reading: machine.Reading | None = None,
    quiet: bool = False,
    failures: list[Failure] | None = None,
) -> Profile:
    """Measures a data set on this host.

    Args:
        sources: folders, shards, braces, URLs, as `l3 convert` takes them.
        samples: how many images to measure.
        seconds: about how long to take; there are fewer samples then, but one of each group.
        labels: names of label maps, as in `l3 convert`.
        max_pixels: larger images are skipped.
        layout: of .npy files, as in `l3 convert`.
        given: known numbers, which are not measured: `cores`, `disk`, `network`, `upload` (bytes
            a second; infinity: unlimited), `gpu_cache` (bytes; 0: none), `train_rate` (images a
            second of the training step).
        reading: the cost of reading, if it was measured already.
        quiet: print no progress.
        failures: gets files that cannot be listed or read; single images are notes.

    Raises:
        UsageError: there are no images, none can be read, or an option makes no sense.
        OSError: the data set cannot be read.
    """
    if samples < 1 or not 0 < seconds < math.inf:
        raise UsageError("samples and seconds must be above 0")
    known = dict(given or {})
    rng = np.random.default_rng(0)
    options = Options(labels=tuple(labels), max_pixels=max_pixels, layout=layout)
    found = open_dataset(sources, options, samples=samples, seconds=_LOOKING * seconds, rng=rng)
    notes = list(found.notes)
    if failures is not None:
        failures += found.failures
    decoders = Decoders()

    storage_rate = known.get("network" if found.is_remote else "disk")
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
    meter = _Meter(decoders, options, reading.cpu_seconds, gpu)
    end = time.monotonic() + _DECODING * seconds
    measured = list(progress(meter.measure(drawn, end), len(drawn), quiet=quiet))
    if not measured:
        raise UsageError("; ".join(["none of the images can be read", *meter.notes()]))
    notes += meter.notes()
    if unmeasured := len(drawn) - len(measured) - len(meter.failures):
        images = counted(unmeasured, "image")
        notes.append(f"there was no time to measure {images}; --seconds gives more")
    done = _weighted(drawn, measured, set(meter.failures))
    efficiency = meter.efficiency(done, usable, _PIPELINES * seconds)
    if efficiency is None:
        notes.append("no pipeline was run end to end")
    upload, cache = known.get("upload"), known.get("gpu_cache")
    if upload is None and gpu is not None:
        upload = gpu.upload_rate()
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
        images=sum(fits.images for fits in groups.values()),
        host=Host(
            cores=known.get("cores") or usable,
            disk=_finite(known.get("disk") if found.is_remote else storage_rate),
            network=_finite(storage_rate if found.is_remote else known.get("network")),
            upload=_finite(upload),
            gpu=None if gpu is None else gpu.name,
            gpu_cache=cache or None,
            efficiency=1.0 if efficiency is None else efficiency,
        ),
        groups=groups,
        samples=done,
        training=Training(train_rate) if (train_rate := known.get("train_rate")) else None,
        made={
            "version": __version__,
            "machine": platform.platform(),
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "decoders": decoders.name,
        },
        notes=notes,
    )


def _finite(rate: float | None) -> float | None:
    return None if rate is None or math.isinf(rate) else rate


def _weighted(
    drawn: Sequence[Candidate], measured: Sequence[tuple[int, Sample]], failed: set[int]
) -> list[Sample]:
    """The samples, weighted for images that there was no time for.

    Weights depend on sizes, so that the sum of bytes of each group is kept.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for i, each in enumerate(drawn):
        if i not in failed:
            groups[each.group].append(i)
    samples = dict(measured)
    done = []
    for alike in groups.values():
        known = [i for i in alike if i in samples]
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
        weights = zip(known, shares.tolist(), strict=True)
        done += [replace(samples[i], weight=weight) for i, weight in weights]
    return done


class _Meter:
    """Encodes images to each candidate and measures the decoders."""

    def __init__(
        self,
        decoders: Decoders,
        options: Options,
        read_seconds: Linear,
        gpu: Gpu | None = None,
    ) -> None:
        self._decoders = decoders
        self._gpu = gpu
        self._options = options
        self._read_seconds = read_seconds
        self._remarks: Counter[str] = Counter()  # how many images each is about
        # For the runs end to end: images, their files by format, and their first pixel.
        self._kept: list[tuple[Sample, dict[str, bytes], Image]] = []
        self._kept_bytes = 0
        self.failures: dict[int, str] = {}  # by number of the image

    def measure(
        self, drawn: Sequence[Candidate], end: float
    ) -> Iterator[tuple[int, Sample] | None]:
        """Yields the number and the costs of each image that can be read."""
        groups: set[str] = set()
        for i, each in enumerate(drawn):
            if time.monotonic() > end and each.group in groups:
                continue
            try:
                sample = self._measure_image(each)
            except Exception as error:  # Libraries raise anything on damaged data.
                self.failures[i] = f"{each.name}: {reason_of(error)}"
                yield None
            else:
                groups.add(each.group)
                yield i, sample

    def _measure_image(self, image: Candidate) -> Sample:
        data, labels = image.read(), image.is_labels
        picture = read_alone(data, self._options, labels=labels)  # within limits
        pixels = picture.pixels
        if picture.expanded:
            self._remarks[
                "a palette becomes colours; --labels keeps the numbers of its entries"
            ] += 1
        files = {SOURCE: data}
        is_refused = False
        if coding_of(data, "jpeg", keeps_pixels=not labels) == "jpeg":
            try:
                files["jpeg"] = encode_jpeg(data)[0]
            except JpegRefusedError as error:
                is_refused = True
                self._remarks[f"not supported by coding jpeg: {error.reason}"] += 1
        for coding in codec.CODINGS:
            files[coding] = encode_picture(picture, labels=labels, coding=coding)
        group = group_of(data, read_header(data), labels=labels, is_refused=is_refused)
        cpu_seconds: dict[str, float] = {}
        for name, file in files.items():
            taken = None
            # Operators expand palettes and scale few bits, and change such numbers.
            if name != SOURCE or not picture.has_numbers:
                taken = self._decoders.seconds(name, file, pixels)
            if taken is None:
                what = f"{self._decoders.name} cannot decode the samples that L3 keeps"
                self._remarks[f"{name} of {group}: {what}"] += 1
            else:
                cpu_seconds[cost_key(name, CPU)] = taken + self._read_seconds(len(file), 0)
        gpu_seconds: dict[str, float] = {}
        encoded = {name: file for name, file in files.items() if name != SOURCE}
        for name, file in encoded.items():
            if self._gpu is None:
                break
            try:
                times = self._gpu.measure(file, pixels.nbytes)
            except (MemoryError, RuntimeError, ValueError) as error:
                self._remarks[f"{name} of {group} on the GPU: {reason_of(error)}"] += 1
                continue
            reading = self._read_seconds(len(file), 0)
            cpu_seconds[cost_key(name, MIXED)] = times.mixed_cpu_seconds + reading
            cpu_seconds[cost_key(name, CACHE)] = times.cached_cpu_seconds
            gpu_seconds[cost_key(name, MIXED)] = times.gpu_seconds
        infos = {name: codec.info(file) for name, file in encoded.items()}
        tiles = {name: [info.tile_height, info.tile_width] for name, info in infos.items()}
        sample = Sample(
            name=image.name,
            group=group,
            source_bytes=len(data),
            pixels=pixels.shape[0] * pixels.shape[1],
            raw_bytes=pixels.nbytes,
            weight=image.weight,
            sizes={name: len(file) for name, file in files.items()},
            cpu_seconds=cpu_seconds,
            gpu_seconds=gpu_seconds,
            tiles={CROP: list(pixels.shape[:2]), **tiles},
        )
        size = sum(sample.sizes.values())
        if self._kept_bytes + size <= _RUN_BYTES:
            self._kept.append((sample, files, pixels[:1, :1].copy()))
            self._kept_bytes += size
        return sample

    def notes(self) -> list[str]:
        """Notes on images that were not measured."""
        notes = [f"{counted(n, 'image')}: {what}" for what, n in self._remarks.items()]
        if self.failures:
            count = counted(len(self.failures), "image")
            first = next(iter(self.failures.values()))
            notes.insert(0, f"{count} of the sample cannot be read, such as {first}")
        return notes

    def efficiency(self, samples: Sequence[Sample], cores: float, seconds: float) -> float | None:
        """The rate of pipelines relative to the costs; None if none was run.

        The median of the formats, each measured alone on images of the largest group.
        """
        groups = by_group(samples)
        area = {name: sum(s.weight * s.pixels for s in each) for name, each in groups.items()}
        largest = max(area, key=lambda name: area[name])
        kept = [each for each in self._kept if each[0].group == largest]
        measured = [{key for key in sample.cpu_seconds if key.endswith(CPU)} for sample, *_ in kept]
        keys = sorted(set.intersection(*measured)) if kept else []
        threads = max(1, math.floor(cores))
        raw_bytes = max((sample.raw_bytes for sample, *_ in kept), default=1)
        batch = min(DEFAULT_BATCH, max(threads, _RUN_RAW_BYTES // raw_bytes))
        length = min(max(seconds / (len(keys) or 1) / 2, _SHORTEST_RUN), _LONGEST_RUN)
        shares: list[float] = []
        for key in keys:
            name = key.partition("@")[0]
            files = [each[name] for _, each, _ in kept]
            try:
                taken = measure_core_seconds(name, files, kept[0][2], threads, length, batch)
            except OSError:  # as where TMPDIR is full
                return None
            if taken is not None:
                alone = statistics.mean(
                    sample.cpu_seconds[key] - self._read_seconds(sample.sizes[name], 0)
                    for sample, *_ in kept
                )
                shares.append(min(1.0, alone / taken) if taken else 1.0)
        return statistics.median(shares) if shares else None
