// Decodes a rans tile with a warp, by the rules of core/rans.h. Layer: cuda.
// Written against a warp (warp.h) and a store policy (hwc_store.cuh, plan_store.cuh).
//
//   warp -> tile, lane -> rows lane, lane + lanes, ..., step by step:
//
//   lane    0         1             2             3        ...
//   step s  pixel s   pixel s - 2   pixel s - 4   pixel s - 6
//
// Lanes pass their pixels on by shuffle; lane 0 finds those of the last lane in
// shared memory. There too pixels wait until a lane has a run of them to store.
#pragma once

#include "core/color.h"
#include "core/rans.h"
#include "core/residual.h"
#include "core/tile.h"
#include "cuda/device_memory.h"
#include "cuda/packed_reader.cuh"
#include "cuda/rans_lookup.cuh"
#include "cuda/rans_samples.cuh"
#include "cuda/tile_tools.cuh"
#include "cuda/warp.h"
#include "cuda/warp_scratch.cuh"

namespace l3 {

// The values of a pixel in the order of channels. `value` is in coding order.
template <uint32_t kChannels, class Samples>
L3_DEVICE void PackPixel(const uint32_t (&value)[kChannels],
                         uint32_t (&words)[PixelWords(kChannels, Samples::kBytes)]) {
  const auto at = [&value](uint32_t c) {
    return c < kChannels ? value[RansChannel(kChannels, c)] : 0;
  };
  if constexpr (kChannels == 1) {
    words[0] = value[0];
  } else if constexpr (Samples::kBytes == 1) {
    words[0] = PermuteBytes(at(0), at(1), 0x0040);
    if constexpr (kChannels == 3) words[0] = PermuteBytes(words[0], at(2), 0x4410);
    if constexpr (kChannels == 4) {
      words[0] = LowHalves(words[0], PermuteBytes(at(2), at(3), 0x0040));
    }
  } else {
    words[0] = LowHalves(at(0), at(1));
    if constexpr (kChannels > 2) words[1] = LowHalves(at(2), at(3));
  }
}

// The pixels of a run, without gaps between them.
template <uint32_t kChannels, uint32_t kBytes>
L3_DEVICE void InterleaveRun(const uint32_t (&pixel)[kRunPixels][PixelWords(kChannels, kBytes)],
                             uint32_t (&words)[kRunPixels * kChannels * kBytes / 4]) {
  constexpr uint32_t kPixelBytes = kChannels * kBytes;
  if constexpr (kPixelBytes % 4 == 0) {
    constexpr uint32_t kWords = kPixelBytes / 4;
    L3_UNROLL
    for (uint32_t i = 0; i < kRunPixels * kWords; ++i) words[i] = pixel[i / kWords][i % kWords];
  } else if constexpr (kPixelBytes == 1) {
    L3_UNROLL
    for (uint32_t i = 0; i < kRunPixels / 4; ++i) {
      words[i] = LowHalves(PermuteBytes(pixel[4 * i][0], pixel[4 * i + 1][0], 0x0040),
                           PermuteBytes(pixel[4 * i + 2][0], pixel[4 * i + 3][0], 0x0040));
    }
  } else if constexpr (kPixelBytes == 2) {
    L3_UNROLL
    for (uint32_t i = 0; i < kRunPixels / 2; ++i) {
      words[i] = LowHalves(pixel[2 * i][0], pixel[2 * i + 1][0]);
    }
  } else if constexpr (kPixelBytes == 3) {
    L3_UNROLL
    for (uint32_t i = 0; i < kRunPixels / 4; ++i) {
      words[3 * i] = PermuteBytes(pixel[4 * i][0], pixel[4 * i + 1][0], 0x4210);
      words[3 * i + 1] = PermuteBytes(pixel[4 * i + 1][0], pixel[4 * i + 2][0], 0x5421);
      words[3 * i + 2] = PermuteBytes(pixel[4 * i + 2][0], pixel[4 * i + 3][0], 0x6542);
    }
  } else {
    static_assert(kPixelBytes == 6);
    L3_UNROLL
    for (uint32_t i = 0; i < kRunPixels / 2; ++i) {
      words[3 * i] = pixel[2 * i][0];
      words[3 * i + 1] = LowHalves(pixel[2 * i][1], pixel[2 * i + 1][0]);
      words[3 * i + 2] = PermuteBytes(pixel[2 * i + 1][0], pixel[2 * i + 1][1], 0x5432);
    }
  }
}

// The state of a lane, and the words that refill the states of all lanes. The
// state of a lane without a pixel waits, while the lane computes with another.
class RansStates {
 public:
  L3_DEVICE RansStates(uint32_t lanes_below, uint32_t begin, const uint8_t* words)
      : words_(reinterpret_cast<const uint16_t*>(words)),
        waiting_(begin),
        lanes_below_(lanes_below) {}

