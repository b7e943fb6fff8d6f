// What float operations of PTX compute of one lane's values, by the PTX manual: rounding of each
// kind, the one NaN that arithmetic makes, -0 below 0, subnormals kept or flushed.
// A file that uses this is compiled with -frounding-math.
#pragma once

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace l3::ptx {

// Bits in place of a value, as the type of a source or result.
struct Half {
  uint16_t bits;
};

template <class To, class From>
To SameBits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

inline float OneNan(float value) {
  return std::isnan(value) ? SameBits<float>(uint32_t{0x7FFFFFFF}) : value;
}
inline float Flushed(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}
// .sat: to 0 to 1, NaN to 0.
inline float Saturated(float value) {
  if (!(value > 0)) return 0.0f;
  return value > 1 ? 1.0f : value;
}

template <bool kFlush, bool kSaturate, class Body>
float Rounded(Body body, float a, float b, float c) {
  const float d = kFlush ? body(Flushed(a), Flushed(b), Flushed(c)) : body(a, b, c);
  const float flushed = OneNan(kFlush ? Flushed(d) : d);
  return kSaturate ? Saturated(flushed) : flushed;
}
template <bool kFlush, bool kSaturate>
struct FloatAdd {
  float operator()(float a, float b) const {
    return Rounded<kFlush, kSaturate>([](float x, float y, float) { return x + y; }, a, b, 0);
  }
};
template <bool kFlush, bool kSaturate>
struct FloatSub {
  float operator()(float a, float b) const {
    return Rounded<kFlush, kSaturate>([](float x, float y, float) { return x - y; }, a, b, 0);
  }
};
template <bool kFlush, bool kSaturate>
struct FloatMul {
  float operator()(float a, float b) const {
    return Rounded<kFlush, kSaturate>([](float x, float y, float) { return x * y; }, a, b, 0);
  }
};
template <bool kFlush, bool kSaturate>
struct FloatFma {
  float operator()(float a, float b, float c) const {
    return Rounded<kFlush, kSaturate>([](float x, float y, float z) { return std::fma(x, y, z); },
                                      a, b, c);
  }
};
template <bool kFlush, bool kSaturate>
struct FloatDiv {
  float operator()(float a, float b) const {
    return Rounded<kFlush, kSaturate>([](float x, float y, float) { return x / y; }, a, b, 0);
  }
};
template <bool kFlush, bool kSaturate>
struct FloatReciprocal {
  float operator()(float a) const {
    return Rounded<kFlush, kSaturate>([](float x, float, float) { return 1.0f / x; }, a, 0, 0);
  }
};
template <bool kFlush, bool kSaturate>
struct FloatRoot {
  float operator()(float a) const {
    return Rounded<kFlush, kSaturate>([](float x, float, float) { return std::sqrt(x); }, a, 0, 0);
  }
};
template <bool kFlush>
struct FloatNeg {
  float operator()(float a) const {
    return SameBits<float>(SameBits<uint32_t>(kFlush ? Flushed(a) : a) ^ 0x80000000u);
  }
};
template <bool kFlush>
struct FloatAbs {
  float operator()(float a) const {
    return SameBits<float>(SameBits<uint32_t>(kFlush ? Flushed(a) : a) & 0x7FFFFFFFu);
  }
};
struct CopySign {  // of a, to b
  float operator()(float a, float b) const {
    return SameBits<float>((SameBits<uint32_t>(b) & 0x7FFFFFFFu) |
                           (SameBits<uint32_t>(a) & 0x80000000u));
  }
};
// kNan: one NaN is enough for NaN; else the other value wins.
template <bool kMax, bool kFlush, bool kNan>
struct FloatMinMax {
  float operator()(float a, float b) const {
    const float x = kFlush ? Flushed(a) : a, y = kFlush ? Flushed(b) : b;
    if (std::isnan(x) || std::isnan(y)) {
      return kNan || (std::isnan(x) && std::isnan(y)) ? OneNan(NAN) : std::isnan(x) ? y : x;
    }
    if (x == y) return std::signbit(x) == kMax ? y : x;  // 0 is above -0
    return (x < y) != kMax ? x : y;
  }
};

// Comparisons of which kOrdered are false, the others true, where one is NaN.
enum class Ordering { kEq, kNe, kLt, kLe, kGt, kGe, kNum };
template <Ordering kOrdering, bool kOrdered, bool kFlush>
struct FloatCompare {
  bool operator()(float left, float right) const {
    const float a = kFlush ? Flushed(left) : left, b = kFlush ? Flushed(right) : right;
    if (std::isnan(a) || std::isnan(b)) return !kOrdered;
    switch (kOrdering) {
      case Ordering::kEq: return a == b;
      case Ordering::kNe: return a != b;
      case Ordering::kLt: return a < b;
      case Ordering::kLe: return a <= b;
      case Ordering::kGt: return a > b;
      case Ordering::kGe: return a >= b;
      case Ordering::kNum: break;
    }
    return kOrdered;  // num is true of numbers, nan is not
  }
};

// To an integral value in the rounding that is set.
struct FloatToWhole {
  float operator()(float a) const { return OneNan(std::nearbyint(a)); }
};
template <class D, bool kFlush>
struct FloatToInt {
  D operator()(float a) const {
    // NaN: 0, but in 64 bits the lowest of signed numbers, and the same bits.
    if (std::isnan(a)) return sizeof(D) == 8 ? static_cast<D>(uint64_t{1} << 63) : D{0};
    const float whole = std::nearbyint(kFlush ? Flushed(a) : a);
    using Limits = std::numeric_limits<D>;
    // The least value and what is 1 above the greatest are floats in each rounding.
    if (whole <= static_cast<float>(Limits::min())) return Limits::min();
    if (whole >= std::ldexp(1.0f, Limits::digits)) return Limits::max();
    return static_cast<D>(whole);
  }
};
struct IntToFloat {
  template <class S>
  float operator()(S a) const {
    return static_cast<float>(a);
  }
};
template <bool kFlush, bool kSaturate>
struct FloatCopy {
  float operator()(float a) const {
    const float d = kFlush ? Flushed(a) : a;
    return kSaturate ? Saturated(d) : d;
  }
};

// To half, to nearest or towards zero.
template <bool kNearest>
struct ToHalf {
  Half operator()(float a) const {
    const uint32_t bits = SameBits<uint32_t>(a);
    const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return {0x7FFF};
    if (magnitude == 0x7F800000) return {static_cast<uint16_t>(sign | 0x7C00)};
    // A unit of the last place of the half, in those of the float.
    const uint32_t exponent = magnitude >> 23;
    uint32_t half = 0, rest = 0, unit = 1;
    if (exponent >= 113) {
      half = (magnitude >> 13) - (112u << 10);
      rest = magnitude & 0x1FFF;
      unit = 0x2000;
    } else if (exponent >= 101) {  // subnormal
      const uint32_t shift = 126 - exponent;
      const uint32_t fraction = (magnitude & 0x7FFFFF) | 0x800000;
      half = fraction >> shift;
      unit = 1u << shift;
      rest = fraction & (unit - 1);
    } else {
      rest = 1;
      unit = 4;  // less than a half of it
    }
    if (kNearest && (2 * rest > unit || (2 * rest == unit && (half & 1) != 0))) ++half;
    const uint32_t most = kNearest ? 0x7C00 : 0x7BFF;
    return {static_cast<uint16_t>(sign | (half > most ? most : half))};
  }
};
template <bool kNearest>
struct ToHalfPair {  // a above b
  uint32_t operator()(float a, float b) const {
    return uint32_t{ToHalf<kNearest>()(a).bits} << 16 | ToHalf<kNearest>()(b).bits;
  }
};
struct FromHalf {
  float operator()(Half a) const {
    const uint32_t sign = uint32_t{a.bits} >> 15 << 31, exponent = a.bits >> 10 & 31;
    const uint32_t fraction = a.bits & 1023;
    if (exponent == 31) {
      return fraction != 0 ? OneNan(NAN) : SameBits<float>(sign | 0x7F800000u);
    }
    const float value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                      : std::ldexp(static_cast<float>(fraction | 1024),
                                                   static_cast<int>(exponent) - 25);
    return SameBits<float>(SameBits<uint32_t>(value) | sign);
  }
};

}  // namespace l3::ptx
