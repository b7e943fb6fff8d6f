#include "encoder/rans_samples.h"

#include <algorithm>
#include <utility>

namespace l3 {
namespace {

// Energies of a wave, by row; place -1 is for the row above the first.
struct EnergyWave {
  uint16_t places[1 + kMaxRansRun + kRansRunBlock] = {};

  uint16_t* at(uint32_t row) { return places + 1 + row; }
};

}  // namespace

uint16_t* RansSamples::Place(uint32_t position, int32_t x, int32_t y) {
  const int32_t wave = x + 2 * y + static_cast<int32_t>(kWaveMargin);
  return value_.data() + position * places_ + static_cast<size_t>(wave) * stride_ + kRowMargin + y;
}

void RansSamples::Load(const TilePlanes& tile) {
  width_ = tile.width_px;
  height_ = tile.height_px;
  channels_ = tile.channels;
  used_bits_ = tile.used_bits;
  stride_ = kRowMargin + height_ + kRansRunBlock;
  places_ = size_t{kWaveMargin + wave_count() + 2} * stride_;
  const size_t all_places = channels_ * places_;
  value_.resize(std::max(all_places, value_.size()));
  folded_.resize(std::max(2 * all_places, folded_.size()));
  level_.resize(std::max(2 * all_places, level_.size()));
  const int32_t w = static_cast<int32_t>(width_);
  std::fill_n(base_, kMaxChannels, uint16_t{0});
  for (uint32_t p = 0; p < channels_; ++p) {
    const uint16_t* plane = tile.plane[RansChannel(channels_, p)];
    base_[p] = plane[0];
    LoadRows(plane, p);
    for (int32_t y = 0; y < static_cast<int32_t>(height_); ++y) {
      const uint16_t* row = plane + static_cast<uint32_t>(y) * kMaxPackedTileSide;
      *Place(p, w, y) = row[w - 1];
      const uint16_t left = y == 0 ? base_[p] : row[-static_cast<int32_t>(kMaxPackedTileSide)];
      *Place(p, -1, y) = *Place(p, -2, y) = left;
    }
    // Each row above the first equals the row below it, two places further right.
    for (int32_t y = -1; y >= -2; --y) {
      for (int32_t x = -2; x < w; ++x) *Place(p, x, y) = x < 2 ? base_[p] : *Place(p, x - 2, y + 1);
      *Place(p, w, y) = *Place(p, w - 1, y);
    }
  }
  FindTaps();
}

void RansSamples::LoadRows(const uint16_t* plane, uint32_t position) {
  const uint32_t whole = height_ / kRansTurnedRows * kRansTurnedRows;
  // Waves that whole columns of eight rows lie in.
  const uint32_t first = 2 * (kRansTurnedRows - 1);
  const uint32_t turned = width_ > first ? (width_ - first) / kRansTurnedRows * kRansTurnedRows : 0;
  const auto copy = [&](uint32_t y, uint32_t begin, uint32_t end) {
    const uint16_t* row = plane + y * kMaxPackedTileSide;
    uint16_t* out = Place(position, static_cast<int32_t>(begin), static_cast<int32_t>(y));
    for (uint32_t x = begin; x < end; ++x, out += stride_) *out = row[x];
  };
  for (uint32_t y = 0; y < whole; y += kRansTurnedRows) {
    for (uint32_t k = 0; k < kRansTurnedRows; ++k) {
      const uint32_t begin = first - 2 * k;  // in this row, the column of the first whole wave
      copy(y + k, 0, std::min(begin, width_));
      copy(y + k, begin + turned, width_);
    }
    const uint16_t* from = plane + y * kMaxPackedTileSide + first;
    uint16_t* to = Place(position, static_cast<int32_t>(first), static_cast<int32_t>(y));
    for (uint32_t x = 0; x < turned; x += kRansTurnedRows) {
      GetRansKernels().turn(from + x, to + size_t{x} * stride_, stride_);
    }
  }
  for (uint32_t y = whole; y < height_; ++y) copy(y, 0, width_);
}

void RansSamples::FindTaps() {
  // NE N NW W NN WW NNE NWW, as steps in waves and rows.
  constexpr int32_t kWaves[8] = {-1, -2, -3, -1, -4, -2, -3, -4};
  constexpr int32_t kRows[8] = {-1, -1, -1, 0, -2, 0, -2, -1};
  for (uint32_t p = 0; p < channels_; ++p) {
    const RansRole role = GetRansRole(channels_, p);
    ptrdiff_t* offset = tap_offset_[p];
    // The sample of another channel at the same place.
    const auto same = [&](uint32_t other) {
      return (static_cast<ptrdiff_t>(other) - static_cast<ptrdiff_t>(p)) *
             static_cast<ptrdiff_t>(places_);
    };
    const auto around = [&](uint32_t other, uint32_t i) {
      return same(other) + kWaves[i] * static_cast<ptrdiff_t>(stride_) + kRows[i];
    };
    for (uint32_t i = 0; i < 8; ++i) offset[i] = around(p, i);
    if (role == RansRole::kSecond) offset[7] = same(0);
    if (role == RansRole::kThird) {
      offset[6] = same(0);
      offset[7] = same(1);
    }
    for (uint32_t i = 8; i < RansTapCount(role); ++i) offset[i] = around(i / 4 - 2, i % 4);
  }
}

RansRun RansSamples::GetRun(uint32_t position, Wave wave) const {
  return {wave.count, GetRansRole(channels_, position), used_bits_, values(position, wave),
          tap_offset_[position]};
}

void RansSamples::Model(const RansSettings& settings, const RansParameters& parameters) {
  const RansKernels& kernels = GetRansKernels();
  EnergyWave energies[kMaxChannels][2];
  int32_t coefficients[kMaxChannels][kMaxRansSets][kMaxRansTaps];
  int32_t pairs[kMaxChannels][kMaxRansSets][kMaxRansTaps / 2];
  for (uint32_t p = 0; p < channels_; ++p) {
    for (uint32_t set = 0; set < parameters.sets[p]; ++set) {
      const int8_t* coefficient = parameters.coefficients[p][set];
      std::copy_n(coefficient, kMaxRansTaps, coefficients[p][set]);
      for (uint32_t i = 0; i < kMaxRansTaps; i += 2) {
        pairs[p][set][i / 2] = (coefficient[i] & 0xFFFF) | coefficient[i + 1] * 65536;
      }
    }
  }
  for (uint32_t number = 0; number < wave_count(); ++number) {
    const Wave wave = GetWave(number);
    uint16_t magnitude[kMaxChannels][kMaxRansRun];
    for (uint32_t p = 0; p < channels_; ++p) {
      EnergyWave& now = energies[p][number % 2];
      EnergyWave& before = energies[p][(number + 1) % 2];
      if (wave.count > 0) {
        const RansRunModel model = {parameters.sets[p],
                                    coefficients[p],
                                    pairs[p],
                                    settings.set_begin[p],
                                    settings.gradient_weight,
                                    before.at(wave.first_row),
                                    before.at(wave.first_row) - 1,
                                    {magnitude[0], magnitude[1]}};
        kernels.model(
            GetRun(p, wave), model,
            {folded_.data() + ResultsOf(p) + At(wave), level_.data() + ResultsOf(p) + At(wave),
             magnitude[p], now.at(wave.first_row)});
      }
      // What the next wave finds outside the tile: east of a row that has ended, ...
      if (number >= width_ && (number - width_) % 2 == 0) {
        const uint32_t row = (number - width_) / 2;
        if (row < height_) *now.at(row) = *before.at(row);
      }
      // ... west of a row that begins, ...
      const uint32_t next_row = number / 2 + 1;
      if (number % 2 == 1 && next_row < height_) *now.at(next_row) = *before.at(next_row - 1);
      // ... and above the first row.
      if (number + 2 < width_) {
        *(now.at(0) - 1) = *now.at(0);
      } else if (number + 2 == width_) {
        *(now.at(0) - 1) = number == 0 ? uint16_t{0} : *before.at(0);
      }
    }
  }
}

uint32_t RansSamples::CountExactGradients() const {
  constexpr uint32_t kWaveStep = 15;
  uint32_t exact = 0;
  for (uint32_t number = 0; number < wave_count(); number += kWaveStep) {
    const Wave wave = GetWave(number);
    if (wave.count == 0) continue;
    for (uint32_t p = 0; p < channels_; ++p) {
      exact += kWaveStep * GetRansKernels().count_exact(GetRun(p, wave));
    }
  }
  return exact;
}

}  // namespace l3
