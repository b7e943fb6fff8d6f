// The vector operations of AVX2 and AVX-512 for jpeg_kernels.inc, which has the kernels. Layer:
// cpu.
#include "cpu/jpeg_kernels.h"

#if defined(__x86_64__)

#include <algorithm>
#include <cstring>

#include "cpu/x86_interleave.h"
#include "cpu/x86_lanes.h"

namespace l3 {
namespace {

namespace avx2 {

#define L3_JPEG L3_AVX2
#define L3_OP L3_AVX2 __attribute__((always_inline)) inline
#define L3_MM(name) _mm256_##name
#define L3_SI(name) _mm256_##name##_si256
using Vector = __m256i;
constexpr uint32_t kLanes = 16;
constexpr uint32_t kRowBlocks = 4;

#include "cpu/jpeg_kernels_x86.inc"

// Numbers plus 128, saturated, as the bytes of a lane.
L3_OP Vector JoinSamples(Vector a, Vector b) {
  const Vector low = Fill16(-128);
  const Vector high = Fill16(127);
  a = _mm256_min_epi16(_mm256_max_epi16(a, low), high);
  b = _mm256_min_epi16(_mm256_max_epi16(b, low), high);
  const Vector joined = JoinBytes(_mm256_and_si256(a, Fill16(255)), b);
  return _mm256_xor_si256(joined, _mm256_set1_epi8(-128));
}
L3_OP Vector LoadBytes(const uint8_t* p) { return _mm256_cvtepu8_epi16(x86::LoadHalf(p)); }
L3_OP void StoreBytes(uint8_t* p, Vector v) {
  const Vector bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(v, v), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(bytes));
}
L3_OP void StorePixels(Vector* v, uint8_t* out) { x86::StorePixels<x86::ByteLanes, 3>(v, out); }
// kRowBlocks blocks side by side as rows.
L3_OP void RowsOfBlocks(const uint8_t* blocks, uint8_t* rows, size_t stride) {
  for (uint32_t half = 0; half < 2; ++half) {  // of the rows of a block
    Vector v[4];
    for (uint32_t i = 0; i < 4; ++i) v[i] = Load(blocks + 64 * i + 32 * half);
    const Vector left[2] = {_mm256_unpacklo_epi64(v[0], v[1]), _mm256_unpackhi_epi64(v[0], v[1])};
    const Vector right[2] = {_mm256_unpacklo_epi64(v[2], v[3]), _mm256_unpackhi_epi64(v[2], v[3])};
    for (uint32_t i = 0; i < 2; ++i) {
      uint8_t* row = rows + (4 * half + i) * stride;
      Store(row, x86::JoinLow(left[i], right[i]));
      Store(row + 2 * stride, x86::JoinHigh(left[i], right[i]));
    }
  }
}

#include "cpu/jpeg_kernels.inc"

#undef L3_JPEG
#undef L3_OP
#undef L3_MM
#undef L3_SI

}  // namespace avx2

namespace avx512 {

#define L3_JPEG L3_AVX512
#define L3_OP L3_AVX512 __attribute__((always_inline)) inline
#define L3_MM(name) _mm512_##name
#define L3_SI(name) _mm512_##name##_si512
using Vector = __m512i;
constexpr uint32_t kLanes = 32;
constexpr uint32_t kRowBlocks = 8;

#include "cpu/jpeg_kernels_x86.inc"

L3_OP Vector JoinSamples(Vector a, Vector b) {
  const Vector low = Fill16(-128);
  const Vector high = Fill16(127);
  a = _mm512_min_epi16(_mm512_max_epi16(a, low), high);
  b = _mm512_min_epi16(_mm512_max_epi16(b, low), high);
  // (a & 255) | (b << 8)
  const Vector joined = _mm512_ternarylogic_epi32(a, _mm512_slli_epi16(b, 8), Fill16(255), 0xEC);
  return _mm512_xor_si512(joined, _mm512_set1_epi8(-128));
}
L3_OP Vector LoadBytes(const uint8_t* p) { return _mm512_cvtepu8_epi16(x86::Load(p)); }
L3_OP void StoreBytes(uint8_t* p, Vector v) { x86::Store(p, _mm512_cvtepi16_epi8(v)); }

// Where the bytes of three vectors of pixels come from: of red and green, then of blue, whose
// places the second table has too.
struct PixelTable {
  alignas(64) uint8_t red_green[3][64];
  alignas(64) uint8_t blue[3][64];
  uint64_t is_blue[3];
};
constexpr PixelTable MakePixelTable() {
  PixelTable table{};
  for (uint32_t i = 0; i < 192; ++i) {
    const uint32_t part = i / 64;
    const uint32_t pixel = i / 3;
    table.red_green[part][i % 64] = static_cast<uint8_t>(pixel + (i % 3 == 1 ? 64 : 0));
    table.blue[part][i % 64] = static_cast<uint8_t>(pixel);
    if (i % 3 == 2) table.is_blue[part] |= uint64_t{1} << (i % 64);
  }
  return table;
}
constexpr PixelTable kPixelTable = MakePixelTable();

L3_OP void StorePixels(const Vector* v, uint8_t* out) {
  for (uint32_t i = 0; i < 3; ++i) {
    const Vector two = _mm512_permutex2var_epi8(v[0], Load(kPixelTable.red_green[i]), v[1]);
    Store(out + 64 * i, _mm512_mask_permutexvar_epi8(two, kPixelTable.is_blue[i],
                                                     Load(kPixelTable.blue[i]), v[2]));
  }
}
L3_OP void RowsOfBlocks(const uint8_t* blocks, uint8_t* rows, size_t stride) {
  Vector zipped[2][4];  // of even and odd rows, two blocks each
  for (uint32_t i = 0; i < 4; ++i) {
    const Vector a = Load(blocks + 128 * i);
    const Vector b = Load(blocks + 128 * i + 64);
    zipped[0][i] = _mm512_unpacklo_epi64(a, b);
    zipped[1][i] = _mm512_unpackhi_epi64(a, b);
  }
  for (uint32_t odd = 0; odd < 2; ++odd) {
    const Vector* v = zipped[odd];
    for (uint32_t half = 0; half < 2; ++half) {  // of the rows of a block
      const Vector left = half == 0 ? _mm512_shuffle_i64x2(v[0], v[1], 0x44)
                                    : _mm512_shuffle_i64x2(v[0], v[1], 0xEE);
      const Vector right = half == 0 ? _mm512_shuffle_i64x2(v[2], v[3], 0x44)
                                     : _mm512_shuffle_i64x2(v[2], v[3], 0xEE);
      uint8_t* row = rows + (4 * half + odd) * stride;
      Store(row, _mm512_shuffle_i64x2(left, right, 0x88));
      Store(row + 2 * stride, _mm512_shuffle_i64x2(left, right, 0xDD));
    }
  }
}

#include "cpu/jpeg_kernels.inc"

#undef L3_JPEG
#undef L3_OP
#undef L3_MM
#undef L3_SI

}  // namespace avx512
}  // namespace

const JpegKernels kJpegKernelsAvx2 = avx2::kKernels;
const JpegKernels kJpegKernelsAvx512 = avx512::kKernels;

}  // namespace l3

#endif  // defined(__x86_64__)
