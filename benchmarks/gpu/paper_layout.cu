// Times a decoder of the L3 paper's layout (paper_layout.h), device-resident: one
// launch an image, as the paper's prototype, and one launch a batch.
//
//   l3_bench_paper_layout [--batch 1,32,256] [--repeat 50] [--json FILE] [--host-only] FILE.l3...
//
// First packs each image and unpacks it on the host; it must come back exactly.
// Pixels come from .l3 files; those of 16-bit samples are passed over. The
// prototype also allocates and synchronises for every image; neither is timed here.
#include "benchmarks/gpu/kernel_bench.h"
#include "benchmarks/gpu/paper_layout.h"

namespace l3 {
namespace {

constexpr uint32_t kMaxChannels = 4;

// Block -> (patch, image), thread -> (column, channel), rows one after the other.
//
//        column  0 1 2 ... 63
//   row above    . . .            in shared memory, channel by channel
//   row            ?              needs three samples of it
__global__ void DecodePaperPatches(const PaperImage* images) {
  __shared__ uint8_t rows[2][kMaxChannels][kPaperPatch];
  const PaperImage image = images[blockIdx.y];
  if (blockIdx.x >= image.patch_count()) return;
  const PaperPatch patch = GetPaperPatch(image, blockIdx.x);
  const uint32_t x = threadIdx.x;
  const uint32_t c = threadIdx.y;
  const bool in_patch = x < patch.width_px;
  const uint8_t* packed = image.payload + image.patch_begin[blockIdx.x * image.channels + c];
  uint8_t* pixel =
      image.pixels + ((size_t{patch.y_px} * image.width_px) + patch.x_px + x) * image.channels + c;
  for (uint32_t y = 0; y < patch.height_px; ++y) {
    if (in_patch) {
      const uint8_t* above = rows[(y + 1) % 2][c];
      const uint8_t prediction = y == 0 ? 0 : PaperPrediction(above, x, patch.width_px);
      const uint8_t sample = static_cast<uint8_t>(prediction + PaperResidual(packed, x));
      rows[y % 2][c][x] = sample;
      *pixel = sample;
    }
    packed += PaperRowBytes(PaperRowWidthBits(packed), patch.width_px);
    pixel += size_t{image.width_px} * image.channels;
    __syncthreads();
  }
}

// Of `count` images of one size, which lie in GPU memory.
void LaunchDecode(const PaperImage* images_dev, uint32_t count, const PaperFile& file,
                  cudaStream_t stream) {
  const uint32_t patches = static_cast<uint32_t>(file.patch_begin.size()) / file.channels;
  DecodePaperPatches<<<dim3(patches, count), dim3(kPaperPatch, file.channels), 0, stream>>>(
      images_dev);
  L3_CUDA_CHECK(cudaGetLastError());
}

// A file packed, and its batch in GPU memory: each image has bytes of its own.
class Batch {
 public:
  Batch(const PaperFile& file, size_t count)
      : file_(file),
        count_(count),
        pixel_bytes_(size_t{file.width_px} * file.height_px * file.channels),
        begins_(4 * file.patch_begin.size()),
        payloads_(file.payload.size() * count),
        pixels_(pixel_bytes_ * count),
        images_(sizeof(PaperImage) * count) {
    L3_CUDA_CHECK(cudaMemcpy(begins_.data(), file.patch_begin.data(), 4 * file.patch_begin.size(),
                             cudaMemcpyHostToDevice));
    std::vector<PaperImage> images;
    for (size_t i = 0; i < count; ++i) {
      uint8_t* payload = payloads_.data() + i * file.payload.size();
      L3_CUDA_CHECK(
          cudaMemcpy(payload, file.payload.data(), file.payload.size(), cudaMemcpyHostToDevice));
      images.push_back({file.width_px, file.height_px, file.channels,
                        reinterpret_cast<const uint32_t*>(begins_.data()), payload,
                        pixels_.data() + i * pixel_bytes_});
    }
    L3_CUDA_CHECK(cudaMemcpy(images_.data(), images.data(), sizeof(PaperImage) * count,
                             cudaMemcpyHostToDevice));
    L3_CUDA_CHECK(cudaMemset(pixels_.data(), 0xA5, pixel_bytes_ * count));
  }

  void LaunchAtOnce(cudaStream_t stream) const {
    LaunchDecode(images(), static_cast<uint32_t>(count_), file_, stream);
  }
  void LaunchEachImage(cudaStream_t stream) const {
    for (size_t i = 0; i < count_; ++i) LaunchDecode(images() + i, 1, file_, stream);
  }

  // Of the last image.
  std::vector<uint8_t> DownloadPixels() const {
    std::vector<uint8_t> pixels(pixel_bytes_);
    L3_CUDA_CHECK(cudaMemcpy(pixels.data(), pixels_.data() + (count_ - 1) * pixel_bytes_,
                             pixel_bytes_, cudaMemcpyDeviceToHost));
    return pixels;
  }

 private:
  const PaperImage* images() const { return reinterpret_cast<const PaperImage*>(images_.data()); }

  const PaperFile& file_;
  size_t count_;
  size_t pixel_bytes_;
  DeviceMemory begins_;
  DeviceMemory payloads_;
  DeviceMemory pixels_;
  DeviceMemory images_;
};

void Run(const BenchOptions& options) {
  std::vector<BenchImage> images = ReadBenchImages(options.files);
  images.erase(std::remove_if(images.begin(), images.end(),
                              [](const BenchImage& i) {
                                return i.view.info.sample_type != l3::SampleType::kUint8;
                              }),
               images.end());
  std::vector<PaperFile> files;
  for (const BenchImage& image : images) {
    const ImageInfo& info = image.view.info;
    files.push_back(
        PackPaperLayout(image.pixels.data(), info.width_px, info.height_px, info.channels));
    if (UnpackPaperLayout(files.back()) != image.pixels) {
      throw std::runtime_error(image.name + " does not come back from the paper's layout");
    }
    std::printf(
        "%s: exact on the host, %.3f bits a pixel\n", image.name.c_str(),
        8.0 * static_cast<double>(files.back().file_bytes()) / info.width_px / info.height_px);
  }
  if (options.host_only) return;
  BenchReport report(options.json, RequireGpu(options.cache));
  PrintHeading(report.gpu());
  GpuTimer timer;
  for (size_t i = 0; i < images.size(); ++i) {
    for (size_t count : options.batches) {
      const auto time = [&](const char* codec, void (Batch::*launch)(cudaStream_t) const) {
        report.Try(std::string(codec) + ", " + images[i].name + ", " + std::to_string(count), [&] {
          const Batch batch(files[i], count);
          const std::vector<double> times =
              timer.Run(options.repeat, [&](cudaStream_t stream) { (batch.*launch)(stream); });
          if (batch.DownloadPixels() != images[i].pixels) {
            throw std::runtime_error("the GPU's pixels are wrong");
          }
          report.Add({codec, images[i].name, images[i].view.info, count,
                      files[i].file_bytes() * count, times[times.size() / 2], times.front()});
        });
      };
      time("paper's layout, an image", &Batch::LaunchEachImage);
      time("paper's layout, a batch", &Batch::LaunchAtOnce);
    }
  }
  report.RequireSound();
}

}  // namespace
}  // namespace l3

int main(int argc, char** argv) { return l3::BenchMain(argc, argv, l3::Run); }
