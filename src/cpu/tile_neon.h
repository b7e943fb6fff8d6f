// DecodeTile of core/tile.h on the vectors of 64-bit ARM. Layer: cpu.
#pragma once

#include <cstdint>

#include "cpu/tile_job.h"

namespace l3 {

// Each of `count` jobs (0 to kMaxTileJobs) gets what DecodeTile would give it, but for those
// whose status is not kOk, which are left alone. They read nothing outside the payloads.
void DecodeTilesNeon(const ImageInfo& info, const SampleMap& map, const RansTables* rans,
                     TileJob* jobs, uint32_t count);

// What PayloadCheck of core/check.h gives.
uint32_t PayloadCheckNeon(const uint8_t* payload, uint32_t size);

}  // namespace l3
