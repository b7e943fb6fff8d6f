// Rans and match tiles, 32 lanes at a time: the vector operations of AVX2 and AVX-512 for
// rans_lockstep.inc and match_lockstep.inc, which are the decoders. Layer: cpu.
#include "cpu/cpu_engine.h"

#if defined(__x86_64__)

#include "cpu/jpeg_tiles.h"
#include "cpu/rans_lockstep.h"
#include "cpu/x86_lanes.h"

namespace l3 {
namespace {

#define L3_RANS_AVX2 __attribute__((target("avx2,popcnt")))
#define L3_RANS_AVX512 \
  __attribute__((target("avx2,popcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")))

namespace avx2 {

#define L3_RANS_TARGET L3_RANS_AVX2
#define L3_OP L3_RANS_AVX2 __attribute__((always_inline)) inline
using Vector = __m256i;
struct Wide {
  Vector half[2];
};
constexpr uint32_t kWidth = 16;
constexpr uint32_t kParts = 2;
constexpr uint32_t kTilesInTurn = 2;

#define L3_MM(name) _mm256_##name
#define L3_SI(name) _mm256_##name##_si256
#include "cpu/x86_vectors.inc"

L3_OP Vector Repeat16Bytes(const uint8_t* p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
L3_OP Vector SelectOf(Vector mask, Vector yes, Vector no) {
  return _mm256_blendv_epi8(no, yes, mask);
}
L3_OP Vector Mul(Vector a, Vector b) { return _mm256_mullo_epi32(a, b); }
// A mask of the lanes below 2^16.
L3_OP Vector FitsWord(Vector v) { return _mm256_cmpeq_epi32(_mm256_min_epu32(v, Fill(0xFFFF)), v); }
L3_OP Vector PackMasks(Vector low, Vector high) { return PackSigned(low, high); }
L3_OP Vector Equal16(Vector a, Vector b) { return _mm256_cmpeq_epi16(a, b); }
L3_OP bool IsZero(Vector v) { return _mm256_testz_si256(v, v) != 0; }
L3_OP Vector SignOf8(Vector v) { return _mm256_cmpgt_epi8(_mm256_setzero_si256(), v); }

L3_OP Vector MaskOf(uint32_t lanes, uint32_t part) {
  const Vector bits = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096,
                                        8192, 16384, -32768);
  return _mm256_cmpeq_epi16(And(Fill16(lanes >> (kWidth * part)), bits), bits);
}
L3_OP uint32_t LanesOf(const Vector* mask) {
  const Vector bytes = _mm256_packs_epi16(mask[0], mask[1]);
  return static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_permute4x64_epi64(bytes, 0xD8)));
}

struct Table64 {
  Vector quarter[4];  // 16 bytes each, in both halves
};
L3_OP Table64 LoadTable64(const uint8_t* bytes) {
  Table64 table;
  for (uint32_t i = 0; i < 4; ++i) table.quarter[i] = Repeat16Bytes(bytes + 16 * i);
  return table;
}
L3_OP void LookUp64(const Table64& table, const Vector* index, Vector* found) {
  const Vector place = PackBytes(index[0], index[1]);
  // Bytes are chosen by their highest bit, where these have bits 4 and 5 of the place.
  const Vector odd = ShiftLeft16<3>(place);
  const Vector upper = ShiftLeft16<2>(place);
  const Vector low =
      SelectOf(odd, LookUp16(table.quarter[1], place), LookUp16(table.quarter[0], place));
  const Vector high =
      SelectOf(odd, LookUp16(table.quarter[3], place), LookUp16(table.quarter[2], place));
  const Vector bytes = SelectOf(upper, high, low);
  found[0] = ZipLow8(bytes, bytes);
  found[1] = ZipHigh8(bytes, bytes);
}

// A gather is slower on Zen 5, and more so where microcode guards it.
L3_OP __m128i LookUp4(const uint32_t* table, const uint16_t* index) {
  return _mm_setr_epi32(static_cast<int>(table[index[0]]), static_cast<int>(table[index[1]]),
                        static_cast<int>(table[index[2]]), static_cast<int>(table[index[3]]));
}
L3_OP __m128i LookUpEven(const uint32_t* table, uint64_t one, uint64_t other) {
  return _mm_setr_epi32(
      static_cast<int>(table[one & 0xFFFF]), static_cast<int>(table[one >> 32 & 0xFFFF]),
      static_cast<int>(table[other & 0xFFFF]), static_cast<int>(table[other >> 32 & 0xFFFF]));
}
L3_OP Wide LookUp(const uint32_t* table, const uint16_t* index) {
  return {{_mm256_setr_m128i(LookUp4(table, index), LookUp4(table, index + 8)),
           _mm256_setr_m128i(LookUp4(table, index + 4), LookUp4(table, index + 12))}};
}

L3_OP void LookUpHalves(const uint32_t* table, Vector index, Vector* low, Vector* high) {
  alignas(32) uint64_t by_fours[kWidth / 4];
  Store(by_fours, index);
  const Vector even = _mm256_setr_m128i(LookUpEven(table, by_fours[0], by_fours[1]),
                                        LookUpEven(table, by_fours[2], by_fours[3]));
  const Vector odd = _mm256_setr_m128i(LookUpEven(table, by_fours[0] >> 16, by_fours[1] >> 16),
                                       LookUpEven(table, by_fours[2] >> 16, by_fours[3] >> 16));
  *low = _mm256_blend_epi16(even, ShiftLeft<16>(odd), 0xAA);
  *high = _mm256_blend_epi16(ShiftRight<16>(even), odd, 0xAA);
}

using Mask = Vector;
L3_OP Mask EqualMask(Vector a, Vector b) { return Equal16(a, b); }
L3_OP Vector Select(Mask mask, Vector yes, Vector no) { return SelectOf(mask, yes, no); }
L3_OP Vector AddWhereEqual(Vector v, uint32_t bits, Vector a, Vector b) {
  return Add16(v, And(Equal16(a, b), Fill16(bits)));
}
L3_OP void AddTo32(Vector v, Vector* low, Vector* high) {
  const Vector sum = Add16(*low, v);
  const Vector fits = Equal16(sum, AddCapped16(*low, v));
  *low = sum;
  *high = Add16(Add16(*high, Fill16(1)), fits);
}
L3_OP void ShiftLanes(const Vector* v, const uint32_t& first, Vector* shifted) {
  const Vector before = _mm256_set1_epi32(static_cast<int>(first));
  shifted[0] = _mm256_alignr_epi8(v[0], _mm256_permute2x128_si256(before, v[0], 0x21), 14);
  shifted[1] = _mm256_alignr_epi8(v[1], _mm256_permute2x128_si256(v[0], v[1], 0x21), 14);
}
L3_OP void StorePieces(Vector v, uint8_t* const* places) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(places[0]), _mm256_castsi256_si128(v));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(places[1]), _mm256_extracti128_si256(v, 1));
}

