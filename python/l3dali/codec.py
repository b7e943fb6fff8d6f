"""Arrays to L3 bytes and back. Knows L3 files alone; `images` knows the other formats."""

from __future__ import annotations

import contextlib
from collections.abc import Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np

from l3dali import _native, arguments
from l3dali._native import DecodeBatch as DecodeBatch
from l3dali.arguments import DEFAULT_THREADS, Image, Layout, Window
from l3dali.arguments import MAX_PIXELS as MAX_PIXELS
from l3dali.errors import L3Error, Status
from l3dali.metadata import Volume as Volume
from l3dali.metadata import dump_metadata, load_metadata, volume_in
from l3dali.signatures import remedy_for_other

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt
    from typing_extensions import Buffer, TypeVar

    Place = tuple[str, int, int | None]  # of an L3 file: path, first byte, bytes or None
    _Outputs = TypeVar("_Outputs", bound="Image | Sequence[Image]", default=list[Image])

__all__ = [
    "CODINGS",
    "DEFAULT_MAX_PIXELS",
    "Coding",
    "EncodeOptions",
    "Image",
    "Info",
    "Window",
    "decode",
    "decode_batch",
    "encode",
    "info",
    "restore_jpeg",
    "verify",
]

#: How tiles are coded; `encode` explains each.
Coding = Literal["packed", "rans", "stored"]
CODINGS: tuple[Coding, ...] = ("packed", "rans", "stored")  #: All of them.
DEFAULT_CODING: Coding = "rans"
#: Codings of files: "jpeg", the default, keeps the coefficients of JPEG files; others are "rans".
FileCoding = Literal["packed", "rans", "stored", "jpeg"]
FILE_CODINGS: tuple[FileCoding, ...] = (*CODINGS, "jpeg")
EFFORTS = range(1, 10)
DEFAULT_EFFORT = 5
DEFAULT_MAX_PIXELS = 2**28  #: The default of `max_pixels`.


class EncodeOptions(TypedDict, total=False):
    """The options of `encode`."""

    layout: Layout | None
    coding: Coding
    effort: int
    threads: int
    tile: tuple[int, int] | None
    labels: bool
    icc: Buffer | None
    exif: Buffer | None
    palette: Buffer | None
    xmp: Buffer | None
    metadata: Mapping[str, Any] | None
    other_chunks: Buffer | None
    groups: Sequence[Sequence[int]] | None


