#include "encoder/rans_kernels.h"

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
// GCC alone has to be told to use whole registers.
#if defined(__clang__)
#define L3_WIDE_VECTORS ""
#else
#define L3_WIDE_VECTORS ",prefer-vector-width=512"
#endif

#define L3_KERNEL_NAMESPACE avx2
#define L3_KERNEL_TARGET __attribute__((target("avx2")))
#include "encoder/rans_kernels.inc"
#undef L3_KERNEL_NAMESPACE
#undef L3_KERNEL_TARGET

#define L3_KERNEL_NAMESPACE avx512
#define L3_KERNEL_TARGET __attribute__((target("avx512bw,avx512vl" L3_WIDE_VECTORS)))
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
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return avx512::kKernels;
  }
  if (__builtin_cpu_supports("avx2")) return avx2::kKernels;
#endif
  return baseline::kKernels;
}

}  // namespace l3
