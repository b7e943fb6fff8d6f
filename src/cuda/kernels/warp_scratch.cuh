// Shared memory of one warp, by the coding of its tile. Layer: cuda.
#pragma once

#include "core/packed.h"
#include "cuda/kernels/device_memory.h"
#include "cuda/kernels/rans_samples.cuh"
#include "cuda/kernels/sample_group.cuh"
#include "format/constants.h"

namespace l3 {

// Where the rows of a packed tile go as normalized CHW float16, by one plan. Lanes load it 16 bytes
// at a time.
struct alignas(16) HalvesPlace {
  static constexpr uint32_t kMirrored = 1, kAligned = 2;
  float subtract[kMaxChannels], multiply[kMaxChannels];  // of PlansStore::ScaledValue()
  uint8_t* out;  // of the first half in memory of the tile's first row, in the window or not
  int32_t y_stride_bytes;
  uint32_t way;  // kMirrored, kAligned
  int32_t channel_offset[kMaxChannels];  // from the first one, in halves
  uint32_t begin, count;                 // of a row's halves those in the window
  uint32_t top, height;                  // the tile's first row, from the window's; its rows
};

// For packed tiles, constant and stored ones. What all lanes know of their tile is here, as
// registers are dear.
struct WarpScratch {
  PackedBody body;
  ValueRange range;
  WordTaps taps[kNumPredictors];
  HalvesPlace halves;
  // A span of pixels at their largest, and the word to spare that stores ask for.
  alignas(16) uint8_t row[kRowSpan * kMaxChannels * 2 + 16];
};

// Teams decode tiles with three channels of one byte.
constexpr uint32_t kTeamChannels = 3;

// The shared memory of a team. Each warp writes three rows of its channel to `rows`. Then each warp
// stores one of these rows with all channels, and goes on with the other half of `rows`.
struct TeamScratch {
  WarpScratch warps[kTeamChannels];
  Chunk rows[2][kTeamChannels][kTeamChannels][kWarpLanes];  // half, row, channel, lane
  uint32_t check_sums[kTeamChannels];
};

// Pixels that a lane of a rans tile stores at a time, and steps between two stores.
constexpr uint32_t kRunPixels = 8;

// Words that the samples of a pixel take, and what a lane passes on of it: as
// many as can be read at once. `bytes` is 1 where used_bits is at most 8, else 2.
L3_HOST_DEVICE constexpr uint32_t PixelWords(uint32_t channels, uint32_t bytes) {
  return (channels * bytes + 3) / 4;
}
constexpr uint32_t PassedWords(uint32_t channels, uint32_t bytes) {
  const uint32_t words = channels * bytes;
  return words > 4 ? 8 : words > 2 ? 4 : words;
}

// For rans tiles.
template <uint32_t kChannels, uint32_t kBytes>
struct RansScratch {
  static constexpr uint32_t kPassedWords = PassedWords(kChannels, kBytes);
  struct alignas(kPassedWords > 4 ? 16 : 4 * kPassedWords) PassedPixel {
    uint32_t word[kPassedWords];
  };

  RansTaps taps[kChannels][kMaxRansSets];
  // Two runs of each lane: one waits while the next begins.
  uint32_t pixels[2 * kRunPixels][PixelWords(kChannels, kBytes)][kWarpLanes];
  // What the last lane passes to lane 0, by column; that of the first column is put
  // behind the last one, as lane 0 comes to it from there.
  PassedPixel row[kMaxPackedTileSide + 1];
};

// Bytes of a RansScratch that tiles of this width need.
constexpr uint32_t RansScratchBytes(uint32_t channels, uint32_t bytes, uint32_t tile_width_log2) {
  const uint32_t taps = channels * kMaxRansSets * static_cast<uint32_t>(sizeof(RansTaps));
  const uint32_t pixels = 2 * kRunPixels * 4 * kWarpLanes * PixelWords(channels, bytes);
  const uint32_t row = 4 * PassedWords(channels, bytes) * ((1u << tile_width_log2) + 1);
  return (taps + pixels + row + 15) / 16 * 16;
}
static_assert(sizeof(RansScratch<3, 1>) == RansScratchBytes(3, 1, kMaxPackedTileLog2));
static_assert(sizeof(RansScratch<4, 2>) == RansScratchBytes(4, 2, kMaxPackedTileLog2));

}  // namespace l3
