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
#include "cuda/kernels/device_memory.h"
#include "cuda/kernels/hwc_store.cuh"
#include "cuda/kernels/packed_reader.cuh"
#include "cuda/kernels/rans_lookup.cuh"
#include "cuda/kernels/rans_samples.cuh"
#include "cuda/kernels/tile_tools.cuh"
#include "cuda/kernels/warp.h"
#include "cuda/kernels/warp_scratch.cuh"

namespace l3 {

// How far the check stays ahead: some runs of most images, as little of the L1 cache
// is left beside wide tables.
constexpr uint32_t kRansReadAheadBytes = 512;

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
    // Of channels in coding order, as Predict() needs them too.
    const uint32_t first = PermuteBytes(value[0], value[1], 0x0040);
    if constexpr (kChannels == 2) words[0] = first;
    if constexpr (kChannels == 3) words[0] = PermuteBytes(first, value[2], 0x4401);
    if constexpr (kChannels == 4) {
      words[0] = PermuteBytes(first, PermuteBytes(value[2], value[3], 0x0040), 0x5401);
    }
  } else {
    words[0] = LowHalves(at(0), at(1));
    if constexpr (kChannels > 2) words[1] = LowHalves(at(2), at(3));
  }
}

// The state of a lane, and the words that refill the states of all lanes. The
// state of a lane without a pixel waits, while the lane computes with another.
class RansStates {
 public:
  template <class Warp>
  L3_DEVICE RansStates(const Warp& warp, uint32_t begin, const uint8_t* words)
      : next_(reinterpret_cast<const uint16_t*>(words) + warp.lane()),
        waiting_(begin),
        lanes_below_(warp.LanesBelow()) {
    word_ = LoadConstantHalf(next_);
  }

  // The next word.
  template <class Warp>
  L3_DEVICE const uint8_t* words(const Warp& warp) const {
    return reinterpret_cast<const uint8_t*>(next_ - warp.lane());
  }
  L3_DEVICE uint32_t current() const { return current_; }
  L3_DEVICE uint32_t End() const { return active() ? current_ : waiting_; }

  // Whether the lane has a pixel.
  L3_DEVICE bool active() const { return refill_below_ != 0; }
  L3_DEVICE void SetActive(bool active) {
    if (active == this->active()) return;
    refill_below_ = active ? kRansStateBegin : 0;
    const uint32_t current = current_;
    current_ = waiting_;
    waiting_ = current;
  }

  // Goes on with `state`; small states of active lanes are refilled.
  template <class Warp>
  L3_DEVICE void Update(Warp& warp, uint32_t state) {
    const bool hungry = state < refill_below_;
    const uint32_t hungry_lanes = warp.Ballot(hungry);
    const uint32_t word = warp.Shuffle(word_, PopCount(hungry_lanes & lanes_below_));
    current_ = state;
    if (hungry) current_ = MultiplyAdd(state, 1 << 16, word);
    next_ += PopCount(hungry_lanes);
    word_ = LoadConstantHalf(next_);
  }

 private:
  // Lanes hold the next words in order, and read them before they are needed.
  const uint16_t* next_;
  uint32_t word_;
  uint32_t current_ = kRansStateBegin;
  uint32_t waiting_;
  uint32_t refill_below_ = 0;  // 0 for a lane without a pixel
  uint32_t lanes_below_;
};

// How far a lane of a tile has come.
struct LanePlace {
  uint32_t x, y;  // columns done in row y; x is `period` if the row has yet to begin
  uint32_t lane;
  uint32_t width, height;  // of the tile
  uint32_t period, lanes;  // of the schedule
  uint32_t row_read_from = ~0u;  // from this column on shared memory has what is above
  bool writes_row = false;       // what this lane passes on goes there

  L3_DEVICE LanePlace(uint32_t number, const TileRect& rect)
      : lane(number), width(rect.width_px), height(rect.height_px) {
    const RansSchedule schedule = GetRansSchedule(width, height);
    period = schedule.period;
    lanes = schedule.lanes;
    x = period - 2 * lane;
    y = lane < lanes ? lane - lanes : height;
  }

