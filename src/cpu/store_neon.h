// StoreRect of output/store_pixel.h on the vectors of 64-bit ARM. Layer: cpu.
#pragma once

#include <cstddef>

#include "cpu/group_part.h"
#include "output/store_pixel.h"

namespace l3 {

// The contract of StoreRect: same bits.
void StoreRectNeon(const ImageInfo& info, const OutputPlan& plan, const TileRect& rect,
                   const ImageOutput& pixels);

// The same of several groups at once, in outputs where the samples of a pixel are together.
void StoreGroupsNeon(const GroupPart* groups, size_t count, const TileRect& rect);

}  // namespace l3
