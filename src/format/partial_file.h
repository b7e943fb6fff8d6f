// What the beginning of a file, or its size alone, says about its image. Layer: format.
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/image_view.h"

namespace l3 {

// The most pixels of so many channels that a file of so many bytes can hold (format.md 7).
constexpr uint64_t MostPixels(uint64_t file_bytes, uint32_t channels) {
  constexpr uint64_t kLeastBytes = kHeaderBytes + 4;       // header and index CRC
  // Of each group the index entry and the shortest payload.
  const uint64_t tile_bytes = (4 + kPayloadAlignment) * CeilDiv(channels, kMaxChannels);
  constexpr uint64_t kTilePixels = kMaxPackedTileSide * kMaxPackedTileSide;
  return file_bytes < kLeastBytes ? 0 : (file_bytes - kLeastBytes) / tile_bytes * kTilePixels;
}

// Validates header, chunks and index; what lies behind them may be missing, and padding is not
// judged. `view` gets no payloads, but their size.
Status ParseHead(const uint8_t* data, size_t size, ImageView* view);

// Bytes of a file that ParseHead() needs, by the view that it gave. A lower bound if the file ends
// before the number of its channel groups.
inline uint64_t CheckedBytes(const ImageView& view) {
  return kHeaderBytes + uint64_t{view.info.chunks_bytes} + 4 * view.payload_count() + 4;
}

// Bytes of the whole file, of a view from ParseHead() or ParseImage().
inline uint64_t FileBytes(const ImageView& view) {
  return CeilDiv(CheckedBytes(view), kPayloadAlignment) * kPayloadAlignment + view.payloads_bytes;
}

}  // namespace l3
