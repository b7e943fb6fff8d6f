#include "cuda/batch_layout.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "cuda/warp_scratch.cuh"

namespace l3 {
namespace {

// Large enough for one memcpy to run at full speed, small enough to share.
constexpr uint64_t kPieceBytes = 1 << 20;

uint64_t Align16(uint64_t bytes) { return CeilDiv(bytes, 16) * 16; }

}  // namespace

void BatchLayout::Plan(const std::vector<BatchSample>& samples) {
  samples_ = &samples;
  places_.resize(samples.size());
  pieces_.clear();

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
    task_count_ += samples[i].view.info.tile_count();
  }

  samples_offset_ = Align16(results_bytes());
  tasks_offset_ = samples_offset_ + samples.size() * sizeof(DecodeSample);
  uint64_t offset = tasks_offset_ + task_count_ * sizeof(TileTask);
  for (size_t i = 0; i < samples.size(); ++i) {
    places_[i].table_offset = offset;
    offset = Align16(offset + 2 * uint64_t{samples[i].view.value_count});
  }
  scratch_bytes_ = sizeof(WarpScratch);
  has_rans_ = false;
  for (size_t i = 0; i < samples.size(); ++i) {
    const ImageView& view = samples[i].view;
    places_[i].rans_offset = 0;
    if (!HasRansTile(view)) continue;
    has_rans_ = true;
    places_[i].rans_offset = offset;
    offset = Align16(offset + sizeof(RansModel));
    const uint32_t tables = GetRansModel(view).table_count;
    scratch_bytes_ = std::max(scratch_bytes_, RansScratch().Place(view.info, tables, nullptr));
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
  const BatchSample& sample = (*samples_)[p.sample];
  const Place& place = places_[p.sample];
  std::memcpy(staging + place.payloads_offset + p.begin, sample.view.payloads + p.begin, p.bytes);
  if (p.begin > 0) return;

  std::memcpy(staging + 8 * p.sample, &kNoBadTile, 8);
  if (sample.view.value_count != 0) {
    ReadValueTable(sample.view, reinterpret_cast<uint16_t*>(staging + place.table_offset));
  }
  if (place.rans_offset != 0) {
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
  if (place.rans_offset != 0) {
    descriptor.rans = reinterpret_cast<const RansModel*>(device + place.rans_offset);
  }
  descriptor.output = (*samples_)[sample].output;
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
}

TileBatch BatchLayout::Batch(uint8_t* device) const {
  return {reinterpret_cast<const DecodeSample*>(device + samples_offset_),
          reinterpret_cast<const TileTask*>(device + tasks_offset_),
          reinterpret_cast<uint64_t*>(device), task_count_, scratch_bytes_, has_rans_};
}

}  // namespace l3
