#include "cuda/engine/batch_layout.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <stdexcept>

#include "cuda/engine/encoded_cache.h"
#include "cuda/kernels/border_fill.cuh"
#include "cuda/kernels/rans_lookup.cuh"
#include "cuda/kernels/store_path.h"
#include "cuda/kernels/warp_scratch.cuh"

namespace l3 {
namespace {

// Large enough for one memcpy to run at full speed, small enough to share.
constexpr uint64_t kPieceBytes = 512 << 10;

// Heads of files that go up since their payloads are on both sides: some hundred bytes, 4 a tile.
// Longer ones are not worth it.
constexpr uint64_t kMaxGapBytes = 16 << 10;
// What a thread plans before others have begun, in some 0.3 ms.
constexpr uint64_t kQuickTiles = 1 << 14;

uint64_t Align16(uint64_t bytes) { return CeilDiv(bytes, 16) * 16; }

// What a whole tile of an image costs a warp, about: kernels spend their time on samples,
// hardly on bits.
uint64_t TileCost(const ImageInfo& info) {
  const TileRect rect = GetTileRect(info, 0);
  return uint64_t{rect.width_px} * rect.height_px * info.channels;
}

// The smallest span that has both.
TileSpan Join(const TileSpan& a, const TileSpan& b) {
  if (a.tile_count() == 0) return b;
  if (b.tile_count() == 0) return a;
  return {std::min(a.column_begin, b.column_begin), std::max(a.column_end, b.column_end),
          std::min(a.row_begin, b.row_begin), std::max(a.row_end, b.row_end)};
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

// Predicted time of a launch for the images [begin, end), in units of what a warp adds to the
// time of a multiprocessor whose schedulers are busy, 54 cycles a step (docs/dev/notes/kernels.md).
double PredictRansTime(const std::vector<uint64_t>& task_counts, size_t begin, size_t end,
                       const RansGrid& plan, uint32_t multiprocessors) {
  const double alone = 20;  // one warp, no other
  const double fill = 4;    // tables, by one warp
  const uint32_t warps = plan.warps_per_block;
  uint64_t blocks = 0;
  for (size_t i = begin; i < end; ++i) blocks += CeilDiv(task_counts[i], warps);
  const auto round = [&](uint64_t blocks_per_multiprocessor) {
    const double warps_at_once = static_cast<double>(blocks_per_multiprocessor * warps);
    // std::hypot would need a newer glibc than anything else here.
    return std::sqrt(alone * alone + warps_at_once * warps_at_once) + fill / warps;
  };
  const uint64_t blocks_per_round = uint64_t{plan.blocks_per_multiprocessor} * multiprocessors;
  const uint64_t rest = blocks % blocks_per_round;
  double time =
      static_cast<double>(blocks / blocks_per_round) * round(plan.blocks_per_multiprocessor);
  if (rest != 0) time += round(CeilDiv(rest, multiprocessors));
  return time;
}

}  // namespace

void RunForEach(const ForEach& for_each, size_t count, const std::function<void(size_t)>& task) {
  if (for_each) return for_each(count, task);
  for (size_t i = 0; i < count; ++i) task(i);
}

void AppendSamples(const WindowJob& job, size_t group, std::vector<CudaSample>* samples) {
  const ImageView view = (*job.groups)[group].ViewOf(*job.view);
  const bool shares_tables = group != 0 && !samples->empty();
  for (size_t i = 0; i < job.plan_count; ++i) {
    samples->push_back({view, job.PlanOf(group, i), job.cached, i == 0 ? job.cache_key : nullptr,
                        job.is_pinned, i != 0, shares_tables});
  }
}

RansGrid PlanRans(const std::vector<uint64_t>& task_counts, const std::vector<UploadPart>& parts,
                  uint32_t scratch_bytes, const WarpLimits& warps, const GpuLimits& limits) {
  RansGrid best = {};
  double best_time = 0;
  for (uint32_t per_block = 1; per_block <= warps.per_block; ++per_block) {
    const uint32_t bytes = static_cast<uint32_t>(sizeof(RansLookup)) + per_block * scratch_bytes;
    // The smallest is planned even if it does not fit: launching it fails with CUDA's error.
    if (bytes > limits.shared_bytes_per_block && per_block > 1) break;
    const RansGrid plan = {
        per_block, std::max(1u, std::min(limits.shared_bytes / (bytes + limits.reserved_bytes),
                                         warps.per_multiprocessor / per_block))};
    double time = 0;
    size_t begin = 0;
    for (const UploadPart& part : parts) {
      time += PredictRansTime(task_counts, begin, part.sample_end, plan, limits.multiprocessors);
      begin = part.sample_end;
    }
    if (per_block == 1 || time < best_time) {
      best = plan;
      best_time = time;
    }
  }
  return best;
}

void BatchLayout::Plan(const std::vector<CudaSample>& samples, const GpuLimits& limits,
                       const ForEach& for_each, const UploadPolicy& policy) {
  samples_ = &samples;
  runs_.clear();
  pieces_.clear();
  copies_.clear();
  PlanFiles(for_each);

  for (size_t first : files_) PlanRuns(first);
  PlanParts(policy.part_bytes);
  PlanBlocks(limits);
  PlanOrder(limits);

  const bool has_plans = store_ == StoreKind::kPlans;
  samples_offset_ = Align16(results_bytes());
  plans_offset_ = Align16(samples_offset_ + samples.size() * sizeof(DecodeSample));
  tasks_offset_ = plans_offset_ + (has_plans ? Align16(samples.size() * sizeof(OutputPlan)) : 0);
  lists_offset_ = tasks_offset_ + task_count_ * sizeof(TileTask);
  takers_offset_ = lists_offset_ + (has_plans ? task_count_ * sizeof(TakerList) : 0);
  uint64_t offset = takers_offset_;
  if (has_plans) offset = Align16(offset + takers_.size() * sizeof(takers_[0]));
  uint64_t table_offset = offset;
  for (size_t first : files_) {
    if (!samples[first].shares_tables) {
      table_offset = offset;
      offset = Align16(offset + 2 * uint64_t{samples[first].view.value_count});
    }
    for (size_t i = first; i < places_[first].file_end; ++i) places_[i].table_offset = table_offset;
  }
  for (size_t first : files_) {
    for (size_t i = first; i < places_[first].file_end; ++i) places_[i].rans_offset = offset;
    if (!places_[first].has_rans()) continue;
    offset = Align16(offset + sizeof(RansModel));
    for (size_t i = first; i < places_[first].file_end; ++i) places_[i].colors_offset = offset;
    offset = Align16(offset + sizeof(uint64_t) * uint64_t{samples[first].view.color_count});
  }
  size_t begin = 0;
  for (UploadPart& part : parts_) {
    PlanCopies(begin, part.sample_end, policy.direct_bytes);
    part.copy_end = copies_.size();
    begin = part.sample_end;
  }
  zeros_offset_ = offset;
  if (!copies_.empty()) offset += kPayloadPaddingBytes;
  payloads_offset_ = offset;
  staged_bytes_ = PlaceStaged(offset);
  total_bytes_ = PlaceCopies(staged_bytes_);
  for (size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].shares_file) places_[i].payloads_offset = places_[i - 1].payloads_offset;
  }
}

