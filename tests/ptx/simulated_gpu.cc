// EmulatedGpu, for its tests, on CUDA over the stand-in runtime: the same tests then run launch.cc,
// cuda_device.cc and the compiled kernels.
#include <cuda_runtime_api.h>

#include <utility>

#include "cuda/emulation/emulated_device.h"
#include "cuda/engine/cuda_device.h"
#include "cuda/engine/resources.h"
#include "ptx/runtime.h"

namespace l3 {
namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

ptx::Pace PaceOf(EmulatedPace pace) {
  return pace == EmulatedPace::kEager ? ptx::Pace::kAtOnce : ptx::Pace::kLate;
}

}  // namespace

class EmulatedDevice : public GpuDevice {
 public:
  EmulatedDevice(EmulatedGpu* gpu, EmulatedPace pace)
      : gpu_(gpu), pace_(pace), device_(MakeCudaDevice(0, std::make_unique<Allocator>(gpu))) {}

  GpuLimits limits() const override { return device_->limits(); }
  std::shared_ptr<void> AllocatePinned(size_t bytes) override {
    return device_->AllocatePinned(bytes);
  }
  std::shared_ptr<void> AllocateDevice(size_t bytes) override {
    return device_->AllocateDevice(bytes);
  }
  std::shared_ptr<CUstream_st> MakeStream() override { return gpu_->MakeStream(pace_); }
  std::unique_ptr<GpuEvent> MakeEvent() override { return device_->MakeEvent(); }
  void Copy(void* to, const void* from, size_t bytes, CUstream_st* stream) override {
    {
      const Lock lock(gpu_->mutex_);
      if (gpu_->IsDevice(to) && !gpu_->IsDevice(from)) gpu_->uploaded_bytes_ += bytes;
    }
    device_->Copy(to, from, bytes, stream);
  }
  void Launch(const TileBatch& batch, CUstream_st* stream) override {
    device_->Launch(batch, stream);
    const Lock lock(gpu_->mutex_);
    ++gpu_->launches_;
  }

 private:
  class Allocator : public CudaAllocator {
   public:
    explicit Allocator(EmulatedGpu* gpu) : gpu_(gpu) {}
    std::shared_ptr<void> AllocatePinned(size_t bytes) override {
      return gpu_->Allocate(bytes, false);
    }
    std::shared_ptr<void> AllocateDevice(size_t bytes) override {
      return gpu_->Allocate(bytes, true);
    }

   private:
    EmulatedGpu* const gpu_;
  };

  EmulatedGpu* const gpu_;
  const EmulatedPace pace_;
  const std::unique_ptr<GpuDevice> device_;
};

std::unique_ptr<GpuDevice> EmulatedGpu::MakeDevice(EmulatedPace pace) {
  return std::make_unique<EmulatedDevice>(this, pace);
}

std::shared_ptr<CUstream_st> EmulatedGpu::MakeStream(EmulatedPace pace) {
  auto stream = std::make_shared<CudaStream>();
  const Lock lock(ptx::Runtime::Get().mutex);
  ptx::Runtime::Get().FindStream(stream->get())->pace = PaceOf(pace);
  return {stream, stream->get()};
}

size_t EmulatedGpu::QueuedWork(CUstream_st* stream) {
  const Lock lock(ptx::Runtime::Get().mutex);
  return ptx::Runtime::Get().FindStream(stream)->waiting();
}

uint8_t* EmulatedGpu::MakeBlock(size_t bytes, bool of_device) {
  void* block = nullptr;
  L3_CUDA_CHECK(of_device ? cudaMalloc(&block, bytes) : cudaMallocHost(&block, bytes));
  return static_cast<uint8_t*>(block);
}

void EmulatedGpu::FreeBlock(uint8_t* block, bool of_device) {
  of_device ? cudaFree(block) : cudaFreeHost(block);
}

}  // namespace l3
