// The store policy that follows an OutputPlan: windows, mirrors, other types, channels and
// layouts (core/output.h). Layer: cuda. Has the functions of HwcStore.
//
// A lane takes eight pixels at a time, a channel of the output after the other: what the plan
// asks for is looked at once for eight values, and these are stored 16 bytes at a time where
// they follow one another in memory. core/output.h says what a value is, here too.
#pragma once

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

#include "core/output.h"
#include "cuda/kernels/device_memory.h"
#include "cuda/kernels/hwc_store.cuh"
#include "cuda/kernels/lane_math.cuh"
#include "cuda/kernels/sample_group.cuh"
#include "cuda/kernels/store_path.h"
#include "cuda/kernels/tile_batch.h"
#include "cuda/kernels/warp.h"

namespace l3 {

// The samples of a pixel in memory, interleaved.
template <uint32_t kSampleBytes>
struct PixelInMemory {
  const uint8_t* samples;

  L3_DEVICE uint32_t operator[](uint32_t channel) const {
    return kSampleBytes == 1 ? samples[channel] : LoadU16(samples + 2 * channel);
  }
};

// The samples of a pixel in registers. These have no index: all are looked at.
template <uint32_t kChannels>
struct PixelInRegisters {
  uint32_t sample[kChannels];

  L3_DEVICE uint32_t operator[](uint32_t channel) const {
    uint32_t found = sample[0];
    L3_UNROLL
    for (uint32_t c = 1; c < kChannels; ++c) found = c == channel ? sample[c] : found;
    return found;
  }
};

// A pixel of which one sample is known: it has no other.
template <typename Sample>
struct OneSample {
  Sample sample;

  L3_DEVICE Sample operator[](uint32_t) const { return sample; }
};

// A sample from its bits. The top bit is the type's, 0 for unsigned ones.
L3_DEVICE int32_t SampleOfBits(uint32_t bits, uint32_t top_bit) {
  return static_cast<int32_t>((bits ^ top_bit) - top_bit);
}

// A pixel of samples that may be signed.
template <class Pixel>
struct AnyPixel {
  const Pixel& pixel;
  uint32_t top_bit;

  L3_DEVICE int32_t operator[](uint32_t channel) const {
    return SampleOfBits(pixel[channel], top_bit);
  }
};

// Eight pixels in memory, interleaved, `step` bytes from one to the next.
template <uint32_t kSampleBytes>
struct PixelsInMemory {
  const uint8_t* samples;
  uint32_t step;

  L3_DEVICE PixelInMemory<kSampleBytes> Pixel(uint32_t i) const { return {samples + i * step}; }
  L3_DEVICE void Channel(uint32_t channel, uint32_t (&found)[kGroupSize]) const {
    const PixelsInMemory moved{samples + channel * kSampleBytes, step};
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize; ++i) found[i] = moved.Pixel(i)[0];
  }
};

// Eight pixels that follow one another in words.
template <uint32_t kChannels, uint32_t kSampleBytes>
struct PixelsInWords {
  static constexpr uint32_t kWords = kInterleavedWords<kChannels, kSampleBytes>;
  uint32_t word[kWords] = {};

  PixelsInWords() = default;
  // Of samples of fewer bytes there are fewer words; nobody asks for the pixels then.
  template <uint32_t kGiven>
  explicit L3_DEVICE PixelsInWords(const uint32_t (&words)[kGiven]) {
    L3_UNROLL
    for (uint32_t k = 0; k < kGiven; ++k) word[k] = words[k];
  }