// Finds the tiles of each file, and which samples take them.
void BatchLayout::PlanFiles(const ForEach& for_each) {
  const std::vector<CudaSample>& samples = *samples_;
  places_.resize(samples.size());
  files_.clear();
  bool has_plans = false;
  uint64_t tiles = 0;
  uint64_t takers = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const ImageInfo& info = samples[i].view.info;
    if (i == 0 || !samples[i].shares_file) {
      files_.push_back(i);
      places_[i].file_span = {0, 0, 0, 0};
      places_[i].taker_count = 0;
    }
    Place& file = places_[files_.back()];
    file.file_end = i + 1;
    places_[i].span = TilesOfWindow(info, samples[i].plan.window);
    places_[i].border_tasks = BorderTasks(samples[i].plan);
    file.file_span = Join(file.file_span, places_[i].span);
    file.taker_count += places_[i].span.tile_count();
    has_plans = has_plans || !IsWholeImageAsStored(info, samples[i].plan);
  }
  for (size_t first : files_) {
    Place& file = places_[first];
    if (file.file_end == first + 1) file.taker_count = 1;
    file.first_tile = tiles;
    file.first_taker = takers;
    tiles += file.file_span.tile_count();
    takers += file.taker_count;
  }
  if (takers > std::numeric_limits<uint32_t>::max()) {
    throw std::length_error("The windows of a batch touch more than 2^32 - 1 tiles. Use fewer.");
  }
  taker_ends_.assign(tiles, 0);
  takers_.resize(takers);
  kinds_.resize(tiles);
  // Reads payloads, which may have to come from a disk. The rest takes less than threads to begin.
  const bool reads = std::any_of(samples.begin(), samples.end(),
                                 [](const CudaSample& s) { return s.cached == nullptr; });
  const bool is_long = reads || tiles + takers > kQuickTiles;
  RunForEach(is_long ? for_each : kOnThisThread, files_.size(), [this](size_t i) {
    PlanTakers(files_[i]);
    FindKinds(files_[i]);
  });
  has_plans = has_plans || files_.size() != samples.size();
  store_ = has_plans ? StoreKind::kPlans : StoreKind::kStored;
}