  // The next word.
  L3_DEVICE const uint8_t* words() const { return reinterpret_cast<const uint8_t*>(words_); }
  L3_DEVICE uint32_t current() const { return current_; }
  L3_DEVICE uint32_t End() const { return active_ ? current_ : waiting_; }

  // Whether the lane has a pixel.
  L3_DEVICE bool active() const { return active_; }
  L3_DEVICE void SetActive(bool active) {
    if (active == active_) return;
    active_ = active;
    const uint32_t current = current_;
    current_ = waiting_;
    waiting_ = current;
  }

  // Goes on with `state`; small states of active lanes are refilled.
  template <class Warp>
  L3_DEVICE void Update(Warp& warp, uint32_t state) {
    const bool hungry = active_ && state < kRansStateBegin;
    const uint32_t hungry_lanes = warp.Ballot(hungry);
    if (hungry) {
      const uint32_t before = PopCount(hungry_lanes & lanes_below_);
      state = LowHalves(LoadConstantHalf(words_ + before), state);
    }
    current_ = state;
    words_ += PopCount(hungry_lanes);
  }

 private:
  const uint16_t* words_;
  uint32_t current_ = kRansStateBegin;
  uint32_t waiting_;
  bool active_ = false;
  uint32_t lanes_below_;
};

// A lane of a tile. kFitted says that every channel has coefficients.
template <uint32_t kChannels, class Samples, bool kFitted>
class RansLane {
 public:
  using Scratch = RansScratch<kChannels, Samples::kBytes>;

  // Initialises the scratch, but for the taps.
  template <class Warp>
  L3_DEVICE RansLane(Warp& warp, const ImageInfo& info, const TileRect& rect, const RansBody& body,
                     const RansLookup& lookup, Scratch* scratch)
      : lookup_(lookup),
        scratch_(scratch),
        schedule_(GetRansSchedule(rect.width_px, rect.height_px)),
        width_(rect.width_px),
        height_(rect.height_px),
        max_value_((1u << info.used_bits) - 1),
        gradient_weight_(Samples::kActivityScale * lookup.gradient_weight),
        lane_(warp.lane()),
        lane_below_(warp.ShuffleUp(warp.lane(), 0)),
        x_(schedule_.period - 2 * lane_),
        y_(lane_ < schedule_.lanes ? lane_ - schedule_.lanes : rect.height_px),
        slot_(0u - 2 * kSlotBytes * lane_),
        row_place_(x_ - 2),
        first_row_read_(lane_ == 0 ? schedule_.period - 1 : ~0u) {
    L3_UNROLL
    for (uint32_t p = 0; p < kChannels; ++p) {
      fitted_[p] = kFitted || body.sets[p] != 0;
      own_[p] = north_[p] = Samples::Start(body.base[p]);
      before_[p] = {};
    }
    // Lane 0 reads on when there is no row left.
    for (uint32_t x = lane_; x < schedule_.period; x += kWarpLanes) PassToRow(x);
    warp.Sync();
  }

  // Whether a lane comes to the first or the last column within `steps` steps.
  template <class Warp>
  L3_DEVICE bool MeetsEdges(Warp& warp, uint32_t steps) const {
    return warp.Ballot(x_ + steps >= width_) != 0;
  }

