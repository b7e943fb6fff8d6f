// Rans tiles, 32 lanes at a time: the vector operations of AVX2 and AVX-512 for
// rans_lockstep.inc, which is the decoder. Layer: cpu.
#include "cpu/rans_x86.h"

#if defined(__x86_64__)

#include <algorithm>
#include <cstring>

#include "core/rans.h"
#include "cpu/x86_lanes.h"

namespace l3 {
namespace {

// The words of a payload. From any place in it a step's words can be read, those behind
// the payload as 0.
class WordReader {
 public:
  static constexpr uint32_t kStepBytes = 2 * kRansLanes;

  WordReader(const uint8_t* payload, uint32_t size, uint32_t offset)
      : tail_begin_(size - std::min(size, kStepBytes)), size_(size), pos_(offset) {
    payload_ = payload;
    std::memcpy(tail_, payload + tail_begin_, size - tail_begin_);
  }

  const uint8_t* Next() const {
    return pos_ <= tail_begin_ ? payload_ + pos_ : tail_ + (pos_ - tail_begin_);
  }
  // Returns false if there were fewer words.
  bool Advance(uint32_t words) {
    pos_ += 2 * words;
    return pos_ <= size_;
  }
  uint32_t pos() const { return pos_; }

 private:
  const uint8_t* payload_;
  uint32_t tail_begin_;
  uint32_t size_;
  uint32_t pos_;
  uint8_t tail_[3 * kStepBytes] = {};
};

// What one step does in which lanes.
struct StepMasks {
  uint32_t active;
  uint32_t first;  // in the first column
  uint32_t last;   // in the last column
};

#define L3_RANS_AVX2 __attribute__((target("avx2,popcnt")))
#define L3_RANS_AVX512                                                                  \
  __attribute__((target("avx2,popcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2," \
                        "avx512vnni")))

namespace avx2 {

#define L3_RANS_TARGET L3_RANS_AVX2
#define L3_OP L3_RANS_AVX2 inline
using Vector = __m256i;
constexpr uint32_t kWidth = 8;
constexpr uint32_t kParts = 4;
using Mask = __m256i;  // all bits of a lane, or none

L3_OP Vector Load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
L3_OP void Store(void* p, Vector v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
L3_OP Vector Fill(uint32_t v) { return _mm256_set1_epi32(static_cast<int>(v)); }
L3_OP Vector Add(Vector a, Vector b) { return _mm256_add_epi32(a, b); }
L3_OP Vector Sub(Vector a, Vector b) { return _mm256_sub_epi32(a, b); }
L3_OP Vector Mul(Vector a, Vector b) { return _mm256_mullo_epi32(a, b); }
L3_OP Vector And(Vector a, Vector b) { return _mm256_and_si256(a, b); }
L3_OP Vector Or(Vector a, Vector b) { return _mm256_or_si256(a, b); }
L3_OP Vector Xor(Vector a, Vector b) { return _mm256_xor_si256(a, b); }
L3_OP Vector AndNot(Vector a, Vector b) { return _mm256_andnot_si256(b, a); }
L3_OP Vector Merge(Vector a, Vector b, Vector bytes) { return _mm256_blendv_epi8(a, b, bytes); }
template <int kBits>
L3_OP Vector ShiftLeft(Vector v) { return _mm256_slli_epi32(v, kBits); }
template <int kBits>
L3_OP Vector ShiftRight(Vector v) { return _mm256_srli_epi32(v, kBits); }
template <int kBits>
L3_OP Vector ShiftRightSigned(Vector v) { return _mm256_srai_epi32(v, kBits); }
template <int kBits>
L3_OP Vector ShiftLeft16(Vector v) { return _mm256_slli_epi16(v, kBits); }
L3_OP Vector ShiftLeftBy(Vector v, Vector bits) { return _mm256_sllv_epi32(v, bits); }
L3_OP Vector ShiftRightBy(Vector v, Vector bits) { return _mm256_srlv_epi32(v, bits); }
L3_OP Vector Min(Vector a, Vector b) { return _mm256_min_epi32(a, b); }
L3_OP Vector Max(Vector a, Vector b) { return _mm256_max_epi32(a, b); }
L3_OP Vector Clamp(Vector v, Vector high) { return Min(Max(v, _mm256_setzero_si256()), high); }
L3_OP Vector AbsoluteDifference8(Vector a, Vector b) {
  return Or(_mm256_subs_epu8(a, b), _mm256_subs_epu8(b, a));
}
L3_OP Vector AbsoluteDifference(Vector a, Vector b) { return _mm256_abs_epi32(Sub(a, b)); }
L3_OP Vector DotPairs(Vector a, Vector b) { return _mm256_madd_epi16(a, b); }
L3_OP Vector AddDotBytes(Vector sum, Vector a, Vector b) {
  const Vector even = DotPairs(And(a, Fill(0x00FF00FF)), _mm256_srai_epi16(ShiftLeft16<8>(b), 8));
  const Vector odd = DotPairs(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
  return Add(sum, Add(even, odd));
}
L3_OP Vector JoinHalves(Vector low, Vector high) { return _mm256_blend_epi16(low, high, 0xAA); }
template <int kA, int kB, int kC, int kD>
L3_OP Vector ShuffleBytes(Vector v) {
  constexpr int kOrder = kA | kB << 8 | kC << 16 | kD << 24;
  return _mm256_shuffle_epi8(
      v, _mm256_add_epi32(_mm256_set1_epi32(kOrder),
                          _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C, 0, 0x04040404,
                                            0x08080808, 0x0C0C0C0C)));
}
L3_OP Mask ToMask(uint32_t lanes, uint32_t part) {
  const Vector bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(And(Fill(lanes >> (kWidth * part)), bits), bits);
}
L3_OP Vector Select(Mask mask, Vector yes, Vector no) { return _mm256_blendv_epi8(no, yes, mask); }
L3_OP uint32_t ToBits(Mask mask) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(mask)));
}
L3_OP uint32_t IsLess(Vector a, Vector b) {
  return ToBits(_mm256_cmpeq_epi32(_mm256_max_epu32(a, b), a)) ^ 0xFF;
}
L3_OP uint32_t IsEqual(Vector a, Vector b) { return ToBits(_mm256_cmpeq_epi32(a, b)); }
L3_OP Vector Gather(const uint32_t* base, Vector index) {
  return _mm256_i32gather_epi32(reinterpret_cast<const int*>(base), index, 4);
}
L3_OP Vector FloatBits(Vector v) { return _mm256_castps_si256(_mm256_cvtepi32_ps(v)); }
L3_OP Vector LookUp8(Vector table, Vector index) {
  return _mm256_permutevar8x32_epi32(table, index);
}
struct Table64 {
  Vector quarter[4];  // 16 bytes each, in both halves
};
L3_OP Table64 LoadTable64(const uint8_t* bytes) {
  Table64 table;
  for (uint32_t i = 0; i < 4; ++i) {
    table.quarter[i] = _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 16 * i)));
  }
  return table;
}
L3_OP Vector LookUp64(const Table64& table, Vector index) {
  Vector found = _mm256_setzero_si256();
  for (uint32_t i = 0; i < 4; ++i) {
    // Bytes that are not of this quarter get their highest bit, and find 0.
    const Vector place = _mm256_sub_epi8(index, Fill(16 * i));
    found = Or(found, _mm256_shuffle_epi8(table.quarter[i],
                                          _mm256_adds_epu8(place, _mm256_set1_epi8(0x70))));
  }
  return And(found, Fill(0xFF));
}
L3_OP void MoveUp(const Vector* v, uint32_t first, Vector* out) {
  const Vector one_up = _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6);
  Vector below = Fill(first);
  for (uint32_t i = 0; i < kParts; ++i) {
    const Vector rotated = _mm256_permutevar8x32_epi32(v[i], one_up);
    out[i] = _mm256_blend_epi32(rotated, below, 1);
    below = rotated;
  }
}

