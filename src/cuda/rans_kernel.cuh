// The rans coding on a warp, by the rules of core/rans.h. Layer: cuda.
//
//   grid -> tiles, warp -> tile, lane -> every 32nd row, two pixels behind the
//   lane before (fewer lanes in narrow tiles)
//
//   lane 0   . . . . . . x
//   lane 1   . . . . x        what lane 0 decoded a step ago is lane 1's NE
//   lane 2   . . x
//
// What a lane knows of the rows above comes by shuffles from the lane before; the
// rows of the last lane pass through shared memory to lane 0.
#pragma once

#include "core/rans.h"
#include "core/tile.h"
#include "cuda/device_memory.h"
#include "cuda/packed_reader.cuh"
#include "cuda/rans_window.cuh"
#include "cuda/tile_tools.cuh"
#include "cuda/warp.h"
#include "cuda/warp_scratch.cuh"

namespace l3 {

// Fills the tables of the scratch. The lanes share the work.
template <class Warp>
L3_DEVICE void LoadRansTables(Warp& warp, uint32_t tokens, const RansModel& model,
                              const RansScratch& scratch) {
  constexpr uint32_t kSlots = RansScratch::kSlotsPerEntry;
  for (uint32_t t = warp.lane(); t < model.table_count; t += kWarpLanes) {
    RansFirstToken* first_token = scratch.first_token + t * RansScratch::kFirstTokens;
    uint32_t start = 0;
    uint32_t entry = 0;
    L3_NO_UNROLL
    for (uint32_t number = 0; number < tokens; ++number) {
      const RansToken token = GetRansToken(number);
      const uint32_t frequency = model.frequency[t][number];
      scratch.token[t * tokens + number] = {
          static_cast<uint16_t>(start), static_cast<uint16_t>(frequency),
          static_cast<uint16_t>(token.base), static_cast<uint16_t>(token.raw_bits)};
      start += frequency;
      for (; entry * kSlots < start; ++entry) {
        const uint32_t left = start - entry * kSlots;
        first_token[entry] = {static_cast<uint8_t>(number),
                              static_cast<uint8_t>(left < kSlots ? left : kSlots)};
      }
    }
  }
}

// Fills in what depends on the tile: contexts and coefficients.
template <uint32_t kChannels, class Warp>
L3_DEVICE void LoadRansBody(Warp& warp, const RansModel& model, const uint8_t* payload,
                            uint32_t tokens_per_table, const RansScratch& scratch) {
  const RansBody& body = *scratch.body;
  for (uint32_t i = warp.lane(); i < kChannels * kRansLevels; i += kWarpLanes) {
    const uint32_t p = i / kRansLevels;
    const uint32_t level = i % kRansLevels;
    uint32_t set = 0;
    while (set + 1 < body.sets[p] && level >= model.set_begin[p][set]) ++set;
    const uint32_t table = model.table_of_level[p][level];
    scratch.context[i] = {static_cast<uint16_t>(table * tokens_per_table),
                          static_cast<uint16_t>(table * RansScratch::kFirstTokens),
                          4 * (p * kMaxRansSets + set)};
  }
  for (uint32_t i = warp.lane(); i < kChannels * kMaxRansSets; i += kWarpLanes) {
    const uint32_t p = i / kMaxRansSets;
    const uint32_t set = i % kMaxRansSets;
    if (set >= body.sets[p]) continue;
    const uint32_t taps = RansTapCount(GetRansRole(kChannels, p));
    const uint8_t* k = payload + body.coefficients_offset[p] + set * taps;
    // In the order of RansWindow: NE N NW NWW, W WW NNE NN, and two crosses.
    uint32_t* words = scratch.taps + 4 * i;
    words[0] = k[0] | k[1] << 8 | k[2] << 16 | static_cast<uint32_t>(k[7]) << 24;
    words[1] = k[3] | k[5] << 8 | k[6] << 16 | static_cast<uint32_t>(k[4]) << 24;
    for (uint32_t word = 2; word < taps / 4; ++word) words[word] = LoadU32(k + 4 * word);
  }
}

// A level's place in a table of levels: RansLevel of core/rans_model.h, by way of a
// float, whose exponent and first two bits are side by side.
L3_DEVICE uint32_t LevelOf(uint32_t activity) {
#if defined(__CUDA_ARCH__)
  return (__float_as_uint(static_cast<float>(static_cast<int32_t>(activity + 8))) >> 21) -
         4 * (3 + 127);
#else
  return RansLevel(activity);
#endif
}

// The state of a lane, and the words that the lanes share.
template <class Warp>
class RansState {
 public:
  L3_DEVICE RansState(const uint8_t* payload, uint32_t pos, uint32_t state)
      : payload_(payload), pos_(pos), state_(state) {}

