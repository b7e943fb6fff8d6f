"""Arrays to L3 bytes and back: judges arguments and calls the native codec.

Knows L3 files alone; `images` knows the other formats.
"""

from __future__ import annotations

import contextlib
import errno
import operator
import os
import re
import secrets
from collections import Counter
from collections.abc import Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, overload

import numpy as np
import numpy.typing as npt

from l3dali import _native
from l3dali.errors import L3Error, Status
from l3dali.metadata import dump_metadata, load_metadata
from l3dali.signatures import remedy_for_other

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from typing_extensions import Buffer

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
    "verify",
]

#: How tiles are coded. `encode` says what each is for.
Coding = Literal["packed", "rans", "stored"]
CODINGS: tuple[Coding, ...] = ("packed", "rans", "stored")  #: All of them.
DEFAULT_CODING: Coding = "rans"
EFFORTS = range(1, 10)
DEFAULT_EFFORT = 5
SAMPLE_TYPES = ("uint8", "uint16", "int8", "int16")
SAMPLE_SCALARS = frozenset(np.dtype(name).type for name in SAMPLE_TYPES)  # quicker than names
MAX_PIXELS = 2**31
MAX_CHANNELS = 4096
MAX_BYTES = 2**35 - 2**16  # of an image to encode
DEFAULT_MAX_PIXELS = 2**28  #: Of images that nobody vouches for
MAX_PIXELS_RANGE = range(1, MAX_PIXELS + 1)
THREADS = range(1025)  # 0: all of the machine
# One: loaders call from many processes or threads, and each would start as many as the machine has.
DEFAULT_THREADS = 1
MAX_KEPT_BYTES = 2**28 - 2**20  # of the chunks of a file; the rest is for the encoder's own
TILE_WIDTHS = (32, 64, 128, 256)
TILE_HEIGHTS = (8, 16, *TILE_WIDTHS)

