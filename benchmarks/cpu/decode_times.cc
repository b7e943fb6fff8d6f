// Decodes a file a number of times on one thread, for benchmarks that count instructions:
//
//   l3_decode_times scalar|auto image|planes TIMES FILE
//
// To the image as stored, or to normalized planes of halves, as networks take them.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "cpu/cpu_decoder.h"

namespace {

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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  std::ifstream file(argv[4], std::ios::binary);
  const std::vector<char> data(std::istreambuf_iterator<char>(file), {});
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(data.data());
  l3::ImageView view;
  if (l3::ParseImage(bytes, data.size(), &view) != l3::Status::kOk) return 1;
  const bool scalar = std::strcmp(argv[1], "scalar") == 0;
  const bool planes = std::strcmp(argv[2], "planes") == 0;
  const l3::CpuDecoder decoder(view, scalar ? l3::CpuEngine::kScalar : l3::CpuEngine::kAuto);
  std::vector<uint8_t> pixels(2 * view.info.row_bytes() * view.info.height_px);
  const l3::ImageOutput output{pixels.data(), view.info.row_bytes()};
  const l3::OutputPlan plan = PlanesPlan(view.info, pixels.data());
  const l3::TileSpan span = l3::TilesOfWindow(view.info, plan.window);
  for (int i = std::atoi(argv[3]); i > 0; --i) {
    const l3::DecodeResult result =
        planes ? decoder.DecodeWindows(&plan, 1, span, 0, span.tile_count())
               : decoder.DecodeImage(output, 1);
    if (result.status != l3::Status::kOk) return 1;
  }
}
