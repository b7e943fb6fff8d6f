// DecodeTile of core/tile.h on the vectors of x86-64. Layer: cpu.
#pragma once

#include <cstdint>

#include "core/color.h"
#include "core/tile.h"
#include "format/image_view.h"

namespace l3 {

// A tile to decode, and what became of it.
struct TileJob {
  uint32_t tile;
  const uint8_t* payload;
  uint32_t size;
  ImageOutput output;  // the tile's own
  Status status;
};

constexpr uint32_t kMaxTileJobs = 2;

// Each of `count` jobs (0 to kMaxTileJobs) gets what DecodeTile would give it, but for those
// whose status is not kOk, which are left alone. They read nothing outside the payloads and
// need a machine with AVX2, and with AVX-512 with VBMI and VBMI2.
void DecodeTilesAvx2(const ImageInfo& info, const SampleMap& map, const RansTables* rans,
                     TileJob* jobs, uint32_t count);
void DecodeTilesAvx512(const ImageInfo& info, const SampleMap& map, const RansTables* rans,
                       TileJob* jobs, uint32_t count);

}  // namespace l3