  L3_DEVICE uint32_t Sample(uint32_t i) const {
    constexpr uint32_t kBits = 8 * kSampleBytes;
    return word[i * kBits / 32] >> (i * kBits % 32) & ((1u << kBits) - 1);
  }
  L3_DEVICE PixelInRegisters<kChannels> Pixel(uint32_t i) const {
    PixelInRegisters<kChannels> pixel;
    L3_UNROLL
    for (uint32_t c = 0; c < kChannels; ++c) pixel.sample[c] = Sample(i * kChannels + c);
    return pixel;
  }
  L3_DEVICE void DropPixel() {
    constexpr uint32_t kPixelBytes = kChannels * kSampleBytes;
    const auto at = [this](uint32_t k) { return k < kWords ? word[k] : 0; };
    L3_UNROLL
    for (uint32_t k = 0; k < kWords; ++k) {
      word[k] =
          FunnelShift(at(k + kPixelBytes / 4), at(k + kPixelBytes / 4 + 1), 8 * (kPixelBytes % 4));
    }
  }
  L3_DEVICE void Channel(uint32_t channel, uint32_t (&found)[kGroupSize]) const {
    // What is moved by the channel has it in the first one's place.
    constexpr uint32_t kWordSamples = 4 / kSampleBytes;
    PixelsInWords moved;
    L3_UNROLL
    for (uint32_t k = 0; k < kWords; ++k) {
      uint32_t low = word[k];
      uint32_t high = k + 1 < kWords ? word[k + 1] : 0;
      if (kChannels > kWordSamples && channel >= kWordSamples) {
        low = high;
        high = k + 2 < kWords ? word[k + 2] : 0;
      }
      moved.word[k] = FunnelShift(low, high, 8 * kSampleBytes * channel);
    }
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize; ++i) found[i] = moved.Sample(i * kChannels);
  }
};

// OutputValue() of eight pixels. What `channel` is, is found out once. Where `top_bit` is not 0
// samples are signed, and `channel` takes one of them or none.
template <class Pixels>
L3_DEVICE void OutputValues(const ChannelPlan& channel, const Pixels& pixels, uint32_t top_bit,
                            float (&values)[kGroupSize]) {
  ChannelPlan known = channel;
  if (channel.op == PixelOp::kMix) {
    known.op = PixelOp::kMix;
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize; ++i) values[i] = OutputValue(known, pixels.Pixel(i));
    return;
  }
  if (channel.source[0] == kFillChannel) {
    L3_UNROLL
    for (float& value : values) value = channel.factor[0];
    return;
  }
  uint32_t samples[kGroupSize];
  if (channel.source[0] == kLumaChannel) {
    const uint32_t rounding = static_cast<uint32_t>(channel.factor[3]);
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize; ++i) samples[i] = Luma(pixels.Pixel(i), rounding);
  } else {
    pixels.Channel(channel.source[0], samples);
  }
  known.source[0] = 0;
  if (top_bit != 0) {
    // Little code for all: to scale by 1 changes nothing.
    if (channel.op == PixelOp::kSelect) known = {PixelOp::kScale, {0}, {0, 1, 1, 0}};
    known.op = PixelOp::kScale;
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize; ++i) {
      const int32_t sample = SampleOfBits(samples[i], top_bit);
      values[i] = OutputValue(known, OneSample<int32_t>{sample});
    }
  } else if (channel.op == PixelOp::kSelect) {
    known.op = PixelOp::kSelect;
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize; ++i) {
      values[i] = OutputValue(known, OneSample<uint32_t>{samples[i]});
    }
  } else if (channel.factor[2] == 1) {
    known.op = PixelOp::kScale;
    known.factor[2] = 1;
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize; ++i) {
      values[i] = OutputValue(known, OneSample<uint32_t>{samples[i]});
    }
  } else {
    known.op = PixelOp::kScale;
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize; ++i) {
      values[i] = OutputValue(known, OneSample<uint32_t>{samples[i]});
    }
  }
}

