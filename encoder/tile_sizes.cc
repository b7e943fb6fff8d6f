#include "encoder/tile_sizes.h"

#include <algorithm>

namespace l3 {
namespace {

constexpr uint32_t kPackedTileWidthLog2 = 8;
// A GPU decodes the rows of a tile one after the other. So images of few tiles get lower ones: a
// launch then ends sooner. Files below 1 / 8 of the samples would grow by over 2 %.
constexpr uint64_t kFewPackedTiles = 32;
constexpr uint32_t kLowPackedTileHeightLog2 = 5;
constexpr uint32_t kMinLowTileWidth = 128;
// Sides of rans tiles. A tile needs this many samples to pay for its states and coefficients.
constexpr uint32_t kRansTileLog2 = 7;
constexpr uint32_t kRansGrayTileLog2 = 8;  // of up to two channels, or groups of them
// Images with fewer columns or rows get tiles that are longer the other way. From 16 on, such tiles
// would have the 4096 pixels for which several sets of coefficients are fitted: that is up to a
// third slower, saves 1.5 % at most, and makes noise larger.
constexpr uint32_t kNarrowPixels = 16;
// Stored tiles have at least this many bytes, so that their headers cost less than 0.1 %.
constexpr uint64_t kMinStoredTileBytes = 32768;
// Columns of tiles with the coding kStored. No more, since a window reads whole tiles.
constexpr uint32_t kStoredTileWidthLog2 = 8;

// Log2 of the smallest power of two that is not below `v`.
uint32_t CeilLog2(uint64_t v) { return v <= 1 ? 0 : BitLength(static_cast<uint32_t>(v - 1)); }

// Log2 of the rows of packed tiles. Files of label maps are so small that low
// tiles would grow them.
uint32_t ChoosePackedHeight(uint64_t groups, const ImageInfo& info) {
  const uint64_t columns = CeilDiv(uint64_t{info.width_px}, 1u << kPackedTileWidthLog2);
  const uint64_t rows = CeilDiv(uint64_t{info.height_px}, 1u << kPackedTileHeightLog2);
  const bool is_low = info.meaning != Meaning::kLabels && info.width_px >= kMinLowTileWidth &&
                      groups * columns * rows < kFewPackedTiles;
  return is_low ? kLowPackedTileHeightLog2 : kPackedTileHeightLog2;
}

// Sets the sides to those of the options, and where an option is 0 to the given ones.
void SetSides(const EncodeOptions& options, uint32_t width_log2, uint32_t height_log2,
              ImageInfo* info) {
  info->tile_width_log2 =
      static_cast<uint8_t>(options.tile_width_log2 != 0 ? options.tile_width_log2 : width_log2);
  info->tile_height_log2 =
      static_cast<uint8_t>(options.tile_height_log2 != 0 ? options.tile_height_log2 : height_log2);
}

}  // namespace

void ChooseCodedTiles(const EncodeOptions& options, uint64_t groups, ImageInfo* info) {
  if (options.coding == Coding::kPacked) {
    return SetSides(options, kPackedTileWidthLog2, ChoosePackedHeight(groups, *info), info);
  }
  const bool is_color = info->channels == 3 || info->channels == 4;
  const uint32_t usual_log2 = is_color ? kRansTileLog2 : kRansGrayTileLog2;
  // Where one side of tiles is short, the other is long, for as many samples a tile.
  SetSides(options, info->height_px < kNarrowPixels ? kRansGrayTileLog2 : usual_log2,
           info->width_px < kNarrowPixels ? kRansGrayTileLog2 : usual_log2, info);
}

void ChooseUnmatchedTiles(const EncodeOptions& options, ImageInfo* info) {
  if (options.coding == Coding::kRans && options.effort >= kWideTilesEffort &&
      options.tile_width_log2 == 0 && options.tile_height_log2 == 0 &&
      info->tile_width_log2 < kMaxPackedTileLog2 && info->width_px > 1u << info->tile_width_log2) {
    ++info->tile_width_log2;
  }
}

void ChooseMatchTiles(const EncodeOptions& options, ImageInfo* info) {
  SetSides(options, kRansGrayTileLog2, kRansGrayTileLog2, info);
}

void ChooseStoredTiles(const EncodeOptions& options, uint32_t channels, ImageInfo* info) {
  const bool is_asked_for = options.coding == Coding::kStored;
  uint32_t width_log2 = is_asked_for ? options.tile_width_log2 : 0;
  uint32_t height_log2 = is_asked_for ? options.tile_height_log2 : 0;
  const uint64_t pixel_bytes = channels * info->sample_bytes();
  if (width_log2 == 0) {
    // Where tiles of the usual width would be small, as an image has few rows, they are wider.
    const bool is_low =
        (uint64_t{info->height_px} << kStoredTileWidthLog2) * pixel_bytes < kMinStoredTileBytes;
    const uint32_t most = is_asked_for && !is_low ? kStoredTileWidthLog2 : kMaxTileLog2;
    width_log2 = std::clamp(CeilLog2(info->width_px), kMinTileWidthLog2, most);
  }
  if (height_log2 == 0) {
    const uint64_t line_bytes =
        std::min(uint64_t{info->width_px}, uint64_t{1} << width_log2) * pixel_bytes;
    const uint64_t lines = CeilDiv(kMinStoredTileBytes, line_bytes);
    height_log2 = std::clamp(CeilLog2(lines), kMinTileHeightLog2, kMaxTileLog2);
  }
  info->tile_width_log2 = static_cast<uint8_t>(width_log2);
  info->tile_height_log2 = static_cast<uint8_t>(height_log2);
}

}  // namespace l3
