"""Reading images of other formats: options, limits, and what is to be said about it."""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import threading
from collections import defaultdict, deque
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.cli.arguments import add_orient_option, positive_number
from l3dali.cli.work import compare
from l3dali.codec import DEFAULT_MAX_PIXELS, MAX_PIXELS_RANGE
from l3dali.errors import L3Error
from l3dali.images.headers import read_header
from l3dali.images.reading import read_picture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from l3dali.cli.arguments import Parser
    from l3dali.images.picture import Palette, Picture

# What encoding and comparing take, as copies of the pixels (measured: 3.5 for encoding, and the
# pixels themselves; a decoded copy with --verify).
_COPIES = 6
# Of one or few channels, and of small tiles, rans takes more: for a pixel, and for a tile.
_RANS_BYTES, _RANS_TILE_BYTES = 8, 5120
_KEPT_PART = 4  # of the budget: what threads may keep of images that are done
# glibc keeps up to 64 MiB for each thread, which malloc_trim leaves there, once blocks of half of
# that were freed: https://man7.org/linux/man-pages/man3/mallopt.3.html
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_FEWEST_KEPT_BYTES, _MOST_KEPT_BYTES = 2**17, 2**25  # what glibc begins with, and goes up to
_LARGE_SIDE, _NARROW_SIDE = 128, 16  # of tiles, where the encoder chooses them; of images
# A pixel that is resampled, in floats: a channel, its weights by alpha, Pillow's copies, and what
# glibc keeps of them.
_SHRINK_BYTES = 36
_MAX_REMARKS = 20


def add_reading_options(parser: Parser) -> None:
    """Adds the options of commands that read images of other formats, many at a time."""
    add_orient_option(parser)
    parser.add_argument(
        "--max-side",
        type=positive_number,
        metavar="N",
        help="make larger images smaller: N pixels on the longer side, antialiased; numbers of "
        "classes and palette entries from the nearest pixel",
    )
    add_max_pixels_option(parser)
    parser.add_argument(
        "--memory",
        type=positive_number,
        metavar="MB",
        help="what the images in work may take together; one that needs more is worked on "
        "alone; default: half of what is free",
    )


def add_max_pixels_option(parser: Parser) -> None:
    """Adds `--max-pixels`."""
    parser.add_argument(
        "--max-pixels",
        type=_pixel_count,
        default=DEFAULT_MAX_PIXELS,
        metavar="N",
        help="refuse images of more pixels, before they are decoded; default: %(default)s",
    )


def _pixel_count(text: str) -> int:
    number = positive_number(text)
    if number not in MAX_PIXELS_RANGE:
        raise argparse.ArgumentTypeError(
            f"{text} is over {MAX_PIXELS_RANGE[-1]}, which L3 can hold"
        )
    return number


