// Python bindings `l3dali._cuda` of the CUDA engine. Layer: adapter. Arguments are validated in
// python/l3dali/torch/decoding.py and python/l3dali/datasets/liquid/gpu.py.
#include "cuda/engine/resources.h"
#include "python/cuda_decoder.h"
#include "python/gpu_meter.h"

namespace {

size_t FreeBytes(int device_id) {
  const l3::CurrentCudaDevice current(device_id);
  size_t free = 0, total = 0;
  L3_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

}  // namespace

PYBIND11_MODULE(_cuda, m) {
  m.doc() = "CUDA decoder of the L3 image format; use l3dali.torch instead.";
  l3::BindCudaDecoder(
      m,
      [](int device_id, std::unique_ptr<l3::CudaAllocator> allocator) {
        return std::unique_ptr<l3::GpuDevice>(l3::L3MakeCudaDevice(device_id, allocator.release()));
      },
      [](uintptr_t stream) { return reinterpret_cast<CUstream_st*>(stream); });
  l3::BindGpuMeter(
      m,
      [](int device_id) {
        return std::unique_ptr<l3::GpuDevice>(l3::L3MakeCudaDevice(device_id, nullptr));
      },
      FreeBytes);
}
