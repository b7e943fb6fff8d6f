"""Converts images: several of a shard, in order and in little memory; or one in a process alone."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from l3dali import codec
from l3dali.datasets.convert.conversion import convert_image, failed_outcome
from l3dali.datasets.convert.images import Totals
from l3dali.datasets.convert.workers import (
    CPU_SECONDS,
    WAIT_SECONDS,
    ChildDiedError,
    borrowed,
    is_limited,
    limit_memory,
    limited,
    reason_of,
    report_progress,
    set_clocks,
    why_ended,
)
from l3dali.images.formats import read_header
from l3dali.images.reading import read_picture
from l3dali.threads import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from l3dali.datasets.convert.images import Blob, Options, Outcome, Outcomes, SomeEntry
    from l3dali.images.picture import Picture

BATCH_BYTES = 2**18  # small images go to a thread together
BATCH_ENTRIES = 32
WAITING_BYTES = 2**24  # a thread, of data read ahead and of results; one image may exceed it


class ImagePool:
    """Converts the images of a shard on `threads` threads, and counts them in `totals`."""

    def __init__(
        self,
        options: Options,
        threads: int = 1,
        threads_per_image: int = 1,
        totals: Totals | None = None,
    ) -> None:
        self.options = options
        self.totals = Totals() if totals is None else totals
        self._pixels = sha256()
        self._threads = threads
        self._threads_per_image = threads_per_image
        self._cancelled = threading.Event()

    @property
    def pixels_hash(self) -> str:
        """Hash of the pixels of all images, in order; "" without images."""
        return self._pixels.hexdigest() if self.totals.formats else ""

    def convert(self, entries: Iterable[SomeEntry]) -> Iterator[tuple[SomeEntry, Outcomes]]:
        """Yields each entry with the outcomes of its blobs; None for data that is not an image.

        Nothing here keeps an entry that has been yielded. Nor should the caller's variables, when
        they ask for the next one: images may be large.

        Raises:
            ValueError: an image failed, and the options say that this is fatal.
        """
        pool = ThreadPoolExecutor(self._threads)
        waiting: deque[tuple[list[SomeEntry], int, Future[deque[Outcomes]]]] = deque()
        waiting_bytes = 0
        try:
            for batch, size in _batches(entries):
                waiting.append((batch, size, pool.submit(self._convert_batch, batch)))
                waiting_bytes += size
                del batch
                while len(waiting) > 2 * self._threads + 1 or (
                    len(waiting) >= self._threads and waiting_bytes > self._threads * WAITING_BYTES
                ):
                    waiting_bytes -= waiting[0][1]
                    yield from self._finished(*waiting.popleft())
            while waiting:
                yield from self._finished(*waiting.popleft())
        finally:
            # An encoder stops within a moment. A reader does not, and is not waited for.
            self._cancelled.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _convert_batch(self, batch: list[SomeEntry]) -> deque[Outcomes]:
        return deque([self._convert_blob(blob) for blob in entry.blobs] for entry in batch)

    def _convert_blob(self, blob: Blob) -> Outcome | None:
        self._check()
        arguments = blob, self.options, self._threads_per_image
        is_alone = self.options.careful and self.options.to == "l3"
        if not is_alone:
            with codec.interruptible(self._check_work):
                outcome = convert_image(*arguments)
            is_alone = is_limited() and outcome is not None and outcome.transient == "memory"
        if is_alone:
            outcome = convert_alone(*arguments, self._check_work)
        report_progress()
        return outcome

    def _check_work(self) -> None:
        report_progress()  # L3's encoder, and a child with its own limits, may take long.
        self._check()

    def _check(self) -> None:
        if self._cancelled.is_set():
            raise Stopped

    def _finished(
        self, batch: list[SomeEntry], _size: int, future: Future[deque[Outcomes]]
    ) -> Iterator[tuple[SomeEntry, Outcomes]]:
        results = future.result()
        del future
        for entry in batch:
            outcomes = results.popleft()
            for blob, outcome in zip(entry.blobs, outcomes, strict=True):
                if outcome is None:
                    continue
                self.totals.add(blob, outcome, self.options)
                self._pixels.update(outcome.pixels_hash)
                if outcome.failed and self.options.on_error == "fail":
                    raise ValueError(f"{blob.place}: {outcome.failure}")
            yield entry, outcomes
            del outcomes


def _batches(entries: Iterable[SomeEntry]) -> Iterator[tuple[list[SomeEntry], int]]:
    """Entries in groups, and the bytes of each."""
    batch: list[SomeEntry] = []
    size = 0
    for entry in entries:
        batch.append(entry)
        size += entry.bytes
        del entry
        if size >= BATCH_BYTES or len(batch) >= BATCH_ENTRIES:
            whole, batch = batch, []
            yield whole, size
            del whole
            size = 0
    if batch:
        yield batch, size


BYTES_A_SECOND = 2**20  # of samples, of the slowest decoders
_BASE_BYTES = 2**28
_TIMES_ESTIMATE = 2  # of the estimated peak
_TIMES_FILE = 4
_PIXEL_BYTES = 40  # a pixel, to shrink an image


def convert_alone(
    blob: Blob,
    options: Options,
    threads: int,
    check: Callable[[], object] = lambda: None,
) -> Outcome | None:
    """Calls `convert_image` in a child; if that dies, the outcome has the reason.

    `check` is called often; its exceptions end the child, and are raised here.
    """
    try:
        with borrowed() as child:
            outcome: Outcome | None = child.call(_convert, blob, options, threads, check=check)
    except ChildDiedError as error:
        transient = "memory" if error.code == -signal.SIGKILL else ""  # killed by the system
        is_image = replace(options, all_images=True)
        return failed_outcome(blob, is_image, why_ended(error), transient=transient)
    return outcome


def read_alone(data: bytes, options: Options, *, labels: bool) -> Picture:
    """Calls `read_picture` in a child.

    Raises:
        ValueError: the child has died.
    """
    try:
        with borrowed() as child:
            picture: Picture = child.call(_read, data, options, labels)
    except ChildDiedError as error:
        raise ValueError(why_ended(error)) from None
    return picture


def _convert(blob: Blob, options: Options, threads: int) -> Outcome | None:
    with limited(options.worker_memory, _cores()):
        read = partial(_read_limited, options)
        outcome = convert_image(blob, options, threads, read)
        if outcome is not None and outcome.transient == "memory":
            outcome = replace(outcome, failure=reason_of(MemoryError()))
    return outcome


def _read(data: bytes, options: Options, labels: bool) -> Picture:
    with limited(options.worker_memory, _cores()):
        return _read_limited(options, data, **options.reading(labels=labels))


def _read_limited(options: Options, data: bytes, **how: Any) -> Picture:
    set_clocks(CPU_SECONDS, WAIT_SECONDS)
    os.environ["TIFFFILE_NUM_THREADS"] = "1"  # Images are read side by side.
    header = read_header(data, volumes=options.volumes)
    header.check_pixels(options.max_pixels)
    size = _BASE_BYTES + _TIMES_FILE * len(data) + _TIMES_ESTIMATE * header.read_bytes
    if options.max_side is not None:
        size += _PIXEL_BYTES * header.width * header.height
    limit_memory(max(size, options.worker_memory), _cores())
    seconds = CPU_SECONDS + header.raw_bytes // BYTES_A_SECOND
    set_clocks(seconds, max(WAIT_SECONDS, 10 * seconds))
    picture = read_picture(data, header=header, **how)
    set_clocks(0, 0)  # Encoding has no limits.
    limit_memory(None)
    return picture


def _cores() -> int:
    """Some libraries start a thread for each."""
    return os.cpu_count() or 1
