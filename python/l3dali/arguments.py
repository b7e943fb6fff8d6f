"""Arrays and arguments of the codec: which are valid, and the form that the native module takes."""

from __future__ import annotations

import operator
import os
from collections import Counter
from collections.abc import Sized
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from l3dali.errors import L3Error, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

SAMPLE_TYPES = (
    *("uint8", "uint16", "int8", "int16"),
    *("uint32", "int32", "float16", "float32"),  # in files of version 2
)
SAMPLE_SCALARS = frozenset(np.dtype(name).type for name in SAMPLE_TYPES)  # quicker than names
MAX_PIXELS = 2**31
MAX_CHANNELS = 4096
MAX_BYTES = 2**35 - 2**16  # of an image to encode
MAX_PIXELS_RANGE = range(1, MAX_PIXELS + 1)
THREADS = range(1025)  # 0: all of the machine
TILE_WIDTHS = (32, 64, 128, 256)
TILE_HEIGHTS = (8, 16, *TILE_WIDTHS)
MAX_KEPT_BYTES = 2**28 - 2**20  # of the chunks of a file; the rest is for the encoder's own
# One: loaders call from many processes or threads, and each would start as many as the machine has.
DEFAULT_THREADS = 1

Image = npt.NDArray[Any]  #: An array of one of SAMPLE_TYPES.
Window = tuple[int, int, int, int]  #: Top, left, height and width, in pixels.
Layout = Literal["HWC", "CHW"]  #: The order of axes.
LAYOUTS: tuple[Layout, ...] = ("HWC", "CHW")
_LARGE_SIDE = 32  # of arrays that have their channels first, surely
_BAND_BYTES, _BAND_ROWS = 1 << 24, 64  # of an array, copied between two interrupts

# What to do with samples that L3 does not hold; the guide's "Floats" has more.
_ADVICE = {
    "bool": "astype(numpy.uint8) makes them 0 and 1",
    "float64": "astype(numpy.float32) rounds them",
    "int64": "astype(numpy.int32) keeps the numbers if they fit",
    "uint64": "astype(numpy.uint32) keeps the numbers if they fit",
}


def unsupported_samples(dtype: np.dtype[Any]) -> str:
    """Says that L3 has no samples of this type, and what can be done."""
    text = f"samples of type {dtype} are not supported; L3 holds {', '.join(SAMPLE_TYPES)}"
    advice = _ADVICE.get(dtype.name)
    return f"{text} ({advice})" if advice else text


def as_hwc(image: npt.ArrayLike, layout: Layout | None) -> Image:
    """The image as the encoder takes it: three axes, packed rows, native byte order."""
    if layout is not None and layout not in LAYOUTS:
        raise ValueError(f"layout {layout!r} is not supported; layouts: {', '.join(LAYOUTS)}")
    if isinstance(image, (str, os.PathLike)):
        raise TypeError(
            "encode takes an array, not a path; transcode takes the bytes of an image file"
        )
    # Plain arrays are checked first, since np.ma takes some time to import.
    if type(image) is not np.ndarray and isinstance(image, np.ma.MaskedArray):
        raise TypeError("masked arrays are not supported; fill them, or take their data")
    array = np.asarray(image)
    if array.dtype.type not in SAMPLE_SCALARS:
        raise TypeError(unsupported_samples(array.dtype))
    if array.ndim == 2:
        array = array[:, :, np.newaxis]
    elif array.ndim == 3 and layout == "CHW":
        array = np.moveaxis(array, 0, 2)
    elif array.ndim == 3 and layout is None and has_channels_first(array.shape, 3, 4):
        raise ValueError(ask_for_layout(array.shape))
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
    return packed_rows(array)


