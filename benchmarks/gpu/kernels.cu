// Times the decoding kernels on batches that lie in GPU memory, and the copies
// that bound them.
//
//   l3_bench_kernels [--batch 1,32,256] [--repeat 50] [--json FILE] FILE.l3...
//
// Each copy of an image in a batch has an output of its own. Images of three channels are also
// decoded to planes of normalized halves, and crops of 224x224 of them. Times are medians over
// launches. Throughput is in bytes of stored pixels; a copy counts its bytes once, though a device
// copy reads and writes them.
#include <cstring>
#include <memory>

#include "benchmarks/gpu/kernel_bench.h"
#include "cuda/engine/batch_layout.h"
#include "cuda/engine/launch.h"
#include "output/store_pixel.h"

namespace l3 {
namespace {

constexpr size_t kCopyBytes = size_t{1} << 30;

double CopyGigabytesPerSecond(GpuTimer* timer, int repeat, const void* from, cudaMemcpyKind kind) {
  const DeviceMemory to(kCopyBytes);
  const double median_us = timer->Run(repeat, [&](cudaStream_t stream) {
    L3_CUDA_CHECK(cudaMemcpyAsync(to.data(), from, kCopyBytes, kind, stream));
  });
  return static_cast<double>(kCopyBytes) / median_us / 1e3;
}

double DeviceCopyGigabytesPerSecond(GpuTimer* timer, int repeat) {
  const DeviceMemory from(kCopyBytes);
  L3_CUDA_CHECK(cudaMemset(from.data(), 1, kCopyBytes));
  return CopyGigabytesPerSecond(timer, repeat, from.data(), cudaMemcpyDeviceToDevice);
}

// From pinned memory.
double HostToDeviceGigabytesPerSecond(GpuTimer* timer, int repeat) {
  void* memory = nullptr;
  L3_CUDA_CHECK(cudaMallocHost(&memory, kCopyBytes));
  const std::unique_ptr<void, cudaError_t (*)(void*)> from(memory, &cudaFreeHost);
  std::memset(memory, 1, kCopyBytes);
  return CopyGigabytesPerSecond(timer, repeat, memory, cudaMemcpyHostToDevice);
}

// By the mode the image was encoded in. The name of the file says it, <image>.<mode>.l3: not all
// files of rans mode have rans tiles.
std::string CodecName(const BenchImage& image) {
  for (const char* mode : {"packed", "rans", "jpeg"}) {
    const std::string ending = std::string(".") + mode + ".l3";
    if (image.name.size() > ending.size() &&
        image.name.compare(image.name.size() - ending.size(), ending.size(), ending) == 0) {
      return std::string("L3 ") + mode;
    }
  }
  return "L3";
}

// As networks take images: planes of halves, normalized.
OutputPlan NormalizedWindow(const ImageInfo& info, const Window& window, uint8_t* data) {
  OutputPlan plan = WholeImagePlan(info, data);
  plan.window = window;
  plan.op = PixelOp::kScale;
  plan.type = OutputType::kF16;
  plan.x_stride_bytes = 2;
  plan.y_stride_bytes = int64_t{2} * window.width_px;
  plan.SetChannelStride(plan.y_stride_bytes * window.height_px);
  plan.range = 1;
  for (uint32_t c = 0; c < kMaxChannels; ++c) {
    plan.subtract[c] = 123.675f + static_cast<float>(c);
    plan.multiply[c] = 1 / 58.395f;
  }
  return plan;
}

OutputPlan NormalizedPlan(const ImageInfo& info, uint8_t* data) {
  return NormalizedWindow(info, {0, 0, info.width_px, info.height_px}, data);
}

// A window that begins in the middle of groups and tiles.
OutputPlan NormalizedCropPlan(const ImageInfo& info, uint8_t* data) {
  return NormalizedWindow(info, {info.width_px / 4 + 1, info.height_px / 4 + 1, 224, 224}, data);
}

using MakePlan = OutputPlan (*)(const ImageInfo& info, uint8_t* data);

// Copies of an image as a batch in GPU memory; each has an output of its own.
class Batch {
 public:
  Batch(const BenchImage& image, size_t copies, MakePlan make_plan)
      : image_(image),
        copies_(copies),
        make_plan_(make_plan),
        output_bytes_(PlanBytes(make_plan(image.view.info, nullptr))),
        stride_(CeilDiv(output_bytes_, size_t{256}) * 256),
        output_(copies * stride_) {
    const ImageView& view = image.view;
    std::vector<GroupOutput> groups = {GroupOfView(view)};
    std::vector<OutputPlan> plans;
    for (size_t i = 0; i < copies; ++i) {
      plans.push_back(make_plan(view.info, output_.data() + i * stride_));
    }
    std::vector<WindowJob> jobs;
    for (const OutputPlan& plan : plans) jobs.push_back({&view, &groups, &plan, 1});
    // Memory may still hold an earlier batch's pixels.
    L3_CUDA_CHECK(cudaMemset(output_.data(), 0xA5, copies * stride_));
    BatchLayout layout;
    layout.Plan(&jobs, GetGpuLimits());
    device_ = std::make_unique<DeviceMemory>(layout.total_bytes());
    scratch_ = std::make_unique<DeviceMemory>(layout.jpeg_scratch_bytes());
    layout.SetJpegScratch(scratch_->data());
    std::vector<uint8_t> staging(layout.uploaded_bytes());
    for (size_t i = 0; i < layout.piece_count(); ++i) {
      layout.WritePiece(i, staging.data(), device_->data());
    }
    L3_CUDA_CHECK(
        cudaMemcpy(device_->data(), staging.data(), staging.size(), cudaMemcpyHostToDevice));
    for (size_t i = 0; i < layout.launch_count(); ++i) {
      launches_.push_back(layout.Batch(device_->data(), i));
    }
    for (size_t i = 0; i < layout.round_count(); ++i) {
      rounds_.push_back(layout.Round(device_->data(), i));
    }
  }

