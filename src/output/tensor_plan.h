// Where the pixels of an image land in an output tensor. Layer: output.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "output/orientation.h"
#include "output/output_plan.h"
#include "output/region.h"

namespace l3 {

enum class Axis : uint8_t { kHeight, kWidth, kChannel };
// The axes of a tensor, the slowest first.
using Layout = std::array<Axis, 3>;
constexpr Layout kHwc = {Axis::kHeight, Axis::kWidth, Axis::kChannel};
constexpr Layout kChw = {Axis::kChannel, Axis::kHeight, Axis::kWidth};

// Channels of an output, each made from one of the image: more than an OutputPlan has, or chosen
// ones. Lists of values have one for each channel, or one for all.
struct WideChannels {
  std::vector<uint16_t> source;
  std::vector<float> subtract, multiply, fill;
};

// Bytes from a value of a tensor to the next, along each axis, in Axis' order.
using Strides = std::array<int64_t, 3>;

// An OutputPlan before its tensor has memory.
struct TensorPlan {
  OutputPlan output;     // `data` is not set
  // Not null: `output` has only what all channels have in common (window_job.h).
  std::shared_ptr<const WideChannels> wide;
  int64_t origin_bytes;  // from the tensor's begin to `data`
  std::array<int64_t, 3> shape;
  Strides strides;
  uint64_t bytes;  // from the tensor's begin to its end

  OutputPlan At(void* tensor) const {
    OutputPlan placed = output;
    placed.data = static_cast<uint8_t*>(tensor) + origin_bytes;
    return placed;
  }
  int64_t stride(Axis axis) const { return strides[static_cast<size_t>(axis)]; }
  uint32_t channels() const {
    return wide == nullptr ? output.channels : static_cast<uint32_t>(wide->source.size());
  }
};

std::array<int64_t, 3> ShapeOf(const Layout& layout, const Size& size, int64_t channels);

// Places `region` of the image as it is shown, mirrored left to right if asked, in a tensor with
// these strides. What of the region lies outside of the image is the border. Returns the bytes from
// the tensor's begin to `data`. The region has at most 2^31 pixels.
int64_t PlacePixels(const ImageInfo& info, const Orientation& orientation, const Region& region,
                    bool mirror, const Strides& strides, OutputPlan* output);

}  // namespace l3
