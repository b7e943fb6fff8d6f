"""What images cost by format and place on a host: `l3 profile` measures it, plans read it."""

from __future__ import annotations

import functools
import json
import math
import types
import typing
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Union

from l3dali.console import shortened
from l3dali.datasets.convert.choosing import JPEG as JPEG
from l3dali.datasets.convert.choosing import SOURCE as SOURCE
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

FORMAT = "l3-profile"
VERSION = 1

DEFAULT_SAMPLES = 200  # images that are measured
DEFAULT_SECONDS = 100.0  # that this takes, about
DEFAULT_BATCH = 32  # images that pipelines decode at a time

# Formats that an image may be stored in. The source costs no conversion; JPEG is lossy: for sources
# that are not, and only where it is allowed.
L3_FORMATS = ("rans", "packed", "stored")
FORMATS = (SOURCE, *L3_FORMATS, JPEG)

# Places where an image may be decoded.
CPU = "cpu"
MIXED = "mixed"  # uploaded encoded, decoded by the GPU
CACHE = "cache"  # encoded in GPU memory since the first epoch
PLACES = (CPU, MIXED, CACHE)

MOST_PIXELS = 2**31  # of an image: L3 has no more
_MOST_RAW_BYTES = 8 * MOST_PIXELS  # of its samples; more than four channels count as more pixels
_LARGEST = 1e18  # of any number in a file; sums and products of them stay finite
_SMALLEST = 1e-18  # what is smaller is 0: quotients stay finite

Parsed = TypeVar("Parsed")
Value = TypeVar("Value", float, "npt.NDArray[np.float64]")


@dataclass(frozen=True)
class Linear:
    """base + per_byte * bytes + per_pixel * pixels.

    Attributes:
        base: for each image.
        per_byte: for each byte.
        per_pixel: for each pixel.
        error: the median relative error on images that the fit has not seen.
    """

    base: float = 0.0
    per_byte: float = 0.0
    per_pixel: float = 0.0
    error: float = 0.0

    def __call__(self, size: Value, pixels: Value) -> Value:
        """The value for an image, or those for arrays of images."""
        return self.base + self.per_byte * size + self.per_pixel * pixels


@dataclass(frozen=True)
class Fits:
    """The costs of a group of images that are alike, by `group_of`.

    Attributes:
        images: how many of the whole data set.
        source_bytes: of these together.
        sizes: by format, bytes as stored, from bytes and pixels of the source.
        cpu_seconds: by `format@place`, thread CPU seconds to read, decode and hand over an image,
            from its bytes as stored and its pixels.
        gpu_seconds: likewise, of the GPU at the batch that was measured.
        borrowed: the group whose fits these are, scaled to few images; "" if they are its own.
        encode_seconds: by format, CPU seconds to convert an image, from its source.
    """

    images: int
    source_bytes: int
    sizes: dict[str, Linear]
    cpu_seconds: dict[str, Linear]
    gpu_seconds: dict[str, Linear] = field(default_factory=dict)
    borrowed: str = ""
    encode_seconds: dict[str, Linear] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """One image that was measured.

    Attributes:
        name: of its file, or its place in a shard.
        group: a key of `Profile.groups`.
        source_bytes: its size.
        pixels: width times height.
        raw_bytes: of its samples.
        weight: how many images of the data set it stands for.
        sizes: by format, bytes.
        cpu_seconds: by `format@place`.
        gpu_seconds: by `format@place`.
        encode_seconds: by format, CPU seconds to make it from the decoded source.
    """

    name: str
    group: str
    source_bytes: int
    pixels: int
    raw_bytes: int
    weight: float
    sizes: dict[str, int]
    cpu_seconds: dict[str, float]
    gpu_seconds: dict[str, float] = field(default_factory=dict)
    encode_seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Host:
    """What a machine gives each second. None: unlimited, or not there.

    Attributes:
        cores: how many decode.
        disk: bytes read a second, of files of this size that are not in memory.
        network: bytes received a second, where the data comes over a network.
        upload: bytes copied to a GPU a second, from pinned memory.
        gpu: its name.
        gpu_cache: bytes of a GPU's memory for encoded images.
        efficiency: what a pipeline reaches of the cores, 0 to 1; from one run end to end.
        gpus: of the machine, all alike.
        switch: bytes a second to each GPU while all behind its PCIe switch are served.
        nodes: machines like this that train together.
        file_system: bytes a second that all nodes together read from the one they share.
    """

    cores: float
    disk: float | None = None
    network: float | None = None
    upload: float | None = None
    gpu: str | None = None
    gpu_cache: float | None = None
    efficiency: float = 1.0
    gpus: int = 1
    switch: float | None = None
    nodes: int = 1
    file_system: float | None = None


