"""Descriptions of hosts: files with the properties of machines that were not measured."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.datasets.liquid.profile import (
    CACHE,
    L3_FORMATS,
    MIXED,
    Host,
    Linear,
    Training,
    by_group,
    bytes_of_a_pixel,
    check_host,
    cost_key,
    read_file,
    without_gpu,
)
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from l3dali.datasets.liquid.profile import Profile

_FOLDER = Path(__file__).with_name("hosts")

# CPU seconds of an image that a GPU decodes, where no GPU was measured. Staging and planning are
# those of docs/dev/notes/measured-once.md (2026-11-21, AMD EPYC): 6 to 7 GB/s of one thread, 11
# to 29 us an image. Reading is assumed: 30 us a file, and 0.4 ns a byte as in host.py.
_PLANNING_SECONDS = 16e-6
_CPU_SECONDS = Linear(base=30e-6 + _PLANNING_SECONDS, per_byte=0.4e-9 + 1 / 6.5e9)


@dataclass(frozen=True)
class HostFile(Host):
    """The description of a node. Bandwidths are in bytes a second."""

    name: str = ""  # for people
    decode: dict[str, float] = field(default_factory=dict)  # bytes of pixels/s of a GPU by coding
    decode_error: float = 0.0  # how far these rates may be off, as a part: 0.3 is 30 %
    train_rate: float | None = None  # images a second of one GPU's training step; None: not known
    sources: dict[str, str] = field(default_factory=dict)  # origin of each number


def host_names() -> list[str]:
    """The names of the descriptions that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def read_host(name: Path | str) -> HostFile:
    """Reads a description: a file, or one that comes with the package by its name.

    Raises:
        UsageError: it cannot be read, or is not valid; names the field.
    """
    path = Path(name)
    if str(name) in host_names():
        path = _FOLDER / f"{name}.json"
    elif not path.suffix and not path.exists():
        raise UsageError(f"{name}: no such host; use {', '.join(host_names())}, or a FILE")
    return read_file(HostFile, path, "host", _check_host_file)


def _check_host_file(host: HostFile) -> None:
    check_host(host)
    if host.gpu is not None and not host.decode:
        raise UsageError("decode is empty; a rate for rans or packed is needed")
    for coding, rate in host.decode.items():
        if coding not in L3_FORMATS or not rate:
            raise UsageError(
                f"decode[{coding!r}] must be a rate above 0 of {', '.join(L3_FORMATS)}"
            )
    if host.decode_error >= 1 or host.train_rate == 0:
        raise UsageError("decode_error must be below 1, and train_rate above 0")


def on_host(profile: Profile, host: HostFile) -> Profile:
    """The profile moved to another host. CPU times of decoding stay those of the profiled host."""
    there = Host(**{each.name: getattr(host, each.name) for each in fields(Host)})
    if host.file_system is not None:  # read over the network
        there = replace(there, disk=None)
    elif host.disk is not None:
        there = replace(there, network=None)
    training = profile.training
    if host.train_rate is not None:
        training = Training(host.train_rate * host.nodes * host.gpus)
    groups = without_gpu(profile).groups
    if host.gpu is not None:
        for name, samples in by_group(profile.samples).items():
            fits, density = groups[name], bytes_of_a_pixel(samples)
            cpu, gpu = dict(fits.cpu_seconds), {}
            for coding in host.decode.keys() & fits.sizes.keys():
                cpu[cost_key(coding, MIXED)] = _CPU_SECONDS
                cpu[cost_key(coding, CACHE)] = Linear(base=_PLANNING_SECONDS)
                gpu[cost_key(coding, MIXED)] = Linear(per_pixel=density / host.decode[coding])
            groups[name] = replace(fits, cpu_seconds=cpu, gpu_seconds=gpu)
    return replace(profile, host=there, training=training, groups=groups)
