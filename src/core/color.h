// Colour transform and the way from values to samples (format.md 4 and 6).
// Layer: core.
#pragma once

#include "base/portable.h"
#include "format/constants.h"
#include "format/image_view.h"

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
  uint16_t shift;         // as is the next, 0 with a table
  uint16_t offset;        // is subtracted last; 0 for unsigned samples

  // Whether values are samples as they are.
  L3_HOST_DEVICE bool keeps_values() const { return table == nullptr && shift == 0 && offset == 0; }
  // `value` must be below value_count. The lowest bits of the result are the sample's, those above
  // may be anything.
  L3_HOST_DEVICE uint32_t operator()(uint32_t value) const {
    return table != nullptr ? table[value] : (value << shift) - offset;
  }
};

// The map of an image without a value table.
inline SampleMap MakeSampleMap(const ImageInfo& info) {
  const uint32_t offset = info.is_signed() ? 1u << (info.used_bits - 1 + info.shift) : 0;
  return {nullptr, 1u << info.used_bits, info.shift, static_cast<uint16_t>(offset)};
}
// The map of one with the table that ReadValueTable() gives.
inline SampleMap MakeSampleMap(const uint16_t* table, uint32_t value_count) {
  return {table, value_count, 0, 0};
}

}  // namespace l3
