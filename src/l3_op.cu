// The DALI operators: schemas, arguments, CPU and mixed backends. Layer:
// adapter; the only file that includes dali/. Holds no codec arithmetic.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cpu/cpu_decoder.h"
#include "dali/core/error_handling.h"
#include "dali/pipeline/data/views.h"
#include "dali/pipeline/operator/checkpointing/stateless_operator.h"
#include "dali/pipeline/operator/common.h"
#include "dali/pipeline/operator/operator.h"
#include "format/image_view.h"

#if L3_HAVE_CUDA
#include "cuda/cuda_decoder.h"
#include "dali/core/mm/memory.h"
#include "dali/pipeline/data/buffer.h"
#include "dali/pipeline/util/thread_pool.h"
#endif

namespace l3 {
namespace {

// "sample 3 (/data/a.l3)": how errors name a sample.
std::string NameSample(const dali::TensorList<dali::CPUBackend>& input, int sample) {
  const std::string& source = input.GetMeta(sample).GetSourceInfo();
  return dali::make_string("sample ", sample, source.empty() ? "" : " (", source,
                           source.empty() ? "" : ")");
}

[[noreturn]] void FailSample(const dali::TensorList<dali::CPUBackend>& input, int sample,
                             Status status, const std::string& where = "") {
  DALI_FAIL(dali::make_string("L3 decoding failed at ", NameSample(input, sample), where, ": ",
                              StatusMessage(status), " (", StatusName(status), ")."));
}

[[noreturn]] void FailTile(const dali::TensorList<dali::CPUBackend>& input, int sample,
                           const DecodeResult& result, const ImageInfo& info) {
  FailSample(input, sample, result.status,
             dali::make_string(", tile ", result.tile, " of ", info.tile_count()));
}

// Validates every sample of the batch. The views point into `input`.
std::vector<ImageView> ParseBatch(const dali::TensorList<dali::CPUBackend>& input) {
  std::vector<ImageView> views(input.num_samples());
  for (int i = 0; i < input.num_samples(); ++i) {
    DALI_ENFORCE(input.type() == DALI_UINT8 && input.shape().tensor_shape_span(i).size() == 1,
                 dali::make_string("l3.decode expects encoded files as 1-D uint8 tensors, got ",
                                   input.shape().tensor_shape_span(i).size(), "-D ", input.type(),
                                   " at ", NameSample(input, i), "."));
    const Status status = ParseImage(input.tensor<uint8_t>(i),
                                     static_cast<size_t>(input.shape().tensor_size(i)), &views[i]);
    if (status != Status::kOk) FailSample(input, i, status);
    DALI_ENFORCE(views[i].info.sample_bits == views[0].info.sample_bits,
                 dali::make_string("l3.decode: a batch has one type, but ", NameSample(input, 0),
                                   " holds ", int{views[0].info.sample_bits}, "-bit samples and ",
                                   NameSample(input, i), " ", int{views[i].info.sample_bits},
                                   "-bit ones. Read 8-bit and 16-bit files in separate readers."));
  }
  return views;
}

dali::OutputDesc DescribeOutput(const std::vector<ImageView>& views) {
  dali::OutputDesc desc;
  const bool is_u16 = !views.empty() && views[0].info.sample_bits == 16;
  desc.type = is_u16 ? DALI_UINT16 : DALI_UINT8;
  desc.shape = dali::TensorListShape<>(static_cast<int>(views.size()), 3);
  for (size_t i = 0; i < views.size(); ++i) {
    const ImageInfo& info = views[i].info;
    desc.shape.set_tensor_shape(
        static_cast<int>(i),
        dali::TensorShape<3>(info.height_px, info.width_px, info.channels));
  }
  return desc;
}

// Parses in SetupImpl, so that DALI allocates the output.
template <typename Backend>
class DecodeBase : public dali::StatelessOperator<Backend> {
 public:
  using dali::StatelessOperator<Backend>::StatelessOperator;

 protected:
  bool SetupImpl(std::vector<dali::OutputDesc>& outputs, const dali::Workspace& ws) override {
    views_ = ParseBatch(ws.Input<dali::CPUBackend>(0));
    outputs = {DescribeOutput(views_)};
    return true;
  }

  std::vector<ImageView> views_;
};

class DecodeCpu : public DecodeBase<dali::CPUBackend> {
 public:
  using DecodeBase::DecodeBase;

 protected:
  void RunImpl(dali::Workspace& ws) override {
    const auto& input = ws.Input<dali::CPUBackend>(0);
    auto& output = ws.Output<dali::CPUBackend>(0);
    output.SetLayout("HWC");
    dali::ThreadPool& threads = ws.GetThreadPool();

    std::vector<CpuDecoder> decoders;
    std::vector<Task> tasks;
    for (size_t i = 0; i < views_.size(); ++i) {
      decoders.emplace_back(views_[i]);
      AppendTasks(static_cast<int>(i), views_[i].info, &tasks);
    }
    for (Task& task : tasks) {
      const CpuDecoder& decoder = decoders[task.sample];
      const ImageOutput image{static_cast<uint8_t*>(output.raw_mutable_tensor(task.sample)),
                              decoder.info().row_bytes()};
      const int64_t pixels = int64_t{task.end - task.begin}
                             << (decoder.info().tile_width_log2 + decoder.info().tile_height_log2);
      threads.AddWork(
          [&task, &decoder, image](int) {
            task.result = decoder.DecodeTiles(task.begin, task.end, image);
          },
          pixels);
    }
    threads.RunAll();

    const auto bad = std::find_if(tasks.begin(), tasks.end(),
                                  [](const Task& task) { return task.result.status != Status::kOk; });
    if (bad != tasks.end()) FailTile(input, bad->sample, bad->result, views_[bad->sample].info);
  }