// Lists which samples of a file take each of its tiles.
void BatchLayout::PlanTakers(size_t first) {
  const Place& file = places_[first];
  uint32_t* const takers = takers_.data() + file.first_taker;
  if (file.file_end == first + 1) {
    takers[0] = static_cast<uint32_t>(first);
    return;
  }
  // Counts, then where each list begins, then, as it is filled, where it ends.
  uint32_t* const ends = taker_ends_.data() + file.first_tile;
  for (size_t i = first; i < file.file_end; ++i) {
    ForEachTileIn(file.file_span, places_[i].span, [&](size_t tile) { ++ends[tile]; });
  }
  uint32_t begin = 0;
  for (uint32_t tile = 0; tile < file.file_span.tile_count(); ++tile) {
    const uint32_t count = ends[tile];
    ends[tile] = begin;
    begin += count;
  }
  for (size_t i = first; i < file.file_end; ++i) {
    ForEachTileIn(file.file_span, places_[i].span,
                  [&](size_t tile) { takers[ends[tile]++] = static_cast<uint32_t>(i); });
  }
}

// Calls function(row, column, takers) for each tile that samples of a file take, in their order.
template <class Function>
void BatchLayout::ForEachTile(size_t first, const Function& function) const {
  const Place& file = places_[first];
  const TileSpan& span = file.file_span;
  const bool is_alone = file.file_end == first + 1;
  const uint32_t* end = taker_ends_.data() + file.first_tile;
  const uint32_t first_taker = static_cast<uint32_t>(file.first_taker);
  TakerList takers = {first_taker, 1};
  for (uint32_t row = span.row_begin; row < span.row_end; ++row) {
    for (uint32_t column = span.column_begin; column < span.column_end; ++column) {
      if (!is_alone) {
        takers.count = first_taker + *end++ - takers.begin;
        if (takers.count == 0) continue;
      }
      function(row, column, takers);
      if (!is_alone) takers.begin += takers.count;
    }
  }
}

