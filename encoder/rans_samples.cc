#include "encoder/rans_samples.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "encoder/rans_kernels.h"

namespace l3 {
namespace {

constexpr int32_t kAbove = -static_cast<int32_t>(kRansStride);

// Predictions of one row, for each set.
struct PredictedRow {
  uint16_t at[kMaxRansSets][kMaxPackedTileSide];
};

void PredictRow(const RansSamples& samples, const RansPlan& plan, uint32_t position, uint32_t y,
                PredictedRow* predicted) {
  const RansKernels& kernels = GetRansKernels();
  const RansRole role = GetRansRole(samples.channels, position);
  const int32_t max_value = (1 << samples.used_bits) - 1;
  const uint32_t width = samples.width_px;
  const uint32_t at = RansAt(0, y);
  const uint16_t* tap[kMaxRansTaps];
  if (plan.sets[position] == 0) {
    const uint16_t* own = samples.value[position] + at;
    const uint16_t* first = samples.value[0] + at;
    const uint16_t* around[7] = {own - 1,   own + kAbove,       own + kAbove - 1, first - 1,
                                 first + kAbove, first + kAbove - 1, first};
    kernels.predict_gradient(around, role == RansRole::kFirst, width, max_value, predicted->at[0]);
    return;
  }
  RansTap taps[kMaxRansTaps];
  GetRansTaps(role, position, taps);
  for (uint32_t i = 0; i < RansTapCount(role); ++i) {
    tap[i] = samples.value[taps[i].position] + at + taps[i].offset;
  }
  for (uint32_t set = 0; set < plan.sets[position]; ++set) {
    kernels.predict(tap, plan.coefficients[position][set], RansTapCount(role), width, max_value,
                    predicted->at[set]);
  }
}

// Energies of two rows of a channel. Their places -1 and `width` hold what lies
// west of the row and what its last place is north-east of.
class EnergyRows {
 public:
  // Begins row y and returns its place 0.
  uint16_t* Begin(uint32_t y, uint32_t width) {
    std::swap(row_, above_);
    uint16_t* row = row_->at + kMargin;
    above_->at[kMargin + width] = above_->at[kMargin + width - 1];
    row[-1] = y == 0 ? 0 : above_->at[kMargin];
    return row;
  }
  // The place north-east of place 0, once the row above has ended.
  const uint16_t* NorthEast() const { return above_->at + kMargin + 1; }

