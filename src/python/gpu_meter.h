// Times uploads and batches on a GPU, for `l3 profile`. Layer: adapter.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "cuda/engine/batch_decoder.h"
#include "cuda/engine/encoded_cache.h"
#include "python/cuda_decoder.h"
#include "python/decode_batch.h"
#include "python/gil.h"

namespace l3 {

// One device, with memory of its own. Threads must not share it. Times are those of the host's
// clock, from the first call to the end of the work.
class GpuMeter {
 public:
  using MakeDevice = std::function<std::unique_ptr<GpuDevice>()>;

  explicit GpuMeter(MakeDevice make_device)
      : make_device_(std::move(make_device)),
        device_(make_device_()),
        stream_(device_->MakeStream()),
        decoder_(std::make_unique<BatchDecoder>(make_device_())) {}
  ~GpuMeter() {
    const WithoutGil released;  // it waits for its work
    decoder_.reset();
  }

  // What a batch takes, of the clock and of all cores, in seconds.
  struct Times {
    double wall_s;
    double cpu_s;
  };

  // Of a copy of so many bytes from pinned memory to the device, of `count` in a row.
  Times Upload(size_t bytes, unsigned count) {
    RequireCount(count);
    const WithoutGil released;
    const std::shared_ptr<void> pinned = device_->AllocatePinned(bytes);
    const std::shared_ptr<void> memory = device_->AllocateDevice(bytes);
    const std::unique_ptr<GpuEvent> done = device_->MakeEvent();
    return TimesOfEach(count, [&](unsigned repeats) {
      for (unsigned i = 0; i < repeats; ++i) {
        device_->Copy(memory.get(), pinned.get(), bytes, stream_.get());
      }
      done->Record(stream_.get());
      done->Synchronize();
    });
  }

  // Of a batch, of `count` in a row with two in flight: from memory of the host, or if `is_cached`
  // with all payloads in the device's memory, so that nothing but the decoding is left.
  Times Decode(DecodeBatch& batch, bool is_cached, unsigned count, unsigned threads) {
    RequireCount(count);
    const std::vector<uintptr_t> outputs = PlaceOutputs(batch);
    batch.PlaceOutputs(outputs, std::nullopt);
    std::vector<WindowJob> jobs = batch.jobs();
    std::vector<DecodeResult> results;
    Times times = {};
    {
      const WithoutGil released;
      std::unique_ptr<BatchDecoder> with_cache;
      std::vector<std::string> keys;
      std::shared_ptr<EncodedCache> cache;
      if (is_cached) {
        uint64_t bytes = kCacheSlack;
        for (const WindowJob& job : jobs) bytes += job.view->payloads_bytes + kEntrySlack;
        const CacheOptions options = {bytes, CachePolicy::kThreshold, 0};
        cache = std::make_shared<EncodedCache>(options, make_device_());
        with_cache = std::make_unique<BatchDecoder>(make_device_(), cache);
        results = Fill(jobs, &keys, cache.get(), with_cache.get(), threads);
      }
      BatchDecoder* const decoder = is_cached ? with_cache.get() : decoder_.get();
      times = TimesOfEach(count, [&](unsigned repeats) {
        for (unsigned i = 0; i < repeats; ++i) {
          Launch(jobs, decoder, threads);
          if (i > 0) decoder->Wait();
        }
        results = decoder->Wait();
      });
    }
    batch.RequireDecoded(results);
    return times;
  }

 private:
  // Of a cache's memory, which it takes in slabs.
  static constexpr uint64_t kCacheSlack = 64 << 20;
  static constexpr uint64_t kEntrySlack = 4096;

  static void RequireCount(unsigned count) {
    if (count == 0) throw py::value_error("count must be above 0");
  }

  // The first run warms up.
  static Times TimesOfEach(unsigned count, const std::function<void(unsigned)>& run) {
    run(1);
    const auto begin = std::chrono::steady_clock::now();
    const std::clock_t cpu_begin = std::clock();  // of the process
    run(count);
    const auto cpu = static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
    return {wall.count() / count, cpu / count};
  }

