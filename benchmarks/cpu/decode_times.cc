// Decodes a file a number of times on one thread, for benchmarks that count instructions:
//
//   l3_decode_times scalar|auto TIMES FILE
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "cpu/cpu_decoder.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  std::ifstream file(argv[3], std::ios::binary);
  const std::vector<char> data(std::istreambuf_iterator<char>(file), {});
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(data.data());
  l3::ImageView view;
  if (l3::ParseImage(bytes, data.size(), &view) != l3::Status::kOk) return 1;
  const bool scalar = std::strcmp(argv[1], "scalar") == 0;
  const l3::CpuDecoder decoder(view, scalar ? l3::CpuEngine::kScalar : l3::CpuEngine::kAuto);
  std::vector<uint8_t> pixels(view.info.row_bytes() * view.info.height_px);
  const l3::ImageOutput output{pixels.data(), view.info.row_bytes()};
  for (int i = std::atoi(argv[2]); i > 0; --i) {
    if (decoder.DecodeImage(output, 1).status != l3::Status::kOk) return 1;
  }
}
