// Groups of packed rows, from bit fields to folded residuals (format.md 5.3).
// Layer: cpu, x86-64 only. Independent of predictors.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/x86_lanes.h"
#include "format/constants.h"

namespace l3::x86 {

// Unpacks the groups of a row that starts at `p`: up to kUnpackSlackBytes behind
// them are read. `widths` (kMaxGroupsPerRow, in bytes) is 0 behind the last
// group; the places of those groups in `folded` (a whole row) are written too.
template <typename Value>
using UnpackRow = void(const uint8_t* p, const uint8_t* widths, uint32_t groups, Value* folded);

constexpr uint32_t kUnpackSlackBytes = 64;

// How to bring the 8 fields of a group to 8 words. A field of up to kMaxNarrow
// bits lies in two bytes: a shuffle puts them in its word, the product with `up`
// brings the field to the top, the high half of that times `down` to the bottom.
struct alignas(16) NarrowUnpack {
  uint8_t bytes[16];
  uint16_t up[8];
  uint16_t down[8];
};

constexpr uint32_t kMaxNarrow = 10;

// A field of any width: its first two bytes move down, its third one up.
struct alignas(16) WideUnpack {
  uint8_t low_bytes[16];
  uint8_t high_bytes[16];
  uint16_t down[8];
  uint16_t up[8];
  uint16_t mask[8];
};

constexpr uint8_t kZero = 0x80;  // what a shuffle takes for "0 here"

struct UnpackTables {
  NarrowUnpack narrow[kMaxNarrow + 1];
  WideUnpack wide[17];
  // By a sparse group's mask: for each residual which field it is, or kZero.
  uint8_t field_of[256][kGroupSize];
};

constexpr NarrowUnpack MakeNarrowUnpack(uint32_t width) {
  NarrowUnpack unpack{};
  for (uint32_t i = 0; i < kGroupSize; ++i) {
    const uint32_t byte = i * width / 8;
    unpack.bytes[2 * i] = static_cast<uint8_t>(byte);
    unpack.bytes[2 * i + 1] = static_cast<uint8_t>(byte + 1);
    unpack.up[i] = static_cast<uint16_t>(1u << (16 - width - i * width % 8));
    unpack.down[i] = static_cast<uint16_t>(1u << width);
  }
  return unpack;
}

constexpr WideUnpack MakeWideUnpack(uint32_t width) {
  WideUnpack unpack{};
  for (uint32_t i = 0; i < kGroupSize; ++i) {
    const uint8_t byte = static_cast<uint8_t>(i * width / 8);
    const uint8_t next = static_cast<uint8_t>(byte + 1);
    const uint32_t shift = i * width % 8;
    // 2^16 is no word: a field at the start of a byte goes the other way, up by 0.
    unpack.low_bytes[2 * i] = shift == 0 ? kZero : byte;
    unpack.low_bytes[2 * i + 1] = shift == 0 ? kZero : next;
    unpack.high_bytes[2 * i] = shift == 0 ? byte : static_cast<uint8_t>(byte + 2);
    unpack.high_bytes[2 * i + 1] = shift == 0 ? next : kZero;
    unpack.down[i] = static_cast<uint16_t>(1u << (16 - shift));
    unpack.up[i] = static_cast<uint16_t>(shift == 0 ? 1 : 1u << (16 - shift));
    unpack.mask[i] = static_cast<uint16_t>((1u << width) - 1);
  }
  return unpack;
}

constexpr UnpackTables MakeUnpackTables() {
  UnpackTables tables{};
  for (uint32_t width = 0; width <= kMaxNarrow; ++width) {
    tables.narrow[width] = MakeNarrowUnpack(width);
  }
  for (uint32_t width = 0; width <= 16; ++width) tables.wide[width] = MakeWideUnpack(width);
  for (uint32_t mask = 0; mask < 256; ++mask) {
    uint8_t field = 0;
    for (uint32_t i = 0; i < kGroupSize; ++i) {
      tables.field_of[mask][i] = (mask >> i & 1) != 0 ? field++ : kZero;
    }
  }
  return tables;
}

inline constexpr UnpackTables kUnpackTables = MakeUnpackTables();

// The 8 fields of `width` bits at the start of `group`, in words.
L3_AVX2 inline __m128i UnpackNarrow(__m128i group, uint32_t width) {
  const NarrowUnpack& unpack = kUnpackTables.narrow[width];
  const __m128i fields = _mm_shuffle_epi8(group, LoadHalf(unpack.bytes));
  const __m128i raised = _mm_mullo_epi16(fields, LoadHalf(unpack.up));
  return _mm_mulhi_epu16(raised, LoadHalf(unpack.down));
}

L3_AVX2 inline __m128i UnpackWide(__m128i group, uint32_t width) {
  const WideUnpack& unpack = kUnpackTables.wide[width];
  const __m128i low_bytes = _mm_shuffle_epi8(group, LoadHalf(unpack.low_bytes));
  const __m128i high_bytes = _mm_shuffle_epi8(group, LoadHalf(unpack.high_bytes));
  const __m128i low = _mm_mulhi_epu16(low_bytes, LoadHalf(unpack.down));
  const __m128i high = _mm_mullo_epi16(high_bytes, LoadHalf(unpack.up));
  return _mm_and_si128(_mm_or_si128(low, high), LoadHalf(unpack.mask));
}

// Bytes, on AVX2: 4 groups at a time.
L3_AVX2 inline void UnpackBytesAvx2(const uint8_t* p, const uint8_t* widths, uint32_t groups,
                                    uint8_t* folded) {
  for (uint32_t g = 0; g < groups; g += 4) {
    const uint8_t* p1 = p + widths[g];
    const uint8_t* p2 = p1 + widths[g + 1];
    const uint8_t* p3 = p2 + widths[g + 2];
    const __m256i even =
        Join(UnpackNarrow(LoadHalf(p), widths[g]), UnpackNarrow(LoadHalf(p2), widths[g + 2]));
    const __m256i odd =
        Join(UnpackNarrow(LoadHalf(p1), widths[g + 1]), UnpackNarrow(LoadHalf(p3), widths[g + 3]));
    Store(folded + kGroupSize * g, _mm256_packus_epi16(even, odd));
    p = p3 + widths[g + 3];
  }
}

// Words, on AVX2: 2 groups at a time.
template <__m128i (*kUnpack)(__m128i, uint32_t)>
L3_AVX2 inline void UnpackWordGroups(const uint8_t* p, const uint8_t* widths, uint32_t groups,
                                     uint16_t* folded) {
  for (uint32_t g = 0; g < groups; g += 2) {
    const uint8_t* p1 = p + widths[g];
    Store(folded + kGroupSize * g,
          Join(kUnpack(LoadHalf(p), widths[g]), kUnpack(LoadHalf(p1), widths[g + 1])));
    p = p1 + widths[g + 1];
  }
}

L3_AVX2 inline void UnpackWordsAvx2(const uint8_t* p, const uint8_t* widths, uint32_t groups,
                                    uint16_t* folded) {
  if (IsZero(_mm256_subs_epu8(Load(widths), _mm256_set1_epi8(kMaxNarrow)))) {
    UnpackWordGroups<UnpackNarrow>(p, widths, groups, folded);
  } else {
    UnpackWordGroups<UnpackWide>(p, widths, groups, folded);
  }
}

// The 128 bits from bit `bit` of `p` on. Reads 24 bytes.
L3_AVX2 inline __m128i LoadBits(const uint8_t* p, uint32_t bit) {
  const __m128i right = _mm_cvtsi32_si128(static_cast<int>(bit % 8));
  const __m128i left = _mm_cvtsi32_si128(static_cast<int>(64 - bit % 8));
  return _mm_or_si128(_mm_srl_epi64(LoadHalf(p + bit / 8), right),
                      _mm_sll_epi64(LoadHalf(p + bit / 8 + 8), left));
}

// A sparse group: its fields lie at bit `bit` of `p`, one for each bit of `mask`.
L3_AVX2 inline void UnpackSparseGroup(const uint8_t* p, uint32_t bit, uint32_t width, uint32_t mask,
                                      uint8_t* folded) {
  const __m128i words = UnpackNarrow(LoadBits(p, bit), width);
  const __m128i field_of =
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kUnpackTables.field_of[mask]));
  const __m128i fields = _mm_packus_epi16(words, words);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(folded), _mm_shuffle_epi8(fields, field_of));
}