 private:
  static constexpr uint32_t kMargin = 4;
  struct Row {
    uint16_t at[kMargin + kMaxPackedTileSide + kRansRowBlock] = {};
  };
  Row rows_[2];
  Row* row_ = &rows_[0];
  Row* above_ = &rows_[1];
};

// What lies north-east of the first row's place x: two places back in the row itself.
inline uint32_t NorthEastOfFirst(const uint16_t* row, uint32_t x, uint32_t width) {
  const int32_t back = static_cast<int32_t>(x) - (x + 1 < width ? 1 : 2);
  return back < 0 ? 0 : row[back];
}

// What does not come from the channel's own energies.
inline uint32_t OtherActivity(RansRole role, const uint16_t* v, const uint32_t* magnitude,
                              uint32_t gradient_weight) {
  if (role == RansRole::kSecond) return 4 * magnitude[0];
  if (role == RansRole::kThird) return 4 * magnitude[0] + 8 * magnitude[1];
  RansNeighbors around{};
  around.ne = v[kAbove + 1];
  around.n = v[kAbove];
  around.nw = v[kAbove - 1];
  around.w = v[-1];
  return gradient_weight * RansGradient(around);
}

// Finds levels and residuals where there is one prediction for each sample: only
// energies depend on those before.
void ModelOneSet(const RansSettings& settings, const RansPlan& plan, RansSamples* samples) {
  const RansKernels& kernels = GetRansKernels();
  const uint32_t width = samples->width_px;
  EnergyRows energies[kMaxChannels];
  for (uint32_t y = 0; y < samples->height_px; ++y) {
    uint16_t magnitude[kMaxChannels][kMaxPackedTileSide];
    for (uint32_t p = 0; p < samples->channels; ++p) {
      const RansRole role = GetRansRole(samples->channels, p);
      const uint16_t* value = samples->value[p] + RansAt(0, y);
      PredictedRow predicted;
      PredictRow(*samples, plan, p, y, &predicted);
      kernels.fold(value, predicted.at[0], width, samples->used_bits,
                   samples->folded[p] + y * kMaxPackedTileSide, magnitude[p]);

      uint16_t* energy = energies[p].Begin(y, width);
      const uint16_t* northeast = energies[p].NorthEast();
      uint16_t northeast_of_first[kMaxPackedTileSide] = {};
      uint32_t west = energy[-1];
      for (uint32_t x = 0; x < width; ++x) {
        if (y == 0) {
          northeast_of_first[x] = static_cast<uint16_t>(NorthEastOfFirst(energy, x, width));
          northeast = northeast_of_first;
        }
        west = NextRansEnergy(MixRansEnergy(west, northeast[x]), magnitude[p][x]);
        energy[x] = static_cast<uint16_t>(west);
      }

      uint8_t* level = samples->level[p] + y * kMaxPackedTileSide;
      if (role == RansRole::kFirst) {
        uint16_t gradient[kMaxPackedTileSide];
        kernels.gradients(value, value + kAbove, width, gradient);
        kernels.levels(energy - 1, northeast, gradient, settings.gradient_weight, gradient, 0,
                       width, level);
      } else {
        const bool third = role == RansRole::kThird;
        kernels.levels(energy - 1, northeast, magnitude[0], 4, magnitude[third ? 1 : 0],
                       third ? 8 : 0, width, level);
      }
    }
  }
}

// The same where the level of each sample chooses its prediction.
template <uint32_t kChannels>
void ModelSets(const RansSettings& settings, const RansPlan& plan, RansSamples* samples) {
  const uint32_t width = samples->width_px;
  const uint32_t used_bits = samples->used_bits;
  const uint32_t gradient_weight = settings.gradient_weight;
  uint8_t set_of_level[kChannels][kRansLevels];
  for (uint32_t p = 0; p < kChannels; ++p) {
    for (uint32_t level = 0; level < kRansLevels; ++level) {
      set_of_level[p][level] = static_cast<uint8_t>(RansSetOfLevel(settings, p, plan.sets[p], level));
    }
  }
  PredictedRow predicted[kChannels];
  EnergyRows energies[kChannels];
  // A row's levels, as words: stores of bytes might change anything, for all the
  // compiler knows.
  uint16_t level_row[kChannels][kMaxPackedTileSide];

  for (uint32_t y = 0; y < samples->height_px; ++y) {
    uint32_t west[kChannels];
    const uint16_t* value[kChannels];
    const uint16_t* northeast[kChannels];
    uint16_t* energy[kChannels];
    uint16_t* folded_row[kChannels];
    for (uint32_t p = 0; p < kChannels; ++p) {
      PredictRow(*samples, plan, p, y, &predicted[p]);
      value[p] = samples->value[p] + RansAt(0, y);
      folded_row[p] = samples->folded[p] + y * kMaxPackedTileSide;
      energy[p] = energies[p].Begin(y, width);
      northeast[p] = energies[p].NorthEast();
      west[p] = energy[p][-1];
    }
    for (uint32_t x = 0; x < width; ++x) {
      uint32_t magnitude[kChannels];
      for (uint32_t p = 0; p < kChannels; ++p) {
        const uint32_t mixed = MixRansEnergy(
            west[p], y == 0 ? NorthEastOfFirst(energy[p], x, width) : northeast[p][x]);
        const uint32_t activity = mixed + OtherActivity(GetRansRole(kChannels, p), value[p] + x,
                                                        magnitude, gradient_weight);
        const uint32_t level = RansLevel(activity);
        const uint32_t set = set_of_level[p][level];
        const uint32_t folded = FoldResidual(value[p][x] - predicted[p].at[set][x], used_bits);
        folded_row[p][x] = static_cast<uint16_t>(folded);
        level_row[p][x] = static_cast<uint16_t>(level);
        magnitude[p] = RansMagnitude(folded);
        west[p] = NextRansEnergy(mixed, magnitude[p]);
        energy[p][x] = static_cast<uint16_t>(west[p]);
      }
    }
    for (uint32_t p = 0; p < kChannels; ++p) {
      std::copy_n(level_row[p], width, samples->level[p] + y * kMaxPackedTileSide);
    }
  }
}

}  // namespace

void GetRansTaps(RansRole role, uint32_t position, RansTap* taps) {
  constexpr int32_t kAround[8] = {kAbove + 1, kAbove, kAbove - 1, -1,
                                  2 * kAbove, -2,     2 * kAbove + 1, kAbove - 2};
  for (uint32_t i = 0; i < 8; ++i) taps[i] = {position, kAround[i]};
  if (role == RansRole::kSecond) taps[7] = {0, 0};
  if (role == RansRole::kThird) {
    taps[6] = {0, 0};
    taps[7] = {1, 0};
  }
  for (uint32_t i = 8; i < RansTapCount(role); ++i) taps[i] = {i / 4 - 2, kAround[i % 4]};
}

void LoadRansSamples(const TilePlanes& tile, RansSamples* samples) {
  samples->width_px = tile.width_px;
  samples->height_px = tile.height_px;
  samples->channels = tile.channels;
  samples->used_bits = tile.used_bits;
  const uint32_t w = tile.width_px;
  for (uint32_t p = 0; p < kMaxChannels; ++p) samples->base[p] = 0;
  for (uint32_t p = 0; p < tile.channels; ++p) {
    const uint16_t* plane = tile.plane[RansChannel(tile.channels, p)];
    const uint16_t base = plane[0];
    samples->base[p] = base;
    uint16_t* value = samples->value[p];
    for (uint32_t y = 0; y < tile.height_px; ++y) {
      uint16_t* row = value + RansAt(0, y);
      std::memcpy(row, plane + y * kMaxPackedTileSide, w * sizeof(uint16_t));
      row[w] = row[w - 1];
      row[-1] = row[-2] = y == 0 ? base : row[kAbove];
    }
    // Each row above the first is the one below it, two places further right.
    for (uint32_t above = 1; above <= 2; ++above) {
      uint16_t* row = value + RansAt(0, 0) - above * kRansStride;
      row[-2] = row[-1] = base;
      for (uint32_t x = 0; x < w; ++x) row[x] = x < 2 ? base : row[kRansStride + x - 2];
      row[w] = row[w - 1];
    }
  }
}

void ModelRansSamples(const RansSettings& settings, const RansPlan& plan, RansSamples* samples) {
  const bool one_each = std::all_of(plan.sets, plan.sets + samples->channels,
                                    [](uint32_t sets) { return sets <= 1; });
  if (one_each) return ModelOneSet(settings, plan, samples);
  switch (samples->channels) {
    case 1: return ModelSets<1>(settings, plan, samples);
    case 2: return ModelSets<2>(settings, plan, samples);
    case 3: return ModelSets<3>(settings, plan, samples);
    default: return ModelSets<4>(settings, plan, samples);
  }
}

uint32_t CountExactGradients(const RansSamples& samples) {
  constexpr uint32_t kRowStep = 4;
  const RansPlan gradient{};
  uint32_t exact = 0;
  for (uint32_t p = 0; p < samples.channels; ++p) {
    for (uint32_t y = 0; y < samples.height_px; y += kRowStep) {
      PredictedRow predicted;
      PredictRow(samples, gradient, p, y, &predicted);
      const uint16_t* value = samples.value[p] + RansAt(0, y);
      for (uint32_t x = 0; x < samples.width_px; ++x) exact += value[x] == predicted.at[0][x] ? kRowStep : 0;
    }
  }
  return exact;
}

}  // namespace l3
