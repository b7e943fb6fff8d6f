// Decoding on DALI's threads. Layer: adapter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cpu/cpu_decoder.h"
#include "dali/pipeline/workspace/workspace.h"
#include "op/decode_job.h"
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

  // Decodes all jobs, those behind a bad one too.
  void Decode(dali::Workspace& ws, std::vector<DecodeJob>* jobs) {
    std::vector<Image> images(jobs->size());
    std::vector<Task> tasks;
    for (size_t i = 0; i < jobs->size(); ++i) AppendTasks((*jobs)[i], &images[i], &tasks);
    dali::ThreadPool& threads = ws.GetThreadPool();
    for (Task& task : tasks) {
      threads.AddWork([&task](int) { task.Run(); }, task.pixels);
    }
    threads.RunAll();
    for (DecodeJob& job : *jobs) job.result = {Status::kOk, 0};
    for (const Task& task : tasks) {
      DecodeResult& result = (*jobs)[static_cast<size_t>(task.image - images.data())].result;
      if (result.status == Status::kOk) result = task.result;
    }
  }

  // Copies small things to the memory of outputs.
  static void Copy(dali::Workspace&, void* to, const void* from, size_t bytes) {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  static void Clear(dali::Workspace&, void* data, size_t bytes) {
    if (bytes != 0) std::memset(data, 0, bytes);
  }

 private:
  // Made by the first of its tasks.
  struct Image {
    const DecodeJob* job;
    std::once_flag once;
    std::optional<CpuDecoder> decoder;
  };

  // Some rows of an image's tiles.
  struct Task {
    Image* image;
    uint32_t row_begin, row_end;
    bool fills_border;
    int64_t pixels;
    DecodeResult result;

    void Run() {
      const OutputPlan& plan = image->job->plan;
      std::call_once(image->once, [this] { image->decoder.emplace(*image->job->view); });
      if (fills_border) FillBorder(plan);
      result = image->decoder->DecodeWindow(plan, row_begin, row_end);
    }
  };

  // Small windows are one task, large ones several.
  static void AppendTasks(const DecodeJob& job, Image* image, std::vector<Task>* tasks) {
    constexpr uint64_t kTaskPixels = 1 << 19;
    image->job = &job;
    const ImageInfo& info = job.view->info;
    const TileSpan span = TilesOfWindow(info, job.plan.window);
    const uint64_t row_pixels =
        std::max<uint64_t>(1, uint64_t{job.plan.window.width_px} << info.tile_height_log2);
    const uint64_t step = std::max<uint64_t>(1, kTaskPixels / row_pixels);
    uint64_t begin = span.row_begin;
    do {  // at least one task, for the border
      const uint64_t end = std::min<uint64_t>(begin + step, span.row_end);
      tasks->push_back({image, static_cast<uint32_t>(begin), static_cast<uint32_t>(end),
                        begin == span.row_begin, static_cast<int64_t>((end - begin) * row_pixels),
                        DecodeResult{}});
      begin = end;
    } while (begin < span.row_end);
  }
};

}  // namespace l3
