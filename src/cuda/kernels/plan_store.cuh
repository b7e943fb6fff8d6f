// The store policy that follows OutputPlans: windows, mirrors, other types, channels and
// layouts (output/store_pixel.h). Layer: cuda. Has the functions of HwcStore.
//
// A tile is stored for each window that needs it, one after the other. Samples that leave as
// they are stored, and normalized CHW float16, have code of their own. All else is done by two
// functions that kernels call, which take eight pixels of a lane at a time, a channel of the
// output after the other. output/store_pixel.h says what a value is, here too.
#pragma once

#include "cuda/kernels/device_memory.h"
#include "cuda/kernels/hwc_store.cuh"
#include "cuda/kernels/lane_math.cuh"
#include "cuda/kernels/sample_group.cuh"
#include "cuda/kernels/tile_batch.h"
#include "cuda/kernels/tile_tools.cuh"
#include "cuda/kernels/warp.h"
#include "cuda/kernels/warp_scratch.cuh"
#include "output/store_pixel.h"

namespace l3 {

// A pixel in shared memory, as OutputValue() wants it.
template <uint32_t kSampleBytes>
struct SharedPixel {
  const uint8_t* samples;
  uint32_t word_step;
  uint32_t top_bit;  // of a signed type

  L3_DEVICE int32_t operator[](uint32_t channel) const {
    const uint32_t byte = channel * kSampleBytes;
    const uint8_t* place = samples + byte / 4 * word_step + byte % 4;
    const uint32_t bits = kSampleBytes == 1 ? *place : LoadU16(place);
    return static_cast<int32_t>((bits ^ top_bit) - top_bit);
  }
};

// A pixel of which one sample is known.
struct OneSample {
  int32_t sample;

  L3_DEVICE int32_t operator[](uint32_t) const { return sample; }
};

// OutputValue() of eight pixels. What `channel` is, is found out once.
template <uint32_t kSampleBytes>
L3_DEVICE void OutputValues(const ChannelPlan& channel, const SharedPixels& pixels,
                            uint32_t top_bit, float (&values)[kGroupSize]) {
  const auto pixel = [&](uint32_t i) {
    return SharedPixel<kSampleBytes>{pixels.Pixel(i), pixels.word_step, top_bit};
  };
  ChannelPlan known = channel;
  if (channel.op == PixelOp::kMix) {
    known.op = PixelOp::kMix;
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize; ++i) values[i] = OutputValue(known, pixel(i));
    return;
  }
  if (channel.source[0] == kFillChannel) {
    L3_UNROLL
    for (float& value : values) value = channel.factor[0];
    return;
  }
  int32_t samples[kGroupSize];
  if (channel.source[0] == kLumaChannel) {
    const uint32_t rounding = static_cast<uint32_t>(channel.factor[3]);
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize; ++i) samples[i] = Luma(pixel(i), rounding);
  } else {
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize; ++i) samples[i] = pixel(i)[channel.source[0]];
  }
  // To scale by 1 changes nothing.
  if (channel.op == PixelOp::kSelect) known = {PixelOp::kScale, {0}, {0, 1, 1, 0}};
  known.op = PixelOp::kScale;
  known.source[0] = 0;
  L3_UNROLL
  for (uint32_t i = 0; i < kGroupSize; ++i) {
    values[i] = OutputValue(known, OneSample{samples[i]});
  }
}

// Two values in the output's type, the first low. `values` are no NaNs: of these the
// hardware makes another half than HalfBits().
template <OutputType kType>
L3_DEVICE uint32_t ConvertTwoValues(float first, float second) {
#if defined(__CUDA_ARCH__)
  if constexpr (kType == OutputType::kF16) {
    uint32_t halves;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(second), "f"(first));
#else
    asm("{ .reg .b16 low, high;\n"
        "  cvt.rn.f16.f32 low, %1; cvt.rn.f16.f32 high, %2; mov.b32 %0, {low, high}; }"
        : "=r"(halves)
        : "f"(first), "f"(second));
#endif
    return halves;
  }
#endif
  return uint32_t{ConvertValue<kType>(first)} | uint32_t{ConvertValue<kType>(second)} << 16;
}

// Eight values in the output's type, as they lie in memory.
template <uint32_t kBytes>
struct OutputGroup {
  static constexpr uint32_t kWords = kGroupSize * kBytes / 4;
  uint32_t word[kWords];

