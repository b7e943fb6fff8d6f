#include "encoder/rans_kernels.h"

#include "encoder/kernel_targets.h"

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
#undef L3_KERNEL_NAMESPACE
#undef L3_KERNEL_TARGET

#define L3_KERNEL_NAMESPACE avx512
#define L3_KERNEL_TARGET L3_KERNEL_AVX512
#include "encoder/rans_kernels.inc"
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
  return PickKernels(baseline::kKernels, avx2::kKernels, avx512::kKernels);
#else
  return baseline::kKernels;
#endif
}

}  // namespace l3
