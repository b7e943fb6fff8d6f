"""How an image becomes a result (`_from_picture`), and how a result goes back (`_turn_back`)."""

from __future__ import annotations

import io
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, cast

import numpy as np

from l3dali import codec
from l3dali.console import reason_of
from l3dali.datasets.convert.images import (
    _WRITTEN,
    SOURCE,
    SOURCE_FORMAT,
    UNKNOWN,
    Outcome,
    Seen,
    group_of,
    has_image_suffix,
    may_be_image,
)
from l3dali.errors import ImageError
from l3dali.images.formats import lossy_format, read_header, write_picture
from l3dali.images.npy import unsupported_array
from l3dali.images.reading import read_picture
from l3dali.images.transcoding import (
    LOSSY_SUFFIX_KEY,
    JpegRefusedError,
    coding_of,
    decoded_picture,
    encode_jpeg,
    encode_picture,
    jpeg_suffix,
    suffix_beyond_png,
    suffix_pairs,
)
from l3dali.metadata import VOLUME
from l3dali.signatures import FORMAT_OF_SUFFIX, format_of, suffix_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from l3dali.codec import Image
    from l3dali.datasets.convert.images import Blob, Options
    from l3dali.images.picture import Picture

_OWN = "own format"  # what `--to source` chooses, before an image is read
_DAMAGED = "damaged metadata was dropped"
_PICTURE_ONLY = "JPEG files of which only the picture comes back"
_REFUSED = {
    False: "JPEG files stored as pixels",
    True: "JPEG files kept (l3dali.pipeline.decode reads both formats)",
}
# Key-value pairs of results: the suffix of the source if it is not png. Lossy formats are not
# written again: such images come back as PNG.
_LOSSLESS_KEY, _LOSSY_KEY = "source_suffix", LOSSY_SUFFIX_KEY


def choose_format(
    blob: Blob, options: Options, *, labels: bool = False, is_refused: bool = False
) -> str:
    """How to store an image: a coding of the encoder, `png`, or the plan's choice.

    `labels`: the options name it as a label map. `is_refused`: coding "jpeg" does not support it.

    Raises:
        ImageError: the plan needs a header, and that is damaged.
    """
    if options.plan is None:
        if options.to == SOURCE_FORMAT:
            return _OWN
        if options.to != "l3":
            return options.to
        changes = labels or options.orient or options.max_side is not None
        return coding_of(blob.data, options.coding, keeps_pixels=not changes)
    header = read_header(blob.data, volumes=options.volumes)
    group = group_of(blob.data, header, labels=labels, is_refused=is_refused)
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
    if not options.all_images and name == "npy" and (reason := unsupported_array(blob.data)):
        return Outcome(name, size, SOURCE, remarks=(f"{reason}; such arrays were copied",))
    stored_as = UNKNOWN
    try:
        labels = bool(options.labels_of(*blob.names))
        stored_as = choose_format(blob, options, labels=labels)
        look = partial(read, blob.data, **options.reading(labels=labels))
        suffix, substituted, expanded, kind = "l3", False, False, ""
        remarks: tuple[str, ...] = ()
        data = None
        if stored_as == "jpeg":
            try:
                data, pixels, remarks = _keep_jpeg(blob, options, threads)
            except JpegRefusedError as error:
                stored_as = SOURCE if options.keep_refused else "rans"
                if options.plan is not None:
                    stored_as = choose_format(blob, options, labels=labels, is_refused=True)
                remarks = (f"{_REFUSED[stored_as == SOURCE]}, since {error.reason}",)
        if stored_as == SOURCE:
            look()  # Damage is found now, or in training.
            return Outcome(name, size, stored_as, remarks=remarks)
        if data is None and options.to == "l3":
            picture = look()
            pixels, expanded = picture.pixels, picture.expanded
            data = _from_picture(blob, picture, stored_as, options, threads, labels=labels)
            remarks += picture.remarks
            kind = _kind_of(picture) if labels else ""
        elif data is None:
            data, picture, suffix, substituted = _turn_back(blob, options, threads)
            pixels, stored_as = picture.pixels, suffix.lower()
            remarks = (_DAMAGED,) if picture.is_damaged else ()
    except Exception as error:  # Libraries raise anything on damaged data.
        transient = _transient_reason(error, blob.data, options)
        reason = reason_of(error)
        return failed_outcome(blob, options, reason, stored_as, transient)
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
        remarks,
    )


def failed_outcome(
    blob: Blob,
    options: Options,
    reason: str,
    stored_as: str = UNKNOWN,
    transient: str = "",
) -> Outcome | None:
    """The outcome of an image that cannot be converted; None if the blob may be no image.

    A blob that failed for another reason than damage counts as an image.
    """
    is_image = format_of(blob.data)[1] or has_image_suffix(blob.name, options)
    if not (options.all_images or transient or is_image):
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
                header = read_header(data, volumes=options.volumes)
                header.check_pixels(options.max_pixels)
                np.empty(header.read_bytes, np.uint8)  # not touched
            except MemoryError:
                return "memory"
        return ""
    return "package" if isinstance(cause, ImportError) else "memory"


