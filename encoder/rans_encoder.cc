#include "encoder/rans_encoder.h"

#include <algorithm>
#include <cstring>

#include "encoder/fixed_log.h"
#include "encoder/rans_fit.h"

namespace l3 {
namespace {

// About what each channel costs with tables of its own.
struct ChannelCosts {
  uint64_t at[kMaxChannels];
};

ChannelCosts EstimateCosts(const RansSamples& samples, const RansPlan& plan) {
  ChannelCosts costs{};
  for (uint32_t p = 0; p < samples.channels; ++p) {
    uint32_t counts[kRansLevels / 4][kRansTokens] = {};  // four levels share a table
    uint64_t bits = 8 * plan.sets[p] * RansTapCount(GetRansRole(samples.channels, p));
    for (uint32_t y = 0; y < samples.height_px; ++y) {
      const uint16_t* folded = samples.folded[p] + y * kMaxPackedTileSide;
      const uint8_t* level = samples.level[p] + y * kMaxPackedTileSide;
      for (uint32_t x = 0; x < samples.width_px; ++x) {
        const uint32_t token = RansTokenOf(folded[x]);
        ++counts[level[x] / 4][token];
        bits += GetRansToken(token).raw_bits;
      }
    }
    costs.at[p] = bits << kCostBits;
    for (const auto& table : counts) costs.at[p] += EntropyCost(table, kRansTokens);
  }
  return costs;
}

// The states of a tile, encoding from the last symbol to the first. Words are
// written downwards from the end of a buffer.
class StateWriter {
 public:
  explicit StateWriter(uint8_t* end) : pos_(end) {
    std::fill_n(state_, kRansLanes, kRansStateBegin);
  }

  // Writes a word if a lane's state is not below `limit`, so that it gets there.
  void Drain(uint32_t lane, uint64_t limit) {
    const uint32_t x = state_[lane];
    const uint32_t full = x >= limit ? 1 : 0;
    StoreU16(pos_ - 2, x);  // without a branch: it would be guessed badly
    pos_ -= 2 * full;
    state_[lane] = x >> (16 * full);
  }
  void PutRaw(uint32_t lane, uint32_t raw, uint32_t bits) {
    state_[lane] = state_[lane] << bits | raw;
  }
  void PutToken(uint32_t lane, const RansSymbols::Symbol& symbol) {
    const uint32_t x = state_[lane];
    const uint32_t quotient = static_cast<uint32_t>(x * symbol.reciprocal >> 42);
    state_[lane] = (quotient << kRansScaleBits) + (x - quotient * symbol.frequency) + symbol.start;
  }

  const uint8_t* pos() const { return pos_; }
  uint32_t state(uint32_t lane) const { return state_[lane]; }

