// The decoding operators: each says which part of an image to decode, and what to make of
// its samples. Layer: adapter.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "dali/operators/image/crop/random_crop_attr.h"
#include "dali/pipeline/operator/arg_helper.h"
#include "op/decode_operator.h"
#include "op/window_arguments.h"

namespace l3 {

template <typename Backend>
class Decode : public DecodeOperator<Backend> {
 public:
  using DecodeOperator<Backend>::DecodeOperator;
};

template <typename Backend>
class DecodeCrop : public DecodeOperator<Backend> {
 public:
  explicit DecodeCrop(const dali::OpSpec& spec)
      : DecodeOperator<Backend>(spec), crop_(this->spec_) {}

 protected:
  Region GetRegion(const dali::Workspace& ws, int sample, const Size& image, bool failed,
                   std::string*) override {
    return crop_.GetRegion(ws, sample, image, failed);
  }

 private:
  CropArguments crop_;
};

template <typename Backend>
class DecodeSlice : public DecodeOperator<Backend> {
 public:
  explicit DecodeSlice(const dali::OpSpec& spec)
      : DecodeOperator<Backend>(spec), slice_(this->spec_) {}

 protected:
  void Acquire(const dali::Workspace& ws) override { slice_.Acquire(ws); }
  Region GetRegion(const dali::Workspace&, int sample, const Size& image, bool,
                   std::string* misfit) override {
    return slice_.GetRegion(sample, image, misfit);
  }

 private:
  SliceArguments slice_;
};

// Windows and random state are DALI's own, so a seed gives the windows that
// decoders.image_random_crop has.
template <typename Backend>
class DecodeRandomCrop : public dali::OperatorWithRandomCrop<DecodeOperator<Backend>> {
 public:
  explicit DecodeRandomCrop(const dali::OpSpec& spec)
      : dali::OperatorWithRandomCrop<DecodeOperator<Backend>>(spec) {}

 protected:
  Region GetRegion(const dali::Workspace&, int sample, const Size& image, bool failed,
                   std::string*) override {
    const dali::CropWindow window = this->random_crop_generators_[sample].GenerateCropWindow(
        dali::TensorShape<>{image.height_px, image.width_px});
    const Region region = {{window.anchor[1], window.shape[1]},
                           {window.anchor[0], window.shape[0]}};
    // DALI's arithmetic overflows where a side has some 50,000 pixels.
    return failed ? Trim(region, image) : region;
  }
};

// What is mirrored and normalized as it is decoded.
template <typename Backend>
class NormalizingOperator : public DecodeOperator<Backend> {
 public:
  explicit NormalizingOperator(const dali::OpSpec& spec)
      : DecodeOperator<Backend>(spec),
        mean_("mean", spec),
        std_("std", spec),
        scale_(spec.GetArgument<float>("scale")),
        shift_(spec.GetArgument<float>("shift")),
        pad_output_(spec.GetArgument<bool>("pad_output")) {
    DALI_ENFORCE(this->colors_ != Colors::kYcbcr,
                 "YCbCr cannot be normalized in one pass: decode to YCbCr with decode_crop, then "
                 "use crop_mirror_normalize.");
    SetPolicy(spec);
    SetLayout(spec.GetArgument<dali::TensorLayout>("output_layout"));
  }

 protected:
  void Acquire(const dali::Workspace& ws) override {
    const int samples = ws.GetInputBatchSize(0);
    mean_.Acquire(this->spec_, ws, samples, dali::ArgValue_EnforceUniform);
    std_.Acquire(this->spec_, ws, samples, dali::ArgValue_EnforceUniform);
  }
  bool IsMirrored(const dali::Workspace& ws, int sample) override {
    return this->spec_.template GetArgument<int>("mirror", &ws, sample) != 0;
  }
  // One value of `mean`, `std` and `fill_values` fits images of any channels, and an iterator that
  // makes one tensor of the batch would name no file.
  uint32_t CommonChannels(const ImageInfo& info) const override {
    const bool takes_any = mean_[0].num_elements() == 1 && std_[0].num_elements() == 1 &&
                           fill_values_.size() <= 1 && this->colors_ == Colors::kStored &&
                           this->channels_.empty() && !this->has_windows_;
    if (!takes_any) return 0;
    return pad_output_ && info.channels == 3 ? 4 : info.channels;
  }
  const char* TypeAdvice() const override {
    return " that holds the values of both, as int32 or float do";
  }
  void PlanSamplePixels(const dali::Workspace& ws, int sample, bool failed, ImageInfo* info,
                        TensorPlan* plan, std::string* misfit) override {
    Normalization normalization = {{}, {}, {}, pad_output_, this->fill_range_.value_or(false)};
    if (!failed) {
      normalization.fill = fill_values_;
      DALI_ENFORCE(MakeNormalization(Values(mean_, sample), Values(std_, sample), scale_, shift_,
                                     &normalization),
                   "`mean` and `std` have as many values, or one of them has one.");
      // What is normalized has other values than the file.
      if (normalization.subtract.empty()) this->RequireType(ws, sample, *info, misfit);
    }
    const auto plan_pixels = [&] {
      *plan = TensorPlan{};
      if (this->MakesColors(ws, sample, info, misfit)) {
        return PlanNormalizedPixels(*info, this->colors_, this->type_, normalization,
                                    &plan->output);
      }
      return PlanWideNormalizedPixels(*info, this->channels_, this->type_, normalization, plan) &&
             !(pad_output_ && !IsPowerOfTwo(plan->channels()));
    };
    if (plan_pixels()) return;
    const size_t count =
        this->channels_.empty() ? OutputChannels(*info, this->colors_) : this->channels_.size();
    // If stored channels are the output, images of other channel counts may fit. Zeros take their
    // shape.
    const bool others_can_fit = this->colors_ == Colors::kStored && this->channels_.empty();
    const size_t values = std::max(normalization.subtract.size(), normalization.fill.size());
    const std::string message = dali::make_string(
        "`mean`, `std` and `fill_values` have one value or one for each channel, and `pad_output` "
        "pads up to four, none that `channels` chose; ",
        this->Name(ws, sample), " has ", count, " channels.",
        others_can_fit && count <= kMaxChannels && values == 3
            ? " `output_type=types.RGB` makes three."
            : "");
    DALI_ENFORCE(others_can_fit, message);
    bool fits = false;
    for (uint16_t channels = 1; channels <= kMaxChannels && !fits; ++channels) {
      info->channels = channels;
      fits = plan_pixels();
    }
    if (!fits && values > kMaxChannels && values <= kMaxImageChannels) {
      info->channels = static_cast<uint16_t>(values);
      fits = plan_pixels();
    }
    DALI_ENFORCE(fits, message);
    *misfit = message;
  }

