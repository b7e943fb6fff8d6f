#include "encoder/rans_fit.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace l3 {
namespace {

// Coefficients in 1/64, each group of which adds up to 64 or 0 as its
// reference demands; N alone if one of them does not fit 8 bits, or there is no solution.
void RoundCoefficients(const RansUnknowns& unknowns, const double* solution, int8_t* coefficients) {
  int32_t rounded[kMaxRansTaps] = {};
  rounded[RansUnknowns::kNorth] = 64;
  bool fits = true;
  for (uint32_t i = 0; i < unknowns.count; ++i) {
    // Products that nearly depend on one another leave the range of a double.
    if (!std::isfinite(solution[i])) {
      fits = false;
      continue;
    }
    const double scaled = std::min(std::max(solution[i] * 64, -128.0), 127.0);
    const int32_t k = static_cast<int32_t>(std::floor(scaled + 0.5));
    rounded[unknowns.tap[i]] += k;
    rounded[unknowns.reference[i]] -= k;
  }
  fits = fits && std::all_of(rounded, rounded + kMaxRansTaps,
                             [](int32_t k) { return k >= -128 && k <= 127; });
  for (uint32_t i = 0; i < kMaxRansTaps; ++i) {
    const int32_t north_alone = i == RansUnknowns::kNorth ? 64 : 0;
    coefficients[i] = static_cast<int8_t>(fits ? rounded[i] : north_alone);
  }
}

// Bits to drop so that typical differences stay below kMaxRansDifference.
uint32_t DifferenceShift(const RansSamples& samples, uint32_t position) {
  if (samples.used_bits() <= 8) return 0;
  uint64_t sum = 0;
  for (uint32_t number = 0; number < samples.wave_count(); ++number) {
    const RansSamples::Wave wave = samples.GetWave(number);
    const RansRun run = samples.GetRun(position, wave);
    const uint16_t* west = run.tap(3);
    for (uint32_t i = 0; i < wave.count; ++i) {
      sum += static_cast<uint64_t>(std::abs(run.value[i] - west[i]));
    }
  }
  const uint64_t mean = sum / (uint64_t{samples.width_px()} * samples.height_px());
  const uint32_t bits = BitLength(static_cast<uint32_t>(6 * mean));
  return bits > 8 ? bits - 8 : 0;
}

}  // namespace

void SolveRansProducts(const RansProducts<double>& products, uint32_t n, double ridge_part,
                       double least_ridge, double* solution) {
  double ridge = 0;
  for (uint32_t i = 0; i < n; ++i) ridge += products.sum[i][i];
  ridge = ridge * ridge_part / n + least_ridge;
  double lower[kMaxRansColumns][kMaxRansColumns];
  for (uint32_t i = 0; i <= n; ++i) {
    for (uint32_t j = 0; j <= std::min(i, n - 1); ++j) {
      double sum = products.sum[i][j] + (i == j ? ridge : 0.0);
      for (uint32_t k = 0; k < j; ++k) sum -= lower[i][k] * lower[j][k];
      lower[i][j] = i == j ? std::sqrt(std::max(sum, 1e-3)) : sum / lower[j][j];
    }
  }
  for (uint32_t i = n; i-- > 0;) {
    double sum = lower[n][i];
    for (uint32_t k = i + 1; k < n; ++k) sum -= lower[k][i] * solution[k];
    solution[i] = sum / lower[i][i];
  }
}

void RansFitter::Add(const RansSamples& samples, uint32_t sets, bool blind) {
  const RansKernels& kernels = GetRansKernels();
  const uint32_t wave_step = settings_.effort >= 6 && !blind ? 1 : settings_.effort >= 4 ? 2 : 4;
  for (uint32_t p = 0; p < samples.channels(); ++p) {
    const RansColumns columns = ColumnsOf(samples, p, sets);
    int64_t mean = 0;  // of the deviations in the last waves
    for (uint32_t number = 0; number < samples.wave_count(); number += wave_step) {
      const RansSamples::Wave wave = samples.GetWave(number);
      if (wave.count == 0) continue;
      const RansRun run = samples.GetRun(p, wave);
      const uint8_t* level = samples.levels(p, wave);
      int32_t deviation[kMaxRansRun];
      const int64_t sum =
          blind ? kernels.deviate_by_pixels(run, deviation)
                : kernels.deviate_by_model(samples.folded(p, wave), level, wave.count, deviation);
      const int64_t mean_of_wave = sum / wave.count;
      mean = mean == 0 ? mean_of_wave : (15 * mean + mean_of_wave) / 16;
      // One part of the weight: it enters both factors of each product.
      int16_t weight[kMaxRansRun];
      kernels.find_weights(deviation, wave.count, 32.0f * static_cast<float>(mean), weight);
      for (uint32_t set = 0; set < sets; ++set) {
        if (blocks_[set].filled + wave.count > kRansProductBlock) Flush(p, set, columns.count);
      }
      kernels.weigh(columns, run.value, level, weight, wave.count, blocks_);
    }
    for (uint32_t set = 0; set < sets; ++set) Flush(p, set, columns.count);
  }
}

RansColumns RansFitter::ColumnsOf(const RansSamples& samples, uint32_t position,
                                  uint32_t sets) const {
  const RansRun run = samples.GetRun(position, samples.GetWave(0));
  const RansUnknowns unknowns(run.role);
  RansColumns columns{};
  columns.count = unknowns.count + 1;
  columns.wide = run.used_bits > 8;
  columns.shift = DifferenceShift(samples, position);
  for (uint32_t c = 0; c < unknowns.count; ++c) {
    columns.tap[c] = run.offset[unknowns.tap[c]];
    columns.reference[c] = run.offset[unknowns.reference[c]];
  }
  columns.reference[unknowns.count] = run.offset[RansUnknowns::kNorth];
  columns.sets = sets;
  std::copy_n(settings_.set_begin[position], kMaxRansSets - 1, columns.set_begin);
  return columns;
}

void RansFitter::Flush(uint32_t position, uint32_t set, uint32_t columns) {
  GetRansKernels().add_products(&blocks_[set], columns, products_[position][set].sum);
}

void RansFitter::Merge(const RansFitter& other) {
  for (uint32_t p = 0; p < kMaxChannels; ++p) {
    for (uint32_t set = 0; set < kMaxRansSets; ++set) {
      for (uint32_t i = 0; i < kMaxRansColumns; ++i) {
        for (uint32_t j = 0; j < kMaxRansColumns; ++j) {
          products_[p][set].sum[i][j] += other.products_[p][set].sum[i][j];
        }
      }
    }
  }
}

RansParameters RansFitter::Solve(uint32_t channels, uint32_t sets) const {
  RansParameters parameters{};
  for (uint32_t p = 0; p < channels; ++p) {
    parameters.sets[p] = static_cast<uint8_t>(sets);
    const RansUnknowns unknowns(GetRansRole(channels, p));
    for (uint32_t set = 0; set < sets; ++set) {
      // Sets of few samples lean on the others.
      RansProducts<double> products;
      for (uint32_t i = 0; i <= unknowns.count; ++i) {
        for (uint32_t j = 0; j <= i; ++j) {
          int64_t all = 0;
          for (uint32_t other = 0; other < sets; ++other) all += products_[p][other].sum[i][j];
          products.sum[i][j] = static_cast<double>(products_[p][set].sum[i][j] + all / 64);
        }
      }
      double solution[kMaxRansTaps];
      SolveRansProducts(products, unknowns.count, 1e-4, 1.0, solution);
      RoundCoefficients(unknowns, solution, parameters.coefficients[p][set]);
    }
  }
  return parameters;
}

}  // namespace l3