// Two values in the output's type, the first low. `values` are no NaNs: of these the
// hardware makes another half than HalfBits().
template <OutputType kType>
L3_DEVICE uint32_t ConvertTwoValues(float first, float second) {
#if defined(__CUDA_ARCH__)
  if constexpr (kType == OutputType::kF16) {
    const __half2 halves = __floats2half2_rn(first, second);
    return *reinterpret_cast<const uint32_t*>(&halves);
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

template <uint32_t kChannels, uint32_t kSampleBytes>
class PlanStore {
 public:
  // `rect` is the tile's place in the image.
  L3_DEVICE PlanStore(const OutputPlan& plan, StorePath path, RowOrder row, const TileRect& rect)
      : plan_(*GlobalPointer(&plan)),
        x_(rect.x_px - plan.window.x_px),
        y_(rect.y_px - plan.window.y_px),
        origin_(plan.PixelPlace(static_cast<int32_t>(x_), static_cast<int32_t>(y_))),
        channels_(plan.channels),
        path_(path),
        row_(row) {}

  // Those of the pixels that are in the window.
  template <class Warp>
  L3_DEVICE void StoreRow(const Warp& warp, const uint8_t* row, uint32_t x, uint32_t y,
                          uint32_t width) const {
    StorePart<false>(warp, row, x, y, width);
  }
  template <class Warp>
  L3_DEVICE void StoreRareRow(const Warp& warp, const uint8_t* row, uint32_t x, uint32_t y,
                              uint32_t width) const {
    StorePart<true>(warp, row, x, y, width);
  }

  template <uint32_t kWords>
  L3_DEVICE void StorePixels(const uint32_t (&words)[kWords], uint32_t x, uint32_t y) const {
    x += x_;
    y += y_;
    if (y >= plan_.window.height_px) return;
    const uint32_t width = plan_.window.width_px;
    const bool is_whole = x < width && kGroupSize <= width - x;
    if (IsStored(path_) && is_whole) {
      HwcStore<kPixelBytes>(plan_.PixelPlace(x, y), 0).StorePixels(words, 0, 0);
      return;
    }
    // Large pixels would take more registers than a rans kernel has to give.
    if (kPixelBytes > 4 || path_ == StorePath::kOne || path_ == StorePath::kSignedOne ||
        path_ == StorePath::kSignedStored) {
      return StoreRarePixels(words, x - x_, y - y_);
    }
    const Pixels pixels(words);
    uint8_t* const row = plan_.PixelPlace(0, y);
    L3_NO_UNROLL
    for (uint32_t c = 0; c < channels_; ++c) {
      uint8_t* const out = row + plan_.channel_offset_bytes[c];
      StoreGroup(GetChannelPlan(plan_, c), pixels, [&](const auto& values) {
        if (row_ != RowOrder::kScattered && is_whole) {
          StoreRun<false>(values, out, x);
        } else {
          StoreEach<1>(values, out, x, width);
        }
      });
    }
  }
  template <uint32_t kWords>
  L3_DEVICE void StoreRarePixels(const uint32_t (&words)[kWords], uint32_t x, uint32_t y) const {
    Pixels pixels(words);
    L3_NO_UNROLL
    for (uint32_t i = 0; i < kGroupSize; ++i) {
      StorePixel(pixels.Pixel(0).sample, x + i, y);
      pixels.DropPixel();
    }
  }

  L3_DEVICE void StorePixel(const uint32_t (&samples)[kChannels], uint32_t x, uint32_t y) const {
    x += x_;
    y += y_;
    if (x >= plan_.window.width_px || y >= plan_.window.height_px) return;
    PixelInRegisters<kChannels> pixel;
    L3_UNROLL
    for (uint32_t c = 0; c < kChannels; ++c) pixel.sample[c] = samples[c] & kSampleMask;
    L3_NO_UNROLL
    for (uint32_t c = 0; c < channels_; ++c) {
      StoreOne(GetChannelPlan(plan_, c), pixel, plan_.Place(0, y, c), x);
    }
  }

 private:
  using Pixels = PixelsInWords<kChannels, kSampleBytes>;
  static constexpr uint32_t kPixelBytes = kChannels * kSampleBytes;
  static constexpr uint32_t kSampleMask = (1u << 8 * kSampleBytes) - 1;

  // Of a sample, if the type is signed, else 0.
  L3_DEVICE uint32_t TopBit() const { return IsSigned(path_) ? kSampleMask / 2 + 1 : 0; }

  static L3_DEVICE float FloatOf(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }

  // What is in the window of pixels [x, x + width) of row y of the tile. kRare asks for little
  // code.
  template <bool kRare, class Warp>
  L3_DEVICE void StorePart(const Warp& warp, const uint8_t* row, uint32_t x, uint32_t y,
                           uint32_t width) const {
    if (y + y_ >= plan_.window.height_px) return;
    // Pixels to the left of the window have numbers that wrapped around.
    const uint32_t left = x + x_;
    const uint32_t skip = left < plan_.window.width_px ? 0 : 0 - left;
    if (skip >= width) return;
    const uint32_t right = plan_.window.width_px - (left + skip);
    const uint32_t count = width - skip < right ? width - skip : right;
    uint8_t* out = origin_ + (y * plan_.y_stride_bytes + (x + skip) * plan_.x_stride_bytes);
    const uint8_t* first = row + skip * kPixelBytes;
    if (!kRare) {
      if (path_ == StorePath::kHalves) {
        return StoreScaledRow<OutputType::kF16, true>(warp, first, count, out);
      }
      if (path_ == StorePath::kHalvesBack) {
        return StoreScaledRow<OutputType::kF16, false>(warp, first, count, out);
      }
      if (path_ == StorePath::kFloats) {
        return StoreScaledRow<OutputType::kF32, true>(warp, first, count, out);
      }
      if (path_ == StorePath::kFloatsBack) {
        return StoreScaledRow<OutputType::kF32, false>(warp, first, count, out);
      }
      if (path_ == StorePath::kEight || path_ == StorePath::kSignedEight) {
        return StoreGroups(warp, row, skip, count, out);
      }
    }
    if (IsStored(path_)) {
      CopyBytes(warp, row, skip * kPixelBytes, count * kPixelBytes, out);
    } else {
      StoreOthers(warp, first, count, 0, count, out);
    }
  }

  // The pixels of `row`, the first of them to `out`: scaled samples alone, which follow one another
  // in each channel, as the inputs of networks do.
  template <OutputType kType, bool kForwards, class Warp>
  L3_DEVICE void StoreScaledRow(const Warp& warp, const uint8_t* row, uint32_t count,
                                uint8_t* out) const {
    constexpr int64_t kBytes = OutputBytes(kType);
    const uint32_t head = BeforeGroups(out, count, kBytes / 2, kForwards);
    const uint32_t groups = (count - head) / kGroupSize;
    const bool has_group = warp.lane() < groups;
    const uint32_t first = has_group ? head + warp.lane() * kGroupSize : 0;
    const uint8_t* pixels = row + first * kPixelBytes;
    // The group's lowest address.
    uint8_t* const place =
        kForwards ? out + first * kBytes : out - (first + kGroupSize - 1) * kBytes;
    const Chunk subtract = LoadConstantChunk(reinterpret_cast<const uint8_t*>(plan_.subtract));
    const Chunk multiply = LoadConstantChunk(reinterpret_cast<const uint8_t*>(plan_.multiply));
    const uint32_t sources = LoadConstantWord(plan_.source);
    L3_UNROLL
    for (uint32_t c = 0; c < kScaledChannels; ++c) {
      const ChannelPlan channel = {
          PixelOp::kScale, {0}, {FloatOf(subtract.word[c]), FloatOf(multiply.word[c]), 1, 0}};
      const uint32_t source = PermuteBytes(sources, 0, 0x4440 | c);
      const PixelsInMemory<kSampleBytes> samples{pixels + source * kSampleBytes, kPixelBytes};
      float values[kGroupSize];
      L3_UNROLL
      for (uint32_t i = 0; i < kGroupSize; ++i) values[i] = OutputValue(channel, samples.Pixel(i));
      auto group = ConvertValues<kType>(values);
      if (!kForwards) group = group.Reversed();
      if (has_group) StoreWords<true>(group, place + plan_.channel_offset_bytes[c]);
      if (c + 1 == channels_) break;
    }
    if (count != groups * kGroupSize) StoreOthers(warp, row, head, groups, count, out);
  }

  // Pixels [skip, skip + count) of `row`, the first of them to `out`.
  template <class Warp>
  L3_DEVICE void StoreGroups(const Warp& warp, const uint8_t* row, uint32_t skip, uint32_t count,
                             uint8_t* pixels_out) const {
    const uint32_t lane = warp.lane();
    const bool is_scattered = row_ == RowOrder::kScattered;
    const uint32_t step = is_scattered ? kWarpLanes * kPixelBytes : kPixelBytes;
    L3_NO_UNROLL
    for (uint32_t c = 0; c < channels_; ++c) {
      const ChannelPlan channel = GetChannelPlan(plan_, c);
      uint8_t* const out = pixels_out + plan_.channel_offset_bytes[c];
      // Where values are scattered, lanes side by side have pixels side by side.
      const uint32_t head = is_scattered ? 0
                                         : BeforeGroups(out, count, OutputBytes(plan_.type) / 2,
                                                        row_ == RowOrder::kForwards);
      const uint32_t groups = is_scattered ? kWarpLanes : (count - head) / kGroupSize;
      if (lane < groups) {
        const uint32_t first = is_scattered ? lane - skip : head + lane * kGroupSize;
        const PixelsInMemory<kSampleBytes> pixels{row + (skip + first) * kPixelBytes, step};
        StoreGroup(channel, pixels, [&](const auto& values) {
          if (is_scattered) {
            StoreEach<kWarpLanes>(values, out, first, count);
          } else {
            StoreRun<true>(values, out, first);
          }
        });
      }
      if (!is_scattered && count != groups * kGroupSize) {
        StoreOthersOf(warp, channel, row + skip * kPixelBytes, head, groups, count, out);
      }
    }
  }

  // How many of `count` pixels, the first of which goes to `out`, come before those that go eight
  // at a time: the lowest address of these is a multiple of their bytes.
  static L3_DEVICE uint32_t BeforeGroups(const uint8_t* out, uint32_t count, uint32_t bytes_log2,
                                         bool forwards) {
    const uint32_t place = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out)) >> bytes_log2;
    const uint32_t head = (forwards ? 0 - place : place + 1) % kGroupSize;
    return head < count ? head : count;
  }

  // The pixels before and behind `groups` of eight, of which `head` come before.
  template <class Warp>
  L3_DEVICE void StoreOthers(const Warp& warp, const uint8_t* row, uint32_t head, uint32_t groups,
                             uint32_t count, uint8_t* out) const {
    L3_NO_UNROLL
    for (uint32_t c = 0; c < channels_; ++c) {
      StoreOthersOf(warp, GetChannelPlan(plan_, c), row, head, groups, count,
                    out + plan_.channel_offset_bytes[c]);
    }
  }
  template <class Warp>
  L3_DEVICE void StoreOthersOf(const Warp& warp, const ChannelPlan& channel, const uint8_t* row,
                               uint32_t head, uint32_t groups, uint32_t count, uint8_t* out) const {
    L3_NO_UNROLL
    for (uint32_t i = warp.lane(); i < count - groups * kGroupSize; i += kWarpLanes) {
      const uint32_t x = i < head ? i : i + groups * kGroupSize;
      StoreOne(channel, PixelInMemory<kSampleBytes>{row + x * kPixelBytes}, out, x);
    }
  }

  // Hands eight values of the output to `store`.
  template <class Pixels, class Store>
  L3_DEVICE void StoreGroup(const ChannelPlan& channel, const Pixels& pixels,
                            const Store& store) const {
    float values[kGroupSize];
    OutputValues(channel, pixels, TopBit(), values);
    switch (plan_.type) {
      case OutputType::kF16: return store(ConvertValues<OutputType::kF16>(values));
      case OutputType::kF32: return store(ConvertValues<OutputType::kF32>(values));
      case OutputType::kU8: return store(ConvertValues<OutputType::kU8>(values));
      default: return store(ConvertValues<OutputType::kU16>(values));
    }
  }

  // Values of pixels x, x + 1, ... of a row, whose first is at `out`, in one run.
  template <bool kAligned, uint32_t kBytes>
  L3_DEVICE void StoreRun(const OutputGroup<kBytes>& values, uint8_t* out, uint32_t x) const {
    if (row_ == RowOrder::kForwards) {
      StoreWords<kAligned>(values, out + uint64_t{x} * kBytes);
    } else {
      StoreWords<kAligned>(values.Reversed(),
                           out - (int64_t{x} + kGroupSize - 1) * int64_t{kBytes});
    }
  }
  template <bool kAligned, uint32_t kBytes>
  static L3_DEVICE void StoreWords(const OutputGroup<kBytes>& values, uint8_t* out) {
    constexpr uint32_t kWords = OutputGroup<kBytes>::kWords;
    if constexpr (kWords > 2) {
      if (kAligned || reinterpret_cast<uintptr_t>(out) % 16 == 0) {
        L3_UNROLL
        for (uint32_t k = 0; k < kWords; k += 4) {
          const uint32_t* word = &values.word[k];
          StoreChunk(out + 4 * k, {{word[0], word[1], word[2], word[3]}});
        }
        return;
      }
    }
    HwcStore<kBytes>(out, 0).StorePixels(values.word, 0, 0);
  }

  // Those of pixels x, x + kStep, ... that are below `width`; numbers may wrap around.
  template <uint32_t kStep, uint32_t kBytes>
  L3_DEVICE void StoreEach(const OutputGroup<kBytes>& values, uint8_t* out, uint32_t x,
                           uint32_t width) const {
    const int64_t step = plan_.x_stride_bytes;
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize; ++i) {
      const uint32_t at = x + kStep * i;
      if (at >= width) continue;
      uint8_t* place = out + at * step;
      const uint32_t value = values.Value(i);
      if constexpr (kBytes == 1) *place = static_cast<uint8_t>(value);
      if constexpr (kBytes == 2) StoreHalf(place, value);
      if constexpr (kBytes == 4) StoreWord(place, value);
    }
  }

  // The value of pixel x of a row, whose first is at `out`.
  template <class Samples>
  L3_DEVICE void StoreOne(const ChannelPlan& channel, const Samples& samples, uint8_t* out,
                          uint32_t x) const {
    const AnyPixel<Samples> pixel{samples, TopBit()};
    StoreValue(plan_.type, OutputValue(channel, pixel), out + x * plan_.x_stride_bytes);
  }

  // Copies `bytes` from `begin` of a row in shared memory, 16 at a time where `out` is aligned.
  template <class Warp>
  static L3_DEVICE void CopyBytes(const Warp& warp, const uint8_t* row, uint32_t begin,
                                  uint32_t bytes, uint8_t* out) {
    const uint32_t lane = warp.lane();
    uint32_t head = (0u - static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out))) % 16;
    if (head > bytes) head = bytes;
    const uint32_t body = (bytes - head) & ~15u;
    const uint32_t shift = 8 * ((begin + head) % 4);
    L3_NO_UNROLL
    for (uint32_t at = head + 16 * lane; at < head + body; at += 16 * kWarpLanes) {
      const uint8_t* from = row + ((begin + at) & ~3u);
      Chunk chunk;
      uint32_t low = LoadWord(from);
      L3_UNROLL
      for (uint32_t k = 0; k < 4; ++k) {
        const uint32_t high = LoadWord(from + 4 * k + 4);
        chunk.word[k] = FunnelShift(low, high, shift);
        low = high;
      }
      StoreChunk(out + at, chunk);
    }
    if (lane < head) out[lane] = row[begin + lane];
    const uint32_t tail = head + body + lane;
    if (tail < bytes) out[tail] = row[begin + tail];
  }

  const OutputPlan& plan_;
  // Of the tile's first pixel, from the window's; numbers wrap around.
  uint32_t x_;
  uint32_t y_;
  uint8_t* origin_;  // where that pixel goes, if it is in the window
  uint32_t channels_;
  StorePath path_;
  RowOrder row_;
};

