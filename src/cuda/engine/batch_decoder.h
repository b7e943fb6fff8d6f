// Decodes batches of images on a GPU: staging, uploads, launches, results.
// Layer: cuda; plain C++, so that all of it runs on an emulated device too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/tile.h"
#include "cuda/engine/batch_layout.h"
#include "cuda/engine/encoded_cache.h"
#include "cuda/engine/gpu_device.h"
#include "output/needed_payloads.h"
#include "output/window_job.h"

namespace l3 {

// Keeps buffers that grow to the largest batch seen and stay; a batch that needs no more
// room allocates nothing. Not thread-safe. Failures of the device throw, and leave a
// decoder that can go on; damaged data never throws.
class BatchDecoder {
 public:
  // Parts, which are launched one by one as they go up, take longer to go up than to decode:
  // 16 MiB take some 300 us over PCIe 5, and a launch for their tiles is predicted to take half
  // of that (docs/dev/notes/kernels-history.md, "Parts"). A copy of half a MiB takes 10 us, more
  // than its call.
  static constexpr UploadPolicy kUsualUpload = {16 << 20, 512 << 10, 512 << 10};

  // Of all groups of images. The windows of a group, which are decoded together, may be more.
  static constexpr size_t kMostWindows = 1 << 16;

  // Images may come from `cache`, or name a key there.
  explicit BatchDecoder(std::unique_ptr<GpuDevice> device,
                        std::shared_ptr<EncodedCache> cache = nullptr,
                        const UploadPolicy& upload = kUsualUpload);
  // Waits for its own work.
  ~BatchDecoder();
  BatchDecoder(const BatchDecoder&) = delete;
  BatchDecoder& operator=(const BatchDecoder&) = delete;

  // Allocates now what would be allocated when a batch needs it: buffers of these sizes
  // in the memory of the device, and of the host, for each batch in flight.
  void Reserve(size_t device_bytes, size_t pinned_bytes);

  // Stages and uploads, and launches on `stream`; returns once the work is queued. If it throws,
  // none of it goes on. Encoded bytes are copied before it returns, but for those of jobs in pinned
  // memory: these must stay until the batch was waited for. `for_each` spreads the staging copies
  // over the caller's threads, and the reads of files; null does both on this thread. A file that
  // cannot be read is kTruncated; its source says why. Two batches can be in flight: the
  // results of one that was not waited for are lost to the second one after it.
  void Launch(const std::vector<WindowJob>& jobs, CUstream_st* stream,
              const ForEach& for_each = nullptr);

  // Waits for the oldest batch in flight (for its work only, not for the device) and
  // returns a result for each window of each job: that of the first bad tile of any group. Without
  // a batch, returns the last ones again.
  const std::vector<DecodeResult>& Wait();

  // Launches and waits. Where windows of all groups are more than kMostWindows, in several
  // launches: each of them takes some 1 KiB of the host and of the device, however small its output
  // is. And where files are read, after each UploadPolicy::part_bytes: the next are read while
  // these go up and are decoded. Returns a result for each window of each job.
  std::vector<DecodeResult> Decode(const std::vector<WindowJob>& jobs, CUstream_st* stream,
                                   const ForEach& for_each = nullptr);

  // Bytes of the batch last launched that were uploaded: payloads of the tiles that its
  // windows touch, or of all that the cache keeps, what lies between them and what describes them.
  uint64_t uploaded_bytes() const { return uploaded_bytes_; }

 private:
  // Memory that grows and stays.
  struct Buffer {
    std::shared_ptr<void> memory;
    size_t bytes = 0;

    uint8_t* data() const { return static_cast<uint8_t*>(memory.get()); }
  };

  // What a batch in flight uses.
  struct Slot {
    Buffer pinned;
    Buffer read;  // of files, pinned too
    Buffer device;
    Buffer pinned_results;
    std::unique_ptr<GpuEvent> uploaded;  // from `pinned`, all that was queued
    std::unique_ptr<GpuEvent> done;      // with `device`
    std::vector<size_t> result_of;  // the number of the caller's result, for each window
  };

  using Allocate = std::shared_ptr<void> (GpuDevice::*)(size_t bytes);
  void Grow(Buffer* buffer, size_t bytes, size_t spare, GpuEvent* in_use, Allocate allocate);
  void MakeRoom(Slot* slot);
  void ReadFiles(Slot* slot, const ForEach& for_each);
  void LaunchParts(const Slot& slot, CUstream_st* stream, const ForEach& for_each);
  void JoinStreams(CUstream_st* stream);
  // The windows of each job have the results from `first_results` on.
  void Launch(const std::vector<WindowJob>& jobs, const std::vector<size_t>& first_results,
              CUstream_st* stream, const ForEach& for_each);
  void WaitFor(std::vector<DecodeResult>* results);
  void Upload(const Slot& slot, size_t part, const ForEach& for_each);
  void StageAndUpload(const Slot& slot, size_t piece_begin, size_t piece_end,
                      const ForEach& for_each);
  void FillCache(const Slot& slot, const ForEach& for_each);

  const std::unique_ptr<GpuDevice> device_;
  const std::shared_ptr<EncodedCache> cache_;
  const UploadPolicy upload_;
  const GpuLimits limits_;
  // Uploads have a stream of their own: a batch goes up while the one before decodes.
  const std::shared_ptr<CUstream_st> upload_stream_;
  // A launch of few tiles leaves most of a GPU idle: every second one of a part goes here.
  const std::shared_ptr<CUstream_st> second_stream_;
  const std::unique_ptr<GpuEvent> forked_;  // what the caller's stream has before the launches
  const std::unique_ptr<GpuEvent> joined_;  // the launches of the second stream
  std::array<Slot, 2> slots_;
  Buffer jpeg_scratch_;  // of all batches, which use it one after the other
  uint64_t launched_ = 0;  // batches
  uint64_t waited_ = 0;
  std::vector<WindowJob> jobs_;  // of the batch that is launched
  std::vector<size_t> first_results_;  // of each, for Launch()
  std::vector<NeededPayloads> needed_;  // of each
  std::vector<PayloadRead> reads_;
  BatchLayout layout_;
  uint64_t uploaded_bytes_ = 0;
  std::vector<DecodeResult> results_;
  std::vector<EncodedCache::Candidate> candidates_;
  std::vector<uint8_t> is_intact_;  // of each image that the cache shall keep
};

}  // namespace l3
