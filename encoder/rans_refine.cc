#include "encoder/rans_refine.h"

#include <algorithm>
#include <cmath>

#include "encoder/fixed_log.h"
#include "encoder/rans_fit.h"

namespace l3 {
namespace {

// A token that the model lacks costs the bits of the rarest token plus two, which a table pays to
// have it.
constexpr uint32_t kMissingTokenBits = kRansScaleBits + 2;

// Moves the coefficient of an unknown, and its reference's the other way. False if one of them
// would leave its range.
bool Move(const RansUnknowns& unknowns, uint32_t k, int32_t step, int8_t* coefficients) {
  const int32_t tap = coefficients[unknowns.tap[k]] + step;
  const int32_t reference = coefficients[unknowns.reference[k]] - step;
  if (tap < -128 || tap > 127 || reference < -128 || reference > 127) return false;
  coefficients[unknowns.tap[k]] = static_cast<int8_t>(tap);
  coefficients[unknowns.reference[k]] = static_cast<int8_t>(reference);
  return true;
}

// The steps of a solution, rounded to 1/64, and the coefficients after them. False if these
// cannot be had.
bool FindSteps(const RansUnknowns& unknowns, const double* solution, const int8_t* coefficients,
               int32_t* steps, int8_t* next) {
  int32_t moved[kMaxRansTaps];
  std::copy_n(coefficients, kMaxRansTaps, moved);
  for (uint32_t k = 0; k < unknowns.count; ++k) {
    // Products that nearly depend on one another leave the range of a double.
    if (!std::isfinite(solution[k])) return false;
    const double scaled = std::min(std::max(solution[k] * 64, -256.0), 256.0);
    steps[k] = static_cast<int32_t>(std::floor(scaled + 0.5));
    moved[unknowns.tap[k]] += steps[k];
    moved[unknowns.reference[k]] -= steps[k];
  }
  for (uint32_t i = 0; i < kMaxRansTaps; ++i) {
    if (moved[i] < -128 || moved[i] > 127) return false;
    next[i] = static_cast<int8_t>(moved[i]);
  }
  return true;
}

}  // namespace

RansCosts::RansCosts(const RansModel& model, const RansCounts& counts, uint32_t channels)
    : token{}, scale{} {
  constexpr uint32_t kDroppedBits = kCostBits - kRansTokenCostBits;
  for (uint32_t p = 0; p < channels; ++p) {
    uint64_t mean = 8;  // magnitude, in 1/16; levels of few samples lean on the one below
    for (uint32_t level = 0; level < kRansLevels; ++level) {
      constexpr uint64_t kLean = 20;
      uint64_t samples = kLean;
      uint64_t sum = kLean * mean;
      const uint16_t* frequency = model.frequency[model.table_of_level[p][level]];
      for (uint32_t t = 0; t < kRansTokens; ++t) {
        const RansToken of = GetRansToken(t);
        const uint32_t log = frequency[t] == 0 ? 0 : FixedLog2(frequency[t]);
        const uint32_t bits =
            (frequency[t] == 0 ? kMissingTokenBits : kRansScaleBits) + of.raw_bits;
        token[p].at[level * kRansTokens + t] = (bits << kRansTokenCostBits) - (log >> kDroppedBits);
        const uint64_t magnitude = (of.base + (1u << of.raw_bits) / 2 + 1) / 2;
        samples += counts.at[p][level][t];
        sum += 16 * magnitude * counts.at[p][level][t];
      }
      mean = sum / samples;
      // As for Student's distribution, whose tails are long.
      scale[p].at[level] = static_cast<int32_t>(10 + 2 * mean);
    }
    scale[p].at[kIdleLevel] = 16;
  }
}

uint64_t RansCosts::Of(const RansCounts& counts, uint32_t channels) const {
  uint64_t cost = 0;
  for (uint32_t p = 0; p < channels; ++p) {
    for (uint32_t level = 0; level < kRansLevels; ++level) {
      const uint32_t* costs = token[p].at + level * kRansTokens;
      for (uint32_t t = 0; t < kRansTokens; ++t) {
        cost += uint64_t{counts.at[p][level][t]} * costs[t];
      }
    }
  }
  return cost;
}

uint32_t RansDescent::Collect(const RansSamples& samples, uint32_t position, uint32_t min_level,
                              uint32_t end_level, const int8_t* coefficients) {
  const RansUnknowns unknowns(GetRansRole(samples.channels(), position));
  const size_t room = size_t{samples.width_px()} * samples.height_px() + kRansRunBlock;
  for (uint32_t k = 0; k < unknowns.count; ++k) {
    difference_[k].resize(std::max(room, difference_[k].size()));
  }
  sum_.resize(std::max(room, sum_.size()));
  value_.resize(std::max(room, value_.size()));
  level_.resize(std::max(room, level_.size()));
  const RansKernels& kernels = GetRansKernels();
  uint32_t count = 0;
  for (uint32_t number = 0; number < samples.wave_count(); ++number) {
    const RansSamples::Wave wave = samples.GetWave(number);
    if (wave.count == 0) continue;
    const RansRun run = samples.GetRun(position, wave);
    RansChoice from = {wave.count,
                       run.value,
                       samples.levels(position, wave),
                       static_cast<uint8_t>(min_level),
                       static_cast<uint8_t>(end_level),
                       run.tap(RansUnknowns::kNorth),
                       unknowns.count,
                       {},
                       {},
                       {}};
    RansChosen to = {sum_.data() + count, value_.data() + count, level_.data() + count, {}};
    for (uint32_t k = 0; k < unknowns.count; ++k) {
      from.tap[k] = run.tap(unknowns.tap[k]);
      from.reference[k] = run.tap(unknowns.reference[k]);
      from.coefficient[k] = coefficients[unknowns.tap[k]];
      to.difference[k] = difference_[k].data() + count;
    }
    count += kernels.choose(from, to);
  }
  // Whole blocks: the rest costs nothing.
  for (uint32_t i = count; i % kRansRunBlock != 0; ++i) {
    for (uint32_t k = 0; k < unknowns.count; ++k) difference_[k][i] = 0;
    sum_[i] = 0;
    value_[i] = 0;
    level_[i] = static_cast<uint8_t>(kIdleLevel);
  }
  return count;
}

void RansDescent::Improve(const RansSettings& settings, const RansSamples& samples,
                          uint32_t position, uint32_t set, const RansCosts& costs,
                          RansParameters* parameters) {
  const RansRefinement effort = GetRansRefinement(settings.effort);
  const RansKernels& kernels = GetRansKernels();
  const RansUnknowns unknowns(GetRansRole(samples.channels(), position));
  const uint8_t* begin = settings.set_begin[position];
  const uint32_t min_level = set == 0 ? 0 : begin[set - 1];
  const uint32_t end_level = set + 1 < parameters->sets[position] ? begin[set] : kRansLevels;
  int8_t* coefficients = parameters->coefficients[position][set];
  const uint32_t count = Collect(samples, position, min_level, end_level, coefficients);
  if (count == 0) return;
  RansStepRun run = {count,         samples.used_bits(), sum_.data(), value_.data(),
                     level_.data(), unknowns.count,      {}};
  for (uint32_t k = 0; k < unknowns.count; ++k) run.difference[k] = difference_[k].data();
  const auto cost_now = [&] { return kernels.try_steps(run, 0, 0, costs.token[position]).up; };
  int32_t steps[kMaxRansTaps];
  uint64_t best = cost_now();
  for (uint32_t fit = 0; fit < effort.fits; ++fit) {
    RansProducts<double> products;
    kernels.add_step_products(run, costs.scale[position], products.sum);
    double solution[kMaxRansTaps];
    SolveRansProducts(products, unknowns.count, 1e-5, 1.0, solution);
    int8_t next[kMaxRansTaps];
    if (!FindSteps(unknowns, solution, coefficients, steps, next)) break;
    kernels.move_sums(run, 0, unknowns.count, steps);
    const uint64_t cost = cost_now();
    if (cost >= best) {
      for (uint32_t k = 0; k < unknowns.count; ++k) steps[k] = -steps[k];
      kernels.move_sums(run, 0, unknowns.count, steps);
      break;
    }
    best = cost;
    std::copy_n(next, kMaxRansTaps, coefficients);
  }
  uint32_t still = 0;  // unknowns since the last step
  for (uint32_t sweep = 0; sweep < effort.sweeps; ++sweep) {
    for (uint32_t k = 0; k < unknowns.count; ++k) {
      if (still++ == unknowns.count) return;
      const RansStepCosts cost = kernels.try_steps(run, k, 1, costs.token[position]);
      const uint64_t least = std::min(cost.up, cost.down);
      if (least >= best) continue;
      steps[k] = cost.up < cost.down ? 1 : -1;
      if (!Move(unknowns, k, steps[k], coefficients)) continue;
      kernels.move_sums(run, k, k + 1, steps);
      best = least;
      still = 0;
    }
  }
}

void RefineRansTile(const RansSettings& settings, const RansCosts& costs, RansDescent* descent,
                    RansSamples* samples, RansParameters* parameters, RansCounts* counts) {
  const uint32_t channels = samples->channels();
  const auto model = [&](const RansParameters& by) {
    samples->Model(settings, by);
    *counts = RansCounts{};
    CountRansTokens(*samples, counts);
    return costs.Of(*counts, channels);
  };
  const uint64_t best = model(*parameters);
  const uint8_t* sets = parameters->sets;
  if (std::none_of(sets, sets + channels, [](uint8_t count) { return count > 0; })) return;
  RansParameters next = *parameters;
  for (uint32_t p = 0; p < channels; ++p) {
    for (uint32_t set = 0; set < next.sets[p]; ++set) {
      descent->Improve(settings, *samples, p, set, costs, &next);
    }
    // The levels of later channels follow from the residuals of this one.
    if (p + 1 < channels) samples->Model(settings, next);
  }
  if (model(next) < best) {
    *parameters = next;
  } else {
    model(*parameters);
  }
}

}  // namespace l3
