"""What a training step takes, and what decoding beside it costs it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from l3dali.datasets.liquid.profile import Training

if TYPE_CHECKING:
    from collections.abc import Callable

_WARM_UP = 3  # calls
_SHARES = (1 / 3, 2 / 3)  # of the rate that the decoder reaches alone


@dataclass(frozen=True)
class Step:
    """A training step.

    Attributes:
        run: runs it once on data that is there, and returns when the GPU has finished it.
        images: of a step.
        seconds: how long to run each measurement.
    """

    run: Callable[[], object]
    images: int
    seconds: float = 3.0


def measure_step(
    step: Callable[[], object],
    images: int,
    *,
    decode: Callable[[], object] | None = None,
    decoded_images: int = 1,
    seconds: float = 3.0,
) -> Training:
    """Measures a training step, alone and while images are decoded beside it.

    The step loses images a second in proportion to those decoded: the slope, from the decoder at
    rest and at a third and two thirds of the rate that it reaches alone. Decoding that costs the
    step nothing gives a `gpu_share` of 1; decoding that takes from the step all the time that it
    needs itself gives 0.

    Args:
        step: runs one step on data that is there, and returns when the GPU has finished it
            (`torch.cuda.synchronize()`).
        images: of a step.
        decode: decodes some images and waits for them, on another thread; without it no share of
            the GPU is known, and `gpu_share` is 0.
        decoded_images: of a call of `decode`.
        seconds: how long to run each of the measurements, one or four of them.

    Raises:
        ValueError: a number is not above 0.
    """
    if images < 1 or decoded_images < 1 or not seconds > 0:
        raise ValueError("images, decoded_images and seconds are numbers above 0")
    alone = images * _calls_per_second(step, seconds)
    if decode is None:
        return Training(alone)
    most = decoded_images * _calls_per_second(decode, seconds)
    products = squares = 0.0
    for share in _SHARES:
        beside = _Decoder(decode, most * share / decoded_images)
        with beside:
            rate = images * _calls_per_second(step, seconds)
        decoded = decoded_images * beside.calls_per_second
        products += decoded * (alone - rate)
        squares += decoded * decoded
    lost = products / squares if squares else 0.0  # images of the step for one that is decoded
    return Training(alone, min(1.0, max(0.0, 1 - lost * most / alone)))


def _calls_per_second(function: Callable[[], object], seconds: float) -> float:
    for _ in range(_WARM_UP):
        function()
    begin = time.perf_counter()
    calls = 0
    while (took := time.perf_counter() - begin) < seconds or not calls:
        function()
        calls += 1
    return calls / took


class _Decoder:
    """Calls a decoder at a steady rate on a thread, while this is entered."""

    def __init__(self, decode: Callable[[], object], rate: float) -> None:
        self._decode = decode
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._error: Exception | None = None
        self.calls_per_second = 0.0

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        begin = time.perf_counter()
        calls = 0
        try:
            while not self._stop.wait(max(0.0, begin + calls / self._rate - time.perf_counter())):
                self._decode()
                calls += 1
        except Exception as error:  # for the caller's thread
            self._error = error
        self.calls_per_second = calls / (time.perf_counter() - begin)
