// StoreRect of core/output.h on the vectors of x86-64. Layer: cpu.
#pragma once

#include "core/output.h"

namespace l3 {

// The contract of StoreRect: same bits. Needs AVX2 and F16C.
void StoreRectAvx2(const ImageInfo& info, const OutputPlan& plan, const TileRect& rect,
                   const ImageOutput& pixels);

}  // namespace l3
