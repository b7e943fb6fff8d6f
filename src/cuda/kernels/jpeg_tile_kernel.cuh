// Decodes a jpeg tile with a warp, by the rules of core/jpeg_tile.h, to the samples of its
// components in planes. Layer: cuda. Written against a warp (warp.h).
//
//   warp -> tile; first rows of blocks, then blocks by their last numbers, 32 at a time
//
//   lane             0        1        2      ...    31
//   row of blocks  block 0  block 1  block 2  ...             last number, DC
//   group          the 32 blocks whose last numbers are the largest, ...
//                  coefficients of each block, from its last one down to 1, then its samples
//
// Coefficients of a group lie in shared memory, a column for each lane. No other lane reads them.
#pragma once

#include <cstddef>

#include "core/jpeg_pixels.h"
#include "core/jpeg_tile.h"
#include "cuda/kernels/device_memory.h"
#include "cuda/kernels/jpeg_batch.h"
#include "cuda/kernels/lane_math.cuh"
#include "cuda/kernels/packed_reader.cuh"
#include "cuda/kernels/rans_lookup.cuh"
#include "cuda/kernels/rans_samples.cuh"
#include "cuda/kernels/tile_tools.cuh"
#include "cuda/kernels/warp.h"

namespace l3 {

// The shared memory of a block: what its image's tiles share.
struct alignas(16) JpegLookup {
  RansLookup tables;  // without contexts
  JpegContexts contexts;
};

// The shared memory of a warp. Arrays of all blocks of a tile follow (JpegBlockArrays).
struct alignas(16) JpegScratch {
  static constexpr uint32_t kMagnitudes = 98;  // JpegStep::kMagnitudeRow in a row; and those below

  int16_t coefficient[kJpegBlockSamples][kWarpLanes];  // times its quantizer, in natural order
  uint8_t magnitude[kMagnitudes][kWarpLanes];  // of a coefficient, at most 255
  uint16_t place[kJpegBlockSamples];  // where the next block with this last number goes
};
static_assert(offsetof(JpegScratch, magnitude) % 16 == 0 && offsetof(JpegScratch, place) % 16 == 0);

// Bytes of a warp for tiles with so many blocks, of which the larger class has `of_class`.
constexpr uint32_t JpegScratchBytes(uint32_t blocks, uint32_t of_class) {
  return (static_cast<uint32_t>(sizeof(JpegScratch)) + 2 * blocks + 2 * of_class + blocks + 15) /
         16 * 16;
}

// Of all blocks of a tile, component after component; `order` has blocks of one class.
struct JpegBlockArrays {
  int16_t* dc;  // times its quantizer
  uint16_t* order;
  uint8_t* last;

  L3_DEVICE JpegBlockArrays(JpegScratch* scratch, uint32_t blocks, uint32_t of_class)
      : dc(reinterpret_cast<int16_t*>(scratch + 1)),
        order(reinterpret_cast<uint16_t*>(dc + blocks)),
        last(reinterpret_cast<uint8_t*>(order + of_class)) {}
};

// The states of the lanes and the words that refill them, as RansStates, but words lie at any
// address.
class JpegStates {
 public:
  template <class Warp>
  L3_DEVICE JpegStates(const Warp& warp, uint32_t begin, const uint8_t* words)
      : next_(words + 2 * warp.lane()),
        waiting_(begin),
        lanes_below_(warp.LanesBelow()),
        is_odd_(reinterpret_cast<uintptr_t>(words) % 2 != 0) {
    word_ = LoadHalf();
  }

  template <class Warp>
  L3_DEVICE const uint8_t* words(const Warp& warp) const {
    return next_ - 2 * warp.lane();
  }
  L3_DEVICE uint32_t current() const { return current_; }
  L3_DEVICE uint32_t End() const { return active() ? current_ : waiting_; }
  L3_DEVICE bool active() const { return refill_below_ != 0; }
  L3_DEVICE void SetActive(bool active) {
    if (active == this->active()) return;
    refill_below_ = active ? kRansStateBegin : 0;
    const uint32_t current = current_;
    current_ = waiting_;
    waiting_ = current;
  }
  template <class Warp>
  L3_DEVICE void Update(Warp& warp, uint32_t state) {
    const bool hungry = state < refill_below_;
    const uint32_t hungry_lanes = warp.Ballot(hungry);
    const uint32_t word = warp.Shuffle(word_, PopCount(hungry_lanes & lanes_below_));
    current_ = state;
    if (hungry) current_ = MultiplyAdd(state, 1 << 16, word);
    next_ += 2 * PopCount(hungry_lanes);
    word_ = LoadHalf();
  }

