"""The share of decoding that cores take over from a GPU."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Balancer", "DecodeSums"]


class DecodeSums(NamedTuple):
    """Sums since the beginning."""

    batches: int
    cpu_seconds: float  # while cores decoded, however many
    gpu_seconds: float


class Balancer:
    """Finds the share at which cores and the GPU take equally long for their parts of a batch.

    The share moves in steps, as in RPROP (Riedmiller and Braun, 1993): the step is halved when the
    direction turns, and grows while it stays.

    Attributes:
        share: the share of images that cores decode, 0 to 1.
    """

    # A move is the step times the part of the time that the faster part of a batch waits.
    WINDOW_BATCHES = 8  # are measured before a move
    SETTLING_BATCHES = 4  # after it do not count: they began before it
    TOLERANCE = 0.1  # smaller waits change nothing
    MIN_STEP = 1 / 64
    MAX_STEP = 1 / 8
    GROWTH = 1.2

    def __init__(self, share: float = 0.0) -> None:
        """Begins at a share, 0 to 1."""
        if not 0 <= share <= 1:
            raise ValueError(f"a share must be 0 to 1, not {share}")
        self.share = float(share)
        self._step = self.MAX_STEP / 2
        self._direction = 0
        self._begin: DecodeSums | None = None  # of the window
        self._settled_at = self.SETTLING_BATCHES  # those before warm up

    def observe(self, sums: DecodeSums) -> float:
        """Takes the sums measured so far; returns the share of the next batch."""
        if sums.batches < self._settled_at:
            return self.share
        if self._begin is None:
            self._begin = sums
        if sums.batches - self._begin.batches < self.WINDOW_BATCHES:
            return self.share
        cpu_s = sums.cpu_seconds - self._begin.cpu_seconds
        gpu_s = sums.gpu_seconds - self._begin.gpu_seconds
        self._begin = None
        self._settled_at = sums.batches
        longer_s = max(gpu_s, cpu_s)
        if abs(gpu_s - cpu_s) > self.TOLERANCE * longer_s:
            self._move((gpu_s - cpu_s) / longer_s)
            self._settled_at += self.SETTLING_BATCHES
        return self.share

    def _move(self, wait: float) -> None:
        """Moves by a wait, -1 to 1: of the cores, or if negative of the GPU."""
        direction = 1 if wait > 0 else -1
        if direction == -self._direction:
            self._step = max(self.MIN_STEP, self._step / 2)
        elif direction == self._direction:
            self._step = min(self.MAX_STEP, self._step * self.GROWTH)
        self._direction = direction
        self.share = min(1.0, max(0.0, self.share + wait * self._step))
