"""Profiles: the costs of images by format and place on a host, and their files."""

from __future__ import annotations

import functools
import json
import math
import types
import typing
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from l3dali.datasets.convert.images import SOURCE as SOURCE
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_VERSION = 1  # of files

DEFAULT_SAMPLES = 200
DEFAULT_SECONDS = 100.0
DEFAULT_BATCH = 32
DEFAULT_MIN_GAIN = 0.03  # of each additional format in a plan

# Formats that an image may be stored in.
L3_FORMATS = ("jpeg", "rans", "packed", "stored")  # jpeg: of JPEG files that it supports
FORMATS = (SOURCE, *L3_FORMATS)

# Places where an image may be decoded.
CPU = "cpu"
MIXED = "mixed"  # uploaded encoded, decoded by the GPU
CACHE = "cache"  # encoded in GPU memory since the first epoch
CROP = "crop"  # a key beside formats
PLACES = (CPU, MIXED, CACHE)

Record = TypeVar("Record")


@dataclass(frozen=True)
class Linear:
    """base + per_byte * bytes + per_pixel * pixels."""

    base: float = 0.0  # for each image
    per_byte: float = 0.0  # for each byte
    per_pixel: float = 0.0  # for each pixel

    def __call__(self, size: float, pixels: float) -> float:
        """The value for an image."""
        return self.base + self.per_byte * size + self.per_pixel * pixels


@dataclass(frozen=True)
class Fits:
    """The costs of a group of images that are alike, by `group_of`."""

    images: int  # how many of the whole data set
    source_bytes: int  # of these together
    sizes: dict[str, Linear]  # by format, bytes as stored, from bytes and pixels of the source
    cpu_seconds: dict[str, Linear]  # to read and decode, by `format@place`, from stored bytes
    gpu_seconds: dict[str, Linear] = field(default_factory=dict)  # likewise of the GPU
    raw_bytes: float = 0.0  # of a pixel; of fits in plans
    # of an image that a crop decodes, by format; "crop": of its pixels; of fits in plans
    parts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """One image that was measured."""

    name: str  # of its file, or its place in a shard
    group: str  # a key of `Profile.groups`
    source_bytes: int  # its size
    pixels: int  # width times height
    raw_bytes: int  # of its samples
    weight: float  # how many images of the data set it stands for
    sizes: dict[str, int]  # by format, bytes
    cpu_seconds: dict[str, float]  # by `format@place`
    gpu_seconds: dict[str, float] = field(default_factory=dict)  # by `format@place`
    # height and width, under "crop" of the image, by format of L3 of its tiles
    tiles: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Host:
    """The resources of a machine, a second. None: unlimited, or missing."""

    cores: float  # how many decode
    disk: float | None = None  # bytes read a second, of files of this size that are not in memory
    network: float | None = None  # bytes received a second, where the data comes over a network
    upload: float | None = None  # bytes copied to a GPU a second, from pinned memory
    gpu: str | None = None  # its name
    gpu_cache: float | None = None  # bytes of a GPU's memory for encoded images
    efficiency: float = 1.0  # what a pipeline reaches of the cores, 0 to 1; from one run end to end
    gpus: int = 1  # of the machine, all alike
    switch: float | None = None  # bytes/s to each GPU behind a shared PCIe switch
    nodes: int = 1  # machines like this that train together
    file_system: float | None = None  # bytes/s of all nodes together


@dataclass(frozen=True)
class Training:
    """The step that the images are for."""

    samples_per_second: float  # of all GPUs together, when none waits for data


@dataclass(frozen=True)
class Profile:
    """A measured data set on a measured host."""

    sources: list[str]  # the arguments that named the data set
    images: int  # in all
    host: Host  # where it was measured
    groups: dict[str, Fits]  # by group, its costs
    samples: list[Sample]  # the images that were measured
    training: Training | None = None  # the step, if it is known
    labels: list[str] = field(default_factory=list)  # as in `l3 convert`
    made: dict[str, str] = field(default_factory=dict)  # version, machine, date
    notes: list[str] = field(default_factory=list)  # what was not measured

    def to_json(self) -> str:
        """The text of a profile file."""
        return to_text(self, "profile")


def by_group(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """The samples of each group."""
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.group, []).append(sample)
    return dict(sorted(groups.items()))


def bytes_of_a_pixel(samples: Sequence[Sample]) -> float:
    """The mean bytes of a decoded pixel."""
    raw_bytes = sum(each.weight * each.raw_bytes for each in samples)
    return raw_bytes / sum(each.weight * each.pixels for each in samples)