 private:
  L3_DEVICE uint32_t LoadHalf() const {
#if defined(__CUDA_ARCH__)
    if (!is_odd_) return LoadConstantHalf(reinterpret_cast<const uint16_t*>(next_));
    return uint32_t{__ldg(next_)} | uint32_t{__ldg(next_ + 1)} << 8;
#else
    return LoadU16(next_);
#endif
  }

  const uint8_t* next_;
  uint32_t word_;
  uint32_t current_ = kRansStateBegin;
  uint32_t waiting_;
  uint32_t refill_below_ = 0;  // 0 for a lane without a number to read
  uint32_t lanes_below_;
  bool is_odd_;  // the same on all lanes
};

// The parts of a payload that are read in turn.
template <class Warp>
class JpegReader {
 public:
  L3_DEVICE JpegReader(Warp& warp, const RansLookup& tables, const uint8_t* payload, uint32_t size,
                       const JpegBody& body, uint32_t begin, RunningCheck<Warp>* check)
      : warp_(warp),
        tables_(tables),
        payload_(payload),
        size_(size),
        states_(warp, begin, payload + body.words_offset),
        sign_bit_(8 * body.signs_offset),
        sign_end_(8 * body.signs_offset + body.sign_count),
        signs_{LoadConstantWord(payload + sign_bit_ / 32 * 4),
               LoadConstantWord(payload + sign_bit_ / 32 * 4 + 4)},
        check_(check) {}

  // Returns false if more words were read than there are. May be called this seldom: each number
  // takes up to two words of each lane, and kPayloadPaddingBytes can be read beyond the end.
  static constexpr uint32_t kNumbersPerTest = 16;
  static_assert((2 * kNumbersPerTest + 1) * 2 * kWarpLanes <= kPayloadPaddingBytes);
  L3_DEVICE bool IsInside() {
    const uint32_t at = pos();
    check_->ReadTo(at + kReadAheadBytes / 2);
    return at <= size_ && sign_bit_ <= sign_end_;
  }
  L3_DEVICE uint32_t pos() {
    return warp_.Shuffle(static_cast<uint32_t>(states_.words(warp_) - payload_), 0);
  }

  // Lanes that read the next numbers.
  L3_DEVICE void SetActive(bool active) { states_.SetActive(active); }
  L3_DEVICE bool active() const { return states_.active(); }

  // A number other than a last one, by a table.
  L3_DEVICE uint32_t Read(uint32_t table) {
    const RansLookup::Entry entry =
        tables_.Find<WordSamples>(states_.current(), table << RansLookup::kTableBit);
    states_.Update(warp_, RansLookup::Next(entry, states_.current()));
    const uint32_t next = states_.current();
    // Few numbers have raw bits, and without them no state needs a word.
    const bool has_raw = active() && (entry.bits & 31) != 0;
    const uint32_t dropped = FunnelShift(next, 0, entry.bits);
    const uint32_t number = RansLookup::Fold<WordSamples>(entry, next, dropped);
    if (warp_.Ballot(has_raw) != 0) states_.Update(warp_, dropped);
    return number;
  }
  // A last number. Sets *valid to false if there is no such token.
  L3_DEVICE uint32_t ReadLast(uint32_t table, bool* valid) {
    const uint32_t context = table << RansLookup::kTableBit;
    const uint32_t slot = Select(kRansScale - 1, states_.current(), context);
    const uint32_t number = tables_.token_of_slot[slot] / WordSamples::kTokenUnit;
    const RansLookup::Entry entry = tables_.Find<WordSamples>(states_.current(), context);
    states_.Update(warp_, RansLookup::Next(entry, states_.current()));
    const RansToken token = GetJpegLastToken(number);
    const uint32_t next = states_.current();
    states_.Update(warp_, next >> token.raw_bits);
    *valid = *valid && (!active() || number < kJpegLastTokens);
    return (token.base + (next & ((1u << token.raw_bits) - 1))) % kJpegBlockSamples;
  }
  // Whether a number is negative, of lanes whose number has a sign.
  L3_DEVICE bool ReadSign(bool has_sign) {
    const uint32_t lanes = warp_.Ballot(has_sign);
    const uint32_t bits = FunnelShift(signs_[0], signs_[1], sign_bit_);
    const uint32_t bit = PopCount(lanes & warp_.LanesBelow());
    const uint32_t word = sign_bit_ / 32;
    sign_bit_ += PopCount(lanes);
    if (sign_bit_ / 32 != word) {
      signs_[0] = signs_[1];
      signs_[1] = LoadConstantWord(payload_ + sign_bit_ / 32 * 4 + 4);
    }
    return has_sign && (bits >> bit & 1) != 0;
  }
  L3_DEVICE bool AtEnd() {
    return OnAllLanes(warp_, states_.End() == kRansStateBegin) && sign_bit_ == sign_end_;
  }

