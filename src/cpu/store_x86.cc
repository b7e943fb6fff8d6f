// The vector operations of x86-64 for store_stage.inc, which is the store stage. Layer: cpu.
#include "cpu/cpu_engine.h"

#if defined(__x86_64__)

#include <type_traits>

#include "cpu/store_stage.h"
#include "cpu/x86_interleave.h"
#include "cpu/x86_lanes.h"

namespace l3 {
namespace {

using x86::LoadHalf;
using Floats = __m256;

#define L3_STORE __attribute__((target("avx2,popcnt,f16c")))

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

// Where the words of a channel are, once three blocks of words are blended.
struct SplitWordsTable {
  alignas(16) uint8_t shuffle[3][16];
};
constexpr SplitWordsTable MakeSplitWordsTable() {
  SplitWordsTable table{};
  for (uint32_t channel = 0; channel < 3; ++channel) {
    for (uint32_t i = 0; i < 16; ++i) {
      table.shuffle[channel][i] = static_cast<uint8_t>((3 * (i / 2) + channel) % 8 * 2 + i % 2);
    }
  }
  return table;
}
constexpr SplitWordsTable kSplitWordsTable = MakeSplitWordsTable();

// Eight pixels of three words to place x of their channels. No two blocks have a channel's words in
// the same place, so they are blended; then one shuffle brings them into order.
template <typename Stored>
L3_STORE inline void SplitWords(const Stored* samples, Stored* const* channels, uint32_t x) {
  const __m128i a = LoadHalf(samples);
  const __m128i b = LoadHalf(samples + 8);
  const __m128i c = LoadHalf(samples + 16);
  // Bit i of a mask: word i is from the second.
  const __m128i words[3] = {
      _mm_blend_epi16(_mm_blend_epi16(a, b, 0b10010010), c, 0b00100100),
      _mm_blend_epi16(_mm_blend_epi16(a, b, 0b00100100), c, 0b01001001),
      _mm_blend_epi16(_mm_blend_epi16(a, b, 0b01001001), c, 0b10010010),
  };
  for (uint32_t i = 0; i < 3; ++i) {
    const __m128i order = LoadHalf(kSplitWordsTable.shuffle[i]);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(channels[i] + x),
                     _mm_shuffle_epi8(words[i], order));
  }
}

// Shares the samples of whole blocks of pixels out to planes. Returns how many pixels they have.
template <uint32_t kChannels, typename Stored>
L3_STORE uint32_t SplitBlocks(const Stored* samples, uint32_t width, Stored* const* channels) {
  if constexpr (kChannels != 3 || sizeof(Stored) > 2) return 0;
  uint32_t x = 0;
  if constexpr (sizeof(Stored) == 2) {
    for (; x + 8 <= width; x += 8) SplitWords(samples + 3 * x, channels, x);
    return x;
  }
  for (; x + 16 <= width; x += 16) {
    const __m128i block[3] = {LoadHalf(samples + 3 * x), LoadHalf(samples + 3 * x + 16),
                              LoadHalf(samples + 3 * x + 32)};
    for (uint32_t c = 0; c < 3; ++c) {
      __m128i channel = _mm_setzero_si128();
      for (uint32_t b = 0; b < 3; ++b) {
        const __m128i order = LoadHalf(kSplitTable.shuffle[c][b]);
        channel = _mm_or_si128(channel, _mm_shuffle_epi8(block[b], order));
      }
      _mm_storeu_si128(reinterpret_cast<__m128i*>(channels[c] + x), channel);
    }
  }
  return x;
}

L3_STORE inline Floats LoadFloats(const uint8_t* samples) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(samples));
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}
L3_STORE inline Floats LoadFloats(const int8_t* samples) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(samples));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}
L3_STORE inline Floats LoadFloats(const uint16_t* samples) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(LoadHalf(samples)));
}
L3_STORE inline Floats LoadFloats(const int16_t* samples) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(LoadHalf(samples)));
}

L3_STORE inline Floats LoadFloats(const int32_t* samples) {
  return _mm256_cvtepi32_ps(x86::Load(samples));
}
L3_STORE inline Floats LoadFloats(const uint32_t* samples) {
  alignas(32) float values[kFloats];
  for (uint32_t i = 0; i < kFloats; ++i) values[i] = static_cast<float>(samples[i]);
  return _mm256_load_ps(values);
}
L3_STORE inline Floats LoadFloats(const float* samples) { return _mm256_loadu_ps(samples); }
// Values of halves; whole vectors are read and written.
L3_STORE inline void ExpandHalves(const uint16_t* halves, uint32_t count, float* out) {
  for (uint32_t i = 0; i < count; i += kFloats) {
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(LoadHalf(halves + i)));
  }
}

