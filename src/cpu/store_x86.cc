// The store stage, a run of a row at a time: planes of stored samples, then values of an
// output channel, then their places. Each step does what StorePixel does. Layer: cpu.
#include "cpu/store_x86.h"

#if defined(__x86_64__)

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "cpu/x86_interleave.h"
#include "cpu/x86_lanes.h"

namespace l3 {
namespace {

using x86::LoadHalf;

#define L3_STORE __attribute__((target("avx2,popcnt,f16c")))

constexpr uint32_t kRunPixels = 256;

// A run's samples, by source: the stored channels, then luma.
template <typename Stored>
struct Planes {
  alignas(32) Stored channel[kMaxChannels + 1][kRunPixels];

  const Stored* Source(uint32_t source) const {
    return channel[source == kLumaChannel ? kMaxChannels : source];
  }
};

// Which bytes of three blocks of interleaved bytes are a channel's, in order.
struct SplitTable {
  alignas(16) uint8_t shuffle[3][3][16];  // channel, block
};
constexpr SplitTable MakeSplitTable() {
  SplitTable table{};
  for (uint32_t channel = 0; channel < 3; ++channel) {
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t place = 3 * i + channel;
      for (uint32_t block = 0; block < 3; ++block) {
        table.shuffle[channel][block][i] =
            place / 16 == block ? static_cast<uint8_t>(place % 16) : 0x80;
      }
    }
  }
  return table;
}
constexpr SplitTable kSplitTable = MakeSplitTable();

// The whole blocks of 16 pixels of RGB8. Returns how many pixels they have.
L3_STORE uint32_t SplitBlocks(const uint8_t* samples, uint32_t width, Planes<uint8_t>* planes) {
  uint32_t x = 0;
  for (; x + 16 <= width; x += 16) {
    const __m128i block[3] = {LoadHalf(samples + 3 * x), LoadHalf(samples + 3 * x + 16),
                              LoadHalf(samples + 3 * x + 32)};
    for (uint32_t c = 0; c < 3; ++c) {
      __m128i channel = _mm_setzero_si128();
      for (uint32_t b = 0; b < 3; ++b) {
        const __m128i order = LoadHalf(kSplitTable.shuffle[c][b]);
        channel = _mm_or_si128(channel, _mm_shuffle_epi8(block[b], order));
      }
      _mm_store_si128(reinterpret_cast<__m128i*>(planes->channel[c] + x), channel);
    }
  }
  return x;
}

template <typename Stored, uint32_t kChannels>
L3_STORE void Split(const uint8_t* row, uint32_t width, Planes<Stored>* planes) {
  const Stored* samples = reinterpret_cast<const Stored*>(row);
  uint32_t x = 0;
  if constexpr (sizeof(Stored) == 1 && kChannels == 3) x = SplitBlocks(samples, width, planes);
  for (; x < width; ++x) {
    for (uint32_t c = 0; c < kChannels; ++c) planes->channel[c][x] = samples[kChannels * x + c];
  }
}

template <typename Stored>
L3_STORE void Split(const uint8_t* row, uint32_t channels, uint32_t width, Planes<Stored>* planes) {
  switch (channels) {
    case 1: return Split<Stored, 1>(row, width, planes);
    case 2: return Split<Stored, 2>(row, width, planes);
    case 3: return Split<Stored, 3>(row, width, planes);
    default: return Split<Stored, 4>(row, width, planes);
  }
}

// The luma of the run, if the plan asks for it.
template <typename Stored>
L3_STORE void AddLuma(const OutputPlan& plan, uint32_t width, Planes<Stored>* planes) {
  const uint8_t* source_end = plan.source + plan.channels;
  if (std::find(plan.source, source_end, kLumaChannel) == source_end) return;
  const auto& channel = planes->channel;
  for (uint32_t x = 0; x < width; ++x) {
    const uint32_t samples[] = {channel[0][x], channel[1][x], channel[2][x]};
    planes->channel[kMaxChannels][x] = static_cast<Stored>(Luma(samples, plan.luma_rounding));
  }
}

constexpr uint32_t kFloats = 8;  // in a vector

L3_STORE inline __m256 LoadFloats(const uint8_t* samples) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(samples));
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}
L3_STORE inline __m256 LoadFloats(const uint16_t* samples) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(LoadHalf(samples)));
}

