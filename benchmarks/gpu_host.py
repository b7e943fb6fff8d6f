"""The GPU that benchmarks run on: its name, and how busy it was."""

from __future__ import annotations

import shutil
import subprocess
import time

try:
    import pynvml
except ModuleNotFoundError:
    pynvml = None


def describe_gpu() -> tuple[str, str] | None:
    """Name and driver version of the first GPU, from nvidia-smi; None without one."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--id=0", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        return None
    name, driver = answer.stdout.strip().rsplit(", ", 1)
    return name, driver


class GpuUse:
    """Watches the first GPU from its making on."""

    def __init__(self) -> None:
        """Begins; without package nvidia-ml-py or a GPU there will be nothing to tell."""
        self._begin_us = time.time_ns() // 1000
        self._gpu = None
        if pynvml is not None:
            try:
                pynvml.nvmlInit()
                self._gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
            except pynvml.NVMLError:
                pass

    def share(self) -> float | None:
        """Share of the time since the beginning in which a kernel ran; None if unknown."""
        if self._gpu is None:
            return None
        try:
            _, samples = pynvml.nvmlDeviceGetSamples(
                self._gpu, pynvml.NVML_GPU_UTILIZATION_SAMPLES, self._begin_us
            )
        except pynvml.NVMLError:
            return None
        percents = [s.sampleValue.uiVal for s in samples if s.timeStamp > self._begin_us]
        return sum(percents) / len(percents) / 100 if percents else None
