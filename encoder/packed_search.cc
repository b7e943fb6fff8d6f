#include "encoder/packed_search.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/predictor.h"

namespace l3 {
namespace {

constexpr uint32_t kLanes = kMaxGroupsPerRow;

#define L3_SEARCH_NAMESPACE baseline
#define L3_SEARCH_TARGET
#include "encoder/packed_search.inc"
#undef L3_SEARCH_NAMESPACE
#undef L3_SEARCH_TARGET

#if defined(__x86_64__)
// GCC alone has to be told to use whole registers.
#if defined(__clang__)
#define L3_WIDE_VECTORS ""
#else
#define L3_WIDE_VECTORS ",prefer-vector-width=512"
#endif

#define L3_SEARCH_NAMESPACE avx2
#define L3_SEARCH_TARGET __attribute__((target("avx2")))
#include "encoder/packed_search.inc"
#undef L3_SEARCH_NAMESPACE
#undef L3_SEARCH_TARGET

#define L3_SEARCH_NAMESPACE avx512
#define L3_SEARCH_TARGET __attribute__((target("avx512bw,avx512dq,avx512vl" L3_WIDE_VECTORS)))
#include "encoder/packed_search.inc"
#undef L3_SEARCH_NAMESPACE
#undef L3_SEARCH_TARGET
#endif

}  // namespace

const PackedSearch& GetPackedSearch() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return avx512::kSearch;
  }
  if (__builtin_cpu_supports("avx2")) return avx2::kSearch;
#endif
  return baseline::kSearch;
}

}  // namespace l3
