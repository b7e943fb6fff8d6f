// Writes the payloads of tiles, each in the smallest of the codings that are tried. Layer: encoder.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "encoder/match_image.h"
#include "encoder/tile_loader.h"

namespace l3 {

// The payloads of an image, in the order of TileLoader.
struct Payloads {
  std::vector<uint32_t> sizes;  // 0 where a tile was left out
  std::vector<std::vector<uint8_t>> runs;  // of kPayloadsPerRun each
  std::vector<uint8_t> rans_chunk;  // empty where none, or the built-in model, is used

  uint64_t bytes() const {
    return std::accumulate(sizes.begin(), sizes.end(), uint64_t{rans_chunk.size()});
  }
};
// Small enough to share among threads, long enough that there are few buffers.
constexpr uint32_t kPayloadsPerRun = 4;

struct TileOptions {
  Coding coding;
  uint32_t effort;
  unsigned threads;
  bool tries_packed = false;  // beside each tile of rans; else only beside those that may be larger
};

// Encodes all tiles but those that are `left_out` for match tiles; it may be empty. With
// Coding::kStored all tiles are stored, even where packed ones are smaller. `info` has the sides of
// tiles.
Payloads EncodeTiles(const PixelView& pixels, ImageInfo info,
                     const std::vector<ChannelGroup>& groups, const ValueCoding& values,
                     const TileOptions& options, const std::vector<bool>& left_out = {});

// Puts match tiles into the places that were left for them.
void AddMatchTiles(const MatchImage& match, unsigned threads, Payloads* payloads);

// The fields of a header that depend on the values.
void SetValues(const ValueCoding& values, ImageInfo* info);

}  // namespace l3
