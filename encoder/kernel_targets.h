// Kernels that are compiled once for each instruction set: attributes, and the choice at run time.
// Layer: encoder.
#pragma once

#include <atomic>
#include <cstdint>

#include "encoder/exact_floats.h"

namespace l3 {

enum class KernelTarget : uint32_t { kBaseline, kAvx2, kAvx512 };

// No kernels above these are picked. For tests, which compare all that the machine runs.
inline std::atomic<KernelTarget> highest_kernel_target{KernelTarget::kAvx512};

}  // namespace l3

#if defined(__x86_64__)
// Only GCC needs an option to use whole registers.
#if defined(__clang__)
#define L3_WIDE_VECTORS ""
#else
#define L3_WIDE_VECTORS ",prefer-vector-width=512"
#endif
#define L3_KERNEL_AVX2 __attribute__((target("avx2")))
#define L3_KERNEL_AVX512 __attribute__((target("avx512bw,avx512dq,avx512vl" L3_WIDE_VECTORS)))

namespace l3 {

// The last one that this machine runs.
template <class Kernels>
const Kernels& PickKernels(const Kernels& baseline, const Kernels& avx2, const Kernels& avx512) {
  const KernelTarget highest = highest_kernel_target.load(std::memory_order_relaxed);
  const bool has_avx512 = __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx512 && highest >= KernelTarget::kAvx512) return avx512;
  return __builtin_cpu_supports("avx2") && highest >= KernelTarget::kAvx2 ? avx2 : baseline;
}

}  // namespace l3
#endif
