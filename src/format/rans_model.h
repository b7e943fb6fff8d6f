// The statistics that rans tiles of an image share (format.md 5.4): from the
// chunk that carries them, or built in. Layer: format.
#pragma once

#include <cstdint>

#include "format/constants.h"

namespace l3 {

// Channels are in coding order (format.md 5.4). Plain data, shared with kernels.
struct RansModel {
  uint8_t table_count;
  uint8_t gradient_weight;
  uint8_t set_begin[kMaxChannels][kMaxRansSets - 1];      // first level of sets 1 and 2
  uint8_t table_of_level[kMaxChannels][kRansLevels];
  uint16_t frequency[kMaxRansTables][kRansTokens];        // each table adds up to kRansScale
};

// Reads the data of a RANS chunk. Returns false if it breaks a rule.
bool ReadRansModel(const uint8_t* data, uint32_t size, uint32_t channels, uint32_t used_bits,
                   RansModel* model);

// The model of images without a RANS chunk.
RansModel BuiltInRansModel(uint32_t channels, uint32_t used_bits);

}  // namespace l3
