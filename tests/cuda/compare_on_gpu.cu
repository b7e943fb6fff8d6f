// Decodes the given .l3 files on the GPU, in one batch, again in many parts, and again from the
// cache, and compares with the CPU engine: for compute-sanitizer, without Python.
//
//   l3_compare_on_gpu FILE.l3...
//
// Prints a line for each file and each time. Ends with 0 if both engines agree on all of
// them, with 1 if not, with 2 if a file cannot be read or CUDA fails.
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/cpu_decoder.h"
#include "cuda/batch_decoder.h"
#include "cuda/cuda_device.h"
#include "cuda/encoded_cache.h"
#include "cuda/resources.h"
#include "format/image_view.h"

namespace l3 {
namespace {

constexpr uint8_t kUntouched = 0xA5;
// Between outputs: odd, so that they have all alignments; seen if written to.
constexpr size_t kGapBytes = 7;
constexpr uint64_t kCacheBytes = uint64_t{1} << 30;

struct File {
  std::string name;
  std::vector<uint8_t> bytes;
  Status parsed;
  ImageView view;
  size_t output_offset;
};

std::vector<uint8_t> ReadFile(const std::string& name) {
  std::ifstream stream(name, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot read " + name);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::string Describe(const DecodeResult& result) {
  if (result.status == Status::kOk) return "kOk";
  return std::string(StatusName(result.status)) + " in tile " + std::to_string(result.tile);
}

// Whether the GPU's outcome is the CPU's. `samples` has the GPU's samples.
bool Agrees(const File& file, const DecodeResult& result, const uint8_t* samples) {
  const uint64_t bytes = file.view.info.image_bytes();
  std::vector<uint16_t> expected(CeilDiv(bytes, 2));
  const ImageOutput output = {reinterpret_cast<uint8_t*>(expected.data()),
                              file.view.info.row_bytes()};
  const DecodeResult cpu = CpuDecoder(file.view, CpuEngine::kScalar).DecodeImage(output, 1);
  if (cpu.status != result.status) return false;
  if (cpu.status != Status::kOk) return cpu.tile == result.tile;
  return std::memcmp(output.data, samples, bytes) == 0;
}

// Prints what became of each file, and returns whether that is what the CPU makes of it.
// `results` are of the files that could be parsed.
bool Report(const std::vector<File>& files, const std::vector<DecodeResult>& results,
            const std::vector<uint8_t>& output) {
  bool all_agree = true;
  size_t gap_begin = 0;
  size_t next_result = 0;
  for (const File& file : files) {
    std::string outcome = StatusName(file.parsed);
    bool agrees = true;
    if (file.parsed == Status::kOk) {
      const DecodeResult& result = results[next_result++];
      outcome = Describe(result);
      agrees = Agrees(file, result, output.data() + file.output_offset);
      for (size_t i = gap_begin; i < file.output_offset; ++i) {
        agrees = agrees && output[i] == kUntouched;
      }
      gap_begin = file.output_offset + file.view.info.image_bytes();
    }
    std::printf("%s: %s%s\n", file.name.c_str(), outcome.c_str(), agrees ? "" : ", CPU DIFFERS");
    all_agree = all_agree && agrees;
  }
  for (size_t i = gap_begin; i < output.size(); ++i) {
    all_agree = all_agree && output[i] == kUntouched;
  }
  return all_agree;
}

int Run(const std::vector<std::string>& names) {
  std::vector<File> files;
  size_t output_bytes = kGapBytes;
  for (const std::string& name : names) {
    files.push_back({name, ReadFile(name), Status::kOk, {}, 0});
    File& file = files.back();
    file.parsed = ParseImage(file.bytes.data(), file.bytes.size(), &file.view);
    if (file.parsed != Status::kOk) continue;
    output_bytes += output_bytes % file.view.info.sample_bytes();
    file.output_offset = output_bytes;
    output_bytes += file.view.info.image_bytes() + kGapBytes;
  }

  const DeviceMemory output_dev(output_bytes);
  const CudaStream stream;
  const auto cache =
      std::make_shared<EncodedCache>(CacheOptions{kCacheBytes, CachePolicy::kThreshold, 0},
                                     MakeCudaDevice(GetCudaDevice(), MakeDefaultCudaAllocator()));
  struct Way {
    const char* name;
    bool from_cache;
    UploadPolicy upload;
  };
  constexpr Way kWays[] = {{"From the host:", false, BatchDecoder::kUsualUpload},
                           {"From the host, in parts:", false, {1, ~uint64_t{0}}},
                           {"From the cache:", true, BatchDecoder::kUsualUpload}};
  bool all_agree = true;
  for (const Way& way : kWays) {
    // The first way fills the cache.
    BatchDecoder decoder(MakeCudaDevice(GetCudaDevice(), MakeDefaultCudaAllocator()), cache,
                         way.upload);
    std::vector<CudaSample> samples;
    for (const File& file : files) {
      if (file.parsed != Status::kOk) continue;
      samples.push_back(
          {file.view, WholeImagePlan(file.view.info, output_dev.data() + file.output_offset)});
      if (way.from_cache) {
        samples.back().cached = cache->Find(file.name, file.bytes.data(), file.bytes.size());
        all_agree = all_agree && samples.back().cached != nullptr;
      } else if (&way == kWays) {
        samples.back().cache_key = &file.name;
      }
    }
    L3_CUDA_CHECK(cudaMemset(output_dev.data(), kUntouched, output_bytes));
    L3_CUDA_CHECK(cudaDeviceSynchronize());
    decoder.Launch(samples, stream.get());
    const std::vector<DecodeResult>& results = decoder.Wait();
    std::vector<uint8_t> output(output_bytes);
    L3_CUDA_CHECK(
        cudaMemcpy(output.data(), output_dev.data(), output_bytes, cudaMemcpyDeviceToHost));
    std::printf("%s\n", way.name);
    if (!Report(files, results, output)) all_agree = false;
  }
  std::printf("%s\n", all_agree ? "GPU and CPU agree" : "GPU and CPU DIFFER");
  return all_agree ? 0 : 1;
}

}  // namespace
}  // namespace l3

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: l3_compare_on_gpu FILE.l3...\n");
    return 2;
  }
  try {
    return l3::Run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "l3_compare_on_gpu: %s\n", error.what());
    return 2;
  }
}
