// Where the GPU decoder gets its GPU from. Layer: adapter; independent of CUDA.
#pragma once

#include <memory>

#include "cuda/engine/gpu_device.h"
#include "nvimgcodec/abi.h"

namespace l3 {

struct GpuSource {
  // Makes the device of a number; null where there is no CUDA engine. Throws std::runtime_error, or
  // std::bad_alloc, if it cannot.
  std::unique_ptr<GpuDevice> (*make)(int device_id) = nullptr;
  // What the decoder is registered as. CPU_ONLY, for tests: the device's memory is the host's, and
  // the decoder stands in for the CPU's.
  nvimgcodecBackendKind_t backend = NVIMGCODEC_BACKEND_KIND_GPU_ONLY;
};

// That of the extension is in gpu_library.cc; tests have their own.
GpuSource FindGpu();

}  // namespace l3