 private:
  // A run of tiles of one sample.
  struct Task {
    int sample;
    uint32_t begin, end;
    DecodeResult result;
  };

  // Small images are one task; large ones several, in whole rows of tiles.
  static void AppendTasks(int sample, const ImageInfo& info, std::vector<Task>* tasks) {
    constexpr uint64_t kTaskPixels = 1 << 19;
    const uint64_t row_pixels = uint64_t{info.width_px} << info.tile_height_log2;
    const uint32_t rows =
        static_cast<uint32_t>(std::max<uint64_t>(1, kTaskPixels / row_pixels));
    const uint64_t step = uint64_t{rows} * info.tile_columns();
    for (uint64_t begin = 0; begin < info.tile_count(); begin += step) {
      const uint64_t end = std::min<uint64_t>(begin + step, info.tile_count());
      tasks->push_back(
          {sample, static_cast<uint32_t>(begin), static_cast<uint32_t>(end), DecodeResult{}});
    }
  }
};

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
  std::shared_ptr<void> AllocateDevice(size_t bytes, CUstream_st* stream) override {
    constexpr size_t kAlignment = 256;
    return dali::mm::alloc_raw_async_shared<uint8_t, dali::mm::memory_kind::device>(
        bytes, stream, stream, kAlignment);
  }
};

class DecodeMixed : public DecodeBase<dali::MixedBackend> {
 public:
  explicit DecodeMixed(const dali::OpSpec& spec)
      : DecodeBase(spec),
        decoder_(std::make_unique<DaliAllocator>()),
        threads_(num_threads_, spec.GetArgument<int>("device_id"),
                 spec.GetArgument<bool>("affine"), "[DALI][L3] decode") {}

 protected:
  void RunImpl(dali::Workspace& ws) override {
    const auto& input = ws.Input<dali::CPUBackend>(0);
    auto& output = ws.Output<dali::GPUBackend>(0);
    output.SetLayout("HWC");
    std::vector<CudaSample> samples;
    for (size_t i = 0; i < views_.size(); ++i) {
      uint8_t* data = static_cast<uint8_t*>(output.raw_mutable_tensor(static_cast<int>(i)));
      samples.push_back({views_[i], WholeImagePlan(views_[i].info, data)});
    }
    decoder_.Launch(samples, ws.stream(),
                    [this](size_t count, const std::function<void(size_t)>& task) {
                      for (size_t i = 0; i < count; ++i) threads_.AddWork([&task, i] { task(i); });
                      threads_.RunAll();
                    });
    const std::vector<DecodeResult>& results = decoder_.Wait();
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].status == Status::kOk) continue;
      FailTile(input, static_cast<int>(i), results[i], views_[i].info);
    }
  }

 private:
  CudaBatchDecoder decoder_;
  dali::OldThreadPool threads_;  // a mixed operator gets none from its workspace
};

#else

class DecodeMixed : public dali::StatelessOperator<dali::MixedBackend> {
 public:
  explicit DecodeMixed(const dali::OpSpec& spec) : StatelessOperator(spec) {
    DALI_FAIL(
        "fn.l3.decode(device=\"mixed\") needs the CUDA engine, and this build of l3dali has none "
        "(L3_CUDA=OFF). Reinstall with L3_CUDA=ON, or use device=\"cpu\".");
  }

 protected:
  bool SetupImpl(std::vector<dali::OutputDesc>&, const dali::Workspace&) override { return false; }
  void RunImpl(dali::Workspace&) override {}
};

#endif

}  // namespace
}  // namespace l3

// DALI's macros name its types without their namespace.
namespace dali {

DALI_SCHEMA(l3__Decode)
    .DocStr(R"code(Decodes lossless L3 images.

The output has the layout HWC, the stored number of channels and the stored type,
``uint8`` or ``uint16``. Images of a batch may differ in size and in the number of
channels, not in type.

With ``device="mixed"`` a batch is decoded on the GPU, by one upload and one launch.
An image that is damaged, or no L3 image, is an error that names the sample.)code")
    .NumInput(1)
    .InputDox(0, "encoded", "1D TensorList of uint8", "The bytes of an ``.l3`` file a sample.")
    .NumOutput(1)
    .AddOptionalArg("affine", R"code(For ``device="mixed"``: bind the operator's threads to the
processors closest to the GPU.)code",
                    true);

DALI_REGISTER_OPERATOR(l3__Decode, l3::DecodeCpu, CPU);
DALI_REGISTER_OPERATOR(l3__Decode, l3::DecodeMixed, Mixed);

}  // namespace dali
