// libl3_cuda.so: all that it exports.
#include <utility>

#include "cuda/engine/cuda_device.h"

namespace l3 {

GpuDevice* L3MakeCudaDevice(int device_id, CudaAllocator* allocator) {
  std::unique_ptr<CudaAllocator> own(allocator);
  if (own == nullptr) own = MakeDefaultCudaAllocator();
  return MakeCudaDevice(device_id, std::move(own)).release();
}

}  // namespace l3
