// DecodeRansTile of core/tile.h on the vectors of x86-64: 32 lanes in lockstep.
// Layer: cpu.
#pragma once

#include <cstdint>

#include "core/color.h"
#include "core/tile.h"
#include "format/image_view.h"

namespace l3 {

// The contract of DecodeRansTile: same samples, same Status. They read nothing
// outside the payload. The first needs AVX2, the second AVX-512 with VBMI, VBMI2 and VNNI.
Status DecodeRansTileAvx2(const ImageInfo& info, const SampleMap& map, const RansTables& rans, const TileRect& rect, const TilePayload& tile,
                          const ImageOutput& output);
Status DecodeRansTileAvx512(const ImageInfo& info, const SampleMap& map, const RansTables& rans, const TileRect& rect, const TilePayload& tile,
                            const ImageOutput& output);

}  // namespace l3
