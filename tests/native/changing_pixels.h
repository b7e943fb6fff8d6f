// Pixels that change while the encoder reads them, the same way each time: two pages at a time can
// be read, and reading another one stops at a signal handler, which chooses what that page holds
// from then on. A row begins a page. For one thread.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

namespace l3 {

class ChangingPixels {
 public:
  // `before` and `after` are `rows` rows of `row_bytes` each. `seed` chooses when a page has which:
  // see ChooseVersion.
  ChangingPixels(const uint8_t* before, const uint8_t* after, uint64_t row_bytes, uint32_t rows,
                 uint64_t seed)
      : lock_(mutex_),
        versions_{before, after},
        row_bytes_(row_bytes),
        page_(static_cast<uint64_t>(sysconf(_SC_PAGESIZE))),
        pages_of_row_((row_bytes + page_ - 1) / page_),
        bytes_(pages_of_row_ * page_ * rows),
        random_(2 * seed + 1),
        plan_(static_cast<uint32_t>(seed % 4)),
        change_(static_cast<uint32_t>(seed / 4 % 16)),
        tear_(Random() % (8 * pages_of_row_ * rows)),
        times_(pages_of_row_ * rows) {
    void* const pages = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<uint8_t*>(pages);
    active_ = this;
    struct sigaction action = {};
    action.sa_sigaction = OnFault;
    action.sa_flags = SA_SIGINFO;
    if (sigaction(SIGSEGV, &action, &others_) != 0) std::abort();
  }
  ~ChangingPixels() {
    sigaction(SIGSEGV, &others_, nullptr);
    active_ = nullptr;
    munmap(data_, bytes_);
  }
  ChangingPixels(const ChangingPixels&) = delete;
  ChangingPixels& operator=(const ChangingPixels&) = delete;

  const uint8_t* data() const { return data_; }
  uint64_t row_stride_bytes() const { return pages_of_row_ * page_; }

 private:
  static void OnFault(int, siginfo_t* info, void*) {
    const uintptr_t offset =
        reinterpret_cast<uintptr_t>(info->si_addr) - reinterpret_cast<uintptr_t>(active_->data_);
    if (offset < active_->bytes_) {
      active_->Open(offset / active_->page_);
    } else {  // comes again, to who had the signal before
      sigaction(SIGSEGV, &active_->others_, nullptr);
    }
  }

  void Open(uint64_t number) {
    uint8_t* const page = data_ + number * page_;
    // An instruction may read the end of a page and the beginning of the next.
    if (opened_ >= 2) mprotect(data_ + open_[opened_ % 2] * page_, page_, PROT_NONE);
    open_[opened_ % 2] = number;
    mprotect(page, page_, PROT_READ | PROT_WRITE);
    const uint64_t in_row = number % pages_of_row_ * page_;
    ++opened_;
    const uint8_t* const from = versions_[ChooseVersion(times_[number]++)];
    std::memcpy(page, from + number / pages_of_row_ * row_bytes_ + in_row,
                std::min(page_, row_bytes_ - in_row));
  }

  // Of a page that was opened `times` times before.
  uint32_t ChooseVersion(uint32_t times) {
    switch (plan_) {
      case 0: return times >= change_ ? 1 : 0;     // changes between two passes
      case 1: return times == change_ ? 1 : 0;     // one pass differs
      case 2: return opened_ >= tear_ ? 1 : 0;     // changes within a pass
      default: return times >= change_ ? Random() % 2 : 0;
    }
  }

  uint32_t Random() {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(random_ >> 33);
  }

  static inline std::mutex mutex_;  // one at a time has the signal
  static inline ChangingPixels* active_ = nullptr;

  const std::lock_guard<std::mutex> lock_;
  const uint8_t* const versions_[2];
  const uint64_t row_bytes_;
  const uint64_t page_;
  const uint64_t pages_of_row_;
  const uint64_t bytes_;
  uint64_t random_;
  const uint32_t plan_;
  const uint32_t change_;
  const uint64_t tear_;
  std::vector<uint32_t> times_;  // that each page was opened
  struct sigaction others_ = {};
  uint8_t* data_ = nullptr;
  uint64_t open_[2] = {};
  uint64_t opened_ = 0;
};

}  // namespace l3
