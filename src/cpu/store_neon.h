// StoreRect of core/output.h on the vectors of 64-bit ARM. Layer: cpu.
#pragma once

#include "core/output.h"

namespace l3 {

// The contract of StoreRect: same bits.
void StoreRectNeon(const ImageInfo& info, const OutputPlan& plan, const TileRect& rect,
                   const ImageOutput& pixels);

}  // namespace l3
