// Many small batches over the PTX machine: of test files and of generated ones, some damaged, in
// every way that the GPU test knows.
//
//   l3_simulated_cases SHARE BATCHES FILE.l3...
//
// SHARE is a share of the batches, as 0/2; BATCHES is their number. L3_PTX names the kernels'
// files.
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/engine/cuda_device.h"
#include "fuzz/generator.h"
#include "native/compare_engines.h"
#include "ptx/runtime.h"

namespace l3 {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint64_t kMaxImageBytes = 12 << 10, kMaxManyWindowsBytes = 2 << 10;
constexpr size_t kMaxFileBytes = 14 << 10;  // of test files
constexpr uint32_t kManyWindows = 70;       // more than a warp takes of a tile

Bytes ReadFile(const std::string& name) {
  std::ifstream stream(name, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot read " + name);
  return {std::istreambuf_iterator<char>(stream), {}};
}

Bytes MakeFile(fuzz::Dice* dice, uint64_t max_image_bytes) {
  fuzz::Parts parts;
  do {
    parts = fuzz::MakeImage(dice).parts;
  } while (parts.info.image_bytes() > max_image_bytes);
  Bytes file = fuzz::ToFile(parts);
  if (!dice->OneIn(6)) return file;
  const uint32_t size = static_cast<uint32_t>(file.size());
  for (uint32_t n = dice->Range(1, 3); n > 0; --n) {  // mostly where payloads begin
    const uint32_t begin = dice->OneIn(2) ? size - std::min(size, 64u) : 0;
    file[begin + dice->Below(size - begin)] = static_cast<uint8_t>(dice->Byte());
  }
  // A check that fails hides all other damage.
  if (!dice->OneIn(4)) fuzz::Repair(file.data(), file.size());
  return file;
}

BatchCase MakeCase(uint32_t number, const std::vector<Bytes>& existing) {
  fuzz::Dice dice(number);
  BatchCase batch;
  batch.way = batch.seed = number;
  if (!existing.empty() && number % 4 == 0) {
    const uint32_t turn = number / 4;
    batch.files.push_back(existing[turn % existing.size()]);
    batch.way = turn / static_cast<uint32_t>(existing.size()) * 7 + turn;
    return batch;
  }
  if (dice.OneIn(40)) batch.windows = kManyWindows;
  for (uint32_t n = dice.OneIn(4) ? dice.Range(2, 3) : 1; n > 0; --n) {
    batch.files.push_back(
        MakeFile(&dice, batch.windows != 0 ? kMaxManyWindowsBytes : kMaxImageBytes));
  }
  return batch;
}

int RunBatches(const std::vector<std::string>& arguments) {
  uint32_t number = 0, step = 0;
  char slash = 0;
  if (arguments.size() < 3 || !(std::istringstream(arguments[0]) >> number >> slash >> step) ||
      step == 0) {
    throw std::runtime_error("SHARE BATCHES FILE.l3...; a share is as 0/2");
  }
  const auto count = static_cast<uint32_t>(std::stoul(arguments[1]));
  std::vector<Bytes> existing;
  for (size_t i = 2; i < arguments.size(); ++i) {
    Bytes file = ReadFile(arguments[i]);
    if (file.size() <= kMaxFileBytes) existing.push_back(std::move(file));
  }
  for (; number < count; number += step) {
    const size_t differences = CountDifferences(
        MakeCase(number, existing), [] { return MakeCudaDevice(0, MakeDefaultCudaAllocator()); });
    if (differences == 0 && ptx::Runtime::Get().findings().empty()) continue;
    std::printf("batch %u: %zu differences\n", number, differences);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace l3

int main(int argc, char** argv) {
  try {
    return l3::RunBatches({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}
