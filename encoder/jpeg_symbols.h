// The numbers that a jpeg tile codes, in the order of decoding (format.md 5.6). Layer: encoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "encoder/jpeg_file.h"
#include "encoder/rans_kernels.h"

namespace l3 {

// Contexts of all kinds in one row.
constexpr uint32_t kJpegAcContexts = kJpegClasses * kJpegBlockSamples * kJpegLevels;
constexpr uint32_t kJpegFirstLastContext = kJpegAcContexts;
constexpr uint32_t kJpegFirstDcContext =
    kJpegFirstLastContext + kMaxJpegComponents * kJpegLastContexts;
constexpr uint32_t kJpegContexts = kJpegFirstDcContext + kJpegClasses * kJpegDcContexts;
// Of lanes without a symbol: number 0.
constexpr uint32_t kJpegIdleContext = kJpegContexts;

struct JpegTileSymbols {
  // Of each step, those of all lanes. First come two steps for each row of blocks: last numbers,
  // then DC.
  std::unique_ptr<uint16_t[]> numbers;
  std::unique_ptr<uint16_t[]> contexts;
  uint32_t steps;
  std::vector<uint8_t> predictors;  // of each row of blocks
  std::vector<uint8_t> signs;       // and a word behind them
  uint32_t sign_count;
  uint32_t lanes;
};

// How often each token occurred.
struct JpegCounts {
  uint32_t at[kJpegContexts + 1][kRansTokens] = {};

  void Add(const JpegCounts& other);
};

// The symbols of a tile. Returns false if it has a number that the format does not hold. Adds the
// tokens to `counts`.
bool FindJpegSymbols(const ImageInfo& info, const JpegImage& image, uint32_t tile,
                     JpegTileSymbols* symbols, JpegCounts* counts);

// Writes the tiles of an image by a model.
class JpegPayloadWriter {
 public:
  explicit JpegPayloadWriter(const JpegModel& model);

  // Appends a payload, but for its check and its alignment. The model has a frequency for each
  // token of the tile.
  void Append(const JpegTileSymbols& symbols, std::vector<uint8_t>* out) const;

 private:
  RansChannelSymbols symbols_ = {};  // of tables in place of levels
  uint8_t table_of_[kJpegContexts + 1];
};

}  // namespace l3
