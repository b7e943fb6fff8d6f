// From the coefficients of jpeg tiles to pixels (format.md 5.7): the inverse transform, upsampling
// of chroma, and colour. Layer: core; the scalar truth. These are the integers of libjpeg-turbo on
// x86-64, with its accurate transform and its fancy upsampling.
#pragma once

#include "base/portable.h"
#include "core/jpeg_layout.h"

namespace l3 {

// The transform of eight numbers, on top of `rounding`. Arithmetic is modulo 2^32; the four sums
// named sum16 are modulo 2^16.
L3_HOST_DEVICE inline void SumJpegLine(const int16_t in[8], uint32_t rounding, uint32_t out[8]) {
  const auto sum16 = [](int32_t a, int32_t b) { return int32_t{static_cast<int16_t>(a + b)}; };
  const auto mix = [](int32_t a, int32_t ka, int32_t b, int32_t kb) {  // modulo 2^32
    return static_cast<uint32_t>(a) * static_cast<uint32_t>(ka) +
           static_cast<uint32_t>(b) * static_cast<uint32_t>(kb);
  };
  // Constants are cosines, and sums of some, times 2^13.
  const uint32_t low = mix(in[2], 4433, in[6], 4433 - 15137);
  const uint32_t high = mix(in[2], 4433 + 6270, in[6], 4433);
  const uint32_t sum = (static_cast<uint32_t>(sum16(in[0], in[4])) << 13) + rounding;
  const uint32_t difference = (static_cast<uint32_t>(sum16(in[0], -in[4])) << 13) + rounding;
  const uint32_t even[4] = {sum + high, difference + low, difference - low, sum - high};

  const int32_t a = sum16(in[7], in[3]);
  const int32_t b = sum16(in[5], in[1]);
  const uint32_t shared_a = mix(a, 9633 - 16069, b, 9633);
  const uint32_t shared_b = mix(a, 9633, b, 9633 - 3196);
  const uint32_t odd[4] = {mix(in[7], -7373, in[1], 12299 - 7373) + shared_b,
                           mix(in[5], -20995, in[3], 25172 - 20995) + shared_a,
                           mix(in[5], 16819 - 20995, in[3], -20995) + shared_b,
                           mix(in[7], 2446 - 7373, in[1], -7373) + shared_a};
  for (uint32_t i = 0; i < 4; ++i) {
    out[i] = even[i] + odd[i];
    out[7 - i] = even[i] - odd[i];
  }
}

// The same, whose results lose kShift bits and saturate at 16.
template <uint32_t kShift>
L3_HOST_DEVICE inline void TransformJpegLine(const int16_t in[8], int16_t out[8]) {
  uint32_t sums[8];
  SumJpegLine(in, 1u << (kShift - 1), sums);
  for (uint32_t i = 0; i < 8; ++i) {
    const int32_t rounded = static_cast<int32_t>(sums[i]) >> kShift;
    out[i] = static_cast<int16_t>(rounded < INT16_MIN   ? INT16_MIN
                                  : rounded > INT16_MAX ? INT16_MAX
                                                        : rounded);
  }
}

// The inverse transform of a block: dequantized coefficients in natural order, number 8 * v + u, to
// samples in rows.
L3_HOST_DEVICE inline void TransformJpegBlock(const int16_t coefficients[64], uint8_t samples[64]) {
  int16_t columns[64];
  for (uint32_t u = 0; u < 8; ++u) {
    int16_t in[8];
    int16_t out[8];
    for (uint32_t v = 0; v < 8; ++v) in[v] = coefficients[8 * v + u];
    TransformJpegLine<11>(in, out);
    for (uint32_t y = 0; y < 8; ++y) columns[8 * y + u] = out[y];
  }
  for (uint32_t y = 0; y < 8; ++y) {
    int16_t out[8];
    TransformJpegLine<18>(columns + 8 * y, out);
    for (uint32_t x = 0; x < 8; ++x) {
      const int32_t sample = out[x] + 128;
      samples[8 * y + x] = static_cast<uint8_t>(sample < 0 ? 0 : sample > 255 ? 255 : sample);
    }
  }
}

// A number between two samples, three quarters of the way to `near`. `odd`: of the place of the
// pixel, 0 or 1.
L3_HOST_DEVICE constexpr uint32_t UpsampleOneWay(uint32_t near, uint32_t far, uint32_t odd) {
  return (3 * near + far + 1 + odd) / 4;
}
// The same in both directions, from 3 * near + far of two columns.
L3_HOST_DEVICE constexpr uint32_t UpsampleBothWays(uint32_t near, uint32_t far, uint32_t odd) {
  return (3 * near + far + 8 - odd) / 16;
}

// Whether chroma is made from neighbouring samples: libjpeg repeats those of narrow planes.
L3_HOST_DEVICE inline bool HasSmoothChroma(const JpegInfo& jpeg) {
  return jpeg.chroma_x_shift == 0 || JpegColumns(jpeg, 1) > 2;
}

// Red, green and blue of a pixel in YCbCr.
L3_HOST_DEVICE inline void ConvertYcbcr(int32_t y, int32_t cb, int32_t cr, uint8_t rgb[3]) {
  const auto clamp = [](int32_t v) { return static_cast<uint8_t>(v < 0 ? 0 : v > 255 ? 255 : v); };
  constexpr int32_t kHalf = 1 << 15;
  cb -= 128;
  cr -= 128;
  rgb[0] = clamp(y + ((91881 * cr + kHalf) >> 16));
  rgb[1] = clamp(y + ((-22554 * cb - 46802 * cr + kHalf) >> 16));
  rgb[2] = clamp(y + ((116130 * cb + kHalf) >> 16));
}

}  // namespace l3
