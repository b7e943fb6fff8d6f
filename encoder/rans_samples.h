// The samples of a tile as the rans model sees them: neighbours, predictions,
// levels and residuals (format.md 5.4). Layer: encoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/rans.h"
#include "encoder/rans_kernels.h"
#include "encoder/tile_planes.h"
#include "format/constants.h"

namespace l3 {

// What all tiles of an image share before there is a model.
struct RansSettings {
  uint32_t effort;  // 1 to 9
  uint8_t gradient_weight;
  uint8_t set_begin[kMaxChannels][kMaxRansSets - 1];  // as in RansModel
};

// What efforts from 7 on do more.
struct RansRefinement {
  uint32_t rounds;  // of models and parameters, in turn
  uint32_t fits;    // of a tile in a round
  uint32_t sweeps;  // over a set's coefficients in a round
};
inline RansRefinement GetRansRefinement(uint32_t effort) {
  if (effort >= 9) return {2, 2, 1};
  if (effort >= 8) return {1, 2, 3};
  return effort >= 7 ? RansRefinement{1, 1, 1} : RansRefinement{0, 0, 0};
}

// How one tile is predicted.
struct RansParameters {
  uint8_t sets[kMaxChannels];  // as in RansBody
  int8_t coefficients[kMaxChannels][kMaxRansSets][kMaxRansTaps];
};

// A tile in waves: pixel (x, y) belongs to wave x + 2 * y. Whatever a pixel
// depends on lies in earlier waves, so that the pixels of one can be worked on
// together. Channels are in coding order.
class RansSamples {
 public:
  // The values that decoders assume around the tile are filled in too.
  void Load(const TilePlanes& tile);

  uint32_t width_px() const { return width_; }
  uint32_t height_px() const { return height_; }
  uint32_t channels() const { return channels_; }
  uint32_t used_bits() const { return used_bits_; }
  uint16_t base(uint32_t position) const { return base_[position]; }

  // A wave's rows.
  struct Wave {
    uint32_t number;
    uint32_t first_row;
    uint32_t count;  // may be 0
  };
  uint32_t wave_count() const { return width_ + 2 * height_ - 2; }
  Wave GetWave(uint32_t number) const {
    const uint32_t first = number < width_ ? 0 : (number - width_) / 2 + 1;
    const uint32_t end = number / 2 < height_ ? number / 2 + 1 : height_;
    return {number, first, end > first ? end - first : 0};
  }

  // Row by row of a wave. Folded residuals and levels are those of the parameters last modelled.
  const uint16_t* values(uint32_t position, Wave wave) const {
    return value_.data() + position * places_ + At(wave);
  }
  const uint16_t* folded(uint32_t position, Wave wave) const {
    return folded_.data() + ResultsOf(position) + At(wave);
  }
  const uint8_t* levels(uint32_t position, Wave wave) const {
    return level_.data() + ResultsOf(position) + At(wave);
  }
  RansRun GetRun(uint32_t position, Wave wave) const;

  // Finds folded residuals and levels.
  void Model(const RansSettings& settings, const RansParameters& parameters);

  // Puts the channel's folded residuals and levels aside, where they stay until it is modelled a
  // second time, and takes back those that were.
  void SwapResults(uint32_t position) { slot_[position] ^= 1; }

  // About how many samples the gradient predictor hits, in all channels.
  uint32_t CountExactGradients() const;

 private:
  // Waves and rows before the first of the tile that neighbours reach.
  static constexpr uint32_t kWaveMargin = 6;
  static constexpr uint32_t kRowMargin = 2;

  size_t At(Wave wave) const {
    return size_t{wave.number + kWaveMargin} * stride_ + kRowMargin + wave.first_row;
  }
  size_t ResultsOf(uint32_t position) const {
    return (slot_[position] * channels_ + position) * places_;
  }
  uint16_t* Place(uint32_t position, int32_t x, int32_t y);
  void FindTaps();
  void LoadRows(const uint16_t* plane, uint32_t position);

  uint32_t width_ = 0;
  uint32_t height_ = 0;
  uint32_t channels_ = 0;
  uint32_t used_bits_ = 0;
  uint32_t stride_ = 0;  // places of a wave
  uint16_t base_[kMaxChannels] = {};
  size_t places_ = 0;    // of a channel
  ptrdiff_t tap_offset_[kMaxChannels][kMaxRansTaps] = {};
  // By channel, wave and row; results have two slots, in one of which a channel's are.
  uint32_t slot_[kMaxChannels] = {};
  std::vector<uint16_t> value_;
  std::vector<uint16_t> folded_;
  std::vector<uint8_t> level_;
};

}  // namespace l3
