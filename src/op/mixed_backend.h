// Decoding on the GPU from encoded files in host memory. Layer: adapter.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "dali/core/error_handling.h"
#include "dali/pipeline/operator/name_utils.h"
#include "dali/pipeline/workspace/workspace.h"
#include "op/decode_job.h"

#if L3_HAVE_CUDA
#include <cuda_runtime_api.h>

#include "cuda/batch_decoder.h"
#include "cuda/cuda_device.h"
#include "dali/core/cuda_error.h"
#include "dali/core/mm/memory.h"
#include "dali/pipeline/data/buffer.h"
#include "dali/pipeline/util/thread_pool.h"
#endif

namespace l3 {

#if L3_HAVE_CUDA

// Memory from DALI's pools.
class DaliAllocator final : public CudaAllocator {
 public:
  std::shared_ptr<void> AllocatePinned(size_t bytes) override {
    constexpr size_t kAlignment = 64;
    if (dali::RestrictPinnedMemUsage()) {
      return dali::mm::alloc_raw_shared<uint8_t, dali::mm::memory_kind::host>(bytes, kAlignment);
    }
    return dali::mm::alloc_raw_shared<uint8_t, dali::mm::memory_kind::pinned>(bytes, kAlignment);
  }
  std::shared_ptr<void> AllocateDevice(size_t bytes) override {
    constexpr size_t kAlignment = 256;
    return dali::mm::alloc_raw_shared<uint8_t, dali::mm::memory_kind::device>(bytes, kAlignment);
  }
};

class MixedBackend {
 public:
  using DaliBackend = dali::MixedBackend;
  using OutputBackend = dali::GPUBackend;

  explicit MixedBackend(const dali::OpSpec& spec)
      : decoder_(MakeCudaDevice(std::make_unique<DaliAllocator>())),
        threads_(spec.GetArgument<int>("num_threads"), spec.GetArgument<int>("device_id"),
                 spec.GetArgument<bool>("affine"), "[DALI][L3] decode") {}

  // Decodes all jobs, those behind a bad one too.
  void Decode(dali::Workspace& ws, std::vector<DecodeJob>* jobs) {
    if (jobs->empty()) return;
    std::vector<CudaSample> samples;
    for (const DecodeJob& job : *jobs) samples.push_back({*job.view, job.plan});
    decoder_.Launch(samples, ws.stream(),
                    [this](size_t count, const std::function<void(size_t)>& task) {
                      for (size_t i = 0; i < count; ++i) threads_.AddWork([&task, i] { task(i); });
                      threads_.RunAll();
                    });
    const std::vector<DecodeResult>& results = decoder_.Wait();
    for (size_t i = 0; i < jobs->size(); ++i) (*jobs)[i].result = results[i];
  }

  // Copies small things to the memory of outputs.
  static void Copy(dali::Workspace& ws, void* to, const void* from, size_t bytes) {
    CUDA_CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, ws.stream()));
  }
  static void Clear(dali::Workspace& ws, void* data, size_t bytes) {
    CUDA_CALL(cudaMemsetAsync(data, 0, bytes, ws.stream()));
  }

 private:
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
        "(device=\"mixed\") needs the CUDA engine, and this build of l3dali has none "
        "(L3_CUDA=OFF). Reinstall with L3_CUDA=ON, or use device=\"cpu\"."));
  }

  void Decode(dali::Workspace&, std::vector<DecodeJob>*) {}
  static void Copy(dali::Workspace&, void*, const void*, size_t) {}
  static void Clear(dali::Workspace&, void*, size_t) {}
};

#endif

}  // namespace l3
