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
#include <type_traits>

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

// A step of a group, ready to use: offsets in JpegScratch from this lane's first values on.
struct alignas(16) JpegClassStep {
  static constexpr uint32_t kBefore = 0xFF;

  uint32_t magnitude;
  uint32_t coefficient;
  uint32_t quantizers;  // of the class's components, the first low
  // From the lowest bits up: kBefore if the step before was on the same diagonal (8), columns that
  // coefficients up to this one are in.
  uint32_t before_and_columns;
  uint8_t ac[kJpegLevels];
};
static_assert(sizeof(JpegClassStep) == 32);

// The shared memory of a block: what its image's tiles share.
struct alignas(16) JpegLookup {
  RansLookup tables;  // without contexts
  JpegClassStep step[kJpegClasses][kJpegBlockSamples];
  JpegContexts contexts;
};

// The shared memory of a warp. Arrays of all blocks of a tile follow (JpegBlockArrays).
struct alignas(16) JpegScratch {
  static constexpr uint32_t kMagnitudes = 98;  // JpegStep::kMagnitudeRow in a row; and those below
  static constexpr uint32_t kRowPairBytes = 8 * kWarpLanes * 2 * sizeof(int16_t);

  // Times its quantizer: that of row v and column u is number v % 2 of [v / 2][u][lane].
  int16_t coefficient[4][8][kWarpLanes][2];
  uint8_t magnitude[kMagnitudes][kWarpLanes];  // of a coefficient, at most 255
  uint16_t place[kJpegBlockSamples];  // where the next block with this last number goes

  static L3_DEVICE uint32_t CoefficientOffset(uint32_t place) {
    return (place / 16 * 8 + place % 8) * kWarpLanes * 4 + (place / 8 % 2) * 2;
  }
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

// Appends a word to small states, below `limit`: lanes hold the next words in order. `next` goes
// on by as many words as are taken.
template <class Warp>
L3_DEVICE void RefillStates([[maybe_unused]] Warp& warp, uint32_t limit, uint32_t word,
                            uint32_t lanes_below, uint32_t* state, const uint8_t** next) {
#if defined(__CUDA_ARCH__)
  asm volatile(
      "{ .reg .pred small; .reg .u32 lanes, i, own;\n"
      "  setp.lt.u32 small, %0, %2;\n"
      "  vote.sync.ballot.b32 lanes, small, 0xFFFFFFFF;\n"
      "  and.b32 i, lanes, %4;\n"
      "  popc.b32 i, i;\n"
      "  shfl.sync.idx.b32 own, %3, i, 31, 0xFFFFFFFF;\n"
      "  @small mad.lo.u32 %0, %0, 65536, own;\n"
      "  popc.b32 lanes, lanes;\n"
      "  mad.wide.u32 %1, lanes, 2, %1; }"
      : "+r"(*state), "+l"(*next)
      : "r"(limit), "r"(word), "r"(lanes_below));
#else
  const bool is_small = *state < limit;
  const uint32_t lanes = warp.Ballot(is_small);
  const uint32_t own = warp.Shuffle(word, PopCount(lanes & lanes_below));
  if (is_small) *state = (*state << 16) + own;
  *next += 2 * PopCount(lanes);
#endif
}

// The states of the lanes and the words that refill them, which lie at odd addresses or at even
// ones. A lane without a number to read has a state of 0, which each table leaves as it is, while
// its own one waits.
template <bool kAtOdd>
class JpegStates {
 public:
  template <class Warp>
  L3_DEVICE JpegStates(const Warp& warp, uint32_t begin, const uint8_t* words)
      : next_(words + 2 * warp.lane()), waiting_(begin), lanes_below_(warp.LanesBelow()) {
    word_ = LoadHalf();
  }

