// Residuals as coded: folded so that small magnitudes are small numbers
// (format.md 5.3, Prediction). Layer: core.
#pragma once

#include "base/portable.h"

namespace l3 {

// Zigzag: 0, 1, 2, 3, 4 -> 0, -1, 1, -2, 2.
L3_HOST_DEVICE inline int32_t UnfoldResidual(uint32_t folded) {
  return static_cast<int32_t>(folded >> 1) ^ -static_cast<int32_t>(folded & 1);
}

// Folds a difference, taken modulo 2^bits into [-2^(bits-1), 2^(bits-1)).
L3_HOST_DEVICE inline uint32_t FoldResidual(int32_t difference, uint32_t bits) {
  const uint32_t drop = 32 - bits;
  const int32_t wrapped = static_cast<int32_t>(static_cast<uint32_t>(difference) << drop) >> drop;
  return (static_cast<uint32_t>(wrapped) << 1) ^ static_cast<uint32_t>(wrapped >> 31);
}

}  // namespace l3
