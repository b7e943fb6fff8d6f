// A GPU emulated on the host, for tests of the batch engine and the cache under
// sanitizers. Layer: cuda; plain C++.
//
// Work is queued, and what runs when is the test's choice: at once, or only when something
// waits for it. So a wait that is missing, memory that is reused or freed too early and
// bytes that are staged too late show as wrong samples or under AddressSanitizer. Memory
// of the device has the exact size, and the host may not touch it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "cuda/engine/gpu_device.h"

namespace l3 {

enum class EmulatedPace {
  kEager,  // work runs when it is queued
  kLazy,   // work runs when something waits for it
};

class EmulatedStream;

// Shared by the devices that are made of it, by threads too; outlives all that they gave.
class EmulatedGpu {
 public:
  // Streams that the device makes have this pace.
  std::unique_ptr<GpuDevice> MakeDevice(EmulatedPace pace);
  // A stream of the caller's. Null stands for one that all share, as CUDA has it.
  std::shared_ptr<CUstream_st> MakeStream(EmulatedPace pace);
  // Work of a stream that is queued and has not run.
  size_t QueuedWork(CUstream_st* stream);

  // Every allocation from the `count`-th on throws std::bad_alloc, but `failures` at most.
  void FailAllocations(uint64_t count, uint64_t failures);

  uint64_t live_bytes();         // of both kinds of memory
  uint64_t live_device_bytes();
  uint64_t allocations();        // so far
  uint64_t uploaded_bytes();     // so far
  uint64_t launches();           // so far
  uint64_t decoded_tiles();      // so far: how many times a tile was decoded

 private:
  friend class EmulatedDevice;
  friend class EmulatedEvent;
  friend class EmulatedStream;

  std::shared_ptr<void> Allocate(size_t bytes, bool of_device);
  uint8_t* MakeBlock(size_t bytes, bool of_device);
  void FreeBlock(uint8_t* block, bool of_device);
  bool IsDevice(const void* place) const;
  void Run(const std::function<void()>& work);
  void Guard(bool closed) const;
  EmulatedStream* Find(CUstream_st* stream);

  std::recursive_mutex mutex_;
  std::map<const uint8_t*, size_t> device_blocks_;
  uint32_t running_ = 0;  // depth of Run()
  uint64_t live_pinned_bytes_ = 0;
  uint64_t allocations_ = 0;
  uint64_t next_failure_ = 0;
  uint64_t failures_left_ = 0;
  uint64_t uploaded_bytes_ = 0;
  uint64_t launches_ = 0;
  uint64_t decoded_tiles_ = 0;
  std::shared_ptr<CUstream_st> null_stream_;
};

}  // namespace l3
