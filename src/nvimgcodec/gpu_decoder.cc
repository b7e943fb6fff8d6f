#include "nvimgcodec/gpu_decoder.h"

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda/engine/batch_decoder.h"
#include "nvimgcodec/executor.h"
#include "nvimgcodec/framework_memory.h"
#include "nvimgcodec/image_job.h"

namespace l3 {
namespace {

constexpr nvimgcodecProcessingStatus_t kFail = NVIMGCODEC_PROCESSING_STATUS_FAIL;
constexpr nvimgcodecProcessingStatus_t kSuccess = NVIMGCODEC_PROCESSING_STATUS_SUCCESS;

// What the framework hands over of a batch.
struct Batch {
  const nvimgcodecImageDesc_t** images;
  const nvimgcodecCodeStreamDesc_t** code_streams;
  size_t size;
  const nvimgcodecDecodeParams_t* params;
};

class GpuDecoder {
 public:
  GpuDecoder(const GpuDecoderPlugin& plugin, const nvimgcodecExecutionParams_t& execution)
      : log_(*plugin.log),
        buffer_kind_(plugin.gpu.backend == NVIMGCODEC_BACKEND_KIND_CPU_ONLY
                         ? NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_HOST
                         : NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_DEVICE),
        executor_(execution.executor),
        device_id_(execution.device_id),
        decoder_(std::make_unique<DeviceWithFrameworkMemory>(
            plugin.gpu.make(device_id_), execution.device_allocator, execution.pinned_allocator)) {}

  const Log& log() const { return log_; }

  // Decodes what can be decoded, and waits for it: the framework reads a status for each image.
  // Throws if the device fails; then no image of the batch is good.
  void Decode(const Batch& batch, std::vector<nvimgcodecProcessingStatus_t>* statuses) {
    std::vector<ImageJob> jobs(batch.size);
    ForEach(batch.size, [&](size_t i) {
      (*statuses)[i] = OpenImage(log_, batch.images[i], batch.code_streams[i], batch.params,
                                 buffer_kind_, &jobs[i]);
    });
    std::vector<size_t> left;
    for (size_t i = 0; i < jobs.size(); ++i) {
      if ((*statuses)[i] == kSuccess) left.push_back(i);
    }
    // Images of a batch should have one stream, but the interface does not promise it.
    while (!left.empty()) {
      std::vector<size_t> others;
      std::vector<size_t> alike;
      for (const size_t i : left) {
        (jobs[i].stream == jobs[left[0]].stream ? alike : others).push_back(i);
      }
      DecodeOnOneStream(jobs, alike, statuses);
      left = std::move(others);
    }
  }

 private:
  void ForEach(size_t count, const std::function<void(size_t)>& task) {
    RunOn(executor_, device_id_, count, task);
  }

  void DecodeOnOneStream(const std::vector<ImageJob>& jobs, const std::vector<size_t>& chosen,
                         std::vector<nvimgcodecProcessingStatus_t>* statuses) {
    std::vector<WindowJob> windows;
    for (const size_t i : chosen) {
      windows.push_back({&jobs[i].view, &jobs[i].groups, &jobs[i].output, 1});
    }
    std::vector<DecodeResult> results;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      results = decoder_.Decode(
          windows, jobs[chosen[0]].stream,
          [this](size_t count, const std::function<void(size_t)>& task) { ForEach(count, task); });
    }
    for (size_t i = 0; i < chosen.size(); ++i) {
      (*statuses)[chosen[i]] = ReportStatus(log_, jobs[chosen[i]].view.info, results[i]);
    }
  }