  // Begins a row if the one before is done.
  L3_DEVICE void BeginRow(RansStates* states) {
    if (x == period) {
      x = 0;
      y += lanes;
      // Above the first row lies that row itself, two pixels further right.
      if (lane == 0) row_read_from = y == 0 ? period - 1 : 0;
    }
    states->SetActive(x < width && y < height);
    writes_row = states->active() && lane + 1 == lanes;
  }
};

// Turns values into samples where they lie: `count` pixels from the i-th on. Returns false if a
// value has no sample.
template <uint32_t kChannels, uint32_t kBytes>
L3_DEVICE bool MapPixels(const SampleMap& map, const SharedPixels& pixels, uint32_t i,
                         uint32_t count) {
  bool valid = true;
  L3_NO_UNROLL
  for (const uint32_t end = i + count; i < end; ++i) {
    L3_UNROLL
    for (uint32_t c = 0; c < kChannels; ++c) {
      uint8_t* place = pixels.Pixel(i) + c * kBytes / 4 * pixels.word_step + c * kBytes % 4;
      valid = PutSample<kBytes>(map, LoadValue<kBytes>(place, 0), 0, place) && valid;
    }
  }
  return valid;
}

// Stores the run of pixels that a lane has completed last, if there is one. `steps` is how many
// steps there have been, a multiple of kRunPixels. `ring` is the lane's part of
// RansScratch::pixels. `prepare` is called with the run before it is read. Returns false if a value
// has no sample.
template <uint32_t kChannels, uint32_t kBytes, class Store, class Prepare>
L3_DEVICE bool StoreLaneRun(const LanePlace& place, uint8_t* ring, uint32_t steps,
                            const SampleMap& map, const Store& store, const Prepare& prepare) {
  constexpr uint32_t kPixelWords = PixelWords(kChannels, kBytes);
  constexpr uint32_t kSlotBytes = kPixelWords * kWarpLanes * 4;
  const uint32_t done = steps - 2 * place.lane;
  if (static_cast<int32_t>(done) < static_cast<int32_t>(kRunPixels)) return true;
  const uint32_t back = kRunPixels + done % kRunPixels;
  uint32_t x = place.x;
  uint32_t y = place.y;
  while (x < back) {
    x += place.period;
    y -= place.lanes;
  }
  x -= back;
  const SharedPixels pixels = {PlaceInShared(ring), (steps - back) * kSlotBytes, kSlotBytes,
                               2 * kRunPixels * kSlotBytes - 1, 4 * kWarpLanes};
  prepare(pixels);
  bool valid = true;
  bool is_mapped = map.keeps_values();
  bool rest_of_run = false;
  if (x + kRunPixels <= place.width) {
    if (y >= place.height) return true;
    if (map.table != nullptr) {
      valid = MapPixels<kChannels, kBytes>(map, pixels, 0, kRunPixels);
      is_mapped = true;
    }
    uint32_t pixel[kRunPixels][kPixelWords];
    L3_UNROLL
    for (uint32_t i = 0; i < kRunPixels; ++i) {
      L3_UNROLL
      for (uint32_t k = 0; k < kPixelWords; ++k) {
        // Runs begin at even slots.
        pixel[i][k] = LoadWord(pixels.Pixel(i / 2 * 2) + i % 2 * kSlotBytes + 4 * kWarpLanes * k);
      }
      MapWords<kBytes>(map, pixel[i]);
    }
    if (store.StoreRun(pixel, x, y)) return valid;
    rest_of_run = true;
  }
  L3_NO_UNROLL
  for (uint32_t i = 0; i < kRunPixels;) {
    const uint32_t left = kRunPixels - i;
    const uint32_t in_row = place.period - x < left ? place.period - x : left;
    if (x < place.width && y < place.height) {
      const uint32_t count = place.width - x < in_row ? place.width - x : in_row;
      if (!is_mapped) valid = MapPixels<kChannels, kBytes>(map, pixels, i, count) && valid;
      store.StorePart(pixels, i, x, y, count, rest_of_run);
    }
    i += in_row;
    x = 0;
    y += place.lanes;
  }
  return valid;
}

