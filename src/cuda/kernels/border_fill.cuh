// Fills the border of an output, by tasks as tiles are. Layer: cuda.
#pragma once

#include "base/portable.h"
#include "cuda/kernels/warp.h"
#include "output/store_pixel.h"

namespace l3 {

// Pixels of the border that are the work of a task.
constexpr uint32_t kBorderTaskPixels = 1 << 14;

L3_HOST_DEVICE inline uint64_t BorderTasks(const BorderBand& band) {
  return CeilDiv(uint64_t{band.width} * band.height, kBorderTaskPixels);
}
inline uint64_t BorderTasks(const OutputPlan& plan) {
  uint64_t tasks = 0;
  for (uint32_t i = 0; i < kBorderBands; ++i) tasks += BorderTasks(GetBorderBand(plan, i));
  return tasks;
}

// Fills the pixels of task `number` of BorderTasks().
template <class Warp>
L3_DEVICE void FillBorderWarp(const Warp& warp, const OutputPlan& plan, uint64_t number) {
  BorderBand band = GetBorderBand(plan, 0);
  L3_NO_UNROLL
  for (uint32_t i = 0; number >= BorderTasks(band);) {
    number -= BorderTasks(band);
    band = GetBorderBand(plan, ++i);
  }
  const uint64_t begin = number * kBorderTaskPixels;
  const uint64_t pixels = uint64_t{band.width} * band.height;
  const uint64_t end = pixels - begin < kBorderTaskPixels ? pixels : begin + kBorderTaskPixels;
  L3_NO_UNROLL
  for (uint64_t i = begin + warp.lane(); i < end; i += kWarpLanes) {
    StoreBorderPixel(plan, band.x + static_cast<int64_t>(i % band.width),
                     band.y + static_cast<int64_t>(i / band.width));
  }
}

}  // namespace l3