  template <class Warp>
  L3_DEVICE const uint8_t* words(const Warp& warp) const {
    return next_ - 2 * warp.lane();
  }
  L3_DEVICE uint32_t current() const { return current_; }
  L3_DEVICE uint32_t waiting() const { return waiting_; }
  // Begins to read numbers. Not twice.
  L3_DEVICE void Begin(bool reads) {
    if (!reads) return;
    current_ = waiting_;
    refill_below_ = kRansStateBegin;
  }
  L3_DEVICE void End() {
    if (refill_below_ != 0) waiting_ = current_;
    current_ = refill_below_ = 0;
  }
  template <class Warp>
  L3_DEVICE void Update(Warp& warp, uint32_t state) {
    current_ = state;
    RefillStates(warp, refill_below_, word_, lanes_below_, &current_, &next_);
    word_ = LoadHalf();
  }

 private:
  L3_DEVICE uint32_t LoadHalf() const {
#if defined(__CUDA_ARCH__)
    if (!kAtOdd) return LoadConstantHalf(reinterpret_cast<const uint16_t*>(next_));
    return uint32_t{__ldg(next_)} | uint32_t{__ldg(next_ + 1)} << 8;
#else
    return LoadU16(next_);
#endif
  }

  const uint8_t* next_;
  uint32_t word_;
  uint32_t current_ = 0;
  uint32_t waiting_;
  uint32_t refill_below_ = 0;  // 0 for a lane without a number to read
  uint32_t lanes_below_;
};

// The parts of a payload that are read in turn.
template <class Warp, bool kAtOdd>
class JpegReader {
 public:
  L3_DEVICE JpegReader(Warp& warp, const RansLookup& tables, const uint8_t* payload, uint32_t size,
                       const JpegBody& body, uint32_t begin, RunningCheck<Warp>* check)
      : warp_(warp),
        tables_(tables),
        payload_(payload),
        size_(size),
        states_(warp, begin, payload + body.words_offset),
        sign_end_(8 * body.signs_offset + body.sign_count),
        lanes_above_(~(2 * warp.LanesBelow() + 1)),
        sign_word_(body.signs_offset / 4 + 1),
        sign_bits_(8 * body.signs_offset % 32),
        signs_{0, LoadConstantWord(payload + 4 * sign_word_ - 4),
               LoadConstantWord(payload + 4 * sign_word_)},
        check_(check) {}

  // Returns false if more words were read than there are. May be called this seldom: each number
  // takes up to two words of each lane, and kPayloadPaddingBytes can be read beyond the end.
  static constexpr uint32_t kNumbersPerTest = 16;
  static_assert((2 * kNumbersPerTest + 1) * 2 * kWarpLanes <= kPayloadPaddingBytes);
  L3_DEVICE bool IsInside() {
    const uint32_t at = pos();
    check_->ReadTo(at + kReadAheadBytes / 2);
    return at <= size_ && sign_bit() <= sign_end_;
  }
  L3_DEVICE uint32_t pos() {
    return warp_.Shuffle(static_cast<uint32_t>(states_.words(warp_) - payload_), 0);
  }

  // Lanes that read numbers from now on, until End().
  L3_DEVICE void Begin(bool reads) { states_.Begin(reads); }
  L3_DEVICE void End() { states_.End(); }

