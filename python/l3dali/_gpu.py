"""Whether there is a GPU, found without any of CUDA's packages."""

from __future__ import annotations

import ctypes


def has_gpu() -> bool:
    """Whether CUDA's driver is installed and finds a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return found and count.value > 0
