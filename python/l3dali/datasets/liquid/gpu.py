"""Times uploads to a GPU, and L3's decoders at the batches of pipelines, without DALI."""

from __future__ import annotations

from typing import Any, NamedTuple

from l3dali import codec
from l3dali.datasets.liquid.profile import DEFAULT_BATCH
from l3dali.driver import gpu_name

_UPLOAD_BYTES = 2**26  # as many as a batch of photographs has
_UPLOADS = 8
_BATCHES = 8
_MOST_BYTES = 2**30  # of pixels in a batch
_CACHE_PART = 0.25  # of the memory that is free


class GpuTimes(NamedTuple):
    """Seconds of an image in a batch of `DEFAULT_BATCH`, or of as many as fit into 1 GiB."""

    gpu_seconds: float  # out of the GPU's memory, or of the host if that takes longer
    mixed_cpu_seconds: float  # of all cores, to copy it to pinned memory, upload and decode it
    cached_cpu_seconds: float  # of all cores, to have it decoded out of the GPU's memory


class Gpu:
    """The first GPU of this machine."""

    def __init__(self, module: Any, name: str, threads: int = 1) -> None:
        """Opens it by the module `l3dali._cuda`; `threads` copy files for the upload."""
        self.name = name
        self.cache_bytes = int(_CACHE_PART * module.free_bytes(0))  # The model needs the rest.
        self._batch = module.DecodeBatch
        self._meter = module.Meter(0)
        self._threads = threads

    def upload_rate(self) -> float:
        """Bytes a second from pinned memory."""
        seconds, _ = self._meter.upload(_UPLOAD_BYTES, count=_UPLOADS)
        return float(_UPLOAD_BYTES / seconds)

    def measure(self, file: bytes, raw_bytes: int) -> GpuTimes:
        """Times an L3 file with `raw_bytes` of pixels in a batch of its copies.

        Raises:
            MemoryError: the GPU's memory is too small.
            RuntimeError: CUDA fails.
            L3Error: the file is damaged.
        """
        copies = max(1, min(DEFAULT_BATCH, _MOST_BYTES // max(1, raw_bytes)))
        batch = codec.open_batch([file] * copies, [None] * copies, None, engine=self._batch)
        (of_gpu, cached_cpu), (_, mixed_cpu) = (
            self._meter.decode(batch, is_cached=cached, count=_BATCHES, threads=self._threads)
            for cached in (True, False)
        )
        return GpuTimes(of_gpu / copies, mixed_cpu / copies, cached_cpu / copies)


def open_gpu(threads: int) -> Gpu:
    """The first GPU; raises LookupError, with the reason, if there is none that L3 can use."""
    if not (name := gpu_name()):
        raise LookupError("there is none")
    try:
        from l3dali import _cuda
    except ImportError:
        raise LookupError("this l3dali was built without its CUDA engine") from None
    try:
        return Gpu(_cuda, name, threads)
    except (RuntimeError, MemoryError) as error:
        raise LookupError(f"it cannot be used: {error}") from None
