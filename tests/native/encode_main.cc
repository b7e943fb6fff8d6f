// Encodes interleaved pixels, to compare what compilers make of the encoder:
//
//   l3_encode_file packed|rans EFFORT WIDTH HEIGHT CHANNELS BITS PIXELS RESULT
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "encoder/encoder.h"

int main(int argc, char** argv) {
  if (argc != 9) return 2;
  const auto number = [&](int i) { return static_cast<uint32_t>(std::atoi(argv[i])); };
  std::ifstream file(argv[7], std::ios::binary);
  const std::vector<char> data(std::istreambuf_iterator<char>(file), {});
  const uint32_t width = number(3), height = number(4), channels = number(5), bits = number(6);
  const uint64_t row_bytes = uint64_t{width} * channels * bits / 8;
  if (data.size() != row_bytes * height) return 2;
  const l3::SampleType type = bits == 8 ? l3::SampleType::kUint8 : l3::SampleType::kUint16;
  l3::EncodeOptions options;
  options.coding = std::strcmp(argv[1], "packed") == 0 ? l3::Coding::kPacked : l3::Coding::kRans;
  options.effort = number(2);
  std::vector<uint8_t> encoded;
  const l3::Status status = l3::EncodeImage(
      {reinterpret_cast<const uint8_t*>(data.data()), width, height, channels, type, row_bytes},
      options, &encoded);
  if (status != l3::Status::kOk) return 1;
  std::ofstream result(argv[8], std::ios::binary);
  result.write(reinterpret_cast<const char*>(encoded.data()),
               static_cast<std::streamsize>(encoded.size()));
  return result.flush() ? 0 : 1;
}