  L3_DEVICE uint32_t value() const { return state_; }
  L3_DEVICE uint32_t pos() const { return pos_; }

  // Takes a token from the state of an active lane.
  L3_DEVICE RansScratchToken TakeToken(bool active, const RansScratchToken* tokens,
                                       const RansFirstToken* first_tokens) {
    const uint32_t slot = state_ & (kRansScale - 1);
    const RansFirstToken first = first_tokens[slot / RansScratch::kSlotsPerEntry];
    uint32_t number = first.token;
    if (slot % RansScratch::kSlotsPerEntry >= first.slots) ++number;
    RansScratchToken token = tokens[number];
    while (slot - token.start >= token.frequency) token = tokens[++number];
    const uint32_t next = token.frequency * (state_ >> kRansScaleBits) + slot - token.start;
    if (active) state_ = next;
    return token;
  }
  // Takes raw bits from the state of an active lane.
  L3_DEVICE uint32_t TakeRaw(bool active, uint32_t bits) {
    const uint32_t raw = state_ & ~(~0u << bits);
    if (active) state_ >>= bits;
    return raw;
  }
  // Refills the states of active lanes; the words may lie past the payload.
  L3_DEVICE void Refill(Warp& warp, bool active) {
    const bool hungry = active && state_ < kRansStateBegin;
    const uint32_t lanes = warp.Ballot(hungry);
    if (hungry) {
      const uint32_t before = PopCount(lanes & ((1u << warp.lane()) - 1));
      state_ = state_ << 16 | LoadConstantHalf(payload_ + (pos_ + 2 * before));
    }
    pos_ += 2 * PopCount(lanes);
  }

