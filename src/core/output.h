// What becomes of decoded samples on their way out: which window of the image, where
// in memory, which channels, which type. Layer: core. StorePixel() is the scalar truth
// of the store stage; engines differ in speed alone.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/tile.h"
#include "format/constants.h"
#include "format/image_view.h"
#include "format/portable.h"

namespace l3 {

enum class OutputType : uint8_t { kU8, kI8, kU16, kI16, kU32, kI32, kF16, kF32 };

L3_HOST_DEVICE constexpr uint32_t OutputBytes(OutputType type) {
  switch (type) {
    case OutputType::kU8:
    case OutputType::kI8: return 1;
    case OutputType::kU16:
    case OutputType::kI16:
    case OutputType::kF16: return 2;
    default: return 4;
  }
}

// A part of the stored image, inside it. May be empty.
struct Window {
  uint32_t x_px, y_px, width_px, height_px;
};

// How the samples of a pixel become those of the output. Arithmetic is in float, one
// rounding an operation; a float that goes to an integer type is rounded to the nearest,
// halves away from zero, and saturates.
enum class PixelOp : uint8_t {
  kSelect,  // sample[source[c]], saturated to the type
  kScale,   // (sample[source[c]] - subtract[c]) * multiply[c] * range
  kMix,     // weights[c] . sample[0..2] + bias[c], summed from the left
};

// A source that no image has.
constexpr uint8_t kFillChannel = 0xFF;

// Pixels around the window that the output has besides, as the stored image lies.
struct Border {
  uint32_t left_px, top_px, right_px, bottom_px;
};

// The whole of the store stage for one image. Plain data, shared with kernels.
//
// Pixel (x, y) of the window, channel c, goes to data + x * x_stride_bytes + y *
// y_stride_bytes + c * channel_stride_bytes. The image may be mirrored or transposed on
// its way, so strides may be negative and in any order. Pixels of the border, which have
// an x or y below 0 or past the window, are filled.
struct OutputPlan {
  uint8_t* data;
  int64_t x_stride_bytes, y_stride_bytes, channel_stride_bytes;
  Window window;
  Border border;
  OutputType type;
  PixelOp op;
  uint8_t channels;              // of the output, 1 to 4; 1 or 3 for kMix
  uint8_t source[kMaxChannels];  // a stored channel, or kFillChannel; not for kMix
  float subtract[kMaxChannels];
  float multiply[kMaxChannels];
  float range;
  float weights[3][3];
  float bias[3];
  float fill[kMaxChannels];

  L3_HOST_DEVICE uint8_t* Place(int64_t x, int64_t y, uint32_t channel) const {
    return data + x * x_stride_bytes + y * y_stride_bytes + channel * channel_stride_bytes;
  }
};
static_assert(std::is_trivially_copyable_v<OutputPlan>);

// One operation, one rounding: compilers must not fuse them.
L3_HOST_DEVICE inline float Multiply(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
L3_HOST_DEVICE inline float Add(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

// The sample of channel c, before it takes the output's type. `samples` are the pixel's.
L3_HOST_DEVICE inline float OutputValue(const OutputPlan& plan, const uint32_t* samples,
                                        uint32_t c) {
  if (plan.op == PixelOp::kMix) {
    float sum = Multiply(plan.weights[c][0], static_cast<float>(samples[0]));
    sum = Add(sum, Multiply(plan.weights[c][1], static_cast<float>(samples[1])));
    sum = Add(sum, Multiply(plan.weights[c][2], static_cast<float>(samples[2])));
    return Add(sum, plan.bias[c]);
  }
  if (plan.source[c] == kFillChannel) return plan.fill[c];
  const float sample = static_cast<float>(samples[plan.source[c]]);
  if (plan.op == PixelOp::kSelect) return sample;
  const float scaled = Multiply(Add(sample, -plan.subtract[c]), plan.multiply[c]);
  return Multiply(scaled, plan.range);
}

// Rounds to the nearest integer, halves away from zero, and saturates. NaN gives 0.
L3_HOST_DEVICE inline int64_t RoundToRange(float value, int64_t min, int64_t max) {
  if (!(value == value)) return 0;
  if (value <= static_cast<float>(min)) return min;
  if (value >= static_cast<float>(max)) return max;
  return static_cast<int64_t>(roundf(value));
}

// The bits of the nearest IEEE half, ties to even.
L3_HOST_DEVICE inline uint16_t HalfBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00);   // NaN
  if (magnitude >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);  // 65520 and more
  // Halves below 2^-14 count steps of 2^-24.
  const bool subnormal = magnitude < 0x38800000;
  const uint32_t exponent = magnitude >> 23;
  if (subnormal && exponent < 102) return static_cast<uint16_t>(sign);  // below 2^-25
  const uint32_t dropped = subnormal ? 126 - exponent : 13;
  const uint32_t digits = subnormal ? (magnitude & 0x7FFFFF) | 0x800000 : magnitude - 0x38000000;
  const uint32_t kept = digits >> dropped;
  const uint32_t rest = digits & ((1u << dropped) - 1);
  const uint32_t half = 1u << (dropped - 1);
  const uint32_t up = rest > half || (rest == half && (kept & 1) != 0) ? 1 : 0;
  return static_cast<uint16_t>(sign | (kept + up));
}

// Writes one value of the output. `place` is aligned to the type.
L3_HOST_DEVICE inline void StoreValue(OutputType type, float value, uint8_t* place) {
  switch (type) {
    case OutputType::kU8: *place = static_cast<uint8_t>(RoundToRange(value, 0, 255)); break;
    case OutputType::kI8: *place = static_cast<uint8_t>(RoundToRange(value, -128, 127)); break;
    case OutputType::kU16:
      *reinterpret_cast<uint16_t*>(place) = static_cast<uint16_t>(RoundToRange(value, 0, 65535));
      break;
    case OutputType::kI16:
      *reinterpret_cast<uint16_t*>(place) =
          static_cast<uint16_t>(RoundToRange(value, -32768, 32767));
      break;
    case OutputType::kU32:
      *reinterpret_cast<uint32_t*>(place) =
          static_cast<uint32_t>(RoundToRange(value, 0, 0xFFFFFFFF));
      break;
    case OutputType::kI32:
      *reinterpret_cast<uint32_t*>(place) =
          static_cast<uint32_t>(RoundToRange(value, INT32_MIN, INT32_MAX));
      break;
    case OutputType::kF16: *reinterpret_cast<uint16_t*>(place) = HalfBits(value); break;
    case OutputType::kF32: *reinterpret_cast<float*>(place) = value; break;
  }
}

// Pixel (x, y) of the window, from its stored samples.
L3_HOST_DEVICE inline void StorePixel(const OutputPlan& plan, const uint32_t* samples, uint32_t x,
                                      uint32_t y) {
  for (uint32_t c = 0; c < plan.channels; ++c) {
    StoreValue(plan.type, OutputValue(plan, samples, c), plan.Place(x, y, c));
  }
}

}  // namespace l3
