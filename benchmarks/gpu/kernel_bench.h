// What the GPU benchmarks share: arguments, images, timing, results. Knows L3's
// CPU decoder, which gives every peer the same pixels.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cpu/cpu_decoder.h"
#include "cuda/engine/resources.h"
#include "format/image_view.h"

namespace l3 {

struct BenchOptions {
  std::vector<size_t> batches = {1, 32, 256};
  int repeat = 50;
  std::string json;
  std::vector<std::string> files;
};

// Throws with the usage if the arguments are others.
inline BenchOptions ParseBenchOptions(int argc, char** argv) {
  const std::string usage = "usage: " + std::string(argv[0]) +
                            " [--batch 1,32,256] [--repeat 50] "
                            "[--json FILE] FILE.l3...";
  const auto positive = [&](const std::string& text) {
    const bool digits = !text.empty() && text.size() < 7 &&
                        text.find_first_not_of("0123456789") == std::string::npos;
    const int number = digits ? std::stoi(text) : 0;
    if (number == 0) throw std::runtime_error("'" + text + "' is no positive number; " + usage);
    return number;
  };
  BenchOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) throw std::runtime_error(argument + " needs a value; " + usage);
      return std::string(argv[++i]);
    };
    if (argument == "--batch") {
      options.batches.clear();
      for (std::string list = value() + ","; !list.empty();) {
        const size_t comma = list.find(',');
        options.batches.push_back(static_cast<size_t>(positive(list.substr(0, comma))));
        list.erase(0, comma + 1);
      }
    } else if (argument == "--repeat") {
      options.repeat = positive(value());
    } else if (argument == "--json") {
      options.json = value();
    } else if (argument.rfind("--", 0) == 0) {
      throw std::runtime_error("unknown option " + argument + "; " + usage);
    } else {
      options.files.push_back(argument);
    }
  }
  if (options.files.empty()) throw std::runtime_error(usage);
  return options;
}

// A file and the pixels in it, rows packed. `view` points into `bytes`.
struct BenchImage {
  std::string name;
  std::vector<uint8_t> bytes;
  ImageView view;
  std::vector<uint8_t> pixels;
};

inline BenchImage ReadBenchImage(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot read " + path);
  BenchImage image;
  image.name = path.substr(path.rfind('/') + 1);
  image.bytes.assign(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  const Status status = ParseImage(image.bytes.data(), image.bytes.size(), &image.view);
  if (status != Status::kOk) throw std::runtime_error(path + ": " + StatusName(status));
  const ImageInfo& info = image.view.info;
  image.pixels.resize(info.image_bytes());
  const ImageOutput output = {image.pixels.data(), info.row_bytes()};
  if (CpuDecoder(image.view).DecodeImage(output, 0).status != Status::kOk) {
    throw std::runtime_error(path + " is damaged");
  }
  return image;
}

inline std::vector<BenchImage> ReadBenchImages(const std::vector<std::string>& paths) {
  std::vector<BenchImage> images;
  for (const std::string& path : paths) images.push_back(ReadBenchImage(path));
  return images;
}

// The current GPU's name. The first CUDA call of each benchmark.
inline std::string RequireGpu() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    throw std::runtime_error(std::string("no usable GPU, so nothing was timed: ") +
                             cudaGetErrorString(error != cudaSuccess ? error : cudaErrorNoDevice));
  }
  int device = 0;
  L3_CUDA_CHECK(cudaGetDevice(&device));
  cudaDeviceProp properties;
  L3_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return properties.name;
}

// Reads chunks, so that they fill the L2 cache as what need not be written back: a memset would
// leave it to the work that is timed to write that.
static __global__ void ReadChunks(const uint4* chunks, size_t count, uint32_t* sink) {
  uint32_t bits = 0;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) {
    const uint4 chunk = chunks[i];
    bits |= chunk.x | chunk.y | chunk.z | chunk.w;
  }
  if (bits != 0) *sink = bits;  // never; keeps the compiler from removing the loop
}

// Times work on a stream of its own, by events. Before each run the L2 cache is
// filled with other data, clean.
class GpuTimer {
 public:
  GpuTimer() : flush_(kFlushBytes), begin_(cudaEventDefault), end_(cudaEventDefault) {
    L3_CUDA_CHECK(cudaMemset(flush_.data(), 0, kFlushBytes));
    L3_CUDA_CHECK(cudaDeviceSynchronize());  // the stream does not wait for it
  }

  // The median microseconds of `repeat` runs of `work(stream)`. The GPU works for a while before
  // the first of them, since its clock rises from that of an idle one.
  template <typename Work>
  double Run(int repeat, const Work& work) {
    const auto seconds = [begin = std::chrono::steady_clock::now()] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    for (int i = 0; i < kWarmups || seconds() < kWarmupSeconds; ++i) Time(work);
    std::vector<double> times;
    for (int i = 0; i < repeat; ++i) times.push_back(Time(work));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

 private:
  static constexpr size_t kFlushBytes = size_t{512} << 20;  // well over any L2 cache
  static constexpr int kWarmups = 5;
  static constexpr double kWarmupSeconds = 0.2;

  // Microseconds of one run.
  template <typename Work>
  double Time(const Work& work) {
    ReadChunks<<<1024, 256, 0, stream_.get()>>>(reinterpret_cast<const uint4*>(flush_.data()),
                                                kFlushBytes / sizeof(uint4),
                                                reinterpret_cast<uint32_t*>(flush_.data()));
    L3_CUDA_CHECK(cudaGetLastError());
    begin_.Record(stream_.get());
    work(stream_.get());
    end_.Record(stream_.get());
    end_.Synchronize();
    float milliseconds = 0;
    L3_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()));
    return 1e3 * static_cast<double>(milliseconds);
  }

  CudaStream stream_;
  DeviceMemory flush_;
  CudaEvent begin_;
  CudaEvent end_;
};

