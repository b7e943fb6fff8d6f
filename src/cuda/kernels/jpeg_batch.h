// Images of jpeg tiles of a batch, as kernels see them: plain data that the host writes and
// uploads. Layer: cuda. jpeg_tasks.h plans it.
//
//   first launch   warp -> tile: payload -> samples of its components, in planes in scratch memory
//   second launch  warp -> some rows of a window: samples -> pixels -> output
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/jpeg_layout.h"
#include "cuda/kernels/tile_batch.h"
#include "cuda/kernels/warp.h"
#include "format/jpeg_chunk.h"
#include "output/output_plan.h"

namespace l3 {

// The step of coefficient k of a group of blocks, as bits of a word.
struct JpegStep {
  static constexpr uint32_t kMagnitudeRow = 10;  // magnitudes have two zeros behind each row

  static constexpr uint32_t Make(uint32_t k) {
    const uint32_t place = kJpegNaturalOrder[k];
    uint32_t columns = 0;  // that coefficients up to k are in
    for (uint32_t i = 0; i <= k; ++i) {
      const uint32_t column = kJpegNaturalOrder[i] % 8;
      columns = column < columns ? columns : column + 1;
    }
    const uint32_t before = k + 1 < kJpegBlockSamples ? kJpegNaturalOrder[k + 1] : 0;
    const bool goes_on = before / 8 + before % 8 == place / 8 + place % 8;
    return place | (place / 8 * kMagnitudeRow + place % 8) << 8 | columns << 16 |
           (goes_on ? 1u << 31 : 0);
  }

  uint32_t bits;

  L3_HOST_DEVICE uint32_t place() const { return bits & 0xFF; }  // in natural order
  L3_HOST_DEVICE uint32_t magnitude() const { return bits >> 8 & 0xFF; }
  L3_HOST_DEVICE uint32_t columns() const { return bits >> 16 & 0xF; }
  // Whether the step before was on the same diagonal.
  L3_HOST_DEVICE bool goes_on() const { return static_cast<int32_t>(bits) < 0; }
};

// What lanes look up besides tables of tokens and steps. Kernels copy it to shared memory.
constexpr uint32_t kJpegLastSum = 144;  // of the magnitudes around a coefficient: more is the same
struct alignas(16) JpegContexts {
  uint8_t last[kMaxJpegComponents][kJpegLastContexts];  // tables, as JpegModel has them
  uint8_t dc[kJpegClasses][kJpegDcContexts];
  uint8_t level_of_sum[kJpegLastSum + 1];
};

// What tiles of an image share.
struct DeviceJpeg {
  JpegContexts contexts;
  uint8_t ac[kJpegClasses][kJpegBlockSamples][kJpegLevels];  // tables
  JpegStep step[kJpegBlockSamples];
  JpegInfo info;
  uint32_t table_count;
  uint16_t frequency[kMaxRansTables][kRansTokens];
};
static_assert(std::is_trivially_copyable_v<DeviceJpeg>);

// A part of an image whose samples lie in scratch memory at the same time.
struct JpegUnit {
  const DeviceJpeg* image;
  // Of each component: its samples, in rows of whole blocks, from those of pixel (x_px, y_px) on.
  uint8_t* plane[kMaxJpegComponents];
  uint32_t row_bytes[kMaxJpegComponents];
  uint32_t x_px, y_px;  // of the first tile
  TileRect rect;  // the pixels that are stored
};
static_assert(std::is_trivially_copyable_v<JpegUnit>);

// A tile to decode. Without windows it only fills a block up; without a payload it is lost, and its
// samples become 0.
struct JpegTileTask {
  uint32_t unit;
  uint32_t tile;
  uint32_t payload_begin;  // in units of 16 bytes, from the window's payloads
  uint32_t payload_units;
  WindowList windows;  // all that need it
};

// Pixels to store: those of kJpegTaskRows rows and kRowSpan columns that are in the window and in
// the unit's rectangle.
constexpr uint32_t kJpegTaskRows = 16;
struct JpegPixelTask {
  uint32_t unit;
  uint32_t window;
  uint32_t x_px, y_px;
};

// Two launches, one behind the other on a stream.
struct JpegBatch {
  const DeviceWindow* windows;
  const OutputPlan* plans;
  const uint32_t* window_numbers;
  uint64_t* results;  // one for each window, kNoBadTile before the launch
  const JpegUnit* units;
  const JpegTileTask* tiles;  // those of a block follow one another, and are of one image
  const JpegPixelTask* pixels;
  uint32_t tile_count, pixel_count;
  uint32_t warps_per_block;  // of the first launch, with a tile each
  uint32_t shared_bytes;  // that its blocks need
  uint32_t scratch_bytes;  // of it each tile's, a multiple of 16
};

}  // namespace l3
