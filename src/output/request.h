// What users ask of the output of an image, and how it becomes what engines follow: the rules of
// DALI's decoders.image and crop_mirror_normalize, for all faces. Layer: output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/image_view.h"
#include "output/orientation.h"
#include "output/output_plan.h"
#include "output/output_tensor.h"
#include "output/region.h"
#include "output/window_job.h"

namespace l3 {

constexpr uint64_t kDefaultMaxPixels = uint64_t{1} << 28;

// kStored keeps the file's channels. The others read channels 0 to 2 of an image with three
// or four as R, G, B, and channel 0 of one with fewer as gray. Alpha is the last of two or four
// channels, and opaque where the file has none; the colors that do not name it drop it.
enum class Colors { kStored, kRgb, kBgr, kGray, kYcbcr, kRgbAlpha, kGrayAlpha };

using ChosenChannels = std::vector<uint16_t>;

// (sample - subtract) * multiply: one value for all channels or one a channel. Both are empty where
// numbers stay as they are.
struct Normalization {
  std::vector<float> subtract, multiply;
};

// All that a user can ask for. Each face translates its own arguments to this, and no more.
struct DecodeRequest {
  std::optional<Region> window;  // of the image as it is shown; none: all of it
  bool pads = false;             // the window may reach out of the image, and is filled there
  bool mirror = false;           // left to right
  Orientation orientation = kAsStored;
  ChosenChannels channels;  // by their numbers; none: all
  Colors colors = Colors::kStored;
  bool pad_channels = false;       // to the next power of two: only three channels to four
  std::optional<OutputType> type;  // none: the stored one
  // Whether samples fill the range of `type`, as in decoders.image (that of floats is 0 to 1), or
  // keep their numbers and saturate. None: labels keep them, and so do samples in an integer type
  // that holds all of their values; with a normalization all do. Other samples fill the range.
  std::optional<bool> fills_range;
  std::optional<Normalization> normalization;  // after that
  std::vector<float> fill;  // of padding: one value, or one a channel; none: zeros
  Layout layout = kHwc;
  uint64_t row_stride_bytes = 0;  // 0: packed
  uint64_t max_pixels = kDefaultMaxPixels;
  uint64_t window_count = 1;  // of this size, that max_pixels counts together
};

// Why an image cannot be decoded as requested.
enum class Misfit {
  kNone,
  kChannel,  // `channels` names one that the image does not have: FindMissing()
  kColors,  // are made of images of up to four channels, all of them; YCbCr is not normalized
  kValues,  // of normalization or fill are neither one nor one a channel; or channels are not
            // padded to a power of two
  kType,  // RefuseType()
  kWindow,  // is empty, or reaches out of the image and cannot be padded
  kPixels,  // more than max_pixels
  kStride,  // rows would overlap, or the output would not fit in any memory
};

// Plans what all windows of an image have in common: channels, type and values.
Misfit PlanImage(const DecodeRequest& request, const ImageInfo& info, OutputPlan* plan);
// Plans where the pixels of `request.window` go. After PlanImage(), once for each window.
Misfit PlanWindow(const DecodeRequest& request, const ImageInfo& info, OutputPlan* plan,
                  OutputTensor* tensor);
// Both, for one window.
Misfit PlanOutput(const DecodeRequest& request, const ImageInfo& info, OutputPlan* plan,
                  OutputTensor* tensor);
// The groups of the image that have channels of the output, in the order of the file. If that is
// one, completes these plans, those of all windows. None if a caller changed the list of groups
// since ParseImage() validated it.
std::vector<GroupOutput> PlanGroups(const DecodeRequest& request, const ImageView& view,
                                    OutputPlan* plans, size_t plan_count);

// How many channels the output has, or would have if the request fitted the image.
uint32_t OutputChannels(const DecodeRequest& request, const ImageInfo& info);

// How often max_pixels counts a pixel of so many channels: once for each four.
inline uint64_t PixelCost(uint32_t channels) { return CeilDiv(channels, kMaxChannels); }
// Whether an output of such windows has more than max_pixels.
bool IsTooLarge(const DecodeRequest& request, const Size& window, uint32_t channels);

// Makes a list for DecodeRequest::channels. Returns what is wrong with the numbers, for any image;
// empty if nothing is.
std::string ParseChannels(const std::vector<int64_t>& numbers, ChosenChannels* chosen);
// The first of the chosen channels that the image does not have, or -1.
int32_t FindMissing(const ImageInfo& info, const ChosenChannels& chosen);

// The name of a type in NumPy and PyTorch.
const char* TypeName(OutputType type);

// Whether the conversion of samples to `type` is unambiguous. It is not if labels may not fit, or
// signed samples an integer type, and there is no `fills_range`.
bool AllowsType(const ImageInfo& info, OutputType type, std::optional<bool> fills_range);
// If not, the second half of an error, behind the file's name. It calls the type `name`, if that is
// given. Else empty.
std::string RefuseType(const ImageInfo& info, OutputType type, std::optional<bool> fills_range,
                       const char* name = nullptr);

// From the arguments of crop_mirror_normalize. False unless `mean` and `std` have as many values or
// one has one.
bool MakeNormalization(const std::vector<float>& mean, const std::vector<float>& std, float scale,
                       float shift, Normalization* normalization);

}  // namespace l3