// Finds the kinds of the tiles that samples of a file take, and counts its tasks. Payloads may
// change later: what kernels find then is judged by them.
void BatchLayout::FindKinds(size_t first) {
  const CudaSample& s = (*samples_)[first];
  Place& file = places_[first];
  uint64_t rans = 0;
  uint64_t packed = 0;
  for (size_t i = first; i < file.file_end; ++i) packed += places_[i].border_tasks;
  TileKind* kind = kinds_.data() + file.first_tile;
  ForEachTile(first, [&](uint32_t row, uint32_t column, const TakerList& takers) {
    const uint32_t tile = row * s.view.info.tile_columns() + column;
    const bool is_rans =
        s.cached != nullptr ? s.cached->is_rans[tile] : IsRansTile(s.view, s.view.payloads, tile);
    *kind++ = is_rans ? TileKind::kModel : TileKind::kSimple;
    (is_rans ? rans : packed) += CeilDiv(takers.count, kMaxTileTakers);
  });
  file.task_count[static_cast<size_t>(TileKind::kModel)] = rans;
  file.task_count[static_cast<size_t>(TileKind::kSimple)] = packed;
}

// Cuts the batch where a part is large enough for a launch, and so is the rest.
void BatchLayout::PlanParts(uint64_t part_bytes) {
  uint64_t left = 0;
  for (const Place& place : places_) left += place.payloads_bytes;
  parts_.clear();
  uint64_t bytes = 0;
  for (size_t i = 0; i < places_.size(); ++i) {
    bytes += places_[i].payloads_bytes;
    left -= places_[i].payloads_bytes;
    const bool is_last = i + 1 == places_.size();
    const bool is_part = bytes >= part_bytes && left >= part_bytes;
    if (!is_last && (!is_part || (*samples_)[i + 1].shares_file)) continue;
    parts_.push_back({i + 1, 0, 0, 0});
    bytes = 0;
  }
}

// Finds how many warps a block of rans tiles has, and fills blocks up.
void BatchLayout::PlanBlocks(const GpuLimits& limits) {
  constexpr size_t kModel = static_cast<size_t>(TileKind::kModel);
  for (uint32_t bytes : {1, 2}) {
    uint32_t scratch_bytes = 0;
    task_counts_.assign(samples_->size(), 0);
    for (size_t first : files_) {
      const ImageInfo& info = (*samples_)[first].view.info;
      if (info.sample_bytes() != bytes || !places_[first].has_rans()) continue;
      task_counts_[first] = places_[first].task_count[kModel];
      scratch_bytes =
          std::max(scratch_bytes, RansScratchBytes(info.channels, bytes, info.tile_width_log2));
    }
    if (scratch_bytes == 0) continue;
    const WarpLimits& warps = limits.rans[bytes - 1][static_cast<size_t>(store_)];
    const uint32_t per_block =
        PlanRans(task_counts_, parts_, scratch_bytes, warps, limits).warps_per_block;
    for (size_t first : files_) {
      if (task_counts_[first] == 0) continue;
      places_[first].task_count[kModel] = CeilDiv(task_counts_[first], per_block) * per_block;
    }
    warps_per_block_[bytes - 1] = per_block;
    scratch_bytes_[bytes - 1] = scratch_bytes;
  }
}

// In a launch, images with the costliest tiles go first, so that small ones fill the end.
void BatchLayout::PlanOrder(const GpuLimits& limits) {
  const auto info = [this](size_t first) -> const ImageInfo& {
    return (*samples_)[first].view.info;
  };
  launches_.clear();
  order_.reserve(files_.size());
  task_count_ = 0;
  auto begin = files_.begin();
  for (UploadPart& part : parts_) {
    const auto end = std::lower_bound(begin, files_.end(), part.sample_end);
    order_.assign(begin, end);
    std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      const uint64_t cost_a = TileCost(info(a));
      const uint64_t cost_b = TileCost(info(b));
      return cost_a != cost_b ? cost_a > cost_b : a < b;
    });
    for (const TileKind kind : {TileKind::kModel, TileKind::kSimple}) {
      for (const uint32_t bytes : {1, 2}) {
        Launch launch = {kind, bytes, task_count_, 0, kind == TileKind::kSimple && bytes == 1};
        for (size_t first : order_) {
          if (info(first).sample_bytes() != bytes) continue;
          Place& file = places_[first];
          file.first_task[static_cast<size_t>(kind)] = task_count_;
          const uint64_t tasks = file.task_count[static_cast<size_t>(kind)];
          task_count_ += tasks;
          launch.in_teams =
              launch.in_teams && (tasks == 0 || info(first).channels == kTeamChannels);
        }
        launch.task_count = task_count_ - launch.first_task;
        launch.in_teams =
            launch.in_teams && launch.task_count <= limits.team_tiles[static_cast<size_t>(store_)];
        if (launch.task_count != 0) launches_.push_back(launch);
      }
    }
    part.launch_end = launches_.size();
    begin = end;
  }
}