def without_gpu(profile: Profile) -> Profile:
    """The profile without a GPU: pixels are decoded to the memory of the host."""

    def on_cores(fits: Fits) -> Fits:
        kept = {key: line for key, line in fits.cpu_seconds.items() if key.endswith(f"@{CPU}")}
        return replace(fits, cpu_seconds=kept, gpu_seconds={})

    return replace(
        profile,
        host=replace(profile.host, upload=None, gpu=None, gpu_cache=None, gpus=1, switch=None),
        groups={name: on_cores(fits) for name, fits in profile.groups.items()},
    )


def cost_key(stored_as: str, place: str) -> str:
    """The key of a format and a place in `cpu_seconds` and `gpu_seconds`."""
    return f"{stored_as}@{place}"


def read_profile(path: Path | str) -> Profile:
    """Reads a profile file.

    Raises:
        UsageError: it cannot be read, is damaged, or has another version; names the field.
    """
    return read_file(Profile, path, "profile", lambda profile: check_host(profile.host))


_KINDS = {"l3-profile": "profile", "l3-plan": "plan", "l3-host": "description of a host"}


def to_text(record: Any, kind: str) -> str:
    """The JSON of a dataclass that is a profile or a plan."""
    data = {"format": f"l3-{kind}", "version": _VERSION, **asdict(record)}
    return json.dumps(data, indent=1, allow_nan=False)


def read_file(
    record: type[Record], path: Path | str, kind: str, check: Callable[[Record], None]
) -> Record:
    """Reads the JSON of a profile, a plan or a host as the dataclass `record`.

    Raises:
        UsageError: the file cannot be read, is no such file or of another version, or `check`
            raises this; names the file, and the field.
    """
    try:
        found: Record = _parse(record, _content(Path(path).read_bytes(), record, kind), "")
        check(found)
    except (OSError, UsageError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    return found


def _content(text: bytes, record: Any, kind: str) -> dict[str, Any]:
    """The fields in the JSON of a file of this kind."""
    what = _KINDS[f"l3-{kind}"]
    try:
        data: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not a complete JSON file: {error}") from None
    named = data.pop("format", None) if isinstance(data, dict) else None
    if named != f"l3-{kind}":
        found = f" but a {_KINDS[named]}" if named in list(_KINDS) else ""
        raise UsageError(f"not a {what}{found}")
    if (found := data.pop("version", None)) != _VERSION:
        raise UsageError(f"a {what} of version {found}; this l3 reads version {_VERSION}")
    if kind == "host":  # written by hand
        for name in data.keys() - {each.name for each in fields(record)}:
            raise UsageError(f"unknown field {name}")
    return data


def _parse(kind: Any, value: Any, where: str) -> Any:
    """The value as the annotated type `kind`; numbers are finite and at least 0."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, types.UnionType):  # with None
        return None if value is None else _parse(arguments[0], value, where)
    is_record = is_dataclass(kind)
    if is_record and isinstance(value, dict):
        parsed = {}
        for each in fields(kind):
            place = f"{where}.{each.name}".lstrip(".")
            if each.name in value:
                parsed[each.name] = _parse(_hints_of(kind)[each.name], value[each.name], place)
            elif each.default is MISSING and each.default_factory is MISSING:
                raise UsageError(f"{place} is missing")
        return kind(**parsed)
    if origin is dict and isinstance(value, dict):
        return {key: _parse(arguments[1], each, f"{where}[{key!r}]") for key, each in value.items()}
    if origin is list and isinstance(value, list):
        return [_parse(arguments[0], each, f"{where}[{i}]") for i, each in enumerate(value)]
    if kind is str and isinstance(value, str):
        return value
    if kind in (int, float) and isinstance(value, (int, kind)) and not isinstance(value, bool):
        if 0 <= value < math.inf:  # not NaN
            return kind(value)
        raise UsageError(f"{where} must be a number of at least 0, not {value}")
    name = "object" if is_record else (origin or kind).__name__
    raise UsageError(f"{where or 'the file'} must be {name}, not {type(value).__name__}")


_hints_of = functools.cache(typing.get_type_hints)  # takes more than half of a reading


def check_host(host: Host) -> None:
    """Raises UsageError if a resource of the host is 0."""
    for each in fields(Host):
        if each.name != "gpu_cache" and getattr(host, each.name) == 0:
            raise UsageError(f"{each.name} of the host must be above 0")
