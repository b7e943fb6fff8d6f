// The statistics that the rans and the match tiles of an image share (format.md 5.4 and 5.5): from
// the chunks that carry them, or built in. Layer: format.
#pragma once

#include <cstdint>

#include "format/constants.h"

namespace l3 {

// Channels are in coding order (format.md 5.4). Plain data, shared with kernels.
struct RansModel {
  uint8_t table_count;  // of rans tiles; those of match tiles follow them
  uint8_t match_table_count;  // 0 without match tiles
  uint8_t gradient_weight;
  uint8_t set_begin[kMaxChannels][kMaxRansSets - 1];      // first level of sets 1 and 2
  uint8_t table_of_level[kMaxChannels][kRansLevels];
  uint8_t table_of_context[kMatchContexts];               // of match tiles
  uint16_t frequency[kMaxRansTables][kRansTokens];        // each table adds up to kRansScale
};

// Reads the data of a RANS chunk. Returns false if it breaks a rule.
bool ReadRansModel(const uint8_t* data, uint32_t size, uint32_t channels, uint32_t used_bits,
                   RansModel* model);

// What a MTCH chunk holds besides tables.
struct MatchColors {
  uint32_t count;      // 0 where numbers are values
  const uint8_t* gaps;
  uint32_t gaps_bytes;
};

// Reads the data of a MTCH chunk. Its tables are appended to those of `model`, but for a null
// `model`. Returns false if it breaks a rule, or if there are too many tables together.
bool ReadMatchModel(const uint8_t* data, uint32_t size, uint32_t channels, uint32_t used_bits,
                    RansModel* model, MatchColors* colors);

// Writes the colours that ReadMatchModel found: of each a word, with the value of channel c from
// bit 16 * c on.
void ReadMatchColors(const MatchColors& colors, uint32_t channels, uint32_t used_bits,
                     uint64_t* color);

// The model of images without a RANS chunk.
RansModel BuiltInRansModel(uint32_t channels, uint32_t used_bits);

}  // namespace l3
