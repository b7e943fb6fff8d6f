// Cuts the decoding of a batch of images into tasks for the caller's threads. Layer: cpu.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/tile.h"
#include "cpu/cpu_decoder.h"
#include "output/window_job.h"

namespace l3 {

// A tile that several windows of a job touch is decoded once. The memory that jobs point at must
// outlive the batch.
class CpuBatch {
 public:
  // A task has tiles of some `task_pixels` in all, and at least one tile.
  CpuBatch(const std::vector<WindowJob>& jobs, uint64_t task_pixels,
           CpuEngine engine = CpuEngine::kAuto);
  ~CpuBatch();

  // Tasks may run in any order and in parallel, each once.
  size_t task_count() const { return tasks_.size(); }
  int64_t pixels(size_t task) const { return tasks_[task].pixels; }
  size_t job(size_t task) const { return tasks_[task].job; }
  void Run(size_t task);

  // The result of each job, once all tasks have run: its first bad tile.
  std::vector<DecodeResult> Results() const;

 private:
  struct Image;
  // Some tiles of the span of an image's windows.
  struct Task {
    size_t job;
    uint32_t begin, end;
    int64_t pixels;
    DecodeResult result;
  };

  DecodeResult RunGroups(const Image& image, uint32_t begin, uint32_t end) const;

  const CpuEngine engine_;
  std::unique_ptr<Image[]> images_;  // one for each job
  size_t image_count_;
  std::vector<Task> tasks_;  // in the order of jobs and tiles
};

}  // namespace l3
