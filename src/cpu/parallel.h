// Runs independent tasks on a few threads. Layer: cpu. Knows nothing of images.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace l3 {

// Calls task(state, i) once for every i in [0, count), on up to `threads`
// threads (0: all the machine has). The caller's thread takes part. Each thread
// has a state of its own, made by make_state(). If a call throws, no new tasks
// start and the first exception is thrown here.
template <typename MakeState, typename Task>
void ParallelForWithState(uint64_t count, unsigned threads, const MakeState& make_state,
                          const Task& task) {
  if (threads == 0) threads = std::thread::hardware_concurrency();
  if (threads > count) threads = static_cast<unsigned>(count);
  std::atomic<uint64_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  auto work = [&] {
    try {
      auto state = make_state();
      for (uint64_t i = next++; i < count; i = next++) task(state, i);
    } catch (...) {
      next = count;
      std::lock_guard<std::mutex> lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::thread> workers;
  workers.reserve(threads);  // so that only a new thread can fail below
  try {
    for (unsigned t = 1; t < threads; ++t) workers.emplace_back(work);
  } catch (const std::system_error&) {
    // Fewer threads than asked for still do all the work.
  }
  work();
  for (std::thread& worker : workers) worker.join();
  if (error) std::rethrow_exception(error);
}

// The same without a state: task(i).
template <typename Task>
void ParallelFor(uint64_t count, unsigned threads, const Task& task) {
  ParallelForWithState(count, threads, [] { return 0; }, [&task](int, uint64_t i) { task(i); });
}

}  // namespace l3