// Whether a sample's payloads can go up from where they are: it needs all of them.
bool BatchLayout::CanBeDirect(size_t sample) const {
  const CudaSample& s = (*samples_)[sample];
  const uint64_t bytes = places_[sample].payloads_bytes;
  return s.is_pinned && bytes != 0 && bytes == s.view.payloads_bytes;
}

// Finds which of the samples [begin, end) need not be staged. Files that follow one another
// without a gap go up in one copy, with the heads between their payloads.
void BatchLayout::PlanCopies(size_t begin, size_t end, uint64_t direct_bytes) {
  const auto view = [this](size_t sample) -> const ImageView& { return (*samples_)[sample].view; };
  for (size_t first = begin; first < end;) {
    size_t next = first + 1;
    if (!CanBeDirect(first)) {
      places_[first].is_direct = false;
      first = next;
      continue;
    }
    uint64_t bytes = places_[first].payloads_bytes;
    for (; next < end; ++next) {
      if ((*samples_)[next].shares_file) continue;
      if (!CanBeDirect(next)) break;
      const uint64_t head_bytes = HeadBytes(view(next));
      // As numbers: the files may be parts of different arrays.
      const auto address = [](const uint8_t* p) { return reinterpret_cast<uintptr_t>(p); };
      const bool follows =
          address(view(first).payloads) + bytes + head_bytes == address(view(next).payloads);
      if (!follows || head_bytes > kMaxGapBytes) break;
      bytes += head_bytes + places_[next].payloads_bytes;
    }
    const bool is_direct = bytes >= direct_bytes;
    if (is_direct) copies_.push_back({view(first).payloads, bytes, first, next, 0});
    for (; first < next; ++first) places_[first].is_direct = is_direct;
  }
}

// Lays what is staged from `offset` on; returns where it ends.
uint64_t BatchLayout::PlaceStaged(uint64_t offset) {
  size_t sample = 0;
  for (UploadPart& part : parts_) {
    const size_t first_piece = pieces_.size();
    for (; sample < part.sample_end; ++sample) {
      if (places_[sample].is_direct || (*samples_)[sample].shares_file) continue;
      places_[sample].payloads_offset = offset;
      PlanPieces(sample);
      offset += places_[sample].payloads_bytes;
    }
    if (pieces_.size() > first_piece) {
      pieces_.back().padding_bytes = kPayloadPaddingBytes;
      offset += kPayloadPaddingBytes;
    }
    part.piece_end = piece_count();
  }
  return offset;
}

// The same for what is copied from where it is.
uint64_t BatchLayout::PlaceCopies(uint64_t offset) {
  size_t next = 0;
  for (const UploadPart& part : parts_) {
    if (next == part.copy_end) continue;
    for (; next < part.copy_end; ++next) {
      DirectCopy& copy = copies_[next];
      copy.offset = offset;
      for (size_t i = copy.sample_begin; i < copy.sample_end; ++i) {
        const auto from_start = (*samples_)[i].view.payloads - copy.from;
        places_[i].payloads_offset = offset + static_cast<uint64_t>(from_start);
      }
      offset += copy.bytes;
    }
    offset += kPayloadPaddingBytes;
  }
  return offset;
}

const BatchLayout::Run& BatchLayout::RunOfTile(const Place& file, uint32_t row,
                                               uint32_t column) const {
  const size_t in_row = file.row_runs == 1 ? 0 : column - file.file_span.column_begin;
  return runs_[file.first_run + size_t{row - file.file_span.row_begin} * file.row_runs + in_row];
}

