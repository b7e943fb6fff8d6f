// From planes to interleaved pixels and back. Layer: cpu, 64-bit ARM only.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "format/constants.h"

namespace l3::neon {

// Vectors of 16 bytes of values of one size, one or some; those of some are interleaved in memory.
template <uint32_t kValueBytes>
struct Vectors;
template <>
struct Vectors<1> {
  using Value = uint8_t;
  using One = uint8x16_t;
  using Two = uint8x16x2_t;
  using Three = uint8x16x3_t;
  using Four = uint8x16x4_t;
  static One Load(const Value* p) { return vld1q_u8(p); }
  static Two LoadTwo(const Value* p) { return vld2q_u8(p); }
  static Three LoadThree(const Value* p) { return vld3q_u8(p); }
  static Four LoadFour(const Value* p) { return vld4q_u8(p); }
  static void Store(Value* p, One v) { vst1q_u8(p, v); }
  static void Store(Value* p, Two v) { vst2q_u8(p, v); }
  static void Store(Value* p, Three v) { vst3q_u8(p, v); }
  static void Store(Value* p, Four v) { vst4q_u8(p, v); }
};
template <>
struct Vectors<2> {
  using Value = uint16_t;
  using One = uint16x8_t;
  using Two = uint16x8x2_t;
  using Three = uint16x8x3_t;
  using Four = uint16x8x4_t;
  static One Load(const Value* p) { return vld1q_u16(p); }
  static Two LoadTwo(const Value* p) { return vld2q_u16(p); }
  static Three LoadThree(const Value* p) { return vld3q_u16(p); }
  static Four LoadFour(const Value* p) { return vld4q_u16(p); }
  static void Store(Value* p, One v) { vst1q_u16(p, v); }
  static void Store(Value* p, Two v) { vst2q_u16(p, v); }
  static void Store(Value* p, Three v) { vst3q_u16(p, v); }
  static void Store(Value* p, Four v) { vst4q_u16(p, v); }
};
template <>
struct Vectors<4> {
  using Value = uint32_t;
  using One = uint32x4_t;
  using Two = uint32x4x2_t;
  using Three = uint32x4x3_t;
  using Four = uint32x4x4_t;
  static One Load(const Value* p) { return vld1q_u32(p); }
  static Two LoadTwo(const Value* p) { return vld2q_u32(p); }
  static Three LoadThree(const Value* p) { return vld3q_u32(p); }
  static Four LoadFour(const Value* p) { return vld4q_u32(p); }
  static void Store(Value* p, One v) { vst1q_u32(p, v); }
  static void Store(Value* p, Two v) { vst2q_u32(p, v); }
  static void Store(Value* p, Three v) { vst3q_u32(p, v); }
  static void Store(Value* p, Four v) { vst4q_u32(p, v); }
};

// One vector of each plane, from place x, as pixels.
template <typename Value, uint32_t kChannels>
inline void StorePixels(const Value* const* planes, uint32_t x, uint8_t* out) {
  using V = Vectors<sizeof(Value)>;
  const auto load = [&](uint32_t c) {
    return V::Load(reinterpret_cast<const typename V::Value*>(planes[c] + x));
  };
  typename V::Value* to = reinterpret_cast<typename V::Value*>(out);
  if constexpr (kChannels == 1) {
    V::Store(to, load(0));
  } else if constexpr (kChannels == 2) {
    V::Store(to, typename V::Two{{load(0), load(1)}});
  } else if constexpr (kChannels == 3) {
    V::Store(to, typename V::Three{{load(0), load(1), load(2)}});
  } else {
    V::Store(to, typename V::Four{{load(0), load(1), load(2), load(3)}});
  }
}

template <typename Value, uint32_t kChannels>
void InterleaveChannels(const Value* const* planes, uint32_t width, uint8_t* out) {
  constexpr uint32_t kCount = 16 / sizeof(Value);
  constexpr uint32_t kPixelBytes = kChannels * sizeof(Value);
  uint32_t x = 0;
  for (; x + kCount <= width; x += kCount) {
    StorePixels<Value, kChannels>(planes, x, out + kPixelBytes * x);
  }
  if (x < width) {
    alignas(16) uint8_t last[16 * kChannels];
    StorePixels<Value, kChannels>(planes, x, last);
    std::memcpy(out + kPixelBytes * x, last, kPixelBytes * (width - x));
  }
}

// Interleaves `width` values of each plane, of 1, 2 or 4 bytes, to `out`, which is aligned to
// them. Reads whole vectors, and writes nothing behind the last pixel.
template <typename Value>
void Interleave(const Value* const* planes, uint32_t channels, uint32_t width, uint8_t* out) {
  switch (channels) {
    case 1: return InterleaveChannels<Value, 1>(planes, width, out);
    case 2: return InterleaveChannels<Value, 2>(planes, width, out);
    case 3: return InterleaveChannels<Value, 3>(planes, width, out);
    default: return InterleaveChannels<Value, 4>(planes, width, out);
  }
}

// Shares the values of whole vectors of pixels out to planes. Returns how many pixels they have.
template <uint32_t kChannels, typename Value>
uint32_t SplitVectors(const Value* values, uint32_t width, Value* const* planes) {
  using V = Vectors<sizeof(Value)>;
  using Unsigned = typename V::Value;
  constexpr uint32_t kCount = 16 / sizeof(Value);
  const Unsigned* from = reinterpret_cast<const Unsigned*>(values);
  uint32_t x = 0;
  for (; x + kCount <= width; x += kCount, from += kCount * kChannels) {
    const auto place = [&](uint32_t c) { return reinterpret_cast<Unsigned*>(planes[c] + x); };
    const auto store = [&](const auto& vectors) {
      for (uint32_t c = 0; c < kChannels; ++c) V::Store(place(c), vectors.val[c]);
    };
    if constexpr (kChannels == 1) {
      V::Store(place(0), V::Load(from));
    } else if constexpr (kChannels == 2) {
      store(V::LoadTwo(from));
    } else if constexpr (kChannels == 3) {
      store(V::LoadThree(from));
    } else {
      store(V::LoadFour(from));
    }
  }
  return x;
}

}  // namespace l3::neon
