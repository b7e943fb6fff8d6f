// What the batch engine asks of a GPU: memory, streams, events, copies, launches.
// Layer: cuda; plain C++. cuda_device.h has the real one, emulated_device.h one that
// runs on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cuda/kernels/jpeg_batch.h"
#include "cuda/kernels/sample_join.h"
#include "cuda/kernels/tile_batch.h"

struct CUstream_st;

namespace l3 {

// Warps of a kernel for rans tiles.
struct WarpLimits {
  uint32_t per_multiprocessor;  // as many as have registers
  uint32_t per_block;
};

// How many multiprocessors there are, and what each has room for.
struct GpuLimits {
  uint32_t multiprocessors;
  uint32_t shared_bytes;            // of shared memory
  uint32_t shared_bytes_per_block;  // at most
  uint32_t reserved_bytes;          // of it that a block takes besides its own
  WarpLimits rans[2][kStoreKinds];  // of the kernels of rans tiles, by RansWarps()
  // So many packed tiles in a launch are decoded by teams, at most. By StoreKind.
  uint32_t team_tiles[kStoreKinds];
  WarpLimits jpeg = {16, 16};  // of the kernel that decodes jpeg tiles
  // For samples of jpeg tiles, of both batches in flight: they take turns.
  uint64_t jpeg_scratch_bytes = 128 << 20;

  WarpLimits& RansWarps(uint32_t sample_bytes, StoreKind store) {
    return rans[sample_bytes - 1][static_cast<uint32_t>(store)];
  }
};

// A point in the work of a stream: that of the last Record().
class GpuEvent {
 public:
  virtual ~GpuEvent() = default;
  virtual void Record(CUstream_st* stream) = 0;
  // Both return at once if nothing was recorded: the host waits, or `stream` does.
  virtual void Synchronize() = 0;
  virtual void MakeWait(CUstream_st* stream) = 0;
};

// One GPU. Copies and launches are queued in the order of their stream, and nothing waits
// but GpuEvent::Synchronize(). Memory that queued work uses must stay until the work is
// done. Failures throw: std::bad_alloc if memory is out, else std::runtime_error.
class GpuDevice {
 public:
  virtual ~GpuDevice() = default;
  virtual GpuLimits limits() const = 0;
  // Memory of the host that copies can run from without the host's help.
  virtual std::shared_ptr<void> AllocatePinned(size_t bytes) = 0;
  // Memory that work on any stream may use at once.
  virtual std::shared_ptr<void> AllocateDevice(size_t bytes) = 0;
  virtual std::shared_ptr<CUstream_st> MakeStream() = 0;
  virtual std::unique_ptr<GpuEvent> MakeEvent() = 0;
  // Between memory of either kind.
  virtual void Copy(void* to, const void* from, size_t bytes, CUstream_st* stream) = 0;
  virtual void Launch(const TileBatch& batch, CUstream_st* stream) = 0;
  virtual void LaunchJpeg(const JpegBatch& batch, CUstream_st* stream) = 0;
  // Of tasks in memory of the device; at least one.
  virtual void LaunchJoins(const JoinTask* tasks, size_t count, CUstream_st* stream) = 0;
};

}  // namespace l3
