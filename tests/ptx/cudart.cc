// A libcudart without a GPU: kernels run in the machine. Errors are CUDA's own codes.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "ptx/runtime.h"

namespace {

using l3::ptx::ApiCall;
using l3::ptx::Event;
using l3::ptx::Kernel;
using l3::ptx::Runtime;
using Lock = std::lock_guard<std::recursive_mutex>;

constexpr size_t kUsualSharedBytes = 48 << 10;  // of a launch, if a kernel was allowed no more

cudaError_t last_error = cudaSuccess;

cudaError_t Say(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// What a GPU has, by its architecture.
struct Gpu {
  uint32_t target;
  int multiprocessors, shared_bytes, block_shared_bytes, reserved_shared_bytes;
};
constexpr Gpu kGpus[] = {
    {75, 40, 65536, 65536, 0},            // T4
    {80, 108, 167936, 166912, 1024},      // A100
    {86, 84, 102400, 101376, 1024},       // A10
    {89, 58, 102400, 101376, 1024},       // L4
    {90, 132, 233472, 232448, 1024},      // H100
    {100, 148, 233472, 232448, 1024},     // B200
    {120, 170, 102400, 101376, 1024},     // RTX 5090
};

Gpu GetGpu() {
  const uint32_t target = Runtime::Get().target();
  const Gpu* found = kGpus;
  for (const Gpu& one : kGpus) {
    if (one.target <= target) found = &one;
  }
  Gpu gpu = *found;
  if (const char* count = std::getenv("L3_CUDART_MULTIPROCESSORS")) {
    gpu.multiprocessors = std::atoi(count);
  }
  return gpu;
}

// Begins a call: what a kernel broke stays broken, and one call may be made to fail.
cudaError_t Begin(ApiCall call, cudaError_t failure) {
  Runtime& runtime = Runtime::Get();
  if (!runtime.fault().empty()) return Say(static_cast<cudaError_t>(runtime.fault_code()));
  return runtime.ShallFail(call) ? Say(failure) : cudaSuccess;
}

#define L3_BEGIN(call, failure)          \
  const Lock lock(Runtime::Get().mutex); \
  if (const cudaError_t begun = Begin(ApiCall::call, failure); begun != cudaSuccess) return begun

cudaError_t Ended() {
  Runtime& runtime = Runtime::Get();
  if (runtime.fault().empty()) return cudaSuccess;
  return Say(static_cast<cudaError_t>(runtime.fault_code()));
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
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
cudaError_t CUDARTAPI cudaPeekAtLastError() {
  const Lock lock(Runtime::Get().mutex);
  return last_error;
}
const char* CUDARTAPI cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDeviceFunction: return "cudaErrorInvalidDeviceFunction";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorLaunchOutOfResources: return "cudaErrorLaunchOutOfResources";
    case cudaErrorLaunchTimeout: return "cudaErrorLaunchTimeout";
    case cudaErrorMisalignedAddress: return "cudaErrorMisalignedAddress";
    default: return "cudaErrorUnknown";
  }
}
const char* CUDARTAPI cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t CUDARTAPI cudaMalloc(void** memory, size_t bytes) {
  L3_BEGIN(kAllocation, cudaErrorMemoryAllocation);
  if (memory == nullptr) return Say(cudaErrorInvalidValue);
  *memory = bytes != 0 ? Runtime::Get().AllocateDevice(bytes) : nullptr;
  return Say(bytes != 0 && *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t CUDARTAPI cudaFree(void* memory) {
  const Lock lock(Runtime::Get().mutex);
  if (memory == nullptr) return cudaSuccess;
  return Say(Runtime::Get().ReleaseDevice(memory) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t CUDARTAPI cudaMallocHost(void** memory, size_t bytes) {
  L3_BEGIN(kAllocation, cudaErrorMemoryAllocation);
  if (memory == nullptr) return Say(cudaErrorInvalidValue);
  *memory = bytes != 0 ? Runtime::Get().AllocatePinned(bytes) : nullptr;
  return Say(bytes != 0 && *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t CUDARTAPI cudaFreeHost(void* memory) {
  const Lock lock(Runtime::Get().mutex);
  if (memory == nullptr) return cudaSuccess;
  return Say(Runtime::Get().ReleasePinned(memory) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t CUDARTAPI cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                                      cudaStream_t handle) {
  L3_BEGIN(kCopy, cudaErrorUnknown);
  Runtime& runtime = Runtime::Get();
  const auto stream = runtime.FindStream(handle);
  if (stream == nullptr) return Say(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr || !runtime.IsRange(to, bytes) ||
      !runtime.IsRange(from, bytes)) {
    return Say(cudaErrorInvalidValue);
  }
  runtime.Copy(to, from, bytes, stream);
  return Ended();
}
cudaError_t CUDARTAPI cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const Lock lock(Runtime::Get().mutex);
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  const auto stream = Runtime::Get().FindStream(nullptr);
  Runtime::Get().WaitFor(stream, stream->queued(), stream->clock);
  return error != cudaSuccess ? error : Ended();
}
cudaError_t CUDARTAPI cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t handle) {
  L3_BEGIN(kCopy, cudaErrorUnknown);
  Runtime& runtime = Runtime::Get();
  const auto stream = runtime.FindStream(handle);
  if (stream == nullptr) return Say(cudaErrorInvalidResourceHandle);
  if (!runtime.IsDevice(to) || !runtime.IsRange(to, bytes)) return Say(cudaErrorInvalidValue);
  runtime.Fill(to, value, bytes, stream);
  return Ended();
}
cudaError_t CUDARTAPI cudaMemset(void* to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}
cudaError_t CUDARTAPI cudaMemGetInfo(size_t* free_bytes, size_t* all_bytes) {
  const Lock lock(Runtime::Get().mutex);
  std::tie(*free_bytes, *all_bytes) = Runtime::Get().device_bytes();
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned) {
  L3_BEGIN(kOther, cudaErrorUnknown);
  *handle = static_cast<cudaStream_t>(Runtime::Get().MakeStream());
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t handle) {
  const Lock lock(Runtime::Get().mutex);
  return Say(Runtime::Get().DestroyStream(handle) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t handle) {
  L3_BEGIN(kOther, cudaErrorUnknown);
  const auto stream = Runtime::Get().FindStream(handle);
  if (stream == nullptr) return Say(cudaErrorInvalidResourceHandle);
  Runtime::Get().WaitFor(stream, stream->queued(), stream->clock);
  return Ended();
}
cudaError_t CUDARTAPI cudaDeviceSynchronize() {
  L3_BEGIN(kOther, cudaErrorUnknown);
  Runtime::Get().WaitForAll();
  return Ended();
}
cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned) {
  L3_BEGIN(kOther, cudaErrorUnknown);
  *handle = static_cast<cudaEvent_t>(Runtime::Get().MakeEvent());
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t handle) {
  const Lock lock(Runtime::Get().mutex);
  return Say(Runtime::Get().DestroyEvent(handle) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  L3_BEGIN(kOther, cudaErrorUnknown);
  Event* event = Runtime::Get().FindEvent(handle);
  const auto stream = Runtime::Get().FindStream(stream_handle);
  if (event == nullptr || stream == nullptr) return Say(cudaErrorInvalidResourceHandle);
  *event = {stream, stream->queued(), stream->clock};
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t handle) {
  L3_BEGIN(kOther, cudaErrorUnknown);
  const Event* event = Runtime::Get().FindEvent(handle);
  if (event == nullptr) return Say(cudaErrorInvalidResourceHandle);
  if (event->stream != nullptr) Runtime::Get().WaitFor(event->stream, event->place, event->clock);
  return Ended();
}
cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle,
                                          unsigned) {
  L3_BEGIN(kOther, cudaErrorUnknown);
  const Event* event = Runtime::Get().FindEvent(handle);
  const auto stream = Runtime::Get().FindStream(stream_handle);
  if (event == nullptr || stream == nullptr) return Say(cudaErrorInvalidResourceHandle);
  Runtime::Get().MakeWait(stream, *event);
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const Lock lock(Runtime::Get().mutex);
  if (device != 0) return Say(cudaErrorInvalidDevice);
  const Gpu gpu = GetGpu();
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = gpu.multiprocessors; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = gpu.shared_bytes; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = gpu.block_shared_bytes; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = gpu.reserved_shared_bytes; break;
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
  L3_BEGIN(kOther, cudaErrorUnknown);
  if (Runtime::Get().FindKernel(function) == nullptr) return Say(cudaErrorInvalidDeviceFunction);
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      value > GetGpu().block_shared_bytes) {
    return Say(cudaErrorInvalidValue);
  }
  Runtime::Get().dynamic_shared[function] = static_cast<size_t>(value);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaLaunchKernel(const void* function, dim3 grid, dim3 block,
                                       void** arguments, size_t shared_bytes, cudaStream_t handle) {
  L3_BEGIN(kLaunch, cudaErrorLaunchOutOfResources);
  Runtime& runtime = Runtime::Get();
  const Kernel* kernel = runtime.FindKernel(function);
  if (kernel == nullptr) return Say(cudaErrorInvalidDeviceFunction);
  const auto stream = runtime.FindStream(handle);
  if (stream == nullptr) return Say(cudaErrorInvalidResourceHandle);
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64 || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
      grid.x > 0x7FFFFFFF || grid.y > 65535 || grid.z > 65535) {
    return Say(cudaErrorInvalidConfiguration);
  }
  const auto allowed = runtime.dynamic_shared.find(function);
  const size_t most = allowed != runtime.dynamic_shared.end() ? allowed->second : kUsualSharedBytes;
  if (threads > kernel->body.max_threads || shared_bytes > most) {
    return Say(cudaErrorInvalidValue);
  }
  runtime.QueueLaunch(*kernel, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_bytes,
                      arguments, stream);
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
