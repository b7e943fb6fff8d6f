// What an EmulatedGpu counts and what it lets fail, whatever runs its work.
#include <new>
#include <utility>

#include "base/portable.h"
#include "cuda/emulation/emulated_device.h"

#if defined(L3_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace l3 {
namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

}  // namespace

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
  uint8_t* const block = MakeBlock(bytes, of_device);
  if (!of_device) live_pinned_bytes_ += bytes;
  std::shared_ptr<void> owner(block, [this, of_device, bytes](uint8_t* memory) {
    const Lock deleter_lock(mutex_);
    if (of_device) {
      Guard(false);
      device_blocks_.erase(memory);
      Guard(running_ == 0);
    } else {
      live_pinned_bytes_ -= bytes;
    }
    FreeBlock(memory, of_device);
  });
  if (of_device) {
    device_blocks_[block] = bytes;  // may throw
    Guard(running_ == 0);
  }
  return owner;
}

bool EmulatedGpu::IsDevice(const void* place) const {
  const auto next = device_blocks_.upper_bound(static_cast<const uint8_t*>(place));
  if (next == device_blocks_.begin()) return false;
  const auto& [block, bytes] = *std::prev(next);
  return static_cast<const uint8_t*>(place) < block + bytes;
}

// Closes the memory of the device to all but its own work.
void EmulatedGpu::Guard([[maybe_unused]] bool closed) const {
#if defined(L3_ASAN)
  for (const auto& [block, bytes] : device_blocks_) {
    if (closed) {
      ASAN_POISON_MEMORY_REGION(block, bytes);
    } else {
      ASAN_UNPOISON_MEMORY_REGION(block, bytes);
    }
  }
#endif
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
  const Lock lock(mutex_);
  return decoded_tiles_;
}

}  // namespace l3
