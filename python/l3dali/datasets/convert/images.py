"""Images of data sets: how they are named, recognized, chosen and counted."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from l3dali import codec
from l3dali.console import shortened
from l3dali.images.formats import WRITERS
from l3dali.images.npy import is_image_array
from l3dali.signatures import PNG_SIGNATURE, READ_SUFFIXES, format_of, suffix_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from l3dali.arguments import Layout
    from l3dali.images.picture import Header, Palette

SOURCE_FORMAT = "source"  # target: the original format of each image
TARGETS = ("l3", *(suffix[1:] for suffix in WRITERS), SOURCE_FORMAT)
ON_ERROR = ("fail", "keep", "drop")
MOST_NAME = 1000  # characters at the end of a field's name, which each of its images gets
# TIFFs in which GDAL has smaller copies, or a mask, of the image beside them: `0.tif.msk`
_BESIDE = re.compile(r"(\.ovr|\.[^./]+\.msk)\Z", re.IGNORECASE)
_WRITTEN = frozenset(suffix[1:] for suffix in WRITERS)
_KNOWN_SUFFIXES = READ_SUFFIXES | {".l3"}
# What an image may be stored as, besides modes of the encoder and `png`.
SOURCE = "source"  # it stays as it is
UNKNOWN = "unknown"  # what a plan would choose for an image whose header is damaged
_PNG_COLOR_TYPES = {0: "gray", 2: "rgb", 3: "palette", 4: "gray+alpha", 6: "rgba"}


class Seen(NamedTuple):
    """What a plan chooses by."""

    name: str  # the place of the image
    group: str  # by `group_of`
    source_bytes: int
    pixels: int  # width times height


class Chooser(Protocol):
    """A plan: it chooses what each image of a data set is stored as."""

    @property
    def identity(self) -> str:
        """A short text that differs where choices do."""

    def choose(self, image: Seen) -> str:
        """What an image is to be stored as. The same image gets the same on any machine."""


@dataclass(frozen=True)
class Options:
    """How to convert images. Results depend on all but `verify` and the last three."""

    to: str = "l3"  # one of `TARGETS`
    coding: codec.FileCoding | None = None  # see `l3dali.transcode`
    effort: int = codec.DEFAULT_EFFORT  # see `l3dali.encode`
    labels: tuple[str, ...] = ()  # ends of names of label maps, or patterns of whole names
    on_error: str = "keep"  # what becomes of an image that cannot be converted: one of `ON_ERROR`
    max_pixels: int = codec.DEFAULT_MAX_PIXELS  # an image of more is not decoded
    verify: bool = True  # decode each result and compare it with its source
    plan: Chooser | None = None  # chooses the format of each image, in place of `coding`
    layout: Layout | None = None  # of .npy files; see `l3dali.encode`
    dicom_tags: tuple[str, ...] = ()  # see `l3dali.transcode`
    orient: bool = False  # see `l3dali.transcode`
    max_side: int | None = None  # see `l3dali.transcode`
    palette: Palette = "rgb"  # see `l3dali.transcode`
    volumes: bool = False  # see `l3dali.transcode`
    channels: tuple[int, ...] | None = None  # to decode, on the way back; None: all
    keep_text: bool = False  # see `read_picture`
    refuse_labels: bool = True  # see `read_picture`
    keep_suffix: bool = True  # keep the suffix of the source, for the way back
    all_images: bool = False  # a file that is no image fails; else it is copied
    keep_refused: bool = False  # JPEG files that coding "jpeg" does not support; else pixels
    restore_jpeg: bool = False  # on the way back, whatever `to` is
    careful: bool = False  # read each image in a process of its own, with limits by its header
    worker_memory: int = 2**32  # bytes that a worker may take to read files of other formats

    def labels_of(self, *names: str) -> list[str]:
        """The `labels` that match one of an image's names; `*` in a pattern matches `/` too."""
        return [
            label
            for label in self.labels
            for is_pattern in [not set("*?[").isdisjoint(label)]
            if any(fnmatchcase(n, label) if is_pattern else n.endswith(label) for n in names)
        ]

    def reading(self, *, labels: bool) -> dict[str, Any]:
        """The arguments of `read_picture`."""
        names = ("max_pixels", "layout", "dicom_tags", "orient", "max_side", "palette", "volumes")
        others = ("keep_text", "refuse_labels")
        return {"labels": labels} | {name: getattr(self, name) for name in names + others}

    @cached_property
    def identity(self) -> str:
        """One text for all options that make the same results."""
        is_l3, has_plan = self.to == "l3", self.plan is not None
        values = {
            "to": self.to,
            "coding": self.coding or "jpeg" if is_l3 and not has_plan else None,
            "effort": self.effort if is_l3 else None,
            "refused": "keep" if self.keep_refused else None,
            "labels": ",".join(sorted(re.sub(r"[\\,]", r"\\\g<0>", x) for x in self.labels)),
            "on-error": self.on_error,
            "max-pixels": self.max_pixels,
            "plan": None if self.plan is None else self.plan.identity,
            "layout": self.layout,
            "dicom-tags": ",".join(self.dicom_tags) or None,
            "orient": "yes" if self.orient else None,
            "volumes": "yes" if self.volumes else None,
            "max-side": self.max_side,
            "palette": self.palette if self.palette != "rgb" else None,
            "channels": None if self.channels is None else ",".join(map(str, self.channels)),
        }
        return " ".join(f"{name}={value}" for name, value in values.items() if value is not None)

    @cached_property
    def accepted(self) -> set[str]:
        """The identities whose results need no conversion. Until 1.0.0 the default was rans."""
        before = {replace(self, coding="rans").identity} if self.coding is None else set()
        return {self.identity} | before