// Stores a tile for each of the plans that take it, one after the other.
template <uint32_t kChannels, uint32_t kSampleBytes>
class PlansStore {
 public:
  L3_DEVICE PlansStore(const TilePlans& plans, const TileRect& rect) : plans_(plans), rect_(rect) {}

  template <class Warp>
  L3_DEVICE void StoreRow(const Warp& warp, const uint8_t* row, uint32_t x, uint32_t y,
                          uint32_t width) const {
    ForEach([&](const auto& store) { store.StoreRow(warp, row, x, y, width); });
  }
  template <class Warp>
  L3_DEVICE void StoreRareRow(const Warp& warp, const uint8_t* row, uint32_t x, uint32_t y,
                              uint32_t width) const {
    ForEach([&](const auto& store) { store.StoreRareRow(warp, row, x, y, width); });
  }
  template <uint32_t kWords>
  L3_DEVICE void StorePixels(const uint32_t (&words)[kWords], uint32_t x, uint32_t y) const {
    ForEach([&](const auto& store) { store.StorePixels(words, x, y); });
  }
  template <uint32_t kWords>
  L3_DEVICE void StoreRarePixels(const uint32_t (&words)[kWords], uint32_t x, uint32_t y) const {
    ForEach([&](const auto& store) { store.StoreRarePixels(words, x, y); });
  }
  L3_DEVICE void StorePixel(const uint32_t (&samples)[kChannels], uint32_t x, uint32_t y) const {
    ForEach([&](const auto& store) { store.StorePixel(samples, x, y); });
  }

 private:
  template <class Function>
  L3_DEVICE void ForEach(const Function& function) const {
    L3_NO_UNROLL
    for (uint32_t i = 0; i < plans_.count; ++i) {
      const uint32_t taker = GlobalPointer(plans_.takers)[i];
      const DecodeSample& sample = GlobalPointer(plans_.samples)[taker];
      function(PlanStore<kChannels, kSampleBytes>(plans_.plans[taker], sample.path,
                                                  sample.row_order, rect_));
    }
  }

  TilePlans plans_;
  TileRect rect_;
};

}  // namespace l3
