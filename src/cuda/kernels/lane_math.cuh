// Arithmetic on the bytes and halves of words, which a GPU has instructions
// for. Layer: cuda. The host's versions are for the emulation.
#pragma once

#include <cstdint>
#include <cstring>

#include "cuda/kernels/warp.h"

namespace l3 {

// Bits `shift` modulo 32 and up of hi:lo.
L3_DEVICE uint32_t FunnelShift(uint32_t lo, uint32_t hi, uint32_t shift) {
#if defined(__CUDA_ARCH__)
  return __funnelshift_r(lo, hi, shift);
#else
  return static_cast<uint32_t>((uint64_t{hi} << 32 | lo) >> (shift % 32));
#endif
}

// The same for a `shift` of 0 to 32.
L3_DEVICE uint32_t FunnelShiftTo32(uint32_t lo, uint32_t hi, uint32_t shift) {
#if defined(__CUDA_ARCH__)
  return __funnelshift_rc(lo, hi, shift);
#else
  return static_cast<uint32_t>((uint64_t{hi} << 32 | lo) >> shift);
#endif
}

// A word of bytes of `a` (0 to 3) and `b` (4 to 7): each of the four digits of
// `order` picks one, the lowest digit the lowest byte.
L3_DEVICE uint32_t PermuteBytes(uint32_t a, uint32_t b, uint32_t order) {
#if defined(__CUDA_ARCH__)
  uint32_t word;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(a), "r"(b), "r"(order));
  return word;
#else
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t word = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    word |= static_cast<uint32_t>(bytes >> (8 * (order >> (4 * i) & 7)) & 0xFF) << (8 * i);
  }
  return word;
#endif
}

// Low 16 bits of both, and high 16 bits of both; those of `a` come low.
L3_DEVICE uint32_t LowHalves(uint32_t a, uint32_t b) { return PermuteBytes(a, b, 0x5410); }
L3_DEVICE uint32_t HighHalves(uint32_t a, uint32_t b) { return PermuteBytes(a, b, 0x7632); }

L3_DEVICE uint32_t ByteAt(uint32_t word, uint32_t i) { return word >> (8 * i) & 0xFF; }

L3_DEVICE uint32_t PopCount(uint32_t v) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint32_t>(__popc(static_cast<int>(v)));
#else
  return static_cast<uint32_t>(__builtin_popcount(v));
#endif
}

// The number of the highest one; `v` is not 0.
L3_DEVICE uint32_t HighestBit(uint32_t v) {
#if defined(__CUDA_ARCH__)
  return 31 - static_cast<uint32_t>(__clz(static_cast<int>(v)));
#else
  return 31 - static_cast<uint32_t>(__builtin_clz(v));
#endif
}

// Bits of `a` where `mask` has ones, of `b` elsewhere.
L3_DEVICE uint32_t Select(uint32_t mask, uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  uint32_t word;
  asm("lop3.b32 %0, %1, %2, %3, 0xCA;" : "=r"(word) : "r"(mask), "r"(a), "r"(b));
  return word;
#else
  return (a & mask) | (b & ~mask);
#endif
}

