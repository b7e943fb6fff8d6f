// Which channels the output has, of which type, and how samples become values of it: the
// rules of DALI's decoders.image and crop_mirror_normalize. Layer: plan.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/output.h"
#include "plan/tensor_plan.h"

namespace l3 {

// kStored keeps what the file has. The others read channels 0 to 2 of an image with three
// or four as R, G, B, and channel 0 of one with fewer as gray. Alpha is the last of two or four
// channels, and opaque where the file has none; the colors that do not name it drop it.
enum class Colors { kStored, kRgb, kBgr, kGray, kYcbcr, kRgbAlpha, kGrayAlpha };

uint32_t OutputChannels(const ImageInfo& info, Colors colors);

// Channels that somebody asks for, by their numbers; none are asked for where the list is empty.
using ChosenChannels = std::vector<uint16_t>;
// Makes such a list. Returns what is wrong with the numbers, for any image; empty if nothing is.
std::string ParseChannels(const std::vector<int64_t>& numbers, ChosenChannels* chosen);
// The first of them that the image does not have, or -1.
int32_t FindMissing(const ImageInfo& info, const ChosenChannels& chosen);
// Whether an output of them, or of all that the image has, takes a wide plan: those below.
bool IsWide(const ImageInfo& info, const ChosenChannels& chosen);

// The name of a type in NumPy and PyTorch.
const char* TypeName(OutputType type);

// Whether it is clear what becomes of samples in `type`. It is not if labels may not fit, or signed
// samples an integer type, and the caller gives no `fills_range`.
bool AllowsType(const ImageInfo& info, OutputType type, std::optional<bool> fills_range);
// If not, the second half of an error, behind the file's name, which calls the type `name`, if that
// is given. Else empty.
std::string RefuseType(const ImageInfo& info, OutputType type, std::optional<bool> fills_range,
                       const char* name = nullptr);

// Sets what `plan` does with samples. With `fills_range`, values fill the range of `type`, as
// decoders.image has it (floats that of 0 to 1). Without, they stay what they are, cut to the type.
// By default labels stay what they are, and so do images in an integer type that holds every value
// of the stored one; other types are filled.
void PlanPixels(const ImageInfo& info, Colors colors, OutputType type, OutputPlan* plan,
                std::optional<bool> fills_range = std::nullopt);

// The same for the chosen channels, or all: as stored but for their type. The image has them.
void PlanWidePixels(const ImageInfo& info, const ChosenChannels& chosen, OutputType type,
                    TensorPlan* plan, std::optional<bool> fills_range = std::nullopt);

// The values of crop_mirror_normalize: (sample - subtract) * multiply. Vectors have one
// value for all channels or one a channel; both are empty where nothing is to be done.
struct Normalization {
  std::vector<float> subtract, multiply;
  std::vector<float> fill;  // of the border and of padding channels; empty: zeros
  bool pad_channels;        // to the next power of two
  bool fills_range;         // samples fill the range of the output's type before that
};

// From its arguments. False unless `mean` and `std` have as many values or one has one.
bool MakeNormalization(const std::vector<float>& mean, const std::vector<float>& std, float scale,
                       float shift, Normalization* normalization);

// Sets what `plan` does with samples: `colors` of the stored type, normalized, in `type`.
// False if the values of `normalization` are neither one nor one a channel, or if `colors` is
// kYcbcr, which a plan cannot normalize, or has alpha, which nobody normalizes.
bool PlanNormalizedPixels(const ImageInfo& info, Colors colors, OutputType type,
                          const Normalization& normalization, OutputPlan* plan);

// The same for the chosen channels, or all. False if the values are neither one nor one a channel.
// Channels cannot be padded.
bool PlanWideNormalizedPixels(const ImageInfo& info, const ChosenChannels& chosen, OutputType type,
                              const Normalization& normalization, TensorPlan* plan);

}  // namespace l3
