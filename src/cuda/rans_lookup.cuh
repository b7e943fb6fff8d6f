// The rans model of an image as lanes look it up, in the shared memory of a
// block. Layer: cuda.
#pragma once

#include "core/rans_model.h"
#include "cuda/rans_samples.cuh"
#include "cuda/warp.h"
#include "format/rans_model.h"

namespace l3 {

// A token of a table. It takes a state s to
// s + factor * (s >> kRansScaleBits) - start.
struct alignas(8) RansSymbol {
  uint32_t factor;  // frequency - kRansScale
  // From the lowest bits up: raw_bits (5), from bit kBaseBit on the base, and
  // in the 11 highest bits -start.
  uint32_t rest;
};

struct alignas(16) RansLookup {
  // By channel in coding order and by level: kRansScale times the table, plus
  // the place of the coefficients in RansScratch::taps.
  uint32_t context[kMaxChannels][kRansLevels];
  RansSymbol symbol[kMaxRansTables * kRansTokens];  // kTokens for each table
  uint8_t token_of_slot[kMaxRansTables * kRansScale];  // times kTokenUnit
  uint32_t gradient_weight;
};
// ReadFolded() and Predict() of rans_kernel.cuh take a context apart by its bytes.
static_assert(kRansScale == 4 << 8 && kMaxRansTables <= 64);
static_assert(kMaxChannels * kMaxRansSets * sizeof(RansTaps) <= 256);

template <class Samples, class Warp>
L3_DEVICE void BuildRansLookupOf(const Warp& warp, uint32_t warp_index, uint32_t warp_count,
                               const RansModel& model, RansLookup* lookup) {
  const uint32_t lane = warp.lane();
  if (lane == 0 && warp_index == 0) lookup->gradient_weight = model.gradient_weight;
  for (uint32_t p = warp_index; p < kMaxChannels; p += warp_count) {
    for (uint32_t level = lane; level < kRansLevels; level += kWarpLanes) {
      const uint32_t set = (level >= model.set_begin[p][0]) + (level >= model.set_begin[p][1]);
      lookup->context[p][level] =
          kRansScale * model.table_of_level[p][level] +
          static_cast<uint32_t>(sizeof(RansTaps)) * (kMaxRansSets * p + set);
    }
  }
  for (uint32_t table = warp_index; table < model.table_count; table += warp_count) {
    uint32_t start = 0;
    L3_NO_UNROLL
    for (uint32_t token = 0; token < Samples::kTokens; ++token) {
      const uint32_t frequency = model.frequency[table][token];
      const RansToken raw = GetRansToken(token);
      if (lane == 0) {
        lookup->symbol[Samples::kTokens * table + token] = {
            frequency - kRansScale,
            raw.raw_bits | raw.base << Samples::kBaseBit | (0u - start) << (32 - 11)};
      }
      L3_NO_UNROLL
      for (uint32_t i = lane; i < frequency; i += kWarpLanes) {
        lookup->token_of_slot[kRansScale * table + start + i] =
            static_cast<uint8_t>(token * Samples::kTokenUnit);
      }
      start += frequency;
    }
  }
}

// Fills `lookup` with a model, by all warps of a block. They must wait for each
// other before they look anything up.
template <class Warp>
L3_DEVICE void BuildRansLookup(const Warp& warp, uint32_t warp_index, uint32_t warp_count,
                               const RansModel& model, uint32_t used_bits, RansLookup* lookup) {
  if (used_bits <= 8) {
    BuildRansLookupOf<ByteSamples>(warp, warp_index, warp_count, model, lookup);
  } else {
    BuildRansLookupOf<WordSamples>(warp, warp_index, warp_count, model, lookup);
  }
}

}  // namespace l3
