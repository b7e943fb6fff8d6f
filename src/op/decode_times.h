// How long decoding took on cores and on the GPU, for l3dali.pipeline, which shares work between
// them. Layer: adapter.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace l3 {

// What the operators that were given one number have done so far. Any thread may call.
class DecodeTimes {
 public:
  enum Place { kCpu, kGpu, kPlaces };
  struct Sum {
    uint64_t batches, samples;
    double seconds;
  };

  void Add(Place place, uint64_t samples, double seconds) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Sum& sum = sums_[place];
    ++sum.batches;
    sum.samples += samples;
    sum.seconds += seconds;
  }
  Sum Get(Place place) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return sums_[place];
  }

  // Numbers start at 1: an operator's argument 0 is no clock.
  static int64_t Open() {
    const std::lock_guard<std::mutex> lock(all().mutex);
    all().times[++all().last] = std::make_shared<DecodeTimes>();
    return all().last;
  }
  // Operators that have it keep it.
  static void Close(int64_t number) {
    const std::lock_guard<std::mutex> lock(all().mutex);
    all().times.erase(number);
  }
  // Null for a number that is not open.
  static std::shared_ptr<DecodeTimes> Find(int64_t number) {
    const std::lock_guard<std::mutex> lock(all().mutex);
    const auto found = all().times.find(number);
    return found == all().times.end() ? nullptr : found->second;
  }

 private:
  struct All {
    std::mutex mutex;
    std::map<int64_t, std::shared_ptr<DecodeTimes>> times;
    int64_t last = 0;
  };
  static All& all() {
    static All all;
    return all;
  }

  std::mutex mutex_;
  Sum sums_[kPlaces] = {};
};

// The clock of an operator. Does nothing without times to add to.
class DecodeClock {
 public:
  DecodeClock(int64_t number, DecodeTimes::Place place)
      : times_(DecodeTimes::Find(number)), place_(place) {}

  void Start() { begin_ = std::chrono::steady_clock::now(); }
  void Stop(uint64_t samples) {
    if (times_ == nullptr) return;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin_;
    times_->Add(place_, samples, took.count());
  }

 private:
  std::shared_ptr<DecodeTimes> times_;
  DecodeTimes::Place place_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace l3