L3_OP __m128i SpreadTo8(uint32_t lanes, uint32_t group, const uint8_t* words) {
  const uint32_t before = lanes & ((1u << (8 * group)) - 1);
  const uint8_t* next = words + 2 * __builtin_popcount(before);
  return _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(next)),
                          _mm_loadu_si128(reinterpret_cast<const __m128i*>(
                              kSpreadTable.at[lanes >> (8 * group) & 0xFF])));
}
L3_OP uint32_t Spread(uint32_t lanes, const uint8_t* words, Vector* word) {
  for (uint32_t i = 0; i < kParts; ++i) {
    word[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(SpreadTo8(lanes, 2 * i, words)),
                                      SpreadTo8(lanes, 2 * i + 1, words), 1);
  }
  return static_cast<uint32_t>(__builtin_popcount(lanes));
}

#include "cpu/rans_lockstep.inc"
// Behind what it builds on.
#include "cpu/jpeg_lockstep.inc"

#undef L3_MM
#undef L3_SI
#undef L3_OP
#undef L3_RANS_TARGET

}  // namespace avx2

namespace avx512 {

#define L3_RANS_TARGET L3_RANS_AVX512
#define L3_OP L3_RANS_AVX512 __attribute__((always_inline)) inline
using Vector = __m512i;
// 32 bits a lane, where a Vector has 16.
struct Wide {
  Vector half[2];
};
constexpr uint32_t kWidth = 32;
constexpr uint32_t kParts = 1;
constexpr uint32_t kTilesInTurn = 4;

#define L3_MM(name) _mm512_##name
#define L3_SI(name) _mm512_##name##_si512
#include "cpu/x86_vectors.inc"

// 16 bytes again and again.
L3_OP Vector Repeat16Bytes(const uint8_t* p) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
// By the bits of a mask, all or none of a lane.
L3_OP Vector SelectOf(Vector mask, Vector yes, Vector no) {
  return _mm512_ternarylogic_epi32(mask, yes, no, 0xCA);
}
// The sign of each byte in all of its bits.
L3_OP Vector SignOf8(Vector v) { return _mm512_movm_epi8(_mm512_movepi8_mask(v)); }

L3_OP Vector MaskOf(uint32_t lanes, uint32_t) { return _mm512_movm_epi16(lanes); }
L3_OP bool IsZero(Vector v) { return _mm512_test_epi16_mask(v, v) == 0; }

// A table of 64 bytes.
struct Table64 {
  Vector bytes;
};
L3_OP Table64 LoadTable64(const uint8_t* bytes) { return {Load(bytes)}; }
// The byte that is found fills both bytes of its lane.
L3_OP void LookUp64(const Table64& table, const Vector* index, Vector* found) {
  const Vector twice = Or(index[0], ShiftLeft16<8>(index[0]));
  found[0] = _mm512_permutexvar_epi8(twice, table.bytes);
}

// The low and the high 16 of 32 bits a lane.
struct Halves {
  Vector low, high;
};
// For 4 even lanes.
L3_OP __m128i LookUp4(const uint32_t* table, const uint16_t* at) {
  return _mm_setr_epi32(static_cast<int>(table[at[0]]), static_cast<int>(table[at[2]]),
                        static_cast<int>(table[at[4]]), static_cast<int>(table[at[6]]));
}
L3_OP Vector LookUpEven(const uint32_t* table, const uint16_t* at) {
  const __m256i low = _mm256_setr_m128i(LookUp4(table, at), LookUp4(table, at + 8));
  const __m256i high = _mm256_setr_m128i(LookUp4(table, at + 16), LookUp4(table, at + 24));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
// `at` has the indices of kWidth lanes.
L3_OP Halves LookUp(const uint32_t* table, const uint16_t* at) {
  constexpr __mmask32 kOdd = 0xAAAAAAAA;
  const Vector even = LookUpEven(table, at);
  const Vector odd = LookUpEven(table, at + 1);
  return {_mm512_mask_blend_epi16(kOdd, even, ShiftLeft<16>(odd)),
          _mm512_mask_blend_epi16(kOdd, ShiftRight<16>(even), odd)};
}

// What match_lockstep.inc needs besides. Of entries of a table, the low and the high 16 bits.
L3_OP void LookUpHalves(const uint32_t* table, Vector index, Vector* low, Vector* high) {
  alignas(64) uint16_t at[kWidth];
  Store(at, index);
  const Halves entry = LookUp(table, at);
  *low = entry.low;
  *high = entry.high;
}
// Which lanes, in the form that suits the instruction set.
using Mask = __mmask32;
L3_OP uint32_t LanesOf(const Mask* mask) { return mask[0]; }
L3_OP Mask EqualMask(Vector a, Vector b) { return _mm512_cmpeq_epi16_mask(a, b); }
L3_OP Vector Select(Mask mask, Vector yes, Vector no) {
  return _mm512_mask_blend_epi16(mask, no, yes);
}
// v + bits where a is b, else v.
L3_OP Vector AddWhereEqual(Vector v, uint32_t bits, Vector a, Vector b) {
  return _mm512_mask_add_epi16(v, EqualMask(a, b), v, Fill16(bits));
}
// Adds 16 bits to 32 bits that lie in two vectors.
L3_OP void AddTo32(Vector v, Vector* low, Vector* high) {
  *low = Add16(*low, v);
  *high = _mm512_mask_sub_epi16(*high, _mm512_cmplt_epu16_mask(*low, v), *high, Fill16(0xFFFF));
}
// Each lane gets the value of the lane before it; lane 0 gets `first`, a number that is there
// twice.
L3_OP void ShiftLanes(const Vector* v, const uint32_t& first, Vector* shifted) {
  alignas(64) static constexpr uint8_t kBefore[64] = {
      0,  0,  0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
      20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41,
      42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61};
  const Vector of_first = _mm512_set1_epi32(static_cast<int>(first));
  shifted[0] = _mm512_mask_permutexvar_epi8(of_first, ~__mmask64{3}, Load(kBefore), v[0]);
}
// Each 16 bytes to a place of their own.
L3_OP void StorePieces(Vector v, uint8_t* const* places) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(places[0]), _mm512_castsi512_si128(v));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(places[1]), _mm512_extracti32x4_epi32(v, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(places[2]), _mm512_extracti32x4_epi32(v, 2));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(places[3]), _mm512_extracti32x4_epi32(v, 3));
}

