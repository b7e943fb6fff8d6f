// The vector operations of NEON for jpeg_kernels.inc, which has the kernels; jpeg_kernels_x86.cc
// explains each. Layer: cpu.
#include "cpu/jpeg_kernels.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include <algorithm>
#include <cstring>

namespace l3 {
namespace {

#define L3_JPEG
#define L3_OP __attribute__((always_inline)) inline
using Vector = int16x8_t;
struct Wide {
  int32x4_t low, high;
};
constexpr uint32_t kLanes = 8;
constexpr uint32_t kRowBlocks = 2;

L3_OP int32x4_t As32(Vector v) { return vreinterpretq_s32_s16(v); }
L3_OP uint8x16_t AsBytes(Vector v) { return vreinterpretq_u8_s16(v); }
L3_OP Vector From(uint8x16_t v) { return vreinterpretq_s16_u8(v); }
L3_OP Vector From(uint16x8_t v) { return vreinterpretq_s16_u16(v); }

L3_OP Vector Load(const void* p) { return From(vld1q_u8(static_cast<const uint8_t*>(p))); }
L3_OP void Store(void* p, Vector v) { vst1q_u8(static_cast<uint8_t*>(p), AsBytes(v)); }
L3_OP Vector Fill16(int32_t v) { return vdupq_n_s16(static_cast<int16_t>(v)); }
L3_OP Vector Fill(int32_t v) { return vreinterpretq_s16_s32(vdupq_n_s32(v)); }
// Sums wrap around, which numbers with signs must not: GCC adds them as C++ does.
L3_OP Vector Add16(Vector a, Vector b) {
  return vreinterpretq_s16_u16(vaddq_u16(vreinterpretq_u16_s16(a), vreinterpretq_u16_s16(b)));
}
L3_OP Vector Sub16(Vector a, Vector b) {
  return vreinterpretq_s16_u16(vsubq_u16(vreinterpretq_u16_s16(a), vreinterpretq_u16_s16(b)));
}
L3_OP int32x4_t Add(int32x4_t a, int32x4_t b) {
  return vreinterpretq_s32_u32(vaddq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)));
}
L3_OP int32x4_t Add(int32x4_t a, Vector b) { return Add(a, As32(b)); }
L3_OP int32x4_t Sub(int32x4_t a, int32x4_t b) {
  return vreinterpretq_s32_u32(vsubq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)));
}
L3_OP Vector ZipLow16(Vector a, Vector b) { return vzip1q_s16(a, b); }
L3_OP Vector ZipHigh16(Vector a, Vector b) { return vzip2q_s16(a, b); }
L3_OP Vector ZipLow32(Vector a, Vector b) {
  return vreinterpretq_s16_s32(vzip1q_s32(As32(a), As32(b)));
}
L3_OP Vector ZipHigh32(Vector a, Vector b) {
  return vreinterpretq_s16_s32(vzip2q_s32(As32(a), As32(b)));
}
template <int kBits>
L3_OP Vector ShiftRight16(Vector v) {
  return From(vshrq_n_u16(vreinterpretq_u16_s16(v), kBits));
}
L3_OP Wide Mix(Vector a, int32_t ka, Vector b, int32_t kb) {
  const int16_t first = static_cast<int16_t>(ka);
  const int16_t second = static_cast<int16_t>(kb);
  return {vmlal_n_s16(vmull_n_s16(vget_low_s16(a), first), vget_low_s16(b), second),
          vmlal_n_s16(vmull_n_s16(vget_high_s16(a), first), vget_high_s16(b), second)};
}
L3_OP Wide Times8192(Vector v) {
  return {vshll_n_s16(vget_low_s16(v), 13), vshll_n_s16(vget_high_s16(v), 13)};
}
template <int kShift>
L3_OP Vector Narrow(const Wide& v) {
  return vqmovn_high_s32(vqmovn_s32(vshrq_n_s32(v.low, kShift)), vshrq_n_s32(v.high, kShift));
}
L3_OP Vector Scale(Vector v, int32_t factor) {
  return vqrdmulhq_n_s16(v, static_cast<int16_t>(factor));
}
L3_OP Vector JoinBytes(Vector a, Vector b) { return vorrq_s16(a, vshlq_n_s16(b, 8)); }
L3_OP Vector JoinSamples(Vector a, Vector b) {
  const int8x8x2_t pairs = vzip_s8(vqmovn_s16(a), vqmovn_s16(b));
  const int8x16_t joined = vcombine_s8(pairs.val[0], pairs.val[1]);
  return From(veorq_u8(vreinterpretq_u8_s8(joined), vdupq_n_u8(128)));
}
L3_OP Vector LoadBytes(const uint8_t* p) { return From(vmovl_u8(vld1_u8(p))); }
L3_OP void StoreBytes(uint8_t* p, Vector v) { vst1_u8(p, vmovn_u16(vreinterpretq_u16_s16(v))); }
L3_OP Vector LowBytes(Vector v) { return From(vmovl_u8(vget_low_u8(AsBytes(v)))); }
L3_OP Vector HighBytes(Vector v) { return From(vmovl_high_u8(AsBytes(v))); }
L3_OP Vector SaturateBytes(Vector low, Vector high) {
  return From(vqmovun_high_s16(vqmovun_s16(low), high));
}
L3_OP void StorePixels(const Vector* v, uint8_t* out) {
  vst3q_u8(out, uint8x16x3_t{{AsBytes(v[0]), AsBytes(v[1]), AsBytes(v[2])}});
}
L3_OP void RowsOfBlocks(const uint8_t* blocks, uint8_t* rows, size_t stride) {
  for (uint32_t y = 0; y < 8; ++y) {
    vst1q_u8(rows + y * stride, vcombine_u8(vld1_u8(blocks + 8 * y), vld1_u8(blocks + 64 + 8 * y)));
  }
}

#include "cpu/jpeg_kernels.inc"

}  // namespace

const JpegKernels kJpegKernelsNeon = kKernels;

}  // namespace l3

#endif  // defined(__aarch64__)
