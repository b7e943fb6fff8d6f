// Encodes one tile as packed: searches, on kernels, for what makes it small and writes its payload
// (format.md 5.3). Layer: encoder.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder/packed_kernels.h"

namespace l3 {

// What the search decides for one channel.
struct PackedChannelParameters {
  ChannelLayout layout;
  uint32_t start_width;
  uint32_t base;
  uint8_t predictor[kMaxPackedTileSide];
  WidthRow needed[kMaxPackedTileSide];
  WidthRow delta[kMaxPackedTileSide];
  uint64_t bits;  // of parts 2 to 4

  // The widths of the residuals of row y.
  const WidthRow& widths(uint32_t y) const {
    return layout == ChannelLayout::kDelta ? delta[y] : needed[y];
  }
};

// A tile, and working memory for it: one per thread.
template <typename Value>
struct PackedTile {
  PackedPlanes<Value> planes;
  PackedLanes<Value> lanes;
  PackedChannelParameters channel[kMaxChannels];
};

// Chooses transform, predictors and layouts, and appends a payload to `out`,
// but for its check and its alignment. Changes the planes (the transform).
template <typename Value>
void AppendPackedPayload(PackedTile<Value>* tile, std::vector<uint8_t>* out);

}  // namespace l3
