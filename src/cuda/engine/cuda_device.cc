#include "cuda/engine/cuda_device.h"

#include <utility>

#include "cuda/engine/launch.h"
#include "cuda/engine/resources.h"

namespace l3 {
namespace {

class DefaultCudaAllocator : public CudaAllocator {
 public:
  std::shared_ptr<void> AllocatePinned(size_t bytes) override {
    void* memory = nullptr;
    L3_CUDA_CHECK(cudaMallocHost(&memory, bytes));
    return {memory, [](void* p) { cudaFreeHost(p); }};
  }
  std::shared_ptr<void> AllocateDevice(size_t bytes) override {
    void* memory = nullptr;
    L3_CUDA_CHECK(cudaMalloc(&memory, bytes));
    return {memory, [](void* p) { cudaFree(p); }};
  }
};

class CudaGpuEvent : public GpuEvent {
 public:
  void Record(CUstream_st* stream) override { event_.Record(stream); }
  void Synchronize() override { event_.Synchronize(); }
  void MakeWait(CUstream_st* stream) override { event_.Wait(stream); }

 private:
  CudaEvent event_;
};

class CudaDevice : public GpuDevice {
 public:
  CudaDevice(int device_id, std::unique_ptr<CudaAllocator> allocator)
      : allocator_(std::move(allocator)), device_(device_id), limits_(LimitsOf(device_id)) {}

  GpuLimits limits() const override { return limits_; }
  std::shared_ptr<void> AllocatePinned(size_t bytes) override {
    const CurrentCudaDevice current(device_);
    return allocator_->AllocatePinned(bytes);
  }
  std::shared_ptr<void> AllocateDevice(size_t bytes) override {
    const CurrentCudaDevice current(device_);
    return allocator_->AllocateDevice(bytes);
  }
  std::shared_ptr<CUstream_st> MakeStream() override {
    const CurrentCudaDevice current(device_);
    const auto stream = std::make_shared<CudaStream>();
    return {stream, stream->get()};
  }
  std::unique_ptr<GpuEvent> MakeEvent() override {
    const CurrentCudaDevice current(device_);
    return std::make_unique<CudaGpuEvent>();
  }
  void Copy(void* to, const void* from, size_t bytes, CUstream_st* stream) override {
    if (bytes == 0) return;
    L3_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
  }
  void Launch(const TileBatch& batch, CUstream_st* stream) override {
    const CurrentCudaDevice current(device_);
    LaunchDecodeTiles(batch, stream);
  }
  void LaunchJpeg(const JpegBatch& batch, CUstream_st* stream) override {
    const CurrentCudaDevice current(device_);
    LaunchDecodeJpeg(batch, stream);
  }
  void LaunchJoins(const JoinTask* tasks, size_t count, CUstream_st* stream) override {
    const CurrentCudaDevice current(device_);
    LaunchJoinSamples(tasks, count, stream);
  }

 private:
  static GpuLimits LimitsOf(int device_id) {
    const CurrentCudaDevice current(device_id);
    return GetGpuLimits();
  }

  const std::unique_ptr<CudaAllocator> allocator_;
  const int device_;
  const GpuLimits limits_;
};

}  // namespace

std::unique_ptr<CudaAllocator> MakeDefaultCudaAllocator() {
  return std::make_unique<DefaultCudaAllocator>();
}

std::unique_ptr<GpuDevice> MakeCudaDevice(int device_id, std::unique_ptr<CudaAllocator> allocator) {
  return std::make_unique<CudaDevice>(device_id, std::move(allocator));
}

}  // namespace l3