// Gives words in turn to `lanes`, 0 to others. Returns how many.
L3_OP uint32_t Spread(uint32_t lanes, const uint8_t* words, Vector* word) {
  word[0] = _mm512_maskz_expand_epi16(lanes, Load(words));
  return static_cast<uint32_t>(__builtin_popcount(lanes));
}

// What rans_wide_states.inc does, by 16 bits twice: that takes half the vectors.
#define L3_OWN_STATES
using State = Halves;
using Entry = Halves;
struct Tokens {
  Vector folded, raw_bits;
};
L3_OP State JoinState(Vector low, Vector high) { return {low, high}; }
L3_OP Wide WideOf(const State& v) { return {{ZipLow16(v.low, v.high), ZipHigh16(v.low, v.high)}}; }
L3_OP Vector SlotOf(const State& state) { return And(state.low, Fill16(kRansScale - 1)); }
// The upper 16 of 32 bits that are shifted left.
template <int kBits>
L3_OP Vector HighShifted(const Halves& v) {
  return _mm512_shldi_epi16(v.high, v.low, kBits);
}
L3_OP State TakeToken(const Entry& entry, const State& state) {
  const Vector frequency = ShiftRight16<5>(entry.high);
  const Vector quotient = HighShifted<6>(state);  // its lower half
  State next = {Mul16(quotient, frequency), Add16(MulHigh16(quotient, frequency),
                                                  Mul16(ShiftRight16<10>(state.high), frequency))};
  AddTo32(And(entry.low, Fill16(kRansScale - 1)), &next.low, &next.high);
  return next;
}
L3_OP Tokens ReadShortTokens(const Entry& entry) {
  return {And(HighShifted<3>(entry), Fill16(0xFF)), And(ShiftRight16<10>(entry.low), Fill16(7))};
}
L3_OP Tokens ReadTokens(const Entry& entry) {
  const Vector symbol = And(HighShifted<6>(entry), Fill16(0x7FF));
  const Vector k = Sub16(symbol, Fill16(kRansDirectTokens));
  const __mmask32 direct = _mm512_movepi16_mask(k);
  const Vector raw_bits = _mm512_maskz_add_epi16(~direct, Fill16(3), ShiftRight16<1>(k));
  const Vector base = _mm512_mask_add_epi16(symbol, ~direct, Fill16(2), And(k, Fill16(1)));
  return {_mm512_sllv_epi16(base, raw_bits), raw_bits};
}
L3_OP Vector TakeRaw(const Tokens& tokens, State* state) {
  const Vector above = _mm512_sllv_epi16(Fill(0xFFFFFFFF), tokens.raw_bits);
  // folded | (low & ~above)
  const Vector folded = _mm512_ternarylogic_epi32(tokens.folded, state->low, above, 0xF4);
  state->low = _mm512_shrdv_epi16(state->low, state->high, tokens.raw_bits);
  state->high = _mm512_srlv_epi16(state->high, tokens.raw_bits);
  return folded;
}
L3_OP uint32_t KeepStates(uint32_t active, const State* next, const uint8_t* words, State* state) {
  State& of = state[0];
  if (active == 0xFFFFFFFF) {
    of = next[0];
  } else {
    of.low = _mm512_mask_mov_epi16(of.low, active, next[0].low);
    of.high = _mm512_mask_mov_epi16(of.high, active, next[0].high);
  }
  const __mmask32 hungry = _mm512_mask_testn_epi16_mask(active, of.high, of.high);
  of.high = _mm512_mask_mov_epi16(of.high, hungry, of.low);
  of.low = _mm512_mask_expand_epi16(of.low, hungry, Load(words));
  return static_cast<uint32_t>(__builtin_popcount(hungry));
}