  // Decodes a pixel on every lane that has one. `edges` says whether a lane may be
  // in the first or the last column.
  template <class Warp>
  L3_DEVICE void Step(Warp& warp, uint32_t step, bool edges, RansStates* states) {
    Passed passed[kChannels];
    L3_UNROLL
    for (uint32_t p = 0; p < kChannels; ++p) {
      L3_UNROLL
      for (uint32_t i = 0; i < Passed::kWords; ++i) {
        passed[p].word[i] = warp.Shuffle(own_[p].word[i], lane_below_);
      }
    }
    // Above the first row lies that row itself, two pixels further right.
    if (step >= first_row_read_) {
      const auto pixel = scratch_->row[x_ - 1];
      L3_UNROLL
      for (uint32_t p = 0; p < kChannels; ++p) {
        L3_UNROLL
        for (uint32_t i = 0; i < Passed::kWords; ++i) {
          passed[p].word[i] = pixel.word[p * Passed::kWords + i];
        }
      }
    }
    Passed northeast[kChannels];
    L3_UNROLL
    for (uint32_t p = 0; p < kChannels; ++p) northeast[p] = passed[p];
    const uint32_t row_place = row_place_;
    row_place_ = x_ - 1;
    if (edges) MeetEdges(states, northeast);

    Around around[kChannels];
    uint32_t mixed[kChannels];
    L3_UNROLL
    for (uint32_t p = 0; p < kChannels; ++p) {
      around[p] = Samples::Arrange(northeast[p], north_[p], own_[p], before_[p]);
      mixed[p] = Samples::MixEnergies(northeast[p], own_[p]);
      before_[p] = around[p];
      north_[p] = passed[p];
    }

    uint32_t value[kChannels] = {};
    uint32_t magnitude[kChannels];
    L3_UNROLL
    for (uint32_t p = 0; p < kChannels; ++p) {
      const RansRole role = GetRansRole(kChannels, p);
      uint32_t activity = mixed[p];
      if (role == RansRole::kFirst) activity += gradient_weight_ * Samples::Gradient(around[p]);
      if (role != RansRole::kFirst) activity += Samples::kActivityScale * 4 * magnitude[0];
      if (role == RansRole::kThird) activity += Samples::kActivityScale * 8 * magnitude[1];
      const uint32_t context = lookup_.context[p][LevelOfActivity<Samples>(activity)];
      const uint32_t folded = ReadFolded(warp, context, states);
      const int32_t scaled = fitted_[p] ? Predict(role, p, around, value, context)
                                        : PredictByGradient(role, p, around, value);
      const uint32_t sign = SpreadLowestBit(folded);
      const uint32_t residual = (folded >> 1) ^ sign;
      value[p] =
          Samples::MakeValue(static_cast<uint32_t>(scaled >> 6) + residual, max_value_, around[p]);
      magnitude[p] = Samples::LimitMagnitude((folded >> 1) - sign);
      own_[p] = Samples::Pass(value[p], around[p], Samples::NextEnergy(mixed[p], magnitude[p]));
    }
    KeepPixel(value);
    if (writes_row_) PassToRow(row_place);
    warp.Sync();
    ++x_;
  }

