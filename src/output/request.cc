#include "output/request.h"

#include <algorithm>

namespace l3 {
namespace {

// Sets shape, strides and size of the output of a window.
Misfit PlaceAxes(const DecodeRequest& request, const Size& window, TensorPlan* plan) {
  constexpr uint64_t kMost = INT64_MAX / kMaxChannels;
  // In Axis' order.
  const std::array<int64_t, 3> sizes = {window.height_px, window.width_px, plan->channels()};
  const int64_t item_bytes = OutputBytes(plan->output.type);
  int64_t stride = item_bytes;
  uint64_t rows = static_cast<uint64_t>(sizes[0] * sizes[1] * sizes[2]);
  plan->bytes = static_cast<uint64_t>(item_bytes);
  for (size_t i = request.layout.size(); i-- > 0;) {
    const size_t axis = static_cast<size_t>(request.layout[i]);
    if (request.layout[i] == Axis::kHeight && request.row_stride_bytes != 0) {
      const uint64_t row = request.row_stride_bytes;
      if (row < static_cast<uint64_t>(stride) || row > kMost / rows) return Misfit::kStride;
      stride = static_cast<int64_t>(row);
    }
    plan->shape[i] = sizes[axis];
    plan->strides[axis] = stride;
    plan->bytes += static_cast<uint64_t>((sizes[axis] - 1) * stride);
    stride *= sizes[axis];
    rows /= static_cast<uint64_t>(sizes[axis]);
  }
  return Misfit::kNone;
}

}  // namespace

Misfit PlanImage(const DecodeRequest& request, const ImageInfo& info, TensorPlan* plan) {
  *plan = TensorPlan{};
  if (FindMissing(info, request.channels) >= 0) return Misfit::kChannel;
  const OutputType type = request.type.value_or(StoredType(info));
  if (!AllowsType(info, type, request.fills_range)) return Misfit::kType;
  if (!IsWide(info, request.channels)) {
    PlanPixels(info, request.colors, type, &plan->output, request.fills_range);
    return Misfit::kNone;
  }
  if (request.colors != Colors::kStored) return Misfit::kColors;
  PlanWidePixels(info, request.channels, type, plan, request.fills_range);
  return Misfit::kNone;
}

Misfit PlanWindow(const DecodeRequest& request, const ImageInfo& info, TensorPlan* plan) {
  const Size image = ShownSize(info, request.orientation);
  const Region region = request.window.value_or(WholeImage(image));
  const Size window = {region.x.size_px, region.y.size_px};
  if (window.width_px <= 0 || window.height_px <= 0 || !IsInside(region, image)) {
    return Misfit::kWindow;
  }
  const uint64_t most = request.max_pixels / PixelCost(plan->channels());
  if (static_cast<uint64_t>(window.width_px) > most / static_cast<uint64_t>(window.height_px)) {
    return Misfit::kPixels;
  }
  const Misfit misfit = PlaceAxes(request, window, plan);
  if (misfit != Misfit::kNone) return misfit;
  plan->origin_bytes =
      PlacePixels(info, request.orientation, region, false, plan->strides, &plan->output);
  return Misfit::kNone;
}

uint32_t OutputChannels(const DecodeRequest& request, const ImageInfo& info) {
  return request.channels.empty() ? OutputChannels(info, request.colors)
                                  : static_cast<uint32_t>(request.channels.size());
}

Misfit PlanOutput(const DecodeRequest& request, const ImageInfo& info, TensorPlan* plan) {
  const Misfit misfit = PlanImage(request, info, plan);
  return misfit != Misfit::kNone ? misfit : PlanWindow(request, info, plan);
}

}  // namespace l3