  L3_DEVICE uint32_t Value(uint32_t i) const {
    return word[i * kBytes / 4] >> (8 * (i * kBytes % 4));
  }
  // The last value first.
  L3_DEVICE OutputGroup Reversed() const {
    constexpr uint32_t kOrder = kBytes == 1 ? 0x0123 : kBytes == 2 ? 0x1032 : 0x3210;
    OutputGroup group;
    L3_UNROLL
    for (uint32_t k = 0; k < kWords; ++k) {
      group.word[k] = PermuteBytes(word[kWords - 1 - k], 0, kOrder);
    }
    return group;
  }
};

template <OutputType kType>
L3_DEVICE OutputGroup<OutputBytes(kType)> ConvertValues(const float (&values)[kGroupSize]) {
  OutputGroup<OutputBytes(kType)> group;
  if constexpr (OutputBytes(kType) == 1) {
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize; i += 4) {
      group.word[i / 4] =
          PermuteBytes(ConvertTwoValues<kType>(values[i], values[i + 1]),
                       ConvertTwoValues<kType>(values[i + 2], values[i + 3]), 0x6420);
    }
  } else if constexpr (OutputBytes(kType) == 2) {
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize; i += 2) {
      group.word[i / 2] = ConvertTwoValues<kType>(values[i], values[i + 1]);
    }
  } else {
    static_assert(kType == OutputType::kF32);
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize; ++i) std::memcpy(&group.word[i], &values[i], 4);
  }
  return group;
}

// Eight values of a row of the output, the first of them at `out`, that follow one another.
template <uint32_t kBytes>
L3_DEVICE void StoreRow(const OutputGroup<kBytes>& values, RowOrder order, uint8_t* out) {
  OutputGroup<kBytes> group = values;
  if (order == RowOrder::kBackwards) {
    group = values.Reversed();
    out -= (kGroupSize - 1) * kBytes;
  }
  HwcStore<kBytes>(out, 0).StorePixels(group.word, 0, 0);
}

// Which of a lane's eight pixels, x, x + step, ..., are stored: those in [begin, begin + count).
// Numbers may wrap around.
struct PixelRange {
  uint32_t x, step;
  uint32_t begin, count;

  L3_DEVICE bool Has(uint32_t at) const { return at - begin < count; }
};

template <uint32_t kBytes>
L3_DEVICE void StoreEach(const OutputGroup<kBytes>& values, int64_t stride, uint8_t* row,
                         const PixelRange& range) {
  L3_UNROLL
  for (uint32_t i = 0; i < kGroupSize; ++i) {
    const uint32_t at = range.x + range.step * i;
    if (!range.Has(at)) continue;
    uint8_t* place = row + at * stride;
    const uint32_t value = values.Value(i);
    if constexpr (kBytes == 1) *place = static_cast<uint8_t>(value);
    if constexpr (kBytes == 2) StoreHalf(place, value);
    if constexpr (kBytes == 4) StoreWord(place, value);
  }
}

// Stores eight pixels of row `y` of the window by a plan, whatever it asks for.
template <uint32_t kSampleBytes>
L3_DEVICE void StoreEight(const OutputPlan& plan, const DeviceWindow& window,
                          const SharedPixels& pixels, const PixelRange& range, uint32_t y) {
  const RowOrder order = window.row_order;
  const bool is_run = order != RowOrder::kScattered && range.step == 1 && range.x == range.begin &&
                      range.count == kGroupSize;
  L3_NO_UNROLL
  for (uint32_t c = 0; c < plan.channels; ++c) {
    float values[kGroupSize];
    OutputValues<kSampleBytes>(GetChannelPlan(plan, c), pixels, window.top_bit, values);
    uint8_t* const row = plan.Place(0, y, c);
    const auto store = [&](const auto& group) {
      if (is_run) {
        StoreRow(group, order, row + range.x * plan.x_stride_bytes);
      } else {
        StoreEach(group, plan.x_stride_bytes, row, range);
      }
    };
    if (window.path != StorePath::kOne) {
      switch (plan.type) {
        case OutputType::kF16: store(ConvertValues<OutputType::kF16>(values)); continue;
        case OutputType::kF32: store(ConvertValues<OutputType::kF32>(values)); continue;
        case OutputType::kU8: store(ConvertValues<OutputType::kU8>(values)); continue;
        case OutputType::kU16: store(ConvertValues<OutputType::kU16>(values)); continue;
        default: break;
      }
    }
    // Registers have no index: the values move on.
    L3_NO_UNROLL
    for (uint32_t at = range.x; at != range.x + kGroupSize * range.step; at += range.step) {
      if (range.Has(at)) StoreValue(plan.type, values[0], row + at * plan.x_stride_bytes);
      L3_UNROLL
      for (uint32_t k = 1; k < kGroupSize; ++k) values[k - 1] = values[k];
    }
  }
}

