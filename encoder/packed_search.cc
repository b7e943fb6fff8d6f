#include "encoder/packed_search.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/predictor.h"
#include "encoder/kernel_targets.h"

namespace l3 {
namespace {

constexpr uint32_t kLanes = kMaxGroupsPerRow;

#define L3_SEARCH_NAMESPACE baseline
#define L3_SEARCH_TARGET
#include "encoder/packed_search.inc"
#undef L3_SEARCH_NAMESPACE
#undef L3_SEARCH_TARGET

#if defined(__x86_64__)
#define L3_SEARCH_NAMESPACE avx2
#define L3_SEARCH_TARGET L3_KERNEL_AVX2
#include "encoder/packed_search.inc"
#undef L3_SEARCH_NAMESPACE
#undef L3_SEARCH_TARGET

#define L3_SEARCH_NAMESPACE avx512
#define L3_SEARCH_TARGET L3_KERNEL_AVX512
#include "encoder/packed_search.inc"
#undef L3_SEARCH_NAMESPACE
#undef L3_SEARCH_TARGET
#endif

}  // namespace

const PackedSearch& GetPackedSearch() {
#if defined(__x86_64__)
  return PickKernels(baseline::kSearch, avx2::kSearch, avx512::kSearch);
#else
  return baseline::kSearch;
#endif
}

}  // namespace l3
