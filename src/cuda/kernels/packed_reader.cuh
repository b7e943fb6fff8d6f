// Reading a packed payload with a warp: the check ahead of the decoder, and
// the residuals of a row, a group in each lane. Layer: cuda. The formats are
// those of core/check.h and core/packed.h.
#pragma once

#include "core/bits.h"
#include "core/check.h"
#include "core/packed.h"
#include "cuda/kernels/device_memory.h"
#include "cuda/kernels/sample_group.cuh"
#include "cuda/kernels/warp.h"
#include "cuda/kernels/warp_scratch.cuh"

namespace l3 {

// Sums a payload's check ahead of its decoding, a chunk a lane at a time. What
// it has read lies in the cache when the decoder comes to it; a chunk is
// summed only when the next step begins, so that its load has had time.
template <class Warp>
class RunningCheck {
 public:
  L3_DEVICE RunningCheck(const Warp& warp, const uint8_t* payload, uint32_t size)
      : payload_(payload), size_(size), offset_(16 * warp.lane()) {
    if constexpr (kIsInTeam<Warp>) offset_ += 16 * kWarpLanes * warp.channel();
    Load();
  }

  // Reads on until the bytes before `end` have been asked for.
  L3_DEVICE void ReadTo(uint32_t end) {
    if (end > size_) end = size_;
    while (read_bytes_ < end) Step();
  }

  // Reads the rest. The same on every lane. `memory` is the team's TeamScratch, if there is one.
  L3_DEVICE bool Matches(Warp& warp, [[maybe_unused]] uint8_t* memory) {
    ReadTo(size_);
    Step();
    // The stored check was summed like a word before the first one.
    const uint32_t stored = LoadConstantWord(payload_);
    uint32_t sum = warp.ReduceAdd(sum_);
    if constexpr (kIsInTeam<Warp>) {
      uint32_t* const sums = reinterpret_cast<TeamScratch*>(memory)->check_sums;
      if (warp.lane() == 0) sums[warp.channel()] = sum;
      warp.SyncBlock();
      sum = sums[0] + sums[1] + sums[2];
    }
    return CheckFinish(sum - CheckTerm(stored, ~0u), size_ / 4 - 1) == stored;
  }

 private:
  // Of all warps of a team, each of which sums a part.
  static constexpr uint32_t kStepBytes = 16 * kWarpLanes * (kIsInTeam<Warp> ? kTeamChannels : 1);

  L3_DEVICE void Load() {
    if (offset_ < size_) pending_ = LoadConstantChunk(payload_ + offset_);
  }
  L3_DEVICE void Step() {
    if (offset_ < size_) {
      L3_UNROLL
      for (uint32_t k = 0; k < 4; ++k) {
        sum_ += CheckTerm(pending_.word[k], offset_ / 4 + k - 1);
      }
    }
    offset_ += kStepBytes;
    read_bytes_ += kStepBytes;
    Load();
  }

  const uint8_t* payload_;
  uint32_t size_;
  uint32_t offset_;  // of this lane's pending chunk
  uint32_t read_bytes_ = kStepBytes;
  uint32_t sum_ = 0;
  Chunk pending_ = {};
};

// 64 bits of a payload, from any bit on. Bit offsets fit 32 bits, since a
// packed body stays under 1 MiB.
L3_DEVICE void ReadWindow(const uint8_t* payload, uint32_t bit, uint32_t* lo, uint32_t* hi) {
  const uint8_t* p = payload + bit / 32 * 4;
  const uint32_t first = LoadConstantWord(p);
  const uint32_t second = LoadConstantWord(p + 4);
  const uint32_t third = LoadConstantWord(p + 8);
  *lo = FunnelShift(first, second, bit);
  *hi = FunnelShift(second, third, bit);
}

// 32 bits of a payload, from any byte on; from the payload's end on, 0.
L3_DEVICE uint32_t ReadWord(const uint8_t* payload, uint32_t size, uint32_t offset) {
  uint32_t word = 0;
  uint32_t unused;
  if (offset < size) ReadWindow(payload, 8 * offset, &word, &unused);
  return word;
}

// The widths of a row's groups in all channels, and by a scan their places.
// Three sums of at most 32 * 16 bytes share a word.
template <uint32_t kChannels>
class GroupPlaces {
 public:
  template <class Warp>
  L3_DEVICE GroupPlaces(Warp& warp, const uint32_t (&width)[kChannels]) {
    L3_UNROLL
    for (uint32_t c = 0; c < kChannels; ++c) ends_[c / 3] += width[c] << Shift(c);
    L3_UNROLL
    for (uint32_t i = 0; i < kWords; ++i) {
      ends_[i] = warp.InclusiveScan(ends_[i]);
      totals_[i] = warp.Shuffle(ends_[i], kWarpLanes - 1);
    }
  }
  // Bytes of channel c up to and with this lane's group, and of all its groups.
  L3_DEVICE uint32_t End(uint32_t c) const { return ends_[c / 3] >> Shift(c) & 1023; }
  L3_DEVICE uint32_t Total(uint32_t c) const { return totals_[c / 3] >> Shift(c) & 1023; }
  // Of all channels together.
  L3_DEVICE uint32_t Total() const {
    uint32_t total = 0;
    L3_UNROLL
    for (uint32_t c = 0; c < kChannels; ++c) total += Total(c);
    return total;
  }

