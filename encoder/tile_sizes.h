// Chooses the sides of tiles that the options leave open. Layer: encoder.
#pragma once

#include <cstdint>

#include "encoder/encode_options.h"
#include "format/image_view.h"

namespace l3 {

constexpr uint32_t kPackedTileHeightLog2 = 6;
// From this effort on, rans tiles are twice as wide: that halves the cost of states and
// coefficients.
constexpr uint32_t kWideTilesEffort = 7;

// `info` has all else of the header. For packed tiles, or for rans tiles.
void ChooseCodedTiles(const EncodeOptions& options, uint64_t groups, ImageInfo* info);
// For an image without match tiles: makes rans tiles wide, after ChooseCodedTiles().
void ChooseUnmatchedTiles(const EncodeOptions& options, ImageInfo* info);
// For an image with match tiles.
void ChooseMatchTiles(const EncodeOptions& options, ImageInfo* info);
// Where all tiles are stored. Most groups have `channels`.
void ChooseStoredTiles(const EncodeOptions& options, uint32_t channels, ImageInfo* info);

}  // namespace l3
