// The parts of rans_lockstep.inc and match_lockstep.inc that need no vector operations.
// Layer: cpu.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/match.h"
#include "cpu/tile_job.h"

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

// The lanes of a step.
struct StepLanes {
  uint32_t active;
  uint32_t first;  // in the first column
  uint32_t last;   // in the last column
};

// The steps of a tile, and the lanes of the current one.
class StepCounter {
 public:
  explicit StepCounter(const TileRect& rect)
      : schedule_(GetRansSchedule(rect.width_px, rect.height_px)),
        width_(rect.width_px),
        height_(rect.height_px),
        x_of_last_(0u - 2 * (schedule_.lanes - 1)),
        since_end_(0u - (rect.width_px - 1)) {}

  const RansSchedule& schedule() const { return schedule_; }
  uint32_t width() const { return width_; }
  uint32_t height() const { return height_; }
  uint32_t step() const { return step_; }
  const StepLanes& lanes() const { return lanes_; }
  uint32_t x_of_first() const { return x_of_first_; }
  uint32_t x_of_last() const { return x_of_last_; }

  // Before each step: finds its lanes.
  void Begin() {
    // At most one lane begins a row, and one ends one.
    lanes_.first = LaneAt(x_of_first_);
    if (first_row_ + x_of_first_ / 2 >= height_) lanes_.first = 0;
    lanes_.active |= lanes_.first;
    lanes_.last = LaneAt(since_end_) & lanes_.active;
  }
  // After each step. Returns false if it was the last.
  bool Advance() {
    if (++step_ == schedule_.steps) return false;
    lanes_.active &= ~lanes_.last;
    if (++x_of_first_ == schedule_.period) {
      x_of_first_ = 0;
      first_row_ += schedule_.lanes;
    }
    if (++x_of_last_ == schedule_.period) x_of_last_ = 0;
    if (++since_end_ == schedule_.period) since_end_ = 0;
    return true;
  }

  // Before a step: whether no lane begins a row in `steps` steps from it on, at least as many
  // come behind them, and all lanes are in one row of theirs. Then periods are wider than that.
  bool IsQuiet(uint32_t steps) const {
    return x_of_first_ > 2 * (schedule_.lanes - 1) && x_of_first_ + steps <= schedule_.period &&
           step_ + steps < schedule_.steps;
  }
  // Skips them.
  void Pass(uint32_t steps) {
    step_ += steps;
    x_of_first_ += steps;
    x_of_last_ += steps;
    since_end_ += steps;
    if (since_end_ == schedule_.period) since_end_ = 0;
    if (x_of_first_ < schedule_.period) return;
    // Lane 0 has ended a row.
    lanes_.active &= ~1u;
    x_of_first_ = 0;
    first_row_ += schedule_.lanes;
    since_end_ = 1;
  }

 private:
  // The lane that is `steps` behind lane 0, if there is one.
  uint32_t LaneAt(uint32_t steps) const {
    return steps % 2 == 0 && steps / 2 < schedule_.lanes ? 1u << (steps / 2) : 0;
  }

  RansSchedule schedule_;
  uint32_t width_;
  uint32_t height_;
  uint32_t step_ = 0;
  StepLanes lanes_ = {};
  uint32_t x_of_first_ = 0;  // column of lane 0
  uint32_t x_of_last_;       // of the last lane; huge before it begins
  uint32_t since_end_;       // steps since lane 0 last ended a row; huge before that
  uint32_t first_row_ = 0;   // that lane 0 is in
};

// The rows that the lanes of a tile are in. Pixels are appended in blocks of steps.
template <uint32_t kPixelBytes>
class LaneRows {
 public:
  static constexpr uint32_t kBlockSteps = 16;

  LaneRows(const RansSchedule& schedule, const TileRect& rect)
      : lanes_(schedule.lanes),
        period_(static_cast<int32_t>(schedule.period)),
        width_(static_cast<int32_t>(rect.width_px)),
        height_(rect.height_px) {
    for (uint32_t lane = 0; lane < kRansLanes; ++lane) {
      x_of_[lane] = -2 * static_cast<int32_t>(lane);
      y_of_[lane] = lane < lanes_ ? lane : height_;
    }
  }

  // Room for the pixels of a block of steps of a lane, and for a few bytes more.
  uint8_t* End(uint32_t lane) {
    return Row(lane) + x_of_[lane] * static_cast<int32_t>(kPixelBytes);
  }

  // The pixels of `steps` steps, at most a block, lie there now. Then each row that HasEnded() is
  // Row(), the tile's y_of(), until Next().
  void Append(uint32_t lane, uint32_t steps) {
    // Lanes without a row stay where they are.
    if (y_of_[lane] < height_) x_of_[lane] += static_cast<int32_t>(steps);
  }
  bool HasEnded(uint32_t lane) const { return x_of_[lane] >= width_ && y_of_[lane] < height_; }
  uint8_t* Row(uint32_t lane) { return rows_[lane] + kMarginPixels * kPixelBytes; }
  uint32_t y_of(uint32_t lane) const { return y_of_[lane]; }
  void Next(uint32_t lane) {
    std::memmove(Row(lane), Row(lane) + period_ * static_cast<int32_t>(kPixelBytes),
                 kBlockSteps * kPixelBytes);
    x_of_[lane] -= period_;
    y_of_[lane] += lanes_;
  }

 private:
  // Before a row, since lanes begin at a negative column.
  static constexpr uint32_t kMarginPixels = 2 * kRansLanes;

