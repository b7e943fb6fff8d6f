// What the kernels of all codings share. Layer: cuda.
#pragma once

#include "core/color.h"
#include "core/tile.h"
#include "cuda/kernels/device_memory.h"
#include "cuda/kernels/warp.h"

namespace l3 {

// How far the check stays ahead: a row or two of an RGB8 image.
constexpr uint32_t kReadAheadBytes = 1024;

template <class Warp>
L3_DEVICE bool OnAllLanes(Warp& warp, bool condition) {
  return warp.Ballot(condition) == 0xFFFFFFFF;
}

// Turns `count` of a lane's values, as they lie in memory, into samples by the
// value table. Returns false if one of them is no rank of it.
template <uint32_t kSampleBytes>
L3_DEVICE bool LookUp(const SampleMap& map, uint32_t count, uint8_t* values) {
  const uint16_t* table = GlobalPointer(map.table);
  bool valid = true;
  L3_NO_UNROLL
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t value = kSampleBytes == 1 ? values[i] : LoadU16(values + 2 * i);
    const bool in_table = value < map.value_count;
    StoreSample(values, i, in_table ? table[value] : 0, 8 * kSampleBytes);
    valid = valid && in_table;
  }
  return valid;
}

}  // namespace l3
