"""Recognizes and converts one image."""

from __future__ import annotations

import io
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from posixpath import splitext
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from l3dali import codec
from l3dali.console import reason_of
from l3dali.datasets.convert.choosing import SOURCE, UNKNOWN, Seen, group_of
from l3dali.datasets.convert.storage import new_hash
from l3dali.errors import ImageError
from l3dali.images.formats import WRITERS, lossy_format, read_header, write_picture
from l3dali.images.npy import is_image_array, unsupported_array
from l3dali.images.reading import read_picture
from l3dali.images.transcoding import decoded_picture, encode_picture
from l3dali.signatures import FORMAT_OF_SUFFIX, READ_SUFFIXES, format_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from l3dali.arguments import Layout
    from l3dali.codec import Image
    from l3dali.datasets.convert.choosing import Chooser
    from l3dali.images.picture import Picture

SOURCE_FORMAT = "source"  # target: the original format of each image
_OWN = "own format"  # what `--to source` chooses, before an image is read
TARGETS = ("l3", "png", "tif", SOURCE_FORMAT)
ON_ERROR = ("fail", "keep", "drop")
MOST_NAME = 1000  # characters at the end of a field's name, which each of its images gets

# TIFFs in which GDAL has smaller copies, or a mask, of the image beside them: `0.tif.msk`
_BESIDE = re.compile(r"(\.ovr|\.[^./]+\.msk)\Z", re.IGNORECASE)
_WRITTEN = frozenset(suffix[1:] for suffix in WRITERS)
# Key-value pairs of results: the suffix of the source if it is not png. Lossy formats are not
# written again: such images come back as PNG.
_LOSSLESS_KEY, _LOSSY_KEY = "source_suffix", "lossy_source_suffix"


@dataclass(frozen=True)
class Options:
    """How to convert images. Results depend on all up to `max_pixels`, and on `plan`."""

    to: str = "l3"  # one of `TARGETS`
    coding: codec.Coding = codec.DEFAULT_CODING  # see `l3dali.encode`
    effort: int = codec.DEFAULT_EFFORT  # see `l3dali.encode`
    labels: tuple[str, ...] = ()  # ends of names of label maps, or patterns of whole names
    on_error: str = "keep"  # what becomes of an image that cannot be converted: one of `ON_ERROR`
    max_pixels: int = codec.DEFAULT_MAX_PIXELS  # an image of more is not decoded
    verify: bool = True  # decode each result and compare it with its source
    plan: Chooser | None = None  # chooses the format of each image, in place of `coding`
    layout: Layout | None = None  # of .npy files; see `l3dali.encode`
    dicom_tags: tuple[str, ...] = ()  # see `l3dali.transcode`
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
        names = ("max_pixels", "layout", "dicom_tags")
        return {"labels": labels} | {name: getattr(self, name) for name in names}

    @cached_property
    def identity(self) -> str:
        """One text for all options that make the same results."""
        labels = ",".join(sorted(re.sub(r"[\\,]", r"\\\g<0>", x) for x in self.labels))
        encoding = [f"effort={self.effort}"] if self.to == "l3" else []
        if self.plan is None and encoding:
            encoding.insert(0, f"coding={self.coding}")
        return " ".join(
            [
                f"to={self.to}",
                *encoding,
                f"labels={labels}",
                f"on-error={self.on_error} max-pixels={self.max_pixels}",
                *([f"plan={self.plan.identity}"] if self.plan is not None else []),
                *([f"layout={self.layout}"] if self.layout else []),
                *([f"dicom-tags={','.join(self.dicom_tags)}"] if self.dicom_tags else []),
            ]
        )


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
    failure: str = ""  # why there is no result
    transient: str = ""  # what another run may have: "memory", or a missing "package"
    remarks: tuple[str, ...] = ()  # as `Picture.remarks`; why an array stays as it is

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


def is_apple_double(name: str) -> bool:
    """Whether macOS keeps attributes of another file in a file of this name, as `._0.png`."""
    return name.rpartition("/")[2].startswith("._")


def has_image_suffix(name: str, options: Options) -> bool:
    """Whether a file of this name should be an image to convert."""
    suffixes = READ_SUFFIXES if options.to == "l3" else {".l3"}
    return splitext(name)[1].lower() in suffixes and not is_apple_double(name)


