// The samples that a lane of a rans tile knows, in registers, and what is
// computed of them by the rules of core/rans.h, two or four at a time.
// Layer: cuda. Independent of payloads.
//
// A lane is two pixels behind the lane below. What that lane passed on a step
// ago is the north-east neighbour, and what it passed before that, the north
// one; each comes with the north neighbour that it had itself.
#pragma once

#include "core/rans.h"
#include "cuda/kernels/lane_math.cuh"
#include "cuda/kernels/warp.h"

namespace l3 {

// Coefficients of one channel in one set, from the lowest byte up:
//   word 0: NE, N, NW, W      words 2, 3: NE, N, NW, W of the channels before
//   word 1: NNE, NN, NWW, WW
// For the second channel the first one's sample takes the place of NWW; for
// the third the first and the second take those of NNE and NWW.
struct alignas(16) RansTaps {
  uint32_t word[4];
};

// From the coefficients of a channel of `role`, as the payload has them.
L3_DEVICE RansTaps LoadRansTaps(const uint8_t* k, RansRole role) {
  return {{LoadU32(k),
           k[6] | static_cast<uint32_t>(k[4]) << 8 | static_cast<uint32_t>(k[7]) << 16 |
               static_cast<uint32_t>(k[5]) << 24,
           role != RansRole::kFirst ? LoadU32(k + 8) : 0,
           role == RansRole::kThird ? LoadU32(k + 12) : 0}};
}

// Energies are passed on with 1 added. With kMixedStart added to 3 of one and 2 of
// another, the sum has the 8 added that RansLevel() of core/rans_model.h adds, and
// NextRansEnergy() gives an energy with 1 added again.
constexpr uint32_t kEnergyStart = 1;
constexpr uint32_t kMixedStart = 8 - 5 * kEnergyStart;

// Samples of up to 8 bits: four neighbours in a word.
struct ByteSamples {
  static constexpr uint32_t kBytes = 1;
  static constexpr uint32_t kTokens = kRansShortTokens;
  static constexpr uint32_t kTokenUnit = 8;  // of RansLookup::token_of_slot
  static constexpr uint32_t kBaseBit = 8;
  static constexpr bool kLongRaw = false;  // whether states are refilled before raw bits
  // Activities and what adds up to them are multiplied by this.
  static constexpr uint32_t kActivityScale = 32;

  // From the lowest bits up: energy (16), N (8), value (8).
  struct Passed {
    static constexpr uint32_t kWords = 1;
    uint32_t word[kWords];
  };
  struct Around {
    uint32_t near;  // NE, N, NW, W
    uint32_t far;   // NNE, NN, NWW, WW
  };
  // From what a RansLookup has of a token.
  static L3_DEVICE uint32_t TokenBase(uint32_t bits) { return PermuteBytes(bits, 0, 0x4441); }

  static L3_DEVICE Passed Start(uint32_t base) {
    return {{kEnergyStart | base << 16 | base << 24}};
  }

  // What is around a pixel, from what the neighbours to the north-east, the north
  // and the west passed on, and from what was around the western one.
  static L3_DEVICE Around Arrange(const Passed& northeast, const Passed& north, const Passed& west,
                                  const Around& before) {
    const uint32_t above = PermuteBytes(northeast.word[0], north.word[0], 0x6273);
    return {PermuteBytes(above, west.word[0], 0x7610),  // `above` is NE, N, NNE, NN
            PermuteBytes(above, before.near, 0x7632)};
  }
  // What was around, with NW and W from what a pixel passed on.
  static L3_DEVICE Around AroundFrom(const Passed& passed) { return {passed.word[0], 0}; }

  // MixRansEnergy() of core/rans_model.h, plus 8, scaled, on top of kFloatOffset.
  static L3_DEVICE uint32_t MixEnergies(const Passed& northeast, const Passed& west) {
    const uint32_t mixed =
        DotLow(northeast.word[0], kActivityScale * 2, kFloatOffset + kActivityScale * kMixedStart);
    return DotLow(west.word[0], kActivityScale * 3, mixed);
  }
  // NextRansEnergy(), plus kEnergyStart, for Pass().
  static L3_DEVICE uint32_t NextEnergy(uint32_t mixed, uint32_t magnitude) {
    static_assert(kActivityScale << 3 == 1 << 8);  // what is shifted out is byte 0
    return mixed + kActivityScale * 48 * magnitude;
  }

  // RansGradient() of core/rans.h.
  static L3_DEVICE uint32_t Gradient(const Around& around) {
    return Dot(ByteDistances(around.near, around.near >> 8), 0x00010101, 0);
  }

  // 32 plus the products of coefficients and neighbours. `value` has the values
  // of the channels before this one, p.
  static L3_DEVICE int32_t Predict(RansRole role, const Around* around, uint32_t p,
                                   const uint32_t* value, const RansTaps& taps) {
    uint32_t far = around[p].far;
    if (role == RansRole::kSecond) far = PermuteBytes(far, value[0], 0x3410);
    if (role == RansRole::kThird) {
      far = PermuteBytes(far, PermuteBytes(value[0], value[1], 0x0040), 0x3514);
    }
    int32_t sum = SignedDot(around[p].near, taps.word[0], 32);
    sum = SignedDot(far, taps.word[1], sum);
    if (role != RansRole::kFirst) sum = SignedDot(around[0].near, taps.word[2], sum);
    if (role == RansRole::kThird) sum = SignedDot(around[1].near, taps.word[3], sum);
    return sum;
  }

