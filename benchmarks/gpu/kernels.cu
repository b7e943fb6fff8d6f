// Times the decoding kernels on batches that lie in GPU memory, and the copies
// that bound them.
//
//   l3_bench_kernels [--batch 1,32,256] [--repeat 50] [--json FILE] [--host-only] FILE.l3...
//
// Each copy of an image in a batch has an output of its own. Images of three channels are also
// decoded to planes of normalized halves, and crops of 224x224 of them. Times are medians over
// launches. Throughput is in bytes of stored pixels; a copy counts its bytes once, though a device
// copy reads and writes them. Last come batches of all the files, as many copies of each, in one
// launch, beside what the launches of each alone took.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>

#include "benchmarks/gpu/kernel_bench.h"
#include "cuda/engine/batch_layout.h"
#include "cuda/engine/launch.h"
#include "output/store_pixel.h"

namespace l3 {
namespace {

constexpr size_t kCopyBytes = size_t{1} << 30;

double CopyGigabytesPerSecond(GpuTimer* timer, int repeat, const void* from, cudaMemcpyKind kind) {
  const DeviceMemory to(kCopyBytes);
  const std::vector<double> times = timer->Run(repeat, [&](cudaStream_t stream) {
    L3_CUDA_CHECK(cudaMemcpyAsync(to.data(), from, kCopyBytes, kind, stream));
  });
  return static_cast<double>(kCopyBytes) / times[times.size() / 2] / 1e3;
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
  for (const char* mode : {"packed", "rans"}) {
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

using Members = std::vector<const BenchImage*>;

// A batch in GPU memory of `copies` of each member; each copy has an output of its own.
class Batch {
 public:
  Batch(const Members& members, size_t copies, MakePlan make_plan = WholeImagePlan)
      : members_(members),
        count_(members.size() * copies),
        make_plan_(make_plan),
        output_(OutputBytes()) {
    std::vector<OutputPlan> plans;
    std::vector<std::vector<GroupOutput>> groups;
    std::vector<WindowJob> jobs;
    for (size_t i = 0; i < count_; ++i) {
      const ImageView& view = member(i).view;
      plans.push_back(make_plan(view.info, output_.data() + OutputOffset(i)));
      groups.push_back({GroupOfView(view)});
    }
    for (size_t i = 0; i < count_; ++i) jobs.push_back({&member(i).view, &groups[i], &plans[i], 1});
    // Memory may still hold an earlier batch's pixels.
    L3_CUDA_CHECK(cudaMemset(output_.data(), 0xA5, OutputBytes()));
    BatchLayout layout;
    layout.Plan(jobs, GetGpuLimits());
    device_ = std::make_unique<DeviceMemory>(layout.total_bytes());
    std::vector<uint8_t> staging(layout.total_bytes());
    for (size_t i = 0; i < layout.piece_count(); ++i) {
      layout.WritePiece(i, staging.data(), device_->data());
    }
    L3_CUDA_CHECK(
        cudaMemcpy(device_->data(), staging.data(), staging.size(), cudaMemcpyHostToDevice));
    for (size_t i = 0; i < layout.launch_count(); ++i) {
      launches_.push_back(layout.Batch(device_->data(), i));
    }
  }

  void Launch(cudaStream_t stream) const {
    for (const TileBatch& launch : launches_) LaunchDecodeTiles(launch, stream);
  }

  // Throws if the Status of any image is wrong, or the first copy of a member.
  void Check() const {
    std::vector<uint64_t> results(count_);
    L3_CUDA_CHECK(cudaMemcpy(results.data(), device_->data(), 8 * count_, cudaMemcpyDeviceToHost));
    for (uint64_t result : results) {
      if (result != kNoBadTile) throw std::runtime_error("the GPU found a bad tile");
    }
    for (size_t i = 0; i < members_.size(); ++i) {
      std::vector<uint8_t> got(ImageBytes(member(i))), expected(got.size());
      L3_CUDA_CHECK(cudaMemcpy(got.data(), output_.data() + OutputOffset(i), got.size(),
                               cudaMemcpyDeviceToHost));
      const ImageInfo& info = member(i).view.info;
      std::vector<uint8_t> pixels = member(i).pixels;
      StoreRect(info, make_plan_(info, expected.data()), {0, 0, info.width_px, info.height_px},
                {pixels.data(), info.row_bytes()});
      if (got != expected) throw std::runtime_error("the GPU's pixels differ from the CPU's");
    }
  }

 private:
  // Members take turns: member 0, 1, ... 0, 1, ...
  const BenchImage& member(size_t i) const { return *members_[i % members_.size()]; }
  // Of an output, which is packed.
  size_t ImageBytes(const BenchImage& image) const {
    const OutputPlan plan = make_plan_(image.view.info, nullptr);
    return size_t{plan.window.width_px} * plan.window.height_px * plan.channels *
           l3::OutputBytes(plan.type);
  }
  size_t OutputOffset(size_t i) const {
    size_t turn = 0;
    size_t before = 0;
    for (size_t m = 0; m < members_.size(); ++m) {
      const size_t stride = CeilDiv(ImageBytes(*members_[m]), size_t{256}) * 256;
      turn += stride;
      if (m < i % members_.size()) before += stride;
    }
    return i / members_.size() * turn + before;
  }
  size_t OutputBytes() const { return OutputOffset(count_); }

  Members members_;
  size_t count_;
  MakePlan make_plan_;
  DeviceMemory output_;
  std::unique_ptr<DeviceMemory> device_;
  std::vector<TileBatch> launches_;
};

// Sorted microseconds.
std::vector<double> TimeBatch(GpuTimer* timer, const Members& members, size_t copies, int repeat,
                              MakePlan make_plan = WholeImagePlan) {
  const Batch batch(members, copies, make_plan);
  std::vector<double> times =
      timer->Run(repeat, [&](cudaStream_t stream) { batch.Launch(stream); });
  batch.Check();
  return times;
}

// All images in one launch; `alone_us` is the sum of the medians of a launch each. Returns JSON.
std::string TimeMixedBatch(GpuTimer* timer, const Members& members, size_t copies, int repeat,
                           double alone_us) {
  const std::vector<double> times = TimeBatch(timer, members, copies, repeat);
  const double median_us = times[times.size() / 2];
  uint64_t encoded_bytes = 0;
  uint64_t pixel_bytes = 0;
  for (const BenchImage* image : members) {
    encoded_bytes += image->bytes.size() * copies;
    pixel_bytes += image->pixels.size() * copies;
  }
  const auto rate = [&](double us) { return static_cast<double>(pixel_bytes) / us / 1e3; };
  std::printf(
      "%zu images, %zu copies each, in one launch: %.1f us, %.1f GB/s of pixels; "
      "each in a launch of its own: %.1f us, %.1f GB/s\n",
      members.size(), copies, median_us, rate(median_us), alone_us, rate(alone_us));
  return "{\"images\": " + std::to_string(members.size()) +
         ", \"copies\": " + std::to_string(copies) +
         ", \"encoded_bytes\": " + std::to_string(encoded_bytes) +
         ", \"pixel_bytes\": " + std::to_string(pixel_bytes) +
         ", \"median_us\": " + std::to_string(median_us) +
         ", \"min_us\": " + std::to_string(times.front()) +
         ", \"pixel_gb_s\": " + std::to_string(rate(median_us)) +
         ", \"alone_us\": " + std::to_string(alone_us) +
         ", \"alone_gb_s\": " + std::to_string(rate(alone_us)) + "}";
}

void Run(const BenchOptions& options) {
  const std::vector<BenchImage> images = ReadBenchImages(options.files);
  if (options.host_only) {
    for (const BenchImage& image : images) {
      std::printf("%s: %s\n", CodecName(image).c_str(), image.name.c_str());
    }
    return;
  }
  BenchReport report(options.json, RequireGpu());
  GpuTimer timer;
  const double device_copy = DeviceCopyGigabytesPerSecond(&timer, options.repeat);
  const double upload = HostToDeviceGigabytesPerSecond(&timer, options.repeat);
  std::printf("device copy %.0f GB/s, host-to-device copy %.1f GB/s\n", device_copy, upload);
  report.Set("device_copy_gb_s", std::to_string(device_copy));
  report.Set("host_to_device_gb_s", std::to_string(upload));
  PrintHeading(report.gpu());

  Members all;
  std::map<size_t, std::vector<double>> medians;  // by batch
  for (const BenchImage& image : images) {
    all.push_back(&image);
    for (size_t batch : options.batches) {
      report.Try(image.name + ", batch " + std::to_string(batch), [&] {
        const std::vector<double> times = TimeBatch(&timer, {&image}, batch, options.repeat);
        medians[batch].push_back(times[times.size() / 2]);
        report.Add({CodecName(image), image.name, image.view.info, batch,
                    image.bytes.size() * batch, times[times.size() / 2], times.front()});
      });
      if (image.view.info.channels != 3) continue;
      const auto add = [&](const std::string& what, MakePlan make_plan) {
        report.Try(image.name + ", " + what + ", batch " + std::to_string(batch), [&] {
          const std::vector<double> times =
              TimeBatch(&timer, {&image}, batch, options.repeat, make_plan);
          ImageInfo info = image.view.info;
          const Window window = make_plan(info, nullptr).window;
          info.width_px = window.width_px;
          info.height_px = window.height_px;
          report.Add({CodecName(image) + ", " + what, image.name, info, batch,
                      image.bytes.size() * batch, times[times.size() / 2], times.front()});
        });
      };
      add("CHW float16", NormalizedPlan);
      add("crop, CHW float16", NormalizedCropPlan);
    }
  }
  std::string mixed;
  for (size_t batch : options.batches) {
    const std::vector<double>& alone = medians[batch];
    if (images.size() == 1 || alone.size() != images.size()) continue;  // nothing to compare with
    report.Try("mixed batch of " + std::to_string(batch) + " copies each", [&] {
      const double alone_us = std::accumulate(alone.begin(), alone.end(), 0.0);
      mixed += (mixed.empty() ? "" : ", ") +
               TimeMixedBatch(&timer, all, batch, options.repeat, alone_us);
      report.Set("mixed", "[" + mixed + "]");
    });
  }
  report.RequireSound();
}

}  // namespace
}  // namespace l3

int main(int argc, char** argv) { return l3::BenchMain(argc, argv, l3::Run); }
