// What the size of a file says about the image in it. Layer: format.
#pragma once

#include <cstdint>

#include "format/constants.h"

namespace l3 {

// The most pixels that a file of so many bytes can hold (format.md 7).
constexpr uint64_t MostPixels(uint64_t file_bytes) {
  constexpr uint64_t kLeastBytes = kHeaderBytes + 4;       // header and index CRC
  constexpr uint64_t kTileBytes = 4 + kPayloadAlignment;  // index entry, shortest payload
  constexpr uint64_t kTilePixels = kMaxPackedTileSide * kMaxPackedTileSide;
  return file_bytes < kLeastBytes ? 0 : (file_bytes - kLeastBytes) / kTileBytes * kTilePixels;
}

}  // namespace l3