  // Stores the run of pixels that this lane has completed last, if there is
  // one. `steps` is how many steps there have been, a multiple of kRunPixels.
  // Returns false if a value has no sample.
  template <uint32_t kSampleBytes, class Store>
  L3_DEVICE bool StoreRun(uint32_t steps, const SampleMap& map, const Store& store) const {
    const uint32_t done = steps - 2 * lane_;
    if (static_cast<int32_t>(done) < static_cast<int32_t>(kRunPixels)) return true;
    const uint32_t back = kRunPixels + done % kRunPixels;
    const uint8_t* run = Pixels() + (done - back) % (2 * kRunPixels) * kSlotBytes;
    uint32_t x = x_;
    uint32_t y = y_;
    while (x < back) {
      x += schedule_.period;
      y -= schedule_.lanes;
    }
    x -= back;
    if (kSampleBytes == Samples::kBytes && map.table == nullptr && x + kRunPixels <= width_) {
      if (y >= height_) return true;
      uint32_t pixel[kRunPixels][kPixelWords];
      L3_UNROLL
      for (uint32_t i = 0; i < kRunPixels; ++i) {
        L3_UNROLL
        for (uint32_t k = 0; k < kPixelWords; ++k) pixel[i][k] = PixelWord(run + i * kSlotBytes, k);
      }
      uint32_t words[kRunPixels * kChannels * Samples::kBytes / 4];
      InterleaveRun<kChannels, Samples::kBytes>(pixel, words);
      if (map.shift != 0) {
        L3_UNROLL
        for (uint32_t& word : words) word <<= map.shift;
      }
      store.StorePixels(words, x, y);
      return true;
    }
    bool valid = true;
    L3_NO_UNROLL
    for (uint32_t i = 0; i < kRunPixels; ++i) {
      if (x == schedule_.period) {
        x = 0;
        y += schedule_.lanes;
      }
      if (x < width_ && y < height_) {
        uint32_t samples[kChannels];
        L3_UNROLL
        for (uint32_t c = 0; c < kChannels; ++c) {
          constexpr uint32_t kBits = 8 * Samples::kBytes;
          const uint32_t word = PixelWord(run + i * kSlotBytes, c * kBits / 32);
          const uint32_t value = word >> (c * kBits % 32) & ((1u << kBits) - 1);
          const bool in_table = value < map.value_count;
          samples[c] = in_table ? map(value) : 0;
          valid = valid && in_table;
        }
        store.StorePixel(samples, x, y);
      }
      ++x;
    }
    return valid;
  }

 private:
  using Passed = typename Samples::Passed;
  using Around = typename Samples::Around;
  static constexpr uint32_t kPixelWords = PixelWords(kChannels, Samples::kBytes);
  static constexpr uint32_t kSlotBytes = kPixelWords * kWarpLanes * 4;

  // Begins a row if the one before is done. In the first column what is to the
  // north stands in for what is to the west, in the last one for what is to the
  // north-east.
  L3_DEVICE void MeetEdges(RansStates* states, Passed (&northeast)[kChannels]) {
    if (x_ >= width_) {
      if (x_ == schedule_.period) {
        x_ = 0;
        y_ += schedule_.lanes;
      }
      states->SetActive(x_ < width_ && y_ < height_);
      writes_row_ = states->active() && lane_ + 1 == schedule_.lanes;
      L3_UNROLL
      for (uint32_t p = 0; p < kChannels; ++p) {
        own_[p] = north_[p];
        before_[p] = Samples::AroundFrom(north_[p]);
      }
    }
    if (x_ + 1 >= width_) {
      L3_UNROLL
      for (uint32_t p = 0; p < kChannels; ++p) northeast[p] = north_[p];
    }
  }

  // Reads a folded residual.
  template <class Warp>
  L3_DEVICE uint32_t ReadFolded(Warp& warp, uint32_t context, RansStates* states) const {
    constexpr uint32_t kTableBytes = Samples::kTokens * Samples::kTokenUnit;
    const uint32_t state = states->current();
    const uint32_t slot = Select(kRansScale - 1, state, context);
    // Byte 1 of the context is 4 times the table.
    const uint32_t place =
        Dot(context, kTableBytes / 4 << 8, lookup_.token_of_slot[slot]) *
        (static_cast<uint32_t>(sizeof(RansSymbol)) / Samples::kTokenUnit);
    const RansSymbol symbol = *reinterpret_cast<const RansSymbol*>(
        reinterpret_cast<const uint8_t*>(lookup_.symbol) + place);
    uint32_t next = state + symbol.factor * (state >> kRansScaleBits) +
                    static_cast<uint32_t>(static_cast<int32_t>(symbol.rest) >> (32 - 11));
    if (Samples::kLongRaw) {
      states->Update(warp, next);
      next = states->current();
    }
    const uint32_t dropped = FunnelShift(next, 0, symbol.rest);
    const uint32_t folded =
        Samples::TokenBase(symbol.rest) + next - (dropped << (symbol.rest & 31));
    states->Update(warp, dropped);
    return folded;
  }