// The same for eight pixels that follow one another, for kernels to call.
template <uint32_t kSampleBytes>
L3_OUT_OF_LINE void StoreEightApart(const OutputPlan* plan, const DeviceWindow* window,
                                    SharedPlace base, uint32_t first, uint32_t step,
                                    uint32_t ring_mask, uint32_t word_step, uint32_t x,
                                    uint32_t begin, uint32_t count, uint32_t y) {
  StoreEight<kSampleBytes>(*GlobalPointer(plan), *GlobalPointer(window),
                           {base, first, step, ring_mask, word_step}, {x, 1, begin, count}, y);
}

// What of pixels [x, x + width) of row y of a tile is in a window, whose first pixel is (-x, -y)
// of the tile.
struct RowPart {
  uint32_t skip, count;  // of the pixels
  uint32_t x, y;         // of the first one in the window, from the window's

  L3_DEVICE RowPart(const Window& window, uint32_t left, uint32_t top, uint32_t width) : y(top) {
    // Pixels to the left of the window have numbers that wrapped around.
    skip = left < window.width_px ? 0 : 0 - left;
    x = left + skip;
    const uint32_t right = window.width_px - x;
    count = width - skip < right ? width - skip : right;
    if (skip >= width || top >= window.height_px) count = 0;
  }
};

// Stores a staged row of a tile for all windows that need it.
template <uint32_t kSampleBytes>
L3_OUT_OF_LINE void StoreRowByPlans(uint32_t lane, const OutputPlan* plans,
                                    const DeviceWindow* windows, const uint32_t* numbers,
                                    uint32_t window_count, uint32_t tile_x, uint32_t tile_y,
                                    SharedPlace row, uint32_t pixel_bytes, uint32_t x, uint32_t y,
                                    uint32_t width) {
  L3_NO_UNROLL
  for (uint32_t i = 0; i < window_count; ++i) {
    const uint32_t number = GlobalPointer(numbers)[i];
    const OutputPlan& plan = GlobalPointer(plans)[number];
    const DeviceWindow& window = GlobalPointer(windows)[number];
    const RowPart part(plan.window, tile_x + x - plan.window.x_px, tile_y + y - plan.window.y_px,
                       width);
    if (part.count == 0) continue;
    if (window.path == StorePath::kStored) {
      CopyBytes(lane, SharedPointer(row), part.skip * pixel_bytes, part.count * pixel_bytes,
                plan.PixelPlace(part.x, part.y));
      continue;
    }
    // Groups of eight begin where the lowest of their places in memory is a multiple of eight.
    const auto lowest = reinterpret_cast<uintptr_t>(plan.Place(part.x, part.y, 0));
    const uint32_t value = static_cast<uint32_t>(lowest) >> OutputBytes(plan.type) / 2;
    const bool scattered = window.row_order == RowOrder::kScattered;
    const uint32_t head =
        1 + (window.row_order == RowOrder::kForwards ? 0 - value - 1 : value) % kGroupSize;
    // Of scattered rows lanes side by side have pixels side by side, all in one turn.
    L3_NO_UNROLL
    for (uint32_t end = scattered ? part.count + kGroupSize - 1 : head + lane * kGroupSize;
         end < part.count + kGroupSize; end += kRowSpan) {
      const uint32_t begin = end < kGroupSize || scattered ? 0 : end - kGroupSize;
      const uint32_t stop = end < part.count ? end : part.count;
      // The last pixels of a row have eight too: some that come before them, in the window or not.
      constexpr uint32_t kLast = kRowSpan - kGroupSize;
      const uint32_t last = part.skip + begin < kLast ? part.skip + begin : kLast;
      const uint32_t pixel = scattered ? lane : last;
      const uint32_t step = scattered ? kWarpLanes : 1;
      const SharedPixels pixels = {row, pixel * pixel_bytes, step * pixel_bytes, ~0u, 4};
      StoreEight<kSampleBytes>(plan, window, pixels,
                               {part.x - part.skip + pixel, step, part.x + begin, stop - begin},
                               part.y);
    }
  }
}

