// When a request that failed is made again. Layer: files.
#pragma once

#include <algorithm>

namespace l3 {

// An outage of ten seconds is waited for, and a permanent one ends within 25 s.
class Attempts {
 public:
  // Call it after an attempt that took `last_s` and ended `all_s` after the first began. Returns
  // whether to make another one after pause_s(): if it would end in time.
  bool Again(double all_s, double last_s) {
    constexpr double kFirstPause = 0.1, kGrowth = 3, kLongestPause = 5, kMost = 24.8;
    pause_s_ = pause_s_ == 0 ? kFirstPause : std::min(kLongestPause, pause_s_ * kGrowth);
    return all_s + pause_s_ + last_s <= kMost;
  }
  double pause_s() const { return pause_s_; }

 private:
  double pause_s_ = 0;
};

}  // namespace l3