#include "cpu/rans_lockstep.inc"
// Behind what it builds on.
#include "cpu/jpeg_lockstep.inc"

#undef L3_OWN_STATES
#undef L3_MM
#undef L3_SI
#undef L3_OP
#undef L3_RANS_TARGET

}  // namespace avx512
}  // namespace

void DecodeModelTilesAvx2(const RansImage& image, RansTileJob* jobs, uint32_t count) {
  avx2::DecodeModelTiles(image, jobs, count);
}

void DecodeModelTilesAvx512(const RansImage& image, RansTileJob* jobs, uint32_t count) {
  avx512::DecodeModelTiles(image, jobs, count);
}

void DecodeJpegTilesAvx2(const JpegTileImage& image, JpegGroupFunction* take, uint32_t block_bytes,
                         JpegTileJob* jobs, uint32_t count) {
  avx2::DecodeJpegTiles(image, take, block_bytes, jobs, count, PayloadCheckAvx2);
}

void DecodeJpegTilesAvx512(const JpegTileImage& image, JpegGroupFunction* take,
                           uint32_t block_bytes, JpegTileJob* jobs, uint32_t count) {
  avx512::DecodeJpegTiles(image, take, block_bytes, jobs, count, PayloadCheckAvx2);
}

}  // namespace l3

#endif  // defined(__x86_64__)