L3_AVX2 inline void UnpackSparseGroup(const uint8_t* p, uint32_t bit, uint32_t width, uint32_t mask,
                                      uint16_t* folded) {
  const __m128i words = UnpackWide(LoadBits(p, bit), width);
  const __m128i field_of =
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kUnpackTables.field_of[mask]));
  const __m128i low = _mm_packus_epi16(_mm_and_si128(words, _mm_set1_epi16(0xFF)), words);
  const __m128i high = _mm_packus_epi16(_mm_srli_epi16(words, 8), words);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(folded),
      _mm_unpacklo_epi8(_mm_shuffle_epi8(low, field_of), _mm_shuffle_epi8(high, field_of)));
}

// Bytes, on AVX-512 VBMI: 8 groups at a time. A permutation brings the (up to 8)
// bytes of each group to a 64-bit lane, which a multishift takes apart.
struct alignas(64) BytesAvx512Tables {
  uint8_t group[64];     // i / 8
  uint8_t place[64];     // i % 8
  uint8_t offset[128];   // 8 * width + place: bit offset of the field
  uint8_t mask[16];      // of a width
};

constexpr BytesAvx512Tables MakeBytesAvx512Tables() {
  BytesAvx512Tables tables{};
  for (uint32_t i = 0; i < 64; ++i) {
    tables.group[i] = static_cast<uint8_t>(i / 8);
    tables.place[i] = static_cast<uint8_t>(i % 8);
  }
  for (uint32_t width = 0; width <= 8; ++width) {
    tables.mask[width] = static_cast<uint8_t>((1u << width) - 1);
    for (uint32_t i = 0; i < 8; ++i) {
      tables.offset[8 * width + i] = static_cast<uint8_t>(width * i);
    }
  }
  return tables;
}

