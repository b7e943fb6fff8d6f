// What a caller may ask of the encoder. Layer: encoder.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder/pixel_view.h"
#include "format/constants.h"
#include "format/image_view.h"

namespace l3 {

struct EncodeOptions {
  Coding coding = Coding::kRans;
  // 1 (fast) to 9 (small). With rans 2 and 3 give the same bytes, so do 4 and 5; in the
  // other codings all do.
  uint32_t effort = 5;
  unsigned threads = 1;  // 0: all the machine has
  uint32_t tile_width_log2 = 0;  // 0: chosen by the encoder; else 5 to 8
  uint32_t tile_height_log2 = 0;  // 0: chosen by the encoder; else 3 to 8
  bool match_tiles = true;  // with rans; without them for comparisons
  Meaning meaning = Meaning::kColor;
  Bytes icc, exif, palette, xmp, metadata;  // chunks; none when empty
  // Optional chunks of types unknown to this version, back to back as in a file.
  Bytes other_chunks;
  // For images with more than four channels: those that decode together, 1 to 4 in each group.
  // Empty: the encoder chooses.
  std::vector<std::vector<uint32_t>> groups;
};

// The most bytes of chunks in EncodeOptions. Leaves room for the colours of match tiles (up to
// 65,532 of 8 bytes), the largest value table, models and the headers of chunks.
constexpr uint64_t kMaxMetadataBytes = kMaxChunksBytes - (1u << 20);

// Bytes of chunks in `options`, headers of chunks not counted.
uint64_t MetadataBytes(const EncodeOptions& options);

// Whether the format can hold such pixels and options. Does not read the pixels.
bool IsValid(const PixelView& pixels, const EncodeOptions& options);

// The fields of a header that follow from them, without those of tiles and values.
ImageInfo MakeInfo(const PixelView& pixels, const EncodeOptions& options);

}  // namespace l3