def may_be_image(name: str, head: bytes, options: Options) -> bool:
    """Whether `convert_image` may convert a file that begins with `head`."""
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
    stem, suffix = splitext(name)
    return f"{stem if suffix.lower() in READ_SUFFIXES | {'.l3'} else name}.{new_suffix}"


def result_names(name: str, options: Options) -> list[str]:
    """The names that a file's result may get. A file without a known suffix may be an image."""
    is_image = has_image_suffix(name, options)
    if not is_image and splitext(name)[1].lower() in READ_SUFFIXES | {".l3"}:
        return [name]
    suffixes = sorted(_WRITTEN) if options.to == SOURCE_FORMAT else [options.to]
    names = [renamed(name, suffix) for suffix in suffixes]
    return [*names, name] if options.plan is not None or not is_image else names


def choose_format(blob: Blob, options: Options) -> str:
    """How to store an image: a coding of the encoder, `png`, or the plan's choice.

    Raises:
        ImageError: the plan needs a header, and that is damaged.
    """
    if options.plan is None:
        if options.to == SOURCE_FORMAT:
            return _OWN
        return options.coding if options.to == "l3" else options.to
    header = read_header(blob.data)
    group = group_of(blob.data, header, labels=bool(options.labels_of(*blob.names)))
    area = header.width * header.height
    return options.plan.choose(Seen(blob.place, group, len(blob.data), area))


def convert_image(
    blob: Blob,
    options: Options,
    threads: int = 1,
    read: Callable[..., Picture] = read_picture,
) -> Outcome | None:
    """The result for an image, or its failure; None if the blob is no image."""
    if not may_be_image(blob.name, blob.data, options):
        return None
    name, size = _format_name(blob), len(blob.data)
    if name == "npy" and (reason := unsupported_array(blob.data)):
        return Outcome(name, size, SOURCE, remarks=(f"{reason}; such arrays were copied",))
    stored_as = UNKNOWN
    remarks: tuple[str, ...] = ()
    try:
        stored_as = choose_format(blob, options)
        labels = bool(options.labels_of(*blob.names))
        look = partial(read, blob.data, **options.reading(labels=labels))
        if stored_as == SOURCE:
            look()  # Damage is found now, or in training.
            return Outcome(name, size, stored_as)
        if options.to == "l3":
            picture = look()
            pixels, expanded, remarks = picture.pixels, picture.expanded, picture.remarks
            data = _from_picture(blob, picture, stored_as, options, threads, labels=labels)
            suffix, substituted = "l3", False
            kind = _kind_of(picture) if labels else ""
        else:
            expanded, kind = False, ""
            data, pixels, suffix, substituted = _turn_back(blob, options, threads)
            stored_as = suffix.lower()
    except Exception as error:  # Libraries raise anything on damaged data.
        transient = _transient_reason(error, blob.data, options)
        return failed_outcome(blob, options, reason_of(error), stored_as, transient)
    return Outcome(
        name,
        size,
        stored_as,
        data,
        pixels.nbytes,
        hash_pixels(pixels),
        expanded,
        substituted,
        suffix,
        kind,
        remarks=remarks,
    )


def failed_outcome(
    blob: Blob,
    options: Options,
    reason: str,
    stored_as: str = UNKNOWN,
    transient: str = "",
    *,
    is_sure: bool = False,
) -> Outcome | None:
    """The outcome of an image that cannot be converted; None if the blob may be no image.

    A blob that `is_sure`, or failed for another reason than damage, counts as an image.
    """
    if not (
        is_sure or transient or format_of(blob.data)[1] or has_image_suffix(blob.name, options)
    ):
        return None
    format, size = _format_name(blob), len(blob.data)
    return Outcome(format, size, stored_as, failure=reason, transient=transient)


