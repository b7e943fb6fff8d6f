#include "cuda/batch_layout.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "cuda/rans_lookup.cuh"
#include "cuda/warp_scratch.cuh"

namespace l3 {
namespace {

// Large enough for one memcpy to run at full speed, small enough to share.
constexpr uint64_t kPieceBytes = 1 << 20;

uint64_t Align16(uint64_t bytes) { return CeilDiv(bytes, 16) * 16; }

// The tasks of a sample, in whole blocks.
uint64_t TaskCount(const CudaSample& sample, uint32_t warps_per_block) {
  return CeilDiv(sample.view.info.tile_count(), warps_per_block) * warps_per_block;
}

// How many warps should share tables: as many as keep most warps at work, since
// shared memory limits the blocks, and the last block of a sample has idle warps.
uint32_t ChooseWarpsPerBlock(const std::vector<CudaSample>& samples, uint32_t scratch_bytes,
                             const GpuLimits& limits) {
  uint64_t tiles = 0;
  for (const CudaSample& sample : samples) tiles += sample.view.info.tile_count();
  uint32_t best = 1;
  double best_busy = 0;
  for (uint32_t warps = 1; warps <= kMaxWarpsPerBlock; ++warps) {
    const uint32_t bytes = static_cast<uint32_t>(sizeof(RansLookup)) + warps * scratch_bytes;
    if (bytes > limits.shared_bytes_per_block) break;
    const uint32_t blocks = std::min(limits.shared_bytes / (bytes + limits.reserved_bytes),
                                     limits.rans_warps / warps);
    uint64_t tasks = 0;
    for (const CudaSample& sample : samples) tasks += TaskCount(sample, warps);
    const double busy =
        blocks * warps * (static_cast<double>(tiles) / static_cast<double>(tasks));
    if (busy > best_busy) {
      best = warps;
      best_busy = busy;
    }
  }
  return best;
}

}  // namespace

void BatchLayout::Plan(const std::vector<CudaSample>& samples, const GpuLimits& limits) {
  samples_ = &samples;
  places_.resize(samples.size());
  pieces_.clear();

  scratch_bytes_ = sizeof(WarpScratch);
  has_rans_ = false;
  for (size_t i = 0; i < samples.size(); ++i) {
    places_[i].has_rans = HasRansTile(samples[i].view, AllTiles(samples[i].view.info));
    if (!places_[i].has_rans) continue;
    has_rans_ = true;
    const ImageInfo& info = samples[i].view.info;
    const uint32_t bytes =
        RansScratchBytes(info.channels, info.used_bits <= 8 ? 1 : 2, info.tile_width_log2);
    scratch_bytes_ = std::max(scratch_bytes_, bytes);
  }
  warps_per_block_ = has_rans_ ? ChooseWarpsPerBlock(samples, scratch_bytes_, limits) : 1;

  // Images with the costliest tiles go first, so that small ones fill the end.
  order_.resize(samples.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  const auto tile_bytes = [&](size_t i) {
    return samples[i].view.payloads_bytes / samples[i].view.info.tile_count();
  };
  std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
    const uint64_t bytes_a = tile_bytes(a);
    const uint64_t bytes_b = tile_bytes(b);
    return bytes_a != bytes_b ? bytes_a > bytes_b : a < b;
  });
  task_count_ = 0;
  for (size_t i : order_) {
    places_[i].first_task = task_count_;
    task_count_ += TaskCount(samples[i], warps_per_block_);
  }

  samples_offset_ = Align16(results_bytes());
  tasks_offset_ = samples_offset_ + samples.size() * sizeof(DecodeSample);
  uint64_t offset = tasks_offset_ + task_count_ * sizeof(TileTask);
  for (size_t i = 0; i < samples.size(); ++i) {
    places_[i].table_offset = offset;
    offset = Align16(offset + 2 * uint64_t{samples[i].view.value_count});
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!places_[i].has_rans) continue;
    places_[i].rans_offset = offset;
    offset = Align16(offset + sizeof(RansModel));
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    const uint64_t bytes = samples[i].view.payloads_bytes;
    places_[i].payloads_offset = offset;
    offset += bytes;
    for (uint64_t begin = 0; begin < bytes; begin += kPieceBytes) {
      pieces_.push_back({i, begin, std::min(kPieceBytes, bytes - begin)});
    }
  }
  total_bytes_ = offset + kPayloadPaddingBytes;
}

void BatchLayout::WritePiece(size_t piece, uint8_t* staging, uint8_t* device) const {
  const Piece& p = pieces_[piece];
  const CudaSample& sample = (*samples_)[p.sample];
  const Place& place = places_[p.sample];
  std::memcpy(staging + place.payloads_offset + p.begin, sample.view.payloads + p.begin, p.bytes);
  if (p.begin > 0) return;

  std::memcpy(staging + 8 * p.sample, &kNoBadTile, 8);
  if (sample.view.value_count != 0) {
    ReadValueTable(sample.view, reinterpret_cast<uint16_t*>(staging + place.table_offset));
  }
  if (place.has_rans) {
    const RansModel model = GetRansModel(sample.view);
    std::memcpy(staging + place.rans_offset, &model, sizeof(model));
  }
  WriteDescriptor(p.sample, staging, device);
  WriteTasks(p.sample, staging);
  if (p.sample + 1 == samples_->size()) {
    std::memset(staging + total_bytes_ - kPayloadPaddingBytes, 0, kPayloadPaddingBytes);
  }
}

void BatchLayout::WriteDescriptor(size_t sample, uint8_t* staging, uint8_t* device) const {
  const ImageView& view = (*samples_)[sample].view;
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
  const OutputPlan& plan = (*samples_)[sample].plan;
  descriptor.output = {plan.data, static_cast<uint64_t>(plan.y_stride_bytes)};
  descriptor.payloads = device + place.payloads_offset;
  std::memcpy(staging + samples_offset_ + sample * sizeof(descriptor), &descriptor,
              sizeof(descriptor));
}

void BatchLayout::WriteTasks(size_t sample, uint8_t* staging) const {
  const ImageView& view = (*samples_)[sample].view;
  uint8_t* out = staging + tasks_offset_ + places_[sample].first_task * sizeof(TileTask);
  uint32_t begin = 0;
  for (uint32_t tile = 0; tile < view.info.tile_count(); ++tile) {
    const uint32_t end = static_cast<uint32_t>(view.PayloadEnd(tile) / kPayloadAlignment);
    const TileTask task = {static_cast<uint32_t>(sample), tile, begin, end - begin};
    std::memcpy(out, &task, sizeof(task));
    out += sizeof(task);
    begin = end;
  }
  const TileTask filler = {static_cast<uint32_t>(sample), 0, 0, 0};
  const uint64_t task_count = TaskCount((*samples_)[sample], warps_per_block_);
  for (uint64_t i = view.info.tile_count(); i < task_count; ++i) {
    std::memcpy(out, &filler, sizeof(filler));
    out += sizeof(filler);
  }
}

TileBatch BatchLayout::Batch(uint8_t* device) const {
  return {reinterpret_cast<const DecodeSample*>(device + samples_offset_),
          reinterpret_cast<const TileTask*>(device + tasks_offset_),
          reinterpret_cast<uint64_t*>(device),
          task_count_,
          warps_per_block_,
          scratch_bytes_,
          has_rans_};
}

}  // namespace l3
