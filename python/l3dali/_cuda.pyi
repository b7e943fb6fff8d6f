from collections.abc import Callable, Sequence
from typing import Any

from l3dali._native import DecodeBatch as DecodeBatch

class Decoder:
    def __init__(self, device_id: int, allocate: Callable[[int, bool], Any]) -> None: ...
    def decode(
        self, batch: DecodeBatch, addresses: Sequence[int], *, stream: int, threads: int
    ) -> None: ...
