// From the tokens of an image to its rans model (format.md 5.4). Layer: encoder.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder/rans_samples.h"
#include "format/rans_model.h"

namespace l3 {

// How often each token occurred, by coding position and level.
struct RansCounts {
  uint32_t at[kMaxChannels][kRansLevels][kRansTokens] = {};

  // Counts of many samples are divided by 2^shift, so that sums fit; none becomes 0.
  void Add(const RansCounts& other, uint32_t shift);
};

// Counts the tokens of modelled samples.
void CountRansTokens(const RansSamples& samples, RansCounts* counts);

// Sets the levels where sets of coefficients begin, so that each has its share.
void ChooseRansSets(const RansCounts& counts, RansSettings* settings);

// Clusters levels into tables. Every token that was counted gets a frequency;
// with `spare_tokens`, the first so many do in every table, counted or not. No counts, no tables.
// Levels share tables with those up to `reach` places away (up to 64) in the order of their means.
RansModel BuildRansModel(const RansCounts& counts, uint32_t channels, const RansSettings& settings,
                         uint32_t spare_tokens, uint32_t max_tables, uint32_t reach);

// What the counted tokens cost with a table for each level, in 1 / 2^kCostBits bit.
uint64_t EntropyOfLevels(const RansCounts& counts, uint32_t channels);

// What the counted tokens cost by a model, in 1 / 2^kCostBits bit.
uint64_t CostByModel(const RansCounts& counts, uint32_t channels, const RansModel& model);

// The data of a RANS chunk.
std::vector<uint8_t> SerializeRansModel(const RansModel& model, uint32_t channels);

// The data of a MTCH chunk, but for the colours. The model is one of contexts, as the levels of the
// first channel.
std::vector<uint8_t> SerializeMatchModel(const RansModel& model);

// Appends a number in base 128 (format.md 4).
void AppendBase128(uint64_t value, std::vector<uint8_t>* out);

}  // namespace l3
