#include "output/region.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace l3 {
namespace {

// Places and sizes beyond are no pixels of anything; sums of them fit in 64 bits.
constexpr double kMaxPlace = 1e15;

bool IsPlace(double value) { return std::abs(value) <= kMaxPlace; }  // NaN is none

bool IsInside(const Extent& extent, int64_t image_px) {
  return extent.begin_px >= 0 && extent.size_px >= 0 &&
         extent.size_px <= image_px - extent.begin_px;
}

Extent Trim(const Extent& extent, int64_t image_px) {
  const int64_t begin = std::clamp<int64_t>(extent.begin_px, 0, image_px);
  const int64_t end = std::clamp<int64_t>(extent.end_px(), 0, image_px);
  return {begin, end - begin};
}

double InPixels(const SliceBound& bound, int64_t image_px, bool positional) {
  if (bound.unit != SliceBound::Unit::kShare) return bound.value;
  if (positional) return bound.value * static_cast<double>(image_px);
  return static_cast<float>(bound.value) * static_cast<float>(image_px);
}

}  // namespace

bool IsInside(const Region& region, const Size& image) {
  return IsInside(region.x, image.width_px) && IsInside(region.y, image.height_px);
}

Region Trim(const Region& region, const Size& image) {
  return {Trim(region.x, image.width_px), Trim(region.y, image.height_px)};
}

bool CropExtent(int64_t image_px, float crop_px, float position, Rounding rounding,
                Extent* extent) {
  if (std::abs(crop_px) > static_cast<float>(std::numeric_limits<int32_t>::max())) return false;
  const int64_t size_px = std::isnan(crop_px) ? 0 : static_cast<int64_t>(crop_px);
  if (size_px <= 0) {
    *extent = {0, image_px};
    return true;
  }
  if (!(position >= 0 && position <= 1)) return false;
  const double begin = double{position} * static_cast<double>(image_px - size_px);
  const bool nearest = rounding == Rounding::kNearest;
  *extent = {static_cast<int64_t>(nearest ? std::round(begin) : std::trunc(begin)), size_px};
  return true;
}

bool SliceExtent(int64_t image_px, const SliceBound& start, const SliceBound& end,
                 const SliceBound& shape, bool positional, Extent* extent) {
  using Unit = SliceBound::Unit;
  const double begin_px = InPixels(start, image_px, positional);
  double end_px = static_cast<double>(image_px);
  if (end.unit != Unit::kAbsent) {
    end_px = InPixels(end, image_px, positional);
  } else if (shape.unit != Unit::kAbsent) {
    if (!(shape.value >= 0)) return false;
    end_px = start.unit == Unit::kShare && shape.unit == Unit::kShare
                 ? (start.value + shape.value) * static_cast<double>(image_px)
                 : begin_px + InPixels(shape, image_px, positional);
  }
  if (!IsPlace(begin_px) || !IsPlace(end_px) || end_px < begin_px) return false;
  const int64_t begin = std::llround(begin_px);
  *extent = {begin, std::llround(end_px) - begin};
  return true;
}

}  // namespace l3
