// Decoding on the GPU from encoded files in host memory. Layer: adapter.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "dali/core/error_handling.h"
#include "dali/pipeline/operator/name_utils.h"
#include "dali/pipeline/workspace/workspace.h"
#include "files/file_handle.h"
#include "op/failures.h"
#include "output/payload_ranges.h"
#include "output/window_job.h"

#if L3_HAVE_CUDA
#include <cuda_runtime_api.h>

#include "cuda/engine/batch_decoder.h"
#include "cuda/engine/cuda_device.h"
#include "cuda/engine/encoded_cache.h"
#include "cuda/engine/resources.h"
#include "dali/core/cuda_error.h"
#include "dali/core/mm/memory.h"
#include "dali/operators/decoder/cache/image_cache_factory.h"
#include "dali/pipeline/data/buffer.h"
#include "dali/pipeline/util/thread_pool.h"
#endif

namespace l3 {

#if L3_HAVE_CUDA

// Memory from DALI's pools.
class DaliAllocator final : public CudaAllocator {
 public:
  std::shared_ptr<void> AllocatePinned(size_t bytes) override try {
    constexpr size_t kAlignment = 64;
    if (dali::RestrictPinnedMemUsage()) {
      return dali::mm::alloc_raw_shared<uint8_t, dali::mm::memory_kind::host>(bytes, kAlignment);
    }
    return dali::mm::alloc_raw_shared<uint8_t, dali::mm::memory_kind::pinned>(bytes, kAlignment);
  } catch (const std::exception& error) {
    throw CudaOutOfMemory(dali::make_string(
        "Could not allocate ", bytes, " bytes of pinned host memory: ", error.what(),
        " Use smaller batches or a smaller `host_memory_padding`."));
  }
  std::shared_ptr<void> AllocateDevice(size_t bytes) override try {
    constexpr size_t kAlignment = 256;
    return dali::mm::alloc_raw_shared<uint8_t, dali::mm::memory_kind::device>(bytes, kAlignment);
  } catch (const std::exception& error) {
    throw CudaOutOfMemory(dali::make_string(
        "Could not allocate ", bytes, " bytes of GPU memory: ", error.what(),
        " Use smaller batches, a smaller `device_memory_padding` or `cache_size`, or leave more "
        "GPU memory free."));
  }
};

class MixedBackend {
 public:
  using DaliBackend = dali::MixedBackend;
  using OutputBackend = dali::GPUBackend;

  explicit MixedBackend(const dali::OpSpec& spec)
      : device_id_(spec.GetArgument<int>("device_id")),
        reports_cache_(spec.GetArgument<bool>("cache_debug")),
        cache_(FindCache(spec, device_id_)),
        skip_list_(FindSkipList(spec, device_id_)),
        device_(MakeDevice(device_id_)),
        copied_(device_->MakeEvent()),
        decoder_(MakeDevice(device_id_), cache_),
        threads_(spec.GetArgument<int>("num_threads"), device_id_, spec.GetArgument<bool>("affine"),
                 "[DALI][L3] decode") {
    decoder_.Reserve(Bytes(spec, "device_memory_padding"), Bytes(spec, "host_memory_padding"));
  }

  ~MixedBackend() {
    try {
      copied_->Synchronize();
    } catch (const std::exception&) {
      // The device is lost, and its work with it.
    }
    if (cache_ == nullptr || !reports_cache_) return;
    const CacheStatistics s = cache_->statistics();
    std::cerr << dali::make_string("[L3] cache of GPU ", device_id_, ": ", s.hits, " hits, ",
                                   s.misses, " misses, ", s.entries, " images of ", s.payload_bytes,
                                   " bytes in ", s.memory_bytes, " bytes of memory.\n");
  }

