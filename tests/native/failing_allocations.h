// Counts what a program allocates, and lets one allocation fail. For one source of a program: it
// replaces `operator new`.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace l3 {

inline std::atomic<uint64_t> allocations{0};
inline std::atomic<uint64_t> failing_allocation{~uint64_t{0}};  // its number

}  // namespace l3

// Not inline, or GCC takes malloc and delete for a mismatch.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  if (l3::allocations++ == l3::failing_allocation) return nullptr;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
