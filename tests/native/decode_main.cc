// Decodes files through include/l3/l3.h, for builds of other kinds of machines:
// `tools/conformance.py tests --decoder 'l3_decode_file {input} {output}'`. Where sizes have 32
// bits, it is asked for what does not fit them too.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "l3/l3.h"

namespace {

constexpr uint64_t kMostBytes = 1 << 30;

std::vector<char> ReadFile(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

l3_decode_options Options() {
  l3_decode_options options = {};
  options.struct_size = sizeof(options);
  options.max_pixels = uint64_t{1} << 31;
  return options;
}

l3_output Output() {
  l3_output output = {};
  output.struct_size = sizeof(output);
  return output;
}

// Asks for outputs whose sizes do not fit 32 bits, with room for one pixel. True if all that need
// more room are refused.
bool RefusesLargeOutputs(const std::vector<char>& file) {
  uint64_t pixel;
  for (const size_t stride :
       {size_t{0}, size_t{0x7FFFFFF8}, size_t{0x80000000}, size_t{0xFFFFFFF8}}) {
    for (const uint32_t layout : {L3_HWC, L3_CHW}) {
      l3_decode_options options = Options();
      options.type = L3_FLOAT32;
      options.layout = layout;
      options.row_stride = stride;
      l3_output output = Output();
      if (l3_decode_size(file.data(), file.size(), &options, &output) != L3_OK) continue;
      const l3_status status =
          l3_decode(file.data(), file.size(), &options, &pixel, sizeof(pixel), nullptr);
      if (output.bytes > sizeof(pixel) && status != L3_OUTPUT_TOO_SMALL) return false;
    }
  }
  return true;
}

// Decodes the last pixel alone, which lies farthest.
void DecodeLastPixel(const std::vector<char>& file) {
  l3_info info = {};
  info.struct_size = sizeof(info);
  if (l3_read_info(file.data(), file.size(), &info) != L3_OK) return;
  l3_decode_options options = Options();
  options.window = {info.height - 1, info.width - 1, 1, 1};
  std::vector<uint16_t> pixel(info.channels);
  l3_decode(file.data(), file.size(), &options, pixel.data(), 2 * pixel.size(), nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: l3_decode_file INPUT OUTPUT\n", stderr);
    return 126;
  }
  const std::vector<char> file = ReadFile(argv[1]);
  if (!RefusesLargeOutputs(file)) return 126;
  DecodeLastPixel(file);
  const l3_decode_options options = Options();
  l3_output output = Output();
  l3_status status = l3_decode_size(file.data(), file.size(), &options, &output);
  if (status != L3_OK) return static_cast<int>(status);
  if (output.bytes > kMostBytes) return L3_OUTPUT_TOO_SMALL;
  const std::unique_ptr<char[]> pixels(new char[output.bytes]);
  status = l3_decode(file.data(), file.size(), &options, pixels.get(), output.bytes, nullptr);
  if (status != L3_OK) return static_cast<int>(status);
  std::ofstream(argv[2], std::ios::binary).write(pixels.get(), output.bytes);
  return 0;
}
