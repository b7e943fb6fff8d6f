"""The bindings of the batch engine on GPUs that are none."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sysconfig
from pathlib import Path
from typing import Any

import pytest

_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
#: `l3dali._cuda` over the PTX machine, as `make simulate-all` builds it; empty: none.
SIMULATED = os.environ.get("L3_SIMULATED_CUDA", "")


def _load(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_emulated() -> Any:
    """The module in the place of `l3dali._cuda`; skips where tests were not built."""
    folder = Path(os.environ.get("L3_TESTING_LIBRARY", "build/release/none")).parent
    path = folder / f"_emulated{_SUFFIX}"
    if not path.exists():
        pytest.skip("the emulated GPU is not built")
    return _load("_emulated", path)


class SimulatedCuda:
    """`l3dali._cuda` with the compiled kernels on the PTX machine, and CUDA's calls there."""

    def __init__(self) -> None:
        self.module = _load("_cuda", Path(SIMULATED))
        self._library = ctypes.CDLL(str(Path(SIMULATED).absolute()))

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of CUDA's runtime."""
        error = getattr(self._library, name)(*arguments)
        assert error == 0, f"{name}: CUDA error {error}"

    def allocate(self, size: int, pinned: bool) -> SimulatedMemory:
        """As a `Decoder` asks for memory."""
        return SimulatedMemory(self, size, pinned)

    def read(self, memory: SimulatedMemory, size: int, address: int) -> None:
        """Copies from the device to memory of the host."""
        source, target = ctypes.c_void_p(memory.data_ptr()), ctypes.c_void_p(address)
        self.call("cudaMemcpy", target, source, ctypes.c_size_t(size), 2)


class SimulatedMemory:
    """Memory of the device, or pinned memory, while it lives."""

    def __init__(self, cuda: SimulatedCuda, size: int, pinned: bool) -> None:
        self._cuda, self._free = cuda, "cudaFreeHost" if pinned else "cudaFree"
        self._place = ctypes.c_void_p()
        name = "cudaMallocHost" if pinned else "cudaMalloc"
        cuda.call(name, ctypes.byref(self._place), ctypes.c_size_t(size))

    def __del__(self) -> None:
        self._cuda.call(self._free, self._place)

    def data_ptr(self) -> int:
        """Its address."""
        return self._place.value or 0
