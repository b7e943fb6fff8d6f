// Python bindings `l3dali._cuda` of the CUDA engine. Layer: adapter. Arguments are judged in
// python/l3dali/torch.py.
#include "python/cuda_decoder.h"

PYBIND11_MODULE(_cuda, m) {
  m.doc() = "CUDA decoder of the L3 image format; use l3dali.torch instead.";
  l3::BindCudaDecoder(
      m,
      [](int device_id, std::unique_ptr<l3::CudaAllocator> allocator) {
        return std::unique_ptr<l3::GpuDevice>(l3::L3MakeCudaDevice(device_id, allocator.release()));
      },
      [](uintptr_t stream) { return reinterpret_cast<CUstream_st*>(stream); });
}
