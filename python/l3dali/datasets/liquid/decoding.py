"""CPU seconds of decoding, by DALI's operators or, without DALI, by the libraries themselves."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from l3dali import codec
from l3dali.datasets.liquid.host import busy_seconds
from l3dali.images.reading import png_without_texts, read_picture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from l3dali.codec import Image

_REPEATS = 3
_MOST_COPIES = 16
_RUN_SECONDS = 0.004  # that a run should take at the least
_PREFETCHED = 3  # batches before the clock starts


class Decoders(Protocol):
    """Decoders whose CPU time is measured.

    Attributes:
        name: which they are, for people.
    """

    name: str

    def seconds(self, stored_as: str, data: bytes, pixels: Image) -> float | None:
        """CPU seconds to decode a file; None if these decoders cannot.

        Args:
            stored_as: the format.
            data: the file.
            pixels: what is in it.
        """


def find_decoders() -> Decoders:
    """Those of DALI if it is installed, as pipelines run them."""
    try:
        return DaliDecoders()
    except ImportError:
        return Libraries()


class Libraries:
    """imagecodecs, and L3's own decoder."""

    def __init__(self) -> None:
        self.name = f"imagecodecs {importlib.metadata.version('imagecodecs')}"

    def seconds(self, stored_as: str, data: bytes, pixels: Image) -> float | None:
        """See `Decoders`."""
        import imagecodecs

        decode: Callable[[bytes], Any]
        if stored_as in codec.CODINGS:
            decode = functools.partial(codec.decode, max_pixels=None)
        elif data.startswith(b"\x89PNG"):
            data, decode = png_without_texts(data), imagecodecs.png_decode
        elif data.startswith(b"\xff\xd8"):
            decode = imagecodecs.jpeg8_decode
        else:
            decode = functools.partial(read_picture, max_pixels=codec.MAX_PIXELS)

        def run(copies: int) -> float:
            begin = time.thread_time()
            for _ in range(copies):
                decode(data)
            return time.thread_time() - begin

        return _measure(run)


class DaliDecoders:
    """CPU operators in pipelines of one thread."""

    def __init__(self) -> None:
        import l3dali.dali.plugin

        self.name = f"DALI {importlib.metadata.version(_dali_package())}, CPU operators"
        self._plugin = l3dali.dali.plugin
        self._pipelines: dict[tuple[str, int, str], Any] = {}

    def seconds(self, stored_as: str, data: bytes, pixels: Image) -> float | None:
        """See `Decoders`: of the whole process, in which nothing else runs."""
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
        except RuntimeError:  # The pipeline is of no more use.
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


def _dali_package() -> str:
    from importlib.metadata import packages_distributions

    return next(
        name for name in packages_distributions()["nvidia"] if name.startswith("nvidia-dali")
    )


def _kind(stored_as: str, pixels: Image) -> tuple[str, int, str]:
    """What decides the operator and its arguments."""
    if stored_as in codec.CODINGS:
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
        # Of four channels DALI 2.4 turns what is not its own memory, and ends the process.
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
    pixels: Sequence[Image],
    cores: int,
    seconds: float,
    batch: int,
) -> float | None:
    """Core seconds an image that a whole DALI pipeline takes beside reading files from memory.

    Cores that wait count. What other processes take of them meanwhile does not, as far as the
    system tells. None if the pipeline cannot be run.

    Args:
        stored_as: the format of the files.
        files: their bytes.
        pixels: what is in each; of one kind.
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
            encoded, _ = fn.readers.file(files=[str(path) for path in paths])
            pipe.set_outputs(_decoded(encoded, _kind(stored_as, pixels[0])))
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
    others = max(0.0, now - busy - own) if now is not None and busy is not None else 0.0
    return max(0.0, max(took * cores - others, own) / count - read)
