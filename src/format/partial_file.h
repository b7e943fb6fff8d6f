// What a part of a file, or its size alone, says about the image in it. Layer: format.
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/image_view.h"

namespace l3 {

// The most pixels that a file of so many bytes can hold (format.md 7).
constexpr uint64_t MostPixels(uint64_t file_bytes) {
  constexpr uint64_t kLeastBytes = kHeaderBytes + 4;       // header and index CRC
  constexpr uint64_t kTileBytes = 4 + kPayloadAlignment;  // index entry, shortest payload
  constexpr uint64_t kTilePixels = kMaxPackedTileSide * kMaxPackedTileSide;
  return file_bytes < kLeastBytes ? 0 : (file_bytes - kLeastBytes) / kTileBytes * kTilePixels;
}

// Validates header, chunks and index; what lies behind them may be missing, and padding is not
// judged. `view` gets no payloads, but their size.
Status ParseHead(const uint8_t* data, size_t size, ImageView* view);

// Bytes that ParseHead() needs of a file with this header.
inline uint64_t CheckedBytes(const ImageInfo& info) {
  return kHeaderBytes + uint64_t{info.chunks_bytes} + 4 * uint64_t{info.tile_count()} + 4;
}

// Bytes of the whole file, of a view from ParseHead() or ParseImage().
inline uint64_t FileBytes(const ImageView& view) {
  return CeilDiv(CheckedBytes(view.info), kPayloadAlignment) * kPayloadAlignment +
         view.payloads_bytes;
}

}  // namespace l3
