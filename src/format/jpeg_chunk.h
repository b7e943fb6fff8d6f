// What a JPEG chunk says (format.md 4.3): colour, sampling, quantizers, and the statistics that
// jpeg tiles share. Layer: format.
#pragma once

#include <cstdint>

#include "base/portable.h"
#include "format/constants.h"

namespace l3 {

struct ImageView;

// Natural number (8 * v + u: row v, column u) of the coefficient with a number in zigzag order.
constexpr uint8_t kJpegNaturalOrder[kJpegBlockSamples] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

enum class JpegColor : uint8_t {
  kGray = 0,   // one component
  kYcbcr = 1,  // three: Y, Cb, Cr
  kRgb = 2,    // three: red, green, blue
};

// Components are numbered in the order of the JPEG file. Plain data, shared with kernels.
struct JpegInfo {
  uint32_t width_px, height_px;
  JpegColor color;
  uint8_t components;      // 1 or 3
  uint8_t chroma_x_shift;  // 1 where components 1 and 2 have half the columns; else 0
  uint8_t chroma_y_shift;  // 1 where they have half the rows; else 0
  // In the order of coefficients: number 8 * v + u is that of row v and column u of a block.
  uint16_t quantizers[kMaxJpegComponents][kJpegBlockSamples];

  L3_HOST_DEVICE uint32_t x_shift(uint32_t component) const {
    return component == 0 ? 0 : chroma_x_shift;
  }
  L3_HOST_DEVICE uint32_t y_shift(uint32_t component) const {
    return component == 0 ? 0 : chroma_y_shift;
  }
};

// Which table of token frequencies serves which context. Plain data, shared with kernels.
struct JpegModel {
  uint8_t table_count;
  uint8_t ac[kJpegClasses][kJpegBlockSamples][kJpegLevels];  // by class, zigzag number, level
  uint8_t last[kMaxJpegComponents][kJpegLastContexts];       // of the last coefficients
  uint8_t dc[kJpegClasses][kJpegDcContexts];
  uint16_t frequency[kMaxRansTables][kRansTokens];  // each table adds up to kRansScale
};

// Reads a model as a chunk has it, at its end. Returns false if it breaks a rule.
bool ReadJpegModel(const uint8_t* data, uint32_t size, bool has_chroma, JpegModel* model);

// The model of chunks that end without one.
JpegModel BuiltInJpegModel();

// Reads the JPEG chunk of a view from ParseImage(): an image whose view.jpeg.data is not null. A
// null `model` asks for none. Returns false if the chunk breaks a rule now.
bool ReadJpegChunk(const ImageView& view, JpegInfo* info, JpegModel* model);

}  // namespace l3