  // A number other than a last one, by a table. That of a lane without a number to read is any.
  L3_DEVICE uint32_t Read(uint32_t table) {
    const Token token = ReadToken(table);
    constexpr uint32_t kDirect = kRansDirectTokens * WordSamples::kTokenUnit;
    if (warp_.Ballot(token.number >= kDirect) == 0) return token.number / WordSamples::kTokenUnit;
    // Few numbers have raw bits, and without them no state needs a word.
    const uint32_t next = states_.current();
    const uint32_t dropped = FunnelShift(next, 0, token.entry.bits);
    states_.Update(warp_, dropped);
    return RansLookup::Fold<WordSamples>(token.entry, next, dropped);
  }
  // A last number. Sets *valid to false if there is no such token.
  L3_DEVICE uint32_t ReadLast(uint32_t table, bool* valid) {
    const uint32_t number = ReadToken(table).number / WordSamples::kTokenUnit;
    const RansToken token = GetJpegLastToken(number);
    const uint32_t next = states_.current();
    states_.Update(warp_, next >> token.raw_bits);
    *valid = *valid && number < kJpegLastTokens;
    return (token.base + (next & ((1u << token.raw_bits) - 1))) % kJpegBlockSamples;
  }
  // All ones for a negative number, else 0, of lanes whose number has a sign. Of others it is any.
  L3_DEVICE uint32_t ReadSign(bool has_sign) {
    const uint32_t lanes = warp_.Ballot(has_sign);
    sign_bits_ += PopCount(lanes);
    if (sign_bits_ > 32) {
      sign_bits_ -= 32;
      signs_[0] = signs_[1];
      signs_[1] = signs_[2];
      signs_[2] = LoadConstantWord(payload_ + 4 * ++sign_word_);
    }
    // The 32 bits that end with these signs.
    const uint32_t bits = FunnelShiftTo32(signs_[0], signs_[1], sign_bits_);
    return static_cast<uint32_t>(static_cast<int32_t>(bits << PopCount(lanes & lanes_above_)) >>
                                 31);
  }
  L3_DEVICE bool AtEnd() {
    return OnAllLanes(warp_, states_.waiting() == kRansStateBegin) && sign_bit() == sign_end_;
  }

 private:
  struct Token {
    uint32_t number;  // times kTokenUnit
    RansLookup::Entry entry;
  };
  L3_DEVICE Token ReadToken(uint32_t table) {
    const uint32_t context = table << RansLookup::kTableBit;
    const uint32_t number = tables_.TokenOf(states_.current(), context);
    const RansLookup::Entry entry = tables_.EntryOf<WordSamples>(context, number);
    states_.Update(warp_, RansLookup::Next(entry, states_.current()));
    return {number, entry};
  }
  L3_DEVICE uint32_t sign_bit() const { return 32 * (sign_word_ - 1) + sign_bits_; }