def packed_rows(image: Image) -> Image:
    """The image with packed rows in native byte order: itself, or a copy that an interrupt ends."""
    dtype = image.dtype.newbyteorder("=")
    is_packed = image[:1].flags.c_contiguous and image.dtype == dtype
    if is_packed and (len(image) == 1 or image.strides[0] >= image[0].nbytes):
        return image
    copy = np.empty(image.shape, dtype)
    rows = max(_BAND_ROWS, _BAND_BYTES * len(image) // max(1, copy.nbytes))
    for top in range(0, len(image), rows):
        copy[top : top + rows] = image[top : top + rows]
    return copy


def has_channels_first(shape: tuple[int, ...], least: int = 1, most: int = MAX_CHANNELS) -> bool:
    """Whether an array of three axes looks like (C, H, W), with `least` to `most` channels."""
    return least <= shape[0] <= most and shape[0] < min(shape[1:]) >= _LARGE_SIDE


def ask_for_layout(shape: tuple[int, ...]) -> str:
    """The error for an array that looks like (C, H, W)."""
    return (
        f"shape {shape} looks like {shape[0]} channels first: use layout='CHW', "
        f"or layout='HWC' for {shape[0]} rows with {shape[2]} channels"
    )


def checked_out(name: str, out: Image, shape: tuple[int, int, int], dtype: str) -> Image:
    """`out` with three axes, if an image of `shape` can be decoded to it."""
    if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
        raise TypeError(f"{name} must be a NumPy array, not {type(out).__name__}")
    out = np.ndarray.view(out, np.ndarray)  # The caller's may take another shape meanwhile.
    if out.dtype != np.dtype(dtype):
        raise TypeError(f"{name} has dtype {out.dtype}, but the image has {dtype}")
    wanted = shape if shape[2] != 1 else shape[:2]
    if out.shape not in (wanted, shape):
        raise ValueError(f"{name} has shape {out.shape}, but the decoded image has {wanted}")
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
            f"{name} has strides {out.strides}: the pixels of a row must be contiguous and "
            f"aligned, and rows must not overlap"
        )
    return hwc


def checked_files(
    items: Sequence[Any], bytes_of: Callable[[Any], Buffer] = lambda item: item
) -> list[Buffer]:
    """The files of a batch as the native codec takes them; `bytes_of` gives those of an item."""
    is_one = isinstance(items, (str, bytes, bytearray, memoryview))
    hint = None if isinstance(items, Sized) else "make a list of it"
    if is_one or getattr(items, "dtype", None) not in (None, object):  # an array or a tensor
        hint = "put one file in a list"
    if hint is not None:
        raise TypeError(f"items must be a sequence of files, not {type(items).__name__}: {hint}")
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
    """Validates the windows of `count` items."""
    if windows is None:
        return [None] * count
    if not isinstance(windows, Sized):
        raise TypeError(
            f"windows must be a sequence, not {type(windows).__name__}: make a list of it"
        )
    if len(windows) != count:
        raise ValueError(f"{len(windows)} windows for {count} items")
    return [checked_window(f"windows[{i}]", window) for i, window in enumerate(windows)]


def checked_window(name: str, window: Window | None) -> Window | None:
    """Validates a window; `name` is that of the argument."""
    if window is None:
        return None
    try:
        top, left, height, width = map(operator.index, window)
    except (TypeError, ValueError):
        raise TypeError(
            f"{name} must be four integers, top, left, height and width, not {window!r}"
        ) from None
    if min(top, left) < 0 or min(height, width) < 1 or max(top, left, height, width) > MAX_PIXELS:
        raise ValueError(
            f"{name} is {window!r}: top and left must be 0 or more, height and width 1 or "
            f"more, and all at most {MAX_PIXELS}"
        )
    return top, left, height, width


def checked_channels(channels: Sequence[int] | None) -> list[int]:
    """Validates numbers of channels; an empty list stands for all."""
    if channels is None:
        return []
    numbers = integers("channels", channels)
    if not numbers:
        raise ValueError("channels is empty; None decodes all")
    for number in numbers:
        if not 0 <= number < MAX_CHANNELS:
            raise ValueError(f"channels must be 0 to {MAX_CHANNELS - 1}, not {number}")
    repeated = [number for number, count in Counter(numbers).items() if count > 1]
    if repeated:
        raise ValueError(f"channels names {repeated[0]} more than once")
    return numbers


