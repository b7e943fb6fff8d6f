// Colour transform and the way from values to samples (format.md 4 and 6).
// Layer: core.
#pragma once

#include "format/constants.h"
#include "format/portable.h"

namespace l3 {

// Subtract green, modulo 2^bits. `half` is 2^(bits-1), `mask` 2^bits - 1.
L3_HOST_DEVICE inline uint32_t SubtractGreen(uint32_t value, uint32_t green, uint32_t half,
                                             uint32_t mask) {
  return (value - green + half) & mask;
}
L3_HOST_DEVICE inline uint32_t AddGreen(uint32_t plane, uint32_t green, uint32_t half,
                                        uint32_t mask) {
  return (plane + green - half) & mask;
}

// From values to samples. Plain data, shared with kernels.
struct SampleMap {
  const uint16_t* table;  // value_count samples, or null
  uint32_t value_count;   // values below this are valid; 2^used_bits without a table
  uint32_t shift;

  // `value` must be below value_count.
  L3_HOST_DEVICE uint32_t operator()(uint32_t value) const {
    return table != nullptr ? table[value] : value << shift;
  }
};

}  // namespace l3