// A lane of a tile.
template <uint32_t kChannels, class Samples>
class RansLane {
 public:
  using Scratch = RansScratch<kChannels, Samples::kBytes>;

  // Initialises the scratch, but for the taps.
  template <class Warp>
  L3_DEVICE RansLane(Warp& warp, const ImageInfo& info, const TileRect& rect, const RansBody& body,
                     uint32_t fitted, const RansLookup& lookup, Scratch* scratch)
      : lookup_(lookup),
        scratch_(scratch),
        place_(warp.lane(), rect),
        max_value_((1u << info.used_bits) - 1),
        gradient_weight_(Samples::kActivityScale * lookup.gradient_weight),
        has_long_raw_(info.used_bits > 8),
        lane_below_(warp.ShuffleUp(warp.lane(), 0)),
        fitted_(fitted) {
    L3_UNROLL
    for (uint32_t p = 0; p < kChannels; ++p) {
      own_[p] = north_[p] = Samples::Start(body.base[p]);
      before_[p] = {};
      PassOn(warp, p);
    }
    // Lane 0 reads on when there is no row left.
    for (uint32_t x = place_.lane; x <= place_.period; x += kWarpLanes) PassToRow(x);
    warp.Sync();
  }

  // Decodes kRunPixels pixels on every lane that has them. kFitted says that every channel has
  // coefficients, kEven that rows are even: then lanes come to the first column in even steps, and
  // to the last one in odd ones.
  template <bool kEven, bool kFitted, class Warp>
  L3_DEVICE void DecodeRun(Warp& warp, uint32_t step, RansStates* states) {
    uint8_t* place = Pixels() + step % (2 * kRunPixels) * kSlotBytes;
    L3_NO_UNROLL
    for (uint32_t i = 0; i < kRunPixels; i += 2) {
      Step<true, !kEven, kFitted>(warp, place, states);
      Step<!kEven, true, kFitted>(warp, place + kSlotBytes, states);
      place += 2 * kSlotBytes;
    }
  }

  // Decodes a pixel on every lane that has one. kFirst and kLast say that it may be in the first
  // or the last column, kFitted that every channel has coefficients.
  template <bool kFirst, bool kLast, bool kFitted, class Warp>
  L3_DEVICE void Step(Warp& warp, uint8_t* place, RansStates* states) {
    const uint32_t row_place = place_.x;
    if (kFirst && place_.x >= place_.width) BeginRow(states);
    if (place_.x >= place_.row_read_from) {
      const auto pixel = scratch_->row[place_.x + 1];
      L3_UNROLL
      for (uint32_t p = 0; p < kChannels; ++p) {
        L3_UNROLL
        for (uint32_t i = 0; i < Passed::kWords; ++i) {
          passed_[p].word[i] = pixel.word[p * Passed::kWords + i];
        }
      }
    }

    Around around[kChannels];
    uint32_t mixed[kChannels];
    L3_UNROLL
    for (uint32_t p = 0; p < kChannels; ++p) {
      // In the last column what is to the north stands in for what is to the north-east.
      const Passed northeast = kLast && place_.x + 1 >= place_.width ? north_[p] : passed_[p];
      around[p] = Samples::Arrange(northeast, north_[p], own_[p], before_[p]);
      mixed[p] = Samples::MixEnergies(northeast, own_[p]);
      before_[p] = around[p];
      north_[p] = passed_[p];
    }

    uint32_t value[kChannels] = {};
    uint32_t magnitude[kChannels];
    L3_UNROLL
    for (uint32_t p = 0; p < kChannels; ++p) {
      const RansRole role = GetRansRole(kChannels, p);
      uint32_t activity = mixed[p];
      if (role == RansRole::kFirst) activity += gradient_weight_ * Samples::Gradient(around[p]);
      if constexpr (kChannels >= 3) {  // where there are other roles
        if (role != RansRole::kFirst) {
          activity = MultiplyAdd(magnitude[0], Samples::kActivityScale * 4, activity);
        }
        if (role == RansRole::kThird) {
          activity = MultiplyAdd(magnitude[1], Samples::kActivityScale * 8, activity);
        }
      }
      const uint32_t context = lookup_.context_of_level[p][LevelOfActivity<Samples>(activity)];
      const uint32_t folded = ReadFolded(warp, context, states);
      // Both, where it may be either: a branch would keep lanes from what comes next.
      int32_t scaled = Predict(role, p, around, value, context);
      if (!kFitted) {
        const int32_t gradient = PredictByGradient(role, p, around, value);
        if ((fitted_ >> p & 1) == 0) scaled = gradient;
      }
      // UnfoldResidual() of core/residual.h is half, less folded where that is odd.
      const uint32_t odd = folded & 1;
      const uint32_t half = folded >> 1;
      const uint32_t minus_residual = MultiplyAdd(odd, folded, 0u - half);
      value[p] = Samples::MakeValue(static_cast<uint32_t>(scaled >> 6) - minus_residual, max_value_,
                                    around[p]);
      magnitude[p] = Samples::LimitMagnitude(half + odd);
      own_[p] = Samples::Pass(value[p], around[p], Samples::NextEnergy(mixed[p], magnitude[p]));
      PassOn(warp, p);
    }
    KeepPixel(value, place);
    if (place_.writes_row) PassToRow(row_place);
    warp.Sync();
    ++place_.x;
  }