// StoredRows by plans.
template <uint32_t kSampleBytes>
struct PlannedRows {
  TilePlans plans;
  uint32_t tile_x, tile_y;  // the tile's place in the image
  uint32_t pixel_bytes;

  template <class Warp>
  L3_DEVICE void StoreRareRow(const Warp& warp, const uint8_t* row, uint32_t x, uint32_t y,
                              uint32_t width) const {
    StoreRowByPlans<kSampleBytes>(warp.lane(), plans.plans, plans.windows, plans.numbers,
                                  plans.count, tile_x, tile_y, PlaceInShared(row), pixel_bytes, x,
                                  y, width);
  }
};

template <uint32_t kChannels, uint32_t kSampleBytes>
class PlansStore : public PlannedRows<kSampleBytes> {
 public:
  static constexpr bool kHasHalves = true;

  explicit L3_DEVICE PlansStore(const PlannedRows<kSampleBytes>& rows)
      : PlannedRows<kSampleBytes>(rows) {}

  // Stores rows of a packed tile that have not been staged, if all plans ask for halves.
  class Halves {
   public:
    // `keeps_values` says that values are samples.
    template <class Warp>
    L3_DEVICE Halves(Warp& warp, const PlansStore& store, bool keeps_values, uint32_t width,
                     WarpScratch* scratch)
        : store_(store), width_(width), scratch_(scratch) {
      const TilePlans& plans = store_.plans;
      bool serves = keeps_values;
      L3_NO_UNROLL
      for (uint32_t i = warp.lane(); i < plans.count; i += kWarpLanes) {
        const DeviceWindow& window = GlobalPointer(plans.windows)[GlobalPointer(plans.numbers)[i]];
        serves = window.path == StorePath::kHalves && serves;
      }
      // What comes from lane 0 tells the compiler that lanes do not part there.
      window_count_ = OnAllLanes(warp, serves) ? warp.Shuffle(plans.count, 0) : 0;
      if (window_count_ != 0) Choose(warp, 0);
    }

    L3_DEVICE bool serves() const { return window_count_ != 0; }

    // Stores row y of the tile, eight pixels of each lane. Of the fields of `planes` the bits in
    // `max` count.
    template <class Warp>
    L3_DEVICE void StoreRow(Warp& warp, const SampleGroup (&planes)[kChannels], uint32_t max,
                            uint32_t y) {
      uint32_t i = 0;
      do {
        const HalvesPlace place = scratch_->halves;
        if (place.top + y < place.height) StorePlanes(warp, planes, max, y, place);
        if (window_count_ == 1) return;
        i = i + 1 == window_count_ ? 0 : i + 1;
        warp.Sync();  // what came before has been stored
        Choose(warp, i);
      } while (i != 0);
    }

   private:
    static constexpr uint32_t kPlaneBytes = 2 * kRowSpan;

    // Rows go to the i-th window from now on.
    template <class Warp>
    L3_DEVICE void Choose(Warp& warp, uint32_t i) {
      if (warp.lane() == 0) PutPlace(GlobalPointer(store_.plans.numbers)[i]);
      warp.Sync();
    }
    L3_DEVICE void PutPlace(uint32_t number) {
      const OutputPlan& plan = GlobalPointer(store_.plans.plans)[number];
      const Window& window = plan.window;
      const RowPart part(window, store_.tile_x - window.x_px, 0, width_);
      const int64_t offset = plan.channel_offset_bytes[0];
      HalvesPlace& place = scratch_->halves;
      uint32_t offsets = 0;
      L3_NO_UNROLL
      for (uint32_t c = 0; c < kChannels; ++c) {
        place.subtract[c] = SubtractOf(plan.subtract[c]);
        place.multiply[c] = MultiplyOf(plan.multiply[c]);
        place.channel_offset[c] = static_cast<int32_t>((plan.channel_offset_bytes[c] - offset) / 2);
        offsets |= static_cast<uint32_t>(place.channel_offset[c]);
      }
      const bool forwards =
          GlobalPointer(store_.plans.windows)[number].row_order == RowOrder::kForwards;
      place.begin = forwards ? part.skip : kRowSpan - part.skip - part.count;
      place.count = part.count;
      place.top = store_.tile_y - window.y_px;
      place.height = window.height_px;
      place.out = plan.Place(forwards ? part.x : part.x + part.count - 1,
                             static_cast<int32_t>(place.top), 0) -
                  2 * place.begin;
      place.y_stride_bytes = static_cast<int32_t>(plan.y_stride_bytes);
      const uint32_t bytes = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(place.out)) |
                             static_cast<uint32_t>(plan.y_stride_bytes) |
                             2 * (offsets | place.begin | place.count);
      place.way =
          (forwards ? 0 : HalvesPlace::kMirrored) | (bytes % 16 == 0 ? HalvesPlace::kAligned : 0);
    }

