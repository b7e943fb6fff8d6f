// What store_stage.inc and its vector operations share, the same for all instruction sets.
// Layer: cpu.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/output.h"

namespace l3 {

constexpr uint32_t kRunPixels = 256;
constexpr uint32_t kFloats = 8;  // that are worked on together

// A run's samples, by source: the stored channels, then luma.
template <typename Stored>
struct Planes {
  alignas(32) Stored channel[kMaxChannels + 1][kRunPixels];

  const Stored* Source(uint32_t source) const {
    return channel[source == kLumaChannel ? kMaxChannels : source];
  }
};

}  // namespace l3
