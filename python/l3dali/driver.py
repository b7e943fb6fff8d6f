"""Whether there is a GPU, found without any of CUDA's packages."""

from __future__ import annotations

import ctypes


def has_gpu() -> bool:
    """Whether CUDA's driver is installed and finds a GPU."""
    driver = _driver()
    count = ctypes.c_int(0)
    return driver is not None and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 < count.value


def gpu_name() -> str:
    """The name of the first GPU; "" without one."""
    driver = _driver()
    device, name = ctypes.c_int(0), ctypes.create_string_buffer(256)
    if (
        driver is None
        or driver.cuDeviceGet(ctypes.byref(device), 0) != 0
        or driver.cuDeviceGetName(name, len(name), device) != 0
    ):
        return ""
    return name.value.decode(errors="replace")


def _driver() -> ctypes.CDLL | None:
    """CUDA's driver, ready to be asked."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None