inline constexpr BytesAvx512Tables kBytesAvx512Tables = MakeBytesAvx512Tables();

// Byte i of `bytes` in the eight lanes of group i.
L3_AVX512 inline __m512i SpreadToGroups(uint64_t bytes) {
  const __m512i v = _mm512_castsi128_si512(_mm_cvtsi64_si128(static_cast<int64_t>(bytes)));
  return _mm512_permutexvar_epi8(_mm512_load_si512(kBytesAvx512Tables.group), v);
}

L3_AVX512 inline void UnpackBytesAvx512(const uint8_t* p, const uint8_t* widths, uint32_t groups,
                                        uint8_t* folded) {
  const BytesAvx512Tables& tables = kBytesAvx512Tables;
  const __m512i place = _mm512_load_si512(tables.place);
  const __m512i low_offsets = _mm512_load_si512(tables.offset);
  const __m512i high_offsets = _mm512_load_si512(tables.offset + 64);
  const __m512i masks = _mm512_broadcast_i32x4(LoadHalf(tables.mask));
  for (uint32_t g = 0; g < groups; g += 8) {
    uint64_t width_bytes;
    std::memcpy(&width_bytes, widths + g, sizeof(width_bytes));
    const uint64_t ends = width_bytes * 0x0101010101010101u;  // prefix sums
    const __m512i begin = SpreadToGroups(ends - width_bytes);
    const __m512i width = SpreadToGroups(width_bytes);
    const __m512i bytes =
        _mm512_permutexvar_epi8(_mm512_add_epi8(begin, place), _mm512_loadu_si512(p));
    const __m512i offset = _mm512_permutex2var_epi8(
        low_offsets, _mm512_add_epi8(_mm512_slli_epi16(width, 3), place), high_offsets);
    const __m512i fields = _mm512_multishift_epi64_epi8(offset, bytes);
    _mm512_storeu_si512(folded + kGroupSize * g,
                        _mm512_and_si512(fields, _mm512_shuffle_epi8(masks, width)));
    p += ends >> 56;
  }
}

}  // namespace l3::x86
