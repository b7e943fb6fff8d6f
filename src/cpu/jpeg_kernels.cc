#include "cpu/jpeg_kernels.h"

#include <cstring>

#include "core/jpeg_pixels.h"

namespace l3 {
namespace {

void Transform(const JpegGroup& group) {
  const JpegExtent extent = JpegExtentOf(group.last);
  for (uint32_t lane = 0; lane < group.count; ++lane) {
    int16_t coefficients[kJpegBlockSamples] = {};
    for (uint32_t v = 0; v < extent.rows; ++v) {
      for (uint32_t u = 0; u < extent.columns; ++u) {
        coefficients[8 * v + u] = group.coefficient[8 * v + u][lane];
      }
    }
    TransformJpegBlock(coefficients, group.block[lane]);
  }
}

void MakeRows(const uint8_t* blocks, uint32_t count, uint8_t* rows, size_t stride) {
  for (uint32_t i = 0; i < 8 * count; ++i) {
    std::memcpy(rows + i % 8 * stride + i / 8 * 8, blocks + 8 * i, 8);
  }
}

void Upsample(const uint8_t* near, const uint8_t* far, bool half_columns, uint32_t odd,
              uint32_t count, uint8_t* out) {
  if (!half_columns) {
    for (uint32_t x = 0; x < count; ++x) {
      out[x] = static_cast<uint8_t>(UpsampleOneWay(near[x], far[x], odd));
    }
    return;
  }
  for (int64_t x = 0; x < 2 * int64_t{count}; ++x) {
    const int64_t a = x / 2;
    const int64_t b = x % 2 == 0 ? a - 1 : a + 1;
    const uint32_t right = static_cast<uint32_t>(x % 2);
    const uint32_t sample =
        far == nullptr ? UpsampleOneWay(near[a], near[b], right)
                       : UpsampleBothWays(3 * near[a] + far[a], 3 * near[b] + far[b], right);
    out[x] = static_cast<uint8_t>(sample);
  }
}

void Color(const uint8_t* const* planes, bool is_ycbcr, uint32_t width, uint8_t* out) {
  for (uint32_t x = 0; x < width; ++x, out += 3) {
    if (is_ycbcr) {
      ConvertYcbcr(planes[0][x], planes[1][x], planes[2][x], out);
    } else {
      for (uint32_t c = 0; c < 3; ++c) out[c] = planes[c][x];
    }
  }
}

}  // namespace

const JpegKernels kJpegKernelsCore = {Transform, MakeRows, Upsample, Color};

}  // namespace l3
