// The values of one tile, plane by plane. Layer: encoder.
#pragma once

#include <cstdint>

#include "encoder/exact_floats.h"
#include "format/constants.h"

namespace l3 {

// Before the colour transform. Row y of channel c starts at
// plane[c] + y * kMaxPackedTileSide.
struct TilePlanes {
  uint16_t plane[kMaxChannels][kMaxPackedTileSide * kMaxPackedTileSide];
  uint32_t width_px;
  uint32_t height_px;
  uint32_t channels;
  uint32_t used_bits;
};

// Whether every pixel of the tile is the same.
bool IsConstant(const TilePlanes& planes);

}  // namespace l3
