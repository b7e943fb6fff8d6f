// The store stage of the kernels: from a row of decoded samples in a warp's
// shared memory to an image of interleaved samples as stored. Layer: cuda.
//
// A store policy has the functions below; it alone knows how output looks. This one is
// for images that leave whole and as stored, the other is in plan_store.cuh.
#pragma once

#include "core/tile.h"
#include "cuda/kernels/device_memory.h"
#include "cuda/kernels/sample_group.cuh"
#include "cuda/kernels/warp.h"

namespace l3 {

template <uint32_t kPixelBytes>
class HwcStore {
 public:
  // `tile` is the place of the tile's first sample, at any address.
  L3_DEVICE HwcStore(uint8_t* tile, uint64_t row_stride_bytes)
      : tile_(tile), row_stride_bytes_(row_stride_bytes) {}

  // Stores pixels [x, x + width) of row y of the tile, width 1 to kRowSpan.
  // `row` holds their samples, channels interleaved, in shared memory that all
  // lanes may read, and a word to spare behind them.
  //
  // Writes 16 bytes a lane where the row is aligned to that, else 4.
  template <class Warp>
  L3_DEVICE void StoreRow(const Warp& warp, const uint8_t* row, uint32_t x, uint32_t y,
                          uint32_t width) const {
    uint8_t* out = tile_ + y * row_stride_bytes_ + x * kPixelBytes;
    const uint32_t bytes = width * kPixelBytes;
    const uint32_t lane = warp.lane();
    const uint32_t misaligned = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out) % 16);
    uint32_t head = 0;  // bytes before the first whole piece
    uint32_t body = 0;  // bytes in whole pieces
    if (misaligned == 0) {
      body = bytes & ~15u;
      L3_UNROLL
      for (uint32_t i = 0; i < kRowSpan * kPixelBytes; i += 16 * kWarpLanes) {
        const uint32_t at = i + 16 * lane;
        if (at < body) CopyChunk(row + at, out + at);
      }
    } else {
      head = (0u - misaligned) & 3;
      if (head > bytes) head = bytes;
      body = (bytes - head) & ~3u;
      L3_UNROLL
      for (uint32_t i = 0; i < kRowSpan * kPixelBytes; i += 4 * kWarpLanes) {
        const uint32_t at = i + 4 * lane;
        if (at < body) {
          const uint32_t first = LoadWord(row + at);
          const uint32_t second = LoadWord(row + at + 4);
          StoreWord(out + head + at, FunnelShift(first, second, 8 * head));
        }
      }
      if (lane < head) out[lane] = row[lane];
    }
    const uint32_t tail = head + body + lane;
    if (tail < bytes) out[tail] = row[tail];
  }

  // The same for the rows of tiles that are rare: with little code, where there is a choice.
  template <class Warp>
  L3_DEVICE void StoreRareRow(const Warp& warp, const uint8_t* row, uint32_t x, uint32_t y,
                              uint32_t width) const {
    StoreRow(warp, row, x, y, width);
  }

  // Stores whole pixels from (x, y) of the tile on, by this lane alone. `words`
  // hold their samples, channels interleaved.
  template <uint32_t kWords>
  L3_DEVICE void StorePixels(const uint32_t (&words)[kWords], uint32_t x, uint32_t y) const {
    static_assert(kWords % 2 == 0);
    uint8_t* out = tile_ + y * row_stride_bytes_ + x * kPixelBytes;
    const uint32_t misaligned = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out) % 8);
    if (misaligned == 0) {
      L3_UNROLL
      for (uint32_t i = 0; i < kWords; i += 2) StoreTwoWords(out + 4 * i, words[i], words[i + 1]);
      return;
    }
    const uint32_t head = (0u - misaligned) & 3;  // bytes before the first whole word
    L3_UNROLL
    for (uint32_t i = 0; i + 1 < kWords; ++i) {
      StoreWord(out + head + 4 * i, FunnelShift(words[i], words[i + 1], 8 * head));
    }
    L3_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      if (i < head) {
        out[i] = static_cast<uint8_t>(words[0] >> (8 * i));
      } else {
        out[4 * (kWords - 1) + i] = static_cast<uint8_t>(words[kWords - 1] >> (8 * i));
      }
    }
  }

  template <uint32_t kWords>
  L3_DEVICE void StoreRarePixels(const uint32_t (&words)[kWords], uint32_t x, uint32_t y) const {
    StorePixels(words, x, y);
  }

  // Stores pixel (x, y) of the tile, by this lane alone.
  template <uint32_t kChannels>
  L3_DEVICE void StorePixel(const uint32_t (&samples)[kChannels], uint32_t x, uint32_t y) const {
    uint8_t* out = tile_ + y * row_stride_bytes_ + x * kPixelBytes;
    L3_UNROLL
    for (uint32_t c = 0; c < kChannels; ++c) {
      StoreSample(out, c, samples[c], 8 * kPixelBytes / kChannels);
    }
  }

 private:
  uint8_t* tile_;
  uint64_t row_stride_bytes_;
};

}  // namespace l3
