// Decodes a match tile with a warp, by the rules of core/match.h. Layer: cuda. The lanes are those
// of rans_kernel.cuh: each passes numbers of colours on to the next. Numbers become colours when a
// run of them is stored, so that all images share one loop.
#pragma once

#include "core/match.h"
#include "cuda/kernels/rans_kernel.cuh"

namespace l3 {

// The words of a pixel as PackPixel() makes them.
template <uint32_t kChannels, uint32_t kBytes>
L3_DEVICE void PackColor(uint32_t low, uint32_t high,
                         uint32_t (&words)[PixelWords(kChannels, kBytes)]) {
  if constexpr (kBytes == 1) {
    words[0] = PermuteBytes(low, high, 0x6420);
  } else {
    words[0] = low;
    if constexpr (kChannels > 2) words[1] = high;
  }
}

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
    uint32_t words[PixelWords(kChannels, kBytes)];
    PackColor<kChannels, kBytes>(low, high, words);
    L3_UNROLL
    for (uint32_t k = 0; k < PixelWords(kChannels, kBytes); ++k) {
      StoreWord(place + 4 * kWarpLanes * k, words[k]);
    }
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
        schedule_(GetRansSchedule(rect.width_px, rect.height_px)),
        width_(rect.width_px),
        height_(rect.height_px),
        lane_(warp.lane()),
        lane_below_(warp.ShuffleUp(warp.lane(), 0)),
        x_(schedule_.period - 2 * lane_),
        y_(lane_ < schedule_.lanes ? lane_ - schedule_.lanes : rect.height_px),
        own_(base | base << 16),
        passed_(own_),
        north_(own_),
        before_(own_) {
    for (uint32_t x = lane_; x <= schedule_.period; x += kWarpLanes) StoreWord(row_ + 4 * x, own_);
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
        {x_, y_, lane_, width_, height_, schedule_.period, schedule_.lanes}, pixels_, steps, map,
        store,
        [&](const SharedPixels& pixels) { ColorPixels<kChannels, kBytes>(colors_, pixels); });
  }

 private:
  template <bool kSkipped, class Warp>
  L3_DEVICE void Step(Warp& warp, uint8_t* place, RansStates* states) {
    const uint32_t row_place = x_;
    if (x_ >= width_) BeginRow(states);
    if (x_ >= row_read_from_) passed_ = LoadWord(row_ + 4 * (x_ + 1));
    // In the last column what is to the north stands in for what is to the north-east.
    const uint32_t northeast = x_ + 1 >= width_ ? north_ : passed_;
    const uint32_t w = own_ >> 16;
    uint32_t number = w;
    if constexpr (!kSkipped) number = ReadNumber(warp, northeast, states);
    StoreWord(place, number);
    before_ = own_;
    own_ = number << 16 | north_ >> 16;
    north_ = passed_;
    passed_ = warp.Shuffle(own_, lane_below_);
    if (writes_row_) StoreWord(row_ + 4 * row_place, own_);
    warp.Sync();
    ++x_;
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

  // As RansLane does.
  L3_DEVICE void BeginRow(RansStates* states) {
    if (x_ == schedule_.period) {
      x_ = 0;
      y_ += schedule_.lanes;
      if (lane_ == 0) row_read_from_ = y_ == 0 ? schedule_.period - 1 : 0;
    }
    states->SetActive(x_ < width_ && y_ < height_);
    writes_row_ = states->active() && lane_ + 1 == schedule_.lanes;
    own_ = before_ = north_;
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
  RansSchedule schedule_;
  uint32_t width_;
  uint32_t height_;
  uint32_t lane_;
  uint32_t lane_below_;
  uint32_t x_;  // columns done in row y_; schedule_.period if the row has yet to begin
  uint32_t y_;
  uint32_t row_read_from_ = ~0u;  // from this column on scratch_->row has what is above
  bool writes_row_ = false;
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