@dataclass(frozen=True)
class Info:
    """The contents of an L3 file, without its pixels. Sizes are in pixels or bytes."""

    width: int
    height: int
    channels: int
    groups: tuple[tuple[int, ...], ...]  #: channels that decode together
    dtype: np.dtype[Any]  #: uint8, uint16, int8, int16, uint32, int32, float16 or float32
    bit_depth: int  #: 8, 16 or 32
    holding: (
        str  #: what tiles hold: "samples", or of those of 32 bits ranks in a "table", or "halves"
    )
    used_bits: int  #: bits of a coded sample, or of its index in the value table
    shift: int  #: low bits that are zero in every sample
    value_count: int  #: entries of the value table, the list of samples that occur; 0 without one
    labels: bool  #: samples are numbers of classes
    tile_width: int
    tile_height: int
    tile_count: int
    #: Number of tiles of each coding, or "unknown" for damaged ones; None for a partial file.
    codings: Mapping[str, int] | None = field(hash=False)
    encoded_bytes: int  #: size of the file
    raw_bytes: int  #: size of the pixels
    icc: bytes | None
    exif: bytes | None
    palette: bytes | None  #: R, G, B, A of each label
    palette_is_damaged: bool  #: `palette` is None because of its wrong size
    xmp: bytes | None
    metadata_json: bytes | None  #: not validated
    other_chunks: bytes  #: optional chunks of types unknown to this version
    restores_jpeg: bool  #: `restore_jpeg` gives the JPEG file back

    @property
    def shape(self) -> tuple[int, ...]:
        """(H, W) for one channel, else (H, W, C)."""
        return (self.height, self.width, self.channels)[: 2 if self.channels == 1 else 3]

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The key-value pairs that were given to `encode`, or None.

        Raises:
            ValueError: they are damaged, or larger than 16 MiB.
        """
        return None if self.metadata_json is None else load_metadata(self.metadata_json)

    @property
    def volume(self) -> Volume | None:
        """The volume that the image holds (`encode_volume`), or None."""
        return volume_in(self.metadata_json, self.height, self.width)


@contextlib.contextmanager
def interruptible(check: Callable[[], object]) -> Iterator[None]:
    """Within it, `encode` and `decode` of this thread call `check`, and no outer one, now and then.

    What it raises ends them, as Ctrl-C ends those of the main thread.
    """
    outer = _native.set_check(check)
    try:
        yield
    finally:
        _native.set_check(outer)


def encode(
    image: npt.ArrayLike,
    *,
    layout: Layout | None = None,
    coding: Coding = DEFAULT_CODING,
    effort: int = DEFAULT_EFFORT,
    threads: int = DEFAULT_THREADS,
    tile: tuple[int, int] | None = None,
    labels: bool = False,
    icc: Buffer | None = None,
    exif: Buffer | None = None,
    palette: Buffer | None = None,
    xmp: Buffer | None = None,
    metadata: Mapping[str, Any] | None = None,
    other_chunks: Buffer | None = None,
    groups: Sequence[Sequence[int]] | None = None,
) -> bytes:
    """Encodes an image without loss.

    Args:
        image: uint8, uint16, int8, int16, uint32, int32, float16 or float32 of shape (H, W) or
            (H, W, C) with 1 to 4096 channels:
            gray; gray, alpha; RGB; RGBA; or bands. Up to 2^31 pixels and 2^35 - 2^16 bytes. It must
            not change during the call.
        layout: axes of an array of three, "HWC" or "CHW". None: "HWC", but an error for arrays
            that look like "CHW": 3 or 4 rows, 32 columns and channels or more.
        coding: "rans" (small), "packed" (fast to decode) or "stored" (raw samples).
        effort: of "rans", 1 (fastest) to 9 (smallest): 7 to 9 take two to five times as long as 5.
        threads: number of threads, up to 1024; 0: one for each processor.
        tile: height and width of a tile in pixels, powers of two; None: the encoder chooses.
        labels: samples are numbers of classes or palette entries, not to be blended.
        icc: an ICC profile.
        exif: an EXIF block.
        palette: R, G, B, A of each label, up to 256; needs `labels`.
        xmp: an XMP packet in UTF-8.
        metadata: key-value pairs, as {"spacing": [0.7, 0.7], "band_names": ["red", "nir"]}:
            anything that JSON has, and NumPy's numbers and arrays. docs/format.md lists names with
            a meaning.
        other_chunks: `Info.other_chunks` of a file that is encoded anew.
        groups: for more than four channels: lists of 1 to 4 channels that decode together. In lists
            of three or four the second predicts the first, and both the third. None: the encoder
            chooses.

    Raises:
        L3Error: `icc` to `other_chunks` take more than 2^28 - 2^20 bytes, or `other_chunks` are not
            those of an `Info`.
        TypeError: the type of the samples or of an option is not supported.
        ValueError: the shape or an option is not supported.
    """
    if coding not in CODINGS:
        raise ValueError(f"coding {coding!r} is not supported; codings: {', '.join(CODINGS)}")
    if not isinstance(labels, (bool, np.bool_)):
        raise TypeError(f"labels must be True or False, not {labels!r}")
    entries = arguments.checked_bytes("palette", palette)
    if entries is not None and not (labels and arguments.is_palette(entries)):
        raise ValueError("a palette must have 1 to 256 times 4 bytes, and needs labels=True")
    arguments.check_mode(image, labels=bool(labels))
    array = arguments.as_hwc(image, layout)
    kept: dict[str, bytes | None] = {
        "icc": arguments.checked_bytes("icc", icc),
        "exif": arguments.strip_exif_prefix(arguments.checked_bytes("exif", exif)),
        "palette": entries,
        "xmp": arguments.checked_bytes("xmp", xmp),
        "metadata": None if metadata is None else dump_metadata(metadata),
        "other_chunks": arguments.checked_bytes("other_chunks", other_chunks),
    }
    arguments.check_room(sum(len(part) for part in kept.values() if part is not None))
    return _native.encode(
        array,
        coding=coding,
        effort=arguments.checked_number("effort", effort, EFFORTS),
        threads=arguments.checked_threads(threads),
        tile=arguments.checked_tile(tile),
        labels=bool(labels),
        **kept,
        groups=arguments.checked_groups(groups, array.shape[2]),
    )


def decode(
    data: Buffer,
    *,
    window: Window | None = None,
    channels: Sequence[int] | None = None,
    out: Image | None = None,
    threads: int = DEFAULT_THREADS,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
) -> Image:
    """Decodes an L3 image: (H, W) for one channel, else (H, W, C), of the stored type.

    Args:
        data: the bytes of an L3 file; they must not change during the call.
        window: top, left, height and width of the part to decode, in pixels, inside the image. Only
            tiles that it touches are read. None: the whole image.
        channels: numbers of the channels to decode, from 0, each at most once, in the order of the
            output. Only the groups that hold them are read. None: all.
        out: array to decode to and return, with the shape (or (H, W, 1)) and dtype of the output.
            The pixels of a row must be contiguous. After an error its samples are undefined.
        threads: number of threads, up to 1024; 0: one for each processor.
        max_pixels: limit of the pixels to decode, checked before memory is allocated. With more
            than four channels a pixel counts once for each four, rounded up. None: 2^31.

    Raises:
        L3Error: the data is damaged, not an L3 file, or too large, or the window is not inside the
            image; `.status` has the reason.
        TypeError, ValueError: `out` does not fit, or an argument is not valid.
    """
    windows = [arguments.checked_window("window", window)]
    batch = open_batch([arguments.contiguous(data)], windows, max_pixels, channels)
    if out is None:
        return run_decode(batch, None, threads)[0]
    run_decode(
        batch, [arguments.checked_out("out", out, batch.shapes[0], batch.dtypes[0])], threads
    )
    return out


def decode_batch(
    items: Sequence[Buffer],
    *,
    windows: Sequence[Window | None] | None = None,
    channels: Sequence[int] | None = None,
    threads: int = DEFAULT_THREADS,
    out: _Outputs | None = None,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
) -> _Outputs:
    """Decodes L3 images, which may differ in size and type, in parallel.

    Args:
        items: the bytes of L3 files. To decode several windows of a file, repeat the same object in
            a row: tiles that the windows share are decoded once.
        windows: for each item a window, or None for the whole image.
        channels: for all items, as in `decode`.
        threads: as in `decode`.
        out: an array (N, H, W) or (N, H, W, C) for equal shapes, or an array for each item, as in
            `decode`. Arrays must not share memory.
        max_pixels: for each item, as in `decode`.

    Returns:
        `out`, or a new array for each item.

    Raises:
        L3Error: the first item that fails; `.index` has its number.
        TypeError, ValueError: as in `decode`.
    """
    files = arguments.checked_files(items)
    checked = arguments.checked_windows(windows, len(files))
    batch = open_batch(files, checked, max_pixels, channels, names_items=True)
    if out is None:
        arrays: Any = run_decode(batch, None, threads)
        return arrays  # type: ignore[no-any-return]
    if not isinstance(out, Sized):
        raise TypeError(f"out must be an array or a sequence of arrays, not {type(out).__name__}")
    if len(out) != len(files):
        raise ValueError(f"out has room for {len(out)} images, but there are {len(files)} items")
    shapes = zip(out, batch.shapes, batch.dtypes, strict=True)
    outs = [arguments.checked_out(f"out[{i}]", *one) for i, one in enumerate(shapes)]
    run_decode(batch, outs, threads)
    return out


def info(data: Buffer) -> Info:
    """`l3dali.info` of bytes only."""
    content = arguments.contiguous(data)
    with explain_errors([content]):
        fields: dict[str, Any] = {**_native.info(content)}
    chunks = fields.pop("chunks")
    palette = chunks.get("plte")
    is_sound = palette is None or arguments.is_palette(palette)
    fields |= {
        "encoded_bytes": fields.pop("bytes"),
        "groups": tuple(map(tuple, fields["groups"])),
        "dtype": np.dtype(fields["dtype"]),
        "palette": palette if is_sound else None,
        "palette_is_damaged": not is_sound,
    }
    named = {"icc ": "icc", "exif": "exif", "xmp ": "xmp", "keyv": "metadata_json"}
    return Info(**fields, **{name: chunks.get(kind) for kind, name in named.items()})


def head_info(data: memoryview) -> Info:
    """`info` of a file in memory, of which little more than header, chunks and index is read."""
    size = 4096
    while size < len(data):
        try:
            return info(data[:size])
        except L3Error as error:
            if error.status is not Status.TRUNCATED:
                raise
        size *= 4
    return info(data)


def verify(
    data: Buffer, *, threads: int = DEFAULT_THREADS, max_pixels: int | None = DEFAULT_MAX_PIXELS
) -> None:
    """Checks every part of an L3 file, by a `decode` with these arguments.

    Raises:
        L3Error: the first problem found.
    """
    run_decode(open_batch([arguments.contiguous(data)], [None], max_pixels), None, threads)


def encode_jpeg(
    data: bytes,
    *,
    threads: int = DEFAULT_THREADS,
    tile: tuple[int, int] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> tuple[bytes, bool] | tuple[None, str]:
    """The L3 file of a JPEG file, and whether `restore_jpeg` gives the same bytes.

    Or None, and why it cannot be encoded. Arguments are as in `encode`.
    """
    return _native.encode_jpeg(
        data,
        threads=arguments.checked_threads(threads),
        tile=arguments.checked_tile(tile),
        metadata=None if metadata is None else dump_metadata(metadata),
    )


def restore_jpeg(data: Buffer, *, threads: int = DEFAULT_THREADS) -> bytes:
    """The JPEG file that an L3 file was made of by coding "jpeg", byte for byte.

    Args:
        data: the bytes of an L3 file; they must not change during the call.
        threads: as in `decode`.

    Raises:
        L3Error: the data is damaged, or not an L3 file.
        ValueError: the file has no JPEG file to restore: `Info.restores_jpeg` is false.
    """
    content = arguments.contiguous(data)
    with explain_errors([content]):
        jpeg = _native.restore_jpeg(content, threads=arguments.checked_threads(threads))
    if jpeg is None:
        raise ValueError("this L3 file holds pixels alone; only coding='jpeg' keeps JPEG files")
    return jpeg


def kept_blocks(info: Info) -> dict[str, bytes]:
    """The metadata of a file by names for people."""
    blocks = {
        "ICC": info.icc,
        "EXIF": info.exif,
        "palette": info.palette,
        "XMP": info.xmp,
        "metadata": info.metadata_json,
    }
    return {name: block for name, block in blocks.items() if block is not None}


def chunks_of(area: bytes) -> list[tuple[str, int]]:
    """Types and sizes of the data of `Info.other_chunks`, in order."""
    return _native.list_chunks(area)


def open_batch(
    items: Sequence[Buffer] | Sequence[Place],
    windows: Sequence[Window | None],
    max_pixels: int | None,
    channels: Sequence[int] | None = None,
    *,
    engine: type[DecodeBatch] = DecodeBatch,
    **options: Any,
) -> DecodeBatch:
    """Reads and validates headers, chunks and indexes, once; `run_decode` decodes.

    Items may be places of files of this machine: what the windows need of them is read. With
    `is_partial` the items are beginnings of files: `DecodeBatch.complete` gives the files.
    `engine` is the class of the batch, and `options` are those of its constructor.

    Raises:
        L3Error: as `decode`; TRUNCATED for a beginning that is too short.
    """
    usual = {"colors": "UNCHANGED", "dtype": None, "channels_first": False, "names_items": False}
    with explain_errors(items):
        return engine(
            items,
            windows=windows,
            max_pixels=arguments.checked_max_pixels(max_pixels),
            channels=arguments.checked_channels(channels),
            **(usual | options),
        )


@contextlib.contextmanager
def explain_errors(items: Sequence[Buffer] | Sequence[Place]) -> Iterator[None]:
    """Errors name another format, and trailing data as a possible reason."""
    try:
        yield
    except L3Error as error:
        reason = ""
        if error.status is Status.BAD_MAGIC:
            reason = remedy_for_other(_beginning_of(items[error.index or 0]))
        elif error.status is Status.CORRUPT_HEADER:
            reason = "header, chunks or tile index are corrupt, or data follows the image"
        if not reason:
            raise
        item = "" if error.index is None else f"item {error.index}: "
        raise L3Error(item + reason, error.status, error.index) from None


def _beginning_of(data: Buffer | Place) -> bytes:
    """The first bytes, by which formats are known. Items of a buffer may be rows, or larger."""
    if isinstance(data, tuple):
        with Path(data[0]).open("rb") as file:
            file.seek(data[1])
            return file.read(16)
    return np.frombuffer(memoryview(data), np.uint8)[:16].tobytes()


def run_decode(batch: DecodeBatch, outs: list[Image] | None, threads: int) -> list[Image]:
    """Decodes to arrays of three axes, or to new ones; drops the axis of one channel."""
    count = arguments.checked_threads(threads)
    arrays = outs
    if arrays is None:
        planned = zip(batch.shapes, batch.dtypes, strict=True)
        arrays = [np.empty(shape, dtype) for shape, dtype in planned]
    batch.decode(
        [array.ctypes.data for array in arrays],
        row_strides=None if outs is None else [array.strides[0] for array in outs],
        threads=count,
    )
    return [array[:, :, 0] if array.shape[2] == 1 else array for array in arrays]
