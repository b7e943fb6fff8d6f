// Fits coefficients to samples by least squares, where samples that are hard
// to predict count less. Layer: encoder.
#pragma once

#include <cstdint>

#include "encoder/rans_kernels.h"
#include "encoder/rans_samples.h"

namespace l3 {

// The unknowns of a role. A coefficient scales the difference between its tap
// and a reference tap: N for the channel's own taps, the sample at the same place for
// another channel's. So predictions follow a change of brightness exactly.
struct RansUnknowns {
  uint32_t count = 0;
  uint32_t tap[kMaxRansTaps];
  uint32_t reference[kMaxRansTaps];

  explicit RansUnknowns(RansRole role) {
    for (uint32_t i = 0; i < RansTapCount(role); ++i) {
      uint32_t base = kNorth;
      if (role == RansRole::kSecond && i >= 7) base = 7;
      if (role == RansRole::kThird && i >= 6) base = i == 7 || i >= 12 ? 7 : 6;
      if (i == base) continue;
      tap[count] = i;
      reference[count] = base;
      ++count;
    }
  }

  static constexpr uint32_t kNorth = 1;
};

// Sums of products of all pairs of columns, of which the last is the target's.
template <typename Number>
struct RansProducts {
  Number sum[kMaxRansColumns][kMaxRansColumns] = {};
};

// Solves for `n` unknowns by Cholesky's method, with a small ridge: a part of the mean square, and
// something more. The solution may not be finite.
void SolveRansProducts(const RansProducts<double>& products, uint32_t n, double ridge_part,
                       double least_ridge, double* solution);

// Adds up what the samples of one or more tiles ask of the coefficients.
class RansFitter {
 public:
  explicit RansFitter(const RansSettings& settings) : settings_(settings) {}

  // Samples that were not modelled yet, for one set.
  void AddBlind(const RansSamples& samples) { Add(samples, 1, true); }
  // Samples that were modelled, for `sets` sets (1 to kMaxRansSets).
  void AddModelled(const RansSamples& samples, uint32_t sets) { Add(samples, sets, false); }
  void Merge(const RansFitter& other);

  // Parameters of as many sets as were added.
  RansParameters Solve(uint32_t channels, uint32_t sets) const;

 private:
  void Add(const RansSamples& samples, uint32_t sets, bool blind);
  RansColumns ColumnsOf(const RansSamples& samples, uint32_t position, uint32_t sets) const;
  void Flush(uint32_t position, uint32_t set, uint32_t columns);

  const RansSettings& settings_;
  RansProducts<int64_t> products_[kMaxChannels][kMaxRansSets];
  RansColumnBlock blocks_[kMaxRansSets];  // whose products are not added yet
};

}  // namespace l3
