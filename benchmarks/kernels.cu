// Times the decoding kernel on batches that lie in GPU memory.
//
//   l3_bench_kernels [--batch 1,32,256] [--repeat 50] [--json FILE] FILE.l3...
//
// A batch is one file, repeated, each copy with an output of its own. Times
// are medians over launches, by CUDA events; before each launch the L2 cache is
// filled with other data. Throughput is in bytes of pixels. The device copy is
// the ceiling: it counts bytes once, though it reads and writes them.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/cpu_decoder.h"
#include "cuda/batch_layout.h"
#include "cuda/launch.h"
#include "cuda/resources.h"
#include "format/image_view.h"

namespace l3 {
namespace {

constexpr size_t kFlushBytes = size_t{512} << 20;  // well over any L2 cache
constexpr int kWarmups = 5;

struct Options {
  std::vector<size_t> batches = {1, 32, 256};
  int repeat = 50;
  std::string json;
  std::vector<std::string> files;
};

struct Row {
  std::string file;
  ImageInfo info;
  size_t batch;
  std::array<uint64_t, 3> tiles;  // of each coding
  uint64_t encoded_bytes;
  double median_us;
  double min_us;

  double gigabytes_per_second() const {
    return static_cast<double>(info.image_bytes() * batch) / median_us / 1e3;
  }
};

std::vector<uint8_t> ReadFile(const std::string& name) {
  std::ifstream stream(name, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot read " + name);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) throw std::runtime_error(argument + " needs a value");
      return std::string(argv[++i]);
    };
    if (argument == "--batch") {
      options.batches.clear();
      for (std::string list = value(); !list.empty();) {
        const size_t comma = std::min(list.find(','), list.size());
        options.batches.push_back(std::stoul(list.substr(0, comma)));
        list.erase(0, comma + 1);
      }
    } else if (argument == "--repeat") {
      options.repeat = std::stoi(value());
    } else if (argument == "--json") {
      options.json = value();
    } else {
      options.files.push_back(argument);
    }
  }
  const bool any_empty =
      std::find(options.batches.begin(), options.batches.end(), 0) != options.batches.end();
  if (options.files.empty() || options.repeat < 1 || any_empty) {
    throw std::runtime_error(
        "usage: l3_bench_kernels [--batch 1,32,256] [--repeat 50] [--json FILE] FILE.l3...");
  }
  return options;
}

// Times `launch` on a stream: sorted microseconds of `repeat` runs.
class Timer {
 public:
  Timer() : flush_(kFlushBytes), begin_(cudaEventDefault), end_(cudaEventDefault) {}

  template <typename Launch>
  std::vector<double> Run(int repeat, const Launch& launch) {
    std::vector<double> times;
    for (int i = 0; i < kWarmups + repeat; ++i) {
      L3_CUDA_CHECK(cudaMemsetAsync(flush_.data(), i, kFlushBytes, stream_.get()));
      begin_.Record(stream_.get());
      launch(stream_.get());
      end_.Record(stream_.get());
      end_.Synchronize();
      float milliseconds = 0;
      L3_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()));
      if (i >= kWarmups) times.push_back(1e3 * static_cast<double>(milliseconds));
    }
    std::sort(times.begin(), times.end());
    return times;
  }

 private:
  CudaStream stream_;
  DeviceMemory flush_;
  CudaEvent begin_;
  CudaEvent end_;
};

double CopyGigabytesPerSecond(Timer* timer, int repeat) {
  constexpr size_t kBytes = size_t{1} << 30;
  const DeviceMemory from(kBytes);
  const DeviceMemory to(kBytes);
  L3_CUDA_CHECK(cudaMemset(from.data(), 1, kBytes));
  const std::vector<double> times = timer->Run(repeat, [&](cudaStream_t stream) {
    L3_CUDA_CHECK(
        cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, stream));
  });
  return static_cast<double>(kBytes) / times[times.size() / 2] / 1e3;
}

// Stops if the first image of the batch, or the Status of any, is wrong.
void CheckBatch(const ImageView& view, size_t batch, const uint8_t* staging_dev,
                const uint8_t* output_dev) {
  std::vector<uint64_t> results(batch);
  L3_CUDA_CHECK(cudaMemcpy(results.data(), staging_dev, 8 * batch, cudaMemcpyDeviceToHost));
  for (uint64_t result : results) {
    if (result != kNoBadTile) throw std::runtime_error("the GPU found a bad tile");
  }
  const uint64_t bytes = view.info.image_bytes();
  std::vector<uint16_t> expected(CeilDiv(bytes, 2));
  const ImageOutput output = {reinterpret_cast<uint8_t*>(expected.data()), view.info.row_bytes()};
  if (CpuDecoder(view).DecodeImage(output, 0).status != Status::kOk) {
    throw std::runtime_error("the file is damaged");
  }
  std::vector<uint8_t> samples(bytes);
  L3_CUDA_CHECK(cudaMemcpy(samples.data(), output_dev, bytes, cudaMemcpyDeviceToHost));
  if (std::memcmp(samples.data(), output.data, bytes) != 0) {
    throw std::runtime_error("the GPU's pixels differ from the CPU's");
  }
}