Layout = Literal["HWC", "CHW"]  #: The order of axes.
LAYOUTS: tuple[Layout, ...] = ("HWC", "CHW")
_LARGE_SIDE = 32  # of arrays that have their channels first, surely
_BAND_BYTES = 1 << 24  # of an array, copied without a look for interrupts
_READ_BYTES = 1 << 25  # that a system reads of a mapped file for these
_PAGE_BYTES = 1 << 12
_AHEAD_BYTES = 1 << 17  # that it reads where a page is touched
_BAND_ROWS = 64
_NO_MODES = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)  # of disks that have none of their own
_ROWS_AT_ONCE = 1 << 18  # that are judged without a look for interrupts
Image = npt.NDArray[Any]  #: An array of uint8, uint16, int8 or int16.
Window = tuple[int, int, int, int]  #: Top, left, height and width, in pixels.
_PLACES = range(MAX_PIXELS + 1)
_SIDES = range(1, MAX_PIXELS + 1)
_Outputs = TypeVar("_Outputs", bound="Image | Sequence[Image]")


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
    """What an L3 file says about itself. Sizes are in pixels or bytes."""

    width: int
    height: int
    channels: int
    groups: tuple[tuple[int, ...], ...]  #: channels that decode together; one of all, up to four
    dtype: np.dtype[Any]  #: uint8, uint16, int8 or int16, of the decoded samples
    bit_depth: int  #: 8 or 16, of the decoded samples
    used_bits: int  #: of the coded values
    shift: int  #: low bits that are zero in every sample
    value_count: int  #: entries of the value table; 0 without one
    labels: bool  #: samples are numbers of classes, not colours
    tile_width: int
    tile_height: int
    tile_count: int
    #: Tiles of each, "unknown" where one is damaged; None without payloads.
    codings: Mapping[str, int] | None = field(hash=False)
    encoded_bytes: int  #: of the whole file
    raw_bytes: int
    icc: bytes | None
    exif: bytes | None
    palette: bytes | None  #: R, G, B, A of each label
    palette_is_damaged: bool  #: there is one of no such size, which is left out
    xmp: bytes | None
    metadata_json: bytes | None  #: as it stands in the file, sound or not
    other_chunks: bytes  #: optional chunks of types that this version does not know, as they stand

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array that `decode` gives: (H, W) for one channel, else (H, W, C)."""
        return (self.height, self.width, self.channels)[: 2 if self.channels == 1 else 3]

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The key-value pairs of the file, as `encode` has taken them; None without any.

        Raises:
            ValueError: they are damaged (no JSON object), or of more than 16 MiB.
        """
        return None if self.metadata_json is None else load_metadata(self.metadata_json)


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
        image: uint8, uint16, int8 or int16 of shape (H, W) or (H, W, C) with 1 to 4096 channels.
            Up to four are gray; gray, alpha; red, green, blue; red, green, blue, alpha; more are
            bands of any kind. Any strides and byte order, but no mask; up to 2^31 pixels and
            2^35 - 2^16 bytes. It must not change during the call: the file of one that does may not
            decode, and nothing says so.
        layout: of an array of three axes, "HWC" or "CHW", which has its channels first. None is
            "HWC", but refuses what looks like "CHW": 3 or 4 rows, 32 columns and channels or more.
        coding: how tiles are coded: "rans" is small, "packed" fast to decode, "stored" raw samples,
            which decode as fast as memory is copied.
        effort: 1 (fast) to 9 (small). With "rans" 2 and 3 give the same bytes, so do 4 and 5; with
            the other codings all do. 7 to 9 search for coefficients that cost fewer bits, and take
            two to five times as long as 5; images decode as fast.
        threads: how many to use, up to 1024; 0 for all of the machine. By default one, here and in
            every other call: a loader has many workers, and each would start as many threads as
            the machine has cores. The bytes do not depend on it.
        tile: height and width of a tile in pixels, powers of two; None lets the encoder choose.
        labels: the samples are numbers of classes or palette entries, not to be blended.
        icc: an ICC profile to keep.
        exif: an EXIF block to keep; what JPEG files have before its TIFF header is cut off.
        palette: R, G, B, A of each label, up to 256; needs `labels`.
        xmp: an XMP packet to keep, in UTF-8.
        metadata: key-value pairs to keep, as {"spacing": [0.7, 0.7], "band_names": ["red", "nir"]}:
            anything that JSON has, NumPy's numbers and arrays too. docs/format.md lists names that
            have a meaning.
        other_chunks: chunks to keep of types that this version does not know: `other_chunks` of the
            `Info` of the file that is encoded anew.
        groups: of more than four channels, lists of 1 to 4 that decode together: what reads a
            channel decodes its group. Of three or four the second predicts the first, and both the
            third; others are coded by themselves. None lets the encoder choose.

    Raises:
        L3Error: all that is to be kept takes more than the format has room for, nearly 2^28 bytes.
        TypeError: the samples are of another type, or an option is.
        ValueError: the shape or an option is not supported.
    """
    if coding not in CODINGS:
        raise ValueError(f"coding {coding!r} is not supported; codings: {', '.join(CODINGS)}")
    if not isinstance(labels, (bool, np.bool_)):
        raise TypeError(f"labels is True or False, not {labels!r}")
    entries = _checked_bytes("palette", palette)
    if entries is not None and not (labels and _is_palette(entries)):
        raise ValueError("a palette is 1 to 256 times 4 bytes, and needs labels=True")
    mode = getattr(image, "mode", None) if hasattr(image, "getbands") else None  # of Pillow
    if mode in _OTHER_COLOURS and not (mode == "P" and labels):
        raise TypeError(
            f"an image of Pillow of mode {mode} is not supported: numpy.asarray gives its samples, "
            'convert("RGB") its colours, and l3dali.pillow saves palettes'
        )
    array = _as_hwc(image, layout)
    kept: dict[str, bytes | None] = {
        "icc": _checked_bytes("icc", icc),
        "exif": strip_exif_prefix(_checked_bytes("exif", exif)),
        "palette": entries,
        "xmp": _checked_bytes("xmp", xmp),
        "key_values": None if metadata is None else dump_metadata(metadata),
        "other_chunks": _checked_chunks(_checked_bytes("other_chunks", other_chunks)),
    }
    _check_room(sum(len(part) for part in kept.values() if part is not None))
    return _native.encode(
        array,
        coding=coding,
        effort=_checked_number("effort", effort, EFFORTS),
        threads=checked_threads(threads),
        tile=_checked_tile(tile),
        labels=bool(labels),
        **kept,
        groups=_checked_groups(groups, array.shape[2]),
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
        window: top, left, height and width of the part to decode, in pixels; it must be inside the
            image. Only tiles that it touches are read. None: all of the image.
        channels: numbers of the channels to decode, from 0 on, each at most once, in the order in
            which they shall come out. Of more than four only their groups are read. None: all.
        out: the array to decode to, which is returned: of the image's or window's shape (with
            one channel, (H, W, 1) will do too) and dtype. Its rows may be apart, as those of a part
            of a larger array are; the pixels of a row may not. After an error it holds anything.
        threads: how many to use, up to 1024; 0 for all of the machine.
        max_pixels: refuse images, or windows, of more, before memory is taken for them: 20 bytes of
            a file can claim 65,536 pixels. Pixels of more than four channels count once more for
            each four. None: up to the 2^31 of the format.

    Raises:
        L3Error: the data is damaged, not an L3 file, or too large, or the window is not inside the
            image; `.status` says how.
        TypeError, ValueError: `out` does not fit, or an argument is none that this takes.
    """
    windows = [checked_window("window", window)]
    batch = _plan([contiguous(data)], windows, max_pixels, channels, names_items=False)
    if out is None:
        return _run(batch, None, threads)[0]
    _run(batch, [_checked_out("out", out, batch.shapes[0], batch.dtypes[0])], threads)
    return out


