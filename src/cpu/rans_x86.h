// DecodeRansTile of core/tile.h on the vectors of x86-64: 32 lanes in lockstep,
// two tiles in turn. Layer: cpu.
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

constexpr uint32_t kMaxRansJobs = 2;

// A tile to decode, and what became of it.
struct RansTileJob {
  TileRect rect;
  TilePayload tile;
  ImageOutput output;  // the tile's own
  Status status;
};

// Each of `count` jobs (1 or 2) gets what DecodeRansTile would give it. They read nothing
// outside the payloads. The first needs AVX2, the second AVX-512 with VBMI and VBMI2.
void DecodeRansTilesAvx2(const RansImage& image, RansTileJob* jobs, uint32_t count);
void DecodeRansTilesAvx512(const RansImage& image, RansTileJob* jobs, uint32_t count);

}  // namespace l3
