// CUDA's error codes as exceptions; its streams, events and memory as objects.
// Layer: cuda.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

// Throws with file, line and remedy if a CUDA call fails: CudaOutOfMemory if memory is
// out, else std::runtime_error.
#define L3_CUDA_CHECK(call) ::l3::CheckCuda((call), #call, __FILE__, __LINE__)

namespace l3 {

class CudaOutOfMemory : public std::bad_alloc {
 public:
  explicit CudaOutOfMemory(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

inline const char* CudaRemedy(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "Use smaller batches, or leave more GPU and pinned memory free.";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion: return "Build L3 for this GPU: set L3_CUDA_ARCHS=native.";
    case cudaErrorInsufficientDriver: return "Install a newer NVIDIA driver, or decode on the CPU.";
    case cudaErrorNoDevice: return "Decode on the CPU where there is no GPU.";
    default:
      return "If an earlier kernel of this process is to blame, CUDA_LAUNCH_BLOCKING=1 finds it.";
  }
}

inline void CheckCuda(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // else an unrelated call could report it again
  const char* slash = std::strrchr(file, '/');
  const std::string message = std::string(call) + " failed: " + cudaGetErrorString(error) + " (" +
                              cudaGetErrorName(error) + ", " + (slash ? slash + 1 : file) + ":" +
                              std::to_string(line) + "). " + CudaRemedy(error);
  if (error == cudaErrorMemoryAllocation) throw CudaOutOfMemory(message);
  throw std::runtime_error(message);
}

inline int GetCudaDevice() {
  int device = 0;
  L3_CUDA_CHECK(cudaGetDevice(&device));
  return device;
}

// Makes a device current for as long as it lives.
class CurrentCudaDevice {
 public:
  explicit CurrentCudaDevice(int device) : before_(GetCudaDevice()), device_(device) {
    if (device_ != before_) L3_CUDA_CHECK(cudaSetDevice(device_));
  }
  // cudaSetDevice would make a context on a device that has none.
  ~CurrentCudaDevice() {
    if (device_ != before_) cudaSetDevice(before_);
  }
  CurrentCudaDevice(const CurrentCudaDevice&) = delete;
  CurrentCudaDevice& operator=(const CurrentCudaDevice&) = delete;

 private:
  const int before_;
  const int device_;
};

class CudaStream {
 public:
  CudaStream() { L3_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~CudaStream() { cudaStreamDestroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void Synchronize() const { L3_CUDA_CHECK(cudaStreamSynchronize(stream_)); }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) { L3_CUDA_CHECK(cudaMalloc(&memory_, bytes)); }
  ~DeviceMemory() { cudaFree(memory_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  uint8_t* data() const { return static_cast<uint8_t*>(memory_); }

 private:
  void* memory_ = nullptr;
};

// A point in a stream. Belongs to the device that is current when it is made.
class CudaEvent {
 public:
  // With these flags it keeps no time, and a thread that waits for it sleeps.
  explicit CudaEvent(unsigned flags = cudaEventDisableTiming | cudaEventBlockingSync) {
    L3_CUDA_CHECK(cudaEventCreateWithFlags(&event_, flags));
  }
  ~CudaEvent() { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void Record(cudaStream_t stream) { L3_CUDA_CHECK(cudaEventRecord(event_, stream)); }
  // Return at once if the event was never recorded.
  void Synchronize() const { L3_CUDA_CHECK(cudaEventSynchronize(event_)); }
  void Wait(cudaStream_t stream) const { L3_CUDA_CHECK(cudaStreamWaitEvent(stream, event_, 0)); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace l3
