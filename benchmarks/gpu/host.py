"""The GPU that benchmarks run on: its name, and how busy it was."""

from __future__ import annotations

import ctypes
import re
import statistics
import threading
import time
from pathlib import Path

try:
    import pynvml
except ModuleNotFoundError:
    pynvml = None

KERNEL_MODULE = Path("/proc/driver/nvidia/version")


def describe_gpu() -> tuple[str, str] | None:
    """Name and driver version of the first GPU, None without one.

    A container may hide the driver's version: then it is the CUDA release that the driver is for.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, version, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    if (
        cuda.cuInit(0) != 0
        or cuda.cuDeviceGet(ctypes.byref(device), 0) != 0
        or cuda.cuDeviceGetName(name, len(name), device) != 0
        or cuda.cuDriverGetVersion(ctypes.byref(version)) != 0
    ):
        return None
    text = KERNEL_MODULE.read_text() if KERNEL_MODULE.exists() else ""
    driver = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", text)
    release = f"for CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    return name.value.decode(), driver[0] if driver else release


class GpuUse:
    """Watches the first GPU from its making on. Counts the kernels of all processes."""

    def __init__(self) -> None:
        """Begins; `why_not` says why there will be nothing to tell, and is empty otherwise."""
        self._begin_us = time.time_ns() // 1000
        self.why_not = ""
        if pynvml is None:
            self.why_not = "Python lacks pynvml (package nvidia-ml-py)"
            return
        try:
            pynvml.nvmlInit()
            self._gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        except pynvml.NVMLError as error:
            self.why_not = f"NVML: {error}"

    def samples(self) -> list[float]:
        """NVML's samples so far, a few a second: shares of the time in which a kernel ran."""
        if self.why_not:
            return []
        try:
            _, samples = pynvml.nvmlDeviceGetSamples(
                self._gpu, pynvml.NVML_GPU_UTILIZATION_SAMPLES, self._begin_us
            )
        except pynvml.NVMLError as error:
            # Before the first sample, too, so this is no reason to give up.
            if not isinstance(error, pynvml.NVMLError_NotFound):
                self.why_not = f"NVML: {error}"
            return []
        return [s.sampleValue.uiVal / 100 for s in samples if s.timeStamp > self._begin_us]


class PcieInput:
    """Watches in the background, from its making on, what the first GPU receives over PCIe."""

    def __init__(self) -> None:
        """Begins."""
        self._bytes_per_s: list[float] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        if pynvml is None:
            return
        try:
            pynvml.nvmlInit()
            gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
            while not self._done.wait(0.05):
                kib = pynvml.nvmlDeviceGetPcieThroughput(gpu, pynvml.NVML_PCIE_UTIL_RX_BYTES)
                self._bytes_per_s.append(1024.0 * kib)
        except pynvml.NVMLError:  # there is no counter
            self._bytes_per_s.clear()

    def stop(self) -> float | None:
        """Bytes a second, the mean of samples of 20 ms each; None if NVML does not tell."""
        self._done.set()
        self._thread.join()
        return statistics.mean(self._bytes_per_s) if self._bytes_per_s else None
