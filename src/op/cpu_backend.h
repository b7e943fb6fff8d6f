// Decoding on DALI's threads. Layer: adapter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cpu/cpu_batch.h"
#include "dali/pipeline/workspace/workspace.h"
#include "files/file_handle.h"
#include "output/payload_ranges.h"

namespace l3 {

class CpuBackend {
 public:
  using DaliBackend = dali::CPUBackend;
  using OutputBackend = dali::CPUBackend;

  explicit CpuBackend(const dali::OpSpec&) {}

  // Calls task(i) for i in [0, count), here on this thread.
  template <typename Task>
  static void ForEach(size_t count, const Task& task) {
    for (size_t i = 0; i < count; ++i) task(i);
  }

  // Validates a file. Nothing is cached.
  static Status Read(const std::string&, const uint8_t* file, size_t size, ImageView* view,
                     const CachedImage** cached) {
    *cached = nullptr;
    return ParseImage(file, size, view);
  }

  // The same of a handle.
  static Status Read(const std::string&, const FileHandle& handle, ImageView* view,
                     const CachedImage** cached) {
    *cached = nullptr;
    return ParseHandle(handle, view);
  }

  // Decodes all jobs, those behind a bad one too. Returns a result for each.
  std::vector<DecodeResult> Decode(dali::Workspace& ws, const std::vector<int>&,
                                   std::vector<WindowJob>* jobs) {
    dali::ThreadPool& threads = ws.GetThreadPool();
    ReadPayloads(threads, jobs);
    CpuBatch batch(*jobs, kTaskPixels);
    for (size_t task = 0; task < batch.task_count(); ++task) {
      threads.AddWork([&batch, task](int) { batch.Run(task); }, batch.pixels(task));
    }
    threads.RunAll();
    std::vector<DecodeResult> results = batch.Results();
    for (size_t i = 0; i < jobs->size(); ++i) {
      PayloadReader* const reader = (*jobs)[i].reader;
      if (reader != nullptr && !reader->error().empty()) results[i].status = Status::kTruncated;
    }
    return results;
  }

  // Copies small things to the memory of outputs.
  static void Copy(dali::Workspace&, void* to, const void* from, size_t bytes) {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  static void Clear(dali::Workspace&, void* data, size_t bytes) {
    if (bytes != 0) std::memset(data, 0, bytes);
  }

 private:
  // The payloads that a job needs, and a view of them.
  struct Payloads {
    std::unique_ptr<uint8_t[]> memory;
    size_t capacity = 0;
    ImageView view;
  };

  // Reads what jobs need of the files of handles. Jobs whose files cannot be read get no plans.
  void ReadPayloads(dali::ThreadPool& threads, std::vector<WindowJob>* jobs) {
    const auto is_lazy = [](const WindowJob& job) { return job.reader != nullptr; };
    if (std::none_of(jobs->begin(), jobs->end(), is_lazy)) return;
    if (payloads_.size() < jobs->size()) payloads_.resize(jobs->size());
    for (size_t i = 0; i < jobs->size(); ++i) {
      WindowJob& job = (*jobs)[i];
      if (job.reader == nullptr) continue;
      threads.AddWork([this, i, &job](int) {
        if (!ReadPayloads(job, &payloads_[i])) job.plan_count = 0;
        job.reader->Close();
        job.view = &payloads_[i].view;
      });
    }
    threads.RunAll();
  }

  // Reads the payloads of a job one behind the other, with an index of where they lie now. Those
  // that it does not need have no bytes.
  static bool ReadPayloads(const WindowJob& job, Payloads* payloads) {
    constexpr uint64_t kMaxGapBytes = 4096;  // as fast to read as to start anew
    const ImageView& view = *job.view;
    payloads->view = view;
    std::vector<ByteRange> ranges = FindPayloadRanges(job, kMaxGapBytes);
    const uint64_t head_bytes = FileBytes(view) - view.payloads_bytes;
    uint64_t bytes = 0;
    for (ByteRange& range : ranges) {  // of the file, then of its payloads
      range.begin = std::max(range.begin, head_bytes) - head_bytes;
      range.end -= head_bytes;
      bytes += range.end - range.begin;
    }
    const size_t needed = bytes + 4 * view.payload_count();
    if (payloads->capacity < needed) {
      payloads->memory.reset(new uint8_t[needed]);
      payloads->capacity = needed;
    }
    uint8_t* const index = payloads->memory.get() + bytes;
    payloads->view.payloads = payloads->memory.get();
    payloads->view.payloads_bytes = bytes;
    payloads->view.tile_index = index;
    uint8_t* next = payloads->memory.get();
    uint64_t entry = 0;
    for (const ByteRange& range : ranges) {
      const uint64_t begin = static_cast<uint64_t>(next - payloads->memory.get());
      if (!job.reader->Read(range.begin, range.end - range.begin, next)) return false;
      next += range.end - range.begin;
      for (; entry < view.payload_count() && view.IndexEntry(entry) <= range.end; ++entry) {
        const uint64_t end = std::max(view.IndexEntry(entry), range.begin) - range.begin + begin;
        StoreU32(index + 4 * entry, static_cast<uint32_t>(end / kPayloadAlignment));
      }
    }
    for (; entry < view.payload_count(); ++entry) {
      StoreU32(index + 4 * entry, static_cast<uint32_t>(bytes / kPayloadAlignment));
    }
    return true;
  }

  // Small windows are one task, large ones several.
  static constexpr uint64_t kTaskPixels = 1 << 19;

  std::vector<Payloads> payloads_;  // of each job; kept for their memory
};

}  // namespace l3
