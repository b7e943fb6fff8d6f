// The loops of the packed encoder: predictors of rows, widths of groups, and the rows as bits.
// Layer: encoder. Compiled for several instruction sets from packed_kernels.inc; all give the
// same result.
#pragma once

#include <cstdint>

#include "encoder/exact_floats.h"
#include "format/constants.h"

namespace l3 {

// Rows are worked on in whole blocks of so many values.
constexpr uint32_t kPackedPadding = 64;

// The values of one tile, plane by plane: bytes for up to 8 used bits, words for more.
template <typename Value>
struct PackedPlanes {
  static constexpr uint32_t kStride = kMaxPackedTileSide;

  uint32_t width_px;
  uint32_t height_px;
  uint32_t channels;
  uint32_t used_bits;
  // Rows -1 to 255, each of kStride values: behind its end a row repeats its last value. A value
  // before and one behind all rows are read, but never count.
  alignas(64) Value value[kMaxChannels][(kMaxPackedTileSide + 2) * kStride + 64];

  Value* Row(uint32_t c, int32_t y) { return value[c] + 64 + (y + 1) * int32_t{kStride}; }
  const Value* Row(uint32_t c, int32_t y) const {
    return value[c] + 64 + (y + 1) * int32_t{kStride};
  }
  uint32_t groups() const { return (width_px + kGroupSize - 1) / kGroupSize; }
};

// Lanes are groups: those of row y begin at lane y * lanes of a row. Planes 1 to 8 hold the values
// at positions 0 to 7 of all groups; planes 0 and 9 what is left and right of these, as the row
// below sees it; plane 10 what is left of position 0 as the row itself sees it.
template <typename Value>
struct PackedLanes {
  static constexpr uint32_t kFront = 64;   // room for row -1
  static constexpr uint32_t kBlock = 256;  // lanes that are worked on at a time
  static constexpr uint32_t kLeft = 0;
  static constexpr uint32_t kRight = kGroupSize + 1;
  static constexpr uint32_t kWest = kGroupSize + 2;
  static constexpr uint32_t kPlanes = kGroupSize + 3;
  static constexpr uint32_t kPlaneValues = kFront + kMaxPackedTileSide * kMaxGroupsPerRow + kBlock;

  alignas(64) Value at[kPlanes][kPlaneValues];
};

// Width of each group of a row; 0 for groups the row does not have.
struct WidthRow {
  alignas(32) uint8_t at[kMaxGroupsPerRow];
};

// What layouts of the widths of a channel would take.
struct WidthSums {
  uint32_t absolute;     // the widths of an absolute layout, added up
  uint32_t delta;        // those of a delta layout
  uint32_t start_width;  // the cheapest for that
  uint32_t zeros;        // groups of width 0
};

template <typename Value>
struct PackedKernels {
  // Spreads `count` pixels, which need not be aligned, to a row of each channel, and drops the bits
  // that are not in `mask`. Rows have room for whole blocks of kPackedPadding.
  void (*split_pixels)(const uint8_t* pixels, uint32_t channels, uint32_t count, Value mask,
                       Value* const rows[kMaxChannels]);
  bool (*is_constant)(const PackedPlanes<Value>& planes, uint32_t c);
  // Whether red and blue are cheaper as differences from green. An estimate: it compares how much
  // they change from row to row in every fourth line.
  bool (*prefers_subtract_green)(const PackedPlanes<Value>& planes);
  void (*subtract_green)(PackedPlanes<Value>* planes);
  // Picks the predictor of each row by the sum of the widths its residuals need (the lowest number
  // wins a tie). Row -1 of the channel must hold its base.
  void (*choose_predictors)(const PackedPlanes<Value>& planes, uint32_t c,
                            PackedLanes<Value>* lanes, uint8_t* predictors, WidthRow* needed);
  // Finds the lowest widths of a delta layout, which change by -1, 0, +1 or +2 from a row to the
  // next, and sums.
  WidthSums (*find_widths)(const WidthRow* needed, uint32_t rows, uint32_t groups,
                           uint32_t used_bits, WidthRow* delta);
  // Parts of format.md 5.3. They return the end of what counts, and write up to 16 bytes behind
  // it: zeros.
  uint8_t* (*write_absolute_codes)(const WidthRow* widths, uint32_t rows, uint32_t groups,
                                   uint8_t* out);
  uint8_t* (*write_delta_codes)(const WidthRow* widths, uint32_t rows, uint32_t groups,
                                uint32_t start_width, uint8_t* out);
  // The folded residuals of a row, those past its end in its last group too: 0.
  void (*fold_row)(const PackedPlanes<Value>& planes, uint32_t c, uint32_t y, uint32_t predictor,
                   Value* folded);
  // Bytes of a row in a sparse layout.
  uint32_t (*sparse_row_bytes)(const PackedPlanes<Value>& planes, uint32_t c, uint32_t y,
                               uint32_t predictor, const WidthRow& widths);
  uint8_t* (*write_dense_row)(const PackedPlanes<Value>& planes, uint32_t c, uint32_t y,
                              uint32_t predictor, const WidthRow& widths, uint8_t* out);
};

// The fastest this machine has.
template <typename Value>
const PackedKernels<Value>& GetPackedKernels();

}  // namespace l3