  void Launch(cudaStream_t stream) const {
    for (const TileBatch& launch : launches_) LaunchDecodeTiles(launch, stream);
    for (const JpegBatch& round : rounds_) LaunchDecodeJpeg(round, stream);
  }

  // Throws if a tile was bad, or the pixels of the first copy differ from the CPU's.
  void Check() const {
    std::vector<uint64_t> results(copies_);
    L3_CUDA_CHECK(cudaMemcpy(results.data(), device_->data(), 8 * copies_, cudaMemcpyDeviceToHost));
    for (uint64_t result : results) {
      if (result != kNoBadTile) throw std::runtime_error("the GPU found a bad tile");
    }
    std::vector<uint8_t> got(output_bytes_), expected(output_bytes_);
    L3_CUDA_CHECK(cudaMemcpy(got.data(), output_.data(), got.size(), cudaMemcpyDeviceToHost));
    const ImageInfo& info = image_.view.info;
    std::vector<uint8_t> pixels = image_.pixels;
    StoreRect(info, make_plan_(info, expected.data()), {0, 0, info.width_px, info.height_px},
              {pixels.data(), info.row_bytes()});
    if (got != expected) throw std::runtime_error("the GPU's pixels differ from the CPU's");
  }

 private:
  // Of an output, which is packed.
  static size_t PlanBytes(const OutputPlan& plan) {
    return size_t{plan.window.width_px} * plan.window.height_px * plan.channels *
           OutputBytes(plan.type);
  }

  const BenchImage& image_;
  size_t copies_;
  MakePlan make_plan_;
  size_t output_bytes_;
  size_t stride_;  // between outputs
  DeviceMemory output_;
  std::unique_ptr<DeviceMemory> device_, scratch_;
  std::vector<TileBatch> launches_;
  std::vector<JpegBatch> rounds_;  // of images of jpeg tiles
};

void Run(const BenchOptions& options) {
  const std::vector<BenchImage> images = ReadBenchImages(options.files);
  BenchReport report(options.json, RequireGpu());
  GpuTimer timer;
  const double device_copy = DeviceCopyGigabytesPerSecond(&timer, options.repeat);
  const double upload = HostToDeviceGigabytesPerSecond(&timer, options.repeat);
  std::printf("device copy %.0f GB/s, host-to-device copy %.1f GB/s\n", device_copy, upload);
  report.Set("device_copy_gb_s", std::to_string(device_copy));
  report.Set("host_to_device_gb_s", std::to_string(upload));
  PrintHeading(report.gpu());

  for (const BenchImage& image : images) {
    const auto time = [&](const std::string& what, MakePlan make_plan) {
      ImageInfo info = image.view.info;
      const Window window = make_plan(info, nullptr).window;
      info.width_px = window.width_px;
      info.height_px = window.height_px;
      for (size_t copies : options.batches) {
        report.Try(image.name + what + ", batch " + std::to_string(copies), [&] {
          const Batch batch(image, copies, make_plan);
          const double median_us =
              timer.Run(options.repeat, [&](cudaStream_t stream) { batch.Launch(stream); });
          batch.Check();
          report.Add({CodecName(image) + what, image.name, info, copies,
                      image.bytes.size() * copies, median_us});
        });
      }
    };
    time("", WholeImagePlan);
    if (image.view.info.channels != 3) continue;
    time(", CHW float16", NormalizedPlan);
    time(", crop, CHW float16", NormalizedCropPlan);
  }
  report.RequireSound();
}

}  // namespace
}  // namespace l3

int main(int argc, char** argv) { return l3::BenchMain(argc, argv, l3::Run); }