// Sums of products on top of `sum`: of the four bytes of `a` and of `b`, or of
// the two halves of `a` and the low or the high two bytes of `b`. All are
// unsigned but, in SignedDot...(), those of `b`.
L3_DEVICE uint32_t Dot(uint32_t a, uint32_t b, uint32_t sum) {
#if defined(__CUDA_ARCH__)
  asm("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
#else
  for (uint32_t i = 0; i < 4; ++i) sum += ByteAt(a, i) * ByteAt(b, i);
#endif
  return sum;
}
L3_DEVICE uint32_t DotLow(uint32_t a, uint32_t b, uint32_t sum) {
#if defined(__CUDA_ARCH__)
  asm("dp2a.lo.u32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
#else
  sum += (a & 0xFFFF) * ByteAt(b, 0) + (a >> 16) * ByteAt(b, 1);
#endif
  return sum;
}
L3_DEVICE int32_t SignedDot(uint32_t a, uint32_t b, int32_t sum) {
#if defined(__CUDA_ARCH__)
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
#else
  for (uint32_t i = 0; i < 4; ++i) {
    sum += static_cast<int32_t>(ByteAt(a, i)) * static_cast<int8_t>(ByteAt(b, i));
  }
#endif
  return sum;
}
L3_DEVICE int32_t SignedDotLow(uint32_t a, uint32_t b, int32_t sum) {
#if defined(__CUDA_ARCH__)
  asm("dp2a.lo.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
#else
  sum += static_cast<int32_t>(a & 0xFFFF) * static_cast<int8_t>(ByteAt(b, 0)) +
         static_cast<int32_t>(a >> 16) * static_cast<int8_t>(ByteAt(b, 1));
#endif
  return sum;
}
L3_DEVICE int32_t SignedDotHigh(uint32_t a, uint32_t b, int32_t sum) {
#if defined(__CUDA_ARCH__)
  asm("dp2a.hi.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
  return sum;
#else
  return SignedDotLow(a, b >> 16, sum);
#endif
}

// a * b + c in one instruction, where the compiler would see shifts and sums.
L3_DEVICE uint32_t MultiplyAdd(uint32_t a, uint32_t b, uint32_t c) {
#if defined(__CUDA_ARCH__)
  asm("mad.lo.u32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
  return c;
#else
  return a * b + c;
#endif
}

// |a - b| of each of the four bytes.
L3_DEVICE uint32_t ByteDistances(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  return __vabsdiffu4(a, b);
#else
  uint32_t word = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t x = ByteAt(a, i);
    const uint32_t y = ByteAt(b, i);
    word |= (x < y ? y - x : x - y) << (8 * i);
  }
  return word;
#endif
}

// v kept between 0 and `high`.
L3_DEVICE int32_t Clamp(int32_t v, int32_t high) {
#if defined(__CUDA_ARCH__)
  return __vimin_s32_relu(v, high);
#else
  return v < 0 ? 0 : v < high ? v : high;
#endif
}

// Two numbers kept between 0 and 255, in the low bytes, the first lowest; those of `rest` come
// above.
L3_DEVICE uint32_t PackBytes(int32_t first, int32_t second, uint32_t rest) {
#if defined(__CUDA_ARCH__)
  uint32_t word;
  asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(second), "r"(first), "r"(rest));
  return word;
#else
  return static_cast<uint32_t>(Clamp(first, 255) | Clamp(second, 255) << 8) | rest << 16;
#endif
}
// The same between -128 and 127.
L3_DEVICE uint32_t PackSignedBytes(int32_t first, int32_t second, uint32_t rest) {
#if defined(__CUDA_ARCH__)
  uint32_t word;
  asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(second), "r"(first), "r"(rest));
  return word;
#else
  const auto byte = [](int32_t v) { return static_cast<uint32_t>(Clamp(v + 128, 255) ^ 128); };
  return byte(first) | byte(second) << 8 | rest << 16;
#endif
}

// Two numbers kept between -2^15 and 2^15 - 1, the first low.
L3_DEVICE uint32_t PackHalves(int32_t first, int32_t second) {
#if defined(__CUDA_ARCH__)
  uint32_t word;
  asm("cvt.pack.sat.s16.s32 %0, %1, %2;" : "=r"(word) : "r"(second), "r"(first));
  return word;
#else
  const auto half = [](int32_t v) {
    return static_cast<uint32_t>(v < INT16_MIN ? INT16_MIN : v > INT16_MAX ? INT16_MAX : v);
  };
  return (half(first) & 0xFFFF) | half(second) << 16;
#endif
}

L3_DEVICE float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// a * b + c, for an exact product.
L3_DEVICE float AddProduct(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return a * b + c;
#endif
}

// For a v below 2^23, the bits of the float 2^23 + v are kFloatOffset + v.
constexpr uint32_t kFloatOffset = 0x4B000000;

// The bits of the float v, from kFloatOffset + v.
L3_DEVICE uint32_t FloatBits(uint32_t offset_v) {
  const float v = FloatOf(offset_v) - FloatOf(kFloatOffset);
  uint32_t bits;
  std::memcpy(&bits, &v, sizeof(bits));
  return bits;
}

}  // namespace l3
