// What integer operations of PTX compute of one lane's values, by the PTX manual.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace l3::ptx {

__extension__ using Int128 = __int128;
__extension__ using Uint128 = unsigned __int128;

template <class T>
using Unsigned = std::make_unsigned_t<T>;
// Twice as wide.
template <class T>
using Wide = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, Int128, Uint128>>>;

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
struct AddSaturated {
  int32_t operator()(int32_t a, int32_t b) const {
    const int64_t sum = int64_t{a} + b;
    return static_cast<int32_t>(std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX));
  }
};
struct SubSaturated {
  int32_t operator()(int32_t a, int32_t b) const {
    const int64_t difference = int64_t{a} - b;
    return static_cast<int32_t>(std::clamp<int64_t>(difference, INT32_MIN, INT32_MAX));
  }
};
struct MulLow {
  template <class T>
  T operator()(T a, T b) const {
    return Wrap<T>(Bits(a) * Bits(b));
  }
};
struct MulWide {
  template <class T>
  Wide<T> operator()(T a, T b) const {
    return static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b);
  }
};
struct MulHigh {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>((static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b)) >> (8 * sizeof(T)));
  }
};
struct MadLow {
  template <class T>
  T operator()(T a, T b, T c) const {
    return Wrap<T>(Bits(a) * Bits(b) + Bits(c));
  }
};
struct MadHigh {
  template <class T>
  T operator()(T a, T b, T c) const {
    return Add()(MulHigh()(a, b), c);
  }
};
struct MadWide {
  template <class T>
  Wide<T> operator()(T a, T b, Wide<T> c) const {
    return Add()(MulWide()(a, b), c);
  }
};
struct SumOfDifferences {
  template <class T>
  T operator()(T a, T b, T c) const {
    return Add()(c, a < b ? Sub()(b, a) : Sub()(a, b));
  }
};
// By zero the manual leaves the result open; GPUs have all bits set.
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(~T{0});
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Wrap<T>(0 - Bits(a));
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
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
// Of signed integers: what is below 0 becomes 0.
template <class Choose>
struct Relu {
  template <class T>
  T operator()(T a, T b) const {
    return Max()(T{0}, Choose()(a, b));
  }
};
struct And {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
};
struct LogicalNot {  // cnot
  template <class T>
  T operator()(T a) const {
    return a == 0 ? 1 : 0;
  }
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
  uint32_t operator()(uint64_t a) const {
    return a == 0 ? 64 : static_cast<uint32_t>(__builtin_clzll(a));
  }
};
struct ReverseBits {
  template <class T>
  T operator()(T a) const {
    T d = 0;
    for (uint32_t i = 0; i < 8 * sizeof(T); ++i) d = static_cast<T>(d << 1 | (a >> i & 1));
    return d;
  }
};
// The place of the highest bit that differs from the sign; kShift: how far it is from the top.
template <bool kShift>
struct FindHighest {
  template <class T>
  uint32_t operator()(T a) const {
    const Unsigned<T> bits = static_cast<Unsigned<T>>(a < 0 ? ~a : a);
    if (bits == 0) return ~0u;
    const uint32_t from_top =
        static_cast<uint32_t>(__builtin_clzll(uint64_t{bits})) - (64 - 8 * sizeof(T));
    return kShift ? from_top : static_cast<uint32_t>(8 * sizeof(T) - 1) - from_top;
  }
};
// Positions and lengths count by their lowest 8 bits.
struct ExtractField {
  template <class T>
  T operator()(T a, uint32_t position, uint32_t length) const {
    constexpr uint32_t kBits = 8 * sizeof(T);
    const uint32_t begin = position & 255, count = length & 255;
    if (count == 0) return 0;
    const uint32_t sign_at = std::min(begin + count - 1, kBits - 1);
    const bool sign = std::is_signed_v<T> && (Bits(a) >> sign_at & 1) != 0;
    uint64_t d = begin < kBits ? Bits(a) >> begin : 0;
    const uint32_t taken = begin < kBits ? std::min(count, kBits - begin) : 0;
    const uint64_t kept = taken >= 64 ? ~uint64_t{0} : (uint64_t{1} << taken) - 1;
    d &= kept;
    return Wrap<T>(sign ? d | ~kept : d);
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

enum class Bytes {
  kAny,
  kForward4,
  kBackward4,
  kReplicate8,
  kClampLeft,
  kClampRight,
  kReplicate16
};
template <Bytes kMode>
struct Permute {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    const uint64_t both = uint64_t{b} << 32 | a;
    uint32_t d = 0;
    for (uint32_t i = 0; i < 4; ++i) {
      uint32_t at = 0;
      switch (kMode) {
        case Bytes::kAny: at = c >> 4 * i & 7; break;
        case Bytes::kForward4: at = (c & 3) + i; break;
        case Bytes::kBackward4: at = ((c & 3) - i) & 7; break;
        case Bytes::kReplicate8: at = c & 3; break;
        case Bytes::kClampLeft: at = std::max(c & 3, i); break;
        case Bytes::kClampRight: at = std::min(c & 3, i); break;
        case Bytes::kReplicate16: at = 2 * (c & 1) + (i & 1); break;
      }
      uint32_t byte = static_cast<uint32_t>(both >> 8 * at) & 255;
      if (kMode == Bytes::kAny && (c >> 4 * i & 8) != 0) byte = byte & 128 ? 255 : 0;
      d |= byte << 8 * i;
    }
    return d;
  }
};
template <class A, class B>
struct Dot4 {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    for (uint32_t i = 0; i < 4; ++i) {
      c += static_cast<uint32_t>(int32_t{static_cast<A>(a >> 8 * i)} *
                                 int32_t{static_cast<B>(b >> 8 * i)});
    }
    return c;
  }
};
template <class A, class B, bool kHigh>
struct Dot2 {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    for (uint32_t i = 0; i < 2; ++i) {
      c += static_cast<uint32_t>(int32_t{static_cast<A>(a >> 16 * i)} *
                                 int32_t{static_cast<B>(b >> (8 * i + (kHigh ? 16 : 0)))});
    }
    return c;
  }
};
// Absolute differences of bytes; kSum: their sum and c, in place of four bytes.
template <bool kSum>
struct ByteDifferences {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    uint32_t d = kSum ? c : 0;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t x = a >> 8 * i & 255, y = b >> 8 * i & 255;
      d += (x > y ? x - y : y - x) << (kSum ? 0 : 8 * i);
    }
    return d;
  }
};

struct Equal {
  template <class T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
struct Less {
  template <class T>
  bool operator()(T a, T b) const {
    return a < b;
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
template <class D>
struct ConvertSaturated {
  template <class S>
  D operator()(S a) const {
    const Int128 value = a, low = std::numeric_limits<D>::min(),
                 high = std::numeric_limits<D>::max();
    return static_cast<D>(std::clamp(value, low, high));
  }
};

}  // namespace l3::ptx