Row TimeBatch(Timer* timer, const std::string& file, const ImageView& view, size_t batch,
              int repeat) {
  const uint64_t stride = CeilDiv(view.info.image_bytes(), 256) * 256;
  const DeviceMemory output(stride * batch);
  std::vector<CudaSample> samples;
  for (size_t i = 0; i < batch; ++i) {
    samples.push_back({view, WholeImagePlan(view.info, output.data() + i * stride)});
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
  CheckBatch(view, batch, device.data(), output.data());

  Row row = {file.substr(file.rfind('/') + 1), view.info, batch, {}, view.payloads_bytes * batch,
             times[times.size() / 2], times.front()};
  for (uint32_t tile = 0; tile < view.info.tile_count(); ++tile) {
    row.tiles[view.payloads[view.PayloadBegin(tile) + 4]] += batch;
  }
  return row;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

void WriteJson(const std::string& name, const cudaDeviceProp& gpu, double copy,
               const std::vector<Row>& rows) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(name.c_str(), "w"),
                                                             &std::fclose);
  if (!file) throw std::runtime_error("cannot write " + name);
  std::fprintf(file.get(), "{\n  \"gpu\": %s,\n  \"multiprocessors\": %d,\n  \"copy_gb_s\": %.1f,",
               Quoted(gpu.name).c_str(), gpu.multiProcessorCount, copy);
  std::fprintf(file.get(), "\n  \"rows\": [");
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    std::fprintf(file.get(),
                 "%s\n    {\"file\": %s, \"width\": %u, \"height\": %u, \"channels\": %u, "
                 "\"sample_bits\": %u, \"batch\": %zu, \"constant_tiles\": %llu, "
                 "\"stored_tiles\": %llu, \"packed_tiles\": %llu, \"encoded_bytes\": %llu, "
                 "\"pixel_bytes\": %llu, \"median_us\": %.2f, \"min_us\": %.2f, "
                 "\"pixel_gb_s\": %.1f}",
                 i == 0 ? "" : ",", Quoted(row.file).c_str(), row.info.width_px,
                 row.info.height_px, unsigned{row.info.channels}, unsigned{row.info.sample_bits},
                 row.batch, static_cast<unsigned long long>(row.tiles[0]),
                 static_cast<unsigned long long>(row.tiles[1]),
                 static_cast<unsigned long long>(row.tiles[2]),
                 static_cast<unsigned long long>(row.encoded_bytes),
                 static_cast<unsigned long long>(row.info.image_bytes() * row.batch),
                 row.median_us, row.min_us, row.gigabytes_per_second());
  }
  std::fprintf(file.get(), "\n  ]\n}\n");
}

void Run(const Options& options) {
  int device = 0;
  L3_CUDA_CHECK(cudaGetDevice(&device));
  cudaDeviceProp gpu;
  L3_CUDA_CHECK(cudaGetDeviceProperties(&gpu, device));
  Timer timer;
  const double copy = CopyGigabytesPerSecond(&timer, options.repeat);
  std::printf("%s, device copy %.0f GB/s\n", gpu.name, copy);
  std::printf("%-32s %16s %6s %11s %11s %11s\n", "file", "image", "batch", "median us", "min us",
              "GB/s pixels");
  std::vector<Row> rows;
  for (const std::string& name : options.files) {
    const std::vector<uint8_t> bytes = ReadFile(name);
    ImageView view;
    const Status status = ParseImage(bytes.data(), bytes.size(), &view);
    if (status != Status::kOk) throw std::runtime_error(name + ": " + StatusName(status));
    for (size_t batch : options.batches) {
      rows.push_back(TimeBatch(&timer, name, view, batch, options.repeat));
      const Row& row = rows.back();
      const std::string image = std::to_string(row.info.width_px) + "x" +
                                std::to_string(row.info.height_px) + "x" +
                                std::to_string(row.info.channels) + " u" +
                                std::to_string(row.info.sample_bits);
      std::printf("%-32.32s %16s %6zu %11.1f %11.1f %11.1f\n", row.file.c_str(), image.c_str(),
                  row.batch, row.median_us, row.min_us, row.gigabytes_per_second());
      std::fflush(stdout);
    }
  }
  if (!options.json.empty()) WriteJson(options.json, gpu, copy, rows);
}

}  // namespace
}  // namespace l3

int main(int argc, char** argv) {
  try {
    l3::Run(l3::ParseOptions(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernels: %s\n", error.what());
    return 2;
  }
}