  uint32_t lanes_;
  int32_t period_;
  int32_t width_;
  uint32_t height_;
  int32_t x_of_[kRansLanes];
  uint32_t y_of_[kRansLanes];
  uint8_t rows_[kRansLanes]
               [(kMarginPixels + kMaxPackedTileSide + 2 * kBlockSteps) * kPixelBytes + 8];
};

// Taps that are multiplied together. In the first of a pair's lanes lies a value, in
// the second, but for other channels, the value above it.
inline constexpr uint8_t kTapPairs[kMaxRansTaps / 2][2] = {{0, 6}, {1, 4},   {3, 2},   {5, 7},
                                                           {8, 9}, {11, 10}, {12, 13}, {15, 14}};

// The bytes of a pixel, repeated, as three words in turn.
template <uint32_t kBytes>
struct PixelRun {
  explicit PixelRun(uint64_t pixel) {
    if constexpr (kBytes % 3 == 0) {
      const uint64_t six = kBytes == 3 ? pixel | pixel << 24 : pixel;
      words[0] = six | six << 48;
      words[1] = six >> 16 | six << 32;
      words[2] = six >> 32 | six << 16;
    } else {
      for (uint32_t bytes = kBytes; bytes < 8; bytes *= 2) pixel |= pixel << (8 * bytes);
      words[0] = words[1] = words[2] = pixel;
    }
  }
  uint64_t words[3];
};

// The pixels of `count` numbers of 16 bits. Most lie in runs.
template <uint32_t kBytes>
void StorePixels(const uint8_t* numbers, size_t count, const uint64_t* pixel_of, uint8_t* out) {
  constexpr size_t kRun = 16;
  const auto four = [numbers](size_t x) {
    uint64_t word;
    std::memcpy(&word, numbers + 2 * x, 8);
    return word;
  };
  const auto pixel = [numbers, pixel_of](size_t x) { return &pixel_of[LoadU16(numbers + 2 * x)]; };
  size_t x = 0;
  for (; x + kRun <= count; x += kRun) {
    const uint64_t same = LoadU16(numbers + 2 * x) * uint64_t{0x0001000100010001};
    uint8_t* place = out + x * kBytes;
    if (four(x) == same && four(x + 4) == same && four(x + 8) == same && four(x + 12) == same) {
      const PixelRun<kBytes> run(*pixel(x));
      for (size_t k = 0; k < kRun * kBytes / 8; ++k) {
        std::memcpy(place + 8 * k, &run.words[k % 3], 8);
      }
    } else if (x + kRun + 8 / kBytes <= count) {
      // Words of 8 bytes: what is too much the next pixels overwrite.
      for (size_t k = 0; k < kRun; ++k) std::memcpy(place + k * kBytes, pixel(x + k), 8);
    } else {
      for (size_t k = 0; k < kRun; ++k) std::memcpy(place + k * kBytes, pixel(x + k), kBytes);
    }
  }
  for (; x < count; ++x) std::memcpy(out + x * kBytes, pixel(x), kBytes);
}

// The samples of `count` numbers that are values.
template <typename Sample>
void StoreValues(const uint8_t* __restrict numbers, size_t count, uint8_t* __restrict out) {
  for (size_t x = 0; x < count; ++x) {
    uint16_t number;
    std::memcpy(&number, numbers + 2 * x, 2);
    const Sample sample = static_cast<Sample>(number);
    std::memcpy(out + x * sizeof(Sample), &sample, sizeof(Sample));
  }
}

// The pixels of `count` numbers of colours, which there are. Returns false if a colour has no
// samples; numbers from tables.pixel_count on may be there only if `any_number`.
inline bool StoreColors(const uint8_t* numbers, uint32_t count, const RansImage& image,
                        bool any_number, uint8_t* out) {
  const ImageInfo& info = image.info;
  const ColorTable& colors = image.tables.colors;
  const uint64_t* pixel_of = image.tables.pixel_of_number;
  if (pixel_of != nullptr && !any_number) {
    switch (info.pixel_bytes()) {
      case 1: StorePixels<1>(numbers, count, pixel_of, out); return true;
      case 2: StorePixels<2>(numbers, count, pixel_of, out); return true;
      case 3: StorePixels<3>(numbers, count, pixel_of, out); return true;
      case 4: StorePixels<4>(numbers, count, pixel_of, out); return true;
      case 6: StorePixels<6>(numbers, count, pixel_of, out); return true;
      default: StorePixels<8>(numbers, count, pixel_of, out); return true;
    }
  }
  if (colors.color == nullptr && image.map.keeps_values()) {
    info.sample_bits() == 16 ? StoreValues<uint16_t>(numbers, count, out)
                             : StoreValues<uint8_t>(numbers, count, out);
    return true;
  }
  for (uint32_t x = 0; x < count; ++x) {
    for (uint32_t c = 0; c < info.channels; ++c) {
      const uint32_t value = colors.Value(LoadU16(numbers + 2 * x), c);
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

// Where bytes of pixels lie that have `stride` bytes each, so that they come to lie side by side.
struct SqueezeTable {
  uint8_t at[16];
};
constexpr SqueezeTable MakeSqueezeTable(uint32_t pixel_bytes, uint32_t stride) {
  SqueezeTable table{};
  for (uint32_t i = 0; i < 16; ++i) {
    const uint32_t place = i / pixel_bytes * stride + i % pixel_bytes;
    table.at[i] = static_cast<uint8_t>(place < 16 ? place : 0x80);
  }
  return table;
}

}  // namespace l3
