// Where the pixels of an image land in an output tensor. Layer: plan.
#pragma once

#include <array>
#include <cstdint>

#include "core/output.h"
#include "plan/orientation.h"
#include "plan/region.h"

namespace l3 {

enum class Axis : uint8_t { kHeight, kWidth, kChannel };
// The axes of a tensor, the slowest first.
using Layout = std::array<Axis, 3>;
constexpr Layout kHwc = {Axis::kHeight, Axis::kWidth, Axis::kChannel};

// An OutputPlan before its tensor has memory.
struct TensorPlan {
  OutputPlan output;     // `data` is not set
  int64_t origin_bytes;  // from the tensor's begin to `data`
  std::array<int64_t, 3> shape;

  OutputPlan At(void* tensor) const {
    OutputPlan placed = output;
    placed.data = static_cast<uint8_t*>(tensor) + origin_bytes;
    return placed;
  }
};

// Bytes from a value of a tensor to the next, along each axis, in Axis' order.
using Strides = std::array<int64_t, 3>;

// Tensors of more pixels are refused.
constexpr int64_t kMaxRegionPx = int64_t{1} << 31;

// Completes `plan->output`, whose pixels are planned: `region` of the image as it is shown,
// mirrored left to right if asked, in a packed tensor. What of the region lies outside of the
// image is the border. False if the region has more than kMaxRegionPx pixels.
bool PlanTensor(const ImageInfo& info, const Orientation& orientation, const Region& region,
                bool mirror, const Layout& layout, TensorPlan* plan);

// The same for a tensor with these strides, as one whose rows have gaps between them. Returns the
// bytes from the tensor's begin to `data`. The region has at most kMaxRegionPx pixels.
int64_t PlacePixels(const ImageInfo& info, const Orientation& orientation, const Region& region,
                    bool mirror, const Strides& strides, OutputPlan* output);

}  // namespace l3
