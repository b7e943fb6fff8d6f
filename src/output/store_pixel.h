// From decoded samples to values of the output. Layer: output. StorePixel() is the scalar truth of
// the store stage; engines differ in speed alone.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/portable.h"
#include "core/tile.h"
#include "format/image_view.h"
#include "output/output_plan.h"

namespace l3 {

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

// The part of a plan for one channel of the output.
struct ChannelPlan {
  PixelOp op;
  uint8_t source[3];  // the first alone, but for kMix
  // Subtract, multiply, range, luma_rounding; or three weights, bias; or the fill first.
  float factor[4];
};

L3_HOST_DEVICE inline ChannelPlan GetChannelPlan(const OutputPlan& plan, uint32_t c) {
  if (plan.op == PixelOp::kMix) {
    const float* weights = plan.weights[c];
    return {plan.op,
            {plan.source[0], plan.source[1], plan.source[2]},
            {weights[0], weights[1], weights[2], plan.bias[c]}};
  }
  const uint8_t source = plan.source[c];
  if (source == kFillChannel) return {plan.op, {source, 0, 0}, {plan.fill[c], 0, 0, 0}};
  return {plan.op,
          {source, 0, 0},
          {plan.subtract[c], plan.multiply[c], plan.range, static_cast<float>(plan.luma_rounding)}};
}

// A sample on its way: of up to 16 bits uint32_t or, of signed types, int32_t; of 32 bits int64_t;
// float of floats. The sums of luma fit them.
template <typename Stored>
using SampleOf = std::conditional_t<
    std::is_floating_point_v<Stored>, float,
    std::conditional_t<sizeof(Stored) == 4, int64_t,
                       std::conditional_t<std::is_signed_v<Stored>, int32_t, uint32_t>>>;

template <typename Samples>
L3_HOST_DEVICE inline auto Luma(const Samples& samples, uint32_t rounding) {
  using Sample = std::decay_t<decltype(samples[0])>;
  if constexpr (std::is_floating_point_v<Sample>) {
    const float red = Multiply(samples[0], kLumaRed / static_cast<float>(kLumaScale));
    const float green = Multiply(samples[1], kLumaGreen / static_cast<float>(kLumaScale));
    return Add(Add(red, green), Multiply(samples[2], kLumaBlue / static_cast<float>(kLumaScale)));
  } else {
    const Sample sum = Sample{kLumaRed} * samples[0] + Sample{kLumaGreen} * samples[1] +
                       Sample{kLumaBlue} * samples[2] + static_cast<Sample>(rounding);
    return sum >> kLumaScaleLog2;
  }
}

// The sample of an output channel, before it takes the output's type. `samples` are the
// pixel's (SampleOf), as an array or as what is indexed like one.
template <typename Samples>
L3_HOST_DEVICE inline float OutputValue(const ChannelPlan& channel, const Samples& samples) {
  const float* factor = channel.factor;
  const uint8_t* source = channel.source;
  if (channel.op == PixelOp::kMix) {
    float sum = Multiply(factor[0], static_cast<float>(samples[source[0]]));
    sum = Add(sum, Multiply(factor[1], static_cast<float>(samples[source[1]])));
    sum = Add(sum, Multiply(factor[2], static_cast<float>(samples[source[2]])));
    return Add(sum, factor[3]);
  }
  if (source[0] == kFillChannel) return factor[0];
  const float sample =
      static_cast<float>(source[0] == kLumaChannel ? Luma(samples, static_cast<uint32_t>(factor[3]))
                                                   : samples[source[0]]);
  if (channel.op == PixelOp::kSelect) return sample;
  const float scaled = Multiply(Add(sample, -factor[0]), factor[1]);
  return factor[2] == 1 ? scaled : Multiply(scaled, factor[2]);  // where it is known, one less
}

// Rounds to the nearest integer, halves away from zero, and saturates. NaN gives 0.
template <typename Int>
L3_HOST_DEVICE inline Int RoundToRange(float value, Int min, Int max) {
  if (!(value == value)) return 0;
  if (value <= static_cast<float>(min)) return min;
  if (value >= static_cast<float>(max)) return max;
  return static_cast<Int>(roundf(value));
}

// The value of an IEEE half.
L3_HOST_DEVICE inline float HalfValue(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7FFFu;
  uint32_t bits = 0;
  float value;
  if (magnitude >= 0x7C00) {
    bits = 0x7F800000 | (magnitude & 0x3FF) << 13;
    if (magnitude > 0x7C00) bits |= 0x400000;  // a quiet NaN
  } else if (magnitude >= 0x400) {
    bits = (magnitude + 0x1C000) << 13;
  } else {
    // Steps of 2^-24.
    value = Multiply(static_cast<float>(magnitude), 5.9604644775390625e-8f);
    memcpy(&bits, &value, sizeof(bits));
  }
  bits |= sign;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// The bits of the nearest IEEE half, ties to even.
L3_HOST_DEVICE inline uint16_t HalfBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  uint32_t half;
  if (magnitude > 0x7F800000) {  // NaN
    half = 0x7E00 | (magnitude >> 13 & 0x3FF);
  } else if (magnitude >= 0x47800000) {  // 2^16 and more
    half = 0x7C00;
  } else if (magnitude >= 0x38800000) {
    // Half of the last place, or a bit less where that is even: then a tie rounds down.
    half = (magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  } else {
    // Halves below 2^-14 count steps of 2^-24, which are the steps of floats from 0.5 on.
    float small;
    memcpy(&small, &magnitude, sizeof(small));
    small = Add(small, 0.5f);
    memcpy(&half, &small, sizeof(half));
    half -= 0x3F000000;
  }
  return static_cast<uint16_t>(sign | half);
}

// The C++ type of an OutputType, halves as their bits, and its range if it is an integer's.
template <OutputType kType>
struct OutputTraits;
template <>
struct OutputTraits<OutputType::kU8> {
  using Type = uint8_t;
  static constexpr int64_t kMin = 0, kMax = UINT8_MAX;
};
template <>
struct OutputTraits<OutputType::kI8> {
  using Type = int8_t;
  static constexpr int64_t kMin = INT8_MIN, kMax = INT8_MAX;
};
template <>
struct OutputTraits<OutputType::kU16> {
  using Type = uint16_t;
  static constexpr int64_t kMin = 0, kMax = UINT16_MAX;
};
template <>
struct OutputTraits<OutputType::kI16> {
  using Type = int16_t;
  static constexpr int64_t kMin = INT16_MIN, kMax = INT16_MAX;
};
template <>
struct OutputTraits<OutputType::kU32> {
  using Type = uint32_t;
  static constexpr int64_t kMin = 0, kMax = UINT32_MAX;
};
template <>
struct OutputTraits<OutputType::kI32> {
  using Type = int32_t;
  static constexpr int64_t kMin = INT32_MIN, kMax = INT32_MAX;
};
template <>
struct OutputTraits<OutputType::kI64> {
  using Type = int64_t;
  static constexpr int64_t kMin = INT64_MIN, kMax = INT64_MAX;
};
template <>
struct OutputTraits<OutputType::kF16> {
  using Type = uint16_t;
};
template <>
struct OutputTraits<OutputType::kF32> {
  using Type = float;
};
template <OutputType kType>
using OutputValueType = typename OutputTraits<kType>::Type;

// A value in the output's type.
template <OutputType kType>
L3_HOST_DEVICE inline OutputValueType<kType> ConvertValue(float value) {
  if constexpr (kType == OutputType::kF32) {
    return value;
  } else if constexpr (kType == OutputType::kF16) {
    return HalfBits(value);
  } else {
    using Traits = OutputTraits<kType>;
    using Int = std::conditional_t<(Traits::kMax > INT32_MAX), int64_t, int32_t>;
    return static_cast<OutputValueType<kType>>(
        RoundToRange<Int>(value, Int{Traits::kMin}, Int{Traits::kMax}));
  }
}

template <OutputType kType>
L3_HOST_DEVICE inline void StoreValueAs(float value, uint8_t* place) {
  *reinterpret_cast<OutputValueType<kType>*>(place) = ConvertValue<kType>(value);
}

// Writes an integer, which floats may not hold, to an output of integers: the nearest one.
template <OutputType kType>
L3_HOST_DEVICE inline OutputValueType<kType> ConvertInteger(int64_t value) {
  using Traits = OutputTraits<kType>;
  const int64_t saturated = value < Traits::kMin   ? Traits::kMin
                            : value > Traits::kMax ? Traits::kMax
                                                   : value;
  return static_cast<OutputValueType<kType>>(saturated);
}
template <OutputType kType>
L3_HOST_DEVICE inline void StoreIntegerAs(int64_t value, uint8_t* place) {
  *reinterpret_cast<OutputValueType<kType>*>(place) = ConvertInteger<kType>(value);
}
L3_HOST_DEVICE inline void StoreInteger(OutputType type, int64_t value, uint8_t* place) {
  switch (type) {
    case OutputType::kU8: return StoreIntegerAs<OutputType::kU8>(value, place);
    case OutputType::kI8: return StoreIntegerAs<OutputType::kI8>(value, place);
    case OutputType::kU16: return StoreIntegerAs<OutputType::kU16>(value, place);
    case OutputType::kI16: return StoreIntegerAs<OutputType::kI16>(value, place);
    case OutputType::kU32: return StoreIntegerAs<OutputType::kU32>(value, place);
    case OutputType::kI32: return StoreIntegerAs<OutputType::kI32>(value, place);
    default: return StoreIntegerAs<OutputType::kI64>(value, place);
  }
}
L3_HOST_DEVICE constexpr bool IsFloat(OutputType type) {
  return type == OutputType::kF16 || type == OutputType::kF32;
}

// Writes one value of the output. `place` is aligned to the type.
L3_HOST_DEVICE inline void StoreValue(OutputType type, float value, uint8_t* place) {
  switch (type) {
    case OutputType::kU8: return StoreValueAs<OutputType::kU8>(value, place);
    case OutputType::kI8: return StoreValueAs<OutputType::kI8>(value, place);
    case OutputType::kU16: return StoreValueAs<OutputType::kU16>(value, place);
    case OutputType::kI16: return StoreValueAs<OutputType::kI16>(value, place);
    case OutputType::kU32: return StoreValueAs<OutputType::kU32>(value, place);
    case OutputType::kI32: return StoreValueAs<OutputType::kI32>(value, place);
    case OutputType::kF16: return StoreValueAs<OutputType::kF16>(value, place);
    case OutputType::kF32: return StoreValueAs<OutputType::kF32>(value, place);
    case OutputType::kI64: return StoreValueAs<OutputType::kI64>(value, place);
  }
}

// Pixel (x, y) of the window, from its stored samples.
template <typename Sample>
L3_HOST_DEVICE inline void StorePixel(const OutputPlan& plan, const Sample* samples, uint32_t x,
                                      uint32_t y) {
  for (uint32_t c = 0; c < plan.channels; ++c) {
    const ChannelPlan channel = GetChannelPlan(plan, c);
    if constexpr (std::is_same_v<Sample, int64_t>) {
      const uint8_t source = channel.source[0];
      if (plan.op == PixelOp::kSelect && source != kFillChannel && !IsFloat(plan.type)) {
        StoreInteger(plan.type,
                     source == kLumaChannel ? Luma(samples, plan.luma_rounding) : samples[source],
                     plan.Place(x, y, c));
        continue;
      }
    }
    StoreValue(plan.type, OutputValue(channel, samples), plan.Place(x, y, c));
  }
}

// The same from halves. Those that stay halves keep all bits, of NaNs too.
L3_HOST_DEVICE inline void StoreHalfPixel(const OutputPlan& plan, const uint16_t* halves,
                                          uint32_t channels, uint32_t x, uint32_t y) {
  float samples[kMaxChannels];
  for (uint32_t c = 0; c < channels; ++c) samples[c] = HalfValue(halves[c]);
  StorePixel(plan, samples, x, y);
  if (plan.type != OutputType::kF16 || plan.op != PixelOp::kSelect) return;
  for (uint32_t c = 0; c < plan.channels; ++c) {
    const uint32_t source = plan.source[c];
    if (source >= kMaxChannels) continue;
    *reinterpret_cast<uint16_t*>(plan.Place(x, y, c)) = halves[source];
  }
}

// Stores the part of `rect` that is in the window, from the samples of `rect`, which have the type
// Stored; uint16_t stands for halves with `kIsHalf`.
template <typename Stored, bool kIsHalf = false>
inline void StoreRectAs(const ImageInfo& info, const OutputPlan& plan, const TileRect& rect,
                        const ImageOutput& pixels) {
  using Sample = std::conditional_t<kIsHalf, uint16_t, SampleOf<Stored>>;
  const TileRect part = ClipToWindow(plan.window, rect);
  for (uint32_t y = part.y_px; y < part.y_px + part.height_px; ++y) {
    const uint8_t* row = pixels.Row(y - rect.y_px);
    for (uint32_t x = part.x_px; x < part.x_px + part.width_px; ++x) {
      Sample samples[kMaxChannels];
      for (uint32_t c = 0; c < info.channels; ++c) {
        Stored sample;
        memcpy(&sample, row + (uint64_t{x - rect.x_px} * info.channels + c) * sizeof(Stored),
               sizeof(Stored));
        samples[c] = sample;
      }
      if constexpr (kIsHalf) {
        StoreHalfPixel(plan, samples, info.channels, x - plan.window.x_px, y - plan.window.y_px);
      } else {
        StorePixel(plan, samples, x - plan.window.x_px, y - plan.window.y_px);
      }
    }
  }
}

inline void StoreRect(const ImageInfo& info, const OutputPlan& plan, const TileRect& rect,
                      const ImageOutput& pixels) {
  switch (info.sample_type) {
    case SampleType::kUint8: return StoreRectAs<uint8_t>(info, plan, rect, pixels);
    case SampleType::kUint16: return StoreRectAs<uint16_t>(info, plan, rect, pixels);
    case SampleType::kInt8: return StoreRectAs<int8_t>(info, plan, rect, pixels);
    case SampleType::kInt16: return StoreRectAs<int16_t>(info, plan, rect, pixels);
    case SampleType::kFloat16: return StoreRectAs<uint16_t, true>(info, plan, rect, pixels);
    case SampleType::kFloat32: return StoreRectAs<float>(info, plan, rect, pixels);
    case SampleType::kInt32: return StoreRectAs<int32_t>(info, plan, rect, pixels);
    case SampleType::kUint32: return StoreRectAs<uint32_t>(info, plan, rect, pixels);
  }
}

// Pixel (x, y), counted from the window's first one, of the border.
L3_HOST_DEVICE inline void StoreBorderPixel(const OutputPlan& plan, int64_t x, int64_t y) {
  for (uint32_t c = 0; c < plan.channels; ++c) {
    StoreValue(plan.type, plan.fill[c], plan.Place(x, y, c));
  }
}

}  // namespace l3