@overload
def decode_batch(
    items: Sequence[Buffer],
    *,
    windows: Sequence[Window | None] | None = None,
    channels: Sequence[int] | None = None,
    threads: int = DEFAULT_THREADS,
    out: None = None,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
) -> list[Image]: ...
@overload
def decode_batch(
    items: Sequence[Buffer],
    *,
    windows: Sequence[Window | None] | None = None,
    channels: Sequence[int] | None = None,
    threads: int = DEFAULT_THREADS,
    out: _Outputs,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
) -> _Outputs: ...
def decode_batch(
    items: Sequence[Buffer],
    *,
    windows: Sequence[Window | None] | None = None,
    channels: Sequence[int] | None = None,
    threads: int = DEFAULT_THREADS,
    out: _Outputs | None = None,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
) -> list[Image] | _Outputs:
    """Decodes L3 images, which may differ in size and type, on threads that share them.

    Threads share images and tiles alike, so one large image among small ones keeps none of them
    waiting. Python's lock is free meanwhile.

    Args:
        items: the bytes of L3 files; they must not change during the call. One object that comes
            several times in a row is a file with several windows: a tile that they share is decoded
            once.
        windows: a window for each item, as `decode` takes it, or None for all of that image.
        channels: those of each image, as `decode` takes them.
        threads: how many to use, up to 1024; 0 for all of the machine.
        out: one array (N, H, W) or (N, H, W, C) for images that are alike, or a sequence of arrays,
            one for each item, as `decode` takes them. No two may share memory. It is returned.
            After an error it holds anything.
        max_pixels: of each image or window, as in `decode`.

    Returns:
        An array for each item; `out` if it was given.

    Raises:
        L3Error: the first item that fails; `.index` and the message say which it is.
        TypeError, ValueError: `out` does not fit, or an argument is none that this takes.
    """
    files = checked_files(items)
    batch = _plan(
        files, checked_windows(windows, len(files)), max_pixels, channels, names_items=True
    )
    if out is None:
        return _run(batch, None, threads)
    if not isinstance(out, Sized):
        raise TypeError(f"out is an array or a sequence of arrays, not {type(out).__name__}")
    if len(out) != len(files):
        raise ValueError(f"out has room for {len(out)} images, and there are {len(files)} items")
    shapes = zip(out, batch.shapes, batch.dtypes, strict=True)
    outs = [_checked_out(f"out[{i}]", *one) for i, one in enumerate(shapes)]
    _check_apart(outs)
    _run(batch, outs, threads)
    return out


def info(data: Buffer) -> Info:
    """Reads what an L3 file says about itself, without decoding tiles.

    Raises:
        L3Error: as `l3dali.info`, which takes files, too.
    """
    content = contiguous(data)
    with telling_more([content]):
        fields = _native.info(content)
    chunks = fields["chunks"]
    palette = chunks.get("plte")
    is_sound = palette is None or _is_palette(palette)
    return Info(
        width=fields["width"],
        height=fields["height"],
        channels=fields["channels"],
        groups=tuple(map(tuple, fields["groups"])),
        dtype=np.dtype(fields["dtype"]),
        bit_depth=fields["bit_depth"],
        used_bits=fields["used_bits"],
        shift=fields["shift"],
        value_count=fields["value_count"],
        labels=fields["labels"],
        tile_width=fields["tile_width"],
        tile_height=fields["tile_height"],
        tile_count=fields["tile_count"],
        codings=fields["codings"],
        encoded_bytes=fields["bytes"],
        raw_bytes=fields["raw_bytes"],
        icc=chunks.get("icc "),
        exif=chunks.get("exif"),
        palette=palette if is_sound else None,
        palette_is_damaged=not is_sound,
        xmp=chunks.get("xmp "),
        metadata_json=chunks.get("keyv"),
        other_chunks=fields["other_chunks"],
    )


