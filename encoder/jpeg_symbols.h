// The numbers that a jpeg tile codes, in the order of decoding (format.md 5.6). Layer: encoder.
#pragma once

#include <cstdint>
#include <vector>

#include "core/jpeg_layout.h"
#include "format/jpeg_chunk.h"

namespace l3 {

// Contexts of all kinds in one row.
constexpr uint32_t kJpegAcContexts = kJpegClasses * kJpegBlockSamples * kJpegLevels;
constexpr uint32_t kJpegFirstLastContext = kJpegAcContexts;
constexpr uint32_t kJpegFirstDcContext =
    kJpegFirstLastContext + kMaxJpegComponents * kJpegLastContexts;
constexpr uint32_t kJpegContexts = kJpegFirstDcContext + kJpegClasses * kJpegDcContexts;

// A number and what decoders know of it before.
struct JpegSymbol {
  uint16_t number;
  uint16_t context : 12;
  uint16_t has_sign : 1;
  uint16_t is_negative : 1;
};

struct JpegTileSymbols {
  std::vector<JpegSymbol> symbols;
  std::vector<uint8_t> steps;       // symbols of each, one for a lane
  std::vector<uint8_t> predictors;  // of each row of blocks
  uint32_t lane_count;
};

// How often each token occurred.
struct JpegCounts {
  uint32_t at[kJpegContexts][kRansTokens] = {};

  void Add(const JpegCounts& other);
};

// The symbols of a tile. Returns false if it has a number that the format does not hold. Adds the
// tokens to `counts`.
bool FindJpegSymbols(const ImageInfo& info, const JpegInfo& jpeg,
                     const JpegBlocks<const int16_t>& image, uint32_t tile,
                     JpegTileSymbols* symbols, JpegCounts* counts);

// Writes the tiles of an image by a model.
class JpegPayloadWriter {
 public:
  explicit JpegPayloadWriter(const JpegModel& model);

  // Appends a payload, but for its check and its alignment. The model has a frequency for each
  // token of the tile.
  void Append(const JpegTileSymbols& symbols, std::vector<uint8_t>* out) const;

 private:
  struct Slots {
    uint64_t inverse;  // of the frequency, times 2^32
    uint32_t frequency;
    uint32_t begin;
  };
  Slots slots_[kMaxRansTables][kRansTokens] = {};
  uint8_t table_of_[kJpegContexts];
};

}  // namespace l3
