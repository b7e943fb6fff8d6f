// Large blocks of memory of a fuzz target, which are used again. AddressSanitizer maps and unmaps
// each of them, and the pages that come anew take up to half of the time of an encode.
// Replaces the global operators: include it once in a program.
#pragma once

#include "base/portable.h"

#if defined(L3_ASAN)

#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

namespace l3::fuzz {

// Blocks of 64 KiB to 16 MiB, each with bytes before and behind it that nothing may touch, as with
// AddressSanitizer. A block that was given back may not be touched until it is the oldest of its
// size.
class LargeBlocks {
 public:
  static constexpr size_t kLeast = size_t{1} << 16;
  static constexpr size_t kMost = size_t{1} << 24;

  static LargeBlocks& Get() {
    static LargeBlocks blocks;
    return blocks;
  }

  // Null if there is no memory.
  void* Take(size_t size, size_t alignment) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uint32_t size_class = ClassOf(size + 2 * kMargin + alignment);
    Class& of = classes_[size_class];
    Block* block = of.count > kKept ? of.oldest : nullptr;
    if (block != nullptr) {
      ASAN_UNPOISON_MEMORY_REGION(block, sizeof(Block));
      of.oldest = block->next;
      --of.count;
    } else {
      block = Map(BytesOf(size_class));
      if (block == nullptr) return nullptr;
      block->size_class = size_class;
    }
    const uintptr_t first = reinterpret_cast<uintptr_t>(block) + kMargin;
    alignment = std::max<size_t>(alignment, 64);
    uint8_t* const data =
        reinterpret_cast<uint8_t*>((first + alignment - 1) / alignment * alignment);
    // Right before the data, so that Give() finds it.
    Block** const back = reinterpret_cast<Block**>(data) - 1;
    ASAN_UNPOISON_MEMORY_REGION(back, sizeof(*back));
    *back = block;
    ASAN_POISON_MEMORY_REGION(block, static_cast<size_t>(data - reinterpret_cast<uint8_t*>(block)));
    ASAN_UNPOISON_MEMORY_REGION(data, size);
    return data;
  }

  // Whether it was a block of this pool.
  bool Give(void* data) {
    if (!Has(data)) return false;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (__asan_address_is_poisoned(data)) std::abort();  // given back twice
    Block** const back = static_cast<Block**>(data) - 1;
    ASAN_UNPOISON_MEMORY_REGION(back, sizeof(*back));
    Block* const block = *back;
    ASAN_UNPOISON_MEMORY_REGION(block, sizeof(Block));
    Class& of = classes_[block->size_class];
    block->next = nullptr;
    if (of.count++ == 0) {
      of.oldest = block;
    } else {
      ASAN_UNPOISON_MEMORY_REGION(of.newest, sizeof(Block));
      of.newest->next = block;
      ASAN_POISON_MEMORY_REGION(of.newest, sizeof(Block));
    }
    of.newest = block;
    ASAN_POISON_MEMORY_REGION(block, BytesOf(block->size_class));
    return true;
  }

 private:
  struct Block {
    Block* next;
    uint32_t size_class;
  };
  struct Class {
    Block* oldest = nullptr;
    Block* newest = nullptr;
    uint32_t count = 0;
  };
  static constexpr size_t kMargin = 128;
  static constexpr uint32_t kKept = 2;
  static constexpr uint32_t kClasses = 40;
  static constexpr size_t kArena = size_t{1} << 36;  // of addresses, not of memory

  // Four sizes for each power of two.
  static size_t BytesOf(uint32_t size_class) {
    return ((4 + size_class % 4) << (size_class / 4)) * (kLeast / 4);
  }
  static uint32_t ClassOf(size_t bytes) {
    uint32_t size_class = 0;
    while (BytesOf(size_class) < bytes) ++size_class;
    return size_class;
  }

  LargeBlocks() {
    void* const arena = mmap(nullptr, kArena, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED) std::abort();
    begin_ = used_ = reinterpret_cast<uintptr_t>(arena);
  }
  bool Has(const void* data) const {
    const uintptr_t at = reinterpret_cast<uintptr_t>(data);
    return at >= begin_ && at - begin_ < kArena;
  }
  Block* Map(size_t bytes) {
    if (kArena - (used_ - begin_) < bytes + kMargin) return nullptr;
    Block* const block = reinterpret_cast<Block*>(used_);
    // What is behind the block may not be touched either.
    ASAN_POISON_MEMORY_REGION(block, bytes + kMargin);
    ASAN_UNPOISON_MEMORY_REGION(block, sizeof(Block));
    used_ += bytes;
    __lsan_register_root_region(block, bytes);
    return block;
  }

  std::mutex mutex_;
  uintptr_t begin_ = 0;
  uintptr_t used_ = 0;
  std::array<Class, kClasses> classes_;
};

}  // namespace l3::fuzz

namespace l3::fuzz {

// Null if there is no memory.
inline void* Allocate(size_t size, size_t alignment) {
  if (size >= LargeBlocks::kLeast && size <= LargeBlocks::kMost) {
    return LargeBlocks::Get().Take(size, alignment);
  }
  if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) return std::malloc(size);
  void* data = nullptr;
  return posix_memalign(&data, alignment, size) == 0 ? data : nullptr;
}

inline void* AllocateOrThrow(size_t size, size_t alignment) {
  void* const data = Allocate(size, alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

inline void Free(void* data) noexcept {
  if (!LargeBlocks::Get().Give(data)) std::free(data);
}

}  // namespace l3::fuzz

void* operator new(size_t size) { return l3::fuzz::AllocateOrThrow(size, 1); }
void* operator new[](size_t size) { return l3::fuzz::AllocateOrThrow(size, 1); }
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return l3::fuzz::Allocate(size, 1);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return l3::fuzz::Allocate(size, 1);
}
void* operator new(size_t size, std::align_val_t alignment) {
  return l3::fuzz::AllocateOrThrow(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return l3::fuzz::AllocateOrThrow(size, static_cast<size_t>(alignment));
}
void operator delete(void* data) noexcept { l3::fuzz::Free(data); }
void operator delete[](void* data) noexcept { l3::fuzz::Free(data); }
void operator delete(void* data, size_t) noexcept { l3::fuzz::Free(data); }
void operator delete[](void* data, size_t) noexcept { l3::fuzz::Free(data); }
void operator delete(void* data, std::align_val_t) noexcept { l3::fuzz::Free(data); }
void operator delete[](void* data, std::align_val_t) noexcept { l3::fuzz::Free(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { l3::fuzz::Free(data); }
void operator delete[](void* data, size_t, std::align_val_t) noexcept { l3::fuzz::Free(data); }

#endif  // L3_ASAN
