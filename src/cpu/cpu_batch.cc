#include "cpu/cpu_batch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "base/parallel.h"
#include "cpu/border.h"
#include "cpu/jpeg_windows.h"

namespace l3 {

// The first of its tasks makes the decoders, and the last frees them: their tables would add up.
struct CpuBatch::Image {
  WindowJob job;
  TileSpan span;
  std::once_flag once;
  std::atomic<size_t> tasks_left{0};
  JpegSeams seams;
  std::vector<CpuDecoder> decoders;  // of each group
};

CpuBatch::CpuBatch(const std::vector<WindowJob>& jobs, uint64_t task_pixels, CpuEngine engine)
    : engine_(engine), images_(new Image[jobs.size()]), image_count_(jobs.size()) {
  for (size_t i = 0; i < jobs.size(); ++i) {
    const WindowJob& job = jobs[i];
    const ImageInfo& info = job.view->info;
    const TileSpan span = TilesOfWindows(*job.view, job.plans, job.plan_count);
    images_[i].job = job;
    images_[i].span = span;
    // In all groups. A thin image cuts its tiles.
    const TileRect tile = GetTileRect(info, 0);
    const uint64_t tile_pixels = uint64_t{tile.width_px} * tile.height_px * job.groups->size();
    uint64_t tiles = std::max<uint64_t>(1, task_pixels / tile_pixels);
    if (job.view->jpeg.data != nullptr && span.tile_count() != 0) {
      tiles = CeilDiv(tiles, span.columns()) * span.columns();
    }
    uint64_t begin = 0;
    do {  // at least one task, for the borders
      const uint64_t end = std::min<uint64_t>(begin + tiles, span.tile_count());
      tasks_.push_back({i, static_cast<uint32_t>(begin), static_cast<uint32_t>(end),
                        static_cast<int64_t>((end - begin) * tile_pixels), DecodeResult{}});
      ++images_[i].tasks_left;
      begin = end;
    } while (begin < span.tile_count());
  }
}

CpuBatch::~CpuBatch() = default;

void CpuBatch::Run(size_t number) {
  Task& task = tasks_[number];
  Image& image = images_[task.job];
  const WindowJob& job = image.job;
  std::call_once(image.once, [&] {
    std::vector<CpuDecoder> decoders;
    for (const GroupOutput& group : *job.groups) {
      const ImageView view = group.ViewOf(*job.view);
      decoders.empty() ? decoders.emplace_back(view, engine_)
                       : decoders.emplace_back(view, decoders[0]);
    }
    image.decoders = std::move(decoders);
  });
  for (size_t i = 0; i < job.plan_count && task.begin == 0; ++i) {
    const Border& border = job.plans[i].border;
    if ((border.left_px | border.top_px | border.right_px | border.bottom_px) == 0) continue;
    for (size_t g = 0; g < (job.is_merged() ? 1 : job.groups->size()); ++g) {
      CheckInterrupt();
      FillBorder(job.PlanOf(g, i));
    }
  }
  task.result = job.groups->size() == 1
                    ? image.decoders[0].DecodeWindows(job.plans, job.plan_count, image.span,
                                                      task.begin, task.end, &image.seams)
                    : RunGroups(image, task.begin, task.end);
  if (--image.tasks_left == 0) std::vector<CpuDecoder>().swap(image.decoders);
}

// Pixels that follow one another in the output have the samples of all groups: some groups of a
// tile are decoded, then stored together, while they are in the cache.
DecodeResult CpuBatch::RunGroups(const Image& image, uint32_t begin, uint32_t end) const {
  constexpr size_t kMostBytes = 8 << 20;
  const WindowJob& job = image.job;
  const std::vector<GroupOutput>& groups = *job.groups;
  const ImageInfo& info = job.view->info;
  DecodeResult result{Status::kOk, 0};
  WindowsOfTiles windows(*job.view, job.plans, job.plan_count, image.span, begin, end);
  if (info.has_large_tiles()) {
    std::vector<OutputPlan> plans;
    for (size_t g = 0; g < groups.size(); ++g) {
      plans.clear();
      for (const OutputPlan* plan : windows.plans()) {
        plans.push_back(job.PlanOf(g, static_cast<size_t>(plan - job.plans)));
      }
      result = FirstBad(result, image.decoders[g].DecodeWindows(plans.data(), plans.size(),
                                                                image.span, begin, end));
    }
    return result;
  }
  PlanList touching[2];  // the windows that touch each of two tiles
  const auto find_touching = [&](uint32_t k, uint32_t tile) {
    touching[k] = windows.At(tile);
    return !touching[k].empty();
  };
  // Whether rows of a tile are in one place in the output, and few enough to wait in the cache.
  constexpr uint64_t kMostAheadBytes = 1 << 19;
  int64_t channels = 0;
  for (const GroupOutput& group : groups) channels += group.channels;
  const TileRect tile_rect = GetTileRect(info, 0);
  const uint64_t tile_pixels = uint64_t{tile_rect.width_px} * tile_rect.height_px;
  const auto is_together = [&](const OutputPlan& plan) {
    const int64_t pixel_bytes = channels * OutputBytes(plan.type);
    return plan.x_stride_bytes == pixel_bytes &&
           tile_pixels * static_cast<uint64_t>(pixel_bytes) <= kMostAheadBytes;
  };
  const bool is_dense = job.plan_count == 1 && is_together(job.plans[0]);
  std::vector<std::array<DecodedSamples, 2>> samples(groups.size());
  std::vector<GroupPart> parts;
  // Planes of joined samples, those of the two tiles: of a channel of a group, or of the image.
  const bool is_joined = info.holding != Holding::kAsTheyAre;
  const size_t plane_bytes = tile_pixels * info.sample_bytes() + kPlaneGapBytes;
  const auto joined_bytes = [&](size_t g) {
    return is_joined ? plane_bytes * groups[g].group_channels : 0;
  };
  std::unique_ptr<uint8_t[]> scratch;
  size_t scratch_bytes = 0;
  for (uint32_t next = begin; next < end;) {
    // Two tiles side by side, if both are wanted.
    const auto tile_at = [&](uint32_t i) { return TileOfSpan(info, image.span, i); };
    if (!find_touching(0, tile_at(next))) {
      ++next;
      continue;
    }
    const uint32_t count = next + 1 < end && find_touching(1, tile_at(next + 1)) ? 2 : 1;
    for (size_t first = 0; first < groups.size();) {
      size_t last = first;
      size_t bytes = 0;
      do {
        bytes += count * (image.decoders[last].tile_bytes() + joined_bytes(last));
        ++last;
      } while (last < groups.size() &&
               bytes + count * (image.decoders[last].tile_bytes() + joined_bytes(last)) <=
                   kMostBytes);
      if (bytes > scratch_bytes) {
        scratch.reset(new uint8_t[bytes + kMaxChannels * 2 * plane_bytes * job.is_merged() + 4 +
                                  kReadableBytes]);
        scratch_bytes = bytes;
      }
      uint8_t* place = scratch.get();
      DecodeResult of_groups{Status::kOk, 0};
      for (size_t g = first; g < last; ++g) {
        CheckInterrupt();
        const CpuDecoder& decoder = image.decoders[g];
        const DecodeResult of_group =
            decoder.DecodeToMemory(image.span, next, next + count, place,
                                   is_dense ? job.plans : nullptr, static_cast<uint32_t>(g - first),
                                   static_cast<uint32_t>(last - first), samples[g].data());
        of_groups = FirstBad(of_groups, of_group);
        place += count * decoder.tile_bytes();
      }
      place += -reinterpret_cast<uintptr_t>(place) % info.sample_bytes();
      for (size_t g = first; g < last && is_joined && of_groups.status == Status::kOk; ++g) {
        for (uint32_t k = 0; k < count; ++k) {
          const TileRect rect = GetTileRect(info, tile_at(next + k));
          uint8_t* const base = place + k * kMaxChannels * plane_bytes * job.is_merged();
          uint8_t* planes[kMaxChannels];
          for (uint32_t c = 0; c < groups[g].group_channels; ++c) {
            planes[c] = base + (job.is_merged() ? groups[g].place[c] : c) * plane_bytes;
          }
          image.decoders[g].JoinToPlanes(tile_at(next + k), samples[g][k], planes);
          samples[g][k] = {base, uint64_t{rect.width_px} * info.sample_bytes(), plane_bytes};
          if (!job.is_merged()) place += joined_bytes(g);
        }
      }
      result = FirstBad(result, of_groups);
      // A bad tile leaves unspecified samples in memory, so the output may hold any.
      for (uint32_t k = 0; k < count && of_groups.status == Status::kOk; ++k) {
        for (const OutputPlan* plan : touching[k]) {
          CheckInterrupt();
          const size_t window = static_cast<size_t>(plan - job.plans);
          parts.clear();
          if (job.is_merged()) parts.push_back({&info, *plan, samples[first][k]});
          for (size_t g = first; g < last && !job.is_merged(); ++g) {
            parts.push_back({&image.decoders[g].info(), job.PlanOf(g, window), samples[g][k]});
          }
          image.decoders[first].StoreParts(parts.data(), parts.size(), tile_at(next + k));
        }
      }
      first = last;
    }
    next += count;
  }
  return result;
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
