// The samples around a lane's pixel in one channel, in one lane's registers.
// Layer: cuda. Knows nothing of payloads.
#pragma once

#include "core/rans.h"
#include "cuda/sample_group.cuh"
#include "cuda/warp.h"

namespace l3 {

// Bytes `kSelector` of eight: those of `a` are 0 to 3, those of `b` 4 to 7.
template <uint32_t kSelector>
L3_DEVICE uint32_t PermuteBytes(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(a, b, kSelector);
#else
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t from = kSelector >> (4 * i) & 7;
    result |= static_cast<uint32_t>(bytes >> (8 * from) & 0xFF) << (8 * i);
  }
  return result;
#endif
}

// sum + the products of unsigned bytes of `a` and signed bytes of `b`
L3_DEVICE int32_t DotBytes(int32_t sum, uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
#else
  for (uint32_t i = 0; i < 4; ++i) {
    sum += static_cast<int32_t>(a >> (8 * i) & 0xFF) * static_cast<int8_t>(b >> (8 * i));
  }
#endif
  return sum;
}

// The same of two unsigned 16-bit numbers and the low or high two bytes of `b`
L3_DEVICE int32_t DotLow(int32_t sum, uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  asm("dp2a.lo.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
#else
  sum += static_cast<int32_t>(a & 0xFFFF) * static_cast<int8_t>(b) +
         static_cast<int32_t>(a >> 16) * static_cast<int8_t>(b >> 8);
#endif
  return sum;
}
L3_DEVICE int32_t DotHigh(int32_t sum, uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  asm("dp2a.hi.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
#else
  sum = DotLow(sum, a, b >> 16);
#endif
  return sum;
}

// Sum of the distances of the bytes of `a` and `b`
L3_DEVICE uint32_t ByteDistances(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  return __vsadu4(a, b);
#else
  uint32_t sum = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const int32_t difference = static_cast<int32_t>(a >> (8 * i) & 0xFF) -
                               static_cast<int32_t>(b >> (8 * i) & 0xFF);
    sum += static_cast<uint32_t>(difference < 0 ? -difference : difference);
  }
  return sum;
#endif
}

// Four samples, of 8 bits or of 16.
template <uint32_t kSampleBytes>
struct Quad;

template <>
struct Quad<1> {
  uint32_t word;

  L3_DEVICE void Fill(uint32_t value) { word = value * 0x01010101; }
  template <uint32_t kIndex>
  L3_DEVICE uint32_t Get() const {
    return PermuteBytes<0x4440 + kIndex>(word, 0);
  }
  // Sample kA, ... of eight: those of `a` are 0 to 3, those of `b` 4 to 7.
  template <uint32_t kA, uint32_t kB, uint32_t kC, uint32_t kD>
  static L3_DEVICE Quad Pick(Quad a, Quad b) {
    return {PermuteBytes<kA | kB << 4 | kC << 8 | kD << 12>(a.word, b.word)};
  }
  // Samples 0 and 1 of a quad as they pass between lanes; the others may be anything.
  static L3_DEVICE Quad OfPair(uint32_t pair) { return {pair}; }
  static L3_DEVICE Quad OfValue(uint32_t value) { return {value}; }
  L3_DEVICE int32_t Dot(int32_t sum, uint32_t coefficients) const {
    return DotBytes(sum, word, coefficients);
  }
  // RansGradient of core/rans.h, of NE, N, NW, W.
  L3_DEVICE uint32_t Gradient() const {
    return ByteDistances(Pick<0, 1, 3, 3>(*this, *this).word, Pick<1, 2, 2, 3>(*this, *this).word);
  }
};

template <>
struct Quad<2> {
  uint32_t low, high;

  L3_DEVICE void Fill(uint32_t value) { low = high = value * 0x00010001; }
  template <uint32_t kIndex>
  L3_DEVICE uint32_t Get() const {
    const uint32_t pair = kIndex < 2 ? low : high;
    return kIndex % 2 == 0 ? pair & 0xFFFF : pair >> 16;
  }
  template <uint32_t kA, uint32_t kB, uint32_t kC, uint32_t kD>
  static L3_DEVICE Quad Pick(Quad a, Quad b) {
    return {PickPair<kA, kB>(a, b), PickPair<kC, kD>(a, b)};
  }
  static L3_DEVICE Quad OfPair(uint32_t pair) { return {pair, 0}; }
  static L3_DEVICE Quad OfValue(uint32_t value) { return {value, 0}; }
  L3_DEVICE int32_t Dot(int32_t sum, uint32_t coefficients) const {
    return DotHigh(DotLow(sum, low, coefficients), high, coefficients);
  }
  L3_DEVICE uint32_t Gradient() const {
    const RansNeighbors around = {
        static_cast<int32_t>(Get<0>()), static_cast<int32_t>(Get<1>()),
        static_cast<int32_t>(Get<2>()), static_cast<int32_t>(Get<3>()), 0, 0, 0, 0};
    return RansGradient(around);
  }

 private:
  template <uint32_t kA, uint32_t kB>
  static L3_DEVICE uint32_t PickPair(Quad a, Quad b) {
    const uint32_t from[4] = {a.low, a.high, b.low, b.high};
    constexpr uint32_t kFirst = 2 * (kA % 2);
    constexpr uint32_t kSecond = 4 + 2 * (kB % 2);
    constexpr uint32_t kSelector =
        kFirst | (kFirst + 1) << 4 | kSecond << 8 | (kSecond + 1) << 12;
    return PermuteBytes<kSelector>(from[kA / 2], from[kB / 2]);
  }
};

// One channel of a lane between two steps.
template <uint32_t kSampleBytes>
class RansWindow {
 public:
  using Samples = Quad<kSampleBytes>;

  L3_DEVICE void Start(uint32_t base) {
    above_.Fill(base);
    beside_.Fill(base);
    pair_ = PairOf(base, base);
    energy_ = north_energy_ = 0;
  }

  // What the next lane needs of this one: value and N, and the energy.
  static constexpr uint32_t kPassed = kSampleBytes;
  L3_DEVICE uint32_t Passed(uint32_t k) const {
    if constexpr (kSampleBytes == 1) return pair_ | energy_ << 16;
    return k == 0 ? pair_ : energy_;
  }
  static L3_DEVICE uint32_t PassedAtStart(uint32_t base, uint32_t k) {
    return k == 0 ? PairOf(base, base) : 0;
  }

  // Moves on by a pixel, with what the lane before passed. `any_edge` tells whether one of
  // the warp's lanes is in the first or the last column.
  L3_DEVICE void Advance(const uint32_t (&passed)[kPassed], bool any_edge, bool first_column,
                         bool last_column) {
    const uint32_t passed_energy = kSampleBytes == 1 ? passed[0] >> 16 : passed[kPassed - 1];
    const Samples from_above = Samples::OfPair(passed[0]);  // NE, NNE
    const Samples last = Samples::OfPair(pair_);              // W
    above_ = Samples::template Pick<4, 0, 1, 2>(above_, from_above);
    const Samples next = Samples::template Pick<0, 0, 5, 5>(last, from_above);  // W, W, NNE, NNE
    beside_ = Samples::template Pick<0, 4, 2, 6>(next, beside_);
    west_energy = energy_;
    northeast_energy = passed_energy;
    above = above_;
    beside = beside_;
    if (any_edge) {
      if (first_column) {
        above = Samples::template Pick<0, 1, 7, 7>(above_, beside_);
        beside = Samples::template Pick<5, 5, 2, 3>(beside_, above_);
        above_ = above;
        beside_ = beside;
        west_energy = north_energy_;
      }
      if (last_column) {
        above = Samples::template Pick<1, 1, 2, 3>(above, above);
        beside = Samples::template Pick<0, 1, 3, 3>(beside, beside);
        northeast_energy = north_energy_;
      }
    }
    cross = Samples::template Pick<0, 1, 2, 4>(above, beside);
    north_energy_ = passed_energy;
  }

  // Takes the value of the pixel, and its energy.
  L3_DEVICE void Finish(uint32_t value, uint32_t energy) {
    pair_ = PairOf(value, above_.template Get<1>());
    energy_ = energy;
  }

  // Around the pixel.
  Samples above;   // NE, N, NW, NWW
  Samples beside;  // W, WW, NNE, NN
  Samples cross;   // NE, N, NW, W
  uint32_t west_energy;
  uint32_t northeast_energy;

 private:
  static L3_DEVICE uint32_t PairOf(uint32_t value, uint32_t n) {
    return value | n << (8 * kSampleBytes);
  }

  Samples above_;  // as `above`, but for what the last column changes
  Samples beside_;
  uint32_t pair_;  // value and N of the pixel before
  uint32_t energy_;
  uint32_t north_energy_;
};

}  // namespace l3
