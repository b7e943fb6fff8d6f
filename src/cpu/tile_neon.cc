// Tiles 8 values at a time, in the steps of core/tile.h. Layer: cpu.
#include "cpu/cpu_engine.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "core/check.h"
#include "core/packed.h"
#include "cpu/neon_planes.h"

namespace l3 {
namespace neon {
namespace {

constexpr uint32_t kLanes = 8;  // of 16 bits; a group of the format

// CheckMix of core/check.h in four lanes.
inline uint32x4_t MixWords(uint32x4_t x) {
  x = veorq_u32(x, vshrq_n_u32(x, 16));
  x = vmulq_u32(x, vdupq_n_u32(0x7FEB352D));
  x = veorq_u32(x, vshrq_n_u32(x, 15));
  x = vmulq_u32(x, vdupq_n_u32(0x846CA68B));
  return veorq_u32(x, vshrq_n_u32(x, 16));
}

// PayloadCheck of core/check.h.
uint32_t PayloadCheck(const uint8_t* payload, uint32_t size) {
  constexpr uint32_t kNumbers[4] = {1, 2, 3, 4};
  const uint32_t word_count = size / 4 - 1;
  const uint8_t* words = payload + 4;
  uint32x4_t place = vmulq_u32(vld1q_u32(kNumbers), vdupq_n_u32(kCheckStep));
  uint32x4_t sums = vdupq_n_u32(0);
  uint32_t i = 0;
  for (; word_count - i >= 4; i += 4) {
    const uint32x4_t word = vreinterpretq_u32_u8(vld1q_u8(words + 4 * i));
    sums = vaddq_u32(sums, MixWords(vaddq_u32(word, place)));
    place = vaddq_u32(place, vdupq_n_u32(4 * kCheckStep));
  }
  uint32_t sum = vaddvq_u32(sums);
  for (; i < word_count; ++i) sum += CheckTerm(LoadU32(words + 4 * i), i);
  return CheckFinish(sum, word_count);
}

// For each width, where the fields of a group lie: the bytes that each field touches, and how far
// these are to be shifted, as a negative shift to the left. Fields of up to 8 bits touch two bytes.
struct FieldTable {
  uint8_t narrow_bytes[9][16];
  int16_t narrow_shift[9][kLanes];
  uint8_t wide_bytes[17][2][16];
  int32_t wide_shift[17][2][4];
};
constexpr FieldTable MakeFieldTable() {
  FieldTable table{};
  for (uint32_t width = 0; width <= 16; ++width) {
    for (uint32_t i = 0; i < kLanes; ++i) {
      const uint32_t byte = i * width / 8;
      const int32_t shift = static_cast<int32_t>(i * width % 8);
      if (width <= 8) {
        for (uint32_t k = 0; k < 2; ++k) {
          table.narrow_bytes[width][2 * i + k] = static_cast<uint8_t>(byte + k);
        }
        table.narrow_shift[width][i] = static_cast<int16_t>(-shift);
      }
      for (uint32_t k = 0; k < 4; ++k) {
        table.wide_bytes[width][i / 4][4 * (i % 4) + k] = static_cast<uint8_t>(byte + k);
      }
      table.wide_shift[width][i / 4][i % 4] = -shift;
    }
  }
  return table;
}
constexpr FieldTable kFields = MakeFieldTable();

// The 8 fields of a group of up to 16 bits each.
inline uint16x8_t UnpackGroup(uint8x16_t bytes, uint32_t width) {
  const uint16x8_t mask = vdupq_n_u16(static_cast<uint16_t>((1u << width) - 1));
  if (width <= 8) {
    const uint8x16_t words = vqtbl1q_u8(bytes, vld1q_u8(kFields.narrow_bytes[width]));
    const int16x8_t shift = vld1q_s16(kFields.narrow_shift[width]);
    return vandq_u16(vshlq_u16(vreinterpretq_u16_u8(words), shift), mask);
  }
  uint32x4_t half[2];
  for (uint32_t h = 0; h < 2; ++h) {
    const uint8x16_t words = vqtbl1q_u8(bytes, vld1q_u8(kFields.wide_bytes[width][h]));
    half[h] = vshlq_u32(vreinterpretq_u32_u8(words), vld1q_s32(kFields.wide_shift[width][h]));
  }
  const uint16x8_t low = vreinterpretq_u16_u32(half[0]);
  return vandq_u16(vuzp1q_u16(low, vreinterpretq_u16_u32(half[1])), mask);
}

// ReadDenseRow of core/packed.h.
Status ReadDenseRow(const uint8_t* payload, uint32_t size, const uint8_t* widths, uint32_t groups,
                    uint32_t* pos, uint16_t* folded) {
  uint32_t at = *pos;
  for (uint32_t g = 0; g < groups; ++g) {
    const uint32_t width = widths[g];
    if (size - at < width) return Status::kCorruptTile;
    uint8_t last[16] = {};
    const uint8_t* bytes = payload + at;
    if (size - at < sizeof(last)) {
      std::memcpy(last, bytes, width);
      bytes = last;
    }
    vst1q_u16(folded + kGroupSize * g, UnpackGroup(vld1q_u8(bytes), width));
    at += width;
  }
  *pos = at;
  return Status::kOk;
}

// A row of values, with its first one once more before it and its last one
// behind it: what NW and NE see there, and what fills up the last vector.
class Row {
 public:
  uint16_t* values() { return storage_ + kLanes; }
  const uint16_t* values() const { return storage_ + kLanes; }