// A batch is one image, repeated. `encoded_bytes` and the time are the batch's.
struct BenchRow {
  std::string codec;
  std::string file;
  ImageInfo info;
  size_t batch;
  uint64_t encoded_bytes;
  double median_us;

  uint64_t pixel_bytes() const { return info.image_bytes() * batch; }
  double pixel_gigabytes_per_second() const {
    return static_cast<double>(pixel_bytes()) / median_us / 1e3;
  }
};

inline void PrintHeading(const std::string& gpu) {
  std::printf("%s\n%-24s %-28s %16s %6s %7s %11s %11s\n", gpu.c_str(), "codec", "file", "image",
              "batch", "ratio", "median us", "GB/s pixels");
}

inline void PrintRow(const BenchRow& row) {
  const std::string image =
      std::to_string(row.info.width_px) + "x" + std::to_string(row.info.height_px) + "x" +
      std::to_string(row.info.channels) + (row.info.is_signed() ? " i" : " u") +
      std::to_string(row.info.sample_bits());
  std::printf("%-24s %-28.28s %16s %6zu %7.2f %11.1f %11.1f\n", row.codec.c_str(), row.file.c_str(),
              image.c_str(), row.batch,
              static_cast<double>(row.pixel_bytes()) / static_cast<double>(row.encoded_bytes),
              row.median_us, row.pixel_gigabytes_per_second());
  std::fflush(stdout);
}

inline std::string JsonQuoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return quoted + '"';
}

// What a benchmark has measured. Where a JSON file is asked for it is whole after every row, so
// that a run which is cut short keeps its rows.
class BenchReport {
 public:
  BenchReport(std::string json_path, std::string gpu)
      : json_path_(std::move(json_path)), gpu_(std::move(gpu)) {}

  const std::string& gpu() const { return gpu_; }

  // A member of the JSON beside the rows: `value` is JSON.
  void Set(const std::string& name, const std::string& value) {
    members_[name] = value;
    Write();
  }

  // Prints the row, too.
  void Add(const BenchRow& row) {
    PrintRow(row);
    rows_.push_back(row);
    Write();
  }

  // Runs `time()`, which adds rows. What it throws is noted, so that other rows can follow.
  template <typename Time>
  void Try(const std::string& what, const Time& time) {
    try {
      time();
    } catch (const std::bad_alloc& error) {
      Note(what, error.what());
    } catch (const std::exception& error) {
      Note(what, error.what());
      if (++broken_ == 1) first_broken_ = what + ": " + error.what();
    }
  }

  // Throws if a row is missing for another reason than too little memory.
  void RequireSound() const {
    if (broken_ == 0) return;
    throw std::runtime_error(std::to_string(broken_) + " not timed, first " + first_broken_);
  }

 private:
  void Note(const std::string& what, const std::string& reason) {
    std::printf("%s: not timed: %s\n", what.c_str(), reason.c_str());
    failed_.emplace_back(what, reason);
    Write();
  }

  // Replaces the file at once.
  void Write() const {
    if (json_path_.empty()) return;
    const std::string part = json_path_ + ".part";
    std::ofstream file(part);
    file << "{\n  \"gpu\": " << JsonQuoted(gpu_);
    for (const auto& [name, value] : members_) file << ",\n  " << JsonQuoted(name) << ": " << value;
    file << ",\n  \"failed\": [";
    for (size_t i = 0; i < failed_.size(); ++i) {
      file << (i == 0 ? "\n" : ",\n") << "    {\"what\": " << JsonQuoted(failed_[i].first)
           << ", \"reason\": " << JsonQuoted(failed_[i].second) << "}";
    }
    file << "\n  ],\n  \"rows\": [";
    for (size_t i = 0; i < rows_.size(); ++i) {
      const BenchRow& row = rows_[i];
      file << (i == 0 ? "\n" : ",\n") << "    {\"codec\": " << JsonQuoted(row.codec)
           << ", \"file\": " << JsonQuoted(row.file) << ", \"width\": " << row.info.width_px
           << ", \"height\": " << row.info.height_px
           << ", \"channels\": " << unsigned{row.info.channels}
           << ", \"sample_bits\": " << row.info.sample_bits() << ", \"batch\": " << row.batch
           << ", \"encoded_bytes\": " << row.encoded_bytes
           << ", \"pixel_bytes\": " << row.pixel_bytes() << ", \"median_us\": " << row.median_us
           << ", \"pixel_gb_s\": " << row.pixel_gigabytes_per_second() << "}";
    }
    file << "\n  ]\n}\n";
    file.close();
    if (!file || std::rename(part.c_str(), json_path_.c_str()) != 0) {
      throw std::runtime_error("cannot write " + json_path_);
    }
  }

  std::string json_path_;
  std::string gpu_;
  std::map<std::string, std::string> members_;
  std::vector<BenchRow> rows_;
  std::vector<std::pair<std::string, std::string>> failed_;  // what, and why
  size_t broken_ = 0;
  std::string first_broken_;
};

// The main() of a benchmark: runs `run(options)`; 0 when done, 2 when it could not.
template <typename Run>
int BenchMain(int argc, char** argv, const Run& run) {
  try {
    run(ParseBenchOptions(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    const char* slash = std::strrchr(argv[0], '/');
    std::fprintf(stderr, "%s: %s\n", slash ? slash + 1 : argv[0], error.what());
    return 2;
  }
}

}  // namespace l3
