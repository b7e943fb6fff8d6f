// Decodes a batch of images on a GPU: one upload, one launch. Layer: cuda.
// Hosts include this header without CUDA's; the stream is an opaque pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/tile.h"
#include "cuda/batch_layout.h"

struct CUstream_st;

namespace l3 {

// Memory the decoder needs, from the caller's allocator, so that it comes from
// the pools of whatever framework the decoder sits in. The decoder releases it
// when no work of its own uses it any more.
class CudaAllocator {
 public:
  virtual ~CudaAllocator() = default;
  virtual std::shared_ptr<void> AllocatePinned(size_t bytes) = 0;
  // Usable in stream order on `stream`.
  virtual std::shared_ptr<void> AllocateDevice(size_t bytes, CUstream_st* stream) = 0;
};

// cudaMallocHost and cudaMallocAsync.
std::unique_ptr<CudaAllocator> MakeDefaultCudaAllocator();

// Keeps staging buffers that grow to the largest batch seen and stay. Not
// thread-safe; lives on the device that is current when it is made. CUDA
// failures throw std::runtime_error with file and line; damaged data never
// throws.
class CudaBatchDecoder {
 public:
  explicit CudaBatchDecoder(std::unique_ptr<CudaAllocator> allocator);
  ~CudaBatchDecoder();
  CudaBatchDecoder(CudaBatchDecoder&&) noexcept;
  CudaBatchDecoder& operator=(CudaBatchDecoder&&) noexcept;

  // Calls task(i) for i in [0, count), in any order, maybe in parallel.
  using ForEach = std::function<void(size_t count, const std::function<void(size_t)>& task)>;

  // Stages, uploads and launches on `stream`; returns once the work is queued.
  // Encoded bytes are copied before it returns. `for_each` spreads the staging
  // copies over the caller's threads; null copies on this thread.
  void Launch(const std::vector<CudaSample>& samples, CUstream_st* stream,
              const ForEach& for_each = nullptr);

  // Waits for the batch last launched (its stream only, not the device) and
  // returns a result for each of its samples.
  const std::vector<DecodeResult>& Wait();

  // Bytes of the batch last launched that were uploaded: payloads of the tiles that its
  // windows touch, and what describes them.
  uint64_t uploaded_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace l3
