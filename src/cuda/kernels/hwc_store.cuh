// The store stage of the kernels: from a row of decoded samples in a warp's
// shared memory to an image of interleaved samples as stored. Layer: cuda.
//
// A store policy has the functions below; it alone knows how output looks. This one is
// for images that leave whole and as stored, the other is in plan_store.cuh.
#pragma once

#include "core/tile.h"
#include "cuda/kernels/device_memory.h"
#include "cuda/kernels/lane_math.cuh"
#include "cuda/kernels/sample_group.cuh"
#include "cuda/kernels/warp.h"

namespace l3 {

// Eight pixels of a lane in shared memory: in a staged row, or in the ring where those of a rans
// tile wait.
struct SharedPixels {
  SharedPlace base;
  uint32_t first;      // bytes from there to the first pixel
  uint32_t step;       // bytes to the next
  uint32_t ring_mask;  // of bytes from `base`
  uint32_t word_step;  // bytes from a word of a pixel to its next

  L3_DEVICE uint8_t* Pixel(uint32_t i) const {
    return SharedPointer(base) + ((first + i * step) & ring_mask);
  }
};

// 16 bytes from any place of a row in shared memory, which has a word to spare behind it.
L3_DEVICE Chunk LoadUnaligned(const uint8_t* row, uint32_t from) {
  const uint8_t* place = row + (from & ~3u);
  Chunk chunk;
  uint32_t low = LoadWord(place);
  L3_UNROLL
  for (uint32_t k = 0; k < 4; ++k) {
    const uint32_t high = LoadWord(place + 4 * k + 4);
    chunk.word[k] = FunnelShift(low, high, 8 * (from % 4));
    low = high;
  }
  return chunk;
}

// Copies `bytes` from `begin` of a row in shared memory, which has a word to spare behind it, 16 at
// a time where `out` is aligned.
L3_DEVICE void CopyBytes(uint32_t lane, const uint8_t* row, uint32_t begin, uint32_t bytes,
                         uint8_t* out) {
  uint32_t head = (0u - static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out))) % 16;
  if (head > bytes) head = bytes;
  const uint32_t body = (bytes - head) & ~15u;
  L3_NO_UNROLL
  for (uint32_t at = head + 16 * lane; at < head + body; at += 16 * kWarpLanes) {
    PutChunk(out + at, LoadUnaligned(row, begin + at));
  }
  if (lane < head) out[lane] = row[begin + lane];
  const uint32_t tail = head + body + lane;
  if (tail < bytes) out[tail] = row[begin + tail];
}
// The words of eight pixels, without gaps between them. A pixel of three bytes has one to spare in
// its word, one of six has two.
template <uint32_t kPixelBytes, uint32_t kWords>
L3_DEVICE void InterleaveRun(const uint32_t (&pixel)[kGroupSize][kWords],
                             uint32_t (&words)[kGroupSize * kPixelBytes / 4]) {
  static_assert(kWords == (kPixelBytes + 3) / 4);
  if constexpr (kPixelBytes % 4 == 0) {
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize * kWords; ++i) words[i] = pixel[i / kWords][i % kWords];
  } else if constexpr (kPixelBytes == 1) {
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize / 4; ++i) {
      words[i] = LowHalves(PermuteBytes(pixel[4 * i][0], pixel[4 * i + 1][0], 0x0040),
                           PermuteBytes(pixel[4 * i + 2][0], pixel[4 * i + 3][0], 0x0040));
    }
  } else if constexpr (kPixelBytes == 2) {
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize / 2; ++i) {
      words[i] = LowHalves(pixel[2 * i][0], pixel[2 * i + 1][0]);
    }
  } else if constexpr (kPixelBytes == 3) {
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize / 4; ++i) {
      words[3 * i] = PermuteBytes(pixel[4 * i][0], pixel[4 * i + 1][0], 0x4210);
      words[3 * i + 1] = PermuteBytes(pixel[4 * i + 1][0], pixel[4 * i + 2][0], 0x5421);
      words[3 * i + 2] = PermuteBytes(pixel[4 * i + 2][0], pixel[4 * i + 3][0], 0x6542);
    }
  } else {
    static_assert(kPixelBytes == 6);
    L3_UNROLL
    for (uint32_t i = 0; i < kGroupSize / 2; ++i) {
      words[3 * i] = pixel[2 * i][0];
      words[3 * i + 1] = LowHalves(pixel[2 * i][1], pixel[2 * i + 1][0]);
      words[3 * i + 2] = PermuteBytes(pixel[2 * i + 1][0], pixel[2 * i + 1][1], 0x5432);
    }
  }
}

// Where the rows of a tile go, for tiles that are rare.
struct StoredRows {
  uint8_t* tile;  // the place of its first sample, at any address
  uint64_t row_stride_bytes;
  uint32_t pixel_bytes;