L3_STORE inline Floats FillFloats(float v) { return _mm256_set1_ps(v); }
L3_STORE inline Floats Plus(Floats a, Floats b) { return _mm256_add_ps(a, b); }
L3_STORE inline Floats Minus(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
L3_STORE inline Floats Times(Floats a, Floats b) { return _mm256_mul_ps(a, b); }

// RoundToRange, for ranges that floats can count.
L3_STORE inline __m256i Round(Floats v, float min, float max) {
  v = _mm256_and_ps(v, _mm256_cmp_ps(v, v, _CMP_ORD_Q));  // NaN becomes 0
  v = _mm256_min_ps(_mm256_max_ps(v, _mm256_set1_ps(min)), _mm256_set1_ps(max));
  const __m256i whole = _mm256_cvttps_epi32(v);
  const __m256 rest = _mm256_sub_ps(v, _mm256_cvtepi32_ps(whole));  // exact
  const __m256 up = _mm256_cmp_ps(rest, _mm256_set1_ps(0.5f), _CMP_GE_OQ);
  const __m256 down = _mm256_cmp_ps(rest, _mm256_set1_ps(-0.5f), _CMP_LE_OQ);
  return _mm256_add_epi32(_mm256_sub_epi32(whole, _mm256_castps_si256(up)),
                          _mm256_castps_si256(down));
}

// Whether all values are between -2^30 and 2^30; NaNs are not.
constexpr float kInt32Bound = 1u << 30;
L3_STORE inline bool FitInInt32(Floats v) {
  const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
  return _mm256_movemask_ps(_mm256_cmp_ps(magnitude, _mm256_set1_ps(kInt32Bound), _CMP_LT_OQ)) ==
         0xFF;
}

// ConvertValue of eight values.
template <OutputType kType>
L3_STORE inline void ConvertFloats(Floats v, OutputValueType<kType>* out) {
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
  } else if (FitInInt32(v)) {
    constexpr float kMin = kType == OutputType::kU32 ? 0 : -kInt32Bound;
    const __m256i rounded = Round(v, kMin, kInt32Bound);
    if constexpr (sizeof(Value) == 4) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), rounded);
    } else {
      const __m128i low = _mm256_castsi256_si128(rounded);
      const __m128i high = _mm256_extracti128_si256(rounded, 1);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_cvtepi32_epi64(low));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 4), _mm256_cvtepi32_epi64(high));
    }
  } else {
    float values[kFloats];
    _mm256_storeu_ps(values, v);
    for (uint32_t i = 0; i < kFloats; ++i) out[i] = ConvertValue<kType>(values[i]);
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

// 16 bytes of values, from back to front.
template <typename Value>
L3_STORE inline void StoreReversed(const Value* values, Value* out) {
  const __m128i reversed = _mm_shuffle_epi8(LoadHalf(values), ReverseOrder<sizeof(Value)>());
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), reversed);
}

// Values of up to so many bytes can be interleaved.
constexpr int64_t kMaxInterleavedBytes = 2;

template <typename Value>
L3_STORE void Interleave(const Value* const* values, uint32_t channels, uint32_t width,
                         uint8_t* out) {
  using Lanes = std::conditional_t<sizeof(Value) == 1, x86::ByteLanes, x86::WordLanes>;
  const typename Lanes::Value* lanes[kMaxChannels];
  for (uint32_t c = 0; c < channels; ++c) {
    lanes[c] = reinterpret_cast<const typename Lanes::Value*>(values[c]);
  }
  x86::StoreRow<Lanes>(lanes, channels, width, out);
}

// Values of a vector, and half of it.
using Block = __m256i;
using BlockHalf = __m128i;
template <typename Value>
constexpr uint32_t kMostLanes = sizeof(Value) == 1 ? 8 : 16 / sizeof(Value);

L3_STORE inline Block LoadBlock(const void* values) { return x86::Load(values); }
L3_STORE inline BlockHalf HalfOf(Block v, uint32_t half) {
  return half == 0 ? _mm256_castsi256_si128(v) : _mm256_extracti128_si256(v, 1);
}
// In each half, values of a and b in turn: the first ones, the last ones.
template <uint32_t kBytes>
L3_STORE inline Block ZipLow(Block a, Block b) {
  if constexpr (kBytes == 1) return _mm256_unpacklo_epi8(a, b);
  if constexpr (kBytes == 8) return _mm256_unpacklo_epi64(a, b);
  return kBytes == 2 ? _mm256_unpacklo_epi16(a, b) : _mm256_unpacklo_epi32(a, b);
}
template <uint32_t kBytes>
L3_STORE inline Block ZipHigh(Block a, Block b) {
  if constexpr (kBytes == 1) return _mm256_unpackhi_epi8(a, b);
  if constexpr (kBytes == 8) return _mm256_unpackhi_epi64(a, b);
  return kBytes == 2 ? _mm256_unpackhi_epi16(a, b) : _mm256_unpackhi_epi32(a, b);
}
// The field of so many bytes with this number.
template <uint32_t kBytes, uint32_t kIndex>
L3_STORE inline void StoreField(BlockHalf v, uint8_t* out) {
  if constexpr (kBytes == 16) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), v);
  } else if constexpr (kBytes == 8) {
    const __m128i field = kIndex == 0 ? v : _mm_unpackhi_epi64(v, v);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), field);
  } else if constexpr (kBytes == 4) {
    const int field = _mm_extract_epi32(v, kIndex);
    std::memcpy(out, &field, kBytes);
  } else {
    const uint16_t field = static_cast<uint16_t>(_mm_extract_epi16(v, kIndex));
    std::memcpy(out, &field, kBytes);
  }
}

#include "cpu/store_stage.inc"

#undef L3_STORE

}  // namespace

void StoreRectAvx2(const ImageInfo& info, const OutputPlan& plan, const TileRect& rect,
                   const ImageOutput& pixels) {
  StoreRectInRuns(info, plan, rect, pixels);
}

void StoreGroupsAvx2(const GroupPart* groups, size_t count, const TileRect& rect) {
  StoreGroupsInRuns(groups, count, rect);
}

}  // namespace l3

#endif  // defined(__x86_64__)
