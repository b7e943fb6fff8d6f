// Decoding on DALI's threads. Layer: adapter.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cpu/cpu_batch.h"
#include "dali/pipeline/workspace/workspace.h"
#include "files/file_handle.h"
#include "output/needed_payloads.h"

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
                     const DeviceImage** cached) {
    *cached = nullptr;
    return ParseImage(file, size, view);
  }

  // The same of a handle.
  static Status Read(const std::string&, const FileHandle& handle, ImageView* view,
                     const DeviceImage** cached) {
    *cached = nullptr;
    return ParseHandle(handle, view);
  }

  // Decodes all jobs, those behind a bad one too. Returns a result for each.
  std::vector<DecodeResult> Decode(dali::Workspace& ws, const std::vector<int>&,
                                   std::vector<WindowJob>* jobs) {
    dali::ThreadPool& threads = ws.GetThreadPool();
    ReadFiles(threads, jobs);
    CpuBatch batch(*jobs, kTaskPixels);
    for (size_t task = 0; task < batch.task_count(); ++task) {
      PayloadSource* const source = (*jobs)[batch.job(task)].source;
      const bool is_remote = source != nullptr && source->traits().is_remote;
      threads.AddWork(
          [&batch, task, source](int) {
            if (source == nullptr || source->Wait()) batch.Run(task);
          },
          // Objects in the order in which they were asked for.
          is_remote ? -static_cast<int64_t>(task) : batch.pixels(task));
    }
    threads.RunAll();
    std::vector<DecodeResult> results = batch.Results();
    for (size_t i = 0; i < jobs->size(); ++i) {
      PayloadSource* const source = (*jobs)[i].source;
      if (source != nullptr && !source->Wait()) results[i].status = Status::kTruncated;
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
  // Of a job whose file is not in memory.
  struct Payloads {
    NeededPayloads needed;
    std::unique_ptr<uint8_t[]> memory;
    size_t capacity = 0;
  };

  // Reads what jobs need of files, or begins to.
  void ReadFiles(dali::ThreadPool& threads, std::vector<WindowJob>* jobs) {
    reads_.clear();
    if (payloads_.size() < jobs->size()) payloads_.resize(jobs->size());
    for (size_t i = 0; i < jobs->size(); ++i) {
      WindowJob& job = (*jobs)[i];
      if (job.source == nullptr) continue;
      Payloads& payloads = payloads_[i];
      payloads.needed.Find(job);
      if (payloads.capacity < payloads.needed.bytes()) {
        payloads.capacity = payloads.needed.bytes();
        payloads.memory.reset(new uint8_t[payloads.capacity]);
      }
      job.view = payloads.needed.Place(payloads.memory.get(), &reads_);
    }
    ReadPayloads(reads_, [&](size_t count, const std::function<void(size_t)>& task) {
      // In their order: works of one priority have none.
      for (size_t i = 0; i < count; ++i) {
        threads.AddWork([&task, i](int) { task(i); }, -static_cast<int64_t>(i));
      }
      threads.RunAll();
    });
  }

  // Small windows are one task, large ones several.
  static constexpr uint64_t kTaskPixels = 1 << 19;

  std::vector<Payloads> payloads_;  // of each job; kept for their memory
  std::vector<PayloadRead> reads_;
};

}  // namespace l3
