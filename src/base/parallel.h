// Runs independent tasks on a few threads. Layer: base. Independent of images.
#pragma once

#include <cstdint>

// WebAssembly without threads; its C++ library has no exceptions either.
#if defined(__wasm__) && !defined(_REENTRANT)
#define L3_ONE_THREAD 1
#else
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>
#endif

namespace l3 {

// Called between the tasks of the thread that has asked for them, if it is set: what it throws ends
// the work. Bindings let an interrupt in by it.
inline thread_local void (*interrupt_hook)() = nullptr;

#if defined(L3_ONE_THREAD)
inline void CheckInterrupt() {}
#else
// Whether a task has failed, of those that this thread works on with others.
inline thread_local const std::atomic<bool>* has_failed = nullptr;
struct WorkEnded {};

// To be called some times a second within a long task: throws if the work is to end.
inline void CheckInterrupt() {
  if (interrupt_hook != nullptr) interrupt_hook();
  if (has_failed != nullptr && *has_failed) throw WorkEnded();
}
#endif

// Calls task(state, i) once for every i in [0, count), on up to `threads`
// threads (0: all the machine has). The caller's thread takes part. Each thread
// has a state of its own, made by make_state(). If a call throws, no new tasks
// start and the first exception is thrown here.
//
// Each thread begins in a part of its own, then helps with the others. Tasks next to each other
// often write next to each other, where two threads would wait for the same page to be there.
template <typename MakeState, typename Task>
void ParallelForWithState(uint64_t count, unsigned threads, const MakeState& make_state,
                          const Task& task) {
#if defined(L3_ONE_THREAD)
  static_cast<void>(threads);
  if (count == 0) return;
  auto state = make_state();
  for (uint64_t i = 0; i < count; ++i) task(state, i);
#else
  struct alignas(64) Part {
    std::atomic<uint64_t> next{0};
    uint64_t end = 0;
  };
  if (threads == 0) threads = std::thread::hardware_concurrency();
  if (threads > count) threads = static_cast<unsigned>(count);
  if (threads == 0) return;
  std::vector<Part> parts(threads);
  for (unsigned t = 0; t < threads; ++t) {
    parts[t].next = count * t / threads;
    parts[t].end = count * (t + 1) / threads;
  }
  std::mutex mutex;
  std::exception_ptr error;
  std::atomic<bool> failed{false};
  auto work = [&](unsigned thread) {
    const std::atomic<bool>* const outer = std::exchange(has_failed, &failed);
    try {
      auto state = make_state();
      for (unsigned k = 0; k < threads; ++k) {
        Part& part = parts[(thread + k) % threads];
        for (uint64_t i = part.next++; i < part.end; i = part.next++) {
          CheckInterrupt();
          task(state, i);
        }
      }
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex);
      if (!error) error = std::current_exception();
      failed = true;
    }
    has_failed = outer;
  };
  std::vector<std::thread> workers;
  workers.reserve(threads);  // so that only a new thread can fail below
  try {
    for (unsigned t = 1; t < threads; ++t) workers.emplace_back(work, t);
  } catch (const std::exception&) {
    // No thread, or no memory for one: fewer than asked for still do all the work.
  }
  work(0);
  for (std::thread& worker : workers) worker.join();
  if (error) std::rethrow_exception(error);
#endif
}

// The same without a state: task(i).
template <typename Task>
void ParallelFor(uint64_t count, unsigned threads, const Task& task) {
  ParallelForWithState(count, threads, [] { return 0; }, [&task](int, uint64_t i) { task(i); });
}

}  // namespace l3
