// How the samples of an image become values (format.md 4). Layer: encoder.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "encoder/pixel_view.h"

namespace l3 {

struct ValueCoding {
  uint32_t used_bits = 1;
  uint32_t shift = 0;
  uint32_t offset = 0;          // 2^(used_bits - 1) for signed samples without a table
  std::vector<uint16_t> table;  // the VTAB chunk's numbers; empty without a table
  std::vector<uint16_t> rank;   // by sample, below 2^used_bits; empty without a table

  // Whether values are the low bits of the samples, those of mask(). The samples that were scanned
  // have no other bits, but they may have changed since.
  bool keeps_samples() const { return shift == 0 && offset == 0 && table.empty(); }
  uint32_t mask() const { return (1u << used_bits) - 1; }
  // The value of any sample: below 2^used_bits.
  uint16_t Value(uint32_t sample) const {
    return table.empty() ? ShiftedValue(sample) : rank[sample];
  }
  // The same, without a table.
  uint16_t ShiftedValue(uint32_t sample) const {
    return static_cast<uint16_t>(((sample >> shift) + offset) & mask());
  }
};

// Unused bits dropped, no table.
ValueCoding FindShiftedValues(const PixelView& pixels, unsigned threads);

// A table, if with it values take fewer bits than those of `shifted`.
std::optional<ValueCoding> FindRankedValues(const PixelView& pixels, const ValueCoding& shifted,
                                            unsigned threads);

}  // namespace l3
