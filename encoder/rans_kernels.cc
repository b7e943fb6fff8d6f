#include "encoder/rans_kernels.h"

#include <algorithm>

#include "core/jpeg_tile.h"
#include "encoder/kernel_targets.h"

#if defined(__x86_64__)
#include "base/x86_intrinsics.h"
#endif

namespace l3 {
namespace {

// The least sums that give the levels 1 to 14.
struct JpegLevelBegins {
  int16_t of[kJpegLevels - 2];
};
constexpr JpegLevelBegins MakeJpegLevelBegins() {
  JpegLevelBegins begins{};
  for (uint32_t sum = 1, level = 0; level < kJpegLevels - 2; ++sum) {
    if (JpegLevel(sum) > level) begins.of[level++] = static_cast<int16_t>(sum);
  }
  return begins;
}
constexpr JpegLevelBegins kJpegLevelBegins = MakeJpegLevelBegins();

// Vectors pass through these by reference: how they pass by value depends on the machine.
#define L3_KERNEL_INLINE L3_KERNEL_TARGET __attribute__((always_inline)) inline

#define L3_KERNEL_NAMESPACE baseline
#define L3_KERNEL_TARGET
#include "encoder/rans_kernels.inc"
#undef L3_KERNEL_NAMESPACE
#undef L3_KERNEL_TARGET

#if defined(__x86_64__)
// For each mask of eight words, the places of the bytes of those chosen, side by side at the end.
struct ChosenWords {
  alignas(16) uint8_t at[256][16];
};
constexpr ChosenWords MakeChosenWords() {
  ChosenWords chosen{};
  for (uint32_t mask = 0; mask < 256; ++mask) {
    uint32_t end = 16;
    for (uint32_t word = 8; word-- > 0;) {
      if ((mask >> word & 1) == 0) continue;
      end -= 2;
      chosen.at[mask][end] = static_cast<uint8_t>(2 * word);
      chosen.at[mask][end + 1] = static_cast<uint8_t>(2 * word + 1);
    }
  }
  return chosen;
}
constexpr ChosenWords kChosenWords = MakeChosenWords();

// The same, side by side at the beginning.
constexpr ChosenWords MakeFirstWords() {
  ChosenWords chosen{};
  for (uint32_t mask = 0; mask < 256; ++mask) {
    uint32_t end = 0;
    for (uint32_t word = 0; word < 8; ++word) {
      if ((mask >> word & 1) == 0) continue;
      chosen.at[mask][end] = static_cast<uint8_t>(2 * word);
      chosen.at[mask][end + 1] = static_cast<uint8_t>(2 * word + 1);
      end += 2;
    }
  }
  return chosen;
}
constexpr ChosenWords kFirstWords = MakeFirstWords();

// Writes chosen words before `pos`, and something before them. Returns where they begin.
L3_KERNEL_AVX2 inline uint8_t* StoreChosenWords(__m128i words, uint32_t mask, uint8_t* pos) {
  const __m128i places = _mm_load_si128(reinterpret_cast<const __m128i*>(kChosenWords.at[mask]));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(pos - 16), _mm_shuffle_epi8(words, places));
  return pos - 2 * __builtin_popcount(mask);
}

// What each of four vectors adds up to.
L3_KERNEL_AVX2 inline void AddUpHalves(__m256i a, __m256i b, __m256i c, __m256i d,
                                       int32_t (&total)[4]) {
  const __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
  const __m128i all =
      _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(total), all);
}

