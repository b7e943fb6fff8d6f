// Writes the payloads of rans tiles (format.md 5.4). Layer: encoder.
//
// An image takes two passes: plans and counts of its tiles give the model, with
// which the tiles are written.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/rans_model.h"
#include "encoder/rans_samples.h"
#include "encoder/rans_statistics.h"

namespace l3 {

// Chooses predictor and coefficients of a tile, beginning from a plan of one set
// for the whole image. Leaves `samples` modelled by them.
RansPlan PlanRansTile(const RansSettings& settings, const RansPlan& start, RansSamples* samples);

// Chooses between the gradient and the image's plan, without a model.
RansPlan PickRansPlan(const RansPlan& start, const RansSamples& samples);

// The symbols of a model, ready to encode.
struct RansSymbols {
  explicit RansSymbols(const RansModel& model);

  struct Symbol {
    uint64_t reciprocal;  // 2^42 / frequency, rounded up
    uint16_t frequency;
    uint16_t start;
  };
  RansModel model;
  Symbol at[kMaxRansTables][kRansTokens];
};

// What is left of a tile once it has been modelled.
struct RansTile {
  RansPlan plan;
  uint32_t width_px;
  uint32_t height_px;
  uint32_t channels;
  uint32_t used_bits;
  uint16_t base[kMaxChannels];
  // Channel by channel: level, and from bit 8 on the folded residual.
  std::vector<uint32_t> symbols;

  // `samples` are modelled by the plan.
  void Take(const RansPlan& plan, const RansSamples& samples);
};

// Appends a payload to `out`, but for its check and its alignment. The model has
// a frequency for each of the tile's tokens.
void AppendRansPayload(const RansTile& tile, const RansSymbols& symbols,
                       std::vector<uint8_t>* out);

}  // namespace l3
