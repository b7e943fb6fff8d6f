// Which part of an image to decode: the arithmetic of DALI's crop and slice arguments.
// Layer: output. Coordinates are those of the image as it is shown.
#pragma once

#include <cstdint>

#include "output/orientation.h"

namespace l3 {

// Pixels [begin_px, begin_px + size_px) of an axis. May reach outside of the image.
struct Extent {
  int64_t begin_px, size_px;

  int64_t end_px() const { return begin_px + size_px; }
};

struct Region {
  Extent x, y;
};

inline Region WholeImage(const Size& image) { return {{0, image.width_px}, {0, image.height_px}}; }

bool IsInside(const Region& region, const Size& image);
// The part of the region that is inside.
Region Trim(const Region& region, const Size& image);

enum class Rounding { kNearest, kTruncate };

// `crop_px`, without its fraction, at `position` between the image's begin (0) and its end
// (1). A crop of 0 pixels or less, or of NaN, is the whole axis, as in DALI. False if a
// number is out of range.
bool CropExtent(int64_t image_px, float crop_px, float position, Rounding rounding, Extent* extent);

// An argument of a slice along an axis.
struct SliceBound {
  enum class Unit { kAbsent, kPixels, kShare };  // a share of the image's extent

  Unit unit = Unit::kAbsent;
  double value = 0;
};

// `start` (absent: the image's begin) up to `end`, or `shape` long; with neither, up to the
// image's end. DALI multiplies its named shares in float and its positional ones in double:
// `positional` selects which. False if a number is none or out of range, or the end lies
// before the start.
bool SliceExtent(int64_t image_px, const SliceBound& start, const SliceBound& end,
                 const SliceBound& shape, bool positional, Extent* extent);

}  // namespace l3
