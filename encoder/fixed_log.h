// Logarithms in integers, so that no library's rounding decides a byte.
// Layer: encoder.
#pragma once

#include <array>
#include <cstdint>

#include "base/portable.h"
#include "encoder/exact_floats.h"

namespace l3 {

// Costs are in 1 / 4096 bit.
constexpr uint32_t kCostBits = 12;

namespace fixed_log_internal {
// log2(1 + i / 256) by repeated squaring.
constexpr std::array<uint16_t, 257> MakeFractions() {
  std::array<uint16_t, 257> table{};
  for (uint32_t i = 0; i <= 256; ++i) {
    uint64_t x = uint64_t{256 + i} << 22;  // in [2^30, 2^31]
    uint32_t result = 0;
    if (i == 256) {
      result = 1u << kCostBits;
    } else {
      for (uint32_t bit = 0; bit < kCostBits; ++bit) {
        x = x * x >> 30;
        result <<= 1;
        if (x >> 31 != 0) {
          x >>= 1;
          ++result;
        }
      }
    }
    table[i] = static_cast<uint16_t>(result);
  }
  return table;
}
inline constexpr std::array<uint16_t, 257> kFractions = MakeFractions();
}  // namespace fixed_log_internal

// log2(v) in costs, for v of at least 1.
inline uint32_t FixedLog2(uint32_t v) {
  const uint32_t exponent = BitLength(v) - 1;
  const uint32_t mantissa = exponent >= 16 ? v >> (exponent - 16) : v << (16 - exponent);
  const uint32_t index = mantissa >> 8 & 255;
  const uint32_t part = mantissa & 255;
  const uint32_t low = fixed_log_internal::kFractions[index];
  const uint32_t high = fixed_log_internal::kFractions[index + 1];
  return (exponent << kCostBits) + low + ((high - low) * part >> 8);
}

// The same of larger numbers.
inline uint32_t FixedLog2Of64(uint64_t v) {
  const uint32_t drop = BitLength(static_cast<uint32_t>(v >> 32));
  return FixedLog2(static_cast<uint32_t>(v >> drop)) + (drop << kCostBits);
}

// Cost of coding counts[i] symbols of each kind i by their own statistics.
inline uint64_t EntropyCost(const uint32_t* counts, uint32_t kinds) {
  uint64_t total = 0;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < kinds; ++i) {
    if (counts[i] == 0) continue;
    total += counts[i];
    sum += uint64_t{counts[i]} * FixedLog2(counts[i]);
  }
  return total == 0 ? 0 : total * FixedLog2(static_cast<uint32_t>(total)) - sum;
}

}  // namespace l3
