// The rans model of an image as lanes look it up, in 44 KB of the shared memory of a block.
// Layer: cuda.
//
// A context is a word for each channel in coding order and each level: from bit
// kTableBit on the table, below it the place of the coefficients in
// RansScratch::taps.
#pragma once

#include "core/rans_model.h"
#include "cuda/kernels/device_memory.h"
#include "cuda/kernels/lane_math.cuh"
#include "cuda/kernels/rans_samples.cuh"
#include "cuda/kernels/warp.h"
#include "format/rans_model.h"

namespace l3 {

static_assert(kMaxChannels * kMaxRansSets * sizeof(RansTaps) <= 256);

struct alignas(16) RansLookup {
  static constexpr uint32_t kTableBit = 10;

  // A token of a table. It takes a state s to
  // s + factor * (s >> kRansScaleBits) - start.
  struct alignas(8) Entry {
    uint32_t factor;  // frequency - kRansScale
    // From the lowest bits up: raw_bits (5), from bit kBaseBit on the base, and
    // in the 11 highest bits -start.
    uint32_t bits;
  };

  // Of a table. Odd, so that tokens of different tables lie in different banks.
  template <class Samples>
  static constexpr uint32_t kEntries = Samples::kTokens + 1;

  // The entry of the token that comes next.
  template <class Samples>
  L3_DEVICE Entry Find(uint32_t state, uint32_t context) const {
    return EntryOf<Samples>(context, TokenOf(state, context));
  }
  // Its number, times kTokenUnit, and the entry of a token.
  L3_DEVICE uint32_t TokenOf(uint32_t state, uint32_t context) const {
    return token_of_slot[Select(kRansScale - 1, state, context)];
  }
  template <class Samples>
  L3_DEVICE Entry EntryOf(uint32_t context, uint32_t token) const {
    // Byte 1 of the context is 4 times the table.
    static_assert(kTableBit == 8 + 2 && kMaxRansTables <= 64);
    constexpr uint32_t kTableBytes = kEntries<Samples> * Samples::kTokenUnit;
    const uint32_t place = Dot(context, kTableBytes / 4 << 8, token) *
                           (static_cast<uint32_t>(sizeof(Entry)) / Samples::kTokenUnit);
    return *reinterpret_cast<const Entry*>(reinterpret_cast<const uint8_t*>(entry) + place);
  }
  // The state without that token.
  static L3_DEVICE uint32_t Next(const Entry& entry, uint32_t state) {
    return state + entry.factor * (state >> kRansScaleBits) +
           static_cast<uint32_t>(static_cast<int32_t>(entry.bits) >> (32 - 11));
  }
  // The folded residual. `dropped` is `next` without its raw bits.
  template <class Samples>
  static L3_DEVICE uint32_t Fold(const Entry& entry, uint32_t next, uint32_t dropped) {
    return Samples::TokenBase(entry.bits) + next - (dropped << (entry.bits & 31));
  }

