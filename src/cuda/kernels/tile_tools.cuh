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

// Turns valid values, as they lie in memory, into samples, where there is no value table.
template <uint32_t kSampleBytes, uint32_t kWords>
L3_DEVICE void MapWords(const SampleMap& map, uint32_t (&words)[kWords]) {
  if (map.shift != 0) {
    L3_UNROLL
    for (uint32_t& word : words) word <<= map.shift;
  }
  if (map.offset != 0) {
    // Subtracts without a borrow from the next sample: what is added first lifts the sum to
    // the top bit or above it wherever the difference is not negative.
    constexpr uint32_t kOnes = kSampleBytes == 1 ? 0x01010101 : 0x00010001;
    constexpr uint32_t kTopBit = 1u << (8 * kSampleBytes - 1);
    const uint32_t lift = (kTopBit - map.offset) * kOnes;
    L3_UNROLL
    for (uint32_t& word : words) word = (word + lift) ^ (kTopBit * kOnes);
  }
}

template <uint32_t kSampleBytes>
L3_DEVICE uint32_t LoadValue(const uint8_t* values, uint64_t i) {
  return kSampleBytes == 1 ? values[i] : LoadU16(values + 2 * i);
}

// Puts a value at place i of `samples`, as a sample. Returns false if it has none.
template <uint32_t kSampleBytes>
L3_DEVICE bool PutSample(const SampleMap& map, uint32_t value, uint32_t i, uint8_t* samples) {
  const bool valid = value < map.value_count;
  StoreSample(samples, i, valid ? map(value) : 0, 8 * kSampleBytes);
  return valid;
}

}  // namespace l3