  void Fill(uint16_t value) { std::fill(std::begin(storage_), std::end(storage_), value); }
  void ExtendEnds(uint32_t width) {
    values()[-1] = values()[0];
    vst1q_u16(values() + width, vdupq_n_u16(values()[width - 1]));
  }

 private:
  uint16_t storage_[kMaxPackedTileSide + 2 * kLanes];
};

// What the row above contributes to a prediction, without W; modulo 2^16. Two roundings by one bit
// give those of format.md, and no sum leaves its lane.
template <uint32_t kPredictor>
inline uint16x8_t FromAbove(const uint16_t* above) {
  const uint16x8_t nw = vld1q_u16(above - 1);
  const uint16x8_t n = vld1q_u16(above);
  const uint16x8_t ne = vld1q_u16(above + 1);
  switch (kPredictor) {
    case 1: return n;
    case 2: return vrhaddq_u16(vhaddq_u16(nw, ne), n);
    case 3: return vsubq_u16(n, nw);
    // (a - b + 1) >> 1, as -((b - a) >> 1)
    case 4: return vsubq_u16(vdupq_n_u16(0), vhsubq_u16(nw, vhaddq_u16(n, ne)));
    case 5: return vrhaddq_u16(n, ne);
    case 6: return vrhaddq_u16(nw, n);
    case 7: return vsubq_u16(vdupq_n_u16(0), vhsubq_u16(nw, ne));
    default: return vdupq_n_u16(0);
  }
}

inline uint16x8_t PrefixSums(uint16x8_t v) {
  const uint16x8_t zero = vdupq_n_u16(0);
  v = vaddq_u16(v, vextq_u16(zero, v, 7));
  v = vaddq_u16(v, vextq_u16(zero, v, 6));
  return vaddq_u16(v, vextq_u16(zero, v, 4));
}

// ReconstructRow of core/packed.h.
template <uint32_t kPredictor>
void ReconstructRow(const Row& above, const uint16_t* folded, uint32_t width, uint32_t mask,
                    Row* row) {
  const uint16x8_t lane_mask = vdupq_n_u16(static_cast<uint16_t>(mask));
  uint16x8_t west = vdupq_n_u16(above.values()[0]);
  for (uint32_t x = 0; x < width; x += kLanes) {
    const uint16x8_t z = vld1q_u16(folded + x);
    const uint16x8_t odd = vandq_u16(z, vdupq_n_u16(1));
    const uint16x8_t residual = veorq_u16(vshrq_n_u16(z, 1), vsubq_u16(vdupq_n_u16(0), odd));
    uint16x8_t v = vaddq_u16(FromAbove<kPredictor>(above.values() + x), residual);
    if constexpr (GetPredictorTaps(kPredictor).adds_west) {
      v = vaddq_u16(PrefixSums(v), west);
      west = vdupq_laneq_u16(v, 7);
    }
    vst1q_u16(row->values() + x, vandq_u16(v, lane_mask));
  }
  row->ExtendEnds(width);
}

using Reconstruct = decltype(&ReconstructRow<0>);
constexpr Reconstruct kReconstruct[kNumPredictors] = {
    ReconstructRow<0>, ReconstructRow<1>, ReconstructRow<2>, ReconstructRow<3>,
    ReconstructRow<4>, ReconstructRow<5>, ReconstructRow<6>, ReconstructRow<7>};

// AddGreen of core/color.h over a row.
void AddGreenRow(const uint16_t* green, uint32_t width, uint32_t used_bits, const uint16_t* plane,
                 uint16_t* values) {
  const uint16x8_t half = vdupq_n_u16(static_cast<uint16_t>(1u << (used_bits - 1)));
  const uint16x8_t mask = vdupq_n_u16(static_cast<uint16_t>((1u << used_bits) - 1));
  for (uint32_t x = 0; x < width; x += kLanes) {
    const uint16x8_t sum = vaddq_u16(vld1q_u16(plane + x), vld1q_u16(green + x));
    vst1q_u16(values + x, vandq_u16(vsubq_u16(sum, half), mask));
  }
}

// SampleMap over a row. Values and samples may be the same row. False if a value is not below
// map.value_count.
bool MapRow(const SampleMap& map, const uint16_t* values, uint32_t width, uint16_t* samples) {
  const uint16x8_t max = vdupq_n_u16(static_cast<uint16_t>(map.value_count - 1));
  const int16x8_t shift = vdupq_n_s16(static_cast<int16_t>(map.shift));
  const uint16x8_t offset = vdupq_n_u16(map.offset);
  uint16x8_t excess = vdupq_n_u16(0);
  for (uint32_t x = 0; x < width; x += kLanes) {
    const uint16x8_t v = vld1q_u16(values + x);
    excess = vorrq_u16(excess, vqsubq_u16(v, max));
    vst1q_u16(samples + x, vsubq_u16(vshlq_u16(v, shift), offset));
  }
  if (vmaxvq_u16(excess) != 0) return false;
  if (map.table != nullptr) {
    for (uint32_t x = 0; x < width; ++x) samples[x] = map.table[samples[x]];
  }
  return true;
}

// The low bytes of samples.
void NarrowRow(const uint16_t* samples, uint32_t width, uint8_t* bytes) {
  for (uint32_t x = 0; x < width; x += kLanes)
    vst1_u8(bytes + x, vmovn_u16(vld1q_u16(samples + x)));
}

Status DecodePacked(const ImageInfo& info, const SampleMap& map, const TileRect& rect,
                    const TilePayload& tile, uint32_t rows_wanted, const ImageOutput& output) {
  PackedBody body;
  Status status = ParsePackedBody(tile.data, tile.size, info.channels, info.used_bits,
                                  rect.width_px, rect.height_px, &body);
  if (status != Status::kOk) return status;

  const uint32_t groups = (rect.width_px + kGroupSize - 1) / kGroupSize;
  const uint32_t mask = (1u << info.used_bits) - 1;
  const bool maps_values = !map.keeps_values();
  if (map.value_count <= mask) rows_wanted = rect.height_px;  // a value may be too large
  Row rows[2][kMaxChannels];
  Row samples[kMaxChannels];
  uint8_t bytes[kMaxChannels][kMaxPackedTileSide + kLanes];
  uint16_t folded[kMaxPackedTileSide];
  uint8_t widths[kMaxChannels][kMaxGroupsPerRow];
  for (uint32_t c = 0; c < info.channels; ++c) {
    rows[0][c].Fill(body.channel[c].base);
    rows[1][c].Fill(body.channel[c].base);
    std::fill_n(widths[c], groups, body.channel[c].start_width);
  }

  uint32_t pos = body.residuals_offset;
  for (uint32_t y = 0; y < rect.height_px; ++y) {
    const Row* above = rows[y & 1];
    Row* current = rows[(y & 1) ^ 1];
    for (uint32_t c = 0; c < info.channels; ++c) {
      const PackedChannel& channel = body.channel[c];
      if (channel.layout == ChannelLayout::kConstant) continue;
      uint32_t predictor;
      status = ReadPackedRow<ReadDenseRow>(tile.data, tile.size, channel, y, groups, info.used_bits,
                                           widths[c], &pos, folded, &predictor);
      if (status != Status::kOk) return status;
      if (y >= rows_wanted) continue;
      kReconstruct[predictor](above[c], folded, rect.width_px, mask, &current[c]);
    }
    if (y >= rows_wanted) continue;

    const uint16_t* planes[kMaxChannels];
    const uint8_t* byte_planes[kMaxChannels];
    for (uint32_t c = 0; c < info.channels; ++c) {
      planes[c] = current[c].values();
      uint16_t* values = samples[c].values();
      if (tile.transform == ColorTransform::kSubtractGreen && (c == 0 || c == 2)) {
        AddGreenRow(current[1].values(), rect.width_px, info.used_bits, planes[c], values);
        planes[c] = values;
      }
      if (maps_values) {
        if (!MapRow(map, planes[c], rect.width_px, values)) return Status::kCorruptTile;
        planes[c] = values;
      }
      if (info.sample_bits() == 8) NarrowRow(planes[c], rect.width_px, bytes[c]);
      byte_planes[c] = bytes[c];
    }
    if (info.sample_bits() == 8) {
      Interleave(byte_planes, info.channels, rect.width_px, output.Row(y));
    } else {
      Interleave(planes, info.channels, rect.width_px, output.Row(y));
    }
  }
  return CheckBodyEnd(tile, pos);
}

Status DecodeSimpleTile(const ImageInfo& info, const SampleMap& map, const TileRect& rect,
                        const TilePayload& tile, uint32_t rows, const ImageOutput& output) {
  switch (tile.coding) {
    case TileCoding::kConstant: return DecodeConstantTile(info, map, rect, tile, output);
    case TileCoding::kStored: return DecodeStoredTile(info, map, rect, tile, output);
    default: return DecodePacked(info, map, rect, tile, rows, output);
  }
}

}  // namespace
}  // namespace neon

uint32_t PayloadCheckNeon(const uint8_t* payload, uint32_t size) {
  return neon::PayloadCheck(payload, size);
}

void DecodeTilesNeon(const ImageInfo& info, const SampleMap& map, const RansTables* rans,
                     TileJob* jobs, uint32_t count) {
  DecodeTilesBy<neon::PayloadCheck, neon::DecodeSimpleTile, DecodeModelTilesNeon>(info, map, rans,
                                                                                  jobs, count);
}

}  // namespace l3

#endif  // defined(__aarch64__)
