// Shared memory of one warp, by the coding of its tile. Layer: cuda.
#pragma once

#include "core/packed.h"
#include "core/rans.h"
#include "cuda/sample_group.cuh"
#include "format/image_view.h"

namespace l3 {

// For packed tiles, constant and stored ones. What all lanes know of their tile is here, as
// registers are dear.
struct WarpScratch {
  PackedBody body;
  ValueRange range;
  WordTaps taps[kNumPredictors];
  // A span of pixels at their largest, and the word to spare that stores ask for.
  alignas(16) uint8_t row[kRowSpan * kMaxChannels * 2 + 16];
};

// Pixels that a lane holds back, so that it writes whole chunks.
constexpr uint32_t kHeldPixels = 16;

struct alignas(8) RansScratchToken {
  uint16_t start;
  uint16_t frequency;
  uint16_t base;
  uint16_t raw_bits;
};

// The token of a slot, and how many slots from there on, of kSlotsPerEntry at most, are its own.
struct alignas(2) RansFirstToken {
  uint8_t token;
  uint8_t slots;
};

// Where a level finds its tables and coefficients: numbers of entries.
struct alignas(8) RansContext {
  uint16_t token;
  uint16_t first_token;
  uint32_t taps;
};

// For rans tiles.
struct RansScratch {
  static constexpr uint32_t kSlotsPerEntry = 8;
  static constexpr uint32_t kFirstTokens = kRansScale / kSlotsPerEntry;
  static constexpr uint32_t kContextBytes = sizeof(RansContext);
  static constexpr uint32_t kTokenBytes = sizeof(RansScratchToken);
  static constexpr uint32_t kFirstTokenBytes = sizeof(RansFirstToken);

  uint8_t* held;         // pixels, by lane
  RansBody* body;
  uint32_t* taps;        // coefficients: 4 words for each set of each channel
  RansScratchToken* token;    // by table
  RansFirstToken* first_token;  // of every kSlotsPerEntry-th slot, by table
  uint32_t* row_above;   // what the last lane passes to lane 0, by column
  RansContext* context;       // by channel and level

  // Places the parts from `memory` on, which is 16-byte aligned; returns their size.
  L3_HOST_DEVICE uint32_t Place(const ImageInfo& info, uint32_t table_count, uint8_t* memory) {
    uint32_t bytes = 0;
    held = memory;
    bytes += kRansLanes * kHeldPixels * info.pixel_bytes();
    body = reinterpret_cast<RansBody*>(memory + bytes);
    bytes += static_cast<uint32_t>(CeilDiv(sizeof(RansBody), 16) * 16);
    taps = reinterpret_cast<uint32_t*>(memory + bytes);
    bytes += 16 * kMaxRansSets * info.channels;
    context = reinterpret_cast<RansContext*>(memory + bytes);
    bytes += kContextBytes * info.channels * kRansLevels;
    token = reinterpret_cast<RansScratchToken*>(memory + bytes);
    bytes += kTokenBytes * table_count * TokenCount(info);
    row_above = reinterpret_cast<uint32_t*>(memory + bytes);
    bytes += 4 * (info.sample_bytes() * info.channels << info.tile_width_log2);
    first_token = reinterpret_cast<RansFirstToken*>(memory + bytes);
    bytes += kFirstTokenBytes * table_count * kFirstTokens;
    return bytes;
  }

  static L3_HOST_DEVICE uint32_t TokenCount(const ImageInfo& info) {
    return info.used_bits <= 8 ? kRansShortTokens : kRansTokens;
  }
};

}  // namespace l3
