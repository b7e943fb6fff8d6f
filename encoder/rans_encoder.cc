#include "encoder/rans_encoder.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "encoder/fixed_log.h"
#include "encoder/rans_fit.h"

namespace l3 {
namespace {

// Up to this many lanes are coded one by one: a kernel takes as long for one lane as for all 32.
constexpr uint32_t kMaxFewLanes = 4;
// A channel has no coefficients only where it then costs less than this share: GPU kernels decode
// two steps of a tile in 361 instructions if all channels have some, else in 446.
constexpr uint64_t kGradientPercent = 98;

// About what a channel costs with tables of its own.
uint64_t ChannelCost(const RansCounts& counts, uint32_t channels, uint32_t position,
                     uint32_t sets) {
  constexpr uint32_t kLevelsPerTable = 4;
  uint64_t bits = 8 * sets * RansTapCount(GetRansRole(channels, position));
  uint64_t cost = 0;
  for (uint32_t first = 0; first < kRansLevels; first += kLevelsPerTable) {
    uint32_t table[kRansTokens] = {};
    for (uint32_t level = first; level < first + kLevelsPerTable; ++level) {
      for (uint32_t t = 0; t < kRansTokens; ++t) {
        table[t] += counts.at[position][level][t];
        bits += uint64_t{counts.at[position][level][t]} * GetRansToken(t).raw_bits;
      }
    }
    cost += EntropyCost(table, kRansTokens);
  }
  return cost + (bits << kCostBits);
}

// What a modelled channel costs by a model, in 1 / 2^kRansTokenCostBits bit.
uint64_t CostOfChannel(const RansCosts& costs, const RansSamples& samples, uint32_t position) {
  const uint32_t* cost_of = costs.token[position].at;
  uint64_t cost = 0;
  for (uint32_t number = 0; number < samples.wave_count(); ++number) {
    const RansSamples::Wave wave = samples.GetWave(number);
    uint16_t kind[kMaxRansRun];
    GetRansKernels().find_kinds(samples.folded(position, wave), samples.levels(position, wave),
                                wave.count, kind);
    for (uint32_t i = 0; i < wave.count; ++i) cost += cost_of[kind[i]];
  }
  return cost;
}

}  // namespace

RansParameters FindRansParameters(const RansSettings& settings, RansSamples* samples,
                                  RansCounts* counts) {
  const uint32_t channels = samples->channels();
  const auto model = [&](const RansParameters& parameters) {
    samples->Model(settings, parameters);
    *counts = RansCounts{};
    CountRansTokens(*samples, counts);
  };
  // Drawings follow the gradient nearly everywhere, photographs hardly ever.
  const RansParameters gradient{};
  const uint32_t exact = samples->CountExactGradients();
  const uint32_t pixels = samples->width_px() * samples->height_px();
  const uint32_t all = channels * pixels;
  if (exact >= all / 16 * 15) {
    model(gradient);
    return gradient;
  }
  RansFitter blind(settings);
  blind.AddBlind(*samples);
  RansParameters parameters = blind.Solve(channels, 1);
  const uint32_t sets = pixels >= 4096 ? kMaxRansSets : 1;
  const uint32_t rounds = settings.effort == 6 ? 2 : 1;
  for (uint32_t round = 0; round < rounds; ++round) {
    samples->Model(settings, parameters);
    RansFitter fitter(settings);
    fitter.AddModelled(*samples, sets);
    parameters = fitter.Solve(channels, sets);
  }
  model(parameters);
  if (exact < all / 6) return parameters;

  const RansCounts fitted = *counts;
  for (uint32_t p = 0; p < channels; ++p) samples->SwapResults(p);
  model(gradient);
  bool modelled = true;
  for (uint32_t p = 0; p < channels; ++p) {
    const uint64_t fitted_cost = ChannelCost(fitted, channels, p, parameters.sets[p]);
    const uint64_t gradient_cost = ChannelCost(*counts, channels, p, 0);
    if (gradient_cost * 100 < fitted_cost * kGradientPercent) parameters.sets[p] = 0;
    // Levels come from the residuals of the channels before, too.
    const bool alone = GetRansRole(channels, p) == RansRole::kFirst;
    modelled = modelled && (alone || (parameters.sets[p] == 0) == (parameters.sets[p - 1] == 0));
  }
  if (!modelled) {
    model(parameters);
    return parameters;
  }
  for (uint32_t p = 0; p < channels; ++p) {
    if (parameters.sets[p] == 0) continue;
    samples->SwapResults(p);
    std::memcpy(counts->at[p], fitted.at[p], sizeof(fitted.at[p]));
  }
  return parameters;
}

RansParameters FindTinyRansParameters(const RansSettings& settings, const RansCosts& costs,
                                      RansSamples* samples) {
  const uint32_t channels = samples->channels();
  const RansParameters gradient{};
  const uint32_t all = channels * samples->width_px() * samples->height_px();
  samples->Model(settings, gradient);
  if (samples->CountExactGradients() >= all / 16 * 15) return gradient;
  const auto coefficients_cost = [&](uint32_t p) {
    return uint64_t{8} * RansTapCount(GetRansRole(channels, p)) << kRansTokenCostBits;
  };
  uint64_t gradient_cost[kMaxChannels];
  bool is_cheap = true;  // as it is
  for (uint32_t p = 0; p < channels; ++p) {
    gradient_cost[p] = CostOfChannel(costs, *samples, p);
    is_cheap = is_cheap && gradient_cost[p] < coefficients_cost(p);
  }
  if (is_cheap) return gradient;
  RansFitter fitter(settings);
  fitter.AddModelled(*samples, 1);
  RansParameters parameters = fitter.Solve(channels, 1);
  for (uint32_t p = 0; p < channels; ++p) samples->SwapResults(p);
  samples->Model(settings, parameters);
  bool modelled = true;
  for (uint32_t p = 0; p < channels; ++p) {
    const uint64_t fitted_cost = CostOfChannel(costs, *samples, p) + coefficients_cost(p);
    if (gradient_cost[p] < fitted_cost) parameters.sets[p] = 0;
    // Levels come from the residuals of the channels before, too.
    const bool alone = GetRansRole(channels, p) == RansRole::kFirst;
    modelled = modelled && (alone || parameters.sets[p] == parameters.sets[p - 1]);
  }
  for (uint32_t p = 0; p < channels && modelled; ++p) {
    if (parameters.sets[p] == 0) samples->SwapResults(p);
  }
  if (!modelled) samples->Model(settings, parameters);
  return parameters;
}

RansParameters PickRansParameters(const RansParameters& start, const RansSamples& samples) {
  const uint32_t all = samples.channels() * samples.width_px() * samples.height_px();
  return samples.CountExactGradients() > all / 2 ? RansParameters{} : start;
}

RansTile::RansTile(const RansParameters& parameters_in, const RansSamples& samples)
    : parameters(parameters_in),
      width_px(samples.width_px()),
      height_px(samples.height_px()),
      used_bits(samples.used_bits()) {
  channels = samples.channels();
  for (uint32_t p = 0; p < kMaxChannels; ++p) base[p] = samples.base(p);
  const RansSchedule schedule = GetRansSchedule(width_px, height_px);
  lanes = std::min(schedule.lanes, height_px);
  const size_t places = size_t{schedule.steps} * channels * lanes;
  folded.resize(places);
  level.resize(places, static_cast<uint8_t>(kIdleLevel));
  // A band is the rows that the lanes decode together; in it, wave and step run
  // side by side.
  for (uint32_t band = 0; band * schedule.lanes < height_px; ++band) {
    const uint32_t first_row = band * schedule.lanes;
    const uint32_t rows = std::min(schedule.lanes, height_px - first_row);
    const uint32_t steps = 2 * (rows - 1) + width_px;
    for (uint32_t step = 0; step < steps; ++step) {
      RansSamples::Wave wave = samples.GetWave(2 * first_row + step);
      const uint32_t end_row = std::min(wave.first_row + wave.count, first_row + rows);
      wave.first_row = std::max(wave.first_row, first_row);
      if (wave.first_row >= end_row) continue;
      const uint32_t lane = wave.first_row - first_row;
      const size_t begin = (size_t{band} * schedule.period + step) * channels * lanes + lane;
      for (uint32_t p = 0; p < channels; ++p) {
        std::copy_n(samples.folded(p, wave), end_row - wave.first_row,
                    folded.data() + begin + p * lanes);
        std::copy_n(samples.levels(p, wave), end_row - wave.first_row,
                    level.data() + begin + p * lanes);
      }
    }
  }
}

uint64_t RansTile::MemoryBytes(uint32_t width_px, uint32_t height_px, uint32_t channels) {
  const RansSchedule schedule = GetRansSchedule(width_px, height_px);
  const uint64_t places = uint64_t{schedule.steps} * channels * std::min(schedule.lanes, height_px);
  constexpr uint64_t kBlockBytes = 32;  // of the allocator, for each vector
  return sizeof(RansTile) + 2 * kBlockBytes + places * (sizeof(uint16_t) + sizeof(uint8_t));
}

namespace {

// RansKernels::encode for `lanes` lanes, one after the other: for tiles that have few.
uint8_t* EncodeFewLanes(const uint32_t* entry, const uint16_t* folded, const uint8_t* level,
                        uint32_t lanes, bool long_raw, uint32_t* state, uint8_t* pos) {
  uint32_t symbol[kMaxFewLanes];
  uint32_t raw_bits[kMaxFewLanes];
  const auto drop = [&](uint32_t lane) {
    pos -= 2;
    StoreU16(pos, state[lane]);
    state[lane] >>= 16;
  };
  const auto push_raw = [&](uint32_t lane) {
    state[lane] = state[lane] << raw_bits[lane] | (folded[lane] & ((1u << raw_bits[lane]) - 1));
    raw_bits[lane] = 0;
  };
  for (uint32_t lane = lanes; lane-- > 0;) {
    const uint32_t token = RansTokenOf(folded[lane]);
    symbol[lane] = entry[level[lane] * kRansTokens + token];
    raw_bits[lane] = GetRansToken(token).raw_bits;
    if (long_raw && uint64_t{state[lane]} << raw_bits[lane] >> 32 != 0) drop(lane);
  }
  for (uint32_t lane = lanes; lane-- > 0 && long_raw;) push_raw(lane);
  for (uint32_t lane = lanes; lane-- > 0;) {
    const uint32_t frequency = symbol[lane] & 0xFFFF;
    if (state[lane] >> (32 - kRansScaleBits - raw_bits[lane]) >= frequency) drop(lane);
  }
  for (uint32_t lane = lanes; lane-- > 0;) {
    if (!long_raw) push_raw(lane);
    const uint32_t frequency = symbol[lane] & 0xFFFF;
    state[lane] = (state[lane] / frequency << kRansScaleBits) + state[lane] % frequency +
                  (symbol[lane] >> 16);
  }
  return pos;
}

// RansKernels::encode where there are fewer lanes than a kernel works on.
uint8_t* EncodeSomeLanes(const RansTokens& tile, const RansSymbols& symbols, bool long_raw,
                         uint32_t* state, uint8_t* end) {
  const RansKernels& kernels = GetRansKernels();
  uint16_t folded[kRansLanes] = {};
  uint8_t level[kRansLanes];
  std::fill_n(level, kRansLanes, static_cast<uint8_t>(kIdleLevel));
  uint32_t position = tile.channels;
  for (size_t place = tile.folded.size(); place > 0;) {
    place -= tile.lanes;
    position = (position == 0 ? tile.channels : position) - 1;
    const RansChannelSymbols& of_channel = symbols.channel[position];
    std::copy_n(tile.folded.data() + place, tile.lanes, folded);
    std::copy_n(tile.level.data() + place, tile.lanes, level);
    end = tile.lanes <= kMaxFewLanes
              ? EncodeFewLanes(of_channel.entry, folded, level, tile.lanes, long_raw, state, end)
              : kernels.encode(&of_channel, 1, folded, level, kRansLanes, long_raw, state, end);
  }
  return end;
}

}  // namespace

void AppendRansTokens(const RansTokens& tokens, const RansSymbols& symbols, bool long_raw,
                      std::vector<uint8_t>* out) {
  const RansKernels& kernels = GetRansKernels();
  // Room for every lane's words, and for what is written in vain.
  const size_t word_bytes = tokens.folded.size() * (long_raw ? 4 : 2) + kRansWordMargin;
  const std::unique_ptr<uint8_t[]> words(new uint8_t[word_bytes]);
  uint8_t* const words_end = words.get() + word_bytes;
  uint8_t* begin = words_end;
  alignas(64) uint32_t state[kRansLanes];
  std::fill_n(state, kRansLanes, kRansStateBegin);
  if (tokens.lanes == kRansLanes) {
    begin = kernels.encode(symbols.channel, tokens.channels, tokens.folded.data(),
                           tokens.level.data(), tokens.folded.size(), long_raw, state, begin);
  } else {
    begin = EncodeSomeLanes(tokens, symbols, long_raw, state, begin);
  }
  const size_t states = out->size();
  out->resize(states + 4 * tokens.lanes);
  for (uint32_t lane = 0; lane < tokens.lanes; ++lane) {
    StoreU32(out->data() + states + 4 * lane, state[lane]);
  }
  out->insert(out->end(), begin, words_end);
}

void AppendRansPayload(const RansTile& tile, const RansSymbols& symbols,
                       std::vector<uint8_t>* out) {
  const uint8_t header[kTileHeaderBytes] = {0, 0, 0, 0, static_cast<uint8_t>(TileCoding::kRans)};
  out->insert(out->end(), header, header + kTileHeaderBytes);
  out->insert(out->end(), tile.parameters.sets, tile.parameters.sets + kMaxChannels);
  for (const uint16_t base : tile.base) {
    out->push_back(static_cast<uint8_t>(base));
    out->push_back(static_cast<uint8_t>(base >> 8));
  }
  for (uint32_t p = 0; p < tile.channels; ++p) {
    for (uint32_t set = 0; set < tile.parameters.sets[p]; ++set) {
      const int8_t* coefficients = tile.parameters.coefficients[p][set];
      out->insert(out->end(), coefficients,
                  coefficients + RansTapCount(GetRansRole(tile.channels, p)));
    }
  }
  AppendRansTokens(tile, symbols, tile.used_bits > 8, out);
}

}  // namespace l3
