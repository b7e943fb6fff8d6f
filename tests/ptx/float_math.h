// What float operations of PTX compute of one lane's values, by the PTX manual: in the rounding
// that is set, with the one NaN that arithmetic makes. A file that uses this is compiled with
// -frounding-math.
#pragma once

#include <algorithm>
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
struct FloatAdd {
  float operator()(float a, float b) const { return OneNan(a + b); }
};
struct FloatMul {
  float operator()(float a, float b) const { return OneNan(a * b); }
};
struct FloatFma {
  float operator()(float a, float b, float c) const { return OneNan(std::fma(a, b, c)); }
};
struct FloatNeg {
  float operator()(float a) const { return SameBits<float>(SameBits<uint32_t>(a) ^ 0x80000000u); }
};
struct CopySign {  // of a, to b
  float operator()(float a, float b) const {
    return SameBits<float>((SameBits<uint32_t>(b) & 0x7FFFFFFFu) |
                           (SameBits<uint32_t>(a) & 0x80000000u));
  }
};

struct FloatIsNan {
  bool operator()(float a, float b) const { return std::isnan(a) || std::isnan(b); }
};

// To an integral value in the rounding that is set.
struct FloatToWhole {
  float operator()(float a) const { return OneNan(std::nearbyint(a)); }
};
template <class D>
struct FloatToInt {
  D operator()(float a) const {
    // NaN: 0, but in 64 bits the lowest of signed numbers, and the same bits.
    if (std::isnan(a)) return sizeof(D) == 8 ? static_cast<D>(uint64_t{1} << 63) : D{0};
    const float whole = std::nearbyint(a);
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
// To half, to nearest.
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
    if (2 * rest > unit || (2 * rest == unit && (half & 1) != 0)) ++half;
    return {static_cast<uint16_t>(sign | std::min(half, 0x7C00u))};
  }
};
struct ToHalfPair {  // a above b
  uint32_t operator()(float a, float b) const {
    return uint32_t{ToHalf()(a).bits} << 16 | ToHalf()(b).bits;
  }
};

}  // namespace l3::ptx
