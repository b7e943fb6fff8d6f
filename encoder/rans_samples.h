// The samples of a tile as the rans model sees them: neighbours, predictions,
// levels and residuals (format.md 5.4). Layer: encoder.
#pragma once

#include <cstdint>

#include "core/rans.h"
#include "encoder/tile_planes.h"
#include "format/constants.h"

namespace l3 {

// What all tiles of an image share before there is a model.
struct RansSettings {
  uint32_t effort;  // 1 to 9
  uint8_t gradient_weight;
  uint8_t set_begin[kMaxChannels][kMaxRansSets - 1];  // as in RansModel
};

// How one tile is predicted.
struct RansPlan {
  uint8_t sets[kMaxChannels];  // as in RansBody
  int8_t coefficients[kMaxChannels][kMaxRansSets][kMaxRansTaps];
};

// Channels are in coding order. Sample (x, y) of a channel is at
// value[p][RansAt(x, y)]; those around the tile that decoders assume are there
// too, and behind them places that can be read.
constexpr uint32_t kRansStride = kMaxPackedTileSide + 16;
constexpr uint32_t RansAt(uint32_t x, uint32_t y) { return (y + 2) * kRansStride + 8 + x; }

struct RansSamples {
  uint32_t width_px;
  uint32_t height_px;
  uint32_t channels;
  uint32_t used_bits;
  uint16_t base[kMaxChannels];
  uint16_t value[kMaxChannels][(kMaxPackedTileSide + 3) * kRansStride];
  // Of sample (x, y), at y * kMaxPackedTileSide + x.
  uint16_t folded[kMaxChannels][kMaxPackedTileSide * kMaxPackedTileSide];
  uint8_t level[kMaxChannels][kMaxPackedTileSide * kMaxPackedTileSide];
};

// Offsets of a channel's taps, in the order of its coefficients: tap i is
// value[tap[i].position][RansAt(x, y) + tap[i].offset].
struct RansTap {
  uint32_t position;
  int32_t offset;
};
void GetRansTaps(RansRole role, uint32_t position, RansTap* taps);

// The smallest set whose levels include `level`, of `sets` sets.
inline uint32_t RansSetOfLevel(const RansSettings& settings, uint32_t position, uint32_t sets,
                               uint32_t level) {
  uint32_t set = 0;
  while (set + 1 < sets && level >= settings.set_begin[position][set]) ++set;
  return set;
}

void LoadRansSamples(const TilePlanes& tile, RansSamples* samples);

// Fills in folded residuals and levels.
void ModelRansSamples(const RansSettings& settings, const RansPlan& plan, RansSamples* samples);

// About how many samples the gradient predictor hits, in all channels.
uint32_t CountExactGradients(const RansSamples& samples);

}  // namespace l3