// RoundToRange, for ranges that floats can count.
L3_STORE inline __m256i Round(__m256 v, float min, float max) {
  v = _mm256_and_ps(v, _mm256_cmp_ps(v, v, _CMP_ORD_Q));  // NaN becomes 0
  v = _mm256_min_ps(_mm256_max_ps(v, _mm256_set1_ps(min)), _mm256_set1_ps(max));
  const __m256i whole = _mm256_cvttps_epi32(v);
  const __m256 rest = _mm256_sub_ps(v, _mm256_cvtepi32_ps(whole));  // exact
  const __m256 up = _mm256_cmp_ps(rest, _mm256_set1_ps(0.5f), _CMP_GE_OQ);
  const __m256 down = _mm256_cmp_ps(rest, _mm256_set1_ps(-0.5f), _CMP_LE_OQ);
  return _mm256_add_epi32(_mm256_sub_epi32(whole, _mm256_castps_si256(up)),
                          _mm256_castps_si256(down));
}

// ConvertValue of eight values.
template <OutputType kType>
L3_STORE inline void ConvertFloats(__m256 v, OutputValueType<kType>* out) {
  using Value = OutputValueType<kType>;
  if constexpr (kType == OutputType::kF32) {
    _mm256_storeu_ps(out, v);
  } else if constexpr (kType == OutputType::kF16) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  } else if constexpr (sizeof(Value) <= 2) {
    const __m256i rounded = Round(v, OutputTraits<kType>::kMin, OutputTraits<kType>::kMax);
    const __m128i low = _mm256_castsi256_si128(rounded);
    const __m128i high = _mm256_extracti128_si256(rounded, 1);
    const __m128i words =
        kType == OutputType::kU16 ? _mm_packus_epi32(low, high) : _mm_packs_epi32(low, high);
    if constexpr (sizeof(Value) == 2) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out), words);
    } else {
      const __m128i bytes =
          kType == OutputType::kU8 ? _mm_packus_epi16(words, words) : _mm_packs_epi16(words, words);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out), bytes);
    }
  } else {
    float values[kFloats];
    _mm256_storeu_ps(values, v);
    for (uint32_t i = 0; i < kFloats; ++i) out[i] = ConvertValue<kType>(values[i]);
  }
}

// Eight values of OutputValue.
template <typename Stored, PixelOp kOp>
L3_STORE inline __m256 OutputFloats(const OutputPlan& plan, uint32_t c,
                                    const Planes<Stored>& planes, uint32_t x) {
  if constexpr (kOp == PixelOp::kMix) {
    __m256 sum;
    for (uint32_t i = 0; i < 3; ++i) {
      const __m256 samples = LoadFloats(planes.channel[plan.source[i]] + x);
      const __m256 term = _mm256_mul_ps(_mm256_set1_ps(plan.weights[c][i]), samples);
      sum = i == 0 ? term : _mm256_add_ps(sum, term);
    }
    return _mm256_add_ps(sum, _mm256_set1_ps(plan.bias[c]));
  }
  const __m256 samples = LoadFloats(planes.Source(plan.source[c]) + x);
  if constexpr (kOp == PixelOp::kSelect) return samples;
  const __m256 centred = _mm256_sub_ps(samples, _mm256_set1_ps(plan.subtract[c]));
  const __m256 scaled = _mm256_mul_ps(centred, _mm256_set1_ps(plan.multiply[c]));
  return _mm256_mul_ps(scaled, _mm256_set1_ps(plan.range));
}

