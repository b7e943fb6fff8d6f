// The values of one tile, plane by plane. Layer: encoder.
#pragma once

#include <algorithm>
#include <cstdint>

#include "encoder/exact_floats.h"
#include "format/constants.h"

namespace l3 {

// Before the colour transform.
struct TilePlanes {
  uint16_t plane[kMaxChannels][kMaxPackedTileSide * kMaxPackedTileSide];
  uint32_t width_px;
  uint32_t height_px;
  uint32_t channels;
  uint32_t used_bits;

  uint16_t* Row(uint32_t c, int32_t y) { return plane[c] + y * int32_t{kMaxPackedTileSide}; }
};

// Whether every pixel of the tile is the same.
inline bool IsConstant(const TilePlanes& planes) {
  for (uint32_t c = 0; c < planes.channels; ++c) {
    const uint16_t first = planes.plane[c][0];
    for (uint32_t y = 0; y < planes.height_px; ++y) {
      const uint16_t* row = planes.plane[c] + y * kMaxPackedTileSide;
      if (!std::all_of(row, row + planes.width_px, [first](uint16_t v) { return v == first; })) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace l3