  void Launch(const std::vector<WindowJob>& jobs, BatchDecoder* decoder, unsigned threads) {
    decoder->Launch(jobs, stream_.get(),
                    [threads](size_t count, const std::function<void(size_t)>& task) {
                      ParallelFor(count, threads, task);
                    });
  }

  // Decodes the files once into the cache, each under a name of its own, and points the jobs there.
  std::vector<DecodeResult> Fill(std::vector<WindowJob>& jobs, std::vector<std::string>* keys,
                                 EncodedCache* cache, BatchDecoder* decoder, unsigned threads) {
    for (size_t i = 0; i < jobs.size(); ++i) keys->push_back(std::to_string(i));
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (cache->Wants((*keys)[i], *jobs[i].view)) jobs[i].cache_key = &(*keys)[i];
    }
    Launch(jobs, decoder, threads);
    const std::vector<DecodeResult> results = decoder->Wait();
    auto window = results.begin();
    for (WindowJob& job : jobs) {
      const auto end = window + static_cast<std::ptrdiff_t>(job.plan_count);
      const bool is_sound = std::all_of(
          window, end, [](const DecodeResult& result) { return result.status == Status::kOk; });
      window = end;
      if (job.cache_key == nullptr) continue;
      job.cached = cache->Peek(*job.cache_key);
      job.cache_key = nullptr;
      if (job.cached != nullptr) {
        job.view = &job.cached->view;
      } else if (is_sound) {
        throw std::bad_alloc();
      }
    }
    return results;
  }

  // One after the other in memory that grows and stays.
  std::vector<uintptr_t> PlaceOutputs(const DecodeBatch& batch) {
    std::vector<size_t> ends;
    size_t bytes = 0;
    for (const size_t size : batch.output_bytes()) {
      ends.push_back(bytes);
      bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
    }
    if (bytes > output_bytes_) {
      outputs_.reset();  // before the new one is taken
      output_bytes_ = 0;
      outputs_ = device_->AllocateDevice(bytes);
      output_bytes_ = bytes;
    }
    const auto begin = reinterpret_cast<uintptr_t>(outputs_.get());
    std::vector<uintptr_t> addresses;
    for (const size_t end : ends) addresses.push_back(begin + end);
    return addresses;
  }

  static constexpr size_t kAlignment = 256;

  const MakeDevice make_device_;
  const std::unique_ptr<GpuDevice> device_;
  const std::shared_ptr<CUstream_st> stream_;
  std::shared_ptr<void> outputs_;
  size_t output_bytes_ = 0;
  std::unique_ptr<BatchDecoder> decoder_;
};

// Makes the class `Meter` of a device by its number. `free_bytes` is its unused
// memory.
inline void BindGpuMeter(py::module_& m,
                         const std::function<std::unique_ptr<GpuDevice>(int)>& make_device,
                         const std::function<size_t(int)>& free_bytes) {
  const auto pair_of = [](const GpuMeter::Times& times) {
    return std::make_pair(times.wall_s, times.cpu_s);
  };
  py::class_<GpuMeter>(m, "Meter", py::module_local())
      .def(py::init([make_device](int device_id) {
             return std::make_unique<GpuMeter>([=] { return make_device(device_id); });
           }),
           py::arg("device_id"))
      .def(
          "upload",
          [pair_of](GpuMeter& meter, size_t bytes, unsigned count) {
            return pair_of(meter.Upload(bytes, count));
          },
          py::arg("bytes"), py::kw_only(), py::arg("count"))
      .def(
          "decode",
          [pair_of](GpuMeter& meter, DecodeBatch& batch, bool is_cached, unsigned count,
                    unsigned threads) {
            return pair_of(meter.Decode(batch, is_cached, count, threads));
          },
          py::arg("batch"), py::kw_only(), py::arg("is_cached"), py::arg("count"),
          py::arg("threads"));
  m.def("free_bytes", free_bytes, py::arg("device_id"));
}

}  // namespace l3