 private:
  Warp& warp_;
  const RansLookup& tables_;
  const uint8_t* payload_;
  uint32_t size_;
  JpegStates states_;
  uint32_t sign_bit_, sign_end_;
  uint32_t signs_[2];  // the words from that bit's on
  RunningCheck<Warp>* check_;
};

// Fills `lookup` with what tiles of an image share, by all warps of a block. They must wait for
// each other before they look anything up.
template <class Warp>
L3_DEVICE void BuildJpegLookup(Warp& warp, uint32_t warp_index, uint32_t warp_count,
                               const DeviceJpeg& jpeg, JpegLookup* lookup) {
  static_assert(sizeof(JpegContexts) % sizeof(Chunk) == 0);
  const uint8_t* from = reinterpret_cast<const uint8_t*>(&jpeg.contexts);
  uint8_t* to = reinterpret_cast<uint8_t*>(&lookup->contexts);
  const uint32_t step = static_cast<uint32_t>(sizeof(Chunk)) * kWarpLanes;
  L3_NO_UNROLL
  for (uint32_t at = step * warp_index + static_cast<uint32_t>(sizeof(Chunk)) * warp.lane();
       at < sizeof(JpegContexts); at += step * warp_count) {
    StoreChunk(to + at, LoadConstantChunk(from + at));
  }
  PutTables<WordSamples>(warp, 0, jpeg.table_count, warp_index, warp_count, jpeg, &lookup->tables);
}

// A tile, and where it goes.
template <class Warp>
class JpegTileDecoder {
 public:
  L3_DEVICE JpegTileDecoder(Warp& warp, const JpegUnit& unit, const JpegInfo& jpeg,
                            const JpegContexts& contexts, const JpegBody& body,
                            JpegScratch* scratch)
      : warp_(warp),
        unit_(unit),
        jpeg_(jpeg),
        contexts_(contexts),
        body_(body),
        luma_blocks_(body.blocks[0].width * body.blocks[0].height),
        chroma_blocks_(jpeg.components > 1 ? body.blocks[1].width * body.blocks[1].height : 0),
        scratch_(scratch),
        arrays_(scratch, luma_blocks_ + 2 * chroma_blocks_,
                luma_blocks_ > 2 * chroma_blocks_ ? luma_blocks_ : 2 * chroma_blocks_) {}

