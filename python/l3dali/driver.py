"""Finds a GPU without any of CUDA's packages."""

from __future__ import annotations

import ctypes


def gpu_name() -> str:
    """The name of the first GPU; "" without one, or without CUDA's driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ""
    device, name = ctypes.c_int(0), ctypes.create_string_buffer(256)
    fails = (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), 0)
        or driver.cuDeviceGetName(name, len(name), device)
    )
    return "" if fails else name.value.decode(errors="replace")
