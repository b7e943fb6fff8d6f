// GPU and pinned memory from the pools of the program that uses nvImageCodec. Layer: adapter.
#pragma once

#include <memory>
#include <new>
#include <utility>

#include "cuda/engine/gpu_device.h"
#include "nvimgcodec/abi.h"

namespace l3 {

// A device whose memory comes from the allocators that the framework gives; from the device itself
// where it gives none.
class DeviceWithFrameworkMemory final : public GpuDevice {
 public:
  DeviceWithFrameworkMemory(std::unique_ptr<GpuDevice> device,
                            const nvimgcodecDeviceAllocator_t* device_memory,
                            const nvimgcodecPinnedAllocator_t* pinned_memory)
      : device_(std::move(device)), stream_(device_->MakeStream()), event_(device_->MakeEvent()) {
    if (IsWhole(device_memory)) device_memory_ = *device_memory;
    if (IsWhole(pinned_memory)) pinned_memory_ = *pinned_memory;
  }

  GpuLimits limits() const override { return device_->limits(); }
  std::shared_ptr<void> AllocatePinned(size_t bytes) override {
    const nvimgcodecPinnedAllocator_t& from = pinned_memory_;
    if (from.pinned_malloc == nullptr || from.pinned_free == nullptr) {
      return device_->AllocatePinned(bytes);
    }
    return Allocate(from.pinned_malloc, from.pinned_free, from.pinned_ctx, bytes);
  }
  std::shared_ptr<void> AllocateDevice(size_t bytes) override {
    const nvimgcodecDeviceAllocator_t& from = device_memory_;
    if (from.device_malloc == nullptr || from.device_free == nullptr) {
      return device_->AllocateDevice(bytes);
    }
    return Allocate(from.device_malloc, from.device_free, from.device_ctx, bytes);
  }
  std::shared_ptr<CUstream_st> MakeStream() override { return device_->MakeStream(); }
  std::unique_ptr<GpuEvent> MakeEvent() override { return device_->MakeEvent(); }
  void Copy(void* to, const void* from, size_t bytes, CUstream_st* stream) override {
    device_->Copy(to, from, bytes, stream);
  }
  void Launch(const TileBatch& batch, CUstream_st* stream) override {
    device_->Launch(batch, stream);
  }
  void LaunchJpeg(const JpegBatch& batch, CUstream_st* stream) override {
    device_->LaunchJpeg(batch, stream);
  }
  void LaunchJoins(const JoinTask* tasks, size_t count, CUstream_st* stream) override {
    device_->LaunchJoins(tasks, count, stream);
  }

 private:
  // Memory is given and taken back in the order of a stream that has no other work. The batch
  // engine gives back what no work uses any more.
  template <typename Malloc, typename Free>
  std::shared_ptr<void> Allocate(Malloc malloc, Free free, void* context, size_t bytes) {
    void* memory = nullptr;
    if (malloc(context, &memory, bytes, stream_.get()) != 0 || memory == nullptr) {
      throw std::bad_alloc();
    }
    std::shared_ptr<void> held(
        memory, [=, stream = stream_](void* given) { free(context, given, bytes, stream.get()); });
    event_->Record(stream_.get());
    event_->Synchronize();
    return held;
  }

  const std::unique_ptr<GpuDevice> device_;
  const std::shared_ptr<CUstream_st> stream_;
  const std::unique_ptr<GpuEvent> event_;
  nvimgcodecDeviceAllocator_t device_memory_ = {};
  nvimgcodecPinnedAllocator_t pinned_memory_ = {};
};

}  // namespace l3