  // Last numbers and DC of all blocks.
  L3_DEVICE bool DecodeHeads(const uint8_t* payload, JpegReader<Warp>* reader) {
    uint32_t row_number = 0;
    uint32_t first = 0;  // block of the row
    L3_NO_UNROLL
    for (uint32_t c = 0; c < jpeg_.components; ++c) {
      const JpegBlockRect rect = c == 0 ? body_.blocks[0] : body_.blocks[1];
      const int32_t quantizer = contexts_.quantizers[c][0];
      const bool has_block = warp_.lane() < rect.width;
      uint32_t last = 0;  // of this lane's block in the row above
      uint32_t magnitude = 0;
      int32_t dc = 0;
      reader->SetActive(has_block);
      L3_NO_UNROLL
      for (uint32_t y = 0; y < rect.height; ++y, ++row_number, first += rect.width) {
        const uint32_t predictor = ReadCode4(payload + body_.predictors_offset, row_number);
        if (predictor >= kNumPredictors || !reader->IsInside()) return false;
        bool valid = true;

        const uint32_t up = y == 0 ? 0 : (Weighted(last, rect.width) + 2) >> 2;
        uint32_t other = 0;
        if (c == 1 && has_block) {
          other = arrays_.last[(y << jpeg_.chroma_y_shift) * body_.blocks[0].width +
                               (warp_.lane() << jpeg_.chroma_x_shift)];
        }
        if (c == 2 && has_block) other = arrays_.last[first - chroma_blocks_ + warp_.lane()];
        last = reader->ReadLast(contexts_.last[c][JpegLastContext(c, y == 0, up, other)], &valid);

        const int32_t west = FromLeft(dc);
        const int32_t east = FromRight(dc, rect.width);
        const auto distance = [dc](int32_t to) {
          return static_cast<uint32_t>(to < dc ? dc - to : to - dc);
        };
        const uint32_t activity = Weighted(magnitude, rect.width) + distance(west) + distance(east);
        const uint32_t number = reader->Read(contexts_.dc[c > 0][JpegDcContext(y == 0, activity)]);
        const bool is_negative = reader->ReadSign(has_block && number != 0);
        magnitude = number < kMaxRansMagnitude ? number : kMaxRansMagnitude;
        const PredictorTaps taps = TapsOf(predictor);
        uint32_t sum = static_cast<uint32_t>(PredictFromAbove(taps, west, dc, east)) +
                       (is_negative ? 0 - number : number);
        if (taps.adds_west) {
          if (warp_.lane() == 0) sum += static_cast<uint32_t>(dc);
          sum = warp_.InclusiveScan(sum);
        }
        dc = static_cast<int16_t>(sum);
        const int32_t size = dc < 0 ? -dc : dc;
        if (size > kMaxJpegDc || size * quantizer > kMaxJpegProduct) valid = !has_block && valid;
        if (has_block) {
          arrays_.last[first + warp_.lane()] = static_cast<uint8_t>(last);
          arrays_.dc[first + warp_.lane()] = static_cast<int16_t>(dc * quantizer);
        }
        if (!OnAllLanes(warp_, valid)) return false;
        warp_.Sync();
      }
    }
    return true;
  }

  // All other coefficients of a class, and its samples.
  L3_DEVICE bool DecodeClass(uint32_t number, JpegReader<Warp>* reader) {
    const uint32_t first = number == 0 ? 0 : luma_blocks_;
    const uint32_t blocks = number == 0 ? luma_blocks_ : 2 * chroma_blocks_;
    SortBlocks(arrays_.last + first, blocks);
    L3_NO_UNROLL
    for (uint32_t begin = 0; begin < blocks; begin += kWarpLanes) {
      const bool has_block = begin + warp_.lane() < blocks;
      const uint32_t block = has_block ? arrays_.order[begin + warp_.lane()] : 0;
      const uint32_t component = number == 0 ? 0 : block < chroma_blocks_ ? 1 : 2;
      const uint32_t last = has_block ? arrays_.last[first + block] : 0;
      ClearGroup();
      scratch_->coefficient[0][warp_.lane()] = has_block ? arrays_.dc[first + block] : 0;
      const uint32_t most = warp_.Shuffle(last, 0);
      if (!DecodeGroup(number, contexts_.quantizers[component], last, most, reader)) return false;
      TransformColumns(contexts_.step[most].columns());
      uint8_t* const to =
          PlaceOf(component, number == 1 && component == 2 ? block - chroma_blocks_ : block);
      StoreSamples(has_block, to, unit_.row_bytes[component]);
    }
    return true;
  }

