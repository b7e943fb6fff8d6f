// A libcudart without a GPU: kernels run in the machine. Errors are CUDA's own codes.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>

#include "ptx/runtime.h"

namespace {

using l3::ptx::Kernel;
using l3::ptx::Launch;
using l3::ptx::Runtime;
using Lock = std::lock_guard<std::recursive_mutex>;

constexpr size_t kUsualSharedBytes = 48 << 10;  // of a launch, if a kernel was allowed no more

cudaError_t last_error = cudaSuccess;

cudaError_t Say(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// What an A100 has.
constexpr int kMultiprocessors = 108, kSharedBytes = 167936, kBlockSharedBytes = 166912,
              kReservedSharedBytes = 1024;

// What a kernel broke stays broken.
cudaError_t Ended() {
  Runtime& runtime = Runtime::Get();
  if (runtime.fault().empty()) return cudaSuccess;
  return Say(cudaErrorIllegalAddress);
}

#define L3_BEGIN                         \
  const Lock lock(Runtime::Get().mutex); \
  if (const cudaError_t begun = Ended(); begun != cudaSuccess) return begun

cudaError_t Allocate(void** memory, size_t bytes, bool of_device) {
  *memory = bytes != 0 ? Runtime::Get().Allocate(bytes, of_device) : nullptr;
  return Say(bytes != 0 && *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

bool IsStream(void* handle) { return handle == nullptr || Runtime::Get().HasHandle(handle); }

cudaError_t Destroy(void* handle) {
  const Lock lock(Runtime::Get().mutex);
  return Say(Runtime::Get().DestroyHandle(handle) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t Release(void* memory, bool of_device) {
  const Lock lock(Runtime::Get().mutex);
  if (memory == nullptr) return cudaSuccess;
  return Say(Runtime::Get().Release(memory, of_device) ? cudaSuccess : cudaErrorInvalidValue);
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaSetDevice(int device) {
  const Lock lock(Runtime::Get().mutex);
  return Say(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t CUDARTAPI cudaGetLastError() {
  const Lock lock(Runtime::Get().mutex);
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
const char* CUDARTAPI cudaGetErrorName(cudaError_t error) {
  static thread_local std::string name;
  name = "CUDA error " + std::to_string(static_cast<int>(error));
  return name.c_str();
}
const char* CUDARTAPI cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t CUDARTAPI cudaMalloc(void** memory, size_t bytes) {
  L3_BEGIN;
  return Allocate(memory, bytes, true);
}
cudaError_t CUDARTAPI cudaMallocHost(void** memory, size_t bytes) {
  L3_BEGIN;
  return Allocate(memory, bytes, false);
}
cudaError_t CUDARTAPI cudaFree(void* memory) { return Release(memory, true); }
cudaError_t CUDARTAPI cudaFreeHost(void* memory) { return Release(memory, false); }
cudaError_t CUDARTAPI cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                                      cudaStream_t stream) {
  L3_BEGIN;
  if (!IsStream(stream)) return Say(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  Runtime& runtime = Runtime::Get();
  if (to == nullptr || from == nullptr || !runtime.IsRange(to, bytes) ||
      !runtime.IsRange(from, bytes)) {
    return Say(cudaErrorInvalidValue);
  }
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  L3_BEGIN;
  if (!IsStream(stream)) return Say(cudaErrorInvalidResourceHandle);
  Runtime& runtime = Runtime::Get();
  if (!runtime.IsDevice(to) || !runtime.IsRange(to, bytes)) return Say(cudaErrorInvalidValue);
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaMemGetInfo(size_t* free_bytes, size_t* all_bytes) {
  const Lock lock(Runtime::Get().mutex);
  std::tie(*free_bytes, *all_bytes) = Runtime::Get().device_bytes();
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned) {
  L3_BEGIN;
  *handle = static_cast<cudaStream_t>(Runtime::Get().MakeHandle());
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned) {
  L3_BEGIN;
  *handle = static_cast<cudaEvent_t>(static_cast<void*>(Runtime::Get().MakeHandle()));
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t handle) { return Destroy(handle); }
cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t handle) { return Destroy(handle); }
cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t handle) {
  L3_BEGIN;
  return Say(IsStream(handle) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t handle) {
  L3_BEGIN;
  return Say(Runtime::Get().HasHandle(handle) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  L3_BEGIN;
  const bool is_there = Runtime::Get().HasHandle(handle) && IsStream(stream);
  return Say(is_there ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned) {
  return cudaEventRecord(handle, stream);
}

cudaError_t CUDARTAPI cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const Lock lock(Runtime::Get().mutex);
  if (device != 0) return Say(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = kMultiprocessors; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = kSharedBytes; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = kBlockSharedBytes; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = kReservedSharedBytes; break;
    default: return Say(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  const Lock lock(Runtime::Get().mutex);
  const Kernel* kernel = Runtime::Get().FindKernel(function);
  if (kernel == nullptr) return Say(cudaErrorInvalidDeviceFunction);
  *attributes = {};
  attributes->maxThreadsPerBlock = static_cast<int>(kernel->body.max_threads);
  return cudaSuccess;
}
// As many blocks as the kernel's bounds make room for: registers are known to ptxas alone.
cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                                    const void* function,
                                                                    int threads, size_t) {
  const Lock lock(Runtime::Get().mutex);
  const Kernel* kernel = Runtime::Get().FindKernel(function);
  if (kernel == nullptr) return Say(cudaErrorInvalidDeviceFunction);
  if (threads <= 0) return Say(cudaErrorInvalidValue);
  const uint32_t all = kernel->body.max_threads * std::max(kernel->body.min_blocks, 1u);
  *blocks = static_cast<int>(all) / threads;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute,
                                           int value) {
  L3_BEGIN;
  if (Runtime::Get().FindKernel(function) == nullptr) return Say(cudaErrorInvalidDeviceFunction);
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      value > kBlockSharedBytes) {
    return Say(cudaErrorInvalidValue);
  }
  Runtime::Get().dynamic_shared[function] = static_cast<size_t>(value);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaLaunchKernel(const void* function, dim3 grid, dim3 block,
                                       void** arguments, size_t shared_bytes, cudaStream_t handle) {
  L3_BEGIN;
  Runtime& runtime = Runtime::Get();
  const Kernel* kernel = runtime.FindKernel(function);
  if (kernel == nullptr) return Say(cudaErrorInvalidDeviceFunction);
  if (!IsStream(handle)) return Say(cudaErrorInvalidResourceHandle);
  const uint64_t threads = uint64_t{block.x} * block.y;
  if (grid.x == 0 || grid.y != 1 || grid.z != 1 || threads == 0 || block.z != 1) {
    return Say(cudaErrorInvalidConfiguration);
  }
  const auto allowed = runtime.dynamic_shared.find(function);
  const size_t most = allowed != runtime.dynamic_shared.end() ? allowed->second : kUsualSharedBytes;
  if (threads > kernel->body.max_threads || shared_bytes > most) {
    return Say(cudaErrorInvalidValue);
  }
  Launch launch;
  launch.kernel = kernel;
  launch.blocks = grid.x;
  launch.width = block.x;
  launch.height = block.y;
  launch.dynamic_shared_bytes = static_cast<uint32_t>(shared_bytes);
  runtime.RunLaunch(launch, arguments);
  return Ended();
}

// What nvcc's host code calls.

void** CUDARTAPI __cudaRegisterFatBinary(void* wrapper) {
  return static_cast<void**>(Runtime::Get().Register(wrapper));
}
void CUDARTAPI __cudaRegisterFatBinaryEnd(void**) {}
void CUDARTAPI __cudaUnregisterFatBinary(void**) {}
void CUDARTAPI __cudaRegisterFunction(void** unit, const char* host, char*, const char* name, int,
                                      void*, void*, void*, void*, int*) {
  Runtime::Get().RegisterFunction(unit, host, name);
}
unsigned CUDARTAPI __cudaPushCallConfiguration(dim3, dim3, size_t, void*) { return 1; }
cudaError_t CUDARTAPI __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) {
  return cudaErrorUnknown;
}
cudaError_t CUDARTAPI __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t CUDARTAPI __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                                         void** arguments, size_t shared_bytes,
                                         cudaStream_t stream) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, arguments,
                          shared_bytes, stream);
}
char CUDARTAPI __cudaInitModule(void**) { return 1; }

}  // extern "C"