  // On top of `sum`: the products of four coefficients and four neighbours; 64 times a value.
  static L3_DEVICE int32_t AddProducts(uint32_t neighbors, uint32_t taps, int32_t sum) {
    return SignedDot(neighbors, taps, sum);
  }
  static L3_DEVICE int32_t AddValue(uint32_t value, int32_t sum) {
    return SignedDot(value, 64, sum);
  }

  static L3_DEVICE uint32_t LimitMagnitude(uint32_t magnitude) { return magnitude; }

  // A value is the low byte of a word whose other bytes are those of near.
  static L3_DEVICE uint32_t MakeValue(uint32_t sum, uint32_t max_value, const Around& around) {
    return Select(max_value, sum, around.near);
  }
  static L3_DEVICE Passed Pass(uint32_t value, const Around&, uint32_t energy) {
    return {{PermuteBytes(energy, value, 0x4521)}};
  }
};

// Samples of up to 16 bits: two neighbours in a word, the first in its low half.
struct WordSamples {
  static constexpr uint32_t kBytes = 2;
  static constexpr uint32_t kTokens = kRansTokens;
  static constexpr uint32_t kTokenUnit = 4;
  static constexpr uint32_t kBaseBit = 5;
  static constexpr bool kLongRaw = true;
  static constexpr uint32_t kActivityScale = 1;

  // N and value; the energy is the low half of the second word.
  struct Passed {
    static constexpr uint32_t kWords = 2;
    uint32_t word[kWords];
  };
  struct Around {
    uint32_t near[2];  // NE, N; NW, W
    uint32_t far[2];   // NNE, NN; NWW, WW
  };
  static L3_DEVICE uint32_t TokenBase(uint32_t bits) { return bits >> kBaseBit & 0xFFFF; }

  static L3_DEVICE Passed Start(uint32_t base) { return {{base | base << 16, kEnergyStart}}; }

  static L3_DEVICE Around Arrange(const Passed& northeast, const Passed& north, const Passed& west,
                                  const Around& before) {
    return {{HighHalves(northeast.word[0], north.word[0]), west.word[0]},
            {LowHalves(northeast.word[0], north.word[0]), before.near[1]}};
  }
  static L3_DEVICE Around AroundFrom(const Passed& passed) { return {{0, passed.word[0]}, {0, 0}}; }

  static L3_DEVICE uint32_t MixEnergies(const Passed& northeast, const Passed& west) {
    const uint32_t mixed = DotLow(northeast.word[1], 2, kFloatOffset + kMixedStart);
    return DotLow(west.word[1], 3, mixed);
  }
  static L3_DEVICE uint32_t NextEnergy(uint32_t mixed, uint32_t magnitude) {
    return (mixed >> 3) + 6 * magnitude;
  }

  static L3_DEVICE uint32_t Gradient(const Around& around) {
    const auto distance = [](uint32_t a, uint32_t b) { return a < b ? b - a : a - b; };
    const uint32_t n = around.near[0] >> 16;
    const uint32_t nw = around.near[1] & 0xFFFF;
    return LimitMagnitude(distance(around.near[0] & 0xFFFF, n) + distance(n, nw) +
                          distance(nw, around.near[1] >> 16));
  }

  static L3_DEVICE int32_t Predict(RansRole role, const Around* around, uint32_t p,
                                   const uint32_t* value, const RansTaps& taps) {
    uint32_t far[2] = {around[p].far[0], around[p].far[1]};
    if (role == RansRole::kSecond) far[1] = PermuteBytes(value[0], far[1], 0x7610);
    if (role == RansRole::kThird) {
      far[0] = PermuteBytes(value[0], far[0], 0x7610);
      far[1] = PermuteBytes(value[1], far[1], 0x7610);
    }
    int32_t sum = AddProducts(around[p].near, taps.word[0], 32);
    sum = AddProducts(far, taps.word[1], sum);
    if (role != RansRole::kFirst) sum = AddProducts(around[0].near, taps.word[2], sum);
    if (role == RansRole::kThird) sum = AddProducts(around[1].near, taps.word[3], sum);
    return sum;
  }

  static L3_DEVICE int32_t AddProducts(const uint32_t (&pairs)[2], uint32_t taps, int32_t sum) {
    return SignedDotHigh(pairs[1], taps, SignedDotLow(pairs[0], taps, sum));
  }
  static L3_DEVICE int32_t AddValue(uint32_t value, int32_t sum) {
    return sum + static_cast<int32_t>(value << 6);
  }

  static L3_DEVICE uint32_t LimitMagnitude(uint32_t magnitude) {
    return magnitude < kMaxRansMagnitude ? magnitude : kMaxRansMagnitude;
  }

  static L3_DEVICE uint32_t MakeValue(uint32_t sum, uint32_t max_value, const Around&) {
    return sum & max_value;
  }
  static L3_DEVICE Passed Pass(uint32_t value, const Around& around, uint32_t energy) {
    return {{PermuteBytes(around.near[0], value, 0x5432), energy}};
  }
};

// RansLevel() of an activity, which is scaled, on top of kFloatOffset and has 8
// added already: a float's exponent, and two bits of its fraction.
template <class Samples>
L3_DEVICE uint32_t LevelOfActivity(uint32_t activity) {
  constexpr uint32_t kFirstExponent = 127 + (Samples::kActivityScale == 1 ? 3 : 8);
  static_assert(8 * Samples::kActivityScale == 1u << (kFirstExponent - 127));
  return (FloatBits(activity) >> 21) - 4 * kFirstExponent;
}

}  // namespace l3
