// By which code the plan of a window is carried out: found on the host, once for each window.
// Layer: cuda.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <iterator>

#include "cuda/kernels/tile_batch.h"
#include "format/constants.h"
#include "format/image_view.h"
#include "output/output_plan.h"

namespace l3 {

inline RowOrder GetRowOrder(const OutputPlan& plan) {
  const int64_t bytes = OutputBytes(plan.type);
  return plan.x_stride_bytes == bytes    ? RowOrder::kForwards
         : plan.x_stride_bytes == -bytes ? RowOrder::kBackwards
                                         : RowOrder::kScattered;
}

// The top bit of samples of a signed type, else 0.
inline uint16_t TopBitOf(const ImageInfo& info) {
  return static_cast<uint16_t>(info.is_signed() ? 1u << (8 * info.sample_bytes() - 1) : 0);
}

// Whether no value can be NaN, since nothing can overflow: the hardware makes other halves of NaNs.
inline bool IsBounded(const OutputPlan& plan) {
  const auto bounded = [](const auto& values) {
    constexpr float kBound = 1u << 30;
    return std::all_of(std::begin(values), std::end(values),
                       [](float v) { return v <= kBound && v >= -kBound; });
  };
  const auto& weights = plan.weights;
  return bounded(std::initializer_list<float>{plan.range}) && bounded(plan.subtract) &&
         bounded(plan.multiply) && bounded(plan.fill) &&
         (plan.op != PixelOp::kMix || (bounded(weights[0]) && bounded(weights[1]) &&
                                       bounded(weights[2]) && bounded(plan.bias)));
}

// Halves of all stored channels, each scaled by itself, as HalvesPlace has them. What is subtracted
// is 0, or far above what rounds to 0.
inline bool AreHalves(const ImageInfo& info, const OutputPlan& plan) {
  constexpr float kLeastSubtracted = 0x1p-100f;
  const auto fits = [](int64_t v) { return v == static_cast<int32_t>(v); };
  bool halves = plan.op == PixelOp::kScale && plan.range == 1 && plan.type == OutputType::kF16 &&
                !info.is_signed() && plan.channels == info.channels &&
                GetRowOrder(plan) != RowOrder::kScattered && fits(plan.y_stride_bytes);
  for (uint32_t c = 0; c < plan.channels; ++c) {
    const int64_t offset = plan.channel_offset_bytes[c] - plan.channel_offset_bytes[0];
    halves = halves && plan.source[c] == c && fits(offset / 2) &&
             (plan.subtract[c] == 0 || std::fabs(plan.subtract[c]) >= kLeastSubtracted);
  }
  return halves;
}

inline StorePath GetStorePath(const ImageInfo& info, const OutputPlan& plan) {
  if (HasStoredRows(info, plan)) return StorePath::kStored;
  if (!IsBounded(plan)) return StorePath::kOne;
  return AreHalves(info, plan) ? StorePath::kHalves : StorePath::kEight;
}

// The plan with its channels in the order of their sources, where each is made of one. What goes to
// which place is the same.
inline OutputPlan SortChannels(const OutputPlan& plan) {
  OutputPlan sorted = plan;
  if (plan.op == PixelOp::kMix || plan.op == PixelOp::kSelect) return sorted;
  uint32_t order[kMaxChannels] = {0, 1, 2, 3};
  std::stable_sort(order, order + plan.channels,
                   [&plan](uint32_t a, uint32_t b) { return plan.source[a] < plan.source[b]; });
  for (uint32_t c = 0; c < plan.channels; ++c) {
    sorted.source[c] = plan.source[order[c]];
    sorted.channel_offset_bytes[c] = plan.channel_offset_bytes[order[c]];
    sorted.subtract[c] = plan.subtract[order[c]];
    sorted.multiply[c] = plan.multiply[order[c]];
    sorted.fill[c] = plan.fill[order[c]];
  }
  return sorted;
}

}  // namespace l3
