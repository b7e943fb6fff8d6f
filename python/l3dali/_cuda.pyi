from collections.abc import Callable, Sequence
from typing import Any

from l3dali._native import DecodeBatch as DecodeBatch

class Decoder:
    def __init__(self, device_id: int, allocate: Callable[[int, bool], Any]) -> None: ...
    def decode(
        self, batch: DecodeBatch, addresses: Sequence[int], *, stream: int, threads: int
    ) -> None: ...

class Meter:
    """Times work of a device with memory of its own: seconds of the clock, and of all cores."""

    def __init__(self, device_id: int) -> None: ...
    def upload(self, bytes: int, *, count: int) -> tuple[float, float]:
        """A copy from pinned memory, of `count` in a row after one that warms up."""

    def decode(
        self, batch: DecodeBatch, *, is_cached: bool, count: int, threads: int
    ) -> tuple[float, float]:
        """A batch, of `count` in a row with two in flight, after one that warms up.

        It comes from the host's memory, or is in the device's.
        """

def free_bytes(device_id: int) -> int:
    """Unused memory of the device, in bytes."""
