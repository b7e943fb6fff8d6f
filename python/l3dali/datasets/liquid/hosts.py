"""Descriptions of hosts: files that say what a machine has, of which nothing was measured here.

Knows profiles and their hosts; nothing of plans.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.datasets.liquid.profile import (
    CACHE,
    L3_FORMATS,
    MIXED,
    Host,
    Linear,
    Training,
    cost_key,
    fields_of,
    parse_as,
    read_as,
    without_gpu,
)
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from l3dali.datasets.liquid.profile import Fits, Profile, Sample

FORMAT = "l3-host"
VERSION = 1

_FOLDER = Path(__file__).with_name("hosts")
_RATES = (1e3, 1e15)  # bytes a second: least and most
_MOST_CORES = 1e6
_MOST_GPUS = 1024
_MOST_NODES = 100_000

# CPU seconds of an image that a GPU decodes, where no GPU was measured. Staging and planning are
# those of benchmarks/results/staging.md (2026-11-21, AMD EPYC): 6.1 to 7.4 GB/s of one thread, 3 to
# 28 us an image. Reading is assumed: 30 us a file, and 0.4 ns a byte as in host.py.
_STAGED_BYTE_SECONDS = 1 / 6.5e9
_PLANNING_SECONDS = 16e-6
_READING = Linear(base=30e-6, per_byte=0.4e-9)


@dataclass(frozen=True)
class Switch:
    """A PCIe switch, or a root port: what GPUs behind it share.

    Attributes:
        gpus: the numbers of these GPUs, from 0.
        upload: bytes a second to all of them together.
    """

    gpus: list[int]
    upload: float


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a node. They are alike.

    Attributes:
        name: of the model.
        count: of a node.
        upload: bytes a second to each, from pinned memory, while the others rest.
        decode: by coding, bytes of pixels that each decodes a second.
        decode_error: how far these rates may be off, as a part: 0.3 is 30 %.
        cache: bytes of memory of each for encoded images.
    """

    name: str
    count: int
    upload: float
    decode: dict[str, float]
    decode_error: float = 0.0
    cache: float = 0.0


@dataclass(frozen=True)
class HostFile:
    """What a node has, and how many of them share a file system.

    Attributes:
        name: for people.
        cores: that decode, of a node.
        disk: bytes a second of a node's own disks.
        network: bytes a second that a node receives. Counts where there are no disks, and where
            nodes share a file system.
        efficiency: what pipelines reach of the cores, 0 to 1; None: as where the profile was made.
        gpus: None if there are none.
        switches: PCIe layout: each GPU is behind one of them.
        nodes: that train together.
        file_system: bytes a second that all nodes together read from the file system they share.
        train_rate: images a second of one GPU's training step; None: not known.
        sources: by field, where its number comes from, and of when.
    """

    name: str
    cores: float
    disk: float | None = None
    network: float | None = None
    efficiency: float | None = None
    gpus: Gpus | None = None
    switches: list[Switch] = field(default_factory=list)
    nodes: int = 1
    file_system: float | None = None
    train_rate: float | None = None
    sources: dict[str, str] = field(default_factory=dict)


