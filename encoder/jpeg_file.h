// Reads the quantized coefficients of a JPEG file, and what it takes to write the file anew.
// Layer: encoder. Knows JPEG, nothing of L3's tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "encoder/pixel_view.h"
#include "format/jpeg_chunk.h"

namespace l3 {

// Components decode as follows: sample planes of
// ceil(width_px * h / max h) x ceil(height_px * v / max v), in blocks of 8 x 8.
struct JpegComponent {
  // Sampling factors without what all components have in common, 1 or 2. Luma has those of the
  // picture: 1x1 (4:4:4, gray, RGB), 2x1 (4:2:2), 2x2 (4:2:0) or 1x2 (4:4:0); chroma has 1x1.
  uint32_t h;
  uint32_t v;
  uint16_t quantizer[64];  // in natural order: number 8 * v + u; 1 to 65535
  // Blocks that hold samples of the picture.
  uint32_t width_blocks;
  uint32_t height_blocks;
  // Blocks in memory: at least those of whole MCUs. Blocks without samples of the picture are only
  // for RestoreJpeg(); a decoder of tiles may leave them 0.
  uint32_t stride_blocks;
  uint32_t rows_blocks;
  // rows_blocks x stride_blocks blocks of 64, in natural order: number 8 * v + u.
  std::vector<int16_t> coefficients;

  int16_t* Block(uint32_t x, uint32_t y) {
    return coefficients.data() + (size_t{y} * stride_blocks + x) * 64;
  }
  const int16_t* Block(uint32_t x, uint32_t y) const {
    return coefficients.data() + (size_t{y} * stride_blocks + x) * 64;
  }
};

struct JpegImage {
  uint32_t width_px = 0;
  uint32_t height_px = 0;
  JpegColor color = JpegColor::kGray;
  std::vector<JpegComponent> components;  // 1 of gray, else 3
};

// Sets the sides in blocks of all components, and their coefficients to 0. Width, height and
// sampling factors are set.
void AllocateCoefficients(JpegImage* image);

// Metadata as L3's chunks hold it; empty if the file has none.
struct JpegMetadata {
  std::vector<uint8_t> exif;  // from the TIFF header on
  std::vector<uint8_t> icc;
  std::vector<uint8_t> xmp;
};

struct JpegFile {
  JpegImage image;
  JpegMetadata metadata;
  // With image and metadata, what RestoreJpeg() needs; empty if it would not give the same bytes.
  std::vector<uint8_t> restore_data;
};

// Reads a file of Huffman-coded JPEG, baseline or progressive, of 8 bits. Returns null, or else why
// it cannot: a phrase as "it has 12 bits per sample". Refused is whatever libjpeg warns of.
// `with_restore_data`: also makes `restore_data`, and compares RestoreJpeg() of it with the file.
// Throws std::bad_alloc; memory is at most some 1024 bytes for each of the file.
const char* ReadJpeg(Bytes file, bool with_restore_data, JpegFile* jpeg);

// Writes the file that ReadJpeg() read. Returns false if `restore_data` is damaged or does not fit
// the image. Throws std::bad_alloc.
bool RestoreJpeg(const JpegImage& image, Bytes exif, Bytes icc, Bytes xmp, Bytes restore_data,
                 std::vector<uint8_t>* file);

}  // namespace l3