class PictureReader:
    """Reads images as the options of a command say, no more at once than memory holds.

    Attributes:
        expanded: how many images held numbers of palette entries and have become colours.
        remarks: what libraries have said, and the files that they have said it of.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        megabytes = options.memory or available_memory() // 2_000_000
        self._budget = MemoryBudget(megabytes * 1_000_000)
        _keep_little(megabytes * 1_000_000 // (_KEPT_PART * options.jobs))
        self._lock = threading.Lock()
        self.expanded = 0
        self.remarks: dict[str, list[Path]] = defaultdict(list)

    @contextmanager
    def read(
        self,
        path: Path,
        data: bytes,
        *,
        palette: Palette = "rgb",
        labels: bool = False,
        keep_text: bool = False,
        refuse_labels: bool = False,
        beside_bytes: int = 0,
    ) -> Iterator[Picture]:
        """The picture in an image file; what the work on it takes is set aside until the end.

        Args:
            path: of the file.
            data: its bytes.
            palette: as in `read_picture`.
            labels: as in `read_picture`.
            keep_text: as in `read_picture`.
            refuse_labels: as in `read_picture`.
            beside_bytes: what the work takes more.

        Raises:
            ImageError: as `read_picture` does.
        """
        header = read_header(data)
        header.check_pixels(self._options.max_pixels)
        needed = max(header.read_bytes, _COPIES * header.raw_bytes)
        if getattr(self._options, "coding", None) == "rans":
            shape = header.height, header.width
            # Of narrow images, tiles are twice as long.
            sides = self._options.tile or [_LARGE_SIDE << (min(shape) < _NARROW_SIDE)] * 2
            tile = math.prod(map(min, sides, shape))
            of_pixel = (_RANS_BYTES + _RANS_TILE_BYTES / tile) * header.fours
            work = int(header.width * header.height * of_pixel)
            needed = max(needed, 2 * header.raw_bytes + work)
        most = self._options.max_side
        if most is not None and most < max(header.width, header.height):
            shrinking = header.raw_bytes + _SHRINK_BYTES * header.width * header.height
            needed = max(needed, shrinking)
        with self._budget.reserve(needed + len(data) + beside_bytes):
            picture = read_picture(
                data,
                palette=palette,
                labels=labels,
                orient=self._options.orient,
                max_side=self._options.max_side,
                max_pixels=self._options.max_pixels,
                keep_text=keep_text,
                refuse_labels=refuse_labels,
                header=header,
            )
            yield picture
        with self._lock:
            self.expanded += picture.expanded
            for remark in picture.remarks:
                self.remarks[remark].append(path)

    def verify(self, data: bytes, threads: int) -> None:
        """Checks an L3 file; what that takes is set aside meanwhile.

        Raises:
            L3Error: the first problem found.
        """
        size = 0
        with suppress(L3Error):  # which decoders find, too
            size = codec.info(data).raw_bytes
        with self._budget.reserve(size):
            codec.verify(data, threads=threads, max_pixels=self._options.max_pixels)

    def compare(self, path: Path, source: bytes, data: bytes, threads: int) -> None:
        """Compares an L3 file with the image file that it was made from.

        Raises:
            L3Error: it is damaged; this comes before all else.
            ValueError: pixels or palette are others, or the source cannot be read.
        """
        try:
            self._compare(path, source, data, threads)
        except Exception as error:
            failure = error.with_traceback(None)  # which would keep the pixels
        else:
            return
        try:
            self.verify(data, threads)
            raise failure
        finally:
            del failure  # It has this frame now, which has both files.

    def _compare(self, path: Path, source: bytes, data: bytes, threads: int) -> None:
        info = codec.info(data)
        size = info.raw_bytes
        with self.read(path, source, labels=info.labels, beside_bytes=size) as picture:
            decoded = codec.decode(data, threads=threads, max_pixels=self._options.max_pixels)
            compare(decoded, picture.pixels)
        if picture.palette != info.palette:
            raise ValueError("the palette differs from the source's")

    def remarks_told(self) -> list[str]:
        """A line for each remark, with the first file that it is of."""
        return [
            f"{remark}: {len(paths)} files; the first is {min(paths)}"
            if len(paths) > 1
            else f"{remark}: {paths[0]}"
            for remark, paths in sorted(self.remarks.items())[:_MAX_REMARKS]
        ]


def _keep_little(size: int) -> None:
    """Bounds what glibc keeps for a thread, where that is less than it would: it costs time."""
    if size < _MOST_KEPT_BYTES:
        for parameter in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            with suppress(AttributeError, OSError):  # another library of C
                ctypes.CDLL(None).mallopt(parameter, max(_FEWEST_KEPT_BYTES, size))


class MemoryBudget:
    """Hands out memory to threads; those that wait come first, first served.

    Whoever asks for more than there is gets all of it, and so works alone.
    """

    def __init__(self, total_bytes: int) -> None:
        self._total = self._free = max(1, total_bytes)
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._untrimmed = 0  # bytes that were reserved since glibc gave back what is free

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Waits until `size` bytes are free, and has them until the end."""
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
            self._trim(size)  # before another takes it
            with self._changed:
                self._free += size
                self._changed.notify_all()

    def _trim(self, size: int) -> None:
        """Gives the system what is free, now and then: glibc keeps it for each thread."""
        with self._changed:
            self._untrimmed += size
            is_much = self._untrimmed > self._total // _KEPT_PART
            self._untrimmed = 0 if is_much else self._untrimmed
        if is_much:
            with suppress(AttributeError, OSError):  # another library of C
                ctypes.CDLL(None).malloc_trim(0)


def available_memory() -> int:
    """Bytes of memory that are free, to the machine and to the group that this process is in."""
    free = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            free.append(int(line.split()[1]) * 1024)
    # Control groups, version 2: a container has a limit of its own.
    for line in _lines(Path("/proc/self/cgroup")):
        if line.startswith("0::"):
            folder = Path("/sys/fs/cgroup") / line[3:].lstrip("/")
            for group in (folder, *folder.parents):
                limit = _number(group / "memory.max")
                used = _number(group / "memory.current")
                if limit is not None and used is not None:
                    # Pages of files that it counts are given up where they are needed.
                    counts = dict(line.split() for line in _lines(group / "memory.stat"))
                    files = sum(
                        int(counts.get(f"{kind}_file", 0)) for kind in ("active", "inactive")
                    )
                    free.append(max(0, limit - used + min(files, used)))
                if group == Path("/sys/fs/cgroup"):
                    break
    return min(free)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    text = "".join(_lines(path))
    return int(text) if text.isdecimal() else None
