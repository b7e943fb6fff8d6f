// The loops of the rans encoder, on vectors. Layer: encoder. Compiled for several
// instruction sets from rans_kernels.inc; all give the same result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/rans_model.h"
#include "encoder/exact_floats.h"
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
  // The frequency, never 0, and from bit 16 on the start.
  uint32_t entry[(kIdleLevel + 1) * kRansTokens];
};
struct RansSymbols {
  explicit RansSymbols(const RansModel& model);

  RansChannelSymbols channel[kMaxChannels];
};

// What tokens cost at each level, in 1 / 2^kRansTokenCostBits bit; nothing at kIdleLevel.
constexpr uint32_t kRansTokenCostBits = 8;
struct RansTokenCosts {
  uint32_t at[(kIdleLevel + 1) * kRansTokens];
};
// How far samples of a level lie from their predictions, in 1/16; anything at kIdleLevel.
struct RansScales {
  int32_t at[kIdleLevel + 1];
};

// Samples of one set, whose predictions are rounded from sums in 1/64. Up to a whole block they
// are there, at kIdleLevel.
struct RansStepRun {
  uint32_t count;
  uint32_t used_bits;
  int32_t* sum;
  const uint16_t* value;
  const uint8_t* level;
  uint32_t unknowns;
  const int32_t* difference[kMaxRansTaps];  // by unknown, between tap and reference
};
struct RansStepCosts {
  uint64_t up;
  uint64_t down;
};

// What a RansStepRun is made of: those samples of a run that have levels from min_level up to
// end_level.
struct RansChoice {
  uint32_t count;
  const uint16_t* value;
  const uint8_t* level;
  uint8_t min_level;
  uint8_t end_level;
  const uint16_t* north;
  uint32_t unknowns;
  const uint16_t* tap[kMaxRansTaps];  // by unknown
  const uint16_t* reference[kMaxRansTaps];
  int32_t coefficient[kMaxRansTaps];
};
struct RansChosen {
  int32_t* sum;
  uint16_t* value;
  uint8_t* level;
  int32_t* difference[kMaxRansTaps];
};

// Bytes before the words of a payload that `encode` may overwrite.
constexpr uint32_t kRansWordMargin = 16;

// Places of a column; a block fills these but for a few, so that runs are written in whole blocks
// and columns lie apart in a cache.
constexpr uint32_t kRansColumnPlaces = kRansProductBlock + kRansRunBlock;

// The weighted samples of one set, by column.
struct RansColumnBlock {
  uint32_t filled = 0;
  alignas(64) int16_t at[kMaxRansColumns][kRansColumnPlaces];
};

// What columns of a run are made of.
struct RansColumns {
  uint32_t count;
  bool wide;       // samples may have more than 8 bits
  uint32_t shift;  // of their differences, if so
  ptrdiff_t tap[kMaxRansColumns];  // offsets from a sample
  ptrdiff_t reference[kMaxRansColumns];
  uint32_t sets;
  uint8_t set_begin[kMaxRansSets - 1];
};

// Rows and waves that are turned into one another at a time.
constexpr uint32_t kRansTurnedRows = 8;

// Up to 32 blocks of a JPEG image (format.md 5.6), by falling last numbers.
struct JpegBlockGroup {
  const int16_t* block[kRansLanes];  // in zigzag order; lanes without one have a block of zeros
  int16_t last[kRansLanes];          // 0 there
  uint32_t first_context;            // of coefficient 0 and level 0
  uint32_t idle_context;             // of lanes that a step leaves alone, with the number 0
};
// Where symbols go: of each step those of all lanes, and signs of 32 bits at a time.
struct JpegSymbolOutput {
  uint16_t* number;
  uint16_t* context;
  uint8_t* signs;
  uint64_t bits;  // that are not written yet
  uint32_t bit_count;

  // After up to 32 further signs. Up to four bytes behind the signs may be overwritten.
  void WriteSigns() {
    std::memcpy(signs, &bits, 4);
    signs += bit_count / 32 * 4;
    bits >>= bit_count & 32;
    bit_count &= 31;
  }
};

// How often a token occurs in a context of jpeg tiles, and what it costs in each cluster of them.
struct JpegTokenCount {
  uint32_t token;
  uint32_t count;
};
constexpr uint32_t kJpegMostClusters = 24;

struct RansKernels {
  // Turns rows of a tile, kMaxPackedTileSide apart, into waves, `stride` apart: `row` is the first
  // row at a wave's column, and each row below begins two columns further left.
  void (*turn)(const uint16_t* row, uint16_t* wave, size_t stride);
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
  // Returns how many samples it chose; behind them up to a block is overwritten.
  uint32_t (*choose)(const RansChoice& from, const RansChosen& to);
  // What samples cost if an unknown goes up by `step` / 64, or down.
  RansStepCosts (*try_steps)(const RansStepRun& run, uint32_t unknown, int32_t step,
                             const RansTokenCosts& costs);
  // Moves each unknown from `first` up to `end` by its step, in 1/64.
  void (*move_sums)(const RansStepRun& run, uint32_t first, uint32_t end, const int32_t* step);
  // sum[i][j] += products of columns i and j <= i: the differences by unknown, then what is left
  // between sums and values. A sample's weight is that of Student's distribution.
  void (*add_step_products)(const RansStepRun& run, const RansScales& scales,
                            double (*sum)[kMaxRansColumns]);
  // weight[i] = scale / deviation[i], from 1 to kMaxRansWeight
  void (*find_weights)(const int32_t* deviation, uint32_t count, float scale, int16_t* weight);
  // Appends to the columns of each sample's set:
  // clamp((tap[i] - reference[i]) >> shift) * weight[i] >> 4
  void (*weigh)(const RansColumns& columns, const uint16_t* value, const uint8_t* level,
                const int16_t* weight, uint32_t count, RansColumnBlock* block);
  // sum[i][j] += products of columns i and j <= i over a block, which is empty then.
  void (*add_products)(RansColumnBlock* block, uint32_t columns, int64_t (*sum)[kMaxRansColumns]);
  // Puts samples into the states of all lanes: those of `places` (a multiple of lanes times
  // channels) from the last to the first. What the states lose goes before `end`. Returns where
  // that begins; up to kRansWordMargin bytes before it may be overwritten.
  uint8_t* (*encode)(const RansChannelSymbols* symbols, uint32_t channels, const uint16_t* folded,
                     const uint8_t* level, size_t places, bool long_raw, uint32_t* state,
                     uint8_t* end);
  // The symbols of the coefficients behind DC.
  void (*find_jpeg_symbols)(const JpegBlockGroup& group, JpegSymbolOutput* output);
  // The cluster in which tokens cost the least, the first of several, where naming it costs `cost`.
  uint32_t (*find_jpeg_cluster)(const JpegTokenCount* tokens, size_t count,
                                const double (*costs)[kJpegMostClusters], const double* cost);
};

// The fastest this machine has.
const RansKernels& GetRansKernels();

}  // namespace l3