// For each set of lanes the number, among those in the set, of each lane.
struct SpreadTable {
  uint8_t at[256][8];
};
constexpr SpreadTable MakeSpreadTable() {
  SpreadTable table{};
  for (uint32_t lanes = 0; lanes < 256; ++lanes) {
    uint8_t number = 0;
    for (uint32_t lane = 0; lane < 8; ++lane) {
      table.at[lanes][lane] = number;
      number = static_cast<uint8_t>(number + (lanes >> lane & 1));
    }
  }
  return table;
}
constexpr SpreadTable kSpreadTable = MakeSpreadTable();

L3_OP void Refill(uint32_t lanes, const uint8_t* words, Vector* state) {
  for (uint32_t i = 0; i < kParts; ++i) {
    const uint32_t here = lanes >> (kWidth * i) & 0xFF;
    const Vector order = _mm256_cvtepu8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kSpreadTable.at[here])));
    const Vector in_turn = _mm256_cvtepu16_epi32(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(words)));
    const Vector word = _mm256_permutevar8x32_epi32(in_turn, order);
    state[i] = Select(ToMask(lanes, i), Or(ShiftLeft<16>(state[i]), word), state[i]);
    words += 2 * __builtin_popcount(here);
  }
}

#include "cpu/rans_lockstep.inc"

