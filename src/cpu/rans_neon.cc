// Rans and match tiles, 32 lanes at a time: the vector operations of NEON for rans_lockstep.inc
// and match_lockstep.inc, which are the decoders. rans_x86.cc explains each operation.
// Layer: cpu.
#include "cpu/cpu_engine.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include "cpu/jpeg_tiles.h"
#include "cpu/rans_lockstep.h"

namespace l3 {
namespace {

#define L3_RANS_TARGET
#define L3_OP __attribute__((always_inline)) inline
using Vector = uint16x8_t;
struct Wide {
  Vector half[2];
};
constexpr uint32_t kWidth = 8;
constexpr uint32_t kParts = 4;
constexpr uint32_t kTilesInTurn = 2;

// The same bits as vectors of other elements, and back.
L3_OP uint8x16_t U8(Vector v) { return vreinterpretq_u8_u16(v); }
L3_OP int8x16_t S8(Vector v) { return vreinterpretq_s8_u16(v); }
L3_OP int16x8_t S16(Vector v) { return vreinterpretq_s16_u16(v); }
L3_OP uint32x4_t U32(Vector v) { return vreinterpretq_u32_u16(v); }
L3_OP uint64x2_t U64(Vector v) { return vreinterpretq_u64_u16(v); }
L3_OP int32x4_t S32(Vector v) { return vreinterpretq_s32_u16(v); }
L3_OP Vector From(uint8x16_t v) { return vreinterpretq_u16_u8(v); }
L3_OP Vector From(int16x8_t v) { return vreinterpretq_u16_s16(v); }
L3_OP Vector From(uint32x4_t v) { return vreinterpretq_u16_u32(v); }
L3_OP Vector From(uint64x2_t v) { return vreinterpretq_u16_u64(v); }
L3_OP Vector From(int32x4_t v) { return vreinterpretq_u16_s32(v); }

L3_OP Vector Load(const void* p) { return From(vld1q_u8(static_cast<const uint8_t*>(p))); }
L3_OP void Store(void* p, Vector v) { vst1q_u8(static_cast<uint8_t*>(p), U8(v)); }
L3_OP Vector Fill(uint32_t v) { return From(vdupq_n_u32(v)); }
L3_OP Vector Fill16(uint32_t v) { return vdupq_n_u16(static_cast<uint16_t>(v)); }
L3_OP Vector Repeat16Bytes(const uint8_t* p) { return Load(p); }
L3_OP Vector And(Vector a, Vector b) { return vandq_u16(a, b); }
L3_OP Vector AndNot(Vector a, Vector b) { return vbicq_u16(a, b); }
L3_OP Vector Or(Vector a, Vector b) { return vorrq_u16(a, b); }
L3_OP Vector Xor(Vector a, Vector b) { return veorq_u16(a, b); }
L3_OP Vector SelectOf(Vector mask, Vector yes, Vector no) { return vbslq_u16(mask, yes, no); }
L3_OP Vector Add(Vector a, Vector b) { return From(vaddq_u32(U32(a), U32(b))); }
L3_OP Vector Sub(Vector a, Vector b) { return From(vsubq_u32(U32(a), U32(b))); }
L3_OP Vector Mul(Vector a, Vector b) { return From(vmulq_u32(U32(a), U32(b))); }
L3_OP Vector Min(Vector a, Vector b) { return From(vminq_s32(S32(a), S32(b))); }
L3_OP Vector Max(Vector a, Vector b) { return From(vmaxq_s32(S32(a), S32(b))); }
template <int kBits>
L3_OP Vector ShiftLeft(Vector v) {
  return From(vshlq_n_u32(U32(v), kBits));
}
template <int kBits>
L3_OP Vector ShiftRight(Vector v) {
  return From(vshrq_n_u32(U32(v), kBits));
}
template <int kBits>
L3_OP Vector ShiftRightSigned(Vector v) {
  return From(vshrq_n_s32(S32(v), kBits));
}
L3_OP Vector ShiftLeftBy(Vector v, Vector bits) { return From(vshlq_u32(U32(v), S32(bits))); }
L3_OP Vector ShiftRightBy(Vector v, Vector bits) {
  return From(vshlq_u32(U32(v), vnegq_s32(S32(bits))));
}
L3_OP Vector FloatBits(Vector v) { return vreinterpretq_u16_f32(vcvtq_f32_s32(S32(v))); }
L3_OP Vector Add16(Vector a, Vector b) { return vaddq_u16(a, b); }
L3_OP Vector Sub16(Vector a, Vector b) { return vsubq_u16(a, b); }
L3_OP Vector Mul16(Vector a, Vector b) { return vmulq_u16(a, b); }
L3_OP Vector Min16(Vector a, Vector b) { return From(vminq_s16(S16(a), S16(b))); }
L3_OP Vector Max16(Vector a, Vector b) { return From(vmaxq_s16(S16(a), S16(b))); }
L3_OP Vector LeastOf16(Vector a, Vector b) { return vminq_u16(a, b); }
L3_OP Vector AddCapped16(Vector a, Vector b) { return vqaddq_u16(a, b); }
L3_OP Vector Excess16(Vector a, Vector b) { return vqsubq_u16(a, b); }
L3_OP Vector Average16(Vector a, Vector b) { return vrhaddq_u16(a, b); }
template <int kBits>
L3_OP Vector ShiftLeft16(Vector v) {
  return vshlq_n_u16(v, kBits);
}
template <int kBits>
L3_OP Vector ShiftRight16(Vector v) {
  return vshrq_n_u16(v, kBits);
}
L3_OP Vector FitsWord(Vector v) { return From(vcleq_u32(U32(v), vdupq_n_u32(0xFFFF))); }
L3_OP Vector PackMasks(Vector low, Vector high) { return vuzp1q_u16(low, high); }
L3_OP Vector Equal16(Vector a, Vector b) { return vceqq_u16(a, b); }
L3_OP bool IsZero(Vector v) { return vmaxvq_u16(v) == 0; }
L3_OP Vector Excess8(Vector a, Vector b) { return From(vqsubq_u8(U8(a), U8(b))); }
L3_OP Vector SignOf8(Vector v) { return From(vcltzq_s8(S8(v))); }
L3_OP Vector DotPairs(Vector a, Vector b) {
  const int32x4_t low = vmull_s16(vget_low_s16(S16(a)), vget_low_s16(S16(b)));
  return From(vpaddq_s32(low, vmull_high_s16(S16(a), S16(b))));
}
// Not limited: the decoder asks for no sum that leaves 16 bits.
L3_OP Vector DotBytePairs(Vector a, Vector b) {
  const int16x8_t even = vshrq_n_s16(vshlq_n_s16(S16(b), 8), 8);
  const int16x8_t odd = vshrq_n_s16(S16(b), 8);
  const Vector of_even = Mul16(And(a, Fill16(0xFF)), From(even));
  return vmlaq_u16(of_even, vshrq_n_u16(a, 8), From(odd));
}
L3_OP Vector LookUp16(Vector table, Vector index) { return From(vqtbl1q_u8(U8(table), U8(index))); }
L3_OP Vector ZipLow16(Vector a, Vector b) { return vzip1q_u16(a, b); }
L3_OP Vector ZipHigh16(Vector a, Vector b) { return vzip2q_u16(a, b); }
L3_OP Vector ZipLow8(Vector a, Vector b) { return From(vzip1q_u8(U8(a), U8(b))); }
L3_OP Vector ZipHigh8(Vector a, Vector b) { return From(vzip2q_u8(U8(a), U8(b))); }
L3_OP Vector Pack(Vector low, Vector high) {
  return vqmovun_high_s32(vqmovun_s32(S32(low)), S32(high));
}
L3_OP Vector ZipLow32(Vector a, Vector b) { return From(vzip1q_u32(U32(a), U32(b))); }
L3_OP Vector ZipHigh32(Vector a, Vector b) { return From(vzip2q_u32(U32(a), U32(b))); }
L3_OP Vector ZipLow64(Vector a, Vector b) { return From(vtrn1q_u64(U64(a), U64(b))); }
L3_OP Vector ZipHigh64(Vector a, Vector b) { return From(vtrn2q_u64(U64(a), U64(b))); }

// The bit of each of 8 lanes.
L3_OP Vector LaneBits() {
  constexpr uint16_t kBits[kWidth] = {1, 2, 4, 8, 16, 32, 64, 128};
  return vld1q_u16(kBits);
}
L3_OP Vector MaskOf(uint32_t lanes, uint32_t part) {
  return vtstq_u16(Fill16(lanes >> (kWidth * part) & 0xFF), LaneBits());
}
L3_OP uint32_t LanesOf(const Vector* mask) {
  const Vector bits = LaneBits();
  const Vector low = vpaddq_u16(And(mask[0], bits), And(mask[1], bits));
  const Vector high = vpaddq_u16(And(mask[2], bits), And(mask[3], bits));
  const Vector sums = vpaddq_u16(vpaddq_u16(low, high), low);
  return vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(sums)), 0);
}