#define L3_KERNEL_NAMESPACE avx2
#define L3_KERNEL_TARGET L3_KERNEL_AVX2
#include "encoder/rans_kernels.inc"
namespace avx2 {

constexpr uint32_t kShortLanes = 16;
#define L3_MM(name) _mm256_##name
using Vector = __m256i;
#include "encoder/rans_vectors_x86.inc"
#undef L3_MM

L3_KERNEL_INLINE void Gather(const uint32_t* from, const StateWords& place, StateWords& v) {
  v = reinterpret_cast<StateWords>(_mm256_i32gather_epi32(reinterpret_cast<const int*>(from),
                                                          reinterpret_cast<__m256i>(place), 4));
}
// The low halves of states that are full go before `pos`, which moves there.
L3_KERNEL_INLINE void StoreFullStates(const StateInts& full, const StateWords& state,
                                      uint8_t*& pos) {
  const int mask = _mm256_movemask_ps(reinterpret_cast<__m256>(full));
  const __m256i low_halves =
      _mm256_and_si256(reinterpret_cast<__m256i>(state), _mm256_set1_epi32(0xFFFF));
  const __m128i words =
      _mm_packus_epi32(_mm256_castsi256_si128(low_halves), _mm256_extracti128_si256(low_halves, 1));
  pos = StoreChosenWords(words, static_cast<uint32_t>(mask), pos);
}
// What each of four vectors adds up to.
L3_KERNEL_INLINE void AddUp(const Pairs (&v)[4], int32_t (&total)[4]) {
  AddUpHalves(reinterpret_cast<__m256i>(v[0]), reinterpret_cast<__m256i>(v[1]),
              reinterpret_cast<__m256i>(v[2]), reinterpret_cast<__m256i>(v[3]), total);
}

// Words that are weighed together.
constexpr uint32_t kWeighLanes = 8;
using WeighWords = __m128i;

// In which of them the level is below `begin`.
L3_KERNEL_INLINE uint32_t LevelsBelow(const uint8_t* level, uint8_t begin) {
  const __m128i levels = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(level));
  return static_cast<uint32_t>(
      _mm_movemask_epi8(_mm_cmpgt_epi8(_mm_set1_epi8(static_cast<char>(begin)), levels)));
}
// The order in which those of a mask come first.
L3_KERNEL_INLINE void FindOrder(uint32_t mask, WeighWords& order) {
  order = _mm_load_si128(reinterpret_cast<const __m128i*>(kFirstWords.at[mask]));
}
// clamp((tap - reference) >> shift) * weight >> 4; if not wide, without clamp and shift.
template <bool kWide>
L3_KERNEL_INLINE void WeighDifferences(const WeighWords& tap, const WeighWords& reference,
                                       const __m128i& shift, const WeighWords& weight,
                                       WeighWords& weighted) {
  __m128i difference = _mm_sub_epi16(tap, reference);
  if constexpr (kWide) {
    const __m256i wide =
        _mm256_sub_epi32(_mm256_cvtepu16_epi32(tap), _mm256_cvtepu16_epi32(reference));
    const __m256i shifted = _mm256_sra_epi32(wide, shift);
    difference =
        _mm_packs_epi32(_mm256_castsi256_si128(shifted), _mm256_extracti128_si256(shifted, 1));
    difference = _mm_max_epi16(difference, _mm_set1_epi16(-kMaxRansDifference));
    difference = _mm_min_epi16(difference, _mm_set1_epi16(kMaxRansDifference));
  }
  weighted = _mm_srai_epi16(_mm_mullo_epi16(difference, weight), 4);
}
L3_KERNEL_INLINE void StoreOrdered(const WeighWords& words, const WeighWords& order, int16_t* out) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_shuffle_epi8(words, order));
}

constexpr auto* kChoose = Choose;

}  // namespace avx2
#include "encoder/rans_kernels_x86.inc"
#undef L3_KERNEL_NAMESPACE
#undef L3_KERNEL_TARGET

#define L3_KERNEL_NAMESPACE avx512
#define L3_KERNEL_TARGET L3_KERNEL_AVX512
#include "encoder/rans_kernels.inc"
namespace avx512 {

constexpr uint32_t kShortLanes = 32;
#define L3_MM(name) _mm512_##name
using Vector = __m512i;
#include "encoder/rans_vectors_x86.inc"
#undef L3_MM

L3_KERNEL_INLINE void Gather(const uint32_t* from, const StateWords& place, StateWords& v) {
  v = reinterpret_cast<StateWords>(
      _mm512_i32gather_epi32(reinterpret_cast<__m512i>(place), from, 4));
}
// The low halves of states that are full go before `pos`, which moves there.
L3_KERNEL_INLINE void StoreFullStates(const StateInts& full, const StateWords& state,
                                      uint8_t*& pos) {
  const uint32_t mask = _mm512_movepi32_mask(reinterpret_cast<__m512i>(full));
  const __m256i words = _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(state));
  pos = StoreChosenWords(_mm256_extracti128_si256(words, 1), mask >> 8, pos);
  pos = StoreChosenWords(_mm256_castsi256_si128(words), mask & 0xFF, pos);
}
L3_KERNEL_INLINE __m256i AddHalves(const Pairs& v) {
  const __m512i all = reinterpret_cast<__m512i>(v);
  return _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
}
// What each of four vectors adds up to.
L3_KERNEL_INLINE void AddUp(const Pairs (&v)[4], int32_t (&total)[4]) {
  AddUpHalves(AddHalves(v[0]), AddHalves(v[1]), AddHalves(v[2]), AddHalves(v[3]), total);
}

constexpr uint32_t kWeighLanes = 32;
using WeighWords = __m512i;

