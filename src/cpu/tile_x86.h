// DecodeTile of core/tile.h on the vectors of x86-64. Layer: cpu.
#pragma once

#include <cstdint>

#include "cpu/tile_job.h"

namespace l3 {

// Each of `count` jobs (0 to kMaxTileJobs) gets what DecodeTile would give it, but for those
// whose status is not kOk, which are left alone. They read nothing outside the payloads and
// need a machine with AVX2, and with AVX-512 with VBMI and VBMI2.
void DecodeTilesAvx2(const ImageInfo& info, const SampleMap& map, const RansTables* rans,
                     TileJob* jobs, uint32_t count);
void DecodeTilesAvx512(const ImageInfo& info, const SampleMap& map, const RansTables* rans,
                       TileJob* jobs, uint32_t count);

// What PayloadCheck of core/check.h gives.
uint32_t PayloadCheckAvx2(const uint8_t* payload, uint32_t size);

}  // namespace l3
