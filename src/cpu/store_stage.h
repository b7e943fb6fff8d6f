// What store_stage.inc and its vector operations share, the same for all instruction sets.
// Layer: cpu.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "cpu/group_part.h"
#include "output/output_plan.h"
#include "output/store_pixel.h"

namespace l3 {

constexpr uint32_t kRunPixels = 256;
constexpr uint32_t kFloats = 8;  // that are worked on together

// Whether halves stay as they are: none is computed.
inline bool KeepsHalves(const OutputPlan& plan) {
  return plan.type == OutputType::kF16 && plan.op == PixelOp::kSelect && !plan.HasLuma();
}

// A run's samples, by source: the stored channels, then luma.
template <typename Stored>
struct Planes {
  alignas(32) Stored channel[kMaxChannels + 1][kRunPixels];

  const Stored* Source(uint32_t source) const {
    return channel[source == kLumaChannel ? kMaxChannels : source];
  }
};

// The values of an output channel in a run, and their place in a pixel. Whole vectors are read.
template <typename Value>
struct Lane {
  const Value* values;
  int64_t offset_bytes;
};

template <typename Value>
void SortLanes(std::vector<Lane<Value>>* lanes) {
  std::sort(lanes->begin(), lanes->end(), [](const Lane<Value>& a, const Lane<Value>& b) {
    return a.offset_bytes < b.offset_bytes;
  });
}

// Lanes side by side that are stored together: 1, 2, 4 or 8, from `first` on. Of a pixel they have
// `pixel_bytes`, or more where the next pixel follows, which is written later.
struct LaneBlock {
  uint32_t first;
  uint32_t count;
  uint32_t pixel_bytes;
};

// Cuts lanes, which are in the order of their places, into blocks of at most `most`. Blocks may
// share lanes, and have no other places than theirs.
template <typename Value>
void FindBlocks(const std::vector<Lane<Value>>& lanes, uint32_t most,
                std::vector<LaneBlock>* blocks) {
  constexpr uint32_t kBytes = sizeof(Value);
  const uint32_t count = static_cast<uint32_t>(lanes.size());
  for (uint32_t begin = 0, end = 0; begin < count; begin = end) {
    do {
      ++end;
    } while (end < count && lanes[end].offset_bytes == lanes[end - 1].offset_bytes + kBytes);
    for (uint32_t next = begin; next < end;) {
      const uint32_t rest = end - next;
      uint32_t size = 1;
      while (size < rest && size < most) size *= 2;
      if (size > end - begin) size /= 2;
      const uint32_t first = std::min(next, end - size);
      blocks->push_back({first, size, size * kBytes});
      next = first + size;
    }
  }
}

// The same for lanes that are all that a pixel has, of `stride_bytes`: few are one block, with some
// lanes more whose values are written over.
template <typename Value>
void FindBlocks(uint32_t most, int64_t stride_bytes, std::vector<Lane<Value>>* lanes,
                std::vector<LaneBlock>* blocks) {
  const uint32_t count = static_cast<uint32_t>(lanes->size());
  const uint32_t pixel_bytes = count * sizeof(Value);
  const int64_t between_bytes = lanes->back().offset_bytes - lanes->front().offset_bytes;
  const bool is_all = between_bytes + static_cast<int64_t>(sizeof(Value)) == pixel_bytes;
  if (count > most || stride_bytes != pixel_bytes || !is_all) {
    return FindBlocks(*lanes, most, blocks);
  }
  uint32_t size = 1;
  while (size < count) size *= 2;
  lanes->resize(size, lanes->back());
  blocks->push_back({0, size, pixel_bytes});
}

}  // namespace l3