struct Table64 {
  uint8x16x4_t bytes;
};
L3_OP Table64 LoadTable64(const uint8_t* bytes) {
  return {{{vld1q_u8(bytes), vld1q_u8(bytes + 16), vld1q_u8(bytes + 32), vld1q_u8(bytes + 48)}}};
}
L3_OP void LookUp64(const Table64& table, const Vector* index, Vector* found) {
  for (uint32_t i = 0; i < kParts; ++i) {
    const Vector twice = Or(index[i], ShiftLeft16<8>(index[i]));
    found[i] = From(vqtbl4q_u8(table.bytes, U8(twice)));
  }
}

L3_OP Vector LookUp4(const uint32_t* table, uint64_t index) {
  uint32x4_t found = vld1q_dup_u32(table + (index & 0xFFFF));
  found = vld1q_lane_u32(table + (index >> 16 & 0xFFFF), found, 1);
  found = vld1q_lane_u32(table + (index >> 32 & 0xFFFF), found, 2);
  return From(vld1q_lane_u32(table + (index >> 48), found, 3));
}
L3_OP Wide LookUp(const uint32_t* table, const uint16_t* at) {
  const uint64x2_t by_fours = U64(Load(at));
  return {
      {LookUp4(table, vgetq_lane_u64(by_fours, 0)), LookUp4(table, vgetq_lane_u64(by_fours, 1))}};
}

