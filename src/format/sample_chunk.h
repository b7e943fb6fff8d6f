// How samples of 32 bits are held (format.md 4.6). Layer: format.
#pragma once

#include <cstdint>

#include "format/image_view.h"

namespace l3 {

// Of samples in halves: (high << 16 | low), `zeros` bits further up, plus `minimum`, modulo 2^32.
struct SampleHalves {
  uint32_t minimum;
  uint8_t zeros;
};

// Validates the chunk `view.samples` of an image whose header is valid.
bool IsSampleChunk(const ImageView& view);

// The chunk of a view from ParseImage(), read and validated again, as it may have changed. False if
// it breaks a rule now. The table is an image whose pixels, low half and high half, are the gaps
// between the samples of successive ranks.
bool ReadSampleHalves(const ImageView& view, SampleHalves* halves);
bool ReadSampleTable(const ImageView& view, ImageView* table);

// The most ranks of a table.
inline uint32_t MostRanks(const ImageInfo& info) {
  return info.holding == Holding::kRanks8 ? 1u << 8 : 1u << 16;
}

}  // namespace l3
