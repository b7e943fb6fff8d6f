// What differs between compilers, of hosts and devices, in one place.
// Layer: base. Independent of images.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define L3_HOST_DEVICE __host__ __device__
#else
#define L3_HOST_DEVICE
#endif

// Defined under AddressSanitizer, for which GCC and Clang have macros of their own.
#if defined(__SANITIZE_ADDRESS__)
#define L3_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define L3_ASAN 1
#endif
#endif

namespace l3 {

L3_HOST_DEVICE constexpr uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// Bits needed to write `v`: 0 for 0, 8 for 255.
L3_HOST_DEVICE inline uint32_t BitLength(uint32_t v) {
#if defined(__CUDA_ARCH__)
  return 32u - static_cast<uint32_t>(__clz(static_cast<int>(v)));
#else
  return v == 0 ? 0u : 32u - static_cast<uint32_t>(__builtin_clz(v));
#endif
}

// Little-endian reads from any address. The bytes must be inside the buffer.
L3_HOST_DEVICE inline uint32_t LoadU16(const uint8_t* p) {
  return static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8;
}
L3_HOST_DEVICE inline uint32_t LoadU32(const uint8_t* p) {
  return LoadU16(p) | LoadU16(p + 2) << 16;
}

// `v` itself: a number that was just read from a file and is now validated, then used. The result
// is opaque to the compiler, so it cannot read the file again for the use, when the file may have
// changed (docs/dev/architecture.md, "Validation"). Costs no instruction. On a device nothing
// changes what a kernel reads.
template <typename T>
L3_HOST_DEVICE inline T ReadOnce(T v) {
#if !defined(__CUDA_ARCH__)
  __asm__("" : "+r"(v));
#endif
  return v;
}

inline void StoreU16(uint8_t* p, uint32_t v) {
  const uint16_t half = static_cast<uint16_t>(v);
  std::memcpy(p, &half, sizeof(half));
}
inline void StoreU32(uint8_t* p, uint32_t v) { std::memcpy(p, &v, sizeof(v)); }
inline void StoreU64(uint8_t* p, uint64_t v) { std::memcpy(p, &v, sizeof(v)); }

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "stores assume a little-endian host");

}  // namespace l3
