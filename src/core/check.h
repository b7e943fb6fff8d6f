// The 32-bit check of a tile's payload (format.md 5). Layer: core.
#pragma once

#include "base/portable.h"

namespace l3 {

constexpr uint32_t kCheckStep = 0x9E3779B1u;

// The bijection `lowbias32` (C. Wellons, hash prospector).
L3_HOST_DEVICE inline uint32_t CheckMix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  x ^= x >> 16;
  return x;
}

// Contribution of word `i` to the sum; terms can be added in any order.
L3_HOST_DEVICE inline uint32_t CheckTerm(uint32_t word, uint32_t i) {
  return CheckMix(word + kCheckStep * (i + 1));
}

L3_HOST_DEVICE inline uint32_t CheckFinish(uint32_t sum, uint32_t word_count) {
  return CheckMix(word_count + sum);
}

// Check of a whole payload of `size` bytes (a multiple of 4, at least 4).
L3_HOST_DEVICE inline uint32_t PayloadCheck(const uint8_t* payload, uint64_t size) {
  const uint32_t word_count = static_cast<uint32_t>(size / 4 - 1);
  uint32_t sum = 0;
  for (uint32_t i = 0; i < word_count; ++i) {
    sum += CheckTerm(LoadU32(payload + 4 + 4 * uint64_t{i}), i);
  }
  return CheckFinish(sum, word_count);
}

}  // namespace l3