 private:
  const uint8_t* payload_;
  uint32_t pos_;
  uint32_t state_;
};

// The prediction of a channel, before it is limited. `first` and `second` are the channels
// at positions 0 and 1, with their values of the same pixel.
template <uint32_t kSampleBytes>
L3_DEVICE int32_t PredictByTaps(RansRole role, const RansWindow<kSampleBytes>& own,
                                const RansWindow<kSampleBytes>& first, uint32_t first_value,
                                const RansWindow<kSampleBytes>& second, uint32_t second_value,
                                const uint32_t* taps) {
  using Samples = Quad<kSampleBytes>;
  Samples above = own.above;
  Samples beside = own.beside;
  if (role == RansRole::kSecond) {
    above = Samples::template Pick<0, 1, 2, 4>(above, Samples::OfValue(first_value));
  }
  if (role == RansRole::kThird) {
    above = Samples::template Pick<0, 1, 2, 4>(above, Samples::OfValue(second_value));
    beside = Samples::template Pick<0, 1, 4, 3>(beside, Samples::OfValue(first_value));
  }
  int32_t sum = beside.Dot(above.Dot(32, taps[0]), taps[1]);
  if (role != RansRole::kFirst) sum = first.cross.Dot(sum, taps[2]);
  if (role == RansRole::kThird) sum = second.cross.Dot(sum, taps[3]);
  return sum >> 6;
}

// The same by the gradient predictor.
template <uint32_t kSampleBytes>
L3_DEVICE int32_t PredictByGradient(RansRole role, const RansWindow<kSampleBytes>& own,
                                    const RansWindow<kSampleBytes>& first, uint32_t first_value) {
  int32_t n = static_cast<int32_t>(own.cross.template Get<1>());
  int32_t nw = static_cast<int32_t>(own.cross.template Get<2>());
  int32_t w = static_cast<int32_t>(own.cross.template Get<3>());
  if (role == RansRole::kFirst) return PredictGradient(w, n, nw);
  n -= static_cast<int32_t>(first.cross.template Get<1>());
  nw -= static_cast<int32_t>(first.cross.template Get<2>());
  w -= static_cast<int32_t>(first.cross.template Get<3>());
  return static_cast<int32_t>(first_value) + PredictGradient(w, n, nw);
}

template <uint32_t kChannels, uint32_t kSampleBytes, class Warp, class Store>
L3_DEVICE Status DecodeRansTileWarp(Warp& warp, const ImageInfo& info, const SampleMap& map,
                                    const RansModel& model, const TileRect& rect,
                                    const TilePayload& tile, const Store& store,
                                    RunningCheck<Warp>* check, uint8_t* memory) {
  const uint32_t lane = warp.lane();
  const uint32_t width = rect.width_px;
  const uint32_t height = rect.height_px;
  RansScratch scratch;
  scratch.Place(info, model.table_count, memory);
  const RansBody& body = *scratch.body;
  Status status = Status::kOk;
  if (lane == 0) {
    status = ParseRansBody(tile.data, tile.size, kChannels, info.used_bits, width, height,
                           scratch.body);
  }
  warp.Sync();
  status = static_cast<Status>(warp.Shuffle(static_cast<uint32_t>(status), 0));
  if (status != Status::kOk) return status;
  const uint32_t tokens_per_table = kSampleBytes == 1 ? kRansShortTokens
                                                      : RansScratch::TokenCount(info);
  LoadRansTables(warp, tokens_per_table, model, scratch);
  LoadRansBody<kChannels>(warp, model, tile.data, tokens_per_table, scratch);

  const RansSchedule schedule = GetRansSchedule(width, height);
  const uint32_t last_lane = schedule.lanes - 1;
  const bool has_state = lane < (body.words_offset - body.states_offset) / 4;
  RansState<Warp> state(
      tile.data, body.words_offset,
      has_state ? LoadU32(tile.data + body.states_offset + 4 * lane) : kRansStateBegin);
  if (warp.Ballot(state.value() < kRansStateBegin) != 0) return Status::kCorruptTile;

  using Window = RansWindow<kSampleBytes>;
  constexpr uint32_t kPassed = Window::kPassed;
  constexpr uint32_t kAbove = kChannels * kPassed;  // words of a column in row_above
  Window windows[kChannels];
  uint32_t fitted = 0;  // bit p: channel p has coefficients
  L3_UNROLL
  for (uint32_t p = 0; p < kChannels; ++p) {
    windows[p].Start(body.base[p]);
    if (body.sets[p] > 0) fitted |= 1u << p;
    L3_UNROLL
    for (uint32_t k = 0; k < kPassed; ++k) {
      if (lane < 2) {
        scratch.row_above[lane * kAbove + p * kPassed + k] = Window::PassedAtStart(body.base[p], k);
      }
    }
  }
  const int32_t max_value = (1 << info.used_bits) - 1;
  const bool long_raw = kSampleBytes == 2 && info.used_bits > 8;
  const uint32_t gradient_weight = model.gradient_weight;
  uint8_t* held = scratch.held + lane * kHeldPixels * kChannels * kSampleBytes;
  bool valid = true;

  uint32_t x = 0u - 2 * lane;
  uint32_t y = lane < schedule.lanes ? lane : height;
  uint32_t x_of_first = 0;  // of lane 0
  for (uint32_t step = 0; step < schedule.steps; ++step) {
    warp.Sync();  // row_above of the step before
    check->ReadTo(state.pos() + kReadAheadBytes);
    const bool active = x < width && y < height;
    const bool any_edge = warp.Ballot(x == 0 || x == width - 1) != 0;
    if (++x_of_first == schedule.period) x_of_first = 0;
    uint32_t above_first[kAbove] = {};
    if (lane == 0) {
      L3_UNROLL
      for (uint32_t i = 0; i < kAbove; ++i) {
        above_first[i] = scratch.row_above[x_of_first * kAbove + i];
      }
    }
    uint32_t values[kChannels] = {};
    uint32_t magnitudes[kChannels] = {};
    L3_UNROLL
    for (uint32_t p = 0; p < kChannels; ++p) {
      const RansRole role = GetRansRole(kChannels, p);
      Window& window = windows[p];
      uint32_t passed[kPassed];
      L3_UNROLL
      for (uint32_t k = 0; k < kPassed; ++k) {
        passed[k] = warp.ShuffleUp(window.Passed(k), above_first[p * kPassed + k]);
      }
      window.Advance(passed, any_edge, x == 0, x == width - 1);
      const uint32_t mixed = MixRansEnergy(window.west_energy, window.northeast_energy);
      uint32_t activity = mixed;
      if (role == RansRole::kFirst) {
        activity += gradient_weight * window.cross.Gradient();
      } else {
        activity += 4 * magnitudes[0];
        if (role == RansRole::kThird) activity += 8 * magnitudes[1];
      }
      const RansContext context = scratch.context[p * kRansLevels + LevelOf(activity)];
      const RansScratchToken token = state.TakeToken(active, scratch.token + context.token,
                                                     scratch.first_token + context.first_token);
      if (long_raw) state.Refill(warp, active);
      const uint32_t folded = token.base + state.TakeRaw(active, token.raw_bits);
      state.Refill(warp, active);

      constexpr uint32_t kSecond = kChannels >= 3 ? 1 : 0;
      int32_t prediction;
      if ((fitted >> p & 1) != 0) {
        prediction = PredictByTaps<kSampleBytes>(role, window, windows[0], values[0],
                                                 windows[kSecond], values[kSecond],
                                                 scratch.taps + context.taps);
      } else {
        prediction = PredictByGradient<kSampleBytes>(role, window, windows[0], values[0]);
      }
      prediction = prediction < 0 ? 0 : prediction;
      prediction = prediction > max_value ? max_value : prediction;
      values[p] = static_cast<uint32_t>((prediction + UnfoldResidual(folded)) & max_value);
      // Residuals of 8 bits are below the limit.
      magnitudes[p] = kSampleBytes == 1 ? (folded + 1) >> 1 : RansMagnitude(folded);
      window.Finish(values[p], NextRansEnergy(mixed, magnitudes[p]));
    }
    if (state.pos() > tile.size) return Status::kCorruptTile;

    const auto pass_on = [&](uint32_t column) {
      L3_UNROLL
      for (uint32_t i = 0; i < kAbove; ++i) {
        scratch.row_above[column * kAbove + i] = windows[i / kPassed].Passed(i % kPassed);
      }
    };
    // The row above the first is the first itself, two places further right.
    if (step + 2 < width && lane == 0) pass_on(step + 2);
    if (lane == last_lane && x < width) pass_on(x);
    if (active) {
      const uint32_t place = x % kHeldPixels;
      L3_UNROLL
      for (uint32_t p = 0; p < kChannels; ++p) {
        StoreSample(held, place * kChannels + RansChannel(kChannels, p), values[p] << map.shift,
                    8 * kSampleBytes);
      }
      if (place + 1 == kHeldPixels || x + 1 == width) {
        if (map.table != nullptr) {
          valid = LookUp<kSampleBytes>(map, (place + 1) * kChannels, held) && valid;
        }
        store.StorePixels(held, x - place, y, place + 1);
      }
    }
    if (++x == schedule.period) {
      x = 0;
      y += schedule.lanes;
    }
  }
  if (!OnAllLanes(warp, valid && state.value() == kRansStateBegin)) return Status::kCorruptTile;
  return CheckBodyEnd(tile, state.pos());
}

}  // namespace l3
