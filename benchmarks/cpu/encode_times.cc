// Encodes interleaved pixels a number of times on one thread, for benchmarks that count
// instructions and for tests of other compilers:
//
//   l3_encode_times packed|rans EFFORT TIMES WIDTH HEIGHT CHANNELS BITS FILE [RESULT]
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "encoder/encoder.h"

int main(int argc, char** argv) {
  if (argc != 9 && argc != 10) return 2;
  const auto number = [&](int i) { return static_cast<uint32_t>(std::atoi(argv[i])); };
  std::ifstream file(argv[8], std::ios::binary);
  const std::vector<char> data(std::istreambuf_iterator<char>(file), {});
  const uint32_t width = number(4), height = number(5), channels = number(6), bits = number(7);
  const uint64_t row_bytes = uint64_t{width} * channels * bits / 8;
  if (data.size() != row_bytes * height) return 2;
  const l3::SampleType type = bits == 8 ? l3::SampleType::kUint8 : l3::SampleType::kUint16;
  const l3::PixelView pixels{
      reinterpret_cast<const uint8_t*>(data.data()), width, height, channels, type, row_bytes};
  l3::EncodeOptions options;
  options.mode =
      std::strcmp(argv[1], "packed") == 0 ? l3::EncodeMode::kPacked : l3::EncodeMode::kRans;
  options.effort = number(2);
  std::vector<uint8_t> encoded;
  for (uint32_t i = number(3); i > 0; --i) {
    if (l3::EncodeImage(pixels, options, &encoded) != l3::Status::kOk) return 1;
  }
  if (argc == 9) return 0;
  std::ofstream result(argv[9], std::ios::binary);
  result.write(reinterpret_cast<const char*>(encoded.data()),
               static_cast<std::streamsize>(encoded.size()));
  return result.flush() ? 0 : 1;
}
