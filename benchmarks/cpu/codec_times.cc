// Encodes and decodes on one thread, for programs that count instructions, such as `perf stat`:
//
//   l3_codec_times decode scalar|auto image|planes TIMES FILE
//   l3_codec_times encode packed|rans TIMES WIDTH HEIGHT CHANNELS BITS FILE
//
// `decode` gives the image as stored, or normalized planes of halves, as networks take them. The
// FILE of `encode` has interleaved pixels.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "cpu/cpu_decoder.h"
#include "encoder/encoder.h"

namespace {

using l3::Status;

bool Is(const char* argument, const char* word) { return std::strcmp(argument, word) == 0; }

std::vector<uint8_t> ReadFile(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// All channels, less 127 and divided by 64.
l3::OutputPlan PlanesPlan(const l3::ImageInfo& info, uint8_t* data) {
  l3::OutputPlan plan = l3::WholeImagePlan(info, data);
  plan.type = l3::OutputType::kF16;
  plan.op = l3::PixelOp::kScale;
  plan.x_stride_bytes = 2;
  plan.y_stride_bytes = 2 * int64_t{info.width_px};
  plan.SetChannelStride(plan.y_stride_bytes * info.height_px);
  plan.range = 1;
  for (float& v : plan.subtract) v = 127;
  for (float& v : plan.multiply) v = 1.0f / 64;
  return plan;
}

int Decode(bool scalar, bool planes, int times, const std::vector<uint8_t>& file) {
  l3::ImageView view;
  if (l3::ParseImage(file.data(), file.size(), &view) != Status::kOk) return 1;
  const l3::CpuDecoder decoder(view, scalar ? l3::CpuEngine::kScalar : l3::CpuEngine::kAuto);
  std::vector<uint8_t> pixels(2 * view.info.row_bytes() * view.info.height_px);
  const l3::ImageOutput output{pixels.data(), view.info.row_bytes()};
  const l3::OutputPlan plan = PlanesPlan(view.info, pixels.data());
  const l3::TileSpan span = l3::TilesOfWindow(view, plan.window);
  for (int i = 0; i < times; ++i) {
    const l3::DecodeResult result =
        planes ? decoder.DecodeWindows(&plan, 1, span, 0, span.tile_count())
               : decoder.DecodeImage(output, 1);
    if (result.status != Status::kOk) return 1;
  }
  return 0;
}

int Encode(const l3::PixelView& pixels, bool packed, int times) {
  l3::EncodeOptions options;
  options.coding = packed ? l3::Coding::kPacked : l3::Coding::kRans;
  for (int i = 0; i < times; ++i) {
    std::vector<uint8_t> encoded;
    if (l3::EncodeImage(pixels, options, &encoded) != Status::kOk) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::vector<uint8_t> file = ReadFile(argv[argc - 1]);
  const auto number = [&](int i) { return static_cast<uint32_t>(std::atoi(argv[i])); };
  if (Is(argv[1], "decode") && argc == 6) {
    return Decode(Is(argv[2], "scalar"), Is(argv[3], "planes"), std::atoi(argv[4]), file);
  }
  if (!Is(argv[1], "encode") || argc != 9) return 2;
  const int shape = argc - 5;
  const uint32_t width = number(shape), height = number(shape + 1);
  const uint32_t channels = number(shape + 2), bits = number(shape + 3);
  const uint64_t row_bytes = uint64_t{width} * channels * bits / 8;
  if (file.size() != row_bytes * height) return 2;
  const l3::SampleType type = bits == 8 ? l3::SampleType::kUint8 : l3::SampleType::kUint16;
  const l3::PixelView pixels{file.data(), width, height, channels, type, row_bytes};
  return Encode(pixels, Is(argv[2], "packed"), std::atoi(argv[shape - 1]));
}
