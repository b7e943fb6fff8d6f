// Coefficients that cost fewer bits: from those of least squares on, by the costs of tokens in a
// model. Layer: encoder.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder/rans_kernels.h"
#include "encoder/rans_samples.h"
#include "encoder/rans_statistics.h"

namespace l3 {

// What a sample costs by a model, and how large residuals are at each level.
struct RansCosts {
  // `counts` are those that the model was made from.
  RansCosts(const RansModel& model, const RansCounts& counts, uint32_t channels);

  uint64_t Of(const RansCounts& counts, uint32_t channels) const;

  RansTokenCosts token[kMaxChannels];
  RansScales scale[kMaxChannels];
};

// The samples of one set of a tile. Memory that is used again.
class RansDescent {
 public:
  // Lowers what the samples cost at their levels: fits the coefficients anew, weighing samples by
  // their residuals, then moves one at a time by 1/64.
  void Improve(const RansSettings& settings, const RansSamples& samples, uint32_t position,
               uint32_t set, const RansCosts& costs, RansParameters* parameters);

 private:
  uint32_t Collect(const RansSamples& samples, uint32_t position, uint32_t min_level,
                   uint32_t end_level, const int8_t* coefficients);

  std::vector<int32_t> difference_[kMaxRansTaps];  // between tap and reference, by unknown
  std::vector<int32_t> sum_;                       // 64 times the prediction
  std::vector<uint16_t> value_;
  std::vector<uint8_t> level_;
};

// Replaces parameters by which `samples` are modelled by others of fewer bits, if it finds some.
// Leaves samples modelled by it, and counts their tokens.
void RefineRansTile(const RansSettings& settings, const RansCosts& costs, RansDescent* descent,
                    RansSamples* samples, RansParameters* parameters, RansCounts* counts);

}  // namespace l3
