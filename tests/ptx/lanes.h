// Makes of a function of one lane's values one of 32 lanes' registers.
#pragma once

#include <cfenv>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ptx/float_math.h"
#include "ptx/program.h"

namespace l3::ptx {

template <class T>
using Register = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
T FromRegister(Register<T> value) {
  if constexpr (std::is_same_v<T, float>) {
    return SameBits<float>(value);
  } else if constexpr (std::is_same_v<T, Half>) {
    return {static_cast<uint16_t>(value)};
  } else {
    return static_cast<T>(value);
  }
}
template <class T>
Register<T> ToRegister(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return SameBits<uint32_t>(value);
  } else if constexpr (std::is_same_v<T, Half>) {
    return value.bits;
  } else {
    return static_cast<Register<T>>(value);  // extends the sign
  }
}

template <class Body>
void ForLanes(uint32_t mask, Body body) {
  if (mask == kAllLanes) {
#pragma GCC ivdep
    for (uint32_t lane = 0; lane < kLanes; ++lane) body(lane);
    return;
  }
  for (; mask != 0; mask &= mask - 1) body(static_cast<uint32_t>(__builtin_ctz(mask)));
}

template <class F, class D, class... S, size_t... I>
void RunLanes(void* d, const void* const* s, uint32_t mask, std::index_sequence<I...>) {
  auto* to = static_cast<Register<D>*>(d);
  ForLanes(mask, [&](uint32_t lane) {
    to[lane] = ToRegister<D>(F()(FromRegister<S>(static_cast<const Register<S>*>(s[I])[lane])...));
  });
}
// Of rounding as <cfenv> names it.
template <int kRounding, class F, class D, class... S>
void LanesOf(void* d, const void* const* s, uint32_t mask) {
  if constexpr (kRounding != FE_TONEAREST) std::fesetround(kRounding);
  RunLanes<F, D, S...>(d, s, mask, std::index_sequence_for<S...>());
  if constexpr (kRounding != FE_TONEAREST) std::fesetround(FE_TONEAREST);
}

template <class F, class S>
uint32_t CompareLanes(const void* a, const void* b) {
  uint32_t bits = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const bool is = F()(FromRegister<S>(static_cast<const Register<S>*>(a)[lane]),
                        FromRegister<S>(static_cast<const Register<S>*>(b)[lane]));
    bits |= uint32_t{is} << lane;
  }
  return bits;
}

}  // namespace l3::ptx