// The values of channel c of the output.
template <typename Stored, OutputType kType, PixelOp kOp>
L3_STORE void ConvertRun(const OutputPlan& plan, uint32_t c, const Planes<Stored>& planes,
                         uint32_t width, OutputValueType<kType>* out) {
  uint32_t x = 0;
  for (; x + kFloats <= width; x += kFloats) {
    ConvertFloats<kType>(OutputFloats<Stored, kOp>(plan, c, planes, x), out + x);
  }
  if (x < width) {
    OutputValueType<kType> last[kFloats];
    ConvertFloats<kType>(OutputFloats<Stored, kOp>(plan, c, planes, x), last);
    std::copy_n(last, width - x, out + x);
  }
}

template <typename Stored, OutputType kType>
L3_STORE void ConvertRun(const OutputPlan& plan, uint32_t c, const Planes<Stored>& planes,
                         uint32_t width, OutputValueType<kType>* out) {
  if (plan.op == PixelOp::kMix) {
    return ConvertRun<Stored, kType, PixelOp::kMix>(plan, c, planes, width, out);
  }
  if (plan.source[c] == kFillChannel) {
    std::fill_n(out, width, ConvertValue<kType>(plan.fill[c]));
  } else if (plan.op == PixelOp::kScale) {
    ConvertRun<Stored, kType, PixelOp::kScale>(plan, c, planes, width, out);
  } else if constexpr (kType == (sizeof(Stored) == 1 ? OutputType::kU8 : OutputType::kU16)) {
    std::copy_n(planes.Source(plan.source[c]), width, out);
  } else {
    ConvertRun<Stored, kType, PixelOp::kSelect>(plan, c, planes, width, out);
  }
}

template <uint32_t kBytes>
L3_STORE inline __m128i ReverseOrder() {
  alignas(16) uint8_t order[16];
  for (uint32_t i = 0; i < 16; ++i) {
    order[i] = static_cast<uint8_t>(16 - kBytes - i / kBytes * kBytes + i % kBytes);
  }
  return LoadHalf(order);
}

// Writes the values from back to front.
template <typename Value>
L3_STORE void CopyReversed(const Value* values, uint32_t count, Value* out) {
  constexpr uint32_t kCount = 16 / sizeof(Value);
  const __m128i order = ReverseOrder<sizeof(Value)>();
  uint32_t i = 0;
  for (; i + kCount <= count; i += kCount) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + count - kCount - i),
                     _mm_shuffle_epi8(LoadHalf(values + i), order));
  }
  for (; i < count; ++i) out[count - 1 - i] = values[i];
}

// A run on its way: its samples as stored and, if that is how they leave, from back to
// front; then its values by output channel.
template <typename Stored, OutputType kType>
struct Run {
  Planes<Stored> stored;
  Planes<Stored> mirrored;
  alignas(32) OutputValueType<kType> values[kMaxChannels][kRunPixels];
};

