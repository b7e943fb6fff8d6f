// By which code a PlanStore stores samples: found on the host, once for each plan. Layer: cuda.
#pragma once

#include <cstdint>

#include "core/output.h"
#include "format/constants.h"
#include "format/image_view.h"

namespace l3 {

// How samples leave: rows as they are stored; or eight values at a time, by code for scaled
// samples or by code for nearly all; or one. Signed samples have paths of their own, the last.
enum class StorePath : uint8_t {
  kHalves,
  kHalvesBack,
  kFloats,
  kFloatsBack,
  kStored,
  kEight,
  kOne,
  kSignedStored,
  kSignedEight,
  kSignedOne
};
L3_HOST_DEVICE constexpr bool IsSigned(StorePath path) { return path >= StorePath::kSignedStored; }
L3_HOST_DEVICE constexpr bool IsStored(StorePath path) {
  return path == StorePath::kStored || path == StorePath::kSignedStored;
}

// How the values of a channel lie in a row of the output.
enum class RowOrder : uint8_t { kForwards, kBackwards, kScattered };

// Channels that the code for scaled samples has room for.
constexpr uint32_t kScaledChannels = 3;

inline RowOrder GetRowOrder(const OutputPlan& plan) {
  const int64_t bytes = OutputBytes(plan.type);
  return plan.x_stride_bytes == bytes    ? RowOrder::kForwards
         : plan.x_stride_bytes == -bytes ? RowOrder::kBackwards
                                         : RowOrder::kScattered;
}

// The usual types, and no value can be NaN, since nothing can overflow. Of signed samples each
// value comes from one.
inline bool TakesEight(const ImageInfo& info, const OutputPlan& plan) {
  constexpr float kBound = 1u << 30;
  const auto bounded = [](float v) { return v <= kBound && v >= -kBound; };
  bool takes = plan.type == OutputType::kU8 || plan.type == OutputType::kU16 ||
               plan.type == OutputType::kF16 || plan.type == OutputType::kF32;
  takes = takes && bounded(plan.range);
  for (uint32_t c = 0; info.is_signed() && c < plan.channels; ++c) {
    takes = takes && plan.op != PixelOp::kMix && plan.source[c] != kLumaChannel;
  }
  for (uint32_t c = 0; c < kMaxChannels; ++c) {
    takes =
        takes && bounded(plan.subtract[c]) && bounded(plan.multiply[c]) && bounded(plan.fill[c]);
  }
  for (uint32_t c = 0; plan.op == PixelOp::kMix && c < 3; ++c) {
    takes = takes && bounded(plan.weights[c][0]) && bounded(plan.weights[c][1]) &&
            bounded(plan.weights[c][2]) && bounded(plan.bias[c]);
  }
  return takes;
}

// Scaled samples alone, which follow one another in each channel, as the inputs of networks do.
inline bool IsScaled(const ImageInfo& info, const OutputPlan& plan) {
  const int64_t group_bytes = int64_t{kGroupSize} * OutputBytes(plan.type);
  bool scaled = plan.op == PixelOp::kScale && plan.range == 1 && plan.channels <= kScaledChannels &&
                GetRowOrder(plan) != RowOrder::kScattered &&
                (plan.type == OutputType::kF16 || plan.type == OutputType::kF32);
  for (uint32_t c = 0; c < plan.channels; ++c) {
    scaled =
        scaled && plan.source[c] < info.channels && plan.channel_offset_bytes[c] % group_bytes == 0;
  }
  return scaled;
}

inline StorePath GetStorePath(const ImageInfo& info, const OutputPlan& plan) {
  if (HasStoredRows(info, plan)) {
    return info.is_signed() ? StorePath::kSignedStored : StorePath::kStored;
  }
  const bool takes_eight = TakesEight(info, plan);
  if (info.is_signed()) return takes_eight ? StorePath::kSignedEight : StorePath::kSignedOne;
  if (!takes_eight) return StorePath::kOne;
  if (!IsScaled(info, plan)) return StorePath::kEight;
  const bool forwards = GetRowOrder(plan) == RowOrder::kForwards;
  return plan.type == OutputType::kF16 ? (forwards ? StorePath::kHalves : StorePath::kHalvesBack)
                                       : (forwards ? StorePath::kFloats : StorePath::kFloatsBack);
}

}  // namespace l3