def _is_palette(entries: bytes) -> bool:
    return len(entries) % 4 == 0 and 4 <= len(entries) <= 1024


def verify(
    data: Buffer, *, threads: int = DEFAULT_THREADS, max_pixels: int | None = DEFAULT_MAX_PIXELS
) -> None:
    """Checks every part of an L3 file, tiles included.

    The data must not change during the call. Takes the memory of a `decode`, whose arguments
    these are.

    Raises:
        L3Error: the first problem found.
    """
    _run(_plan([contiguous(data)], [None], max_pixels, None, names_items=False), None, threads)


def is_special(path: Path) -> bool:
    """Whether a path is that of a pipe or a device, or a link of the system to an open file.

    No other link is special, whatever it points at: not one in /dev/shm, where anybody may write.
    """
    if path.is_symlink():
        folder = os.path.realpath(path.parent)
        return folder == "/dev" or folder.startswith("/proc/")
    return path.exists() and not path.is_file() and not path.is_dir()


def write_atomically(
    path: Path, data: bytes, *, like: Path | None = None, replace: bool = True
) -> None:
    """Writes a file under a temporary name beside `path`, then renames it.

    It gets the permissions and times of the file `like`, or else the permissions of the one that it
    replaces. What is special is written into, and stays what it is.

    Raises:
        FileExistsError: `path` exists, and is not to be replaced. Disks without links tell of what
            was there before the file was renamed.
        OSError: it cannot be written.
    """
    if is_special(path):
        with path.open("wb") as file:
            file.write(data)
        return
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    temporary = path.with_name(f".l3-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            if like is not None or (path.exists() and not path.is_symlink()):
                status = (like or path).stat()
                try:  # not set-user-ID: the owner may be another
                    temporary.chmod(status.st_mode & 0o777)
                except OSError as error:
                    if error.errno not in _NO_MODES:
                        raise
            file.write(data)
        if like is not None:
            os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
        if replace or not _linked(temporary, path):
            temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        raise


def _linked(temporary: Path, path: Path) -> bool:
    """Renames the file unless `path` exists; False where the disk has no links."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        return False
    temporary.unlink()
    return True


def strip_exif_prefix(exif: bytes | None) -> bytes | None:
    """An EXIF block from its TIFF header on, as L3 and PNG hold it."""
    return None if exif is None else exif.removeprefix(b"Exif\0\0")


# What to do with samples that L3 does not hold; the guide's "Floats" has more.
_ADVICE = {
    "bool": "astype(numpy.uint8) makes them 0 and 1",
    "float16": "view(numpy.uint16) stores their bits",
    "float32": "integers of a unit, as millimetres, take less than half",
    "float64": "integers of a unit, as millimetres, take less than half",
}


def unsupported_samples(dtype: np.dtype[Any]) -> str:
    """Says that L3 has no samples of this type, and what can be done."""
    text = f"samples of type {dtype} are not supported; L3 holds {', '.join(SAMPLE_TYPES)}"
    advice = _ADVICE.get(dtype.name)
    return f"{text} ({advice})" if advice else text


# Modes of Pillow whose samples are no gray, RGB or alpha, as those of L3 are.
_OTHER_COLOURS = frozenset({"P", "PA", "CMYK", "YCbCr", "LAB", "HSV", "La", "RGBa", "RGBX"})


def _as_hwc(image: npt.ArrayLike, layout: Layout | None) -> Image:
    """The image as the native codec wants it: three axes, contiguous, native byte order."""
    if layout is not None and layout not in LAYOUTS:
        raise ValueError(f"layout {layout!r} is not supported; layouts: {', '.join(LAYOUTS)}")
    if isinstance(image, (str, os.PathLike)):
        raise TypeError(
            "encode takes an array, not a path; transcode takes the bytes of an image file"
        )
    if isinstance(image, np.ma.MaskedArray):
        raise TypeError("masked arrays are not supported; fill them, or take their data")
    array = np.asarray(image)
    if array.dtype.type not in SAMPLE_SCALARS:
        raise TypeError(unsupported_samples(array.dtype))
    if array.ndim == 2:
        array = array[:, :, np.newaxis]
    elif array.ndim == 3 and layout == "CHW":
        array = np.moveaxis(array, 0, 2)
    elif array.ndim == 3 and layout is None and _has_channels_first(array.shape):
        raise ValueError(
            f"shape {array.shape} looks like {array.shape[0]} channels first: layout='CHW' takes "
            f"it so, and layout='HWC' as {array.shape[0]} rows with {array.shape[2]} channels"
        )
    if array.ndim != 3 or array.shape[2] > MAX_CHANNELS or 0 in array.shape:
        raise ValueError(
            f"shape {np.shape(image)} is not supported; "
            f"L3 holds (H, W) and (H, W, C) with 1 to {MAX_CHANNELS} channels and no empty side"
        )
    if array.shape[0] * array.shape[1] > MAX_PIXELS:
        raise ValueError(
            f"{array.shape[1]} x {array.shape[0]} pixels are too many; L3 holds up to 2^31"
        )
    if array.nbytes > MAX_BYTES:
        raise ValueError(
            f"samples of {array.nbytes} bytes are too many; L3 encodes up to {MAX_BYTES}"
        )
    return row_major(array)


def row_major(image: Image) -> Image:
    """The image row by row in native byte order: itself, or a copy that an interrupt ends.

    Args:
        image: (H, W) or (H, W, C).
    """
    dtype = image.dtype.newbyteorder("=")
    if image.flags.c_contiguous and image.dtype == dtype:
        return image
    copy = np.empty(image.shape, dtype)
    height, width = image.shape[:2]
    pixels = max(1, _BAND_BYTES * height * width // max(1, copy.nbytes))
    # Few rows: the system clears 2 MiB of memory where one is touched. Of columns it takes some.
    rows = max(1, min(height, max(_BAND_ROWS, pixels // max(1, width))))
    columns = max(1, min(width, pixels // rows))
    while rows * columns > 1 and (most := _bytes_read(image[:rows, :columns])) > _READ_BYTES:
        fewer, narrower = (-(-rows // 2), columns), (rows, -(-columns // 2))
        halves = (fewer, narrower) if rows > _BAND_ROWS else (narrower, fewer)
        reads = [_bytes_read(image[:down, :across]) for down, across in halves]
        if 4 * min(reads) > 3 * most:  # Of many channels, say, each is touched for any pixel.
            break
        rows, columns = halves[reads.index(min(reads))]
    for top in range(0, height, rows):
        for left in range(0, width, columns):
            part = slice(top, top + rows), slice(left, left + columns)
            copy[part] = image[part]
    return copy


def _bytes_read(array: Image) -> int:
    """About what a system reads to have all samples, if they are in a mapped file."""
    run, runs = array.itemsize, 1
    for stride, count in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if stride <= max(run, _PAGE_BYTES):
            run += stride * (count - 1)
        else:
            runs *= count
    return runs * (run + _AHEAD_BYTES)


def _has_channels_first(shape: tuple[int, ...]) -> bool:
    return shape[0] in (3, 4) and min(shape[1:]) >= _LARGE_SIDE


def _plan(
    items: list[Buffer],
    windows: Sequence[Window | None],
    max_pixels: int | None,
    channels: Sequence[int] | None,
    *,
    names_items: bool,
) -> _native.DecodeBatch:
    with telling_more(items):
        return _native.DecodeBatch(
            items,
            windows=windows,
            colors="UNCHANGED",
            dtype=None,
            channels_first=False,
            max_pixels=checked_max_pixels(max_pixels),
            names_items=names_items,
            channels=checked_channels(channels),
        )


@contextlib.contextmanager
def telling_more(items: Sequence[Buffer]) -> Iterator[None]:
    """Errors name another format, and say so if the data goes on behind the image."""
    try:
        yield
    except L3Error as error:
        data = items[error.index or 0]
        reason = ""
        if error.status is Status.BAD_MAGIC:
            reason = remedy_for_other(_bytes_of(data)[:16].tobytes())
        elif error.status is Status.CORRUPT_HEADER:
            size = _image_bytes(data)
            reason = f"the data goes on behind the image, which has {size} bytes" if size else ""
        if not reason:
            raise
        item = "" if error.index is None else f"item {error.index}: "
        raise L3Error(item + reason, error.status, error.index) from None


def _bytes_of(data: Buffer) -> memoryview:
    """Slices of others may be of rows, or of larger items."""
    return np.frombuffer(memoryview(data), np.uint8).data


def _image_bytes(data: Buffer) -> int | None:
    """The size of the image at the start of data that is corrupt as a whole; None without one.

    What is cut off before the end of the index is truncated, what goes on behind the image is
    corrupt; between them lie the beginnings that tell the size.
    """
    view = _bytes_of(data)
    low, high = 0, len(view)
    while low < high:
        size = (low + high) // 2
        try:
            return int(_native.info(view[:size])["bytes"])
        except L3Error as error:
            if error.status is Status.TRUNCATED:
                low = size + 1
            else:
                high = size
    return None


def _run(batch: _native.DecodeBatch, outs: list[Image] | None, threads: int) -> list[Image]:
    """Decodes to arrays of three axes, or to new ones; drops the axis of one channel."""
    count = checked_threads(threads)
    arrays = outs
    if arrays is None:
        planned = zip(batch.shapes, batch.dtypes, strict=True)
        arrays = [np.empty(shape, dtype) for shape, dtype in planned]
    batch.decode(
        [array.ctypes.data for array in arrays],
        row_strides=[array.strides[0] for array in arrays],
        threads=count,
    )
    return [array[:, :, 0] if array.shape[2] == 1 else array for array in arrays]


def _checked_out(name: str, out: Image, shape: tuple[int, int, int], dtype: str) -> Image:
    """`out` with three axes, if an image of `shape` can be decoded to it."""
    if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
        raise TypeError(f"{name} is a NumPy array, not {type(out).__name__}")
    out = np.ndarray.view(out, np.ndarray)  # The caller's may take another shape meanwhile.
    if out.dtype != np.dtype(dtype):
        raise TypeError(f"{name} is of {out.dtype}, and the image of {dtype}")
    wanted = shape if shape[2] != 1 else shape[:2]
    if out.shape not in (wanted, shape):
        raise ValueError(f"{name} has shape {out.shape}, and what is decoded {wanted}")
    if not out.flags.writeable:
        raise ValueError(f"{name} is read-only")
    hwc = out if out.ndim == 3 else out[:, :, np.newaxis]
    pixel_bytes = hwc.itemsize * shape[2]
    if (
        (shape[2] > 1 and hwc.strides[2] != hwc.itemsize)
        or (shape[1] > 1 and hwc.strides[1] != pixel_bytes)
        or (shape[0] > 1 and hwc.strides[0] < pixel_bytes * shape[1])
        or not hwc.flags.aligned
    ):
        raise ValueError(
            f"{name} has strides {out.strides}: the pixels of a row must follow one another, "
            f"aligned, and rows must not overlap"
        )
    return hwc


def _check_apart(outs: list[Image]) -> None:
    """Refuses arrays that share memory: what comes out would depend on the order.

    They are such that _checked_out() gave.
    """
    begins = np.array([out.ctypes.data for out in outs], np.int64)
    row_bytes = np.array([out.nbytes // out.shape[0] for out in outs], np.int64)
    last = np.array([(out.shape[0] - 1) * out.strides[0] for out in outs], np.int64)
    order = np.argsort(begins, kind="stable")
    reached = np.maximum.accumulate((begins + last + row_bytes)[order])
    meets = begins[order][1:] < reached[:-1]  # its memory begins amid that of one before
    # Rows lie in each other's gaps, or share memory. Two neighbours do, if any do.
    mixed = np.union1d(order[:-1][meets], order[1:][meets])
    if not mixed.size:
        return
    begins, row_bytes = begins[mixed], row_bytes[mixed]
    rows = np.array([outs[i].shape[0] for i in mixed], np.int64)
    strides = np.array([outs[i].strides[0] for i in mixed], np.int64)
    strides[rows == 1] = 1  # any
    spans = [(begins.min(), (begins + last[mixed]).max() + 1)]
    before, end = 0, 0  # the owner of the last row, and where it ends
    while spans:  # Of few rows: an interrupt is heard between them.
        low, high = spans.pop()
        first = np.clip(-((begins - low) // strides), 0, rows)  # of those that begin in the span
        counts = np.clip(-((begins - high) // strides), 0, rows) - first
        if counts.sum() > _ROWS_AT_ONCE and high - low > 1:
            middle = (low + high) // 2
            spans += [(middle, high), (low, middle)]
            continue
        owners = np.repeat(np.arange(mixed.size), counts)
        number = np.arange(owners.size) - np.repeat(np.cumsum(counts) - counts - first, counts)
        starts = begins[owners] + number * strides[owners]
        order = np.argsort(starts, kind="stable")
        starts, owners = starts[order], np.append(before, owners[order])
        ends = np.append(end, starts + row_bytes[owners[1:]])
        shared = np.flatnonzero(ends[:-1] > starts)
        if shared.size:
            one, other = sorted(mixed[owners[shared[0] : shared[0] + 2]].tolist())
            raise ValueError(f"out[{one}] and out[{other}] share memory")
        before, end = owners[-1], ends[-1]


def checked_files(
    items: Sequence[Any], bytes_of: Callable[[Any], Buffer] = lambda item: item
) -> list[Buffer]:
    """The files of a batch as the native codec takes them; `bytes_of` gives those of an item."""
    is_one = isinstance(items, (str, bytes, bytearray, memoryview))
    hint = None if isinstance(items, Sized) else "make a list of it"
    if is_one or getattr(items, "dtype", None) not in (None, object):  # an array or a tensor
        hint = "put one file in a list"
    if hint is not None:
        raise TypeError(f"items is a sequence of files, not {type(items).__name__}: {hint}")
    files: list[Buffer] = []
    last: Any = None
    for i, item in enumerate(items):
        try:
            # One file with several windows stays one, whatever its strides.
            files.append(files[-1] if i and item is last else contiguous(bytes_of(item)))
        except TypeError as error:
            raise TypeError(f"items[{i}]: {error}") from None
        last = item
    return files


def checked_windows(windows: Sequence[Window | None] | None, count: int) -> list[Window | None]:
    """A window for each of `count` items, if they are ones."""
    if windows is None:
        return [None] * count
    if not isinstance(windows, Sized):
        raise TypeError(f"windows is a sequence, not {type(windows).__name__}: make a list of it")
    if len(windows) != count:
        raise ValueError(f"{len(windows)} windows for {count} items")
    return [checked_window(f"windows[{i}]", window) for i, window in enumerate(windows)]


def checked_window(name: str, window: Window | None) -> Window | None:
    """A window, if it is one; `name` is that of the argument."""
    if window is None:
        return None
    try:
        top, left, height, width = map(operator.index, window)
    except (TypeError, ValueError):
        raise TypeError(
            f"{name} is four integers, top, left, height and width, not {window!r}"
        ) from None
    if top not in _PLACES or left not in _PLACES or height not in _SIDES or width not in _SIDES:
        raise ValueError(
            f"{name} is {window!r}: top and left are 0 or more, height and width 1 or more, "
            f"and none is above {MAX_PIXELS}"
        )
    return top, left, height, width


def checked_channels(channels: Sequence[int] | None) -> list[int]:
    """The numbers of channels, if they are ones; an empty list for all."""
    if channels is None:
        return []
    numbers = _integers("channels", channels)
    if not numbers:
        raise ValueError("channels is empty; None decodes all")
    for number in numbers:
        if not 0 <= number < MAX_CHANNELS:
            raise ValueError(f"channels are 0 to {MAX_CHANNELS - 1}, not {number}")
    repeated = [number for number, count in Counter(numbers).items() if count > 1]
    if repeated:
        raise ValueError(f"channels names {repeated[0]} more than once")
    return numbers


def _checked_groups(groups: Sequence[Sequence[int]] | None, channels: int) -> list[list[int]]:
    """Lists of all channels, if they are ones; an empty list lets the encoder choose."""
    if groups is None:
        return []
    if not isinstance(groups, Sized):
        raise TypeError(f"groups is a sequence of lists, not {type(groups).__name__}")
    lists = [_integers(f"groups[{i}]", group) for i, group in enumerate(groups)]
    if channels <= 4:
        raise ValueError(f"groups are of more than 4 channels, and the image has {channels}")
    if not all(1 <= len(group) <= 4 for group in lists):
        raise ValueError("a group has 1 to 4 channels")
    if sorted(number for group in lists for number in group) != list(range(channels)):
        raise ValueError(f"groups name each channel from 0 to {channels - 1} once")
    return lists


def _integers(name: str, numbers: Sequence[int]) -> list[int]:
    try:
        items = list(numbers)
        if not any(isinstance(item, bool) for item in items):  # a mask, to NumPy
            return [operator.index(item) for item in items]
    except TypeError:
        pass
    raise TypeError(f"{name} is a sequence of integers, not {numbers!r}")


def contiguous(data: Buffer) -> Buffer:
    """The bytes of a file as the native codec takes them."""
    if isinstance(data, (str, os.PathLike)):
        raise TypeError(
            "bytes-like data is needed, not a path: decode and verify take the bytes of a file; "
            "l3dali.imread and l3dali.info take a path"
        )
    try:
        view = memoryview(data)
    except TypeError:
        raise TypeError(
            f"the bytes of a file are needed, as bytes or a 1-D uint8 array, not "
            f"{type(data).__name__}"
            f"{'; decode_batch takes a list of files' if isinstance(data, list) else ''}"
        ) from None
    if "O" in re.sub(":[^:]*:", "", view.format):  # but for names of fields
        raise TypeError("the bytes of a file are needed, not an array of objects")
    return view if view.c_contiguous and view.ndim else _copied(view)  # Slices need an axis.


def _copied(view: memoryview) -> Buffer:
    """The bytes in one piece: a copy that an interrupt ends."""
    if view.c_contiguous:
        return view.tobytes()
    items = np.asarray(view).view(f"V{view.itemsize}")  # of no byte order
    return row_major(np.expand_dims(items, 1)).view(np.uint8).data


def _checked_number(name: str, value: int, allowed: range) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is an integer, not {value!r}") from None
    if number not in allowed:
        raise ValueError(f"{name} is {allowed[0]} to {allowed[-1]}, not {number}")
    return number


def checked_threads(value: int) -> int:
    """The number of threads, if it is one."""
    return _checked_number("threads", value, THREADS)


def checked_max_pixels(value: int | None) -> int:
    """The limit that `max_pixels` sets."""
    return MAX_PIXELS if value is None else _checked_number("max_pixels", value, MAX_PIXELS_RANGE)


def _checked_tile(tile: tuple[int, int] | None) -> tuple[int, int] | None:
    if tile is None:
        return None
    try:
        height, width = map(operator.index, tile)
    except (TypeError, ValueError):
        raise TypeError(f"tile is two integers, height and width, not {tile!r}") from None
    if height not in TILE_HEIGHTS or width not in TILE_WIDTHS:
        raise ValueError(
            f"tile {tile} is not supported; heights: {TILE_HEIGHTS}, widths: {TILE_WIDTHS}"
        )
    return height, width


_KNOWN_CHUNKS = frozenset({b"icc ", b"exif", b"plte", b"xmp ", b"keyv"})
_CHUNK_TYPE = re.compile(rb"[a-z0-9 ][A-Za-z0-9 ]{3}")  # of optional chunks


def chunks_of(area: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Types and data of chunks that stand back to back (docs/format.md 4).

    Raises:
        ValueError: the bytes are no run of optional chunks.
    """
    at = 0
    while at < len(area):
        kind, size = area[at : at + 4], int.from_bytes(area[at + 4 : at + 8], "little")
        end = at + 8 + -(-size // 4) * 4
        data, padding = area[at + 8 : at + 8 + size], area[at + 8 + size : end]
        if end > len(area) or not _CHUNK_TYPE.fullmatch(kind) or any(padding):
            raise ValueError(f"other_chunks: no optional chunk at byte {at}")
        yield kind, data
        at = end


def _checked_chunks(area: bytes | None) -> bytes | None:
    for kind, _ in chunks_of(area or b""):
        if kind in _KNOWN_CHUNKS:
            raise ValueError(f"other_chunks: {kind.decode()!r} has an option of its own")
    return area


def _check_room(kept_bytes: int) -> None:
    if kept_bytes > MAX_KEPT_BYTES:
        raise L3Error(
            f"profile, EXIF, XMP and metadata take {kept_bytes} bytes; an L3 file has room for "
            f"{MAX_KEPT_BYTES}",
            Status.INVALID_ARGUMENT,
        )


def _checked_bytes(name: str, value: Buffer | None) -> bytes | None:
    if value is None:
        return None
    try:
        view = memoryview(value)
        _check_room(view.nbytes)  # before they are copied, deaf to interrupts
        return bytes(_copied(view))
    except TypeError:
        raise TypeError(f"{name} is bytes-like, not {type(value).__name__}") from None