  // Of a tile that failed.
  L3_DEVICE void ClearSamples() const {
    warp_.Sync();  // those of blocks that were decoded have been stored
    L3_NO_UNROLL
    for (uint32_t c = 0; c < jpeg_.components; ++c) {
      const JpegBlockRect rect = c == 0 ? body_.blocks[0] : body_.blocks[1];
      uint8_t* const to = PlaceOf(c, 0);
      L3_NO_UNROLL
      for (uint32_t i = warp_.lane(); i < rect.width * rect.height * 8; i += kWarpLanes) {
        PutTwoWords(to + i / rect.width * size_t{unit_.row_bytes[c]} + i % rect.width * 8, 0, 0);
      }
    }
  }

 private:
  // What the lanes beside this one have; at the ends what this one has.
  L3_DEVICE int32_t FromLeft(int32_t v) const {
    return static_cast<int32_t>(
        warp_.ShuffleUp(static_cast<uint32_t>(v), static_cast<uint32_t>(v)));
  }
  L3_DEVICE int32_t FromRight(int32_t v, uint32_t width) const {
    const int32_t other = static_cast<int32_t>(warp_.ShuffleDown(static_cast<uint32_t>(v)));
    return warp_.lane() + 1 < width ? other : v;
  }
  // JpegRowAbove::Weighted().
  L3_DEVICE uint32_t Weighted(uint32_t v, uint32_t width) const {
    const int32_t own = static_cast<int32_t>(v);
    return 2 * v + static_cast<uint32_t>(FromLeft(own) + FromRight(own, width));
  }
  // GetPredictorTaps(), without an array.
  static L3_DEVICE PredictorTaps TapsOf(uint32_t predictor) {
    PredictorTaps taps = {};
    L3_UNROLL
    for (uint32_t p = 0; p < kNumPredictors; ++p) {
      if (p == predictor) taps = GetPredictorTaps(p);
    }
    return taps;
  }

  // Sorts the blocks of a class by their last numbers, the largest first: their numbers go to
  // arrays_.order.
  L3_DEVICE void SortBlocks(const uint8_t* last, uint32_t count) {
    const uint32_t lane = warp_.lane();
    uint16_t* const place = scratch_->place;
    warp_.Sync();
    place[lane] = place[lane + kWarpLanes] = 0;
    warp_.Sync();
    L3_NO_UNROLL
    for (uint32_t pass = 0; pass < 2; ++pass) {
      L3_NO_UNROLL
      for (uint32_t i = lane; i < count + lane; i += kWarpLanes) {
        const bool exists = i < count;
        const uint32_t own = exists ? last[i] : 0;
        uint32_t same = warp_.Ballot(exists);  // lanes with the same last number
        L3_UNROLL
        for (uint32_t bit = 1; bit < kJpegBlockSamples; bit *= 2) {
          const uint32_t lanes = warp_.Ballot((own & bit) != 0);
          same &= (own & bit) != 0 ? lanes : ~lanes;
        }
        const uint32_t rank = PopCount(same & warp_.LanesBelow());
        const uint32_t at = place[own];
        if (pass == 1 && exists) arrays_.order[at + rank] = static_cast<uint16_t>(i);
        warp_.Sync();
        if (exists && rank == 0) place[own] = static_cast<uint16_t>(at + PopCount(same));
        warp_.Sync();
      }
      if (pass == 1) return;
      const uint32_t larger = place[kJpegBlockSamples - 1 - 2 * lane];
      const uint32_t both = larger + place[kJpegBlockSamples - 2 - 2 * lane];
      const uint32_t before = warp_.InclusiveScan(both) - both;
      place[kJpegBlockSamples - 1 - 2 * lane] = static_cast<uint16_t>(before);
      place[kJpegBlockSamples - 2 - 2 * lane] = static_cast<uint16_t>(before + larger);
      warp_.Sync();
    }
  }

  L3_DEVICE void ClearGroup() {
    uint8_t* const begin = reinterpret_cast<uint8_t*>(scratch_);
    warp_.Sync();  // the samples before have been stored
    L3_NO_UNROLL
    for (uint32_t at = 16 * warp_.lane(); at < offsetof(JpegScratch, place);
         at += 16 * kWarpLanes) {
      StoreChunk(begin + at, {{0, 0, 0, 0}});
    }
    warp_.Sync();
  }