// Finds the payloads that the samples of a file need: of each row of tiles those from the first
// that one of them touches to the last, or each by itself.
void BatchLayout::PlanRuns(size_t first) {
  const CudaSample& s = (*samples_)[first];
  const ImageView& view = s.view;
  Place& file = places_[first];
  const bool has_all = s.cached != nullptr || s.cache_key != nullptr;
  const TileSpan& all = file.file_span;
  row_spans_.assign(all.rows(), {0, 0, 0, 0});
  for (size_t i = first; i < file.file_end; ++i) {
    const TileSpan& span = places_[i].span;
    for (uint32_t row = span.row_begin; row < span.row_end; ++row) {
      TileSpan& touched = row_spans_[row - all.row_begin];
      touched = Join(touched, {span.column_begin, span.column_end, row, row + 1});
    }
    places_[i].payloads_bytes = 0;
  }
  file.first_run = runs_.size();
  file.row_runs = view.group_count == 1 ? 1 : all.columns();
  uint64_t bytes = 0;
  uint64_t last_end = 0;
  const auto add_run = [&](uint32_t row, uint32_t column_begin, uint32_t column_end) {
    const uint32_t tiles = row * view.info.tile_columns();
    const uint64_t run_begin = view.PayloadBegin(tiles + column_begin);
    const uint64_t run_end = view.PayloadEnd(tiles + column_end - 1);
    // False only if somebody changed the index since ParseImage() judged it. Runs that do not
    // overlap never add up to more than the file has.
    const bool sound =
        last_end <= run_begin && run_begin < run_end && run_end <= view.payloads_bytes;
    if (sound) last_end = run_end;
    runs_.push_back({run_begin, sound ? run_end - run_begin : 0, has_all ? run_begin : bytes});
    bytes += runs_.back().bytes;
  };
  for (const TileSpan& touched : row_spans_) {
    if (file.row_runs == 1 && touched.tile_count() != 0) {
      add_run(touched.row_begin, touched.column_begin, touched.column_end);
      continue;
    }
    for (uint32_t column = all.column_begin; column < all.column_begin + file.row_runs; ++column) {
      if (touched.column_begin <= column && column < touched.column_end) {
        add_run(touched.row_begin, column, column + 1);
      } else {
        runs_.push_back({0, 0, bytes});
      }
    }
  }
  if (s.cached == nullptr) file.payloads_bytes = has_all ? view.payloads_bytes : bytes;
}

void BatchLayout::PlanPieces(size_t sample) {
  const Place& place = places_[sample];
  const size_t first_piece = pieces_.size();
  if ((*samples_)[sample].cached != nullptr) return;
  if ((*samples_)[sample].cache_key != nullptr) {
    return AppendPieces(sample, {0, place.payloads_bytes, 0}, first_piece);
  }
  for (size_t i = 0; i < size_t{place.file_span.rows()} * place.row_runs; ++i) {
    AppendPieces(sample, runs_[place.first_run + i], first_piece);
  }
}

// Cuts a run into pieces. The last of the sample's, which start at `first_piece`, is made
// longer if the run follows it in the file.
void BatchLayout::AppendPieces(size_t sample, const Run& run, size_t first_piece) {
  for (uint64_t done = 0; done < run.bytes;) {
    StagingCopy* last = pieces_.size() > first_piece ? &pieces_.back() : nullptr;
    const bool extends = last != nullptr && last->bytes < kPieceBytes &&
                         last->begin + last->bytes == run.begin + done;
    if (!extends) {
      pieces_.push_back(
          {sample, run.begin + done, places_[sample].payloads_offset + run.offset + done, 0, 0});
      last = &pieces_.back();
    }
    const uint64_t bytes = std::min(run.bytes - done, kPieceBytes - last->bytes);
    last->bytes += bytes;
    done += bytes;
  }
}

uint64_t BatchLayout::BytesOfPieces(size_t pieces) const {
  if (pieces < samples_->size()) return 0;
  if (pieces == samples_->size()) return payloads_offset_;
  const StagingCopy& last = pieces_[pieces - samples_->size() - 1];
  return last.offset + last.bytes + last.padding_bytes;
}

