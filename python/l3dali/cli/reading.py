"""Reading images of other formats within limits of memory."""

from __future__ import annotations

import argparse
import ctypes
import re
import threading
from collections import deque
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from l3dali import codec
from l3dali.arguments import MAX_PIXELS_RANGE
from l3dali.cli.arguments import positive_number
from l3dali.codec import DEFAULT_MAX_PIXELS
from l3dali.datasets.convert.limits import cgroup_bytes
from l3dali.errors import L3Error
from l3dali.images.headers import read_header
from l3dali.images.reading import read_picture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from l3dali.cli.arguments import Parser
    from l3dali.images.picture import Picture

# Memory for the work on an image, in copies of its pixels: 4.5 for packed and for comparing, up to
# 10 for rans of few channels (measured, with tiles of 128 x 128).
_COPIES, _RANS_COPIES = 6, 12
_TRIMMED_BYTES = 2**24
_SHRINK_BYTES = 36  # a pixel that is resampled, in floats, with its alpha and Pillow's copies


def add_reading_options(parser: Parser) -> None:
    """Adds the options of commands that read images of other formats, many at a time."""
    parser.add_argument("--orient", action="store_true", help="turn images as their EXIF says")
    parser.add_argument(
        "--max-side",
        type=positive_number,
        metavar="N",
        help="shrink larger images to N pixels on the longer side, antialiased; label maps and "
        "palette entries take the nearest pixel",
    )
    add_max_pixels_option(parser)
    parser.add_argument(
        "--memory",
        type=positive_number,
        metavar="MB",
        help="limit for all images in work together; an image that needs more is worked on alone; "
        "default: half of the free memory",
    )


def add_max_pixels_option(parser: Parser) -> None:
    """Adds `--max-pixels`."""
    parser.add_argument(
        "--max-pixels",
        type=_pixel_count,
        default=DEFAULT_MAX_PIXELS,
        metavar="N",
        help="refuse larger images before they are decoded; default: %(default)s",
    )


def _pixel_count(text: str) -> int:
    number = positive_number(text)
    if number not in MAX_PIXELS_RANGE:
        raise argparse.ArgumentTypeError(f"{text} is over the limit {MAX_PIXELS_RANGE[-1]} of L3")
    return number


class PictureReader:
    """Reads images by the options of a command, as many at a time as memory allows.

    Attributes:
        expanded: how many palette images have become colours.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        megabytes = options.memory or available_memory() // 2_000_000
        self._budget = MemoryBudget(megabytes * 1_000_000)
        self._lock = threading.Lock()
        self.expanded = 0

    @contextmanager
    def read(self, data: bytes, *, beside_bytes: int = 0, **how: Any) -> Iterator[Picture]:
        """The picture in an image file; the memory for the work on it is reserved until the end.

        Args:
            data: the bytes of the file.
            beside_bytes: more memory that the work needs.
            **how: palette, labels, keep_text and refuse_labels, as in `read_picture`.

        Raises:
            ImageError: as `read_picture` does.
        """
        header = read_header(data)
        header.check_pixels(self._options.max_pixels)
        is_rans = getattr(self._options, "coding", None) == "rans"
        copies = _RANS_COPIES if is_rans else _COPIES
        needed = max(header.read_bytes, copies * header.raw_bytes)
        most = self._options.max_side
        if most is not None and most < max(header.width, header.height):
            shrinking = header.raw_bytes + _SHRINK_BYTES * header.width * header.height
            needed = max(needed, shrinking)
        with self._budget.reserve(needed + len(data) + beside_bytes):
            picture = read_picture(
                data,
                orient=self._options.orient,
                max_side=most,
                max_pixels=self._options.max_pixels,
                header=header,
                **how,
            )
            yield picture
        with self._lock:
            self.expanded += picture.expanded

    def verify(self, data: bytes, threads: int) -> None:
        """Checks an L3 file; the memory for it is reserved meanwhile.

        Raises:
            L3Error: the first problem found.
        """
        size = 0
        with suppress(L3Error):  # which decoders find, too
            size = codec.info(data).raw_bytes
        with self._budget.reserve(size):
            codec.verify(data, threads=threads, max_pixels=self._options.max_pixels)

    def compare(self, source: bytes, data: bytes, threads: int) -> None:
        """Compares an L3 file with the image file that it was made from.

        Raises:
            L3Error: it is damaged; this is checked first.
            ValueError: pixels or palette differ, or the source cannot be read.
        """
        try:
            info = codec.info(data)
            size = info.raw_bytes
            with self.read(source, labels=info.labels, beside_bytes=size) as picture:
                decoded = codec.decode(data, threads=threads, max_pixels=self._options.max_pixels)
                compare(decoded, picture.pixels)
                if picture.palette != info.palette:
                    raise ValueError("the palette differs from the source's")
        except Exception:
            self.verify(data, threads)
            raise


def compare(decoded: codec.Image, source: codec.Image) -> None:
    """Raises ValueError unless the two images are the same."""
    if (decoded.dtype, decoded.shape) != (source.dtype, source.shape):
        raise ValueError(f"the source is {_kind(source)}; the L3 image {_kind(decoded)}")
    if not np.array_equal(decoded, source):
        raise ValueError("the pixels differ from the source's")


def _kind(image: codec.Image) -> str:
    height, width, channels = (*image.shape, 1)[:3]
    signed = " signed" if image.dtype.kind == "i" else ""
    return f"{width} x {height}, channels: {channels}, {8 * image.dtype.itemsize} bits{signed}"


class MemoryBudget:
    """Memory that threads reserve, in the order of their requests.

    A request for more than the total gets all of it, and so its thread works alone.
    """

    def __init__(self, total_bytes: int) -> None:
        self._total = self._free = max(1, total_bytes)
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Waits until `size` bytes are free, and reserves them until the end."""
        size = min(size, self._total)
        turn = object()
        with self._changed:
            self._waiting.append(turn)
            try:
                self._changed.wait_for(lambda: self._waiting[0] is turn and size <= self._free)
                self._free -= size
            finally:
                self._waiting.remove(turn)
                self._changed.notify_all()
        try:
            yield
        finally:
            if size > _TRIMMED_BYTES:
                with suppress(AttributeError, OSError):  # another C library
                    ctypes.CDLL(None).malloc_trim(0)  # glibc keeps freed memory for each thread
            with self._changed:
                self._free += size
                self._changed.notify_all()


def available_memory() -> int:
    """Bytes of memory that are free, at most the limit of the control group."""
    free = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text("ascii"))
    assert free is not None
    return min(1024 * int(free[1]), cgroup_bytes())
