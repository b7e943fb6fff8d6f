"""The images of one shard, several at a time, in order and in little memory."""

from __future__ import annotations

import threading
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from l3dali import codec
from l3dali.console import shortened
from l3dali.datasets.convert.alone import convert_alone
from l3dali.datasets.convert.images import Entry, Outcome, convert_image
from l3dali.datasets.convert.limits import is_limited, report_progress
from l3dali.datasets.convert.storage import new_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from l3dali.datasets.convert.images import Blob, Options

BATCH_BYTES = 2**18  # small images go to a thread together
BATCH_ENTRIES = 32
WAITING_BYTES = 2**24  # a thread, of data read ahead and of results; one image may exceed it

Outcomes = list["Outcome | None"]


SomeEntry = TypeVar("SomeEntry", bound=Entry)


class DamagedImageError(ValueError):
    """An image that cannot be converted, where that fails its shard."""


class Stopped(BaseException):
    """The run must end; a BaseException like KeyboardInterrupt."""


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


def sum_totals(several: Iterable[FormatTotals]) -> FormatTotals:
    """The sum over all formats."""
    total = FormatTotals()
    for one in several:
        total.add(one)
    return total


@dataclass(slots=True, kw_only=True)
class Totals:
    """What images came to."""

    formats: dict[str, FormatTotals] = field(default_factory=dict)  # by format of the source
    failures: list[tuple[str, str]] = field(default_factory=list)  # where, and why
    transient: str = ""  # why another run may have other results, as in `Outcome`, between blanks
    stored: Counter[str] = field(default_factory=Counter)  # images by format
    labels: Counter[str] = field(default_factory=Counter)  # images by the `--labels` that name them
    label_kinds: Counter[str] = field(default_factory=Counter)  # label maps by kind
    remarks: Counter[str] = field(default_factory=Counter)  # images by `Outcome.remarks`

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
        result_bytes = len(blob.data if outcome.data is None else outcome.data)
        self.formats.setdefault(outcome.format, FormatTotals()).add(
            FormatTotals(
                1,
                outcome.source_bytes,
                result_bytes,
                outcome.raw_bytes,
                outcome.expanded,
                outcome.substituted,
            )
        )


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
        self._pixels = new_hash()
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
            DamagedImageError: an image failed, and the options say that this is fatal.
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
                    raise DamagedImageError(f"{blob.place}: {outcome.failure}")
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
