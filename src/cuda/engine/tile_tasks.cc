#include "cuda/engine/tile_tasks.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <stdexcept>

#include "cuda/engine/encoded_cache.h"
#include "cuda/engine/rans_grid.h"
#include "cuda/kernels/border_fill.cuh"
#include "cuda/kernels/rans_lookup.cuh"
#include "cuda/kernels/warp_scratch.cuh"

namespace l3 {
namespace {

// What a thread plans before others have begun, in some 0.3 ms.
constexpr uint64_t kQuickTiles = 1 << 14;

// What a whole tile of an image costs a warp, about: kernels spend their time on samples,
// hardly on bits.
uint64_t TileCost(const ImageInfo& info) {
  const TileRect rect = GetTileRect(info, 0);
  return uint64_t{rect.width_px} * rect.height_px * info.channels;
}

// Calls function(i) for each tile of a span, by its number in another one around it.
template <class Function>
void ForEachTileIn(const TileSpan& around, const TileSpan& span, const Function& function) {
  for (uint32_t row = span.row_begin; row < span.row_end; ++row) {
    const size_t begin = size_t{row - around.row_begin} * around.columns() - around.column_begin;
    for (uint32_t column = span.column_begin; column < span.column_end; ++column) {
      function(begin + column);
    }
  }
}

template <class T>
void Put(uint8_t* array, uint64_t i, const T& value) {
  std::memcpy(array + i * sizeof(value), &value, sizeof(value));
}

}  // namespace

void TileTasks::Find(const std::vector<BatchImage>& images, const ForEach& for_each) {
  images_ = &images;
  tasks_.resize(images.size());
  bool has_plans = false;
  bool has_jpeg = false;
  bool reads = false;
  uint64_t tiles = 0;
  uint64_t numbers = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    const BatchImage& image = images[i];
    ImageTasks& tasks = tasks_[i];
    tasks.first_tile = tiles;
    tasks.first_number = numbers;
    tasks.number_count = image.window_count() == 1 ? 1 : 0;
    for (size_t w = image.window_begin; w < image.window_end; ++w) {
      if (image.window_count() != 1) tasks.number_count += image.TilesOf(w).tile_count();
      has_plans = has_plans || !IsWholeImageAsStored(image.view.info, image.PlanOf(w));
    }
    has_plans = has_plans || image.window_count() != 1;
    has_jpeg = has_jpeg || image.view.jpeg.data != nullptr;
    reads = reads || image.job->cached == nullptr;
    tiles += image.tiles.tile_count();
    numbers += tasks.number_count;
  }
  if (numbers > std::numeric_limits<uint32_t>::max()) {
    throw std::length_error("The windows of a batch touch more than 2^32 - 1 tiles. Use fewer.");
  }
  store_ = has_plans ? StoreKind::kPlans : StoreKind::kStored;
  has_plans_ = has_plans || has_jpeg;
  number_ends_.assign(tiles, 0);
  numbers_.resize(numbers);
  kinds_.resize(tiles);
  // Reads payloads, which may have to come from a disk. The rest takes less than threads to begin.
  const bool is_long = reads || tiles + numbers > kQuickTiles;
  RunForEach(is_long ? for_each : kOnThisThread, images.size(), [&](size_t i) {
    ListWindows(i);
    FindKinds(i);
  });
}

// Lists which windows of an image need each of its tiles.
void TileTasks::ListWindows(size_t i) {
  const BatchImage& image = (*images_)[i];
  uint32_t* const numbers = numbers_.data() + tasks_[i].first_number;
  if (image.window_count() == 1) {
    numbers[0] = static_cast<uint32_t>(image.window_begin);
    return;
  }
  // Counts, then where each list begins, then, as it is filled, where it ends.
  uint32_t* const ends = number_ends_.data() + tasks_[i].first_tile;
  for (size_t w = image.window_begin; w < image.window_end; ++w) {
    ForEachTileIn(image.tiles, image.TilesOf(w), [&](size_t tile) { ++ends[tile]; });
  }
  uint32_t begin = 0;
  for (uint32_t tile = 0; tile < image.tiles.tile_count(); ++tile) {
    const uint32_t count = ends[tile];
    ends[tile] = begin;
    begin += count;
  }
  for (size_t w = image.window_begin; w < image.window_end; ++w) {
    ForEachTileIn(image.tiles, image.TilesOf(w),
                  [&](size_t tile) { numbers[ends[tile]++] = static_cast<uint32_t>(w); });
  }
}

WindowList TileTasks::WindowsOf(size_t i, uint32_t row, uint32_t column) const {
  const BatchImage& image = (*images_)[i];
  const uint32_t first = static_cast<uint32_t>(tasks_[i].first_number);
  if (image.window_count() == 1) return {first, 1};
  const TileSpan& span = image.tiles;
  const size_t tile = size_t{row - span.row_begin} * span.columns() + (column - span.column_begin);
  const uint32_t* const ends = number_ends_.data() + tasks_[i].first_tile;
  const uint32_t begin = tile == 0 ? 0 : ends[tile - 1];
  return {first + begin, ends[tile] - begin};
}

