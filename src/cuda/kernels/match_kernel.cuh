// Decodes a match tile with a warp, by the rules of core/match.h. Layer: cuda. The lanes are those
// of rans_kernel.cuh: each passes numbers of colours on to the next. Numbers become colours when a
// run of them is stored, so that all images share one loop.
#pragma once

#include "core/match.h"
#include "cuda/kernels/rans_kernel.cuh"

namespace l3 {

// Turns the numbers of a run into colours, as PackPixel() makes them.
template <uint32_t kChannels, uint32_t kBytes>
L3_DEVICE void ColorPixels(const ColorTable& colors, const SharedPixels& pixels) {
  L3_NO_UNROLL
  for (uint32_t i = 0; i < kRunPixels; ++i) {
    uint8_t* place = pixels.Pixel(i);
    uint32_t low = LoadWord(place);
    uint32_t high = 0;
    if (colors.color != nullptr) {
      const uint8_t* color = reinterpret_cast<const uint8_t*>(colors.color + low);
      low = LoadConstantWord(color);
      high = LoadConstantWord(color + 4);
    }
    StoreWord(place, kBytes == 1 ? PermuteBytes(low, high, 0x6420) : low);
    if constexpr (PixelWords(kChannels, kBytes) > 1) StoreWord(place + 4 * kWarpLanes, high);
  }
}

// A lane of a tile. What lanes pass on is a number and, in the low half, the one above it.
class MatchLane {
 public:
  // `memory` is that of a RansScratch whose pixels have `pixel_words` words: first come these,
  // then what the last lane passes to lane 0, by column.
  template <class Warp>
  L3_DEVICE MatchLane(Warp& warp, const TileRect& rect, uint32_t base, const ColorTable& colors,
                      const RansLookup& lookup, uint32_t pixel_words, uint8_t* memory)
      : lookup_(lookup),
        pixels_(memory + 4 * warp.lane()),
        slot_bytes_(pixel_words * kWarpLanes * 4),
        row_(memory + 2 * kRunPixels * slot_bytes_),
        colors_(colors),
        place_(warp.lane(), rect),
        lane_below_(warp.ShuffleUp(warp.lane(), 0)),
        own_(base | base << 16),
        passed_(own_),
        north_(own_),
        before_(own_) {
    uint32_t x = place_.lane;
    for (; x <= place_.period; x += kWarpLanes) StoreWord(row_ + 4 * x, own_);
    warp.Sync();
  }

  // Whether all numbers so far had colours.
  L3_DEVICE bool valid() const { return valid_; }

  // Decodes kRunPixels pixels on every lane that has them. kSkipped says that those steps are
  // skipped.
  template <bool kSkipped, class Warp>
  L3_DEVICE void DecodeRun(Warp& warp, uint32_t step, RansStates* states) {
    uint8_t* place = pixels_ + step % (2 * kRunPixels) * slot_bytes_;
    L3_UNROLL_TWICE
    for (uint32_t i = 0; i < kRunPixels; ++i) {
      Step<kSkipped>(warp, place, states);
      place += slot_bytes_;
    }
  }

  // StoreLaneRun() of this lane.
  template <uint32_t kChannels, uint32_t kBytes, class Store>
  L3_DEVICE bool StoreRun(uint32_t steps, const SampleMap& map, const Store& store) const {
    return StoreLaneRun<kChannels, kBytes>(
        place_, pixels_, steps, map, store,
        [&](const SharedPixels& pixels) { ColorPixels<kChannels, kBytes>(colors_, pixels); });
  }

 private:
  template <bool kSkipped, class Warp>
  L3_DEVICE void Step(Warp& warp, uint8_t* place, RansStates* states) {
    const uint32_t row_place = place_.x;
    if (place_.x >= place_.width) {
      place_.BeginRow(states);
      own_ = before_ = north_;
    }
    if (place_.x >= place_.row_read_from) passed_ = LoadWord(row_ + 4 * (place_.x + 1));
    // In the last column what is to the north stands in for what is to the north-east.
    const uint32_t northeast = place_.x + 1 >= place_.width ? north_ : passed_;
    const uint32_t w = own_ >> 16;
    uint32_t number = w;
    if constexpr (!kSkipped) number = ReadNumber(warp, northeast, states);
    StoreWord(place, number);
    before_ = own_;
    own_ = number << 16 | north_ >> 16;
    north_ = passed_;
    passed_ = warp.Shuffle(own_, lane_below_);
    if (place_.writes_row) StoreWord(row_ + 4 * row_place, own_);
    warp.Sync();
    ++place_.x;
  }

