#include "output/request.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "output/store_pixel.h"

namespace l3 {
namespace {

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

uint32_t ColorChannels(const ImageInfo& info, Colors colors) {
  switch (colors) {
    case Colors::kStored: return info.channels;
    case Colors::kGray: return 1;
    case Colors::kGrayAlpha: return 2;
    case Colors::kRgbAlpha: return 4;
    default: return 3;
  }
}

// Sets the number of channels and where each comes from.
void PlanSources(const ImageInfo& info, Colors colors, OutputPlan* plan) {
  plan->channels = static_cast<uint8_t>(ColorChannels(info, colors));
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

// One value for all channels, or one a channel; 0 for a channel of padding without one.
float ValueOf(const std::vector<float>& values, uint32_t channel) {
  if (values.size() == 1) return values[0];
  return channel < values.size() ? values[channel] : 0;
}

// The chosen channels, or all of the image.
std::vector<uint16_t> Sources(const ImageInfo& info, const ChosenChannels& chosen) {
  if (!chosen.empty()) return chosen;
  std::vector<uint16_t> all(info.channels);
  std::iota(all.begin(), all.end(), uint16_t{0});
  return all;
}

// The arithmetic of an output's samples, and the type whose range its values have. Without values
// for each channel there is only the range.
struct Values {
  PixelOp op;
  float range;
  Normalization each;
  OutputType type;
};

Values PlanValues(const DecodeRequest& request, const ImageInfo& info, OutputType type) {
  const OutputType stored = StoredType(info);
  if (request.normalization) {
    // (s * f - subtract) * multiply = (s - subtract / f) * (f * multiply), f being what fills the
    // range.
    Normalization each = *request.normalization;
    const float factor = request.fills_range.value_or(false) ? RangeFactor(stored, type) : 1;
    if (factor != 1 && each.subtract.empty()) each = {{0}, {1}};
    for (float& value : each.subtract) value /= factor;
    for (float& value : each.multiply) value *= factor;
    const PixelOp op = each.subtract.empty() ? PixelOp::kSelect : PixelOp::kScale;
    return {op, 1, std::move(each), type};
  }
  const bool keeps = info.meaning == Meaning::kLabels || info.sample_type >= SampleType::kUint32 ||
                     (!IsFloat(type) && HoldsSamples(info, type));
  const OutputType range = request.fills_range.value_or(!keeps) ? type : stored;
  const PixelOp op = range == stored ? PixelOp::kSelect : PixelOp::kScale;
  return {op, RangeFactor(stored, range), {}, range};
}

bool IsWide(const DecodeRequest& request, const ImageInfo& info) {
  return info.channels > kMaxChannels || !request.channels.empty();
}

// Whether the lists of values fit an output of so many channels, or as many with those of padding.
bool FitValues(const DecodeRequest& request, uint32_t channels, uint32_t padded) {
  const auto fits = [&](const std::vector<float>& values) {
    return values.size() <= 1 || values.size() == channels || values.size() == padded;
  };
  return fits(request.fill) && (!request.normalization || fits(request.normalization->subtract));
}

Misfit PlanColors(const DecodeRequest& request, const ImageInfo& info, const Values& values,
                  OutputPlan* plan) {
  const bool is_ycbcr = request.colors == Colors::kYcbcr;
  if (request.normalization && (is_ycbcr || HasAlpha(request.colors))) return Misfit::kColors;
  PlanSources(info, request.colors, plan);
  const uint32_t channels = plan->channels;
  const uint32_t padded = OutputChannels(request, info);
  if (!FitValues(request, channels, padded)) return Misfit::kValues;
  if (is_ycbcr) {
    PlanYcbcr(info, values.type, plan);
    return Misfit::kNone;
  }
  plan->op = values.op;
  plan->range = values.range;
  std::fill_n(plan->multiply, kMaxChannels, 1.0f);
  for (uint32_t c = 0; c < channels && !values.each.subtract.empty(); ++c) {
    plan->subtract[c] = ValueOf(values.each.subtract, c);
    plan->multiply[c] = ValueOf(values.each.multiply, c);
  }
  for (uint32_t c = channels; c < padded; ++c) plan->source[c] = kFillChannel;
  plan->channels = static_cast<uint8_t>(padded);
  for (uint32_t c = 0; c < padded && !request.fill.empty(); ++c) {
    plan->fill[c] = ValueOf(request.fill, c);
  }
  if (HasAlpha(request.colors)) {
    plan->fill[channels - 1] = static_cast<float>(MaxValue(values.type));  // opaque
  }
  return Misfit::kNone;
}

Misfit PlanChannels(const DecodeRequest& request, const ImageInfo& info, const Values& values,
                    OutputPlan* plan) {
  if (request.colors != Colors::kStored) return Misfit::kColors;
  const uint32_t channels = OutputChannels(request, info);
  const bool is_power_of_two = (channels & (channels - 1)) == 0;
  if (!FitValues(request, channels, channels) || (request.pad_channels && !is_power_of_two)) {
    return Misfit::kValues;
  }
  plan->op = values.op;
  plan->range = values.range;
  return Misfit::kNone;
}

// The groups of an image of up to kMaxChannels that is held by halves.
std::vector<GroupOutput> AllGroups(const ImageView& view) {
  std::vector<GroupOutput> all;
  for (const ChannelGroup& group : ReadChannelGroups(view)) {
    GroupOutput& output = all.emplace_back();
    output.number = static_cast<uint16_t>(all.size() - 1);
    output.group_channels = static_cast<uint8_t>(group.channels);
    std::copy_n(group.channel, kMaxChannels, output.place);
    output.is_merged = true;
  }
  return all;
}

// Whether the window can be decoded. A plan has one fill for a channel: the border's, or that of
// alpha where the file has none.
bool FitsWindow(const DecodeRequest& request, const ImageInfo& info, const Region& window,
                const Size& image) {
  if (window.x.size_px <= 0 || window.y.size_px <= 0) return false;
  if (IsInside(window, image)) return true;
  return request.pads && !(HasAlpha(request.colors) && info.channels % 2 != 0);
}

// Sets shape, strides and size of the output of a window. False if its rows would overlap, or it
// would not fit in any memory.
bool PlaceAxes(const DecodeRequest& request, const Size& window, uint32_t channels, OutputType type,
               OutputTensor* tensor) {
  constexpr uint64_t kMost = INT64_MAX / kMaxChannels;
  tensor->shape = ShapeOf(request.layout, window, channels);
  int64_t stride = OutputBytes(type);
  uint64_t rows = static_cast<uint64_t>(tensor->shape[0] * tensor->shape[1] * tensor->shape[2]);
  tensor->bytes = static_cast<uint64_t>(stride);
  for (size_t i = request.layout.size(); i-- > 0;) {
    if (request.layout[i] == Axis::kHeight && request.row_stride_bytes != 0) {
      const uint64_t row = request.row_stride_bytes;
      if (row < static_cast<uint64_t>(stride) || row > kMost / rows) return false;
      stride = static_cast<int64_t>(row);
    }
    tensor->strides[static_cast<size_t>(request.layout[i])] = stride;
    tensor->bytes += static_cast<uint64_t>((tensor->shape[i] - 1) * stride);
    stride *= tensor->shape[i];
    rows /= static_cast<uint64_t>(tensor->shape[i]);
  }
  return true;
}

}  // namespace

std::string ParseChannels(const std::vector<int64_t>& numbers, ChosenChannels* chosen) {
  std::vector<bool> seen(kMaxImageChannels);
  chosen->clear();
  for (const int64_t number : numbers) {
    if (number < 0 || number >= int64_t{kMaxImageChannels}) {
      return "channel " + std::to_string(number) + " is out of range: channels are 0 to " +
             std::to_string(kMaxImageChannels - 1);
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

const char* TypeName(OutputType type) {
  constexpr const char* kNames[kOutputTypes] = {"uint8", "int8",    "uint16",  "int16", "uint32",
                                                "int32", "float16", "float32", "int64"};
  return kNames[static_cast<uint8_t>(type)];
}

bool AllowsType(const ImageInfo& info, OutputType type, std::optional<bool> fills_range) {
  if (IsFloat(info.sample_type)) return !fills_range.value_or(false);
  const bool is_clear_float = IsFloat(type) && info.meaning != Meaning::kLabels;
  const bool must_fit = info.meaning == Meaning::kLabels || info.is_signed() ||
                        info.sample_type == SampleType::kUint32;
  return fills_range || is_clear_float || !must_fit || HoldsSamples(info, type);
}

std::string RefuseType(const ImageInfo& info, OutputType type, std::optional<bool> fills_range,
                       const char* name) {
  if (AllowsType(info, type, fills_range)) return "";
  if (IsFloat(info.sample_type)) {
    return std::string(" holds ") + TypeName(StoredType(info)) +
           " samples, which have no range that fill_range=True could rescale: leave it out, and "
           "samples are converted by their number; mean and std rescale them";
  }
  const bool labels = info.meaning == Meaning::kLabels;
  const std::string asked = name == nullptr ? TypeName(type) : name;
  const std::string rescale =
      labels ? "such as int64" : "fill_range=True to rescale them to the range of " + asked;
  return std::string(" holds ") + TypeName(StoredType(info)) + (labels ? " labels" : " samples") +
         ", and " + asked + " cannot hold all of their values: use a wider dtype, " + rescale +
         ", or fill_range=False to keep the numbers and saturate";
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

uint32_t OutputChannels(const DecodeRequest& request, const ImageInfo& info) {
  if (!request.channels.empty()) return static_cast<uint32_t>(request.channels.size());
  const uint32_t channels = ColorChannels(info, request.colors);
  return request.pad_channels && channels == 3 ? 4 : channels;
}

bool IsTooLarge(const DecodeRequest& request, const Size& window, uint32_t channels) {
  const uint64_t most = request.max_pixels / PixelCost(channels) / request.window_count;
  return static_cast<uint64_t>(window.width_px) > most / static_cast<uint64_t>(window.height_px);
}

Misfit PlanImage(const DecodeRequest& request, const ImageInfo& info, OutputPlan* plan) {
  *plan = OutputPlan{};
  if (FindMissing(info, request.channels) >= 0) return Misfit::kChannel;
  const OutputType type = request.type.value_or(StoredType(info));
  plan->type = type;
  const Values values = PlanValues(request, info, type);
  const Misfit misfit = IsWide(request, info) ? PlanChannels(request, info, values, plan)
                                              : PlanColors(request, info, values, plan);
  if (misfit != Misfit::kNone) return misfit;
  // Normalized samples have other values than the file.
  const bool keeps_values = !request.normalization || request.normalization->subtract.empty();
  const bool is_clear =
      (!keeps_values && !IsFloat(info.sample_type)) || AllowsType(info, type, request.fills_range);
  return is_clear ? Misfit::kNone : Misfit::kType;
}

Misfit PlanWindow(const DecodeRequest& request, const ImageInfo& info, OutputPlan* plan,
                  OutputTensor* tensor) {
  const Size image = ShownSize(info, request.orientation);
  const Region region = request.window.value_or(WholeImage(image));
  if (!FitsWindow(request, info, region, image)) return Misfit::kWindow;
  const Size window = {region.x.size_px, region.y.size_px};
  const uint32_t channels = OutputChannels(request, info);
  if (IsTooLarge(request, window, channels)) return Misfit::kPixels;
  if (!PlaceAxes(request, window, channels, plan->type, tensor)) return Misfit::kStride;
  PlacePixels(info, request.orientation, region, request.mirror, tensor->strides, plan);
  return Misfit::kNone;
}

Misfit PlanOutput(const DecodeRequest& request, const ImageInfo& info, OutputPlan* plan,
                  OutputTensor* tensor) {
  const Misfit misfit = PlanImage(request, info, plan);
  return misfit != Misfit::kNone ? misfit : PlanWindow(request, info, plan, tensor);
}

std::vector<GroupOutput> PlanGroups(const DecodeRequest& request, const ImageView& view,
                                    OutputPlan* plans, size_t plan_count) {
  if (!IsWide(request, view.info)) {
    return view.is_group() ? std::vector<GroupOutput>{GroupOfView(view)} : AllGroups(view);
  }
  constexpr uint32_t kNoPlace = ~0u;
  const std::vector<uint16_t> source = Sources(view.info, request.channels);
  std::vector<uint32_t> place_of(view.info.channels, kNoPlace);
  for (uint32_t place = 0; place < source.size(); ++place) place_of[source[place]] = place;
  const OutputType type = request.type.value_or(StoredType(view.info));
  const Normalization each = PlanValues(request, view.info, type).each;

  std::vector<GroupOutput> outputs;
  const std::vector<ChannelGroup> groups = ReadChannelGroups(view);
  for (uint32_t g = 0; g < groups.size(); ++g) {
    GroupOutput output = {};
    output.number = static_cast<uint16_t>(g);
    output.group_channels = static_cast<uint8_t>(groups[g].channels);
    for (uint32_t i = 0; i < groups[g].channels; ++i) {
      const uint32_t place = place_of[groups[g].channel[i]];
      if (place == kNoPlace) continue;
      const uint32_t c = output.channels++;
      output.source[c] = static_cast<uint8_t>(i);
      output.place[c] = static_cast<uint16_t>(place);
      output.subtract[c] = ValueOf(each.subtract, place);
      output.multiply[c] = each.multiply.empty() ? 1 : ValueOf(each.multiply, place);
      output.fill[c] = ValueOf(request.fill, place);
    }
    if (output.channels != 0) outputs.push_back(output);
  }
  for (size_t i = 0; i < plan_count && outputs.size() == 1; ++i) {
    plans[i] = outputs[0].PlanOf(plans[i]);
  }
  return outputs;
}

}  // namespace l3