 private:
  using Outside = typename DecodeOperator<Backend>::Outside;

  static bool IsPowerOfTwo(uint32_t number) { return (number & (number - 1)) == 0; }

  static std::vector<float> Values(const dali::ArgValue<float, 1>& argument, int sample) {
    return {argument[sample].data, argument[sample].data + argument[sample].num_elements()};
  }

  void SetPolicy(const dali::OpSpec& spec) {
    const std::string policy = spec.GetArgument<std::string>("out_of_bounds_policy");
    if (policy == "error") {
      this->outside_ = Outside::kError;
    } else if (policy == "pad") {
      this->outside_ = Outside::kPad;
      fill_values_ = spec.GetRepeatedArgument<float>("fill_values");
    } else if (policy == "trim_to_shape") {
      this->outside_ = Outside::kTrim;
    } else {
      DALI_FAIL(
          dali::make_string("`out_of_bounds_policy` is \"error\", \"pad\" or "
                            "\"trim_to_shape\", got \"",
                            policy, "\"."));
    }
  }

  void SetLayout(const dali::TensorLayout& layout) {
    if (layout.empty()) return;
    DALI_ENFORCE(layout.is_permutation_of("HWC"),
                 dali::make_string("`output_layout` is a permutation of HWC, got ", layout, "."));
    for (int i = 0; i < 3; ++i) {
      this->layout_[i] = layout[i] == 'H'   ? Axis::kHeight
                         : layout[i] == 'W' ? Axis::kWidth
                                            : Axis::kChannel;
    }
    this->output_layout_ = layout;
  }

  dali::ArgValue<float, 1> mean_, std_;
  float scale_, shift_;
  bool pad_output_;
  std::vector<float> fill_values_;  // none where no pixel is padded
};

template <typename Backend>
class DecodeCropMirrorNormalize : public NormalizingOperator<Backend> {
 public:
  explicit DecodeCropMirrorNormalize(const dali::OpSpec& spec)
      : NormalizingOperator<Backend>(spec), crop_(this->spec_) {}

 protected:
  Region GetRegion(const dali::Workspace& ws, int sample, const Size& image, bool failed,
                   std::string*) override {
    return crop_.GetRegion(ws, sample, image, failed);
  }

 private:
  CropArguments crop_;
};

// Many windows of an image, in one tensor.
template <typename Backend>
class DecodeWindows : public dali::OperatorWithRandomCrop<NormalizingOperator<Backend>> {
 public:
  explicit DecodeWindows(const dali::OpSpec& spec)
      : dali::OperatorWithRandomCrop<NormalizingOperator<Backend>>(spec), windows_(this->spec_) {
    this->has_windows_ = true;
    DALI_ENFORCE(
        this->outside_ != Outside::kTrim,
        "`out_of_bounds_policy` is \"error\" or \"pad\" here: windows of a sample have one "
        "size, so that none can be trimmed.");
  }

 protected:
  void Acquire(const dali::Workspace& ws) override {
    NormalizingOperator<Backend>::Acquire(ws);
    windows_.Acquire(ws);
  }
  Size GetRegions(const dali::Workspace&, int sample, const Size& image, bool failed,
                  std::vector<Region>* regions, std::string* misfit) override {
    const auto random_size = [&] {
      const dali::CropWindow window = this->random_crop_generators_[sample].GenerateCropWindow(
          dali::TensorShape<>{image.height_px, image.width_px});
      // DALI's arithmetic overflows where a side has some 50,000 pixels.
      return Size{std::clamp<int64_t>(window.shape[1], 1, image.width_px),
                  std::clamp<int64_t>(window.shape[0], 1, image.height_px)};
    };
    auto random = this->GetSampleRNG(sample);
    const bool pads = this->outside_ == Outside::kPad;
    return windows_.GetRegions(sample, image, failed, pads, random_size, &random, regions, misfit);
  }

 private:
  using Outside = typename DecodeOperator<Backend>::Outside;

  WindowArguments windows_;
};

}  // namespace l3