  const Log& log_;
  const nvimgcodecImageBufferKind_t buffer_kind_;
  const nvimgcodecExecutorDesc_t* const executor_;
  const int device_id_;
  std::mutex mutex_;
  BatchDecoder decoder_;
};

nvimgcodecStatus_t Create(void* instance, nvimgcodecDecoder_t* decoder,
                          const nvimgcodecExecutionParams_t* execution, const char*) {
  if (instance == nullptr || decoder == nullptr || !IsWhole(execution)) {
    return NVIMGCODEC_STATUS_EXTENSION_INVALID_PARAMETER;
  }
  const auto& plugin = *static_cast<const GpuDecoderPlugin*>(instance);
  const bool wants_gpu = plugin.gpu.backend != NVIMGCODEC_BACKEND_KIND_CPU_ONLY;
  if (wants_gpu && execution->device_id == NVIMGCODEC_DEVICE_CPU_ONLY) {
    return NVIMGCODEC_STATUS_INVALID_PARAMETER;  // nothing to tell anybody
  }
  return Guarded(NVIMGCODEC_STATUS_EXTENSION_INTERNAL_ERROR, [&] {
    try {
      *decoder = reinterpret_cast<nvimgcodecDecoder_t>(new GpuDecoder(plugin, *execution));
      return NVIMGCODEC_STATUS_SUCCESS;
    } catch (const std::exception& error) {
      plugin.log->Warn(std::string("L3 cannot use the GPU, and decodes on the CPU: ") +
                       error.what());
      return NVIMGCODEC_STATUS_EXTENSION_CUDA_CALL_ERROR;
    }
  });
}

nvimgcodecStatus_t Destroy(nvimgcodecDecoder_t decoder) {
  delete reinterpret_cast<GpuDecoder*>(decoder);
  return NVIMGCODEC_STATUS_SUCCESS;
}

// The framework asks those that could not be created, too.
nvimgcodecProcessingStatus_t CanDecode(nvimgcodecDecoder_t decoder,
                                       const nvimgcodecImageDesc_t* image,
                                       const nvimgcodecCodeStreamDesc_t* code_stream,
                                       const nvimgcodecDecodeParams_t* params, int) {
  if (decoder == nullptr) return NVIMGCODEC_PROCESSING_STATUS_BACKEND_UNSUPPORTED;
  return CanDecodeImage(image, code_stream, params);
}

// Decodes, and gives each image its status. On success the framework reads these statuses. On any
// other result it ignores them and tries all images on the CPU.
nvimgcodecStatus_t DecodeAndTell(GpuDecoder& gpu, const Batch& batch,
                                 std::vector<nvimgcodecProcessingStatus_t>* statuses) noexcept {
  const auto status = Guarded(NVIMGCODEC_STATUS_EXECUTION_FAILED, [&] {
    statuses->assign(batch.size, kFail);
    const std::string what = "L3 batch of " + std::to_string(batch.size) + " images: ";
    try {
      gpu.Decode(batch, statuses);
      return NVIMGCODEC_STATUS_SUCCESS;
    } catch (const std::bad_alloc&) {
      gpu.log().Fail(what + "out of memory.");
    } catch (const std::exception& error) {
      gpu.log().Fail(what + error.what());
    }
    return NVIMGCODEC_STATUS_EXECUTION_FAILED;
  });
  for (size_t i = 0; i < batch.size; ++i) {
    const nvimgcodecImageDesc_t* image = batch.images[i];
    if (image == nullptr) continue;
    const bool is_known = status == NVIMGCODEC_STATUS_SUCCESS;
    image->imageReady(image->instance, is_known ? (*statuses)[i] : kFail);
  }
  return status;
}

nvimgcodecStatus_t DecodeBatch(nvimgcodecDecoder_t decoder, const nvimgcodecImageDesc_t** images,
                               const nvimgcodecCodeStreamDesc_t** code_streams, int batch_size,
                               const nvimgcodecDecodeParams_t* params, int) {
  if (batch_size == 0) return NVIMGCODEC_STATUS_SUCCESS;
  if (decoder == nullptr || images == nullptr || code_streams == nullptr || batch_size < 0) {
    return NVIMGCODEC_STATUS_EXTENSION_INVALID_PARAMETER;
  }
  std::vector<nvimgcodecProcessingStatus_t> statuses;
  return DecodeAndTell(*reinterpret_cast<GpuDecoder*>(decoder),
                       {images, code_streams, static_cast<size_t>(batch_size), params}, &statuses);
}

// nvImageCodec calls this when it tries an image of a batch again. It does not check for null, so
// the function must exist.
nvimgcodecStatus_t Decode(nvimgcodecDecoder_t decoder, const nvimgcodecImageDesc_t* image,
                          const nvimgcodecCodeStreamDesc_t* code_stream,
                          const nvimgcodecDecodeParams_t* params, int) {
  if (decoder == nullptr || image == nullptr || code_stream == nullptr) {
    return NVIMGCODEC_STATUS_EXTENSION_INVALID_PARAMETER;
  }
  std::vector<nvimgcodecProcessingStatus_t> statuses;
  const nvimgcodecStatus_t status = DecodeAndTell(*reinterpret_cast<GpuDecoder*>(decoder),
                                                  {&image, &code_stream, 1, params}, &statuses);
  if (status != NVIMGCODEC_STATUS_SUCCESS) return status;
  return statuses[0] == kSuccess ? NVIMGCODEC_STATUS_SUCCESS : NVIMGCODEC_STATUS_EXECUTION_FAILED;
}

}  // namespace

nvimgcodecDecoderDesc_t MakeGpuDecoder(GpuDecoderPlugin* plugin) {
  auto decoder = Tagged<nvimgcodecDecoderDesc_t>(NVIMGCODEC_STRUCTURE_TYPE_DECODER_DESC);
  decoder.instance = plugin;
  decoder.id = plugin->log->id();
  decoder.codec = kCodec;
  decoder.backend_kind = plugin->gpu.backend;
  decoder.create = Create;
  decoder.destroy = Destroy;
  decoder.getMetadata = RefuseMetadata;
  decoder.canDecode = CanDecode;
  decoder.decode = Decode;
  decoder.decodeBatch = DecodeBatch;
  return decoder;
}

}  // namespace l3
