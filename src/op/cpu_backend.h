// Decoding on DALI's threads. Layer: adapter.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cpu/cpu_batch.h"
#include "dali/pipeline/workspace/workspace.h"
#include "op/decode_times.h"

namespace l3 {

class CpuBackend {
 public:
  using DaliBackend = dali::CPUBackend;
  using OutputBackend = dali::CPUBackend;
  static constexpr DecodeTimes::Place kPlace = DecodeTimes::kCpu;

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

  // Decodes all jobs, those behind a bad one too. Returns a result for each.
  static std::vector<DecodeResult> Decode(dali::Workspace& ws, const std::vector<int>&,
                                          std::vector<WindowJob>* jobs) {
    CpuBatch batch(*jobs, kTaskPixels);
    dali::ThreadPool& threads = ws.GetThreadPool();
    for (size_t task = 0; task < batch.task_count(); ++task) {
      threads.AddWork([&batch, task](int) { batch.Run(task); }, batch.pixels(task));
    }
    threads.RunAll();
    return batch.Results();
  }

  // Copies small things to the memory of outputs.
  static void Copy(dali::Workspace&, void* to, const void* from, size_t bytes) {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  static void Clear(dali::Workspace&, void* data, size_t bytes) {
    if (bytes != 0) std::memset(data, 0, bytes);
  }

 private:
  // Small windows are one task, large ones several.
  static constexpr uint64_t kTaskPixels = 1 << 19;
};

}  // namespace l3