void BatchLayout::WritePiece(size_t piece, uint8_t* staging, uint8_t* device) const {
  if (piece < samples_->size()) return WriteFile(piece, staging, device);
  const StagingCopy& p = pieces_[piece - samples_->size()];
  std::memcpy(staging + p.offset, (*samples_)[p.sample].view.payloads + p.begin, p.bytes);
  std::memset(staging + p.offset + p.bytes, 0, p.padding_bytes);
}

// What is staged besides payloads of a file's samples, with the first of them.
void BatchLayout::WriteFile(size_t first, uint8_t* staging, uint8_t* device) const {
  if ((*samples_)[first].shares_file) return;
  const ImageView& view = (*samples_)[first].view;
  const Place& place = places_[first];
  bool is_sound = true;
  if (view.value_count != 0 && !(*samples_)[first].shares_tables) {
    is_sound = ReadValueTable(view, reinterpret_cast<uint16_t*>(staging + place.table_offset));
  }
  if (first == 0 && !copies_.empty()) {
    std::memset(staging + zeros_offset_, 0, kPayloadPaddingBytes);
  }
  if (place.has_rans()) {
    RansModel model;
    MatchColors colors;
    is_sound = GetRansModel(view, &model, &colors) && is_sound;
    std::memcpy(staging + place.rans_offset, &model, sizeof(model));
    ReadMatchColors(colors, view.info.channels, view.info.used_bits,
                    reinterpret_cast<uint64_t*>(staging + place.colors_offset));
  }
  for (size_t i = first; i < place.file_end; ++i) {
    WriteDescriptor(i, place.has_rans(), staging, device);
  }
  WriteTasks(first, is_sound, staging);
}

void BatchLayout::WriteDescriptor(size_t sample, bool has_rans, uint8_t* staging,
                                  uint8_t* device) const {
  const ImageView& view = (*samples_)[sample].view;
  const OutputPlan& plan = (*samples_)[sample].plan;
  const Place& place = places_[sample];
  DecodeSample descriptor = {};
  descriptor.info = view.info;
  const auto* table = reinterpret_cast<const uint16_t*>(device + place.table_offset);
  descriptor.map =
      view.value_count == 0 ? MakeSampleMap(view.info) : MakeSampleMap(table, view.value_count);
  if (has_rans) {
    descriptor.rans = reinterpret_cast<const RansModel*>(device + place.rans_offset);
    descriptor.colors = {nullptr, 1u << view.info.used_bits};
    if (view.color_count != 0) {
      descriptor.colors = {reinterpret_cast<const uint64_t*>(device + place.colors_offset),
                           view.color_count};
    }
  }
  const CachedImage* cached = (*samples_)[sample].cached;
  descriptor.payloads = cached != nullptr ? cached->payloads_dev : device + place.payloads_offset;
  if (store_ == StoreKind::kPlans) {
    const OutputPlan sorted = SortChannels(plan);
    descriptor.path = GetStorePath(view.info, sorted);
    descriptor.row_order = GetRowOrder(sorted);
    descriptor.top_bit = TopBitOf(view.info);
    std::memcpy(staging + plans_offset_ + sample * sizeof(sorted), &sorted, sizeof(sorted));
  } else {
    descriptor.output = {plan.data, static_cast<uint64_t>(plan.y_stride_bytes)};
  }
  std::memcpy(staging + samples_offset_ + sample * sizeof(descriptor), &descriptor,
              sizeof(descriptor));
}