def host_names() -> list[str]:
    """The names of the descriptions that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def read_host(name: Path | str) -> HostFile:
    """Reads a description: a file, or one that comes with the package by its name.

    Raises:
        UsageError: it cannot be read, or says what no host has; names the field.
    """
    path = Path(name)
    if str(name) in host_names():
        path = _FOLDER / f"{name}.json"
    elif not path.suffix and not path.exists():
        raise UsageError(f"{name}: no such host; there are {', '.join(host_names())}, or a FILE")
    return read_as(parse_host, path)


def parse_host(text: bytes | str) -> HostFile:
    """The description that a text holds.

    Raises:
        UsageError: as `read_host`.
    """
    data = fields_of(text, "host", VERSION)
    host: HostFile = parse_as(HostFile, data, "")
    _check(host)
    return host


def _check(host: HostFile) -> None:
    _check_between("cores", host.cores, 1e-3, _MOST_CORES)
    _check_between("nodes", host.nodes, 1, _MOST_NODES)
    rates = {"disk": host.disk, "network": host.network, "file_system": host.file_system}
    gpus = host.gpus
    if gpus is not None:
        _check_between("gpus.count", gpus.count, 1, _MOST_GPUS)
        for coding in gpus.decode:
            if coding not in L3_FORMATS:
                raise UsageError(f"gpus.decode has the unknown coding {coding!r}")
        if not gpus.decode:
            raise UsageError("gpus.decode is empty; a rate for rans or packed is needed")
        if not gpus.decode_error < 1:
            raise UsageError(f"gpus.decode_error is {gpus.decode_error:g}, not below 1")
        rates["gpus.upload"] = gpus.upload
        rates |= {f"gpus.decode[{coding!r}]": rate for coding, rate in gpus.decode.items()}
        rates |= {f"switches[{i}].upload": each.upload for i, each in enumerate(host.switches)}
    elif host.switches:
        raise UsageError("switches: the host has no gpus")
    for name, rate in rates.items():
        if rate is not None:
            _check_between(name, rate, *_RATES)
    if host.efficiency is not None:
        _check_between("efficiency", host.efficiency, 1e-3, 2.0)
    if host.train_rate is not None:
        _check_between("train_rate", host.train_rate, 1e-6, 1e9)
    if gpus is not None:
        _check_links(host, gpus.count)


def _check_links(host: HostFile, count: int) -> None:
    links = Counter(number for each in host.switches for number in each.gpus)
    for number in range(count):
        if links[number] != 1:
            which = "no switch" if not links[number] else f"{links[number]} switches"
            raise UsageError(f"switches: GPU {number} is behind {which}; each is behind one")
    for number in links:
        if number >= count:
            raise UsageError(f"switches: there is no GPU {number}; gpus.count is {count}")


def _check_between(name: str, number: float, least: float, most: float) -> None:
    if not least <= number <= most:
        raise UsageError(f"{name} is {number:g}; a number from {least:g} to {most:g} is needed")


def on_host(profile: Profile, host: HostFile, speed: float = 1.0) -> Profile:
    """The profile as if its images were on that host.

    CPU times of decoding stay those of the host that was profiled.

    Args:
        profile: of a data set.
        host: replaces the profile's.
        speed: of the GPUs, beside what the description says.
    """
    gpus = host.gpus
    efficiency = profile.host.efficiency if host.efficiency is None else host.efficiency
    there = Host(
        cores=host.cores,
        disk=host.disk if host.file_system is None else None,
        network=host.network if host.disk is None or host.file_system is not None else None,
        efficiency=efficiency,
        nodes=host.nodes,
        file_system=host.file_system,
    )
    training = profile.training
    if host.train_rate is not None:
        count = host.nodes * (1 if gpus is None else gpus.count)
        share = 0.0 if training is None else training.gpu_share
        training = Training(host.train_rate * count, share)
    profile = replace(without_gpu(profile), host=there, training=training)
    if gpus is None:
        return profile
    switch = min(each.upload / len(each.gpus) for each in host.switches if each.gpus)
    there = replace(
        there,
        upload=gpus.upload,
        gpu=gpus.name,
        gpu_cache=gpus.cache,
        gpus=gpus.count,
        switch=switch if switch < gpus.upload else None,  # else it never binds
    )
    decode = {coding: rate * speed for coding, rate in gpus.decode.items()}
    of_group: dict[str, list[Sample]] = {}
    for sample in profile.samples:
        of_group.setdefault(sample.group, []).append(sample)
    density = _raw_bytes_per_pixel(profile.samples)
    densities = {name: _raw_bytes_per_pixel(samples) for name, samples in of_group.items()}
    return replace(
        profile,
        host=there,
        groups={
            name: _fits_with_gpu(fits, densities.get(name, density), decode)
            for name, fits in profile.groups.items()
        },
        samples=[_sample_with_gpu(sample, decode) for sample in profile.samples],
    )


def _cpu_fit() -> Linear:
    return Linear(
        base=_READING.base + _PLANNING_SECONDS,
        per_byte=_READING.per_byte + _STAGED_BYTE_SECONDS,
    )


def _raw_bytes_per_pixel(samples: list[Sample]) -> float:
    raw = sum(each.weight * each.raw_bytes for each in samples)
    return raw / sum(each.weight * each.pixels for each in samples)


def _fits_with_gpu(fits: Fits, density: float, decode: dict[str, float]) -> Fits:
    """Those of a group whose samples have so many bytes a pixel."""
    known = {coding: rate for coding, rate in decode.items() if coding in fits.sizes}
    return replace(
        fits,
        cpu_seconds={
            **fits.cpu_seconds,
            **{cost_key(coding, MIXED): _cpu_fit() for coding in known},
            **{cost_key(coding, CACHE): Linear(base=_PLANNING_SECONDS) for coding in known},
        },
        gpu_seconds={
            cost_key(coding, MIXED): Linear(per_pixel=density / rate)
            for coding, rate in known.items()
        },
    )


def _sample_with_gpu(sample: Sample, decode: dict[str, float]) -> Sample:
    known = {coding: rate for coding, rate in decode.items() if coding in sample.sizes}
    staging = {
        cost_key(coding, MIXED): _cpu_fit()(float(sample.sizes[coding]), float(sample.pixels))
        for coding in known
    }
    return replace(
        sample,
        cpu_seconds={
            **sample.cpu_seconds,
            **staging,
            **{cost_key(coding, CACHE): _PLANNING_SECONDS for coding in known},
        },
        gpu_seconds={
            cost_key(coding, MIXED): sample.raw_bytes / rate for coding, rate in known.items()
        },
    )
