#include "encoder/payload_check.h"

#include <cstring>

#include "core/check.h"
#include "encoder/kernel_targets.h"

namespace l3 {
namespace {

using Check = uint32_t (*)(const uint8_t* payload, uint64_t size);

// PayloadCheck() reads bytes one by one, which compilers do not turn into vectors of words.
#define L3_PAYLOAD_CHECK(name, target)                          \
  target uint32_t name(const uint8_t* payload, uint64_t size) { \
    const uint64_t word_count = size / 4 - 1;                   \
    uint32_t sum = 0;                                           \
    for (uint64_t i = 0; i < word_count; ++i) {                 \
      uint32_t word;                                            \
      std::memcpy(&word, payload + 4 + 4 * i, sizeof(word));    \
      sum += CheckTerm(word, static_cast<uint32_t>(i));         \
    }                                                           \
    return CheckFinish(sum, static_cast<uint32_t>(word_count)); \
  }

L3_PAYLOAD_CHECK(CheckBaseline, )
#if defined(__x86_64__)
L3_PAYLOAD_CHECK(CheckAvx2, L3_KERNEL_AVX2)
L3_PAYLOAD_CHECK(CheckAvx512, L3_KERNEL_AVX512)
#endif

}  // namespace

uint32_t FastPayloadCheck(const uint8_t* payload, uint64_t size) {
#if defined(__x86_64__)
  return PickKernels<Check>(CheckBaseline, CheckAvx2, CheckAvx512)(payload, size);
#else
  return CheckBaseline(payload, size);
#endif
}

}  // namespace l3
