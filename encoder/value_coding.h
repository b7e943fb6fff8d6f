// How the samples of an image become values (format.md 4). Layer: encoder.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "encoder/encoder.h"

namespace l3 {

struct ValueCoding {
  uint32_t used_bits = 1;
  uint32_t shift = 0;
  std::vector<uint16_t> table;  // distinct samples; empty without a table
  std::vector<uint16_t> rank;   // of each possible sample; empty without a table

  uint16_t Value(uint32_t sample) const {
    return table.empty() ? static_cast<uint16_t>(sample >> shift) : rank[sample];
  }
};

// Unused low bits dropped, no table.
ValueCoding FindShiftedValues(const PixelView& pixels, unsigned threads);

// A table, if with it values take fewer bits than those of `shifted`.
std::optional<ValueCoding> FindRankedValues(const PixelView& pixels, const ValueCoding& shifted,
                                            unsigned threads);

}  // namespace l3
