// Vectors of 32 bytes whose lanes hold values. Layer: cpu, x86-64 only.
// Every function carries its instruction set as an attribute, so sources need
// no compiler flags: flags would also reach inline functions of other headers,
// and the linker might keep those copies for machines that cannot run them.
#pragma once

#include <cstdint>

#include "base/x86_intrinsics.h"

#define L3_AVX2 __attribute__((target("avx2,popcnt")))
#define L3_AVX512 __attribute__((target("avx2,popcnt,avx512f,avx512bw,avx512vl,avx512vbmi")))

namespace l3::x86 {

constexpr uint32_t kVectorBytes = 32;

L3_AVX2 inline __m256i Load(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
L3_AVX2 inline void Store(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
L3_AVX2 inline __m128i LoadHalf(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
L3_AVX2 inline __m256i Join(__m128i low, __m128i high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}
// [low half of a, low half of b] and [high half of a, high half of b].
L3_AVX2 inline __m256i JoinLow(__m256i a, __m256i b) {
  return _mm256_permute2x128_si256(a, b, 0x20);
}
L3_AVX2 inline __m256i JoinHigh(__m256i a, __m256i b) {
  return _mm256_permute2x128_si256(a, b, 0x31);
}
L3_AVX2 inline __m256i Not(__m256i v) { return _mm256_xor_si256(v, _mm256_set1_epi8(-1)); }
L3_AVX2 inline bool IsZero(__m256i v) { return _mm256_testz_si256(v, v) != 0; }

// Values of 8-bit images. All arithmetic is modulo 2^8.
struct ByteLanes {
  using Value = uint8_t;
  static constexpr uint32_t kCount = 32;

  L3_AVX2 static __m256i Broadcast(uint32_t v) { return _mm256_set1_epi8(static_cast<char>(v)); }
  L3_AVX2 static __m256i Add(__m256i a, __m256i b) { return _mm256_add_epi8(a, b); }
  L3_AVX2 static __m256i Sub(__m256i a, __m256i b) { return _mm256_sub_epi8(a, b); }
  // a - b, or 0 if that is negative
  L3_AVX2 static __m256i Excess(__m256i a, __m256i b) { return _mm256_subs_epu8(a, b); }
  // (a + b + 1) >> 1
  L3_AVX2 static __m256i AverageUp(__m256i a, __m256i b) { return _mm256_avg_epu8(a, b); }
  L3_AVX2 static __m256i Halve(__m256i a) {
    return _mm256_and_si256(_mm256_srli_epi16(a, 1), _mm256_set1_epi8(0x7F));
  }
  // Prefix sums within each half of the vector.
  L3_AVX2 static __m256i PrefixSums(__m256i v) {
    v = Add(v, _mm256_slli_si256(v, 1));
    v = Add(v, _mm256_slli_si256(v, 2));
    v = Add(v, _mm256_slli_si256(v, 4));
    return Add(v, _mm256_slli_si256(v, 8));
  }
  // The last lane of each half, in all lanes of that half.
  L3_AVX2 static __m256i SpreadLast(__m256i v) {
    return _mm256_shuffle_epi8(v, _mm256_set1_epi8(15));
  }
  // In each half, lanes of a and b in turn: the first ones, the last ones.
  L3_AVX2 static __m256i ZipLow(__m256i a, __m256i b) { return _mm256_unpacklo_epi8(a, b); }
  L3_AVX2 static __m256i ZipHigh(__m256i a, __m256i b) { return _mm256_unpackhi_epi8(a, b); }
  // The same for pairs of lanes.
  L3_AVX2 static __m256i ZipPairsLow(__m256i a, __m256i b) { return _mm256_unpacklo_epi16(a, b); }
  L3_AVX2 static __m256i ZipPairsHigh(__m256i a, __m256i b) { return _mm256_unpackhi_epi16(a, b); }
};

// The same for values of 16-bit images, modulo 2^16.
struct WordLanes {
  using Value = uint16_t;
  static constexpr uint32_t kCount = 16;

  L3_AVX2 static __m256i Broadcast(uint32_t v) { return _mm256_set1_epi16(static_cast<short>(v)); }
  L3_AVX2 static __m256i Add(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
  L3_AVX2 static __m256i Sub(__m256i a, __m256i b) { return _mm256_sub_epi16(a, b); }
  L3_AVX2 static __m256i Excess(__m256i a, __m256i b) { return _mm256_subs_epu16(a, b); }
  L3_AVX2 static __m256i AverageUp(__m256i a, __m256i b) { return _mm256_avg_epu16(a, b); }
  L3_AVX2 static __m256i Halve(__m256i a) { return _mm256_srli_epi16(a, 1); }
  L3_AVX2 static __m256i PrefixSums(__m256i v) {
    v = Add(v, _mm256_slli_si256(v, 2));
    v = Add(v, _mm256_slli_si256(v, 4));
    return Add(v, _mm256_slli_si256(v, 8));
  }
  L3_AVX2 static __m256i SpreadLast(__m256i v) {
    return _mm256_shuffle_epi8(v, _mm256_set1_epi16(0x0F0E));
  }
  L3_AVX2 static __m256i ZipLow(__m256i a, __m256i b) { return _mm256_unpacklo_epi16(a, b); }
  L3_AVX2 static __m256i ZipHigh(__m256i a, __m256i b) { return _mm256_unpackhi_epi16(a, b); }
  L3_AVX2 static __m256i ZipPairsLow(__m256i a, __m256i b) { return _mm256_unpacklo_epi32(a, b); }
  L3_AVX2 static __m256i ZipPairsHigh(__m256i a, __m256i b) { return _mm256_unpackhi_epi32(a, b); }
};

// (a + b) >> 1
template <typename Lanes>
L3_AVX2 inline __m256i AverageDown(__m256i a, __m256i b) {
  const __m256i odd = _mm256_and_si256(_mm256_xor_si256(a, b), Lanes::Broadcast(1));
  return Lanes::Sub(Lanes::AverageUp(a, b), odd);
}

// (a - b + 1) >> 1, as -((b - a) >> 1)
template <typename Lanes>
L3_AVX2 inline __m256i HalfDifference(__m256i a, __m256i b) {
  constexpr uint32_t kHalf = 1u << (8 * sizeof(typename Lanes::Value) - 1);
  return Lanes::Sub(Lanes::Broadcast(kHalf), Lanes::AverageUp(b, Not(a)));
}

// UnfoldResidual of core/residual.h.
template <typename Lanes>
L3_AVX2 inline __m256i Unfold(__m256i folded) {
  const __m256i odd = _mm256_and_si256(folded, Lanes::Broadcast(1));
  return _mm256_xor_si256(Lanes::Halve(folded), Lanes::Sub(_mm256_setzero_si256(), odd));
}

}  // namespace l3::x86
