// Reads and writes of device memory, 4 and 16 bytes at a time. Layer: cuda. To asm, a generic
// pointer to global memory is a global one: they are the same number.
// The host's versions are for the emulation.
#pragma once

#include <cstring>

#include "base/portable.h"
#include "cuda/kernels/warp.h"

namespace l3 {

struct alignas(16) Chunk {
  uint32_t word[4];
};

// Tells the compiler that a pointer which came out of memory is a global one,
// and to keep it as it is instead of the sum it came from.
template <typename T>
L3_DEVICE T* GlobalPointer(T* p) {
#if defined(__CUDA_ARCH__)
  size_t address;
  asm("cvta.to.global.u64 %0, %1;" : "=l"(address) : "l"(p));
  return static_cast<T*>(__cvta_global_to_generic(address));
#else
  return p;
#endif
}

// p + number * bytes, in one instruction.
L3_DEVICE uint8_t* PlaceAt(uint8_t* p, int32_t number, int32_t bytes) {
#if defined(__CUDA_ARCH__)
  asm("mad.wide.s32 %0, %1, %2, %0;" : "+l"(p) : "r"(number), "r"(bytes));
  return p;
#else
  return p + int64_t{number} * bytes;
#endif
}

// A place in shared memory, for functions that are called.
#if defined(__CUDA_ARCH__)
using SharedPlace = uint32_t;
L3_DEVICE SharedPlace PlaceInShared(const uint8_t* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
L3_DEVICE uint8_t* SharedPointer(SharedPlace place) {
  return static_cast<uint8_t*>(__cvta_shared_to_generic(place));
}
#else
using SharedPlace = uintptr_t;
L3_DEVICE SharedPlace PlaceInShared(const uint8_t* p) { return reinterpret_cast<uintptr_t>(p); }
L3_DEVICE uint8_t* SharedPointer(SharedPlace place) { return reinterpret_cast<uint8_t*>(place); }
#endif

// Of memory that no kernel writes: by the read-only path. Aligned to their size. What a payload is
// read by twice, first for its check, stays in the L1 cache longest.
L3_DEVICE uint32_t LoadConstantWord(const uint8_t* p) {
#if defined(__CUDA_ARCH__)
  return __ldg(reinterpret_cast<const uint32_t*>(p));
#else
  return LoadU32(p);
#endif
}
L3_DEVICE uint32_t LoadConstantHalf(const uint16_t* p) {
#if defined(__CUDA_ARCH__)
  uint16_t half;
  asm("ld.global.nc.L1::evict_last.u16 %0, [%1];" : "=h"(half) : "l"(p));
  return half;
#else
  return *p;
#endif
}
L3_DEVICE Chunk LoadConstantChunk(const uint8_t* p) {
#if defined(__CUDA_ARCH__)
  Chunk chunk;
  asm("ld.global.nc.L1::evict_last.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(chunk.word[0]), "=r"(chunk.word[1]), "=r"(chunk.word[2]), "=r"(chunk.word[3])
      : "l"(p));
  return chunk;
#else
  return Chunk{{LoadU32(p), LoadU32(p + 4), LoadU32(p + 8), LoadU32(p + 12)}};
#endif
}

// Of any memory. Aligned to their size.
L3_DEVICE uint32_t LoadWord(const uint8_t* p) {
#if defined(__CUDA_ARCH__)
  return *reinterpret_cast<const uint32_t*>(p);
#else
  return LoadU32(p);
#endif
}
L3_DEVICE void StoreWord(uint8_t* p, uint32_t v) {
#if defined(__CUDA_ARCH__)
  *reinterpret_cast<uint32_t*>(p) = v;
#else
  StoreU32(p, v);
#endif
}
L3_DEVICE void StoreHalf(uint8_t* p, uint32_t v) {
  *reinterpret_cast<uint16_t*>(p) = static_cast<uint16_t>(v);
}
L3_DEVICE void StoreChunk(uint8_t* p, const Chunk& chunk) {
#if defined(__CUDA_ARCH__)
  *reinterpret_cast<uint4*>(p) =
      make_uint4(chunk.word[0], chunk.word[1], chunk.word[2], chunk.word[3]);
#else
  std::memcpy(p, &chunk, 16);
#endif
}

// Of the output, which no kernel reads: it takes no room in the L1 cache. Aligned to their size.
L3_DEVICE void PutWord(uint8_t* p, uint32_t v) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.global.L1::no_allocate.u32 [%0], %1;" ::"l"(p), "r"(v));
#else
  StoreU32(p, v);
#endif
}
L3_DEVICE void PutTwoWords(uint8_t* p, uint32_t first, uint32_t second) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.global.L1::no_allocate.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(first),
               "r"(second));
#else
  StoreU32(p, first);
  StoreU32(p + 4, second);
#endif
}
L3_DEVICE void PutChunk(uint8_t* p, const Chunk& chunk) {
#if defined(__CUDA_ARCH__)
  const uint32_t* word = chunk.word;
  asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(word[0]),
               "r"(word[1]), "r"(word[2]), "r"(word[3]));
#else
  std::memcpy(p, &chunk, 16);
#endif
}

}  // namespace l3