  // The prediction, times 64 and a fraction.
  L3_DEVICE int32_t Predict(RansRole role, uint32_t p, const Around* around, const uint32_t* value,
                            uint32_t context) const {
    // Byte 0 of the context is the place of its coefficients.
    const uint32_t place = Dot(context, 1, 0);
    const RansTaps taps = *reinterpret_cast<const RansTaps*>(
        reinterpret_cast<const uint8_t*>(scratch_->taps) + place);
    return Clamp(Samples::Predict(role, around, p, value, taps),
                 static_cast<int32_t>(max_value_ << 6 | 63));
  }
  L3_DEVICE int32_t PredictByGradient(RansRole role, uint32_t p, const Around* around,
                                      const uint32_t* value) const {
    const auto number = [](uint32_t v) { return static_cast<int32_t>(v); };
    int32_t w = number(Samples::W(around[p]));
    int32_t n = number(Samples::N(around[p]));
    int32_t nw = number(Samples::NW(around[p]));
    if (role == RansRole::kFirst) return PredictGradient(w, n, nw) * 64;
    w -= number(Samples::W(around[0]));
    n -= number(Samples::N(around[0]));
    nw -= number(Samples::NW(around[0]));
    return Clamp(number(Samples::Value(value[0])) + PredictGradient(w, n, nw), number(max_value_)) *
           64;
  }

  // Puts a pixel where it waits to be stored.
  L3_DEVICE void KeepPixel(const uint32_t (&value)[kChannels]) {
    uint32_t pixel[kPixelWords];
    PackPixel<kChannels, Samples>(value, pixel);
    uint8_t* place = Pixels() + slot_ % (2 * kRunPixels * kSlotBytes);
    slot_ += kSlotBytes;
    L3_UNROLL
    for (uint32_t k = 0; k < kPixelWords; ++k) StoreWord(place + 4 * kWarpLanes * k, pixel[k]);
  }
  // Puts what this lane passes on where lane 0 finds it.
  L3_DEVICE void PassToRow(uint32_t x) {
    auto& pixel = scratch_->row[x];
    L3_UNROLL
    for (uint32_t p = 0; p < kChannels; ++p) {
      L3_UNROLL
      for (uint32_t i = 0; i < Passed::kWords; ++i) {
        pixel.word[p * Passed::kWords + i] = own_[p].word[i];
      }
    }
  }
  // This lane's part of scratch_->pixels, kSlotBytes from pixel to pixel.
  L3_DEVICE uint8_t* Pixels() const {
    return reinterpret_cast<uint8_t*>(scratch_->pixels) + 4 * lane_;
  }
  static L3_DEVICE uint32_t PixelWord(const uint8_t* pixel, uint32_t k) {
    return LoadWord(pixel + 4 * kWarpLanes * k);
  }

