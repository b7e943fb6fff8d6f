// DecodeTile of core/tile.h on the vectors of x86-64. Layer: cpu.
#pragma once

#include <cstdint>

#include "core/color.h"
#include "core/tile.h"
#include "format/image_view.h"

namespace l3 {

// The contract of DecodeTile: same samples, same Status. They read nothing
// outside the payload and need a machine with AVX2, and with AVX-512
// with VBMI, VBMI2 and VNNI.
Status DecodeTileAvx2(const ImageInfo& info, const SampleMap& map, const RansTables* rans,
                      uint32_t tile, const uint8_t* payload, uint32_t size,
                      const ImageOutput& output);
Status DecodeTileAvx512(const ImageInfo& info, const SampleMap& map, const RansTables* rans,
                        uint32_t tile, const uint8_t* payload, uint32_t size,
                        const ImageOutput& output);

}  // namespace l3
