// From the tokens of an image to the model of its jpeg tiles (format.md 4.3). Layer: encoder.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder/jpeg_symbols.h"

namespace l3 {

// The cost of tokens by a model, in 1 / 2^kCostBits bit; the most there is if it lacks one of them.
uint64_t JpegCostByModel(const JpegCounts& counts, const JpegModel& model);

// Clusters contexts into tables. Writes the model as a chunk has it, and as that reads. Every token
// that was counted gets a frequency.
std::vector<uint8_t> MakeJpegModel(const JpegCounts& counts, bool has_chroma, JpegModel* model);

}  // namespace l3
