// Fits coefficients to samples by least squares, where samples that are hard
// to predict count less. Layer: encoder.
#pragma once

#include <cstdint>

#include "encoder/rans_kernels.h"
#include "encoder/rans_samples.h"

namespace l3 {

// Adds up what the samples of one or more tiles ask of the coefficients.
class RansFitter {
 public:
  explicit RansFitter(const RansSettings& settings) : settings_(settings) {}

  // Samples that no plan has modelled yet, for one set.
  void AddBlind(const RansSamples& samples) { Add(samples, 1, true); }
  // Samples that a plan has modelled, for `sets` sets (1 to kMaxRansSets).
  void AddModelled(const RansSamples& samples, uint32_t sets) { Add(samples, sets, false); }
  void Merge(const RansFitter& other);

  // A plan of as many sets as were added.
  RansPlan Solve(uint32_t channels, uint32_t sets) const;

 private:
  // Sums of products of all pairs of columns.
  struct Products {
    int64_t sum[kMaxRansColumns][kMaxRansColumns] = {};
  };

  void Add(const RansSamples& samples, uint32_t sets, bool blind);
  RansColumns ColumnsOf(const RansSamples& samples, uint32_t position, uint32_t sets) const;
  void Flush(uint32_t position, uint32_t set, uint32_t columns);

  const RansSettings& settings_;
  Products products_[kMaxChannels][kMaxRansSets];
  RansColumnBlock blocks_[kMaxRansSets];  // whose products are not added yet
};

}  // namespace l3
