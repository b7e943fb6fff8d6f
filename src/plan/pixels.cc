#include "plan/pixels.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

namespace l3 {
namespace {

bool IsFloat(OutputType type) { return type == OutputType::kF16 || type == OutputType::kF32; }

// The value that white has.
double MaxValue(OutputType type) {
  switch (type) {
    case OutputType::kU8: return 0xFF;
    case OutputType::kI8: return 0x7F;
    case OutputType::kU16: return 0xFFFF;
    case OutputType::kI16: return 0x7FFF;
    case OutputType::kU32: return 0xFFFFFFFF;
    case OutputType::kI32: return 0x7FFFFFFF;
    case OutputType::kI64: return 0x1p63;  // what floats have in place of 2^63 - 1
    default: return 1;
  }
}

// Between which numbers the type has all integers.
struct Integers {
  int64_t min, max;
};
template <OutputType kType>
constexpr Integers IntegersOf() {
  return {OutputTraits<kType>::kMin, OutputTraits<kType>::kMax};
}
Integers IntegersOf(OutputType type) {
  switch (type) {
    case OutputType::kU8: return IntegersOf<OutputType::kU8>();
    case OutputType::kI8: return IntegersOf<OutputType::kI8>();
    case OutputType::kU16: return IntegersOf<OutputType::kU16>();
    case OutputType::kI16: return IntegersOf<OutputType::kI16>();
    case OutputType::kU32: return IntegersOf<OutputType::kU32>();
    case OutputType::kI32: return IntegersOf<OutputType::kI32>();
    case OutputType::kI64: return IntegersOf<OutputType::kI64>();
    case OutputType::kF16: return {-(1 << 11), 1 << 11};
    default: return {-(1 << 24), 1 << 24};
  }
}

// Whether the type has every value of the file's.
bool HoldsSamples(const ImageInfo& info, OutputType type) {
  const Integers stored = IntegersOf(StoredType(info));
  const Integers held = IntegersOf(type);
  return held.min <= stored.min && stored.max <= held.max;
}

// What DALI multiplies samples by, in float as it does.
float RangeFactor(OutputType from, OutputType to) {
  return static_cast<float>(MaxValue(to)) / static_cast<float>(MaxValue(from));
}

bool HasAlpha(Colors colors) { return colors == Colors::kRgbAlpha || colors == Colors::kGrayAlpha; }

// Sets the number of channels and where each comes from.
void PlanSources(const ImageInfo& info, Colors colors, OutputPlan* plan) {
  plan->channels = static_cast<uint8_t>(OutputChannels(info, colors));
  const bool has_color = info.channels >= 3;
  for (uint8_t c = 0; c < plan->channels; ++c) {
    uint8_t source = c;
    if (colors == Colors::kBgr) source = static_cast<uint8_t>(2 - c);
    if (colors == Colors::kGray || colors == Colors::kGrayAlpha) source = kLumaChannel;
    plan->source[c] = has_color || colors == Colors::kStored ? source : uint8_t{0};
  }
  if (HasAlpha(colors)) {
    const bool stored = info.channels % 2 == 0;
    plan->source[plan->channels - 1] =
        stored ? static_cast<uint8_t>(info.channels - 1) : kFillChannel;
  }
  // DALI's PNG decoder cuts what is behind the point with 8 bits, and rounds with 16.
  plan->luma_rounding = info.sample_bits() == 8 ? 0 : kLumaScale / 2;
}

// ITU-R BT.601 with head and foot room, as DALI has it, of values in the range of a type.
void PlanYcbcr(const ImageInfo& info, OutputType range, OutputPlan* plan) {
  constexpr float kWeights[3][3] = {{0.25678823529f, 0.50412941176f, 0.09790588235f},
                                    {-0.14822289945f, -0.29099278682f, 0.43921568627f},
                                    {0.43921568627f, -0.36778831435f, -0.07142737192f}};
  constexpr float kBias[3] = {0.0625f, 0.5f, 0.5f};
  const float factor = static_cast<float>(MaxValue(range) / MaxValue(StoredType(info)));
  const float levels = static_cast<float>(IsFloat(range) ? 1 : MaxValue(range) + 1);
  plan->op = PixelOp::kMix;
  for (uint32_t c = 0; c < 3; ++c) {
    for (uint32_t i = 0; i < 3; ++i) plan->weights[c][i] = kWeights[c][i] * factor;
    plan->bias[c] = kBias[c] * levels;
  }
}

// One value for all channels, or one a channel.
float ValueOf(const std::vector<float>& values, uint32_t channel) {
  return values.size() == 1 ? values[0] : values[channel];
}

// The chosen channels, or all of the image.
std::vector<uint16_t> Sources(const ImageInfo& info, const ChosenChannels& chosen) {
  if (!chosen.empty()) return chosen;
  std::vector<uint16_t> all(info.channels);
  std::iota(all.begin(), all.end(), uint16_t{0});
  return all;
}

// (s * f - subtract) * multiply = (s - subtract / f) * (f * multiply), f being what fills the
// range.
Normalization InRange(const Normalization& normalization, const ImageInfo& info, OutputType type) {
  Normalization result = normalization;
  const float factor = normalization.fills_range ? RangeFactor(StoredType(info), type) : 1;
  if (factor == 1) return result;
  if (result.subtract.empty()) {
    result.subtract = {0};
    result.multiply = {1};
  }
  for (float& value : result.subtract) value /= factor;
  for (float& value : result.multiply) value *= factor;
  return result;
}

// What DALI makes of a fill value: integers lose what is behind the point.
float FillValue(const std::vector<float>& fill, uint32_t channel, OutputType type) {
  if (fill.size() > 1 && channel >= fill.size()) return 0;
  const float value = fill.empty() ? 0 : ValueOf(fill, channel);
  return IsFloat(type) ? value : std::trunc(value);
}

}  // namespace

uint32_t OutputChannels(const ImageInfo& info, Colors colors) {
  switch (colors) {
    case Colors::kStored: return info.channels;
    case Colors::kGray: return 1;
    case Colors::kGrayAlpha: return 2;
    case Colors::kRgbAlpha: return 4;
    default: return 3;
  }
}

std::string ParseChannels(const std::vector<int64_t>& numbers, ChosenChannels* chosen) {
  std::vector<bool> seen(kMaxImageChannels);
  chosen->clear();
  for (const int64_t number : numbers) {
    if (number < 0 || number >= int64_t{kMaxImageChannels}) {
      return "channels are numbered from 0 to " + std::to_string(kMaxImageChannels - 1) + ", and " +
             std::to_string(number) + " is asked for";
    }
    if (seen[static_cast<size_t>(number)]) {
      return "channel " + std::to_string(number) + " is asked for twice";
    }
    seen[static_cast<size_t>(number)] = true;
    chosen->push_back(static_cast<uint16_t>(number));
  }
  return "";
}

int32_t FindMissing(const ImageInfo& info, const ChosenChannels& chosen) {
  const auto missing = std::find_if(chosen.begin(), chosen.end(),
                                    [&info](uint16_t channel) { return channel >= info.channels; });
  return missing == chosen.end() ? -1 : int32_t{*missing};
}

bool IsWide(const ImageInfo& info, const ChosenChannels& chosen) {
  return info.channels > kMaxChannels || !chosen.empty();
}

const char* TypeName(OutputType type) {
  constexpr const char* kNames[kOutputTypes] = {"uint8", "int8",    "uint16",  "int16", "uint32",
                                                "int32", "float16", "float32", "int64"};
  return kNames[static_cast<uint8_t>(type)];
}

bool AllowsType(const ImageInfo& info, OutputType type, std::optional<bool> fills_range) {
  const bool must_fit = info.meaning == Meaning::kLabels || (info.is_signed() && !IsFloat(type));
  return fills_range || !must_fit || HoldsSamples(info, type);
}

std::string RefuseType(const ImageInfo& info, OutputType type, std::optional<bool> fills_range,
                       const char* name) {
  if (AllowsType(info, type, fills_range)) return "";
  const bool labels = info.meaning == Meaning::kLabels;
  const std::string asked = name == nullptr ? TypeName(type) : name;
  return std::string(" holds ") + TypeName(StoredType(info)) + (labels ? " labels" : " samples") +
         ", and " + asked +
         " cannot hold all of their values: ask for a wider dtype, for fill_range=True, which "
         "rescales them to the range of " +
         asked + ", or for fill_range=False, which keeps the numbers and saturates";
}

void PlanPixels(const ImageInfo& info, Colors colors, OutputType type, OutputPlan* plan,
                std::optional<bool> fills_range) {
  const bool keeps =
      info.meaning == Meaning::kLabels || (!IsFloat(type) && HoldsSamples(info, type));
  const bool fills = fills_range.value_or(!keeps);
  const OutputType range = fills ? type : StoredType(info);
  plan->type = type;
  PlanSources(info, colors, plan);
  if (colors == Colors::kYcbcr) return PlanYcbcr(info, range, plan);
  plan->op = range == StoredType(info) ? PixelOp::kSelect : PixelOp::kScale;
  std::fill_n(plan->multiply, kMaxChannels, 1.0f);
  plan->range = RangeFactor(StoredType(info), range);
  if (HasAlpha(colors)) {
    plan->fill[plan->channels - 1] = static_cast<float>(MaxValue(range));  // opaque
  }
}

void PlanWidePixels(const ImageInfo& info, const ChosenChannels& chosen, OutputType type,
                    TensorPlan* plan, std::optional<bool> fills_range) {
  ImageInfo one = info;
  one.channels = 1;
  PlanPixels(one, Colors::kStored, type, &plan->output, fills_range);
  plan->wide = std::make_shared<WideChannels>(WideChannels{Sources(info, chosen), {}, {1}, {}});
}

bool MakeNormalization(const std::vector<float>& mean, const std::vector<float>& std, float scale,
                       float shift, Normalization* normalization) {
  if (mean.empty() || std.empty() ||
      (mean.size() != std.size() && mean.size() != 1 && std.size() != 1)) {
    return false;
  }
  std::vector<float>& subtract = normalization->subtract;
  std::vector<float>& multiply = normalization->multiply;
  subtract.resize(std::max(mean.size(), std.size()));
  multiply.resize(subtract.size());
  for (uint32_t i = 0; i < subtract.size(); ++i) {
    const double deviation = ValueOf(std, i);
    subtract[i] =
        static_cast<float>(std::fma(-double{shift}, deviation / scale, double{ValueOf(mean, i)}));
    multiply[i] = static_cast<float>(scale / deviation);
  }
  const bool idle = std::all_of(subtract.begin(), subtract.end(), [](float v) { return v == 0; }) &&
                    std::all_of(multiply.begin(), multiply.end(), [](float v) { return v == 1; });
  if (idle) {
    subtract.clear();
    multiply.clear();
  }
  return true;
}

bool PlanNormalizedPixels(const ImageInfo& info, Colors colors, OutputType type,
                          const Normalization& normalization, OutputPlan* plan) {
  if (colors == Colors::kYcbcr || HasAlpha(colors)) return false;
  PlanSources(info, colors, plan);
  const uint32_t channels = plan->channels;
  const uint32_t padded = normalization.pad_channels && channels == 3 ? 4 : channels;
  const auto fits = [&](size_t values) {
    return values <= 1 || values == channels || values == padded;
  };
  if (!fits(normalization.subtract.size()) || !fits(normalization.fill.size())) return false;

  const Normalization in_range = InRange(normalization, info, type);
  plan->type = type;
  plan->op = in_range.subtract.empty() ? PixelOp::kSelect : PixelOp::kScale;
  plan->range = 1;
  for (uint32_t c = 0; c < channels && plan->op == PixelOp::kScale; ++c) {
    plan->subtract[c] = ValueOf(in_range.subtract, c);
    plan->multiply[c] = ValueOf(in_range.multiply, c);
  }
  plan->channels = static_cast<uint8_t>(padded);
  for (uint32_t c = channels; c < padded; ++c) plan->source[c] = kFillChannel;
  for (uint32_t c = 0; c < padded; ++c) plan->fill[c] = FillValue(normalization.fill, c, type);
  return true;
}

bool PlanWideNormalizedPixels(const ImageInfo& info, const ChosenChannels& chosen, OutputType type,
                              const Normalization& normalization, TensorPlan* plan) {
  const Normalization in_range = InRange(normalization, info, type);
  WideChannels wide = {Sources(info, chosen), in_range.subtract, in_range.multiply, in_range.fill};
  const auto fits = [&wide](const std::vector<float>& values) {
    return values.size() <= 1 || values.size() == wide.source.size();
  };
  if (!fits(wide.subtract) || !fits(wide.fill)) return false;
  for (uint32_t i = 0; i < wide.fill.size(); ++i) wide.fill[i] = FillValue(wide.fill, i, type);
  plan->output.type = type;
  plan->output.op = wide.subtract.empty() ? PixelOp::kSelect : PixelOp::kScale;
  plan->output.range = 1;
  plan->wide = std::make_shared<WideChannels>(std::move(wide));
  return true;
}

}  // namespace l3
