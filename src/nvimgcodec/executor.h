// Work on the threads of nvImageCodec. Layer: adapter.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>

#include "nvimgcodec/abi.h"

namespace l3 {

// Calls task(i) for i in [0, count), here and on what threads the executor has free. If a call
// throws, the first exception is thrown here.
inline void RunOn(const nvimgcodecExecutorDesc_t* executor, int device_id, size_t count,
                  const std::function<void(size_t)>& task) {
  // Outlives the call: a busy thread may come when all work is done. It finds no index left and
  // touches nothing else.
  struct Round {
    std::function<void(size_t)> const* task;
    size_t count;
    std::atomic<size_t> next{0};
    std::mutex mutex;
    std::condition_variable finished;
    size_t done = 0;
    std::exception_ptr error;

    void Work() {
      for (size_t i = next++; i < count; i = next++) {
        std::exception_ptr thrown;
        try {
          (*task)(i);
        } catch (...) {
          thrown = std::current_exception();
        }
        const std::lock_guard<std::mutex> lock(mutex);
        if (thrown && !error) error = thrown;
        if (++done == count) finished.notify_one();
      }
    }
  };
  if (count == 0) return;
  const auto round = std::make_shared<Round>();
  round->task = &task;
  round->count = count;
  using Held = std::shared_ptr<Round>;
  const int threads = IsWhole(executor) ? executor->getNumThreads(executor->instance) : 0;
  bool any = false;
  for (size_t i = 1; i < count && i <= static_cast<size_t>(threads < 0 ? 0 : threads); ++i) {
    std::unique_ptr<Held> held(new (std::nothrow) Held(round));
    if (!held) break;  // those that are there do all the work
    const nvimgcodecStatus_t status =
        executor->schedule(executor->instance, device_id, static_cast<int>(i), held.get(),
                           [](int, int, void* context) {
                             const std::unique_ptr<Held> own(static_cast<Held*>(context));
                             (*own)->Work();
                           });
    if (status != NVIMGCODEC_STATUS_SUCCESS) break;
    held.release();
    any = true;
  }
  if (any) executor->run(executor->instance, device_id);
  round->Work();
  std::unique_lock<std::mutex> lock(round->mutex);
  round->finished.wait(lock, [&] { return round->done == count; });
  if (round->error) std::rethrow_exception(round->error);
}

}  // namespace l3