@dataclass(frozen=True)
class Training:
    """The step that the images are for.

    Attributes:
        samples_per_second: what it takes when it never waits, on all GPUs of all nodes together.
        gpu_share: of the GPU's time that the step leaves to decoding beside it, 0 to 1.
    """

    samples_per_second: float
    gpu_share: float = 0.0


@dataclass(frozen=True)
class Profile:
    """A measured data set on a measured host.

    Attributes:
        sources: the arguments that named the data set.
        fingerprint: a hash of names and sizes of its files.
        images: in all.
        host: where it was measured.
        groups: by group, its costs.
        samples: the images that were measured.
        training: the step, if it is known.
        labels: names of label maps, as `l3 convert` takes them.
        made: commit or version, machine, processor, date.
        notes: what was not measured, or not as it should be, for people.
    """

    sources: list[str]
    fingerprint: str
    images: int
    host: Host
    groups: dict[str, Fits]
    samples: list[Sample]
    training: Training | None = None
    labels: list[str] = field(default_factory=list)
    made: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        """The text of a profile file."""
        data = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return json.dumps(data, indent=1, allow_nan=False)


def without_gpu(profile: Profile) -> Profile:
    """The profile as if there were no GPU: pixels are wanted in the memory of the host."""
    end = f"@{CPU}"

    def on_cores(costs: dict[str, Parsed]) -> dict[str, Parsed]:
        return {key: cost for key, cost in costs.items() if key.endswith(end)}

    return replace(
        profile,
        host=replace(profile.host, upload=None, gpu=None, gpu_cache=None, gpus=1, switch=None),
        groups={
            name: replace(fits, cpu_seconds=on_cores(fits.cpu_seconds), gpu_seconds={})
            for name, fits in profile.groups.items()
        },
        samples=[
            replace(sample, cpu_seconds=on_cores(sample.cpu_seconds), gpu_seconds={})
            for sample in profile.samples
        ],
    )


def cost_key(stored_as: str, place: str) -> str:
    """The key of a format and a place in `cpu_seconds` and `gpu_seconds`."""
    return f"{stored_as}@{place}"


def read_profile(path: Path | str) -> Profile:
    """Reads a profile file, and checks all of it.

    Raises:
        UsageError: it cannot be read, is damaged, or of another version; says what is wrong where.
    """
    return read_as(parse_profile, path)


def parse_profile(text: bytes | str) -> Profile:
    """The profile that `Profile.to_json` has written.

    Raises:
        UsageError: as `read_profile`.
    """
    profile: Profile = parse_as(Profile, fields_of(text, "profile", VERSION), "")
    _check_profile(profile)
    return profile


def read_as(parse: Callable[[bytes], Parsed], path: Path | str) -> Parsed:
    """What `parse` makes of a file; errors name it.

    Raises:
        UsageError: it cannot be read, or `parse` says so, as of one that is too large.
    """
    try:
        with Path(path).open("rb") as file:
            return parse(file.read(max(MOST_BYTES.values()) + 1))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


# Far more than any has: a profile of 60,000 samples fits. json.loads hears no Ctrl-C.
MOST_BYTES = {"profile": 2**26, "plan": 2**23, "host": 2**20}
_KINDS = {"l3-profile": "profile", "l3-plan": "plan", "l3-host": "description of a host"}


def fields_of(text: bytes | str, kind: str, version: int) -> dict[str, Any]:
    """The fields of a JSON file that `l3 KIND` has written.

    Raises:
        UsageError: it is no such file, too large, or of another version.
    """
    if len(text) > MOST_BYTES[kind]:
        raise UsageError(f"a {_KINDS[f'l3-{kind}']} has at most {MOST_BYTES[kind]} bytes")
    try:
        data: dict[str, Any] = json.loads(text)
    except UnicodeDecodeError:
        raise UsageError(f"no {kind} of l3 {kind}, which is JSON") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"no whole JSON: {error}") from None
    named = data.pop("format", None) if isinstance(data, dict) else None
    if named != f"l3-{kind}":
        is_known = isinstance(named, str) and named in _KINDS
        is_what = f"a {_KINDS[named]}, not a" if is_known else "no"
        remedy = "" if kind == "host" else f"; l3 {kind} makes one"
        raise UsageError(f"this is {is_what} {_KINDS[f'l3-{kind}']}{remedy}")
    found = data.pop("version", None)
    if found != version:
        raise UsageError(f"a {kind} of version {found}; this l3 reads version {version}")
    return data


