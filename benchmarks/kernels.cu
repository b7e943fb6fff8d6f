// Times the decoding kernels on batches that lie in GPU memory, and the copies
// that bound them.
//
//   l3_bench_kernels [--batch 1,32,256] [--repeat 50] [--json FILE] [--host-only] FILE.l3...
//
// Each copy of an image in a batch has an output of its own. Times are medians
// over launches. Throughput is in bytes of pixels; a copy counts its bytes once,
// though a device copy reads and writes them.
#include <cstring>
#include <memory>

#include "benchmarks/gpu_bench.h"
#include "cuda/batch_layout.h"
#include "cuda/launch.h"

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

// The mode an image was encoded in: packed images have no rans tile.
std::string CodecName(const ImageView& view) {
  return HasRansTile(view, AllTiles(view.info)) ? "L3 rans" : "L3 packed";
}

// Stops if the first image of the batch, or the Status of any, is wrong.
void CheckBatch(const BenchImage& image, size_t batch, const uint8_t* staging_dev,
                const uint8_t* output_dev) {
  std::vector<uint64_t> results(batch);
  L3_CUDA_CHECK(cudaMemcpy(results.data(), staging_dev, 8 * batch, cudaMemcpyDeviceToHost));
  for (uint64_t result : results) {
    if (result != kNoBadTile) throw std::runtime_error("the GPU found a bad tile");
  }
  std::vector<uint8_t> samples(image.pixels.size());
  L3_CUDA_CHECK(cudaMemcpy(samples.data(), output_dev, samples.size(), cudaMemcpyDeviceToHost));
  if (samples != image.pixels) throw std::runtime_error("the GPU's pixels differ from the CPU's");
}

BenchRow TimeBatch(GpuTimer* timer, const BenchImage& image, size_t batch, int repeat) {
  const ImageInfo& info = image.view.info;
  const uint64_t stride = CeilDiv(info.image_bytes(), 256) * 256;
  const DeviceMemory output(stride * batch);
  std::vector<CudaSample> samples;
  for (size_t i = 0; i < batch; ++i) {
    samples.push_back({image.view, WholeImagePlan(info, output.data() + i * stride)});
  }
  BatchLayout layout;
  layout.Plan(samples, GetGpuLimits());
  const DeviceMemory device(layout.total_bytes());
  {
    std::vector<uint8_t> staging(layout.total_bytes());
    for (size_t i = 0; i < layout.piece_count(); ++i) {
      layout.WritePiece(i, staging.data(), device.data());
    }
    L3_CUDA_CHECK(
        cudaMemcpy(device.data(), staging.data(), staging.size(), cudaMemcpyHostToDevice));
  }

  const TileBatch tiles = layout.Batch(device.data());
  const std::vector<double> times =
      timer->Run(repeat, [&](cudaStream_t stream) { LaunchDecodeTiles(tiles, stream); });
  CheckBatch(image, batch, device.data(), output.data());
  return {CodecName(image.view),   image.name,   info, batch, image.bytes.size() * batch,
          times[times.size() / 2], times.front()};
}

void Run(const BenchOptions& options) {
  const std::vector<BenchImage> images = ReadBenchImages(options.files);
  if (options.host_only) return;
  const std::string gpu = RequireGpu();
  GpuTimer timer;
  const double device_copy = DeviceCopyGigabytesPerSecond(&timer, options.repeat);
  const double upload = HostToDeviceGigabytesPerSecond(&timer, options.repeat);
  std::printf("device copy %.0f GB/s, host-to-device copy %.1f GB/s\n", device_copy, upload);
  PrintHeading(gpu);
  std::vector<BenchRow> rows;
  for (const BenchImage& image : images) {
    for (size_t batch : options.batches) {
      rows.push_back(TimeBatch(&timer, image, batch, options.repeat));
      PrintRow(rows.back());
    }
  }
  if (!options.json.empty()) {
    WriteBenchJson(options.json, gpu,
                   {"\"device_copy_gb_s\": " + std::to_string(device_copy),
                    "\"host_to_device_gb_s\": " + std::to_string(upload)},
                   rows);
  }
}

}  // namespace
}  // namespace l3

int main(int argc, char** argv) { return l3::BenchMain(argc, argv, l3::Run); }
