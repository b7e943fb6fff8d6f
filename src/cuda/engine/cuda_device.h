// A GPU for BatchDecoder and EncodedCache, by CUDA. Layer: cuda. Hosts include this header
// without CUDA's.
#pragma once

#include <cstddef>
#include <memory>

#include "cuda/engine/gpu_device.h"

namespace l3 {

// Memory from the caller's pools. It is released when no work uses it any more. Throws
// std::bad_alloc (or a class of its kind) if there is none.
class CudaAllocator {
 public:
  virtual ~CudaAllocator() = default;
  virtual std::shared_ptr<void> AllocatePinned(size_t bytes) = 0;
  // Of the current device; work on any stream may use it at once.
  virtual std::shared_ptr<void> AllocateDevice(size_t bytes) = 0;
};

// cudaMallocHost and cudaMalloc.
std::unique_ptr<CudaAllocator> MakeDefaultCudaAllocator();

// A device by its number. Callers may have another one current, now and later.
std::unique_ptr<GpuDevice> MakeCudaDevice(int device_id, std::unique_ptr<CudaAllocator> allocator);

// The package's library that has the kernels, once for all who decode on a GPU, and its function:
// MakeCudaDevice(), which takes the allocator over; null is the default one.
constexpr char kCudaLibrary[] = "libl3_cuda.so";
constexpr char kMakeCudaDevice[] = "L3MakeCudaDevice";
extern "C" __attribute__((visibility("default"))) GpuDevice* L3MakeCudaDevice(
    int device_id, CudaAllocator* allocator);

}  // namespace l3