void TileTasks::Note(const WindowList& windows, uint64_t bad_tile, uint8_t* results) const {
  for (uint32_t i = windows.begin; i < windows.begin + windows.count; ++i) {
    uint64_t result;
    std::memcpy(&result, results + numbers_[i] * sizeof(result), sizeof(result));
    Put(results, numbers_[i], std::min(result, bad_tile));
  }
}

// Calls function(row, column, windows) for each tile that windows of an image need, in their order.
// Of an image of jpeg tiles for none: these are tasks of JpegTasks.
template <class Function>
void TileTasks::ForEachTile(size_t i, const Function& function) const {
  const TileSpan& span = (*images_)[i].tiles;
  if ((*images_)[i].view.jpeg.data != nullptr) return;
  const bool is_alone = (*images_)[i].window_count() == 1;
  const uint32_t* end = number_ends_.data() + tasks_[i].first_tile;
  const uint32_t first = static_cast<uint32_t>(tasks_[i].first_number);
  WindowList windows = {first, 1};
  for (uint32_t row = span.row_begin; row < span.row_end; ++row) {
    for (uint32_t column = span.column_begin; column < span.column_end; ++column) {
      if (!is_alone) {
        windows.count = first + *end++ - windows.begin;
        if (windows.count == 0) continue;
      }
      function(row, column, windows);
      if (!is_alone) windows.begin += windows.count;
    }
  }
}

// Finds the kinds of the tiles that windows of an image need, and counts its tasks. Payloads may
// change later: kernels validate what they find then.
void TileTasks::FindKinds(size_t i) {
  const BatchImage& image = (*images_)[i];
  const DeviceImage* const cached = image.job->cached;
  uint64_t rans = 0;
  uint64_t packed = 0;
  for (size_t w = image.window_begin; w < image.window_end; ++w) {
    packed += BorderTasks(image.SharedPlanOf(w));
  }
  TileKind* kind = kinds_.data() + tasks_[i].first_tile;
  ForEachTile(i, [&](uint32_t row, uint32_t column, const WindowList& windows) {
    const uint32_t tile = row * image.view.info.tile_columns() + column;
    const bool is_rans = cached != nullptr ? cached->is_rans[tile]
                                           : !image.job->is_lost &&
                                                 IsRansTile(image.view, image.view.payloads, tile);
    *kind++ = is_rans ? TileKind::kModel : TileKind::kSimple;
    (is_rans ? rans : packed) += CeilDiv(windows.count, kMaxTileWindows);
  });
  tasks_[i].count[kModel] = rans;
  tasks_[i].count[kSimple] = packed;
}

// Finds how many warps a block of rans tiles has, and fills blocks up.
void TileTasks::PlanBlocks(const std::vector<UploadPart>& parts, const GpuLimits& limits) {
  part_ends_.clear();
  for (const UploadPart& part : parts) part_ends_.push_back(part.image_end);
  for (uint32_t bytes : {1, 2}) {
    uint32_t scratch_bytes = 0;
    rans_counts_.assign(images_->size(), 0);
    for (size_t i = 0; i < images_->size(); ++i) {
      const ImageInfo& info = (*images_)[i].view.info;
      if (info.sample_bytes() != bytes || !has_rans(i)) continue;
      rans_counts_[i] = tasks_[i].count[kModel];
      scratch_bytes =
          std::max(scratch_bytes, RansScratchBytes(info.channels, bytes, info.tile_width_log2));
    }
    if (scratch_bytes == 0) continue;
    const WarpLimits& warps = limits.rans[bytes - 1][static_cast<size_t>(store_)];
    const uint32_t per_block =
        PlanRans(rans_counts_, part_ends_, sizeof(RansLookup), scratch_bytes, warps, limits)
            .warps_per_block;
    for (size_t i = 0; i < images_->size(); ++i) {
      if (rans_counts_[i] == 0) continue;
      tasks_[i].count[kModel] = CeilDiv(rans_counts_[i], per_block) * per_block;
    }
    warps_per_block_[bytes - 1] = per_block;
    scratch_bytes_[bytes - 1] = scratch_bytes;
  }
}

