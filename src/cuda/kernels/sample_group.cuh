// Eight neighbouring values of a row in one lane's registers, and arithmetic on
// two of them at once. Layer: cuda. Independent of payloads.
#pragma once

#include "base/portable.h"
#include "core/predictor.h"
#include "cuda/kernels/lane_math.cuh"
#include "cuda/kernels/warp.h"
#include "format/constants.h"

namespace l3 {

constexpr uint32_t kRowSpan = kWarpLanes * kGroupSize;  // pixels of a row that a warp holds

// Eight values in four words of two 16-bit fields. Value i is field i / 4 of
// word i % 4: neighbours lie in neighbouring words, so all but one of the words'
// neighbours are words as they stand.
//
//   word        0    1    2    3
//   high 16    v4   v5   v6   v7
//   low 16     v0   v1   v2   v3
struct SampleGroup {
  static constexpr uint32_t kWords = 4;
  static constexpr uint32_t kOnes = 0x00010001;
  static constexpr uint32_t kFieldMask = 0xFFFF;

  uint32_t word[kWords];

  L3_DEVICE void Fill(uint32_t value) {
    L3_UNROLL
    for (uint32_t k = 0; k < kWords; ++k) word[k] = value * kOnes;
  }
  // Value i must be 0 before.
  L3_DEVICE void Set(uint32_t i, uint32_t value) {
    word[i % kWords] |= value << (16 * (i / kWords));
  }
  // Word k of the neighbours to the left or right of these values. `lane_left`
  // and `lane_right` are the last and the first word of the neighbouring lanes.
  L3_DEVICE uint32_t Left(uint32_t k, uint32_t lane_left) const {
    return k > 0 ? word[k - 1] : FunnelShift(lane_left, word[kWords - 1], 16);
  }
  L3_DEVICE uint32_t Right(uint32_t k, uint32_t lane_right) const {
    return k + 1 < kWords ? word[k + 1] : FunnelShift(word[0], lane_right, 16);
  }
};

// How many words a lane's 8 pixels take in memory.
template <uint32_t kChannels, uint32_t kSampleBytes>
constexpr uint32_t kInterleavedWords = kChannels * kSampleBytes * kGroupSize / 4;

// The words of a lane's 8 pixels, channels interleaved.
template <uint32_t kChannels, uint32_t kSampleBytes>
L3_DEVICE void Interleave(const SampleGroup (&groups)[kChannels],
                          uint32_t (&words)[kInterleavedWords<kChannels, kSampleBytes>]) {
  // The low fields are pixels 0 to 3, the high ones pixels 4 to 7. Sample i of
  // four pixels is channel i % kChannels of pixel i / kChannels.
  constexpr uint32_t kHalf = kInterleavedWords<kChannels, kSampleBytes> / 2;
  const auto fields = [&groups](uint32_t i) { return groups[i % kChannels].word[i / kChannels]; };
  L3_UNROLL
  for (uint32_t m = 0; m < kHalf; ++m) {
    uint32_t front, back;
    if constexpr (kSampleBytes == 1) {
      front = fields(4 * m) + (fields(4 * m + 1) << 8);
      back = fields(4 * m + 2) + (fields(4 * m + 3) << 8);
    } else {
      front = fields(2 * m);
      back = fields(2 * m + 1);
    }
    words[m] = LowHalves(front, back);
    words[m + kHalf] = HighHalves(front, back);
  }
}

// A predictor's taps, widened once for all rows of a tile.
struct alignas(16) WordTaps {
  uint32_t nw, n, ne, bias;
  uint32_t shift;
  uint32_t adds_west;
};

// Constants of values of `used_bits` bits. `mask`, `half` and `low` are in both fields.
struct alignas(16) ValueRange {
  uint32_t max;   // 2^used_bits - 1
  uint32_t mask;  // max
  uint32_t half;  // 2^(used_bits - 1)
  uint32_t low;   // half - 1

  ValueRange() = default;
  L3_DEVICE explicit ValueRange(uint32_t used_bits)
      : max((1u << used_bits) - 1),
        mask(max * SampleGroup::kOnes),
        half((1u << (used_bits - 1)) * SampleGroup::kOnes),
        low(half - SampleGroup::kOnes) {}
};

// Arithmetic modulo 2^used_bits on the fields of words.
template <uint32_t kSampleBytes>
struct GroupMath {
  ValueRange range;

  // Sum of each field, to be masked. Values of 8 bits leave room for sums.
  L3_DEVICE uint32_t Sum(uint32_t a, uint32_t b) const {
    if constexpr (kSampleBytes == 1) return a + b;
    constexpr uint32_t kTop = 0x80008000;
    return ((a & ~kTop) + (b & ~kTop)) ^ ((a ^ b) & kTop);
  }

  // UnfoldResidual of core/residual.h.
  L3_DEVICE uint32_t Unfold(uint32_t folded) const {
    return ((folded >> 1) & range.low) ^ ((folded & SampleGroup::kOnes) * range.max);
  }

