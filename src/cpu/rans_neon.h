// DecodeRansTile of core/tile.h on the vectors of 64-bit ARM: 32 lanes in lockstep,
// two tiles in turn. Layer: cpu.
#pragma once

#include <cstdint>

#include "cpu/rans_jobs.h"

namespace l3 {

// Each of `count` jobs (1 to kMaxTileJobs) gets what DecodeRansTile would give it. They read
// nothing outside the payloads.
void DecodeRansTilesNeon(const RansImage& image, RansTileJob* jobs, uint32_t count);

}  // namespace l3