  // The coefficients of a group but for DC, from number `most` down.
  L3_DEVICE bool DecodeGroup(uint32_t number, const uint16_t* quantizers, uint32_t last,
                             uint32_t most, JpegReader<Warp>* reader) {
    const uint32_t lane = warp_.lane();
    uint8_t* const magnitudes = &scratch_->magnitude[0][lane];
    constexpr uint32_t kRight = kWarpLanes;
    constexpr uint32_t kDown = JpegStep::kMagnitudeRow * kWarpLanes;
    uint32_t before = 0;  // the magnitude that was decoded before
    if (!reader->IsInside()) return false;
    bool valid = true;
    L3_NO_UNROLL
    for (uint32_t k = most; k > 0; --k) {
      const JpegStep step = contexts_.step[k];
      const uint32_t place = step.place();
      const uint32_t at = step.magnitude();
      if (!step.goes_on()) before = 0;
      const uint8_t* const around = magnitudes + at;
      uint32_t sum = 2 * (uint32_t{around[kRight]} + around[kDown]) + around[kDown + kRight] +
                     around[2 * kRight] + around[2 * kDown] + before;
      if (sum > kJpegLastSum) sum = kJpegLastSum;
      const bool is_last = k == last;
      const uint32_t level = is_last ? kJpegLevels - 1 : contexts_.level_of_sum[sum];
      reader->SetActive(k <= last);
      uint32_t magnitude = reader->Read(contexts_.ac[number][k][level]);
      if (is_last) ++magnitude;
      if (k > last) magnitude = 0;
      const bool is_negative = reader->ReadSign(magnitude != 0);
      const uint32_t product = magnitude * quantizers[place];
      if (product > static_cast<uint32_t>(kMaxJpegProduct)) valid = false;
      before = magnitude < 255 ? magnitude : 255;
      if (magnitude != 0) {
        scratch_->coefficient[place][lane] =
            static_cast<int16_t>(is_negative ? 0 - product : product);
        magnitudes[at] = static_cast<uint8_t>(before);
      }
      if (k % JpegReader<Warp>::kNumbersPerTest == 1) {
        if (!OnAllLanes(warp_, valid) || !reader->IsInside()) return false;
      }
    }
    return true;
  }

  // The first half of TransformJpegBlock(), in place. Columns from `columns` on are 0, and stay so.
  L3_DEVICE void TransformColumns(uint32_t columns) {
    L3_NO_UNROLL
    for (uint32_t u = 0; u < columns; ++u) {
      int16_t in[8];
      int16_t out[8];
      L3_UNROLL
      for (uint32_t v = 0; v < 8; ++v) in[v] = scratch_->coefficient[8 * v + u][warp_.lane()];
      TransformJpegLine<11>(in, out);
      L3_UNROLL
      for (uint32_t v = 0; v < 8; ++v) scratch_->coefficient[8 * v + u][warp_.lane()] = out[v];
    }
  }
  // The second half.
  L3_DEVICE void StoreSamples(bool has_block, uint8_t* to, uint32_t row_bytes) const {
    L3_NO_UNROLL
    for (uint32_t y = 0; y < 8; ++y) {
      int16_t in[8];
      int16_t out[8];
      L3_UNROLL
      for (uint32_t u = 0; u < 8; ++u) in[u] = scratch_->coefficient[8 * y + u][warp_.lane()];
      TransformJpegLine<18>(in, out);
      uint32_t words[2];
      L3_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        const int16_t* const four = out + 4 * i;
        words[i] = PackBytes(four[2] + 128, four[3] + 128, 0);
        words[i] = PackBytes(four[0] + 128, four[1] + 128, words[i]);
      }
      if (has_block) PutTwoWords(to, words[0], words[1]);
      to += row_bytes;
    }
  }

  // Where the first sample of a block goes.
  L3_DEVICE uint8_t* PlaceOf(uint32_t component, uint32_t block) const {
    const JpegBlockRect rect = component == 0 ? body_.blocks[0] : body_.blocks[1];
    const uint32_t x = rect.x + block % rect.width - (unit_.x_px >> jpeg_.x_shift(component)) / 8;
    const uint32_t y = rect.y + block / rect.width - (unit_.y_px >> jpeg_.y_shift(component)) / 8;
    return GlobalPointer(unit_.plane[component]) + size_t{8} * y * unit_.row_bytes[component] +
           8 * x;
  }

