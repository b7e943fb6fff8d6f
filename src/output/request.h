// What users ask of the output of an image, and how it becomes what engines follow. Layer: output.
#pragma once

#include <cstdint>
#include <optional>

#include "core/output.h"
#include "format/image_view.h"
#include "plan/orientation.h"
#include "plan/pixels.h"
#include "plan/region.h"
#include "plan/tensor_plan.h"

namespace l3 {

constexpr uint64_t kDefaultMaxPixels = uint64_t{1} << 28;

// All that a user can ask for. Each face translates its own arguments to this, and no more.
struct DecodeRequest {
  std::optional<Region> window;    // of the image as it is shown; none: all of it
  ChosenChannels channels;         // by their numbers; none: all
  Colors colors = Colors::kStored;
  std::optional<OutputType> type;  // none: the stored one
  std::optional<bool> fills_range;
  Orientation orientation = kAsStored;
  Layout layout = kHwc;
  uint64_t row_stride_bytes = 0;  // 0: packed
  uint64_t max_pixels = kDefaultMaxPixels;
};

// Why an image cannot be decoded as requested.
enum class Misfit {
  kNone,
  kChannel,  // `channels` names one that the image does not have: FindMissing()
  kType,     // RefuseType()
  kColors,   // are made of images of up to four channels, all of them
  kWindow,   // is empty, or not inside the image
  kPixels,   // more than max_pixels
  kStride,   // rows would overlap, or the output would not fit in any memory
};

// Plans what all windows of an image have in common: channels, type and values.
Misfit PlanImage(const DecodeRequest& request, const ImageInfo& info, TensorPlan* plan);
// Plans where the pixels of `request.window` go. After PlanImage(), once for each window.
Misfit PlanWindow(const DecodeRequest& request, const ImageInfo& info, TensorPlan* plan);
// Both, for one window.
Misfit PlanOutput(const DecodeRequest& request, const ImageInfo& info, TensorPlan* plan);

// How many channels the output has, or would have if the request fitted the image.
uint32_t OutputChannels(const DecodeRequest& request, const ImageInfo& info);

// How often `max_pixels` counts a pixel of so many channels: once for each four.
inline uint64_t PixelCost(uint32_t channels) { return CeilDiv(channels, kMaxChannels); }

}  // namespace l3
