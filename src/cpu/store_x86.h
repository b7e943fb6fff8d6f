// StoreRect of output/store_pixel.h on the vectors of x86-64. Layer: cpu.
#pragma once

#include <cstddef>

#include "cpu/group_part.h"
#include "output/store_pixel.h"

namespace l3 {

// The contract of StoreRect: same bits. Needs AVX2 and F16C.
void StoreRectAvx2(const ImageInfo& info, const OutputPlan& plan, const TileRect& rect,
                   const ImageOutput& pixels);

// The same of several groups at once, in outputs where the samples of a pixel are together.
void StoreGroupsAvx2(const GroupPart* groups, size_t count, const TileRect& rect);

}  // namespace l3
