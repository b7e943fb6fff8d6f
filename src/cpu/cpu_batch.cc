#include "cpu/cpu_batch.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "cpu/cpu_decoder.h"

namespace l3 {

// Its decoder is made by the first of its tasks.
struct CpuBatch::Image {
  CpuJob job;
  TileSpan span;
  std::once_flag once;
  std::optional<CpuDecoder> decoder;
};

CpuBatch::CpuBatch(const std::vector<CpuJob>& jobs, uint64_t task_pixels)
    : images_(new Image[jobs.size()]), image_count_(jobs.size()) {
  for (size_t i = 0; i < jobs.size(); ++i) {
    const CpuJob& job = jobs[i];
    const ImageInfo& info = job.view->info;
    const TileSpan span = TilesOfWindows(info, job.plans, job.plan_count);
    images_[i].job = job;
    images_[i].span = span;
    const uint64_t tile_pixels = uint64_t{1} << (info.tile_width_log2 + info.tile_height_log2);
    const uint64_t tiles = std::max<uint64_t>(1, task_pixels / tile_pixels);
    uint64_t begin = 0;
    do {  // at least one task, for the borders
      const uint64_t end = std::min<uint64_t>(begin + tiles, span.tile_count());
      tasks_.push_back({i, static_cast<uint32_t>(begin), static_cast<uint32_t>(end),
                        static_cast<int64_t>((end - begin) * tile_pixels), DecodeResult{}});
      begin = end;
    } while (begin < span.tile_count());
  }
}

CpuBatch::~CpuBatch() = default;

void CpuBatch::Run(size_t number) {
  Task& task = tasks_[number];
  Image& image = images_[task.job];
  const CpuJob& job = image.job;
  std::call_once(image.once, [&] { image.decoder.emplace(*job.view); });
  if (task.begin == 0) std::for_each(job.plans, job.plans + job.plan_count, FillBorder);
  task.result =
      image.decoder->DecodeWindows(job.plans, job.plan_count, image.span, task.begin, task.end);
}

std::vector<DecodeResult> CpuBatch::Results() const {
  std::vector<DecodeResult> results(image_count_, DecodeResult{Status::kOk, 0});
  for (const Task& task : tasks_) {
    DecodeResult& result = results[task.job];
    if (result.status == Status::kOk) result = task.result;
  }
  return results;
}

}  // namespace l3
