// Memory for tests, of which no byte too far is read or written unseen.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/portable.h"

namespace l3 {

// An array that nothing may touch the bytes behind. AddressSanitizer sees to that, or else a page
// that is not there: that stops all instructions, those of a vector too that no sanitizer knows.
class ExactBytes {
 public:
  explicit ExactBytes(size_t size) : ExactBytes(nullptr, size) {}
  // A copy, or zeros where `data` is null.
  ExactBytes(const uint8_t* data, size_t size) : size_(size) {
#if defined(L3_ASAN)
    data_ = new uint8_t[size]();
#else
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t whole = (size + page - 1) / page * page;
    mapped_ = whole + page;
    void* pages =
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    pages_ = static_cast<uint8_t*>(pages);
    if (mprotect(pages_ + whole, page, PROT_NONE) != 0) std::abort();
    data_ = pages_ + (whole - size);
#endif
    if (data != nullptr && size != 0) std::memcpy(data_, data, size);
  }
  ~ExactBytes() {
#if defined(L3_ASAN)
    delete[] data_;
#else
    munmap(pages_, mapped_);
#endif
  }
  ExactBytes(const ExactBytes&) = delete;
  ExactBytes& operator=(const ExactBytes&) = delete;

  uint8_t* data() { return data_; }
  size_t size() const { return size_; }

 private:
  uint8_t* data_;
  size_t size_;
#if !defined(L3_ASAN)
  uint8_t* pages_;
  size_t mapped_;
#endif
};

}  // namespace l3
