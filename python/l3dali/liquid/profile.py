"""What images cost in each format and place on a host: what `l3 profile` measures and plans read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from l3dali.batch import UsageError

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "l3-profile"
VERSION = 1

# Formats that an image may be stored in. The source costs no conversion.
SOURCE = "source"
L3_FORMATS = ("rans", "packed", "stored")
JPEG = "jpeg95"  # lossy: for sources that are not, and only where it is allowed
FORMATS = (SOURCE, *L3_FORMATS, JPEG)

# Places where an image may be decoded.
CPU = "cpu"
MIXED = "mixed"  # uploaded encoded, decoded by the GPU
CACHE = "cache"  # encoded in GPU memory since the first epoch
PLACES = (CPU, MIXED, CACHE)


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

    def __call__(self, size: float, pixels: float) -> float:
        """The value for an image."""
        return self.base + self.per_byte * size + self.per_pixel * pixels


@dataclass(frozen=True)
class Fits:
    """The costs of a group of images that are alike: one source format, channels, sample type.

    Attributes:
        images: how many of the whole data set.
        source_bytes: of these together.
        sizes: by format, bytes as stored, from bytes and pixels of the source.
        cpu_seconds: by `format@place`, thread CPU seconds to read, decode and hand over an image,
            from its bytes as stored and its pixels.
        gpu_seconds: likewise, of the GPU at the batch that was measured.
    """

    images: int
    source_bytes: int
    sizes: dict[str, Linear]
    cpu_seconds: dict[str, Linear]
    gpu_seconds: dict[str, Linear] = field(default_factory=dict)


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


@dataclass(frozen=True)
class Host:
    """What a machine gives each second. None: unlimited, or not there.

    Attributes:
        cores: how many decode.
        disk: bytes read a second, of files of this size that are not in memory.
        network: bytes received a second, where the data comes over a network.
        upload: bytes copied to the GPU a second, from pinned memory.
        gpu: its name.
        gpu_cache: bytes of its memory for encoded images.
        efficiency: what a pipeline reaches of the cores, 0 to 1; from one run end to end.
    """

    cores: float
    disk: float | None = None
    network: float | None = None
    upload: float | None = None
    gpu: str | None = None
    gpu_cache: float | None = None
    efficiency: float = 1.0


@dataclass(frozen=True)
class Training:
    """The step that the images are for.

    Attributes:
        samples_per_second: what it takes when it never waits.
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
        made: commit or version, machine, processor, date.
    """

    sources: list[str]
    fingerprint: str
    images: int
    host: Host
    groups: dict[str, Fits]
    samples: list[Sample]
    training: Training | None = None
    made: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The text of a profile file."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1)


def cost_key(stored_as: str, place: str) -> str:
    """The key of a format and a place in `cpu_seconds` and `gpu_seconds`."""
    return f"{stored_as}@{place}"