  // StoreLaneRun() of this lane.
  template <class Store>
  L3_DEVICE bool StoreRun(uint32_t steps, const SampleMap& map, const Store& store) const {
    return StoreLaneRun<kChannels, Samples::kBytes>(place_, Pixels(), steps, map, store,
                                                    [](const SharedPixels&) {});
  }

 private:
  using Passed = typename Samples::Passed;
  using Around = typename Samples::Around;
  static constexpr uint32_t kPixelWords = PixelWords(kChannels, Samples::kBytes);
  static constexpr uint32_t kSlotBytes = kPixelWords * kWarpLanes * 4;

  // Begins a row if the one before is done. In the first column what is to the
  // north stands in for what is to the west.
  L3_DEVICE void BeginRow(RansStates* states) {
    place_.BeginRow(states);
    L3_UNROLL
    for (uint32_t p = 0; p < kChannels; ++p) {
      own_[p] = north_[p];
      before_[p] = Samples::AroundFrom(north_[p]);
    }
  }

  // Reads a folded residual.
  template <class Warp>
  L3_DEVICE uint32_t ReadFolded(Warp& warp, uint32_t context, RansStates* states) const {
    const auto entry = lookup_.Find<Samples>(states->current(), context);
    uint32_t next = RansLookup::Next(entry, states->current());
    if (Samples::kLongRaw && has_long_raw_) {
      states->Update(warp, next);
      next = states->current();
    }
    const uint32_t dropped = FunnelShift(next, 0, entry.bits);
    const uint32_t folded = RansLookup::Fold<Samples>(entry, next, dropped);
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
    // 64 times a neighbour, less that of the first channel. `bit` is where its coefficient is.
    const auto neighbor = [&](uint32_t bit) {
      const int32_t own = Samples::AddProducts(around[p].near, 64u << bit, 0);
      return role == RansRole::kFirst ? own
                                      : Samples::AddProducts(around[0].near, 192u << bit, own);
    };
    const int32_t gradient = PredictGradient(neighbor(24), neighbor(8), neighbor(16));
    if (role == RansRole::kFirst) return gradient;
    return Clamp(Samples::AddValue(value[0], gradient), static_cast<int32_t>(max_value_ << 6 | 63));
  }

