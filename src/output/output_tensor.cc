#include "output/output_tensor.h"

#include <algorithm>
#include <utility>

namespace l3 {
namespace {

// An axis of the region on its way from the tensor to the stored image.
struct AxisPlan {
  int64_t stride_bytes;
  uint32_t before_px, begin_px, size_px, after_px;  // border, window, border
  uint32_t image_px;
};

AxisPlan PlanAxis(const Extent& extent, int64_t image_px, int64_t stride_bytes) {
  const int64_t begin = std::clamp<int64_t>(extent.begin_px, 0, image_px);
  const int64_t end = std::clamp<int64_t>(extent.end_px(), begin, image_px);
  const int64_t before = std::clamp<int64_t>(-extent.begin_px, 0, extent.size_px);
  return {stride_bytes,
          static_cast<uint32_t>(before),
          static_cast<uint32_t>(begin),
          static_cast<uint32_t>(end - begin),
          static_cast<uint32_t>(extent.size_px - before - (end - begin)),
          static_cast<uint32_t>(image_px)};
}

// Walks the tensor against the axis: its first pixel goes where its last one went.
void Reverse(AxisPlan* axis, int64_t* origin_bytes) {
  const int64_t pixels = int64_t{axis->before_px} + axis->size_px + axis->after_px;
  *origin_bytes += (pixels - 1) * axis->stride_bytes;
  axis->stride_bytes = -axis->stride_bytes;
}

// The same pixels, counted from the axis' other end.
void Flip(AxisPlan* axis, int64_t* origin_bytes) {
  Reverse(axis, origin_bytes);
  std::swap(axis->before_px, axis->after_px);
  axis->begin_px = axis->image_px - axis->begin_px - axis->size_px;
}

}  // namespace

std::array<int64_t, 3> ShapeOf(const Layout& layout, const Size& size, int64_t channels) {
  const std::array<int64_t, 3> sizes = {size.height_px, size.width_px, channels};  // in Axis' order
  const auto size_of = [&sizes](Axis axis) { return sizes[static_cast<size_t>(axis)]; };
  return {size_of(layout[0]), size_of(layout[1]), size_of(layout[2])};
}

void PlacePixels(const ImageInfo& info, const Orientation& orientation, const Region& region,
                 bool mirror, const Strides& strides, OutputPlan* output) {
  const Size image = ShownSize(info, orientation);
  AxisPlan x = PlanAxis(region.x, image.width_px, strides[static_cast<size_t>(Axis::kWidth)]);
  AxisPlan y = PlanAxis(region.y, image.height_px, strides[static_cast<size_t>(Axis::kHeight)]);
  int64_t origin_bytes = 0;
  if (mirror) Reverse(&x, &origin_bytes);
  if (orientation.swap_xy) std::swap(x, y);
  if (orientation.flip_x) Flip(&x, &origin_bytes);
  if (orientation.flip_y) Flip(&y, &origin_bytes);

  output->origin_bytes = origin_bytes + x.before_px * x.stride_bytes + y.before_px * y.stride_bytes;
  output->x_stride_bytes = x.stride_bytes;
  output->y_stride_bytes = y.stride_bytes;
  output->SetChannelStride(strides[static_cast<size_t>(Axis::kChannel)]);
  output->window = {x.begin_px, y.begin_px, x.size_px, y.size_px};
  output->border = {x.before_px, y.before_px, x.after_px, y.after_px};
}

}  // namespace l3