    // Where groups of a row lie at multiples of 16 bytes, lanes store theirs. Else halves pass
    // through scratch->row, so that lanes store 16 bytes all the same.
    template <class Warp>
    L3_DEVICE void StorePlanes(Warp& warp, const SampleGroup (&planes)[kChannels], uint32_t max,
                               uint32_t y, const HalvesPlace& place) {
      OutputGroup<2> halves[kChannels];
      L3_UNROLL
      for (uint32_t c = 0; c < kChannels; ++c) {
        float values[kGroupSize];
        L3_UNROLL
        for (uint32_t i = 0; i < kGroupSize; ++i) {
          values[i] =
              ScaledValue(planes[c].word[i % SampleGroup::kWords], 16 * (i / SampleGroup::kWords),
                          max, place.subtract[c], place.multiply[c]);
        }
        halves[c] = ConvertValues<OutputType::kF16>(values);
      }
      const uint32_t lane = warp.lane();
      uint32_t group = lane;  // in the order of memory
      if ((place.way & HalvesPlace::kMirrored) != 0) {
        group = kWarpLanes - 1 - lane;
        L3_UNROLL
        for (OutputGroup<2>& one : halves) one = one.Reversed();
      }
      const auto group_of = [&halves](uint32_t c) {
        const uint32_t* word = halves[c].word;
        return Chunk{{word[0], word[1], word[2], word[3]}};
      };
      uint8_t* const row =
          PlaceAt(GlobalPointer(place.out), static_cast<int32_t>(y), place.y_stride_bytes);
      const auto in_channel = [&place](uint8_t* first, uint32_t c) {
        return c == 0 ? first : PlaceAt(first, place.channel_offset[c], 2);
      };
      if ((place.way & HalvesPlace::kAligned) != 0) {
        if (kGroupSize * group - place.begin >= place.count) return;
        uint8_t* const first = PlaceAt(row, static_cast<int32_t>(group), 16);
        L3_UNROLL
        for (uint32_t c = 0; c < kChannels; ++c) PutChunk(in_channel(first, c), group_of(c));
        return;
      }
      uint8_t* const buffer = scratch_->row;
      warp.Sync();  // what came before has been stored
      L3_UNROLL
      for (uint32_t c = 0; c < kChannels; ++c) {
        StoreChunk(buffer + 16 * group + kPlaneBytes * c, group_of(c));
      }
      warp.Sync();
      L3_UNROLL
      for (uint32_t c = 0; c < kChannels; ++c) {
        CopyBytes(lane, buffer + kPlaneBytes * c, 2 * place.begin, 2 * place.count,
                  in_channel(row, c) + 2 * place.begin);
      }
    }

