// The loops of the rans encoder, on vectors. Layer: encoder. Compiled for several
// instruction sets from rans_kernels.inc; all give the same result.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/rans_model.h"
#include "format/constants.h"

namespace l3 {

// Runs are worked on in whole blocks: what is read must be there, and what is
// written have room, up to the next multiple.
constexpr uint32_t kRansRunBlock = 32;
constexpr uint32_t kMaxRansRun = kMaxPackedTileSide;

// A run of samples of one channel, none of which depends on another.
struct RansRun {
  uint32_t count;
  RansRole role;
  uint32_t used_bits;
  const uint16_t* value;
  const ptrdiff_t* offset;  // from a sample to each of its taps

  const uint16_t* tap(uint32_t number) const { return value + offset[number]; }
};

// What a run is modelled with (format.md 5.4).
struct RansRunModel {
  uint32_t sets;  // 0 for the gradient predictor
  const int32_t (*coefficients)[kMaxRansTaps];
  const int32_t (*pairs)[kMaxRansTaps / 2];  // of them, side by side as 16-bit numbers
  const uint8_t* set_begin;
  uint32_t gradient_weight;
  const uint16_t* west;         // energies
  const uint16_t* northeast;
  const uint16_t* magnitude[2];  // of the channels before
};

struct RansRunResult {
  uint16_t* folded;
  uint8_t* level;
  uint16_t* magnitude;
  uint16_t* energy;
};

// Columns of the products below: unknowns, then the target.
constexpr uint32_t kMaxRansColumns = kMaxRansTaps;
// Products that are added up at a time.
constexpr uint32_t kRansProductBlock = 512;
// Products of these fit 16 bits; a 16th of them, squared and added up over a block, 31.
constexpr int32_t kMaxRansDifference = 255;
constexpr int32_t kMaxRansWeight = 128;

// The symbols of a model, by channel: kRansTokens of each level. Level kIdleLevel is of no
// sample: its token 0 leaves states alone.
constexpr uint32_t kIdleLevel = kRansLevels;
struct RansChannelSymbols {
  // The frequency, and from bit 16 on the start.
  uint32_t entry[(kIdleLevel + 1) * kRansTokens];
};
struct RansSymbols {
  explicit RansSymbols(const RansModel& model);

  RansChannelSymbols channel[kMaxChannels];
};

// Bytes before the words of a payload that `encode` may overwrite.
constexpr uint32_t kRansWordMargin = 16;

// Where columns of a run come from and go to.
struct RansColumns {
  uint32_t count;
  bool wide;       // samples may have more than 8 bits
  uint32_t shift;  // of their differences, if so
  const uint16_t* tap[kMaxRansColumns];
  const uint16_t* reference[kMaxRansColumns];
  int16_t* out[kMaxRansSets];  // of each set: columns, kRansProductBlock apart
};

struct RansKernels {
  void (*model)(const RansRun& run, const RansRunModel& model, const RansRunResult& result);
  // kind[i] = level[i] * kRansTokens + the token of folded[i]
  void (*find_kinds)(const uint16_t* folded, const uint8_t* level, uint32_t count, uint16_t* kind);
  // How many samples the gradient predictor hits.
  uint32_t (*count_exact)(const RansRun& run);
  // How far samples may lie from their predictions, in 1/16: by the pixels alone, or by
  // the model. Returns the sum.
  int64_t (*deviate_by_pixels)(const RansRun& run, int32_t* deviation);
  int64_t (*deviate_by_model)(const uint16_t* folded, const uint8_t* level, uint32_t count,
                              int32_t* deviation);
  // weight[i] = scale / deviation[i], from 1 to kMaxRansWeight; 0 behind the run
  void (*find_weights)(const int32_t* deviation, uint32_t count, float scale, int16_t* weight);
  // selected[i] = weight[i] where level[i] is in [begin, end), else 0
  void (*select)(const int16_t* weight, const uint8_t* level, uint32_t count, uint32_t begin,
                 uint32_t end, int16_t* selected);
  // For each column and set: clamp((tap[i] - reference[i]) >> shift) * weight[set][i] >> 4
  void (*weigh)(const RansColumns& columns, uint32_t count, uint32_t sets,
                const int16_t (*weight)[kMaxRansRun]);
  // sum[i][j] += products of columns i and j <= i over a block.
  void (*add_products)(const int16_t (*column)[kRansProductBlock], uint32_t columns,
                       int64_t (*sum)[kMaxRansColumns]);
  // Puts samples into the states of all lanes: those of `places` (a multiple of lanes times
  // channels) from the last to the first. What the states lose goes before `end`. Returns where
  // that begins; up to kRansWordMargin bytes before it may be overwritten.
  uint8_t* (*encode)(const RansChannelSymbols* symbols, uint32_t channels, const uint16_t* folded,
                     const uint8_t* level, size_t places, bool long_raw, uint32_t* state,
                     uint8_t* end);
};

// The fastest this machine has.
const RansKernels& GetRansKernels();

}  // namespace l3
