// From planes of what tiles hold to outputs of floats or 32 bits (format.md 4.6): a second pass
// over windows that tiles were decoded to. Layer: cuda; for host and device.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/portable.h"
#include "output/sample_join.h"
#include "output/store_pixel.h"

namespace l3 {

// Channels of a window that are stored together. Plain data.
struct JoinTask {
  OutputPlan plan;
  const uint8_t* coded;   // planes of the window, rows packed
  uint64_t plane_bytes;
  const uint32_t* table;  // by rank; null for halves, and for floats of 16 bits
  SampleHalves halves;
  SampleType type;
  uint8_t channels;       // of a pixel
  uint8_t coded_bytes;    // of a value of a plane
  uint16_t plane[kMaxChannels];      // of each channel: of ranks, high halves, or bits
  uint16_t low_plane[kMaxChannels];  // of low halves

  L3_HOST_DEVICE uint64_t pixel_count() const {
    const Border& border = plan.border;
    return (uint64_t{border.left_px} + plan.window.width_px + border.right_px) *
           (uint64_t{border.top_px} + plan.window.height_px + border.bottom_px);
  }
};
static_assert(std::is_trivially_copyable_v<JoinTask>);

template <typename Sample, typename Load>
L3_HOST_DEVICE inline void StoreJoined(const JoinTask& task, uint32_t x, uint32_t y,
                                       const Load& load) {
  Sample samples[kMaxChannels];
  for (uint32_t c = 0; c < task.channels; ++c) samples[c] = load(c);
  StorePixel(task.plan, samples, x, y);
}

// Stores a pixel, or one of the border: number `i` of pixel_count().
L3_HOST_DEVICE inline void JoinPixel(const JoinTask& task, uint64_t i) {
  const OutputPlan& plan = task.plan;
  const Window& window = plan.window;
  const uint64_t columns = uint64_t{plan.border.left_px} + window.width_px + plan.border.right_px;
  const int64_t x = static_cast<int64_t>(i % columns) - plan.border.left_px;
  const int64_t y = static_cast<int64_t>(i / columns) - plan.border.top_px;
  if (x < 0 || y < 0 || x >= window.width_px || y >= window.height_px) {
    return StoreBorderPixel(plan, x, y);
  }
  const uint64_t at = static_cast<uint64_t>(y) * window.width_px + static_cast<uint64_t>(x);
  const auto value = [&](uint32_t plane) -> uint32_t {
    const uint8_t* place = task.coded + plane * task.plane_bytes + at * task.coded_bytes;
    return task.coded_bytes == 1 ? *place : *reinterpret_cast<const uint16_t*>(place);
  };
  const auto bits = [&](uint32_t c) -> uint32_t {
    const uint32_t first = value(task.plane[c]);
    if (task.table != nullptr) return task.table[first];
    return SampleJoin::Join(task.halves, first, value(task.low_plane[c]));
  };
  const uint32_t column = static_cast<uint32_t>(x);
  const uint32_t row = static_cast<uint32_t>(y);
  switch (task.type) {
    case SampleType::kFloat16: {
      uint16_t halves[kMaxChannels];
      for (uint32_t c = 0; c < task.channels; ++c) {
        halves[c] = static_cast<uint16_t>(value(task.plane[c]));
      }
      return StoreHalfPixel(plan, halves, task.channels, column, row);
    }
    case SampleType::kFloat32:
      return StoreJoined<float>(task, column, row, [&](uint32_t c) {
        const uint32_t sample = bits(c);
        float number;
        memcpy(&number, &sample, sizeof(number));
        return number;
      });
    case SampleType::kInt32:
      return StoreJoined<int64_t>(task, column, row,
                                  [&](uint32_t c) { return static_cast<int32_t>(bits(c)); });
    default: return StoreJoined<int64_t>(task, column, row, [&](uint32_t c) { return bits(c); });
  }
}

}  // namespace l3
