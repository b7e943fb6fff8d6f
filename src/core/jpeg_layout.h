// Where the blocks of a JPEG image lie (format.md 5.6). Layer: core.
#pragma once

#include "base/portable.h"
#include "format/image_view.h"
#include "format/jpeg_chunk.h"

namespace l3 {

// A rectangle of blocks of one component.
struct JpegBlockRect {
  uint32_t x, y, width, height;
};

// Samples of a component in a row, in a column: what libjpeg calls its downsampled size.
L3_HOST_DEVICE inline uint32_t JpegColumns(const JpegInfo& jpeg, uint32_t component) {
  const uint32_t shift = jpeg.x_shift(component);
  return (jpeg.width_px + shift) >> shift;
}
L3_HOST_DEVICE inline uint32_t JpegRows(const JpegInfo& jpeg, uint32_t component) {
  const uint32_t shift = jpeg.y_shift(component);
  return (jpeg.height_px + shift) >> shift;
}

// All blocks that hold a sample of a component. (The padding blocks of the last MCUs of a JPEG file
// are no part of the image.)
L3_HOST_DEVICE inline JpegBlockRect JpegBlocksOfImage(const JpegInfo& jpeg, uint32_t component) {
  return {0, 0, (JpegColumns(jpeg, component) + 7) / 8, (JpegRows(jpeg, component) + 7) / 8};
}

// The blocks of a component that a tile holds: at least one.
L3_HOST_DEVICE inline JpegBlockRect JpegBlocksOfTile(const ImageInfo& info, const JpegInfo& jpeg,
                                                     uint32_t tile, uint32_t component) {
  const TileRect rect = GetTileRect(info, tile);
  const uint32_t x_shift = jpeg.x_shift(component);
  const uint32_t y_shift = jpeg.y_shift(component);
  return {(rect.x_px >> x_shift) / 8, (rect.y_px >> y_shift) / 8,
          (((rect.width_px + x_shift) >> x_shift) + 7) / 8,
          (((rect.height_px + y_shift) >> y_shift) + 7) / 8};
}

// Blocks of coefficients of each component, of an image or of a tile: 64 numbers each, in natural
// order unless something else is said, before they are multiplied by the quantizers. Block (x, y)
// of component c is at data[c] + 64 * (y * row_blocks[c] + x).
template <typename Coefficient>
struct JpegBlocks {
  Coefficient* data[kMaxJpegComponents];
  uint64_t row_blocks[kMaxJpegComponents];

  L3_HOST_DEVICE Coefficient* At(uint32_t component, uint64_t x, uint64_t y) const {
    return data[component] + kJpegBlockSamples * (y * row_blocks[component] + x);
  }
};

}  // namespace l3
