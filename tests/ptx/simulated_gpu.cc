// EmulatedGpu, for its tests, on CUDA over the stand-in runtime: the same tests then run launch.cc,
// cuda_device.cc and the compiled kernels.
#include <cuda_runtime_api.h>

#include <new>
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

void EmulatedGpu::FailAllocations(uint64_t count, uint64_t failures) {
  const Lock lock(mutex_);
  next_failure_ = allocations_ + count;
  failures_left_ = failures;
}

std::shared_ptr<void> EmulatedGpu::Allocate(size_t bytes, bool of_device) {
  const Lock lock(mutex_);
  if (allocations_ >= next_failure_ && failures_left_ > 0) {
    --failures_left_;
    throw std::bad_alloc();
  }
  ++allocations_;
  void* memory = nullptr;
  L3_CUDA_CHECK(of_device ? cudaMalloc(&memory, bytes) : cudaMallocHost(&memory, bytes));
  if (of_device) {
    device_blocks_[static_cast<uint8_t*>(memory)] = bytes;
  } else {
    live_pinned_bytes_ += bytes;
  }
  return {memory, [this, of_device, bytes](void* place) {
            const Lock deleter_lock(mutex_);
            if (of_device) {
              device_blocks_.erase(static_cast<uint8_t*>(place));
              cudaFree(place);
            } else {
              live_pinned_bytes_ -= bytes;
              cudaFreeHost(place);
            }
          }};
}

bool EmulatedGpu::IsDevice(const void* place) const {
  const auto next = device_blocks_.upper_bound(static_cast<const uint8_t*>(place));
  if (next == device_blocks_.begin()) return false;
  const auto& [block, bytes] = *std::prev(next);
  return static_cast<const uint8_t*>(place) < block + bytes;
}

uint64_t EmulatedGpu::live_device_bytes() {
  const Lock lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& block : device_blocks_) bytes += block.second;
  return bytes;
}

uint64_t EmulatedGpu::live_bytes() {
  const Lock lock(mutex_);
  return live_device_bytes() + live_pinned_bytes_;
}

uint64_t EmulatedGpu::allocations() {
  const Lock lock(mutex_);
  return allocations_;
}

uint64_t EmulatedGpu::uploaded_bytes() {
  const Lock lock(mutex_);
  return uploaded_bytes_;
}

uint64_t EmulatedGpu::launches() {
  const Lock lock(mutex_);
  return launches_;
}

uint64_t EmulatedGpu::decoded_tiles() {
  throw std::logic_error("the stand-in runtime does not count tiles");
}

}  // namespace l3
