// Decodes files through include/l3/l3.h, for builds of other kinds of machines: `l3 conformance
// tests --decoder 'l3_decode_file {input} {output}'`. Where sizes have 32 bits, it is asked for
// what does not fit them too.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "l3/l3.h"

namespace {

constexpr uint64_t kMostPixels = uint64_t{1} << 31;

std::vector<char> ReadFile(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Asks for outputs whose sizes do not fit 32 bits, with room for one pixel. True if each is
// refused.
bool RefusesLargeOutputs(const std::vector<char>& file) {
  const std::unique_ptr<uint64_t[]> pixel(new uint64_t[1]);
  const size_t strides[] = {0, 0x7FFFFFF8, 0x80000000, 0xFFFFFFF8};
  for (const size_t stride : strides) {
    for (const uint32_t layout : {L3_HWC, L3_CHW}) {
      l3_decode_options options = {};
      options.struct_size = sizeof(options);
      options.type = L3_FLOAT32;
      options.layout = layout;
      options.row_stride = stride;
      options.max_pixels = kMostPixels;
      l3_output output = {};
      output.struct_size = sizeof(output);
      const l3_status size_status = l3_decode_size(file.data(), file.size(), &options, &output);
      const bool fits = size_status == L3_OK && output.bytes <= sizeof(pixel[0]);
      const l3_status status =
          l3_decode(file.data(), file.size(), &options, pixel.get(), sizeof(pixel[0]), nullptr);
      if (status == L3_OK && !fits) return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: l3_decode_file INPUT OUTPUT\n", stderr);
    return 126;
  }
  const std::vector<char> file = ReadFile(argv[1]);
  if (!RefusesLargeOutputs(file)) return 126;
  l3_decode_options options = {};
  options.struct_size = sizeof(options);
  options.max_pixels = kMostPixels;
  l3_output output = {};
  output.struct_size = sizeof(output);
  l3_status status = l3_decode_size(file.data(), file.size(), &options, &output);
  if (status != L3_OK) return static_cast<int>(status);
  if (output.bytes > PTRDIFF_MAX) return 125;
  const std::unique_ptr<char[]> pixels(new char[output.bytes]);
  status = l3_decode(file.data(), file.size(), &options, pixels.get(), output.bytes, nullptr);
  if (status != L3_OK) return static_cast<int>(status);
  std::ofstream(argv[2], std::ios::binary).write(pixels.get(), output.bytes);
  return 0;
}
