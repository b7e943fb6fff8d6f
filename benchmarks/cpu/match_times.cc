// Decoding of an image with and without match tiles, for benchmarks/cpu/match.py:
//
//   l3_match_times ROUNDS WIDTH HEIGHT CHANNELS BITS FILE
//
// FILE has interleaved pixels. Prints for each engine that the processor has a line of its name,
// the bytes of both files, and the least CPU seconds of this thread in ROUNDS turns, each without
// match tiles first. Small images are decoded five times a turn.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "cpu/cpu_decoder.h"
#include "encoder/encoder.h"

namespace {

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  std::ifstream file(argv[6], std::ios::binary);
  const std::vector<char> data(std::istreambuf_iterator<char>(file), {});
  const auto number = [&](int i) { return static_cast<uint32_t>(std::atoi(argv[i])); };
  const uint32_t width = number(2), height = number(3), channels = number(4), bits = number(5);
  const uint64_t row_bytes = uint64_t{width} * channels * bits / 8;
  if (data.size() != row_bytes * height) return 2;
  const l3::SampleType type = bits == 8 ? l3::SampleType::kUint8 : l3::SampleType::kUint16;
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(data.data());
  const l3::PixelView pixels{bytes, width, height, channels, type, row_bytes};
  std::vector<uint8_t> encoded[2];
  for (int with = 0; with < 2; ++with) {
    l3::EncodeOptions options;
    options.match_tiles = with != 0;
    if (l3::EncodeImage(pixels, options, &encoded[with]) != l3::Status::kOk) return 1;
  }
  constexpr uint64_t kSmallPixels = 1000000;
  const int times = uint64_t{width} * height < kSmallPixels ? 5 : 1;
  constexpr struct {
    const char* name;
    l3::CpuEngine engine;
  } kEngines[] = {{"avx2", l3::CpuEngine::kAvx2},
                  {"avx512", l3::CpuEngine::kAvx512},
                  {"neon", l3::CpuEngine::kNeon}};
  std::vector<uint8_t> out(row_bytes * height);
  for (const auto& each : kEngines) {
    if (!l3::IsAvailable(each.engine)) continue;
    double least[2] = {1e9, 1e9};
    for (uint32_t turn = 0; turn < number(1); ++turn) {
      for (int with = 0; with < 2; ++with) {
        for (int i = 0; i < times; ++i) {
          std::fill(out.begin(), out.end(), uint8_t{0xA5});
          const double begin = ThreadSeconds();
          l3::ImageView view;
          if (l3::ParseImage(encoded[with].data(), encoded[with].size(), &view) !=
              l3::Status::kOk) {
            return 1;
          }
          const l3::CpuDecoder decoder(view, each.engine);
          const l3::DecodeResult result = decoder.DecodeImage({out.data(), row_bytes}, 1);
          least[with] = std::min(least[with], ThreadSeconds() - begin);
          if (result.status != l3::Status::kOk) return 1;
          if (!std::equal(out.begin(), out.end(), bytes)) return 1;
        }
      }
    }
    std::printf("%s %zu %zu %.9f %.9f\n", each.name, encoded[0].size(), encoded[1].size(), least[0],
                least[1]);
  }
}