  L3_DEVICE uint8_t* Place(uint32_t x, uint32_t y) const {
    return tile + y * row_stride_bytes + x * pixel_bytes;
  }
  // Stores pixels [x, x + width) of row y of the tile, width 1 to kRowSpan. `row` holds their
  // samples, channels interleaved, in shared memory that all lanes may read, and a word to spare
  // behind them.
  template <class Warp>
  L3_DEVICE void StoreRareRow(const Warp& warp, const uint8_t* row, uint32_t x, uint32_t y,
                              uint32_t width) const {
    CopyBytes(warp.lane(), row, 0, width * pixel_bytes, Place(x, y));
  }
};

template <uint32_t kPixelBytes>
struct HwcStore : StoredRows {
  // Has no code for rows that have not been staged.
  static constexpr bool kHasHalves = false;
  struct Halves {
    template <class... Arguments>
    explicit L3_DEVICE Halves(const Arguments&...) {}
    static L3_DEVICE constexpr bool serves() { return true; }
  };

  L3_DEVICE HwcStore(uint8_t* first, uint64_t stride_bytes)
      : StoredRows{first, stride_bytes, kPixelBytes} {}

  // StoreRareRow() for tiles that are not rare.
  template <class Warp>
  L3_DEVICE void StoreRow(const Warp& warp, const uint8_t* row, uint32_t x, uint32_t y,
                          uint32_t width) const {
    uint8_t* out = Place(x, y);
    const uint32_t bytes = width * kPixelBytes;
    if (reinterpret_cast<uintptr_t>(out) % 16 != 0 || bytes % 16 != 0) {
      return CopyBytes(warp.lane(), row, 0, bytes, out);
    }
    L3_UNROLL
    for (uint32_t i = 0; i < kRowSpan * kPixelBytes; i += 16 * kWarpLanes) {
      const uint32_t at = i + 16 * warp.lane();
      if (at < bytes) PutChunk(out + at, *reinterpret_cast<const Chunk*>(row + at));
    }
  }

  // Stores eight pixels that lie in words, from (x, y) of the tile on, by this lane alone. Returns
  // whether all is done.
  template <uint32_t kWords>
  L3_DEVICE bool StoreRun(const uint32_t (&pixel)[kGroupSize][kWords], uint32_t x,
                          uint32_t y) const {
    uint32_t words[kGroupSize * kPixelBytes / 4];
    InterleaveRun<kPixelBytes>(pixel, words);
    StorePixels(words, x, y);
    return true;
  }
  // Stores `count` pixels from the i-th on, which are those from (x, y) of the tile on, by this
  // lane alone. `rest_of_run` says that StoreRun() did not do all of them.
  L3_DEVICE void StorePart(const SharedPixels& pixels, uint32_t i, uint32_t x, uint32_t y,
                           uint32_t count, [[maybe_unused]] bool rest_of_run) const {
    uint8_t* out = Place(x, y);
    L3_NO_UNROLL
    for (uint32_t end = i + count; i < end; ++i) {
      const uint8_t* pixel = pixels.Pixel(i);
      L3_UNROLL
      for (uint32_t b = 0; b < kPixelBytes; ++b) {
        *out++ = pixel[b / 4 * pixels.word_step + b % 4];
      }
    }
  }

  // Stores whole pixels from (x, y) of the tile on, by this lane alone. `words`
  // hold their samples, channels interleaved.
  template <uint32_t kWords>
  L3_DEVICE void StorePixels(const uint32_t (&words)[kWords], uint32_t x, uint32_t y) const {
    static_assert(kWords % 2 == 0);
    uint8_t* out = Place(x, y);
    const uint32_t misaligned = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out) % 8);
    if (misaligned == 0) {
      // Each lane stores to a line of its own: the fewer stores, the better.
      if (reinterpret_cast<uintptr_t>(out) % 16 == 0) {
        StoreAligned<0>(words, out);
      } else {
        PutTwoWords(out, words[0], words[1]);
        StoreAligned<2>(words, out);
      }
      return;
    }
    const uint32_t head = (0u - misaligned) & 3;  // bytes before the first whole word
    L3_UNROLL
    for (uint32_t i = 0; i + 1 < kWords; ++i) {
      PutWord(out + head + 4 * i, FunnelShift(words[i], words[i + 1], 8 * head));
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

  // Stores the words from kFirst on, which are 16-byte aligned.
  template <uint32_t kFirst, uint32_t kWords>
  static L3_DEVICE void StoreAligned(const uint32_t (&words)[kWords], uint8_t* out) {
    L3_UNROLL
    for (uint32_t i = kFirst; i + 4 <= kWords; i += 4) {
      PutChunk(out + 4 * i, {{words[i], words[i + 1], words[i + 2], words[i + 3]}});
    }
    if constexpr ((kWords - kFirst) % 4 != 0) {
      PutTwoWords(out + 4 * (kWords - 2), words[kWords - 2], words[kWords - 1]);
    }
  }
};

}  // namespace l3