// And what the kernels' results start from. Tiles without a sound payload, all of them if somebody
// changed the tables since ParseImage() judged them, are no task of a kernel.
void BatchLayout::WriteTasks(size_t first, bool is_sound, uint8_t* staging) const {
  const ImageView& view = (*samples_)[first].view;
  const Place& file = places_[first];
  const bool has_lists = store_ == StoreKind::kPlans;
  // By kind: where its next task goes.
  uint64_t next[kTileKinds];
  std::copy(std::begin(file.first_task), std::end(file.first_task), next);
  const auto write = [&](TileKind kind, const TileTask& task, const TakerList& takers = {0, 0}) {
    const uint64_t number = next[static_cast<size_t>(kind)]++;
    std::memcpy(staging + tasks_offset_ + number * sizeof(task), &task, sizeof(task));
    if (!has_lists) return;
    std::memcpy(staging + lists_offset_ + number * sizeof(takers), &takers, sizeof(takers));
  };
  const auto write_result = [staging](size_t sample, uint64_t result) {
    std::memcpy(staging + sample * sizeof(result), &result, sizeof(result));
  };
  const auto note = [&](size_t sample, uint64_t bad_tile) {
    uint64_t result;
    std::memcpy(&result, staging + sample * sizeof(result), sizeof(result));
    write_result(sample, std::min(result, bad_tile));
  };
  if (has_lists && file.taker_count != 0) {
    std::memcpy(staging + takers_offset_ + file.first_taker * sizeof(takers_[0]),
                takers_.data() + file.first_taker, file.taker_count * sizeof(takers_[0]));
  }
  for (size_t i = first; i < file.file_end; ++i) write_result(i, kNoBadTile);
  const TileKind* kinds = kinds_.data() + file.first_tile;
  ForEachTile(first, [&](uint32_t row, uint32_t column, const TakerList& takers) {
    const TileKind kind = *kinds++;
    const Run& run = RunOfTile(file, row, column);
    const uint32_t tile = row * view.info.tile_columns() + column;
    uint64_t payload;
    uint32_t bytes;
    const bool is_in_run = view.FindPayload(tile, &payload, &bytes) && run.begin <= payload &&
                           payload + bytes <= run.begin + run.bytes;
    for (TakerList left = takers; left.count != 0;) {
      const TakerList some = {left.begin, std::min(left.count, kMaxTileTakers)};
      const uint32_t sample = takers_[some.begin];
      if (is_sound && is_in_run) {
        const uint64_t offset = run.offset + (payload - run.begin);
        write(kind,
              {sample, tile, static_cast<uint32_t>(offset / kPayloadAlignment),
               bytes / kPayloadAlignment},
              some);
      } else {
        for (uint32_t i = 0; i < some.count; ++i) {
          note(takers_[some.begin + i], BadTile(tile, Status::kCorruptHeader));
        }
        write(kind, {sample, 0, 0, 0});
      }
      left = {left.begin + some.count, left.count - some.count};
    }
  });
  for (size_t i = first; i < file.file_end; ++i) {
    const uint32_t sample = static_cast<uint32_t>(i);
    for (uint32_t k = 0; k < places_[i].border_tasks; ++k) {
      write(TileKind::kSimple, {sample, k + 1, 0, 0});
    }
  }
  for (const TileKind kind : {TileKind::kModel, TileKind::kSimple}) {
    const size_t k = static_cast<size_t>(kind);
    while (next[k] != file.first_task[k] + file.task_count[k]) {
      write(kind, {static_cast<uint32_t>(first), 0, 0, 0});
    }
  }
}

TileBatch BatchLayout::Batch(uint8_t* device, size_t launch) const {
  const Launch& l = launches_[launch];
  const bool is_rans = l.kind == TileKind::kModel;
  TileBatch batch = {};
  batch.samples = reinterpret_cast<const DecodeSample*>(device + samples_offset_);
  batch.tasks = reinterpret_cast<const TileTask*>(device + tasks_offset_) + l.first_task;
  batch.results = reinterpret_cast<uint64_t*>(device);
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
  if (store_ == StoreKind::kPlans) {
    batch.plans = reinterpret_cast<const OutputPlan*>(device + plans_offset_);
    batch.taker_lists = reinterpret_cast<const TakerList*>(device + lists_offset_) + l.first_task;
    batch.takers = reinterpret_cast<const uint32_t*>(device + takers_offset_);
  }
  return batch;
}

}  // namespace l3
