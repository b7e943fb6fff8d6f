// The costly half of encoding a packed tile: predictors of rows and widths of
// groups. Layer: encoder. Compiled for several instruction sets from
// packed_search.inc; all give the same result.
#pragma once

#include <cstdint>

#include "encoder/packed_encoder.h"
#include "format/constants.h"

namespace l3 {

// Folded residuals of one row, position-major: at[i][g] is residual i of group
// g, so that "for each group" is a loop that compilers vectorise.
struct FoldedRow {
  alignas(64) uint16_t at[kGroupSize][kMaxGroupsPerRow];
};

// Width of each group of a row; 0 for groups the row does not have.
struct WidthRow {
  alignas(64) int16_t at[kMaxGroupsPerRow];
};

// Cheapest sums of widths from a row to the tile's last, position [w + 1] for
// width w in this row; kUnreachable where w is too small.
struct WidthCosts {
  static constexpr int16_t kUnreachable = 1 << 13;  // twice the largest sum
  alignas(64) int16_t at[20][kMaxGroupsPerRow];
};

struct PackedSearch {
  // Picks the predictor of each row by the sum of the widths its residuals
  // need (the lowest number wins a tie). Channel c of the tile must not be constant.
  void (*choose_predictors)(const TilePlanes& tile, uint32_t c, uint32_t base, uint8_t* predictors,
                            FoldedRow* folded, WidthRow* widths);
  // Fills costs[y] for all rows by dynamic programming from the last row up,
  // where widths may change by -1, 0, +1 or +2 from a row to the next.
  void (*accumulate_width_costs)(const WidthRow* needed, uint32_t rows, uint32_t used_bits,
                                 WidthCosts* costs);
};

// The fastest this machine has.
const PackedSearch& GetPackedSearch();

}  // namespace l3
