"""CPU seconds of decoding by DALI's operators."""

from __future__ import annotations

import contextlib
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from l3dali import codec
from l3dali.datasets.liquid.host import busy_seconds
from l3dali.datasets.liquid.profile import SOURCE
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from l3dali.codec import Image

_REPEATS = 3
_MOST_COPIES = 16
_RUN_SECONDS = 0.004  # that a run should take at the least
_PREFETCHED = 3  # batches before the clock starts


class Decoders:
    """DALI's CPU operators, in pipelines of one thread; UsageError if DALI is not installed."""

    def __init__(self) -> None:
        try:
            import nvidia.dali

            import l3dali.plugin  # noqa: F401  # loads the operators
        except ImportError as error:
            raise UsageError(f"l3 profile measures DALI's operators: {error}") from None
        self.name = f"DALI {nvidia.dali.__version__}, CPU operators"
        self._pipelines: dict[tuple[str, int, str], Any] = {}

    def seconds(self, stored_as: str, data: bytes, pixels: Image) -> float | None:
        """CPU seconds to decode a file, of this process, in which nothing else runs.

        None if the operator cannot decode it to these `pixels`.
        """
        kind = _kind(stored_as, pixels)
        pipe = self._pipelines.get(kind)
        if pipe is None:
            pipe = self._pipelines[kind] = _fed_pipeline(kind)
        encoded = np.frombuffer(data, np.uint8)

        def run(copies: int) -> float:
            pipe.feed_input("encoded", [encoded] * copies)
            begin = time.process_time()
            pipe.run()
            return time.process_time() - begin

        try:
            return _measure(run)
        except RuntimeError:  # The pipeline cannot be used again.
            del self._pipelines[kind]
            return None


def _measure(run: Callable[[int], float]) -> float:
    """Seconds a copy: the median of some runs of as many copies as make a run long enough."""
    run(1)  # warms up
    one = run(1)
    copies = min(_MOST_COPIES, max(1, math.ceil(_RUN_SECONDS / max(one, 1e-6))))
    if copies > 1:
        run(copies)
    return statistics.median(run(copies) / copies for _ in range(_REPEATS))


def _kind(stored_as: str, pixels: Image) -> tuple[str, int, str]:
    """The operator, and its arguments."""
    if stored_as != SOURCE:
        return "l3", 0, ""
    return "image", pixels.shape[2] if pixels.ndim == 3 else 1, pixels.dtype.name


def _decoded(encoded: Any, kind: tuple[str, int, str]) -> Any:
    """The operator's output."""
    from nvidia.dali import fn, types

    name, channels, dtype = kind
    if name == "l3":
        return fn.l3.decode(encoded, max_pixels=codec.MAX_PIXELS)
    output_types = {1: types.GRAY, 3: types.RGB}
    return fn.decoders.image(
        encoded,
        output_type=output_types.get(channels, types.ANY_DATA),
        dtype=types.UINT16 if dtype == "uint16" else types.UINT8,
        # DALI 2.4 crashes when it turns images of four channels.
        adjust_orientation=channels in output_types,
    )


def _fed_pipeline(kind: tuple[str, int, str]) -> Any:
    import nvidia.dali as dali
    from nvidia.dali import fn

    pipe = dali.Pipeline(
        _MOST_COPIES, 1, None, prefetch_queue_depth=1, exec_async=False, exec_pipelined=False
    )
    with pipe:
        pipe.set_outputs(_decoded(fn.external_source(name="encoded", no_copy=False), kind))
    pipe.build()
    return pipe


def measure_core_seconds(
    stored_as: str,
    files: Sequence[bytes],
    head: Image,
    cores: int,
    seconds: float,
    batch: int,
) -> float | None:
    """Core seconds an image of a whole DALI pipeline, without reading the files from memory.

    Cores that wait count; other processes' time on them does not. None if the pipeline fails.

    Args:
        stored_as: the format of the files.
        files: their bytes.
        head: pixels of one file; all have its channels and type.
        cores: threads of the pipeline.
        seconds: how long to run.
        batch: images that it decodes at a time.
    """
    import nvidia.dali as dali
    from nvidia.dali import fn

    files = list(files) * math.ceil(batch / len(files))
    with tempfile.TemporaryDirectory(prefix="l3-profile-") as folder:
        paths = [Path(folder, f"{i:04}") for i in range(len(files))]
        for path, data in zip(paths, files, strict=True):
            path.write_bytes(data)
        buffer = bytearray(max(map(len, files)))
        for _ in range(2):  # the first warms up
            begin = time.thread_time()
            for path in paths:
                with path.open("rb", buffering=0) as file:
                    file.readinto(buffer)
            read = (time.thread_time() - begin) / len(files)
        pipe = dali.Pipeline(batch, cores, None, prefetch_queue_depth=2)
        with pipe:
            # Some releases lack the readers of L3.
            reader = getattr(fn.l3, "readers", fn.readers).file
            lazy = {"lazy": True} if reader is not fn.readers.file else {}
            encoded, _ = reader(files=[str(path) for path in paths], **lazy)
            pipe.set_outputs(_decoded(encoded, _kind(stored_as, head)))
        try:
            for _ in range(_PREFETCHED):
                pipe.run()
            count = 0
            begin, own, busy = time.perf_counter(), time.process_time(), busy_seconds()
            while (took := time.perf_counter() - begin) < seconds or not count:
                pipe.run()
                count += batch
            own, now = time.process_time() - own, busy_seconds()
        except RuntimeError:
            return None
        finally:
            with contextlib.suppress(RuntimeError):
                del pipe
    others = max(0.0, now - busy - own)
    return max(0.0, max(took * cores - others, own) / count - read)