@dataclass(frozen=True)
class Blob:
    """Bytes of a data set that may be an image."""

    name: str  # of the file or the field; its suffix may say that it should be an image
    data: bytes  # the bytes
    place: str  # where in the shard it is, for people
    column: str = ""  # that it is in, of a table

    @property
    def names(self) -> tuple[str, ...]:
        """What `Options.labels` may name it by."""
        return (self.name, self.column) if self.column else (self.name,)


@dataclass(frozen=True)
class Outcome:
    """The result of converting an image."""

    format: str  # of the source
    source_bytes: int  # its size
    stored_as: str  # a coding or a suffix; `SOURCE`: it stays as it is
    data: bytes | None = None  # the result; None if there is none
    raw_bytes: int = 0  # the size of the pixels
    pixels_hash: bytes = b""  # of shape, type and samples
    expanded: bool = False  # it held numbers of palette entries, and the result has their colours
    substituted: bool = False  # it has come back in another format than the one it came from
    suffix: str = "l3"  # of the result's name, without a dot
    labels: str = ""  # the kind of a label map, as `gray of 16 bits`
    remarks: tuple[str, ...] = ()  # what is left out beside the pixels
    failure: str = ""  # why there is no result
    transient: str = ""  # what another run may have: "memory", or a missing "package"

    @property
    def failed(self) -> bool:
        """Whether the image could not be converted, or is damaged where it was to be kept."""
        return bool(self.failure)


@dataclass
class Entry:
    """A part of a shard: a member of an archive, a record, some rows."""

    blobs: Sequence[Blob]  # its data that may be images

    @property
    def bytes(self) -> int:
        """What it holds in memory."""
        return sum(len(blob.data) for blob in self.blobs)


Outcomes = list["Outcome | None"]
SomeEntry = TypeVar("SomeEntry", bound=Entry)


class Converter(Protocol):
    """Converts the images of a shard; see `pool.ImagePool`."""

    options: Options

    def convert(self, entries: Iterable[SomeEntry]) -> Iterator[tuple[SomeEntry, Outcomes]]:
        """Yields each entry with the outcomes of its blobs; None for data that is not an image."""


def is_apple_double(name: str) -> bool:
    """Whether macOS keeps attributes of another file in a file of this name, as `._0.png`."""
    return name.rpartition("/")[2].startswith("._")


def has_image_suffix(name: str, options: Options) -> bool:
    """Whether a file of this name should be an image to convert."""
    suffixes = READ_SUFFIXES if options.to == "l3" else {".l3"}
    return suffix_of(name).lower() in suffixes and not is_apple_double(name)


def may_be_image(name: str, head: bytes, options: Options) -> bool:
    """Whether `convert_image` may convert a file that begins with `head`."""
    if options.all_images:
        return True
    found = format_of(head)[0]
    if found == "tiff" and _BESIDE.search(name[-MOST_NAME:]):
        return False
    if found == "npy" and not is_image_array(head):
        return False
    if found and (found == "l3") == (options.to != "l3"):
        return True
    return has_image_suffix(name, options) and found not in ("l3", "png")


def renamed(name: str, new_suffix: str) -> str:
    """The name of an image's result: with another suffix, or one more."""
    suffix = suffix_of(name)
    stem = name[: -len(suffix)] if suffix.lower() in _KNOWN_SUFFIXES else name
    if suffix == ".l3" and stem.endswith(f".{new_suffix}"):
        return stem  # `l3_names` kept it.
    return f"{stem}.{new_suffix}"