L3_KERNEL_INLINE uint32_t LevelsBelow(const uint8_t* level, uint8_t begin) {
  const __m256i levels = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(level));
  return _mm256_cmplt_epu8_mask(levels, _mm256_set1_epi8(static_cast<char>(begin)));
}
L3_KERNEL_INLINE void FindOrder(uint32_t mask, WeighWords& order) {
  const __m512i places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __mmask16 low = static_cast<__mmask16>(mask);
  const __mmask16 high = static_cast<__mmask16>(mask >> 16);
  const __m512i of_low = _mm512_maskz_compress_epi32(low, places);
  const __m512i of_high =
      _mm512_maskz_compress_epi32(high, _mm512_add_epi32(places, _mm512_set1_epi32(16)));
  uint16_t words[48];
  _mm512_storeu_si512(words, _mm512_castsi256_si512(_mm512_cvtepi32_epi16(of_low)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + __builtin_popcount(low)),
                      _mm512_cvtepi32_epi16(of_high));
  order = _mm512_loadu_si512(words);
}
template <bool kWide>
L3_KERNEL_INLINE void WeighDifferences(const WeighWords& tap, const WeighWords& reference,
                                       const __m128i& shift, const WeighWords& weight,
                                       WeighWords& weighted) {
  __m512i difference = _mm512_sub_epi16(tap, reference);
  if constexpr (kWide) {
    __m256i half[2];
    for (int h = 0; h < 2; ++h) {
      const __m256i a = h == 0 ? _mm512_castsi512_si256(tap) : _mm512_extracti64x4_epi64(tap, 1);
      const __m256i b =
          h == 0 ? _mm512_castsi512_si256(reference) : _mm512_extracti64x4_epi64(reference, 1);
      const __m512i wide = _mm512_sub_epi32(_mm512_cvtepu16_epi32(a), _mm512_cvtepu16_epi32(b));
      half[h] = _mm512_cvtsepi32_epi16(_mm512_sra_epi32(wide, shift));
    }
    difference = _mm512_inserti64x4(_mm512_castsi256_si512(half[0]), half[1], 1);
    difference = _mm512_max_epi16(difference, _mm512_set1_epi16(-kMaxRansDifference));
    difference = _mm512_min_epi16(difference, _mm512_set1_epi16(kMaxRansDifference));
  }
  weighted = _mm512_srai_epi16(_mm512_mullo_epi16(difference, weight), 4);
}
L3_KERNEL_INLINE void StoreOrdered(const WeighWords& words, const WeighWords& order, int16_t* out) {
  _mm512_storeu_si512(out, _mm512_permutexvar_epi16(order, words));
}

L3_KERNEL_INLINE __m512i LoadWords(const uint16_t* p) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// 16 samples at a time: those that are chosen move together.
L3_KERNEL_TARGET uint32_t ChooseTogether(const RansChoice& from, const RansChosen& to) {
  uint32_t chosen = 0;
  const __m128i min_level = _mm_set1_epi8(static_cast<char>(from.min_level));
  const __m128i levels = _mm_set1_epi8(static_cast<char>(from.end_level - from.min_level));
  for (uint32_t i = 0; i < from.count; i += kBlock) {
    const uint32_t samples = from.count - i < kBlock ? from.count - i : kBlock;
    const __m128i level = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from.level + i));
    const __mmask16 mask = static_cast<__mmask16>(
        _mm_cmplt_epu8_mask(_mm_sub_epi8(level, min_level), levels) & ((1u << samples) - 1));
    if (mask == 0) continue;
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(to.level + chosen),
        _mm512_cvtepi32_epi8(_mm512_maskz_compress_epi32(mask, _mm512_cvtepu8_epi32(level))));
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(to.value + chosen),
        _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(mask, LoadWords(from.value + i))));
    __m512i sum = _mm512_slli_epi32(LoadWords(from.north + i), 6);
    for (uint32_t k = 0; k < from.unknowns; ++k) {
      const __m512i difference =
          _mm512_sub_epi32(LoadWords(from.tap[k] + i), LoadWords(from.reference[k] + i));
      _mm512_storeu_si512(to.difference[k] + chosen, _mm512_maskz_compress_epi32(mask, difference));
      sum = _mm512_add_epi32(
          sum, _mm512_mullo_epi32(difference, _mm512_set1_epi32(from.coefficient[k])));
    }
    _mm512_storeu_si512(to.sum + chosen, _mm512_maskz_compress_epi32(mask, sum));
    chosen += static_cast<uint32_t>(__builtin_popcount(mask));
  }
  return chosen;
}
constexpr auto* kChoose = ChooseTogether;

}  // namespace avx512
#include "encoder/rans_kernels_x86.inc"
#undef L3_KERNEL_NAMESPACE
#undef L3_KERNEL_TARGET
#endif

#undef L3_KERNEL_INLINE

}  // namespace

RansSymbols::RansSymbols(const RansModel& model) : channel{} {
  for (uint32_t p = 0; p < kMaxChannels; ++p) {
    for (uint32_t level = 0; level < kRansLevels; ++level) {
      const uint16_t* frequency = model.frequency[model.table_of_level[p][level]];
      uint32_t start = 0;
      for (uint32_t token = 0; token < kRansTokens; ++token) {
        // 1 in place of 0: pixels that change may ask for a token that was never counted.
        channel[p].entry[level * kRansTokens + token] =
            std::max<uint32_t>(frequency[token], 1) | start << 16;
        start += frequency[token];
      }
    }
    channel[p].entry[kIdleLevel * kRansTokens] = kRansScale;
  }
}

const RansKernels& GetRansKernels() {
#if defined(__x86_64__)
  return PickKernels(baseline::kKernels, avx2::kX86Kernels, avx512::kX86Kernels);
#else
  return baseline::kKernels;
#endif
}

}  // namespace l3