  Warp& warp_;
  const JpegUnit& unit_;
  const JpegInfo& jpeg_;
  const JpegContexts& contexts_;
  const JpegBody& body_;
  const uint32_t luma_blocks_, chroma_blocks_;  // of one component
  JpegScratch* const scratch_;
  const JpegBlockArrays arrays_;
};

// DecodeJpegTile() to planes. The Status is the same on every lane; a tile that fails has samples
// of 0. `payload` is null if it was not found.
template <class Warp>
L3_DEVICE Status DecodeJpegTileWarp(Warp& warp, const ImageInfo& info, const JpegUnit& unit,
                                    uint32_t tile, const uint8_t* payload, uint32_t size,
                                    const JpegLookup& lookup, JpegScratch* scratch) {
  const JpegInfo& jpeg = unit.image->info;
  JpegBody body = {};
  Status status = Status::kCorruptTile;
  bool is_intact = true;
  if (payload != nullptr) {
    RunningCheck<Warp> check(warp, payload, size);
    status = ParseJpegBody(info, jpeg, tile, payload, size, &body);
    if (status == Status::kOk) {
      const uint32_t offset = body.states_offset + 4 * warp.lane();
      const uint32_t begin =
          offset < body.words_offset ? ReadWord(payload, size, offset) : kRansStateBegin;
      JpegReader<Warp> reader(warp, lookup.tables, payload, size, body, begin, &check);
      JpegTileDecoder<Warp> decoder(warp, unit, jpeg, lookup.contexts, body, scratch);
      bool is_sound = OnAllLanes(warp, begin >= kRansStateBegin) &&
                      decoder.DecodeHeads(payload, &reader) && decoder.DecodeClass(0, &reader);
      if (jpeg.components > 1) is_sound = is_sound && decoder.DecodeClass(1, &reader);
      is_sound = is_sound && reader.AtEnd();
      status = !is_sound
                   ? Status::kCorruptTile
                   : CheckBodyEnd({payload, size, TileCoding::kConstant, ColorTransform::kNone},
                                  reader.pos());
    }
    // A damaged payload is one whatever else it breaks (format.md 5).
    is_intact = check.Matches(warp, nullptr);
  }
  if (!is_intact) status = Status::kChecksumMismatch;
  if (status != Status::kOk) {
    body = {};
    for (uint32_t c = 0; c < jpeg.components; ++c) {
      body.blocks[c] = JpegBlocksOfTile(info, jpeg, tile, c);
    }
    JpegTileDecoder<Warp>(warp, unit, jpeg, lookup.contexts, body, scratch).ClearSamples();
  }
  return status;
}

// Does a task of the first launch. lower(result, bad) makes a window's result `bad` if that is
// less.
template <class Warp, class Lower>
L3_DEVICE void RunJpegTile(Warp& warp, const JpegBatch& batch, uint32_t number,
                           const JpegLookup& lookup, uint8_t* memory, const Lower& lower) {
  const JpegTileTask task = batch.tiles[number];
  if (task.windows.count == 0) return;
  const uint32_t* const windows = batch.window_numbers + task.windows.begin;
  const DeviceWindow& window = batch.windows[windows[0]];
  const uint8_t* payload = nullptr;
  if (task.payload_units != 0) {
    payload = GlobalPointer(window.payloads + uint64_t{task.payload_begin} * kPayloadAlignment);
  }
  const Status status = DecodeJpegTileWarp(warp, window.info, batch.units[task.unit], task.tile,
                                           payload, task.payload_units * kPayloadAlignment, lookup,
                                           reinterpret_cast<JpegScratch*>(memory));
  if (payload == nullptr || status == Status::kOk) return;  // the host knows which tiles are lost
  for (uint32_t i = warp.lane(); i < task.windows.count; i += kWarpLanes) {
    lower(&batch.results[windows[i]], BadTile(task.tile, status));
  }
}

}  // namespace l3