def l3_names(names: Iterable[str]) -> dict[str, str]:
    """The names of images' results. Images that would get one name keep their suffix.

    So `0.jpg` and `0.png` become `0.jpg.l3` and `0.png.l3`, which `renamed` turns back.
    """
    results = {name: renamed(name, "l3") for name in names}
    counts = Counter(results.values())
    for name, new in results.items():
        if counts[new] > 1 or renamed(new, suffix_of(name)[1:]) != name:
            results[name] = f"{name}.l3"
    return results


def result_names(name: str, options: Options, l3_name: str | None = None) -> list[str]:
    """The names that a file's result may get. A file without a known suffix may be an image."""
    is_image = has_image_suffix(name, options)
    if not is_image and suffix_of(name).lower() in _KNOWN_SUFFIXES:
        return [name]
    is_source = options.to == SOURCE_FORMAT
    suffixes = sorted(_WRITTEN | {"jpg", "jpeg"}) if is_source else [options.to]
    names = [l3_name] if l3_name else [renamed(name, suffix) for suffix in suffixes]
    keeps_some = options.plan is not None or options.keep_refused
    return [*names, name] if keeps_some or not is_image else names


def group_of(data: bytes, header: Header, *, labels: bool = False, is_refused: bool = False) -> str:
    """The group of an image, as `png rgb 8` (bits) or `jpeg 3` (bytes a pixel).

    Args:
        data: its bytes, or the first 32 of them.
        header: of the image.
        labels: its samples are numbers of classes.
        is_refused: coding "jpeg" does not support it.
    """
    name = f"{header.format} {header.raw_bytes // (header.width * header.height)}"
    if data.startswith(PNG_SIGNATURE):
        name = f"png {_PNG_COLOR_TYPES.get(data[25], '?')} {data[24]}"
    return name + " labels" * labels + " refused" * is_refused


def has_numbers(group: str) -> bool:
    """Whether its images are PNG label maps whose numbers other decoders change.

    They make colours of palettes, and scale gray of few bits.
    """
    few_bits = [f"png gray {bits} labels" for bits in (1, 2, 4)]
    return group in few_bits or (group.startswith("png palette") and group.endswith(" labels"))


@dataclass(slots=True)
class FormatTotals:
    """Sums over the images of one format."""

    images: int = 0  # how many
    source_bytes: int = 0  # of their files
    result_bytes: int = 0  # of what became of them
    raw_bytes: int = 0  # of their samples
    expanded: int = 0  # palette images that became colours
    substituted: int = 0  # images that came back in another format than the one they came from

    def add(self, other: FormatTotals) -> None:
        """Adds other sums."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True, kw_only=True)
class Sums:
    """Sums over images."""

    formats: dict[str, FormatTotals] = field(default_factory=dict)  # by format of the source
    stored: Counter[str] = field(default_factory=Counter)  # images by format
    labels: Counter[str] = field(default_factory=Counter)  # images by the `--labels` that name them
    label_kinds: Counter[str] = field(default_factory=Counter)  # label maps by kind
    remarks: Counter[str] = field(default_factory=Counter)  # images by what they leave out

    @property
    def total(self) -> FormatTotals:
        """The sum over all formats."""
        total = FormatTotals()
        for one in self.formats.values():
            total.add(one)
        return total


@dataclass(slots=True, kw_only=True)
class Totals(Sums):
    """What images came to."""

    failures: list[tuple[str, str]] = field(default_factory=list)  # where, and why
    transient: str = ""  # why another run may have other results, as in `Outcome`, between blanks

    def add(self, blob: Blob, outcome: Outcome, options: Options) -> None:
        """Counts one image."""
        self.labels.update(options.labels and options.labels_of(*blob.names))
        if outcome.transient:
            self.transient = " ".join(sorted({*self.transient.split(), outcome.transient}))
        if outcome.failed:
            self.failures.append((shortened(blob.place), shortened(outcome.failure)))
            return
        self.stored[outcome.stored_as] += 1
        self.remarks.update(outcome.remarks)
        if outcome.labels:
            self.label_kinds[outcome.labels] += 1
        totals = self.formats.setdefault(outcome.format, FormatTotals())
        totals.images += 1
        totals.source_bytes += outcome.source_bytes
        totals.result_bytes += len(blob.data if outcome.data is None else outcome.data)
        totals.raw_bytes += outcome.raw_bytes
        totals.expanded += outcome.expanded
        totals.substituted += outcome.substituted
