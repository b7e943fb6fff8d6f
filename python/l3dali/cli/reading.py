"""Reading images of other formats, as many at a time as memory allows."""

from __future__ import annotations

import argparse
import re
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from l3dali import codec
from l3dali.arguments import LAYOUTS, MAX_PIXELS_RANGE
from l3dali.cli.arguments import number_in, positive_number
from l3dali.codec import DEFAULT_MAX_PIXELS
from l3dali.datasets.convert.limits import cgroup_bytes
from l3dali.errors import L3Error
from l3dali.images.dicom import check_keywords
from l3dali.images.formats import read_header
from l3dali.images.reading import read_picture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from l3dali.cli.arguments import Parser
    from l3dali.images.picture import Picture

# Measured memory for an image: copies of its pixels, to encode; bytes a pixel, to shrink it.
_COPIES, _PIXEL_BYTES = 12, 40


def add_reading_options(parser: Parser) -> None:
    """Adds the options of commands that read images of other formats, many at a time."""
    parser.add_argument("--orient", action="store_true", help="turn images by their EXIF data")
    parser.add_argument(
        "--max-side",
        type=positive_number,
        metavar="N",
        help="shrink larger images to N pixels on the longer side; label maps are not blended",
    )
    add_max_pixels_option(parser)
    add_layout_option(parser)


def add_dicom_option(parser: Parser) -> None:
    """Adds `--dicom-tags`."""
    parser.add_argument(
        "--dicom-tags",
        type=_keywords,
        default=(),
        metavar="NAMES",
        help="more DICOM data elements to keep, such as SliceThickness,StudyDate",
    )


def add_layout_option(parser: Parser) -> None:
    """Adds `--layout`."""
    parser.add_argument(
        "--layout",
        choices=LAYOUTS,
        help="axes of .npy arrays; default: HWC; arrays like CHW are refused",
    )


def _keywords(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    try:
        check_keywords(names)
    except ImportError:
        raise argparse.ArgumentTypeError("needs pydicom: pip install pydicom python-gdcm") from None
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return names


def add_max_pixels_option(parser: Parser) -> None:
    """Adds `--max-pixels`."""
    parser.add_argument(
        "--max-pixels",
        type=number_in(MAX_PIXELS_RANGE),
        default=DEFAULT_MAX_PIXELS,
        metavar="N",
        help="refuse larger images; default: %(default)s",
    )


class PictureReader:
    """Reads images by the options of a command, as many at a time as half the memory allows."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._budget = MemoryBudget(available_memory() // 2)
        self._lock = threading.Lock()
        self.expanded = 0  # images whose palette was replaced by colours
        self.remarks: Counter[str] = Counter()  # images by `Picture.remarks`

    @contextmanager
    def read(self, data: bytes, **how: Any) -> Iterator[Picture]:
        """The picture in an image file, as `read_picture`; reserves memory until the end."""
        header = read_header(data)
        most = self._options.max_pixels
        header.check_pixels(most)
        by_pixels = _PIXEL_BYTES * header.width * header.height
        needed = max(header.read_bytes, _COPIES * header.raw_bytes, by_pixels)
        with self._budget.reserve(needed + len(data)):
            how |= {name: getattr(self._options, name) for name in ("orient", "max_side", "layout")}
            picture = read_picture(data, max_pixels=most, header=header, **how)
            yield picture
        with self._lock:
            self.expanded += picture.expanded
            self.remarks.update(picture.remarks)

    def verify(self, data: bytes, threads: int) -> None:
        """Checks an L3 file within the memory; L3Error has the first problem."""
        size = 0
        with suppress(L3Error):  # verify raises it, too
            size = codec.info(data).raw_bytes
        with self._budget.reserve(size):
            codec.verify(data, threads=threads, max_pixels=self._options.max_pixels)

    def compare(self, source: bytes, data: bytes, threads: int) -> None:
        """Compares an L3 file with its source.

        Raises:
            L3Error: it is damaged; this is checked first.
            ValueError: pixels or palette differ, or the source cannot be read.
        """
        try:
            info = codec.info(data)
            with self.read(source, labels=info.labels) as picture:
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
    """Memory that threads reserve; a request for more than the total gets all of it."""

    def __init__(self, total_bytes: int) -> None:
        self._total = self._free = max(1, total_bytes)
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Waits until `size` bytes are free, and reserves them until the end."""
        size = min(size, self._total)
        with self._changed:
            self._changed.wait_for(lambda: size <= self._free)
            self._free -= size
        try:
            yield
        finally:
            with self._changed:
                self._free += size
                self._changed.notify_all()


def available_memory() -> int:
    """Free bytes of memory, at most the limit of the control group."""
    free = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text("ascii"))
    assert free is not None
    return min(1024 * int(free[1]), cgroup_bytes())