// In a launch, images with the costliest tiles go first, so that small ones fill the end.
void TileTasks::PlanLaunches(const std::vector<UploadPart>& parts, const GpuLimits& limits) {
  PlanBlocks(parts, limits);
  const auto info = [this](size_t i) -> const ImageInfo& { return (*images_)[i].view.info; };
  launches_.clear();
  launch_ends_.clear();
  order_.reserve(images_->size());
  task_count_ = 0;
  size_t begin = 0;
  for (const UploadPart& part : parts) {
    order_.clear();
    for (; begin < part.image_end; ++begin) order_.push_back(begin);
    std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      const uint64_t cost_a = TileCost(info(a));
      const uint64_t cost_b = TileCost(info(b));
      return cost_a != cost_b ? cost_a > cost_b : a < b;
    });
    for (const TileKind kind : {TileKind::kModel, TileKind::kSimple}) {
      for (const uint32_t bytes : {1, 2}) {
        Launch launch = {kind, bytes, task_count_, 0, kind == TileKind::kSimple && bytes == 1};
        for (size_t i : order_) {
          if (info(i).sample_bytes() != bytes) continue;
          tasks_[i].first[static_cast<size_t>(kind)] = task_count_;
          const uint64_t tasks = tasks_[i].count[static_cast<size_t>(kind)];
          task_count_ += tasks;
          launch.in_teams = launch.in_teams && (tasks == 0 || info(i).channels == kTeamChannels);
        }
        launch.task_count = task_count_ - launch.first_task;
        launch.in_teams =
            launch.in_teams && launch.task_count <= limits.team_tiles[static_cast<size_t>(store_)];
        if (launch.task_count != 0) launches_.push_back(launch);
      }
    }
    launch_ends_.push_back(launches_.size());
  }
}

TileBatch TileTasks::Batch(size_t launch, const TileTask* tasks, const WindowList* lists) const {
  const Launch& l = launches_[launch];
  const bool is_rans = l.kind == TileKind::kModel;
  TileBatch batch = {};
  batch.tasks = tasks + l.first_task;
  batch.task_count = l.task_count;
  batch.kind = l.kind;
  batch.sample_bytes = l.sample_bytes;
  batch.warps_per_block = is_rans ? warps_per_block_[l.sample_bytes - 1] : 1;
  batch.scratch_bytes = is_rans ? scratch_bytes_[l.sample_bytes - 1] : sizeof(WarpScratch);
  if (l.in_teams) {
    batch.in_teams = 1;
    batch.scratch_bytes = sizeof(TeamScratch);
  }
  batch.shared_bytes =
      (is_rans ? sizeof(RansLookup) : 0) + batch.warps_per_block * batch.scratch_bytes;
  if (store_ == StoreKind::kPlans) batch.window_lists = lists + l.first_task;
  return batch;
}

void TileTasks::Write(size_t i, Status status, const UploadLayout& uploads,
                      const Places& to) const {
  const BatchImage& image = (*images_)[i];
  const ImageView& view = image.view;
  const ImageTasks& tasks = tasks_[i];
  const bool has_lists = store_ == StoreKind::kPlans;
  // By kind: where its next task goes.
  uint64_t next[kTileKinds];
  std::copy(std::begin(tasks.first), std::end(tasks.first), next);
  const auto write = [&](TileKind kind, const TileTask& task, const WindowList& windows = {0, 0}) {
    const uint64_t number = next[static_cast<size_t>(kind)]++;
    Put(to.tasks, number, task);
    if (has_lists) Put(to.lists, number, windows);
  };
  if (has_plans_ && tasks.number_count != 0) {
    std::memcpy(to.numbers + tasks.first_number * sizeof(numbers_[0]),
                numbers_.data() + tasks.first_number, tasks.number_count * sizeof(numbers_[0]));
  }
  for (size_t w = image.window_begin; w < image.window_end; ++w) Put(to.results, w, kNoBadTile);
  const TileKind* kinds = kinds_.data() + tasks.first_tile;
  ForEachTile(i, [&](uint32_t row, uint32_t column, const WindowList& windows) {
    const TileKind kind = *kinds++;
    const uint32_t tile = row * view.info.tile_columns() + column;
    TilePlace place;
    const bool is_found = uploads.FindTile(i, row, column, &place);
    for (WindowList left = windows; left.count != 0;) {
      const WindowList some = {left.begin, std::min(left.count, kMaxTileWindows)};
      const uint32_t window = numbers_[some.begin];
      if (status == Status::kOk && is_found) {
        write(kind,
              {window, tile, static_cast<uint32_t>(place.offset / kPayloadAlignment),
               place.bytes / kPayloadAlignment},
              some);
      } else {
        Note(some, BadTile(tile, is_found ? status : Status::kCorruptHeader), to.results);
        write(kind, {window, 0, 0, 0});
      }
      left = {left.begin + some.count, left.count - some.count};
    }
  });
  for (size_t w = image.window_begin; w < image.window_end; ++w) {
    const uint64_t border_tasks = BorderTasks(image.SharedPlanOf(w));
    for (uint32_t k = 0; k < border_tasks; ++k) {
      write(TileKind::kSimple, {static_cast<uint32_t>(w), k + 1, 0, 0});
    }
  }
  for (const TileKind kind : {TileKind::kModel, TileKind::kSimple}) {
    const size_t k = static_cast<size_t>(kind);
    while (next[k] != tasks.first[k] + tasks.count[k]) {
      write(kind, {static_cast<uint32_t>(image.window_begin), 0, 0, 0});
    }
  }
}

}  // namespace l3
