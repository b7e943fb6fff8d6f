// Jpeg tiles on vectors: lanes are blocks. The engines decode the coefficients of 32 blocks at a
// time, and hand them to a function that makes samples of them, or keeps them. Layer: cpu.
#pragma once

#include <cstdint>

#include "core/jpeg_tile.h"

namespace l3 {

constexpr uint32_t kJpegLanes = 32;

// Of how many columns u, and rows v, a group has coefficients if none lies behind `last` in zigzag
// order.
struct JpegExtent {
  uint32_t columns, rows;
};
constexpr JpegExtent JpegExtentOf(uint32_t last) {
  if (last == 0) return {1, 1};
  if (last <= 2) return {2, 2};
  if (last <= 9) return {4, 4};
  return {last <= 13 ? 4u : last == 14 ? 5u : last <= 26 ? 6u : last == 27 ? 7u : 8u, 8};
}

// Up to 32 blocks of one component class, by lanes.
struct JpegGroup {
  // Multiplied by the quantizer; in natural order (8 * v + u); of each all lanes. Those with u and
  // v inside JpegExtentOf(last) are set, for all lanes; the others are zero and may hold anything.
  alignas(64) int16_t coefficient[kJpegBlockSamples][kJpegLanes];
  uint8_t* block[kJpegLanes];  // where the result of each block goes
  uint32_t count;              // of blocks: 1 to 32
  uint32_t last;               // no block has a coefficient behind this one of zigzag order
};

// Takes a group: for pixels, writes 64 bytes to each block, 8 rows of 8 samples.
using JpegGroupFunction = void(const JpegGroup& group);

// A tile to decode, and its result. Block (x, y) of component c goes to
// blocks[c] + y * row_bytes[c] + x * block_bytes.
struct JpegTileJob {
  uint32_t tile;
  const uint8_t* payload;
  uint32_t size;
  uint8_t* blocks[kMaxJpegComponents];
  uint64_t row_bytes[kMaxJpegComponents];
  Status status;
};

// What the tiles of an image share.
struct JpegTileImage {
  const ImageInfo& info;
  const JpegInfo& jpeg;
  const JpegTables& tables;
};

// Decodes `count` jobs with the status of DecodeJpegTile(); skips those whose status is not kOk.
// Calls `take` for the groups of each, in any order; of a tile that fails for some of them.
using DecodeJpegTilesFunction = void(const JpegTileImage& image, JpegGroupFunction* take,
                                     uint32_t block_bytes, JpegTileJob* jobs, uint32_t count);

}  // namespace l3
