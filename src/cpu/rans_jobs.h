// The jobs of engines that decode rans tiles 32 lanes at a time. Layer: cpu.
#pragma once

#include <cstdint>

#include "core/color.h"
#include "core/tile.h"
#include "format/image_view.h"

namespace l3 {

// What the rans tiles of an image share.
struct RansImage {
  const ImageInfo& info;
  const SampleMap& map;
  const RansTables& tables;
};

// A tile to decode, and its result.
struct RansTileJob {
  TileRect rect;
  TilePayload tile;
  ImageOutput output;  // the tile's own
  Status status;
};

}  // namespace l3