  uint32_t context_of_level[kMaxChannels][kRansLevels];
  uint32_t context_of_match[kMatchContexts];
  Entry entry[kMaxRansTables * (kRansTokens + 1)];     // kEntries for each table
  uint8_t token_of_slot[kMaxRansTables * kRansScale];  // times kTokenUnit
  uint32_t gradient_weight;
};

// Fills some tables, with a token in each lane. Where a token's slots begin stands by how much it
// is above the token before; sums of these, of 32 slots in each lane, are the tokens.
template <class Samples, class Warp, class Model>
L3_DEVICE void PutTables(Warp& warp, uint32_t begin, uint32_t end, uint32_t warp_index,
                         uint32_t warp_count, const Model& model, RansLookup* lookup) {
  static_assert(kRansScale == kWarpLanes * 2 * sizeof(Chunk));
  static_assert(offsetof(RansLookup, token_of_slot) % sizeof(Chunk) == 0);
  constexpr uint32_t kInAllBytes = 0x01010101;
  const uint32_t lane = warp.lane();
  L3_NO_UNROLL
  for (uint32_t table = begin + warp_index; table < end; table += warp_count) {
    uint8_t* const token_of_slot = lookup->token_of_slot + kRansScale * table;
    Chunk* const chunks = reinterpret_cast<Chunk*>(token_of_slot) + 2 * lane;
    chunks[0] = chunks[1] = {};
    warp.Sync();
    uint32_t start = 0;
    uint32_t before = 0;  // the last token with slots
    L3_NO_UNROLL
    for (uint32_t first = 0; first < Samples::kTokens; first += kWarpLanes) {
      const uint32_t token = first + lane;
      const bool exists = token < Samples::kTokens;
      const uint32_t frequency = exists ? model.frequency[table][token] : 0;
      const uint32_t token_end = start + warp.InclusiveScan(frequency);
      if (exists) {
        const RansToken raw = GetRansToken(token);
        lookup->entry[RansLookup::kEntries<Samples> * table + token] = {
            frequency - kRansScale,
            raw.raw_bits | raw.base << Samples::kBaseBit | (frequency - token_end) << (32 - 11)};
      }
      const uint32_t lanes = warp.Ballot(frequency != 0);
      const uint32_t lanes_below = lanes & warp.LanesBelow();
      if (frequency != 0) {
        const uint32_t last = lanes_below == 0 ? before : first + HighestBit(lanes_below);
        token_of_slot[token_end - frequency] =
            static_cast<uint8_t>((token - last) * Samples::kTokenUnit);
      }
      if (lanes != 0) before = first + HighestBit(lanes);
      start = warp.Shuffle(token_end, kWarpLanes - 1);
    }
    warp.Sync();
    Chunk slots[2] = {chunks[0], chunks[1]};
    uint32_t sum = 0;
    L3_UNROLL
    for (uint32_t k = 0; k < 8; ++k) {
      uint32_t& word = slots[k / 4].word[k % 4];
      word = (word + sum) * kInAllBytes;
      sum = word >> 24;
    }
    const uint32_t below = (warp.InclusiveScan(sum) - sum) * kInAllBytes;
    L3_UNROLL
    for (uint32_t k = 0; k < 8; ++k) slots[k / 4].word[k % 4] += below;
    chunks[0] = slots[0];
    chunks[1] = slots[1];
  }
}

// Fills `lookup` with a model, by all warps of a block. They must wait for each
// other before they look anything up. `Samples` are those of the image.
template <class Samples, class Warp>
L3_DEVICE void BuildRansLookup(Warp& warp, uint32_t warp_index, uint32_t warp_count,
                               const RansModel& model, RansLookup* lookup) {
  const uint32_t lane = warp.lane();
  if (lane == 0 && warp_index == 0) lookup->gradient_weight = model.gradient_weight;
  for (uint32_t p = warp_index; p < kMaxChannels; p += warp_count) {
    for (uint32_t level = lane; level < kRansLevels; level += kWarpLanes) {
      const uint32_t set = (level >= model.set_begin[p][0]) + (level >= model.set_begin[p][1]);
      lookup->context_of_level[p][level] =
          static_cast<uint32_t>(model.table_of_level[p][level]) << RansLookup::kTableBit |
          static_cast<uint32_t>(sizeof(RansTaps)) * (kMaxRansSets * p + set);
    }
  }
  PutTables<Samples>(warp, 0, model.table_count, warp_index, warp_count, model, lookup);
  // Tables of match tiles are those of words. They lie behind the others whatever these are of.
  static_assert(ByteSamples::kTokens <= WordSamples::kTokens);
  PutTables<WordSamples>(warp, model.table_count, model.table_count + model.match_table_count,
                         warp_index, warp_count, model, lookup);
  if (warp_index != 0) return;
  for (uint32_t context = lane; context < kMatchContexts; context += kWarpLanes) {
    lookup->context_of_match[context] = static_cast<uint32_t>(model.table_of_context[context])
                                        << RansLookup::kTableBit;
  }
}

}  // namespace l3