  Warp& warp_;
  const RansLookup& tables_;
  const uint8_t* payload_;
  uint32_t size_;
  JpegStates<kAtOdd> states_;
  uint32_t sign_end_;  // in bits of the payload
  uint32_t lanes_above_;
  // Words of the payload: the last one is number sign_word_, of that before `sign_bits_` were read.
  uint32_t sign_word_, sign_bits_;
  uint32_t signs_[3];
  RunningCheck<Warp>* check_;
};

// Fills `lookup` with what tiles of an image share, by all warps of a block. They must wait for
// each other before they look anything up.
template <class Warp>
L3_DEVICE void BuildJpegLookup(Warp& warp, uint32_t warp_index, uint32_t warp_count,
                               const DeviceJpeg& jpeg, JpegLookup* lookup) {
  const uint32_t first = kWarpLanes * warp_index + warp.lane();
  const uint32_t step = kWarpLanes * warp_count;
  constexpr uint32_t kChunkBytes = static_cast<uint32_t>(sizeof(Chunk));
  constexpr uint32_t kMagnitudeOffset = offsetof(JpegScratch, magnitude);
  static_assert(sizeof(JpegContexts) % kChunkBytes == 0 && kJpegLevels == kChunkBytes);
  const uint8_t* from = reinterpret_cast<const uint8_t*>(&jpeg.contexts);
  uint8_t* to = reinterpret_cast<uint8_t*>(&lookup->contexts);
  L3_NO_UNROLL
  for (uint32_t i = first; i < sizeof(JpegContexts) / kChunkBytes; i += step) {
    StoreChunk(to + kChunkBytes * i, LoadConstantChunk(from + kChunkBytes * i));
  }
  L3_NO_UNROLL
  for (uint32_t i = first; i < kJpegClasses * kJpegBlockSamples; i += step) {
    const uint32_t number = i / kJpegBlockSamples;
    const uint32_t k = i % kJpegBlockSamples;
    const JpegStep bits = jpeg.step[k];
    uint8_t* const place = reinterpret_cast<uint8_t*>(&lookup->step[number][k]);
    StoreChunk(place, {{kMagnitudeOffset + kWarpLanes * bits.magnitude(),
                        JpegScratch::CoefficientOffset(bits.place()),
                        LowHalves(jpeg.info.quantizers[number][bits.place()],
                                  jpeg.info.quantizers[2 * number][bits.place()]),
                        (bits.goes_on() ? JpegClassStep::kBefore : 0) | bits.columns() << 8}});
    StoreChunk(place + kChunkBytes, LoadConstantChunk(jpeg.ac[number][k]));
  }
  PutTables<WordSamples>(warp, 0, jpeg.table_count, warp_index, warp_count, jpeg, &lookup->tables);
}

// A tile, and where it goes.
template <class Warp>
class JpegTileDecoder {
 public:
  L3_DEVICE JpegTileDecoder(Warp& warp, const JpegUnit& unit, const JpegInfo& jpeg,
                            const JpegLookup& lookup, const JpegBody& body, JpegScratch* scratch)
      : warp_(warp),
        unit_(unit),
        jpeg_(jpeg),
        lookup_(lookup),
        body_(body),
        luma_blocks_(body.blocks[0].width * body.blocks[0].height),
        chroma_blocks_(jpeg.components > 1 ? body.blocks[1].width * body.blocks[1].height : 0),
        scratch_(scratch),
        arrays_(scratch, luma_blocks_ + 2 * chroma_blocks_,
                luma_blocks_ > 2 * chroma_blocks_ ? luma_blocks_ : 2 * chroma_blocks_) {}

  // Last numbers and DC of all blocks.
  template <class Reader>
  L3_DEVICE bool DecodeHeads(const uint8_t* payload, Reader* reader) {
    const JpegContexts& contexts = lookup_.contexts;
    uint32_t row_number = 0;
    uint32_t first = 0;  // block of the row
    L3_NO_UNROLL
    for (uint32_t c = 0; c < jpeg_.components; ++c) {
      const JpegBlockRect rect = c == 0 ? body_.blocks[0] : body_.blocks[1];
      const int32_t quantizer = jpeg_.quantizers[c][0];
      const bool has_block = warp_.lane() < rect.width;
      uint32_t last = 0;  // of this lane's block in the row above
      uint32_t magnitude = 0;
      int32_t dc = 0;
      reader->Begin(has_block);
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
        last = reader->ReadLast(contexts.last[c][JpegLastContext(c, y == 0, up, other)], &valid);

        const int32_t west = FromLeft(dc);
        const int32_t east = FromRight(dc, rect.width);
        const auto distance = [dc](int32_t to) {
          return static_cast<uint32_t>(to < dc ? dc - to : to - dc);
        };
        const uint32_t activity = Weighted(magnitude, rect.width) + distance(west) + distance(east);
        const uint32_t number = reader->Read(contexts.dc[c > 0][JpegDcContext(y == 0, activity)]);
        const uint32_t sign = reader->ReadSign(has_block && number != 0);
        magnitude = number < kMaxRansMagnitude ? number : kMaxRansMagnitude;
        const PredictorTaps taps = TapsOf(predictor);
        uint32_t sum = static_cast<uint32_t>(PredictFromAbove(taps, west, dc, east)) +
                       ((number ^ sign) - sign);
        if (taps.adds_west) {
          if (warp_.lane() == 0) sum += static_cast<uint32_t>(dc);
          sum = warp_.InclusiveScan(sum);
        }
        dc = static_cast<int16_t>(sum);
        const int32_t size = dc < 0 ? -dc : dc;
        if (size > kMaxJpegDc || size * quantizer > kMaxJpegProduct) valid = false;
        if (has_block) {
          arrays_.last[first + warp_.lane()] = static_cast<uint8_t>(last);
          arrays_.dc[first + warp_.lane()] = static_cast<int16_t>(dc * quantizer);
        }
        if (!OnAllLanes(warp_, valid || !has_block)) return false;
        warp_.Sync();
      }
      reader->End();
    }
    return true;
  }

