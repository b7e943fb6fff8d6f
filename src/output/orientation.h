// How an image asks to be turned for display: the EXIF orientation. Layer: output.
#pragma once

#include <cstdint>

#include "format/image_view.h"

namespace l3 {

// From a shown pixel (x, y) to the stored one: swap x and y, then count from the other
// end of the stored axes that are flipped.
struct Orientation {
  bool swap_xy, flip_x, flip_y;  // flips are of the stored image's axes

  bool operator==(const Orientation& other) const {
    return swap_xy == other.swap_xy && flip_x == other.flip_x && flip_y == other.flip_y;
  }
};

constexpr Orientation kAsStored = {false, false, false};

// Width and height in pixels.
struct Size {
  int64_t width_px, height_px;
};

// In the image as it is shown.
Size ShownSize(const ImageInfo& info, const Orientation& orientation);

// What an EXIF block (from its TIFF header on) asks for. An absent, damaged or silent one
// asks for kAsStored.
Orientation ReadOrientation(const ChunkView& exif);

}  // namespace l3