template <typename Stored, OutputType kType>
L3_STORE void StoreRun(const ImageInfo& info, const OutputPlan& plan, uint32_t x, uint32_t y,
                       uint32_t width, Run<Stored, kType>* run) {
  using Value = OutputValueType<kType>;
  constexpr int64_t kBytes = sizeof(Value);
  Planes<Stored>* planes = &run->stored;
  int64_t stride = plan.x_stride_bytes;
  if (stride < 0) {
    for (uint32_t c = 0; c < info.channels; ++c) {
      CopyReversed(run->stored.channel[c], width, run->mirrored.channel[c]);
    }
    planes = &run->mirrored;
    stride = -stride;
    x += width - 1;
  }
  AddLuma(plan, width, planes);

  if (stride == kBytes) {
    for (uint32_t c = 0; c < plan.channels; ++c) {
      Value* out = reinterpret_cast<Value*>(plan.Place(x, y, c));
      ConvertRun<Stored, kType>(plan, c, *planes, width, out);
    }
    return;
  }
  for (uint32_t c = 0; c < plan.channels; ++c) {
    ConvertRun<Stored, kType>(plan, c, *planes, width, run->values[c]);
  }
  if constexpr (kBytes <= 2) {
    if (plan.channel_stride_bytes == kBytes && stride == kBytes * plan.channels) {
      using Lanes = std::conditional_t<kBytes == 1, x86::ByteLanes, x86::WordLanes>;
      const typename Lanes::Value* values[kMaxChannels];
      for (uint32_t c = 0; c < plan.channels; ++c) {
        values[c] = reinterpret_cast<const typename Lanes::Value*>(run->values[c]);
      }
      x86::StoreRow<Lanes>(values, plan.channels, width, plan.Place(x, y, 0));
      return;
    }
  }
  for (uint32_t c = 0; c < plan.channels; ++c) {
    uint8_t* place = plan.Place(x, y, c);
    for (uint32_t i = 0; i < width; ++i) {
      *reinterpret_cast<Value*>(place + i * stride) = run->values[c][i];
    }
  }
}

template <typename Stored, OutputType kType>
void StorePart(const ImageInfo& info, const OutputPlan& plan, const TileRect& part,
               const ImageOutput& pixels) {
  Run<Stored, kType> run = {};  // whole vectors are read
  for (uint32_t y = 0; y < part.height_px; ++y) {
    for (uint32_t x = 0; x < part.width_px; x += kRunPixels) {
      const uint32_t width = std::min(kRunPixels, part.width_px - x);
      Split(pixels.Row(y) + uint64_t{x} * info.pixel_bytes(), info.channels, width, &run.stored);
      StoreRun(info, plan, part.x_px - plan.window.x_px + x, part.y_px - plan.window.y_px + y,
               width, &run);
    }
  }
}

template <typename Stored>
void StorePart(const ImageInfo& info, const OutputPlan& plan, const TileRect& part,
               const ImageOutput& pixels) {
  switch (plan.type) {
    case OutputType::kU8: return StorePart<Stored, OutputType::kU8>(info, plan, part, pixels);
    case OutputType::kI8: return StorePart<Stored, OutputType::kI8>(info, plan, part, pixels);
    case OutputType::kU16: return StorePart<Stored, OutputType::kU16>(info, plan, part, pixels);
    case OutputType::kI16: return StorePart<Stored, OutputType::kI16>(info, plan, part, pixels);
    case OutputType::kU32: return StorePart<Stored, OutputType::kU32>(info, plan, part, pixels);
    case OutputType::kI32: return StorePart<Stored, OutputType::kI32>(info, plan, part, pixels);
    case OutputType::kF16: return StorePart<Stored, OutputType::kF16>(info, plan, part, pixels);
    case OutputType::kF32: return StorePart<Stored, OutputType::kF32>(info, plan, part, pixels);
  }
}

}  // namespace

void StoreRectAvx2(const ImageInfo& info, const OutputPlan& plan, const TileRect& rect,
                   const ImageOutput& pixels) {
  const TileRect part = ClipToWindow(plan.window, rect);
  if (part.width_px == 0) return;
  const TileRect inside = {part.x_px - rect.x_px, part.y_px - rect.y_px, part.width_px,
                           part.height_px};
  const ImageOutput from = OutputOfTile(info, pixels, inside);
  if (HasStoredRows(info, plan)) {
    for (uint32_t y = 0; y < part.height_px; ++y) {
      std::memcpy(plan.Place(part.x_px - plan.window.x_px, part.y_px - plan.window.y_px + y, 0),
                  from.Row(y), uint64_t{part.width_px} * info.pixel_bytes());
    }
    return;
  }
  info.sample_bits == 8 ? StorePart<uint8_t>(info, plan, part, from)
                        : StorePart<uint16_t>(info, plan, part, from);
}

}  // namespace l3

#endif  // defined(__x86_64__)
