// Writes the payloads of rans tiles (format.md 5.4). Layer: encoder.
//
// An image takes two passes: parameters and counts of its tiles give the model, with
// which the tiles are written.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder/rans_kernels.h"
#include "encoder/rans_refine.h"
#include "encoder/rans_samples.h"
#include "encoder/rans_statistics.h"

namespace l3 {

// Chooses predictor and coefficients of a tile, models it by them, and counts its tokens.
RansParameters FindRansParameters(const RansSettings& settings, RansSamples* samples,
                                  RansCounts* counts);

// The same for an image of few samples, whose model gives the costs of tokens: fits one set, once.
RansParameters FindTinyRansParameters(const RansSettings& settings, const RansCosts& costs,
                                      RansSamples* samples);

// Chooses between the gradient and `start`, parameters for the whole image.
RansParameters PickRansParameters(const RansParameters& start, const RansSamples& samples);

// The tokens of a tile as lanes code them.
struct RansTokens {
  uint32_t channels = 0;
  uint32_t lanes = 0;  // that have rows
  // `lanes` of each position of each step, in the order of coding. Idle ones have
  // kIdleLevel.
  std::vector<uint16_t> folded;
  std::vector<uint8_t> level;
};

// What is left of a tile once it has been modelled.
struct RansTile : RansTokens {
  // `samples` are modelled by the parameters.
  RansTile(const RansParameters& parameters, const RansSamples& samples);

  // What a tile of this size takes in memory, about.
  static uint64_t MemoryBytes(uint32_t width_px, uint32_t height_px, uint32_t channels);

  RansParameters parameters;
  uint32_t width_px;
  uint32_t height_px;
  uint32_t used_bits;
  uint16_t base[kMaxChannels];
};

// Appends the states of the lanes and their words. `long_raw` says that states are refilled before
// raw bits. `symbols` are those of the channels.
void AppendRansTokens(const RansTokens& tokens, const RansSymbols& symbols, bool long_raw,
                      std::vector<uint8_t>* out);

// Appends a payload to `out`, but for its check and its alignment. It decodes if the model has a
// frequency for each of the tile's tokens.
void AppendRansPayload(const RansTile& tile, const RansSymbols& symbols, std::vector<uint8_t>* out);

}  // namespace l3
