"""Threads that work on items, whose results come as they are ready."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Item = TypeVar("Item")
Result = TypeVar("Result")


class Stopped(BaseException):
    """The run must end; a BaseException like KeyboardInterrupt."""


class Workers(Generic[Item, Result]):
    """Calls `work(item, add)` in `count` threads; iterates over the results that it adds.

    An exception of `work` is raised by the iterator.
    """

    def __init__(
        self,
        work: Callable[[Item, Callable[[Result], None]], object],
        items: Iterable[Item],
        count: int,
    ) -> None:
        # Ctrl-C may interrupt any call here, so nothing uses a lock of Python's own.
        self._found: queue.SimpleQueue[tuple[Result] | BaseException | None] = queue.SimpleQueue()
        self._todo = iter(items)
        self._work = work
        self._working = count
        self.is_stopped = False
        self._pool = [threading.Thread(target=self._run, daemon=True) for _ in range(count)]

    def __iter__(self) -> Iterator[Result]:
        for thread in self._pool:
            thread.start()
        while self._working:
            found = self._found.get()
            if found is None:
                self._working -= 1
            elif isinstance(found, BaseException):
                raise found
            else:
                yield found[0]

    def stop(self) -> None:
        """Begins no further item."""
        self.is_stopped = True

    def join(self) -> None:
        """Waits for the threads, after `stop`."""
        for thread in self._pool:
            if thread.is_alive():
                thread.join()

    def _run(self) -> None:
        try:
            while not self.is_stopped and (item := next(self._todo, None)) is not None:
                self._work(item, self._add)
        except BaseException as error:
            self._found.put(error)
        self._found.put(None)

    def _add(self, result: Result) -> None:
        self._found.put((result,))
