// What a rans model means (format.md 5.4): tokens, levels and the tables that
// decode a symbol. Layer: core.
#pragma once

#include "base/portable.h"
#include "format/constants.h"
#include "format/rans_model.h"

namespace l3 {

// What a channel is predicted from. Alpha is a kFirst too.
enum class RansRole : uint8_t { kFirst = 0, kSecond = 1, kThird = 2 };

// Channels are coded green first; `position` counts in coding order.
L3_HOST_DEVICE inline uint32_t RansChannel(uint32_t channels, uint32_t position) {
  return channels >= 3 && position < 2 ? 1 - position : position;
}
L3_HOST_DEVICE inline RansRole GetRansRole(uint32_t channels, uint32_t position) {
  return channels >= 3 && position < 3 ? static_cast<RansRole>(position) : RansRole::kFirst;
}
L3_HOST_DEVICE inline uint32_t RansTapCount(RansRole role) {
  return 8 + 4 * static_cast<uint32_t>(role);
}

// How the rows of a tile are shared out: lane k decodes rows k, k + lanes, ...,
// two pixels behind lane k - 1. A lane begins a row every `period` steps.
struct RansSchedule {
  uint32_t lanes;  // a power of two; those past the last row have nothing to do
  uint32_t period;
  uint32_t steps;  // until the last pixel
};
L3_HOST_DEVICE inline RansSchedule GetRansSchedule(uint32_t width, uint32_t height) {
  uint32_t lanes = 1;
  while (lanes < kRansLanes && 4 * lanes <= width) lanes *= 2;
  const uint32_t period = width > 2 ? width : 2;
  const uint32_t last_row = height - 1;
  return {lanes, period, last_row / lanes * period + last_row % lanes * 2 + width};
}

// A folded residual is base + a field of raw_bits bits.
struct RansToken {
  uint32_t base;
  uint32_t raw_bits;
};
L3_HOST_DEVICE constexpr RansToken GetRansToken(uint32_t token) {
  if (token < kRansDirectTokens) return {token, 0};
  const uint32_t k = token - kRansDirectTokens;
  return {(2 + (k & 1)) << (3 + k / 2), 3 + k / 2};
}
L3_HOST_DEVICE inline uint32_t RansTokenOf(uint32_t folded) {
  if (folded < kRansDirectTokens) return folded;
  const uint32_t exponent = BitLength(folded) - 1;
  return kRansDirectTokens + 2 * (exponent - 4) + (folded >> (exponent - 1) & 1);
}

// Magnitude of a residual as energies see it.
constexpr uint32_t kMaxRansMagnitude = 2047;
L3_HOST_DEVICE inline uint32_t RansMagnitude(uint32_t folded) {
  const uint32_t magnitude = (folded + 1) >> 1;
  return magnitude < kMaxRansMagnitude ? magnitude : kMaxRansMagnitude;
}

// The energy of a sample comes from those of its west and north-east
// neighbours, and goes on into its own.
L3_HOST_DEVICE inline uint32_t MixRansEnergy(uint32_t west, uint32_t northeast) {
  return 3 * west + 2 * northeast;
}
L3_HOST_DEVICE inline uint32_t NextRansEnergy(uint32_t mixed, uint32_t magnitude) {
  return (48 * magnitude + mixed) >> 3;
}

// Four levels an octave; activities stay below 2^19.
L3_HOST_DEVICE inline uint32_t RansLevel(uint32_t activity) {
  const uint32_t v = activity + 8;
  const uint32_t exponent = BitLength(v) - 1;
  return 4 * (exponent - 3) + (v >> (exponent - 2) & 3);
}

// The colours of match tiles (format.md 5.5). Plain data, shared with kernels.
struct ColorTable {
  const uint64_t*
      color;  // null where numbers are values; else the value of channel c from bit 16 * c on
  uint32_t count;         // numbers below this are valid

  L3_HOST_DEVICE uint32_t Value(uint32_t number, uint32_t channel) const {
    if (color == nullptr) return number;
    return static_cast<uint32_t>(color[number] >> (16 * channel)) & 0xFFFF;
  }
};

// A model, ready to decode. A state's lowest bits choose a slot, of 32 bits from
// the lowest up:
//   10 bits: number of the slot among those of its token
//   11 bits: where used_bits is at most 8: raw_bits (3), base (8); else the token
//   11 bits: frequency
// In tables of match tiles it is always the token.
struct RansTables {
  RansModel model;
  ColorTable colors;
  // For engines: of the first numbers the samples as a pixel has them, from the lowest bits up.
  // Null and 0 where they do not need it, or a colour has no samples.
  const uint64_t* pixel_of_number;
  uint32_t pixel_count;
  uint32_t slot[kMaxRansTables][kRansScale];
};

inline void BuildRansTables(const RansModel& model, uint32_t used_bits, RansTables* tables) {
  tables->model = model;
  tables->colors = ColorTable{};
  tables->pixel_of_number = nullptr;
  tables->pixel_count = 0;
  for (uint32_t t = 0; t < model.table_count + model.match_table_count; ++t) {
    const bool is_short = used_bits <= 8 && t < model.table_count;
    uint32_t* slot = tables->slot[t];
    for (uint32_t number = 0; number < kRansTokens; ++number) {
      const RansToken token = GetRansToken(number);
      const uint32_t symbol = is_short ? token.raw_bits | token.base << 3 : number;
      const uint32_t frequency = model.frequency[t][number];
      for (uint32_t i = 0; i < frequency; ++i) *slot++ = i | symbol << 10 | frequency << 21;
    }
  }
}

inline RansToken TokenOfSlot(uint32_t slot, uint32_t used_bits) {
  const uint32_t symbol = slot >> 10 & 0x7FF;
  return used_bits <= 8 ? RansToken{symbol >> 3, symbol & 7} : GetRansToken(symbol);
}

}  // namespace l3