def integers(name: str, numbers: Sequence[int]) -> list[int]:
    try:
        items = list(numbers)
        if not any(isinstance(item, bool) for item in items):  # a mask, to NumPy
            return [operator.index(item) for item in items]
    except TypeError:
        pass
    raise TypeError(f"{name} must be a sequence of integers, not {numbers!r}")


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
    if "O" in view.format:
        raise TypeError("the bytes of a file are needed, not an array of objects")
    return view if view.c_contiguous and view.ndim else view.tobytes()  # Slices need an axis.


def checked_number(name: str, value: int, allowed: range) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None
    if number not in allowed:
        raise ValueError(f"{name} must be {allowed[0]} to {allowed[-1]}, not {number}")
    return number


def checked_threads(value: int) -> int:
    """Validates the number of threads."""
    return checked_number("threads", value, THREADS)


def checked_max_pixels(value: int | None) -> int:
    """The limit that `max_pixels` sets."""
    return MAX_PIXELS if value is None else checked_number("max_pixels", value, MAX_PIXELS_RANGE)


# Modes of Pillow whose samples are no gray, RGB or alpha, as those of L3 are.
_OTHER_COLOURS = frozenset({"P", "PA", "CMYK", "YCbCr", "LAB", "HSV", "La", "RGBa", "RGBX"})


def check_mode(image: Any, *, labels: bool) -> None:
    """Refuses images of Pillow whose samples are no gray, RGB or alpha."""
    mode = getattr(image, "mode", None) if hasattr(image, "getbands") else None  # of Pillow
    if mode in _OTHER_COLOURS and not (mode == "P" and labels):
        raise TypeError(
            f"Pillow images of mode {mode} are not supported: use numpy.asarray for the samples, "
            'convert("RGB") for the colours, or l3dali.pillow to save the palette'
        )


def is_palette(entries: bytes) -> bool:
    return len(entries) % 4 == 0 and 4 <= len(entries) <= 1024


def strip_exif_prefix(exif: bytes | None) -> bytes | None:
    """An EXIF block from its TIFF header on, as L3 and PNG hold it."""
    return None if exif is None else exif.removeprefix(b"Exif\0\0")


def checked_groups(groups: Sequence[Sequence[int]] | None, channels: int) -> list[list[int]]:
    """Validates groups of channels; an empty list lets the encoder choose."""
    if groups is None:
        return []
    if not isinstance(groups, Sized):
        raise TypeError(f"groups must be a sequence of lists, not {type(groups).__name__}")
    lists = [integers(f"groups[{i}]", group) for i, group in enumerate(groups)]
    if channels <= 4:
        raise ValueError(
            f"groups need an image of more than 4 channels, and this one has {channels}"
        )
    if not all(1 <= len(group) <= 4 for group in lists):
        raise ValueError("a group must have 1 to 4 channels")
    if sorted(number for group in lists for number in group) != list(range(channels)):
        raise ValueError(f"groups must name each channel from 0 to {channels - 1} once")
    return lists


def checked_tile(tile: tuple[int, int] | None) -> tuple[int, int] | None:
    if tile is None:
        return None
    try:
        height, width = map(operator.index, tile)
    except (TypeError, ValueError):
        raise TypeError(f"tile must be two integers, height and width, not {tile!r}") from None
    if height not in TILE_HEIGHTS or width not in TILE_WIDTHS:
        raise ValueError(
            f"tile {tile} is not supported; heights: {TILE_HEIGHTS}, widths: {TILE_WIDTHS}"
        )
    return height, width


def check_room(kept_bytes: int) -> None:
    if kept_bytes > MAX_KEPT_BYTES:
        raise L3Error(
            f"profile, EXIF, XMP and metadata take {kept_bytes} bytes; an L3 file has room for "
            f"{MAX_KEPT_BYTES}",
            Status.INVALID_ARGUMENT,
        )


def checked_bytes(name: str, value: Buffer | None) -> bytes | None:
    if value is None:
        return None
    try:
        return memoryview(value).tobytes()
    except TypeError:
        raise TypeError(f"{name} must be bytes-like, not {type(value).__name__}") from None