def _format_name(blob: Blob) -> str:
    return format_of(blob.data)[0] or suffix_of(blob.name)[1:].lower()


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
    hasher = sha256()
    hasher.update(f"{pixels.shape} {pixels.dtype.type.__name__}".encode())
    hasher.update(np.ascontiguousarray(pixels).data)
    return bytes(hasher.digest())


def _from_picture(
    blob: Blob, picture: Picture, stored_as: str, options: Options, threads: int, *, labels: bool
) -> bytes:
    pairs = _source_pairs(blob) if options.keep_suffix else {}
    metadata = {**(picture.metadata or {}), **pairs} or None
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
        compare(codec.decode(encoded, threads=threads, max_pixels=None), picture.pixels)
    return encoded


def _keep_jpeg(blob: Blob, options: Options, threads: int) -> tuple[bytes, Image, tuple[str, ...]]:
    """The file, whose coefficients are compared with the source's; its pixels, and remarks."""
    suffix = suffix_of(blob.name)
    is_known = FORMAT_OF_SUFFIX.get(suffix.lower()) == "jpeg"
    pairs = suffix_pairs(suffix if is_known else "")
    encoded, is_restored = encode_jpeg(
        blob.data, max_pixels=options.max_pixels, threads=threads, metadata=pairs
    )
    pixels = codec.decode(encoded, threads=threads, max_pixels=None)
    return encoded, pixels, () if is_restored else (_PICTURE_ONLY,)


def _source_pairs(blob: Blob) -> dict[str, str]:
    """The key-value pairs that `--to source` needs; none for PNG files."""
    suffix, format = suffix_of(blob.name)[1:], format_of(blob.data)[0]
    if suffix == format == "png":
        return {}
    if FORMAT_OF_SUFFIX.get(f".{suffix.lower()}") != format:
        suffix = next(usual[1:] for usual, its in FORMAT_OF_SUFFIX.items() if its == format)
    if lossy_format(blob.data) is not None:
        return {_LOSSY_KEY: suffix}
    return {} if suffix == "png" else {_LOSSLESS_KEY: suffix}


def _turn_back(blob: Blob, options: Options, threads: int) -> tuple[bytes, Picture, str, bool]:
    """The file, its picture, its suffix, and whether the source had another suffix."""
    info = codec.info(blob.data)
    channels = None if options.channels is None else list(options.channels)
    pixels = codec.decode(
        blob.data, channels=channels, threads=threads, max_pixels=options.max_pixels
    )
    picture = decoded_picture(pixels, info, channels)
    if (options.restore_jpeg or options.to == SOURCE_FORMAT) and info.restores_jpeg:
        return codec.restore_jpeg(blob.data, threads=threads), picture, jpeg_suffix(info)[1:], False
    own = options.to
    if options.restore_jpeg:
        own = suffix_beyond_png(info)[1:] or own
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
            # Others than these may drop an opaque alpha.
            if options.verify or (options.to == SOURCE_FORMAT and suffix not in ("png", "tif")):
                compare(_read_back(data, picture, options), pixels)
        except ValueError as error:
            reason = reason or str(error)
        else:
            return data, picture, suffix, own not in ("", suffix)
    raise ImageError(reason)


def _read_back(data: bytes, picture: Picture, options: Options) -> Image:
    if picture.floats is not None:  # read_picture reads none
        import tifffile

        floats = tifffile.imread(io.BytesIO(data))
        return cast("Image", floats.view(np.uint16).reshape(picture.pixels.shape))
    labels = picture.palette is not None
    volumes = VOLUME in (picture.metadata or {})
    return read_picture(data, labels=labels, max_pixels=options.max_pixels, volumes=volumes).pixels


def compare(decoded: Image, source: Image) -> None:
    """Raises ValueError unless the two images are the same."""
    if (decoded.dtype, decoded.shape) != (source.dtype, source.shape):
        raise ValueError(f"the source is {_samples_of(source)}; the result {_samples_of(decoded)}")
    if not np.array_equal(_bits(decoded), _bits(source)):
        raise ValueError("the pixels of the result differ from the source's")


def _bits(image: Image) -> Image:
    return np.ascontiguousarray(image).view(f"u{image.itemsize}")


def _samples_of(image: Image) -> str:
    height, width, channels = (*image.shape, 1)[:3]
    kind = {"i": " signed", "f": " float"}.get(image.dtype.kind, "")
    return f"{width} x {height}, channels: {channels}, {8 * image.dtype.itemsize} bits{kind}"
