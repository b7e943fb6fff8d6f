#include "encoder/packed_kernels.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "core/color.h"
#include "core/predictor.h"
#include "core/residual.h"
#include "encoder/kernel_targets.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace l3 {
namespace {

#define L3_KERNEL_INLINE L3_KERNEL_TARGET __attribute__((always_inline)) inline

// Bit lengths of `count` values, a multiple of 32, and the sums of 8 bit lengths each.
#if defined(__ARM_NEON)
inline void StoreWidths(uint8x16_t lengths, uint8_t* widths, uint64_t* sum_of_8) {
  vst1q_u8(widths, lengths);
  vst1q_u64(sum_of_8, vpaddlq_u32(vpaddlq_u16(vpaddlq_u8(lengths))));
}

void FindWidths(const uint8_t* values, uint32_t count, uint8_t* widths, uint64_t* sum_of_8) {
  for (uint32_t i = 0; i < count; i += 16) {
    StoreWidths(vsubq_u8(vdupq_n_u8(8), vclzq_u8(vld1q_u8(values + i))), widths + i,
                sum_of_8 + i / 8);
  }
}

void FindWidths(const uint16_t* values, uint32_t count, uint8_t* widths, uint64_t* sum_of_8) {
  for (uint32_t i = 0; i < count; i += 16) {
    const uint8x8_t low = vmovn_u16(vclzq_u16(vld1q_u16(values + i)));
    const uint8x16_t zeros = vmovn_high_u16(low, vclzq_u16(vld1q_u16(values + i + 8)));
    StoreWidths(vsubq_u8(vdupq_n_u8(16), zeros), widths + i, sum_of_8 + i / 8);
  }
}
#else
template <typename Value>
void FindWidths(const Value* values, uint32_t count, uint8_t* widths, uint64_t* sum_of_8) {
  for (uint32_t i = 0; i < count; i += 8) {
    uint64_t sum = 0;
    for (uint32_t k = i; k < i + 8; ++k) {
      widths[k] = static_cast<uint8_t>(BitLength(values[k]));
      sum += widths[k];
    }
    sum_of_8[i / 8] = sum;
  }
}
#endif

#define L3_KERNEL_NAMESPACE baseline
#define L3_KERNEL_TARGET
#include "encoder/packed_kernels.inc"
#undef L3_KERNEL_NAMESPACE
#undef L3_KERNEL_TARGET

#if defined(__x86_64__)
// Look-ups of both halves of a byte.
L3_KERNEL_AVX2 inline __m256i ByteLengths(__m256i bytes) {
  const __m256i low = _mm256_setr_epi8(0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4,  //
                                       0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4);
  const __m256i high = _mm256_setr_epi8(0, 5, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8, 8, 8,  //
                                        0, 5, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8, 8, 8);
  const __m256i top = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), _mm256_set1_epi8(15));
  // A byte from 128 on gives 0 in the first look-up, and 8 in the second.
  return _mm256_max_epu8(_mm256_shuffle_epi8(low, bytes), _mm256_shuffle_epi8(high, top));
}

L3_KERNEL_AVX2 inline void StoreWidths(__m256i lengths, uint8_t* widths, uint64_t* sum_of_8) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(widths), lengths);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sum_of_8),
                      _mm256_sad_epu8(lengths, _mm256_setzero_si256()));
}

L3_KERNEL_AVX2 void FindWidthsAvx2(const uint8_t* values, uint32_t count, uint8_t* widths,
                                   uint64_t* sum_of_8) {
  for (uint32_t i = 0; i < count; i += 32) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + i));
    StoreWidths(ByteLengths(bytes), widths + i, sum_of_8 + i / 8);
  }
}

L3_KERNEL_AVX2 void FindWidthsAvx2(const uint16_t* values, uint32_t count, uint8_t* widths,
                                   uint64_t* sum_of_8) {
  const __m256i low_byte = _mm256_set1_epi16(0xFF);
  for (uint32_t i = 0; i < count; i += 32) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + i));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + i + 16));
    const __m256i low =
        _mm256_packus_epi16(_mm256_and_si256(a, low_byte), _mm256_and_si256(b, low_byte));
    const __m256i high = _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
    const __m256i has_high = _mm256_min_epu8(high, _mm256_set1_epi8(1));
    const __m256i longer = _mm256_add_epi8(ByteLengths(high), _mm256_slli_epi16(has_high, 3));
    const __m256i lengths = _mm256_max_epu8(ByteLengths(low), longer);
    StoreWidths(_mm256_permute4x64_epi64(lengths, 0xD8), widths + i, sum_of_8 + i / 8);
  }
}

#define FindWidths FindWidthsAvx2

#define L3_KERNEL_NAMESPACE avx2
#define L3_KERNEL_TARGET L3_KERNEL_AVX2
#include "encoder/packed_kernels.inc"
#undef L3_KERNEL_NAMESPACE
#undef L3_KERNEL_TARGET

#define L3_KERNEL_NAMESPACE avx512
#define L3_KERNEL_TARGET L3_KERNEL_AVX512
#include "encoder/packed_kernels.inc"
#undef L3_KERNEL_NAMESPACE
#undef L3_KERNEL_TARGET

#undef FindWidths
#endif

#undef L3_KERNEL_INLINE

}  // namespace

template <typename Value>
const PackedKernels<Value>& GetPackedKernels() {
#if defined(__x86_64__)
  return PickKernels(baseline::kKernels<Value>, avx2::kKernels<Value>, avx512::kKernels<Value>);
#else
  return baseline::kKernels<Value>;
#endif
}

template const PackedKernels<uint8_t>& GetPackedKernels<uint8_t>();
template const PackedKernels<uint16_t>& GetPackedKernels<uint16_t>();

}  // namespace l3