 private:
  static constexpr uint32_t kWords = (kChannels + 2) / 3;
  static L3_DEVICE uint32_t Shift(uint32_t c) { return 10 * (c % 3); }

  uint32_t ends_[kWords] = {};
  uint32_t totals_[kWords] = {};
};

// Residuals of one group of an absolute or delta channel: 8 fields of `width`
// bits from byte `offset` on.
template <uint32_t kSampleBytes>
L3_DEVICE SampleGroup ReadDenseGroup(const uint8_t* payload, uint32_t offset, uint32_t width) {
  const uint32_t mask = (SampleGroup::kOnes << width) - SampleGroup::kOnes;
  uint32_t lo, hi;
  ReadWindow(payload, 8 * offset, &lo, &hi);
  if constexpr (kSampleBytes == 1) {
    const uint32_t back = FunnelShiftTo32(lo, hi, 4 * width);  // fields 4 to 7
    const uint32_t first = LowHalves(lo, back);
    const uint32_t second = LowHalves(lo >> (2 * width), back >> (2 * width));
    return {{first & mask, (first >> width) & mask, second & mask, (second >> width) & mask}};
  } else {
    uint32_t back_lo, back_hi;
    ReadWindow(payload, 8 * offset + 4 * width, &back_lo, &back_hi);
    const uint32_t second = FunnelShiftTo32(lo, hi, 2 * width);  // fields 2 and 3
    const uint32_t back_second = FunnelShiftTo32(back_lo, back_hi, 2 * width);
    return {{LowHalves(lo, back_lo) & mask, LowHalves(lo >> width, back_lo >> width) & mask,
             LowHalves(second, back_second) & mask,
             LowHalves(second >> width, back_second >> width) & mask}};
  }
}

// Residuals of a row of a sparse channel, as ReadSparseRow of core/packed.h
// reads them, from *pos on, which is advanced. They may reach past the payload's end.
constexpr uint32_t kMaxSparseRowBytes = 4 + 16 + 32 + 2 * kRowSpan;  // flags, widths, masks, fields
template <class Warp>
L3_DEVICE void ReadSparseGroups(Warp& warp, const uint8_t* payload, uint32_t groups,
                                uint32_t used_bits, uint32_t* pos, SampleGroup* folded) {
  const uint32_t lane = warp.lane();
  const uint32_t flag_bytes = (groups + 7) / 8;
  const uint8_t* flags = payload + *pos;
  const bool coded = lane < groups && ReadBit(flags, lane) != 0;
  const uint32_t coded_lanes = warp.Ballot(coded);
  const uint32_t coded_groups = PopCount(coded_lanes);
  const uint32_t width_bytes = (coded_groups + 1) / 2;
  const uint8_t* widths = flags + flag_bytes;
  const uint8_t* masks = widths + width_bytes;

  uint32_t width = 0;
  uint32_t mask = 0;
  if (coded) {
    const uint32_t k = PopCount(coded_lanes & ((1u << lane) - 1));
    width = ReadCode4(widths, k) + 1;
    if (width > used_bits) width = used_bits;
    mask = masks[k];
  }
  const uint32_t bits = width * PopCount(mask);
  const uint32_t bits_end = warp.InclusiveScan(bits);
  const uint32_t field_bytes = (warp.Shuffle(bits_end, kWarpLanes - 1) + 7) / 8;
  const uint32_t fields = *pos + flag_bytes + width_bytes + coded_groups;
  *pos = fields + field_bytes;

  uint32_t bit = 8 * fields + bits_end - bits;
  folded->Fill(0);
  L3_NO_UNROLL
  for (uint32_t half = 0; half < 2; ++half) {
    uint32_t lo, hi;
    ReadWindow(payload, bit, &lo, &hi);
    L3_UNROLL
    for (uint32_t k = 0; k < SampleGroup::kWords; ++k) {
      const uint32_t taken = mask & 1 ? width : 0;
      folded->word[k] |= (lo & ((1u << taken) - 1)) << (16 * half);
      lo = FunnelShift(lo, hi, taken);
      hi >>= taken;
      bit += taken;
      mask >>= 1;
    }
  }
}

}  // namespace l3
