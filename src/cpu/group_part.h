// A channel group of a tile on its way to outputs. Layer: cpu.
#pragma once

#include <cstdint>

#include "output/output_plan.h"

namespace l3 {

// Bytes behind the samples of a group that may be read.
constexpr uint32_t kReadableBytes = 32;
// Bytes between planes, whose rows would else compete for the same places of a cache.
constexpr uint32_t kPlaneGapBytes = 320;

// Decoded samples of a rectangle, row by row: pixel by pixel, or one plane for each channel.
struct DecodedSamples {
  const uint8_t* data;
  uint64_t row_bytes;
  uint64_t plane_bytes;  // from a plane to the next; 0 where channels are interleaved

  const uint8_t* At(const ImageInfo& info, uint32_t x, uint32_t y) const {
    const uint32_t step = plane_bytes == 0 ? info.pixel_bytes() : info.sample_bytes();
    return data + y * row_bytes + uint64_t{x} * step;
  }
};

// The samples of a group in a rectangle of the image, and the plan to store them by.
struct GroupPart {
  const ImageInfo* info;  // of the group
  OutputPlan plan;
  DecodedSamples samples;
};

}  // namespace l3