  // All other coefficients of a class, and its samples.
  template <class Reader>
  L3_DEVICE bool DecodeClass(uint32_t number, Reader* reader) {
    const uint32_t first = number == 0 ? 0 : luma_blocks_;
    const uint32_t blocks = number == 0 ? luma_blocks_ : 2 * chroma_blocks_;
    SortBlocks(arrays_.last + first, blocks);
    L3_NO_UNROLL
    for (uint32_t begin = 0; begin < blocks; begin += kWarpLanes) {
      const bool has_block = begin + warp_.lane() < blocks;
      const uint32_t block = has_block ? arrays_.order[begin + warp_.lane()] : 0;
      const uint32_t component = number == 0 ? 0 : block < chroma_blocks_ ? 1 : 2;
      const uint32_t last = has_block ? arrays_.last[first + block] : 0;
      const uint32_t dc = has_block ? static_cast<uint32_t>(arrays_.dc[first + block]) : 0;
      const uint32_t most = warp_.Shuffle(last, 0);
      uint8_t* const to =
          PlaceOf(component, number == 1 && component == 2 ? block - chroma_blocks_ : block);
      const uint32_t row_bytes = unit_.row_bytes[component];
      if (most == 0) {
        StoreFlat(has_block, static_cast<int32_t>(dc), to, row_bytes);
        continue;
      }
      ClearGroup();
      StoreHalf(Coefficients(), dc);
      if (!DecodeGroup(number, component == 2 ? 1 : 0, last, most, reader)) return false;
      if (most < kCornerSteps) {
        TransformColumns<4>(4);
        StoreSamples<4>(has_block, to, row_bytes);
      } else {
        TransformColumns<8>(lookup_.step[0][most].before_and_columns >> 8);
        StoreSamples<8>(has_block, to, row_bytes);
      }
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
  // GetPredictorTaps(), without an array: four bits of a word for each predictor.
  template <class Field>
  static L3_DEVICE int8_t TapOf(uint32_t predictor, const Field& field) {
    uint32_t all = 0;
    L3_UNROLL
    for (uint32_t p = 0; p < kNumPredictors; ++p) {
      all |= (static_cast<uint32_t>(field(GetPredictorTaps(p))) & 15) << (4 * p);
    }
    return static_cast<int8_t>(static_cast<int32_t>(all << (28 - 4 * predictor)) >> 28);
  }
  static L3_DEVICE PredictorTaps TapsOf(uint32_t predictor) {
    return {TapOf(predictor, [](const PredictorTaps& taps) { return taps.nw; }),
            TapOf(predictor, [](const PredictorTaps& taps) { return taps.n; }),
            TapOf(predictor, [](const PredictorTaps& taps) { return taps.ne; }),
            TapOf(predictor, [](const PredictorTaps& taps) { return taps.round; }),
            TapOf(predictor, [](const PredictorTaps& taps) { return taps.shift; }),
            TapOf(predictor, [](const PredictorTaps& taps) { return taps.adds_west; }) != 0};
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

  // Of coefficients up to this step, those in the first four rows and columns alone are not 0.
  static constexpr uint32_t kCornerSteps = 10;
  static constexpr uint32_t kMostProduct = kMaxJpegProduct;

  L3_DEVICE uint8_t* Coefficients() const {
    return reinterpret_cast<uint8_t*>(scratch_->coefficient[0][0][warp_.lane()]);
  }

  L3_DEVICE void ClearGroup() {
    uint8_t* const begin = reinterpret_cast<uint8_t*>(scratch_) + 16 * warp_.lane();
    warp_.Sync();  // the samples before have been stored
    L3_UNROLL
    for (uint32_t at = 0; at < offsetof(JpegScratch, place); at += 16 * kWarpLanes) {
      const bool is_last = at + 16 * kWarpLanes > offsetof(JpegScratch, place);
      if (is_last && at + 16 * warp_.lane() >= offsetof(JpegScratch, place)) continue;
      StoreChunk(begin + at, {{0, 0, 0, 0}});
    }
    warp_.Sync();
  }

  // The coefficients of a group but for DC, from number `most` down. `number` is the class,
  // `member` the component's number in it.
  template <class Reader>
  L3_DEVICE bool DecodeGroup(uint32_t number, uint32_t member, uint32_t last, uint32_t most,
                             Reader* reader) {
    uint8_t* const magnitudes = reinterpret_cast<uint8_t*>(scratch_) + warp_.lane();
    uint8_t* const coefficients = Coefficients();
    constexpr uint32_t kRight = kWarpLanes;
    constexpr uint32_t kDown = JpegStep::kMagnitudeRow * kWarpLanes;
    const JpegClassStep* const steps = lookup_.step[number];
    const JpegClassStep* const last_step = steps + last;
    const uint32_t quantizer_bytes = member == 0 ? 0x4410 : 0x4432;
    uint32_t before = 0;  // the magnitude that was decoded before
    uint32_t largest = 0;  // product
    const JpegClassStep* step = steps + most;
    uint32_t left = most;
    do {
      if (!OnAllLanes(warp_, largest <= kMostProduct) || !reader->IsInside()) return false;
      left = (left - 1) / Reader::kNumbersPerTest * Reader::kNumbersPerTest;
      const JpegClassStep* const stop = steps + left;
      L3_NO_UNROLL
      do {
        const Chunk offsets = *reinterpret_cast<const Chunk*>(step);
        uint8_t* const around = magnitudes + offsets.word[0];
        const bool is_last = step == last_step;
        reader->Begin(is_last);
        // Around the last one all are 0.
        uint32_t sum = 2 * (uint32_t{around[kRight]} + around[kDown]) + around[kDown + kRight] +
                       around[2 * kRight] + around[2 * kDown] + (before & offsets.word[3]);
        if (sum > kJpegLastSum) sum = kJpegLastSum;
        const uint32_t level = lookup_.contexts.level_of_sum[sum] + (is_last ? kJpegLevels - 1 : 0);
        const uint32_t read = reader->Read(step->ac[level]);
        const uint32_t magnitude = step > last_step ? 0 : is_last ? read + 1 : read;
        const uint32_t sign = reader->ReadSign(magnitude != 0);
        const uint32_t product = magnitude * PermuteBytes(offsets.word[2], 0, quantizer_bytes);
        if (product > largest) largest = product;
        before = magnitude < JpegClassStep::kBefore ? magnitude : JpegClassStep::kBefore;
        *around = static_cast<uint8_t>(before);
        StoreHalf(coefficients + offsets.word[1], (product ^ sign) - sign);
        --step;
      } while (step != stop);
    } while (left != 0);
    reader->End();
    return OnAllLanes(warp_, largest <= kMostProduct);
  }
  // The first half of TransformJpegBlock(), in place, of columns before `columns`. Others are 0,
  // and so are rows from kCount on.
  template <uint32_t kCount>
  L3_DEVICE void TransformColumns(uint32_t columns) {
    uint8_t* column = Coefficients();
    L3_NO_UNROLL
    for (uint32_t u = 0; u < columns; ++u, column += 4 * kWarpLanes) {
      int16_t in[8] = {};
      L3_UNROLL
      for (uint32_t v = 0; v < kCount; ++v) {
        in[v] = LoadCoefficient(column + v / 2 * JpegScratch::kRowPairBytes + v % 2 * 2);
      }
      uint32_t sums[8];
      SumJpegLine(in, 1 << 10, sums);
      L3_UNROLL
      for (uint32_t v = 0; v < 8; v += 2) {
        StoreWord(column + v / 2 * JpegScratch::kRowPairBytes,
                  PackHalves(static_cast<int32_t>(sums[v]) >> 11,
                             static_cast<int32_t>(sums[v + 1]) >> 11));
      }
    }
  }
  // The second half, of rows whose numbers from kCount on are 0.
  template <uint32_t kCount>
  L3_DEVICE void StoreSamples(bool has_block, uint8_t* to, uint32_t row_bytes) const {
    const uint8_t* rows = Coefficients();
    L3_NO_UNROLL
    for (uint32_t y = 0; y < 8; y += 2, rows += JpegScratch::kRowPairBytes) {
      L3_UNROLL
      for (uint32_t i = 0; i < 2; ++i, to += row_bytes) {
        int16_t in[8] = {};
        L3_UNROLL
        for (uint32_t u = 0; u < kCount; ++u) {
          in[u] = LoadCoefficient(rows + 4 * kWarpLanes * u + 2 * i);
        }
        uint32_t sums[8];
        SumJpegLine(in, 1 << 17, sums);
        const auto sample = [&sums](uint32_t k) { return static_cast<int32_t>(sums[k]) >> 18; };
        uint32_t words[2];
        L3_UNROLL
        for (uint32_t k = 0; k < 2; ++k) {
          words[k] = PackSignedBytes(sample(4 * k + 2), sample(4 * k + 3), 0);
          words[k] = PackSignedBytes(sample(4 * k), sample(4 * k + 1), words[k]) ^ kSignBits;
        }
        if (has_block) PutTwoWords(to, words[0], words[1]);
      }
    }
  }
  // Samples of a block without other coefficients than `dc`.
  L3_DEVICE void StoreFlat(bool has_block, int32_t dc, uint8_t* to, uint32_t row_bytes) const {
    const int32_t sample = (dc + 4) >> 3;
    const uint32_t two = PackSignedBytes(sample, sample, 0);
    const uint32_t word = PackSignedBytes(sample, sample, two) ^ kSignBits;
    if (!has_block) return;
    L3_UNROLL
    for (uint32_t y = 0; y < 8; ++y, to += row_bytes) PutTwoWords(to, word, word);
  }
  static constexpr uint32_t kSignBits = 0x80808080;  // of samples less 128
  static L3_DEVICE int16_t LoadCoefficient(const uint8_t* place) {
    return *reinterpret_cast<const int16_t*>(place);
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
  const JpegLookup& lookup_;
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
      JpegTileDecoder<Warp> decoder(warp, unit, jpeg, lookup, body, scratch);
      const auto decode = [&](auto at_odd) {
        JpegReader<Warp, decltype(at_odd)::value> reader(warp, lookup.tables, payload, size, body,
                                                         begin, &check);
        bool is_sound = decoder.DecodeHeads(payload, &reader);
        const uint32_t classes = jpeg.components > 1 ? 2 : 1;
        L3_NO_UNROLL
        for (uint32_t i = 0; i < classes && is_sound; ++i)
          is_sound = decoder.DecodeClass(i, &reader);
        if (!is_sound || !reader.AtEnd()) return Status::kCorruptTile;
        return CheckBodyEnd({payload, size, TileCoding::kConstant, ColorTransform::kNone},
                            reader.pos());
      };
      status = Status::kCorruptTile;
      if (OnAllLanes(warp, begin >= kRansStateBegin)) {
        status = body.words_offset % 2 != 0 ? decode(std::true_type()) : decode(std::false_type());
      }
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
    JpegTileDecoder<Warp>(warp, unit, jpeg, lookup, body, scratch).ClearSamples();
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