  const RansLookup& lookup_;
  Scratch* scratch_;
  RansSchedule schedule_;
  uint32_t width_;
  uint32_t height_;
  uint32_t max_value_;
  uint32_t gradient_weight_;
  uint32_t lane_;
  uint32_t lane_below_;
  // Columns done in row y_; schedule_.period if the row has yet to begin.
  uint32_t x_;
  uint32_t y_;
  uint32_t slot_;  // where the next pixel waits
  // Where in scratch_->row this lane's pixel goes: at x_ - 1 lane 0 finds its
  // north-east neighbour, as x_ is when the step begins.
  uint32_t row_place_;
  uint32_t first_row_read_;  // in steps
  bool fitted_[kChannels];
  bool writes_row_ = false;
  // Of each channel: what this lane passed on last, what was passed to it then,
  // and what was around its pixel.
  Passed own_[kChannels];
  Passed north_[kChannels];
  Around before_[kChannels];
};

template <uint32_t kChannels, uint32_t kSampleBytes, class Samples, bool kFitted, class Warp,
          class Store>
L3_DEVICE Status DecodeRansRows(Warp& warp, const ImageInfo& info, const SampleMap& map,
                                const TileRect& rect, const TilePayload& tile,
                                const RansBody& body, const RansLookup& lookup, const Store& store,
                                RunningCheck<Warp>* check,
                                RansScratch<kChannels, Samples::kBytes>* scratch) {
  const uint32_t begin_offset = body.states_offset + 4 * warp.lane();
  const uint32_t begin = begin_offset < body.words_offset
                             ? LoadConstantWord(tile.data + begin_offset)
                             : kRansStateBegin;
  if (!OnAllLanes(warp, begin >= kRansStateBegin)) return Status::kCorruptTile;
  RansStates states(warp.LanesBelow(), begin, tile.data + body.words_offset);
  RansLane<kChannels, Samples, kFitted> lane(warp, info, rect, body, lookup, scratch);

  const uint32_t steps = GetRansSchedule(rect.width_px, rect.height_px).steps;
  bool valid = true;
  // A lane's last run may be complete only some steps later, in which no lane has
  // a pixel.
  for (uint32_t step = 0; step < steps + kRunPixels - 1; step += kRunPixels) {
    const uint32_t pos = static_cast<uint32_t>(states.words() - tile.data);
    if (pos > tile.size) return Status::kCorruptTile;
    check->ReadTo(pos + kReadAheadBytes);
    const bool edges = lane.MeetsEdges(warp, kRunPixels);
    L3_UNROLL_TWICE
    for (uint32_t i = 0; i < kRunPixels; ++i) lane.Step(warp, step + i, edges, &states);
    valid = lane.template StoreRun<kSampleBytes>(step + kRunPixels, map, store) && valid;
  }
  if (!OnAllLanes(warp, valid && states.End() == kRansStateBegin)) return Status::kCorruptTile;
  return CheckBodyEnd(tile, static_cast<uint64_t>(states.words() - tile.data));
}

template <uint32_t kChannels, uint32_t kSampleBytes, class Samples, class Warp, class Store>
L3_DEVICE Status DecodeRansTileWarp(Warp& warp, const ImageInfo& info, const SampleMap& map,
                                    const TileRect& rect, const TilePayload& payload,
                                    const RansLookup& lookup, const Store& store,
                                    RunningCheck<Warp>* check,
                                    RansScratch<kChannels, Samples::kBytes>* scratch) {
  TilePayload tile = payload;
  tile.data = GlobalPointer(payload.data);
  RansBody body;
  const Status status = ParseRansBody(tile.data, tile.size, kChannels, info.used_bits,
                                      rect.width_px, rect.height_px, &body);
  if (status != Status::kOk) return status;
  uint32_t least_sets = kMaxRansSets;
  L3_UNROLL
  for (uint32_t p = 0; p < kChannels; ++p) {
    const uint32_t sets = body.sets[p];
    if (sets < least_sets) least_sets = sets;
    if (warp.lane() < kMaxRansSets && sets != 0) {
      // Levels of sets that are missing have the last one.
      const uint32_t set = warp.lane() < sets ? warp.lane() : sets - 1;
      const RansRole role = GetRansRole(kChannels, p);
      scratch->taps[p][warp.lane()] = LoadRansTaps(
          tile.data + body.coefficients_offset[p] + set * RansTapCount(role), role);
    }
  }
  // From lane 0, so that the compiler sees that lanes do not part here.
  return warp.Shuffle(least_sets, 0) != 0
             ? DecodeRansRows<kChannels, kSampleBytes, Samples, true>(
                   warp, info, map, rect, tile, body, lookup, store, check, scratch)
             : DecodeRansRows<kChannels, kSampleBytes, Samples, false>(
                   warp, info, map, rect, tile, body, lookup, store, check, scratch);
}

}  // namespace l3
