// The store stage of the kernels: from a row of decoded samples in a warp's
// shared memory to an image of interleaved samples as stored. Layer: cuda.
//
// A store policy has StoreRow() below; it alone knows how output looks.
// Windows, mirrors, other sample types and CHW are other policies.
#pragma once

#include "cuda/device_memory.h"
#include "cuda/sample_group.cuh"
#include "cuda/warp.h"

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

  // The same by one lane alone, for a few pixels that are 16-byte aligned.
  L3_DEVICE void StorePixels(const uint8_t* pixels, uint32_t x, uint32_t y,
                             uint32_t width) const {
    uint8_t* out = tile_ + y * row_stride_bytes_ + x * kPixelBytes;
    const uint32_t bytes = width * kPixelBytes;
    const uint32_t misaligned = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out));
    uint32_t at = 0;
    if (misaligned % 16 == 0) {
      for (; at + 16 <= bytes; at += 16) CopyChunk(pixels + at, out + at);
    } else if (misaligned % 4 == 0) {
      for (; at + 4 <= bytes; at += 4) StoreWord(out + at, LoadWord(pixels + at));
    }
    for (; at < bytes; ++at) out[at] = pixels[at];
  }

 private:
  uint8_t* tile_;
  uint64_t row_stride_bytes_;
};

}  // namespace l3
