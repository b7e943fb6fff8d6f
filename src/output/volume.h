// Volumes: slices of an image, one below the other, which its metadata names (format.md 4.1).
// Layer: output.
#pragma once

#include <cstdint>

#include "format/image_view.h"

namespace l3 {

struct VolumeShape {
  uint32_t depth;      // slices; 0: the image is no volume
  uint32_t height_px;  // of a slice
  uint32_t rows;       // of the image for each slice; those behind its height are padding
};

// The volume in a validated image.
VolumeShape ReadVolume(const ImageView& view);

}  // namespace l3
