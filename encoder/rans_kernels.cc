#include "encoder/rans_kernels.h"

#include "encoder/kernel_targets.h"
#if defined(__x86_64__)
#include "cpu/x86_lanes.h"
#endif

namespace l3 {
namespace {

// Vectors pass through these by reference: how they pass by value depends on the machine.
#define L3_KERNEL_INLINE L3_KERNEL_TARGET __attribute__((always_inline)) inline

#define L3_KERNEL_NAMESPACE baseline
#define L3_KERNEL_TARGET
#include "encoder/rans_kernels.inc"
#undef L3_KERNEL_NAMESPACE
#undef L3_KERNEL_TARGET

#if defined(__x86_64__)
#define L3_KERNEL_NAMESPACE avx2
#define L3_KERNEL_TARGET L3_KERNEL_AVX2
#include "encoder/rans_kernels.inc"
namespace avx2 {

// Vectors of 16-bit numbers, and of pairs of them.
constexpr uint32_t kShortLanes = 16;
using Shorts = int16_t __attribute__((vector_size(2 * kShortLanes)));
using Pairs = int32_t __attribute__((vector_size(2 * kShortLanes)));

// Pairs of a's and b's numbers, in an order that Unzip undoes.
L3_KERNEL_INLINE void Zip(const Shorts& a, const Shorts& b, Pairs& low, Pairs& high) {
  const __m256i x = reinterpret_cast<__m256i>(a);
  const __m256i y = reinterpret_cast<__m256i>(b);
  low = reinterpret_cast<Pairs>(_mm256_unpacklo_epi16(x, y));
  high = reinterpret_cast<Pairs>(_mm256_unpackhi_epi16(x, y));
}
// Numbers of 32 bits that fit 16.
L3_KERNEL_INLINE void Unzip(const Pairs& low, const Pairs& high, Shorts& v) {
  v = reinterpret_cast<Shorts>(_mm256_packs_epi32(reinterpret_cast<__m256i>(low),
                                                 reinterpret_cast<__m256i>(high)));
}
// sum += the sum of both products of each pair
L3_KERNEL_INLINE void AddPairProducts(const Pairs& a, const Pairs& b, Pairs& sum) {
  sum += reinterpret_cast<Pairs>(_mm256_madd_epi16(reinterpret_cast<__m256i>(a),
                                                  reinterpret_cast<__m256i>(b)));
}

}  // namespace avx2
#include "encoder/rans_kernels_x86.inc"
#undef L3_KERNEL_NAMESPACE
#undef L3_KERNEL_TARGET

#define L3_KERNEL_NAMESPACE avx512
#define L3_KERNEL_TARGET L3_KERNEL_AVX512
#include "encoder/rans_kernels.inc"
namespace avx512 {

// Vectors of 16-bit numbers, and of pairs of them.
constexpr uint32_t kShortLanes = 32;
using Shorts = int16_t __attribute__((vector_size(2 * kShortLanes)));
using Pairs = int32_t __attribute__((vector_size(2 * kShortLanes)));

// Pairs of a's and b's numbers, in an order that Unzip undoes.
L3_KERNEL_INLINE void Zip(const Shorts& a, const Shorts& b, Pairs& low, Pairs& high) {
  const __m512i x = reinterpret_cast<__m512i>(a);
  const __m512i y = reinterpret_cast<__m512i>(b);
  low = reinterpret_cast<Pairs>(_mm512_unpacklo_epi16(x, y));
  high = reinterpret_cast<Pairs>(_mm512_unpackhi_epi16(x, y));
}
// Numbers of 32 bits that fit 16.
L3_KERNEL_INLINE void Unzip(const Pairs& low, const Pairs& high, Shorts& v) {
  v = reinterpret_cast<Shorts>(_mm512_packs_epi32(reinterpret_cast<__m512i>(low),
                                                 reinterpret_cast<__m512i>(high)));
}
// sum += the sum of both products of each pair
L3_KERNEL_INLINE void AddPairProducts(const Pairs& a, const Pairs& b, Pairs& sum) {
  sum += reinterpret_cast<Pairs>(_mm512_madd_epi16(reinterpret_cast<__m512i>(a),
                                                  reinterpret_cast<__m512i>(b)));
}

}  // namespace avx512
#include "encoder/rans_kernels_x86.inc"
#undef L3_KERNEL_NAMESPACE
#undef L3_KERNEL_TARGET
#endif

#undef L3_KERNEL_INLINE

}  // namespace

RansSymbols::RansSymbols(const RansModel& model) : entry{} {
  for (uint32_t p = 0; p < kMaxChannels; ++p) {
    for (uint32_t level = 0; level < kRansLevels; ++level) {
      const uint16_t* frequency = model.frequency[model.table_of_level[p][level]];
      uint32_t start = 0;
      for (uint32_t token = 0; token < kRansTokens; ++token) {
        entry[p][level * kRansTokens + token] = frequency[token] | start << 16;
        start += frequency[token];
      }
    }
    entry[p][kIdleLevel * kRansTokens] = kRansScale;
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
