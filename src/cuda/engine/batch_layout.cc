#include "cuda/engine/batch_layout.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "cuda/engine/encoded_cache.h"
#include "cuda/kernels/border_fill.cuh"
#include "cuda/kernels/rans_lookup.cuh"
#include "cuda/kernels/warp_scratch.cuh"

namespace l3 {
namespace {

// Large enough for one memcpy to run at full speed, small enough to share.
constexpr uint64_t kPieceBytes = 512 << 10;

// Heads of files that go up since their payloads are on both sides: some hundred bytes, 4 a tile.
// Longer ones are not worth it.
constexpr uint64_t kMaxGapBytes = 16 << 10;

uint64_t Align16(uint64_t bytes) { return CeilDiv(bytes, 16) * 16; }

// What a whole tile of an image costs a warp, about: kernels spend their time on samples,
// hardly on bits, and three times as much on a sample of a rans tile.
uint64_t TileCost(const ImageInfo& info, bool has_rans) {
  const TileRect rect = GetTileRect(info, 0);
  return uint64_t{rect.width_px} * rect.height_px * info.pixel_bytes() * (has_rans ? 3 : 1);
}

// The tiles whose payloads go up.
TileSpan NeededTiles(const CudaSample& sample) {
  return sample.cache_key != nullptr ? AllTiles(sample.view.info)
                                     : TilesOfWindow(sample.view.info, sample.plan.window);
}

// Blocks for the tasks of a sample.
uint64_t BlockCount(uint64_t task_count, uint32_t warps_per_block) {
  return CeilDiv(task_count, warps_per_block);
}

uint32_t LookupBytes(RansLookupKind kind) {
  switch (kind) {
    case RansLookupKind::kNone: return 0;
    case RansLookupKind::kCompact: return sizeof(CompactRansLookup);
    case RansLookupKind::kWide: break;
  }
  return sizeof(WideRansLookup);
}

// Predicted time of a launch for the images [begin, end), in units of what a warp adds to the
// time of a multiprocessor whose schedulers are busy (docs/benchmarks.md, "The rans kernel").
double PredictRansTime(const std::vector<uint64_t>& task_counts, size_t begin, size_t end,
                       const RansPlan& plan, uint32_t multiprocessors) {
  const double alone = plan.lookup == RansLookupKind::kWide ? 9 : 11;  // one warp, no other
  const double fill = 2;                                               // tables, by one warp
  const uint32_t warps = plan.warps_per_block;
  uint64_t blocks = 0;
  for (size_t i = begin; i < end; ++i) blocks += BlockCount(task_counts[i], warps);
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

RansPlan PlanRans(const std::vector<uint64_t>& task_counts, const std::vector<BatchPart>& parts,
                  uint32_t scratch_bytes, bool has_plans, const GpuLimits& limits) {
  RansPlan best = {};
  double best_time = 0;
  for (RansLookupKind kind : {RansLookupKind::kCompact, RansLookupKind::kWide}) {
    const bool wide = kind == RansLookupKind::kWide;
    if (wide && has_plans) break;
    const WarpLimits most = has_plans ? limits.rans_plans
                            : wide    ? limits.wide_rans
                                      : limits.compact_rans;
    for (uint32_t warps = 1; warps <= most.per_block; ++warps) {
      const uint32_t bytes = LookupBytes(kind) + warps * scratch_bytes;
      const bool fits = bytes <= limits.shared_bytes_per_block;
      // The smallest is planned even so: launching it fails with CUDA's error.
      if (!fits && best.lookup != RansLookupKind::kNone) break;
      const RansPlan plan = {
          kind, warps,
          std::max(1u, std::min(limits.shared_bytes / (bytes + limits.reserved_bytes),
                                most.per_multiprocessor / warps))};
      double time = 0;
      size_t begin = 0;
      for (const BatchPart& part : parts) {
        time += PredictRansTime(task_counts, begin, part.sample_end, plan, limits.multiprocessors);
        begin = part.sample_end;
      }
      if (best.lookup == RansLookupKind::kNone || time < best_time) {
        best = plan;
        best_time = time;
      }
    }
  }
  return best;
}

void BatchLayout::Plan(const std::vector<CudaSample>& samples, const GpuLimits& limits,
                       const ForEach& for_each, const UploadPolicy& policy) {
  samples_ = &samples;
  places_.resize(samples.size());
  runs_.clear();
  pieces_.clear();
  copies_.clear();
  // Reads payloads, which may have to come from a disk.
  RunForEach(for_each, samples.size(), [this](size_t i) {
    const CudaSample& sample = (*samples_)[i];
    places_[i].has_rans = sample.cached != nullptr ? sample.cached->has_rans
                                                   : HasRansTile(sample.view, NeededTiles(sample));
  });

  scratch_bytes_ = sizeof(WarpScratch);
  bool has_rans = false;
  has_plans_ = false;
  task_counts_.clear();
  for (size_t i = 0; i < samples.size(); ++i) {
    const ImageInfo& info = samples[i].view.info;
    const OutputPlan& plan = samples[i].plan;
    Place& place = places_[i];
    has_plans_ = has_plans_ || !IsWholeImageAsStored(info, plan);
    place.span = TilesOfWindow(info, plan.window);
    place.border_tasks = BorderTasks(plan);
    task_counts_.push_back(place.span.tile_count() + place.border_tasks);
    if (!place.has_rans) continue;
    has_rans = true;
    const uint32_t bytes =
        RansScratchBytes(info.channels, info.used_bits <= 8 ? 1 : 2, info.tile_width_log2);
    scratch_bytes_ = std::max(scratch_bytes_, bytes);
  }
  for (size_t i = 0; i < samples.size(); i = FileEnd(i)) PlanRuns(i, FileEnd(i));
  PlanParts(policy.part_bytes);
  rans_ = has_rans ? PlanRans(task_counts_, parts_, scratch_bytes_, has_plans_, limits)
                   : RansPlan{RansLookupKind::kNone, 1, 0};
  PlanOrder();

  samples_offset_ = Align16(results_bytes());
  plans_offset_ = Align16(samples_offset_ + samples.size() * sizeof(DecodeSample));
  tasks_offset_ = plans_offset_ + (has_plans_ ? Align16(samples.size() * sizeof(OutputPlan)) : 0);
  uint64_t offset = tasks_offset_ + task_count_ * sizeof(TileTask);
  for (size_t first = 0; first < samples.size(); first = FileEnd(first)) {
    for (size_t i = first; i < FileEnd(first); ++i) places_[i].table_offset = offset;
    offset = Align16(offset + 2 * uint64_t{samples[first].view.value_count});
  }
  for (size_t first = 0; first < samples.size(); first = FileEnd(first)) {
    for (size_t i = first; i < FileEnd(first); ++i) places_[i].rans_offset = offset;
    if (places_[first].has_rans) offset = Align16(offset + sizeof(RansModel));
  }
  size_t begin = 0;
  for (BatchPart& part : parts_) {
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

// Cuts the batch where a part is large enough for a launch, and so is the rest.
void BatchLayout::PlanParts(uint64_t part_bytes) {
  uint64_t left = 0;
  for (const Place& place : places_) left += place.payloads_bytes;
  parts_.clear();
  uint64_t bytes = 0;
  for (size_t i = 0; i < places_.size(); ++i) {
    bytes += places_[i].payloads_bytes;
    left -= places_[i].payloads_bytes;
    const bool is_part = bytes >= part_bytes && left >= part_bytes;
    if (!is_part && i + 1 < places_.size()) continue;
    parts_.push_back({i + 1, 0, 0});
    bytes = 0;
  }
}

// In a part, images with the costliest tiles go first, so that small ones fill the end.
void BatchLayout::PlanOrder() {
  order_.resize(samples_->size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  const auto goes_before = [this](size_t a, size_t b) {
    const uint64_t cost_a = TileCost((*samples_)[a].view.info, places_[a].has_rans);
    const uint64_t cost_b = TileCost((*samples_)[b].view.info, places_[b].has_rans);
    return cost_a != cost_b ? cost_a > cost_b : a < b;
  };
  auto begin = order_.begin();
  for (const BatchPart& part : parts_) {
    const auto end = order_.begin() + static_cast<std::ptrdiff_t>(part.sample_end);
    std::sort(begin, end, goes_before);
    begin = end;
  }
  task_count_ = 0;
  for (size_t i : order_) {
    places_[i].first_task = task_count_;
    task_counts_[i] = BlockCount(task_counts_[i], rans_.warps_per_block) * rans_.warps_per_block;
    task_count_ += task_counts_[i];
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
  for (BatchPart& part : parts_) {
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
  for (const BatchPart& part : parts_) {
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

// The end of the samples that share the file of this one and come behind it.
size_t BatchLayout::FileEnd(size_t sample) const {
  do ++sample;
  while (sample < samples_->size() && (*samples_)[sample].shares_file);
  return sample;
}

// Finds the payloads that the samples [first, end), which share a file, need: of each row of tiles
// those from the first that one of them touches to the last.
void BatchLayout::PlanRuns(size_t first, size_t end) {
  const CudaSample& s = (*samples_)[first];
  const ImageView& view = s.view;
  const bool has_all = s.cached != nullptr || s.cache_key != nullptr;
  TileSpan all = {0, 0, 0, 0};
  bool has_rans = false;
  for (size_t i = first; i < end; ++i) {
    const TileSpan& span = places_[i].span;
    has_rans = has_rans || places_[i].has_rans;
    if (span.tile_count() == 0) continue;
    if (all.tile_count() == 0) all = span;
    all.row_begin = std::min(all.row_begin, span.row_begin);
    all.row_end = std::max(all.row_end, span.row_end);
  }
  const size_t first_run = runs_.size();
  uint64_t bytes = 0;
  uint64_t last_end = 0;
  for (uint32_t row = all.row_begin; row < all.row_end; ++row) {
    uint32_t column_begin = 0;
    uint32_t column_end = 0;  // the row has none yet
    for (size_t i = first; i < end; ++i) {
      const TileSpan& span = places_[i].span;
      if (row < span.row_begin || row >= span.row_end) continue;
      const bool is_first = column_end == 0;
      column_begin = is_first ? span.column_begin : std::min(column_begin, span.column_begin);
      column_end = std::max(column_end, span.column_end);
    }
    if (column_end == 0) {
      runs_.push_back({0, 0, bytes});
      continue;
    }
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
  }
  for (size_t i = first; i < end; ++i) {
    Place& place = places_[i];
    place.has_rans = has_rans;
    const bool is_empty = place.span.tile_count() == 0;
    place.first_run = first_run + (is_empty ? 0 : place.span.row_begin - all.row_begin);
    place.first_upload = first_run;
    place.upload_end = runs_.size();
    place.payloads_bytes = 0;
  }
  if (s.cached == nullptr) places_[first].payloads_bytes = has_all ? view.payloads_bytes : bytes;
}

void BatchLayout::PlanPieces(size_t sample) {
  const Place& place = places_[sample];
  const size_t first_piece = pieces_.size();
  if ((*samples_)[sample].cached != nullptr) return;
  if ((*samples_)[sample].cache_key != nullptr) {
    return AppendPieces(sample, {0, place.payloads_bytes, 0}, first_piece);
  }
  for (size_t i = place.first_upload; i < place.upload_end; ++i) {
    AppendPieces(sample, runs_[i], first_piece);
  }
}

// Cuts a run into pieces. The last of the sample's, which start at `first_piece`, is made
// longer if the run follows it in the file.
void BatchLayout::AppendPieces(size_t sample, const Run& run, size_t first_piece) {
  for (uint64_t done = 0; done < run.bytes;) {
    Piece* last = pieces_.size() > first_piece ? &pieces_.back() : nullptr;
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
  const Piece& last = pieces_[pieces - samples_->size() - 1];
  return last.offset + last.bytes + last.padding_bytes;
}

void BatchLayout::WritePiece(size_t piece, uint8_t* staging, uint8_t* device) const {
  if (piece < samples_->size()) return WriteFile(piece, staging, device);
  const Piece& p = pieces_[piece - samples_->size()];
  std::memcpy(staging + p.offset, (*samples_)[p.sample].view.payloads + p.begin, p.bytes);
  std::memset(staging + p.offset + p.bytes, 0, p.padding_bytes);
}

// What is staged besides payloads of a file's samples, with the first of them.
void BatchLayout::WriteFile(size_t first, uint8_t* staging, uint8_t* device) const {
  if ((*samples_)[first].shares_file) return;
  const ImageView& view = (*samples_)[first].view;
  const Place& place = places_[first];
  bool is_sound = true;
  if (view.value_count != 0) {
    is_sound = ReadValueTable(view, reinterpret_cast<uint16_t*>(staging + place.table_offset));
  }
  if (first == 0 && !copies_.empty()) {
    std::memset(staging + zeros_offset_, 0, kPayloadPaddingBytes);
  }
  if (place.has_rans) {
    RansModel model;
    is_sound = GetRansModel(view, &model) && is_sound;
    std::memcpy(staging + place.rans_offset, &model, sizeof(model));
  }
  for (size_t i = first; i < FileEnd(first); ++i) {
    WriteDescriptor(i, staging, device);
    WriteTasks(i, is_sound, staging);
  }
}

void BatchLayout::WriteDescriptor(size_t sample, uint8_t* staging, uint8_t* device) const {
  const ImageView& view = (*samples_)[sample].view;
  const OutputPlan& plan = (*samples_)[sample].plan;
  const Place& place = places_[sample];
  DecodeSample descriptor = {};
  descriptor.info = view.info;
  descriptor.map = {nullptr, 1u << view.info.used_bits, view.info.shift};
  if (view.value_count != 0) {
    descriptor.map.table = reinterpret_cast<const uint16_t*>(device + place.table_offset);
    descriptor.map.value_count = view.value_count;
  }
  if (place.has_rans) {
    descriptor.rans = reinterpret_cast<const RansModel*>(device + place.rans_offset);
  }
  const CachedImage* cached = (*samples_)[sample].cached;
  descriptor.payloads = cached != nullptr ? cached->payloads_dev : device + place.payloads_offset;
  if (has_plans_) {
    std::memcpy(staging + plans_offset_ + sample * sizeof(plan), &plan, sizeof(plan));
  } else {
    descriptor.output = {plan.data, static_cast<uint64_t>(plan.y_stride_bytes)};
  }
  std::memcpy(staging + samples_offset_ + sample * sizeof(descriptor), &descriptor,
              sizeof(descriptor));
}

// And what the kernels' results start from. Tiles without a sound payload, all of them if somebody
// changed the tables since ParseImage() judged them, are no task of a kernel.
void BatchLayout::WriteTasks(size_t sample, bool is_sound, uint8_t* staging) const {
  const ImageView& view = (*samples_)[sample].view;
  const Place& place = places_[sample];
  const uint32_t number = static_cast<uint32_t>(sample);
  uint8_t* out = staging + tasks_offset_ + place.first_task * sizeof(TileTask);
  uint8_t* const end = out + task_counts_[sample] * sizeof(TileTask);
  const auto write = [&out](const TileTask& task) {
    std::memcpy(out, &task, sizeof(task));
    out += sizeof(task);
  };
  uint64_t first_bad = kNoBadTile;
  const Run* run = runs_.data() + place.first_run;
  for (uint32_t row = place.span.row_begin; row < place.span.row_end; ++row, ++run) {
    for (uint32_t column = place.span.column_begin; column < place.span.column_end; ++column) {
      const uint32_t tile = row * view.info.tile_columns() + column;
      uint64_t payload;
      uint32_t bytes;
      const bool is_in_run = view.FindPayload(tile, &payload, &bytes) && run->begin <= payload &&
                             payload + bytes <= run->begin + run->bytes;
      if (!is_sound || !is_in_run) {
        first_bad = std::min(first_bad, BadTile(tile, Status::kCorruptHeader));
        write({number, 0, 0, 0});
        continue;
      }
      const uint64_t offset = run->offset + (payload - run->begin);
      write({number, tile, static_cast<uint32_t>(offset / kPayloadAlignment),
             bytes / kPayloadAlignment});
    }
  }
  for (uint32_t i = 0; i < place.border_tasks; ++i) write({number, i + 1, 0, 0});
  while (out != end) write({number, 0, 0, 0});
  std::memcpy(staging + 8 * sample, &first_bad, sizeof(first_bad));
}

TileBatch BatchLayout::Batch(uint8_t* device, size_t part) const {
  const auto first_task = [this](size_t sample_end) {
    return sample_end == order_.size() ? task_count_ : places_[order_[sample_end]].first_task;
  };
  const uint64_t begin = first_task(part == 0 ? 0 : parts_[part - 1].sample_end);
  TileBatch batch = Batch(device);
  batch.tasks += begin;
  batch.task_count = first_task(parts_[part].sample_end) - begin;
  return batch;
}

TileBatch BatchLayout::Batch(uint8_t* device) const {
  return {reinterpret_cast<const DecodeSample*>(device + samples_offset_),
          reinterpret_cast<const TileTask*>(device + tasks_offset_),
          reinterpret_cast<uint64_t*>(device),
          task_count_,
          rans_.warps_per_block,
          LookupBytes(rans_.lookup) + rans_.warps_per_block * scratch_bytes_,
          scratch_bytes_,
          rans_.lookup,
          has_plans_ ? reinterpret_cast<const OutputPlan*>(device + plans_offset_) : nullptr};
}

}  // namespace l3