def _transient_reason(error: BaseException, data: bytes, options: Options) -> str:
    """Why another run may succeed. Some libraries report lack of memory as damage."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, MemoryError | ImportError):
        cause = cause.__cause__
    if cause is None:
        with suppress(Exception):  # Libraries raise anything on damaged data.
            try:
                header = read_header(data)
                header.check_pixels(options.max_pixels)
                np.empty(header.read_bytes, np.uint8)  # not touched
            except MemoryError:
                return "memory"
        return ""
    return "package" if isinstance(cause, ImportError) else "memory"


def _format_name(blob: Blob) -> str:
    return format_of(blob.data)[0] or splitext(blob.name)[1][1:].lower()


def _kind_of(picture: Picture) -> str:
    """The kind of a label map, as the summary names it."""
    if picture.palette is not None:
        return "palette"
    count = picture.pixels.shape[2] if picture.pixels.ndim == 3 else 1
    names = ("gray", "gray with alpha", "RGB", "RGBA")
    kind = names[count - 1] if count <= len(names) else f"{count} channels"
    return f"{kind} of 16 bits" if picture.pixels.itemsize == 2 else kind


def hash_pixels(pixels: Image) -> bytes:
    """A hash of shape, type and samples."""
    hasher = new_hash()
    hasher.update(f"{pixels.shape} {pixels.dtype.type.__name__}".encode())
    hasher.update(np.ascontiguousarray(pixels).data)
    return bytes(hasher.digest())


def _from_picture(
    blob: Blob, picture: Picture, stored_as: str, options: Options, threads: int, *, labels: bool
) -> bytes:
    metadata = {**(picture.metadata or {}), **_source_pairs(blob)} or None
    if metadata != picture.metadata:
        picture = replace(picture, metadata=metadata)
    encoded = encode_picture(
        picture,
        labels=labels,
        coding=cast("codec.Coding", stored_as),
        effort=options.effort,
        threads=threads,
    )
    if options.verify:
        _compare(codec.decode(encoded, threads=threads, max_pixels=None), picture.pixels)
    return encoded


def _source_pairs(blob: Blob) -> dict[str, str]:
    """The key-value pairs that `--to source` needs; none for PNG files."""
    suffix, format = splitext(blob.name)[1][1:], format_of(blob.data)[0]
    if suffix == format == "png":
        return {}
    if FORMAT_OF_SUFFIX.get(f".{suffix.lower()}") != format:
        suffix = next(usual[1:] for usual, its in FORMAT_OF_SUFFIX.items() if its == format)
    if lossy_format(blob.data) is not None:
        return {_LOSSY_KEY: suffix}
    return {} if suffix == "png" else {_LOSSLESS_KEY: suffix}


def _turn_back(blob: Blob, options: Options, threads: int) -> tuple[bytes, Image, str, bool]:
    """The file, its pixels, its suffix, and whether the source had another suffix."""
    info = codec.info(blob.data)
    pixels = codec.decode(blob.data, threads=threads, max_pixels=options.max_pixels)
    picture = decoded_picture(pixels, info)
    own = options.to
    candidates = [own]
    if options.to == SOURCE_FORMAT:
        pairs = picture.metadata or {}
        own = str(pairs.get(_LOSSLESS_KEY) or pairs.get(_LOSSY_KEY) or "")
        wanted = "" if pairs.get(_LOSSY_KEY) or picture.palette is not None else own
        candidates = [wanted] if wanted.lower() in _WRITTEN else []
        candidates += ["png", "tif"]
    reason = ""  # An error would keep the pixels.
    for suffix in candidates:
        try:
            data = write_picture(picture, f".{suffix.lower()}")
            if options.verify or suffix not in ("png", "tif"):  # Others may drop an opaque alpha.
                _compare(_read_back(data, picture, options), pixels)
        except ValueError as error:
            reason = reason or str(error)
        else:
            return data, pixels, suffix, own not in ("", suffix)
    raise ImageError(reason)


def _read_back(data: bytes, picture: Picture, options: Options) -> Image:
    if picture.floats is not None:  # read_picture reads none
        import tifffile

        floats = tifffile.imread(io.BytesIO(data))
        return cast("Image", floats.view(np.uint16).reshape(picture.pixels.shape))
    labels = picture.palette is not None
    return read_picture(data, labels=labels, max_pixels=options.max_pixels).pixels


def _compare(decoded: Image, source: Image) -> None:
    if decoded.dtype != source.dtype or not np.array_equal(decoded, source):
        raise ValueError("the pixels of the result differ from the source's")
