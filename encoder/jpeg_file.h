// Reads the quantized coefficients of a JPEG file, and what it takes to write the file anew.
// Layer: encoder. Knows JPEG, nothing of L3's tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "core/jpeg_layout.h"
#include "encoder/pixel_view.h"

namespace l3 {

// All coefficients of an image. Here those of a block are in zigzag order.
struct JpegImage {
  // Sets all coefficients to 0. `info` has its width, height, components and shifts.
  void Allocate();

  JpegInfo info{};
  // The blocks of JpegBlocksOfImage(), and room for further ones that fill MCUs: their sides are
  // multiples of kMaxJpegFactor.
  JpegBlocks<int16_t> blocks{};
  std::unique_ptr<int16_t[]> memory;
};

// The largest sampling factor. Factors of 3 are refused.
constexpr uint32_t kMaxJpegFactor = 4;

// Bit k: whether coefficient k of a block is not 0.
inline uint64_t FindNonzero(const int16_t* block) {
  uint8_t is_nonzero[kJpegBlockSamples];
  for (uint32_t i = 0; i < kJpegBlockSamples; ++i) is_nonzero[i] = block[i] != 0;
  uint64_t bits = 0;
  for (uint32_t i = 0; i < kJpegBlockSamples; i += 8) {
    uint64_t bytes;
    std::memcpy(&bytes, is_nonzero + i, 8);
    bits |= (bytes * 0x0102040810204080 >> 56) << i;
  }
  return bits;
}

// Metadata as L3's chunks hold it; empty if the file has none.
struct JpegMetadata {
  Bytes exif;  // from the TIFF header on
  Bytes icc;
  Bytes xmp;
};

struct JpegFile {
  JpegImage image;
  JpegMetadata metadata;     // of the file that was read, and of `icc`
  std::vector<uint8_t> icc;  // of all its segments
  // With image and metadata, what RestoreJpeg() needs; empty if it would not give the same bytes.
  std::vector<uint8_t> restore_data;
};

// Reads a file of Huffman-coded JPEG, baseline or progressive, of 8 bits. Returns null, or else why
// it cannot: a phrase as "it has 12 bits per sample". Refused is whatever libjpeg warns of. Also
// makes `restore_data`, and compares RestoreJpeg() of it with the file. Throws std::bad_alloc;
// memory is at most some 1024 bytes for each of the file, and some MB.
const char* ReadJpeg(Bytes file, JpegFile* jpeg);

// Writes the file that ReadJpeg() read. Returns false if `restore_data` is damaged or does not fit
// the image. Overwrites the blocks that fill MCUs. Throws std::bad_alloc.
bool RestoreJpeg(const JpegImage& image, const JpegMetadata& metadata, Bytes restore_data,
                 std::vector<uint8_t>* file);

}  // namespace l3
