// From planes to interleaved pixels. Layer: cpu, x86-64 only.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/x86_lanes.h"

namespace l3::x86 {

// How to interleave three channels into three vectors, whose halves are blocks:
// block j of a half holds 16 bytes of pixels. In each place of a block the three
// blocks want three different channels, so one shuffle of a channel serves all
// of them, and blends pick the channel for each place.
struct InterleaveTable {
  alignas(kVectorBytes) uint8_t shuffle[3][kVectorBytes];
  alignas(kVectorBytes) uint8_t in_block0[3][kVectorBytes];  // 0xFF: its places there
};

constexpr InterleaveTable MakeInterleaveTable(uint32_t value_bytes) {
  InterleaveTable table{};
  for (uint32_t i = 0; i < 48; ++i) {
    const uint32_t sample = i / value_bytes;
    const uint32_t channel = sample % 3;
    for (uint32_t half = 0; half < kVectorBytes; half += 16) {
      table.shuffle[channel][half + i % 16] =
          static_cast<uint8_t>(sample / 3 * value_bytes + i % value_bytes);
      if (i < 16) table.in_block0[channel][half + i] = 0xFF;
    }
  }
  return table;
}

template <typename Lanes>
inline constexpr InterleaveTable kInterleaveTable =
    MakeInterleaveTable(sizeof(typename Lanes::Value));

// A vector of each channel as kChannels vectors of pixels.
template <typename Lanes, uint32_t kChannels>
L3_AVX2 inline void StorePixels(__m256i* v, uint8_t* out) {
  if constexpr (kChannels == 1) {
    Store(out, v[0]);
  } else if constexpr (kChannels == 2) {
    const __m256i low = Lanes::ZipLow(v[0], v[1]);
    const __m256i high = Lanes::ZipHigh(v[0], v[1]);
    Store(out, JoinLow(low, high));
    Store(out + kVectorBytes, JoinHigh(low, high));
  } else if constexpr (kChannels == 3) {
    const InterleaveTable& table = kInterleaveTable<Lanes>;
    for (uint32_t c = 0; c < 3; ++c) v[c] = _mm256_shuffle_epi8(v[c], Load(table.shuffle[c]));
    const __m256i is_1 = Load(table.in_block0[1]);
    const __m256i is_2 = Load(table.in_block0[2]);
    // The channel that block 0 has in a place, the one after it, the one before.
    const __m256i same = _mm256_blendv_epi8(_mm256_blendv_epi8(v[0], v[1], is_1), v[2], is_2);
    const __m256i after = _mm256_blendv_epi8(_mm256_blendv_epi8(v[1], v[2], is_1), v[0], is_2);
    const __m256i before = _mm256_blendv_epi8(_mm256_blendv_epi8(v[2], v[0], is_1), v[1], is_2);
    // 16 bytes further on is one channel further on; 8 words are two.
    constexpr bool kBytes = sizeof(typename Lanes::Value) == 1;
    const __m256i block1 = kBytes ? after : before;
    const __m256i block2 = kBytes ? before : after;
    Store(out, JoinLow(same, block1));
    Store(out + kVectorBytes, _mm256_permute2x128_si256(block2, same, 0x30));
    Store(out + 2 * kVectorBytes, JoinHigh(block1, block2));
  } else {
    const __m256i low01 = Lanes::ZipLow(v[0], v[1]);
    const __m256i low23 = Lanes::ZipLow(v[2], v[3]);
    const __m256i high01 = Lanes::ZipHigh(v[0], v[1]);
    const __m256i high23 = Lanes::ZipHigh(v[2], v[3]);
    const __m256i block0 = Lanes::ZipPairsLow(low01, low23);
    const __m256i block1 = Lanes::ZipPairsHigh(low01, low23);
    const __m256i block2 = Lanes::ZipPairsLow(high01, high23);
    const __m256i block3 = Lanes::ZipPairsHigh(high01, high23);
    Store(out, JoinLow(block0, block1));
    Store(out + kVectorBytes, JoinLow(block2, block3));
    Store(out + 2 * kVectorBytes, JoinHigh(block0, block1));
    Store(out + 3 * kVectorBytes, JoinHigh(block2, block3));
  }
}

// One vector of each plane, from place x.
template <typename Lanes, uint32_t kChannels>
L3_AVX2 inline void StorePixels(const typename Lanes::Value* const* planes, uint32_t x,
                                uint8_t* out) {
  __m256i v[kChannels];
  for (uint32_t c = 0; c < kChannels; ++c) v[c] = Load(planes[c] + x);
  StorePixels<Lanes, kChannels>(v, out);
}

// Interleaves `width` values of each plane. Reads whole vectors, and writes
// nothing behind the last pixel.
template <typename Lanes, uint32_t kChannels>
L3_AVX2 void StoreRow(const typename Lanes::Value* const* planes, uint32_t width, uint8_t* out) {
  constexpr uint32_t kPixelBytes = kChannels * sizeof(typename Lanes::Value);
  uint32_t x = 0;
  for (; x + Lanes::kCount <= width; x += Lanes::kCount) {
    StorePixels<Lanes, kChannels>(planes, x, out + kPixelBytes * x);
  }
  if (x < width) {
    uint8_t last[kChannels * kVectorBytes];
    StorePixels<Lanes, kChannels>(planes, x, last);
    std::memcpy(out + kPixelBytes * x, last, kPixelBytes * (width - x));
  }
}

template <typename Lanes>
L3_AVX2 void StoreRow(const typename Lanes::Value* const* planes, uint32_t channels, uint32_t width,
                      uint8_t* out) {
  switch (channels) {
    case 1: return StoreRow<Lanes, 1>(planes, width, out);
    case 2: return StoreRow<Lanes, 2>(planes, width, out);
    case 3: return StoreRow<Lanes, 3>(planes, width, out);
    default: return StoreRow<Lanes, 4>(planes, width, out);
  }
}

}  // namespace l3::x86