 private:
  uint8_t* pos_;
  uint32_t state_[kRansLanes];
};

}  // namespace

RansSymbols::RansSymbols(const RansModel& model_in) : model(model_in) {
  for (uint32_t t = 0; t < model.table_count; ++t) {
    uint32_t start = 0;
    for (uint32_t token = 0; token < kRansTokens; ++token) {
      const uint32_t frequency = model.frequency[t][token];
      const uint64_t reciprocal =
          frequency == 0 ? 0 : CeilDiv(uint64_t{1} << 42, frequency);
      at[t][token] = {reciprocal, static_cast<uint16_t>(frequency), static_cast<uint16_t>(start)};
      start += frequency;
    }
  }
}

RansPlan PlanRansTile(const RansSettings& settings, const RansPlan& start, RansSamples* samples) {
  const RansPlan gradient{};
  const uint32_t exact = CountExactGradients(*samples);
  const uint32_t all = samples->channels * samples->width_px * samples->height_px;
  // Drawings follow the gradient nearly everywhere, photographs hardly ever.
  if (exact >= all / 16 * 15) {
    ModelRansSamples(settings, gradient, samples);
    return gradient;
  }
  RansPlan plan = start;
  if (settings.effort >= 4) {
    RansFitter fitter(settings);
    fitter.AddBlind(*samples);
    plan = fitter.Solve(samples->channels, 1);
  }
  ModelRansSamples(settings, plan, samples);
  const uint32_t sets = samples->width_px * samples->height_px >= 4096 ? kMaxRansSets : 1;
  const uint32_t rounds = settings.effort >= 7 ? 3 : settings.effort >= 6 ? 2 : 1;
  for (uint32_t round = 0; round < rounds; ++round) {
    RansFitter fitter(settings);
    fitter.AddModelled(*samples, sets);
    plan = fitter.Solve(samples->channels, sets);
    ModelRansSamples(settings, plan, samples);
  }
  if (exact < all / 6) return plan;
  const ChannelCosts fitted_costs = EstimateCosts(*samples, plan);
  ModelRansSamples(settings, gradient, samples);
  const ChannelCosts gradient_costs = EstimateCosts(*samples, gradient);
  for (uint32_t p = 0; p < samples->channels; ++p) {
    if (gradient_costs.at[p] < fitted_costs.at[p]) plan.sets[p] = 0;
  }
  ModelRansSamples(settings, plan, samples);
  return plan;
}

RansPlan PickRansPlan(const RansPlan& start, const RansSamples& samples) {
  const uint32_t all = samples.channels * samples.width_px * samples.height_px;
  return CountExactGradients(samples) > all / 2 ? RansPlan{} : start;
}

void RansTile::Take(const RansPlan& plan_in, const RansSamples& samples) {
  plan = plan_in;
  width_px = samples.width_px;
  height_px = samples.height_px;
  channels = samples.channels;
  used_bits = samples.used_bits;
  std::copy_n(samples.base, kMaxChannels, base);
  const size_t places = size_t{width_px} * height_px;
  symbols.resize(places * channels);
  for (uint32_t y = 0; y < height_px; ++y) {
    for (uint32_t p = 0; p < channels; ++p) {
      const uint16_t* folded = samples.folded[p] + y * kMaxPackedTileSide;
      const uint8_t* level = samples.level[p] + y * kMaxPackedTileSide;
      uint32_t* row = symbols.data() + places * p + size_t{width_px} * y;
      for (uint32_t x = 0; x < width_px; ++x) row[x] = level[x] | uint32_t{folded[x]} << 8;
    }
  }
}

void AppendRansPayload(const RansTile& tile, const RansSymbols& symbols,
                       std::vector<uint8_t>* out) {
  const uint32_t channels = tile.channels;
  const uint32_t width = tile.width_px;
  const uint32_t height = tile.height_px;
  const bool long_raw = tile.used_bits > 8;

  const uint32_t places = width * height;
  // Room for the word that Drain() may write in vain.
  std::vector<uint8_t> words(size_t{places} * channels * (long_raw ? 4 : 2) + 2);
  StateWriter writer(words.data() + words.size());
  const RansSchedule schedule = GetRansSchedule(width, height);
  const uint32_t lanes = std::min(height, schedule.lanes);
  for (uint32_t step = schedule.steps; step-- > 0;) {
    uint32_t lane_of[kRansLanes];
    uint32_t place_of[kRansLanes];
    uint32_t active = 0;
    for (uint32_t lane = lanes; lane-- > 0;) {
      if (step < 2 * lane) continue;
      const uint32_t x = (step - 2 * lane) % schedule.period;
      const uint32_t y = (step - 2 * lane) / schedule.period * schedule.lanes + lane;
      if (x >= width || y >= height) continue;
      lane_of[active] = lane;
      place_of[active] = y * width + x;
      ++active;
    }
    for (uint32_t p = channels; p-- > 0;) {
      const uint32_t* symbol_at = tile.symbols.data() + size_t{places} * p;
      if (long_raw) {
        for (uint32_t i = 0; i < active; ++i) {
          const uint32_t folded = symbol_at[place_of[i]] >> 8;
          const RansToken token = GetRansToken(RansTokenOf(folded));
          writer.Drain(lane_of[i], uint64_t{1} << (32 - token.raw_bits));
          writer.PutRaw(lane_of[i], folded - token.base, token.raw_bits);
        }
      }
      for (uint32_t i = 0; i < active; ++i) {
        const uint32_t folded = symbol_at[place_of[i]] >> 8;
        const uint32_t level = symbol_at[place_of[i]] & 0xFF;
        const uint32_t token = RansTokenOf(folded);
        const RansSymbols::Symbol& symbol =
            symbols.at[symbols.model.table_of_level[p][level]][token];
        const RansToken raw = GetRansToken(token);
        const uint32_t raw_bits = long_raw ? 0 : raw.raw_bits;
        writer.Drain(lane_of[i], uint64_t{symbol.frequency} << (32 - kRansScaleBits - raw_bits));
        if (!long_raw) writer.PutRaw(lane_of[i], folded - raw.base, raw_bits);
        writer.PutToken(lane_of[i], symbol);
      }
    }
  }

  const size_t word_bytes = static_cast<size_t>(words.data() + words.size() - writer.pos());
  const uint8_t header[kTileHeaderBytes] = {0, 0, 0, 0, static_cast<uint8_t>(TileCoding::kRans)};
  out->insert(out->end(), header, header + kTileHeaderBytes);
  out->insert(out->end(), tile.plan.sets, tile.plan.sets + kMaxChannels);
  for (const uint16_t base : tile.base) {
    out->push_back(static_cast<uint8_t>(base));
    out->push_back(static_cast<uint8_t>(base >> 8));
  }
  for (uint32_t p = 0; p < channels; ++p) {
    for (uint32_t set = 0; set < tile.plan.sets[p]; ++set) {
      const int8_t* coefficients = tile.plan.coefficients[p][set];
      out->insert(out->end(), coefficients,
                  coefficients + RansTapCount(GetRansRole(channels, p)));
    }
  }
  const size_t states = out->size();
  out->resize(states + 4 * lanes);
  for (uint32_t lane = 0; lane < lanes; ++lane) {
    StoreU32(out->data() + states + 4 * lane, writer.state(lane));
  }
  out->insert(out->end(), writer.pos(), writer.pos() + word_bytes);
}

}  // namespace l3
