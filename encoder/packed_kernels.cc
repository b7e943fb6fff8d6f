#include "encoder/packed_kernels.h"

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
#endif

namespace l3 {
namespace {

#define L3_KERNEL_INLINE L3_KERNEL_TARGET __attribute__((always_inline)) inline

// Bit lengths of `count` values, a multiple of 32, and the sums of 8 bit lengths each.
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
