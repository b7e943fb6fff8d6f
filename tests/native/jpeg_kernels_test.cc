// The kernels of jpeg tiles of every engine against the core, on random numbers: small ones, and
// those at which sums saturate.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "core/jpeg_layout.h"
#include "cpu/cpu_engine.h"

namespace {

using l3::JpegKernels;
using Random = std::mt19937;

std::vector<uint8_t> RandomBytes(size_t count, Random* random) {
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) {
    byte = static_cast<uint8_t>((*random)() % 4 == 0 ? (*random)() % 2 * 255 : (*random)());
  }
  return bytes;
}

bool IsTransformEqual(const JpegKernels& kernels, Random* random) {
  l3::JpegGroup group;
  std::memset(group.coefficient, 0x55, sizeof(group.coefficient));  // those that do not count
  group.count = 1 + (*random)() % l3::kJpegLanes;
  group.last = (*random)() % 3 == 0 ? (*random)() % 64 : (*random)() % 16;
  const l3::JpegExtent extent = l3::JpegExtentOf(group.last);
  for (uint32_t k = 0; k < 64; ++k) {
    if (k / 8 >= extent.rows || k % 8 >= extent.columns) continue;
    std::fill_n(group.coefficient[k], l3::kJpegLanes, int16_t{0});
  }
  const int32_t largest = INT16_MAX >> (*random)() % 16;
  for (uint32_t k = 0; k <= group.last; ++k) {
    for (int16_t& coefficient : group.coefficient[l3::kJpegNaturalOrder[k]]) {
      const int32_t value =
          static_cast<int32_t>((*random)() % (2 * static_cast<uint32_t>(largest) + 1)) - largest;
      coefficient =
          static_cast<int16_t>((*random)() % 8 == 0 ? (value < 0 ? -largest : largest) : value);
    }
  }
  std::vector<uint8_t> samples[2];
  for (uint32_t i = 0; i < 2; ++i) {
    samples[i].resize(64 * l3::kJpegLanes);
    for (uint32_t lane = 0; lane < l3::kJpegLanes; ++lane) {
      group.block[lane] = samples[i].data() + 64 * lane;
    }
    (i == 0 ? l3::kJpegKernelsCore : kernels).transform(group);
  }
  return samples[0] == samples[1];
}

bool AreRowsEqual(const JpegKernels& kernels, Random* random) {
  const uint32_t count = 1 + (*random)() % 40;
  const size_t stride = 8 * count + l3::kJpegSpareBytes;
  const std::vector<uint8_t> blocks = RandomBytes(64 * count + l3::kJpegSpareBytes, random);
  std::vector<uint8_t> rows[2];
  for (uint32_t i = 0; i < 2; ++i) {
    rows[i].resize(8 * stride);
    (i == 0 ? l3::kJpegKernelsCore : kernels).rows(blocks.data(), count, rows[i].data(), stride);
  }
  for (uint32_t y = 0; y < 8; ++y) {
    if (std::memcmp(&rows[0][y * stride], &rows[1][y * stride], 8 * count) != 0) return false;
  }
  return true;
}

bool IsUpsamplingEqual(const JpegKernels& kernels, Random* random) {
  const uint32_t count = 1 + (*random)() % 200;
  const std::vector<uint8_t> rows = RandomBytes(2 * (count + l3::kJpegSpareBytes), random);
  const uint8_t* near = rows.data() + 1;
  const uint8_t* far = near + count + 1;
  const uint32_t kind = (*random)() % 3;
  const uint32_t odd = (*random)() % 2;
  std::vector<uint8_t> out[2];
  for (uint32_t i = 0; i < 2; ++i) {
    out[i].resize(2 * count + l3::kJpegSpareBytes);
    (i == 0 ? l3::kJpegKernelsCore : kernels)
        .upsample(near, kind == 0 ? nullptr : far, kind < 2, odd, count, out[i].data());
  }
  return std::memcmp(out[0].data(), out[1].data(), kind < 2 ? 2 * count : count) == 0;
}

bool IsColorEqual(const JpegKernels& kernels, Random* random) {
  const uint32_t width = 1 + (*random)() % 300;
  std::vector<uint8_t> bytes[3];
  for (auto& plane : bytes) plane = RandomBytes(width + l3::kJpegSpareBytes, random);
  const uint8_t* planes[3] = {bytes[0].data(), bytes[1].data(), bytes[2].data()};
  const bool is_ycbcr = (*random)() % 4 != 0;
  std::vector<uint8_t> out[2];
  for (uint32_t i = 0; i < 2; ++i) {
    out[i].resize(3 * width + 64, 0xA5);  // nothing behind the last pixel changes
    (i == 0 ? l3::kJpegKernelsCore : kernels).color(planes, is_ycbcr, width, out[i].data());
  }
  return out[0] == out[1];
}

}  // namespace

int main() {
  using Test = bool (*)(const JpegKernels&, Random*);
  constexpr struct {
    const char* name;
    Test test;
  } kTests[] = {{"transform", IsTransformEqual},
                {"rows", AreRowsEqual},
                {"upsample", IsUpsamplingEqual},
                {"color", IsColorEqual}};
  int failures = 0;
  for (const auto engine : {l3::CpuEngine::kScalar, l3::CpuEngine::kAvx2, l3::CpuEngine::kAvx512,
                            l3::CpuEngine::kNeon}) {
    if (!l3::IsAvailable(engine)) continue;
    const JpegKernels& kernels = *l3::FindEngine(engine)->jpeg;
    for (const auto& test : kTests) {
      Random random(1);
      for (int i = 0; i < 3000; ++i) {
        if (test.test(kernels, &random)) continue;
        std::printf("engine %d: %s differs from the core in run %d\n", static_cast<int>(engine),
                    test.name, i);
        ++failures;
        break;
      }
    }
  }
  return failures == 0 ? 0 : 1;
}