    const PlansStore& store_;
    uint32_t width_;  // of the tile
    WarpScratch* scratch_;
    uint32_t window_count_;  // 0: another code serves
  };

  // Stores a run of pixels that lie in words, from (x, y) of the tile on, for the plans that have
  // code for it. Returns whether those were all.
  template <uint32_t kWords>
  L3_DEVICE bool StoreRun(const uint32_t (&pixel)[kGroupSize][kWords], uint32_t x,
                          uint32_t y) const {
    bool all = true;
    ForEachWindow([&](const OutputPlan& plan, const DeviceWindow& window) {
      const RunPlace place(plan, window, this->tile_x + x, this->tile_y + y);
      if (!place.has_code) {
        all = all && place.is_outside;
      } else if (window.path == StorePath::kStored) {
        HwcStore<kPixelBytes>(plan.PixelPlace(place.x, place.y), 0).StoreRun(pixel, 0, 0);
      } else {
        StoreHalves(plan, window.row_order, pixel, plan.PixelPlace(place.x, place.y));
      }
    });
    return all;
  }

  // Stores `count` pixels from the i-th of a lane's ring on, which are those from (x, y) of the
  // tile on. Where `rest_of_run`, StoreRun() has been called for them.
  L3_DEVICE void StorePart(const SharedPixels& pixels, uint32_t i, uint32_t x, uint32_t y,
                           uint32_t count, bool rest_of_run) const {
    ForEachWindow([&](const OutputPlan& plan, const DeviceWindow& window) {
      const RunPlace place(plan, window, this->tile_x + x, this->tile_y + y);
      if (rest_of_run && (place.has_code || place.is_outside)) return;
      const RowPart part(plan.window, place.x, place.y, count);
      if (part.count == 0) return;
      StoreEightApart<kSampleBytes>(&plan, &window, pixels.base, pixels.first + i * pixels.step,
                                    pixels.step, pixels.ring_mask, pixels.word_step, place.x,
                                    part.x, part.count, part.y);
    });
  }

 private:
  static constexpr uint32_t kPixelBytes = kChannels * kSampleBytes;

  // Where a run of eight pixels is, from the window's first.
  struct RunPlace {
    uint32_t x, y;
    bool is_outside;
    bool has_code;  // it is inside, and leaves as stored or as halves

    L3_DEVICE RunPlace(const OutputPlan& plan, const DeviceWindow& window, uint32_t image_x,
                       uint32_t image_y)
        : x(image_x - plan.window.x_px), y(image_y - plan.window.y_px) {
      const uint32_t width = plan.window.width_px;
      is_outside = y >= plan.window.height_px || (x >= width && 0 - x >= kGroupSize);
      has_code =
          window.path <= StorePath::kHalves && !is_outside && x < width && kGroupSize <= width - x;
    }
  };

  // OutputValue() of the sample at a bit of a word, with `max` of its bits. A sample that stays
  // where it is, below bit 24, is a float already: times 2^(bit - 149). One operation makes it
  // 2^-22 times the sample, and subtracts. The product of SubtractOf() and MultiplyOf() takes
  // these 2^-22 away. Powers of two change no rounding here.
  static L3_DEVICE float ScaledValue(uint32_t word, uint32_t bit, uint32_t max, float subtract,
                                     float multiply) {
    if (bit + 8 * kSampleBytes > 24) {
      word >>= bit;
      bit = 0;
    }
    const float power = FloatOf((254 - bit) << 23);  // 2^(127 - bit)
    return Multiply(AddProduct(FloatOf(word & max << bit), power, subtract), multiply);
  }
  static L3_DEVICE float SubtractOf(float subtract) { return subtract * -0x1p-22f; }
  static L3_DEVICE float MultiplyOf(float multiply) { return multiply * 0x1p22f; }

  template <class Function>
  L3_DEVICE void ForEachWindow(const Function& function) const {
    const TilePlans& all = this->plans;
    L3_NO_UNROLL
    for (uint32_t i = 0; i < all.count; ++i) {
      const uint32_t number = GlobalPointer(all.numbers)[i];
      function(GlobalPointer(all.plans)[number], GlobalPointer(all.windows)[number]);
    }
  }
  template <uint32_t kWords>
  static L3_DEVICE void StoreHalves(const OutputPlan& plan, RowOrder order,
                                    const uint32_t (&pixel)[kGroupSize][kWords], uint8_t* out) {
    const Chunk subtract = LoadConstantChunk(reinterpret_cast<const uint8_t*>(plan.subtract));
    const Chunk multiply = LoadConstantChunk(reinterpret_cast<const uint8_t*>(plan.multiply));
    L3_UNROLL
    for (uint32_t c = 0; c < kChannels; ++c) {
      constexpr uint32_t kBits = 8 * kSampleBytes;
      float values[kGroupSize];
      L3_UNROLL
      for (uint32_t i = 0; i < kGroupSize; ++i) {
        values[i] = ScaledValue(pixel[i][c * kBits / 32], c * kBits % 32, (1u << kBits) - 1,
                                SubtractOf(FloatOf(subtract.word[c])),
                                MultiplyOf(FloatOf(multiply.word[c])));
      }
      l3::StoreRow(ConvertValues<OutputType::kF16>(values), order,
                   out + plan.channel_offset_bytes[c]);
    }
  }
};

}  // namespace l3