  // Puts a pixel where it waits to be stored.
  L3_DEVICE void KeepPixel(const uint32_t (&value)[kChannels], uint8_t* place) const {
    uint32_t pixel[kPixelWords];
    PackPixel<kChannels, Samples>(value, pixel);
    L3_UNROLL
    for (uint32_t k = 0; k < kPixelWords; ++k) StoreWord(place + 4 * kWarpLanes * k, pixel[k]);
  }
  // Hands what this lane knows of channel p to the lane above.
  template <class Warp>
  L3_DEVICE void PassOn(Warp& warp, uint32_t p) {
    L3_UNROLL
    for (uint32_t i = 0; i < Passed::kWords; ++i) {
      passed_[p].word[i] = warp.Shuffle(own_[p].word[i], lane_below_);
    }
  }
  // Puts what this lane passes on where lane 0 finds it.
  L3_DEVICE void PassToRow(uint32_t x) {
    typename Scratch::PassedPixel pixel = {};
    L3_UNROLL
    for (uint32_t p = 0; p < kChannels; ++p) {
      L3_UNROLL
      for (uint32_t i = 0; i < Passed::kWords; ++i) {
        pixel.word[p * Passed::kWords + i] = own_[p].word[i];
      }
    }
    scratch_->row[x] = pixel;
  }
  // This lane's part of scratch_->pixels, kSlotBytes from pixel to pixel.
  L3_DEVICE uint8_t* Pixels() const {
    return reinterpret_cast<uint8_t*>(scratch_->pixels) + 4 * place_.lane;
  }

  const RansLookup& lookup_;
  Scratch* scratch_;
  LanePlace place_;
  uint32_t max_value_;
  uint32_t gradient_weight_;
  bool has_long_raw_;  // of samples of two bytes, unless they have 8 bits
  uint32_t lane_below_;
  uint32_t fitted_;  // a bit for each channel that has coefficients
  // Of each channel: what this lane passed on last, what was passed to it then and
  // before that, and what was around its pixel.
  Passed own_[kChannels];
  Passed passed_[kChannels];
  Passed north_[kChannels];
  Around before_[kChannels];
};

template <uint32_t kChannels, class Samples, class Warp, class Store>
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
  uint32_t fitted = 0;
  L3_UNROLL
  for (uint32_t p = 0; p < kChannels; ++p) {
    const uint32_t sets = body.sets[p];
    fitted |= static_cast<uint32_t>(sets != 0) << p;
    if (warp.lane() < kMaxRansSets) {
      // Levels of sets that are missing have the last one.
      const uint32_t set = warp.lane() < sets ? warp.lane() : sets - 1;
      const RansRole role = GetRansRole(kChannels, p);
      scratch->taps[p][warp.lane()] =
          sets == 0 ? RansTaps{}
                    : LoadRansTaps(
                          tile.data + body.coefficients_offset[p] + set * RansTapCount(role), role);
    }
  }
  const uint32_t begin_offset = body.states_offset + 4 * warp.lane();
  const uint32_t begin = begin_offset < body.words_offset
                             ? LoadConstantWord(tile.data + begin_offset)
                             : kRansStateBegin;
  if (!OnAllLanes(warp, begin >= kRansStateBegin)) return Status::kCorruptTile;
  RansStates states(warp, begin, tile.data + body.words_offset);
  // What comes from lane 0 tells the compiler that lanes do not part there.
  fitted = warp.Shuffle(fitted, 0);
  RansLane<kChannels, Samples> lane(warp, info, rect, body, fitted, lookup, scratch);

  const uint32_t steps = GetRansSchedule(rect.width_px, rect.height_px).steps;
  const bool even = rect.width_px % 2 == 0;
  const bool all_fitted = fitted + 1 == 1u << kChannels;
  bool valid = true;
  // A lane's last run may be complete only some steps later, in which no lane has
  // a pixel.
  for (uint32_t step = 0; step < steps + kRunPixels - 1; step += kRunPixels) {
    const uint32_t pos = warp.Shuffle(static_cast<uint32_t>(states.words(warp) - tile.data), 0);
    if (pos > tile.size) return Status::kCorruptTile;
    check->ReadTo(pos + kRansReadAheadBytes);
    if (!even) {
      lane.template DecodeRun<false, false>(warp, step, &states);
    } else if (all_fitted) {
      lane.template DecodeRun<true, true>(warp, step, &states);
    } else {
      lane.template DecodeRun<true, false>(warp, step, &states);
    }
    valid = lane.StoreRun(step + kRunPixels, map, store) && valid;
  }
  if (!OnAllLanes(warp, valid && states.End() == kRansStateBegin)) return Status::kCorruptTile;
  return CheckBodyEnd(tile, static_cast<uint64_t>(states.words(warp) - tile.data));
}

}  // namespace l3
