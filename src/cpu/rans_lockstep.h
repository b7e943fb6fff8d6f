// What rans_lockstep.inc needs beside vector operations, the same for all instruction sets.
// Layer: cpu.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "core/match.h"
#include "cpu/rans_jobs.h"

namespace l3 {

// The words of a payload. From any place in it a step's words can be read, those behind
// the payload as 0.
class WordReader {
 public:
  static constexpr uint32_t kStepBytes = 2 * kRansLanes;

  WordReader() = default;
  WordReader(const uint8_t* payload, uint32_t size, uint32_t offset)
      : tail_begin_(size - std::min(size, kStepBytes)), size_(size), pos_(offset) {
    payload_ = payload;
    std::memcpy(tail_, payload + tail_begin_, size - tail_begin_);
  }

  const uint8_t* Next() const {
    return pos_ <= tail_begin_ ? payload_ + pos_ : tail_ + (pos_ - tail_begin_);
  }
  // Returns false if there were fewer words.
  bool Advance(uint32_t words) {
    pos_ += 2 * words;
    return pos_ <= size_;
  }
  uint32_t pos() const { return pos_; }

 private:
  const uint8_t* payload_ = nullptr;
  uint32_t tail_begin_ = 0;
  uint32_t size_ = 0;
  uint32_t pos_ = 0;
  uint8_t tail_[3 * kStepBytes] = {};
};

// What one step does in which lanes.
struct StepLanes {
  uint32_t active;
  uint32_t first;  // in the first column
  uint32_t last;   // in the last column
};

// Taps that are multiplied together. In the first of a pair's lanes lies a value, in
// the second, but for other channels, the value above it.
inline constexpr uint8_t kTapPairs[kMaxRansTaps / 2][2] = {{0, 6}, {1, 4},   {3, 2},   {5, 7},
                                                           {8, 9}, {11, 10}, {12, 13}, {15, 14}};

// The pixels of `count` numbers of colours, which there are. Returns false if a colour has no
// samples.
inline bool StoreColors(const uint8_t* numbers, uint32_t count, const RansImage& image,
                        uint8_t* out) {
  const ImageInfo& info = image.info;
  const ColorTable& colors = image.tables.colors;
  const auto number = [numbers](uint32_t x) { return LoadU16(numbers + 2 * x); };
  const uint32_t pixel_bytes = info.pixel_bytes();
  if (const uint64_t* pixel_of = image.tables.pixel_of_number; pixel_of != nullptr) {
    // Whole words: what is too much the next pixels overwrite.
    uint32_t x = 0;
    for (; uint64_t{x} * pixel_bytes + 8 <= uint64_t{count} * pixel_bytes; ++x) {
      std::memcpy(out + x * pixel_bytes, &pixel_of[number(x)], 8);
    }
    for (; x < count; ++x) std::memcpy(out + x * pixel_bytes, &pixel_of[number(x)], pixel_bytes);
    return true;
  }
  if (colors.color == nullptr && image.map.keeps_values()) {
    if (info.sample_bits() == 16) {
      std::memcpy(out, numbers, 2 * count);
    } else {
      for (uint32_t x = 0; x < count; ++x) out[x] = numbers[2 * x];
    }
    return true;
  }
  for (uint32_t x = 0; x < count; ++x) {
    for (uint32_t c = 0; c < info.channels; ++c) {
      const uint32_t value = colors.Value(number(x), c);
      if (value >= image.map.value_count) return false;
      StoreSample(out, x * info.channels + c, image.map(value), info.sample_bits());
    }
  }
  return true;
}

// For each set of 8 lanes, where the bytes of each lane's word lie among those in turn.
struct SpreadTable {
  uint8_t at[256][16];
};
constexpr SpreadTable MakeSpreadTable() {
  SpreadTable table{};
  for (uint32_t lanes = 0; lanes < 256; ++lanes) {
    uint8_t place = 0;
    for (uint32_t lane = 0; lane < 8; ++lane) {
      const bool here = (lanes >> lane & 1) != 0;
      table.at[lanes][2 * lane] = here ? place++ : 0x80;
      table.at[lanes][2 * lane + 1] = here ? place++ : 0x80;
    }
  }
  return table;
}
inline constexpr SpreadTable kSpreadTable = MakeSpreadTable();

}  // namespace l3