L3_OP void LookUpHalves(const uint32_t* table, Vector index, Vector* low, Vector* high) {
  const uint64x2_t by_fours = U64(index);
  const Vector one = LookUp4(table, vgetq_lane_u64(by_fours, 0));
  const Vector other = LookUp4(table, vgetq_lane_u64(by_fours, 1));
  *low = vuzp1q_u16(one, other);
  *high = vuzp2q_u16(one, other);
}

using Mask = Vector;
L3_OP Mask EqualMask(Vector a, Vector b) { return Equal16(a, b); }
L3_OP Vector Select(Mask mask, Vector yes, Vector no) { return SelectOf(mask, yes, no); }
L3_OP Vector AddWhereEqual(Vector v, uint32_t bits, Vector a, Vector b) {
  return Add16(v, And(Equal16(a, b), Fill16(bits)));
}
L3_OP Vector MulHigh16(Vector a, Vector b) {
  const uint32x4_t low = vmull_u16(vget_low_u16(a), vget_low_u16(b));
  return vuzp2q_u16(From(low), From(vmull_high_u16(a, b)));
}
L3_OP void AddTo32(Vector v, Vector* low, Vector* high) {
  *low = Add16(*low, v);
  *high = Sub16(*high, vcltq_u16(*low, v));
}
L3_OP void ShiftLanes(const Vector* v, const uint32_t& first, Vector* shifted) {
  shifted[0] = vextq_u16(Fill(first), v[0], 7);
  for (uint32_t i = 1; i < kParts; ++i) shifted[i] = vextq_u16(v[i - 1], v[i], 7);
}
L3_OP void StorePieces(Vector v, uint8_t* const* places) { Store(places[0], v); }

L3_OP uint32_t Spread(uint32_t lanes, const uint8_t* words, Vector* word) {
  const uint8x8_t counts = vcnt_u8(vreinterpret_u8_u32(vdup_n_u32(lanes)));
  // In byte i, where the words of part i end.
  const uint32_t ends = vget_lane_u32(vreinterpret_u32_u8(counts), 0) * 0x02020202;
  for (uint32_t i = 0; i < kParts; ++i) {
    const uint8_t* begin = i == 0 ? words : words + (ends >> (kWidth * (i - 1)) & 0xFF);
    const uint8_t* table = kSpreadTable.at[lanes >> (kWidth * i) & 0xFF];
    word[i] = LookUp16(Load(begin), Load(table));
  }
  return ends >> 25;
}

#include "cpu/rans_lockstep.inc"
// Behind what it builds on.
#include "cpu/jpeg_lockstep.inc"

#undef L3_OP
#undef L3_RANS_TARGET

}  // namespace

void DecodeModelTilesNeon(const RansImage& image, RansTileJob* jobs, uint32_t count) {
  DecodeModelTiles(image, jobs, count);
}

void DecodeJpegTilesNeon(const JpegTileImage& image, JpegGroupFunction* take, uint32_t block_bytes,
                         JpegTileJob* jobs, uint32_t count) {
  DecodeJpegTiles(image, take, block_bytes, jobs, count, PayloadCheckNeon);
}

}  // namespace l3

#endif  // defined(__aarch64__)
