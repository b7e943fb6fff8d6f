// DecodeRansTile of core/tile.h on the vectors of x86-64: 32 lanes in lockstep,
// some tiles in turn. Layer: cpu.
#pragma once

#include <cstdint>

#include "cpu/rans_jobs.h"

namespace l3 {

// Each of `count` jobs (1 to kMaxTileJobs) gets what DecodeRansTile would give it. They read
// nothing outside the payloads. The first needs AVX2, the second AVX-512 with VBMI and VBMI2.
void DecodeRansTilesAvx2(const RansImage& image, RansTileJob* jobs, uint32_t count);
void DecodeRansTilesAvx512(const RansImage& image, RansTileJob* jobs, uint32_t count);

}  // namespace l3