  // The bias keeps predictions positive. After the shift it is a multiple of
  // 2^used_bits, so it does not show in values.
  L3_DEVICE WordTaps Widen(PredictorTaps taps) const {
    const auto word = [](int8_t tap) { return static_cast<uint32_t>(int32_t{tap}); };
    const uint32_t bias = word(taps.round) + ((range.max + 1) << word(taps.shift));
    return {word(taps.nw),    word(taps.n),
            word(taps.ne),    kSampleBytes == 1 ? bias * SampleGroup::kOnes : bias,
            word(taps.shift), taps.adds_west};
  }

  // PredictFromAbove of core/predictor.h, to be masked.
  L3_DEVICE uint32_t Predict(const WordTaps& taps, uint32_t nw, uint32_t n, uint32_t ne) const {
    // Both fields in one go for 8 bits. The shift moves bits of the high field
    // to the top of the low one; sums stay below them, so nothing carries.
    if constexpr (kSampleBytes == 1) return Weigh(taps, nw, n, ne);
    return LowHalves(Weigh(taps, nw & 0xFFFF, n & 0xFFFF, ne & 0xFFFF),
                     Weigh(taps, nw >> 16, n >> 16, ne >> 16));
  }

 private:
  static L3_DEVICE uint32_t Weigh(const WordTaps& taps, uint32_t nw, uint32_t n, uint32_t ne) {
    return (taps.bias + taps.nw * nw + taps.n * n + taps.ne * ne) >> taps.shift;
  }
};

// Undoes subtract green (AddGreen of core/color.h). To subtract half of the
// range is to add it. What it changes keeps the bits of `mask`. The green is added `times` times.
template <uint32_t kChannels, uint32_t kSampleBytes>
L3_DEVICE void AddGreenToPlanes(const GroupMath<kSampleBytes>& math,
                                const SampleGroup (&planes)[kChannels], uint32_t times,
                                uint32_t mask, SampleGroup (&values)[kChannels]) {
  L3_UNROLL
  for (uint32_t c = 0; c < kChannels; ++c) values[c] = planes[c];
  if constexpr (kChannels >= 3) {
    L3_UNROLL
    for (uint32_t k = 0; k < SampleGroup::kWords; ++k) {
      const uint32_t green = math.Sum(planes[1].word[k] * times, math.range.half * times);
      values[0].word[k] = math.Sum(planes[0].word[k], green) & mask;
      values[2].word[k] = math.Sum(planes[2].word[k], green) & mask;
    }
  }
}

// Ones in the field of the last value of a row of `width_px`, if it is this lane's.
L3_DEVICE SampleGroup RowEnd(uint32_t lane, uint32_t width_px) {
  SampleGroup end;
  end.Fill(0);
  L3_UNROLL
  for (uint32_t i = 0; i < kGroupSize; ++i) {
    if (kGroupSize * lane + i + 1 == width_px) end.Set(i, SampleGroup::kFieldMask);
  }
  return end;
}

// Turns the row above into the row that the residuals give (ReconstructRow of
// core/packed.h). What W adds is a prefix sum, first of the lane's values, then
// of the lanes.
template <uint32_t kSampleBytes, class Warp>
L3_DEVICE void ReconstructGroup(Warp& warp, const GroupMath<kSampleBytes>& math,
                                const WordTaps& taps, const SampleGroup& row_end,
                                const SampleGroup& folded, SampleGroup* row) {
  const SampleGroup above = *row;
  const uint32_t lane_left = warp.ShuffleUp(above.word[3], above.word[0] << 16);
  const uint32_t lane_right = warp.ShuffleDown(above.word[0]);
  L3_UNROLL
  for (uint32_t k = 0; k < SampleGroup::kWords; ++k) {
    const uint32_t n = above.word[k];
    const uint32_t ne = Select(row_end.word[k], n, above.Right(k, lane_right));
    const uint32_t prediction = math.Predict(taps, above.Left(k, lane_left), n, ne);
    row->word[k] = math.Sum(prediction, math.Unfold(folded.word[k])) & math.range.mask;
  }
  if (!taps.adds_west) return;

  L3_UNROLL
  for (uint32_t k = 1; k < SampleGroup::kWords; ++k) {
    row->word[k] = math.Sum(row->word[k], row->word[k - 1]);
  }
  const uint32_t front = row->word[3] & SampleGroup::kFieldMask;  // sum of values 0 to 3
  const uint32_t sum = front + (row->word[3] >> 16);
  const uint32_t first = warp.lane() == 0 ? above.word[0] & SampleGroup::kFieldMask : 0;
  const uint32_t before = (warp.InclusiveScan(first + sum) - sum) & math.range.max;
  const uint32_t carry = before * SampleGroup::kOnes + (front << 16);
  L3_UNROLL
  for (uint32_t k = 0; k < SampleGroup::kWords; ++k) {
    row->word[k] = math.Sum(row->word[k], carry) & math.range.mask;
  }
}

}  // namespace l3