  template <class Warp>
  L3_DEVICE uint32_t ReadNumber(Warp& warp, uint32_t northeast, RansStates* states) {
    const uint32_t w = own_ >> 16;
    const uint32_t nw = own_ & 0xFFFF;
    const uint32_t n = north_ >> 16;
    const uint32_t ne = northeast >> 16;
    const uint32_t context = static_cast<uint32_t>(w == n) | static_cast<uint32_t>(w == nw) << 1 |
                             static_cast<uint32_t>(n == ne) << 2 |
                             static_cast<uint32_t>(w == before_ >> 16) << 3 |
                             static_cast<uint32_t>(ne == (northeast & 0xFFFF)) << 4 |
                             static_cast<uint32_t>(nw == (before_ & 0xFFFF)) << 5;

    const uint32_t z = ReadFolded(warp, lookup_.context_of_match[context], states);
    uint32_t number = z - kMatchNeighbors;
    if (z == 0) number = w;
    if (z == 1) number = n;
    if (z == 2) number = ne;
    if (z == 3) number = nw;
    if (number >= colors_.count) {
      valid_ = valid_ && !states->active();
      number = 0;
    }
    return number;
  }

  template <class Warp>
  L3_DEVICE uint32_t ReadFolded(Warp& warp, uint32_t context, RansStates* states) const {
    const auto entry = lookup_.Find<WordSamples>(states->current(), context);
    states->Update(warp, RansLookup::Next(entry, states->current()));
    const uint32_t next = states->current();
    const uint32_t dropped = FunnelShift(next, 0, entry.bits);
    const uint32_t folded = RansLookup::Fold<WordSamples>(entry, next, dropped);
    // Most steps have no raw bits.
    if (warp.Ballot((entry.bits & 31) != 0) != 0) states->Update(warp, dropped);
    return folded;
  }

  const RansLookup& lookup_;
  uint8_t* pixels_;  // this lane's
  uint32_t slot_bytes_;
  uint8_t* row_;
  ColorTable colors_;
  LanePlace place_;
  uint32_t lane_below_;
  bool valid_ = true;
  // What this lane passed on last, what was passed to it then and before that, and what this lane
  // passed on a step before.
  uint32_t own_;
  uint32_t passed_;
  uint32_t north_;
  uint32_t before_;
};

// `store_run`(lane, steps) stores what a lane has completed.
template <class Warp, class StoreRun>
L3_DEVICE Status DecodeMatchTileWarp(Warp& warp, const ColorTable& colors, const TileRect& rect,
                                     const TilePayload& payload, const RansLookup& lookup,
                                     uint32_t pixel_words, const StoreRun& store_run,
                                     RunningCheck<Warp>* check, uint8_t* memory) {
  TilePayload tile = payload;
  tile.data = GlobalPointer(payload.data);
  RansBody body;
  const Status status =
      ParseMatchBody(tile.data, tile.size, colors, rect.width_px, rect.height_px, &body);
  if (status != Status::kOk) return status;
  const uint32_t begin_offset = body.states_offset + 4 * warp.lane();
  // The states begin at a multiple of 2.
  const uint32_t begin =
      begin_offset < body.words_offset ? LoadU32(tile.data + begin_offset) : kRansStateBegin;
  if (!OnAllLanes(warp, begin >= kRansStateBegin)) return Status::kCorruptTile;
  RansStates states(warp, begin, tile.data + body.words_offset);
  MatchLane lane(warp, rect, body.base[0], colors, lookup, pixel_words, memory);
  const uint32_t steps = GetRansSchedule(rect.width_px, rect.height_px).steps;
  bool valid = true;
  // A lane's last run may be complete only some steps later, in which no lane has a pixel.
  for (uint32_t step = 0; step < steps + kRunPixels - 1; step += kRunPixels) {
    // From lane 0, so that the compiler sees that lanes do not part here.
    const uint32_t pos = warp.Shuffle(static_cast<uint32_t>(states.words(warp) - tile.data), 0);
    if (pos > tile.size) return Status::kCorruptTile;
    check->ReadTo(pos + kRansReadAheadBytes);
    static_assert(kMatchBlockSteps % kRunPixels == 0);
    // Behind the last step no lane has a pixel.
    const bool skipped = step < steps && IsMatchSkipped(tile.data, step);
    if (warp.Shuffle(skipped, 0) != 0) {
      lane.template DecodeRun<true>(warp, step, &states);
    } else {
      lane.template DecodeRun<false>(warp, step, &states);
    }
    valid = store_run(lane, step + kRunPixels) && valid;
  }
  valid = valid && lane.valid() && states.End() == kRansStateBegin;
  if (!OnAllLanes(warp, valid)) return Status::kCorruptTile;
  return CheckBodyEnd(tile, static_cast<uint64_t>(states.words(warp) - tile.data));
}

}  // namespace l3