#undef L3_OP
#undef L3_RANS_TARGET

}  // namespace avx2

namespace avx512 {

#define L3_RANS_TARGET L3_RANS_AVX512
#define L3_OP L3_RANS_AVX512 inline
using Vector = __m512i;
constexpr uint32_t kWidth = 16;
constexpr uint32_t kParts = 2;
using Mask = __mmask16;

L3_OP Vector Load(const void* p) { return _mm512_loadu_si512(p); }
L3_OP void Store(void* p, Vector v) { _mm512_storeu_si512(p, v); }
L3_OP Vector Fill(uint32_t v) { return _mm512_set1_epi32(static_cast<int>(v)); }
L3_OP Vector Add(Vector a, Vector b) { return _mm512_add_epi32(a, b); }
L3_OP Vector Sub(Vector a, Vector b) { return _mm512_sub_epi32(a, b); }
L3_OP Vector Mul(Vector a, Vector b) { return _mm512_mullo_epi32(a, b); }
L3_OP Vector And(Vector a, Vector b) { return _mm512_and_si512(a, b); }
L3_OP Vector Or(Vector a, Vector b) { return _mm512_or_si512(a, b); }
L3_OP Vector Xor(Vector a, Vector b) { return _mm512_xor_si512(a, b); }
// b where bits of `bits` are set, else a
L3_OP Vector Merge(Vector a, Vector b, Vector bits) {
  return _mm512_ternarylogic_epi32(bits, b, a, 0xCA);
}
L3_OP Vector AndNot(Vector a, Vector b) { return _mm512_andnot_si512(b, a); }  // a & ~b
template <int kBits>
L3_OP Vector ShiftLeft(Vector v) { return _mm512_slli_epi32(v, kBits); }
template <int kBits>
L3_OP Vector ShiftRight(Vector v) { return _mm512_srli_epi32(v, kBits); }
template <int kBits>
L3_OP Vector ShiftRightSigned(Vector v) { return _mm512_srai_epi32(v, kBits); }
template <int kBits>
L3_OP Vector ShiftLeft16(Vector v) { return _mm512_slli_epi16(v, kBits); }
L3_OP Vector ShiftLeftBy(Vector v, Vector bits) { return _mm512_sllv_epi32(v, bits); }
L3_OP Vector ShiftRightBy(Vector v, Vector bits) { return _mm512_srlv_epi32(v, bits); }
L3_OP Vector Clamp(Vector v, Vector high) {
  return _mm512_min_epi32(_mm512_max_epi32(v, _mm512_setzero_si512()), high);
}
L3_OP Vector Min(Vector a, Vector b) { return _mm512_min_epi32(a, b); }
L3_OP Vector Max(Vector a, Vector b) { return _mm512_max_epi32(a, b); }
L3_OP Vector AbsoluteDifference8(Vector a, Vector b) {
  return Or(_mm512_subs_epu8(a, b), _mm512_subs_epu8(b, a));
}
L3_OP Vector AbsoluteDifference(Vector a, Vector b) { return _mm512_abs_epi32(Sub(a, b)); }
// Of pairs of signed 16-bit numbers, the sum of products.
L3_OP Vector DotPairs(Vector a, Vector b) { return _mm512_madd_epi16(a, b); }
// sum + the products of four unsigned bytes and four signed ones
L3_OP Vector AddDotBytes(Vector sum, Vector a, Vector b) { return _mm512_dpbusd_epi32(sum, a, b); }
// 16-bit halves: the high one from b
L3_OP Vector JoinHalves(Vector low, Vector high) {
  return _mm512_mask_mov_epi16(low, 0xAAAAAAAA, high);
}
template <int kA, int kB, int kC, int kD>
L3_OP Vector ShuffleBytes(Vector v) {
  constexpr int kOrder = kA | kB << 8 | kC << 16 | kD << 24;
  return _mm512_shuffle_epi8(
      v, _mm512_add_epi32(_mm512_set1_epi32(kOrder),
                          _mm512_set4_epi32(0x0C0C0C0C, 0x08080808, 0x04040404, 0)));
}
L3_OP Mask ToMask(uint32_t lanes, uint32_t part) {
  return static_cast<Mask>(lanes >> (kWidth * part));
}
L3_OP Vector Select(Mask mask, Vector yes, Vector no) {
  return _mm512_mask_mov_epi32(no, mask, yes);
}
L3_OP uint32_t IsLess(Vector a, Vector b) { return _mm512_cmplt_epu32_mask(a, b); }
L3_OP uint32_t IsEqual(Vector a, Vector b) { return _mm512_cmpeq_epi32_mask(a, b); }
L3_OP Vector Gather(const uint32_t* base, Vector index) {
  return _mm512_i32gather_epi32(index, base, 4);
}
// Level of an activity: two bits of a float's fraction, and its exponent.
L3_OP Vector FloatBits(Vector v) { return _mm512_castps_si512(_mm512_cvtepi32_ps(v)); }
// Entry of a table of at most 8 entries.
L3_OP Vector LookUp8(Vector table, Vector index) {
  return _mm512_permutexvar_epi32(index, table);
}
// A table of 64 bytes.
struct Table64 {
  Vector bytes;
};
L3_OP Table64 LoadTable64(const uint8_t* bytes) { return {Load(bytes)}; }
L3_OP Vector LookUp64(const Table64& table, Vector index) {
  return _mm512_maskz_permutexvar_epi8(0x1111111111111111, index, table.bytes);
}
// Each lane gets what the lane below has; lane 0 gets `first`.
L3_OP void MoveUp(const Vector* v, uint32_t first, Vector* out) {
  out[1] = _mm512_alignr_epi32(v[1], v[0], 15);
  out[0] = _mm512_mask_set1_epi32(_mm512_alignr_epi32(v[0], v[0], 15), 1,
                                  static_cast<int>(first));
}
// Refills states in `lanes` with words in turn.
L3_OP void Refill(uint32_t lanes, const uint8_t* words, Vector* state) {
  const __m512i spread = _mm512_maskz_expand_epi16(lanes, Load(words));
  const __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(spread));
  const __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(spread, 1));
  state[0] = Select(ToMask(lanes, 0), Or(ShiftLeft<16>(state[0]), low), state[0]);
  state[1] = Select(ToMask(lanes, 1), Or(ShiftLeft<16>(state[1]), high), state[1]);
}

#include "cpu/rans_lockstep.inc"

#undef L3_OP
#undef L3_RANS_TARGET

}  // namespace avx512
}  // namespace

Status DecodeRansTileAvx2(const ImageInfo& info, const SampleMap& map, const RansTables& rans, const TileRect& rect, const TilePayload& tile,
                          const ImageOutput& output) {
  return avx2::DecodeRansTile(info, map, rans, rect, tile, output);
}

Status DecodeRansTileAvx512(const ImageInfo& info, const SampleMap& map, const RansTables& rans, const TileRect& rect, const TilePayload& tile,
                            const ImageOutput& output) {
  return avx512::DecodeRansTile(info, map, rans, rect, tile, output);
}

}  // namespace l3

#endif  // defined(__x86_64__)
