// What integer operations of PTX compute of one lane's values, by the PTX manual.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace l3::ptx {

template <class T>
using Unsigned = std::make_unsigned_t<T>;
// Twice as wide.
template <class T>
using Wide =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                       std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;

// Arithmetic that wraps, without the promotions of C++ that would overflow.
template <class T>
T Wrap(uint64_t value) {
  return static_cast<T>(static_cast<Unsigned<T>>(value));
}
template <class T>
uint64_t Bits(T value) {
  return static_cast<uint64_t>(static_cast<Unsigned<T>>(value));
}

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return Wrap<T>(Bits(a) + Bits(b));
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) const {
    return Wrap<T>(Bits(a) - Bits(b));
  }
};
struct MulLow {
  template <class T>
  T operator()(T a, T b) const {
    return Wrap<T>(Bits(a) * Bits(b));
  }
};
struct MulHigh {
  uint32_t operator()(uint32_t a, uint32_t b) const {
    return static_cast<uint32_t>(uint64_t{a} * b >> 32);
  }
};
struct MulWide {
  template <class T>
  Wide<T> operator()(T a, T b) const {
    return static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b);
  }
};
struct MadLow {
  template <class T>
  T operator()(T a, T b, T c) const {
    return Wrap<T>(Bits(a) * Bits(b) + Bits(c));
  }
};
struct MadWide {
  template <class T>
  Wide<T> operator()(T a, T b, Wide<T> c) const {
    return Add()(MulWide()(a, b), c);
  }
};
// By zero the manual leaves the result open; GPUs have all bits set.
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    return b == 0 ? static_cast<T>(~T{0}) : static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  T operator()(T a, T b) const {
    return b == 0 ? a : static_cast<T>(a % b);
  }
};
struct Neg {
  template <class T>
  T operator()(T a) const {
    return Wrap<T>(0 - Bits(a));
  }
};
struct Abs {
  template <class T>
  T operator()(T a) const {
    return a < 0 ? Neg()(a) : a;
  }
};
template <int32_t kLeast, int32_t kMost>
struct PackBytes {  // cvt.pack.sat.u8, .s8
  uint32_t operator()(int32_t a, int32_t b, uint32_t c) const {
    const auto byte = [](int32_t v) { return Bits(std::clamp(v, kLeast, kMost)) & 0xFF; };
    return c << 16 | byte(a) << 8 | byte(b);
  }
};
struct PackHalves {  // cvt.pack.sat.s16
  uint32_t operator()(int32_t a, int32_t b) const {
    const auto half = [](int32_t v) { return Bits(std::clamp(v, -32768, 32767)); };
    return half(a) << 16 | (half(b) & 0xFFFF);
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct MinAboveZero {  // .relu
  int32_t operator()(int32_t a, int32_t b) const { return std::max(0, std::min(a, b)); }
};
struct Copy {
  template <class T>
  T operator()(T a) const {
    return a;
  }
};
// Shifts by more than all bits leave what shifts by all bits do.
struct ShiftLeft {
  template <class T>
  T operator()(T a, uint32_t n) const {
    return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << n);
  }
};
struct ShiftRight {
  template <class T>
  T operator()(T a, uint32_t n) const {
    constexpr uint32_t kLast = 8 * sizeof(T) - 1;
    if (std::is_signed_v<T>) return static_cast<T>(a >> (n < kLast ? n : kLast));
    return n > kLast ? T{0} : static_cast<T>(a >> n);
  }
};
template <bool kLeft, bool kClamp>
struct Funnel {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    const uint32_t n = kClamp ? std::min(c, uint32_t{32}) : c & 31;
    const uint64_t both = uint64_t{b} << 32 | a;
    return static_cast<uint32_t>(kLeft ? (both << n) >> 32 : both >> n);
  }
};
struct Logic3 {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c, uint32_t table) const {
    uint32_t d = 0;
    for (uint32_t i = 0; i < 8; ++i) {
      d |= (0u - (table >> i & 1)) & (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    }
    return d;
  }
};
struct CountOnes {
  template <class T>
  uint32_t operator()(T a) const {
    return static_cast<uint32_t>(__builtin_popcountll(a));
  }
};
struct CountLeadingZeros {
  uint32_t operator()(uint32_t a) const {
    return a == 0 ? 32 : static_cast<uint32_t>(__builtin_clz(a));
  }
};
// Positions and lengths count by their lowest 8 bits.
struct ExtractField {  // of a number without a sign
  uint32_t operator()(uint32_t a, uint32_t position, uint32_t length) const {
    const uint32_t begin = position & 255, count = std::min(length & 255, 32u);
    return begin < 32 ? static_cast<uint32_t>(a >> begin & ((uint64_t{1} << count) - 1)) : 0;
  }
};
struct InsertField {
  template <class T>
  T operator()(T a, T b, uint32_t position, uint32_t length) const {
    constexpr uint32_t kBits = 8 * sizeof(T);
    const uint32_t begin = position & 255;
    if (begin >= kBits) return b;
    const uint32_t count = std::min(length & 255, kBits - begin);
    const uint64_t ones = count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
    const uint64_t mask = ones << begin;
    return static_cast<T>((uint64_t{b} & ~mask) | (uint64_t{a} << begin & mask));
  }
};

struct Permute {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    const uint64_t both = uint64_t{b} << 32 | a;
    uint32_t d = 0;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t chosen = c >> 4 * i;
      uint32_t byte = static_cast<uint32_t>(both >> 8 * (chosen & 7)) & 255;
      if ((chosen & 8) != 0) byte = byte & 128 ? 255 : 0;  // its sign
      d |= byte << 8 * i;
    }
    return d;
  }
};
// Sums of products with bytes: of four bytes, or of two halves. A is unsigned.
template <class B>
struct Dot4 {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    for (uint32_t i = 0; i < 4; ++i) {
      c += static_cast<uint32_t>(int32_t{static_cast<uint8_t>(a >> 8 * i)} *
                                 int32_t{static_cast<B>(b >> 8 * i)});
    }
    return c;
  }
};
template <class B, bool kHigh>
struct Dot2 {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    for (uint32_t i = 0; i < 2; ++i) {
      c += static_cast<uint32_t>(int32_t{static_cast<uint16_t>(a >> 16 * i)} *
                                 int32_t{static_cast<B>(b >> (8 * i + (kHigh ? 16 : 0)))});
    }
    return c;
  }
};
struct ByteDifferences {  // absolute ones
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t) const {
    uint32_t d = 0;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t x = a >> 8 * i & 255, y = b >> 8 * i & 255;
      d |= (x > y ? x - y : y - x) << 8 * i;
    }
    return d;
  }
};

// Between integers: the value as it is, by its lowest bits, or held within the other's range.
template <class D>
struct Convert {
  template <class S>
  D operator()(S a) const {
    return static_cast<D>(a);
  }
};

}  // namespace l3::ptx
