// Where the pixels of an image land in an output tensor. Layer: output.
#pragma once

#include <array>
#include <cstdint>

#include "output/orientation.h"
#include "output/output_plan.h"
#include "output/region.h"

namespace l3 {

enum class Axis : uint8_t { kHeight, kWidth, kChannel };
// The axes of a tensor, the slowest first.
using Layout = std::array<Axis, 3>;
constexpr Layout kHwc = {Axis::kHeight, Axis::kWidth, Axis::kChannel};
constexpr Layout kChw = {Axis::kChannel, Axis::kHeight, Axis::kWidth};

// Bytes from a value of a tensor to the next, along each axis, in Axis' order.
using Strides = std::array<int64_t, 3>;

// The tensor that the output of a window fills.
struct OutputTensor {
  std::array<int64_t, 3> shape;
  Strides strides;
  uint64_t bytes;  // from its begin to its end

  int64_t stride(Axis axis) const { return strides[static_cast<size_t>(axis)]; }
};

std::array<int64_t, 3> ShapeOf(const Layout& layout, const Size& size, int64_t channels);

// Places `region` of the image as it is shown, mirrored left to right if asked, in a tensor with
// these strides and no memory yet. The border is the part of the region outside of the image. The
// region has at most 2^31 pixels.
void PlacePixels(const ImageInfo& info, const Orientation& orientation, const Region& region,
                 bool mirror, const Strides& strides, OutputPlan* output);

}  // namespace l3
