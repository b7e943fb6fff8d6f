// Bit fields, least significant bit first (format.md 1). Layer: core.
#pragma once

#include "base/portable.h"

namespace l3 {

L3_HOST_DEVICE inline uint32_t ReadBit(const uint8_t* p, uint64_t bit) {
  return (p[bit >> 3] >> (bit & 7)) & 1u;
}

// Reads `count` (0 to 16) bits. Touches only the bytes that hold them.
L3_HOST_DEVICE inline uint32_t ReadBits(const uint8_t* p, uint64_t bit, uint32_t count) {
  uint32_t value = 0;
  uint32_t have = 0;
  while (have < count) {
    const uint32_t offset = static_cast<uint32_t>((bit + have) & 7);
    const uint32_t take = count - have < 8 - offset ? count - have : 8 - offset;
    const uint32_t part = (p[(bit + have) >> 3] >> offset) & ((1u << take) - 1);
    value |= part << have;
    have += take;
  }
  return value;
}

// Code number `i` of a packed run of 2- or 4-bit codes.
L3_HOST_DEVICE inline uint32_t ReadCode2(const uint8_t* p, uint32_t i) {
  return (p[i >> 2] >> (2 * (i & 3))) & 3u;
}
L3_HOST_DEVICE inline uint32_t ReadCode4(const uint8_t* p, uint32_t i) {
  return (p[i >> 1] >> (4 * (i & 1))) & 15u;
}

}  // namespace l3