def parse_as(kind: Any, value: Any, where: str) -> Any:
    """The value as the annotated type `kind`; of numbers, finite ones of at least 0 alone."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):  # with None
        return None if value is None else parse_as(arguments[0], value, where)
    if is_dataclass(kind):
        return _parsed_fields(kind, value, where)
    if origin is dict and isinstance(value, dict):
        kind = arguments[1]
        # Each goes into the names of all that is below it.
        names = {key: f"{where}[{shortened(key)!r}]" for key in value}
        return {key: parse_as(kind, each, names[key]) for key, each in value.items()}
    if origin is list and isinstance(value, list):
        return [parse_as(arguments[0], each, f"{where}[{i}]") for i, each in enumerate(value)]
    if kind is str and isinstance(value, str):
        return value
    if kind in (int, float) and isinstance(value, (int, kind)) and not isinstance(value, bool):
        number = kind(value) if abs(value) <= _LARGEST else math.inf
        if 0 <= number <= _LARGEST:  # not NaN
            return number if number >= _SMALLEST else kind(0)
        shown = str(value)[:24]
        raise UsageError(f"{where} is {shown}; a number from 0 to {_LARGEST:g} is needed")
    name = getattr(origin or kind, "__name__", str(kind))
    raise UsageError(f"{where or 'the profile'} is {type(value).__name__}, not {name}")


def _parsed_fields(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise UsageError(f"{where or 'the profile'} is {type(value).__name__}, not an object")
    hints = _hints_of(kind)
    known = {each.name: each for each in fields(kind)}
    prefix = f"{where}." if where else ""
    for name in value:
        if name not in known:
            raise UsageError(f"{prefix}{name} is not known")
    for name, each in known.items():
        needed = each.default is MISSING and each.default_factory is MISSING
        if needed and name not in value:
            raise UsageError(f"{prefix}{name} is missing")
    return kind(
        **{name: parse_as(hints[name], each, f"{prefix}{name}") for name, each in value.items()}
    )


_hints_of = functools.cache(typing.get_type_hints)  # of each record: more than half of a reading


def _check_profile(profile: Profile) -> None:
    if not profile.groups or not profile.samples or not profile.images:
        raise UsageError("it has no images")
    host = profile.host
    positive: dict[str, float | None] = {
        f"host.{name}": getattr(host, name)
        for name in (
            *("cores", "disk", "network", "upload", "efficiency"),
            *("gpus", "switch", "nodes", "file_system"),
        )
    }
    if profile.training is not None:
        positive["training.samples_per_second"] = profile.training.samples_per_second
        if profile.training.gpu_share > 1:
            raise UsageError(f"training.gpu_share is {profile.training.gpu_share}, above 1")
    for where, number in positive.items():
        if number == 0:
            raise UsageError(f"{where} is 0")
    if host.efficiency > 1:
        raise UsageError(f"host.efficiency is {host.efficiency}, above 1")
    costs: list[tuple[str, Fits | Sample]] = [
        *((f"groups[{name!r}]", fits) for name, fits in profile.groups.items()),
        *((f"samples[{i}]", sample) for i, sample in enumerate(profile.samples)),
    ]
    known = {cost_key(name, place) for name in FORMATS for place in PLACES}
    for where, each in costs:
        if isinstance(each, Sample) and each.group not in profile.groups:
            raise UsageError(f"{where}.group is {each.group!r}, which is not among the groups")
        if isinstance(each, Sample) and not (each.pixels and each.source_bytes and each.weight):
            raise UsageError(f"{where} has no pixels, no bytes or no weight")
        if isinstance(each, Sample):
            for name, most in (("pixels", MOST_PIXELS), ("raw_bytes", _MOST_RAW_BYTES)):
                if getattr(each, name) > most:
                    raise UsageError(f"{where}.{name} is {getattr(each, name)}, above {most}")
        if SOURCE not in each.sizes:
            raise UsageError(f"{where}.sizes has no {SOURCE!r}")
        for name in each.sizes.keys() - set(FORMATS):
            raise UsageError(f"{where}.sizes has the unknown format {name!r}")
        for name in (each.cpu_seconds.keys() | each.gpu_seconds.keys()) - known:
            raise UsageError(f"{where} has costs of the unknown {name!r}")