  // Calls task(i) for i in [0, count) on the operator's threads. Each thread takes the next i: most
  // tasks are shorter than queueing them would be.
  void ForEach(size_t count, const std::function<void(size_t)>& task) {
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t i = next++; i < count; i = next++) task(i);
    };
    const size_t workers = std::min(count, static_cast<size_t>(threads_.NumThreads()));
    if (workers <= 1) return work();
    for (size_t i = 0; i < workers; ++i) threads_.AddWork(work);
    threads_.RunAll();
  }

  // Validates a file, or finds it in the cache.
  Status Read(const std::string& source, const uint8_t* file, size_t size, ImageView* view,
              const DeviceImage** cached) {
    *cached = nullptr;
    if (cache_ != nullptr && !source.empty()) {
      // A reader that skips a file gives no byte of it, or one.
      const bool is_skipped = skip_list_ != nullptr && size <= 1 && skip_list_->IsCached(source);
      *cached = is_skipped ? cache_->FindUnread(source) : cache_->Find(source, file, size, size);
      DALI_ENFORCE(*cached != nullptr || !is_skipped,
                   dali::make_string("The reader skipped ", Printable(source),
                                     " as cached, but it is not in this operator's cache: the "
                                     "pipeline that cached it is gone. Create the reader again, "
                                     "or without `skip_cached_images`."));
    }
    if (*cached == nullptr) return ParseImage(file, size, view);
    *view = (*cached)->view;
    return Status::kOk;
  }

  // The same of a handle. Of a file that is in the cache nothing is read.
  Status Read(const std::string& source, const FileHandle& handle, ImageView* view,
              const DeviceImage** cached) {
    const bool looks = cache_ != nullptr && !source.empty();
    *cached = looks ? cache_->Find(source, handle.head, handle.head_bytes, handle.bytes) : nullptr;
    if (*cached == nullptr) return ParseHandle(handle, view);
    *view = (*cached)->view;
    return Status::kOk;
  }

  // Decodes all jobs, those behind a bad one too: of these samples of the batch. Returns a result
  // for each.
  std::vector<DecodeResult> Decode(dali::Workspace& ws, const std::vector<int>& samples,
                                   std::vector<WindowJob>* jobs) {
    if (jobs->empty()) return {};
    const auto& input = ws.Input<dali::CPUBackend>(0);
    for (size_t i = 0; i < jobs->size(); ++i) {
      WindowJob& job = (*jobs)[i];
      const std::string& source = input.GetMeta(samples[i]).GetSourceInfo();
      const bool keep = cache_ != nullptr && job.cached == nullptr && !source.empty() &&
                        job.plan_count != 0 && NeedsAll(job) &&
                        cache_->Wants(source, *job.view, this);
      if (keep) job.cache_key = &source;
      // As DALI has the inputs of mixed operators.
      job.is_pinned = input.is_pinned() && job.source == nullptr;
    }
    const std::vector<DecodeResult> of_windows = decoder_.Decode(
        *jobs, ws.stream(),
        [this](size_t count, const std::function<void(size_t)>& task) { ForEach(count, task); });
    std::vector<DecodeResult> results(jobs->size(), DecodeResult{Status::kOk, 0});
    auto next = of_windows.begin();
    for (size_t i = 0; i < jobs->size(); ++i) {
      for (const auto end = next + (*jobs)[i].plan_count; next < end; ++next) {
        results[i] = FirstBad(results[i], *next);
      }
    }
    if (skip_list_ != nullptr) ListCached(ws, *jobs);
    return results;
  }

  // Copies small things to the memory of outputs: by pinned memory, which is written again only
  // once the copy before is done.
  void Copy(dali::Workspace& ws, void* to, const void* from, size_t bytes) {
    copied_->Synchronize();
    if (copied_bytes_ < bytes) {
      copied_from_ = device_->AllocatePinned(bytes);
      copied_bytes_ = bytes;
    }
    std::memcpy(copied_from_.get(), from, bytes);
    device_->Copy(to, copied_from_.get(), bytes, ws.stream());
    copied_->Record(ws.stream());
  }
  static void Clear(dali::Workspace& ws, void* data, size_t bytes) {
    CUDA_CALL(cudaMemsetAsync(data, 0, bytes, ws.stream()));
  }

 private:
  static std::unique_ptr<GpuDevice> MakeDevice(int device_id) {
    return std::unique_ptr<GpuDevice>(L3MakeCudaDevice(device_id, new DaliAllocator));
  }

  // Whether a handle's file is read as a whole for a job. Only then it can be kept.
  static bool NeedsAll(const WindowJob& job) {
    if (job.source == nullptr) return true;
    const std::vector<ByteRange> ranges = FindFileRanges(job, 0);
    return ranges.size() == 1 && ranges[0].end == FileBytes(*job.view);
  }

  // Names what this batch had cached to readers that skip such files: they ask DALI's own cache,
  // which gets one byte of each.
  void ListCached(const dali::Workspace& ws, const std::vector<WindowJob>& jobs) {
    bool waits = false;
    for (const WindowJob& job : jobs) {
      if (job.cache_key == nullptr || skip_list_->IsCached(*job.cache_key)) continue;
      const CachedImage* cached = cache_->Peek(*job.cache_key);
      if (cached == nullptr) continue;
      if (!waits) cache_->WaitForFills(ws.stream());
      waits = true;
      skip_list_->Add(*job.cache_key, cached->payloads_dev, {1, 1, 1}, ws.stream());
    }
  }

  // The value of an argument that counts bytes.
  static size_t Bytes(const dali::OpSpec& spec, const std::string& name) {
    const int64_t bytes = spec.GetArgument<int64_t>(name);
    DALI_ENFORCE(bytes >= 0, dali::make_string("`", name, "` must be 0 or more, got ", bytes, "."));
    return static_cast<size_t>(bytes);
  }

  // Null without `cache_size`.
  static std::shared_ptr<EncodedCache> FindCache(const dali::OpSpec& spec, int device_id) {
    CacheOptions options = {CacheBytes(spec), CachePolicy::kThreshold,
                            Bytes(spec, "cache_threshold"), SkipListBytes(spec)};
    if (options.capacity_bytes == 0) return nullptr;
    const std::string type = spec.GetArgument<std::string>("cache_type");
    DALI_ENFORCE(type.empty() || type == "threshold" || type == "largest",
                 dali::make_string("`cache_type` must be \"threshold\" or \"largest\", got \"",
                                   type, "\"."));
    if (type == "largest") options.policy = CachePolicy::kLargest;
    return EncodedCache::OfDevice(device_id, options,
                                  [device_id] { return MakeDevice(device_id); });
  }

  static uint64_t CacheBytes(const dali::OpSpec& spec) { return Bytes(spec, "cache_size") << 20; }

  // Bytes of the stand-in cache: one for each image, and few images have less than 1 KiB.
  static uint64_t SkipListBytes(const dali::OpSpec& spec) {
    return spec.GetArgument<bool>("skip_cached_images") ? CacheBytes(spec) >> 10 : 0;
  }

  // The cache that DALI has for the device, its decoders' or a small one. Null if not asked for.
  static std::shared_ptr<dali::ImageCache> FindSkipList(const dali::OpSpec& spec, int device_id) {
    const uint64_t bytes = SkipListBytes(spec);
    if (bytes == 0) return nullptr;
    dali::ImageCacheFactory& caches = dali::ImageCacheFactory::Instance();
    return caches.IsInitialized(device_id) ? caches.Get(device_id)
                                           : caches.Get(device_id, "threshold", bytes);
  }

  const int device_id_;
  const bool reports_cache_;
  const std::shared_ptr<EncodedCache> cache_;
  const std::shared_ptr<dali::ImageCache> skip_list_;
  const std::unique_ptr<GpuDevice> device_;
  const std::unique_ptr<GpuEvent> copied_;  // the last Copy(), from:
  std::shared_ptr<void> copied_from_;
  size_t copied_bytes_ = 0;
  BatchDecoder decoder_;
  dali::OldThreadPool threads_;  // a mixed operator gets none from its workspace
};

#else

class MixedBackend {
 public:
  using DaliBackend = dali::MixedBackend;
  using OutputBackend = dali::GPUBackend;

  explicit MixedBackend(const dali::OpSpec& spec) {
    DALI_FAIL(dali::make_string(
        dali::GetOpDisplayName(spec, true),
        "(device=\"mixed\") needs the CUDA engine, which this build of l3dali lacks. Reinstall "
        "with L3_CUDA_ARCHS=native or the GPU's compute capability, or use device=\"cpu\"."));
  }

  void ForEach(size_t, const std::function<void(size_t)>&) {}
  Status Read(const std::string&, const uint8_t*, size_t, ImageView*, const DeviceImage**) {
    return Status::kUnsupportedFeature;
  }
  Status Read(const std::string&, const FileHandle&, ImageView*, const DeviceImage**) {
    return Status::kUnsupportedFeature;
  }
  static std::vector<DecodeResult> Decode(dali::Workspace&, const std::vector<int>&,
                                          std::vector<WindowJob>*) {
    return {};
  }
  static void Copy(dali::Workspace&, void*, const void*, size_t) {}
  static void Clear(dali::Workspace&, void*, size_t) {}
};

#endif

}  // namespace l3
