// Which channels the output has, of which type, and how samples become values of it: the
// rules of DALI's decoders.image and crop_mirror_normalize. Layer: plan.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/output.h"

namespace l3 {

// kStored keeps what the file has. The others read channels 0 to 2 of an image with three
// or four as R, G, B, and channel 0 of one with fewer as gray. Alpha is the last of two or four
// channels, and opaque where the file has none; the colors that do not name it drop it.
enum class Colors { kStored, kRgb, kBgr, kGray, kYcbcr, kRgbAlpha, kGrayAlpha };

uint32_t OutputChannels(const ImageInfo& info, Colors colors);

// Sets what `plan` does with samples, as decoders.image does: where `type` is not the
// stored one, values fill its range (floats that of 0 to 1).
void PlanPixels(const ImageInfo& info, Colors colors, OutputType type, OutputPlan* plan);

// The values of crop_mirror_normalize: (sample - subtract) * multiply. Vectors have one
// value for all channels or one a channel; both are empty where nothing is to be done.
struct Normalization {
  std::vector<float> subtract, multiply;
  std::vector<float> fill;  // of the border and of padding channels; empty: zeros
  bool pad_channels;        // to the next power of two
};

// From its arguments. False unless `mean` and `std` have as many values or one has one.
bool MakeNormalization(const std::vector<float>& mean, const std::vector<float>& std, float scale,
                       float shift, Normalization* normalization);

// Sets what `plan` does with samples: `colors` of the stored type, normalized, in `type`.
// False if the values of `normalization` are neither one nor one a channel, or if `colors` is
// kYcbcr, which a plan cannot normalize, or has alpha, which nobody normalizes.
bool PlanNormalizedPixels(const ImageInfo& info, Colors colors, OutputType type,
                          const Normalization& normalization, OutputPlan* plan);

}  // namespace l3
